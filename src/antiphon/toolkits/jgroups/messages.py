"""Messages of JGroups: a destination, a source, a payload and flags."""

from __future__ import annotations

from enum import IntFlag
from typing import Any, Self

import antiphon
from antiphon.errors import IllegalStateError

FLAGS, DEST = "jgroups_flags", "jgroups_dest"
"""The properties of messages on a channel: the flags, and the member that one is for."""


class Flag(IntFlag):
    """A wish for one message. DONT_BUNDLE changes nothing here: a lone message leaves at once, and
    others wait for nobody. NO_FC is refused: no message goes without the leave of its receivers."""

    OOB = 1  # out of band: in any order
    DONT_BUNDLE = 2
    NO_FC = 4
    NO_RELIABILITY = 8  # as OOB here: it is not lost
    NO_TOTAL_ORDER = 16  # in the sender's order alone
    RSVP = 32  # `send` returns when all members have it
    DONT_LOOPBACK = 64  # not to the sender


class Message:
    """A message to all members (`dest` is None), or to one. `src` is filled in by the channel that
    sends it. The payload may be what an object message may have."""

    def __init__(self, dest: str | None = None, src: str | None = None, payload: Any = None):
        self.dest = dest
        self.src = src
        self.flags = Flag(0)
        self._payload = payload

    @property
    def object(self) -> Any:
        """The payload."""
        return self._payload

    def set_flag(self, *flags: Flag) -> Self:
        """Set flags, and return this message. Raise `ValueError` for one that cannot be kept."""
        for flag in flags:
            if flag & Flag.NO_FC:
                raise ValueError(
                    "NO_FC cannot be kept: what its receivers have no room for waits at its sender"
                )
            self.flags |= flag
        return self

    def is_flag_set(self, flag: Flag) -> bool:
        """Return whether the message has this flag."""
        return flag in self.flags

    def __repr__(self) -> str:
        return f"<{type(self).__name__} from {self.src} to {self.dest or 'all'}: {self._payload!r}>"


class ObjectMessage(Message):
    """A message with any payload."""

    def __init__(self, dest: str | None = None, payload: Any = None):
        super().__init__(dest, None, payload)


class BytesMessage(Message):
    """A message with bytes."""

    def __init__(self, dest: str | None = None, payload: bytes = b""):
        super().__init__(dest, None, bytes(payload))

    @property
    def array(self) -> bytes:
        """The bytes."""
        return bytes(self._payload)

    @property
    def length(self) -> int:
        """The number of bytes."""
        return len(self._payload)


class EmptyMessage(Message):
    """A message without a payload."""

    def __init__(self, dest: str | None = None):
        super().__init__(dest)


def order_of(flags: Flag) -> str | None:
    """Return the order that a message with these flags asks for; None: that of its stack."""
    if Flag.RSVP in flags:
        return "safe"
    if flags & (Flag.OOB | Flag.NO_RELIABILITY):
        return "none"
    return "fifo" if Flag.NO_TOTAL_ORDER in flags else None


def outgoing(message: Message, token: str | None) -> antiphon.Message:
    """Return a message as a channel sends it. `token`: by which its sender knows it again."""
    payload = message.object
    sent: antiphon.Message
    if payload is None:
        sent = antiphon.Message()
    elif isinstance(payload, bytes):
        sent = antiphon.BytesMessage(payload)
    else:
        sent = antiphon.ObjectMessage(payload)
    if message.flags:
        sent.properties[FLAGS] = int(message.flags)
    if message.dest is not None:
        sent.properties[DEST] = message.dest
    sent.correlation_id = token
    return sent


def arrived(message: antiphon.Message) -> Message:
    """Return a message of a channel as JGroups has it."""
    body, properties = message.body, message.properties
    dest = properties.get(DEST)
    kind = str(dest) if dest is not None else None
    made: Message
    if body is None:
        made = EmptyMessage(kind)
    elif isinstance(body, bytes):
        made = BytesMessage(kind, body)
    else:
        made = ObjectMessage(kind, body)
    made.src = message.sender
    made.flags = flags_of(message)
    return made


def flags_of(message: antiphon.Message) -> Flag:
    value = message.properties.get(FLAGS, 0)
    return Flag(value) if isinstance(value, int) else Flag(0)


def check_rsvp(message: Message, has_layer: bool, has_receiver: bool) -> None:
    """Raise `IllegalStateError` if a message with RSVP cannot be waited for."""
    if message.dest is not None:
        raise IllegalStateError("RSVP is for messages to all members")
    if not has_layer:
        raise IllegalStateError("RSVP needs the protocol RSVP in the stack")
    if not has_receiver:
        raise IllegalStateError(
            "RSVP needs a receiver, and a thread other than the one that calls it: `send` waits "
            "until this process has been handed its own message"
        )
