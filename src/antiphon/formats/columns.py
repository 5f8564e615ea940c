"""The body of a pack: its messages as columns, so that a reader takes only the columns it needs.

For a pack of `n` messages::

    0           8              8+4n    8+5n        8+9n         8+13n
    +-----------+--------------+-------+-----------+------------+--------+--------+
    | base time | time offsets | kinds | body ends | extra ends | bodies | extras |
    +-----------+--------------+-------+-----------+------------+--------+--------+
      u64 ms      n * u32 ms     n * u8  n * u32     n * u32

Message `i` was sent at the base time plus its offset. Its body goes from the end of the body before
it to its own end. The extra ends are there only if the pack has the flag `EXTRAS`; an extra holds
the headers and properties that most messages do not have, and may be empty. Integers are
little-endian.

The work here is done per pack, in C: a Python statement for each message would cost more than all
that a server does with it. Bytes that are not as drawn raise `FormatError`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

import msgspec

from antiphon.errors import FormatError
from antiphon.formats import pack as packs
from antiphon.formats.pack import EXTRAS, PackHeader

MESSAGE, TEXT, BYTES, MAP, STREAM, OBJECT, PICKLE = range(7)
"""Kinds: no body; UTF-8; bytes; as in `values.py` the next three; pickled, by consent only."""

PRIORITY = 4
"""The priority of a message whose sender gave it none."""

_U32_MAX = 0xFFFF_FFFF


class Outgoing(NamedTuple):
    """A message to be packed."""

    kind: int
    body: bytes
    extra: bytes
    timestamp: int  # ms


def encode(messages: Sequence[Outgoing]) -> tuple[bytes, int]:
    """Return the body of a pack, and the flags that go with it."""
    kinds, bodies, extras, times = zip(*messages, strict=True)
    return encode_columns(bytes(kinds), bodies, times, extras if any(extras) else ())


def encode_columns(
    kinds: bytes, bodies: Sequence[bytes], times: Sequence[int], extras: Sequence[bytes] = ()
) -> tuple[bytes, int]:
    """Return body and flags, for a caller that gathered messages by columns; `extras` is empty if
    no message has any."""
    return _joined(_times(times) + kinds, bodies, extras)


def _joined(head: bytes, bodies: Sequence[bytes], extras: Sequence[bytes]) -> tuple[bytes, int]:
    if not extras:
        return b"".join((head, _ends(bodies), *bodies)), 0
    return b"".join((head, _ends(bodies), _ends(extras), *bodies, *extras)), EXTRAS


class Run(NamedTuple):
    """Consecutive messages of one kind that were sent in the same millisecond: up to the next run,
    or to the end."""

    first: int
    kind: int
    timestamp: int  # ms


def encode_runs(
    runs: Sequence[Run], bodies: Sequence[bytes], extras: Sequence[bytes] = ()
) -> tuple[bytes, int]:
    """Return body and flags, for a caller that sends many messages in a millisecond."""
    times = [run.timestamp for run in runs]
    base = _base(min(times), max(times))
    counts = [end - first for first, end in pairwise((*(run.first for run in runs), len(bodies)))]
    offsets = (max(0, time - base).to_bytes(4, "little") for time in times)
    kinds = (bytes((run.kind,)) for run in runs)
    head = (base.to_bytes(8, "little"), *map(mul, offsets, counts), *map(mul, kinds, counts))
    return _joined(b"".join(head), bodies, extras)


class Packed(NamedTuple):
    """Messages in columns, as `Producer.send_packed` sends them; `docs/formats.md` draws them.
    `kinds`: a byte for each message; `body_ends`: the end of each body in `bodies`, as a
    little-endian u32; `extra_ends` and `extras`: the same for encoded headers and properties."""

    kinds: bytes
    body_ends: bytes  # as drawn above
    bodies: bytes
    extra_ends: bytes = b""  # empty: none has an extra
    extras: bytes = b""
    flags: int = 0  # of `pack.py`, if they have extras: SPECIAL, DELAYED

    def each_extra(self) -> list[bytes]:
        """Return the encoded headers and properties of each message."""
        ends = struct.unpack(f"<{len(self.extra_ends) // 4}I", self.extra_ends)
        return [self.extras[start:end] for start, end in pairwise((0, *ends))]


def join(packed: Packed, timestamp: int) -> tuple[bytes, int]:
    """Return body and flags of columns. Raise `FormatError` if they do not fit together."""
    n = len(packed.kinds)
    flags = packed.flags | (EXTRAS if packed.extra_ends else 0)
    _check_column(packed.body_ends, packed.bodies, n)
    if packed.extra_ends:
        _check_column(packed.extra_ends, packed.extras, n)
    times = timestamp.to_bytes(8, "little") + bytes(4 * n)
    return b"".join((times, *packed[:2], packed.extra_ends, packed.bodies, packed.extras)), flags


def _check_column(ends: bytes, blob: bytes, count: int) -> None:
    if not count or len(ends) != 4 * count or _u32(ends, len(ends) - 4) != len(blob):
        raise FormatError(f"columns for {count} messages do not fit together")


def _times(times: Sequence[int]) -> bytes:
    earliest, latest = min(times), max(times)
    if earliest == latest:
        return earliest.to_bytes(8, "little") + bytes(4 * len(times))
    base = _base(earliest, latest)
    if base > earliest:
        times = tuple(max(time, base) for time in times)
    return struct.pack(f"<Q{len(times)}I", base, *map(base.__rsub__, times))


def _base(earliest: int, latest: int) -> int:
    """A pack during which the clock was set by months leaves all the same, with wrong times."""
    return max(earliest, latest - _U32_MAX)


def _ends(blobs: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(blobs)}I", *accumulate(map(len, blobs)))


class Columns:
    """The messages of a pack, by index from 0. The checksum is not verified (`check` does). A large
    pack may be a view of the frame that it came in: so it is not copied as a whole, but each
    message when somebody takes it."""

    __slots__ = (
        "_extra_bounds",
        "_extras",
        "_times",
        "bodies",
        "body_bounds",
        "header",
        "kinds",
        "pack",
        "reason",
        "stamp",
    )

    def __init__(self, pack: bytes, header: PackHeader | None = None) -> None:
        """`header`: the pack's, if the caller has read it."""
        self.pack = pack
        self.reason = ""  # of dead letters: why they are
        self.stamp = 0  # of the entry that the messages became visible with, if the caller knows it
        self.header = header = header or packs.read_header(pack)
        at = layout(pack, header)
        self._times, self.bodies, self._extras = at.times, at.bodies, at.extras
        self.kinds = bytes(pack[at.kinds : at.body_ends])
        # Body `i` begins in the pack at `bodies` plus bound `i`, and ends at bound `i + 1`.
        self.body_bounds = _bounds(pack, at.body_ends, 0, header.count)
        self._extra_bounds = _bounds(pack, at.extra_ends, 0, header.count) if at.extra_ends else ()

    @property
    def count(self) -> int:
        return self.header.count

    @property
    def destination(self) -> str:
        return self.header.destination

    def timestamp(self, i: int) -> int:
        """When the message was sent, in ms since 1970."""
        at = self._times
        base = int.from_bytes(self.pack[at : at + 8], "little")
        return base + _u32(self.pack, at + 8 + 4 * i)

    def body(self, i: int) -> bytes:
        at, bounds = self.bodies, self.body_bounds
        return bytes(self.pack[at + bounds[i] : at + bounds[i + 1]])

    def extra(self, i: int) -> bytes:
        bounds = self._extra_bounds
        if not bounds:
            return b""
        at = self._extras
        return bytes(self.pack[at + bounds[i] : at + bounds[i + 1]])


