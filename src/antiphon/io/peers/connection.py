"""One TCP connection between two processes of a channel: frames both ways, none before a good
handshake (`formats/peer_wire.py`).

Promise: frames arrive whole, in order and from the process that its handshake names, or the
connection ends with a reason; before the handshake no other side can make this process keep more
than `HELLO_MAX` bytes, or wait longer than `HANDSHAKE_S`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol, cast

from antiphon.errors import FormatError
from antiphon.formats import peer_wire as wire
from antiphon.formats.frames import FRAME_MAX, Body, frame
from antiphon.formats.peer_wire import PeerHello
from antiphon.io.frame_reader import FrameReader
from antiphon.io.transport import LINGER_S, settle, write_parts

HANDSHAKE_S = 5.0
"""Within this time a connection has shaken hands, or it is closed."""

QUEUE_BYTES = 96 << 20
"""The bytes that may wait to be sent to one process: more than the stack lets a process owe
(`Flow`), and more than the largest frame. What has no room beside that is sent because somebody
lacks it, perhaps more than once: it is dropped, and asked for again when there is room..."""

SMALL_BYTES = 64 << 10
SMALL_QUEUE_BYTES = 16 << 20
"""... unless it is small: heartbeats, acknowledgements and changes of views have this much room
more. Without it the connection ends, and its process is dialled again."""

WRITE_BUFFER_BYTES = 256 << 10
"""The bytes that the event loop may hold ahead of the socket; the rest waits here, where it is
counted."""

UNACKNOWLEDGED_MS = 5000
"""A connection whose bytes the other side does not take for this long is given up, rather than
waiting for TCP's own patience of many minutes."""


class Hub(Protocol):
    """The transport, as its connections see it. Called on the loop."""

    own: PeerHello

    def opened(self, connection: PeerConnection) -> None:
        """Take a connection, before any handshake."""

    def greeted(self, connection: PeerConnection, hello: PeerHello) -> wire.Refused | None:
        """Check the other side's handshake; return why it is refused, None: it is welcome."""

    def ready(self, connection: PeerConnection) -> bool:
        """Take the end of the handshake; return whether this connection is used from here on."""

    def asked(self, question: wire.Question) -> wire.Answer:
        """Answer a program that does not take part."""

    def came(self, connection: PeerConnection, bodies: Sequence[Body]) -> None:
        """Take frames of the stack."""

    def refused(self, connection: PeerConnection, reason: str, again: bool) -> None:
        """Note that one of the two sides refuses this connection. `again`: a later one may be
        welcome."""

    def replaced(self, reason: str) -> None:
        """Note that the other side has a member of this process's name."""

    def left(self, connection: PeerConnection) -> None:
        """Take the end of a connection."""


