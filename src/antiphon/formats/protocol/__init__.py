"""The messages between clients and servers, in frames as between servers (`formats/frames.py`).

`docs/wire.md` explains the protocol as a story. In short:

**Sessions.** `Attach` opens a session or resumes one, through any server; `Attached` says how far
the session's messages were accepted. A client numbers its messages; those without an answer when a
connection is lost are sent again with the same numbers.

**Publishing.** `Publish` carries a pack. `Published` is cumulative; `NotPublished` says which
messages were refused for good.

**Control.** `Control` carries one request at a time, numbered 1, 2, 3... in its session; a number
that comes again gets the answer that it got, so asking again is harmless.

**Receiving.** `Deliver` carries a pack, or a slice of one, for one consumer. There are at most
`prefetch` messages delivered and not acknowledged. `Ack` acknowledges ranges of positions, and is
answered by `Acked` when that is certain; it may be sent again.

**State transfer.** A member that joins takes over the state of another one (`GroupEvent` of kind
`STATE`): `StateChunk`, `StateTaken` and `StateFailed` go from client to client through their
servers, outside the log; `StateDone` says in the log that all of it has arrived, `AskState` that it
will not.

Everything here raises `FormatError` on bytes that are not such a message.
"""

from antiphon.formats.protocol.admin import (
    Add as Add,
    AskBarrier as AskBarrier,
    Asked as Asked,
    AskLog as AskLog,
    AskSlices as AskSlices,
    AskStatus as AskStatus,
    Barrier as Barrier,
    Change as Change,
    Credit as Credit,
    Delivered as Delivered,
    GroupStatus as GroupStatus,
    LogBounds as LogBounds,
    LogEnd as LogEnd,
    LogSlice as LogSlice,
    LogSlices as LogSlices,
    MemberStatus as MemberStatus,
    NotLeader as NotLeader,
    ReadLog as ReadLog,
    Remove as Remove,
    Status as Status,
    Tail as Tail,
    Transfer as Transfer,
)
from antiphon.formats.protocol.answers import (
    Acked as Acked,
    Attached as Attached,
    Browsed as Browsed,
    ConsumerEnded as ConsumerEnded,
    Deliver as Deliver,
    Ended as Ended,
    NotPublished as NotPublished,
    Pong as Pong,
    Published as Published,
    Redirect as Redirect,
    Refused as Refused,
    Result as Result,
)
from antiphon.formats.protocol.codec import (
    CONTROL_MAX as CONTROL_MAX,
    PACK_MAX as PACK_MAX,
    REQUEST_MAX as REQUEST_MAX,
    Answer as Answer,
    Request as Request,
    decode_answer as decode_answer,
    decode_request as decode_request,
    encode as encode,
    encode_parts as encode_parts,
)
from antiphon.formats.protocol.groups import (
    RELATION as RELATION,
    STATE as STATE,
    STATE_CHUNK_MAX as STATE_CHUNK_MAX,
    STATE_WINDOW as STATE_WINDOW,
    SUSPICION as SUSPICION,
    VIEW as VIEW,
    AskState as AskState,
    CreateGroup as CreateGroup,
    DeleteGroup as DeleteGroup,
    GroupEvent as GroupEvent,
    Happened as Happened,
    Join as Join,
    Leave as Leave,
    Relayed as Relayed,
    StateChunk as StateChunk,
    StateComes as StateComes,
    StateDone as StateDone,
    StateFailed as StateFailed,
    StateStopped as StateStopped,
    StateTaken as StateTaken,
)
from antiphon.formats.protocol.requests import (
    ACK as ACK,
    CLAIM as CLAIM,
    DEAD as DEAD,
    FAILED as FAILED,
    SKIP as SKIP,
    Ack as Ack,
    AckRow as AckRow,
    Attach as Attach,
    Body as Body,
    CloseConsumer as CloseConsumer,
    CloseSession as CloseSession,
    Commit as Commit,
    Control as Control,
    CreateTemporary as CreateTemporary,
    CreateTopic as CreateTopic,
    DeleteTemporary as DeleteTemporary,
    Discard as Discard,
    Kept as Kept,
    OpenConsumer as OpenConsumer,
    OpenProducer as OpenProducer,
    Ping as Ping,
    Publish as Publish,
    Return as Return,
    Seen as Seen,
    Sent as Sent,
    Stage as Stage,
    Unsubscribe as Unsubscribe,
    Widen as Widen,
)
