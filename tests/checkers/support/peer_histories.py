"""Histories of channels, told in the order in which they happened, and what the checks find.

Processes have names of one letter, lives a stroke each (`a'` is the second life of `a`); `a:3` is
the third message of `a`. Each method adds the events of the processes that are named, if any.
"""

from collections import defaultdict

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
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId


def life(text: str) -> MemberId:
    return MemberId(text[0], text.count("'") + 1)


def lives(text: str) -> tuple[MemberId, ...]:
    return tuple(map(life, text.split()))


class Peers:
    def __init__(self) -> None:
        self.events: dict[MemberId, list[Event]] = defaultdict(list)
        self.views: dict[MemberId, PeerView] = {}
        self.levels: dict[tuple[MemberId, int], Level] = {}

    def view(
        self,
        round: int,
        members: str,
        at: str = "",
        *,
        primary: bool = True,
        together: str | None = None,
        merged: tuple[ViewId, ...] = (),
        past: tuple[ViewId, ...] = (),
        founding: ViewId | None = None,
        origin: ViewId | None = None,
    ) -> "Peers":
        """Shown to these processes: to all of its members, if none are given."""
        all_members = lives(members)
        view = PeerView(ViewId(round, all_members[0]), all_members, all_members[0], primary)
        came = {process: self.view_of(process).id for process in lives(at or members)}
        for process, before in came.items():
            same = [m for m in all_members if self.view_of(m).id == before]
            names = tuple(same) if together is None else lives(together)
            self.events[process].append(Showing(view, names, merged, past, founding, origin))
        for process in came:
            self.views[process] = view
        return self

    def view_of(self, process: MemberId) -> PeerView:
        return self.views.get(process, PeerView(ViewId(0, process), (process,), process))

    def send(self, process: str, *levels: Level, to: str | None = None) -> "Peers":
        me = life(process)
        for level in levels or (Level.AGREED,):
            number = sum(isinstance(event, Sending) for event in self.events[me]) + 1
            names = None if to is None else lives(to)
            self.events[me].append(Sending(number, level, names))
            self.levels[me, number] = level
        return self

    def deliver(self, at: str, *messages: str, closing: bool = False) -> "Peers":
        for process in lives(at):
            for message in messages:
                sender, _, number = message.partition(":")
                key = life(sender), int(number)
                level = self.levels.get(key, Level.AGREED)
                view = self.view_of(process).id
                self.events[process].append(Delivery(*key, level, view, closing))
        return self

    def receive(self, at: str, *messages: str) -> "Peers":
        for process in lives(at):
            for message in messages:
                sender, _, number = message.partition(":")
                view = self.view_of(process).id
                self.events[process].append(Receipt(life(sender), int(number), view))
        return self

    def end(self, at: str, *, crashed: bool = True) -> "Peers":
        for process in lives(at):
            self.events[process].append(End(crashed))
        return self

    def findings(self, *, complete: bool = True) -> list[Finding]:
        return peer_views.check(self.events, complete=complete)

    def broken(self, *, complete: bool = True) -> set[str]:
        return {finding.rule for finding in self.findings(complete=complete)}


def three() -> Peers:
    """`a`, `b` and `c` in the primary view 1."""
    return Peers().view(1, "a b c")
