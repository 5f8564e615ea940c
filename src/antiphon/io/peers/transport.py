"""All connections of one process of a channel: one port, and one connection to each other process.

Promises: frames for a process arrive once and in order while a connection to it lives, but for
large ones for which there is no room (`QUEUE_BYTES`), and not at all without one;
`PeerHandler.linked` is called before a process's first frame, and `unlinked` after its last one. Of
two connections between the same two processes, which come about when both dial at once, both sides
keep the one that the smaller `MemberId` has dialled. A lost connection is dialled again after a
pause that doubles.

It refuses processes of another cluster, with another stack or wire version, and those for which
`PeerHandler.welcome` returns a reason; both sides log it, and the refused one gets it
(`PeerHandler.refused`, `turned_away`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats import peer_wire as wire
from antiphon.formats.frames import Body, frame_head
from antiphon.formats.peer_wire import PeerHello
from antiphon.io.peers.connection import HANDSHAKE_S, PeerConnection
from antiphon.io.peers.listening import Acceptor, listening_socket
from antiphon.io.peers.redialling import Redialler
from antiphon.io.peers.security import Contexts, check_plain
from antiphon.io.transport import format_address, parse_address
from antiphon.model.peer_views import MemberId

logger = logging.getLogger("antiphon.io.peers")

STRANGERS_MAX = 256
"""Connections that have not shaken hands; beyond that the oldest is closed."""

DOUBLED_S = 1.0
"""When the other side gives a connection up for another one, that one is there within this time."""


class StrangerError(ConnectionError):
    """A process answers, but this one cannot talk to it."""


class PeerHandler(Protocol):
    """The driver of a channel, as its transport sees it. Called on the loop."""

    def welcome(self, process: MemberId) -> wire.Refused | None:
        """Return why this process may not be connected now; None if it may."""

    def linked(self, process: MemberId, address: str) -> None:
        """Take a connection to this process, which listens at this address."""

    def unlinked(self, process: MemberId, goodbye: bool) -> None:
        """Take the end of the connection to this process. `goodbye`: the process ends in order."""

    def arrived(self, process: MemberId, bodies: Sequence[Body]) -> None:
        """Take frames of the stack from this process."""

    def refused(self, who: str, reason: str, again: bool) -> None:
        """Note that there is no connection to this process, or at this address, which this one has
        dialled, for one of the two refuses it. `again`: a later attempt may succeed."""

    def turned_away(self, who: str, reason: str) -> None:
        """Note the same of a process that has dialled this one: whoever wants to may do so."""

    def unreachable(self, address: str) -> None:
        """Note that no process is at this address."""

    def replaced(self, reason: str) -> None:
        """Note that a primary view of others has another process of this one's name."""

    def asked(self, what: str) -> wire.Answer:
        """Answer a program that does not take part; see `Question`."""


