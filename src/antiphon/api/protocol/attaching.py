"""The way of a session to a server that serves it: the phase of its conversation, the back-off
between attempts, the patience with each server, heartbeats, and the lease.

Promises: the phase changes only as `phases.py` says; while there is time left, an attempt to
connect follows each that failed, after a pause that grows and differs from client to client; a
server that is silent is left after `ATTACH_MS`, or after `HEARTBEATS` heartbeats once it serves the
session; the error at the end has the fate of each server that was tried.

Needs: a call of `due` at the time that `next_deadline_ms` returns, and `heard_ms` and `said_ms` set
with each message that comes or leaves. The content of messages is the conversation's affair
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
"""A session outlives its connection for this long: longer than the servers need for a new leader.
After this time the messages that a dead program had taken from a queue go to others."""

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
    """One session's way to a server; promises are the module's. All parts of the conversation read
    `phase`, only `change` sets it."""

    def __init__(
        self, session: int, token: bytes, chance: Random, now_ms: int, terms: Terms
    ) -> None:
        self.phase = Phase.PAUSING
        self.was_attached = False  # some server has served this session
        self.heard_ms = 0  # when the last message came from a server
        self.said_ms = 0  # when the last message left for one
        self._session = session
        self._token = token
        self._chance = chance
        self._terms = terms
        self._attempt = 0
        self._failures = 0  # failed attempts since it last worked for a while
        self._at = ""  # the address of the present server
        self._complaints: dict[str, str] = {}  # the reason why it was left, by server
        self._address = ""  # of the server to dial next; empty: any
        self._waits_for = ""  # the server that has to let go of the session
        self._due_ms = now_ms  # of the next step: dial, or leave this server
        self._give_up_ms = now_ms + terms.connect_ms
        self._attached_ms = 0
        self._heartbeat_ms = 0
        self._asked_ms = 0  # when it last sent a heartbeat

    def change(self, cause: Cause) -> None:
        """Change the phase."""
        self.phase = next_phase(self.phase, cause)

    # -- The way up -----------------------------------------------------------------------------

    def dial(self, now_ms: int) -> str:
        """Begin to connect; return the address of the server to which, empty: to any."""
        self.change(Cause.PAUSED)
        self._due_ms = now_ms + DIAL_MS
        address, self._address = self._address, ""
        return address

    def dials(self, address: str) -> None:
        """Note the address of the server that is dialled."""
        self._at = address

    def attach(
        self,
        now_ms: int,
        sequences: tuple[tuple[int, int], ...],
        seen: tuple[cw.Seen, ...],
    ) -> cw.Attach:
        """Take a connection; return the first request on it."""
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
        """Note that the server serves the session."""
        self.change(Cause.ADMITTED)
        self.was_attached = True
        self._waits_for = ""
        self._complaints.clear()
        self._attached_ms = self.said_ms = now_ms
        self._heartbeat_ms = heartbeat_ms

    # -- And back -------------------------------------------------------------------------------

    def lost(self, now_ms: int, reason: str) -> None:
        """Take the end of the connection, or of the attempt at one."""
        if self.phase is Phase.ATTACHING:  # servers end connections that they cannot take
            reason = f"{NOT_LET_IN} ({reason})"
        self._pause(Cause.LOST, now_ms, reason)

    def leave(self, now_ms: int, reason: str) -> None:
        """Note that the client has ended the connection, or the attempt at one."""
        self._pause(Cause.LEFT, now_ms, reason)

    def redirected(self, node: int, address: str, now_ms: int) -> None:
        """Go to this server next, to which a server sent the client. As long as servers answer so,
        the session is kept. That server may let go of the session, or be away: then others are
        tried again."""
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
        """Return the next pause, with jitter: clients that lost a server together do not come back
        in step."""
        if self._failures == 0:
            return self._chance.randrange(REDIAL_MIN_MS)
        pause = min(REDIAL_MIN_MS << min(self._failures, 10), REDIAL_MAX_MS)
        return pause // 2 + self._chance.randrange(pause)

    def _complain(self, reason: str) -> None:
        self._complaints.pop(self._at, None)  # the last server in the text is the last one tried
        self._complaints[self._at] = reason

    # -- Time -----------------------------------------------------------------------------------

    def due(self, now_ms: int) -> Due | None:
        """Return the step that is due by now, if any."""
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
        """Return when `due` will return a step; not for a session that is over."""
        if self.phase is Phase.ATTACHED:
            return min(self.heard_ms + HEARTBEATS * self._heartbeat_ms, self._ping_ms())
        return min(self._due_ms, self._give_up_ms)

    def _ping_ms(self) -> int:
        """Return when the next heartbeat leaves: nothing was sent for one interval, or nothing
        came."""
        return min(self.said_ms, max(self.heard_ms, self._asked_ms)) + self._heartbeat_ms

    def asks(self, now_ms: int) -> None:
        """Note that the client sends a heartbeat."""
        self.said_ms = self._asked_ms = now_ms

    def silence(self) -> str:
        """Return why the present server is left when `due` returns `LEAVE`."""
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
