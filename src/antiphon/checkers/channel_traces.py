"""Histories out of the traces of channels (`formats/channel_trace.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from antiphon.checkers import peer_views
from antiphon.checkers.peer_histories import (
    Delivery,
    End,
    Event,
    Finding,
    Receipt,
    Sending,
    Showing,
)
from antiphon.formats.channel_trace import ChannelEvent, life_of, view_of
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId


class Cluster(NamedTuple):
    """A cluster in a run. Clusters are judged apart."""

    run: str
    name: str


def check(events: Iterable[ChannelEvent], complete: bool = False) -> list[tuple[Cluster, Finding]]:
    """Return all findings. `complete`: all processes had come to rest when the traces ended."""
    return [
        (cluster, finding)
        for cluster, history in histories(events).items()
        for finding in peer_views.check(history, complete=complete)
    ]


def histories(events: Iterable[ChannelEvent]) -> dict[Cluster, dict[MemberId, list[Event]]]:
    """Return the events of each process, by cluster. A life whose trace has no end has crashed if a
    later trace of its name follows it."""
    rows: dict[Cluster, dict[str, list[ChannelEvent]]] = defaultdict(lambda: defaultdict(list))
    newest: dict[tuple[Cluster, str], int] = defaultdict(int)
    for event in events:
        cluster = Cluster(event.run, event.cluster)
        rows[cluster][event.life].append(event)
        name = cluster, event.process
        newest[name] = max(newest[name], event.incarnation)
    found: dict[Cluster, dict[MemberId, list[Event]]] = {}
    for cluster, lives in rows.items():
        found[cluster] = {}
        for life, own in lives.items():
            own.sort(key=lambda event: event.seq)
            happened = [one for event in own for one in _read(event)]
            last = own[-1]
            if last.kind != "end" and last.incarnation < newest[cluster, last.process]:
                happened.append(End(crashed=True))
            found[cluster][life_of(life)] = happened
    return found


def _read(event: ChannelEvent) -> Iterator[Event]:
    match event.kind:
        case "send":
            to = None if event.to is None else _lives(event.to)
            for number in _numbers(event):
                yield Sending(number, Level(event.level), to)
        case "receive":
            for number in _numbers(event):
                yield Receipt(life_of(event.sender), number, view_of(event.view))
        case "deliver":
            sender, level, view = life_of(event.sender), Level(event.level), view_of(event.view)
            for number in _numbers(event):
                yield Delivery(sender, number, level, view, event.closing)
        case "view":
            shown = view_shown(event)
            together, merged, past = event.together, event.merged, event.past
            founding = view_of(event.founding) if event.founding else None
            origin = view_of(event.origin) if event.origin else None
            yield Showing(shown, _lives(together), _ids(merged), _ids(past), founding, origin)
        case "end":
            yield End(crashed=False)


def view_shown(event: ChannelEvent) -> PeerView:
    """Return the view that was shown by this event."""
    view, members, leader = view_of(event.view), _lives(event.members), life_of(event.leader)
    return PeerView(view, members, leader, event.primary, _lives(event.seats))


def _numbers(event: ChannelEvent) -> range:
    return range(event.first, event.first + event.count)


def _lives(texts: tuple[str, ...]) -> tuple[MemberId, ...]:
    return tuple(map(life_of, texts))


def _ids(texts: tuple[str, ...]) -> tuple[ViewId, ...]:
    return tuple(map(view_of, texts))
