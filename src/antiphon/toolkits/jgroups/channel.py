"""Channels of JGroups, and what programs give them to be called."""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import IO, Any, ClassVar, Protocol, Self

import antiphon
from antiphon import peers
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.errors import IllegalStateError, OutcomeUnknownError
from antiphon.toolkits.jgroups import protocols
from antiphon.toolkits.jgroups.files import read_file
from antiphon.toolkits.jgroups.messages import (
    Flag,
    Message,
    arrived,
    check_rsvp,
    flags_of,
    order_of,
    outgoing,
)
from antiphon.toolkits.jgroups.suspicions import Suspicions
from antiphon.toolkits.jgroups.views import View, view_of

logger = logging.getLogger("antiphon.toolkits.jgroups")

RSVP_S = 10.0
"""Seconds that `send` waits for a message with RSVP, as JGroups' protocol does."""


class Receiver:
    """What a channel calls: subclass it. Calls come one at a time, on a thread of the channel."""

    def receive(self, msg: Message) -> object:
        """Take a message."""

    def view_accepted(self, view: View) -> object:
        """Take a view, at its place among the messages."""

    def suspect(self, member: str) -> object:
        """Note that a member seems to have crashed; a view without it may follow. This comes at no
        place among the messages."""

    def get_state(self, output: IO[bytes]) -> object:
        """Write the state of this program, for a member that asks."""
        raise IllegalStateError(f"{type(self).__name__} has no state: write get_state")

    def set_state(self, input: IO[bytes]) -> object:
        """Take over the state of another member."""


class SuspectEvent:
    """What `JChannel.receive` returns of a member that seems to have crashed."""

    def __init__(self, member: str) -> None:
        self.member = member


class Attached(Protocol):
    """A building block on a channel."""

    has_state: ClassVar[bool]

    def opened(self, place: ChannelPlace, cluster: str) -> None:
        """The channel is connected."""

    def closed(self) -> None:
        """The channel is not connected any more."""

    def viewed(self, view: View) -> None:
        """The channel has a new view."""


