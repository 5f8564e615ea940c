"""Histories of channels: the messages that each process sent and delivered, and its views, in its
own order.

A history has one list of events for each *life* of a process (`MemberId`). A life begins in a view
of itself alone, round 0, which is not among its events. Clocks play no part: the order of events of
different lives is known only from their messages and views.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId

Key = tuple[MemberId, int]
"""A message: its sender, and the sender's number for it."""


class Sending(NamedTuple):
    """The program sends its message of this number: 1 for the first of this life. `to`: the
    receivers of a message that is not for all members of the view."""

    number: int
    level: Level
    to: tuple[MemberId, ...] | None = None


class Receipt(NamedTuple):
    """The process has a message, which it may not have delivered yet."""

    sender: MemberId
    number: int
    view: ViewId


class Delivery(NamedTuple):
    """The program gets a message. `closing`: at the end of the view, when a change closed it."""

    sender: MemberId
    number: int
    level: Level
    view: ViewId
    closing: bool = False


class Showing(NamedTuple):
    """The program gets a view. `together`: the members that come from the same view as this
    process; `merged`: the views from which the members come, if they are known; `past`, of a
    primary view: the last one that is known to have been shown before it, and the later ones that
    may have been, if they are known; `founding`: the one with which its chain began, if there may
    be several chains; `origin`: the view that this process comes from, if it may be another one
    than that before, which was hidden."""

    view: PeerView
    together: tuple[MemberId, ...]
    merged: tuple[ViewId, ...] = ()
    past: tuple[ViewId, ...] = ()
    founding: ViewId | None = None
    origin: ViewId | None = None


class End(NamedTuple):
    """The process has crashed, or it has left."""

    crashed: bool


Event: TypeAlias = Sending | Receipt | Delivery | Showing | End
History: TypeAlias = Mapping[MemberId, Sequence[Event]]


class Finding(NamedTuple):
    """A property that a history breaks, and how."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Stay(NamedTuple):
    """The deliveries of a process in one view, with the views `before` it (None: this is the one in
    which the life began) and `following` it (None: this was its last one). `missed`: the process
    was not there when this view ended, and had views in between that were hidden."""

    view: PeerView
    before: PeerView | None
    showing: Showing | None
    deliveries: list[Delivery]
    following: PeerView | None = None
    missed: bool = False


class Life:
    """One life of a process: its events, also by views. `ended`: it has crashed or left."""

    def __init__(self, me: MemberId, events: Sequence[Event]) -> None:
        self.me = me
        self.events = events
        self.stays: list[Stay] = []
        self.sent: dict[int, Sending] = {}
        self.received: dict[ViewId, set[Key]] = defaultdict(set)
        self.crashed = self.ended = False
        self._read()

    def _read(self) -> None:
        stay = Stay(PeerView(ViewId(0, self.me), (self.me,), self.me), None, None, [])
        for event in self.events:
            if isinstance(event, Delivery):
                stay.deliveries.append(event)
                self.received[event.view].add((event.sender, event.number))
            elif isinstance(event, Receipt):
                self.received[event.view].add((event.sender, event.number))
            elif isinstance(event, Sending):
                self.sent[event.number] = event
            elif isinstance(event, Showing):
                missed = event.origin not in (None, stay.view.id)
                self.stays.append(stay._replace(following=event.view, missed=missed))
                stay = Stay(event.view, stay.view, event, [])
            else:
                self.ended, self.crashed = True, event.crashed
        self.stays.append(stay)

    def __str__(self) -> str:
        return str(self.me)


class Lives:
    """A whole history, with an index. `complete`: the run has come to rest, and all that must
    happen eventually has happened."""

    def __init__(self, history: History, complete: bool = True) -> None:
        self.lives = {me: Life(me, events) for me, events in history.items()}
        self.complete = complete
        self.views: dict[ViewId, list[tuple[Life, Stay]]] = defaultdict(list)
        for life in self.lives.values():
            for stay in life.stays:
                self.views[stay.view.id].append((life, stay))

    def sending(self, sender: MemberId, number: int) -> Sending | None:
        life = self.lives.get(sender)
        return None if life is None else life.sent.get(number)

    def ordered(self, stay: Stay) -> list[Key]:
        """Return the messages with a place in the total order that are for all members."""
        return [
            (d.sender, d.number)
            for d in stay.deliveries
            if d.level >= Level.AGREED and self.is_for_all(d)
        ]

    def is_for_all(self, delivery: Delivery) -> bool:
        sending = self.sending(delivery.sender, delivery.number)
        return sending is None or sending.to is None


def told(key: Key) -> str:
    """Return a message as text: `a:3` is the third message of `a`."""
    sender, number = key
    return f"{sender}:{number}"


def told_all(keys: Sequence[Key]) -> str:
    """Return the last few messages of a sequence as text."""
    shown = " ".join(map(told, keys[-8:]))
    return f"... {shown}" if len(keys) > 8 else shown or "nothing"
