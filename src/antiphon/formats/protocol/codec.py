"""All requests and all answers, as bytes and back.
Raise `FormatError` on bytes that are not such a message. A large pack is not copied on its way.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.formats.protocol.admin import (
    Add,
    AskBarrier,
    Asked,
    AskLog,
    AskSlices,
    AskStatus,
    Barrier,
    Credit,
    Delivered,
    LogBounds,
    LogEnd,
    LogSlices,
    NotLeader,
    ReadLog,
    Remove,
    Status,
    Tail,
    Transfer,
)
from antiphon.formats.protocol.answers import (
    Acked,
    Attached,
    Browsed,
    ConsumerEnded,
    Deliver,
    Ended,
    NotPublished,
    Pong,
    Published,
    Redirect,
    Refused,
    Result,
)
from antiphon.formats.protocol.groups import (
    Happened,
    StateChunk,
    StateComes,
    StateFailed,
    StateStopped,
    StateTaken,
)
from antiphon.formats.protocol.requests import Ack, Attach, Control, Ping, Publish

PACK_MAX = 65 << 20
"""A message of 64 MiB, its headers, and the pack's own."""

REQUEST_MAX = PACK_MAX + 1024
"""Bytes of a request."""

CONTROL_MAX = 1 << 20
"""Bytes of a request that carries no pack, and of any request before a session is attached. An
`Attach` may need many: it names every producer, and the ranges of messages that the client holds.
"""

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
    """Return the bytes of a message."""
    return _encoder.encode(message)


def encode_parts(message: Request | Answer) -> tuple[bytes, ...]:
    """Return the bytes of a message in parts, of which a large pack is one: it is not copied."""
    if not isinstance(message, _WITH_PACKS) or len(message.pack) <= frames.LARGE_BYTES:
        return (_encoder.encode(message),)
    bare = _encoder.encode(msgspec.structs.replace(message, pack=b""))
    names = message.__struct_fields__
    after = (getattr(message, name) for name in names[names.index("pack") + 1 :])
    tail = b"".join(map(_encoder.encode, after))
    return frames.before_bytes(bare, message.pack, tail), message.pack, tail


def decode_request(body: frames.Body) -> Request:
    """Return the request that is encoded in `body`. Raise `FormatError`."""
    try:
        if len(body) > frames.LARGE_FRAME:
            with suppress(msgspec.ValidationError):  # otherwise it is another kind of request
                return Publish(frames.kept(_publish_view.decode(body).pack))
        return _request.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a client's request: {error}") from None


def decode_answer(body: frames.Body) -> Answer:
    """Return the answer that is encoded in `body`. Raise `FormatError`."""
    try:
        return _answer.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a server's answer: {error}") from None
