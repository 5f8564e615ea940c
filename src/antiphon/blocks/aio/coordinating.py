"""Counter, lock, leader election and barrier with asyncio.

Promises, besides those of the blocking ones: who is cancelled, or out of time, while it waits for a
lock does not get it; and one that waits at a barrier is not counted any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import antiphon
from antiphon import aio
from antiphon.blocks.aio.serving import Replica
from antiphon.blocks.coordinating import (
    BarrierService,
    CounterService,
    ElectionService,
    Leading,
    LockService,
)
from antiphon.blocks.hosting import TIMEOUT_S


class Counter(Replica[CounterService]):
    """Everybody who adds to it gets another value."""

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, CounterService(), name=name)

    async def add(self, n: int = 1, timeout: float | None = TIMEOUT_S) -> int:
        """Returns the new value."""
        return int(await self.call(("add", n), timeout))

    async def set(self, n: int, timeout: float | None = TIMEOUT_S) -> None:
        await self.call(("set", n), timeout)

    @property
    def value(self) -> Awaitable[int]:
        """With all that was added before, anywhere. To be awaited."""
        return self.add(0)


class Lock(Replica[LockService]):
    """Held by one at a time, of all processes and tasks that have this lock; granted in the order
    in which they asked."""

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, LockService(), name=name)
        self._wishes = 0
        self._held: list[str] = []

    async def acquire(self, timeout: float | None = None) -> int:
        """Returns the fence, which is greater than that of everybody who held it before;
        `TimeoutError` if it was not granted in time."""
        self._wishes += 1
        wish = str(self._wishes)
        try:
            await self.call(("acquire", self.name, wish))
            fence = await self.wait_until(lambda lock: lock.holds(self.name, wish), timeout)
        except BaseException:
            await self._undo(("release", self.name, wish))
            raise
        self._held.append(wish)
        return int(fence)

    async def release(self) -> None:
        """Raises `RuntimeError` if it is not held here; or no longer, since this member was taken
        for dead."""
        if not self._held:
            raise RuntimeError("the lock is not held here")
        if not await self.call(("release", self.name, self._held.pop())):
            raise RuntimeError("the lock was given to others meanwhile")

    @property
    def held(self) -> bool:
        """Whether it is still held here, as far as this replica knows."""
        return bool(self.look(lambda lock: any(lock.holds(self.name, wish) for wish in self._held)))

    @asynccontextmanager
    async def hold(self, timeout: float | None = None) -> AsyncIterator[int]:
        """Hold it for an `async with` block, which gets the fence."""
        fence = await self.acquire(timeout)
        try:
            yield fence
        finally:
            await self.release()


class LeaderElection(Replica[ElectionService], Leading):
    """One of the members leads; when it goes, the next one does."""

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, ElectionService(), name=name)

    async def wait_to_lead(self, timeout: float | None = None) -> int:
        """Returns the term; `TimeoutError` if another one leads all the time."""
        return int(await self.wait_until(lambda election: election.term_of(self.name), timeout))

    async def resign(self) -> None:
        """Let another one lead, if there is one."""
        await self.call(("resign", self.name))


class Barrier(Replica[BarrierService]):
    """Opens when so many members have come to it; then it is closed again for the next time."""

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
        """Returns how often it has opened, this time included; `TimeoutError` if it does not in
        time, and then this member is not counted any more."""
        try:
            turn = int(await self.call(("arrive", self.name)))
            await self.wait_until(lambda barrier: barrier.opened >= turn, timeout)
        except BaseException:
            await self._undo(("leave", self.name))
            raise
        return turn
