"""Membership of groups: joins, leaves, removals, invitations (thesis, ch. 4).

A join, a leave, a removal, a suspicion is an entry of the log; it leads to a *group event* between
the same two messages for every member, so all see it at the same place (P4). Events are numbered in
their group and kept until every member has acknowledged them.

**Suspicion is not exclusion.** A member whose connection is lost is suspected if it has not come
back in a while; the suspicion is withdrawn when it does. Members decide what follows
(`JMS_remove`), or the group's `remove_after` does, for non-durable members. A durable member is
never removed because it crashed: it stays in the view and misses nothing.
"""

from __future__ import annotations

import msgspec

from antiphon.broker.machine import keys
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.deadlines import GroupKey
from antiphon.broker.machine.groups import state_requests, suspicion, views
from antiphon.broker.machine.groups.group import REMOVE_AFTER_MS, Group, Member
from antiphon.broker.machine.groups.presence import Cause, Presence
from antiphon.broker.machine.keys import SubscriptionKey
from antiphon.broker.machine.ranges import Span
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.broker.machine.topics import Subscription
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, decode_extra
from antiphon.model import destinations as names
from antiphon.model.conflicts import ConflictRelation

AS_IT_IS = -1
MEMBERS_MAX = 1000

KEPT_MS = 3_600_000
"""A group that was named and has no members is kept for this long: consumers that know it as a
topic may come later. One that had members goes with the last of them."""


# -- Requests --------------------------------------------------------------------------------------


def create(b: State, m: cw.CreateGroup) -> tuple[int, bytes]:
    """Create a group, or take it as it is; raise if its options differ from those in the
    request."""
    if m.relation:
        check_relation(m.relation)
    group = b.groups.get(m.destination) or _new(b, m.destination)
    if m.relation and group.relation_given and m.relation != group.relation:
        raise IllegalStateError(
            f"the group {m.destination!r} has the conflict relation {group.relation}, "
            f"not {m.relation}. Leave it out, or change it with set_conflict"
        )
    after_ms = group.remove_after_ms
    if group.remove_after_given and m.remove_after_ms not in (AS_IT_IS, after_ms):
        raise IllegalStateError(
            f"the group {m.destination!r} has remove_after={_told(after_ms)}, "
            f"not {_told(m.remove_after_ms)}. Leave it out"
        )
    _give(b, group, m.relation, m.remove_after_ms)
    if not group.members:
        group.keep(b.stamp + KEPT_MS)
        suspicion.set_deadline(b, group, "", group.kept_until)
    return group.view, group.relation.encode()


def _new(b: State, destination: str) -> Group:
    """Create a group with the default settings."""
    kind, name = names.parse(destination)
    if kind != names.TOPIC or names.is_pattern(name):
        raise InvalidDestinationError(f"{destination!r} cannot be a group: a group is a topic")
    used = b.topics.is_used(destination) or b.queues.is_shared(destination)
    if used or destination in b.last_values:
        raise InvalidDestinationError(
            f"{destination!r} is in use as a plain topic, and what a name is, is fixed"
        )
    group = Group(destination, ConflictRelation.ATOMIC.to_json(), REMOVE_AFTER_MS)
    b.groups.add(group)
    return group


def _told(remove_after_ms: int) -> str:
    """Return this time as `create_group` takes it: seconds, or None for never."""
    return f"{remove_after_ms / 1000:g}" if remove_after_ms > suspicion.NEVER else "None"


def _give(b: State, group: Group, relation: str, remove_after_ms: int) -> None:
    """Fix the options of a group. The first request that gives any fixes all of them, those left
    out at their defaults; a request that gives none takes the group as it is."""
    if not relation and remove_after_ms == AS_IT_IS:
        return
    if relation and not group.relation_given:
        _relate(b, group, relation)
    if remove_after_ms != AS_IT_IS and not group.remove_after_given:
        group.remove_after(max(suspicion.NEVER, remove_after_ms))
        for member in group.members.values():
            if member.suspected:
                suspicion.remove_later(b, group, member)
    group.fix_options()


def _relate(b: State, group: Group, relation: str) -> None:
    if group.relate(relation) and group.members:
        views.announce(b, group, cw.RELATION)


def check_relation(relation: str) -> None:
    """Raise if this is not a conflict relation."""
    try:
        ConflictRelation.from_json(relation)
    except FormatError as error:
        raise IllegalStateError(str(error)) from None


