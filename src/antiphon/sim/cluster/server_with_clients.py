"""A simulated server with clients: the driver that ships, `driver/server.py`, on simulated
connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from antiphon.broker.home.effects import Effect, Tell
from antiphon.broker.home.home import Home
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.servers import LOCAL, REPLICATED
from antiphon.driver.assembly import OpenLog
from antiphon.driver.clients import Client, Clients
from antiphon.driver.server import ServerDriver
from antiphon.errors import FormatError
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Entry, ReplicaId
from antiphon.formats.server_messages import Message, Relay
from antiphon.log.effects import Accepted
from antiphon.sim.cluster.client_links import SimLink
from antiphon.sim.cluster.disk import SimDisk
from antiphon.sim.cluster.server import SimServer

if TYPE_CHECKING:
    from antiphon.sim.messaging_world import MessagingWorld


class WatchedBroker(Broker):
    """A state machine that reports each entry with the state right after it; a server applies
    several at a time."""

    def __init__(
        self, retain: int, observe: Callable[[Broker, Entry, list[ev.Event]], None]
    ) -> None:
        super().__init__(retain)
        self._observe = observe

    def apply(self, entry: Entry) -> list[Accepted]:
        told = len(self.events)
        accepted = super().apply(entry)
        self._observe(self, entry, self.events[told:])
        return accepted


class SimHome(SimServer):
    """A simulated server that also serves clients, over simulated connections."""

    def __init__(self, world: MessagingWorld, number: int, disk: SimDisk) -> None:
        super().__init__(world, number, disk)
        self.world: MessagingWorld = world
        self.home: Home
        self.clients: Clients
        self.links: dict[SimLink, Client] = {}

    def make_machine(self) -> Broker:
        return WatchedBroker(self.world.plan.retain or 0, self.world.entry_applied)

    @property
    def broker(self) -> Broker:
        assert isinstance(self.machine, Broker)
        return self.machine

    def put_clients_on(self, opened: OpenLog) -> None:
        plan = self.world.plan
        self.links = {}
        self.life = self.new_number()
        self.ends_in_order = False
        self.driver = ServerDriver(
            opened,
            self.broker,
            self,
            self,
            self.life,
            self.world.home_settings,
            LOCAL if plan.local else REPLICATED,
            watch=self.watch_home,
            kind=WatchedClients,
        )
        self.clients = self.driver.clients
        self.home = self.clients.home

    def begin(self) -> None:
        self.driver.start()

    def settle(self) -> None:
        self.driver.turn()

    def end_in_order(self, for_us: int, power: bool) -> None:
        """End as an operator wants it, and start again after a while. `power`: the machine is
        switched off in between."""
        if not self.ends_in_order:
            self.ends_in_order = True
            self.driver.end(partial(self._has_ended, for_us, power))

    def _has_ended(self, for_us: int, power: bool) -> None:
        self.world.ended_in_order(self)
        self.crash(power)
        self.world.at(for_us, self.start)

    def watch_home(self, effect: Effect) -> None:
        """Report the messages of the home to the ledger."""
        self.count_down()
        if isinstance(effect, Tell) and isinstance(effect.answer, cw.Deliver):
            deliver = effect.answer
            if not deliver.reason:
                count = pack.read_header(deliver.pack).count
                self.world.ledger.sent(deliver.position, count, self.broker.stamp)

    def end(self, power: bool) -> None:
        for link in self.links:
            link.server_died(silently=power or self.world.dies_silently())
        self.links = {}

    # -- Clients -------------------------------------------------------------------------------

    def accept(self, link: SimLink) -> None:
        if self.log.closed:
            link.end()  # as a transport does that is being closed
        else:
            self.links[link] = self.clients.connect(link)

    def from_client(self, link: SimLink, body: bytes) -> None:
        if (client := self.links.get(link)) is not None:
            try:
                client.take(body)
            except FormatError as error:
                link.end(str(error))

    def drained(self, link: SimLink) -> None:
        if (client := self.links.get(link)) is not None:
            client.writable()

    def link_lost(self, link: SimLink) -> None:
        if (client := self.links.pop(link, None)) is not None:
            client.closed()

    def remove(self, node: int) -> None:
        """Remove a server, as an operator does with one that does not come back."""
        self.log.change(node, self.world.changes.asked(self, node))

    # -- The desk of the driver of clients (`driver/clients.py: Desk`) -------------------------

    def status(self) -> cw.Status:
        raise NotImplementedError("no simulated program asks for it")

    def address_of(self, node: int) -> str:
        return self.world.address_of(node)

    def check_address(self, text: str) -> None:
        raise NotImplementedError("no simulated program adds servers")

    # -- Messages beside the log ---------------------------------------------------------------

    def send(self, to: ReplicaId, message: Message) -> None:
        if isinstance(message, Relay):
            self.world.relay(self, to.node, message)
        else:
            super().send(to, message)


class WatchedClients(Clients):
    """Clients of a server; reports messages that the server will not send again to the ledger."""

    desk: SimHome

    def deliver(self) -> None:
        super().deliver()
        for session, row in self.home.dispatcher.rows:
            if row.kind == cw.DEAD:
                self.desk.world.ledger.gives_up((session, row.consumer), row.first)
