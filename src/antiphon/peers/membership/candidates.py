"""The choice of a coordinator: an opinion that each process forms by itself, and tells the others.

Nothing here matters for safety. Each process *prefers* one as its coordinator: of those that it
hears and that hear it, itself included, the best one that prefers itself. So processes gather
around those that are the best of all that they hear, and each of these brings into a view whoever
prefers it. Without a process that all hear there are several such views, which leave each other
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from antiphon.model.peer_views import MemberId
from antiphon.peers.membership.messages import Here

Lead: TypeAlias = Literal["hears", "oldest", "highest"]
"""Who coordinates, and leads the view: who hears most (of these who leads already, then the
oldest); the oldest; who has the highest name."""

LEADS: tuple[Lead, ...] = get_args(Lead)

News: TypeAlias = Mapping[MemberId, Here]


def ranking(lead: Lead, news: News, hears: Callable[[MemberId], int]) -> Callable[[MemberId], Any]:
    """Return a key that sorts the best coordinator first; `hears`: how many a process hears."""

    def age(process: MemberId) -> tuple[Any, ...]:
        here = news[process]
        return (not here.primary, -here.size, here.view, here.place, process)

    def hearing(process: MemberId) -> tuple[Any, ...]:
        return (-hears(process), news[process].leader != process, *age(process))

    def name(process: MemberId) -> tuple[Any, ...]:
        letters = (*(-ord(letter) for letter in process.name), 1)
        return (letters, -process.incarnation)

    return {"hears": hearing, "oldest": age, "highest": name}[lead]


def preferred(
    me: MemberId, heard: Collection[MemberId], news: News, key: Callable[[MemberId], Any]
) -> MemberId | None:
    """Return the coordinator that this process wants: the best that wants to be it. None: it wants
    to leave, and nobody else is there."""
    candidates = [process for process in heard if _stands(process, news)]
    if not news[me].leaving:
        candidates.append(me)
    return min(candidates, key=key, default=None)


def _stands(process: MemberId, news: News) -> bool:
    here = news[process]
    return here.prefers == process and not here.leaving


def followers(
    me: MemberId, heard: Iterable[MemberId], news: News, refusing: Collection[MemberId]
) -> tuple[list[MemberId], list[MemberId]]:
    """Return who belongs into a view that this process coordinates: those who prefer it, and those
    who prefer a process that this one does not hear, so they may not know yet that it is gone."""
    heard = list(heard)
    sure = [process for process in heard if news[process].prefers == me]
    unsure = [
        process
        for process in heard
        if news[process].prefers not in (me, process)
        and news[process].prefers not in heard
        and process not in refusing
    ]
    return sure, unsure
