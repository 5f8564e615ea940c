"""Counter, semaphore, lock, leader election and barrier with threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import antiphon
from antiphon.blocks.operations import coordination
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.coordination import (
    BarrierService,
    CounterService,
    ElectionService,
    SemaphoreService,
)
from antiphon.blocks.pure.scripts import run
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.replica import Replica


class Counter(Replica[CounterService], coordination.Counter):
    __doc__ = coordination.Counter.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, CounterService(), name=name)

    def add(self, n: int = 1, timeout: float | None = TIMEOUT_S) -> int:
        return int(self.call(("add", n), timeout))

    def set(self, n: int, timeout: float | None = TIMEOUT_S) -> None:
        self.call(("set", n), timeout)

    @property
    def value(self) -> int:
        return self.add(0)


class Semaphore(Replica[SemaphoreService], coordination.Semaphore):
    __doc__ = coordination.Semaphore.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        permits: int,
        *,
        name: str | None = None,
    ) -> None:
        self._set_up_permits(ctx, group, permits, name)
        run(self._opening())

    def acquire(self, timeout: float | None = None) -> int:
        return run(self._acquiring(timeout))

    def release(self) -> None:
        run(self._releasing())

    @contextmanager
    def hold(self, timeout: float | None = None) -> Iterator[int]:
        fence = self.acquire(timeout)
        try:
            yield fence
        except BaseException as error:
            run(self._releasing_after(error))
            raise
        run(self._releasing_after(None))

    def __enter__(self) -> Self:
        run(self._entering())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._exiting(error))


class Lock(Semaphore, coordination.Lock):
    __doc__ = coordination.Lock.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, 1, name=name)


class LeaderElection(Replica[ElectionService], coordination.LeaderElection):
    __doc__ = coordination.LeaderElection.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        *,
        name: str | None = None,
    ) -> None:
        self._set_up_entered(ctx, group, ElectionService, name)
        run(self._opening())

    def wait_to_lead(self, timeout: float | None = None) -> int:
        return run(self._waiting_to_lead(timeout))

    def resign(self) -> None:
        self.call(("resign", self.name))

    def __enter__(self) -> Self:
        run(self._entering())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._exiting(error))


class Barrier(Replica[BarrierService], coordination.Barrier):
    __doc__ = coordination.Barrier.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        parties: int,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, BarrierService(parties), name=name)

    def wait(self, timeout: float | None = None) -> int:
        return run(self._awaiting(timeout))