class PeerTransport:
    """The connections of one process; promises are the module's."""

    def __init__(
        self, own: PeerHello, handler: PeerHandler, tls: Contexts | None, plaintext: bool
    ) -> None:
        """`own.address` is empty until `listen`. `plaintext`: off loopback, too, if `tls` is
        None."""
        self.own = own
        self._handler = handler
        self._tls = tls
        self._plaintext = plaintext
        self._links: dict[MemberId, PeerConnection] = {}
        self._strangers: dict[PeerConnection, None] = {}
        self._unsent: dict[PeerConnection, None] = {}  # have frames that have not left
        self._rediallers: dict[str, Redialler] = {}
        self._ours: set[str] = set()  # addresses at which this process answered itself
        self._acceptor: Acceptor | None = None
        self._closing = False
        self._complaint: tuple[MemberId, str] | None = None

    # -- Called by the channel's process -------------------------------------------------------

    def listen(self, addresses: Sequence[str], known_as: str = "") -> str:
        """Listen at the first of these addresses that is this machine's and free, and return it as
        others may dial it: `known_as`, if that is given. Raises `OSError` if there is none, and
        `ConfigurationError` if it would be plaintext off loopback."""
        listener, host = listening_socket(addresses, self._check)
        port = listener.getsockname()[1]
        address = known_as or format_address((host, port))
        self.own = replace(self.own, address=address)
        tls = None if self._tls is None else self._tls.listens
        self._acceptor = Acceptor(listener, tls, self._connection)
        return address

    def dial(self, address: str, keep: bool) -> None:
        """Connect to the process at this address, unless there is a connection; again after a
        failure, with `keep` for as long as this transport lives. Raises `ConfigurationError` if
        that would be plaintext off loopback, `FormatError` if it is not an address."""
        self._check(parse_address(address)[0])
        if address in self._ours or address == self.own.address or self._closing:
            return
        redialler = self._rediallers.get(address)
        if redialler is None or redialler.ended:
            if not keep and any(c.peer and c.peer.address == address for c in self._used()):
                return
            redialler = self._rediallers[address] = Redialler(self, address)
        redialler.keep = redialler.keep or keep

    def forget(self, address: str) -> None:
        """Do not dial this address again by itself any more."""
        if (redialler := self._rediallers.get(address)) is not None:
            redialler.forget()

    async def first_attempts(self, seconds: float) -> None:
        """Wait until each address has been tried once, but no longer than this."""
        tried = [redialler.tried for redialler in self._rediallers.values()]
        if tried:
            await asyncio.wait(tried, timeout=seconds)

    def send(self, to: Iterable[MemberId], head: bytes, body: Body) -> None:
        """Queue a frame, which is in two parts, for these processes, as far as there are
        connections; `flush` sends it. The parts are not copied before."""
        head = frame_head(body, envelope=head) + head
        for process in to:
            connection = self._links.get(process)
            if connection is not None:
                connection.send(head, body)
                self._unsent[connection] = None

    def flush(self) -> None:
        """Send all queued frames."""
        if self._unsent:
            unsent, self._unsent = self._unsent, {}
            for connection in unsent:
                connection.flush()

    def refuse(self, process: MemberId, refused: wire.Refused) -> None:
        """End the connection to a process, which gets the reason."""
        if (connection := self._links.get(process)) is not None:
            connection.say(refused)
            connection.end(refused.reason)

    async def close(self) -> None:
        """End all connections in order."""
        self._closing = True
        if self._acceptor is not None:
            self._acceptor.close()
        for redialler in self._rediallers.values():
            redialler.close()
        open_ = [*self._links.values(), *self._strangers]
        for connection in open_:
            if connection.used:
                connection.say(wire.Goodbye())
            connection.end("this side ends")
        await asyncio.gather(*(connection.lost for connection in open_))

    @property
    def linked(self) -> list[MemberId]:
        """Return the processes to which there are connections."""
        return list(self._links)

    def counts(self) -> dict[str, int]:
        """Return the counts for operators."""
        return {
            "connections": len(self._links),
            "strangers": len(self._strangers),
            "queued_bytes": sum(c.waiting_bytes for c in self._links.values()),
            "dropped": sum(c.dropped for c in self._links.values()),
            "dialling": sum(not r.ended for r in self._rediallers.values()),
        }

    # -- Called by rediallers ------------------------------------------------------------------

    async def connect(self, address: str) -> MemberId | None:
        """Return the process at this address, to which there is a connection now; None: it is this
        one. Raises `OSError` or `FormatError`."""
        loop = asyncio.get_running_loop()
        host, port = parse_address(address)
        tls: ssl.SSLContext | None = None if self._tls is None else self._tls.dials
        async with asyncio.timeout(HANDSHAKE_S):
            try:
                _, connection = await loop.create_connection(
                    lambda: self._connection(dialled=True),
                    host,
                    port,
                    ssl=tls,
                    server_hostname="" if tls is not None else None,
                )
            except ssl.SSLError as error:
                raise StrangerError(str(error)) from None
            except UnicodeError as error:  # of a host that no name service can have
                raise FormatError(f"{host!r} is not a host: {error}") from None
            except (ConnectionResetError, ConnectionAbortedError) as error:
                plain = "during the TLS handshake: perhaps it speaks plaintext"
                raise StrangerError(f"it hung up {plain} ({error})") from None
            try:
                await asyncio.wait([connection.shaken])
            except BaseException:
                connection.abort("it took too long")
                raise
        peer = connection.peer
        if peer is None:
            raise StrangerError(self._why_silent(connection))
        if peer.member == self.own.member:
            self._ours.add(address)
            return None
        if peer.member not in self._links:
            raise FormatError(connection.reason)
        return peer.member

    def failed(self, address: str, error: OSError | FormatError) -> None:
        """Report to the handler why there is no connection, unless a handshake has done so."""
        if isinstance(error, StrangerError):
            self._handler.refused(address, str(error), True)
        elif isinstance(error, OSError):
            self._handler.unreachable(address)

    async def until_lost(self, process: MemberId) -> bool:
        """Wait until there is no connection to this process. Return whether it said goodbye."""
        goodbye = False
        while (connection := self._links.get(process)) is not None:
            await asyncio.wait([connection.lost])  # not cancelled with its waiter
            goodbye = connection.goodbye
        return goodbye

    # -- Called by connections -----------------------------------------------------------------

    def opened(self, connection: PeerConnection) -> None:
        """Take a connection, before any handshake."""
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort(f"more than {STRANGERS_MAX} connections have not shaken hands")

    def greeted(self, connection: PeerConnection, hello: PeerHello) -> wire.Refused | None:
        """Check the other side's handshake; return why it is refused, None: it is welcome."""
        process = hello.member
        if process == self.own.member:
            return wire.Refused("it is itself", False)
        if reason := wire.why_not(self.own, hello):
            return wire.Refused(reason, False)
        if refused := self._handler.welcome(process):
            return refused
        if connection.dialled and self._is_linked(process):
            return wire.Refused("there is a connection already", True)
        return None

    def ready(self, connection: PeerConnection) -> bool:
        """Return whether this connection is used from here on."""
        assert connection.peer is not None
        self._strangers.pop(connection, None)
        process = connection.peer.member
        older = self._links.get(process)
        if self._closing:
            return False
        if older is not None and not older.ended:
            if older.dialled != connection.dialled and older.dialled == (self.own.member < process):
                return False
            older.double()
        self._links[process] = connection
        if older is None:
            logger.info("%s: connected to %s", self.own.member, connection.name)
            self._handler.linked(process, _address_of(connection))
        return True

    def came(self, connection: PeerConnection, bodies: Sequence[Body]) -> None:
        """Hand frames of the stack on."""
        assert connection.peer is not None
        self._handler.arrived(connection.peer.member, bodies)

    def refused(self, connection: PeerConnection, reason: str, again: bool) -> None:
        """Note that one of the two sides refuses this connection. `again`: a later one may be
        welcome."""
        peer = connection.peer
        if peer is None or peer.member == self.own.member:
            return
        if not connection.used and self._is_linked(peer.member):
            return
        if self._complaint != (peer.member, reason):  # once, and not with each attempt
            self._complaint = (peer.member, reason)
            logger.warning("%s: no connection to %s: %s", self.own.member, connection.name, reason)
        if connection.dialled:
            self._handler.refused(str(peer.member), reason, again)
        else:
            self._handler.turned_away(str(peer.member), reason)

    def replaced(self, reason: str) -> None:
        """Note that the other side of a connection has a member of this process's name."""
        self._handler.replaced(reason)

    def asked(self, question: wire.Question) -> wire.Answer:
        """Answer a program that does not take part."""
        if question.cluster != self.own.cluster:
            own = f"{self.own.member} belongs to the cluster {self.own.cluster!r}"
            return wire.Answer(False, f"{own}, not to {question.cluster!r}")
        return self._handler.asked(question.what)

    def left(self, connection: PeerConnection) -> None:
        """Take the end of a connection."""
        self._strangers.pop(connection, None)
        self._unsent.pop(connection, None)
        peer = connection.peer
        if peer is None or self._links.get(peer.member) is not connection:
            if peer is None and not connection.dialled and not self._closing:
                logger.info("%s: %s: %s", self.own.member, connection.name, connection.reason)
            return
        if connection.doubled and not self._closing:
            loop = asyncio.get_running_loop()
            loop.call_later(DOUBLED_S, self._lose, peer.member, connection)
        else:
            self._lose(peer.member, connection)

    # -- Inside --------------------------------------------------------------------------------

    def _lose(self, process: MemberId, connection: PeerConnection) -> None:
        if self._links.get(process) is not connection:
            return
        del self._links[process]
        logger.info("%s: %s is gone: %s", self.own.member, connection.name, connection.reason)
        if not self._closing:
            self._handler.unlinked(process, connection.goodbye)
            if not connection.goodbye:
                with suppress(FormatError, ConfigurationError):
                    self.dial(_address_of(connection), keep=False)

    def _connection(self, dialled: bool = False) -> PeerConnection:
        return PeerConnection(self, dialled)

    def _is_linked(self, process: MemberId) -> bool:
        connection = self._links.get(process)
        return connection is not None and not connection.ended

    def _used(self) -> list[PeerConnection]:
        return [connection for connection in self._links.values() if not connection.ended]

    def _check(self, host: str) -> None:
        if self._tls is None and not self._plaintext:
            check_plain(host)

    def _why_silent(self, connection: PeerConnection) -> str:
        if self._tls is None:
            return f"it hung up during the handshake: {connection.reason}"
        return (
            f"it hung up during the handshake ({connection.reason}): perhaps its authority has not "
            "signed the certificate of this process"
        )


def _address_of(connection: PeerConnection) -> str:
    """Return the address to dial this process; for one that listens everywhere, with the host of
    the connection."""
    assert connection.peer is not None
    host, port = parse_address(connection.peer.address)
    unspecified = host in ("0.0.0.0", "::")
    return format_address((connection.host if unspecified else host, port))
