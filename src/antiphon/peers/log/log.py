"""The log of a server inside a process, over a channel in place of replicas (`driver/log.py`).

The processes of a `peer:` URL are members of one channel, which orders what they send, hands it out
only when most of them have it, and shows them primary views alone (`total_uniform`). So all of them
take the same entries in the same order, as servers do:

    a pack or a command      of a `Proposed`
    `Gone`                   where a view begins, of processes that are not in it any more
    the first of a view      of the `Reigns` that its first member sends of those that have the
                             state, and that counts as its leader; the view's round is the epoch
    a tick                   of a `Proposed` without payloads

A process that has just come, or without which the others have gone on, takes their state over, as
of the place where a view begins, before it takes what is behind that place.

Promises: what a home proposes is an entry once, or no process has it when this one is lost; entries
that this process has taken are a beginning of those of the primary views. Needs: a conversation
whose stack is total, uniform and shows primary views only; a journal in memory; and a `Port`. No
clock, socket, file or thread is in here. Limits: the state that is handed over is in memory twice
while it is on its way. Without room in memory this process takes nothing, and the others wait for
it until the channel gives it up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.api.protocol.ticket import Ticket
from antiphon.driver.log import DEFER_S, RETRY_S
from antiphon.driver.ports import Above
from antiphon.errors import DiskFullError, FormatError, JMSError
from antiphon.formats import commands
from antiphon.formats.columns import BYTES
from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, SnapshotMeta
from antiphon.formats.journal import Local
from antiphon.formats.server_messages import Relay
from antiphon.journal.journal import Journal
from antiphon.journal.transfer import parts_of
from antiphon.log.clock import StampClock
from antiphon.log.effects import Accepted, Applied, Decided, ReadReady
from antiphon.log.settings import Settings
from antiphon.log.state_machine import Machine
from antiphon.model.peer_views import Level, MemberId, ViewId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.channel.states import StateWanted, TakingOver
from antiphon.peers.channel.views import Occurrence, View, ViewNumber, first_voter
from antiphon.peers.layers.layer import To
from antiphon.peers.layers.state import Outcome
from antiphon.peers.log.bodies import Asked, Body, Proposed, Reigns, Relayed, decode, encode
from antiphon.peers.log.state import Arriving, Handout, Place

Result = TypeVar("Result")

LOST_MS = 500
"""A view that begins so long after the last entry of the one before begins all leases again."""

NOBODY = Membership(0, ())
"""Snapshots name no servers: which processes there are is in the views."""

NO_SERVERS = "there are no servers to add, remove or lead: each process that connects is one"


class Port(Protocol):
    """The process around the log, as the log needs it. No method may call the log back before it
    returns."""

    def now_ms(self) -> int:
        """Return the monotonic clock's time."""

    def wall_ms(self) -> int:
        """Return the time of day."""

    def do(self, what: Callable[[Conversation], Result]) -> Result:
        """Ask the conversation for something (`ChannelDriver.do`)."""

    def is_primary(self) -> bool:
        """Return whether the view is primary that was formed last, though it may be hidden."""

    def turn_soon(self) -> None:
        """Call `PeerLog.settle` when the inputs of this turn are in."""

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Make this call after `wait_s` seconds."""

    def soon(self, call: Callable[[], None]) -> None:
        """Make this call in a later turn."""

    def set_timer(self, due_ms: int) -> None:
        """Call `PeerLog.tick` at `due_ms`; this replaces the timer that was set before."""

    def failed(self, error: Exception) -> None:
        """This server is over."""

    def impaired(self, reason: str) -> None:
        """There is no room in memory."""

    def recovered(self) -> None:
        """There is room again."""


class PeerLog:
    """Is a `driver/clients.py: Log`; promises are the module's."""

    def __init__(
        self,
        me: MemberId,
        conversation: Conversation,
        machine: Machine,
        journal: Journal,
        port: Port,
        settings: Settings,
    ) -> None:
        """`machine` and `journal` are new; the journal is in memory."""
        self.me = me
        self.journal = journal
        self.closed = False
        self.machine = machine
        self.index = self.stamp = self.epoch = 0
        self._conversation = conversation
        self._port = port
        self._settings = settings
        self._clock = StampClock(0)
        self._above: Above
        # Of the view that was taken last:
        self._view: View | None = None
        self._change: ViewId | None = None
        self._members: tuple[MemberId, ...] = ()
        self._time_goes_on = False
        self._ticks = False  # a tick is on its way
        # The state of others:
        self._taking: TakingOver | None = None
        self._arriving = Arriving(journal)
        self._missed: Occurrence | None = None  # the view that showed that there is something
        # On their way:
        self._outgoing: deque[tuple[Body, To, Level]] = deque()
        self._asks: dict[int, list[int]] = {}  # requests, by the number of the question
        self._asking: list[int] = []  # requests that no question was sent for
        self._questions = 0
        # Entries, until the journal has them:
        self._entries: list[Entry] = []
        self._accepted: list[Accepted] = []
        self._bytes_since_snapshot = 0
        self._snapshot_index = 0
        self._work: deque[Iterator[Any]] = deque()  # snapshots, in the background
        self._settle_due = self._write_due = self._impaired = False
        self._timer_ms: int | None = None

    def start(self, above: Above) -> None:
        """Begin to take part."""
        self._above = above
        self._listen()
        self._take_over()
        self.settle_soon()

    def close(self) -> None:
        """Carry out nothing any more."""
        self.closed = True

    @property
    def members(self) -> tuple[MemberId, ...]:
        """The processes of the last view that was taken."""
        return self._members

    @property
    def follows(self) -> bool:
        """Whether this process has the state of a primary view, and takes what comes behind it."""
        return self._view is not None and self._taking is None

    # -- Inputs from above (`driver/clients.py: Log`) ------------------------------------------

    @property
    def reign(self) -> tuple[int, int] | None:
        view = self._view
        if view is None or self._taking is not None or not self._port.is_primary():
            return None
        if not self._conversation.joined.done:  # it waits for more members
            return None
        if not self._time_goes_on:  # what is proposed has a time that the leader's goes on from
            return None
        return first_voter(view).incarnation, _change(view).round

    @property
    def leads(self) -> bool:
        reign = self.reign
        return reign is not None and reign[0] == self.me.incarnation

    def propose(self, payloads: tuple[bytes, ...]) -> None:
        self._send(Proposed(self._now(), payloads))

    def relay(self, node: int, message: Relay) -> None:
        """Send a message to the home in another process, if it is there."""
        for member in self._members:
            if member.incarnation == node:
                self._send(Relayed(message), (member,), Level.FIFO)

    def store(self, record: Local, batch: int) -> None:
        raise AssertionError("what this server alone knows is lost with its process")

    def read(self, request: int) -> None:
        """Answer with `ReadReady` when the machine has all that was ordered before."""
        if not any(request in asked for asked in (self._asking, *self._asks.values())):
            self._asking.append(request)
            self.settle_soon()

    def change(self, member: ClusterMember | int, request: int) -> None:
        self._above.decided(Decided(request, refused=NO_SERVERS))

    def transfer(self, node: int, request: int) -> None:
        self._above.decided(Decided(request, refused=NO_SERVERS))

    # -- Once a turn ---------------------------------------------------------------------------

    def settle_soon(self) -> None:
        if not self._settle_due:
            self._settle_due = True
            self._port.turn_soon()

    def settle(self) -> None:
        """Take what has come, and propose and hand on the inputs of one turn together."""
        self._settle_due = False
        if self.closed:
            return
        if self._taking is not None:
            self._look_at_state(self._taking)
        if self._taking is None and not self._impaired:
            self._receive()
        if self._conversation.over:
            self._port.failed(self._conversation.why_not())
            return
        self._above.propose()
        self._ask()
        self._leave()
        if self._above.waiting:
            self._write_and_deliver()
        else:
            self._write_later()

    def _write_and_deliver(self) -> None:
        if self.write():  # the journal has all that was accepted
            self._above.deliver()
        self._arm_timer()

    def _write_later(self) -> None:
        """Write together with what the next turns bring: accepted packs were handed out from
        memory."""
        self._arm_timer()
        if not self._write_due:
            self._write_due = True
            self._port.later(DEFER_S, self._write_deferred)

    def _write_deferred(self) -> None:
        self._write_due = False
        if not self.closed:
            self._write_and_deliver()

    # -- From the channel ----------------------------------------------------------------------

    def _listen(self) -> None:
        """Have `settle` called when something arrives."""
        bell = Ticket()
        bell.watch(self._rung)
        self._conversation.hang_up(bell)

    def _rung(self) -> None:
        if not self.closed:
            self._listen()
            self.settle_soon()

    def _receive(self) -> None:
        """Take what has come, up to a place behind which the state of others is needed."""
        while self._taking is None and (item := self._conversation.take()) is not None:
            if isinstance(item, PeerColumns):
                for at in range(item.count):
                    self._take(item.body(at), item.sender)
            elif isinstance(item, StateWanted):
                self._hand_out(item.place)
            else:
                self._view_begins(item)
        self._apply()
        if self._conversation.inbox.was_behind:
            self._port.do(lambda _: None)  # the others are told that there is room again

    def _take(self, data: bytes, sender: str) -> None:
        try:
            body = decode(data)
        except FormatError:
            return  # all processes get the same bytes, and pass over them alike
        match body:
            case Proposed(stamp, payloads):
                self._pass_time(stamp)
                for payload in payloads:
                    self._enter(Kind.PACK, payload)
                if not payloads:
                    self._enter(Kind.TICK)
            case Reigns(stamp, view) if view == self._change:
                before, self._time_goes_on = self.stamp, True
                self._pass_time(stamp)
                # Leases begin again if their owners could not be heard for a while.
                self._enter(Kind.EPOCH if self.stamp - before > LOST_MS else Kind.TICK)
            case Asked(number) if sender == self.me.name and number in self._asks:
                self._apply()
                for request in self._asks.pop(number):
                    self._above.read_ready(ReadReady(request, self.index))
            case Relayed(message):
                self._above.relayed(message)

    def _pass_time(self, stamp: int) -> None:
        """Set the log's time, as the sender of something ordered has it. In a view whose leader has
        not said how late it is, no time passes: what another one says would end leases that the
        leader renews."""
        if self._time_goes_on:
            self.stamp = max(self.stamp, stamp)
            self._clock.saw(self.stamp, self._port.now_ms())

    def _enter(self, kind: Kind, payload: bytes = b"") -> None:
        self.index += 1
        self._entries.append(Entry(self.index, self.epoch, self.stamp, kind, payload))

    def _apply(self) -> None:
        """Have the machine take the new entries, all in one step."""
        entries, self._entries = tuple(self._entries), []
        if not entries:
            return
        self._ticks = False
        accepted: list[Accepted] = []
        for entry in entries:
            accepted += self.machine.apply(entry)
            self._bytes_since_snapshot += len(entry.payload)
        machine = self.machine
        applied = Applied(entries, tuple(accepted), machine.digest, machine.take_events())
        self.journal.append(entries, ())
        for position, payload in applied.packs():
            self.journal.remember(position, payload)
        self._accepted += accepted
        self._above.applied(applied)
        self._take_snapshot_if_due()

    # -- Views ---------------------------------------------------------------------------------

    def _view_begins(self, occurred: Occurrence) -> None:
        view = occurred.view
        if not view.primary:
            return
        if (
            self._change is not None and _change(view) <= self._change
        ):  # it is in the state that was taken over
            self._view = view
            self._reign_in(view)
        elif self._view is None or occurred.origin == self._change:
            self._go_on_in(view)
        else:
            self._apply()
            self._missed = occurred
            self._take_over()

    def _go_on_in(self, view: View) -> None:
        """Begin a view, behind the one before."""
        gone = [one.incarnation for one in self._members if one not in view.processes]
        self._view, self._change, self._members = view, _change(view), view.processes
        self.epoch, self._time_goes_on, self._ticks = self._change.round, False, False
        if gone:
            self._enter(Kind.PACK, commands.encode([commands.Gone(node) for node in gone]))
        self._reign_in(view)

    def _reign_in(self, view: View) -> None:
        """Say how late it is, if this process is the first one that has the state."""
        if first_voter(view) == self.me:
            self._send(Reigns(self._now(), _change(view)))

    # -- The state of others -------------------------------------------------------------------

    def _take_over(self) -> None:
        """Take the state of the others over, as of a view that is still to come."""
        self._taking = self._port.do(lambda c: c.states.begin(self._arriving))
        self._taking.ended.watch(self.settle_soon)

    def _look_at_state(self, taking: TakingOver) -> None:
        if not taking.ended.done:
            return
        whole = taking.ended.error is None and taking.outcome is Outcome.WHOLE
        if whole:
            for place in self._conversation.inbox.go_to_state():
                self._port.do(partial(_refuse_state, place))
        self._port.do(lambda c: c.end_state(taking))
        self._taking = None
        if self._conversation.over:
            return
        if whole:
            self._restore()
        elif taking.ended.error is not None:  # whoever had it is gone
            self._take_over()
        elif self._missed is not None:  # there is no better one
            self._go_on_in(self._missed.view)
        self._missed = None

    def _restore(self) -> None:
        """Go on behind the state that has come."""
        place = self._arriving.place
        assert place is not None
        try:
            for _ in self.journal.install(place.meta):
                pass  # nothing is synced
        except DiskFullError as error:
            self._port.failed(error)
            return
        self._accepted.clear()
        self.machine.restore(self.journal.read_snapshot()[1])
        self.index = self._snapshot_index = place.meta.index
        self.epoch, self.stamp = place.meta.epoch, place.meta.stamp
        self._change, self._members, self._time_goes_on = place.view, place.members, False
        self._work.clear()  # a snapshot of what was here
        self._bytes_since_snapshot = 0
        self._clock.saw(self.stamp, self._port.now_ms())
        for number in list(self._asks):  # the answers may be in the state
            self._asking += self._asks.pop(number)
        self._above.restored()

    def _hand_out(self, place: ViewId) -> None:
        """Hand the state out as it is here, where a view has begun."""
        self._apply()
        source = None
        if self._change is not None and self.write():
            meta = SnapshotMeta(self.index, self.epoch, self.stamp, NOBODY)
            machine, journal = self.machine, self.journal
            parts = parts_of(journal, meta, machine.snapshot(), machine.live(), machine.parked())
            source = Handout(Place(meta, self._change, self._members), parts)
        self._port.do(lambda c: c.states.hand_out(place, source))

    # -- To the channel ------------------------------------------------------------------------

    def _send(self, body: Body, to: To = None, level: Level = Level.AGREED) -> None:
        self._outgoing.append((body, to, level))
        self.settle_soon()

    def _leave(self) -> None:
        """Hand what waits to the channel, as far as there is room."""
        while self._outgoing and not (self._conversation.over or self._conversation.leaving):
            body, to, level = self._outgoing[0]
            if not self._port.do(partial(_put, encode(body), to, level)):
                self._port.do(Conversation.room).watch(self.settle_soon)
                return
            self._outgoing.popleft()

    def _ask(self) -> None:
        """Ask once for all requests that wait."""
        if self._asking and self.follows:
            self._questions += 1
            self._asks[self._questions], self._asking = self._asking, []
            self._send(Asked(self._questions))

    # -- Time ----------------------------------------------------------------------------------

    def _now(self) -> int:
        """Return the log's time as this process has it."""
        return self._clock.peek(self._port.now_ms(), self._port.wall_ms())

    def _tick_ms(self) -> int | None:
        """Return when the machine wants to know the time, and this process has to say so."""
        wanted = self.machine.next_deadline()
        if wanted is None or self._ticks or not self._time_goes_on or not self.leads:
            return None
        return self._port.now_ms() + max(1, wanted - self._now())

    def _arm_timer(self) -> None:
        """Set a timer for the next deadline. One that rings too early finds nothing due, and comes
        back here."""
        due = [ms for ms in (self._tick_ms(), self._above.next_deadline_ms()) if ms is not None]
        if due and (self._timer_ms is None or min(due) < self._timer_ms):
            self._timer_ms = min(due)
            self._port.set_timer(self._timer_ms)

    def tick(self) -> None:
        """The timer rings."""
        self._timer_ms = None
        if self.closed:
            return
        wanted = self.machine.next_deadline()
        if self._tick_ms() is not None and wanted is not None and self._now() >= wanted:
            self._ticks = True
            self.propose(())
        self._above.tick(self._port.now_ms())
        self.settle_soon()

    # -- The journal ---------------------------------------------------------------------------

    def write(self) -> bool:
        """Write the entries, then the rows of accepted packs, which point into them. Return False
        if there was no room; it is tried again later."""
        try:
            self.journal.flush()
            if self._accepted:
                accepted, self._accepted = tuple(self._accepted), []
                self.journal.index(accepted)
        except DiskFullError as error:
            self._impair(error)
            return False
        if self._impaired:
            self._impaired = False
            self._port.recovered()
            self.settle_soon()
        return True

    def _impair(self, error: JMSError) -> None:
        if not self._impaired:
            self._impaired = True
            self._port.impaired(str(error))
        self._port.later(RETRY_S, self._write_deferred)

    def _take_snapshot_if_due(self) -> None:
        due = (
            self.index - self._snapshot_index >= self._settings.snapshot_every_entries
            or self._bytes_since_snapshot >= self._settings.snapshot_every_bytes
        )
        if not due or self._work or not self.write():
            return
        self._snapshot_index, self._bytes_since_snapshot = self.index, 0
        meta = SnapshotMeta(self.index, self.epoch, self.stamp, NOBODY)
        machine = self.machine
        try:
            steps = self.journal.store_snapshot(
                meta, machine.snapshot(), machine.live(), machine.parked()
            )
        except DiskFullError as error:
            self._port.impaired(f"no room for a snapshot: {error}")
            return
        self._work.append(steps)
        self._port.soon(self._step)

    def _step(self) -> None:
        """Do a piece of a snapshot; then other work has its turn."""
        if self.closed or not self._work:
            return
        try:
            ended = next(self._work[0], None) is None
        except DiskFullError as error:
            self._port.impaired(f"no room for a snapshot: {error}")
            ended = True
        if ended:
            self._work.popleft()
        else:
            self._port.soon(self._step)


def _change(view: View) -> ViewId:
    return cast(ViewNumber, view.id).change


def _put(body: bytes, to: To, level: Level, conversation: Conversation) -> bool:
    return conversation.put(BYTES, body, b"", 0, to, level)


def _refuse_state(place: ViewId, conversation: Conversation) -> None:
    conversation.states.hand_out(place, None)
