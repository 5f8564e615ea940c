"""The values that the processes of a change send one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from antiphon.model.peer_views import MemberId, PeerView, ViewId

Marks: TypeAlias = tuple[int, ...]
"""A number for each stream of a view, in the order of the view's members."""


class Known(msgspec.Struct, frozen=True, array_like=True):
    """A primary view of which some process knows that it is *active*: all processes of its change
    had installed it, so members may have shown it.

    `founding`: the change that founded the group. Views of one founding form one chain.
    """

    view: PeerView
    founding: ViewId


class Flagged(msgspec.Struct, frozen=True, array_like=True):
    """A primary view that a process has installed: whether it is active may be unknown.

    `basis`: the active view that it follows, or None if none was known; `cut`: what belongs to the
    basis; `past`: the basis and the later views that may have been active; `present`: the processes
    of its change, which have all installed it if it is active.
    """

    view: PeerView
    founding: ViewId
    basis: ViewId | None
    cut: Marks
    past: tuple[ViewId, ...]
    present: tuple[MemberId, ...]


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """How much of each stream of a view a process holds, and up to where they are committed."""

    view: PeerView
    held: Marks
    committed: Marks


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The report of a process to a change, once it is frozen.

    `now`: the view that it comes from; `last`: its last primary view, which may be the same;
    `active`: of each founding that it knows of the highest active view; `flagged`: the flagged
    views that it has installed and of which it does not know whether they are active; `founder`: it
    holds the founding record; `summary`: those of its layers, by their names; `place`: if the
    founders are listed by their addresses, the one at which it listens; `learns`: a layer says that
    members must have something to count (`Layer.learns`), and whether this process lacks it.
    """

    now: Kept
    last: Kept | None = None
    active: tuple[Known, ...] = ()
    flagged: tuple[Flagged, ...] = ()
    founder: bool = False
    leaving: bool = False
    summary: dict[str, Any] = {}
    place: str = ""
    learns: bool | None = None


class Source(msgspec.Struct, frozen=True, array_like=True):
    """A view that ends with a change: who comes from it, and how much of it belongs to it."""

    view: PeerView
    members: tuple[MemberId, ...]
    cut: Marks


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """The end of a change: which views are closed, where, and which one begins.

    `keep`: the active view that a flagged one follows. Of this, those of its members who come
    through other views fetch the frames, too: they hand none of them out, but whoever counts
    for a quorum must hold what belongs to it. `active`: what any process of the change knew.
    `dead`: flagged views that can never be active, as the reports show together. Whoever installed
    one forgets it: later, without those who know better, it would go on from it.
    """

    view: PeerView
    sources: tuple[Source, ...]
    flagged: Flagged | None = None
    keep: PeerView | None = None
    active: tuple[Known, ...] = ()
    summary: dict[str, Any] = {}
    dead: tuple[ViewId, ...] = ()

    def source_of(self, process: MemberId) -> Source | None:
        """Return the view that a process comes from."""
        for source in self.sources:
            if process in source.members:
                return source
        return None


def numbers(view: PeerView, marks: Marks) -> dict[MemberId, int]:
    """Return marks by the members that they belong to."""
    return dict(zip(view.members, marks, strict=True))


def marks_of(view: PeerView, by_member: Mapping[MemberId, int]) -> Marks:
    """Return numbers in the order of the view's members."""
    return tuple(by_member.get(member, 0) for member in view.members)
