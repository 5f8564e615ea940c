"""One server: drives a node, its journal and its clients with real sockets, files and clocks.

The way of a message through it (`Server.__init__` puts the pieces together in the opposite order):

    listener     `io/transport.py` (or `embedded.py`) takes it from a client's connection,
    session      `driver/clients.py` and `broker/home/home.py` check it and propose it,
    log          `log/node.py` orders it with the other servers,
    journal      `journal/journal.py` has it on disk,
    broker       `broker/machine/machine.py` accepts it: it has a position, and consumers,
    dispatcher   `broker/dispatch/dispatcher.py` sends it to those who are connected here,

and back through session and listener. `counts` has what each of them has done and is waiting for.

All decisions on that way are in pure code, below `driver/server.py`, put together in
`driver/assembly.py`; the simulator uses both as well. This module runs them with a loop, sockets,
files, threads and clocks (`loop_port.py`), and reports their status and counts to operators. A
broken invariant, a failed sync or a damaged record ends the server (`ended`), for only a restart
knows what is really on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, overload

from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.groups import report
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.servers import REPLICATED
from antiphon.driver.assembly import open_log
from antiphon.driver.server import SWEEP_S, ServerDriver
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Membership
from antiphon.io.sync_thread import Syncing
from antiphon.io.transport import Address, Transport, format_address, parse_address, settle
from antiphon.journal.disk import Disk
from antiphon.log.settings import Settings
from antiphon.server.loop_port import LoopPort, now_ms
from antiphon.server.trace import ServerTrace

logger = logging.getLogger("antiphon.server.server")

CLOCK_S = 1.0
"""How often the wall clock is looked at."""


class Server:
    """One server on this thread's event loop. Call `start`, and `close` in the end. The future
    `serves` is done when the server first hears of a leader, `ended` when it is over, with the
    reason."""

    def __init__(
        self,
        node: int,
        listed: dict[int, Address],
        disk: Disk,
        settings: Settings,
        retain: int | None = None,
        home_settings: HomeSettings | None = None,
        contexts: str = REPLICATED,
        trace: str | None = None,
    ) -> None:
        """Open the journal; raise the errors of `open_journal`. `trace`: a folder for a trace of
        all messages (`server/trace.py`). `retain`: the number of messages that stay readable
        although no consumer needs them; None: all. `contexts`: where acknowledgements of topics are
        kept, REPLICATED or LOCAL, which needs a disk that is not volatile."""
        assert contexts == REPLICATED or not disk.volatile
        self._listed = listed
        self.broker = Broker(retain)
        self._sync_thread = Syncing(disk.sync)
        self._port = LoopPort(self._sync_thread, self._turn, self._tick, self._fail)
        self.guarded = self._port.guarded
        opened = open_log(
            node,
            {n: format_address(address) for n, address in listed.items()},
            disk,
            self.broker,
            settings,
            self._port,
            _new_number,
            random.Random(),
        )
        self.journal, recovered, self.node, self.log = opened
        self._damage = recovered.damage
        home_settings = home_settings or HomeSettings()
        life = _new_number()
        self._driver = ServerDriver(
            opened, self.broker, self._port, self, life, home_settings, contexts
        )
        self.clients = self._driver.clients
        self.home = self.clients.home
        self.trace = ServerTrace(trace, node, self.broker) if trace is not None else None
        self.clients.trace = self.trace
        self._transport = Transport(
            self.node.replica.id,
            self.log.receive,
            self.clients.connect,
            partial(self._port.soon, self.log.gone),
            self.log.alive,
            cw.CONTROL_MAX,
        )
        self._port.send = self._transport.send
        self._membership: Membership | None = None  # the one whose addresses are dialled

    # -- Starting and ending -------------------------------------------------------------------

    @overload
    async def start(self, listen: Address) -> Address: ...
    @overload
    async def start(self, listen: None) -> None: ...
    async def start(self, listen: Address | None) -> Address | None:
        """Listen, and begin to take part in the cluster; return the address. None: do not listen,
        only `clients.connect` leads here."""
        self._loop = asyncio.get_running_loop()
        self._port.start()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.serves: asyncio.Future[None] = self._loop.create_future()
        address = await self._listen(listen) if listen is not None else None
        self._look_at_the_clock()
        self._driver.start()
        self._sweep()
        return address

    async def _listen(self, listen: Address) -> Address:
        # The loop is this server's own: every error on it concerns this server.
        self._loop.set_exception_handler(self._on_exception)
        address = await self._transport.listen(*listen)
        own = self.node.replica.id.node
        if self._listed[own][1] == 0:
            self._listed = {**self._listed, own: address}
        return address

    async def close(self) -> None:
        """End in order (`driver/server.py`), unless this server has failed, and release all
        resources. Records that were not synced yet were not acknowledged either."""
        if not self.ended.done():
            over: asyncio.Future[None] = self._loop.create_future()
            self.guarded(self._driver.end, partial(settle, over, None))
            await asyncio.wait({over, self.ended}, return_when=asyncio.FIRST_COMPLETED)
        self._driver.close()
        settle(self.ended, None)
        await self._transport.close()
        if self.trace is not None:
            self.trace.close()
        await self._loop.run_in_executor(None, self._sync_thread.close)

    def _fail(self, error: BaseException) -> None:
        """End: from here on nothing is carried out and nothing is released."""
        self.log.closed = True
        if not self.ended.done():
            logger.critical("this server ends: %s: %s", type(error).__name__, error, exc_info=error)
            self.ended.set_exception(error)

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take an error that a callback raised. Errors of sockets are expected; any other one ends
        this server, for its state is unknown."""
        error = context.get("exception")
        if error is None or (isinstance(error, OSError) and "accept" in context["message"]):
            logger.error("%s: %s", context["message"], error)
        else:
            self._fail(error)

    # -- Time ----------------------------------------------------------------------------------

    def _look_at_the_clock(self) -> None:
        if not self.ended.done():
            self.node.set_wall_offset(time.time_ns() // 1_000_000 - now_ms())
            self._port.later(CLOCK_S, self._look_at_the_clock)

    def _sweep(self) -> None:
        if not self.ended.done():
            self._transport.sweep()
            self._port.later(SWEEP_S, self._sweep)

    def _tick(self) -> None:
        self.log.tick()

    # -- For clients (`driver/clients.py: Desk`) -----------------------------------------------

    now_ms = staticmethod(now_ms)

    def address_of(self, node: int) -> str:
        address = self._addresses().get(node)
        return format_address(address) if address is not None else ""

    def check_address(self, text: str) -> None:
        parse_address(text)

    def status(self) -> cw.Status:
        r = self.node.replica
        return cw.Status(
            r.id,
            os.getpid(),
            r.role.value,
            r.epoch,
            r.leader_id,
            r.memberships.current,
            {n: format_address(address) for n, address in self._addresses().items()},
            r.commit,
            self.node.applied,
            self.broker.position,
            self.broker.digest,
            time.process_time(),
            tuple(self._trouble()),
            self.counts(),
            report.groups(self.broker),
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """Return for each part of the chain its counts of work done and work waiting."""
        return {
            "listener": self._transport.counts(),
            "session": self.home.counts(),
            "log": {
                "uncommitted": self.node.replica.log.last - self.node.replica.commit,
                "unapplied": self.node.replica.commit - self.node.applied,
                "doubts": self.node.replica.election.doubts,
            },
            "journal": {**self.journal.counts(), "syncs": self.log.syncs},
            "broker": {
                "sessions": len(self.broker.sessions),
                "held": sum(session.held for session in self.broker.sessions.values()),
                "subscriptions": len(self.broker.topics.subscriptions),
                "queues": len(self.broker.queues),
                "queued": sum(queue.count for queue in self.broker.queues.values()),
                "waiting_again": sum(queue.held_count for queue in self.broker.queues.values()),
                "dropped": self.broker.dropped,
            },
            "dispatcher": self.home.dispatcher.counts(),
        }

    def _trouble(self) -> Iterator[str]:
        r = self.node.replica
        if r.impaired:
            yield r.impaired
        if self._damage and r.id not in r.memberships.current.voters:
            yield f"being repaired from the others: {self._damage}"
        if r.removed:
            yield f"not wanted by the others: {r.removed}"
        if r.newcomer is not None and r.newcomer.complaint:
            yield f"cannot found a cluster: {r.newcomer.complaint}"

    # -- Once a turn of the loop ---------------------------------------------------------------

    def _turn(self) -> None:
        """Settle, for all inputs of one turn of the loop are in."""
        if self.ended.done():
            return
        self._driver.turn()
        self._follow_membership()
        if self.node.replica.leader_id is not None and not self.serves.done():
            self.serves.set_result(None)

    def _follow_membership(self) -> None:
        membership = self.node.replica.memberships.current
        if membership is not self._membership:
            self._membership = membership
            self._transport.set_peers(self._addresses())

    def _addresses(self) -> dict[int, Address]:
        """Return the addresses of all servers. Those that the operator lists here take precedence
        over those in the log, which may be older."""
        addresses = {}
        for member in self.node.replica.memberships.current.members:
            try:
                addresses[member.node] = parse_address(member.address)
            except FormatError:
                continue  # the leader checks addresses; a bad one is not worth a crash
        return {**addresses, **self._listed}


def _new_number() -> int:
    """Return a positive number that nobody draws again."""
    return secrets.randbits(62) + 1
