"""The replication manager and the fault notifier, as programs see them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import antiphon
from antiphon.blocks import Replica
from antiphon.errors import IllegalStateError
from antiphon.toolkits._closing import Closing
from antiphon.toolkits.eternal.pure.groups import Fault, ObjectGroup
from antiphon.toolkits.eternal.pure.manager import ManagerService
from antiphon.toolkits.eternal.pure.policy import Criteria

logger = logging.getLogger("antiphon.toolkits")

MANAGERS = "eternal.managers"
"""The group of the replicas of the manager."""

REMOVE_AFTER_S = 0.5
"""Seconds after which a failed replica is removed, of the manager or of an object group."""

START_S = 30.0
"""Seconds that the start of members may take."""

Result = TypeVar("Result")
Reference = ObjectGroup | str
"""An object group, or its name."""


class ReplicationManager(Closing):
    """One replica of the replication manager: creates and deletes object groups, and their members
    at locations.

    Each program that uses the manager has one; it is there as long as one of them is. `name`: of
    this replica. Opening raises the errors of `Context.join`.
    """

    def __init__(self, ctx: antiphon.Context, name: str | None = None) -> None:
        group = ctx.create_group(MANAGERS, remove_after=REMOVE_AFTER_S)
        self._replica = Replica(ctx, group, ManagerService(), name=name)

    def create_object(
        self,
        type_id: str,
        the_criteria: Criteria,
        factory_creation_id: str,
        timeout: float | None = START_S,
    ) -> ObjectGroup:
        """Create an object group, named by `factory_creation_id`, and return it when its initial
        number of members runs.

        Raise `ValueError` if there is one of this name, or too few locations make this type, or
        the criteria contradict each other, and `TimeoutError` if the members do not run in time:
        then the manager goes on."""
        command = ("create", factory_creation_id, type_id, tuple(the_criteria))
        self._replica.call(command, timeout)
        name = factory_creation_id
        self.wait_until(lambda manager: _settled(manager, name), timeout)
        return self._running(name)

    def delete_object(self, factory_creation_id: Reference) -> None:
        """Delete an object group, and have the factories end its members. Raise `ValueError` if
        there is none of this name."""
        self._replica.call(("delete", _name(factory_creation_id)))

    def create_member(
        self,
        object_group: Reference,
        the_location: str,
        type_id: str,
        the_criteria: Criteria | None = None,
        timeout: float | None = START_S,
    ) -> ObjectGroup:
        """Create a member at a location, and return the group when it runs. `the_criteria`: its
        arguments are for this member. Raise `ValueError` if the location cannot make it or has one
        of the group, and the errors of `create_object`."""
        name = _name(object_group)
        arguments = the_criteria.arguments if the_criteria else ()
        self._replica.call(("create member", name, the_location, type_id, arguments), timeout)
        started = lambda m: the_location not in m.group(name).starting  # noqa: E731
        self.wait_until(started, timeout)
        return self._running(name, the_location)

    def add_member(self, object_group: Reference, the_location: str, member: str) -> ObjectGroup:
        """Add a member that the program has started itself (`Member`), by its name, and return the
        group. Raise `ValueError` if it has not joined the group, or the location has another."""
        self._replica.call(("add member", _name(object_group), the_location, member))
        return self.get_object_group(object_group)

    def remove_member(self, object_group: Reference, the_location: str) -> ObjectGroup:
        """Remove the member at a location, and return the group. If it has fewer than its minimum
        then, another one is made, at another location if there is one. Raise `ValueError` if there
        is none at the location, or no other one runs."""
        self._replica.call(("remove member", _name(object_group), the_location))
        return self.get_object_group(object_group)

    def get_object_group(self, object_group: Reference) -> ObjectGroup:
        """Return the group as this replica knows it. Raise `ValueError` if there is none."""
        found: ObjectGroup = self._replica.look(lambda m: m.group(_name(object_group)))
        return found

    def locations(self) -> dict[str, tuple[str, ...]]:
        """Return the locations that have a factory, with the types that each makes."""
        found: dict[str, tuple[str, ...]] = self._replica.look(lambda m: dict(m.locations))
        return found

    def wait_until(
        self, what: Callable[[ManagerService], Result], timeout: float | None = None
    ) -> Result:
        """Wait until a function of the manager's state returns a value that is true, and return
        that. Raise `TimeoutError` after `timeout` seconds, and `IllegalStateError` if this replica
        was closed or removed."""
        found: Result = self._replica.wait_until(what, timeout)
        return found

    @property
    def replicas(self) -> tuple[str, ...]:
        """Return the names of the manager's replicas, the oldest first."""
        return self._replica.view.members

    @property
    def is_member(self) -> bool:
        """Whether this replica is in use, as far as this process knows."""
        return self._replica.is_member

    def submit(self, command: Any, timeout: float | None = None) -> None:
        """Have the manager carry out a command of a factory (`ManagerService.apply`)."""
        self._replica.call(command, timeout)

    def close(self) -> None:
        """Leave the replicas of the manager. Closing twice is no error."""
        self._replica.close()

    def _running(self, name: str, location: str | None = None) -> ObjectGroup:
        """Return a group whose members have started. Raise `IllegalStateError` if they failed."""
        group = self.get_object_group(name)
        if not group.members or (location and location not in group.members.values()):
            faults = self._replica.look(lambda manager: list(manager.faults))
            why = [fault.why for fault in faults if fault.name.startswith(f"{name}.")]
            why = why or ["its location has left"]
            raise IllegalStateError(f"no member of {name} could be started: {why[-1]}")
        return group


class FaultNotifier:
    """Tells subscribers of faults: each gets every fault after its subscription once, in order, as
    long as the replica of the manager is open."""

    def __init__(self, manager: ReplicationManager) -> None:
        self._manager = manager

    def subscribe(self, subscriber: Callable[[Fault], object]) -> None:
        """Call `subscriber` with each fault from now on, on a thread of its own."""
        known = self._manager.wait_until(lambda manager: (_last(manager),))[0]
        threading.Thread(target=self._tell, args=(subscriber, known), daemon=True).start()

    def _tell(self, subscriber: Callable[[Fault], object], known: int) -> None:
        def news(manager: ManagerService) -> list[Fault]:
            return [fault for fault in manager.faults if fault.number > known]

        try:
            while True:
                for fault in self._manager.wait_until(news):
                    known = fault.number
                    try:
                        subscriber(fault)
                    except Exception:
                        logger.exception("a subscriber raised at %s", fault)
        except IllegalStateError:
            return  # the replica was closed


def _name(group: Reference) -> str:
    return group if isinstance(group, str) else group.name


def _settled(manager: ManagerService, name: str) -> bool:
    """Whether a new group runs, or has failed."""
    group = manager.group(name)
    return manager.is_complete(name) or not (group.members or group.starting)


def _last(manager: ManagerService) -> int:
    return manager.faults[-1].number if manager.faults else 0
