"""The rows that all replicas of a table have, as a replicated service."""

from __future__ import annotations

from typing import Any

from antiphon.blocks.pure.service import ReplicatedService
from antiphon.errors import FormatError
from antiphon.formats import values


class TableService(ReplicatedService):
    """Rows by key. The commands `put`, `remove` and `get` return the value before, `replace`
    returns whether it replaced it."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}

    def apply(self, command: Any) -> Any:
        match command:
            case ("put", key, value):
                before, self.rows[key] = self.rows.get(key), value
                return before
            case ("replace", key, expected, value):
                if self.rows.get(key) != expected:
                    return False
                self.rows[key] = value
                return True
            case ("remove", key):
                return self.rows.pop(key, None)
            case ("get", key):
                return self.rows.get(key)
        raise ValueError(f"a table does not know {command!r}")

    def snapshot(self) -> bytes:
        return values.encode(list(self.rows.items()))

    def restore(self, data: bytes) -> None:
        match values.decode(data):
            case list(rows) if all(isinstance(row, tuple) and len(row) == 2 for row in rows):
                self.rows = dict(rows)
            case other:
                raise FormatError(f"no state of a table: {type(other).__name__}")
