"""The cluster of a scenario: pure nodes, and commands that decide everything else.

No message arrives, no time passes and no write reaches the disk by itself; each does when a command
says so. What happens is told in short sentences, the actor first. `README.md` lists the commands.

Names: `3` is server 3, `3'` its second incarnation; `3?` is whoever answers at that number. A
member in parentheses is a learner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.formats import frames, pack
from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    ReplicaId,
)
from antiphon.formats.server_messages import Envelope, Message, RequestVote, Vote
from antiphon.log.effects import (
    Applied,
    Decided,
    Effect,
    Persist,
    Read,
    ReadReady,
    Rejected,
    StorePart,
    Tail,
    TakeSnapshot,
)
from antiphon.log.roles.transitions import Role
from antiphon.log.settings import Settings
from antiphon.sim.cluster.alarm_machine import ALARM
from tests.scenarios.support.server import Draws, Server, address_of
from tests.scenarios.support.wording import (
    tell_entries,
    tell_id,
    tell_membership,
    tell_message,
    tell_packs,
    tell_reason,
    tell_records,
)

ROUNDS_MAX = 200
"""A cluster that is not quiet after so many rounds of everything arriving never will be."""

CAMPAIGNS_MAX = 3
"""The first may teach the candidate a newer epoch, and be refused for it."""

WITHOUT_WAYS_AROUND = 3
"""A version of the wire: messages that find ways around links are not sent in it."""

RUNNING = {
    Role.PRE_CANDIDATE: "would run for",
    Role.CANDIDATE: "runs for",
    Role.LEADER: "leads",
}


class ScenarioError(Exception):
    """The file is not a scenario, or asks for what cannot be."""


class ScriptedCluster:
    def __init__(self) -> None:
        self.servers: dict[int, Server] = {}
        self.settings = Settings()
        self.segment_bytes = 1 << 20
        self.draws = Draws()
        self.now_ms = 0
        self._wire = WITHOUT_WAYS_AROUND
        self._on_the_way: list[Envelope] = []
        self._held: list[Envelope] = []
        self._cut: set[tuple[int, int]] = set()
        self._reads = 0
        self._told: list[str] = []
        self._outcomes_only = False

    def do(self, command: str) -> list[str]:
        """Carry out one command; returns what happened."""
        self._told = []
        verb, *words = command.split()
        handler = getattr(self, f"_do_{verb}", None)
        if handler is None:
            raise ScenarioError(f"no such command: {verb}")
        handler(*words)
        return self._told

    # -- Setting up ----------------------------------------------------------------------------

    def _do_cluster(self, *words: str) -> None:
        numbers = self._configure(words)
        servers = [self._new_server(number) for number in numbers]
        for server in servers:
            server.write_founding(servers)
            self.servers[server.number] = server
            server.start(self.draws)
        self.tell(f"members {' '.join(map(str, numbers))}")

    def _do_fresh(self, *words: str) -> None:
        """Servers with empty disks, each of which lists all of these."""
        numbers = self._configure(words)
        for number in numbers:
            self.servers[number] = self._new_server(number)
        for number in numbers:
            self.servers[number].listed = {n: address_of(n) for n in numbers}
            self._start(self.servers[number])

    def _configure(self, words: tuple[str, ...]) -> list[int]:
        options: dict[str, int] = {}
        for word in words:
            name, is_option, value = word.partition("=")
            if name == "memory":
                options["volatile"] = True
            elif is_option:
                options[name] = int(value)
        self._wire = options.pop("wire", self._wire)
        self.segment_bytes = options.pop("segment_bytes", self.segment_bytes)
        self.settings = Settings(**options)
        return [int(word) for word in words if word.isdigit()]

    def _new_server(self, number: int) -> Server:
        return Server(self, number, self.servers, self.settings, self.segment_bytes)

    def _do_start(self, number: str, *listed: str) -> None:
        """A new server with an empty disk; without a list it lists all servers there are."""
        server = self.servers[int(number)] = self._new_server(int(number))
        if listed:
            server.listed = {int(n): address_of(int(n)) for n in listed}
        self._start(server)

    def _start(self, server: Server) -> None:
        recovered = server.start(self.draws)
        epoch, vote = recovered.promise
        self.tell(
            f"{server.name} starts with "
            + (f"entries up to {recovered.last}" if recovered.last else "nothing")
            + (f", epoch {epoch}" if epoch else "")
            + (f", vote {tell_id(vote)}" if vote else "")
            + (f", snapshot at {recovered.snapshot.index}" if recovered.snapshot else "")
            + (f"; {recovered.damage}" if recovered.damage else "")
        )

    # -- Time, disks, crashes ------------------------------------------------------------------

    def _do_tick(self, number: str, ms: str = "") -> None:
        """Time passes, everywhere, and one server looks at its clock. Without a number of
        milliseconds: until that server wants to."""
        server = self._server(number)
        if ms:
            self.now_ms += int(ms)
        else:
            self.now_ms = max(self.now_ms, self._due_ms(server))
        self._enter(server, server.tick)

    def _due_ms(self, server: Server) -> int:
        """When it wants to look at its clock; for ways around links only if they are played."""
        node = server.node
        if self._wire == WITHOUT_WAYS_AROUND:
            return node.replica.next_deadline_ms()
        return node.next_deadline_ms()

    def _do_run(self, ms: str) -> None:
        """So much time passes; who wants to looks at its clock; after each time, settle."""
        end_ms = self.now_ms + int(ms)
        while self.now_ms < end_ms:
            self.now_ms += 1
            due = [s for s in self.servers.values() if s.up and self._due_ms(s) <= self.now_ms]
            for server in due:
                self._quietly(self._enter, server, server.tick)
            if due:
                self._do_settle()

    def _do_part(self, number: str, who: str) -> None:
        """A part of a large message arrives at a server, from another one."""
        server, sender = self._server(number), self._server(who).node.replica.id
        self._enter(server, server.log.alive, sender)

    def _do_gone(self, number: str, who: str) -> None:
        """A server is told that nobody listens at another's address."""
        server = self._server(number)
        self._enter(server, server.log.gone, int(who))

    def _do_wait(self, ms: str) -> None:
        """Time passes, and nobody looks at a clock."""
        self.now_ms += int(ms)
        self.tell(f"it is {self.now_ms} ms")

    def _do_synced(self, *numbers: str) -> None:
        for server in map(self._server, numbers):
            self._enter(server, server.synced)

    def _do_crash(self, number: str) -> None:
        """The power fails: what was not synced is lost."""
        server = self._server(number)
        server.disk.power_failure()
        server.up = False
        self.tell(f"{server.name} dies")

    def _do_restart(self, number: str, wiped: str = "") -> None:
        server = self.servers[int(number)]
        if server.up:
            raise ScenarioError(f"{number} is up")
        if wiped or self.settings.volatile:
            server.disk.wipe()
        self._start(server)

    def _do_full(self, number: str) -> None:
        self._server(number).disk.full = True
        self.tell(f"{number}'s disk is full")

    def _do_room(self, number: str) -> None:
        server = self._server(number)
        server.disk.full = False
        self.tell(f"{number}'s disk has room again")
        self._enter(server, server.has_room)

    def _do_wall(self, number: str, offset_ms: str) -> None:
        """Set a wall clock: the scenario's time and so many milliseconds more."""
        server = self.servers[int(number)]
        server.wall_offset_ms = int(offset_ms)
        if server.up:
            server.node.set_wall_offset(server.wall_offset_ms)
        self.tell(f"{number}'s wall clock shows {self.now_ms + server.wall_offset_ms} ms")

    # -- The network ---------------------------------------------------------------------------

    def _do_arrive(self, link: str = "all", kind: str = "") -> None:
        """One message, or all that are on the way at this moment."""
        if link != "all":
            chosen = self._find(self._on_the_way, link, kind)
            self._on_the_way.remove(chosen)
            self._arrive(chosen)
            return
        arriving, self._on_the_way = self._on_the_way, []
        for envelope in arriving:
            self._arrive(envelope)

    def _do_repeat(self, link: str, kind: str = "") -> None:
        """A copy of a message arrives; the message itself stays on the way."""
        self._arrive(self._find(self._on_the_way, link, kind))

    def _do_drop(self, link: str = "all", kind: str = "") -> None:
        if link == "all":
            self._on_the_way = []
            self.tell("lost: everything on its way")
            return
        chosen = self._find(self._on_the_way, link, kind)
        self._on_the_way.remove(chosen)
        self.tell(f"lost: {self._on_link(chosen)}")

    def _do_hold(self, link: str, kind: str = "") -> None:
        """A message is delayed: only `release` puts it back on the way."""
        chosen = self._find(self._on_the_way, link, kind)
        self._on_the_way.remove(chosen)
        self._held.append(chosen)
        self.tell(f"delayed: {self._on_link(chosen)}")

    def _do_release(self, link: str, kind: str = "") -> None:
        chosen = self._find(self._held, link, kind)
        self._held.remove(chosen)
        self._on_the_way.append(chosen)
        self.tell(f"on its way again: {self._on_link(chosen)}")

    def _do_cut(self, *what: str) -> None:
        """Links (`1->2`), or servers with all their links."""
        for word in what:
            if "->" in word:
                source, target = map(int, word.split("->"))
                self._cut.add((source, target))
                self.tell(f"nothing gets from {source} to {target}")
            else:
                others = {*range(1, 10)} - {int(word)}
                self._cut |= {pair for n in others for pair in ((n, int(word)), (int(word), n))}
                self.tell(f"{word} is cut off")

    def _do_split(self, *numbers: str) -> None:
        """Nothing passes between these servers and all others."""
        here = {*map(int, numbers)}
        there = {*self.servers} - here
        self._cut |= {pair for a in here for b in there for pair in ((a, b), (b, a))}
        self.tell(f"{' '.join(numbers)} | {' '.join(map(str, sorted(there)))}")

    def _do_mend(self) -> None:
        self._cut = set()
        self.tell("all links work")

    def _do_settle(self) -> None:
        """Everything arrives and reaches the disk until nothing is left; tells outcomes only."""
        for _ in range(ROUNDS_MAX):
            if not self._busy():
                return
            self._do_quietly("arrive")
            for server in self.servers.values():
                if server.up:
                    self._quietly(self._enter, server, server.synced)
        raise ScenarioError("it does not become quiet")

    def _do_beat(self, number: str, times: str = "1") -> None:
        """So many heartbeats of a leader; after each, settle."""
        for _ in range(int(times)):
            self._do_quietly("tick", number)
            self._do_settle()

    def _do_campaign(self, number: str, *voters: str) -> None:
        """Nobody hears a leader any more; this server runs, and only votes, only between it and
        these others, arrive until it leads."""
        candidate = self._server(number)
        told, self._told = self._told, []
        self.now_ms += self.settings.election_max_ms + 1
        for _ in range(CAMPAIGNS_MAX):
            self._do_quietly("tick", number)
            self._do_quietly("synced", number)
            while votes := [
                e for e in self._on_the_way if isinstance(e.message, RequestVote | Vote)
            ]:
                self._on_the_way = [e for e in self._on_the_way if e not in votes]
                for envelope in votes:
                    if {str(envelope.sender.node), str(envelope.to.node)} <= {number, *voters}:
                        self._quietly(self._arrive, envelope)
                self._do_quietly("synced", number, *voters)
            if candidate.node.replica.leading is not None:
                self._told = told
                self.tell(f"{candidate.name} leads epoch {candidate.node.replica.epoch}")
                return
        raise ScenarioError(f"{number} is not elected: {'; '.join(self._told)}")

    def _do_elect(self, number: str) -> None:
        """Whoever can votes for this server, and its first entries become known everywhere."""
        others = [str(n) for n, s in self.servers.items() if s.up and str(n) != number]
        self._do_campaign(number, *others)
        told, self._told = self._told, []
        self._do_settle()
        self._do_beat(number)
        self._told = told

    def _do_quietly(self, verb: str, *words: str) -> None:
        """A command of which only outcomes are told, and not who sends and writes what."""
        self._quietly(getattr(self, f"_do_{verb}"), *words)

    def _quietly(self, do: Callable[..., None], *arguments: Any) -> None:
        before, self._outcomes_only = self._outcomes_only, True
        do(*arguments)
        self._outcomes_only = before

    def _busy(self) -> bool:
        return bool(self._on_the_way) or any(s.up and s.busy for s in self.servers.values())

    # -- What users and operators ask ----------------------------------------------------------

    def _do_propose(self, number: str, *texts: str) -> None:
        packs = tuple(pack.encode("topic", 1, text.encode()) for text in texts)
        self._propose(number, packs)

    def _do_alarm(self, number: str) -> None:
        """A message after which the state machine wants to be told the time in 300 ms."""
        self._propose(number, (pack.encode(ALARM, 1, b"alarm"),))

    def _propose(self, number: str, packs: tuple[bytes, ...]) -> None:
        server = self._server(number)
        self._enter(server, server.log.propose, packs)

    def _do_read(self, number: str) -> None:
        server = self._server(number)
        self._reads += 1
        self._enter(server, server.log.read, self._reads)

    def _do_transfer(self, number: str, to: str) -> None:
        server = self._server(number)
        self._enter(server, server.log.transfer, int(to), 0)

    def _do_add(self, number: str, added: str, at: str = "") -> None:
        """Another address than its own: that of server `at`."""
        member = ClusterMember(int(added), 0, False, address_of(int(at or added)))
        server = self._server(number)
        self._enter(server, server.log.change, member, 0)

    def _do_remove(self, number: str, removed: str) -> None:
        server = self._server(number)
        self._enter(server, server.log.change, int(removed), 0)

    # -- Looking -------------------------------------------------------------------------------

    def _do_status(self, *numbers: str) -> None:
        for number in numbers or map(str, self.servers):
            server = self.servers[int(number)]
            if not server.up:
                self.tell(f"{number} is down")
                continue
            r = server.node.replica
            self.tell(
                f"{server.name}: {r.role.value}"
                + (f" of {tell_id(r.leader_id)}" if r.leader_id and not r.leading else "")
                + f", epoch {r.epoch}, log up to {r.log.last}, stored {r.stored}"
                + f", committed {r.commit}, members {tell_membership(r.memberships.current)}"
                + (f"; impaired: {r.impaired}" if r.impaired else "")
                + (f"; removed: {tell_reason(r.removed)}" if r.removed else "")
                + (f"; {r.newcomer.complaint}" if r.newcomer and r.newcomer.complaint else "")
            )

    def _do_log(self, *numbers: str) -> None:
        for server in map(self._server, numbers):
            entries = server.journal.entries(server.journal.base_index + 1, 1 << 20)
            shown = [f"{e.index}/{e.epoch} {tell_entries((e,), False)}" for e in entries]
            base = server.journal.base_index
            self.tell(f"{server.name} has {', '.join([f'..{base}'] * bool(base) + shown)}")

    def _do_stamps(self, number: str) -> None:
        server = self._server(number)
        entries = server.journal.entries(server.journal.base_index + 1, 1 << 20)
        self.tell(f"{server.name} has {', '.join(f'{e.index} at {e.stamp}' for e in entries)}")

    def _do_flight(self) -> None:
        """What is on its way."""
        for envelope in self._on_the_way:
            self.tell(self._on_link(envelope))

    # -- What nodes do -------------------------------------------------------------------------

    def _server(self, number: str) -> Server:
        server = self.servers.get(int(number))
        if server is None or not server.up:
            raise ScenarioError(f"there is no server {number} that is up")
        return server

    def _arrive(self, envelope: Envelope) -> None:
        server = self.servers.get(envelope.to.node)
        if server is None or not server.up:
            self._detail(f"lost, nobody is there: {self._on_link(envelope)}")
            return
        self._enter(server, server.log.receive, envelope)

    def _enter(self, server: Server, call: Callable[..., None], *args: Any) -> None:
        server.do(call, *args)
        self.has_decided(server)

    def has_decided(self, server: Server) -> None:
        before, server.told = server.told, server.standing()
        self._tell_change(server, before)
        members, server.told_members = server.told_members, server.node.replica.memberships.current
        if server.told_members != members:
            self.tell(f"{server.name} counts members {tell_membership(server.told_members)}")

    def _tell_change(self, server: Server, before: tuple[Role, int, ReplicaId | None]) -> None:
        role, epoch, leader = server.standing()
        name, was = server.name, before[0]
        if (role, epoch, leader) == before:
            return
        if (role, epoch) != before[:2] and role in RUNNING:
            self.tell(f"{name} {RUNNING[role]} epoch {epoch + (role is Role.PRE_CANDIDATE)}")
        elif role is Role.NEWCOMER and was is not role:
            self.tell(f"{name} is not a member any more")
        elif leader is not None and role is Role.NEWCOMER:
            self.tell(f"{name} hears leader {tell_id(leader)} of epoch {epoch}")
        elif leader is not None:
            self.tell(f"{name} follows {tell_id(leader)} in epoch {epoch}")
        elif was is Role.LEADER:
            self.tell(f"{name} leads no more, and is in epoch {epoch}")
        elif epoch > before[1]:
            self.tell(f"{name} is in epoch {epoch}, without a leader")
        else:
            self.tell(f"{name} has no leader")

    def carries_out(self, server: Server, effect: Effect | Tail) -> None:
        match effect:
            case Persist(records):
                over = f", in place of up to {server.journal.last}"
                entries = [r for r in records if isinstance(r, Entry)]
                replaced = entries and entries[0].index <= server.journal.last
                self._detail(f"{server.name} writes {tell_records(records)}{over * bool(replaced)}")
            case Applied(entries):
                self.tell(f"{server.name} delivers {tell_entries(entries)}")
            case Read(_, first):
                self._detail(f"{server.name} reads its journal, from {first} on")
            case StorePart(_, seq):
                self._detail(f"{server.name} keeps part {seq}")
            case TakeSnapshot(meta):
                self._detail(f"{server.name} begins a snapshot at {meta.index}")
            case ReadReady(request, index):
                outcome = f"reflects {index}" if index >= 0 else "cannot be answered now"
                self.tell(f"{server.name}: read {request} {outcome}")
            case Decided(_, refused, waiting) if refused or waiting:
                self.tell(f"{server.name}: {refused or waiting}")
            case Rejected(packs, reason):
                self.tell(f"{server.name} rejects {tell_packs(packs)}: {reason}")

    def sent(self, server: Server, to: ReplicaId, message: Message) -> None:
        sent = Envelope(server.node.replica.id, to, message)
        arriving = frames.decode_envelope(frames.encode_envelope(sent, self._wire))
        if not frames.is_known(message, self._wire):
            return
        if (server.number, to.node) in self._cut:
            self._detail(self._on_link(arriving).replace("->", "-x", 1))
        else:
            self._detail(self._on_link(arriving))
            self._on_the_way.append(arriving)

    # -- Words ---------------------------------------------------------------------------------

    def tell(self, sentence: str) -> None:
        self._told.append(sentence)

    def _detail(self, sentence: str) -> None:
        if not self._outcomes_only:
            self._told.append(sentence)

    def _on_link(self, envelope: Envelope) -> str:
        sender, to = tell_id(envelope.sender), tell_id(envelope.to)
        return f"{sender} -> {to}  {tell_message(envelope.message)}"

    def _find(self, among: list[Envelope], link: str, kind: str) -> Envelope:
        source, _, target = link.partition("->")
        for envelope in among:
            if (str(envelope.sender.node), str(envelope.to.node)) == (source, target) and kind in (
                "",
                type(envelope.message).__name__,
            ):
                return envelope
        raise ScenarioError(f"no message {kind} {link}")
