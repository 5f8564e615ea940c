"""The judge of a run of channels: histories in the end, and each view when it is shown."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from antiphon.checkers.peer_histories import (
    Delivery,
    End,
    Event,
    Receipt,
    Sending,
    Showing,
)
from antiphon.checkers.peer_views import check
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Changed
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.peers.process import Process


class Judge:
    """Keeps the history of a run.

    Promise: at each step it stops the run if a process is shown a view without itself, or one that
    is not above its last one, if a view means two things, or if a primary view does not follow all
    that were shown before it. Everything else is checked at the end (`judge`).
    """

    def __init__(self, promises: set[str], now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.histories: dict[MemberId, list[Event]] = {}
        self.times_us: dict[MemberId, list[int]] = {}
        """When each event happened."""

        self.changes: Counter[str] = Counter()
        """The views that were shown to anybody, by what was changed."""
        self.deliveries = 0
        self.showings = 0
        self.numbers_read = 0
        self.shown_us = 0
        """When anybody was shown a view last."""

        self.promises = promises
        self.views: dict[ViewId, PeerView] = {}
        self.leavers: set[MemberId] = set()
        self.dead: set[MemberId] = set()
        self._pasts: dict[ViewId, tuple[ViewId, ...]] = {}
        self._chains: dict[ViewId, list[ViewId]] = defaultdict(list)  # by their foundings
        self._newest: dict[ViewId, PeerView] = {}

    # -- Events --------------------------------------------------------------------------------

    def started(self, process: Process) -> None:
        self.histories[process.me] = []
        self.times_us[process.me] = []

    def _add(self, me: MemberId, event: Event) -> None:
        self.histories[me].append(event)
        self.times_us[me].append(self._now_us())

    def ended(self, me: MemberId, crashed: bool) -> None:
        self._add(me, End(crashed))
        self.dead.add(me)

    def sends(
        self, process: Process, number: int, level: Level, to: tuple[MemberId, ...] | None
    ) -> None:
        self._add(process.me, Sending(number, level, to))

    def received(self, process: Process, sender: MemberId, number: int) -> None:
        receipt = Receipt(sender, number, process.running.view.id)
        self._add(process.me, receipt)

    def delivered(self, process: Process, what: Delivered, sender: MemberId, number: int) -> None:
        if sender != what.sender:
            raise ViolationError(f"{process} delivers a message of {sender} from {what.sender}")
        self.deliveries += 1
        delivery = Delivery(sender, number, what.level, what.view, what.closing)
        self._add(process.me, delivery)

    def shown(self, process: Process, shown: Shown) -> None:
        view, changed = shown.view, shown.changed
        self.showings += 1
        self.shown_us = self._now_us()
        merged = tuple(one.id for one in changed.merged)
        together, past, founding = changed.together, changed.past, changed.founding
        showing = Showing(view, together, merged, past, founding, changed.origin)
        self._add(process.me, showing)
        if process.me not in view.members:
            raise ViolationError(f"inside: {process} is shown {view}, without it")
        known = self.views.setdefault(view.id, view)
        if known != view:
            raise ViolationError(f"one meaning: {view} is shown to {process}, and {known}")
        if known is view:
            self.changes[self._kind(view, changed)] += 1
        if view.primary and view.id not in self._pasts:
            self._follows(view, changed)

    def reads(self, process: Process, numbers: Mapping[MemberId, int]) -> None:
        """A program is shown numbers on the whiteboard; each process writes rising ones."""
        self.numbers_read += 1
        for other, number in numbers.items():
            before = process.numbers.get(other, 0)
            if number < before:
                raise ViolationError(
                    f"whiteboard: {process} is shown {number} of {other} after {before}"
                )

    # -- The chain -----------------------------------------------------------------------------

    def _follows(self, view: PeerView, changed: Changed) -> None:
        """Check that of all primary views shown, the older ones belong to the past of each; those
        of other foundings must have ended for good."""
        if view.seats and 2 * len({*view.seats} & {*view.members}) <= len(view.seats):
            raise ViolationError(f"seats: {view} has no majority of those who founded the group")
        founding = changed.founding
        assert founding is not None, f"{view} has no founding"
        self._pasts[view.id] = changed.past
        for other, newest in self._newest.items():
            if other != founding and not (self._is_over(newest) or self._is_over(view)):
                raise ViolationError(
                    f"one chain: {exactly(view.id)} is of the chain {exactly(founding)}, and "
                    f"{exactly(newest.id)} of {exactly(other)} was shown, too"
                )
        newest = self._newest.setdefault(founding, view)
        if newest.id < view.id:
            self._newest[founding] = view
        chain = self._chains[founding]
        at = bisect_left(chain, view.id)
        for older in chain[:at]:
            self._is_past(older, view.id)
        for newer in chain[at:]:
            self._is_past(view.id, newer)
        chain.insert(at, view.id)

    def _is_past(self, older: ViewId, newer: ViewId) -> None:
        past = self._pasts[newer]
        if older not in past and not (past and older < past[0]):
            after = " ".join(map(exactly, past)) or "nothing"
            raise ViolationError(
                f"one chain: {exactly(newer)} comes after {after}, and {exactly(older)} was shown, "
                "too"
            )

    def _is_over(self, view: PeerView) -> bool:
        """Whether no majority of the founders is left: there is no later primary view. Then a group
        with a list may be founded anew."""
        return 2 * sum(seat in self.dead for seat in view.seats) >= len(view.seats) > 0

    # -- Kinds of changes ----------------------------------------------------------------------

    def _kind(self, view: PeerView, changed: Changed) -> str:
        sources = changed.merged
        if view.primary and not changed.past:
            return "founded"
        if len(sources) == 1 and len(view.members) == 1 and view.id.round % 2:
            return "behind"
        if view.primary and not any(one.primary for one in sources):
            return "recovery"
        if not view.primary and any(one.primary for one in sources):
            return "minority"
        base = set(sources[0].members) if sources else set()
        others = [one for one in sources[1:] if one.id.round]
        gone, come = base - {*view.members}, {*view.members} - base
        if others:
            return f"merge of {min(len(sources), 4)}" + ("" if len(sources) < 4 else " and more")
        if gone and come:
            return "join and crash"
        if gone:
            return "leave" if gone <= self.leavers else "crash"
        return "join" if come else "same members"

    # -- The end -------------------------------------------------------------------------------

    def judge(self, complete: bool) -> None:
        """Check the whole history."""
        for finding in check(self.histories, self.promises, complete):
            raise ViolationError(str(finding))


def exactly(view: ViewId) -> str:
    """Return the id of a view with the life of its coordinator."""
    return f"{view}/{view.coordinator.incarnation}"
