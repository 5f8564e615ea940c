"""The journal's files, byte by byte. `docs/formats.md` shows them in pictures.

A *segment* (`seg-00000001.log`) is a header and then batches; one batch is one write::

    segment   | magic "APJL" | version u32 | number u64 | base u64 | opening u64 | crc u32 |
    batch     | magic "BTCH" | crc u32 | length u32 | count u32 | offset u64 | synced u64 |
              | record * count                                                |
    record    | crc u32 | type u8 | length u32 | payload |
    ENTRY     | index u64 | epoch u64 | stamp u64 | kind u8 | bytes |    an entry of the log
    PROMISE   | epoch u64 | node u64 | incarnation u64 |                 epoch and vote
    LIVE      as ENTRY: a pack below the log's base, kept for readers
    LOCAL     | whole u8 | bytes |                    what this server alone knows (`commands.py`)

*Offsets* count bytes over all segments: a segment starts at `base`, and ends where the next one's
base says. A batch names its own `offset`, so that one written to the wrong place is not believed,
and `synced`, up to where everything was on disk when it was written: a bad record below the
greatest `synced` is damage, above it a torn tail. The batch's crc covers the rest of its header, a
record's crc the rest of the record. `opening` counts how often the journal was opened: a segment
with a smaller one than a segment before it was left behind by an earlier recovery, and is void.

Beside each segment its *index* (`seg-00000001.idx`), a row for every accepted pack::

    row       | crc u32 | length u32 | index u64 | position u64 | count u32 | offset u64 |
              | stamp u64 | view u64 | [source u64] | destination utf-8 |

The source is there if the highest bit of the count is set (`Row`).

A *snapshot* (`snap-<index>.snap`) is a row of chunks, the first of them its `SnapshotMeta`, closed
by an empty one; the *manifest* (`MANIFEST`) is a single chunk::

    file      | magic "APSN" or "APMF" | version u32 | crc u32 | chunk ...
    chunk     | crc u32 | length u32 | bytes |

`REACHED` says how far all of this is synced (`notes.py`).

Integers are little-endian, every crc is CRC32C.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from crc32c import crc32c

from antiphon.errors import FormatError, UnknownVersionError
from antiphon.formats.checksums import crc_with_nested
from antiphon.formats.entry import Entry, ReplicaId

if TYPE_CHECKING:
    from mmap import mmap

VERSION = 1
SEGMENT_MAGIC = b"APJL"
BATCH_MAGIC = b"BTCH"
SNAPSHOT_MAGIC = b"APSN"
MANIFEST_MAGIC = b"APMF"

ENTRY, PROMISE, LIVE, LOCAL = 1, 2, 3, 4

_SEGMENT = struct.Struct("<4sIQQQ")
_BATCH_TAIL = struct.Struct("<IIQQ")
_RECORD = struct.Struct("<IBI")
_RECORD_TAIL = struct.Struct("<BI")
_ENTRY = struct.Struct("<QQQB")
_PROMISE = struct.Struct("<QQQ")
_ROW_HEAD = struct.Struct("<II")
_ROW = struct.Struct("<QQIQQQ")
_LATE = 1 << 31  # in a row's count: a source stands before the destination
_SOURCE = struct.Struct("<Q")
_CHUNK = struct.Struct("<II")
_FILE = struct.Struct("<4sI")
_U32 = struct.Struct("<I")

SEGMENT_SIZE = _SEGMENT.size + 4
BATCH_SIZE = 8 + _BATCH_TAIL.size
RECORD_SIZE = _RECORD.size
ENTRY_SIZE = RECORD_SIZE + _ENTRY.size
_ENTRY_RECORD = struct.Struct("<BIQQQB")
FILE_SIZE = _FILE.size + 4
CHUNK_SIZE = _CHUNK.size
RECORD_MAX = 128 << 20

MANIFEST = "MANIFEST"

Buffer: TypeAlias = "bytes | mmap"
"""The bytes of a segment that is read."""


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"seg-{number:08d}.log"


def index_name(number: int) -> str:
    """Return the file name of a segment's index."""
    return f"seg-{number:08d}.idx"


