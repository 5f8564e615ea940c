"""Total order: one member, the view's leader, puts the messages of all into its own stream.

::

    Forward   sender -> leader: my message of this number
    Ordered   leader -> all: this sender's message of this number is next
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from random import Random
from typing import Any

from msgspec.structs import replace

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Blocked, Down, Effect, Frame, Header, Layer, To, Up

KEPT_BYTES_MAX = 4 << 20
"""A process sends no more while so much of its own is not delivered to itself."""
ORDER_BYTES = 1 << 20
"""A leader that was stopped orders so much at once of what has arrived meanwhile; then it sees
whether that stops it again. All at once could be more than any connection takes."""
GONE_MAX = 1024
"""How many processes that are not members are remembered with their numbers: they may come back."""


class Forward(Header, frozen=True):
    """A message for the leader to order. `to`: who is to hand it out; None: all. `level`: its own,
    if it travels without one. `settled`: up to here the sender has got back what it sent, perhaps
    in a view that the leader was not in."""

    number: int
    to: tuple[MemberId, ...] | None
    level: Level | None = None
    settled: int = 0


class Ordered(Header, frozen=True):
    """A message in its place in the order, which is that of the leader's stream. `settled`: what
    its sender had sent up to here was handed out before this view, perhaps where not all were."""

    sender: MemberId
    number: int
    to: tuple[MemberId, ...] | None
    settled: int = 0


class _Numbers:
    """Which messages of one sender there were: all up to `mark`, and some beyond it."""

    __slots__ = ("beyond", "mark")

    def __init__(self, mark: int = 0, beyond: Sequence[int] = ()) -> None:
        self.mark = mark
        self.beyond = set(beyond)

    def __contains__(self, number: int) -> bool:
        return number <= self.mark or number in self.beyond

    def add(self, number: int) -> None:
        if number != self.mark + 1:
            self.beyond.add(number)
            return
        self.mark = number
        while self.beyond and self.mark + 1 in self.beyond:
            self.mark += 1
            self.beyond.discard(self.mark)

    def settle(self, mark: int) -> None:
        """Count all up to this one."""
        if mark > self.mark:
            self.merge(_Numbers(mark))

    def merge(self, other: _Numbers) -> None:
        self.mark = max(self.mark, other.mark)
        self.beyond |= other.beyond
        while self.mark + 1 in self.beyond:
            self.mark += 1
        self.beyond = {number for number in self.beyond if number > self.mark}


class Total(Layer):
    """All members hand out the messages of all in one order.

    Promise: messages of level agreed or higher are handed out in one order, each once, even if it
    was sent again in a later view; those of one sender in the order in which they were sent. With
    that a message does not overtake those that its sender had got before (with `plain` neither of
    the two holds: the leader orders what arrives as it arrives). A message to some members is
    ordered with all others, and handed out by those alone. A message of a lower level to all that
    is sent behind one that is still on its way is ordered, too; and so is each that the leader of a
    primary view sends, if a layer below holds its stream back, for otherwise it would be lost with
    the view.

    Need: views, with a leader that all members agree on. With `Reliable` and `Uniform` below it
    every message of a member that goes on is delivered, and what is delivered in a primary view
    stays in that order; without them messages can be lost. With `Causal` below it the order holds
    between the levels, too.

    Limits: a message is sent twice, to the leader and from there to all. The leader orders nothing
    while it is blocked. A sender waits when too much of its own is not delivered. What members have
    handed out that were cut off from its sender, in a primary view or not, the others do not hand
    out when they come together: it belongs to the state that they take over.
    """

    name = "total"
    gives = frozenset({"total"})
    needs = frozenset({"views"})
    headers = (Forward, Ordered)

    def __init__(self, plain: bool = False) -> None:
        self.plain = plain

    def options(self) -> Mapping[str, Any]:
        return {"plain": True} if self.plain else {}

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._is_held_back = any("uniform" in layer.gives for layer in below)
        self._number = 0
        self._kept: dict[int, tuple[Frame, To]] = {}
        self._kept_bytes = 0
        self._blocks = False  # this layer has said `Blocked`
        self._delivered: dict[MemberId, _Numbers] = {}
        self._begin()

    def _begin(self) -> None:
        self._frozen = False
        self._leads = self.view.leader == self.me
        self._leader = (self.view.leader,)
        self._delivered.update(
            (member, _Numbers()) for member in self.view.members if member not in self._delivered
        )
        # At the leader: what it has ordered, and what it cannot order yet.
        self._ordered = {
            sender: _Numbers(numbers.mark, tuple(numbers.beyond))
            for sender, numbers in self._delivered.items()
        }
        self._before = {sender: numbers.mark for sender, numbers in self._delivered.items()}
        self._early: dict[tuple[MemberId, int], tuple[int, Frame, To]] = {}
        self._stopped: MemberId | None = None  # a layer below waits for this process
        self._arrived: deque[tuple[MemberId, int, int, Frame, To]] = deque()
        self._gives_way = False

    # -- The sender ------------------------------------------------------------------------------

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control or (frame.level < Level.AGREED and not self._has_place(frame, to)):
            return (Down(frame, to),)
        self._number += 1
        self._kept[self._number] = frame, to
        self._kept_bytes += len(frame.body)
        effects = self._forward(self._number, frame, to)
        if self._kept_bytes >= KEPT_BYTES_MAX and not self._blocks:
            self._blocks = True
            effects.append(Blocked(self.view.leader, "it has not ordered what was sent to it"))
        return effects

    def _has_place(self, frame: Frame, to: To) -> bool:
        """Whether a message of a lower level gets a place in the order all the same."""
        if to is not None:
            return False
        if self._is_held_back and self._leads and self.view.primary:
            return True
        return bool(self._kept) and frame.level > Level.NONE

    def _forward(self, number: int, frame: Frame, to: To) -> list[Effect]:
        settled = next(iter(self._kept)) - 1
        if self._leads:
            return self._take(self.me, number, settled, frame, to)
        if self.plain:  # as it comes: no layer below keeps it in order
            forward = Forward(number, to, frame.level, settled)
            return [Down(replace(frame, level=Level.NONE).push(forward), self._leader)]
        return [Down(frame.push(Forward(number, to, None, settled)), self._leader)]

    def _arrives(self, number: int) -> list[Effect]:
        """Forget an own message that is delivered, and those before it that others have delivered
        in views which this process had left: sent again, they would come behind this one."""
        mine = self._delivered[self.me]
        before = takewhile(lambda kept: kept < number, self._kept)
        for done in (*(kept for kept in before if kept in mine), number):
            if done in self._kept:
                self._kept_bytes -= len(self._kept.pop(done)[0].body)
        if self._blocks and self._kept_bytes < KEPT_BYTES_MAX:
            self._blocks = False
            return [Blocked(None)]
        return []

    # -- The leader ------------------------------------------------------------------------------

    def _take(
        self, sender: MemberId, number: int, settled: int, frame: Frame, to: To
    ) -> list[Effect]:
        if self._stopped is not None or self._arrived:
            self._arrived.append((sender, number, settled, frame, to))
            return []
        return self._admit(sender, number, settled, frame, to)

    def _admit(
        self, sender: MemberId, number: int, settled: int, frame: Frame, to: To
    ) -> list[Effect]:
        ordered = self._ordered[sender]
        if number in ordered:  # doubled
            return []
        ordered.settle(settled)
        if self.plain:
            return [self._order(sender, number, settled, frame, to)]
        self._early[sender, number] = settled, frame, to
        effects: list[Effect] = []
        number = ordered.mark + 1
        while (early := self._early.pop((sender, number), None)) is not None:
            effects.append(self._order(sender, number, *early))
            number += 1
        return effects

    def _order(self, sender: MemberId, number: int, settled: int, frame: Frame, to: To) -> Effect:
        self._ordered[sender].add(number)
        before = max(settled, self._before[sender])
        return Down(frame.push(Ordered(sender, number, to, before)))

    def blocked(self, process: MemberId | None, now_ms: int) -> Sequence[Effect]:
        self._stopped = process
        if process is None:
            # Each second time the program of this process goes first, which was stopped as well.
            self._gives_way = not self._gives_way
        return () if self._gives_way else self._order_arrived()

    def _order_arrived(self) -> Sequence[Effect]:
        """Order a part of what has arrived while this process was stopped; `tick` goes on."""
        effects: list[Effect] = []
        left_bytes = ORDER_BYTES
        while self._goes_on and left_bytes > 0:
            waiting = self._arrived.popleft()
            left_bytes -= len(waiting[3].body)
            effects += self._admit(*waiting)
        return effects

    @property
    def _goes_on(self) -> bool:
        return bool(self._arrived) and self._stopped is None and not self._frozen

    def tick(self, now_ms: int) -> Sequence[Effect]:
        return self._order_arrived()

    def next_deadline_ms(self) -> int | None:
        return 0 if self._goes_on else None

    # -- All members -----------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.headers[-1] if frame.headers else None
        if isinstance(header, Ordered):
            return self._hand_out(frame, header)
        if isinstance(header, Forward):
            if self._leads and not self._frozen and sender in self._ordered:
                level = frame.level if header.level is None else header.level
                frame = replace(frame.pop(), level=level)
                return self._take(sender, header.number, header.settled, frame, header.to)
            return ()
        return (Up(frame, sender),)

    def _hand_out(self, frame: Frame, header: Ordered) -> Sequence[Effect]:
        sender, number, to = header.sender, header.number, header.to
        delivered = self._delivered.get(sender)
        if delivered is None:
            delivered = self._delivered[sender] = _Numbers()
        if number in delivered:
            return ()
        delivered.settle(header.settled)
        delivered.add(number)
        effects = self._arrives(number) if sender == self.me else []
        if to is None or self.me in to:
            effects.append(Up(frame.pop(), sender))
        return effects

    # -- Views -----------------------------------------------------------------------------------

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def summary(self) -> Any:
        """Return which messages this process has handed out: sender, mark, and some beyond it."""
        return [
            (sender.name, sender.incarnation, numbers.mark, sorted(numbers.beyond))
            for sender, numbers in self._delivered.items()
        ]

    def merge(self, summaries: Mapping[MemberId, Any]) -> Any:
        merged: dict[MemberId, _Numbers] = {}
        for _, summary in sorted(summaries.items()):
            _merge_into(merged, summary)
        return [
            (sender.name, sender.incarnation, numbers.mark, sorted(numbers.beyond))
            for sender, numbers in merged.items()
        ]

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        _merge_into(self._delivered, summary or ())
        gone = [sender for sender in self._delivered if sender not in view.members]
        for sender in gone[: len(gone) - GONE_MAX]:
            del self._delivered[sender]
        self._begin()
        effects: list[Effect] = []
        mine = self._delivered[self.me]
        for number in [number for number in self._kept if number in mine]:
            effects += self._arrives(number)
        for number, (frame, to) in self._kept.items():
            effects += self._forward(number, frame, to)
        return effects

    # -- For people ------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """`kept`: own messages that are not delivered; `waiting`: messages that the leader, this
        process, cannot order yet."""
        return {"kept": len(self._kept), "waiting": len(self._early) + len(self._arrived)}


def _merge_into(delivered: dict[MemberId, _Numbers], summary: Any) -> None:
    for name, incarnation, mark, beyond in summary:
        numbers = delivered.setdefault(MemberId(name, incarnation), _Numbers())
        numbers.merge(_Numbers(mark, beyond))
