"""A replicated table with threads."""

from __future__ import annotations

from typing import Any

import antiphon
from antiphon.blocks.operations import table
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.table import TableService
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.replica import Replica


class ReplicatedTable(Replica[TableService], table.ReplicatedTable):
    __doc__ = table.ReplicatedTable.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, TableService(), name=name)

    def put(self, key: Any, value: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return self.call(("put", key, value), timeout)

    def replace(
        self, key: Any, expected: Any, value: Any, timeout: float | None = TIMEOUT_S
    ) -> bool:
        return bool(self.call(("replace", key, expected, value), timeout))

    def remove(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return self.call(("remove", key), timeout)

    def get(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return self.call(("get", key), timeout)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)
