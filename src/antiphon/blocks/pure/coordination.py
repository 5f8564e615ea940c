"""The services behind counters, semaphores, elections and barriers: each is a small replicated
service.

Promise: permits, leadership and places at a barrier end with their member. A member that leaves the
group or is removed from it holds no permit, does not lead, and is not counted at a barrier. A
process that was only suspected and then removed learns of it with its next request; so a resource
that a lock protects should compare its `fence`, which grows with every grant.

A fence is the place of its request in the order of all messages of the cluster, not a number that
the group counts. So it grows even if the state of the group was lost between two grants, and
replicas that began without that state agree on it: they need to know neither earlier grants nor
when they joined.

Need: `viewed` at the place of each view in the order of the commands; for a lock or semaphore, its
`SemaphoreBlock`. Limit: an election and a barrier know members, not their threads or tasks; a
semaphore knows each request (`wish`), with a fence and a place in the line of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from antiphon.blocks.pure.block import Effects, Heard
from antiphon.blocks.pure.scripts import Script
from antiphon.blocks.pure.service import ReplicatedService
from antiphon.blocks.pure.service_block import ServiceBlock
from antiphon.errors import FormatError, IllegalStateError
from antiphon.formats import values

ASK_S = 1.0
"""Seconds that a request waits for the group's answer at least, however short its timeout."""

REMOVED = "this member was removed from the group, and has joined it again"


class CounterService(ReplicatedService):
    """A number: `("add", n)` and `("set", n)` return the new value."""

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
        match values.decode(data):
            case int(value):
                self.value = value
            case other:
                raise FormatError(f"no state of a counter: {type(other).__name__}")


class SemaphoreService(ReplicatedService):
    """Permits, and a line of requests: the first ones in the line hold a permit each. A lock has
    one permit."""

    def __init__(self, permits: int) -> None:
        if type(permits) is not int or permits < 1:
            raise ValueError(f"a semaphore needs at least one permit, not {permits!r}")
        self.permits = permits
        self.position = 0  # of the command, counted from 1; the block sets it
        self.members: tuple[str, ...] = ()
        self.line: list[tuple[str, str, int]] = []  # member, its wish, and the fence

    def apply(self, command: Any) -> bool:
        match command:
            case ("acquire", str(member), str(wish)):
                if member not in self.members:  # the member was removed while this was on its way
                    return False
                self.line.append((member, wish, self.position))
                return True
            case ("release", str(member), str(wish)):
                held = self.holds(member, wish) > 0
                self._without(lambda one: one[:2] != (member, wish))
                return held
        raise ValueError(f"a lock does not know {command!r}")

    def viewed(self, members: tuple[str, ...]) -> None:
        self.members = members
        self._without(lambda one: one[0] in members)

    def _without(self, stays: Callable[[tuple[str, str, int]], bool]) -> None:
        self.line = [one for one in self.line if stays(one)]

    def holds(self, member: str, wish: str) -> int:
        """Return the fence, if this wish holds a permit; otherwise 0."""
        for *who, fence in self.line[: self.permits]:
            if who == [member, wish]:
                return fence
        return 0

    def snapshot(self) -> bytes:
        return values.encode((self.permits, self.members, self.line))

    def restore(self, data: bytes) -> None:
        match values.decode(data):
            case (int(permits), members, list(line)):
                self.members, self.line = members, line
            case other:
                raise FormatError(f"no state of a lock: {type(other).__name__}")
        if permits != self.permits:
            raise ValueError(
                f"the semaphore of this group has {permits} permits, not {self.permits}: all who "
                "use it must give the same number"
            )


class SemaphoreBlock(ServiceBlock):
    """A semaphore's replica, which gives its service the position of each command."""

    def __init__(self, service: SemaphoreService) -> None:
        super().__init__(service)
        self._service = service

    def hearing(self, message: Heard, now: float) -> Script[Effects]:
        self._service.position = message.position
        return (yield from super().hearing(message, now))


class Grant(NamedTuple):
    """A permit that is held here."""

    owner: Any  # the thread, or task, that acquired it
    wish: str
    fence: int


def last_of(grants: list[Grant], owner: Any) -> Grant | None:
    """Return the newest grant of this thread or task; if it has none, that of another one."""
    own = [one for one in grants if one.owner == owner]
    return (own or grants)[-1] if grants else None


def not_granted(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"it was not granted within {timeout:g} s: others hold it")


def lost(what: Any, why: object) -> IllegalStateError:
    return IllegalStateError(
        f"the {type(what).__name__} was lost before it was released, and others may have had it "
        f"since: {why}"
    )


class ElectionService(ReplicatedService):
    """The member that has been in the group longest leads, unless it has resigned."""

    def __init__(self) -> None:
        self.line: list[str] = []
        self.terms = 0

    @property
    def leader(self) -> str:
        return self.line[0] if self.line else ""

    def term_of(self, member: str) -> int:
        """Return the term, if this member leads; otherwise 0."""
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
        match values.decode(data):
            case (list(line), int(terms)):
                self.line, self.terms = line, terms
            case other:
                raise FormatError(f"no state of an election: {type(other).__name__}")


class BarrierService(ReplicatedService):
    """Counts the members that have come, and opens when there are `parties` of them. `("arrive",
    member)` returns the number of the opening that the member waits for, `("leave", member)` how
    often it has opened. A member that is not in the view is not counted."""

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
        match values.decode(data):
            case (int(parties), members, list(there), int(opened)):
                self.members, self.there, self.opened = members, there, opened
            case other:
                raise FormatError(f"no state of a barrier: {type(other).__name__}")
        if parties != self.parties:
            raise ValueError(f"this barrier is for {parties}, not for {self.parties}")
