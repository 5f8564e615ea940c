"""How a session gets to a server that serves it, and stays there: the phase of its conversation,
the back-off between attempts, the patience with each server, heartbeats, and the lease.

Promises: the phase changes only as `phases.py` says; while there is time left, an attempt to
connect follows each that failed, after a pause that grows and differs from client to client; a
server that is silent is left after `ATTACH_MS`, or after `HEARTBEATS` heartbeats once it serves the
session; giving up reports what became of each server that was tried.

Needs: a look (`due`) at the time that `next_deadline_ms` names, and `heard_ms` and `said_ms` set
with each message that comes or leaves. What the messages carry is the conversation's affair
(`conversation.py`).

::

    PAUSING --Dial--> DIALLING --connected--> ATTACHING --Attached--> ATTACHED
       ^                  |                       |                       |
       +------- lost, or too long without an answer (HangUp) -------------+
    and from each of them to OVER: closed, ended by a server, or no server within the lease
"""

from __future__ import annotations

from enum import Enum, auto
from random import Random

import msgspec

from antiphon.api.protocol.phases import Cause, Phase, next_phase
from antiphon.errors import ConnectionLostError
from antiphon.formats import protocol as cw

LEASE_MS = 30_000
"""How long a session outlives its connection. Longer than the servers need for a new leader; and
what a program that died had taken from a queue goes to others after this time."""

DIAL_MS = 5_000
ATTACH_MS = 5_000
"""A server that does not answer within this time is left for another one."""

NO_ANSWER = "it does not answer"
NOT_LET_IN = (
    "it can be reached, but lets nobody in: it hears of no leader (do most of the servers run, and "
    "reach each other?), or is overloaded"
)

REDIAL_MIN_MS, REDIAL_MAX_MS = 50, 1_000

HEARTBEATS = 3
"""A server that misses this many heartbeats is considered gone."""


class Terms(msgspec.Struct, frozen=True):
    """The options that decide how a session is opened."""

    client_id: str = ""
    connect_ms: int = 10_000
    lease_ms: int = LEASE_MS


class Due(Enum):
    """The step that has to be taken now."""

    DIAL = auto()
    PING = auto()
    LEAVE = auto()  # this server
    GIVE_UP = auto()  # the session


