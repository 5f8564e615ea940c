"""A table that several processes have: each reads its own copy, and all of them change together."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator
from copy import deepcopy
from typing import Any

import antiphon
from antiphon.blocks.pure.table import TableService
from antiphon.blocks.threads.host import TIMEOUT_S
from antiphon.blocks.threads.replica import Replica


class Rows:
    """The rows of this process' own copy."""

    def look(self, what: Callable[[TableService], Any]) -> Any:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        return deepcopy(self.look(lambda table: table.rows[key]))

    def __contains__(self, key: object) -> bool:
        return bool(self.look(lambda table: key in table.rows))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.look(lambda table: list(table.rows)))

    def __len__(self) -> int:
        return int(self.look(lambda table: len(table.rows)))

    def items(self) -> ItemsView[Any, Any]:
        return self.copy().items()

    def copy(self) -> dict[Any, Any]:
        """All rows, as they are here at one moment."""
        return deepcopy(self.look(lambda table: dict(table.rows)))


class ReplicatedTable(Replica[TableService], Rows):
    """Rows are read from this process' own copy, which has at least all that was put here; `get`
    has all that was put anywhere. Keys and values are what an object message may have. To change
    what was read changes nothing in the table: `put` it."""

    def __init__(
        self, ctx: antiphon.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, TableService(), name=name)

    def put(self, key: Any, value: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Returns what was there before, or None."""
        return self.call(("put", key, value), timeout)

    def replace(
        self, key: Any, expected: Any, value: Any, timeout: float | None = TIMEOUT_S
    ) -> bool:
        """Put it, if `expected` is there (None: nothing). Returns whether it was."""
        return bool(self.call(("replace", key, expected, value), timeout))

    def remove(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Returns what was there, or None."""
        return self.call(("remove", key), timeout)

    def get(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """What is there when everything that was put before, anywhere, is."""
        return self.call(("get", key), timeout)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)
