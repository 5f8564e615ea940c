"""GCom's failures: a member that cannot be reached has crashed, for good and for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, Suspect
from antiphon.peers.membership.messages import HEADERS

KEPT_MAX = 100
"""Crashed members that newcomers are told of: the last ones. Older ones are long gone."""


class MemberCrash(Header, frozen=True):
    """Its sender has found, or been told, that these crashed."""

    processes: tuple[MemberId, ...]


class Crashes(Detector):
    """A detector whose suspicions are final: a partition is a crash of those that are cut off.

    Promise: a member to which a connection is lost, or that is silent, has crashed. Who finds that
    tells all others; those take it over if the leader says it, if they lead, or if it is the leader
    that crashed. No later view of theirs has a crashed member: nothing that it says of views is
    listened to, and a process that was cut off comes back by a new join, as another one. A member
    that hears of its own crash is done with all others in the same way, so both sides of a
    partition agree to be two groups. Newcomers are told who has crashed: one that reaches both
    sides belongs to the one that it hears first.

    Need: nothing, as `Detector`. Limits: a single link between two members that breaks makes one of
    the two a crashed one, though all others hear both. GCom knows a crash by a failed call alone;
    silence is added, since a machine that is gone does not answer at all.
    """

    name = "crashes"
    headers = (*Detector.headers, MemberCrash)

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._crashed: dict[MemberId, None] = {}

    @property
    def crashed(self) -> frozenset[MemberId]:
        """The crashed processes, the last ones at least."""
        return frozenset(self._crashed)

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        if process in self._gone:
            return ()
        effects = super().linked(process, address, now_ms)
        # First of all: with a heartbeat it may be taken into a view.
        return [*self._tell(self._crashed, (process,)), *effects]

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        if goodbye or process not in self.view.members:
            return super().unlinked(process, goodbye, now_ms)
        return self._crash(process, "its connection was lost", now_ms)

    def suspected(self, process: MemberId, why: str, now_ms: int) -> Sequence[Effect]:
        return self._crash(process, why, now_ms) if why and process in self.view.members else ()

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.headers[-1] if frame.headers else None
        if not isinstance(header, (MemberCrash, *HEADERS)):  # its messages belong to the view still
            return super().up(frame, sender, now_ms)
        if sender in self._gone:
            return ()
        if not isinstance(header, MemberCrash):
            return super().up(frame, sender, now_ms)
        effects: list[Effect] = []
        for process in header.processes:
            effects += self._told(process, sender, now_ms)
        return effects

    def _told(self, process: MemberId, sender: MemberId, now_ms: int) -> list[Effect]:
        """Take the word of another process."""
        leader, members = self.view.leader, self.view.members
        if process == self.me:
            if sender in members and leader in (self.me, sender):  # then all count this one out
                self._lose(members, now_ms)
            return []
        if process not in members:  # whoever has it as a member tells it as well
            self._lose((process,), now_ms)
            return []
        if sender not in members or leader not in (self.me, sender, process):
            return []
        return self._crash(process, f"{sender} has found that it crashed", now_ms)

    def _crash(self, process: MemberId, why: str, now_ms: int) -> list[Effect]:
        """A process has crashed: tell all, that one too, for it may be alive."""
        if process in self._gone:
            return []
        to = (*(one for one in self._linked() if one != process), process)
        self._lose((process,), now_ms)
        return [*self._tell((process,), to), Suspect(process, why)]

    def _tell(self, crashed: Collection[MemberId], to: Sequence[MemberId]) -> list[Effect]:
        if not crashed:
            return []
        header = MemberCrash(tuple(crashed))
        return [Down(Frame(b"", (header,), control=True), tuple(to))]

    def _lose(self, processes: Iterable[MemberId], now_ms: int) -> None:
        """Be done with these."""
        for process in processes:
            if process != self.me and process not in self._gone:
                self._forget(process)
                self._crashed[process] = None
        while len(self._crashed) > KEPT_MAX:
            del self._crashed[next(iter(self._crashed))]
        self._changed(now_ms)