def join(b: State, session: Session, m: cw.Join) -> tuple[int, bytes]:
    """Make a consumer a member; a durable member that comes back is the same one."""
    name = m.name or f"{session.number:x}.{m.consumer:x}"
    _check_name(name)
    if m.relation:
        check_relation(m.relation)
    group = b.groups.get(m.destination) or _new(b, m.destination)
    old = group.members.get(name)
    if old is not None and not _may_take_over(old):
        raise IllegalStateError(
            f"cannot join {group.destination!r} as {name!r}: a live member has that name. Nothing "
            "was changed. Choose another name, or close that member first"
        )
    if old is not None and old.durable and m.durable:
        _check_home(b, group, old)
        _resume(b, group, old, session, m)
    else:
        _give(b, group, m.relation, m.remove_after_ms)
        _enter(b, group, name, old, session, m)
    waits = group.members[name].needs_state
    data = (name, group.relation, tuple(group.members), waits)
    return group.view, msgspec.msgpack.encode(data)


def _check_home(b: State, group: Group, old: Member) -> None:
    """Raise if, with local contexts, its former server alone knows how far it was."""
    before = b.sessions.get(old.session)
    if before is not None and before.held:
        raise IllegalStateError(
            f"cannot join {group.destination!r} as {old.name!r}: server {before.node} alone knows "
            "how far that member was, and is away. Nothing was changed. Wait until it is back, or "
            "remove it from the cluster"
        )


def _check_name(name: str) -> None:
    if not _is_name(name):
        raise IllegalStateError(
            f"{name[:80]!r} is not a name for a member: 1 to {names.NAME_MAX} characters, no blanks"
        )


def _is_name(name: str) -> bool:
    return name.isprintable() and " " not in name and 0 < len(name) <= names.NAME_MAX


def _may_take_over(old: Member) -> bool:
    if old.shared:
        return old.suspected and not old.durable
    return old.suspected or old.session == 0


def _resume(b: State, group: Group, old: Member, session: Session, m: cw.Join) -> None:
    """Let a durable member come back: the same one, in the same view."""
    subscription = b.topics.subscriptions[keys.member(group.destination, old.name)]
    before = b.sessions.get(old.session)
    consumer = before.forget(old.consumer) if before is not None else None
    if consumer is not None:  # of the session that lost it, which may have seen any number
        subscription.lose(b.position, consumer.seen_most)
        state_requests.gone(b, group, old)
    old.provide(m.provides)
    subscription.serve((session.number, m.consumer))
    _add_consumer(session, m, keys.member(group.destination, old.name))
    suspicion.change(b, group, old, Cause.COMES, session=session.number, consumer=m.consumer)
    state_requests.comes_back(group, old, m.takes_state)
    state_requests.review(b, group)


def _enter(
    b: State, group: Group, name: str, old: Member | None, session: Session, m: cw.Join
) -> None:
    """Add a new member; perhaps in the place of one that was lost, which leaves with the same
    view."""
    if old is None and len(group.members) >= MEMBERS_MAX:
        raise ResourceAllocationError(f"a group has at most {MEMBERS_MAX} members")
    if old is not None:
        _drop(b, group, old)
    key = keys.member(group.destination, name)
    subscription = Subscription(key, m.durable, group.destination, "", b.position)
    subscription.serve((session.number, m.consumer))
    b.topics.add(subscription)
    _add_consumer(session, m, key)
    view = group.view + 1
    new = Member(name, m.durable, view, session.number, m.consumer, m.provides, group.serial)
    group.enter(new)
    state_requests.comes(group, new, m.takes_state)
    views.new_view(b, group, came=(name,), went=(name,) if old is not None else ())


def enter_shared(b: State, group: Group, name: str, queue: str, durable: bool) -> None:
    """Make a shared subscription a member, which needs no state."""
    _check_name(name)
    old = group.members.get(name)
    if old is None and len(group.members) >= MEMBERS_MAX:
        raise ResourceAllocationError(f"a group has at most {MEMBERS_MAX} members")
    if old is not None:
        _drop(b, group, old)
    view = group.view + 1
    group.enter(Member(name, durable, view, 0, 0, False, group.serial, shared=queue))
    views.new_view(b, group, came=(name,), went=(name,) if old is not None else ())


def _add_consumer(session: Session, m: cw.Join, key: SubscriptionKey) -> None:
    session.open(Consumer(session.number, m.consumer, m.destination, m.prefetch, "spill", key))


