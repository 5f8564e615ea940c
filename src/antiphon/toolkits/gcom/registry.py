"""What a name service decides: which group has which leader and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from antiphon.toolkits.gcom.settings import Connect, GroupSettings, Lead, Leave, Look, Request

LEASE_S = 2.0
"""A leader that has not told of itself for this long may be replaced by one that does: it has
crashed, or is cut off from the name service."""

FORGET_S = 5.0
"""A group whose leader has left, and for which no other one has told of itself for this long, has
ended: all have left at once."""


class Known(NamedTuple):
    """A group, and when its leader told of itself last, or that it has left then."""

    settings: GroupSettings
    told_s: float
    left: bool = False


Groups: TypeAlias = Mapping[str, Known]


def decide(groups: Groups, request: Request, now_s: float) -> tuple[Groups, GroupSettings | None]:
    """Return the groups as they are after this request, and the answer: the settings that the group
    has from now on; None: there is no such group.

    The settings of a group that is there win over those of a process that comes later. A process
    that leads a view of the group becomes its leader here if the one that was known is a member of
    that view, and so agrees, or has not told of itself for `LEASE_S`. Of the two sides of a
    partition, each with a leader of its own, the one whose leader is known stays the group.
    """
    name = request.group if isinstance(request, Look | Leave) else request.settings.name
    known = groups.get(name)
    if known is not None and known.left and now_s >= known.told_s + FORGET_S:
        known = None
    match request:
        case Connect(settings) if known is None:
            return {**groups, name: Known(settings, now_s)}, settings
        case Lead(settings, members) if known is None or _yields(known, settings, members, now_s):
            return {**groups, name: Known(settings, now_s)}, settings
        case Leave(leader=leader, last=last) if known and known.settings.leader == leader:
            rest = {group: each for group, each in groups.items() if group != name}
            return (rest if last else {**rest, name: Known(known.settings, now_s, True)}), None
    return groups, known.settings if known else None


def _yields(known: Known, settings: GroupSettings, members: Sequence[str], now_s: float) -> bool:
    """Whether the leader that is known gives way to another one, or is the same."""
    leader = known.settings.leader
    return leader in (settings.leader, *members) or known.left or now_s >= known.told_s + LEASE_S
