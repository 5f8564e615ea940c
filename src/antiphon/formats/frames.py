"""Frames between processes: length, checksum, body; and the handshake that agrees on a version.

::

    0        4        8
    +--------+--------+---------------------+
    | length | crc32c | body: msgpack       |
    +--------+--------+---------------------+
      u32 LE   u32 LE   `length` bytes

The first frame each way is a `Hello` with the range of wire versions its sender speaks; both sides
go on with the newest that both know. Versions so far:

1. the base;
2. `Append.has`: how much the leader itself holds, so that followers can count for themselves;
3. `Relay`: messages between clients at different servers (state transfer);
4. `Hears` and `Via`: ways around links that do not work; `Piece`, `PieceTaken`, `AppendNamed` and
   `ForwardNamed`: large packs travel in pieces before they are ordered.

Within a version, fields are only ever added at the end and have defaults, so an older reader skips
what it does not know. Everything here raises `FormatError` on bytes that are not as drawn.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import lru_cache
from typing import Literal, TypeVar, cast

import msgspec
from crc32c import crc32c

from antiphon.errors import FormatError
from antiphon.formats.checksums import crc_with_nested
from antiphon.formats.entry import Entry, ReplicaId
from antiphon.formats.server_messages import (
    Append,
    AppendNamed,
    Envelope,
    Forward,
    ForwardNamed,
    Hears,
    Message,
    Piece,
    PieceTaken,
    Relay,
    Via,
)

OLDEST = 1
NEWEST = 4

_SINCE: dict[type, int] = {Relay: 3}
_SINCE |= dict.fromkeys((Hears, Via, Piece, PieceTaken, AppendNamed, ForwardNamed), 4)
"""Messages that older versions do not know."""

Body = bytes | bytearray | memoryview
"""The body of a frame: a received one may be any of these, a large one is a memoryview."""

MAGIC = "antiphon"
FRAME_MAX = 80 << 20
"""Above the 64 MiB that a message may have, so that its pack always fits a frame."""

LARGE_BYTES = 0xFFFF
"""Above that, a pack is sent as a part of its own, and not copied."""

LARGE_FRAME = 4 << 20
"""A frame above that is never copied as a whole, nor is a pack of such a size that a server gets:
others would have to wait for it. The pack is a view of the frame then, and not `bytes`: it can be
sliced, sent, written, summed and decoded all the same."""

_ARRAY_OF_3 = b"\x93"  # in msgpack, as these
_EMPTY_ARRAY = b"\x90"
_NO_BYTES = b"\xc4\x00"
_ARRAY_32, _BYTES_32 = 0xDD, 0xC6
_WITH_SIZE = struct.Struct(">BI")
PREFIX = struct.Struct("<II")
"""The prefix of a frame: the length of its body, and the body's checksum."""

PREFIX_SIZE = PREFIX.size


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of each side: the wire versions that it speaks, and its role."""

    magic: str
    oldest: int
    newest: int
    role: Literal["server", "client"]
    sender: ReplicaId


class _AppendV1(msgspec.Struct, frozen=True, array_like=True, tag=3):
    epoch: int
    prev_index: int
    prev_epoch: int
    entries: tuple[Entry, ...]
    commit: int
    round: int


class _EntryView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An `Entry` with a view of the frame that it came in."""

    index: int
    epoch: int
    stamp: int
    kind: int
    payload: memoryview


