"""Counter, semaphore, lock, leader election and barrier, each a replica of a small service.

The rules for permits, leaders and barriers are services (`blocks/pure/coordination.py`). Promise: a
caller that is out of time, interrupted or cancelled while it waits for a lock does not get it
later; one that waits at a barrier is not counted any more.
"""

from __future__ import annotations

import logging
import secrets
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import antiphon
from antiphon.blocks.operations.front import Deadline
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.operations.replica import Replica
from antiphon.blocks.pure.coordination import (
    ASK_S,
    REMOVED,
    BarrierService,
    CounterService,
    ElectionService,
    Grant,
    SemaphoreBlock,
    SemaphoreService,
    last_of,
    lost,
    not_granted,
)
from antiphon.blocks.pure.scripts import Script
from antiphon.blocks.pure.service_block import AnyService
from antiphon.errors import IllegalStateError, JMSError, OutcomeUnknownError

logger = logging.getLogger("antiphon.blocks")


class Counter(Replica[CounterService]):
    """A number that several processes share: `add` changes it and returns the new value in one
    step, so no two `add(1)` return the same.

    It begins at 0 with the group, and ends with the group's last member. `name`: of this member, as
    in `Context.join`; opening raises the errors of that call.
    """

    @abstractmethod
    def add(self, n: int = 1, timeout: float | None = TIMEOUT_S) -> Any:
        """Add `n`, and return the new value. Raise the errors of `call`."""

    @abstractmethod
    def set(self, n: int, timeout: float | None = TIMEOUT_S) -> Any:
        """Set it to `n`. Raise the errors of `call`."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """The value with all earlier additions of all processes; it asks the group (asyncio: await
        it). Raise the errors of `call`."""


class Entered(Replica[AnyService]):
    """A block that can be entered more than once: the last `with` block to end leaves the group,
    and the next one joins again. So the group may be empty at any time, and a member that joins
    while the last one leaves begins anew."""

    _begins_anew = True

    def _set_up_entered(
        self,
        ctx: Any,
        group: antiphon.Topic | str,
        new_service: Callable[[], AnyService],
        name: str | None,
    ) -> None:
        self._new_service = new_service
        self._coming_and_going = self._front.lock()  # held while joining or leaving
        self._count = self._front.watch()  # guards the next line
        self._inside = 0
        self._closed = False
        self._joined = False
        self._set_up(ctx, group, new_service(), name, False, None)

    def _opening(self) -> Script[None]:
        yield self._coming_and_going.acquire
        try:
            yield from self._joining()
        finally:
            self._coming_and_going.release()

    def _joining(self) -> Script[None]:
        """Join, if this is not a member. Caller holds `_coming_and_going`."""
        if self._closed:
            raise IllegalStateError(f"the {type(self).__name__} was closed: make another one")
        if not self._joined:
            self._joined = True
            try:
                yield from self._host.opening()
            except BaseException:
                yield from super()._closing()
                self._renew()
                raise

    def _renew(self) -> None:
        self._start(self._new_service())
        self._joined = False

    def _coming_in(self) -> Script[None]:
        yield self._coming_and_going.acquire
        try:
            if self._joined and not self._inside and not self.is_member and not self._closed:
                yield from super()._closing()
                self._renew()
            yield from self._joining()
            with self._count:
                self._inside += 1
        finally:
            self._coming_and_going.release()

    def _go_out(self) -> None:
        with self._count:
            self._inside -= 1

    def _leaving(self) -> Script[None]:
        """Leave at the end of a `with` block, unless others in this process are inside."""
        yield self._coming_and_going.acquire
        try:
            if not self._inside:
                yield from super()._closing()
        finally:
            self._coming_and_going.release()

    def _closing(self) -> Script[None]:
        """Leave the group for good, which releases all that is held here."""
        self._closed = True
        yield from super()._closing()


class Semaphore(Entered[SemaphoreService]):
    """A number of permits for all processes, and their threads or tasks, that have this semaphore;
    the group grants them in the order of the requests.

    A `with` block waits for a permit, releases it at its end, and leaves the group if no permit is
    held here any more. A member that leaves the group, or is removed from it, holds nothing; a
    resource that a permit protects should compare the `fence`. All must give the same number of
    `permits`. `name`: of this member, as in `Context.join`; opening raises the errors of that call.
    """

    def _set_up_permits(
        self, ctx: Any, group: antiphon.Topic | str, permits: int, name: str | None
    ) -> None:
        self._grants: list[Grant] = []
        self._set_up_entered(ctx, group, lambda: SemaphoreService(permits), name)

    def _block_of(self, service: SemaphoreService) -> SemaphoreBlock:
        return SemaphoreBlock(service)

    @abstractmethod
    def acquire(self, timeout: float | None = None) -> Any:
        """Wait for a permit, and return its fence, which is greater than those of all earlier
        grants.

        Raise `TimeoutError` if it was not granted within `timeout` seconds (None: no limit); 0:
        take one only if it is free now. Raise `IllegalStateError` if the block was closed, or its
        member was removed meanwhile."""

    @abstractmethod
    def release(self) -> Any:
        """Release a permit that this thread (asyncio: task) has acquired; if it has none, one of
        another thread of this object. Raise `RuntimeError` if this object holds none, and
        `IllegalStateError` if it was lost before."""

    @abstractmethod
    def hold(self, timeout: float | None = None) -> Any:
        """Hold a permit for a `with` block, which gets the fence, and stay in the group afterwards.
        Raise the errors of `acquire` and `release`."""

    @property
    def held(self) -> bool:
        """Whether this object still holds a permit, as far as this replica knows."""
        wishes = [grant.wish for grant in self._grants]
        held = self.look(lambda lock: any(lock.holds(self.name, wish) for wish in wishes))
        return bool(held) and self.is_member

    @property
    def fence(self) -> int:
        """The fence of the newest grant that this thread (asyncio: task) has not released; if it
        has none, that of another thread of this object; 0 if there is none."""
        grant = last_of(list(self._grants), self._front.owner())
        return grant.fence if grant is not None else 0

    def _acquiring(self, timeout: float | None) -> Script[int]:
        deadline, wish = Deadline(timeout), secrets.token_hex(8)
        yield from self._coming_in()
        try:
            fence = yield from self._granted(wish, deadline)
        except BaseException as error:
            # A wish without a waiting caller must never be granted, even later.
            self._go_out()
            yield from self._undoing(("release", self.name, wish))
            if isinstance(error, TimeoutError) and deadline.left() == 0:
                raise not_granted(timeout) from None
            raise
        with self._count:
            self._grants.append(Grant(self._front.owner(), wish, fence))
        return fence

    def _granted(self, wish: str, deadline: Deadline) -> Script[int]:
        left = deadline.left()
        asking = None if left is None else max(left, ASK_S)
        yield from self._calling(("acquire", self.name, wish), asking)
        held = self._waiting_until(lambda lock: lock.holds(self.name, wish), deadline.left())
        return int((yield from held))

    def _releasing(self) -> Script[None]:
        with self._count:
            grant = last_of(self._grants, self._front.owner())
            if grant is None:
                raise RuntimeError(f"the {type(self).__name__} is not held here")
            self._grants.remove(grant)
        try:
            if (yield from self._calling(("release", self.name, grant.wish))):
                return
            why: object = REMOVED
        except (IllegalStateError, OutcomeUnknownError) as error:
            if self.is_member:
                raise
            why = error
        except BaseException:  # interrupted, perhaps before the command was sent
            yield from self._undoing(("release", self.name, grant.wish))
            raise
        finally:
            self._go_out()
        raise lost(self, why) from None

    def _releasing_after(self, error: object) -> Script[None]:
        """Release the permit at the end of a `with` block. Raise an error if it was lost; but if
        the block raised an error of its own, only log the loss."""
        try:
            yield from self._releasing()
        except (JMSError, RuntimeError) as problem:
            if error is None:
                raise
            logger.warning("%s", problem)

    def _entering(self) -> Script[None]:
        try:
            yield from self._acquiring(None)
        except BaseException:
            yield from self._leaving()
            raise

    def _exiting(self, error: object) -> Script[None]:
        try:
            if not self._closed:  # closing has released it, too
                yield from self._releasing_after(error)
        finally:
            yield from self._leaving()


class Lock(Semaphore):
    """A lock between processes: one thread or task holds it at a time, of all processes that have
    this lock; the group grants it in the order of the requests.

        with Lock(ctx, "printer") as lock:     # waits until it is held
            ...

    With asyncio: `async with`. Otherwise it is a `Semaphore` with one permit: `acquire`, `release`,
    `held`, `fence`. `name`: of this member, as in `Context.join`; opening raises the errors of that
    call.
    """


class LeaderElection(Entered[ElectionService]):
    """Elects one member of the group to lead: the one that has been a member longest, and has not
    resigned. When it goes, the next one leads.

        with LeaderElection(ctx, "boss") as election:     # waits until this one leads
            ...

    With asyncio: `async with`. A program that only wants to know the leader makes one without
    `with` (asyncio: awaits one), and reads `leader`; it is a member too, and may lead. `name`: of
    this member, as in `Context.join`; opening raises the errors of that call.
    """

    @property
    def leader(self) -> str:
        """The name of the member that leads, as far as this member knows."""
        return str(self.look(lambda election: election.leader))

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, as far as it knows."""
        return self.is_member and self.leader == self.name

    @property
    def term(self) -> int:
        """The number of elections so far: a leader of a smaller term does not lead any more."""
        return int(self.look(lambda election: election.terms))

    @abstractmethod
    def wait_to_lead(self, timeout: float | None = None) -> Any:
        """Wait until this member leads, and return the term. Raise `TimeoutError` if it does not
        within `timeout` seconds, and `IllegalStateError` if this is not a member any more."""

    @abstractmethod
    def resign(self) -> Any:
        """Let another member lead, if there is one. Raise the errors of `call`."""

    def _waiting_to_lead(self, timeout: float | None) -> Script[int]:
        leads = self._waiting_until(lambda election: election.term_of(self.name), timeout)
        return int((yield from leads))

    def _entering(self) -> Script[None]:
        yield from self._coming_in()
        try:
            yield from self._waiting_to_lead(None)
        except BaseException:
            self._go_out()
            yield from self._leaving()
            raise

    def _exiting(self, error: object) -> Script[None]:
        was_lost = not (self.is_member or self._closed)
        self._go_out()
        yield from self._leaving()
        if was_lost and error is None:
            raise lost(self, "this member was removed, or its context closed")


class Barrier(Replica[BarrierService]):
    """A barrier that opens when `parties` members wait at it, and then is closed again for the next
    time.

    A member counts once, however many of its threads or tasks wait. All members must give the same
    `parties`; raise `ValueError` if it is less than 1. `name`: of this member, as in
    `Context.join`; opening raises the errors of that call.
    """

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """Wait until it opens, and return the number of this opening, counted from 1. Raise
        `TimeoutError` if it does not open within `timeout` seconds (None: no limit): then this
        member is not counted any more. Raise `IllegalStateError` if this is not a member any
        more."""

    def _awaiting(self, timeout: float | None) -> Script[int]:
        deadline, turn = Deadline(timeout), 0
        try:
            turn = int((yield from self._calling(("arrive", self.name), timeout)))
            opens = self._waiting_until(lambda barrier: barrier.opened >= turn, deadline.left())
            yield from opens
        except TimeoutError:
            opened = yield from self._calling(("leave", self.name))
            if not turn or opened < turn:  # otherwise it has just opened
                raise TimeoutError(f"the barrier has not opened within {timeout:g} s") from None
        except BaseException:
            yield from self._undoing(("leave", self.name))
            raise
        return turn