class Attaching:
    """One session's way to a server (the module says what it promises). `phase` is read by all,
    and changed only by `change`."""

    def __init__(
        self, session: int, token: bytes, chance: Random, now_ms: int, terms: Terms
    ) -> None:
        self.phase = Phase.PAUSING
        self.was_attached = False  # some server has served this session
        self.heard_ms = 0  # when a server last said something
        self.said_ms = 0  # and this client
        self._session = session
        self._token = token
        self._chance = chance
        self._terms = terms
        self._attempt = 0
        self._failures = 0  # failed attempts since it last worked for a while
        self._at = ""  # the address of the server that it has to do with now
        self._complaints: dict[str, str] = {}  # what became of it, by server
        self._address = ""  # where to connect next; empty: anywhere
        self._waits_for = ""  # a server that is to let go of the session
        self._due_ms = now_ms  # of the next step: dial, or leave this server
        self._give_up_ms = now_ms + terms.connect_ms
        self._attached_ms = 0
        self._heartbeat_ms = 0
        self._asked_ms = 0  # when it last asked whether the server lives

    def change(self, cause: Cause) -> None:
        """Change the phase."""
        self.phase = next_phase(self.phase, cause)

    # -- The way up -----------------------------------------------------------------------------

    def dial(self, now_ms: int) -> str:
        """Begin to connect; return the address of the server that it must be, or nothing."""
        self.change(Cause.PAUSED)
        self._due_ms = now_ms + DIAL_MS
        address, self._address = self._address, ""
        return address

    def dials(self, address: str) -> None:
        """This is the server that is dialled."""
        self._at = address

    def attach(
        self,
        now_ms: int,
        sequences: tuple[tuple[int, int], ...],
        seen: tuple[cw.Seen, ...],
    ) -> cw.Attach:
        """There is a connection; return the first thing to say over it."""
        self.change(Cause.CONNECTED)
        self._due_ms = now_ms + ATTACH_MS
        self._attempt += 1
        return cw.Attach(
            self._session,
            self._token,
            self.was_attached,
            self._attempt,
            self._terms.client_id,
            self._terms.lease_ms,
            sequences,
            seen,
        )

    def admitted(self, heartbeat_ms: int, now_ms: int) -> None:
        """The server serves the session."""
        self.change(Cause.ADMITTED)
        self.was_attached = True
        self._waits_for = ""
        self._complaints.clear()
        self._attached_ms = self.said_ms = now_ms
        self._heartbeat_ms = heartbeat_ms

    # -- And back -------------------------------------------------------------------------------

    def lost(self, now_ms: int, reason: str) -> None:
        """The connection, or the attempt at one, has failed."""
        if self.phase is Phase.ATTACHING:  # servers end connections that they cannot let in
            reason = f"{NOT_LET_IN} ({reason})"
        self._pause(Cause.LOST, now_ms, reason)

    def leave(self, now_ms: int, reason: str) -> None:
        """The client has ended the connection, or the attempt at one."""
        self._pause(Cause.LEFT, now_ms, reason)

    def redirected(self, node: int, address: str, now_ms: int) -> None:
        """The client was sent to this server. The session is kept for as long as any server says
        so. Its server may let go of it, and may be away: if it is not there, others are asked
        again."""
        if self.was_attached:
            self._give_up_ms = now_ms + self._terms.lease_ms
        self._waits_for = f"server {node} at {address} alone knows how far this client is"
        self.leave(now_ms, "another server must let go of it first")
        self._address = address

    def _pause(self, cause: Cause, now_ms: int, reason: str) -> None:
        if self.phase is Phase.ATTACHED:
            self._give_up_ms = self.heard_ms + self._terms.lease_ms
            if now_ms - self._attached_ms > REDIAL_MAX_MS:
                self._failures = 0  # it had worked for a while
        self._complain(f"{self._waits_for} ({reason})" if self._waits_for else reason)
        self.change(cause)
        self._due_ms = now_ms + self._pause_ms()
        self._failures += 1

    def _pause_ms(self) -> int:
        """Jitter: clients that lost a server together do not come back in step."""
        if self._failures == 0:
            return self._chance.randrange(REDIAL_MIN_MS)
        pause = min(REDIAL_MIN_MS << min(self._failures, 10), REDIAL_MAX_MS)
        return pause // 2 + self._chance.randrange(pause)

    def _complain(self, reason: str) -> None:
        self._complaints.pop(self._at, None)  # the last one told is the last one tried
        self._complaints[self._at] = reason

    # -- Time -----------------------------------------------------------------------------------

    def due(self, now_ms: int) -> Due | None:
        """Return what has to be done by now, if anything."""
        if self.phase is Phase.ATTACHED:
            if now_ms - self.heard_ms >= HEARTBEATS * self._heartbeat_ms:
                return Due.LEAVE
            return Due.PING if now_ms >= self._ping_ms() else None
        if now_ms >= self._give_up_ms:
            return Due.GIVE_UP
        if now_ms >= self._due_ms:
            return Due.DIAL if self.phase is Phase.PAUSING else Due.LEAVE
        return None

    def next_deadline_ms(self) -> int:
        """Return when `due` has something to say; not for a session that is over."""
        if self.phase is Phase.ATTACHED:
            return min(self.heard_ms + HEARTBEATS * self._heartbeat_ms, self._ping_ms())
        return min(self._due_ms, self._give_up_ms)

    def _ping_ms(self) -> int:
        """When nothing was said for a heartbeat; or, though much was, nothing was heard."""
        return min(self.said_ms, max(self.heard_ms, self._asked_ms)) + self._heartbeat_ms

    def asks(self, now_ms: int) -> None:
        """The client asks whether the server lives."""
        self.said_ms = self._asked_ms = now_ms

    def silence(self) -> str:
        """Return why the server of the moment is left when `due` says so."""
        if self.phase is Phase.ATTACHED:
            return "it has fallen silent"
        return NO_ANSWER if self.phase is Phase.DIALLING else NOT_LET_IN

    def failure(self) -> ConnectionLostError:
        """Return the error of a session that found no server in time."""
        if self.phase is not Phase.PAUSING and self._at not in self._complaints:
            self._complain(self.silence())
        reasons = [f"{at}: {why}" if at else why for at, why in self._complaints.items()]
        told = "; ".join(reasons) or "none was asked yet"
        if self.was_attached:
            seconds = self._terms.lease_ms / 1000
            text = f"no server took the connection again within {seconds:g} s: {told}"
            return ConnectionLostError(f"{text}. The session is lost; connect again")
        seconds = self._terms.connect_ms / 1000
        text = f"no server took the connection within {seconds:g} s: {told}"
        return ConnectionLostError(text, happened="no")
