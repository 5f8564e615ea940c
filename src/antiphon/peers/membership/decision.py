"""The decision of a change: whether its view is primary, and what belongs to the views that end.

The coordinator of a change has the reports of all processes of the change, who are frozen and take
part in no older change any more. Why the rules are these:
`docs/decisions/views-by-quorums-of-the-last-active-one.md`.

**Flagged.** Primary views form a chain, for each one needs a *quorum* (`is_quorum`) of the last
active one. What makes it hard is that nobody may know which one that is: a change can break off
when some have installed a flagged view and others have not. So a view is flagged if and only if its
change has a quorum of the highest view that is known to be active, *and* of each later flagged view
that may be active, too. A flagged view is active, and shown, only when all processes of its change
have installed it; so one that a process of the present change should have installed, and has not,
is dead: that process has promised this change, and will not install it any more.

**Cuts.** How much of each stream belongs to a view that ends:

- the active view that a flagged one follows: as the highest flagged view has it that follows it,
  too, since members may have shown that one; else all that any process of the change holds,
  also one that came through a minority: more cannot be committed;
- a primary view otherwise: what is known to be committed, for the next primary view has it, too;
- a view that is not primary: all that any of those holds who come from it.

A process that comes straight from a primary view that is not the active one has missed something:
it is *behind*, and has to show that before it goes on with the others (`Behind`). So has one that
comes from the active view, and has handed out more of it than a flagged view leaves to it that may
be active: of streams that `Uniform` does not hold back, a process that was not in that change may
have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from antiphon.model.peer_views import MemberId, PeerView, ViewId, is_quorum
from antiphon.peers.membership.records import (
    Decision,
    Flagged,
    Kept,
    Known,
    Marks,
    Report,
    Source,
)

Reports = Mapping[MemberId, Report]


class Lagging(NamedTuple):
    """These processes have to show first that they have missed the active view."""

    processes: tuple[MemberId, ...]
    active: Known | None


class Chain(NamedTuple):
    """The primary views of one founding, as far as they matter: the highest active one, and the
    later ones that may be active, in their order."""

    founding: ViewId
    active: Known | None
    attempts: tuple[Flagged, ...]

    @property
    def views(self) -> list[PeerView]:
        attempts = [flagged.view for flagged in self.attempts]
        return attempts if self.active is None else [self.active.view, *attempts]


class Basis(NamedTuple):
    """The reason why a view is primary: the chain that it continues; or, if it founds one (`chain`
    is None), who gets a seat."""

    chain: Chain | None
    seats: tuple[MemberId, ...] = ()


def decide(change: ViewId, reports: Reports, names: Sequence[str]) -> Decision | Lagging:
    """Return the end of a change. `names`: those who found the group, all together, by their names
    or by the addresses at which they listen; without names, the holder of the founding record
    does."""
    basis = _basis(reports, names)
    active = basis.chain.active if basis and basis.chain else None
    if basis:
        lagging = _lagging(reports, active, basis.chain)
        if lagging:
            return Lagging(lagging, active)
    sources = _sources(reports, active)
    members = tuple(
        member for source in sources for member in source.members if not reports[member].leaving
    )
    closed = tuple(
        Source(source.view, source.members, _cut(source, reports, basis)) for source in sources
    )
    known = tuple(chain.active for chain in _chains(reports) if chain.active)
    dead = _dead(reports)
    seats = basis.seats if basis else ()
    # A coordinator that leaves is not in the view that its change makes.
    leader = members[0] if reports[change.coordinator].leaving and members else change.coordinator
    learners = _learners(members, sources, reports, active) if basis and basis.chain else ()
    view = PeerView(change, members, leader, basis is not None, seats, learners)
    if basis is None:
        return Decision(view, closed, active=known, dead=dead)
    flagged = Flagged(
        view,
        basis.chain.founding if basis.chain else change,
        active.view.id if active else None,
        _cut_of_active(active, basis.chain, reports) if active else (),
        tuple(one.id for one in basis.chain.views) if basis.chain else (),
        tuple(reports),
    )
    return Decision(view, closed, flagged, active.view if active else None, known, dead=dead)


# -- Flagged -------------------------------------------------------------------------------------


def _basis(reports: Reports, names: Sequence[str]) -> Basis | None:
    """Return what makes the view of a change primary, or None."""
    able = {
        chain.views[-1].id: basis
        for chain in _chains(reports)
        if (basis := _continued(chain, reports, names))
    }
    return able[max(able)] if able else _founded(reports, names)


def _continued(chain: Chain, reports: Reports, names: Sequence[str]) -> Basis | None:
    if not chain.views or not all(is_quorum(view, reports) for view in chain.views):
        return None
    seats = _seats(chain, reports, names)
    staying = {process for process, report in reports.items() if not report.leaving}
    if seats and 2 * len(staying.intersection(seats)) <= len(seats):
        return None  # it could never commit anything
    if chain.active and all(reports[process].learns for process in staying):
        return None  # whoever has the state is leaving, and nobody else would count
    return Basis(chain, seats) if staying else None


def _active(reports: Reports) -> dict[ViewId, Known]:
    """Return the highest active view that is known of each founding."""
    active: dict[ViewId, Known] = {}
    for report in reports.values():
        for known in report.active:
            best = active.get(known.founding)
            if best is None or best.view.id < known.view.id:
                active[known.founding] = known
    return active


def _dead(reports: Reports) -> tuple[ViewId, ...]:
    """Return the flagged views that are above the active one of their founding, and can never be
    active: of their processes one has not installed them, and never will."""
    active = _active(reports)
    alive = {flagged.view.id for chain in _chains(reports) for flagged in chain.attempts}
    return tuple(
        sorted(
            {
                flagged.view.id
                for report in reports.values()
                for flagged in report.flagged
                if flagged.view.id not in alive
                and not (
                    (known := active.get(flagged.founding)) and flagged.view.id <= known.view.id
                )
            }
        )
    )


def _chains(reports: Reports) -> list[Chain]:
    """Return what the processes of a change know together, by founding."""
    active = _active(reports)
    installed = [flagged for report in reports.values() for flagged in report.flagged]
    attempts = {
        flagged.view.id: flagged
        for flagged in installed
        if _may_be_active(flagged, reports, active.get(flagged.founding))
        and not any(_rules_out(later, flagged) for later in installed)
    }
    foundings = {*active, *(flagged.founding for flagged in attempts.values())}
    return [
        Chain(
            founding,
            active.get(founding),
            tuple(attempts[id_] for id_ in sorted(attempts) if attempts[id_].founding == founding),
        )
        for founding in sorted(foundings)
    ]


def _may_be_active(flagged: Flagged, reports: Reports, active: Known | None) -> bool:
    """Whether a flagged view is later than the active one and not dead."""
    if active and flagged.view.id <= active.view.id:
        return False
    return all(
        any(installed.view.id == flagged.view.id for installed in reports[process].flagged)
        for process in flagged.present
        if process in reports
    )


def _rules_out(later: Flagged, flagged: Flagged) -> bool:
    """Whether the change of a later view has found out that this one is dead: an active one it
    would have counted."""
    return (
        later.founding == flagged.founding
        and later.view.id > flagged.view.id
        and flagged.view.id not in later.past
        and (later.basis is None or later.basis < flagged.view.id)
    )


def _seats(chain: Chain, reports: Reports, names: Sequence[str]) -> tuple[MemberId, ...]:
    """Return the seats of the next view: of a founder that came back its new life takes the seat.

    If that view becomes active, the new life has installed it, and is not fresh any more: it never
    founds the group anew.
    """
    heirs = {
        _place(process, reports): process
        for process in sorted(reports)
        if not reports[process].leaving and not reports[process].learns
    }
    seats = chain.views[-1].seats
    places = names if seats else ()  # the seats are in the order of those who founded the group
    return tuple(
        seat if seat in reports else heirs.get(place, seat)
        for seat, place in zip(seats, places, strict=True)
    )


def _learners(
    members: Sequence[MemberId],
    sources: Sequence[Source],
    reports: Reports,
    active: Known | None,
) -> tuple[MemberId, ...]:
    """Return the members that lack what the others have: those that say so, and those that do not
    come from the active view, of which something may have been handed out without them."""
    if active is None:
        return ()  # nothing was handed out in any primary view
    straight = {
        one for source in sources if source.view.id == active.view.id for one in source.members
    }
    return tuple(
        member
        for member in members
        if reports[member].learns or (reports[member].learns is False and member not in straight)
    )


def _place(process: MemberId, reports: Reports) -> str:
    """Return what a process is called in the list of founders."""
    return reports[process].place or process.name


def _founded(reports: Reports, names: Sequence[str]) -> Basis | None:
    if len(reports) == 1 and any(one.founder and not one.leaving for one in reports.values()):
        return Basis(None)  # alone: of a change of several the others may install what it has not
    attempts = {flagged.view.id for chain in _chains(reports) for flagged in chain.attempts}
    fresh = {
        _place(process, reports): process
        for process, report in reports.items()
        if not report.active
        and not report.leaving
        and not any(flagged.view.id in attempts for flagged in report.flagged)
    }
    if not names or not fresh.keys() >= set(names):
        return None
    return Basis(None, tuple(fresh[name] for name in names))


# -- Cuts ----------------------------------------------------------------------------------------


def _lagging(reports: Reports, active: Known | None, chain: Chain | None) -> tuple[MemberId, ...]:
    following = _following(active, chain) if active else None

    def lags(now: Kept) -> bool:
        if active is None or now.view.id != active.view.id:
            return True
        if following is None:
            return False
        return any(mine > last for mine, last in zip(now.committed, following.cut, strict=True))

    return tuple(
        process
        for process, report in reports.items()
        if report.now.view.primary and lags(report.now)
    )


def _sources(reports: Reports, active: Known | None) -> list[Source]:
    """Return the views that end, the one first that goes on, then the largest; each with its
    members in their order."""
    views = {report.now.view.id: report.now.view for report in reports.values()}
    sources = []
    for view in views.values():
        members = tuple(
            member
            for member in view.members
            if member in reports and reports[member].now.view.id == view.id
        )
        sources.append(Source(view, members, ()))
    first = active.view.id if active else None
    return sorted(
        sources,
        key=lambda one: (
            one.view.id != first,
            not one.view.primary,
            -len(one.members),
            one.view.id,
        ),
    )


def _cut(source: Source, reports: Reports, basis: Basis | None) -> Marks:
    view = source.view
    active = basis.chain.active if basis and basis.chain else None
    if basis and basis.chain and active and active.view.id == view.id:
        return _cut_of_active(active, basis.chain, reports)
    if view.primary:
        return _highest(view, (kept.committed for kept in _last(view, reports)))
    return _highest(view, (reports[member].now.held for member in source.members))


def _cut_of_active(active: Known, chain: Chain | None, reports: Reports) -> Marks:
    following = _following(active, chain)
    if following:
        return following.cut
    return _highest(active.view, (kept.held for kept in _last(active.view, reports)))


def _following(active: Known, chain: Chain | None) -> Flagged | None:
    """Return the highest flagged view that follows the active one, and may be active, too."""
    attempts = chain.attempts if chain else ()
    return next((one for one in attempts[::-1] if one.basis == active.view.id), None)


def _last(view: PeerView, reports: Reports) -> Iterable[Kept]:
    """Yield what is kept by those whose last primary view this is."""
    for report in reports.values():
        if report.last and report.last.view.id == view.id:
            yield report.last


def _highest(view: PeerView, marks: Iterable[Marks]) -> Marks:
    return tuple(map(max, zip((0,) * len(view.members), *marks, strict=True)))


# -- Whom to ask for frames ----------------------------------------------------------------------


def holder(
    view: ViewId, stream: MemberId, reports: Reports, but: Collection[MemberId] = ()
) -> MemberId | None:
    """Return the process that holds most of a stream."""
    best, most = None, 0
    for process, report in reports.items():
        for kept in (report.now, report.last):
            if kept is None or kept.view.id != view or process in but:
                continue
            held = kept.held[kept.view.members.index(stream)]
            if held > most:
                best, most = process, held
    return best
