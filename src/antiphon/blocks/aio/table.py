"""A replicated table with asyncio."""

from __future__ import annotations

from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.replica import Replica
from antiphon.blocks.operations import table
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.table import TableService


class ReplicatedTable(Replica[TableService], table.ReplicatedTable):
    __doc__ = table.ReplicatedTable.__doc__

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, TableService(), name=name)

    async def put(self, key: Any, value: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return await self.call(("put", key, value), timeout)

    async def replace(
        self, key: Any, expected: Any, value: Any, timeout: float | None = TIMEOUT_S
    ) -> bool:
        return bool(await self.call(("replace", key, expected, value), timeout))

    async def remove(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return await self.call(("remove", key), timeout)

    async def get(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return await self.call(("get", key), timeout)
