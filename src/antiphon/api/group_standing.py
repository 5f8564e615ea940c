"""The standing of a consumer in its group, if its destination is one: its name and its view."""

from __future__ import annotations

from antiphon.api.protocol.inbox_items import Admission
from antiphon.errors import IllegalStateError
from antiphon.formats.protocol import VIEW, GroupEvent
from antiphon.model.conflicts import ConflictRelation
from antiphon.model.views import View


class Standing:
    """The name of a consumer in its group, and the views that it knows."""

    def __init__(self) -> None:
        self.name = ""  # in its group; empty: not known to be a member of one
        self.relation = ConflictRelation.ATOMIC  # of the group, when it joined
        self.view: View | None = None  # the last one that the application got
        self.removed: View | None = None  # the one that this member is no longer in
        self._arrived: View | None = None  # the last one that is here

    def enter(self, admitted: Admission) -> None:
        """Take over the servers' answer when they admitted it."""
        self.name = admitted.name
        self.relation = admitted.relation
        self.view = View(admitted.view, admitted.members)
        if self._arrived is None:
            self._arrived = self.view

    def arrive(self, event: GroupEvent) -> None:
        """Note an event as it arrives, in the one order of events and messages."""
        if event.kind == VIEW:
            self._arrived = View(event.view, event.members)

    def view_of(self, view_id: int) -> View:
        """Return the view of a message that arrives now."""
        if self._arrived is not None and self._arrived.id == view_id:
            return self._arrived
        return View(view_id, ())  # it was installed in an earlier life

    def install(self, event: GroupEvent) -> None:
        """Note an event that the program gets now."""
        if event.kind == VIEW:
            self.view = View(event.view, event.members)
            if self.name in event.went and self.name not in event.members:
                self.removed = self.view

    def why_not(self, group: str) -> IllegalStateError:
        """Return the error for a member that was removed."""
        assert self.removed is not None
        return IllegalStateError(
            f"{self.name!r} was removed from {group} with view {self.removed}. Join again"
        )
