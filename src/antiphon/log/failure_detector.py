"""Who seems to have failed: an opinion, never a verdict.

The detector only listens. It learns the usual gap between signs of life on each link (as TCP learns
a round trip: a smoothed mean and mean deviation) and suspects a peer whose silence is far outside
it; a later sign of life withdraws the suspicion. It excludes nobody: elections and, later, groups
ask it for its opinion and decide by themselves.

Promises: a peer that stays silent is suspected within `ceiling_ms`; a suspicion says why; a wrong
suspicion makes the detector more patient with that link (the late sign of life is a sample).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Peer = TypeVar("Peer", bound=Hashable)

DEVIATIONS = 6
"""How many mean deviations above the mean gap are still believed to be chance."""


class Suspicion(NamedTuple):
    peer: Hashable
    silent_ms: int
    limit_ms: int
    mean_ms: float
    deviation_ms: float

    def __str__(self) -> str:
        return (
            f"nothing heard from {self.peer} for {self.silent_ms} ms; its usual gap is "
            f"{self.mean_ms:.0f} ms ± {self.deviation_ms:.0f}, the limit {self.limit_ms} ms"
        )


class _Link:
    __slots__ = ("deviation_ms", "heard_ms", "mean_ms", "suspected")

    def __init__(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.mean_ms = 0.0
        self.deviation_ms = 0.0
        self.suspected = False


class Detector(Generic[Peer]):
    def __init__(self, floor_ms: int, ceiling_ms: int) -> None:
        assert 0 < floor_ms <= ceiling_ms
        self._floor_ms = floor_ms
        self._ceiling_ms = ceiling_ms
        self._links: dict[Peer, _Link] = {}

    def watch(self, peer: Peer, now_ms: int) -> None:
        """Expect signs of life from now on. Keeps what was learned of the link."""
        link = self._links.get(peer)
        if link is None:
            self._links[peer] = _Link(now_ms)
        else:
            link.heard_ms = now_ms
            link.suspected = False

    def forget(self, peer: Peer) -> None:
        self._links.pop(peer, None)

    def heard(self, peer: Peer, now_ms: int) -> bool:
        """A sign of life. True if it withdraws a suspicion."""
        link = self._links.get(peer)
        if link is None:
            self._links[peer] = _Link(now_ms)
            return False
        gap = now_ms - link.heard_ms
        if gap > 0:
            # A long silence that ended counts, but only up to the ceiling: one outage must not
            # teach a patience that outlasts it by far.
            gap = min(gap, self._ceiling_ms)
            if link.mean_ms == 0.0:
                link.mean_ms, link.deviation_ms = float(gap), gap / 2
            else:
                link.deviation_ms += (abs(gap - link.mean_ms) - link.deviation_ms) / 4
                link.mean_ms += (gap - link.mean_ms) / 8
            link.heard_ms = now_ms
        withdrawn, link.suspected = link.suspected, False
        return withdrawn

    def alive(self, peer: Peer, now_ms: int) -> None:
        """A part of something: a sign of life, but none whose gaps say how often there is one."""
        link = self._links.get(peer)
        if link is not None:
            link.heard_ms = now_ms
            link.suspected = False

    def limit_ms(self, peer: Peer) -> int:
        """How long this peer may be silent."""
        link = self._links.get(peer)
        if link is None:
            return self._floor_ms
        learned = link.mean_ms + DEVIATIONS * link.deviation_ms
        return int(min(self._ceiling_ms, max(self._floor_ms, learned)))

    def opinion(self, peer: Peer, now_ms: int) -> Suspicion | None:
        """The case against a peer, if there is one at this moment."""
        link = self._links.get(peer)
        if link is None:
            return None
        silent, limit = now_ms - link.heard_ms, self.limit_ms(peer)
        if silent <= limit:
            return None
        return Suspicion(peer, silent, limit, link.mean_ms, link.deviation_ms)

    def suspect(self, now_ms: int) -> list[Suspicion]:
        """Peers that have become suspect since the last call, in the order they were watched."""
        fresh = []
        for peer, link in self._links.items():
            if not link.suspected and (case := self.opinion(peer, now_ms)) is not None:
                link.suspected = True
                fresh.append(case)
        return fresh

    def next_deadline_ms(self) -> int | None:
        """When `suspect` may have something to say."""
        waits = [
            link.heard_ms + self.limit_ms(peer) + 1
            for peer, link in self._links.items()
            if not link.suspected
        ]
        return min(waits, default=None)
