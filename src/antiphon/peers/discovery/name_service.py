"""An Antiphon server or cluster as name service: `peer:antiphon://HOST:PORT,HOST:PORT/NAME`.

Two queues of the servers hold what processes know of each other: nothing else goes through them,
and a cluster of peers goes on without them.

- `antiphon.peers.NAME.members`: each process sends its address, and sends it again now and then; a
  message that is not followed by another one expires.
- `antiphon.peers.NAME.founded`: the founding record, for as long as the cluster is not over. A
  process that finds the queue empty sends a record; the first one in the queue is the record, and
  the others are taken out again by those who sent them. So there is one, though nobody locks
  anything: all see the queue in one order. It is as durable as the servers: if they keep everything
  in memory, and lose it, a second cluster may be founded beside the first one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from antiphon.errors import ConnectionLostError, JMSError
from antiphon.io.transport import format_address, parse_address
from antiphon.model.peer_views import MemberId

if TYPE_CHECKING:
    import antiphon.aio

RENEW_S = 5.0
"""How often a process sends its address again, and looks for those of others."""

EXPIRE_S = 20.0
"""An address that was not sent again for this long is that of a dead process."""

CONNECT_S = 5.0
"""How long a process looks for a server that answers."""

TAKE_S = 1.0
"""How long a process waits for a message that it wants to take out of a queue."""


class NameService:
    """The processes of one cluster, as servers know them; see the module."""

    def __init__(self, url: str, name: str) -> None:
        """`url`: of the servers."""
        first, *_ = url.removeprefix("antiphon://").split(",")
        self.listen = (format_address((own_host(*parse_address(first)), 0)),)
        self.listed: tuple[str, ...] = ()
        self.founds = True
        self._url = url
        self._name = name
        self._process = ""
        self._address = ""
        self._context: antiphon.aio.Context | None = None
        self._record = ""  # whose founding record it is, as this process saw it last
        self._looked_s = 0.0
        self._found: tuple[str, ...] = ()

    async def enter(self, member: MemberId, address: str) -> bool:
        """Make this process known; return whether it has created the founding record."""
        self._process, self._address = f"{member.incarnation:x}", address
        self._member = member
        await self._refresh()
        return await self.claim()

    async def claim(self) -> bool:
        """Create the founding record, if there was none when this process looked last."""
        if self._record:
            return False
        self._record = self._process  # from here on it may be there
        await self._send(self._founded, f"{self._member.name} at {self._address}")
        founders = await self._processes(self._founded)
        if founders[:1] == [self._process]:
            return True
        if self._process in founders:
            await self._take_record(self._process)
        self._record = next(iter(founders), "")
        return False

    async def look(self) -> Sequence[str]:
        """Return the addresses of all that were alive lately."""
        if time.monotonic() - self._looked_s >= RENEW_S:
            try:
                await self._refresh()
            except ConnectionLostError:
                self._context = None  # next time it tries to find the servers again
                raise
        return self._found

    async def _refresh(self) -> None:
        if self._process:  # it takes part, and does not only look
            await self._send(self._members, self._address, time_to_live=EXPIRE_S)
        context = await self._connected()
        browser = context.create_browser(context.create_queue(self._members))
        found = tuple({message.text: None async for message in browser})
        founders = await self._processes(self._founded)
        self._found, self._record = found, next(iter(founders), "")
        self._looked_s = time.monotonic()

    async def leave(self, last: bool) -> None:
        """Take out this process's addresses, and with `last` the founding record that it knows."""
        if self._context is None:
            return
        with suppress(JMSError):  # without this they expire
            own = [one for one in await self._processes(self._members) if one == self._process]
            await self._take(self._members, f"process = '{self._process}'", len(own))
        if last:
            await self._forget_founding()
        await self._context.close()

    async def _forget_founding(self) -> None:
        """Take out the founding record that this process knows, and those behind it whose senders
        have died before they took them out. Another one of the last may have done so before, and a
        new process have founded since then: its record stays."""
        records = await self._processes(self._founded)
        if self._record not in records:
            return
        living = await self._processes(self._members)
        for record in records[records.index(self._record) :]:
            if record == self._record or record not in living:
                await self._take_record(record)

    async def _take_record(self, process: str) -> None:
        await self._take(self._founded, f"process = '{process}'", 1)

    # -- The servers -----------------------------------------------------------------------------

    @property
    def _members(self) -> str:
        return f"antiphon.peers.{self._name}.members"

    @property
    def _founded(self) -> str:
        return f"antiphon.peers.{self._name}.founded"

    async def _connected(self) -> antiphon.aio.Context:
        import antiphon.aio

        if self._context is None or self._context.closed:
            self._context = await antiphon.aio.connect(self._url, connect_timeout=CONNECT_S)
        return self._context

    async def _send(self, queue: str, text: str, time_to_live: float = 0.0) -> None:
        context = await self._connected()
        await context.create_producer().send(
            context.create_queue(queue),
            text,
            properties={"process": self._process},
            time_to_live=time_to_live,
        )

    async def _processes(self, queue: str) -> list[str]:
        """Return who sent the messages of a queue, in their order."""
        context = await self._connected()
        browser = context.create_browser(context.create_queue(queue))
        return [message.get_string_property("process") or "" async for message in browser]

    async def _take(self, queue: str, selector: str | None, count: int) -> None:
        """Take messages out of a queue; those that expire meanwhile are gone anyway."""
        context = await self._connected()
        consumer = await context.create_consumer(context.create_queue(queue), selector)
        async with consumer:
            for _ in range(count):
                if await consumer.receive(TAKE_S) is None:
                    return


def own_host(host: str, port: int) -> str:
    """Return the address of this machine that others see who are there, and may reach it at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((host, port))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])