class PeerConnection(asyncio.BufferedProtocol):
    """One connection; promises are the module's."""

    def __init__(self, hub: Hub, dialled: bool) -> None:
        self.dialled = dialled
        self.peer: PeerHello | None = None  # after its handshake
        self.used = False  # the handshake is over, and this is the one between the two
        self.doubled = False  # another one is used instead
        self.goodbye = False  # the other side has said that it ends
        self.reason = ""  # why it ended, if that is known
        self.name = "?"
        self.host = ""  # of the other side
        loop = asyncio.get_running_loop()
        self.shaken: asyncio.Future[None] = loop.create_future()
        """Done when the handshake is over, well or not."""
        self.lost: asyncio.Future[None] = loop.create_future()
        self._hub = hub
        self._loop = loop
        self._reader = FrameReader(wire.HELLO_MAX)
        self._socket: asyncio.Transport | None = None
        self._queue: list[Body] = []
        self._queued_bytes = 0
        self.dropped = 0  # large frames that had no room
        self._full = False  # the event loop holds enough; later frames wait in the queue
        self._timer: asyncio.TimerHandle | None = None

    # -- Called by the event loop --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._socket = transport
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.host, self.name = address[0], f"{address[0]}:{address[1]}"
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        _set_options(transport.get_extra_info("socket"))
        late = f"it has not shaken hands within {HANDSHAKE_S:g} s"
        self._timer = self._loop.call_later(HANDSHAKE_S, self.end, late)
        self._hub.opened(self)
        if self.dialled:
            self._say_hello()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        bodies: list[Body] = []
        try:
            for body in self._reader.arrived(nbytes):
                if self.ended:
                    break
                if not self.used:
                    self._shake_hands(body)
                elif body and body[0] == wire.MARK:
                    self._hear(body)
                else:
                    bodies.append(body)
        except FormatError as error:
            self.end(str(error))
        if bodies:
            self._hub.came(self, bodies)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.reason:
            self.reason = str(error) if error is not None else "the other side has closed it"
        self._stop_timer()
        self._queue.clear()
        settle(self.shaken, None)
        settle(self.lost, None)
        self._hub.left(self)

    # -- Called by the transport ---------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    @property
    def waiting_bytes(self) -> int:
        """Return the number of bytes that were sent and have not left for the event loop yet."""
        return self._queued_bytes

    def send(self, head: bytes, body: Body) -> None:
        """Queue a frame; `flush` sends it."""
        size = len(head) + len(body)
        if self._queued_bytes + size > QUEUE_BYTES and not self._makes_room(size):
            return
        self._queue += (head, body)
        self._queued_bytes += size

    def _makes_room(self, size: int) -> bool:
        """Return whether a frame is queued though too much waits."""
        if size > SMALL_BYTES:
            self.dropped += 1
            return False
        if self._queued_bytes + size > QUEUE_BYTES + SMALL_QUEUE_BYTES:
            self.abort(f"it has not taken {self._queued_bytes} bytes that were sent to it")
            return False
        return True

    def say(self, word: wire.Word) -> None:
        """Send a word about the connection, at once if there is room."""
        self._queue.append(frame(wire.encode_word(word)))
        self.flush()

    def flush(self) -> None:
        """Send the queued frames, as far as the other side takes them; none if the connection
        ends."""
        if self._queue and not self._full and self._socket is not None and not self.ended:
            frames, size = self._queue, self._queued_bytes
            self._queue, self._queued_bytes = [], 0
            write_parts(self._socket, frames, size)

    def end(self, reason: str) -> None:
        """Close, after the queued frames were handed on."""
        if self._socket is None or self._socket.is_closing():
            return
        self.reason = self.reason or reason
        self._full = False
        self.flush()
        self._socket.close()
        self._loop.call_later(LINGER_S, self._socket.abort)

    def abort(self, reason: str) -> None:
        """Close at once."""
        self.reason = self.reason or reason
        if self._socket is not None:
            self._socket.abort()

    # -- The handshake -------------------------------------------------------------------------

    def _say_hello(self) -> None:
        self._queue.append(frame(wire.encode_hello(self._hub.own)))
        self.flush()

    def _shake_hands(self, body: Body) -> None:
        if self.peer is None:
            if not self.dialled and body and body[0] == wire.MARK:
                self._answer(wire.decode_word(body))
            else:
                self._greet(wire.decode_hello(body))
            return
        self._hear(body)
        if self.ended:
            return
        if self.dialled:
            self.say(wire.Ready())
        self._use()

    def _answer(self, word: wire.Word) -> None:
        if not isinstance(word, wire.Question):
            raise FormatError(f"{type(word).__name__} before the handshake")
        self.say(self._hub.asked(word))
        self.end("its question was answered")

    def _greet(self, hello: PeerHello) -> None:
        self.peer = hello
        self.name = f"{hello.member} at {self.name}"
        if not self.dialled:
            self._say_hello()  # before a refusal: so the other side knows this process
        refused = self._hub.greeted(self, hello)
        if refused is not None:
            self.say(refused)
            self._hub.refused(self, refused.reason, refused.again)
            self.end(refused.reason)
        elif not self.dialled:
            self.say(wire.Ready())

    def _use(self) -> None:
        self._stop_timer()
        self._reader.limit = FRAME_MAX
        self.used = self._hub.ready(self)
        if not self.used:
            self.double()
        settle(self.shaken, None)

    def _hear(self, body: Body) -> None:
        match wire.decode_word(body):
            case wire.Refused(reason, again, replaced):
                self._hub.refused(self, f"it refuses: {reason}", again)
                self.end(f"it refuses: {reason}")
                if replaced:
                    self._hub.replaced(reason)
            case wire.Goodbye():
                self.goodbye = True
                self.end("it has said goodbye")
            case wire.Doubled():
                self.doubled = True
                self.end("there is another connection")
            case wire.Ready():
                if self.used:
                    raise FormatError("ready twice")
            case wire.Question() | wire.Answer():
                raise FormatError("a question or an answer behind a handshake")

    def double(self) -> None:
        """Give this connection up for another one to the same process."""
        self.doubled, self.used = True, False
        self.say(wire.Doubled())
        self.end("there is another connection")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
