"""Homes on a log that is a list: what each client said, what it heard, and what is in the log."""

from collections.abc import Callable
from typing import Any

from antiphon.broker.home.effects import Admit, Cut, Hold, Propose, Redirect, RelayTo, Store, Tell
from antiphon.broker.home.home import Home
from antiphon.broker.home.local_acks import OwnJournal
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.formats import columns, pack
from antiphon.formats import commands as command
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, Extra, Outgoing
from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, encode_membership
from antiphon.formats.journal import Row
from antiphon.log.effects import Accepted
from antiphon.model.destinations import matcher

TOKEN = b"0123456789abcdef"


class Shelf:
    """Accepted packs by position."""

    def __init__(self) -> None:
        self._packs: list[tuple[Row, bytes]] = []
        self.reads = 0
        self.remembered: dict[int, bytes] = {}

    def put(self, row: Row, payload: bytes) -> None:
        self._packs.append((row, payload))

    def fresh(self, position: int) -> bytes | None:
        return self.remembered.get(position)

    def pack(self, position: int) -> tuple[Row, bytes] | None:
        for row, payload in self._packs:
            if row.position <= position < row.position + row.count:
                return row, payload
        return None

    def rows_for(self, pattern: str, first: int, most: int) -> list[Row]:
        self.reads += 1
        matches = matcher(pattern)
        rows = (row for row, _ in self._packs)
        return [
            row for row in rows if matches(row.destination) and row.position + row.count > first
        ][:most]


class Server:
    """A home and its replica."""

    def __init__(
        self, node: int, settings: HomeSettings, now_ms: int = 0, own: OwnJournal | None = None
    ) -> None:
        """`own`: with local contexts."""
        self.node = node
        self.broker = Broker()
        self.shelf = Shelf()
        life = 100 * (own.opening if own is not None else 1) + node
        self.home = Home(node, life, self.broker, self.shelf, settings, now_ms, own)
        self.applied = 0
        self.lags = False  # it applies nothing
        self.dead = False
        self.own = own
        self.unsynced: list[Store] = []  # in its journal
        self.syncs = True  # at once

    def sync(self) -> None:
        assert self.own is not None
        unsynced, self.unsynced = self.unsynced, []
        for store in unsynced:
            self.own.records.append(store.record.data)
            self.home.stored(store.batch)


class Client:
    """A connection."""

    def __init__(self, house: "House", server: Server, link: int) -> None:
        self._house = house
        self.server = server
        self.link = link
        self.heard: list[cw.Answer] = []
        self.cut: str | None = None
        self.admitted = False
        self.held = False
        self.reads = True  # what it is told leaves at once

    def say(self, *requests: cw.Request) -> list[cw.Answer]:
        """Returns what the client heard by when all is quiet."""
        before = len(self.heard)
        for request in requests:
            self.server.home.received(self.link, request, self._house.now_ms)
            self._house.carry_out(self.server)
        self._house.settle()
        return self.heard[before:]

    def attach(self, session: int, attempt: int = 1, **options: Any) -> list[cw.Answer]:
        chosen: dict[str, Any] = {
            "token": TOKEN,
            "resume": attempt > 1,
            "client_id": "",
            "lease_ms": 10_000,
            "sequences": ((0, 1),),
            "seen": (),
            **options,
        }
        return self.say(cw.Attach(session=session, attempt=attempt, **chosen))

    def deliveries(self) -> list[tuple[int, int, int, int]]:
        """Consumer, first and last position, deliveries."""
        return [
            (d.consumer, d.position, d.position + Columns(d.pack).count - 1, d.deliveries)
            for d in self.heard
            if isinstance(d, cw.Deliver)
        ]

    def told(self, kind: type) -> list[Any]:
        return [answer for answer in self.heard if isinstance(answer, kind)]

    def lose(self) -> None:
        self.server.home.lost(self.link)
        self._house.carry_out(self.server)
        self._house.settle()


