"""A table in several processes: each reads its own copy, and all copies change together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterator
from copy import deepcopy
from typing import Any

from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.operations.replica import Replica
from antiphon.blocks.pure.table import TableService


class ReplicatedTable(Replica[TableService]):
    """A mapping from keys to values with a copy in each of several processes.

    The mapping methods (`table[key]`, `in`, `len`, `items`) read this process' own copy, which has
    at least all rows that were put here; `get` has the rows that were put anywhere. Keys and values
    are those that an object message may have. Changing a value that was read does not change the
    table: `put` it. `name`: of this member, as in `Context.join`; opening raises the errors of that
    call.
    """

    @abstractmethod
    def put(self, key: Any, value: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Set the value of a key, and return the value before, or None. Raise the errors of
        `call`."""

    @abstractmethod
    def replace(
        self, key: Any, expected: Any, value: Any, timeout: float | None = TIMEOUT_S
    ) -> Any:
        """Set the value of a key if it is `expected` now (None: no value), and return whether it
        was. Raise the errors of `call`."""

    @abstractmethod
    def remove(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Remove a key, and return its value, or None. Raise the errors of `call`."""

    @abstractmethod
    def get(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Return the value of a key after all earlier changes of all processes; None: it has none.
        Raise the errors of `call`."""

    def items(self) -> ItemsView[Any, Any]:
        """Return keys and values of this process' copy, as they are at one moment."""
        return self.copy().items()

    def copy(self) -> dict[Any, Any]:
        """Return all rows of this process' copy, as they are at one moment."""
        return deepcopy(dict(self.look(lambda table: dict(table.rows))))

    def __getitem__(self, key: Any) -> Any:
        return deepcopy(self.look(lambda table: table.rows[key]))

    def __contains__(self, key: object) -> bool:
        return bool(self.look(lambda table: key in table.rows))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.look(lambda table: list(table.rows)))

    def __len__(self) -> int:
        return int(self.look(lambda table: len(table.rows)))
