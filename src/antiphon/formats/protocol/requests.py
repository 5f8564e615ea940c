"""The requests of a client to its server: sessions, messages, acknowledgements, control requests.

`Body` names every control request, with those of groups. Commands of the log carry some of these
bodies as they came (`formats/commands.py`), so a change of them is a change of the log's format.
"""

from __future__ import annotations

import msgspec

from antiphon.formats.protocol.groups import (
    AskState,
    CreateGroup,
    DeleteGroup,
    Join,
    Leave,
    StateDone,
)
from antiphon.model.redelivery import Redelivery


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of one consumer's messages that a resuming client already has."""

    consumer: int
    position: int  # of a topic's: everything up to here has arrived; 0: nothing yet
    held: tuple[tuple[int, int], ...]  # of a queue's: not known to be acknowledged
    event: int = 0  # of a group's: its events up to here have arrived


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """Open a session at this server, or resume it; the first message of a connection. The answer is
    `Attached`, `Ended` or `Redirect`."""

    session: int
    token: bytes
    resume: bool
    attempt: int  # 1, 2, 3...: with each connection that the client tries
    client_id: str
    lease_ms: int  # how long the session outlives a lost connection
    sequences: tuple[tuple[int, int], ...]  # (producer, sequence) of the next message it may send
    seen: tuple[Seen, ...]
    user: str = ""
    password: str = ""


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Order the messages of a pack. The answer is `Published`, for all packs up to this one, or
    `NotPublished`."""

    pack: bytes


ACK, DEAD, CLAIM, SKIP, FAILED = range(5)
"""The meanings of an `AckRow`. `ACK`: the messages are done with. `DEAD`: they cannot be handled,
and go to the dead letters. `CLAIM`: this consumer of a queue, which has a selector, wants them.
`SKIP`: no consumer of this shared subscription wants them. `FAILED`: they could not be handled this
time, and come again after a wait. Only servers use `CLAIM` and `SKIP`; `FAILED` is for messages of
queues, and only if `Attached.redelivery` is there."""


class AckRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Positions `first` to `last` of one consumer. From a topic, 0 as `first` means: everything
    up to `last`. From a queue, each position in the range was delivered to this consumer."""

    consumer: int
    first: int
    last: int
    event: int = 0  # of a group: its events up to here
    state: int = 0  # and the state that was asked for with this one
    kind: int = ACK
    reason: str = ""  # DEAD: why
    deliveries: int = 0  # FAILED: which delivery it was; a later one of the message is not meant
    wait: int = 0  # FAILED: ms of the log's time, until it can be delivered again


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """Acknowledge messages; answered by `Acked` when that is certain."""

    number: int  # 1, 2, 3... on this session
    rows: tuple[AckRow, ...]
    patient: bool = False  # no caller waits for the answer: it may gather with others


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Sent when nothing else was for a heartbeat; answered by `Pong`."""


class OpenConsumer(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Open a consumer, a browser or a durable subscription."""

    consumer: int  # its number in the session, chosen by the client
    destination: str  # as in `api/messages/destinations.py`; of a topic it may be a pattern
    prefetch: int  # messages delivered and not acknowledged
    durable: str = ""  # the name of the durable subscription
    selector: str = ""
    no_local: bool = False
    slow: str = "spill"
    shared: str = ""  # the name of the shared subscription; if it is durable, `durable` is the same
    browse: bool = False  # look at the messages of a queue, and leave them there
    exclusive: bool = False  # of a queue: the only one to get messages while it is open
    redelivery: Redelivery | None = None  # of a queue: the options that it should have; None: none


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages that the application saw and has not acknowledged."""

    consumer: int
    first: int
    last: int
    deliveries: int  # how often each was handed to the application
    wait: int = 0  # ms until they come again, if they go back because handling them failed


class CloseConsumer(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """`kept` can still be acknowledged by the session; everything else goes back: messages that
    were seen (`back`) flagged, and before the rest."""

    consumer: int
    kept: tuple[Kept, ...] = ()
    failed: bool = False  # of a group: it cannot go on, so suspect it
    back: tuple[Kept, ...] = ()


class Return(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Give back the messages that were kept of closed consumers: they will be delivered again,
    flagged."""

    kept: tuple[Kept, ...]


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """End a durable subscription, or the membership of a durable member."""

    name: str
    group: str = ""  # the group's destination; empty: a durable subscription, or a member's name


class CreateTemporary(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Make a destination that lives as long as the session."""

    destination: str


class DeleteTemporary(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """Delete one, which must have no consumer."""

    destination: str


class OpenProducer(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Continue a named producer in this session. The answer's `value` is the number of its messages
    that were ever accepted."""

    producer: int  # its number in the session, from 1 on
    name: str


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """End the session, with all its consumers. `kept` was seen, and goes back flagged."""

    kept: tuple[Kept, ...] = ()


Sent = tuple[int, int, int]  # producer, first and last sequence: whole packs that are staged


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """End a transaction: at one place in the order, all that was received is acknowledged, and all
    that was sent becomes visible. The answer's `value` is 1; 0: the token is known, and the
    messages sent are dropped."""

    rows: tuple[AckRow, ...]
    sent: tuple[Sent, ...]
    token: str = ""
    staged: tuple[str, ...] = ()  # handles, of any session


class Stage(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """Keep the staged messages beyond this session. The answer's `data` is the handle."""

    sent: tuple[Sent, ...]


class Discard(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Forget the staged messages."""

    sent: tuple[Sent, ...]


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """Make this a topic that keeps the last message of each key for those who come later."""

    destination: str


class Widen(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Give a consumer a larger window: its session has not acknowledged all that is in it, and
    wants more."""

    consumer: int
    prefetch: int


Body = (
    OpenConsumer
    | CloseConsumer
    | Return
    | Unsubscribe
    | CreateTemporary
    | DeleteTemporary
    | OpenProducer
    | CloseSession
    | CreateGroup
    | Join
    | Leave
    | AskState
    | StateDone
    | Commit
    | Stage
    | Discard
    | CreateTopic
    | Widen
    | DeleteGroup
)


class Control(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """One of the requests that change something; answered by a `Result` of the same number. A
    number that comes again gets the answer that it got."""

    number: int
    body: Body
