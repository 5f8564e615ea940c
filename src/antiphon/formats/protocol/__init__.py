"""What clients and servers say to each other, in frames as between servers (`formats/frames.py`).

`docs/wire.md` tells the protocol as a story. In short:

**Sessions.** `Attach` opens a session or resumes one, through any server; `Attached` says how far
the session's messages were accepted. A client numbers its messages; what is unanswered when a
connection is lost is sent again with the same numbers.

**Publishing.** `Publish` carries a pack. `Published` is cumulative; `NotPublished` says which
messages were refused for good.

**Control.** `Control` carries one request at a time, numbered 1, 2, 3... in its session; a number
that comes again gets the answer that it got, so asking again is harmless.

**Receiving.** `Deliver` carries a pack, or a slice of one, for one consumer. There are at most
`prefetch` messages delivered and not acknowledged. `Ack` acknowledges ranges of positions, and is
answered by `Acked` when that is certain; it may be sent again.

**State transfer.** A member that joins takes over the state of another one (`GroupEvent` of kind
`STATE`): `StateChunk`, `StateTaken` and `StateFailed` go from client to client through their
servers, besides the log; `StateDone` says in the log that all of it has arrived, `AskState` that it
will not.

Everything here raises `FormatError` on bytes that are not such a message.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.formats.entry import Membership, ReplicaId
from antiphon.model.redelivery import Redelivery

PACK_MAX = 65 << 20
"""A message of 64 MiB, its headers, and the pack's own."""

REQUEST_MAX = PACK_MAX + 1024
CONTROL_MAX = 1 << 20
"""Bytes of a request that carries no pack, and of any request before a session is attached. An
`Attach` may need many: it names every producer, and the ranges of messages that the client holds.
"""

# -- From a client: sessions, messages, acknowledgements ----------------------------------------


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a resuming client already has of one consumer's messages."""

    consumer: int
    position: int  # of a topic's: everything up to here has arrived; 0: nothing yet
    held: tuple[tuple[int, int], ...]  # of a queue's: not known to be acknowledged
    event: int = 0  # of a group's: its events up to here have arrived


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
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
    pack: bytes


ACK, DEAD, CLAIM, SKIP, FAILED = range(5)
"""What is said of messages: they are done with; they cannot be handled, and go to the dead letters;
this consumer of a queue, which has a selector, wants them; no consumer of this shared subscription
does; they could not be handled this time, and come again after a wait. `CLAIM` and `SKIP` are said
by servers, `FAILED` of a queue's messages only, and only if `Attached.redelivery` is there."""


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
    wait: int = 0  # FAILED: ms of the log's time, until it is there for anybody


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    number: int  # 1, 2, 3... on this session
    rows: tuple[AckRow, ...]
    patient: bool = False  # nobody waits for the answer: it may gather with others


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Said when nothing else was for a heartbeat; answered by `Pong`."""


# -- From a client: control requests ------------------------------------------------------------


class OpenConsumer(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
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
    redelivery: Redelivery | None = None  # of a queue: what is asked for it; None: nothing


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages that the application saw and has not acknowledged."""

    consumer: int
    first: int
    last: int
    deliveries: int  # how often each was handed to the application
    wait: int = 0  # ms until they come again, if they go back because handling them failed