class _AppendView(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    epoch: int
    prev_index: int
    prev_epoch: int
    entries: tuple[_EntryView, ...]
    commit: int
    round: int
    has: int = 0


class _ForwardView(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    packs: tuple[memoryview, ...]


class _EnvelopeView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    sender: ReplicaId
    to: ReplicaId
    message: _AppendView | _ForwardView


AnyBody = TypeVar("AnyBody", bound=Body)
Value = TypeVar("Value")

_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(Envelope)
_envelope_view = msgspec.msgpack.Decoder(_EnvelopeView)
_message: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_hello = msgspec.msgpack.Decoder(Hello)


def frame(body: bytes) -> bytes:
    """Return the frame of a body."""
    return frame_head(body) + body


def frame_head(body: Body, *parts: bytes, envelope: bytes = b"") -> bytes:
    """Return the bytes of a frame before the envelope, if there is one, and the body.

    So that large packs are not copied, a body may come in parts: what is before the first pack,
    that pack, what is behind it, and so on, each pack followed by what is behind it. The payload of
    another entry may stand in the place of a pack."""
    length = len(envelope) + len(body) + sum(map(len, parts))
    if length > FRAME_MAX:
        raise FormatError(f"a frame has at most {FRAME_MAX} bytes, not {length}")
    crc = crc32c(body, crc32c(envelope))
    for pack, behind in zip(parts[::2], parts[1::2], strict=True):
        crc = crc32c(behind, crc_with_nested(pack, crc))
    return PREFIX.pack(length, crc)


def unframe(body: AnyBody, crc: int) -> AnyBody:
    """Return the body of a frame, after its checksum was verified. Raise `FormatError`."""
    if crc32c(body) != crc:
        raise FormatError(f"a frame of {len(body)} bytes does not match its checksum")
    return body


def encode_hello(hello: Hello) -> bytes:
    """Return the body of a handshake."""
    return _encoder.encode(hello)


def decode_hello(body: Body) -> Hello:
    """Return the handshake in this body. Raise `FormatError`."""
    try:
        hello = _hello.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not an Antiphon handshake: {error}") from None
    if hello.magic != MAGIC:
        raise FormatError(f"not an Antiphon handshake: magic {hello.magic!r}")
    return hello


def agree(mine: Hello, theirs: Hello) -> int:
    """Return the newest version that both sides speak. Raise `FormatError` if there is none."""
    version = min(mine.newest, theirs.newest)
    if version < max(mine.oldest, theirs.oldest):
        raise FormatError(
            f"no common wire version: {mine.sender} speaks {mine.oldest} to {mine.newest}, "
            f"{theirs.sender} speaks {theirs.oldest} to {theirs.newest}"
        )
    return version


def is_known(message: Message, version: int) -> bool:
    """Return whether a server that speaks this version knows this message."""
    return version >= NEWEST or version >= _SINCE.get(type(message), OLDEST)


def encode_envelope(envelope: Envelope, version: int) -> bytes:
    """Return an envelope as a server of this version reads it."""
    head = envelope_head(envelope.sender, envelope.to)
    return head + encode_message(envelope.message, version)


@lru_cache
def envelope_head(sender: ReplicaId, to: ReplicaId) -> bytes:
    """Return the bytes of an envelope before its message, so that one encoded message can be sent
    to many servers."""
    return _ARRAY_OF_3 + _encoder.encode(sender) + _encoder.encode(to)


def message_parts(message: Message, version: int) -> tuple[bytes, ...]:
    """Return an encoded message in parts, as `frame_head` takes them: large packs are not
    copied."""
    if isinstance(message, Forward):
        return _forward_parts(message)
    if not isinstance(message, Append) or version < 2:
        return (encode_message(message, version),)
    if max([len(entry.payload) for entry in message.entries], default=0) <= LARGE_BYTES:
        return (encode_message(message, version),)
    bare = msgspec.structs.replace(message, entries=())
    tail = b"".join(map(_encoder.encode, (message.commit, message.round, message.has)))
    head = _encoder.encode(bare).removesuffix(_EMPTY_ARRAY + tail)
    parts = [head + _WITH_SIZE.pack(_ARRAY_32, len(message.entries))]
    for entry in message.entries:
        bare_entry = _encoder.encode(msgspec.structs.replace(entry, payload=b""))
        parts[-1] += before_bytes(bare_entry, entry.payload)
        parts += (entry.payload, b"")
    parts[-1] = tail
    return tuple(parts)


def _of_views(e: _EnvelopeView) -> Envelope:
    m = e.message
    if isinstance(m, _ForwardView):
        return Envelope(e.sender, e.to, Forward(tuple([kept(pack) for pack in m.packs])))
    entries = [Entry(v.index, v.epoch, v.stamp, v.kind, kept(v.payload)) for v in m.entries]
    append = Append(m.epoch, m.prev_index, m.prev_epoch, tuple(entries), m.commit, m.round, m.has)
    return Envelope(e.sender, e.to, append)


def kept(view: memoryview) -> bytes:
    """Return the bytes of a view: a large one as it is, a small one copied, since it would keep the
    whole frame in memory."""
    return cast(bytes, view) if len(view) > LARGE_FRAME else bytes(view)


def _forward_parts(message: Forward) -> tuple[bytes, ...]:
    if max(map(len, message.packs), default=0) <= LARGE_BYTES:
        return (_encoder.encode(message),)
    head = _encoder.encode(Forward(())).removesuffix(_EMPTY_ARRAY)
    parts = [head + _WITH_SIZE.pack(_ARRAY_32, len(message.packs))]
    for pack in message.packs:
        parts[-1] += _WITH_SIZE.pack(_BYTES_32, len(pack))
        parts += (pack, b"")
    return tuple(parts)


def before_bytes(bare: bytes, data: bytes, tail: bytes = b"") -> bytes:
    """Return the msgpack before `data`; `bare` has no bytes in that place, and then the tail."""
    return bare.removesuffix(_NO_BYTES + tail) + _WITH_SIZE.pack(_BYTES_32, len(data))


def encode_message(message: Message, version: int) -> bytes:
    """Return a message as a server of this version reads it."""
    if version < 2 and isinstance(message, Append):
        old = _AppendV1(*(getattr(message, name) for name in _AppendV1.__struct_fields__))
        return _encoder.encode(old)
    return _encoder.encode(message)


def decode_envelope(body: Body) -> Envelope:
    """Return the envelope in this body. Raise `FormatError`."""
    if len(body) > LARGE_FRAME:
        with suppress(msgspec.MsgspecError):  # otherwise it is another kind of message
            return _of_views(_envelope_view.decode(body))
    return _decode(_envelope, body)


def decode_message(body: Body) -> Message:
    """Return a message that was passed on, without its envelope. Raise `FormatError`."""
    return _decode(_message, body)


def _decode(decoder: msgspec.msgpack.Decoder[Value], body: Body) -> Value:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a message between servers: {error}") from None
