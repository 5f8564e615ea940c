"""Decodes accepted packs to Arrow (`batches`): whole columns at a time, without touching single
messages.

Promise: a row for every message, with the values that a receiver would get. The packs' tables and
bodies become columns by a few operations a batch, whatever the number of messages. Only rare parts
cost time per message: headers and properties beyond the common ones, and map and stream bodies,
each only where a message has them and the query reads the column.

A malformed pack raises `FormatError`. Faults inside a single message, which its sender made, must
not keep readers from the others: text that is not UTF-8 or values that cannot be read have no
`text`, headers that cannot be read count as not given, and a kind of message that this release does
not know is null. The body is there in any case. Checksums are verified where the packs are fetched.

Times are in microseconds since Spark's Arrow reader takes no others; the log knows milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.errors import FormatError
from antiphon.formats import columns as formats
from antiphon.formats import pack as packs
from antiphon.formats import values
from antiphon.formats.columns import MAP, PICKLE, PLAIN, PRIORITY, STREAM, TEXT, Extra, Layout
from antiphon.formats.pack import EXTRAS, LogPack, PackHeader
from antiphon.model.jms_types import text_of

Numbers = npt.NDArray[Any]

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("message_id", pa.string()),
        ("timestamp", _TIME),  # of sending, by the sender's clock
        ("stamp", _TIME),  # of acceptance, by the log's clock, which never goes back
        ("session", pa.string()),  # in hexadecimal, as in the message's id
        ("sequence", pa.int64()),
        ("kind", pa.string()),
        ("type", pa.string()),
        ("priority", pa.int32()),
        ("correlation_id", pa.string()),
        ("reply_to", pa.string()),  # with its kind: `queue:answers`
        ("tag", pa.string()),
        ("key", pa.string()),
        ("view_id", pa.int64()),  # null outside groups
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("text", pa.string()),  # of map and stream messages JSON
    ]
)

ROWS_MAX = 1 << 16
BYTES_MAX = 32 << 20
"""A batch takes no more packs beyond either of these: its offsets are of 32 bits."""

_TEXT_HEADERS = ("type", "correlation_id", "reply_to", "tag", "key")
_KINDS = pa.array(["message", "text", "bytes", "map", "stream", "object", "pickle", None])
_MS_MAX = (1 << 63) // 1000 - (1 << 32)
"""The latest base time of a pack that fits into microseconds."""


def schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of batches with these columns."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def batches(
    log_packs: Iterable[LogPack], first: int, last: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Decode the messages at positions `first` to `last`, with these columns in this order, in as
    many batches as they need."""
    gathered: list[_Part] = []
    rows = size = 0
    for part in _parts(log_packs, first, last):
        gathered.append(part)
        rows += part.wanted
        size += len(part.log.pack)
        if rows >= ROWS_MAX or size >= BYTES_MAX:
            yield _batch(gathered, columns)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield _batch(gathered, columns)


def _batch(parts: list[_Part], columns: Sequence[str]) -> pa.RecordBatch:
    rows = _Rows(parts)
    arrays = [_COLUMNS[name](rows) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(columns))


class _Part(NamedTuple):
    """The wanted messages of a pack."""

    log: LogPack
    header: PackHeader
    at: Layout
    skipped: int  # messages before them
    wanted: int


def _parts(log_packs: Iterable[LogPack], first: int, last: int) -> Iterator[_Part]:
    for log in log_packs:
        header = packs.read_header(log.pack)
        skipped = max(first - log.position, 0)
        wanted = min(last - log.position + 1, header.count) - skipped
        if header.last >> 63:
            raise FormatError(f"a pack for {header.destination!r} counts up to {header.last}")
        if wanted > 0:
            yield _Part(log, header, formats.layout(log.pack, header), skipped, wanted)


