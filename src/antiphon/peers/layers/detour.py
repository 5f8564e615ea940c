"""Detours: frames for a process without a connection travel through one that hears both.

::

    Links   to all: I am connected to these processes
    Via     to the one between: hand this to those; from there: this is from that process
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, To, Up


class Links(Header, frozen=True):
    """The processes that the sender is connected to."""

    processes: tuple[MemberId, ...]


class Via(Header, frozen=True):
    """The origin of a frame, and its targets from here; empty: it is for this process."""

    origin: MemberId
    targets: tuple[MemberId, ...]


class Detour(Layer):
    """Makes processes reachable that are connected through a third one.

    Promise: a frame for a process that this one is not connected to goes through one that is
    connected to both, as far as this process knows one; the layers above get it as if it had come
    directly. So they do not notice a cut between two processes as long as a third hears both.

    Need: it is the lowest layer, for it goes by the driver's connections.

    Limits: one process between, not two; an open connection that loses all frames goes unnoticed. A
    frame may overtake another one when a connection comes or goes.
    """

    name = "detour"
    gives = frozenset({"detour"})
    headers = (Links, Via)

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._linked = {me}
        self._theirs: dict[MemberId, frozenset[MemberId]] = {}
        self._find_far()

    def _find_far(self) -> None:
        """Note which members are not connected."""
        self._far = [member for member in self.view.members if member not in self._linked]

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._find_far()
        return ()

    # -- Connections -----------------------------------------------------------------------------

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        self._linked.add(process)
        return self._tell()

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        self._linked.discard(process)
        self._theirs.pop(process, None)
        return self._tell()

    def _tell(self) -> Sequence[Effect]:
        self._find_far()
        neighbours = tuple(sorted(self._linked - {self.me}))
        if not neighbours:
            return ()
        return (Down(Frame(b"", (Links(neighbours),), control=True), neighbours),)

    # -- Frames ----------------------------------------------------------------------------------

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if to is None:
            if not self._far:
                return (Down(frame, to),)
            to = self.view.members
        elif self._linked.issuperset(to):
            return (Down(frame, to),)
        return self._spread(frame, to)

    def _spread(self, frame: Frame, to: Iterable[MemberId]) -> Sequence[Effect]:
        """Send directly where that is possible, or where no detour is known."""
        direct: list[MemberId] = []
        between: dict[MemberId, list[MemberId]] = {}
        for target in to:
            via = None if target in self._linked else self._via(target)
            if via is None:
                direct.append(target)
            else:
                between.setdefault(via, []).append(target)
        effects = [Down(frame, tuple(direct))] if direct else []
        for via, targets in between.items():
            effects.append(Down(frame.push(Via(self.me, tuple(targets))), (via,)))
        return effects

    def _via(self, target: MemberId) -> MemberId | None:
        """Return a process that is connected to this one and to that."""
        hear_both = (one for one, theirs in self._theirs.items() if target in theirs)
        return min(hear_both, default=None)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.headers[-1] if frame.headers else None
        if isinstance(header, Links):
            if sender in self._linked:
                self._theirs[sender] = frozenset(header.processes)
            return ()
        if isinstance(header, Via):
            return self._pass_on(frame.pop(), header)
        return (Up(frame, sender),)

    def _pass_on(self, frame: Frame, header: Via) -> Sequence[Effect]:
        if not header.targets:
            return (Up(frame, header.origin),)
        targets = tuple(target for target in header.targets if target in self._linked)
        passed = replace(frame, control=True).push(Via(header.origin, ()))
        return (Down(passed, targets),) if targets else ()

    # -- For people ------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Return the state for operators. `detours`: members without a connection, and the process
        through which frames for them go."""
        vias = {member: self._via(member) for member in self._far}
        return {"detours": {str(member): str(via) for member, via in vias.items() if via}}
