"""Homes on a log that is a list: what each client said, what it heard, and what is in the log."""

from collections.abc import Callable
from typing import Any

from antiphon.broker.home.local_acks import OwnJournal
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.driver.assembly import clients_on
from antiphon.errors import FormatError
from antiphon.formats import columns, pack
from antiphon.formats import commands as command
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, Extra, Outgoing
from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, encode_membership
from antiphon.formats.frames import Body
from antiphon.formats.journal import Local, Row
from antiphon.formats.server_messages import Relay
from antiphon.log.effects import Accepted, Applied
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

    def repeat(self, local: Callable[[], tuple[Local, ...]]) -> None:
        """There are no segments here, whose beginnings would have it."""

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
    """A home and its replica, and the driver that ships; below it the list that is the log."""

    def __init__(self, homes: "Homes", node: int, own: OwnJournal | None = None) -> None:
        """`own`: with local contexts."""
        self._homes = homes
        self.node = node
        self.broker = Broker()
        self.shelf = Shelf()
        life = 100 * (own.opening if own is not None else 1) + node
        journal: Any = self.shelf
        self.clients = clients_on(self, journal, self.broker, self, node, life, homes.settings, own)
        self.home = self.clients.home
        self.applied = 0
        self.turn_due = False
        self.lags = False  # it applies nothing
        self.dead = False
        self.own = own
        self.unsynced: list[tuple[Local, int]] = []  # in its journal
        self.syncs = True  # at once

    def sync(self) -> None:
        assert self.own is not None
        unsynced, self.unsynced = self.unsynced, []
        for record, batch in unsynced:
            self.own.records.append(record.data)
            self.clients.stored(batch)

    # -- The log below (`driver/clients.py: Log`) ----------------------------------------------

    @property
    def reign(self) -> tuple[int, int] | None:
        homes = self._homes
        return (homes.leader, homes.epoch) if homes.leader is not None else None

    @property
    def leads(self) -> bool:
        return self._homes.leader == self.node

    def propose(self, payloads: tuple[bytes, ...]) -> None:
        for payload in payloads:
            if not self._homes.lose_proposal(payload):
                self._homes.append(Kind.PACK, payload)

    def relay(self, node: int, message: Relay) -> None:
        if not self._homes.lose_relays and not {self.node, node} <= self._homes.apart:
            self._homes.servers[node].clients.relayed(message)

    def store(self, record: Local, batch: int) -> None:
        self.unsynced.append((record, batch))
        if self.syncs:
            self.sync()

    def write(self) -> bool:
        return True

    def settle_soon(self) -> None:
        self.turn_due = True

    def read(self, request: int) -> None:
        raise NotImplementedError("no test asks for a barrier here")

    def change(self, member: ClusterMember | int, request: int) -> None:
        raise NotImplementedError("no test changes the servers here")

    def transfer(self, node: int, request: int) -> None:
        raise NotImplementedError("no test changes the leader here")

    # -- The process around (`driver/clients.py: Desk`) ----------------------------------------

    def now_ms(self) -> int:
        return self._homes.now_ms

    def status(self) -> cw.Status:
        raise NotImplementedError("no test asks for it here")

    def address_of(self, node: int) -> str:
        return f"node-{node}"

    def check_address(self, text: str) -> None: ...


class Client:
    """A connection (`driver/clients.py: Pipe`)."""

    name = "a client"
    waiting_bytes = 0

    def __init__(self, homes: "Homes", server: Server) -> None:
        self._homes = homes
        self.server = server
        self.heard: list[cw.Answer] = []
        self.cut: str | None = None
        self.admitted = False
        self.held = False
        self.reads = True  # what it is told leaves at once
        self._served = server.clients.connect(self)
        self.link = self._served.number

    # -- The server's end ----------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.cut is not None

    def send_body(self, *parts: bytes) -> None:
        self.heard.append(cw.decode_answer(b"".join(parts)))

    def attached(self, frame_max: int) -> None:
        self.admitted = True

    def hold(self, hold: bool) -> None:
        self.held = hold

    def end(self, reason: str = "") -> None:
        if self.cut is None:
            self.cut = reason
            self._served.closed()

    def take(self, body: Body) -> None:
        """A message arrives at the server."""
        try:
            self._served.take(body)
        except FormatError as error:
            self.end(str(error))

    def has_read(self) -> None:
        """What was told has left."""
        if self.reads and self.cut is None:
            self._served.writable()

    def break_off(self) -> None:
        """The server notices that the connection is gone."""
        self._served.closed()

    # -- The client's end ----------------------------------------------------------------------

    def say(self, *requests: cw.Request) -> list[cw.Answer]:
        """Returns what the client heard by when all is quiet."""
        before = len(self.heard)
        for request in requests:
            self.take(cw.encode(request))
        self._homes.settle()
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
        self.break_off()
        self._homes.settle()


class Homes:
    def __init__(self, servers: int = 1, *, local: bool = False, **settings: int) -> None:
        """`local`: with local contexts."""
        self.now_ms = 0
        self.settings = HomeSettings(**settings)
        self.servers = {
            node: Server(self, node, OwnJournal(node, 1, []) if local else None)
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
        self._clients: list[Client] = []

    def connect(self, node: int = 1) -> Client:
        client = Client(self, self.servers[node])
        self._clients.append(client)
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
            before = (len(self.log), sum(len(c.heard) for c in self._clients))
            applied = [self._turn(server) for server in self.servers.values()]
            after = (len(self.log), sum(len(c.heard) for c in self._clients))
            if before == after and not any(applied):
                return

    def _turn(self, server: Server) -> bool:
        if server.dead:
            return False
        server.turn_due = False
        server.clients.propose()
        entries = [] if self.paused or server.lags else self.log[server.applied :]
        accepted = [a for some in self._steps(entries) for a in self._apply(server, some)]
        # A journal has the rows only now: a home must not count on them before.
        for a in accepted:
            row = Row(a.index, a.position, a.count, 0, a.stamp, a.view, a.destination)
            server.shelf.put(row, self._pack_of(a))
        server.clients.deliver()
        for client in self._clients:
            if client.server is server:
                client.has_read()
        return bool(entries) or server.turn_due

    def _steps(self, entries: list[Entry]) -> list[list[Entry]]:
        return [[entry] for entry in entries] if self.one_by_one else [entries]

    def _apply(self, server: Server, entries: list[Entry]) -> tuple[Accepted, ...]:
        accepted = tuple(a for entry in entries for a in server.broker.apply(entry))
        server.applied += len(entries)
        server.shelf.remembered = {
            a.position: self._pack_of(a) for a in accepted if a.position not in self.forgotten
        }
        events = server.broker.take_events()
        server.clients.applied(Applied((*entries,), accepted, server.broker.digest, events))
        return accepted

    def _pack_of(self, accepted: Accepted) -> bytes:
        return self.log[(accepted.source or accepted.index) - 1].payload

    def carry_out(self, server: Server) -> None:
        server.clients.carry_out()

    def append(self, kind: Kind, payload: bytes = b"") -> None:
        self.log.append(Entry(len(self.log) + 1, self.epoch, self.now_ms, kind, payload))

    def wait(self, ms: int, step: int = 250) -> None:
        """Time passes, and whoever wanted to be called at some time is."""
        for _ in range(0, ms, step):
            self.now_ms += step
            for server in [s for s in self.servers.values() if not s.dead]:
                server.clients.tick(self.now_ms)
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
        self.servers[node] = Server(self, node, again)
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
