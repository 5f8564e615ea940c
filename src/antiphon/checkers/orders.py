"""The orders of messages in channels, as checks of histories (`peer_histories.py`).

Each function checks one property, and yields a sentence for each place where it is broken.

Levels: a message keeps an order towards messages of its own level and below. So an agreed message
does not overtake a causal one, while a causal one may overtake an agreed one that has no place yet.
Messages for some members only have no part in orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from antiphon.checkers.peer_histories import (
    Delivery,
    Finding,
    Key,
    Life,
    Lives,
    Sending,
    Showing,
    Stay,
    told,
    told_all,
)
from antiphon.model.peer_views import Level, MemberId, ViewId


def once(lives: Lives) -> Iterator[Finding]:
    """No process delivers a message twice, or one that was not sent, or not to this process."""
    for life in lives.lives.values():
        seen: set[Key] = set()
        for stay in life.stays:
            for delivery in stay.deliveries:
                key = delivery.sender, delivery.number
                if key in seen:
                    yield Finding("once", f"{life} delivers {told(key)} twice")
                seen.add(key)
                if wrong := _not_sent(lives, life, delivery):
                    yield Finding("once", f"{life} delivers {told(key)}, {wrong}")


def _not_sent(lives: Lives, life: Life, delivery: Delivery) -> str:
    if delivery.sender not in lives.lives:
        return ""
    sending = lives.sending(delivery.sender, delivery.number)
    if sending is None:
        return "which was never sent"
    if sending.to is not None and life.me not in sending.to:
        return "which was sent to others"
    if sending.level != delivery.level:
        return f"which was sent at level {sending.level.name}, at level {delivery.level.name}"
    return ""


def own(lives: Lives) -> Iterator[Finding]:
    """In the end a process that goes on has delivered its own messages to all. An exception is a
    message that others delivered in a view of which this process missed the end: it is part of the
    state that this process must take from them."""
    if not lives.complete:
        return
    elsewhere = _views_of(lives)
    for life in lives.lives.values():
        if life.ended:
            continue
        has = {d.number for stay in life.stays for d in stay.deliveries if d.sender == life.me}
        onward = {
            stay.view.id
            for stay in life.stays
            if stay.following is None
            or (stay.view.primary and stay.following.primary and not stay.missed)
        }
        for number, sending in life.sent.items():
            if number in has or sending.to is not None:
                continue
            if elsewhere[life.me, number] <= onward:
                yield Finding("own", f"{life} sent {told((life.me, number))} and has not got it")


def _views_of(lives: Lives) -> dict[Key, set[ViewId]]:
    """Return the views in which each message was delivered."""
    found: dict[Key, set[ViewId]] = defaultdict(set)
    for stays in lives.views.values():
        for _, stay in stays:
            for delivery in stay.deliveries:
                found[delivery.sender, delivery.number].add(stay.view.id)
    return found


def one_view(lives: Lives) -> Iterator[Finding]:
    """All processes that deliver a message do so in the same view. One with a place in the total
    order whose sender was cut off may be delivered once more, to others, in views that are not
    primary; never in two primary views of one chain: those left of a group that is founded anew
    cannot know what those who are gone have delivered."""
    first: dict[tuple[Key, ViewId | None], ViewId] = {}
    ordered = {life.me: _ordered(life) for life in lives.lives.values()}
    for view, stays in lives.views.items():
        for life, stay in stays:
            for delivery in stay.deliveries:
                key = delivery.sender, delivery.number
                is_ordered = key[1] in ordered.get(key[0], ())
                if is_ordered and not stay.view.primary:
                    continue
                chain = stay.showing.founding if is_ordered and stay.showing else None
                other = first.setdefault((key, chain), view)
                if other != view:
                    text = f"{told(key)} is delivered in {other}, and by {life} in {view}"
                    yield Finding("one view", text)


def _ordered(life: Life) -> set[int]:
    """Return the messages of a process that may have a place in the total order: agreed ones, those
    that it sent behind them before it had got them back, and what it sent, or had not got back
    yet, as leader of a primary view."""
    ordered: set[int] = set()
    under_way: set[int] = set()  # of those
    all_under_way: set[int] = set()
    leads = False
    for event in life.events:
        if isinstance(event, Showing):
            leads = event.view.primary and event.view.leader == life.me
            if leads:
                ordered |= all_under_way
        elif isinstance(event, Sending):
            follows = event.to is None and event.level > Level.NONE and under_way
            if event.to is None:
                all_under_way.add(event.number)
            if event.level >= Level.AGREED or follows or (leads and event.to is None):
                ordered.add(event.number)
                under_way.add(event.number)
        elif isinstance(event, Delivery) and event.sender == life.me:
            under_way.discard(event.number)
            all_under_way.discard(event.number)
    return ordered


# -- Orders of single senders, and causal order ----------------------------------------------------


def fifo(lives: Lives) -> Iterator[Finding]:
    """Messages of one sender come in its order, and without a gap: a process that delivers one in a
    view has delivered all earlier ones of the sender that any process delivers there."""
    known = {view: _known(lives, stays) for view, stays in lives.views.items()}
    for life in lives.lives.values():
        seen: set[Key] = set()
        highest: dict[tuple[MemberId, Level], int] = defaultdict(int)
        for stay in life.stays:
            checked: dict[tuple[MemberId, Level], int] = defaultdict(int)
            for delivery in stay.deliveries:
                sender, number, level = delivery[:3]
                if level >= Level.FIFO and lives.is_for_all(delivery):
                    earlier = known[stay.view.id].numbers(sender, Level.FIFO, level)
                    at = checked[sender, level]
                    while at < len(earlier) and earlier[at] < number:
                        if (sender, earlier[at]) not in seen:
                            yield _fifo_finding(life, stay, sender, number, earlier[at])
                        at += 1
                    checked[sender, level] = at
                    overtaken_by = max(highest[sender, above] for above in Level if above >= level)
                    if overtaken_by > number and (sender, number) not in seen:
                        yield _fifo_finding(life, stay, sender, overtaken_by, number)
                    highest[sender, level] = max(number, highest[sender, level])
                seen.add((sender, number))


def _fifo_finding(life: Life, stay: Stay, sender: MemberId, got: int, missed: int) -> Finding:
    before = f"{told((sender, got))} before {told((sender, missed))}"
    return Finding("fifo", f"{life} delivers {before}, of {stay.view.id}")


class _Known:
    """The messages to all members that any process delivers in one view."""

    def __init__(self) -> None:
        self.levels: dict[MemberId, dict[int, Level]] = defaultdict(dict)
        self._numbers: dict[tuple[MemberId, Level, Level], list[int]] = {}

    def numbers(self, sender: MemberId, lowest: Level, highest: Level) -> list[int]:
        """Return the numbers of a sender's messages between two levels, in order."""
        key = sender, lowest, highest
        found = self._numbers.get(key)
        if found is None:
            levels = self.levels.get(sender, {})
            found = sorted(n for n, level in levels.items() if lowest <= level <= highest)
            self._numbers[key] = found
        return found