def check(pack: bytes) -> PackHeader:
    """Return the header of a pack that came from outside, after everything but the values in it was
    verified."""
    header = packs.check(pack)
    Columns(pack, header)
    return header


def slice_of(pack: bytes, first: int, count: int) -> bytes:
    """Messages `first` to `first + count - 1` of a pack, as a pack."""
    header = packs.read_header(pack)
    assert 0 <= first < first + count <= header.count, (first, count, header.count)
    if count == header.count:
        return pack
    at = layout(pack, header)
    times = at.times + 8 + 4 * first
    kinds = at.kinds + first
    body_ends, bodies = _cut_blob(pack, at.body_ends, at.bodies, first, count)
    extra_ends, extras = b"", b""
    if at.extra_ends:
        extra_ends, extras = _cut_blob(pack, at.extra_ends, at.extras, first, count)
    base = pack[at.times : at.times + 8]
    tables = (base, pack[times : times + 4 * count], pack[kinds : kinds + count])
    return packs.encode(
        header.destination,
        count,
        b"".join((*tables, body_ends, extra_ends, bodies, extras)),
        header.session,
        header.sequence + first,
        header.producer,
        header.flags,
    )


def _cut_blob(pack: bytes, table: int, blob: int, first: int, count: int) -> tuple[bytes, bytes]:
    start, *ends = _bounds(pack, table, first, count)
    ends_from_start = struct.pack(f"<{count}I", *[end - start for end in ends])
    return ends_from_start, pack[blob + start : blob + ends[-1]]


