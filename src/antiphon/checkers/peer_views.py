"""The promises of channels, as checks of whole histories (`peer_histories.py`).

This module has those of views; the orders of messages are in `orders.py`. Each function checks one
property and yields a sentence for each place where a history breaks it; `check` runs those that a
stack promises.

Prefix delivery is JBora's (3.5 of its report): a process that stays in the primary view misses no
message, and one that leaves it has missed the end at most, never one in the middle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import combinations, pairwise

from antiphon.checkers import orders
from antiphon.checkers.peer_histories import (
    Finding,
    History,
    Key,
    Life,
    Lives,
    Showing,
    Stay,
    told,
    told_all,
)
from antiphon.model.peer_views import MemberId, ViewId


def check(
    history: History, promises: Collection[str] | None = None, complete: bool = True
) -> list[Finding]:
    """Return all findings. `promises`: names of `CHECKS`, all if there are none. `complete`: the
    run has come to rest, and all that must happen eventually has happened."""
    lives = Lives(history, complete)
    return [
        finding
        for name, rule in CHECKS.items()
        if promises is None or name in promises
        for finding in rule(lives)
    ]


# -- Views by themselves ---------------------------------------------------------------------------


def inside(lives: Lives) -> Iterator[Finding]:
    """A process is in each of its views, and so are the senders of its deliveries there; each
    delivery is in the view that the process has."""
    for life in lives.lives.values():
        for stay in life.stays:
            if life.me not in stay.view.members:
                yield Finding("inside", f"{life} is shown {stay.view}, without it")
            if stay.view.leader not in stay.view.members:
                yield Finding("inside", f"{stay.view} is led by {stay.view.leader}")
            for delivery in stay.deliveries:
                what = f"{life} delivers {told((delivery.sender, delivery.number))}"
                if delivery.view != stay.view.id:
                    yield Finding("inside", f"{what} of {delivery.view} in {stay.view.id}")
                elif delivery.sender not in stay.view.members:
                    yield Finding("inside", f"{what} in {stay.view}, from outside")


def rising(lives: Lives) -> Iterator[Finding]:
    """The ids of a process's views rise."""
    for life in lives.lives.values():
        for stay in life.stays:
            if stay.following is not None and stay.following.id <= stay.view.id:
                text = f"{life} is shown {stay.following.id} after {stay.view.id}"
                yield Finding("rising", text)


def one_meaning(lives: Lives) -> Iterator[Finding]:
    """Views with the same id are the same: members, leader, flag and seats."""
    for stays in lives.views.values():
        first, view = stays[0][0], stays[0][1].view
        for life, stay in stays[1:]:
            if stay.view != view:
                text = f"{first} is shown {view}, and {life} {stay.view}"
                yield Finding("one meaning", text)


def together(lives: Lives) -> Iterator[Finding]:
    """The members that come together with a process into a view are in both views, itself among
    them; and two that get the view name each other if and only if they come from the same view.
    Hidden views, of which processes come by themselves, count as well."""
    for view, stays in lives.views.items():
        came = [
            (life, s.showing.origin or s.before.id, s.showing)
            for life, s in stays
            if s.before and s.showing
        ]
        for life, stay in stays:
            if (now := stay.showing) and life.me not in now.together:
                yield Finding("together", f"{life} comes to {now.view} with {_names(now)}")
            if now and stay.before and not {*now.together} <= _possible(life, stay):
                text = f"{life} comes from {stay.before} to {now.view} with {_names(now)}"
                yield Finding("together", text)
        for (life, origin, now), (other, other_origin, other_now) in combinations(came, 2):
            same = origin == other_origin
            if same and set(now.together) != set(other_now.together):
                text = (
                    f"{life} comes to {view} with {_names(now)}, {other} with {_names(other_now)}"
                )
                yield Finding("together", text)
            if not same and (other.me in now.together or life.me in other_now.together):
                text = f"{life} comes to {view} from {origin}, {other} from {other_origin}"
                yield Finding("together", text)


def _possible(life: Life, stay: Stay) -> set[MemberId]:
    """Return the members that may come together with a process to this view of it."""
    assert stay.before
    assert stay.showing
    hidden = stay.showing.origin not in (None, stay.before.id)
    return {*stay.view.members} & ({life.me} if hidden else {*stay.before.members})


def merges(lives: Lives) -> Iterator[Finding]:
    """All processes get the same merged views with a view, and each comes from one of these."""
    for view, stays in lives.views.items():
        told_of = [
            (life, s.before, s.showing) for life, s in stays if s.showing and s.showing.merged
        ]
        for life, before, now in told_of:
            first, _, its = told_of[0]
            if set(now.merged) != set(its.merged):
                text = (
                    f"{view} merges {_ids(its.merged)} for {first}, {_ids(now.merged)} for {life}"
                )
                yield Finding("merges", text)
            origin = now.origin or (before.id if before else None)
            if origin and origin not in now.merged:
                text = f"{life} comes to {view} from {origin}, and it merges {_ids(now.merged)}"
                yield Finding("merges", text)


def _ids(views: tuple[ViewId, ...]) -> str:
    return " ".join(map(str, views))


def _names(showing: Showing) -> str:
    return " ".join(map(str, showing.together)) or "nobody"


# -- Primary views ---------------------------------------------------------------------------------


