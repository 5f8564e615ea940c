"""Object groups, their members and faults, as the manager keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from antiphon.toolkits.eternal.pure.policy import Criteria


class Member(NamedTuple):
    """A member of an object group."""

    location: str
    founder: bool = False
    running: bool = False  # it has joined its group
    added: bool = False  # it was not made by a factory
    arguments: tuple[Any, ...] = ()


class Fault(NamedTuple):
    """A failure: of a `location`, an `object` (one member of a group), or a `group`, which has lost
    its state."""

    number: int
    kind: str
    name: str
    location: str = ""
    why: str = ""


class ObjectGroup(NamedTuple):
    """A group as it was at one moment: `members` are those that run, by their locations."""

    name: str
    generation: int
    type_id: str
    criteria: Criteria
    members: dict[str, str]
    starting: tuple[str, ...]  # locations where others have been asked for
    lost: bool
    version: int


class Order(NamedTuple):
    """A member that a factory has to run."""

    group: str
    generation: int
    member: str
    type_id: str
    style: str
    founder: bool
    arguments: tuple[Any, ...]


@dataclass
class Group:
    """What the manager knows of an object group."""

    type_id: str
    criteria: Criteria
    members: dict[str, Member] = field(default_factory=dict)
    generation: int = 0  # which of those that have had its name
    founded: bool = False  # its founder has run
    complete: bool = False  # it has had its initial number of members
    lost: bool = False
    view: int = 0  # the last that was reported
    present: tuple[str, ...] = ()  # the members of that view
    failures: dict[str, int] = field(default_factory=dict)  # by location

    @property
    def running(self) -> list[str]:
        """The members that have joined."""
        return [name for name, member in self.members.items() if member.running]

    @property
    def wanted(self) -> int:
        """The number of members that it should have now."""
        if self.lost:
            return 0
        if not self.founded:
            return 1
        return self.criteria.minimum if self.complete else self.criteria.initial

    @property
    def places(self) -> set[str]:
        """The locations that have a member."""
        return {member.location for member in self.members.values()}

    def plain(self) -> tuple[Any, ...]:
        """Return it as values that can be written down."""
        members = {name: tuple(member) for name, member in self.members.items()}
        others = [getattr(self, attribute.name) for attribute in fields(self)[3:]]
        return self.type_id, tuple(self.criteria), members, *others


def restored(plain: tuple[Any, ...]) -> Group:
    """Return a group that was written down."""
    type_id, criteria, members, *others = plain
    return Group(type_id, Criteria(*criteria), {n: Member(*m) for n, m in members.items()}, *others)
