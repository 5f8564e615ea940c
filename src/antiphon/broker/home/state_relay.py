"""The relay of states: chunks from member to member, through their servers.

Promises: a chunk goes from the client that was asked to the one that waits, and an answer back, as
long as the request stands (`broker/machine/groups/state_requests.py`); a client that hands out a
state for which no member waits any more gets an answer that says so. No server holds more of a
state than `STATE_WINDOW` chunks: a client that sends beyond that is at fault. Nothing is promised
to arrive: chunks are numbered, and a member that misses one asks again.

Each server knows from its own state machine where each member is, so nothing has to be agreed on. A
chunk names the attachment of the client that it is for, and is dropped where that has changed.
Chunks go straight to the other one's server, and every other time that a member asks again by way
of the leader, which both can reach even if they cannot reach each other.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.broker.machine.groups import state_requests
from antiphon.broker.machine.groups.group import Group, Member
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.session import Session
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw

REASON_MAX = 1000
Tell = Callable[[int, cw.Answer], None]  # a session that is attached here
Pass = Callable[[Session, cw.Relayed, bool], None]  # True: by way of the leader


class Handout:
    """A state that a client of this server hands out."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.sent = 0  # chunks
        self.taken = 0
        self.all_sent = False


class StateRelay:
    """The states that clients of this server hand out, and chunks on their way to others."""

    def __init__(self, broker: Broker, tell: Tell, pass_on: Pass) -> None:
        self._broker = broker
        self._tell = tell
        self._pass_on = pass_on
        self._handouts: dict[tuple[int, int], Handout] = {}  # by session and consumer
        self.passed_bytes = 0

    def __len__(self) -> int:
        return len(self._handouts)

    # -- From clients of this server -----------------------------------------------------------

    def chunk(self, session: int, m: cw.StateChunk) -> None:
        """A client hands out a chunk of its state; raises `FormatError` beyond the window."""
        if len(m.data) > cw.STATE_CHUNK_MAX:
            raise FormatError(
                f"a chunk of a state has at most {cw.STATE_CHUNK_MAX} bytes, not {len(m.data)}"
            )
        taker = self._taker(session, m.consumer, m.serial)
        if taker is None:
            self._handouts.pop((session, m.consumer), None)
            self._stop(session, m.consumer, m.serial)
            return
        handout = self._handouts.get((session, m.consumer))
        if handout is None or handout.serial != m.serial:
            handout = self._handouts[session, m.consumer] = Handout(m.serial)
        if 0 < m.seq <= handout.sent:
            return  # it came twice
        upto = min(handout.sent + 1, handout.taken + cw.STATE_WINDOW)
        if handout.all_sent or not 0 < m.seq <= upto:
            raise FormatError(
                f"chunk {m.seq} of a state, after {handout.sent}; {handout.taken} have been taken"
            )
        handout.sent, handout.all_sent = m.seq, m.last
        self.passed_bytes += len(m.data)
        chunk = cw.StateChunk(taker.consumer, m.serial, m.seq, m.data, m.last)
        self._to_member(taker, chunk, taker.detour)

    def failed(self, session: int, m: cw.StateFailed) -> None:
        """A client cannot hand out its state."""
        self._handouts.pop((session, m.consumer), None)
        taker = self._taker(session, m.consumer, m.serial)
        if taker is not None:
            reason = m.reason[:REASON_MAX]
            self._to_member(taker, cw.StateFailed(taker.consumer, m.serial, reason), taker.detour)

    def taken(self, session: int, m: cw.StateTaken) -> None:
        """Take note that a client has taken the chunks it was sent."""
        group, taker = self._member(session, m.consumer)
        if group is None or taker is None or taker.request != m.serial:
            return  # too late
        provider = group.members.get(taker.provider)
        if provider is not None:
            chunk = cw.StateTaken(provider.consumer, m.serial, m.seq)
            self._to_member(provider, chunk, taker.detour)

    # -- From other servers, and for clients of this one ---------------------------------------

    def arrived(self, session: int, m: cw.Relayed) -> None:
        """A chunk has come for a client of this server."""
        if isinstance(m, cw.StateTaken):
            handout = self._handouts.get((session, m.consumer))
            if handout is None or handout.serial != m.serial or m.seq <= handout.taken:
                return
            handout.taken = min(m.seq, handout.sent)
        self._tell(session, m)

    # -- From the log --------------------------------------------------------------------------

    def review(self) -> None:
        """Stop the handouts for which no member waits any more: a group has changed."""
        for (session, consumer), handout in list(self._handouts.items()):
            if self._taker(session, consumer, handout.serial) is None:
                del self._handouts[session, consumer]
                if not handout.all_sent:
                    self._stop(session, consumer, handout.serial)

    def close(self, session: int) -> None:
        """It is not served here any more."""
        for key in [k for k in self._handouts if k[0] == session]:
            del self._handouts[key]

    def _stop(self, session: int, consumer: int, serial: int) -> None:
        self._tell(session, cw.StateStopped(consumer, serial))

    # -- Who is who ----------------------------------------------------------------------------

    def _taker(self, session: int, consumer: int, serial: int) -> Member | None:
        group, provider = self._member(session, consumer)
        if group is None or provider is None:
            return None
        return state_requests.taker_of(group, provider, serial)

    def _member(self, session: int, number: int) -> tuple[Group | None, Member | None]:
        known = self._broker.sessions.get(session)
        consumer = known.consumers.get(number) if known is not None else None
        group = self._broker.groups.get(consumer.destination) if consumer is not None else None
        return group, group.member_of(session, number) if group is not None else None

    def _to_member(self, member: Member, chunk: cw.Relayed, detour: bool) -> None:
        there = self._broker.sessions.get(member.session)
        if there is not None and not there.detached:
            self._pass_on(there, chunk, detour)
