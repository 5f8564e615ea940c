"""A group: its members, its view, and the events that members have not acknowledged."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from antiphon.broker.machine.groups.presence import Cause, Presence, next_presence
from antiphon.formats import protocol as cw
from antiphon.model.conflicts import ConflictRelation

REMOVE_AFTER_MS = 60_000
"""A suspected non-durable member is removed after this time, unless the group says otherwise."""


class Member(msgspec.Struct, array_like=True):
    """A member of a group: one consumer, or the consumers of a shared subscription together.

    Promise: after it was made, `session`, `consumer`, `suspected` and `suspect_at` are written by
    `change` alone.
    """

    name: str
    durable: bool
    joined: int  # the number of its first view
    session: int  # 0: none serves it
    consumer: int
    provides: bool  # it can hand out the state
    acked: int  # group events up to here it has acknowledged
    suspected: bool = False
    suspect_at: int = 0  # a stamp; 0: it is connected, or suspected, or was closed in order
    remove_at: int = 0  # a stamp; 0: not by itself
    needs_state: bool = False  # it has not got the state of the members before it
    request: int = 0  # the event that asks `provider` for it; 0: no member was asked
    cut: int = 0  # its position
    provider: str = ""  # the member that was asked
    detour: bool = False  # the state comes by way of the leader
    # Sessions and attachments of both at that moment: what is under way is lost with a connection.
    path: tuple[int, int, int, int] = (0, 0, 0, 0)
    unable: tuple[str, ...] = ()  # members that cannot hand out their state
    stateless: bool = False  # no member could give it one
    since: int = 0  # the view from which on its state is complete
    took: int = 0  # the request with which it got its state
    late: int = 0  # events up to here it has acknowledged, but not the state before them
    shared: str = ""  # the queue, if it is a shared subscription (`shared_members.py`)

    @property
    def presence(self) -> Presence:
        """Its state, derived from the fields that snapshots have."""
        is_somebody = self.session != 0 or bool(self.shared)
        if self.suspected:
            return Presence.SUSPECTED if is_somebody else Presence.LOST
        if self.suspect_at:
            return Presence.CUT_OFF
        return Presence.PRESENT if is_somebody else Presence.INACTIVE

    def change(
        self, cause: Cause, *, session: int = 0, consumer: int = 0, suspect_at: int = 0
    ) -> None:
        """Enter the state that `cause` leads to. `session`, `consumer`: those of a member that
        comes; `suspect_at`: when it is suspected, if it is cut off now."""
        after = next_presence(self.presence, cause)
        if cause is Cause.COMES:
            self.session, self.consumer = session, consumer
        elif after in (Presence.INACTIVE, Presence.LOST):
            self.session = self.consumer = 0
        self.suspected = after in (Presence.SUSPECTED, Presence.LOST)
        self.suspect_at = suspect_at if after is Presence.CUT_OFF else 0
        if not self.suspected:
            self.remove_at = 0

    def remove_later(self, stamp: int) -> None:
        """Have it removed at this stamp unless it comes back; 0: not by itself."""
        self.remove_at = stamp

    def provide(self, provides: bool) -> None:
        """Set whether it can hand out the state: that may change with each life of it."""
        self.provides = provides

    # -- The events that it has handled --------------------------------------------------------

    def handle(self, serial: int) -> None:
        """Note that it has handled events up to this one, but perhaps not the state before them."""
        self.late = max(self.late, serial)

    def acknowledge(self) -> None:
        """Count the events that it has handled as acknowledged: it has the state before them."""
        self.acked = max(self.acked, self.late)

    def pass_over(self, serial: int) -> None:
        """Count events up to this one as acknowledged: they are not for it."""
        self.acked = serial

    # -- The state that it waits for -----------------------------------------------------------

    def begin(self, needs_state: bool) -> None:
        """Note that it joins, or joins again without having a state."""
        self.needs_state = needs_state
        self.request, self.stateless, self.since = 0, False, self.joined

    def need_again(self) -> None:
        """Note that the state that it took over is lost with its last life, which did not
        acknowledge it."""
        self.needs_state = True
        self.late = self.acked

    def ask(self, provider: Member, path: tuple[int, int, int, int], serial: int, cut: int) -> None:
        """Note that another member is asked for its state, with this event."""
        self.provider, self.path = provider.name, path
        self.request, self.cut, self.since = serial, cut, provider.since

    def unask(self) -> None:
        """Note that the member that was asked sends nothing more."""
        self.request = 0

    def complain(self, raised: bool) -> None:
        """Note that it did not get its state from the member that was asked. `raised`: because that
        one cannot hand it out."""
        if raised and self.provider not in self.unable:
            self.unable = (*self.unable, self.provider)
        self.request, self.detour = 0, not self.detour

    def take_state(self, serial: int) -> None:
        """Note that it has got the state that was asked for with this event."""
        self.needs_state = False
        self.took, self.request, self.provider, self.unable = serial, 0, "", ()

    def do_without(self) -> None:
        """Let it go on without a state, which no member can give it; it gets a notice."""
        self.needs_state, self.stateless, self.since = False, True, self.joined

    def take_notice(self) -> None:
        """Note that it knows that no member could give it a state."""
        self.stateless = False


class Departed(msgspec.Struct, array_like=True):
    """A member that was removed while it was connected: it gets the event of its removal, and then
    nothing more."""

    session: int
    consumer: int
    acked: int
    last: int  # the event that removed it
    waits: bool  # for its state, which it will not get

    def acknowledge(self, serial: int) -> None:
        """Note that it has handled events up to this one."""
        self.acked = max(self.acked, serial)


class Past(NamedTuple):
    """The last numbers of a group that was forgotten; one of the same name counts on from there."""

    view: int
    serial: int


class Group:
    """One group: its members, its view, and the events that not all of them have acknowledged."""

    def __init__(self, destination: str, relation: str, remove_after_ms: int) -> None:
        self.destination = destination
        self.relation = relation  # JSON
        self.remove_after_ms = remove_after_ms  # NEVER: members do that
        # A client has set the options; otherwise they are the defaults, and the first client to set
        # them decides.
        self.relation_given = self.remove_after_given = False
        self.kept_until = 0  # a stamp: it was named, and has had no member yet
        self.view = 0
        self.serial = 0  # of the last event
        self.members: dict[str, Member] = {}  # in the order in which they joined
        self.departed: list[Departed] = []
        self.events: list[cw.GroupEvent] = []  # that not all members have acknowledged
        self.messages = 0  # accepted, ever
        self._found: dict[tuple[int, int], Member] = {}  # by `member_of`; a cache

    # -- Options -------------------------------------------------------------------------------

    def relate(self, relation: str) -> bool:
        """Take this conflict relation. Return whether it differs from the one before."""
        self.relation_given = True
        changed = relation != self.relation
        self.relation = relation
        return changed

    def remove_after(self, time_ms: int) -> None:
        """Remove suspects after this time; `NEVER`: members do that."""
        self.remove_after_ms = time_ms

    def fix_options(self) -> None:
        """Note that all options are set now: those that the client left out are at their
        defaults."""
        self.relation_given = self.remove_after_given = True

    def keep(self, until: int) -> None:
        """Keep it until this stamp, though it has no members; 0: no longer."""
        self.kept_until = until

    # -- Members -------------------------------------------------------------------------------

    def go_on(self, past: Past) -> None:
        """Count on from where a group of the same name had stopped."""
        self.view, self.serial = past

    def next_view(self) -> None:
        """Begin another view."""
        self.view += 1

    def enter(self, member: Member) -> None:
        """Add a member."""
        self.members[member.name] = member

    def leave(self, member: Member) -> None:
        """Remove a member."""
        del self.members[member.name]

    def depart(self, member: Member) -> None:
        """Remove a member that is connected: it gets the event that is announced next, which
        reports that. Call it before that event, which is kept for all members that get it."""
        waits = member.needs_state or member.stateless
        self.departed.append(
            Departed(member.session, member.consumer, member.acked, self.serial + 1, waits)
        )
        self.leave(member)

    def forget_departed(self, session: int, consumer: int) -> None:
        """Forget a member that was removed, and now is closed, or lost."""
        self.departed = [d for d in self.departed if (d.session, d.consumer) != (session, consumer)]

    # -- Events --------------------------------------------------------------------------------

    def count(self, messages: int) -> None:
        """Count messages that were accepted for it."""
        self.messages += messages

    def announce(
        self, position: int, kind: int, came: tuple[str, ...] = (), went: tuple[str, ...] = ()
    ) -> None:
        """Add an event, with the present members, and those that came and went."""
        self.serial += 1
        relation = self.relation if kind == cw.RELATION else ""
        self.events.append(
            cw.GroupEvent(
                self.serial, position, kind, self.view, tuple(self.members), came, went, relation
            )
        )
        for member in self.members.values():
            if member.shared:
                member.pass_over(self.serial)
            elif kind == cw.STATE:
                self.pass_over(member)
        self.trim()

    def pass_over(self, member: Member) -> None:
        """Count the events that are not for this member as acknowledged."""
        for event in self.after(member.acked):
            if event.kind != cw.STATE or self._is_asked(event, member):
                return
            member.pass_over(event.serial)

    def acknowledge(self, session: int, consumer: int, serial: int) -> None:
        """Note that a member that was removed has handled events."""
        for one in self.departed:
            if (one.session, one.consumer) == (session, consumer):
                one.acknowledge(serial)

    def concerns(self, event: cw.GroupEvent, session: int, consumer: int) -> bool:
        """Return whether this event is for this consumer: a state request is only for the member
        that is asked, as long as it stands."""
        member = self.member_of(session, consumer)
        return event.kind != cw.STATE or (member is not None and self._is_asked(event, member))

    def _is_asked(self, event: cw.GroupEvent, member: Member) -> bool:
        taker = self.members.get(event.came[0])
        return member.name in event.went and taker is not None and taker.request == event.serial

    def after(self, serial: int) -> list[cw.GroupEvent]:
        """Return the events after this one, as far as they are kept."""
        first = self.serial - len(self.events)  # events have dense numbers
        return self.events[max(0, serial - first) :]

    def trim(self) -> None:
        """Forget events that all members have acknowledged."""
        told = (m for m in self.members.values() if not m.shared)
        needed = [m.acked for m in told if m.durable or m.session]
        needed += [d.acked for d in self.departed]
        upto = min(needed, default=self.serial)
        first = self.serial - len(self.events)
        del self.events[: max(0, upto - first)]

    @property
    def is_over(self) -> bool:
        """Whether it has no members, no former ones with events to come, and none is expected."""
        return not (self.members or self.departed or self.kept_until)

    def due(self, name: str) -> int | None:
        """Return the deadline of this member, or, without a name, of the group; None: it has
        none."""
        if not name:
            return self.kept_until or None
        member = self.members.get(name)
        return (member.suspect_at or member.remove_at or None) if member is not None else None

    def member_of(self, session: int, consumer: int) -> Member | None:
        """Return the member with this consumer. Results are cached: the servers ask for each member
        whenever there is an event of its group."""
        found = self._found.get((session, consumer))
        if found is None or not self._is(found, session, consumer):
            newest_first = reversed(self.members.values())
            found = next((m for m in newest_first if self._is(m, session, consumer)), None)
            self._remember(session, consumer, found)
        return found

    def _is(self, member: Member, session: int, consumer: int) -> bool:
        same = member.session == session and member.consumer == consumer
        return same and self.members.get(member.name) is member

    def _remember(self, session: int, consumer: int, member: Member | None) -> None:
        if len(self._found) > 2 * len(self.members):
            self._found.clear()  # of those who left
        if member is not None:
            self._found[session, consumer] = member

    def acked_by(self, session: int, consumer: int) -> int:
        """Return the last event that this member, or one that was removed, has acknowledged."""
        member = self.member_of(session, consumer)
        return member.acked if member is not None else self._departed(session, consumer).acked

    def last_for(self, session: int, consumer: int) -> int:
        """Return the last event that is for it: for a member that was removed, the one that removed
        it."""
        if self.member_of(session, consumer) is not None:
            return self.serial
        return self._departed(session, consumer).last

    def waits_in_vain(self, session: int, consumer: int) -> bool:
        """Return whether it waits for a state that no member has, or that is not for it any
        more."""
        member = self.member_of(session, consumer)
        return member.stateless if member is not None else self._departed(session, consumer).waits

    def _departed(self, session: int, consumer: int) -> Departed:
        found = [d for d in self.departed if (d.session, d.consumer) == (session, consumer)]
        return found[0] if found else Departed(session, consumer, self.serial, 0, False)

    def state(self) -> tuple[Any, ...]:
        """Return its fields for a snapshot."""
        return (
            self.destination,
            self.relation,
            self.remove_after_ms,
            self.view,
            self.serial,
            list(self.members.values()),
            self.departed,
            self.events,
            self.messages,
            self.relation_given,
            self.remove_after_given,
            self.kept_until,
        )

    @classmethod
    def from_state(cls, state: Any) -> Group:
        """Return the group that a snapshot has."""
        one = cls(*state[:3])
        one.view, one.serial = state[3:5]
        one.members = {m.name: m for m in msgspec.convert(state[5], list[Member])}
        one.departed = msgspec.convert(state[6], list[Departed])
        one.events = msgspec.convert(state[7], list[cw.GroupEvent])
        one.messages = state[8]
        if len(state) > 9:
            one.relation_given, one.remove_after_given, one.kept_until = state[9:]
        else:  # of 0.1, which did not keep the given options
            one.relation_given = one.relation != ConflictRelation.ATOMIC.to_json()
            one.remove_after_given = one.remove_after_ms != REMOVE_AFTER_MS
        return one
