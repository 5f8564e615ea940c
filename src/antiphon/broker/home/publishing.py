"""Packs from clients: taken, proposed until they are settled, and answered.

Promises: packs of a session are proposed in the order in which they came, and answered when the
state machine has settled them (or at once, if they are non-persistent). One large pack at a time is
on its way from this server; small ones come between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from antiphon.broker.home.common import Common
from antiphon.broker.home.connections import ClientConnection, ServedSession
from antiphon.broker.home.incoming_packs import is_large
from antiphon.broker.machine import events as ev
from antiphon.errors import FormatError
from antiphon.formats import columns, commands, pack
from antiphon.formats import protocol as cw


class Publishing:
    """The packs of all clients of this server that wait to be settled."""

    def __init__(self, common: Common, propose_request: Callable[[ServedSession], None]) -> None:
        """`propose_request`: a request may have waited for packs that are settled now."""
        self._common = common
        self._broker = common.broker
        self._sessions = common.served
        self._connections = common.connections
        self._tell = common.tell
        self._propose_request = propose_request
        self._due: dict[ServedSession, None] = {}  # have packs to propose
        self._large: ServedSession | None = None  # whose large pack is on its way
        self._large_wait: dict[ServedSession, None] = {}  # have a large pack, and wait for that one
        self.published = 0  # packs

    @property
    def is_due(self) -> bool:
        """Whether there are packs to propose."""
        return bool(self._due)

    def publish(self, connection: ClientConnection, m: cw.Publish) -> None:
        """Take a pack from a client; raise `FormatError` if it cannot come now."""
        served = self._common.session_of(connection)
        if len(m.pack) > cw.PACK_MAX:
            raise FormatError(f"a pack has at most {cw.PACK_MAX} bytes, not {len(m.pack)}")
        header = columns.check(m.pack)
        if header.session != served.session:
            raise FormatError(f"session {header.session} on the connection of {served.session}")
        before = served.publisher.bytes
        answer = served.publisher.take(header, m.pack)
        if served.publisher.bytes > before:
            self._due[served] = None
            self._connections.waits_more(connection, len(m.pack), large=is_large(m.pack))
        if not connection.large_bytes:
            # A pack that had begun is settled already, or is not a large one.
            self._connections.ends_turn(connection)
        if answer is not None:
            self._tell(connection.number, answer)

    def settle(self, streams: Iterable[tuple[int, int]], now_ms: int) -> None:
        """Answer the packs of these sessions and producers that the state machine has settled."""
        for session, producer in streams:
            served = self._sessions.get(session)
            if served is not None:
                sequence = self._broker.last_sequence(session, producer)
                waiting = served.publisher.packs
                large = served.publisher.large_bytes
                freed, answer = served.publisher.settle(producer, sequence, now_ms)
                self.published += waiting - served.publisher.packs
                if answer is not None:
                    self._tell(served.connection.number, answer)
                if freed:
                    large -= served.publisher.large_bytes
                    self._connections.waits_less(served.connection, freed, large)
                    if served is self._large and not served.publisher.large_flies:
                        self._large_is_over()
                    if served.early or served.behind_large:
                        self._propose_request(served)

    def on_pack_refused(self, e: ev.PackRefused) -> None:
        """Pass the refusal on to the client, if it is served here."""
        served = self._sessions.get(e.session)
        if served is not None:
            self._tell(served.connection.number, e.refusal)

    # -- To the log ----------------------------------------------------------------------------

    def take(self, now_ms: int) -> list[bytes]:
        """Return the packs to be proposed now."""
        due, self._due = self._due, {}
        payloads: list[bytes] = []
        for served in due:
            publisher = served.publisher
            payloads += publisher.unproposed(now_ms, large=self._large in (None, served))
            if publisher.large_flies:
                self._large = served
            elif publisher.large_bytes:
                self._large_wait[served] = None
        return payloads

    def rejected(self, payloads: Iterable[bytes], now_ms: int) -> None:
        """The leader did not take these, some of which are commands."""
        for payload in payloads:
            if not commands.is_command(payload):
                served = self._sessions.get(pack.read_header(payload).session)
                if served is not None:
                    served.publisher.refused(now_ms)

    def propose_all_again(self) -> None:
        """Propose everything again: the packs that the old leader was given may have died with
        it."""
        for served in self._sessions.values():
            self._propose_again(served)

    def look_for_the_overdue(self, now_ms: int, *, lost: bool) -> None:
        """Propose again the packs that were not taken and, if they may be `lost`, those that wait
        for too long."""
        for served in self._sessions.values():
            if served.publisher.overdue(now_ms, lost=lost):
                self._propose_again(served)

    def _propose_again(self, served: ServedSession) -> None:
        if served.publisher.again():
            self._due[served] = None

    def forget(self, served: ServedSession) -> None:
        """This session is no longer served here."""
        if served is self._large:
            self._large_is_over()
        self._large_wait.pop(served, None)
        self._due.pop(served, None)  # the last of these: the others put it there

    def _large_is_over(self) -> None:
        """The next one may leave. One at a time: so small ones come between them."""
        self._due.update(self._large_wait)
        self._large_wait = {}
        if self._large is not None:
            self._due[self._large] = None  # the packs that it has sent after it
            self._large = None
