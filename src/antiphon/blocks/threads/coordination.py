"""Counter, semaphore, lock, leader election and barrier with threads.

The rules of who holds, leads or stands where are services (`blocks/pure/coordination.py`).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import antiphon
from antiphon.api.operations.scripts import Deadline
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
from antiphon.blocks.threads.host import TIMEOUT_S
from antiphon.blocks.threads.replica import Replica
from antiphon.errors import IllegalStateError, JMSError, OutcomeUnknownError

logger = logging.getLogger("antiphon.blocks")


class Counter(Replica[CounterService]):
    """Everybody who adds to it gets another value."""

    def __init__(
        self, ctx: antiphon.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, CounterService(), name=name)

    def add(self, n: int = 1, timeout: float | None = TIMEOUT_S) -> int:
        """Returns the new value."""
        return int(self.call(("add", n), timeout))

    def set(self, n: int, timeout: float | None = TIMEOUT_S) -> None:
        self.call(("set", n), timeout)

    @property
    def value(self) -> int:
        """With all that was added before, anywhere."""
        return self.add(0)


class Entered(Replica[AnyService]):
    """A block that can be entered more than once: the `with` block that leaves it last leaves the
    group, and who enters it then joins again. So the group may be empty at any time, and who joins
    while the last one leaves begins anew."""

    _begins_anew = True

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        new_service: Callable[[], AnyService],
        *,
        name: str | None,
    ) -> None:
        self._given = ctx, group, new_service, name
        self._door = threading.Lock()  # who joins, leaves and is inside
        self._inside = 0
        self._closed = False
        self._join()

    def _join(self) -> None:
        ctx, group, new_service, name = self._given
        super().__init__(ctx, group, new_service(), name=name)

    def _come_in(self) -> None:
        with self._door:
            if self._closed:
                raise IllegalStateError(f"the {type(self).__name__} was closed: make another one")
            if not self._inside and not self.is_member:
                super().close()
                self._join()
            self._inside += 1

    def _go_out(self) -> None:
        with self._door:
            self._inside -= 1

    def _leave(self) -> None:
        """At the end of a `with` block, unless others here are inside."""
        with self._door:
            if not self._inside:
                super().close()

    def close(self) -> None:
        """Leave the group for good, and with it what is held here."""
        with self._door:
            self._closed = True
            super().close()


class Semaphore(Entered[SemaphoreService]):
    """A number of permits for all processes and threads that have this semaphore; granted in the
    order in which they asked."""

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        permits: int,
        *,
        name: str | None = None,
    ) -> None:
        self._grants: list[Grant] = []
        self._own = threading.Lock()  # guards the grants
        super().__init__(ctx, group, lambda: SemaphoreService(permits), name=name)

    def __enter__(self) -> Self:
        try:
            self.acquire()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._closed:  # that has released it, too
                self._release_after(error)
        finally:
            self._leave()

    def acquire(self, timeout: float | None = None) -> int:
        """Returns the fence, which is greater than that of everybody to whom it was granted
        before; `TimeoutError` if it was not granted in time. With 0 it is asked for, and not
        waited for."""
        deadline, wish = Deadline(timeout), secrets.token_hex(8)
        self._come_in()
        try:
            fence = self._granted(wish, deadline)
        except BaseException as error:
            self._give_up(wish)
            self._go_out()
            if isinstance(error, TimeoutError) and deadline.left() == 0:
                raise not_granted(timeout) from None
            raise
        with self._own:
            self._grants.append(Grant(threading.get_ident(), wish, fence))
        return fence

    def _granted(self, wish: str, deadline: Deadline) -> int:
        left = deadline.left()
        asking = None if left is None else max(left, ASK_S)
        floor = self._host.joined_at(asking)
        self.call(("acquire", self.name, wish, floor), asking)
        return int(self.wait_until(lambda lock: lock.holds(self.name, wish), deadline.left()))

    def _give_up(self, wish: str) -> None:
        """A wish that nobody waits for must not be granted, whenever it gets to its place."""
        with suppress(JMSError):  # it ends with the member in any case
            self.post(("release", self.name, wish))

    def release(self) -> None:
        """Release what this thread has acquired; if it has not, what another one here has. Raises
        `RuntimeError` if nothing is held here, `IllegalStateError` if it was lost before."""
        with self._own:
            grant = last_of(self._grants, threading.get_ident())
            if grant is None:
                raise RuntimeError(f"the {type(self).__name__} is not held here")
            self._grants.remove(grant)
        try:
            if not self.call(("release", self.name, grant.wish)):
                raise lost(self, REMOVED)
        except (IllegalStateError, OutcomeUnknownError) as error:
            if self.is_member:
                raise
            raise lost(self, error) from None
        finally:
            self._go_out()

    @property
    def held(self) -> bool:
        """Whether it is still held here, as far as this replica knows."""
        with self._own:
            wishes = [one.wish for one in self._grants]
        held = self.look(lambda lock: any(lock.holds(self.name, wish) for wish in wishes))
        return bool(held) and self.is_member

    @property
    def fence(self) -> int:
        """That with which this thread, or another one here, was granted it last and has not
        released it; 0 if there is none."""
        with self._own:
            grant = last_of(self._grants, threading.get_ident())
        return grant.fence if grant is not None else 0

    @contextmanager
    def hold(self, timeout: float | None = None) -> Iterator[int]:
        """Hold it for a `with` block, which gets the fence, and stay in the group afterwards."""
        fence = self.acquire(timeout)
        try:
            yield fence
        except BaseException as error:
            self._release_after(error)
            raise
        self._release_after(None)

    def _release_after(self, error: BaseException | None) -> None:
        """That it was lost is what the block raises, unless that has an error of its own."""
        try:
            self.release()
        except (JMSError, RuntimeError) as problem:
            if error is None:
                raise
            logger.warning("%s", problem)


class Lock(Semaphore):
    """Held by one at a time, of all processes and threads that have this lock; granted in the order
    in which they asked.

        with Lock(ctx, "printer") as lock:     # waits until it is held
            ...
    """

    def __init__(
        self, ctx: antiphon.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, 1, name=name)


class Leading:
    """Who leads, as far as this member knows."""

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def is_member(self) -> bool:
        raise NotImplementedError

    def look(self, what: Callable[[ElectionService], Any]) -> Any:
        raise NotImplementedError

    @property
    def leader(self) -> str:
        return str(self.look(lambda election: election.leader))

    @property
    def is_leader(self) -> bool:
        return self.is_member and self.leader == self.name

    @property
    def term(self) -> int:
        """Grows with every change: a leader of a smaller one is none any more."""
        return int(self.look(lambda election: election.terms))


class LeaderElection(Entered[ElectionService], Leading):
    """One of the members leads; when it goes, the next one does.

        with LeaderElection(ctx, "boss") as election:     # waits until this one leads
            ...

    Who only wants to know who leads makes one, and looks at `leader`.
    """

    def __init__(
        self, ctx: antiphon.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, ElectionService, name=name)

    def __enter__(self) -> Self:
        self._come_in()
        try:
            self.wait_to_lead()
        except BaseException:
            self._go_out()
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        was_lost = not (self.is_member or self._closed)
        self._go_out()
        self._leave()
        if was_lost and error is None:
            raise lost(self, "this member was removed, or its context closed")

    def wait_to_lead(self, timeout: float | None = None) -> int:
        """Returns the term; `TimeoutError` if another one leads all the time."""
        return int(self.wait_until(lambda election: election.term_of(self.name), timeout))

    def resign(self) -> None:
        """Let another one lead, if there is one."""
        self.call(("resign", self.name))


class Barrier(Replica[BarrierService]):
    """Opens when so many members have come to it; then it is closed again for the next time. The
    threads of one member are not told apart."""

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        parties: int,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, BarrierService(parties), name=name)

    def wait(self, timeout: float | None = None) -> int:
        """Returns how often it has opened, this time included; `TimeoutError` if it does not in
        time, and then this member is not counted any more."""
        deadline, turn = Deadline(timeout), 0
        try:
            turn = int(self.call(("arrive", self.name), timeout))
            self.wait_until(lambda barrier: barrier.opened >= turn, deadline.left())
        except TimeoutError:
            opened = self.call(("leave", self.name))
            if not turn or opened < turn:  # otherwise it has opened just before
                raise TimeoutError(f"the barrier has not opened within {timeout:g} s") from None
        return turn
