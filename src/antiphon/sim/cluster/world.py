"""A simulated world: servers, clients, network and time, all from one seed, in one thread.

One heap of events; simulated time is microseconds. The faulty phase carries out the plan; then the
faults stop for a random core majority, everything else stays broken for good, and the core must
finish all work within `LIVENESS_US`, or within a multiple of that where chance needs longer
(`sim/run.py: _finish_in_time`). Safety is checked at every step of both.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

from crc32c import crc32c

from antiphon.formats import frames
from antiphon.formats.entry import Entry, Membership, ReplicaId, SnapshotMeta, encode_meta
from antiphon.formats.server_messages import Envelope, Hears, Message
from antiphon.journal.opening import EARLIER
from antiphon.log.effects import Applied
from antiphon.log.quorum import majority
from antiphon.log.recovered import Recovered
from antiphon.log.replica import Replica
from antiphon.sim.cluster.changes import Changes
from antiphon.sim.cluster.disk import SimDisk
from antiphon.sim.cluster.log_clients import SimClient
from antiphon.sim.cluster.observer import Observer
from antiphon.sim.cluster.server import SimServer
from antiphon.sim.cluster.thin_links import ThinLinks
from antiphon.sim.judges.log_oracle import Held, Oracle
from antiphon.sim.plan import Plan
from antiphon.sim.seeds import stream
from antiphon.sim.story import Event
from antiphon.sim.topology import are_connected
from antiphon.sim.violations import ViolationError

LIVENESS_US = 60_000_000
OUTSIDE_TIMES = 3
"""A core that is led over links that lose messages may take this many times as long: a lost
proposal is repeated after pauses that grow to 8 s, and a dozen steps may wait for one another."""

FOREVER_US = 1 << 60
EVENTS_MAX = 1_000_000
"""Limit of events, more than the busiest seeds have until `LIVENESS_US` is over, some 10 000 a
second: beyond it, messages cause messages without end."""

CALM_US = 2_000
"""The most time that a message or a sync takes where the faults have stopped: less than the most
impatient election timeout."""

TOLD_GONE, TOLD_GONE_US = 0.7, 500_000
"""The chance that a server learns that another's process has ended, and the longest time until
then: the other may be back by then."""


class World:
    """Servers, disks, network and time of one run; events are carried out in the order of their
    time."""

    def __init__(self, plan: Plan, story: list[Event] | None = None) -> None:
        """`story` collects the events for a report; it costs time."""
        self.plan = plan
        self.seed = plan.seed
        self.now_us = 0
        self.events = 0
        self.trace_hash = 0
        self.oracle = Oracle()
        self.faults: Counter[str] = Counter()
        self.blocked: dict[tuple[int, int], int] = {}  # directed link -> until
        self.slow: dict[tuple[int, int], int] = {}
        self.slow_disks: dict[int, int] = {}
        self.core: frozenset[int] | None = None  # after the faulty phase
        self.events_max = EVENTS_MAX  # for as much time as it has
        self.replicas: dict[ReplicaId, Replica] = {}  # every incarnation there ever was
        self.held: dict[ReplicaId, Held] = {}
        self.founding_deaths = 0  # of servers that may have promised to be founded
        self.lost: set[ReplicaId] = set()  # incarnations that will not come back
        self.parked: dict[int, bytes] = {}  # packs that are accepted later, by their entries
        self.observer = Observer()
        self.changes = Changes(self)
        self._story = story
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._requests = 0
        self._links: dict[tuple[str, int, int], Random] = {}
        self._thin = ThinLinks(plan.bandwidth)
        self._random = stream(self.seed, "world")
        self._read_random = stream(self.seed, "reads")
        self.servers = {n: self._make_server(n) for n in plan.rates}
        self.clients = [SimClient(self, n + 1) for n in range(plan.clients)]

    def _make_server(self, number: int) -> SimServer:
        disk = SimDisk(stream(self.seed, "disk", number), self.plan.volatile)
        server = self.make_server(number, disk)
        server.clock_rate = self.plan.rates[number]
        server.wall_offset_ms = 1_000_000 + number * 7
        server.wire_version = self.plan.wire_versions[number]
        return server

    def make_server(self, number: int, disk: SimDisk) -> SimServer:
        return SimServer(self, number, disk)

    def begin(self) -> None:
        """Let the clients begin their work."""
        for client in self.clients:
            self.at(1, client.begin)

    def calm(self) -> None:
        """Leave little work for the clients, since the faults have stopped."""
        for client in self.clients:
            client.operations = min(client.operations, client.done + 3)

    # -- Time ----------------------------------------------------------------------------------

    def at(self, delay_us: int, call: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._count, call, args))

    def run_until(self, end_us: int, done: Callable[[], bool] | None = None) -> None:
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= end_us:
            self.now_us, number, call, args = pop(heap)
            self.events += 1
            # Integers have the same hash in every process, with any PYTHONHASHSEED.
            self.trace_hash = hash((self.trace_hash, self.now_us, number))
            call(*args)
            if self.events > self.events_max:
                raise ViolationError(f"a storm: {self.events} events, and no end in sight")
            if done is not None and self.events % 64 == 0 and done():
                return
        self.now_us = max(self.now_us, end_us)

    def note(self, server: int, text: str) -> None:
        if self._story is not None:
            self._story.append((self.now_us, server, text))

    # -- Servers -------------------------------------------------------------------------------

    def on_server(
        self, server: SimServer, life: int, call: Callable[..., None], *args: Any
    ) -> None:
        """Call a function inside a server's process: never if that life is over, late if it is
        paused."""
        if not server.alive or server.lives != life:
            return
        if server.paused_until_us > self.now_us:
            self.at(server.paused_until_us - self.now_us, self.on_server, server, life, call, *args)
            return
        server.run(call, *args)
        self._check(server)

    def _check(self, server: SimServer) -> None:
        replica = server.node.replica
        if replica.leading is not None and server.alive:
            self.oracle.leads(replica.epoch, replica.id)

    def started(self, server: SimServer, recovered: Recovered) -> None:
        replica = server.node.replica
        self._check_damage(server, recovered.damage)
        self.replicas[replica.id] = replica
        # Opening a journal syncs all that it found.
        newest = max(name for name in server.disk.names() if name.endswith(".log"))
        self.held[replica.id] = Held(recovered.base_index, _epochs(recovered), newest)
        server.disk.on_durable = self.held[replica.id].durable
        self.oracle.started(server, replica.delivered)
        self.observer.started(server)
        what = f"starts as {replica.id} with {replica.log.last} entries"
        self.note(server.number, what + (f", {recovered.damage}" if recovered.damage else ""))
        if recovered.damage:
            self.faults["damage found"] += 1

    def refused(self, server: SimServer, damage: str) -> None:
        self.note(server.number, f"refuses to start: {damage}")
        self._check_damage(server, damage)

    def _check_damage(self, server: SimServer, found: str) -> None:
        # A server without room for a new beginning remembers only that there was damage.
        known = server.misses in found or (server.waits_for_room and found == EARLIER)
        if not known:
            raise ViolationError(
                f"server {server.number} misses the end of {server.misses}, and found {found!r}"
            )
        if found and not server.damaged:
            raise ViolationError(f"server {server.number} takes whole files for damage: {found}")
        server.misses = ""

    def crashed(self, server: SimServer) -> None:
        self.note(server.number, "dies")
        self.changes.died_us[server.id] = self.now_us
        self.observer.crashed(server)
        if self.plan.volatile or server.node.replica.stored == 0:
            self.lost.add(server.id)
        if server.node.replica.stored == 0:
            self.founding_deaths += 1
        random = stream(self.seed, "gone", server.number, server.lives)
        for other in self.servers.values():
            if other.alive and random.random() < TOLD_GONE:
                delay_us = random.randrange(TOLD_GONE_US)
                self.at(
                    delay_us, self.on_server, other, other.lives, other.told_gone, server.number
                )

    def may_lose(self, server: SimServer) -> bool:
        """Return whether the failure model admits the loss of this server's memory: in no
        membership of any server may the voters with intact memory fall below a majority."""
        if not hasattr(server, "node"):
            return True
        founding = server.node.replica.stored == 0 and server.number in self.plan.listed
        if founding and self.founding_deaths >= (len(self.plan.listed) - 1) // 2:
            return False  # a founding that is on its way may name it
        lost = self.lost | {server.id}
        for replica in self.replicas.values():
            if replica.id in self.lost:
                continue
            for membership in memberships_ahead(replica):
                voters = membership.voters
                if voters and sum(v not in lost for v in voters) < majority(voters):
                    return False
        return True

    def leader(self) -> SimServer | None:
        leading = [
            s for s in self.servers.values() if s.alive and s.node.replica.leading is not None
        ]
        return max(leading, key=lambda s: s.node.replica.epoch, default=None)

    def some_server(self, random: Random) -> SimServer | None:
        numbers = [
            n for n, s in self.servers.items() if s.alive and (self.core is None or n in self.core)
        ]
        return self.servers[random.choice(numbers)] if numbers else None

    # -- Network -------------------------------------------------------------------------------

    def send(self, server: SimServer, to: ReplicaId, message: Message) -> None:
        source, target = server.number, to.node
        receiver = self.servers.get(target)
        if receiver is None:
            return
        version = min(server.wire_version, receiver.wire_version)
        if not frames.is_known(message, version):
            return
        link = (source, target)
        # A stream of its own for `Hears`, so that it does not change other draws.
        name = "hears" if isinstance(message, Hears) else "link"
        random = self._links.get((name, *link))
        if random is None:
            random = self._links[name, *link] = stream(self.seed, name, source, target)
        plan = self.plan
        draw = random.random()
        if link in self.blocked:
            if self.blocked[link] > self.now_us:
                self.faults["blocked"] += 1
                return
            del self.blocked[link]
        calm = self.core is not None and source in self.core and target in self.core
        if not calm and draw < plan.loss:
            self.faults["loss"] += 1
            return
        low, high = plan.delay_us
        delay = random.randrange(low, high)
        # Behind thin links no time would be enough for a leader.
        thin = self.core is None
        on_its_way = self._thin.takes(link, message, self.now_us) if thin else None
        if on_its_way is None and thin:
            self.faults["queue full"] += 1
            return
        envelope: Envelope | bytes = Envelope(server.id, to, message)
        if plan.encode:
            envelope = frames.encode_envelope(Envelope(server.id, to, message), version)
        if calm:
            delay = min(delay, CALM_US)
        else:
            if draw > 1 - plan.straggle:
                self.faults["straggler"] += 1
                delay *= 100
            if self.slow and self.slow.get(link, 0) > self.now_us:
                self.faults["clogged"] += 1
                delay += 300_000
            if draw > 1 - plan.straggle - plan.duplication:
                self.faults["duplicate"] += 1
                self.at(delay * 3 + 1, self._arrive, receiver, envelope)
        if self._story is not None:
            self._story.append((self.now_us, source, f"-> {target} {_short(message)}"))
        if on_its_way is not None:
            delay += on_its_way.stop
            for part_us in on_its_way[1:]:
                self.at(low + part_us, self._part_arrives, receiver, server, server.lives)
        self.at(delay, self._arrive, receiver, envelope)

    def _arrive(self, receiver: SimServer, envelope: Envelope | bytes) -> None:
        if isinstance(envelope, bytes):
            envelope = frames.decode_envelope(envelope)
        if receiver.alive:
            self.on_server(receiver, receiver.lives, receiver.receive, envelope)

    def _part_arrives(self, receiver: SimServer, sender: SimServer, life: int) -> None:
        if receiver.alive and sender.alive and sender.lives == life:
            self.faults["part"] += 1
            self.on_server(receiver, receiver.lives, receiver.part, sender.id)

    def sync_latency_us(self, server: SimServer) -> int:
        low, high = self.plan.sync_us
        latency = self._random.randrange(low, high)
        if self.core is not None:
            return min(latency, CALM_US)
        if self.slow_disks.get(server.number, 0) > self.now_us:
            self.faults["slow sync"] += 1
            latency *= 50
        return latency

    # -- Clients -------------------------------------------------------------------------------

    def client_sends(self, client: SimClient, server: SimServer, pack: bytes) -> None:
        if self.core is None and self._random.random() < self.plan.loss:
            return
        self.at(
            self._random.randrange(*self.plan.delay_us),
            self.on_server,
            server,
            server.lives,
            server.propose,
            pack,
            client.session,
            client.sequence,
            client.number,
        )

    def read_now_and_then(self) -> None:
        """Ask a random server for a read that must be current."""
        random = self._read_random
        server = self.some_server(random)
        if server is not None:
            self._requests += 1
            self.oracle.read_begins(self._requests)
            self.on_server(server, server.lives, server.read, self._requests)
        if self.core is None:
            self.at(random.randrange(2 * self.plan.reads_us), self.read_now_and_then)

    def acknowledge(self, server: SimServer, client: int, session: int, sequence: int) -> None:
        if self.core is None and self._random.random() < self.plan.loss:
            return
        delay = self._random.randrange(*self.plan.delay_us)
        self.at(delay, self.clients[client - 1].acknowledged, sequence)

    def read_ready(self, server: SimServer, request: int, index: int) -> None:
        if index >= 0:
            self.oracle.read_ends(server, request)

    # -- Reports of servers --------------------------------------------------------------------

    def applied(self, server: SimServer, effect: Applied) -> None:
        self.oracle.delivered(server, effect, self._holds)
        self.observer.delivered(server, effect)
        if self._story is not None:
            first, last = effect.entries[0].index, effect.entries[-1].index
            self.note(server.number, f"delivers {first}" + (f"..{last}" if last > first else ""))
        payloads = {entry.index: entry.payload for entry in effect.entries}
        for accepted in effect.accepted:
            source = accepted.source
            payload = self.parked[source] if source else payloads[accepted.index]
            self.oracle.accept(accepted, crc32c(payload))
            client = server.waiting.pop((accepted.session, accepted.sequence), None)
            if client is not None:
                self.acknowledge(server, client, accepted.session, accepted.sequence)

    def _holds(self, voter: ReplicaId, entry: Entry) -> bool:
        replica = self.replicas.get(voter)
        if replica is None:
            return False
        if self.plan.volatile:
            log = replica.log
            return entry.index <= log.base_index or log.epoch_at(entry.index) == entry.epoch
        return self.held[voter].has(entry.index, entry.epoch)

    def installed(self, server: SimServer, meta: SnapshotMeta) -> None:
        self.faults["snapshot installed"] += 1
        self.note(server.number, f"installs a snapshot at {meta.index}")
        held = self.held[server.id]
        held.base = max(held.base, meta.index)
        self.oracle.installed(server, meta)
        self.observer.installed(server, meta)

    def snapshot_taken(self, server: SimServer, meta: SnapshotMeta) -> None:
        stored, chunks = server.journal.read_snapshot()
        if stored == meta:
            data = encode_meta(meta) + b"".join(chunks)
            self.oracle.same_snapshot(server, meta, crc32c(data))

    # -- The whole run -------------------------------------------------------------------------

    def live(self) -> bool:
        """Return whether all work is done, and all servers of the core have all of it."""
        assert self.core is not None
        return all(client.finished for client in self.clients) and self.servers_are_level()

    def is_led_over_lossy_links(self) -> bool:
        """Return whether the leader is outside of the core, and links to and from it still lose
        messages."""
        assert self.core is not None
        leader = self.leader()
        return leader is not None and leader.number not in self.core and self.plan.loss > 0

    def servers_are_level(self) -> bool:
        last = len(self.oracle.committed)
        members = self.core_members()
        return bool(members) and all(s.alive and s.node.applied >= last for s in members)

    def core_members(self) -> list[SimServer]:
        """Return the servers of the core that belong to the cluster. Its leader may be outside of
        the core and be half cut off; then those that it cannot reach are left out, since servers of
        old versions know no way around."""
        assert self.core is not None
        leader = self.leader()
        if leader is None:
            return []
        members = {m.node for m in leader.node.replica.memberships.current.members}
        known = members | self.plan.listed.keys()
        return [
            self.servers[n]
            for n in sorted(self.core & members)
            if self._are_connected(leader.number, n, known)
        ]

    def _are_connected(self, one: int, other: int, known: set[int]) -> bool:
        """Return whether servers are connected, by links of their own, or by those of servers in
        between that know ways around."""
        assert self.core is not None
        new = {n for n, version in self.plan.wire_versions.items() if version >= frames.NEWEST}
        if new >= self.servers.keys():
            return True
        there = [n for n in sorted(known & new) if n in self.core or self.servers[n].alive]
        pair = [one, other]
        cut = {link for link, until_us in self.blocked.items() if until_us > self.now_us}
        return are_connected(one, other, there if {*pair} <= {*there} else pair, cut)

    def newest_epoch(self) -> int:
        return max((s.node.replica.epoch for s in self.servers.values() if s.alive), default=0)

    def needs(self, server: SimServer, position: int) -> bool:
        """Return whether this server must keep this message, which is live there."""
        return True

    def why_not_live(self) -> str:
        assert self.core is not None
        states = []
        for n, s in sorted(self.servers.items()):
            if not s.alive:
                states.append(f"{n}: down")
                continue
            r = s.node.replica
            states.append(
                f"{n}{'*' if n in self.core else ''}: {r.role.value} {r.id} epoch {r.epoch} "
                f"last {r.log.last} commit {r.commit} applied {s.node.applied} "
                f"leader {r.leader_id} voters {[*map(str, r.memberships.current.voters)]} "
                f"{r.impaired}{' installing' if r.installing else ''}"
            )
        done = [f"{c.done}/{c.operations}" for c in self.clients]
        return f"clients {done}, committed {len(self.oracle.committed)}; " + "; ".join(states)


def _epochs(recovered: Recovered) -> dict[int, int]:
    epochs = {}
    runs = [*recovered.runs, (recovered.last + 1, 0)]
    for (first, epoch), (end, _) in pairwise(runs):
        for index in range(first, end):
            epochs[index] = epoch
    return epochs


def _short(message: Message) -> str:
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "entries":
            value = f"{value[0].index}..{value[-1].index}" if value else "-"
        elif isinstance(value, bytes):
            value = f"{len(value)} bytes"
        elif name in ("packs", "membership", "meta"):
            continue
        fields.append(f"{name}={value}")
    return f"{type(message).__name__}({', '.join(fields)})"


def memberships_ahead(replica: Replica) -> Iterator[Membership]:
    """Yield the membership that this server holds, and the one that it will hold after a removal
    that is under way."""
    current = replica.memberships.current
    yield current
    if replica.leading is not None and replica.leading.changes.removal is not None:
        yield current.without(replica.leading.changes.removal.node)
