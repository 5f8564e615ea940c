"""The replication manager as a replicated service: object groups, their members, and faults.

All who use the manager are replicas of it, among them the factories, each under the name of its
location. So a view of the manager's group says at one place in the order which locations there are,
and every factory reads in its own replica which members it has to run: nobody is in charge, and
nothing is lost if any of them fails.

A group has one *founder*, the first member to run. All others take over the state, and are started
when it is there: a member that finds no state does not serve. If all members that run are gone, the
state is gone, too; then the group is *lost*, and the manager says so instead of starting over.

A group may have the name of one that was deleted, whose members may still be leaving. So names of
members are never given twice, and each group has a *generation*: no member takes over the state of
another one, and no report of an earlier one counts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from antiphon.blocks.pure.service import ReplicatedService
from antiphon.formats import values
from antiphon.toolkits.eternal.pure.groups import Fault, Group, Member, ObjectGroup, Order, restored
from antiphon.toolkits.eternal.pure.policy import Criteria, checked, choose

FACTORY = "at."
"""The name of a factory among the manager's replicas: this, and its location."""

FAULTS_KEPT = 1000

FAULTS, GROUPS, MEMBERS = "faults", "groups", "members"
"""What is counted."""


class ManagerService(ReplicatedService):
    """The state of the manager, and what changes it."""

    def __init__(self) -> None:
        self.revision = 0  # changes with everything else
        self.locations: dict[str, tuple[str, ...]] = {}  # the types that each can make
        self.faults: list[Fault] = []
        self._replicas: tuple[str, ...] = ()
        self._groups: dict[str, Group] = {}
        self._counts = {FAULTS: 0, GROUPS: 0, MEMBERS: 0}  # so far

    # -- Reading ---------------------------------------------------------------------------------

    def group(self, name: str) -> ObjectGroup:
        """Return a group. Raise `ValueError` if there is none."""
        found = self._find(name)
        members = {member: found.members[member].location for member in found.running}
        starting = tuple(m.location for m in found.members.values() if not m.running)
        return ObjectGroup(
            *(name, found.generation, found.type_id, found.criteria),
            *(members, starting, found.lost, self.revision),
        )

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def is_complete(self, name: str) -> bool:
        """Return whether the group has had its initial number of members."""
        return self._find(name).complete

    def orders(self, location: str) -> dict[str, Order]:
        """Return the members that the factory at a location has to run, by their names."""
        return {
            name: Order(
                *(group_name, group.generation, name, group.type_id, group.criteria.style),
                *(member.founder, member.arguments),
            )
            for group_name, group in self._groups.items()
            for name, member in group.members.items()
            if member.location == location and not member.added
        }

    # -- Changes ---------------------------------------------------------------------------------

    def apply(self, command: Any) -> Any:
        """Carry out a command. Raise `ValueError` if it is not possible; then nothing changes."""
        match command:
            case ("offer", str(location), tuple(types)):
                if FACTORY + location in self._replicas:  # it may be gone meanwhile
                    self.locations[location] = types
                    for group in self._groups.values():
                        group.failures.pop(location, None)
            case ("withdraw", str(location)):
                self._leave(location, "")
            case ("create", str(name), str(type_id), tuple(criteria)):
                self._create(name, type_id, checked(Criteria(*criteria)))
            case ("delete", str(name)):
                self._find(name)
                del self._groups[name]
            case ("create member", str(name), str(location), str(type_id), tuple(arguments)):
                self._create_member(self._find(name), name, location, type_id, arguments)
            case ("add member", str(name), str(location), str(member)):
                self._add_member(self._find(name), location, member)
            case ("remove member", str(name), str(location)):
                self._remove_member(self._find(name), location)
            case ("ended", str(name), str(member), str(why)):
                if name in self._groups:
                    self._ended(self._groups[name], name, member, why)
            case ("view", str(name), int(generation), int(view), tuple(members)):
                if name in self._groups and self._groups[name].generation == generation:
                    self._seen(self._groups[name], name, view, members)
            case _:
                raise ValueError(f"not a command to a replication manager: {command!r}")
        self.revision += 1
        self._restore_numbers()

    def viewed(self, members: tuple[str, ...]) -> None:
        """Take the replicas of the manager: factories that are not among them are gone, and what
        they ran."""
        self._replicas = members
        self.revision += 1
        for location in [here for here in self.locations if FACTORY + here not in members]:
            self._report("location", location, location, "its factory is gone")
            self._leave(location, "its location is gone")
        self._restore_numbers()

    def _create(self, name: str, type_id: str, criteria: Criteria) -> None:
        if name.split() != [name]:
            raise ValueError(f"{name!r}: the name of a group has no blanks, and is not empty")
        if name in self._groups:
            raise ValueError(f"there is an object group {name!r} already")
        able = set(self._able(type_id))
        able &= set(criteria.locations or able)
        if len(able) < criteria.initial:
            raise ValueError(
                f"{criteria.initial} members of type {type_id!r} are wanted, and "
                f"{len(able)} locations can make one: {', '.join(sorted(able)) or 'none'}"
            )
        self._groups[name] = Group(type_id, criteria, generation=self._count(GROUPS))

    def _create_member(
        self, group: Group, name: str, location: str, type_id: str, arguments: tuple[Any, ...]
    ) -> None:
        if type_id != group.type_id:
            raise ValueError(f"the members of {name} are of type {group.type_id!r}")
        if location not in self._able(type_id):
            raise ValueError(f"location {location!r} makes no member of type {type_id!r}")
        checked(group.criteria._replace(arguments=arguments))
        self._check_open(group, name, location)
        self._start(group, name, location, arguments or group.criteria.arguments)

    def _add_member(self, group: Group, location: str, member: str) -> None:
        if member not in group.present:
            raise ValueError(f"{member!r} has not joined the group")
        if member in group.members:
            raise ValueError(f"{member!r} was added already")
        self._check_open(group, member, location)
        group.members[member] = Member(location, running=True, added=True)

    def _check_open(self, group: Group, name: str, location: str) -> None:
        if location in group.places:
            raise ValueError(f"location {location!r} has a member of the group")
        if group.lost or not group.founded:
            raise ValueError(f"{name}: the group has no state that a member could take over")

    def _remove_member(self, group: Group, location: str) -> None:
        found = [name for name, member in group.members.items() if member.location == location]
        if not found:
            raise ValueError(f"location {location!r} has no member of the group")
        if group.running == found:
            raise ValueError("the last member is not removed: delete the group")
        for name in found:
            del group.members[name]
        # If another one is due, it goes elsewhere, unless there is only this place.
        group.failures.setdefault(location, 1)

    def _ended(self, group: Group, name: str, member: str, why: str) -> None:
        if member in group.members:
            self._lose(group, name, member, why)

    def _seen(self, group: Group, name: str, view: int, members: tuple[str, ...]) -> None:
        """Take a view of a group from one of its members."""
        if view <= group.view:
            return
        group.view, group.present = view, members
        for member in [known for known in group.running if known not in members]:
            self._lose(group, name, member, "the other members have removed it")
        for member in members:
            if member in group.members:
                there = group.members[member]
                group.members[member] = there._replace(running=True)
                group.failures.pop(there.location, None)
        group.founded = group.founded or bool(group.running)
        group.complete = group.complete or len(group.running) >= group.criteria.initial

    # -- Inside ----------------------------------------------------------------------------------

    def _leave(self, location: str, why: str) -> None:
        """Take out a location, and what its factory has made."""
        self.locations.pop(location, None)
        for name, group in self._groups.items():
            for member in self._made_at(group, location):
                self._lose(group, name, member, why)

    def _lose(self, group: Group, name: str, member: str, why: str) -> None:
        """Take out a member, which has failed if there is a reason."""
        gone = group.members.pop(member)
        if why:
            if not gone.running:
                group.failures[gone.location] = group.failures.get(gone.location, 0) + 1
            self._report("object", member, gone.location, why)
        if group.founded and not group.running and not group.lost:
            group.lost = True
            group.members.clear()
            self._report("group", name, why="no member has its state any more")

    def _restore_numbers(self) -> None:
        """Ask for members where groups have too few of them."""
        for name, group in self._groups.items():
            for _ in range(group.wanted - len(group.members)):
                location = choose(
                    group.criteria,
                    self._able(group.type_id),
                    group.places,
                    self._loads(),
                    group.failures,
                )
                if location is None:
                    break
                self._start(group, name, location, group.criteria.arguments)

    def _start(self, group: Group, name: str, location: str, arguments: tuple[Any, ...]) -> None:
        member = Member(location, founder=not group.founded, arguments=arguments)
        group.members[f"{name}.{self._count(MEMBERS)}"] = member

    def _able(self, type_id: str) -> list[str]:
        return [location for location, types in self.locations.items() if type_id in types]

    def _loads(self) -> Counter[str]:
        return Counter(m.location for g in self._groups.values() for m in g.members.values())

    def _made_at(self, group: Group, location: str) -> list[str]:
        return [n for n, m in group.members.items() if m.location == location and not m.added]

    def _report(self, kind: str, name: str, location: str = "", why: str = "") -> None:
        self.faults.append(Fault(self._count(FAULTS), kind, name, location, why))
        del self.faults[:-FAULTS_KEPT]

    def _count(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what]

    def _find(self, name: str) -> Group:
        if name not in self._groups:
            raise ValueError(f"there is no object group {name!r}")
        return self._groups[name]

    # -- State -----------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        groups = {name: group.plain() for name, group in self._groups.items()}
        faults = [tuple(fault) for fault in self.faults]
        state = (self.revision, self.locations, faults, self._replicas, groups, self._counts)
        return values.encode(state)

    def restore(self, data: bytes) -> None:
        self.revision, locations, faults, self._replicas, groups, counts = values.decode(data)
        self.locations, self._counts = dict(locations), dict(counts)
        self.faults = [Fault(*fault) for fault in faults]
        self._groups = {name: restored(plain) for name, plain in groups.items()}
