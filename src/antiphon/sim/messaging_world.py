"""A simulated world with programs in it: servers with homes, connections that break, a ledger.

After the faulty phase the programs finish their work, get every message that must be delivered, and
close; then no server's state has any trace of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.keys import SubscriptionKey
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.ranges import Range
from antiphon.broker.machine.sessions import local_contexts
from antiphon.broker.machine.topics import Subscription
from antiphon.checkers import groups, memberships
from antiphon.errors import FormatError
from antiphon.formats import commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ANY, Entry, ReplicaId
from antiphon.formats.entry import Kind as EntryKind
from antiphon.formats.server_messages import Envelope, Relay
from antiphon.formats.trace import Kind, TraceEvent
from antiphon.model.destinations import DEAD_LETTERS, is_queue, is_temporary
from antiphon.sim.cluster.client_links import SimLink
from antiphon.sim.cluster.disk import SimDisk
from antiphon.sim.cluster.server import SimServer
from antiphon.sim.cluster.server_with_clients import SimHome
from antiphon.sim.cluster.world import CALM_US, World
from antiphon.sim.judges.message_ledger import Ledger, Reader
from antiphon.sim.judges.needs import GivenUp, is_needed
from antiphon.sim.plan import Fault, Plan
from antiphon.sim.programs.program import SimProgram
from antiphon.sim.seeds import stream
from antiphon.sim.story import Event
from antiphon.sim.violations import ViolationError

REMOVE_US = 200_000


class MessagingWorld(World):
    """A world whose servers have homes, with programs, connections and the ledger."""

    def __init__(self, plan: Plan, story: list[Event] | None = None) -> None:
        assert plan.messaging is not None
        self._messaging = plan.messaging
        self.ledger = Ledger(lambda: self.now_us)
        self.ledger.deals.has_ended = lambda destination: (
            not self._broker.sessions.owner_of(destination)
        )
        self._given_up = GivenUp(self.ledger)
        self.programs: list[SimProgram] = []
        self.handles: list[str] = []  # of messages that programs have staged for others
        self.sessions: dict[int, SimProgram] = {}  # of all lives -> the program
        self.mailboxes: dict[str, None] = {}  # temporary destinations with a consumer
        self.sessions_lost = 0
        self.lost_while_leaving: set[str] = set()  # programs; their groups only suspect them
        self.traces: list[TraceEvent] = []  # group events as programs saw them
        self._delivered: Counter[tuple[str, int, str, int]] = Counter()  # by life and view
        self._views: dict[tuple[str, int], cw.GroupEvent] = {}
        self._groups: set[str] = set()  # known right after the last entry
        self._judged = 0  # the last entry that the ledger knows, and
        self._broker: Broker  # the state machine right after it
        self._letters: tuple[Range, ...] = ()  # the dead ones that are there then
        self._leaving = False
        self._remove_us = 0  # when to remove the next server
        self._chance = stream(plan.seed, "links")
        self._stalls = stream(plan.seed, "stalls")
        self.home_settings = self._messaging.home
        super().__init__(plan, story)
        self.programs = [SimProgram(self, n + 1, r) for n, r in enumerate(self._messaging.roles)]

    def make_server(self, number: int, disk: SimDisk) -> SimServer:
        return SimHome(self, number, disk)

    def begin(self) -> None:
        for fault in self._messaging.faults:
            self.at(fault.at_us, self._strike, fault)
        for program in self.programs:
            self.at(self._chance.randrange(1, 1_000_000), program.begin)

    # -- Connections ---------------------------------------------------------------------------

    def dial(
        self,
        program: SimProgram,
        connected: Callable[[SimLink | None], None],
        address: str,
    ) -> None:
        """Connect to the server at this address, or to any, if it is there."""
        life = program.lives
        server = self.some_server(self._chance)
        if address:
            server = next(s for n, s in self.servers.items() if self.address_of(n) == address)
        self.at(self.link_delay_us(), self._arrive_at, program, life, server, connected)

    def _arrive_at(
        self,
        program: SimProgram,
        life: int,
        server: SimServer | None,
        connected: Callable[[SimLink | None], None],
    ) -> None:
        if server is None or not server.alive or program.lives != life:
            self.at(self.link_delay_us(), connected, None)
            return
        assert isinstance(server, SimHome)
        link = SimLink(self, program, server)
        self.on_server(server, server.lives, server.accept, link)
        self.at(self.link_delay_us(), connected, link)

    def address_of(self, node: int) -> str:
        return f"node-{node}"

    def link_delay_us(self) -> int:
        delay = self._chance.randrange(*self.plan.delay_us)
        return min(delay, CALM_US) if self.core is not None else delay

    def breaks_a_link(self) -> bool:
        return self._happens("link break", self._messaging.breaks)

    def repeats_a_frame(self) -> bool:
        return self._happens("frame repeated", self._messaging.repeats)

    def reads_again_us(self) -> int:
        """Return when a program reads a frame that has come: mostly now."""
        stalls = self._messaging.stalls
        if not stalls or self.core is not None or self._stalls.random() >= stalls:
            return 0
        self.faults["reader stalls"] += 1
        return self.now_us + self._stalls.choice((100_000, 1_000_000, 3_000_000))

    def dies_silently(self) -> bool:
        return self._chance.random() < self._messaging.silent

    def _happens(self, fault: str, probability: float) -> bool:
        if not probability or self.core is not None or self._chance.random() >= probability:
            return False
        self.faults[fault] += 1
        return True

    def relay(self, server: SimHome, node: int, message: Relay) -> None:
        """Pass a piece of a state from server to server, outside of the log; it may be lost."""
        to = self.servers.get(node)
        blocked = self.blocked.get((server.number, node), 0) > self.now_us
        lost = blocked or self._happens("relay lost", self.plan.loss)
        if isinstance(to, SimHome) and not lost:
            envelope = Envelope(server.id, ReplicaId(node, ANY), message)
            self.at(self.link_delay_us(), self._arrive, to, envelope)

    # -- Faults --------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        program = self.programs[fault.target]
        if self.core is not None or not program.alive:
            return
        self.faults[fault.kind] += 1
        self.note(0, f"!! {fault.kind} of {program.name} for {fault.for_us / 1e6:.3f} s")
        if fault.kind == "program-kill":
            program.kill(silently=self.dies_silently())
            self.at(fault.for_us, program.start)
        elif fault.kind == "program-pause":
            program.paused_until_us = self.now_us + fault.for_us
        elif fault.kind == "program-cut":
            program.cut()
        elif fault.kind == "program-dead-line":
            program.die_line()
        elif fault.kind == "home-kill":
            self._kill_home(program, fault)
        else:
            for each in self.programs:
                if fault.detail >> each.number & 1:
                    each.cut()

    def _kill_home(self, program: SimProgram, fault: Fault) -> None:
        """Kill the server that the program is connected to, and perhaps the program with it, or
        later."""
        server = program.home
        if server is None or server.node.replica.stored == 0:
            return
        server.crash(power=fault.detail % 2 == 0)
        self.at(fault.for_us, server.start)
        if fault.detail % 3 < 2:
            self.at(fault.detail % 3 * fault.for_us // 2, self._kill_and_start, program)

    def _kill_and_start(self, program: SimProgram) -> None:
        if self.core is None and program.alive:
            program.kill(silently=True)
            self.at(100_000, program.start)

    @property
    def unread_bytes(self) -> int:
        """Return how much a server may keep for a program that does not read it."""
        return self.home_settings.unread_bytes

    def calm(self) -> None:
        # What is sent again after an attach may be more than a drawn limit, each time.
        self.home_settings = msgspec.structs.replace(
            self.home_settings, unread_bytes=HomeSettings().unread_bytes
        )
        for server in self.servers.values():
            if isinstance(server, SimHome) and server.alive:
                server.home.settings = self.home_settings
        for program in self.programs:
            program.calm()
            program.start()
            if program.role.member is not None and self.core is not None:
                program.move(self.core)

    def ended_in_order(self, server: SimHome) -> None:
        """Judge an orderly end that has come to its end: nobody is left with a dead connection, or
        bound to a server that is away."""
        self.note(server.number, "has ended in order")
        if server.links:
            raise ViolationError(f"server {server.number} ends without a word to its clients")
        if not server.home.has_let_go or not self._judged:
            return  # it keeps nothing to itself, or it had no time: then they wait for its return
        self.faults["let go"] += 1
        broker = self._broker
        bound = [
            session.number
            for session in broker.sessions.values()
            if (session.node, session.life) == (server.number, server.life)
            and (session.held or local_contexts.is_bound(broker, session))
        ]
        if bound:
            raise ViolationError(f"server {server.number} has ended, and sessions {bound} wait")

    # -- Groups --------------------------------------------------------------------------------

    def is_group(self, destination: str) -> bool:
        return destination in self._messaging.groups

    def remove_after_ms(self, group: str) -> int:
        return self._messaging.groups[group]

    def members(self, group: str) -> list[tuple[str, bool]]:
        """Return the programs that want to be members, and whether they are durable."""
        roles = [(p.name, p.role.member) for p in self.programs if p.role.member is not None]
        return [(name, member.durable) for name, member in roles if group in member.groups]

    def trace(self, program: SimProgram, kind: Kind, group: str, **fields: Any) -> None:
        if self._messaging.groups:
            if kind == "deliver":
                life = (program.name, program.lives, group, fields["view_id"])
                fields["didx"] = self._delivered[life]
                self._delivered[life] += 1
            event = TraceEvent(
                run=str(self.seed),
                process=program.name,
                incarnation=program.lives,
                seq=len(self.traces),
                kind=kind,
                group=group,
                at=self.now_us / 1e6,
                **fields,
            )
            self.traces.append(event)

    def same_view(self, group: str, event: cw.GroupEvent) -> None:
        first = self._views.setdefault((group, event.view), event)
        if first != event:
            raise ViolationError(f"two views of {group} have one number: {first} and {event}")

    def _specification(self, complete: bool) -> None:
        """Run the two judges that need no Spark on the traces of all programs."""
        for violation in groups.check(self.traces, complete=complete):
            raise ViolationError(str(violation))
        for finding in memberships.check(self.traces, complete=complete):
            raise ViolationError(f"by the judge of memberships, {finding}")

    # -- Reports of servers --------------------------------------------------------------------

    def entry_applied(self, broker: Broker, entry: Entry, events: list[ev.Event]) -> None:
        """Judge an entry when the first server applies it; the other servers apply the same."""
        if entry.index <= self._judged:
            return
        self._judged, self._broker = entry.index, broker
        ledger = self.ledger
        ledger.applied(entry.stamp)
        self._look_into(entry, events)
        for event in events:
            ledger.happened(event)
            if isinstance(event, ev.SessionEnded):
                self._session_ended(event.session)
        for one in broker.accepted:
            payload = self.parked[one.source] if one.source else entry.payload
            ledger.accepted(one, payload)
        self._given_up.applied(broker)
        ledger.deals.applied(entry.stamp)
        for event in events:
            if isinstance(event, ev.Assigned):
                ledger.division.assigned(event, entry.stamp)
                ledger.failures.assigned(event, entry.stamp)
        for name, queue in broker.queues.items():
            if queue.next_release is not None:
                ledger.failures.is_held(name, queue.next_release, entry.stamp)
        self._look_at_groups(broker)
        letters = broker.queues.get(DEAD_LETTERS)
        self._letters = tuple(letters.live()) if letters is not None else ()

    def _session_ended(self, session: int) -> None:
        program = self.sessions[session]
        if session in self.ledger.forgotten:
            program.confirmed.clear()
        if session in self.ledger.robbed and program.lives_in(session):
            self.faults["client id taken late"] += 1  # by an earlier life

    def _look_at_groups(self, broker: Broker) -> None:
        """Check after every entry that empty groups are gone, and no others."""
        for name in self._groups - broker.groups.keys():
            self.faults["group forgotten"] += 1
            if any(key.owner == name for key in broker.topics.subscriptions):
                raise ViolationError(f"{name} is forgotten, and somebody is in it")
        for group in broker.groups.values():
            if not (group.members or group.departed or group.kept_until):
                raise ViolationError(f"nobody is in {group.destination}, and it is still known")
        self._groups = set(broker.groups)

    def _look_for_dead(self, broker: Broker, payload: bytes, ended: set[int]) -> None:
        """Look for the dead letters that an entry has made. One entry may acknowledge a dead letter
        and make it again. `ended`: the sessions that ended with this entry."""
        known = {p for first, last in self._letters for p in range(first, last + 1)}
        for one in commands.decode(payload):
            for session, rows in one.rows if isinstance(one, commands.Acks) else ():
                is_here = session in broker.sessions
                for row in rows if is_here or session in ended else ():
                    self._look_for_letters((session, row.consumer), row, known, is_here)
                    if row.kind == cw.FAILED and is_here:
                        self.faults["handling fails"] += 1
                        self.ledger.failures.failed((session, row.consumer), row, broker.stamp)

    def _look_for_letters(
        self, reader: Reader, row: cw.AckRow, known: set[int], is_here: bool
    ) -> None:
        """Note new dead letters. `is_here`: the reader's session outlives this entry. Otherwise it
        may have ended before the acknowledgement: an earlier letter is not counted as its own."""
        positions = range(row.first, row.last + 1)
        if row.kind == cw.ACK and self.ledger.reads(reader, DEAD_LETTERS):
            known.difference_update(positions)
        for position in positions if row.kind == cw.DEAD else ():
            if not self.is_over(DEAD_LETTERS, position) and (is_here or position not in known):
                self.ledger.buries(reader, position, is_new=position not in known)
                known.add(position)

    def _look_into(self, entry: Entry, events: list[ev.Event]) -> None:
        """Note packs that have numbers in their session and no position: those for a group itself,
        and those that are not visible yet."""
        if entry.kind != EntryKind.PACK:
            return
        if commands.is_command(entry.payload):
            ended = {event.session for event in events if isinstance(event, ev.SessionEnded)}
            self._look_for_dead(self._broker, entry.payload, ended)
            return
        try:
            header = pack.read_header(entry.payload)
        except FormatError:
            return
        if header.flags & (pack.CONTROL | pack.STAGED | pack.DELAYED):
            self.ledger.not_a_message(header.session, header.producer, header.sequence, header.last)
            self.parked[entry.index] = entry.payload
            taken = any(isinstance(event, ev.Taken) for event in events)
            if taken and header.flags & (pack.STAGED | pack.DELAYED) == pack.DELAYED:
                self.ledger.parked(entry.payload)

    def is_over(self, where: str | SubscriptionKey, position: int) -> bool:
        """Return whether the state machine, right after the last entry, has no need of a message
        there."""
        if isinstance(where, str):
            queue = self._broker.queues.get(where)
            return queue is None or not any(one <= position <= two for one, two in queue.live())
        subscription = self._broker.topics.subscriptions[where]
        return position <= subscription.floor or bool(subscription.acked.deliveries(position))

    def is_attached(self, session: int) -> bool:
        """Return whether this session is attached to a server, right after the last entry."""
        known = self._broker.sessions.get(session)
        return known is not None and not known.detached

    # -- The end -------------------------------------------------------------------------------

    def live(self) -> bool:
        leader = self.leader()
        if leader is None or not isinstance(leader, SimHome):
            return False
        if self.plan.local and self._remove_the_absent(leader):
            return False
        if not self._leaving:
            if not all(p.finished() for p in self.programs) or self._undelivered(leader):
                return False
            self._specification(complete=True)
            self._leaving = True
            for program in self.programs:
                program.leave()
        if not all(p.gone for p in self.programs) or leader.broker.sessions:
            return False
        self._no_leaks(leader)
        if not self.servers_are_level():
            return False
        self._specification(complete=False)
        return True

    def _remove_the_absent(self, leader: SimHome) -> bool:
        """With local contexts, the clients of a server that does not come back wait for it until
        an operator removes it. Return True if there are such servers."""
        assert self.core is not None
        members = leader.node.replica.memberships.current.members
        absent = [m.node for m in members if m.node not in self.core]
        there = self.core & {m.node for m in members}
        if leader.number in absent and len(self.core_members()) < len(there):
            # It does not reach all of the core, and may refuse: the operator ends it first.
            leader.crash(power=False)
            return True
        if absent and self.now_us >= self._remove_us:
            self._remove_us = self.now_us + REMOVE_US
            self.at(1, self.on_server, leader, leader.lives, leader.remove, absent[0])
        return bool(absent)

    def needs(self, server: SimServer, position: int) -> bool:
        assert isinstance(server, SimHome)
        broker, destination = server.broker, self.ledger.destinations[position]
        kept = position > broker.position - (self.plan.retain or 0)
        return kept or is_needed(broker, position, destination)

    def _undelivered(self, leader: SimHome) -> list[str]:
        """Return what the servers still hold for running programs, as texts."""
        consumed = {d for p in self.programs for d in p.role.consumes if is_queue(d)}
        waiting = [
            name
            for name, queue in leader.broker.queues.items()
            if (name in consumed or is_temporary(name) or self._is_owed(queue))
            and any(True for _ in queue.live())
        ]
        delayed = leader.broker.pending.delayed
        waiting += [f"{len(delayed)} delayed packs"] if delayed else []
        for server in self.servers.values():
            if (
                server.alive
                and isinstance(server, SimHome)
                and server.home.counts()["waiting_packs"]
            ):
                waiting.append(f"packs at {server.number}")  # non-persistent ones
        for group in leader.broker.groups.values():
            # Requests for a state go to two members only; the others have nothing to acknowledge.
            events = [e for e in group.events if e.kind != cw.STATE]
            waiting += [f"event {e.serial} of {group.destination}" for e in events]
        for subscription in leader.broker.topics.subscriptions.values():
            waiting += [f"message {p} for {subscription.key}" for p in self._behind(subscription)]
        return waiting

    def _is_owed(self, queue: Queue) -> bool:
        """Return whether it is a shared subscription with an open consumer."""
        return any(not taker.closed for taker in queue.takers.values()) and bool(queue.pattern)

    def _behind(self, subscription: Subscription) -> list[int]:
        """Return the positions that it has not acknowledged."""
        ends = subscription.ends if subscription.ends is not None else 1 << 62
        destinations = self.ledger.destinations
        return [
            p
            for p in self.ledger.positions
            if subscription.floor < p <= ends
            and not subscription.acked.deliveries(p)
            and subscription.matches(destinations[p])
        ]

    def _no_leaks(self, leader: SimHome) -> None:
        broker = leader.broker
        consumed = {d for p in self.programs for d in p.role.consumes}
        left = [name for name in broker.queues if name in consumed or is_temporary(name)]
        left += [name for name in broker.topics.last if is_temporary(name)]
        left += [f"client id {name}" for name in broker.sessions.client_ids]
        left += [q.name for q in broker.queues.values() if q.pattern and not q.durable]
        left += self._parked_in_vain(broker)
        left += [
            f"subscription {s.key}" for s in broker.topics.subscriptions.values() if not s.durable
        ]
        for group in broker.groups.values():
            members = group.members.keys() - self.lost_while_leaving
            left += [f"member {name} of {group.destination}" for name in sorted(members)]
            left += [f"{d} of {group.destination}" for d in group.departed]
        if left:
            raise ViolationError(f"all programs are gone, and {leader.id} still has {left}")

    def _parked_in_vain(self, broker: Broker) -> list[str]:
        """Return, as texts, the packs that are not visible in the end, except those that a session
        may still commit by their handle."""
        handles = {h: len(some.packs) for h, some in broker.pending.staged.items()}
        left = [f"staged {handle}" for handle in handles.keys() - self.ledger.deals.handles]
        counted = (broker.pending.count, len(broker.parked()), sum(handles.values()))
        left += [f"parked packs: {counted}"] if len(set(counted)) > 1 else []
        left += [f"not visible: {body!r}" for body in self.ledger.deals.hidden()]
        return left + [f"delayed forever: {body!r}" for body in self.ledger.overdue()]

    def why_not_live(self) -> str:
        undone = [
            f"{p.name} {'alive' if p.alive else 'gone' if p.gone else 'dead'} "
            f"{p.settled}/{p.to_send} "
            f"missing {p.missing()[:5]}"
            for p in self.programs
        ]
        leader = self.leader()
        sessions = len(leader.broker.sessions) if isinstance(leader, SimHome) else "no leader"
        waiting = self._undelivered(leader) if isinstance(leader, SimHome) else []
        return (
            f"leaving {self._leaving}; {undone}; sessions {sessions}; waiting {waiting}; "
            f"{super().why_not_live()}"
        )