class CloseConsumer(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """`kept` can still be acknowledged by the session; everything else goes back: what was seen
    (`back`) flagged, and before the rest."""

    consumer: int
    kept: tuple[Kept, ...] = ()
    failed: bool = False  # of a group: it cannot go on, and is to be suspected
    back: tuple[Kept, ...] = ()


class Return(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Give back what was kept of closed consumers: it will be delivered again, flagged."""

    kept: tuple[Kept, ...]


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    name: str
    group: str = ""  # the group's destination; empty: a durable subscription, or a member's name


class CreateTemporary(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    destination: str


class DeleteTemporary(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    destination: str


class OpenProducer(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The answer's `value` is how many messages the named producer has had accepted, ever."""

    producer: int  # its number in the session, from 1 on
    name: str


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    kept: tuple[Kept, ...] = ()


class CreateGroup(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The answer's `value` is the group's view, its `data` the conflict relation as JSON."""

    destination: str
    relation: str = ""  # JSON; empty: as the group has it, or the default
    remove_after_ms: int = -1  # 0: never; -1: as the group has it, or the default


class Join(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """The answer's `value` is the group's view, its `data` the member's name and the conflict
    relation as JSON, the members, and whether a state is to be waited for, in msgpack."""

    consumer: int
    destination: str
    prefetch: int
    name: str = ""  # empty: the server makes one
    durable: bool = False
    provides: bool = False  # can hand out the state to others
    takes_state: bool = True  # wants the state of those who were there before
    # How the group is to be, as far as nobody has said yet; as in `CreateGroup`.
    relation: str = ""
    remove_after_ms: int = -1


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A member leaves its group, also a durable one; its consumer is closed."""

    consumer: int


class AskState(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A member that waits for its state: request `serial` failed, another one is to be asked. A
    request that is no longer the last one is not meant, and nothing is changed."""

    consumer: int
    serial: int
    raised: bool = False  # the provider said that it cannot: do not ask that one again


class StateDone(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """A member has the whole state of request `serial`. The answer's `value` is 1; 0: there is a
    newer request, and this state is too old for the messages that will follow."""

    consumer: int
    serial: int


Sent = tuple[int, int, int]  # producer, first and last sequence: whole packs that are staged


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """End a transaction: at one place in the order, all that was received is acknowledged, and all
    that was sent becomes visible. The answer's `value` is 1; 0: the token is known, and what was
    sent is dropped."""

    rows: tuple[AckRow, ...]
    sent: tuple[Sent, ...]
    token: str = ""
    staged: tuple[str, ...] = ()  # handles, of any session


class Stage(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """Keep what is staged beyond this session. The answer's `data` is the handle."""

    sent: tuple[Sent, ...]


class Discard(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Forget what is staged."""

    sent: tuple[Sent, ...]


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """Make this a topic that keeps the last message of each key for those who come later."""

    destination: str


class Widen(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Give a consumer a larger window: its session has not acknowledged all that is in it, and
    wants more."""

    consumer: int
    prefetch: int


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """Remove all members of a group, durable ones too, with one view, and forget it. With live
    members it is refused, unless by force."""

    destination: str
    force: bool = False


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
    number: int
    body: Body


# -- From member to member, through their servers ------------------------------------------------

STATE_CHUNK_MAX = 64 << 10
STATE_WINDOW = 16
"""Chunks of a state that are on their way, from the member that hands it out to the one that takes
it: as much as any process holds of it, however large it is."""


class StateComes(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """To a member that waits for its state: it was asked for with this event. What came of an
    earlier one is worth nothing."""

    consumer: int
    serial: int
    position: int  # the cut: everything up to here is in it
    provider: str  # who was asked; empty: nobody has a state


class StateChunk(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """A piece of the state that was asked for with the group event `serial`. `consumer` is the
    sender's own number from a client, the receiver's own from a server; as in those below."""

    consumer: int
    serial: int
    seq: int  # 1, 2, 3...; at most `STATE_WINDOW` beyond what was taken
    data: bytes
    last: bool


class StateTaken(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Chunks up to `seq` have been taken: there is room for more."""

    consumer: int
    serial: int
    seq: int


class StateFailed(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """The member that was asked cannot hand out its state."""

    consumer: int
    serial: int
    reason: str


class StateStopped(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """From a server: nobody waits for this state any more."""

    consumer: int
    serial: int


Relayed = StateChunk | StateTaken | StateFailed


# -- From an operator ---------------------------------------------------------------------------


class Tail(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Read every accepted pack that is still kept, now and in future, without a session."""

    first: int  # the position to begin with
    credit: int  # bytes of packs that may be sent


class Credit(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    more: int


class AskLog(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """What this server has of the log; answered by `LogBounds`."""

    stamp: int = 0


class AskSlices(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """Where the messages of topics are between two positions; answered by `LogSlices`."""

    topics: tuple[str, ...]  # destinations, which may be patterns
    first: int
    last: int
    most: int  # messages in a slice, unless one pack has more


class ReadLog(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """The packs of one destination that have messages between two positions: each as `Delivered`,
    then `LogEnd`. Of this, `AskLog` and `AskSlices` a connection has the newest under way."""

    destination: str
    first: int
    last: int
    credit: int  # bytes of packs that may be sent


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    pass


class AskBarrier(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Answer when this server's state reflects all that is committed anywhere now."""

    request: int


class Add(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    node: int
    address: str


class Remove(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    node: int


class Transfer(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    node: int


Change = Add | Remove | Transfer
Request = (
    Attach
    | Publish
    | Ack
    | Ping
    | Control
    | StateChunk
    | StateTaken
    | StateFailed
    | Tail
    | Credit
    | AskLog
    | AskSlices
    | ReadLog
    | AskStatus
    | AskBarrier
    | Add
    | Remove
    | Transfer
)

# -- From a server ------------------------------------------------------------------------------


class Published(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    producer: int
    sequence: int  # of the last message accepted; all before it are settled too


class NotPublished(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Messages `first` to `last` were refused, and will be however often they are sent."""

    producer: int
    first: int
    last: int
    code: str  # the name of an error in `errors.py`
    text: str


VIEW, SUSPICION, RELATION, STATE = 1, 2, 3, 4
"""`STATE`: a member takes over the state as of this place. Only these two are told of it."""


class GroupEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What happens to a group besides messages; it stands after the message at `position` and
    before the next one, for every member."""

    serial: int  # 1, 2, 3... in the group
    position: int
    kind: int
    view: int  # the number of the view from here on
    members: tuple[str, ...] = ()  # of that view, in the order in which they joined
    # VIEW: who joined; SUSPICION: who is suspected now; STATE: who takes it over
    came: tuple[str, ...] = ()
    # VIEW: who left; SUSPICION: who no longer is; STATE: who hands it out, and is told
    went: tuple[str, ...] = ()
    relation: str = ""  # RELATION: the new one, as JSON


class Happened(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """A group event, for one consumer that is a member."""

    consumer: int
    event: GroupEvent


class ConsumerEnded(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Nothing more comes for this consumer, which the client did not close: another member has
    taken its place."""

    consumer: int
    code: str
    text: str


class Browsed(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """This browser has been sent all that there was when it was opened."""

    consumer: int


class Attached(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    session: int
    attachment: int  # 1 for a new session, then 2, 3...
    published: tuple[tuple[int, int], ...]  # (producer, sequence) up to which all is settled
    refused: tuple[NotPublished, ...]  # among those, lately
    heartbeat_ms: int  # who says nothing for three of these is gone
    pack_max: int
    deliveries_max: int = 10  # after so many a message goes to the dead letters
    redelivery: Redelivery | None = None  # the defaults; None: this server is of 0.1


class Result(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """The answer to `Control`."""

    number: int
    code: str = ""  # the name of an error in `errors.py`; empty: it was done
    text: str = ""
    value: int = 0
    data: bytes = b""
    redelivery: Redelivery | None = None  # `OpenConsumer` of a queue: what was asked for it
    wait: int = 0  # `OpenConsumer`, `Join`: ms for which nothing is to be handed out


class Acked(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    number: int  # this `Ack` and all before it


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    consumer: int
    position: int  # of the pack's first message
    stamp: int
    deliveries: int  # 1: never delivered before
    pack: bytes
    view: int = 0  # of a group: the one that these messages were ordered in
    age: int = 0  # ms by which the servers' time is past `stamp`, if some of them may expire
    reason: str = ""  # of a dead letter: why it is one


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    pass


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """The session is over, or was not opened; nothing more comes on this connection."""

    code: str
    text: str


class Redirect(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """With local contexts: server `node` alone knows what this session, or the last one with this
    client id, has acknowledged. It was told to let go of it; nothing more comes on this
    connection."""

    node: int
    address: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A request that cannot be granted, however often it is repeated. It had no effect."""

    reason: str
    code: str = ""  # the name of an error in `errors.py`; empty: the request makes no sense


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The answer to `Tail` and `ReadLog`."""

    position: int  # of the pack's first message
    stamp: int
    pack: bytes
    view: int = 0  # of a group: the one that these messages were ordered in


class LogBounds(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """Every message from `first` to `last`, the last one accepted, is kept here."""

    first: int
    last: int
    at: int  # the first of them that was accepted at the stamp that was asked for, or later


class LogSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """So many messages of one topic, between two positions that are its own."""

    destination: str
    first: int
    last: int
    messages: int


class LogSlices(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """All there is below `following`. If that is not beyond what was asked for, it is to be asked
    for from there on."""

    slices: tuple[LogSlice, ...]  # of each destination in order
    following: int


class LogEnd(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """All that `ReadLog` asked for has been sent."""

    last: int


class MemberStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    durable: bool
    joined: int  # the view that it came with
    node: int  # the server that it is connected to; 0: none
    suspected: bool
    why: str  # it is suspected, or away; empty: it is there
    behind: int  # positions between its last acknowledgement and the group's last message
    events: int  # views and suspicions that it has not acknowledged
    state_from: str  # who hands it the state; "?": nobody can; empty: it needs none


class GroupStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    view_id: int
    messages: int  # accepted, ever
    remove_after_ms: int  # 0: suspects are removed by members only
    members: tuple[MemberStatus, ...]  # in the order in which they joined


class Status(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """One server's view of itself and of the cluster."""

    id: ReplicaId
    pid: int
    role: str
    epoch: int
    leader: ReplicaId | None
    membership: Membership
    addresses: dict[int, str]  # of the servers that it knows
    committed: int
    applied: int
    position: int  # of the last accepted message
    digest: int  # of its state, to be compared at equal `applied`
    cpu_s: float
    trouble: tuple[str, ...]  # why it does not take part as it should
    counts: dict[str, dict[str, int]] = {}  # component -> what it has counted, and its queues
    groups: tuple[GroupStatus, ...] = ()


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    request: int
    position: int  # the last one accepted, as of some moment after the request


class Asked(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The leader has taken the change; `Status` shows when it has happened. One that it never will
    take is `Refused`."""

    waiting: str = ""  # why it has not taken it yet: ask again


class NotLeader(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Only a leader changes the cluster. Nothing was changed."""

    leader: int | None
    address: str


Answer = (
    Published
    | NotPublished
    | Attached
    | Result
    | Acked
    | Deliver
    | Happened
    | Browsed
    | ConsumerEnded
    | StateComes
    | StateChunk
    | StateTaken
    | StateFailed
    | StateStopped
    | Pong
    | Ended
    | Redirect
    | Refused
    | Delivered
    | LogBounds
    | LogSlices
    | LogEnd
    | Status
    | Barrier
    | Asked
    | NotLeader
)

_encoder = msgspec.msgpack.Encoder()
_WITH_PACKS = (Publish, Deliver, Delivered)


class _PublishView(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A `Publish` with a view of the frame that it came in."""

    pack: memoryview


_publish_view = msgspec.msgpack.Decoder(_PublishView)
_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    return _encoder.encode(message)


def encode_parts(message: Request | Answer) -> tuple[bytes, ...]:
    """The same in parts, of which a large pack is one: so it need not be copied."""
    if not isinstance(message, _WITH_PACKS) or len(message.pack) <= frames.LARGE_BYTES:
        return (_encoder.encode(message),)
    bare = _encoder.encode(msgspec.structs.replace(message, pack=b""))
    names = message.__struct_fields__
    after = (getattr(message, name) for name in names[names.index("pack") + 1 :])
    tail = b"".join(map(_encoder.encode, after))
    return frames.before_bytes(bare, message.pack, tail), message.pack, tail


def decode_request(body: frames.Body) -> Request:
    try:
        if len(body) > frames.LARGE_FRAME:
            with suppress(msgspec.ValidationError):  # otherwise it is another kind of request
                return Publish(frames.kept(_publish_view.decode(body).pack))
        return _request.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a client's request: {error}") from None


def decode_answer(body: frames.Body) -> Answer:
    try:
        return _answer.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a server's answer: {error}") from None