def _known(lives: Lives, stays: list[tuple[Life, Stay]]) -> _Known:
    known = _Known()
    for _, stay in stays:
        for delivery in stay.deliveries:
            if lives.is_for_all(delivery):
                known.levels[delivery.sender][delivery.number] = delivery.level
    return known


class Past(NamedTuple):
    """The causes of a message: the last number of each sender, apart for causal messages and for
    those of higher levels."""

    causal: dict[MemberId, int]
    agreed: dict[MemberId, int]

    def add(self, sender: MemberId, number: int, level: Level) -> None:
        part = self.causal if level == Level.CAUSAL else self.agreed
        part[sender] = max(number, part.get(sender, 0))

    def join(self, other: Past) -> None:
        for part, more in zip(self, other, strict=True):
            for sender, number in more.items():
                if number > part.get(sender, 0):
                    part[sender] = number

    def copy(self) -> Past:
        return Past(dict(self.causal), dict(self.agreed))


class Sent(NamedTuple):
    """The view in which a message was sent, and its causes in that view."""

    view: ViewId | None  # None: before its sender was shown one
    past: Past


def pasts(lives: Lives) -> dict[Key, Sent]:
    """Return the causes of each message: the messages that its sender had sent or delivered before
    it in the same view, and the causes of these; messages below the causal level carry no
    causes."""
    found: dict[Key, Sent] = {}
    walks = [_Walk(lives, life) for life in lives.lives.values()]
    waiting: dict[Key, list[_Walk]] = defaultdict(list)
    while walks:
        walk = walks.pop()
        for key in walk.go_on(found):
            walks += waiting.pop(key, ())
        if walk.waits_for is not None:
            waiting[walk.waits_for].append(walk)
    return found


