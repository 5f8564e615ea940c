"""The frames of the views that matter to a change: of the present one and of the last primary one.

The layer that keeps the streams (`Streams`) has them, but for one case: a process that installed a
primary view, never showed it, and went on without it, may learn later that the view is active. It
counts for that view's quorums, so it keeps its frames, too: here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Streams
from antiphon.peers.membership.records import Kept, Marks, marks_of


class Shelf:
    """The frames of views that one process holds; see the module.

    `last`: its last primary view, shown or adopted.
    """

    def __init__(self, streams: Streams) -> None:
        self.last: PeerView | None = None
        self._streams = streams
        self._adopted: dict[MemberId, list[bytes]] | None = None

    def shown(self, view: PeerView) -> None:
        """Note a view that was shown: if it is primary, it is the last one."""
        if view.primary:
            self.last, self._adopted = view, None

    def adopt(self, view: PeerView) -> None:
        """Keep the frames of a primary view that this process has not shown."""
        self.last, self._adopted = view, {member: [] for member in view.members}

    def kept(self, view: PeerView) -> Kept:
        """Return how much of a view this process holds."""
        if view == self.last and self._adopted is not None:
            held = {stream: len(frames) for stream, frames in self._adopted.items()}
            return Kept(view, marks_of(view, held), (0,) * len(view.members))
        return Kept(
            view,
            marks_of(view, self._streams.held(view.id)),
            marks_of(view, self._streams.committed(view.id)),
        )

    def lacks(self, view: PeerView, cut: Marks) -> list[tuple[MemberId, int, int]]:
        """Return the streams that end too early: stream, first and last missing frame."""
        held = self.kept(view).held
        return [
            (stream, have + 1, last)
            for stream, have, last in zip(view.members, held, cut, strict=True)
            if have < last
        ]

    def read(self, view: ViewId, stream: MemberId, first: int, last: int) -> Sequence[bytes]:
        """Return those of these frames that this process holds."""
        if self._has_adopted(view):
            assert self._adopted is not None
            return self._adopted[stream][first - 1 : last]
        return self._streams.read(view, stream, first, last)

    def add(self, view: ViewId, stream: MemberId, first: int, frames: Sequence[bytes]) -> None:
        """Take frames that another process holds; those behind a gap are ignored."""
        if not self._has_adopted(view):
            self._streams.add(view, stream, first, frames)
            return
        assert self._adopted is not None
        held = self._adopted[stream]
        if first <= len(held) + 1:
            held.extend(frames[len(held) + 1 - first :])

    def _has_adopted(self, view: ViewId) -> bool:
        return self._adopted is not None and self.last is not None and self.last.id == view


class NoStreams:
    """The streams of a stack without `Reliable`: no frame belongs to any view."""

    def held(self, view: ViewId) -> Mapping[MemberId, int]:
        return {}

    def committed(self, view: ViewId) -> Mapping[MemberId, int]:
        return {}

    def read(self, view: ViewId, stream: MemberId, first: int, last: int) -> Sequence[bytes]:
        return ()

    def add(self, view: ViewId, stream: MemberId, first: int, frames: Sequence[bytes]) -> None:
        raise AssertionError("nothing is missing")
