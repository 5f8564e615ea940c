"""A table that several processes have: each reads its own copy, and all of them change together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterator
from copy import deepcopy
from typing import Any

from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.operations.replica import Replica
from antiphon.blocks.pure.table import TableService


class ReplicatedTable(Replica[TableService]):
    """Rows that several processes have: a mapping, and a replica of it in each process.

    Rows are read from this process' own copy, which has at least all that was put here; `get` has
    all that was put anywhere. Keys and values are what an object message may have. To change what
    was read changes nothing in the table: `put` it.
    """

    @abstractmethod
    def put(self, key: Any, value: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Put a row, and return what was there before, or None. Raise the errors of `call`."""

    @abstractmethod
    def replace(
        self, key: Any, expected: Any, value: Any, timeout: float | None = TIMEOUT_S
    ) -> Any:
        """Put a row if `expected` is there (None: nothing), and return whether it was. Raise the
        errors of `call`."""

    @abstractmethod
    def remove(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Remove a row, and return what was there, or None. Raise the errors of `call`."""

    @abstractmethod
    def get(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Return what is there when everything that was put before, anywhere, is; None: nothing.
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