class _Walk:
    """A walk through the events of one life, which stops at a delivery whose causes are not known
    yet."""

    def __init__(self, lives: Lives, life: Life) -> None:
        self.waits_for: Key | None = None
        self._lives = lives
        self._life = life
        self._view: ViewId | None = None
        self._past = Past({}, {})
        self._at = 0

    def go_on(self, found: dict[Key, Sent]) -> list[Key]:
        """Add the causes of the messages that this process sends; return these messages."""
        sent: list[Key] = []
        self.waits_for = None
        for event in islice(self._life.events, self._at, None):
            if isinstance(event, Showing):
                self._view, self._past = event.view.id, Past({}, {})
            elif isinstance(event, Sending) and event.level >= Level.CAUSAL and event.to is None:
                key = self._life.me, event.number
                found[key] = Sent(self._view, self._past.copy())
                self._past.add(*key, event.level)
                sent.append(key)
            elif isinstance(event, Delivery) and event.level >= Level.CAUSAL:
                key = event.sender, event.number
                if key in found:
                    if found[key].view == event.view:
                        self._past.join(found[key].past)
                elif self._lives.sending(*key) is not None and self._lives.is_for_all(event):
                    self.waits_for = key
                    return sent
                if self._lives.is_for_all(event):
                    self._past.add(*key, event.level)
            self._at += 1
        return sent


def causal(lives: Lives) -> Iterator[Finding]:
    """No process delivers a message before its causes, as far as any process delivers them in that
    view. What did not come back to its sender before the view ended is sent again: in a later view
    that may come behind what it has caused where it was given out before."""
    causes = pasts(lives)
    none = Sent(None, Past({}, {}))
    known = {view: _known(lives, stays) for view, stays in lives.views.items()}
    for life in lives.lives.values():
        seen: set[Key] = set()
        for stay in life.stays:
            walk = _CausalWalk(life, stay, known[stay.view.id], seen)
            for delivery in stay.deliveries:
                key = delivery.sender, delivery.number
                if delivery.level >= Level.CAUSAL and lives.is_for_all(delivery):
                    sent = causes.get(key, none)
                    if sent.view == delivery.view:
                        yield from walk.check(delivery, sent.past)
                seen.add(key)


class _CausalWalk:
    """The deliveries of one process in one view; each cause in that view is checked once."""

    def __init__(self, life: Life, stay: Stay, known: _Known, seen: set[Key]) -> None:
        self._life = life
        self._stay = stay
        self._known = known
        self._seen = seen
        self._checked: dict[tuple[MemberId, Level], int] = {}

    def check(self, delivery: Delivery, past: Past) -> Iterator[Finding]:
        kinds = [(past.causal, Level.CAUSAL, Level.CAUSAL)]
        if delivery.level >= Level.AGREED:
            kinds.append((past.agreed, Level.AGREED, Level.SAFE))
        for part, lowest, highest in kinds:
            for sender, last in part.items():
                causes = self._known.numbers(sender, lowest, highest)
                at = self._checked.get((sender, lowest), 0)
                while at < len(causes) and causes[at] <= last:
                    if (sender, causes[at]) not in self._seen:
                        yield self._finding(delivery, (sender, causes[at]))
                    at += 1
                self._checked[sender, lowest] = at

    def _finding(self, delivery: Delivery, cause: Key) -> Finding:
        got, view = told((delivery.sender, delivery.number)), self._stay.view.id
        text = f"{self._life} delivers {got} in {view} before its cause {told(cause)}"
        return Finding("causal", text)


# -- The total order -------------------------------------------------------------------------------


def total(lives: Lives) -> Iterator[Finding]:
    """In each view, all processes deliver agreed messages in one order without holes: of two
    processes, one delivers the first part of the other's sequence."""
    for view, stays in lives.views.items():
        best = max((lives.ordered(stay) for _, stay in stays), key=len)
        for life, stay in stays:
            mine = lives.ordered(stay)
            if mine != best[: len(mine)]:
                text = f"{life} delivers {told_all(mine)} in {view}, others {told_all(best)}"
                yield Finding("total", text)


def safe(lives: Lives) -> Iterator[Finding]:
    """A safe message is delivered, before its view is closed, only when all members of the view
    have it."""
    for view, stays in lives.views.items():
        for life, stay in stays:
            for delivery in stay.deliveries:
                if delivery.level < Level.SAFE or delivery.closing:
                    continue
                if not lives.is_for_all(delivery):
                    continue
                key = delivery.sender, delivery.number
                for member in stay.view.members:
                    other = lives.lives.get(member)
                    if other is not None and key not in other.received.get(view, ()):
                        text = f"{life} delivers {told(key)} in {view}, and {member} never has it"
                        yield Finding("safe", text)
