"""The status of groups, for an operator: `cluster status` and `antiphon group`."""

from __future__ import annotations

from itertools import islice

from antiphon.broker.machine import keys
from antiphon.broker.machine.groups.group import Group, Member
from antiphon.broker.machine.state import State
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names

GROUPS_MAX = 1000
"""Members beyond that are left out: a status is one answer, and has to fit into one frame."""

NOBODY = "?"


def groups(b: State) -> tuple[cw.GroupStatus, ...]:
    """Return the status of each group."""
    return tuple(_group(b, group) for group in islice(b.groups.values(), GROUPS_MAX))


def _group(b: State, group: Group) -> cw.GroupStatus:
    return cw.GroupStatus(
        names.parse(group.destination)[1],
        group.view,
        group.messages,
        group.remove_after_ms,
        tuple(_member(b, group, member) for member in group.members.values()),
    )


def _member(b: State, group: Group, member: Member) -> cw.MemberStatus:
    session = b.sessions.get(member.session)
    connected = session is not None and not session.detached
    return cw.MemberStatus(
        member.name,
        member.durable,
        member.joined,
        session.node if session is not None and connected else 0,
        member.suspected,
        _why(b, member, connected),
        _behind(b, group, member),
        group.serial - member.acked,
        (member.provider or NOBODY) if member.needs_state else "",
    )


def _why(b: State, member: Member, connected: bool) -> str:
    if connected and not member.suspected:
        return ""
    if member.shared and not (member.suspected or member.suspect_at):
        queue = b.queues.get(member.shared)
        consumers = sum(not c.closed for c in queue.takers.values()) if queue is not None else 0
        return f"shared by {consumers} consumers"
    if member.session == 0 and not member.suspected:
        return "closed in order, or invited and not come yet"
    gone = "its session is over, it gave up, or it never came"
    reason = "its connection is lost" if member.session else gone
    if (session := b.sessions.get(member.session)) is not None and session.held:
        reason = f"its server {session.node} is away"
    if member.suspect_at:
        return f"{reason}; suspected in {_seconds(b, member.suspect_at)}"
    if member.remove_at:
        return f"{reason}; removed in {_seconds(b, member.remove_at)}"
    return reason


def _seconds(b: State, stamp: int) -> str:
    """Return the seconds until then, in log time."""
    return f"{max(0, stamp - b.stamp) / 1000:.1f} s"


def _behind(b: State, group: Group, member: Member) -> int:
    """Return how many messages the member is behind, at most: those of other topics count too."""
    if member.shared:
        queue = b.queues.get(member.shared)
        return sum(last - first + 1 for first, last in queue.live()) if queue is not None else 0
    subscription = b.topics.subscriptions.get(keys.member(group.destination, member.name))
    if subscription is None:  # lost, and not durable: nothing is kept for it
        return 0
    return max(0, b.topics.last.get(group.destination, 0) - subscription.floor)
