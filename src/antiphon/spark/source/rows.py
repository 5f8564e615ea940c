"""Rows of a table as messages: the columns that a frame may have, and their meaning.

A batch of rows becomes packs (`formats/columns.py`) column by column. Bodies are never touched one
by one, headers only where there are any. The order of the rows is kept, so rows for changing
destinations make small packs.

`check_columns` raises errors in the columns, before anything is sent. A wrong value raises the
error of `producer.send`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.api.messages import headers
from antiphon.api.messages.destinations import Destination, Topic, check_sendable
from antiphon.errors import InvalidDestinationError, MessageFormatError
from antiphon.formats import bodies, columns, pack
from antiphon.formats.columns import PRIORITY, Packed
from antiphon.model.destinations import KINDS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT = ("string",)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
HEADERS = {
    "key": _TEXT,
    "tag": _TEXT,
    "type": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "priority": _NUMBERS,
    "time_to_live": _NUMBERS,
    "delivery_delay": _NUMBERS,
    "properties": ("map<string,string>",),
}
TYPES = {"topic": _TEXT, "body": ("binary",), "text": _TEXT, "kind": _TEXT, **HEADERS}
"""The columns with a meaning, and the types that each may have."""

IGNORED = ("position", "message_id", "timestamp", "stamp", "session", "sequence", "view_id")
"""Columns that reading returns and writing ignores: every message gets its own when it is sent."""

_AS_THEY_ARE = {"map": columns.MAP, "stream": columns.STREAM, "object": columns.OBJECT}
"""Kinds of messages whose body a table can only pass on."""

_GROUP_ID = b"JMSXGroupID"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise `MessageFormatError` if rows like these cannot be messages. `topic`: for rows without
    one in a column."""
    for field in schema.fields:
        found = field.dataType.simpleString()
        if field.name in IGNORED:
            continue
        if field.name not in TYPES:
            raise MessageFormatError(
                f"column {field.name!r} has no meaning for a message. Columns: "
                f"{', '.join(TYPES)}; ignored: {', '.join(IGNORED)}"
            )
        if found.partition("(")[0] not in TYPES[field.name]:  # decimal(10,2)
            wanted = " or ".join(TYPES[field.name])
            raise MessageFormatError(f"column {field.name!r} is {found}, but must be {wanted}")
    if topic is None and "topic" not in schema.fieldNames():
        raise InvalidDestinationError("where do the rows go? Set the option or a column 'topic'")


@lru_cache(maxsize=4096)
def destination(text: str) -> Destination:
    """Return the destination in a text: `topic:NAME`, `queue:NAME`, or the mere name of a topic."""
    is_whole = text.partition(":")[0] in KINDS and ":" in text
    found = Destination.parse(text) if is_whole else Topic(text)
    check_sendable(found)
    return found


def packs(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[Destination, Packed]]:
    """Yield the messages of these rows, in the order in which they are sent."""
    if not batch.num_rows:
        return
    batch = _with_numbers(batch)
    kinds, contents = _contents(batch)
    body, extra = _Blobs.of(contents), _Blobs.of(_extras(batch))
    flags = pack.SPECIAL if _is_special(batch, extra) else 0
    for run in _runs(batch, topic):
        run_flags = flags | (pack.DELAYED if run.delayed else 0)
        for first, end in _pieces(run, body.offsets + extra.offsets):
            extras = extra.cut(first, end)
            yield (
                run.destination,
                Packed(
                    kinds[first:end].tobytes(),
                    *body.cut(first, end),
                    *(extras if extras[1] else (b"", b"")),
                    run_flags if extras[1] else 0,
                ),
            )


class _Blobs(NamedTuple):
    """Many pieces of bytes, one after the other."""

    offsets: np.ndarray[Any, np.dtype[np.int64]]  # one more than there are pieces
    data: pa.Buffer

    @classmethod
    def of(cls, array: pa.Array) -> _Blobs:
        """Return the values of a large binary array without nulls."""
        _, offsets, data = array.buffers()
        every = np.frombuffer(offsets, np.int64)
        found = every[array.offset : array.offset + len(array) + 1]
        return cls(found, data if data is not None else pa.py_buffer(b""))

    def cut(self, first: int, end: int) -> tuple[bytes, bytes]:
        """Return ends and bytes of these pieces, as in a pack."""
        start = self.offsets[first]
        ends = (self.offsets[first + 1 : end + 1] - start).astype("<u4")
        return ends.tobytes(), self.data.slice(start, int(ends[-1])).to_pybytes()


# -- Bodies ----------------------------------------------------------------------------------------


def _contents(batch: pa.RecordBatch) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], pa.Array]:
    """Return the kind of each message, and its body as bytes."""
    body = _column(batch, "body", pa.large_binary())
    text = _column(batch, "text", pa.large_string()).cast(pa.large_binary())
    has_body, has_text = _mask(body.is_valid()), _mask(text.is_valid())
    kinds = np.full(batch.num_rows, columns.MESSAGE, np.uint8)
    kinds[has_body] = columns.BYTES
    kinds[has_text] = columns.TEXT
    _pass_on(batch, body, kinds)
    _check_same(body, text, has_body & (kinds == columns.TEXT))
    return kinds, pc.fill_null(pc.coalesce(body, text), b"")


