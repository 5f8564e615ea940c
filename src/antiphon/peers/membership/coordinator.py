"""The side of the coordinator in a change: it asks, decides, hands frames on, and has the view
shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.model.peer_views import MemberId, ViewId
from antiphon.peers.layers.layer import Effect, Layer
from antiphon.peers.membership.decision import Lagging, decide, holder
from antiphon.peers.membership.member import message
from antiphon.peers.membership.messages import (
    Ask,
    Behind,
    Decided,
    Fetch,
    Frames,
    Installed,
    Refused,
    Show,
    Told,
)
from antiphon.peers.membership.records import Decision, Report

REPEAT_MS = 200
"""The coordinator repeats a message that has no answer for this long."""
PATIENCE_MS = 3000
"""A change that takes longer is given up, and begun again with the processes that answered."""
ATTEMPTS_MAX = 5
"""Refusals of a process after which the change goes on without it."""


class Attempt:
    """One change, from the first question until all show it.

    `waves`: processes that are asked together; the next ones are asked when these have reported, so
    that no process is frozen for one that refuses.
    """

    def __init__(self, change: ViewId, waves: Sequence[Sequence[MemberId]], now_ms: int) -> None:
        self.change = change
        self.waves = [tuple(wave) for wave in waves if wave]
        self.present = tuple(process for wave in self.waves for process in wave)
        self.reports: dict[MemberId, Report] = {}
        self.decision: Decision | None = None
        self.installed: set[MemberId] = set()
        self.began_ms = now_ms
        self.repeat_ms = now_ms + REPEAT_MS

    def awaited(self) -> list[MemberId]:
        """Return the processes that have not answered the last message."""
        if self.decision is None:
            return [process for process in self._asked() if process not in self.reports]
        return [process for process in self.present if process not in self.installed]

    def _asked(self) -> tuple[MemberId, ...]:
        """Return the wave that is asked now."""
        for wave in self.waves:
            if any(process not in self.reports for process in wave):
                return wave
        return ()

    def said(self) -> list[Effect]:
        """Return the messages of this step for the awaited processes."""
        return [message(process, self._line()) for process in self.awaited()]

    def _line(self) -> Ask | Decided:
        if self.decision is None:
            return Ask(self.change, self.present)
        return Decided(self.change, self.decision)


class Coordinator:
    """The changes that one process coordinates, one at a time.

    Promise: it decides only with the reports of all processes of the change, and has the view shown
    only when all have installed it. `attempt`: the change under way. `again_ms`: when it may begin
    the next one, after it was refused. Needs: `Membership` chooses the processes to ask, and
    restarts an attempt whose processes are gone.
    """

    def __init__(self, me: MemberId, stack: Sequence[Layer], names: Sequence[str]) -> None:
        self.me = me
        self.attempt: Attempt | None = None
        self.again_ms = 0
        self.refusals: dict[MemberId, int] = {}
        self.seen_round = 0
        self.changes = 0
        self._stack = stack
        self._names = names
        self._finished: ViewId | None = None

    def begin(self, waves: Sequence[Sequence[MemberId]], round_: int, now_ms: int) -> list[Effect]:
        """Begin a change above this round."""
        above = max(round_, self.seen_round)
        self.seen_round = above + 2 - above % 2
        self.changes += 1
        self.attempt = Attempt(ViewId(self.seen_round, self.me), waves, now_ms)
        return self.attempt.said()

    def give_up(self) -> None:
        """End the change under way; processes that promised it wait for another one."""
        self.attempt = None

    def told(self, told: Told, sender: MemberId, now_ms: int) -> list[Effect]:
        """Take the report of a process; decide if it was the last one."""
        attempt = self._attempt(told.change)
        if attempt is None or attempt.decision or sender not in attempt.present:
            return []
        was_asked = attempt.awaited()
        attempt.reports[sender] = told.report
        self.refusals.pop(sender, None)
        if len(attempt.reports) == len(attempt.present):
            return self._decide(attempt, now_ms)
        return attempt.said() if was_asked == [sender] else []

    def _decide(self, attempt: Attempt, now_ms: int) -> list[Effect]:
        ended = decide(attempt.change, attempt.reports, self._names)
        if isinstance(ended, Lagging):
            behind = Behind(attempt.change, ended.active)
            told: list[Effect] = [message(process, behind) for process in ended.processes]
            return [*told, *self.begin(attempt.waves, self.seen_round, now_ms)]
        attempt.decision = _with_summary(ended, self._merged(attempt))
        attempt.repeat_ms = now_ms + REPEAT_MS
        return attempt.said()

    def _merged(self, attempt: Attempt) -> dict[str, Any]:
        merged = {}
        for layer in self._stack:
            each = {
                process: report.summary[layer.name]
                for process, report in attempt.reports.items()
                if layer.name in report.summary
            }
            if each:
                merged[layer.name] = layer.merge(each)
        return merged

    def refused(self, refused: Refused, sender: MemberId, now_ms: int) -> list[Effect]:
        """Wait a little, and begin again above what the process has promised."""
        self.seen_round = max(self.seen_round, refused.round)
        if self._attempt(refused.change) is None:
            return []
        self.refusals[sender] = self.refusals.get(sender, 0) + 1
        self.give_up()
        self.again_ms = now_ms + REPEAT_MS
        return []

    def fetch(self, fetch: Fetch, sender: MemberId) -> list[Effect]:
        """Hand a request for frames on to the process that holds them."""
        attempt = self._attempt(fetch.change)
        if attempt is None or fetch.process != sender:
            return []
        source = holder(fetch.view, fetch.stream, attempt.reports)
        return [message(source, fetch)] if source else []

    def frames(self, frames: Frames) -> list[Effect]:
        """Hand frames on to the process that lacks them."""
        if self._attempt(frames.change) is None:
            return []
        return [message(frames.process, frames)]

    def installed(self, installed: Installed, sender: MemberId) -> list[Effect]:
        """Note that a process has installed the view; when all have, have it shown."""
        if installed.change == self._finished:
            return [message(sender, Show(installed.change))]  # the first one was lost
        attempt = self._attempt(installed.change)
        if attempt is None or attempt.decision is None:
            return []
        attempt.installed.add(sender)
        if attempt.installed != set(attempt.present):
            return []
        self._finished = attempt.change
        self.attempt = None
        # Itself last: the others are told before this process does anything in the new view.
        others = [process for process in attempt.present if process != self.me]
        return [message(process, Show(attempt.change)) for process in (*others, self.me)]

    def is_late(self, now_ms: int) -> bool:
        """Return whether the change under way takes too long."""
        return self.attempt is not None and now_ms >= self.attempt.began_ms + PATIENCE_MS

    def tick(self, now_ms: int) -> list[Effect]:
        """Repeat messages without an answer."""
        attempt = self.attempt
        if attempt is None or now_ms < attempt.repeat_ms:
            return []
        attempt.repeat_ms = now_ms + REPEAT_MS
        return attempt.said()

    def next_deadline_ms(self) -> int | None:
        if self.attempt is None:
            return None
        return min(self.attempt.repeat_ms, self.attempt.began_ms + PATIENCE_MS)

    def _attempt(self, change: ViewId) -> Attempt | None:
        if self.attempt is not None and self.attempt.change == change:
            return self.attempt
        return None


def _with_summary(decision: Decision, summary: dict[str, Any]) -> Decision:
    return Decision(
        decision.view,
        decision.sources,
        decision.flagged,
        decision.keep,
        decision.active,
        summary,
        decision.dead,
    )
