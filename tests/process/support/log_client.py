"""A small blocking client of the log for tests, with sockets and a resending of its own: publish
exactly once, read from a position on, ask.

Promises: a message whose `publish` returned was accepted, once, whatever servers died meanwhile:
packs are numbered in a session, which goes on at another server, and those without an answer are
sent there again, with the same numbers. `tail` yields every accepted pack once and in order, across
reconnections. One `LogClient` belongs to one thread; a tail has a connection of its own and may run
in another.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, TypeVar

from antiphon.errors import (
    ConnectionLostError,
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    OutcomeUnknownError,
)
from antiphon.formats import columns, frames, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, Outgoing
from antiphon.formats.entry import ReplicaId
from antiphon.io.frame_reader import FrameReader
from antiphon.io.transport import Address, format_address
from antiphon.server.admin_client import AdminClient

CONNECT_S = 2.0
PATIENCE_S, PATIENCE_MAX_S = 3.0, 15.0
"""A server that does not answer for so long is left for another one; the patience doubles each
time, for perhaps the whole cluster is slow, and sending everything again makes that worse."""

REDIAL_S = 0.1
CLOSE_S = 1.0
LEASE_MS = 10 * 60 * 1000
"""How long the servers keep a session whose client is silent, as a `LogClient` is between calls."""

CREDIT_BYTES = 4 << 20

Wanted = TypeVar("Wanted", bound=cw.Answer)


def first_body(data: bytes) -> bytes:
    """What `LogClient.send` was given."""
    return Columns(data).body(0)


class Connection:
    """One connection to one server, with the handshake done."""

    def __init__(self, address: Address) -> None:
        """Raises `OSError` or `FormatError`."""
        self.address = address
        self._reader = FrameReader(frames.FRAME_MAX)
        self._arrived: deque[frames.Body] = deque()
        self._socket = socket.create_connection(address, CONNECT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> None:
        own = frames.Hello(frames.MAGIC, frames.OLDEST, frames.NEWEST, "client", ReplicaId(0, 0))
        self._socket.sendall(frames.frame(frames.encode_hello(own)))
        body = self._next_body(time.monotonic() + CONNECT_S)
        if body is None:
            raise ConnectionError(f"{format_address(self.address)} does not shake hands")
        frames.agree(own, frames.decode_hello(body))

    def send(self, *requests: cw.Request, timeout: float = PATIENCE_S) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(b"".join(frames.frame(cw.encode(request)) for request in requests))

    def receive(self, deadline: float) -> cw.Answer | None:
        """The next answer; None: none has come by the deadline. Raises `OSError` when the server
        is gone, and a `JMSError` when it refuses what was asked."""
        body = self._next_body(deadline)
        answer = None if body is None else cw.decode_answer(body)
        if isinstance(answer, cw.Refused):
            raise IllegalStateError(f"{format_address(self.address)} refuses: {answer.reason}")
        if isinstance(answer, cw.Ended):
            raise ConnectionLostError(f"the session is over: {answer.text}")
        if isinstance(answer, cw.NotPublished):
            raise InvalidDestinationError(answer.text)
        return answer

    def expect(self, kind: type[Wanted], timeout: float = PATIENCE_S) -> Wanted:
        """The next answer of this kind; others are passed over."""
        deadline = time.monotonic() + timeout
        while (answer := self.receive(deadline)) is not None:
            if isinstance(answer, kind):
                return answer
        raise TimeoutError(f"{format_address(self.address)} has not answered in {timeout:g} s")

    def close(self) -> None:
        self._socket.close()

    def _next_body(self, deadline: float) -> frames.Body | None:
        while not self._arrived:
            self._socket.settimeout(max(0.0, deadline - time.monotonic()))
            try:
                count = self._socket.recv_into(self._reader.room())
            except (TimeoutError, BlockingIOError):
                return None
            if not count:
                raise ConnectionError(f"{format_address(self.address)} closed the connection")
            self._arrived.extend(self._reader.arrived(count))
        return self._arrived.popleft()


class Servers:
    """The addresses that a client may go to, tried in turn."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        random.shuffle(self._addresses)  # so that clients spread over the servers

    def connect(self, deadline: float) -> Connection:
        """To any of them; raises `ConnectionLostError` when the deadline is over and each has been
        tried in vain."""
        told: dict[Address, str] = {}
        while True:
            address = self._addresses.pop(0)
            self._addresses.append(address)
            try:
                return Connection(address)
            except OSError as error:
                told[address] = error.strerror or str(error)
                if len(told) == len(self._addresses) and time.monotonic() > deadline:
                    reasons = [f"{format_address(at)}: {why}" for at, why in told.items()]
                    raise ConnectionLostError(
                        f"no server can be reached: {'; '.join(reasons)}"
                    ) from None
            time.sleep(REDIAL_S)


class Unanswered(NamedTuple):
    first: int
    last: int
    request: cw.Publish


