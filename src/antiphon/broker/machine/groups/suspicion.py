"""Suspicion: members lose their connections, are suspected, and come back.

Promise: the presence of a member (`presence.py`) changes by `change` alone, which sets its deadline
and announces a suspicion that begins or is withdrawn. Suspicion is not exclusion: removals are in
`membership.py`.
"""

from __future__ import annotations

from antiphon.broker.machine.deadlines import GROUP, GroupKey
from antiphon.broker.machine.groups import state_requests, views
from antiphon.broker.machine.groups.group import Group, Member
from antiphon.broker.machine.groups.presence import Cause, Presence
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.formats import protocol as cw

SUSPECT_MS = 1000
"""A member that has been without a connection for this long is suspected."""

NEVER = 0


def detached(b: State, session: Session) -> None:
    """Cut off the members of a session whose connection is lost; they are suspected if it does not
    come back."""
    for group, member in _members_of(b, session):
        cut_off(b, group, member)


def attached(b: State, session: Session) -> None:
    """Make the members of a session present, for it has a connection again."""
    for group, member in _members_of(b, session):
        back(b, group, member)
        state_requests.review(b, group)


def _members_of(b: State, session: Session) -> list[tuple[Group, Member]]:
    found = []
    for consumer in session.consumers.values():
        group = b.groups.get(consumer.destination)
        member = group.member_of(session.number, consumer.number) if group else None
        if group is not None and member is not None:
            found.append((group, member))
    return found


def cut_off(b: State, group: Group, member: Member) -> None:
    """Cut off a member that is without a connection; it is suspected if it does not come back."""
    suspect_at = member.suspect_at or b.stamp + SUSPECT_MS
    change(b, group, member, Cause.DISCONNECTED, suspect_at=suspect_at)


def back(b: State, group: Group, member: Member) -> None:
    """Make a member present, for it has a connection; a suspicion is withdrawn."""
    change(b, group, member, Cause.CONNECTED)


def lost_shared(b: State, group: Group, member: Member) -> None:
    """Note that the sessions of all consumers that divided its messages are lost."""
    change(b, group, member, Cause.SESSION_LOST)


def closed_shared(b: State, group: Group, member: Member) -> None:
    """Note that all consumers that divided its messages are closed. It is durable: it is inactive,
    and stays."""
    change(b, group, member, Cause.CLOSED)


def change(
    b: State,
    group: Group,
    member: Member,
    cause: Cause,
    *,
    session: int = 0,
    consumer: int = 0,
    suspect_at: int = 0,
) -> None:
    """Change the presence of a member, set its deadline, and announce a suspicion that begins or is
    withdrawn."""
    before, was_suspected = member.suspect_at, member.suspected
    member.change(cause, session=session, consumer=consumer, suspect_at=suspect_at)
    if member.suspect_at not in (0, before):
        set_deadline(b, group, member.name, member.suspect_at)
    if was_suspected and not member.suspected:
        views.announce(b, group, cw.SUSPICION, went=(member.name,))
    elif member.suspected and not was_suspected:
        remove_later(b, group, member)
        views.announce(b, group, cw.SUSPICION, came=(member.name,))
        state_requests.review(b, group)


def remove_later(b: State, group: Group, member: Member) -> None:
    member.remove_later(0)
    if not member.durable and group.remove_after_ms != NEVER:
        member.remove_later(b.stamp + group.remove_after_ms)
        set_deadline(b, group, member.name, member.remove_at)


def set_deadline(b: State, group: Group, name: str, stamp: int) -> None:
    b.deadlines.add(stamp, GROUP, GroupKey(group.destination, name))


def renew(b: State) -> None:
    """Begin suspicions' deadlines again, for there is a new leader: while there was none, no member
    could come back."""
    for group in b.groups.values():
        for member in group.members.values():
            if member.presence is Presence.CUT_OFF:
                change(b, group, member, Cause.NEW_LEADER, suspect_at=b.stamp + SUSPECT_MS)
            elif member.remove_at:
                member.remove_later(b.stamp + group.remove_after_ms)
                set_deadline(b, group, member.name, member.remove_at)
