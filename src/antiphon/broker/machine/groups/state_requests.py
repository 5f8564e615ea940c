"""State requests: which member takes over whose state. The log has the requests, not the state.

A member that joins *needs* the state of the members before it. A request for it is a group event;
its place in the order is the *cut* (`review`): earlier messages are in the state, and the member
gets the later ones. The request goes to the oldest member that has the state, can hand it out, is
connected and not suspected.

All messages from the join on are kept for the member until it has *acknowledged* the state: a state
that never arrives takes no message with it, and a durable member that is gone before it has
acknowledged the state gets one again.

A request *stands* as long as both have the connections that they had when it was made, for chunks
on their way are lost with a connection. After that another one is made, with a later cut. No member
is asked while all that have the state have lost their connections: they may come back with it. If
all of them are gone for good, or cannot hand it out, the state is lost: the member gets a notice
and all messages since its join, and has a state from there on. It can hand that one out to members
that joined later, and to no others: earlier messages are not in it.
"""

from __future__ import annotations

from antiphon.broker.machine import keys
from antiphon.broker.machine.groups.group import Group, Member
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.errors import IllegalStateError
from antiphon.formats import protocol as cw


def comes(group: Group, member: Member, takes_state: bool) -> None:
    """Note that a member joins. Call this before `review`: a member without a state must not be
    asked for it."""
    member.begin(takes_state and _hopes(group, member))


def comes_back(group: Group, member: Member, takes_state: bool) -> None:
    """Note that a durable member has another life. It needs a state if it has acknowledged none."""
    member.take_notice()  # if there was one to take, its last life got it
    if member.needs_state:
        comes(group, member, takes_state)


def review(b: State, group: Group) -> None:
    """Decide, for each member that waits for a state, which member is asked for it and at which
    cut, or that no member can give it one. Call it after each change of the members."""
    for member in list(group.members.values()):
        if member.needs_state and member.request and not _is_there(b, member):
            member.unask()  # the provider goes on without it
            b.groups.tell(group.destination)
        elif member.needs_state and _is_there(b, member) and not _stands(b, group, member):
            _ask(b, group, member)


def _ask(b: State, group: Group, member: Member) -> None:
    able = [m for m in _others(group, member) if _is_able(m, member)]
    provider = _next(member.provider, [m for m in able if _is_there(b, m)])
    if provider is not None:
        _request(b, group, member, provider)
    elif not member.request and not _hopes(group, member):
        member.do_without()
        b.groups.tell(group.destination)
    # Otherwise a member may come back; or all chunks were sent, and only have to arrive.


def _next(last: str, able: list[Member]) -> Member | None:
    """Return the oldest one; not again the one that was asked last, if there is another."""
    return next((m for m in able if m.name != last), able[0] if able else None)


def _request(b: State, group: Group, member: Member, provider: Member) -> None:
    member.ask(provider, _path(b, member, provider), group.serial + 1, b.position)
    group.announce(b.position, cw.STATE, came=(member.name,), went=(provider.name,))
    b.groups.tell(group.destination)


# -- Facts about members ---------------------------------------------------------------------------


def _others(group: Group, member: Member) -> list[Member]:
    return [m for m in group.members.values() if m is not member]


def _provides(member: Member, taker: Member) -> bool:
    return member.provides and member.session != 0 and member.name not in taker.unable


def _is_able(member: Member, taker: Member) -> bool:
    """Return whether a member has the state that `taker` needs, and can hand it out: now, or when
    it is back."""
    has_it = not member.needs_state and member.since <= taker.joined
    return has_it and _provides(member, taker)


def _hopes(group: Group, member: Member) -> bool:
    """Return whether another member has the state, or will have one: a member that joined earlier,
    in any case. (So the first one that waits without hope has to do without, and the others get its
    state.)"""
    return any(
        _is_able(m, member)
        or (m.needs_state and (m.request or m.joined < member.joined) and _provides(m, member))
        for m in _others(group, member)
    )


def _is_there(b: State, member: Member) -> bool:
    session = b.sessions.get(member.session)
    return session is not None and not session.detached and not member.suspected


def _stands(b: State, group: Group, member: Member) -> bool:
    """Return whether a request was made and both members have the same connections as then. (A
    provider that has lost its connection is given time: it is suspected soon, or comes back with
    another attachment.)"""
    provider = group.members.get(member.provider)
    if not member.request or provider is None or provider.suspected:
        return False
    return member.path == _path(b, member, provider)


def _path(b: State, member: Member, provider: Member) -> tuple[int, int, int, int]:
    return (*_place(b, provider), *_place(b, member))


def _place(b: State, member: Member) -> tuple[int, int]:
    session = b.sessions.get(member.session)
    return (member.session, session.attachment if session is not None else 0)


# -- Requests of a waiting member ------------------------------------------------------------------


def ask_again(b: State, session: Session, m: cw.AskState) -> int:
    """Take a member's repeated request for its state; another member is asked."""
    group, member = _member(b, session, m.consumer)
    if member.needs_state and member.request == m.serial:
        member.complain(m.raised)
        review(b, group)
        b.groups.tell(group.destination)  # even if no member is asked now: the last one may stop
    return 0


def done(b: State, session: Session, m: cw.StateDone) -> int:
    """Note that the member has its state. Return 1 if it is the one that was asked for last."""
    group, member = _member(b, session, m.consumer)
    if not (member.needs_state and member.request == m.serial):
        return 0
    member.take_state(m.serial)
    b.topics.subscriptions[keys.member(group.destination, member.name)].take_over(member.cut)
    b.groups.tell(group.destination)
    review(b, group)  # it may hand out the state itself, from now on
    return 1


def gone(b: State, group: Group, member: Member) -> None:
    """Note that this life of a durable member has ended. If it has not acknowledged the state that
    it took over, its next life needs one."""
    if b.topics.subscriptions[keys.member(group.destination, member.name)].put_back():
        member.need_again()


def left(group: Group, provider: Member) -> None:
    """Note that a member has left, or was removed, and sends nothing any more. A state that it was
    asked for and has not acknowledged was not sent, or not all of it: no member waits for that one
    any longer."""
    for taker in group.members.values():
        if taker.provider == provider.name and taker.request > max(provider.acked, provider.late):
            taker.unask()


def _member(b: State, session: Session, number: int) -> tuple[Group, Member]:
    consumer = session.consumers.get(number)
    group = b.groups.get(consumer.destination) if consumer is not None else None
    member = group.member_of(session.number, number) if group is not None else None
    if group is None or member is None:
        raise IllegalStateError(f"consumer {number} is not a member of a group")
    return group, member


# -- From client to client -------------------------------------------------------------------------


def taker_of(group: Group, provider: Member, serial: int) -> Member | None:
    """Return the member that waits for the state that this one was asked for."""
    return next(
        (
            m
            for m in group.members.values()
            if m.needs_state and m.request == serial and m.provider == provider.name
        ),
        None,
    )