def snapshot_name(index: int) -> str:
    """Return the file name of the snapshot at this index."""
    return f"snap-{index:020d}.snap"


def segment_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the segments among the files of a folder, in order."""
    return _numbers(names, ".log")


def index_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the segments whose indexes are among these files, in order."""
    return _numbers(names, ".idx")


def _numbers(names: Iterable[str], end: str) -> list[int]:
    return sorted(
        int(name[4:-4])
        for name in names
        if name.startswith("seg-") and name.endswith(end) and name[4:-4].isdigit()
    )


class SegmentHeader(NamedTuple):
    """The beginning of a segment: its number, its offset in the whole journal, and the opening that
    wrote it."""

    number: int
    base: int
    opening: int


class Promise(NamedTuple):
    """The promise of a replica, which it must not forget: the newest epoch that it knows, and the
    replica that it voted for in it."""

    epoch: int
    vote: ReplicaId | None


class Local(NamedTuple):
    """A record that this server alone has, and the log has not. The journal does not look into
    it."""

    whole: bool  # it takes the place of all such records before it
    data: bytes


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An accepted pack: where it stands in the order and where in its segment.

    If it was stored before it was accepted (`source`), the row is that of the entry by which it
    was. A row without messages (`count` 0) is a checkpoint: the index is complete up to `index`;
    or, if it has a `source`, a pack that is not accepted yet.
    """

    index: int
    position: int
    count: int
    offset: int
    stamp: int
    view: int
    destination: str
    source: int = 0  # the entry that has the pack; 0: the one of this row


class Batch(NamedTuple):
    """Records that were written at once, all their checksums verified."""

    offset: int
    synced: int
    size: int  # header and records
    records: list[tuple[int, int, bytes]]  # type, where the record starts in the data, payload


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The list of the files that count. It is replaced as a whole, so that installing a snapshot is
    one step."""

    incarnation: int
    first_segment: int
    base_index: int  # entries up to here are not part of the log any more
    base_epoch: int
    snapshot: int  # index of the snapshot, 0 without one
    lost: bool = False  # a part that was stored here is gone: it must not found a cluster
    reached: bool = False  # there is a file that says how far this incarnation's journal is synced


def encode_segment_header(number: int, base: int, opening: int) -> bytes:
    """Return the first bytes of a segment."""
    head = _SEGMENT.pack(SEGMENT_MAGIC, VERSION, number, base, opening)
    return head + _U32.pack(crc32c(head))


def decode_segment_header(data: bytes) -> SegmentHeader:
    """Return the header of a segment. Raise `FormatError`."""
    if len(data) < SEGMENT_SIZE:
        raise FormatError(f"a segment header has {SEGMENT_SIZE} bytes, not {len(data)}")
    magic, version, number, base, opening = _SEGMENT.unpack_from(data)
    if magic != SEGMENT_MAGIC or _U32.unpack_from(data, _SEGMENT.size)[0] != crc32c(
        data[: _SEGMENT.size]
    ):
        raise FormatError("not a segment header")
    check_version(SEGMENT_MAGIC, version)
    return SegmentHeader(number, base, opening)


def current_segments(
    numbers: Iterable[int], header_of: Callable[[int], SegmentHeader | None]
) -> tuple[list[int], dict[int, SegmentHeader]]:
    """The segments that count, and the headers of those whose header is whole.

    Recovery replaces the end of the journal by a new segment and then removes the old ones; a
    power failure can bring these back. They are older than the segment before them."""
    current: list[int] = []
    headers: dict[int, SegmentHeader] = {}
    opening = 0
    for number in numbers:
        header = header_of(number)
        if header is not None:
            if header.opening < opening:
                break
            opening = header.opening
            headers[number] = header
        current.append(number)
    return current, headers


