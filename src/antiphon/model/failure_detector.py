"""The servers that seem to have failed: an opinion, never a verdict.

The detector only listens. It learns the usual gap between signs of life of each peer (as TCP learns
a round trip: a smoothed mean and mean deviation) and suspects a peer whose silence is far outside
it; the next sign of life ends the suspicion. It excludes no server: elections ask for its opinion
and decide by themselves.

Promises: a peer that stays silent is suspected within `ceiling_ms`; a suspicion says why; a wrong
suspicion makes the detector more patient with that peer (the late sign of life is a sample).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Peer = TypeVar("Peer", bound=Hashable)

DEVIATIONS = 6
"""How many mean deviations above the mean gap are still believed to be chance."""


class Suspicion(NamedTuple):
    """The case against a peer; as a string, a sentence for logs."""

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


class _PeerHistory:
    """When a peer was heard, and how far apart its signs of life usually are."""

    __slots__ = ("deviation_ms", "heard_ms", "mean_ms")

    def __init__(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.mean_ms = 0.0
        self.deviation_ms = 0.0


class Detector(Generic[Peer]):
    """An opinion of each peer that was watched or heard.

    Promise: see the module. Needs: a call of `heard` for each sign of life, with a clock that does
    not run backwards. `floor_ms` and `ceiling_ms` bound how long a peer may be silent.
    """

    def __init__(self, floor_ms: int, ceiling_ms: int) -> None:
        assert 0 < floor_ms <= ceiling_ms
        self._floor_ms = floor_ms
        self._ceiling_ms = ceiling_ms
        self._peers: dict[Peer, _PeerHistory] = {}

    def watch(self, peer: Peer, now_ms: int) -> None:
        """Expect signs of life from now on. Knowledge of the peer's timing is kept."""
        history = self._peers.get(peer)
        if history is None:
            self._peers[peer] = _PeerHistory(now_ms)
        else:
            history.heard_ms = now_ms

    def forget(self, peer: Peer) -> None:
        """Have no opinion of this peer any more."""
        self._peers.pop(peer, None)

    def heard(self, peer: Peer, now_ms: int) -> None:
        """Take a sign of life, and learn from the gap before it."""
        history = self._peers.get(peer)
        if history is None:
            self._peers[peer] = _PeerHistory(now_ms)
            return
        gap = now_ms - history.heard_ms
        if gap > 0:
            # A long silence that ended counts, but only up to the ceiling: one outage must not
            # teach a patience that outlasts it by far.
            gap = min(gap, self._ceiling_ms)
            if history.mean_ms == 0.0:
                history.mean_ms, history.deviation_ms = float(gap), gap / 2
            else:
                history.deviation_ms += (abs(gap - history.mean_ms) - history.deviation_ms) / 4
                history.mean_ms += (gap - history.mean_ms) / 8
            history.heard_ms = now_ms

    def alive(self, peer: Peer, now_ms: int) -> None:
        """Take a part of a large message as a sign of life. Its gap does not count for the
        statistics."""
        history = self._peers.get(peer)
        if history is not None:
            history.heard_ms = now_ms

    def limit_ms(self, peer: Peer) -> int:
        """Return how long this peer may be silent."""
        history = self._peers.get(peer)
        if history is None:
            return self._floor_ms
        learned = history.mean_ms + DEVIATIONS * history.deviation_ms
        return int(min(self._ceiling_ms, max(self._floor_ms, learned)))

    def opinion(self, peer: Peer, now_ms: int) -> Suspicion | None:
        """Return the case against a peer, or None."""
        history = self._peers.get(peer)
        if history is None:
            return None
        silent, limit = now_ms - history.heard_ms, self.limit_ms(peer)
        if silent <= limit:
            return None
        return Suspicion(peer, silent, limit, history.mean_ms, history.deviation_ms)
