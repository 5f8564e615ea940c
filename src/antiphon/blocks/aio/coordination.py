"""Counter, semaphore, lock, leader election and barrier with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Self

import antiphon
from antiphon import aio
from antiphon.blocks.aio.replica import Replica
from antiphon.blocks.aio.running import run
from antiphon.blocks.operations import coordination
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.coordination import (
    BarrierService,
    CounterService,
    ElectionService,
    SemaphoreService,
)


class Counter(Replica[CounterService], coordination.Counter):
    __doc__ = coordination.Counter.__doc__

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, CounterService(), name=name)

    async def add(self, n: int = 1, timeout: float | None = TIMEOUT_S) -> int:
        return int(await self.call(("add", n), timeout))

    async def set(self, n: int, timeout: float | None = TIMEOUT_S) -> None:
        await self.call(("set", n), timeout)

    @property
    def value(self) -> Awaitable[int]:
        return self.add(0)


class Semaphore(Replica[SemaphoreService], coordination.Semaphore):
    __doc__ = coordination.Semaphore.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        permits: int,
        *,
        name: str | None = None,
    ) -> None:
        self._set_up_permits(ctx, group, permits, name)

    async def acquire(self, timeout: float | None = None) -> int:
        return await run(self._acquiring(timeout))

    async def release(self) -> None:
        await run(self._releasing())

    @asynccontextmanager
    async def hold(self, timeout: float | None = None) -> AsyncIterator[int]:
        fence = await self.acquire(timeout)
        try:
            yield fence
        except BaseException as error:
            await run(self._releasing_after(error))
            raise
        await run(self._releasing_after(None))

    async def _opened(self) -> Self:
        await run(self._opening())
        return self

    async def __aenter__(self) -> Self:
        await run(self._entering())
        return self

    async def __aexit__(self, *error: object) -> None:
        await run(self._exiting(error[0]))


class Lock(Semaphore, coordination.Lock):
    __doc__ = coordination.Lock.__doc__

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, 1, name=name)


class LeaderElection(Replica[ElectionService], coordination.LeaderElection):
    __doc__ = coordination.LeaderElection.__doc__

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        self._set_up_entered(ctx, group, ElectionService, name)

    async def wait_to_lead(self, timeout: float | None = None) -> int:
        return await run(self._waiting_to_lead(timeout))

    async def resign(self) -> None:
        await self.call(("resign", self.name))

    async def _opened(self) -> Self:
        await run(self._opening())
        return self

    async def __aenter__(self) -> Self:
        await run(self._entering())
        return self

    async def __aexit__(self, *error: object) -> None:
        await run(self._exiting(error[0]))


class Barrier(Replica[BarrierService], coordination.Barrier):
    __doc__ = coordination.Barrier.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        parties: int,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, BarrierService(parties), name=name)

    async def wait(self, timeout: float | None = None) -> int:
        return await run(self._awaiting(timeout))
