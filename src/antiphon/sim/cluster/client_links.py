"""Connections between simulated programs and servers: ordered, and gone at any moment.

Like TCP: frames arrive in order; those on their way when a connection breaks are lost, and neither
end knows how many. An end learns of a break a little later, or, if the line is *dead*, only by
missing heartbeats. A frame may come twice, as if a proxy had sent it again. Frames for a program
that does not read for a while, though it goes on sending, wait at the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from antiphon.formats import protocol as cw
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.cluster.server_with_clients import SimHome
    from antiphon.sim.messaging_world import MessagingWorld
    from antiphon.sim.programs.program import SimProgram

ATTACHED = cw.Attached.__struct_config__.tag
"""The second byte of an answer says of which kind it is."""


class SimLink:
    """One connection between a program and a server."""

    def __init__(self, world: MessagingWorld, program: SimProgram, server: SimHome) -> None:
        self.name = program.name
        self.ended = False  # by the server
        self.waiting_bytes = 0  # on their way to the program
        self.attempt = 0  # its program's, to connect; 0: not connected yet
        self.program = program
        self.server = server
        self._world = world
        self._program_life = program.lives
        self._server_life = server.lives
        self._open = True
        self._dead = False  # no frame arrives, and neither end notices
        self._held = False  # the server does not read
        self._unread_max = world.unread_bytes  # as long as the connection lasts
        self.admitted = False  # packs may come from this program
        self._unread: deque[bytes] = deque()  # at the server
        self._untaken: deque[bytes] = deque()  # at the program
        self._arrival_us = [0, 0]  # of the last frame, each way
        self._stalled_until_us = 0  # the program does not read before

    # -- Frames --------------------------------------------------------------------------------

    def send(self, requests: list[cw.Request]) -> None:
        """Send requests from the program to the server."""
        for request in requests:
            self._to_server(cw.encode(request))

    def _to_server(self, body: bytes) -> None:
        request = cw.decode_request(body)
        repeated = not isinstance(request, cw.Attach) and self._world.repeats_a_frame()
        is_pack = isinstance(request, cw.Publish)
        for _ in range(2 if repeated else 1):
            self._travel(0, self._at_server, body, is_pack)

    def _travel(self, way: int, arrive: Callable[..., None], *args: Any) -> None:
        if self._open and not self._dead:
            delay = self._world.link_delay_us()
            at = max(self._arrival_us[way] + 1, self._world.now_us + delay)
            self._arrival_us[way] = at
            self._world.at(at - self._world.now_us, arrive, *args)

    def _at_server(self, body: bytes, is_pack: bool) -> None:
        if self._open and not self._dead:
            assert self.admitted or not is_pack, "too large a first frame"
            self._unread.append(body)
            self._read()

    def _read(self) -> None:
        """Hand the server its frames, in order, unless it is paused or does not read."""
        wait_us = self.server.paused_until_us - self._world.now_us
        if wait_us > 0:
            self._world.at(wait_us, self._read)
            return
        while self._unread and self._open and not self._held and not self.ended:
            self._in_server(self.server.from_client, self, self._unread.popleft())

    def _at_client(self, body: bytes) -> None:
        if self._open and not self._dead:
            self._untaken.append(body)
            self._stalled_until_us = max(self._stalled_until_us, self._world.reads_again_us())
            self._take()

    def _take(self) -> None:
        """Hand the program its frames, in order, unless it is paused or does not read."""
        until_us = max(self.program.paused_until_us, self._stalled_until_us)
        wait_us = until_us - self._world.now_us
        if wait_us > 0:
            self._world.at(wait_us, self._take)
            return
        while self._untaken and self._open and not self._dead:
            body = self._untaken.popleft()
            self.waiting_bytes -= len(body)
            if self.program.lives == self._program_life:
                self.program.received(self, body)
            if self.waiting_bytes == 0:
                self._in_server(self.server.drained, self)

    def _in_server(self, call: Callable[..., None], *args: Any) -> None:
        self._world.on_server(self.server, self._server_life, call, *args)

    # -- The server's end (`driver/clients.py: Pipe`) -----------------------------------------

    def send_body(self, *parts: bytes) -> None:
        if self.waiting_bytes > self._unread_max:
            raise ViolationError(
                f"server {self.server.number} sends more to {self.name}, which has not read "
                f"{self.waiting_bytes} bytes"
            )
        if self._world.breaks_a_link():
            self.cut()
            return
        body = b"".join(parts)
        repeated = body[1] != ATTACHED and self._world.repeats_a_frame()
        for _ in range(2 if repeated else 1):
            self.waiting_bytes += len(body)
            self._travel(1, self._at_client, body)

    def attached(self, frame_max: int) -> None:
        self.admitted = True

    def hold(self, hold: bool) -> None:
        self._held = hold
        if not hold:
            self._world.at(1, self._read)

    def end(self, reason: str = "") -> None:
        """End the connection at the server; the client learns of it after the frames before it."""
        if not self.ended:
            self.ended = True
            self._world.faults["unread"] += self.waiting_bytes > self._unread_max
            self._travel(1, self._end_at_client)
            self.server.link_lost(self)

    # -- The end -------------------------------------------------------------------------------

    def cut(self) -> None:
        """Break the line; both ends learn of it."""
        self._tell_server()
        self._tell_client()
        self._open = False

    def die(self) -> None:
        """Make the line dead; neither end learns of it."""
        self._dead = True

    def close(self) -> None:
        """End the connection at the program, which gets no more frames."""
        self._tell_server()
        self._open = False

    def server_died(self, silently: bool) -> None:
        if not silently:
            self._tell_client()
        self._open = False

    def _end_at_client(self) -> None:
        if self._open and not self._dead:
            self._open = False
            self._lost_at_client()

    def _tell_server(self) -> None:
        if self._open and not self._dead:
            delay = self._world.link_delay_us()
            self._world.at(delay, self._in_server, self.server.link_lost, self)

    def _tell_client(self) -> None:
        if self._open and not self._dead:
            self._world.at(self._world.link_delay_us(), self._lost_at_client)

    def _lost_at_client(self) -> None:
        if self.program.lives == self._program_life:
            self.program.link_lost(self)
