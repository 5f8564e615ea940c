"""A simulated server: the driver that ships, with a process around it that can die at any moment.

`driver/log.py: LogDriver` decides; this module has its port, which is the world's network, clock
and disks, and the lives of a server. A crash can come between any two effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from antiphon.broker.machine.machine import Broker
from antiphon.driver.assembly import OpenLog, open_log
from antiphon.driver.log import RETRY_S, LogDriver
from antiphon.driver.ports import Done
from antiphon.errors import DiskFullError, JournalDamagedError, SyncFailedError
from antiphon.formats.entry import ClusterMember, ReplicaId, SnapshotMeta
from antiphon.formats.frames import NEWEST
from antiphon.formats.server_messages import Envelope, Message, Relay
from antiphon.journal.journal import Journal
from antiphon.log.effects import (
    Applied,
    Decided,
    Effect,
    ReadReady,
    Rejected,
    Tail,
)
from antiphon.log.node import Node
from antiphon.sim.cluster.alarm_machine import AlarmMachine
from antiphon.sim.cluster.disk import SimDisk, SyncToken
from antiphon.sim.seeds import stream

if TYPE_CHECKING:
    from antiphon.sim.cluster.world import World

RETRY_FULL_US = int(RETRY_S * 1e6)
"""Time until a server that had no room to start is started again."""


class CrashError(Exception):
    """The simulated process crashes at this point."""


class SimServer:
    """One simulated server: the real driver, log and journal over simulated disks and links."""

    def __init__(self, world: World, number: int, disk: SimDisk) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.lives = 0  # starts so far
        self.alive = False
        self.paused_until_us = 0
        self.clock_rate = 1.0
        self.wall_offset_ms = 0
        self.wire_version = NEWEST
        self.crash_after_effects: int | None = None
        self.refuses_to_start = ""
        self.damaged = False  # its disk was, at some time
        self.misses = ""  # the file whose end is gone, until the server has found that
        self.waits_for_room = False  # to start
        self.node: Node
        self.log: LogDriver
        self.machine: AlarmMachine | Broker
        self.journal: Journal
        self.waiting: dict[tuple[int, int], int] = {}  # (session, sequence) -> client
        self._random = stream(world.seed, "server", number)
        self._turn_due = False
        self._timer_us: int | None = None

    @property
    def id(self) -> ReplicaId:
        return self.node.replica.id

    def now_ms(self) -> int:
        return int(self.world.now_us * self.clock_rate) // 1000

    # -- Life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process on the files on its disk."""
        if self.alive:
            return
        world, plan = self.world, self.world.plan
        self.lives += 1
        if plan.volatile:
            self.disk.wipe()
        copies = self.disk.contents() if not plan.volatile else {}
        machine = self.make_machine()
        try:
            opened = open_log(
                self.number,
                plan.listed,
                self.disk,
                machine,
                plan.settings,
                self,
                self.new_number,
                stream(world.seed, "node", self.number, self.lives),
                segment_bytes=plan.segment_bytes,
                watch=self.watch,
            )
        except SyncFailedError as error:
            self.misses = ""  # it may have a new incarnation by now, which misses nothing
            world.note(self.number, f"cannot start: {error}")
            self.waits_for_room = False
            return
        except DiskFullError as error:
            self.misses = ""
            world.note(self.number, f"waits for room to start: {error}")
            self.waits_for_room = True
            world.at(RETRY_FULL_US, self._start_again, self.lives)
            return
        except JournalDamagedError as error:
            self.refuses_to_start = str(error)
            world.refused(self, str(error))
            self.waits_for_room = False
            return
        self.disk.copies = copies
        self.machine = machine
        self.journal, recovered, self.node, self.log = opened
        self.alive = True
        self.paused_until_us = 0
        self.waiting = {}
        self._turn_due = False
        self._timer_us = None
        self.node.set_wall_offset(self.wall_offset_ms)
        self.put_clients_on(opened)
        world.started(self, recovered)
        self.waits_for_room = False
        self.run(self.begin)

    def new_number(self) -> int:
        """Return a number that no other life draws."""
        return self._random.getrandbits(62) + 1

    def _start_again(self, life: int) -> None:
        if life == self.lives:  # otherwise it was started meanwhile
            self.start()

    def crash(self, power: bool) -> None:
        """Kill the process; `power`: unsynced writes are lost, too."""
        if not self.alive:
            return
        self.alive = False
        self.crash_after_effects = None
        if power:
            self.disk.power_failure()
        self.end(power)
        self.world.crashed(self)

    def pause(self, for_us: int) -> None:
        self.paused_until_us = max(self.paused_until_us, self.world.now_us + for_us)

    # -- Overridden with clients (`server_with_clients.py`) ------------------------------------

    def make_machine(self) -> AlarmMachine | Broker:
        return AlarmMachine(self.world.plan.retain)

    def put_clients_on(self, opened: OpenLog) -> None:
        """Put the parts of a new life together that are on its log."""

    def begin(self) -> None:
        """Let the log take part."""
        self.log.start(Nobody())

    def settle(self) -> None:
        """End a turn."""
        self.log.settle()

    def end(self, power: bool) -> None:
        """End the life."""

    def send(self, to: ReplicaId, message: Message) -> None:
        self.world.send(self, to, message)

    # -- Inputs --------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        self.log.receive(envelope)

    def part(self, sender: ReplicaId) -> None:
        """Take a part of a large message, which has not arrived whole."""
        self.log.alive(sender)

    def told_gone(self, node: int) -> None:
        """Take the network's report that no process listens there. It may listen again by now."""
        self.log.gone(node)

    def propose(self, pack: bytes, session: int, sequence: int, client: int) -> None:
        if self.machine.last_sequence(session) >= sequence:
            self.world.acknowledge(self, client, session, sequence)
            return
        self.waiting[session, sequence] = client
        self.log.propose((pack,))

    def read(self, request: int) -> None:
        self.log.read(request)

    def transfer(self, node: int) -> None:
        self.log.transfer(node, 0)

    def change(self, member: ClusterMember | int) -> None:
        if self.world.core is None:  # an operator's request to a paused server had no effect
            request = self.world.changes.asked(self, member)
            self.log.change(member, request)

    # -- A process, turn by turn ---------------------------------------------------------------

    def run(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call inside this process, which may crash in it: a turn with one input."""
        try:
            call(*args)
            if self._turn_due:
                self._turn_due = False
                self.settle()
                if self._turn_due:
                    self.soon(self._nothing)
        except CrashError:
            self.crash(power=self._random.random() < 0.5)
        except (SyncFailedError, JournalDamagedError) as error:
            self.world.note(self.number, f"stops itself: {error}")
            self.crash(power=False)

    def _nothing(self) -> None:
        """Do nothing: an empty input for another turn."""

    def watch(self, effect: Effect | Tail) -> None:
        """Note an effect right before the driver carries it out."""
        self.count_down()
        if isinstance(effect, Applied):
            self.world.applied(self, effect)
        elif isinstance(effect, ReadReady):
            self.world.read_ready(self, effect.request, effect.index)
        elif isinstance(effect, Decided):
            self.world.changes.decided(self, effect)

    def count_down(self) -> None:
        if self.crash_after_effects is not None:
            self.crash_after_effects -= 1
            if self.crash_after_effects < 0:
                raise CrashError

    # -- The driver's port (`driver/log.py: Port`) ---------------------------------------------

    def turn_soon(self) -> None:
        self._turn_due = True

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        self._at(1, call, *args)

    def later(self, wait_s: float, call: Callable[..., None], *args: Any) -> None:
        self._at(int(wait_s * 1e6), call, *args)

    def _at(self, wait_us: int, call: Callable[..., None], *args: Any) -> None:
        self.world.at(wait_us, self.world.on_server, self, self.lives, call, *args)

    def set_timer(self, due_ms: int) -> None:
        now_us = self.world.now_us
        self._timer_us = max(now_us + 1000, int((due_ms + 1) * 1000 / self.clock_rate))
        self._at(self._timer_us - now_us, self._ring, self._timer_us)

    def _ring(self, due_us: int) -> None:
        if self._timer_us == due_us:  # otherwise it was set again
            self._timer_us = None
            self.log.tick()

    def sync(self, names: tuple[str, ...], done: Done) -> None:
        token = self.disk.begin_sync(names)
        self._at(self.world.sync_latency_us(self), self._synced, token, done)

    def _synced(self, token: SyncToken, done: Done) -> None:
        try:
            self.disk.finish_sync(token)
        except SyncFailedError as error:
            done(error)
        else:
            done(None)

    def failed(self, error: Exception) -> None:
        raise error

    def impaired(self, reason: str) -> None:
        self.world.note(self.number, f"stops acknowledging: {reason}")

    def recovered(self) -> None:
        self.world.note(self.number, "has room again")

    def no_room_for_snapshot(self, reason: str) -> None:
        self.world.note(self.number, f"no room for a snapshot: {reason}")

    def snapshot_stored(self, meta: SnapshotMeta) -> None:
        self.world.snapshot_taken(self, meta)

    def installed(self, meta: SnapshotMeta) -> None:
        self.world.installed(self, meta)


class Nobody:
    """The layer above a log whose only clients are those of the world (`log_clients.py`)."""

    waiting = False

    def propose(self) -> None: ...
    def deliver(self) -> None: ...
    def applied(self, effect: Applied) -> None: ...
    def rejected(self, effect: Rejected) -> None: ...
    def read_ready(self, effect: ReadReady) -> None: ...
    def decided(self, effect: Decided) -> None: ...
    def relayed(self, message: Relay) -> None: ...
    def stored(self, batch: int) -> None: ...
    def restored(self) -> None: ...
    def tick(self, now_ms: int) -> None: ...
    def next_deadline_ms(self) -> int | None:
        return None
