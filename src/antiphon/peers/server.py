"""One server of a `peer:` URL: the broker in this process, over a channel to the others.

It is what `server/server.py` is behind a socket, with a channel (`process.py`) and its log
(`log/log.py`) in place of the replicas and their log. Nothing is on a disk: what was accepted is in
the memory of all processes, and outlives those of them that end, but not a majority.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from antiphon.api.protocol.ticket import Ticket
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.groups import report
from antiphon.broker.machine.machine import Broker
from antiphon.driver.assembly import clients_on
from antiphon.driver.server import SWEEP_S
from antiphon.errors import IllegalStateError
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Membership, ReplicaId
from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from antiphon.log.settings import Settings as LogSettings
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.discovery.urls import Cluster
from antiphon.peers.log.log import PeerLog
from antiphon.peers.process import Process, Settings, now_ms
from antiphon.peers.stack.stacks import total_uniform

logger = logging.getLogger("antiphon.peers.server")

Result = TypeVar("Result")

_numbers = itertools.count(1)


class PeerServer:
    """One server on this thread's event loop. Call `start`, and `close` in the end; `ended` is done
    when it is over, with the reason. It is `Port` to its log, and `Desk` to its clients."""

    def __init__(self, cluster: Cluster) -> None:
        """Raise `ConfigurationError` if nobody can be found in this way here."""
        self._loop = loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        settings = Settings(
            total_uniform(primary_partition=True, state_counts=True), cluster.process or _name()
        )
        self._process = Process(loop, loop.call_soon, settings, cluster)
        self._process.driver.provides_state()
        self._process.server_counts = self.counts
        me = self._process.me
        self.broker = Broker(0)
        journal, _ = open_journal(RamDisk(), _new_number)
        conversation = self._process.conversation
        self.log = PeerLog(me, conversation, self.broker, journal, self, LogSettings(volatile=True))
        life = _new_number()
        home_settings = HomeSettings()
        self.clients = clients_on(
            self.log, journal, self.broker, self, me.incarnation, life, home_settings
        )
        self._timer: asyncio.TimerHandle | None = None

    # -- Starting and ending -------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster; return when this process can be reached and knows whom to dial. Raise
        what hinders that."""
        process = self._process
        process.start()
        await self._settled(process.started)
        process.started.outcome()
        self.log.start(self.clients)
        self._sweep()

    async def close(self) -> None:
        """Leave the cluster, and release all resources."""
        self.log.close()
        self.clients.close()
        if not self.ended.done():
            self.ended.set_result(None)
        self._process.driver.do(Conversation.leave)
        await self._settled(self._process.released)

    async def _settled(self, ticket: Ticket) -> None:
        done = asyncio.Event()
        ticket.watch(done.set)
        await done.wait()

    def failed(self, error: BaseException) -> None:
        """End: from here on nothing is carried out."""
        self.log.close()
        if not self.ended.done():
            logger.critical("%s ends: %s: %s", self._process.me, type(error).__name__, error)
            self.ended.set_exception(error)
            self._process.driver.do(Conversation.leave)

    def guarded(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call for the loop: an error in it ends this server, and nothing else."""
        try:
            call(*args)
        except Exception as error:
            logger.exception("%s: a mistake", self._process.me)
            self.failed(error)

    # -- For the log (`log/log.py: Port`) --------------------------------------------------------

    now_ms = staticmethod(now_ms)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def do(self, what: Callable[[Conversation], Result]) -> Result:
        return self._process.driver.do(what)

    def is_primary(self) -> bool:
        return self._process.is_primary

    def turn_soon(self) -> None:
        self._loop.call_soon(self.guarded, self.log.settle)

    def soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(self.guarded, call)

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        self._loop.call_later(wait_s, self.guarded, call)

    def set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = max(0, due_ms - now_ms()) / 1000
        self._timer = self._loop.call_later(wait_s, self.guarded, self.log.tick)

    def impaired(self, reason: str) -> None:
        logger.error("%s: no room: %s", self._process.me, reason)

    def recovered(self) -> None:
        logger.info("%s: there is room again", self._process.me)

    def _sweep(self) -> None:
        """Ask again what was not answered."""
        if not self.log.closed:
            self.clients.sweep()
            self.later(SWEEP_S, self._sweep)

    # -- For clients (`driver/clients.py: Desk`) -------------------------------------------------

    def address_of(self, node: int) -> str:
        return ""  # clients are in the processes themselves, and go nowhere else

    def check_address(self, text: str) -> None:
        raise IllegalStateError("there are no servers to add")

    def status(self) -> cw.Status:
        log, process = self.log, self._process
        me = process.me.incarnation
        reign = log.reign
        members = log.members
        return cw.Status(
            ReplicaId(me, me),
            os.getpid(),
            "leader" if log.leads else "member" if reign else "waits",
            log.epoch,
            ReplicaId(reign[0], reign[0]) if reign else None,
            Membership(0, tuple(ClusterMember(one.incarnation, 0, True) for one in members)),
            {one.incarnation: one.name for one in members},
            log.index,
            log.index,
            self.broker.position,
            self.broker.digest,
            time.process_time(),
            tuple(self._trouble()),
            self.counts(),
            report.groups(self.broker),
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """Return for each part of the chain its counts of work done and work waiting."""
        return {"session": self.clients.home.counts(), "journal": self.log.journal.counts()}

    def _trouble(self) -> Iterator[str]:
        if hindrance := self._process.driver.hindrance:
            yield hindrance


def _name() -> str:
    """Return a name that no other process has: programs name their members, not their servers."""
    host = socket.gethostname()[:32]
    return f"{host}.{os.getpid()}.{next(_numbers)}-{secrets.token_hex(3)}"


def _new_number() -> int:
    """Return a positive number that nobody draws again."""
    return secrets.randbits(62) + 1
