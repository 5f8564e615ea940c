"""Shared subscriptions of groups: the consumers of one are, together, one member.

They divide its messages among them. The others see the member in their view under the name of the
subscription; it gets no views itself, has no state, and is suspected when the last of its
consumers that are open has lost its connection. When the last one is closed, it leaves; a durable
one is inactive, and stays.
"""

from __future__ import annotations

from antiphon.broker.machine.groups import membership, suspicion
from antiphon.broker.machine.groups.group import Group, Member
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.errors import IllegalStateError


def enter(b: State, group: Group, name: str, queue: str, durable: bool) -> None:
    """Take a new consumer of this shared subscription, which has, or will have, this queue. Without
    the queue nothing was kept for the member that has the name: it is another one."""
    old = group.members.get(name)
    if old is not None and old.shared == queue and queue in b.queues:
        return
    taken = old is not None and old.shared != queue and (not old.suspected or old.durable)
    if taken:
        raise IllegalStateError(
            f"cannot share {name!r} in {group.destination!r}: another member has that name. "
            "Nothing was changed. Choose another name"
        )
    membership.enter_shared(b, group, name, queue, durable)


def review(b: State, queue: Queue, *, lost: bool = False) -> None:
    """Update the member after a consumer was opened or closed, or its connection came or went;
    `lost`: after its session was lost."""
    group = b.groups.get(queue.pattern)
    member = _member(group, queue) if group is not None else None
    if group is None or member is None:
        return
    sessions = [b.sessions[s] for (s, _), c in queue.takers.items() if not c.closed]
    if any(not session.detached for session in sessions):
        suspicion.back(b, group, member)
    elif sessions:
        suspicion.cut_off(b, group, member)
    elif lost:
        suspicion.lost_shared(b, group, member)
    elif not member.durable:
        membership.part(b, group, member)
    else:
        suspicion.closed_shared(b, group, member)


def _member(group: Group, queue: Queue) -> Member | None:
    return next((m for m in group.members.values() if m.shared == queue.name), None)


def review_all(b: State, session: Session) -> None:
    """Update the members of a session that has got a connection, or lost one."""
    for consumer in session.consumers.values():
        queue = b.queues.get(consumer.destination)
        if queue is not None and queue.pattern:
            review(b, queue)
