"""Views of JGroups."""

from __future__ import annotations

from typing import NamedTuple

import antiphon
from antiphon import peers


class ViewId(NamedTuple):
    """The name of a view: the member that made it, and a number that rises."""

    creator: str
    id: int

    def __str__(self) -> str:
        return f"[{self.creator}|{self.id}]"


class View:
    """The members from one point on, the oldest first; that is the coordinator. `primary`: whether
    it is the one view at a time that has a majority, which JGroups does not tell."""

    def __init__(self, view: peers.View) -> None:
        change = view.id.change  # type: ignore[attr-defined]
        self.view_id = ViewId(change.coordinator.name, change.round)
        self.members = view.members
        self.primary = view.primary

    @property
    def coord(self) -> str:
        """The coordinator: the first member."""
        return self.members[0]

    @property
    def creator(self) -> str:
        """The name of the coordinator that made the view."""
        return self.view_id.creator

    def contains_member(self, member: str) -> bool:
        """Return whether the view has this member."""
        return member in self.members

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self.view_id == other.view_id

    def __hash__(self) -> int:
        return hash(self.view_id)

    def __str__(self) -> str:
        return f"{self.view_id} ({self.size}) [{', '.join(self.members)}]"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class MergeView(View):
    """A view that was put together from several, which had gone on apart: `subgroups`."""

    def __init__(self, view: peers.View, subgroups: tuple[View, ...]) -> None:
        super().__init__(view)
        self.subgroups = subgroups


def view_of(message: antiphon.ViewMessage) -> View:
    """Return a view as JGroups has it. Processes that have just come are no subgroups: until then
    they were in no view but the one that each begins with."""
    view = message.view
    assert isinstance(view, peers.View)
    subgroups = tuple(
        View(former)
        for former in message.merged
        if isinstance(former, peers.View) and former.id.change.round > 0  # type: ignore[attr-defined]
    )
    return MergeView(view, subgroups) if len(subgroups) > 1 else View(view)
