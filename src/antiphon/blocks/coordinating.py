"""Counter, lock, leader election and barrier, each a small replicated service.

Those that belong to a member end with it: who leaves the group or is removed from it holds no lock,
is not the leader, and does not stand at a barrier. A process that was only taken for dead finds out
when it asks next; what a lock protects should look at its `fence`, which grows with every grant.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import antiphon
from antiphon.api.waiting import Deadline
from antiphon.blocks.hosting import TIMEOUT_S
from antiphon.blocks.service import ReplicatedService
from antiphon.blocks.serving import Replica
from antiphon.errors import JMSError
from antiphon.formats import values


class CounterService(ReplicatedService):
    def __init__(self) -> None:
        self.value = 0

    def apply(self, command: Any) -> int:
        match command:
            case ("add", int(n)):
                self.value += n
            case ("set", int(n)):
                self.value = n
            case _:
                raise ValueError(f"a counter does not know {command!r}")
        return self.value

    def snapshot(self) -> bytes:
        return values.encode(self.value)

    def restore(self, data: bytes) -> None:
        self.value = values.decode(data)


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


class LockService(ReplicatedService):
    """Who waits stands in a line; the first one holds the lock."""

    def __init__(self) -> None:
        self.members: tuple[str, ...] = ()
        self.line: list[tuple[str, str]] = []  # member, and which of its wishes
        self.fence = 0  # how often it was granted

    def apply(self, command: Any) -> bool:
        match command:
            case ("acquire", str(member), str(wish)):
                if member not in self.members:  # it was on its way when its member was removed
                    return False
                self.line.append((member, wish))
                self.fence += len(self.line) == 1
                return True
            case ("release", str(member), str(wish)):
                return self._without(lambda one: one != (member, wish))
        raise ValueError(f"a lock does not know {command!r}")

    def viewed(self, members: tuple[str, ...]) -> None:
        self.members = members
        self._without(lambda one: one[0] in members)

    def _without(self, stays: Callable[[tuple[str, str]], bool]) -> bool:
        """Returns whether the lock has another holder now, or none."""
        holder = self.line[:1]
        self.line = [one for one in self.line if stays(one)]
        changed = self.line[:1] != holder
        self.fence += changed and bool(self.line)
        return changed

    def holds(self, member: str, wish: str) -> int:
        """The fence, if this is who holds it; otherwise 0."""
        return self.fence if self.line[:1] == [(member, wish)] else 0

    def snapshot(self) -> bytes:
        return values.encode((self.members, self.line, self.fence))

    def restore(self, data: bytes) -> None:
        self.members, self.line, self.fence = values.decode(data)


class Lock(Replica[LockService]):
    """Held by one at a time, of all processes and threads that have this lock; granted in the order
    in which they asked."""

    def __init__(
        self, ctx: antiphon.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, LockService(), name=name)
        self._held: list[str] = []
        self._own = threading.Lock()

    def acquire(self, timeout: float | None = None) -> int:
        """Returns the fence, which is greater than that of everybody who held it before;
        `TimeoutError` if it was not granted in time."""
        deadline, wish = Deadline(timeout), secrets.token_hex(8)
        try:
            self.call(("acquire", self.name, wish), timeout)
            fence = self.wait_until(lambda lock: lock.holds(self.name, wish), deadline.left())
        except BaseException as error:
            self._give_up(wish)
            if isinstance(error, TimeoutError) and deadline.left() == 0:
                raise TimeoutError(f"the lock was not granted within {timeout:g} s") from None
            raise
        with self._own:
            self._held.append(wish)
        return int(fence)

    def _give_up(self, wish: str) -> None:
        """A wish that nobody waits for must not be granted, whenever it gets to its place."""
        with suppress(JMSError):  # it ends with the member in any case
            self.post(("release", self.name, wish))

    def release(self) -> None:
        """Any thread may do so. Raises `RuntimeError` if it is not held here, `IllegalStateError`
        if it no longer is because this member was removed."""
        with self._own:
            if not self._held:
                raise RuntimeError("the lock is not held here")
            wish = self._held.pop()
        self.call(("release", self.name, wish))

    @property
    def held(self) -> bool:
        """Whether it is still held here, as far as this replica knows."""
        with self._own:
            wishes = list(self._held)
        held = self.look(lambda lock: any(lock.holds(self.name, wish) for wish in wishes))
        return bool(held) and self.is_member

    @contextmanager
    def hold(self, timeout: float | None = None) -> Iterator[int]:
        """Hold it for a `with` block, which gets the fence."""
        fence = self.acquire(timeout)
        try:
            yield fence
        finally:
            self.release()


class ElectionService(ReplicatedService):
    """The member that has been there longest leads, unless it stood back."""

    def __init__(self) -> None:
        self.line: list[str] = []
        self.terms = 0

    @property
    def leader(self) -> str:
        return self.line[0] if self.line else ""

    def term_of(self, member: str) -> int:
        """The term, if this is who leads; otherwise 0."""
        return self.terms if self.leader == member else 0

    def apply(self, command: Any) -> str:
        match command:
            case ("resign", str(member)) if member in self.line:
                self._follow([one for one in self.line if one != member] + [member])
            case ("resign", str()):
                pass
            case _:
                raise ValueError(f"an election does not know {command!r}")
        return self.leader

    def viewed(self, members: tuple[str, ...]) -> None:
        stay = [one for one in self.line if one in members]
        self._follow(stay + [one for one in members if one not in stay])

    def _follow(self, line: list[str]) -> None:
        before, self.line = self.leader, line
        self.terms += self.leader != before

    def snapshot(self) -> bytes:
        return values.encode((self.line, self.terms))

    def restore(self, data: bytes) -> None:
        line, self.terms = values.decode(data)
        self.line = list(line)


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


class LeaderElection(Replica[ElectionService], Leading):
    """One of the members leads; when it goes, the next one does."""

    def __init__(
        self, ctx: antiphon.Context, group: antiphon.Topic | str, *, name: str | None = None
    ) -> None:
        super().__init__(ctx, group, ElectionService(), name=name)

    def wait_to_lead(self, timeout: float | None = None) -> int:
        """Returns the term; `TimeoutError` if another one leads all the time."""
        return int(self.wait_until(lambda election: election.term_of(self.name), timeout))

    def resign(self) -> None:
        """Let another one lead, if there is one."""
        self.call(("resign", self.name))


class BarrierService(ReplicatedService):
    def __init__(self, parties: int) -> None:
        if parties < 1:
            raise ValueError(f"a barrier for {parties}: at least one must come")
        self.parties = parties
        self.members: tuple[str, ...] = ()
        self.there: list[str] = []
        self.opened = 0  # how often

    def apply(self, command: Any) -> int:
        match command:
            case ("arrive", str(member)):
                turn = self.opened + 1
                if member in self.members and member not in self.there:
                    self.there.append(member)
                if len(self.there) >= self.parties:
                    self.there, self.opened = [], turn
                return turn
            case ("leave", str(member)):
                self.there = [one for one in self.there if one != member]
                return self.opened
        raise ValueError(f"a barrier does not know {command!r}")

    def viewed(self, members: tuple[str, ...]) -> None:
        self.members = members
        self.there = [one for one in self.there if one in members]

    def snapshot(self) -> bytes:
        return values.encode((self.parties, self.members, self.there, self.opened))

    def restore(self, data: bytes) -> None:
        parties, self.members, self.there, self.opened = values.decode(data)
        if parties != self.parties:
            raise ValueError(f"this barrier is for {parties}, not for {self.parties}")


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
