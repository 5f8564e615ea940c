"""The side of a member in a change: it promises, tells what it has, fetches, installs, shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import (
    Changed,
    Closing,
    Down,
    Effect,
    Frame,
    Freeze,
    Header,
    Install,
    Layer,
    Tell,
)
from antiphon.peers.layers.views.transitional import Passing, Transitional
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
from antiphon.peers.membership.phases import Cause, Phase, next_phase
from antiphon.peers.membership.records import Decision, Kept, Known, Report, numbers
from antiphon.peers.membership.shelf import Shelf

FRAMES_BYTES = 256 * 1024
"""How much an answer to `Fetch` carries, unless one frame is longer."""
REPEAT_MS = 200
"""A member that waits repeats what it said last."""


class Left:
    """Told to the program: this process has left, its connections may be closed. `ends`: with it
    the group ends; all members of its primary view have left, or leave, too."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def __repr__(self) -> str:
        return "Left(ends)" if self.ends else "Left()"


def message(to: MemberId, header: Header) -> Down:
    """Return a header on its way to one process."""
    return Down(Frame(b"", (header,), control=True), (to,))


class Member:
    """One process in changes: what it knows of views, and has promised.

    Promise: it takes part in changes whose rounds rise, in one at a time, and shows a view only if
    it is active. What it installed it reports to every later change, until it knows of a later
    active view. `formed`: the last view that was formed with it, which is hidden if `hides` (only
    primary views are shown) and it is not primary. Needs: `Streams`, and a stack that carries out
    its effects at once.
    """

    def __init__(
        self, me: MemberId, view: PeerView, shelf: Shelf, stack: Sequence[Layer], hides: bool
    ) -> None:
        self.me = me
        self.view = view
        self.formed = view
        self.hides = hides
        self.phase = Phase.WAITING if hides else Phase.IN_VIEW
        self.promised = view.id
        self.seen_round = 0
        self.founder = False
        self.place = ""
        """The address among the founders' at which this process listens."""
        self.leaving = False
        self.wants_change = False  # a layer needs a new view, whoever its members are
        self.progress_ms = 0
        """When this process last took a step in a change."""
        self._shelf = shelf
        self._stack = stack
        self._active: dict[ViewId, Known] = {}
        self._installed: dict[ViewId, Decision] = {}
        self._decision: Decision | None = None
        self._alone: PeerView | None = None  # hidden: a primary view was missed meanwhile
        self._repeat_ms: int | None = None

    @property
    def wants(self) -> bool:
        """Whether the view should change though its members may stay."""
        shown = self.formed == self.view
        return (self.founder and not self.formed.primary) or (self.wants_change and shown)

    # -- Promising and telling -----------------------------------------------------------------

    def asked(self, ask: Ask, sender: MemberId, willing: bool, now_ms: int) -> list[Effect]:
        """Promise a change, unless a newer one is promised, and tell what there is."""
        change = ask.change
        if self.phase is Phase.OUT or self.me not in ask.present:
            return []
        if change == self.promised and self.phase is Phase.TOLD:
            return [self._tell(sender)]
        if change == self.promised:
            return []
        if change.round <= self.promised.round or not willing:
            return [message(sender, Refused(change, self.seen_round))]
        freeze: list[Effect] = [] if self._is_frozen() else [Freeze()]
        self._promise(change)
        self._enter(Cause.ASKED, now_ms)
        self._decision = self._repeat_ms = None
        return [*freeze, self._tell(sender)]

    def _promise(self, change: ViewId) -> None:
        self.promised = change
        self.seen_round = max(self.seen_round, change.round)

    def _tell(self, coordinator: MemberId) -> Effect:
        return message(coordinator, Told(self.promised, self.report()))

    def report(self) -> Report:
        """Return what this process has, for a change."""
        now = Kept(self._alone, (0,), (0,)) if self._alone else self._shelf.kept(self.view)
        last = self._shelf.kept(self._shelf.last) if self._shelf.last else None
        flagged = [one.flagged for one in self._installed.values() if one.flagged]
        summaries = {layer.name: layer.summary() for layer in self._stack}
        return Report(
            now,
            last,
            tuple(self._active.values()),
            tuple(flagged),
            self.founder,
            self.leaving,
            {name: summary for name, summary in summaries.items() if summary is not None},
            self.place,
            next((layer.learns for layer in self._stack if layer.learns is not None), None),
        )

    # -- Installing ----------------------------------------------------------------------------

    def decided(self, decided: Decided, sender: MemberId, now_ms: int) -> list[Effect]:
        """Take the end of the promised change, and fetch what is missing."""
        if decided.change != self.promised or self.phase is not Phase.TOLD:
            return []
        decision = decided.decision
        self._decision = decision
        for known in decision.active:
            self._learn(known)
        for dead in decision.dead:
            self._installed.pop(dead, None)
        keep = decision.keep
        if keep and self.me in keep.members and self._shelf.last != keep:
            self._shelf.adopt(keep)
        if self._lacks():
            self._enter(Cause.LACKING, now_ms)
            return self._fetch(now_ms)
        return self._complete(now_ms)

    def _lacks(self) -> list[tuple[PeerView, MemberId, int, int]]:
        """Return the frames that belong to the change, and are missing."""
        decision = self._decision
        assert decision is not None
        wanted = []
        source = decision.source_of(self.me)
        if source and not self._alone and self._closes(decision):
            wanted.append((source.view, source.cut))
        if decision.keep and decision.flagged and decision.keep == self._shelf.last:
            wanted.append((decision.keep, decision.flagged.cut))
        lacks = {
            (view.id, stream): (view, stream, first, last)
            for view, cut in wanted
            for stream, first, last in self._shelf.lacks(view, cut)
        }
        return list(lacks.values())

    def _closes(self, decision: Decision) -> bool:
        """Whether the present view ends with this decision; a hidden view ends nothing."""
        return decision.view.primary or not self.hides

    def _fetch(self, now_ms: int) -> list[Effect]:
        self._repeat_ms = now_ms + REPEAT_MS
        coordinator = self.promised.coordinator
        return [
            message(coordinator, Fetch(self.promised, self.me, view.id, stream, first, last))
            for view, stream, first, last in self._lacks()
        ]

    def fetched(self, frames: Frames, now_ms: int) -> list[Effect]:
        """Take frames that were missing."""
        if frames.change != self.promised or self.phase is not Phase.FETCHING:
            return []
        self.progress_ms = now_ms
        self._shelf.add(frames.view, frames.stream, frames.first, frames.frames)
        lacks = self._lacks()
        if not lacks:
            return self._complete(now_ms)
        return [
            message(
                self.promised.coordinator,
                Fetch(self.promised, self.me, view.id, stream, first, last),
            )
            for view, stream, first, last in lacks
            if (view.id, stream) == (frames.view, frames.stream) and frames.frames
        ]

    def read(self, fetch: Fetch, sender: MemberId) -> list[Effect]:
        """Answer the coordinator with frames that another process lacks."""
        if fetch.change != self.promised or self.phase in (Phase.IN_VIEW, Phase.OUT):
            return []
        frames = _as_many_as_fit(
            self._shelf.read(fetch.view, fetch.stream, fetch.first, fetch.last)
        )
        return [
            message(
                sender,
                Frames(fetch.change, fetch.process, fetch.view, fetch.stream, fetch.first, frames),
            )
        ]

    def _complete(self, now_ms: int) -> list[Effect]:
        decision = self._decision
        assert decision is not None
        self._enter(Cause.COMPLETE, now_ms)
        if decision.flagged:
            self._installed[self.promised] = decision
            if decision.flagged.founding == self.promised:
                self.founder = False
        self._repeat_ms = now_ms + REPEAT_MS
        return [message(self.promised.coordinator, Installed(self.promised))]

    # -- Showing -------------------------------------------------------------------------------

    def show(self, show: Show, now_ms: int) -> list[Effect]:
        """Show the view of the promised change."""
        if show.change != self.promised or self.phase is not Phase.INSTALLED:
            return []
        decision = self._decision
        assert decision is not None
        self._repeat_ms = None
        if self.leaving and self.me not in decision.view.members:
            return self.left(now_ms)
        if not self._closes(decision):
            self.formed = decision.view
            self._enter(Cause.HIDDEN, now_ms)
            return self._pass(decision)
        self._enter(Cause.SHOWN, now_ms)
        return [self._install(decision)]

    def _install(self, decision: Decision) -> Install:
        source = decision.source_of(self.me)
        assert source is not None
        cut = self._shelf.kept(self.view).committed if self._alone else source.cut
        merged = tuple(one.view for one in decision.sources)
        together = self._together(decision)
        closing = Closing(self.view.id, numbers(self.view, cut), together)
        changed = Changed(together, merged, origin=source.view.id)
        if decision.flagged:
            past, founding = decision.flagged.past, decision.flagged.founding
            changed = changed._replace(past=past, founding=founding)
            self._learn(Known(decision.view, decision.flagged.founding))
            self.founder = False  # it has its primary view, and may found no other one later
        return self._installation(closing, decision.view, decision.summary, changed)

    def _pass(self, decision: Decision) -> list[Effect]:
        """Have the program told of a hidden view, if it wants transitional views."""
        if not any(isinstance(layer, Transitional) for layer in self._stack):
            return []
        return [Tell(Passing(self.view.id, self._together(decision)))]

    def _together(self, decision: Decision) -> tuple[MemberId, ...]:
        """Return those who come from the same view as this process, and go to the next one."""
        source = decision.source_of(self.me)
        assert source is not None
        return tuple(one for one in source.members if one in decision.view.members)

    def _installation(
        self, closing: Closing, view: PeerView, summary: Mapping[str, Any], changed: Changed
    ) -> Install:
        self.view = self.formed = view
        self.wants_change = False
        self._alone = None
        self._shelf.shown(view)
        return Install(closing, view, summary, changed)

    def _learn(self, known: Known) -> None:
        """Learn that a view is active: older ones of its chain matter no more."""
        before = self._active.get(known.founding)
        if before and before.view.id >= known.view.id:
            return
        self._active[known.founding] = known
        self._installed = {
            change: decision
            for change, decision in self._installed.items()
            if decision.flagged
            and (decision.flagged.founding != known.founding or change > known.view.id)
        }

    # -- Being behind --------------------------------------------------------------------------

    def behind(self, behind: Behind, now_ms: int) -> list[Effect]:
        """Show the active view, if it was installed from the present one; else that this process
        was alone meanwhile. Who leaves, and is not in that view, has left."""
        if behind.change != self.promised or self.phase is not Phase.TOLD:
            return []
        active = behind.active
        decision = self._installed.get(active.view.id) if active else None
        if active:
            self._learn(active)
        source = decision.source_of(self.me) if decision else None
        if decision and source and source.view == self.view:
            if self.leaving and self.me not in decision.view.members:
                return self.left(now_ms)
            self._enter(Cause.BEHIND, now_ms)
            return [self._install(decision)]
        return self._show_alone(now_ms)

    def _show_alone(self, now_ms: int) -> list[Effect]:
        # Between this change and the next one, whose rounds are even.
        alone = ViewId(self.promised.round + 1, self.me)
        self._promise(alone)
        view = PeerView(alone, (self.me,), self.me)
        if self.hides:
            self.formed = self._alone = view
            self._enter(Cause.MISSED, now_ms)
            return []
        self._enter(Cause.BEHIND, now_ms)
        cut = numbers(self.view, self._shelf.kept(self.view).committed)
        closing = Closing(self.view.id, cut, (self.me,))
        mine = self.report().summary
        summary = {
            layer.name: layer.merge({self.me: mine[layer.name]})
            for layer in self._stack
            if layer.name in mine
        }
        changed = Changed((self.me,), (self.view,), origin=self.view.id)
        return [self._installation(closing, view, summary, changed)]

    def left(self, now_ms: int, ends: bool = False) -> list[Effect]:
        """End; `ends`: see `Left`."""
        if self.phase is Phase.OUT:
            return []
        self._enter(Cause.LEFT, now_ms)
        return [Tell(Left(ends))]

    # -- Time ----------------------------------------------------------------------------------

    def comes(self, piece_ms: int) -> None:
        """A piece of a large frame has come from the coordinator then: what is missing may be on
        its way, and is not asked for again meanwhile."""
        if self.phase is Phase.FETCHING and piece_ms > self.progress_ms:
            self.progress_ms = piece_ms
            self._repeat_ms = piece_ms + REPEAT_MS

    def tick(self, now_ms: int) -> list[Effect]:
        """Repeat what may have been lost."""
        if self._repeat_ms is None or self._repeat_ms > now_ms:
            return []
        if self.phase is Phase.FETCHING:
            return self._fetch(now_ms)
        if self.phase is Phase.INSTALLED:
            self._repeat_ms = now_ms + REPEAT_MS
            return [message(self.promised.coordinator, Installed(self.promised))]
        self._repeat_ms = None
        return []

    def next_deadline_ms(self) -> int | None:
        return self._repeat_ms

    def _enter(self, cause: Cause, now_ms: int) -> None:
        self.phase = next_phase(self.phase, cause)
        self.progress_ms = now_ms

    def _is_frozen(self) -> bool:
        return self.phase is not Phase.IN_VIEW


def _as_many_as_fit(frames: Sequence[bytes]) -> tuple[bytes, ...]:
    size = 0
    taken: list[bytes] = []
    for frame in frames:
        size += len(frame)
        if taken and size > FRAMES_BYTES:
            break
        taken.append(bytes(frame))
    return tuple(taken)
