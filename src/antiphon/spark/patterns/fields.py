"""The names of parts of messages, and the columns in which Spark finds them.

| name | part |
|---|---|
| `topic`, `key`, `tag`, `type` and so on (`HEADERS`) | the column of that name |
| `properties.price` | the property `price` |
| `text.order.price` | `price` in `order` in the text, which is JSON |
| `price` | the property, or if there is none, what the JSON text has under this name |

A part that is absent, or not JSON, is null.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from antiphon.spark.patterns.events import Field

HEADERS = (
    "topic",
    "message_id",
    "session",
    "kind",
    "type",
    "priority",
    "correlation_id",
    "reply_to",
    "tag",
    "key",
)
TIMES = ("timestamp", "stamp")


def columns_of(name: str) -> tuple[str, ...]:
    """Return the columns that may have this part."""
    if name in HEADERS or name in TIMES:
        return (name,)
    return ("properties", "text")


def text_of(name: str) -> Column:
    place, _, rest = name.partition(".")
    if name in HEADERS:
        return f.col(name).cast("string")
    if place == "properties" and rest:
        return f.col("properties")[rest]
    if place == "text" and rest:
        return _json(rest)
    return f.coalesce(f.col("properties")[name], _json(name))


def column(field: Field) -> Column:
    """Return its value; null, too, if it is a number that is not finite, or not above zero."""
    text = text_of(field.name)
    if not field.is_number:
        return text
    number = text.try_cast("double")
    # NaN is above every number.
    return f.when((number > 0) & (number < float("inf")), number)


def time_of(name: str) -> Column:
    """Return the time in a part: a column of times, or a field with a time in ISO 8601, or in
    milliseconds since 1970."""
    if name in TIMES:
        return f.col(name)
    text = text_of(name)
    return f.coalesce(f.timestamp_millis(text.try_cast("bigint")), text.try_cast("timestamp"))


def _json(name: str) -> Column:
    parts = name.split(".")
    if not all(parts) or "'" in name:
        raise ValueError(f"{name!r} names no part of a JSON text")
    return f.get_json_object(f.col("text"), "$" + "".join(f"['{part}']" for part in parts))