class JChannel:
    """A process's handle on a group: it is connected to one at a time, and may be connected again.

    `stack`: a file of JGroups (`udp.xml` and `tcp.xml` are there without one), a list of protocols
    (`"GMS"`, or `("FRAG", {"frag_size": "8192"})`), or a `peers.Stack`. All members of a group have
    the same one. `ignored` has the protocols and attributes that mean nothing here. `settings`:
    `listen`, `tls`, `plaintext`, `allow_pickle` and `trace` of `peers.Channel`.

    Raise `ConfigurationError` for a stack that makes no sense.
    """

    def __init__(
        self,
        stack: str
        | os.PathLike[str]
        | peers.Stack
        | Iterable[protocols.Protocol | tuple[str, Mapping[str, str]] | str] = "udp.xml",
        **settings: Any,
    ) -> None:
        if isinstance(stack, peers.Stack):
            configured = protocols.Configured(stack, "peer:{}", None, ())
        else:
            listed = read_file(stack) if isinstance(stack, str | os.PathLike) else stack
            configured = protocols.configured(listed)
        self.stack = configured.stack
        self.ignored = configured.ignored
        self._cluster = configured.cluster
        self._settings: dict[str, Any] = {"listen": configured.listen, **settings}
        self._name: str | None = None
        self._receiver: Receiver | None = None
        self._block: Attached | None = None
        self._place: ChannelPlace | None = None
        self._closed = False
        self._suspects: deque[str] = deque()
        self._next: View | Message | None = None  # of `receive`, behind suspicions
        self._waited: dict[str, threading.Event] = {}  # messages with RSVP
        if self.ignored:
            logger.info("without meaning here: %s", ", ".join(self.ignored))

    # -- Before it is connected ------------------------------------------------------------------

    def name(self, name: str) -> Self:
        """Give this member its name, which is its address, and return the channel."""
        if self._place is not None:
            raise IllegalStateError("a channel gets its name before it is connected")
        self._name = name
        return self

    def set_receiver(self, receiver: Receiver | None) -> Self:
        """Have messages, views and states handed to `receiver` in place of `receive`, and return
        the channel. One that is set before `connect` hands out its state, if it has one."""
        self._receiver = receiver
        if receiver is not None and self._place is not None:
            self._place.start()
        return self

    def attach(self, block: Attached) -> None:
        """Have a building block stand on this channel. Raise `IllegalStateError` if there is one
        already, or if the channel is connected, for a block with a state."""
        if self._block is not None:
            raise IllegalStateError("the channel has a building block: make a channel for each")
        if self._place is not None and block.has_state:
            raise IllegalStateError("a block with a state is made before its channel is connected")
        self._block = block
        if self._place is not None:
            block.opened(self._place, self.cluster_name)

    # -- Joining and leaving ---------------------------------------------------------------------

    def connect(self, cluster: str, timeout: float | None = 10.0) -> None:
        """Join a group; the first one makes it. `cluster`: its name, which the stack's discovery
        finds, or a URL (`peers.Channel.connect`). Raise the errors of that call, and
        `IllegalStateError` if the channel is connected or closed."""
        if self._closed or self._place is not None:
            raise IllegalStateError("the channel is closed" if self._closed else "it is connected")
        url = cluster if cluster.startswith("peer:") else self._cluster.replace("{}", cluster)
        layers = (*self.stack.layers, Suspicions(self._suspect))
        state = self._state if self._has_state else None
        channel = peers.Channel(
            peers.Stack(*layers), name=self._name, state=state, **self._settings
        )
        place = ChannelPlace(channel, self._take)
        channel.connect(url, timeout)
        self._place, self.cluster_name = place, url.partition("?")[0].rpartition("/")[2]
        self._suspects.clear()
        self._next = None
        try:
            if self._block is not None:
                self._block.opened(place, self.cluster_name)
        except BaseException:
            self.disconnect()
            raise
        if self._receiver is not None or self._block is not None:
            place.start()

    def disconnect(self) -> None:
        """Leave the group: what was sent before leaves, and the others get a view without this
        member. The channel may be connected again."""
        place, self._place = self._place, None
        if place is None:
            return
        place.channel.close()
        place.close()
        if self._block is not None:
            self._block.closed()

    def close(self) -> None:
        """Disconnect, and make the channel unusable. Closing twice is no error."""
        self._closed = True
        self.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to a group, and has not lost it."""
        return self._place is not None and not self._place.channel.closed

    @property
    def is_open(self) -> bool:
        """Whether it was not closed: it may be connected, or be connected again."""
        return not self._closed

    @property
    def address(self) -> str:
        """The name of this member. Raise `IllegalStateError` if the channel is not connected."""
        return self._connected.channel.name

    @property
    def _connected(self) -> ChannelPlace:
        if self._place is None:
            raise IllegalStateError("the channel is not connected")
        return self._place

    def get_view(self) -> View:
        """Return the newest view, which the program may not have received yet."""
        return View(self._connected.channel.view)

    # -- Messages --------------------------------------------------------------------------------

    def send(self, dest: Message | str | None, payload: Any = None) -> None:
        """Send a message, or a payload to a member or, with None, to all, this one included. Return
        when the stack has it; with RSVP, when all members have it.

        Raise the errors of `peers.Channel.send`; with RSVP `OutcomeUnknownError` if this takes more
        than ten seconds, and `IllegalStateError` if it cannot be known (`Flag`)."""
        channel = self._connected.channel
        message = dest if isinstance(dest, Message) else Message(dest, None, payload)
        order = order_of(message.flags)
        if Flag.RSVP not in message.flags:
            channel.send(outgoing(message, None), to=message.dest, order=order)
            return
        waits = self._receiver is not None and not self._connected.is_handling
        check_rsvp(message, "safe" in self.stack.gives, waits)
        token = token_hex(8)
        held = self._waited[token] = threading.Event()
        try:
            channel.send(outgoing(message, token), order=order, timeout=RSVP_S)
            if not held.wait(RSVP_S):
                raise OutcomeUnknownError(f"not all members had the message within {RSVP_S:g} s")
        finally:
            del self._waited[token]

    def receive(self, timeout: float = 0) -> Message | View | SuspectEvent:
        """Return the next message, view or suspicion; 0 waits without limit. Raise `TimeoutError`
        if none came within `timeout` seconds, and `IllegalStateError` if the channel is not
        connected, was closed meanwhile, or has a receiver or a building block."""
        place = self._connected
        if self._receiver is not None or self._block is not None:
            raise IllegalStateError("the channel has a receiver or a building block")
        end = time.monotonic() + timeout
        while self._next is None:
            left = None if timeout == 0 else max(0.0, end - time.monotonic())
            message = place.channel.receive(left)
            if message is None and place.channel.closed:
                raise IllegalStateError("the channel was closed")
            if message is None:
                raise TimeoutError(f"nothing came within {timeout:g} s")
            self._next = self._taken(message)
        if self._suspects:
            return SuspectEvent(self._suspects.popleft())
        taken, self._next = self._next, None
        return taken

    def _taken(self, message: antiphon.Message) -> Message | View | None:
        """Return what came, as JGroups has it; None: the program does not get it."""
        if isinstance(message, antiphon.ViewMessage):
            return view_of(message)
        if message.sender == self._connected.channel.name:
            if (held := self._waited.get(message.correlation_id or "")) is not None:
                held.set()
            if Flag.DONT_LOOPBACK in flags_of(message):
                return None
        return arrived(message)

    def _take(self, message: antiphon.Message) -> None:
        """Hand the receiver what came. This is called for what is of no building block."""
        if self._place is None:
            return  # it is leaving
        taken = self._taken(message)
        if isinstance(taken, View) and self._block is not None:
            self._block.viewed(taken)
        if self._receiver is None or taken is None:
            return
        if isinstance(taken, View):
            self._receiver.view_accepted(taken)
        else:
            self._receiver.receive(taken)

    # -- Suspicions ------------------------------------------------------------------------------

    def _suspect(self, member: str) -> None:
        """Tell of a suspicion. The thread of the stack calls this, which must not wait."""
        if self._receiver is None:
            self._suspects.append(member)
        else:
            threading.Thread(target=self._tell_suspect, args=(member,), daemon=True).start()

    def _tell_suspect(self, member: str) -> None:
        place, receiver = self._place, self._receiver
        if place is not None and receiver is not None:
            with place.turn:
                receiver.suspect(member)

    # -- State -----------------------------------------------------------------------------------

    def get_state(self, target: str | None, timeout: float | None = 10.0) -> None:
        """Take over the state of the group: the receiver's `set_state` gets it, between two
        messages, and what it gets next continues from there (`peers.Channel.get_state`). Nothing
        happens if nobody has a state, or nobody else is there.

        `target`: None, for the oldest member that has one; nobody else is asked. Raise `ValueError`
        for any other target, `IllegalStateError` without a receiver, and the errors of
        `peers.Channel.get_state`: `OutcomeUnknownError` if it is not here within `timeout`
        seconds."""
        if target is not None:
            raise ValueError("the state comes from the oldest member that has one: write None")
        place, receiver = self._connected, self._receiver
        if receiver is None:
            raise IllegalStateError("set a receiver: its set_state gets the state")
        if place.channel.view.members == (place.channel.name,):
            return
        place.take_over(receiver.set_state, timeout)

    @property
    def _has_state(self) -> bool:
        """Whether the program has a state to hand out: members that ask wait for it."""
        if self._block is not None and self._block.has_state:
            return True
        return self._receiver is not None and type(self._receiver).get_state != Receiver.get_state

    def _state(self) -> bytes:
        place, receiver = self._place, self._receiver
        if place is not None and self._block is not None and self._block.has_state:
            return place.state()
        if receiver is None:
            raise IllegalStateError("there is no receiver that has a state")
        output = io.BytesIO()
        receiver.get_state(output)
        return output.getvalue()
