"""What a member of a group is told besides messages, in the form in which messages wait.

A group event stands between two messages, so it waits among them in the inbox: as a slice whose
columns are a `Notice`. Messages are known by their positions, events by their serial numbers; as
one number for both, an event's is negative (`key`).
"""

from __future__ import annotations

from typing import Any

from antiphon.formats.client_wire import RELATION, STATE, GroupEvent
from antiphon.formats.columns import Columns


class GroupColumns(Columns):
    """A pack of messages for a group, which were ordered in one view."""

    __slots__ = ("view", "view_id")

    def __init__(self, pack: bytes, view_id: int) -> None:
        super().__init__(pack)
        self.view_id = view_id
        self.view: Any = None  # the `View`, for who knows its members


class Notice:
    """A group event in the place of a pack's columns."""

    __slots__ = ("event", "kinds")

    def __init__(self, event: GroupEvent) -> None:
        self.event = event
        self.kinds = b""  # it has no messages

    @property
    def is_internal(self) -> bool:
        """The application is not told of it."""
        return self.event.kind in (RELATION, STATE)


def key(event: GroupEvent) -> int:
    return -event.serial
