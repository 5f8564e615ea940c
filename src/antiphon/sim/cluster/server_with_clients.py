"""A simulated server with clients: drives the same `Home` as `server/clients.py` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from antiphon.broker.home.effects import (
    Admit,
    Cut,
    Effect,
    Hold,
    Propose,
    Redirect,
    RelayTo,
    Store,
    Tell,
)
from antiphon.broker.home.home import Home
from antiphon.broker.home.local_acks import OwnJournal
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Entry
from antiphon.formats.server_messages import Relay
from antiphon.log.effects import Accepted, Applied, LocalStored, Rejected
from antiphon.sim.cluster.client_links import SimLink
from antiphon.sim.cluster.disk import SimDisk
from antiphon.sim.cluster.server import SimServer

if TYPE_CHECKING:
    from antiphon.sim.cluster.messaging_world import MessagingWorld


class WatchedBroker(Broker):
    """Tells of each entry with the state right after it; a server applies several at a time."""

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
    def __init__(self, world: MessagingWorld, number: int, disk: SimDisk) -> None:
        super().__init__(world, number, disk)
        self.world: MessagingWorld = world
        self.home: Home
        self.links: dict[int, SimLink] = {}
        self._last_link = 0

    def make_machine(self) -> Broker:
        return WatchedBroker(self.world.plan.retain or 0, self.world.entry_applied)

    @property
    def broker(self) -> Broker:
        assert isinstance(self.machine, Broker)
        return self.machine

    def begin(self) -> None:
        assert self.world.plan.messaging is not None
        life = self._random.getrandbits(62)
        settings = self.world.plan.messaging.home
        self.links = {}
        own = OwnJournal(self.id.incarnation, self.journal.opening, self.journal.found_local)
        self.home = Home(
            self.number,
            life,
            self.broker,
            self.journal,
            settings,
            self.now_ms(),
            own if self.world.plan.local else None,
        )
        self.journal.local = self.home.kept

    def end(self, power: bool) -> None:
        for link in self.links.values():
            link.server_died(silently=power or self.world.dies_silently())
        self.links = {}

    # -- Clients -------------------------------------------------------------------------------

    def accept(self, link: SimLink) -> None:
        self.links[link.number] = link
        self.home.connected(link.number, self.now_ms())

    def next_link(self) -> int:
        self._last_link += 1
        return self._last_link

    def from_client(self, link: SimLink, request: cw.Request) -> None:
        if link.number in self.links:
            self.home.received(link.number, request, self.now_ms())
            self._carry_out_home()

    def relayed(self, effect: RelayTo) -> None:
        self.home.relayed(effect.session, effect.attachment, effect.body)
        self._carry_out_home()

    def drained(self, link: SimLink) -> None:
        self.home.drained(link.number)

    def remove(self, node: int) -> None:
        """As an operator does with a server that does not come back."""
        request = self.world.changes.asked(self, node)
        self.carry_out(self.node.change(node, self.now_ms(), request))

    def link_lost(self, link: SimLink) -> None:
        if self.links.pop(link.number, None) is not None:
            self.home.lost(link.number)
            self._carry_out_home()

    # -- The home's effects --------------------------------------------------------------------

    def _carry_out_home(self) -> None:
        while effects := self.home.take():
            for effect in effects:
                self._home_effect(effect)

    def _home_effect(self, effect: Effect) -> None:
        self._count_down()
        if isinstance(effect, Propose):
            self.carry_out(self.node.propose(effect.payloads, self.now_ms()))
        elif isinstance(effect, RelayTo):
            self._relay(effect)
        elif isinstance(effect, Store):
            self.journal.append((effect.record,), (LocalStored(effect.batch),))
            self.node.wrote_besides(len(effect.record.data))
        elif (link := self.links.get(effect.link)) is None:
            return  # it has left meanwhile
        elif isinstance(effect, Tell):
            if isinstance(effect.answer, cw.Deliver) and not effect.answer.reason:
                self._look_at(effect.answer)
            link.to_client(effect.answer)
        elif isinstance(effect, Redirect):
            link.to_client(cw.Redirect(effect.node, self.world.address_of(effect.node)))
        elif isinstance(effect, Admit):
            link.admitted = True
        elif isinstance(effect, Hold):
            link.hold(effect.hold)
        elif isinstance(effect, Cut):
            del self.links[effect.link]
            link.closed_by_server()

    def _relay(self, effect: RelayTo) -> None:
        if effect.node in self.node.routes.detours:
            message = Relay(effect.session, effect.attachment, effect.body)
            self.carry_out(self.node.relay(effect.node, message))
        else:
            self.world.relay(self, effect)

    def passed_on(self, message: Relay) -> None:
        self.home.relayed(message.session, message.attachment, message.body)
        self._carry_out_home()

    def _look_at(self, deliver: cw.Deliver) -> None:
        count = pack.read_header(deliver.pack).count
        self.world.ledger.sent(deliver.position, count, self.broker.stamp)

    def propose_waiting(self) -> None:
        replica = self.node.replica
        self.home.follow(replica.reign, replica.leading is not None)
        self.home.flush(self.now_ms())
        self._carry_out_home()

    def dispatch(self) -> None:
        more = self.home.dispatch()
        for session, row in self.home.dispatcher.rows:
            if row.kind == cw.DEAD:
                self.world.ledger.gives_up((session, row.consumer), row.first)
        if more:
            self.world.at(1, self.world.on_server, self, self.lives, self._nothing)
        self._carry_out_home()

    def _nothing(self) -> None:
        """Another turn, in which there is more to dispatch."""

    def applied(self, effect: Applied) -> None:
        self.home.applied(effect.accepted, effect.events, self.now_ms())

    def rejected(self, effect: Rejected) -> None:
        self.home.rejected(effect.packs, self.now_ms())

    def stored(self, tail: LocalStored) -> None:
        self.home.stored(tail.batch)
        self._carry_out_home()

    def restored(self) -> None:
        self.home.restored()
        self._carry_out_home()

    # -- Time ----------------------------------------------------------------------------------

    def deadline_ms(self) -> int:
        due = self.home.next_deadline_ms()
        return self.node.next_deadline_ms() if due is None else min(due, super().deadline_ms())

    def tick(self, due_us: int) -> None:
        if self._timer_us == due_us:
            self.home.tick(self.now_ms())
        super().tick(due_us)