def encode_record(kind: int, payload: bytes) -> bytes:
    """Return a record of this kind."""
    rest = _RECORD_TAIL.pack(kind, len(payload)) + payload
    return _U32.pack(crc32c(rest)) + rest


def encode_entry(entry: Entry, kind: int = ENTRY) -> bytes:
    """Return the record of an entry."""
    return b"".join(entry_parts(entry, kind))


def entry_parts(entry: Entry, kind: int = ENTRY) -> tuple[bytes, bytes]:
    """Return the record of an entry in two parts, of which the payload is one: it is not copied."""
    head = _ENTRY_RECORD.pack(
        kind,
        _ENTRY.size + len(entry.payload),
        entry.index,
        entry.epoch,
        entry.stamp,
        entry.kind,
    )
    crc = crc_with_nested(entry.payload, crc32c(head))
    return _U32.pack(crc) + head, entry.payload


def decode_entry(payload: bytes) -> Entry:
    """Return the entry of an ENTRY or LIVE record whose checksum was right."""
    index, epoch, stamp, kind = _ENTRY.unpack_from(payload)
    return Entry(index, epoch, stamp, kind, payload[_ENTRY.size :])


def encode_promise(promise: Promise) -> bytes:
    """Return the record of a promise."""
    vote = promise.vote or (0, 0)
    return encode_record(PROMISE, _PROMISE.pack(promise.epoch, *vote))


def decode_promise(payload: bytes) -> Promise:
    """Return the promise of such a record."""
    epoch, node, incarnation = _PROMISE.unpack(payload)
    return Promise(epoch, ReplicaId(node, incarnation) if node else None)


def encode_local(local: Local) -> bytes:
    """Return the record of what only this server knows."""
    return encode_record(LOCAL, bytes((local.whole,)) + local.data)


def decode_local(payload: bytes) -> Local:
    """Return what such a record has."""
    return Local(payload[:1] != b"\0", payload[1:])


def encode_batch(records: list[bytes], offset: int, synced: int) -> bytes:
    """Return records with the header of their batch."""
    head = encode_batch_head(sum(map(len, records)), len(records), offset, synced)
    return b"".join((head, *records))


def encode_batch_head(length: int, count: int, offset: int, synced: int) -> bytes:
    """Return the header of a batch of `count` records of `length` bytes together."""
    tail = _BATCH_TAIL.pack(length, count, offset, synced)
    return b"".join((BATCH_MAGIC, _U32.pack(crc32c(tail)), tail))


def record_length(head: bytes) -> int:
    """Return the length of a whole record, from its first bytes."""
    if len(head) < RECORD_SIZE:
        raise FormatError("a record is cut off in its header")
    length: int = _RECORD.unpack_from(head)[2]
    if length > RECORD_MAX:
        raise FormatError(f"a record of {length} bytes: the limit is {RECORD_MAX}")
    return RECORD_SIZE + length


