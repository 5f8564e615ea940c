"""Views and other events of a group: announced to all members at the same place in the order."""

from __future__ import annotations

from antiphon.broker.machine.groups import state_requests
from antiphon.broker.machine.groups.group import Group
from antiphon.broker.machine.state import State
from antiphon.formats import protocol as cw


def new_view(
    b: State, group: Group, came: tuple[str, ...] = (), went: tuple[str, ...] = ()
) -> None:
    """Begin another view: these members came, and these went."""
    group.next_view()
    if came:
        group.keep(0)
    announce(b, group, cw.VIEW, came, went)
    b.groups.touch(group.destination)
    state_requests.review(b, group)


def announce(
    b: State, group: Group, kind: int, came: tuple[str, ...] = (), went: tuple[str, ...] = ()
) -> None:
    """Add an event to the group, and report that it has one."""
    group.announce(b.position, kind, came, went)
    b.groups.tell(group.destination)
