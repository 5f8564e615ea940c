"""Counter, semaphore, lock, leader election and barrier with asyncio.

Promises, besides those of the blocking ones: who is cancelled, or out of time, while it waits for a
lock does not get it; and one that waits at a barrier is not counted any more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

import antiphon
from antiphon import aio
from antiphon.api.operations.scripts import Deadline
from antiphon.blocks.aio.replica import Replica
from antiphon.blocks.pure.coordination import (
    ASK_S,
    REMOVED,
    BarrierService,
    CounterService,
    ElectionService,
    Grant,
    SemaphoreService,
    last_of,
    lost,
    not_granted,
)
from antiphon.blocks.pure.service_block import AnyService
from antiphon.blocks.threads.coordination import Leading
from antiphon.blocks.threads.host import TIMEOUT_S
from antiphon.errors import IllegalStateError, JMSError, OutcomeUnknownError

logger = logging.getLogger("antiphon.blocks")


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


class Entered(Replica[AnyService]):
    """A block that can be entered more than once: the `async with` block that leaves it last leaves
    the group, and who enters it then joins again. So the group may be empty at any time, and who
    joins while the last one leaves begins anew."""

    _begins_anew = True

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        new_service: Callable[[], AnyService],
        *,
        name: str | None,
    ) -> None:
        self._given = ctx, group, new_service, name
        self._door = asyncio.Lock()  # who joins, leaves and is inside
        self._inside = 0
        self._closed = False
        self._renew()

    def _renew(self) -> None:
        ctx, group, new_service, name = self._given
        super().__init__(ctx, group, new_service(), name=name)
        self._begun = False

    async def _opened(self) -> Self:
        async with self._door:
            return await self._joined()

    async def _joined(self) -> Self:
        if self._closed:
            raise IllegalStateError(f"the {type(self).__name__} was closed: make another one")
        if not self._begun:
            self._begun = True
            try:
                await self._open()
            except BaseException:
                await super().close()
                self._renew()
                raise
        return self

    async def _come_in(self) -> None:
        async with self._door:
            if self._begun and not self._inside and not self.is_member:
                await super().close()
                self._renew()
            await self._joined()
            self._inside += 1

    async def _leave(self) -> None:
        """At the end of an `async with` block, unless others here are inside."""
        async with self._door:
            if not self._inside:
                await super().close()

    async def close(self) -> None:
        """Leave the group for good, and with it what is held here."""
        self._closed = True
        await super().close()


class Semaphore(Entered[SemaphoreService]):
    """A number of permits for all processes and tasks that have this semaphore; granted in the
    order in which they asked."""

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        permits: int,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, lambda: SemaphoreService(permits), name=name)
        self._grants: list[Grant] = []

    async def __aenter__(self) -> Self:
        try:
            await self.acquire()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if not self._closed:  # that has released it, too
                await self._release_after(error[0])
        finally:
            await self._leave()

    async def acquire(self, timeout: float | None = None) -> int:
        """Returns the fence, which is greater than that of everybody to whom it was granted
        before; `TimeoutError` if it was not granted in time. With 0 it is asked for, and not
        waited for."""
        deadline, wish = Deadline(timeout), secrets.token_hex(8)
        await self._come_in()
        try:
            fence = await self._granted(wish, deadline)
        except BaseException as error:
            self._inside -= 1
            await self._undo(("release", self.name, wish))
            if isinstance(error, TimeoutError) and deadline.left() == 0:
                raise not_granted(timeout) from None
            raise
        self._grants.append(Grant(asyncio.current_task(), wish, fence))
        return fence

    async def _granted(self, wish: str, deadline: Deadline) -> int:
        left = deadline.left()
        async with asyncio.timeout(None if left is None else max(left, ASK_S)):
            floor = await self._host.joined_at()
            await self.call(("acquire", self.name, wish, floor), None)
        held = self.wait_until(lambda lock: lock.holds(self.name, wish), deadline.left())
        return int(await held)

    async def release(self) -> None:
        """Release what this task has acquired; if it has not, what another one here has. Raises
        `RuntimeError` if nothing is held here, `IllegalStateError` if it was lost before."""
        grant = last_of(self._grants, asyncio.current_task())
        if grant is None:
            raise RuntimeError(f"the {type(self).__name__} is not held here")
        self._grants.remove(grant)
        self._inside -= 1
        try:
            if await self.call(("release", self.name, grant.wish)):
                return
            why: object = REMOVED
        except (IllegalStateError, OutcomeUnknownError) as error:
            if self.is_member:
                raise
            why = error
        except BaseException:  # cancelled, perhaps before it was sent
            await self._undo(("release", self.name, grant.wish))
            raise
        raise lost(self, why)

    @property
    def held(self) -> bool:
        """Whether it is still held here, as far as this replica knows."""
        wishes = [one.wish for one in self._grants]
        held = self.look(lambda lock: any(lock.holds(self.name, wish) for wish in wishes))
        return bool(held) and self.is_member

    @property
    def fence(self) -> int:
        """That with which this task, or another one here, was granted it last and has not
        released it; 0 if there is none."""
        grant = last_of(self._grants, asyncio.current_task())
        return grant.fence if grant is not None else 0

    @asynccontextmanager
    async def hold(self, timeout: float | None = None) -> AsyncIterator[int]:
        """Hold it for an `async with` block, which gets the fence, and stay in the group
        afterwards."""
        fence = await self.acquire(timeout)
        try:
            yield fence
        except BaseException as error:
            await self._release_after(error)
            raise
        await self._release_after(None)

    async def _release_after(self, error: object) -> None:
        """That it was lost is what the block raises, unless that has an error of its own."""
        try:
            await self.release()
        except (JMSError, RuntimeError) as problem:
            if error is None:
                raise
            logger.warning("%s", problem)


class Lock(Semaphore):
    """Held by one at a time, of all processes and tasks that have this lock; granted in the order
    in which they asked.

        async with Lock(ctx, "printer") as lock:     # waits until it is held
            ...
    """

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, 1, name=name)


class LeaderElection(Entered[ElectionService], Leading):
    """One of the members leads; when it goes, the next one does.

        async with LeaderElection(ctx, "boss") as election:     # waits until this one leads
            ...

    Who only wants to know who leads awaits one, and looks at `leader`.
    """

    def __init__(
        self, ctx: aio.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, ElectionService, name=name)

    async def __aenter__(self) -> Self:
        await self._come_in()
        try:
            await self.wait_to_lead()
        except BaseException:
            self._inside -= 1
            await self._leave()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        was_lost = not (self.is_member or self._closed)
        self._inside -= 1
        await self._leave()
        if was_lost and error[0] is None:
            raise lost(self, "this member was removed, or its context closed")

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