def leave(b: State, session: Session, consumer: Consumer) -> None:
    """Remove a consumer's member, of either kind."""
    group = b.groups[consumer.destination]
    member = group.member_of(session.number, consumer.number)
    if member is None:
        _forget_departed(b, group, session, consumer)
        return
    part(b, group, member)


def part(b: State, group: Group, member: Member) -> None:
    """Remove a member with a view."""
    _drop(b, group, member)
    views.new_view(b, group, went=(member.name,))


# -- Members close, and are lost -------------------------------------------------------------------


def closed(b: State, session: Session, consumer: Consumer, kept: list[Span]) -> None:
    """Take the orderly end of a consumer: a non-durable member has left, a durable one is inactive
    and stays a member. Messages that it saw and has not acknowledged come again when it is back."""
    group = b.groups[consumer.destination]
    member = group.member_of(session.number, consumer.number)
    if member is not None and member.durable:
        subscription = b.topics.subscriptions[keys.member(group.destination, member.name)]
        subscription.serve(None)
        state_requests.gone(b, group, member)
        subscription.give_back(kept)
        suspicion.change(b, group, member, Cause.CLOSED)
        session.forget(consumer.number)
        state_requests.review(b, group)
    elif member is not None:
        leave(b, session, consumer)
    else:
        _forget_departed(b, group, session, consumer)
    group.trim()


def _forget_departed(b: State, group: Group, session: Session, consumer: Consumer) -> None:
    group.forget_departed(session.number, consumer.number)
    session.forget(consumer.number)
    b.topics.discard(consumer.subscription)
    b.groups.touch(group.destination)


def lost(b: State, session: Session, consumer: Consumer, seen: int) -> None:
    """Take the loss of a member's session. A non-durable member stays in the view until it is
    removed, but nothing is kept for it. `seen`: the number of messages that it may have seen at
    most."""
    group = b.groups[consumer.destination]
    member = group.member_of(session.number, consumer.number)
    if member is None:
        _forget_departed(b, group, session, consumer)
        return
    session.forget(consumer.number)
    subscription = b.topics.subscriptions[keys.member(group.destination, member.name)]
    subscription.serve(None)
    if member.durable:
        subscription.lose(b.position, seen)
        state_requests.gone(b, group, member)
    else:
        b.topics.remove(subscription.key)
    suspicion.change(b, group, member, Cause.SESSION_LOST)
    state_requests.review(b, group)
    group.trim()


def due(b: State, key: GroupKey) -> None:
    """Take a deadline of a member, or of the group itself."""
    group = b.groups[key.destination]
    if not key.member:
        group.keep(0)
        b.groups.touch(key.destination)
        return
    member = group.members[key.member]
    if member.presence is Presence.CUT_OFF:
        suspicion.change(b, group, member, Cause.TIME_OVER)
    else:
        _remove(b, group, [member])


# -- Messages for the group itself -----------------------------------------------------------------


def control(b: State, group: Group, payload: bytes) -> None:
    """Carry out messages for the group itself, which are not delivered (thesis, tables 4.2 and
    6.5)."""
    columns = Columns(payload)
    for i in range(columns.count):
        extra = decode_extra(columns.extra(i))
        properties = extra.properties
        view = properties.get("JMS_in_view")
        upto = view if isinstance(view, int) else group.view
        if isinstance(remove := properties.get("JMS_remove"), str):
            _remove(b, group, _named(group, remove, upto))
        if isinstance(invite := properties.get("JMS_join_process"), str):
            _invite(b, group, invite.split(), properties.get("JMS_subscription") == "durable")
        if "JMS_set_conflict" in properties:
            _set_relation(b, group, columns.body(i))


def _named(group: Group, text: str, upto: int) -> list[Member]:
    """Return the members with these names that had joined by this view."""
    wanted = dict.fromkeys(text.split())
    return [
        group.members[n] for n in wanted if n in group.members and group.members[n].joined <= upto
    ]


def _remove(b: State, group: Group, members: list[Member]) -> None:
    if not members:
        return
    for member in members:
        session = b.sessions.get(member.session)
        consumer = session.consumers.get(member.consumer) if session is not None else None
        if consumer is not None:
            _set_apart(b, group, member, consumer)
            group.depart(member)
            state_requests.left(group, member)
        else:
            _drop(b, group, member)
    views.new_view(b, group, went=tuple(m.name for m in members))


