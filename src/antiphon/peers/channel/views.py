"""Views of a channel, as programs see them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from antiphon.model import views
from antiphon.model.peer_views import MemberId, PeerView, ViewId


class ViewNumber(int):
    """The number of a view of a channel: it rises at each member, and no two views of a cluster
    have the same, not even in parts that are cut off from one another. It is printed as its round
    and the process that made it: `3.a`."""

    change: ViewId

    def __new__(cls, change: ViewId) -> Self:
        number = super().__new__(cls, change.round << 64 | change.coordinator.incarnation)
        number.change = change
        return number

    def __str__(self) -> str:
        return str(self.change)

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        return ViewNumber, (self.change,)


class View(views.View):
    """A view of a channel: `id`, `members` and `primary` as in groups that servers keep.

    `members`: the names, the oldest member first; `processes`: the same with the number of each
    one's life; `leader`: the name of the member that orders messages, and coordinates the next
    change. `primary`: of all views at a time at most one is primary, and all primary ones form one
    chain. `notes`: by name, what members say of themselves (`Channel.set_note`). `transitional`: it
    only shows who goes on together from the view with the same `id`, which ends; stacks with the
    layer `Transitional` have such views.
    """

    _peer_view: PeerView
    notes: Mapping[str, str]
    transitional: bool

    def __new__(
        cls, source: PeerView, notes: Mapping[str, str] | None = None, transitional: bool = False
    ) -> Self:
        names = tuple(member.name for member in source.members)
        view = super().__new__(cls, ViewNumber(source.id), names, source.primary)
        view._peer_view = source
        view.notes = MappingProxyType(dict(notes or {}))
        view.transitional = transitional
        return view

    @property
    def processes(self) -> tuple[MemberId, ...]:
        """The members, each with the number of its life, the oldest first."""
        return self._peer_view.members

    @property
    def leader(self) -> str:
        """The name of the member that orders messages."""
        return self._peer_view.leader.name

    def __repr__(self) -> str:
        kind = "primary" if self.primary else "not primary"
        if self.transitional:
            kind = "transitional"
        return f"<View {self.id} {kind}: {' '.join(self.members)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return View, (self._peer_view, dict(self.notes), self.transitional)


class Occurrence(NamedTuple):
    """A new view, at its place among the messages that a channel receives. `origin`: see
    `Changed`; programs do not get that."""

    view: View
    joined: tuple[str, ...]
    left: tuple[str, ...]
    together: tuple[str, ...]
    merged: tuple[View, ...]
    origin: ViewId | None = None


def first_voter(view: View) -> MemberId:
    """Return the oldest member that counts for a quorum."""
    return view._peer_view.voters[0]


def names(processes: tuple[MemberId, ...]) -> tuple[str, ...]:
    return tuple(process.name for process in processes)