class _Rows:
    """Messages of many packs as one table. Values that several columns need are computed once."""

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.counts = np.array([part.wanted for part in parts], np.int64)
        self.total = int(self.counts.sum())
        self._starts = np.cumsum(self.counts) - self.counts  # the row of each part's first message

    # -- The same for all messages of a pack ------------------------------------------------------

    def repeat(self, of_part: Callable[[_Part], Any], kind: pa.DataType) -> pa.Array:
        each = [of_part(part) for part in self.parts]
        if each and each.count(each[0]) == len(each):
            return pa.repeat(pa.scalar(each[0], kind), self.total)
        return pa.array(each, kind).take(pa.array(self._part_of_row))

    def repeat_numbers(self, of_part: Callable[[_Part], int]) -> Numbers:
        return np.repeat(np.array([of_part(part) for part in self.parts], np.int64), self.counts)

    def count_on(self, from_number: Callable[[_Part], int]) -> Numbers:
        """Return numbers that go up by one from message to message of a pack."""
        base = np.array([from_number(part) for part in self.parts], np.int64)
        return np.repeat(base - self._starts, self.counts) + np.arange(self.total, dtype=np.int64)

    @cached_property
    def _part_of_row(self) -> Numbers:
        return np.repeat(np.arange(len(self.parts)), self.counts)

    # -- From the packs' tables -------------------------------------------------------------------

    def table(self, start: Callable[[_Part], int], kind: str) -> Numbers:
        """Return the values of all messages from the tables that start there in the packs."""
        width = np.dtype(kind).itemsize
        pieces = []
        for part in self.parts:
            at = start(part) + width * part.skipped
            pieces.append(part.log.pack[at : at + width * part.wanted])
        return np.frombuffer(b"".join(pieces), kind)

    @cached_property
    def kinds(self) -> Numbers:
        return self.table(lambda part: part.at.kinds, "u1")

    @cached_property
    def sequences(self) -> Numbers:
        return self.count_on(lambda part: part.header.sequence + part.skipped)

    @cached_property
    def bodies(self) -> pa.Array:
        ends = self.table(lambda part: part.at.body_ends, "<u4").astype(np.int64)
        begins = np.empty_like(ends)
        begins[1:] = ends[:-1]
        begins[self._starts] = [_body_begin(part) for part in self.parts]
        lengths = ends - begins
        if (lengths < 0).any():
            raise FormatError("a message in a pack ends before it begins")
        first, last = begins[self._starts], ends[self._starts + self.counts - 1]
        bounds = zip(self.parts, first.tolist(), last.tolist(), strict=True)
        return _binary(lengths, b"".join(_blob(part, begin, end) for part, begin, end in bounds))

    # -- Rare headers -----------------------------------------------------------------------------

    @cached_property
    def extras(self) -> list[tuple[int, Extra]]:
        """Return the rare headers of the messages that have any, by row."""
        found = []
        for part, start in zip(self.parts, self._starts.tolist(), strict=True):
            if part.header.flags & EXTRAS:
                read = formats.Columns(part.log.pack)
                for i in range(part.wanted):
                    if data := read.extra(part.skipped + i):
                        found.append((start + i, _extra(data)))
        return found

    def rare(self, value: Callable[[Extra], Any], default: Any, kind: pa.DataType) -> pa.Array:
        if not self.extras:
            return pa.repeat(pa.scalar(default, kind), self.total)
        column = [default] * self.total
        for row, extra in self.extras:
            column[row] = value(extra)
        return pa.array(column, kind)


def _body_begin(part: _Part) -> int:
    if not part.skipped:
        return 0
    at = part.at.body_ends + 4 * part.skipped - 4
    return int.from_bytes(part.log.pack[at : at + 4], "little")


def _blob(part: _Part, begin: int, end: int) -> memoryview:
    if part.at.bodies + end > part.at.extras:
        raise FormatError("a message in a pack ends behind it")
    return memoryview(part.log.pack)[part.at.bodies + begin : part.at.bodies + end]


def _binary(lengths: Numbers, blob: bytes) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _extra(data: bytes) -> Extra:
    try:
        return formats.decode_extra(data)
    except FormatError:
        return PLAIN