class Layout(NamedTuple):
    """Where in a pack its columns begin."""

    times: int
    kinds: int
    body_ends: int
    extra_ends: int  # 0: there are no extras
    bodies: int
    extras: int


def layout(pack: bytes, header: PackHeader) -> Layout:
    """Return where the columns of a pack with this header are. Raise `FormatError` if they do not
    fill it."""
    n = header.count
    times = packs.body_start(pack)
    kinds = times + 8 + 4 * n
    body_ends = kinds + n
    bodies, extra_ends = body_ends + 4 * n, 0
    if header.flags & EXTRAS:
        bodies, extra_ends = bodies + 4 * n, bodies
    if bodies > len(pack):
        raise FormatError(f"a pack of {len(pack)} bytes has no room for {n} messages")
    extras = bodies + _u32(pack, body_ends + 4 * n - 4)
    end = extras + (_u32(pack, extra_ends + 4 * n - 4) if extra_ends else 0)
    if end != len(pack):
        raise FormatError(f"a pack of {len(pack)} bytes has messages up to {end}")
    return Layout(times, kinds, body_ends, extra_ends, bodies, extras)


def _bounds(pack: bytes, table: int, first: int, count: int) -> tuple[int, ...]:
    """Where in their blob messages begin: `count` of them, and at last the end."""
    if first:
        bounds = struct.unpack_from(f"<{count + 1}I", pack, table + 4 * first - 4)
    else:
        bounds = (0, *struct.unpack_from(f"<{count}I", pack, table))
    if list(bounds) != sorted(bounds):
        raise FormatError("a message in a pack ends before it begins")
    return bounds


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


class Extra(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Headers and properties beyond the common ones."""

    properties: dict[str, bool | int | float | str | None] = {}
    correlation_id: str | None = None
    reply_to: str | None = None  # a destination as in `api/messages/destinations.py`
    type: str | None = None
    priority: int = PRIORITY
    time_to_live: int = 0  # ms from the stamp with which it was accepted; 0: forever
    delivery_delay: int = 0  # ms from when it was sent
    tag: str | None = None
    key: str | None = None
    types: dict[str, int] = {}  # of properties that were stated: codes as in `model/jms_scalars.py`


PLAIN = Extra()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Extra)


def encode_extra(extra: Extra) -> bytes:
    """Return headers and properties as bytes."""
    return b"" if extra == PLAIN else _encoder.encode(extra)


def decode_extra(data: bytes) -> Extra:
    """Return the headers and properties in these bytes. Raise `FormatError`."""
    if not data:
        return PLAIN
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not the headers of a message: {error}") from None


def expires(extra: Extra, stamp: int) -> int:
    """The stamp from which on it is not delivered any more; 0: it always is. `stamp`: the one with
    which it became visible, which was after its delay."""
    return stamp - extra.delivery_delay + extra.time_to_live if extra.time_to_live else 0


def message_id(header: PackHeader, i: int) -> str:
    """Return the id of a message: the same for every receiver, and for the sender once its message
    is accepted."""
    producer = f"-{header.producer:x}" if header.producer else ""
    return f"ID:{header.session:x}{producer}.{header.sequence + i}"


def extra_of(columns: Columns, i: int) -> Extra:
    """Return the rarer headers of message `i`; of one whose headers cannot be read, none."""
    try:
        return decode_extra(columns.extra(i))
    except FormatError:
        return PLAIN