class House:
    def __init__(self, servers: int = 1, *, local: bool = False, **settings: int) -> None:
        """`local`: with local contexts."""
        self.now_ms = 0
        self._settings = HomeSettings(**settings)
        self.servers = {
            node: Server(node, self._settings, 0, OwnJournal(node, 1, []) if local else None)
            for node in range(1, servers + 1)
        }
        self.log: list[Entry] = []
        self.leader: int | None = 1
        self.epoch = 1
        self.lose_proposal: Callable[[bytes], bool] = lambda payload: False
        self.lose_relays = False  # between servers
        self.apart: set[int] = set()  # servers that cannot reach each other
        self.paused = False  # nothing is applied
        self.one_by_one = False  # entries are applied in steps of their own
        self.forgotten: set[int] = set()  # packs at these positions are not kept in memory
        self._clients: dict[tuple[int, int], Client] = {}

    def connect(self, node: int = 1) -> Client:
        server = self.servers[node]
        client = Client(self, server, len(self._clients) + 1)
        self._clients[node, client.link] = client
        server.home.connected(client.link, self.now_ms)
        return client

    def attached(self, session: int, node: int = 1, **options: Any) -> Client:
        client = self.connect(node)
        client.attach(session, **options)
        assert isinstance(client.heard[0], cw.Attached)
        return client

    def commands(self, kind: type) -> list[Any]:
        """Of this kind, in the log."""
        payloads = [e.payload for e in self.log if command.is_command(e.payload)]
        return [c for payload in payloads for c in command.decode(payload) if isinstance(c, kind)]

    def packs(self) -> list[bytes]:
        return [e.payload for e in self.log if e.kind == Kind.PACK and e.payload[4] == pack.VERSION]

    # -- Making things happen ------------------------------------------------------------------

    def settle(self) -> None:
        """Until nothing happens any more."""
        while True:
            before = (len(self.log), sum(len(c.heard) for c in self._clients.values()))
            applied = [self._turn(server) for server in self.servers.values()]
            after = (len(self.log), sum(len(c.heard) for c in self._clients.values()))
            if before == after and not any(applied):
                return

    def _turn(self, server: Server) -> bool:
        if server.dead:
            return False
        home = server.home
        leader = (self.leader, self.epoch) if self.leader is not None else None
        home.follow(leader, self.leader == server.node)
        home.flush(self.now_ms)
        self.carry_out(server)
        entries = [] if self.paused or server.lags else self.log[server.applied :]
        accepted = [a for some in self._steps(entries) for a in self._apply(server, some)]
        # A journal has the rows only now: a home must not count on them before.
        for a in accepted:
            row = Row(a.index, a.position, a.count, 0, a.stamp, a.view, a.destination)
            server.shelf.put(row, self._pack_of(a))
        more = home.dispatch()
        self.carry_out(server)
        for (node, link), client in self._clients.items():
            if node == server.node and client.reads:
                more = home.drained(link) or more
        return bool(entries) or more

    def _steps(self, entries: list[Entry]) -> list[list[Entry]]:
        return [[entry] for entry in entries] if self.one_by_one else [entries]

    def _apply(self, server: Server, entries: list[Entry]) -> tuple[Accepted, ...]:
        accepted = tuple(a for entry in entries for a in server.broker.apply(entry))
        server.applied += len(entries)
        server.shelf.remembered = {
            a.position: self._pack_of(a) for a in accepted if a.position not in self.forgotten
        }
        server.home.applied(accepted, server.broker.take_events(), self.now_ms)
        return accepted

    def _pack_of(self, accepted: Accepted) -> bytes:
        return self.log[(accepted.source or accepted.index) - 1].payload

    def carry_out(self, server: Server) -> None:
        for effect in server.home.take():
            if isinstance(effect, Propose):
                for payload in effect.payloads:
                    if not self.lose_proposal(payload):
                        self.append(Kind.PACK, payload)
                continue
            if isinstance(effect, RelayTo):
                if not self.lose_relays and not {server.node, effect.node} <= self.apart:
                    there = self.servers[effect.node]
                    there.home.relayed(effect.session, effect.attachment, effect.body)
                    self.carry_out(there)
                continue
            if isinstance(effect, Store):
                server.unsynced.append(effect)
                if server.syncs:
                    server.sync()
                    self.carry_out(server)
                continue
            client = self._clients[server.node, effect.link]
            if isinstance(effect, Tell):
                client.heard.append(effect.answer)
            elif isinstance(effect, Redirect):
                client.heard.append(cw.Redirect(effect.node, f"node-{effect.node}"))
            elif isinstance(effect, Admit):
                client.admitted = True
            elif isinstance(effect, Hold):
                client.held = effect.hold
            else:
                assert isinstance(effect, Cut)
                client.cut = effect.reason

    def append(self, kind: Kind, payload: bytes = b"") -> None:
        self.log.append(Entry(len(self.log) + 1, self.epoch, self.now_ms, kind, payload))

    def wait(self, ms: int, step: int = 250) -> None:
        """Time passes, and whoever wanted to be called at some time is."""
        for _ in range(0, ms, step):
            self.now_ms += step
            for server in [s for s in self.servers.values() if not s.dead]:
                server.home.tick(self.now_ms)
                self.carry_out(server)
            due = self.servers[1].broker.next_deadline()
            if due is not None and due <= self.now_ms:
                self.append(Kind.TICK)
            self.settle()

    def kill(self, node: int) -> None:
        self.servers[node].dead = True

    def restart(self, node: int) -> None:
        """With local contexts, on what its journal has."""
        own = self.servers[node].own
        assert own is not None
        again = OwnJournal(own.incarnation, own.opening + 1, own.records)
        self.servers[node] = Server(node, self._settings, self.now_ms, again)
        self.settle()

    def members(self, incarnations: dict[int, int]) -> None:
        """These are the servers from now on."""
        found = (ClusterMember(n, incarnation, True, "") for n, incarnation in incarnations.items())
        self.append(Kind.MEMBERSHIP, encode_membership(Membership(1, tuple(found))))
        self.settle()

    def new_leader(self, node: int | None) -> None:
        self.leader = node
        self.epoch += 1
        if node is not None:
            self.append(Kind.EPOCH)
        self.settle()


def publish(
    session: int,
    sequence: int,
    count: int = 1,
    destination: str = "topic:t",
    *,
    producer: int = 0,
    size: int = 1,
    persistent: bool = True,
) -> cw.Publish:
    body, flags = columns.encode([Outgoing(columns.BYTES, bytes(size), b"", 0)] * count)
    if not persistent:
        flags |= pack.NON_PERSISTENT
    return cw.Publish(pack.encode(destination, count, body, session, sequence, producer, flags))


def publish_each(
    session: int, sequence: int, *extras: Extra, destination: str = "topic:t", flags: int = 0
) -> cw.Publish:
    """A message for each of these, in one pack."""
    messages = [Outgoing(columns.TEXT, b"x", columns.encode_extra(extra), 0) for extra in extras]
    body, found = columns.encode(messages)
    if any(extra.time_to_live for extra in extras):
        flags |= pack.SPECIAL
    count = len(extras)
    return cw.Publish(pack.encode(destination, count, body, session, sequence, 0, flags | found))


def open_consumer(number: int, consumer: int, destination: str, **options: Any) -> cw.Control:
    prefetch = options.pop("prefetch", 100)
    return cw.Control(number, cw.OpenConsumer(consumer, destination, prefetch, **options))