class LogClient(AdminClient):
    def __init__(self, url: str, *, timeout: float = 30.0, window_packs: int = 256) -> None:
        """`timeout`: how long a call goes on trying, from server to server; `window_packs`: how
        many packs `send` leaves unanswered before it waits."""
        super().__init__(url, timeout=timeout)
        self._servers = Servers(self._addresses)
        self._window_packs = window_packs
        self._connection: Connection | None = None
        self._session = secrets.randbits(62) + 1
        self._token = secrets.token_bytes(16)
        self._attempts = 0
        self._attached = False  # the servers know the session
        self._sequence = 0  # of the last message given to `send`
        self._unanswered: deque[Unanswered] = deque()
        self._patience = PATIENCE_S
        self.reconnections = -1  # the first connection is none
        self.accepted = 0  # sequence of the last message known to be accepted

    def __enter__(self) -> LogClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError, JMSError):
                self._connection.send(cw.Control(1, cw.CloseSession()))
                self._connection.expect(cw.Result, CLOSE_S)
        self._disconnect()

    # -- Publishing ----------------------------------------------------------------------------

    def publish(self, destination: str, body: bytes, count: int = 1) -> int:
        """Send, and wait until it is accepted; returns the sequence of the last message."""
        sequence = self.send(destination, body, count)
        self.flush()
        return sequence

    def send(self, destination: str, body: bytes, count: int = 1) -> int:
        """Send a pack of `count` messages, of which the first has this body; waits only while the
        window is full."""
        now_ms = time.time_ns() // 1_000_000
        empty = Outgoing(columns.MESSAGE, b"", b"", now_ms)
        messages = [Outgoing(columns.BYTES, body, b"", now_ms), *[empty] * (count - 1)]
        data = pack.encode(
            destination, count, columns.encode(messages)[0], self._session, self._sequence + 1
        )
        if len(data) > cw.PACK_MAX:
            raise FormatError(f"a pack has at most {cw.PACK_MAX} bytes, not {len(data)}")
        request = cw.Publish(data)
        self._unanswered.append(Unanswered(self._sequence + 1, self._sequence + count, request))
        self._sequence += count
        if self._connection is not None:
            try:
                self._connection.send(request, timeout=self._patience)
            except OSError:
                self._disconnect()
        self._wait_until_unanswered(self._window_packs - 1, time.monotonic() + self._timeout)
        return self._sequence

    def flush(self) -> None:
        """Wait until everything that was sent is accepted; raises `OutcomeUnknownError`."""
        self._wait_until_unanswered(0, time.monotonic() + self._timeout)

    def _wait_until_unanswered(self, packs: int, deadline: float) -> None:
        self._take_answers(0.0)
        while len(self._unanswered) > packs:
            if time.monotonic() > deadline:
                raise OutcomeUnknownError(
                    f"no answer for message {self._unanswered[0].last} of session "
                    f"{self._session:x} within {self._timeout:g} s; a server may have stored it. "
                    "The next call goes on trying and stores it at most once."
                )
            if self._connection is None:
                self._resend(deadline)
            elif not self._take_answers(self._patience):
                self._disconnect()
                self._patience = min(2 * self._patience, PATIENCE_MAX_S)

    def _resend(self, deadline: float) -> None:
        connection = self._connect(deadline)
        if not self._attach(connection):
            self._disconnect()
            return
        for waiting in list(self._unanswered):
            try:
                connection.send(waiting.request, timeout=self._patience)
            except OSError:
                self._disconnect()
                return

    def _attach(self, connection: Connection) -> bool:
        """Open the session, or go on with it; False: this server does not answer."""
        self._attempts += 1
        following = self._unanswered[0].first if self._unanswered else self._sequence + 1
        request = cw.Attach(
            self._session,
            self._token,
            self._attached,
            self._attempts,
            "",
            LEASE_MS,
            ((0, following),),
            (),
        )
        try:
            connection.send(request)
            attached = connection.expect(cw.Attached, self._patience)
        except OSError:
            return False
        self._attached = True
        self._published(dict(attached.published)[0])
        return True

    def _take_answers(self, wait: float) -> bool:
        """Take what has arrived, waiting for the first; False: nothing has."""
        taken = False
        deadline = time.monotonic() + wait
        while self._connection is not None:
            try:
                answer = self._connection.receive(deadline)
            except OSError:
                self._disconnect()
                return True  # it did say something: that it is gone
            if answer is None:
                break
            if isinstance(answer, cw.Published):
                taken = True
                deadline = 0.0  # for the others nobody waits
                self._patience = PATIENCE_S
                self._published(answer.sequence)
        return taken

    def _published(self, sequence: int) -> None:
        self.accepted = max(self.accepted, sequence)
        while self._unanswered and self._unanswered[0].last <= sequence:
            self._unanswered.popleft()

    # -- Reading -------------------------------------------------------------------------------

    def tail(self, first: int = 1) -> Iterator[cw.Delivered | None]:
        """Every accepted pack from position `first` on, forever; None whenever nothing has come
        for a second, so that the caller can do something else."""
        servers = Servers(self._addresses)
        while True:
            connection = servers.connect(time.monotonic() + self._timeout)
            try:
                for delivered in self._tail_once(connection, first):
                    if delivered is not None:
                        first = delivered.position + pack.read_header(delivered.pack).count
                    yield delivered
            except OSError:
                pass  # gone; another server has the same packs at the same positions
            finally:
                connection.close()

    def _tail_once(self, connection: Connection, first: int) -> Iterator[cw.Delivered | None]:
        """One connection's worth: ends when the server does not answer, or knows no leader."""
        connection.send(cw.Tail(first, CREDIT_BYTES))
        silence = taken = 0
        while silence < PATIENCE_S:
            answer = connection.receive(time.monotonic() + 1.0)
            if isinstance(answer, cw.Delivered):
                taken += len(answer.pack)
                silence = 0
                yield answer
                if taken > CREDIT_BYTES // 2:
                    connection.send(cw.Credit(taken))
                    taken = 0
            elif answer is None:
                # Silence is no news: the server is asked whether it lives and hears the others.
                silence += 1
                connection.send(cw.AskStatus())
                yield None
            elif isinstance(answer, cw.Status) and answer.leader is not None:
                silence = 0

    # -- Connections ---------------------------------------------------------------------------

    def _connect(self, deadline: float) -> Connection:
        self._connection = self._servers.connect(deadline)
        self.reconnections += 1
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