def _set_apart(b: State, group: Group, member: Member, consumer: Consumer) -> None:
    """Give a removed member a subscription of its own: it gets the messages before its removal, and
    none of the next member with its name."""
    apart = keys.departed(group.destination, consumer.session, consumer.number)
    consumer.set_apart(apart)
    subscription = b.topics.rename(keys.member(group.destination, member.name), apart)
    subscription.end(b.position)


def _invite(b: State, group: Group, invited: list[str], durable: bool) -> None:
    """Add members that have not come yet to the view. All messages from now on are kept for durable
    ones. Others are suspected until they come, and then take their own place: nothing is kept for
    them, as for any absent member."""
    new = [n for n in dict.fromkeys(invited) if n not in group.members and _is_name(n)]
    came = tuple(new[: MEMBERS_MAX - len(group.members)])
    for name in came:
        if durable:
            key = keys.member(group.destination, name)
            b.topics.add(Subscription(key, True, group.destination, "", b.position))
        view = group.view + 1
        group.enter(Member(name, durable, view, 0, 0, False, group.serial, needs_state=durable))
    if came:
        views.new_view(b, group, came)
    for name in came if not durable else ():
        suspicion.change(b, group, group.members[name], Cause.NOTHING_KEPT)


def _set_relation(b: State, group: Group, body: bytes) -> None:
    try:
        relation = ConflictRelation.from_json(body.decode()).to_json()
    except (FormatError, UnicodeDecodeError):
        return  # clients check it; of a foreign client, it changes nothing
    _relate(b, group, relation)


def unsubscribe(b: State, destination: str, name: str) -> None:
    """Remove the member of this name, or raise."""
    group = b.groups.get(destination)
    member = group.members.get(name) if group is not None else None
    if group is None or member is None:
        raise InvalidDestinationError(f"{destination!r} has no member {name!r}")
    _remove(b, group, [member])


# -- Events ----------------------------------------------------------------------------------------


def acknowledge(b: State, session: Session, consumer: Consumer, row: cw.AckRow) -> None:
    """Take a member's acknowledgement of events, or of its state. As long as it may need the state
    again, it may also need the events since it joined again."""
    group = b.groups.get(consumer.destination)
    if group is None:
        return
    number = consumer.number
    serial = min(row.event, group.serial)
    member = group.member_of(session.number, number)
    if member is not None:
        member.handle(serial)
        subscription = b.topics.subscriptions[keys.member(group.destination, member.name)]
        if row.state == member.took:
            subscription.keep_state()
        if subscription.base is None:
            member.acknowledge()
            group.pass_over(member)
    group.acknowledge(session.number, number, serial)
    b.groups.touch(group.destination)


# -- Letting go ------------------------------------------------------------------------------------


def delete(b: State, m: cw.DeleteGroup) -> None:
    """Remove all members with one view, which ends the group."""
    group = b.groups.get(m.destination)
    if group is None:
        name = m.destination.partition(":")[2]
        raise InvalidDestinationError(f"there is no group {name!r}")
    live = [member.name for member in group.members.values() if _is_live(b, member)]
    if live and not m.force:
        raise IllegalStateError(
            f"the group {m.destination!r} has live members: {', '.join(live)}. Nothing was "
            "changed. Let them leave first, or delete it by force: then they are removed"
        )
    group.keep(0)
    _remove(b, group, list(group.members.values()))
    b.groups.touch(group.destination)


def _is_live(b: State, member: Member) -> bool:
    if member.shared:
        queue = b.queues.get(member.shared)
        return queue is not None and any(not taker.closed for taker in queue.takers.values())
    return bool(member.session) and not member.suspected


def _drop(b: State, group: Group, member: Member) -> None:
    """Drop all that is kept for this member."""
    group.leave(member)
    state_requests.left(group, member)
    _forget_consumer(b, member)
    b.topics.discard(keys.member(group.destination, member.name))
    if member.shared:
        _drop_shared(b, member)


def _drop_shared(b: State, member: Member) -> None:
    """Close the consumers that divided its messages."""
    queue = b.queues.get(member.shared)
    for session, consumer in queue.takers if queue is not None else ():
        b.sessions[session].forget(consumer)
    b.queues.drop(member.shared)


def _forget_consumer(b: State, member: Member) -> None:
    session = b.sessions.get(member.session)
    if session is not None:
        session.forget(member.consumer)
