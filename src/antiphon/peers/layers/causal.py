"""Causal order: no message overtakes one that its sender had sent or seen before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from random import Random
from typing import Any, NamedTuple

from antiphon.errors import FormatError
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Closing, Down, Effect, Frame, Header, Layer, Repeats, To, Up


class Kind(IntEnum):
    """How a frame counts."""

    NUMBERED = 0  # the next of its sender, if what it depends on is there
    AGREED = 1  # the next of those that `Total` orders, likewise
    ALONE = 2  # to some members: depends on others, and nothing depends on it


class Causes(Header, frozen=True):
    """How many messages the sender had handed up when it sent this one: of each member, by its
    place in the view, and of those that `Total` orders, last. Its own count has this one, if that
    is numbered. `view`: where the counts are from, for an agreed message, since `Total` may send it
    again in a later view."""

    counts: tuple[int, ...]
    kind: Kind = Kind.NUMBERED
    view: ViewId | None = None


class _Waiting(NamedTuple):
    frame: Frame
    sender: MemberId
    header: Causes
    number: int  # an agreed one's place among those that have arrived


class Causal(Layer):
    """No message overtakes one that its sender had sent or been given before it.

    Promise: of two messages of the level `FIFO` or above, of which the first was sent by the sender
    of the second, or handed to its program, before the second was sent, every member hands up the
    first one first. A member's own messages wait, too. Agreed ones stay in the order that `Total`
    gives them. Need: `in view`; place it above `Total`, `Uniform` and `Safe`, whose messages it
    would let others overtake from below. Limits: a message waits for a lost one until the view
    ends, and is dropped with it if the lost one is gone with all that had it, unless it is agreed:
    others may have that. A message to some members waits for its causes, and nothing waits for it.
    Since agreed messages have no place before they are ordered, other messages of their sender that
    come after them leave when they are back. Each frame carries a number for each member.
    """

    name = "causal"
    gives = frozenset({"causal"})
    needs = frozenset({"in view"})
    headers = (Causes,)

    def __init__(self) -> None:
        self._total: Layer | None = None
        self._counts: list[int] = []
        self._ranks: dict[MemberId, int] = {}
        self._sent = 0
        self._agreed_arrived = 0
        self._agreed_sent = 0
        """Own agreed messages that are not back yet."""

        self._later: deque[tuple[Frame, To]] = deque()
        self._waiting: dict[tuple[int, int], list[_Waiting]] = {}
        """By the count that a frame waits for: whose, and how high it must be."""

        self._frozen = False

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._total = next((layer for layer in below if "total" in layer.gives), None)
        self._begin(view)

    def _begin(self, view: PeerView) -> None:
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._counts = [0] * (len(view.members) + 1)
        self._waiting.clear()
        self._sent = self._agreed_arrived = 0

    # -- Sending -------------------------------------------------------------------------------

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control or frame.level < Level.FIFO:
            return (Down(frame, to),)
        self._later.append((frame, to))
        return self._send()

    def _send(self) -> list[Effect]:
        """Send what may leave: everything but what follows an own agreed message."""
        sent: list[Effect] = []
        while self._later and not self._frozen:
            frame, to = self._later[0]
            kind = self._kind(frame, to)
            if kind != Kind.AGREED and self._agreed_sent:
                break
            self._later.popleft()
            sent.append(Down(frame.push(self._causes(kind)), to))
        return sent

    def _kind(self, frame: Frame, to: To) -> Kind:
        if to is not None:
            return Kind.ALONE
        return Kind.AGREED if self._total and frame.level >= Level.AGREED else Kind.NUMBERED

    def _causes(self, kind: Kind) -> Causes:
        self._sent += kind == Kind.NUMBERED
        self._agreed_sent += kind == Kind.AGREED
        counts = list(self._counts)
        counts[self._ranks[self.me]] = self._sent
        return Causes(tuple(counts), kind, self.view.id if kind == Kind.AGREED else None)

    # -- Receiving -----------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.top(Causes)
        if header is None:
            return (Up(frame, sender),)
        again = header.kind == Kind.AGREED and header.view != self.view.id
        if not again and (sender not in self._ranks or len(header.counts) != len(self._counts)):
            raise FormatError(f"{len(header.counts)} counts from {sender}, in {self.view}")
        self._agreed_arrived += header.kind == Kind.AGREED
        handed = self._take(_Waiting(frame.pop(), sender, header, self._agreed_arrived))
        return handed + self._send()

    def _take(self, arrived: _Waiting) -> list[Effect]:
        """Return what can be handed up now."""
        handed: list[Effect] = []
        candidates = deque([arrived])
        while candidates:
            waiting = candidates.popleft()
            if (lacks := self._lacks(waiting)) is not None:
                self._waiting.setdefault(lacks, []).append(waiting)
            elif (counted := self._count(waiting)) is not None:
                handed.append(Up(waiting.frame, waiting.sender))
                candidates += self._waiting.pop(counted, ())
        return handed

    def _lacks(self, waiting: _Waiting) -> tuple[int, int] | None:
        """Return a count that this frame must wait for: whose, and how high."""
        header, agreed = waiting.header, len(self._counts) - 1
        wanted = list(header.counts)
        if header.kind == Kind.AGREED:
            if self._counts[agreed] < waiting.number - 1:
                return agreed, waiting.number - 1
            if header.view != self.view.id:
                return None  # sent again: what it depends on belongs to a view that is over
        elif header.kind == Kind.NUMBERED:
            wanted[self._ranks[waiting.sender]] -= 1
        for whose, (count, has) in enumerate(zip(wanted, self._counts, strict=True)):
            if has < count:
                return whose, count
        return None

    def _count(self, waiting: _Waiting) -> tuple[int, int] | None:
        """Count a frame that is handed up; return whose count has become how high. None: it has
        been handed up before."""
        header = waiting.header
        if header.kind == Kind.ALONE:
            return -1, 0  # nothing waits for it
        whose = len(self._counts) - 1 if header.kind == Kind.AGREED else self._ranks[waiting.sender]
        if header.kind == Kind.NUMBERED and header.counts[whose] <= self._counts[whose]:
            return None
        self._counts[whose] += 1
        if header.kind == Kind.AGREED and waiting.sender == self.me:
            self._agreed_sent -= 1
        return whose, self._counts[whose]

    # -- Views ---------------------------------------------------------------------------------

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        """Hand up the agreed messages whose causes are lost, in their order, and what waits for
        them alone."""
        handed: list[Effect] = []
        while (waiting := self._next_agreed()) is not None:
            handed += self._take(waiting)
        return handed

    def _next_agreed(self) -> _Waiting | None:
        """Return the next agreed message that waits, without its causes."""
        number = self._counts[-1] + 1
        for each in self._waiting.values():
            for at, waiting in enumerate(each):
                if waiting.header.kind == Kind.AGREED and waiting.number == number:
                    del each[at]
                    return waiting._replace(header=Causes((), Kind.AGREED))
        return None

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view)
        self._frozen = False
        self._agreed_sent = self._total.kept() if isinstance(self._total, Repeats) else 0
        return self._send()

    def status(self) -> Mapping[str, Any]:
        waiting = [each for several in self._waiting.values() for each in several]
        senders = sorted({each.sender.name for each in waiting})
        return {"counts": tuple(self._counts), "waiting": len(waiting), "from": senders}