def _pass_on(
    batch: pa.RecordBatch, body: pa.Array, kinds: np.ndarray[Any, np.dtype[np.uint8]]
) -> None:
    """Set the kinds of messages whose body goes on as it was read: maps, streams, objects, and
    none."""
    if "kind" not in batch.schema.names:
        return
    for i, kind in enumerate(batch.column("kind").to_pylist()):
        if kind == "pickle":
            raise MessageFormatError("a pickled body is not passed on: convert it")
        if code := _AS_THEY_ARE.get(kind):
            bodies.read(code, body[i].as_py() or b"", False)
            kinds[i] = code
        elif kind == "message" and kinds[i] == columns.BYTES and body[i].as_py() == b"":
            kinds[i] = columns.MESSAGE


def _check_same(body: pa.Array, text: pa.Array, both: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    if both.any():
        mask = pa.array(both)
        one, other = body.filter(mask), text.filter(mask)
        if not pc.all(pc.equal(one, other)).as_py():
            raise MessageFormatError(
                "a row has a body and another text: leave out the column that is not meant"
            )


# -- Numbers ---------------------------------------------------------------------------------------

_NUMBER_TYPES = {
    "priority": pa.int64(),
    "time_to_live": pa.float64(),
    "delivery_delay": pa.float64(),
}


def _with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with numeric headers as our types, from any types of SQL; a priority must be
    whole."""
    for name, kind in _NUMBER_TYPES.items():
        at = batch.schema.get_field_index(name)
        if at >= 0:
            try:
                numbers = batch.column(at).cast(kind)
            except pa.ArrowInvalid as error:
                wrong = f"column {name!r} is not a whole number: {error}"
                raise MessageFormatError(wrong) from None
            batch = batch.set_column(at, name, numbers)
    return batch


# -- Headers ---------------------------------------------------------------------------------------


def _extras(batch: pa.RecordBatch) -> pa.Array:
    """Return headers and properties of each message, as they are sent; mostly there are none."""
    names = [name for name in HEADERS if _says_something(batch, name)]
    if not names:
        return pa.array([b""] * batch.num_rows, pa.large_binary())
    given = zip(*(_values(batch, name) for name in names), strict=True)
    return pa.array(
        [_extra(dict(zip(names, row, strict=True))) for row in given], pa.large_binary()
    )


def _says_something(batch: pa.RecordBatch, name: str) -> bool:
    """Return whether any row has this header: a table that was read has many empty columns."""
    if name not in batch.schema.names or batch.column(name).null_count == batch.num_rows:
        return False
    column = batch.column(name)
    match name:
        case "priority":
            return bool(pc.any(pc.not_equal(column, PRIORITY)).as_py())
        case "properties":
            return len(column.keys) > 0
        case _:
            return True


def _extra(given: Any) -> bytes:
    return headers.written(columns.Extra(**headers.fields_of(given, columns.PLAIN)))


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name == "properties":
        return _maps(batch.column(name))
    values: list[Any] = batch.column(name).to_pylist()
    if name == "reply_to":
        return [None if value is None else destination(value) for value in values]
    return values


def _maps(array: pa.MapArray) -> list[dict[str, str | None]]:
    """Return the values of a map column, twice as fast as one after the other."""
    keys, values = array.keys.to_pylist(), array.items.to_pylist()
    bounds = pairwise(array.offsets.to_pylist())
    return [dict(zip(keys[a:b], values[a:b], strict=True)) for a, b in bounds]


def _is_special(batch: pa.RecordBatch, extra: _Blobs) -> bool:
    """Return whether servers have to read the headers."""
    told = ("priority", "time_to_live")
    return any(_says_something(batch, name) for name in told) or (
        _GROUP_ID in extra.data.to_pybytes()
    )


# -- Packs -----------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """Rows that follow each other and could be one pack, if that may be large."""

    first: int
    end: int
    destination: Destination
    delayed: bool


def _runs(batch: pa.RecordBatch, topic: str | None) -> Iterator[_Run]:
    names = [name for name in ("topic", "delivery_delay") if name in batch.schema.names]
    ends = {batch.num_rows}
    for name in names:
        ends.update(pc.run_end_encode(batch.column(name)).run_ends.to_pylist())
    first = 0
    for end in sorted(ends):
        at = {name: batch.column(name)[first].as_py() for name in names}
        place = at.get("topic") or topic
        if place is None:
            raise InvalidDestinationError(
                "a row has no topic: fill the column, or set the option 'topic' for such rows"
            )
        yield _Run(first, end, destination(place), bool(at.get("delivery_delay")))
        first = end


def _pieces(run: _Run, sizes: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Yield pieces of a run as large as a pack should be; a larger message is alone. `sizes`: of
    all rows before each one."""
    first = run.first
    while first < run.end:
        fits = int(np.searchsorted(sizes, sizes[first] + pack.FULL_BYTES, "right")) - 1
        end = max(first + 1, min(fits, first + pack.FULL_MESSAGES, run.end))
        yield first, end
        first = end


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    return batch.column(name).cast(kind)


def _mask(array: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
