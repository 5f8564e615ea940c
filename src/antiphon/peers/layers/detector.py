"""The failure detector as a layer: who seems to be gone, and who hears whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from antiphon.model import failure_detector
from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.fragment import came_ms_of
from antiphon.peers.layers.layer import Dial, Down, Effect, Frame, Header, Layer, Suspect, Up

LINKED = 1
"""A flag of `Alive`: there is a connection to this process."""
MUTUAL = 2
"""A flag of `Alive`: this process hears the sender, too."""

GATHER_MS = 5
"""A process gathers news of who hears whom for this long before it sends them."""
ASKED_MAX = 3
"""How many are asked about a process whose connection was lost."""
ANSWER_MS = 100
"""An answer to that which takes longer is not waited for."""
LATE_MS = 500
"""A tick that comes so late says that this process was paused: others may be well."""
REDIAL_MS = (100, 5000)
"""A lost process is dialled again after the first, and later at most the second of these."""
FORGET_MS = 600_000
"""A process that was not heard for this long, and is in no view, is forgotten."""


UNHEARD = "not heard yet"


class Alive(Header, frozen=True, array_like=True, tag=True):
    """A heartbeat: whom the sender hears, with addresses and flags. It may want an answer."""

    hears: tuple[tuple[MemberId, str, int], ...]
    answer: bool = False


class _Peer:
    """Another process, as far as this one knows."""

    def __init__(self) -> None:
        self.address = ""
        self.linked = False
        self.suspicion: str | None = UNHEARD  # None: it is heard
        self.claims: Mapping[MemberId, int] = {}  # whom it hears, with flags
        self.claims_ms = -1
        self.doubted_ms: int | None = None  # its connection was lost; the others are asked
        self.judge_ms: int | None = None  # until then
        self.lost_ms = 0
        self.redial_ms: int | None = None
        self.redial_after_ms = REDIAL_MS[0]
        self.piece_ms = -1  # when the last piece of a large frame came, at the last look


class Detector(Layer):
    """An opinion of all processes that this one has had a connection to.

    Promise: a process that stays silent is suspected (`Suspect`, with a reason for people) within
    `ceiling_ms`, and the next frame from it withdraws that. If its connection closes without a
    goodbye, the others are asked: if nobody has a connection to it either, it is suspected at once.
    One that says goodbye is forgotten, and never suspected. One that was paused itself gives all
    others time. Each process tells whom it hears, and where they can be dialled, so that processes
    find each other, and `mutual` and `hears` say who hears whom.

    Needs: nothing. Limits: it excludes nobody, Membership does. Frames that layers below consume
    are no signs of life, but pieces of large ones are: nothing overtakes these on a connection. A
    process that computes without letting its stack run is silent.
    """

    name = "detector"
    gives = frozenset({"opinions"})
    headers: ClassVar[tuple[type[Header], ...]] = (Alive,)

    def __init__(self, beat_ms: int = 250, floor_ms: int = 2000, ceiling_ms: int = 5000) -> None:
        self._beat_ms = beat_ms
        self._floor_ms = floor_ms
        self._ceiling_ms = ceiling_ms
        self._opinions: failure_detector.Detector[MemberId] = failure_detector.Detector(
            floor_ms, ceiling_ms
        )
        self._peers: dict[MemberId, _Peer] = {}
        self._gone: dict[MemberId, None] = {}
        self._beat_due_ms = 0
        self._news_ms: int | None = None
        self._judge_ms: int | None = None  # the earliest of the processes' own
        self.version = 0
        """Rises when anything changes in who hears whom."""

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._came_ms = came_ms_of(below)

    def options(self) -> Mapping[str, Any]:
        return {
            "beat_ms": self._beat_ms,
            "floor_ms": self._floor_ms,
            "ceiling_ms": self._ceiling_ms,
        }

    # -- Who hears whom ------------------------------------------------------------------------

    def mutual(self) -> list[MemberId]:
        """Return the processes that this one hears and that hear it."""
        return [
            process
            for process, peer in self._peers.items()
            if peer.suspicion is None and self.me in peer.claims
        ]

    def heard(self) -> list[MemberId]:
        """Return the processes that this one hears."""
        return [process for process, peer in self._peers.items() if peer.suspicion is None]

    def hears(self, process: MemberId) -> frozenset[MemberId]:
        """Return the processes that hear this one, and the other way round, as it says itself."""
        if process == self.me:
            return frozenset(self.mutual())
        peer = self._peers.get(process)
        claims = peer.claims if peer else {}
        return frozenset(other for other, flags in claims.items() if flags & MUTUAL)

    # -- Inputs --------------------------------------------------------------------------------

    def start(self, now_ms: int) -> Sequence[Effect]:
        self._beat_due_ms = now_ms + self._beat_ms
        return ()

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        peer = self._peers.setdefault(process, _Peer())
        peer.linked, peer.doubted_ms, peer.redial_ms = True, None, None
        peer.address = address or peer.address
        peer.redial_after_ms = REDIAL_MS[0]
        self._opinions.watch(process, now_ms)
        self._changed(now_ms)
        replaced = [
            other
            for other, known in self._peers.items()
            if other.name == process.name and other != process and not known.linked
        ]
        effects: list[Effect] = []
        for other in replaced:
            effects += self._suspect(other, f"it is back as another process: {process!r}", now_ms)
        effects += self._hear(process, now_ms)
        return [*effects, self._alive([process])]

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        peer = self._peers.get(process)
        if peer is None:
            return ()
        peer.linked, peer.lost_ms = False, now_ms
        self._changed(now_ms)
        if goodbye:
            self._forget(process)
            return ()
        peer.redial_ms = now_ms + peer.redial_after_ms
        if peer.suspicion is not None:
            return ()
        self._doubt(peer, now_ms)
        others = self._witnesses(process)
        if not others:
            return self._judge(process, now_ms)
        asked = self.random.sample(others, min(ASKED_MAX, len(others)))
        return [self._alive(asked, answer=True)]

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        effects = self._hear(sender, now_ms) if sender != self.me else []
        alive = frame.top(Alive)
        if alive is None:
            return [*effects, Up(frame, sender)] if effects else (Up(frame, sender),)
        if sender == self.me or sender in self._gone:  # late, by a detour
            return ()
        effects += self._take(alive, sender, now_ms)
        if alive.answer:
            effects.append(self._alive([sender]))
        return effects

    def _take(self, alive: Alive, sender: MemberId, now_ms: int) -> list[Effect]:
        peer = self._peers[sender]
        claims = {process: flags for process, _, flags in alive.hears}
        if claims != peer.claims:
            if (self.me in claims) != (self.me in peer.claims):
                self._changed(now_ms)
            self.version += 1
        peer.claims, peer.claims_ms = claims, now_ms
        effects: list[Effect] = []
        for process, address, _ in alive.hears:
            if process != self.me and process not in self._peers and process not in self._gone:
                effects.append(Dial(address))
        for process in [one for one, known in self._peers.items() if known.doubted_ms is not None]:
            effects += self._judge(process, now_ms)
        return effects

    # -- Opinions ------------------------------------------------------------------------------

    def _hear(self, process: MemberId, now_ms: int) -> list[Effect]:
        """Take a sign of life."""
        peer = self._peers.get(process)
        if peer is None:
            if process in self._gone:
                return []
            peer = self._peers[process] = _Peer()
        self._opinions.heard(process, now_ms)
        if peer.linked:
            peer.doubted_ms = None
        if peer.suspicion is None:
            return []
        was_known = peer.suspicion != UNHEARD
        peer.suspicion = None
        self._changed(now_ms)
        return [Suspect(process, "")] if was_known else []

    def _suspect(self, process: MemberId, why: str, now_ms: int) -> list[Effect]:
        peer = self._peers[process]
        peer.doubted_ms = None
        if peer.suspicion is not None:
            return []
        peer.suspicion = why
        self._changed(now_ms)
        return [Suspect(process, why)]

    def _witnesses(self, process: MemberId) -> list[MemberId]:
        """Return who can be asked about a process: those with a connection to it, as far as known,
        first of all."""
        return [
            other
            for other, peer in self._peers.items()
            if other != process and peer.linked and peer.suspicion is None
        ]

    def _judge(self, process: MemberId, now_ms: int) -> list[Effect]:
        """Suspect a process whose connection was lost, unless others still have one, or may have:
        then its silence decides."""
        doubted_ms = self._peers[process].doubted_ms
        assert doubted_ms is not None
        witnesses = [self._peers[other] for other in self._witnesses(process)]
        if any(peer.claims.get(process, 0) & LINKED for peer in witnesses):
            return []
        answered = all(peer.claims_ms > doubted_ms for peer in witnesses)
        if not answered and now_ms < doubted_ms + ANSWER_MS:
            return []
        return self._suspect(process, "its connection was lost, and nobody else has one", now_ms)

    def _doubt(self, peer: _Peer, now_ms: int) -> None:
        """The connection of a process is lost: judge it when others had time to answer."""
        peer.doubted_ms, peer.judge_ms = now_ms, now_ms + ANSWER_MS
        self._judge_ms = min(self._judge_ms or peer.judge_ms, peer.judge_ms)

    def _judge_all(self, now_ms: int) -> list[Effect]:
        """Judge those whose time has come."""
        effects: list[Effect] = []
        for process, peer in list(self._peers.items()):
            if peer.judge_ms is not None and now_ms >= peer.judge_ms:
                peer.judge_ms = None
                if peer.doubted_ms is not None:
                    effects += self._judge(process, now_ms)
        due = (peer.judge_ms for peer in self._peers.values())
        self._judge_ms = min((at for at in due if at is not None), default=None)
        return effects

    def _forget(self, process: MemberId) -> None:
        self._peers.pop(process, None)
        self._opinions.forget(process)
        self._gone[process] = None
        if len(self._gone) > 1000:
            del self._gone[next(iter(self._gone))]

    # -- Time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> Sequence[Effect]:
        effects: list[Effect] = []
        if now_ms > self._beat_due_ms + LATE_MS:
            # This process was paused. What the others have sent meanwhile is not read yet.
            for process, peer in self._peers.items():
                if peer.suspicion is None:
                    self._opinions.watch(process, now_ms)
                    if peer.doubted_ms is not None:
                        self._doubt(peer, now_ms)
        if now_ms >= self._beat_due_ms or (self._news_ms is not None and now_ms >= self._news_ms):
            effects.append(self._alive(self._linked()))
            self._news_ms = None
        if now_ms >= self._beat_due_ms:
            self._beat_due_ms = now_ms + self._beat_ms
            effects += self._look(now_ms)
        if self._judge_ms is not None and now_ms >= self._judge_ms:
            effects += self._judge_all(now_ms)
        return effects

    def _look(self, now_ms: int) -> list[Effect]:
        """Look for silence, and dial those that are lost."""
        effects: list[Effect] = []
        for process, peer in list(self._peers.items()):
            effects += self._hear_pieces(process, peer, now_ms)
            opinion = self._opinions.opinion(process, now_ms)
            if opinion and peer.suspicion is None:
                effects += self._suspect(process, str(opinion), now_ms)
            if peer.linked:
                continue
            if peer.redial_ms is not None and now_ms >= peer.redial_ms and peer.address:
                peer.redial_after_ms = min(2 * peer.redial_after_ms, REDIAL_MS[1])
                peer.redial_ms = now_ms + peer.redial_after_ms
                effects.append(Dial(peer.address))
            if now_ms > peer.lost_ms + FORGET_MS and process not in self.view.members:
                del self._peers[process]
                self._opinions.forget(process)
        return effects

    def _hear_pieces(self, process: MemberId, peer: _Peer, now_ms: int) -> list[Effect]:
        """Take the pieces that have come since the last look as one sign of life."""
        came_ms = self._came_ms(process)
        if came_ms <= peer.piece_ms:
            return []
        peer.piece_ms = came_ms
        if peer.suspicion is not None:
            return self._hear(process, now_ms)
        self._opinions.alive(process, now_ms)
        return []

    def next_deadline_ms(self) -> int | None:
        due = [self._beat_due_ms]
        if self._news_ms is not None:
            due.append(self._news_ms)
        if self._judge_ms is not None:
            due.append(self._judge_ms)
        return min(due)

    def _changed(self, now_ms: int) -> None:
        self.version += 1
        if self._news_ms is None:
            self._news_ms = now_ms + GATHER_MS

    def _linked(self) -> list[MemberId]:
        return [process for process, peer in self._peers.items() if peer.linked]

    def _alive(self, to: Iterable[MemberId], answer: bool = False) -> Effect:
        hears = tuple(
            (process, peer.address, LINKED * peer.linked | MUTUAL * (self.me in peer.claims))
            for process, peer in self._peers.items()
            if peer.suspicion is None
        )
        return Down(Frame(b"", (Alive(hears, answer),), control=True), tuple(to))

    def status(self) -> Mapping[str, Any]:
        return {
            "heard": [str(process) for process in self.heard()],
            "suspected": {
                str(process): peer.suspicion
                for process, peer in self._peers.items()
                if peer.suspicion is not None
            },
        }
