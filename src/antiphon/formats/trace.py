"""Delivery traces: the events of one process (sent, delivered, learnt), in its own order.

    header    | magic "APTR" | version u32 | crc u32 |                               12 bytes
    record    | marker C1 C1 | crc u32 | length u32 | row |                  10 + length bytes
    row       the fields of `TraceEvent` in order, as one msgpack array

A file is one header and any number of records. Integers are little-endian, every crc is CRC32C: the
header's covers the 8 bytes before it, a record's its length and its row.

Promise: a file cut at any byte, as a killed process leaves it, gives back every whole record before
the cut; a file damaged further up is refused rather than read short.

A bad record is a torn tail if no whole record follows it, and damage otherwise; so damage to the
very last record cannot be distinguished from a torn write. To look for a record behind the bad one,
even if its length is damaged, a reader searches for the marker: the byte C1 neither occurs in UTF-8
text nor begins a msgpack value, so only numbers can imitate it, and the crc rejects those.

A row shorter than `TraceEvent` takes the defaults for the columns that it lacks: columns can be
added at the end without a new version.

Traces of channels (`channel_trace.py`) are made of the same records, with another magic and rows of
their own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import Generic, Literal, TypeVar

import msgspec
from crc32c import crc32c

from antiphon.errors import FormatError

MAGIC = b"APTR"
VERSION = 1
MARKER = b"\xc1\xc1"

_U32 = struct.Struct("<I")
_HEADER = struct.Struct("<4sI")
_RECORD = struct.Struct("<2sII")
HEADER_SIZE = _HEADER.size + _U32.size

Kind = Literal[
    "group",
    "conflict",
    "send",
    "sent",
    "deliver",
    "acknowledge",
    "view",
    "suspect",
    "withdraw",
    "join",
    "leave",
    "remove",
    "state",
    "crash",
    "recover",
]


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One event at one process; the fields are the columns of the trace table, in their order.

    A number that the kind of event does not have is -1, a text is empty. Only `tag` and `key` can
    be None, since to a conflict relation having none differs from having an empty one.
    """

    run: str
    process: str
    incarnation: int
    seq: int  # order at that process
    didx: int = -1  # dense delivery index within process, incarnation and view
    position: int = -1
    kind: Kind
    group: str = ""
    message: str = ""
    sender: str = ""
    sender_seq: int = -1
    view_id: int = -1
    members: tuple[str, ...] = ()
    tag: str | None = None
    key: str | None = None
    session: str = ""
    durable: bool = False
    redelivered: bool = False
    persistent: bool = False
    clock: dict[str, int] = {}
    relation: str = ""  # JSON, on the kinds `group` and `conflict`
    at: float = 0.0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TraceEvent)


Row = TypeVar("Row")


def encode_header(magic: bytes = MAGIC, version: int = VERSION) -> bytes:
    """Return the first bytes of a trace file."""
    head = _HEADER.pack(magic, version)
    return head + _U32.pack(crc32c(head))


def encode_event(event: TraceEvent) -> bytes:
    """Return the record of an event."""
    return encode_record(_encoder.encode(event))


def encode_record(row: bytes) -> bytes:
    """Return the record of a row."""
    return _RECORD.pack(MARKER, crc32c(_U32.pack(len(row)) + row), len(row)) + row


def decode(data: bytes) -> tuple[list[TraceEvent], int]:
    """Return the events of a trace file, and the number of bytes of a torn tail that were left
    out."""
    reading = Reading(data)
    return list(reading), reading.torn_bytes


class Records(Generic[Row]):
    """The rows of a trace file one by one, for files that are too large to hold as objects.

    The end of the iteration raises damage, as `decode` does, and knows the torn tail."""

    def __init__(
        self, data: bytes | mmap, magic: bytes, version: int, decoder: msgspec.msgpack.Decoder[Row]
    ) -> None:
        self.torn_bytes = 0
        self._data = data
        self._kind = magic, version
        self._decoder = decoder

    def __iter__(self) -> Iterator[Row]:
        data = self._data
        if len(data) < HEADER_SIZE and encode_header(*self._kind).startswith(data[:]):
            self.torn_bytes = len(data)
            return
        _check_header(data, *self._kind)
        at = HEADER_SIZE
        while (end := _record_end(data, at)) is not None:
            yield self._decode_row(at, end)
            at = end
        _check_nothing_follows(data, at)
        self.torn_bytes = len(data) - at

    def _decode_row(self, at: int, end: int) -> Row:
        try:
            return self._decoder.decode(self._data[at + _RECORD.size : end])
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            text = f"the record at offset {at} is not a trace event: {error}"
            raise FormatError(text) from None


class Reading(Records[TraceEvent]):
    """The events of a trace file."""

    def __init__(self, data: bytes | mmap) -> None:
        super().__init__(data, MAGIC, VERSION, _decoder)


def _check_header(data: bytes | mmap, magic: bytes, known: int) -> None:
    head = data[: _HEADER.size]
    if head[:4] != magic or data[_HEADER.size : HEADER_SIZE] != _U32.pack(crc32c(head)):
        raise FormatError("not a trace file: its header is not that of a trace")
    version = _HEADER.unpack(head)[1]
    if version != known:
        raise FormatError(f"trace version {version}: this program reads version {known}")


def _record_end(data: bytes | mmap, at: int) -> int | None:
    """Return where the record at `at` ends; None if it is not whole."""
    if at + _RECORD.size > len(data):
        return None
    marker, crc, length = _RECORD.unpack_from(data, at)
    end: int = at + _RECORD.size + length
    if marker != MARKER or end > len(data):
        return None
    return end if crc32c(data[at + _RECORD.size - _U32.size : end]) == crc else None


def _check_nothing_follows(data: bytes | mmap, bad: int) -> None:
    at = data.find(MARKER, bad + 1)
    while at != -1:
        if _record_end(data, at) is not None:
            raise FormatError(f"damaged at offset {bad}: a whole record follows at offset {at}")
        at = data.find(MARKER, at + 1)