# -- Columns --------------------------------------------------------------------------------------


def _topic(part: _Part) -> str:
    return part.header.destination.removeprefix("topic:")


def _message_id(rows: _Rows) -> pa.Array:
    """Return the ids of messages, like `formats.columns.message_id`."""

    def sender(part: _Part) -> str:
        return formats.message_id(part.header, 0).partition(".")[0]

    number = pa.array(rows.sequences).cast(pa.string())
    return pc.binary_join_element_wise(rows.repeat(sender, pa.string()), number, ".")


def _timestamp(rows: _Rows) -> pa.Array:
    def base(part: _Part) -> int:
        at = part.at.times
        return min(int.from_bytes(part.log.pack[at : at + 8], "little"), _MS_MAX)

    offsets = rows.table(lambda part: part.at.times + 8, "<u4")
    return _time(rows.repeat_numbers(base) + offsets)


def _time(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds * 1000).view(_TIME)


def _priority(rows: _Rows) -> pa.Array:
    def of(extra: Extra) -> int:
        return extra.priority if 0 <= extra.priority <= 9 else PRIORITY

    return rows.rare(of, PRIORITY, pa.int32())


def _text_header(name: str) -> Callable[[_Rows], pa.Array]:
    return lambda rows: rows.rare(lambda extra: getattr(extra, name), None, pa.string())


def _properties(rows: _Rows) -> pa.Array:
    numbers = np.zeros(rows.total + 1, np.int32)
    names: list[str] = []
    texts: list[str | None] = []
    for row, extra in rows.extras:
        numbers[row + 1] = len(extra.properties)
        for name, value in extra.properties.items():
            names.append(name)
            texts.append(None if value is None else text_of(value))
    offsets = pa.array(np.cumsum(numbers, dtype=np.int32))
    return pa.MapArray.from_arrays(
        offsets, pa.array(names, pa.string()), pa.array(texts, pa.string())
    )


def _text(rows: _Rows) -> pa.Array:
    is_text, is_items = rows.kinds == TEXT, (rows.kinds == MAP) | (rows.kinds == STREAM)
    texts = rows.bodies
    if not is_text.all():
        texts = pc.if_else(pa.array(is_text), texts, None)
    if is_items.any():
        items = rows.bodies.filter(pa.array(is_items)).to_pylist()
        json = pa.array(map(_json, items), pa.binary())
        texts = pc.replace_with_mask(texts, pa.array(is_items), json)
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:  # one of them is not UTF-8
        return pa.array(map(_utf8, texts.to_pylist()), pa.string())


def _utf8(text: bytes | None) -> str | None:
    try:
        return None if text is None else text.decode()
    except UnicodeDecodeError:
        return None


def _json(body: bytes) -> bytes | None:
    try:
        return msgspec.json.encode(values.decode(body), enc_hook=_plain)
    except (FormatError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON has: plain numbers for those that keep their JMS type,
    text for anything else."""
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


_COLUMNS: dict[str, Callable[[_Rows], pa.Array]] = {
    "position": lambda rows: pa.array(rows.count_on(lambda p: p.log.position + p.skipped)),
    "topic": lambda rows: rows.repeat(_topic, pa.string()),
    "message_id": _message_id,
    "timestamp": _timestamp,
    "stamp": lambda rows: _time(rows.repeat_numbers(lambda part: part.log.stamp)),
    "session": lambda rows: rows.repeat(lambda part: f"{part.header.session:x}", pa.string()),
    "sequence": lambda rows: pa.array(rows.sequences),
    "kind": lambda rows: _KINDS.take(pa.array(np.minimum(rows.kinds, PICKLE + 1))),
    "priority": _priority,
    **{name: _text_header(name) for name in _TEXT_HEADERS},
    "view_id": lambda rows: rows.repeat(lambda part: part.log.view or None, pa.int64()),
    "properties": _properties,
    "body": lambda rows: rows.bodies,
    "text": _text,
}
