"""Causal order: no message overtakes one that its sender had sent or been given before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from antiphon.errors import FormatError
from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, To, Up, Value
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.total import Ordered


class Causes(Header, frozen=True):
    """How many multicasts of each member, by its place in the view, the sender had handed up when
    it sent this one. Its own count has all its multicasts so far: with this one, unless that is for
    some members alone."""

    counts: tuple[int, ...]
    alone: bool = False


class _Waiting(Value, frozen=True):
    frame: Frame
    sender: MemberId
    header: Causes


class _Leaving(Value, frozen=True):
    """A frame of the total order that waits at the leader; see `Causal`."""

    frame: Frame
    counts: list[int]
    causes: Mapping[MemberId, int]  # stream -> number


class Causal(Layer):
    """No message overtakes one that its sender had sent or been given before it.

    Promise: of two multicasts of the level `FIFO` or above, of which the first was sent by the
    sender of the second, or handed up there, before the second was sent, every member hands up the
    first one first. A member's own messages wait, too.

    Need: `in view`. Place it above `Uniform` and `Safe`, which hold back messages that others may
    depend on, and below `Total`: its order is that of the leader's messages, each of which comes
    after all that the leader handed up before it.

    Limits: messages that depend on a lost one wait until the view ends, and are dropped if no
    member has the lost one any more. A message to some members waits for its causes, and no message
    waits for it. Each frame carries a number for each member. Above `Uniform`, in a primary view,
    the leader orders no message before all members hold the causal messages that it handed up
    earlier: otherwise these could be lost with all that have them, while an agreed message that
    depends on them must not be. So agreed messages that are mixed with causal ones wait for the
    slowest member.
    """

    name = "causal"
    gives = frozenset({"causal"})
    needs = frozenset({"in view"})
    headers = (Causes,)

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], list[_Waiting]] = {}
        """The waiting frames by the count that each waits for: the member, and the count."""

        self._later: deque[_Leaving] = deque()
        self._unstable: dict[MemberId, int] = {}
        """At the leader: of each stream, the last number that not all members may hold."""

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._reliable = next((layer for layer in below if isinstance(layer, Reliable)), None)
        self._is_uniform = any("uniform" in layer.gives for layer in below)
        self._begin(view)

    def _begin(self, view: PeerView) -> None:
        self._ranks = {member: rank for rank, member in enumerate(view.members)}
        self._counts = [0] * len(view.members)
        self._sent = 0
        self._frozen = False
        self._waiting.clear()
        self._unstable.clear()
        self._announced = 0
        self._leads = view.leader == self.me
        self._unwatched = (self.me, view.leader)
        # Messages that have not left yet are ordered again: their senders have kept them.
        self._later.clear()
        # Other members may go on without messages that this one hands up, except agreed ones.
        self._holders = self._reliable if self._is_uniform and view.primary else None

    # -- Sending -------------------------------------------------------------------------------

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control or frame.level < Level.FIFO:
            return (Down(frame, to),)
        if to is not None:
            counts = list(self._counts)
            counts[self._ranks[self.me]] = self._sent
            return (Down(frame.push(Causes(tuple(counts), True)), to),)
        if self._holders is None or frame.top(Ordered) is None:
            return (self._multicast(frame, list(self._counts)),)
        self._later.append(_Leaving(frame, list(self._counts), dict(self._unstable)))
        return self._send()

    def _multicast(self, frame: Frame, counts: list[int]) -> Effect:
        self._sent += 1
        counts[self._ranks[self.me]] = self._sent
        return Down(frame.push(Causes(tuple(counts))))

    def _send(self) -> list[Effect]:
        """Send the messages whose causes all members hold now."""
        sent: list[Effect] = []
        while self._later and not self._frozen and self._all_hold(self._later[0].causes):
            leaving = self._later.popleft()
            sent.append(self._multicast(leaving.frame, leaving.counts))
        return sent

    def _all_hold(self, causes: Mapping[MemberId, int]) -> bool:
        holders = self._holders
        return holders is None or all(holders.stable(s) >= n for s, n in causes.items())

    def acknowledged(self, stream: MemberId, now_ms: int) -> Sequence[Effect]:
        if self._holders is None:
            return ()
        stable = self._holders.stable(stream)
        if stream == self.me and not self._leads and stable > self._announced:
            self._announced = stable
            self._holders.hurry(stream, now_ms)  # the leader waits for it
        if stable >= self._unstable.get(stream, 0):
            self._unstable.pop(stream, None)
        return self._send()

    # -- Receiving -----------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.top(Causes)
        if header is None:
            return (Up(frame, sender),)
        if sender not in self._ranks or len(header.counts) != len(self._counts):
            raise FormatError(f"{len(header.counts)} counts from {sender}, in {self.view}")
        if self._holders is not None and not header.alone and sender not in self._unwatched:
            self._holders.hurry(sender, now_ms)
            if self._leads:
                self._unstable[sender] = frame.number
        return self._take(_Waiting(frame.pop(), sender, header))

    def _take(self, arrived: _Waiting) -> list[Effect]:
        """Return the messages that can be handed up now."""
        handed: list[Effect] = []
        candidates = deque([arrived])
        while candidates:
            waiting = candidates.popleft()
            if (lacks := self._lacks(waiting)) is not None:
                self._waiting.setdefault(lacks, []).append(waiting)
            elif waiting.header.alone:
                handed.append(Up(waiting.frame, waiting.sender))
            elif (counted := self._count(waiting)) is not None:
                handed.append(Up(waiting.frame, waiting.sender))
                candidates += self._waiting.pop(counted, ())
        return handed

    def _lacks(self, waiting: _Waiting) -> tuple[int, int] | None:
        """Return a count that this frame must wait for: the member, and the count; None: there is
        none."""
        wanted = waiting.header.counts
        own = -1 if waiting.header.alone else self._ranks[waiting.sender]
        for whose, (count, has) in enumerate(zip(wanted, self._counts, strict=True)):
            if has < count and (whose != own or has < count - 1):
                return whose, count - (whose == own)
        return None

    def _count(self, waiting: _Waiting) -> tuple[int, int] | None:
        """Count a frame that is handed up; return the member and its new count. None: it has been
        handed up before."""
        whose = self._ranks[waiting.sender]
        if waiting.header.counts[whose] <= self._counts[whose]:
            return None
        self._counts[whose] += 1
        return whose, self._counts[whose]

    # -- Views ---------------------------------------------------------------------------------

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view)
        return ()

    # -- For people ----------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Return the counts for operators. `waiting`: messages that wait for their causes; `from`:
        the senders of these; `leaving`: messages in total order, at the leader, whose causes not
        all members hold."""
        waiting = [each for several in self._waiting.values() for each in several]
        senders = sorted({each.sender.name for each in waiting})
        return {"waiting": len(waiting), "from": senders, "leaving": len(self._later)}