def one_chain(lives: Lives) -> Iterator[Finding]:
    """All primary views form one chain: in the order of their ids, each follows the one before it,
    by the views that processes got one after the other, or that were merged, or by its past: views
    that may have been shown to processes of which no other one has heard. All views older than the
    first of its past count as that one's past. A group that was founded anew has a chain for each
    founding."""
    before = _predecessors(lives)
    chains: dict[ViewId | None, list[ViewId]] = defaultdict(list)
    for view, stays in sorted(lives.views.items()):
        if stays[0][1].view.primary:
            showing = stays[0][1].showing
            chains[showing.founding if showing else None].append(view)
    for earlier, later in (pair for chain in chains.values() for pair in pairwise(chain)):
        pasts = [stay.showing.past for _, stay in lives.views[later] if stay.showing]
        if any(past and earlier < past[0] for past in pasts):
            continue
        if not _comes_after(later, earlier, before):
            yield Finding("one chain", f"{later} is primary, and does not come after {earlier}")


def _predecessors(lives: Lives) -> dict[ViewId, set[ViewId]]:
    before: dict[ViewId, set[ViewId]] = defaultdict(set)
    for life in lives.lives.values():
        for stay in life.stays:
            if stay.following is not None:
                before[stay.following.id].add(stay.view.id)
            if stay.showing is not None:
                before[stay.view.id].update(stay.showing.merged, stay.showing.past)
    return before


def _comes_after(later: ViewId, earlier: ViewId, before: dict[ViewId, set[ViewId]]) -> bool:
    todo, seen = [later], {later}
    while todo:
        view = todo.pop()
        if view == earlier:
            return True
        more = before.get(view, set()) - seen
        seen |= more
        todo += more
    return False


# -- The ends of views -----------------------------------------------------------------------------


def virtual_synchrony(lives: Lives) -> Iterator[Finding]:
    """Processes that go from one view to the same next one have delivered the same messages in it.
    Once all has come to rest, this holds for processes that are in one view at the end, too."""
    for view, stays in lives.views.items():
        first: dict[ViewId | None, tuple[Life, frozenset[Key]]] = {}
        for life, stay in stays:
            onward = None if stay.following is None else stay.following.id
            if stay.missed or (onward is None and (life.ended or not lives.complete)):
                continue
            mine = frozenset((d.sender, d.number) for d in stay.deliveries if lives.is_for_all(d))
            other, its = first.setdefault(onward, (life, mine))
            if its != mine:
                odd = told(min(its ^ mine))
                who = f"only one of {other} and {life} delivers {odd} in {view}"
                yield Finding("virtual synchrony", f"{who}; both go on to {onward or 'the end'}")


def prefix(lives: Lives) -> Iterator[Finding]:
    """Of two members of a primary view: those with the same next view deliver the same sequence in
    it; if one's next view is primary, the other delivers the first part of its sequence, or all;
    if both are, one of the two sequences is the first part of the other (JBora 3.5)."""
    for view, stays in lives.views.items():
        if not stays[0][1].view.primary:
            continue
        onward = [(life, s, lives.ordered(s)) for life, s in stays if s.following is not None]
        for (life, stay, mine), (other, other_stay, its) in combinations(onward, 2):
            if not _is_prefix_delivery(stay, mine, other_stay, its):
                text = f"in {view} {life} delivers {told_all(mine)}, {other} {told_all(its)}"
                next_views = f"they go on to {stay.following} and {other_stay.following}"
                yield Finding("prefix", f"{text}; {next_views}")


def _is_prefix_delivery(stay: Stay, mine: list[Key], other: Stay, its: list[Key]) -> bool:
    assert stay.following is not None
    assert other.following is not None
    if stay.following.id == other.following.id and not (stay.missed or other.missed):
        return mine == its
    longer = mine if len(mine) > len(its) else its
    shorter = its if longer is mine else mine
    if stay.following.primary and not other.following.primary:
        longer, shorter = mine, its
    elif other.following.primary and not stay.following.primary:
        longer, shorter = its, mine
    elif not stay.following.primary:
        return True
    return longer[: len(shorter)] == shorter


def uniform(lives: Lives) -> Iterator[Finding]:
    """A message that any process, even one that crashes, delivers in a primary view is delivered
    there by all that go from it to another primary view."""
    for view, stays in lives.views.items():
        if not stays[0][1].view.primary:
            continue
        anybody = max((lives.ordered(stay) for _, stay in stays), key=len)
        for life, stay in stays:
            if stay.following is None or not stay.following.primary or stay.missed:
                continue
            mine = lives.ordered(stay)
            if mine[: len(anybody)] != anybody:
                text = f"{life} goes from {view} to {stay.following.id} with {told_all(mine)}"
                yield Finding("uniform", f"{text}; others delivered {told_all(anybody)}")


CHECKS: dict[str, Callable[[Lives], Iterator[Finding]]] = {
    "inside": inside,
    "rising": rising,
    "one meaning": one_meaning,
    "together": together,
    "merges": merges,
    "one chain": one_chain,
    "virtual synchrony": virtual_synchrony,
    "prefix": prefix,
    "uniform": uniform,
    "once": orders.once,
    "own": orders.own,
    "one view": orders.one_view,
    "fifo": orders.fifo,
    "causal": orders.causal,
    "total": orders.total,
    "safe": orders.safe,
}
"""All properties by name. A stack promises those of its layers."""