def decode_record(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return type, payload and end of the record at `at`. Raise `FormatError` if it is not
    whole."""
    if at + RECORD_SIZE > len(data):
        raise FormatError("a record is cut off in its header")
    crc, kind, length = _RECORD.unpack_from(data, at)
    end = at + RECORD_SIZE + length
    if end > len(data):
        raise FormatError("a record is cut off")
    if crc32c(data[at + 4 : end]) != crc:
        raise FormatError("a record does not match its checksum")
    return kind, data[at + RECORD_SIZE : end], end


def check_record(record: bytes) -> None:
    """Raise `FormatError` unless this is a record whose checksum is right."""
    if crc32c(record[4:]) != _U32.unpack_from(record)[0]:
        raise FormatError("a record does not match its checksum")


def decode_batch(data: bytes, at: int) -> Batch:
    """Return the batch at `at`, after every checksum was verified."""
    if data[at : at + 4] != BATCH_MAGIC or at + BATCH_SIZE > len(data):
        raise FormatError("no batch here")
    tail = data[at + 8 : at + BATCH_SIZE]
    if crc32c(tail) != _U32.unpack_from(data, at + 4)[0]:
        raise FormatError("a batch header does not match its checksum")
    length, count, offset, synced = _BATCH_TAIL.unpack(tail)
    start = position = at + BATCH_SIZE
    records = []
    for _ in range(count):
        kind, payload, end = decode_record(data, position)
        records.append((kind, position, payload))
        position = end
    if position - start != length:
        raise FormatError("a batch does not have the length it states")
    return Batch(offset, synced, BATCH_SIZE + length, records)


class EntryPlace(NamedTuple):
    """Where an entry stands. Nothing of it was verified."""

    kind: int  # ENTRY or LIVE
    number: int  # of the entry, in the log
    at: int
    payload: int  # where it begins
    end: int


def entry_at(data: Buffer, at: int) -> EntryPlace | None:
    """Return the place of the entry whose record begins here; None: no entry does."""
    if at + ENTRY_SIZE > len(data):
        return None
    _, kind, length = _RECORD.unpack_from(data, at)
    end = at + RECORD_SIZE + length
    if kind not in (ENTRY, LIVE) or length < _ENTRY.size or end > len(data):
        return None
    index = _ENTRY.unpack_from(data, at + RECORD_SIZE)[0]
    return EntryPlace(kind, index, at, at + ENTRY_SIZE, end)


def entries_in(data: Buffer, base: int, stop: int) -> Iterator[EntryPlace]:
    """Yield the entries of a segment, up to `stop` or to the first batch that is not whole."""
    at = SEGMENT_SIZE
    while at + BATCH_SIZE <= stop and data[at : at + 4] == BATCH_MAGIC:
        length, count, offset, _ = _BATCH_TAIL.unpack_from(data, at + 8)
        record, at = at + BATCH_SIZE, at + BATCH_SIZE + length
        if offset != base + record - BATCH_SIZE or at > stop:
            return
        for _ in range(count):
            if (found := entry_at(data, record)) is not None:
                yield found
            record += RECORD_SIZE + _RECORD.unpack_from(data, record)[2]


def find_batches(data: bytes, start: int) -> Iterator[tuple[int, Batch]]:
    """Yield every whole batch at or after `start`, and where it begins: so the part beyond a bad
    one is found. A message may contain bytes that look like a batch; only the offset in it proves
    one."""
    at = data.find(BATCH_MAGIC, start)
    while at >= 0:
        try:
            batch = decode_batch(data, at)
        except FormatError:
            at = data.find(BATCH_MAGIC, at + 1)
        else:
            yield at, batch
            at = data.find(BATCH_MAGIC, at + batch.size)


def encode_row(row: Row) -> bytes:
    """Return a row of an index."""
    count, source = row.count, b""
    if row.source:
        count, source = count | _LATE, _SOURCE.pack(row.source)
    fields = _ROW.pack(row.index, row.position, count, row.offset, row.stamp, row.view)
    rest = fields + source + row.destination.encode()
    head = _U32.pack(len(rest))
    return _U32.pack(crc32c(head + rest)) + head + rest


def decode_rows(data: bytes) -> tuple[list[tuple[Row, int]], int]:
    """Return rows with the offset behind each, and how far the data was good."""
    rows = []
    at = 0
    while at + _ROW_HEAD.size <= len(data):
        crc, length = _ROW_HEAD.unpack_from(data, at)
        end = at + _ROW_HEAD.size + length
        if length < _ROW.size or end > len(data) or crc32c(data[at + 4 : end]) != crc:
            break
        index, position, count, offset, stamp, view = _ROW.unpack_from(data, at + _ROW_HEAD.size)
        at += _ROW_HEAD.size + _ROW.size
        source = 0
        if count & _LATE and at + _SOURCE.size <= end:
            count, source = count ^ _LATE, _SOURCE.unpack_from(data, at)[0]
            at += _SOURCE.size
        destination = data[at:end].decode()
        rows.append((Row(index, position, count, offset, stamp, view, destination, source), end))
        at = end
    return rows, at


def is_cut_off(data: bytes, at: int) -> bool:
    """Return whether a row that cannot be read is only not there to its end."""
    if at + _ROW_HEAD.size > len(data):
        return True
    length: int = _ROW_HEAD.unpack_from(data, at)[1]
    return at + _ROW_HEAD.size + length > len(data)


def checkpointed(rows: list[tuple[Row, int]], snapshot: int) -> int:
    """Return how many of the rows are proven: up to the last checkpoint that the snapshot stands
    for. Later ones may never have reached the disk."""
    return max(
        (
            n + 1
            for n, (row, _) in enumerate(rows)
            if row.count == 0 and not row.source and row.index <= snapshot
        ),
        default=0,
    )


def file_header(magic: bytes) -> bytes:
    """Return the first bytes of a file of this kind."""
    head = _FILE.pack(magic, VERSION)
    return head + _U32.pack(crc32c(head))


def check_file_header(data: bytes, magic: bytes) -> None:
    """Raise `FormatError` unless a file begins as one of this kind."""
    if len(data) < FILE_SIZE or _FILE.unpack_from(data)[0] != magic:
        raise FormatError(f"not a {magic.decode()} file")
    if _U32.unpack_from(data, _FILE.size)[0] != crc32c(data[: _FILE.size]):
        raise FormatError(f"the header of a {magic.decode()} file does not match its checksum")
    check_version(magic, _FILE.unpack_from(data)[1])


def check_version(magic: bytes, version: int) -> None:
    """Check the version in a header whose checksum was right: another one is not damage, but
    another program's file."""
    if version != VERSION:
        raise UnknownVersionError(
            f"a {magic.decode()} file of version {version}; this program reads version {VERSION}. "
            f"Nothing was changed. Start the program that wrote it"
        )


def encode_chunk(data: bytes) -> bytes:
    """Return a chunk of a file, with length and checksum."""
    length = _U32.pack(len(data))
    return _U32.pack(crc32c(length + data)) + length + data


def chunk_length(head: bytes) -> int:
    """Return the length of a chunk, from its first bytes. Raise `FormatError`."""
    if len(head) < CHUNK_SIZE:
        raise FormatError("a chunk is cut off in its header")
    length: int = _CHUNK.unpack_from(head)[1]
    if length > RECORD_MAX:
        raise FormatError(f"a chunk of {length} bytes: the limit is {RECORD_MAX}")
    return length


def decode_chunk(head: bytes, data: bytes) -> bytes:
    """Return the data of a chunk after its checksum was verified. Raise `FormatError`."""
    if crc32c(head[4:8] + data) != _U32.unpack_from(head)[0]:
        raise FormatError("a chunk does not match its checksum")
    return data


_manifest = msgspec.msgpack.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file `MANIFEST`."""
    return file_header(MANIFEST_MAGIC) + encode_chunk(msgspec.msgpack.encode(manifest))


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest in this file. Raise `FormatError`."""
    check_file_header(data, MANIFEST_MAGIC)
    head = data[FILE_SIZE : FILE_SIZE + CHUNK_SIZE]
    length = chunk_length(head)
    body = data[FILE_SIZE + CHUNK_SIZE :]
    if len(body) != length:
        raise FormatError("the manifest is cut off")
    try:
        return _manifest.decode(decode_chunk(head, body))
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a manifest: {error}") from None


# The parts that one server's journal hands to another's with a snapshot: state first, then live
# packs.
PART_STATE = b"S"
PART_LIVE = b"L"


def encode_live(pairs: list[tuple[Row, Entry]]) -> bytes:
    """Return accepted packs with the rows that they have in the sender's index."""
    return PART_LIVE + msgspec.msgpack.encode(pairs)


_live = msgspec.msgpack.Decoder(list[tuple[Row, Entry]])


def decode_live(part: bytes) -> list[tuple[Row, Entry]]:
    """Return the packs and rows of such a part. Raise `FormatError`."""
    try:
        return _live.decode(part[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"not live packs: {error}") from None
