"""A table that several processes have, with asyncio: each reads its own copy, without waiting."""

from __future__ import annotations

from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.replica import Replica
from antiphon.blocks.pure.table import TableService
from antiphon.blocks.threads.host import TIMEOUT_S
from antiphon.blocks.threads.table import Rows


class ReplicatedTable(Replica[TableService], Rows):
    """Rows are read from this process' own copy, which has at least all that was put here; `get`
    has all that was put anywhere. Keys and values are what an object message may have."""

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, TableService(), name=name)

    async def put(self, key: Any, value: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Returns what was there before, or None."""
        return await self.call(("put", key, value), timeout)

    async def replace(
        self, key: Any, expected: Any, value: Any, timeout: float | None = TIMEOUT_S
    ) -> bool:
        """Put it, if `expected` is there (None: nothing). Returns whether it was."""
        return bool(await self.call(("replace", key, expected, value), timeout))

    async def remove(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Returns what was there, or None."""
        return await self.call(("remove", key), timeout)

    async def get(self, key: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """What is there when everything that was put before, anywhere, is."""
        return await self.call(("get", key), timeout)
