"""GCom's failures: a member that cannot be reached has crashed, for good and for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Suspect, To
from antiphon.peers.membership.messages import HEADERS


class MemberCrash(Header, frozen=True):
    """A member has found that another one crashed."""

    process: MemberId


class Crashes(Detector):
    """A detector whose suspicions are final: a partition is a crash of those that are cut off.

    Promise: a member to which a connection is lost, or that is silent, has crashed. Who finds that
    tells all others; those take it over if the leader says it, or if it is the leader that crashed.
    No later view has a crashed member: nothing that it says of views is listened to, and a process
    that was cut off comes back by a new join, as another one. A process whose view loses members is
    done with these in the same way, so both sides of a partition agree to be two groups.

    Need: nothing, as `Detector`. Limits: a single link between two members that breaks makes one of
    the two a crashed one, though all others hear both. GCom knows a crash by a failed call alone;
    silence is added, since a machine that is gone does not answer at all.
    """

    name = "crashes"
    headers = (*Detector.headers, MemberCrash)

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        return () if process in self._gone else super().linked(process, address, now_ms)

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
        if isinstance(header, MemberCrash):
            return self._told(header.process, sender, now_ms)
        return super().up(frame, sender, now_ms)

    def _told(self, process: MemberId, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        """Take the word of another member."""
        leader = self.view.leader
        if process == self.me:
            if sender == leader:  # it counts this process out, and with it all others do
                self._lose(self.view.members, now_ms)
            return ()
        if leader not in (self.me, sender, process):
            return ()
        return self._crash(process, f"{sender} has found that it crashed", now_ms)

    def _crash(self, process: MemberId, why: str, now_ms: int) -> list[Effect]:
        """A member has crashed: tell all, that one too, for it may be alive."""
        if process in self._gone:
            return []
        to: To = (*(one for one in self._linked() if one != process), process)
        self._lose((process,), now_ms)
        told = Frame(b"", (MemberCrash(process),), control=True)
        return [Down(told, to), Suspect(process, why)]

    def _lose(self, processes: Sequence[MemberId], now_ms: int) -> None:
        for process in processes:
            if process != self.me:
                self._forget(process)
        self._changed(now_ms)

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        self._lose([one for one in self.view.members if one not in view.members], now_ms)
        return super().install(view, summary, now_ms)
