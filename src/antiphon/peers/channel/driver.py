"""The driver of a channel: it carries out what the stack decides, in front of a program and behind
a port that has the sockets, the timers and the threads.

Promises: pumped once after it was woken, however often it was; what the program has sent goes into
the stack in its order, and waits outside while the stack cannot take it; all that one input makes
the stack send leaves together; a process that sends what is not a frame of this stack is cut off,
and only that one; whoever waits is called outside the lock.

Needs a port (`Port`) that calls `pump` soon after `wake`, and `timer_fired` at the time for which
the timer is set; all methods but `do`, `wake` and `hindrance` called on one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from antiphon.errors import ConnectionLostError, FormatError, IllegalStateError, JMSError
from antiphon.formats.frames import Body
from antiphon.formats.peer_wire import Refused
from antiphon.model.peer_views import MemberId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.channel.tracing import ChannelTrace
from antiphon.peers.channel.views import names
from antiphon.peers.layers.flow import Awaited
from antiphon.peers.layers.layer import Dial
from antiphon.peers.layers.state import Arrived, Begins, Ended, HandOut, State
from antiphon.peers.layers.views.notes import Notes
from antiphon.peers.layers.views.transitional import Passing
from antiphon.peers.membership.member import Left
from antiphon.peers.membership.membership import Membership
from antiphon.peers.stack.running import Delivered, Running, Shown, Transmit, Waits
from antiphon.peers.whiteboard.whiteboard import Numbers, Whiteboard

logger = logging.getLogger("antiphon.peers.channel")

Outcome = TypeVar("Outcome")

BEHIND_MS = 30_000
"""A program that is behind leaves if it takes nothing for this long while others wait for it."""

LEAVE_MS = 5_000
"""A channel that is closed waits this long for its last messages to arrive, and then as long for
the others to let it go."""


class Port(Protocol):
    """The process in which a driver runs, as the driver needs it. `wake` is called on any thread,
    everything else on the driver's."""

    def wake(self) -> None:
        """Call `ChannelDriver.pump` soon."""

    def transmit(self, to: Sequence[MemberId], head: bytes, body: Body) -> None:
        """Send a frame, which is in two parts, to these processes, as far as there are connections,
        at the next `flush`."""

    def flush(self) -> None:
        """Have what was transmitted leave."""

    def dial(self, address: str) -> None:
        """Connect to the process at this address, unless there is a connection."""

    def refuse(self, process: MemberId, refused: Refused) -> None:
        """End the connection to this process, and tell it why."""

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        """Call `timer_fired` then, and not at the time that was given before."""

    def over(self) -> None:
        """The channel has ended; nothing more will be asked of the port."""


class ChannelDriver:
    """Drives one running stack and its conversation; promises are the module's."""

    def __init__(
        self,
        conversation: Conversation,
        running: Running,
        lock: AbstractContextManager[Any],
        port: Port,
        trace: ChannelTrace | None = None,
    ) -> None:
        self._trace = trace
        self._conversation = conversation
        self._running = running
        self._lock = lock
        self._port = port
        self.woken = False  # `pump` will be called
        self._timer_ms: int | None = None
        self._state = next((layer for layer in running.layers if isinstance(layer, State)), None)
        boards = (layer for layer in running.layers if isinstance(layer, Whiteboard))
        self._whiteboard = next(boards, None)
        self._notes = next((layer for layer in running.layers if isinstance(layer, Notes)), None)
        self._taken_bytes = -1  # by the program, when it was last seen to be behind
        self._stuck_ms = 0  # since when
        self._leave_by_ms: int | None = None  # the end of the patience of a channel that is closed
        self._asked_to_leave = False
        self._waits_for: Waits | None = None
        self._awaited: dict[MemberId, Awaited] = {}  # by other members of the view, which told it
        self._linked: set[MemberId] = set()

    # -- On any thread --------------------------------------------------------------------------

    def do(self, what: Callable[[Conversation], Outcome]) -> Outcome:
        """Ask the conversation for something, and have it carried out soon."""
        with self._lock:
            outcome = what(self._conversation)
        self.wake()
        return outcome

    def wake(self) -> None:
        """Have `pump` called soon; once, however often this is called before."""
        if not self.woken:
            self.woken = True
            self._port.wake()

    @property
    def hindrance(self) -> str:
        """What sends wait for, for people; "": they do not."""
        running = self._running
        if (waits := self._waits_for) is not None:
            return f"{waits.process}: {waits.why}"
        if running.frozen:
            return self._why_frozen()
        if running.waiting:
            return "this view may not send"
        if self._conversation.waits_for_order:
            return self._why_not_ordered()
        return ""

    def _why_frozen(self) -> str:
        for layer in self._running.layers:
            if isinstance(layer, Membership) and (hidden := layer.hidden):
                return f"only primary views count, and {' '.join(names(hidden.members))} are none"
        return "the view is changing"

    def _why_not_ordered(self) -> str:
        leader = self._running.view.leader
        awaited = self._awaited.get(leader)
        if awaited is None or awaited.process is None:
            return f"{leader} has not ordered what was sent before"
        whom = "this process" if awaited.process == self._running.me else str(awaited.process)
        return f"{leader}, which orders messages, waits for {whom}: {awaited.why}"

    # -- On the driver's thread -----------------------------------------------------------------

    def provides_state(self) -> None:
        """The program has a state to hand out. The stack has a layer for states."""
        assert self._state is not None
        self._state.provides = True

    def pump(self, now_ms: int) -> None:
        """Hand what was sent to the stack, and carry out what it wants."""
        self.woken = False  # first: whatever is asked for from here on wakes it again
        self._finish(now_ms)

    def timer_fired(self, now_ms: int) -> None:
        """The time given to `Port.set_timer` has come."""
        self._timer_ms = None
        self._running.tick(now_ms)
        self._finish(now_ms)

    def welcome(self, process: MemberId) -> Refused | None:
        """Return why this process may not be connected now; None if it may. Views that are hidden
        from the program count: in the one shown last, members may be long gone."""
        view = self._running.formed
        for member in view.members:
            if member.name == process.name and member != process:
                taken = f"the name {process.name!r} belongs to a live member of the cluster"
                return Refused(taken, again=True, replaced=view.primary)
        return None

    def replaced(self, reason: str) -> None:
        """A primary view of others has another process of this one's name: it was taken for dead,
        and somebody else has its place. One that only wants to join may wait until the name is
        free."""
        if self._conversation.joined.done:
            self.fail(IllegalStateError(reason, happened="unknown"))

    def linked(self, process: MemberId, address: str, now_ms: int) -> None:
        """There is a connection to this process."""
        self._linked.add(process)
        self._running.linked(process, address, now_ms)
        self._finish(now_ms)

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> None:
        """It is gone."""
        self._linked.discard(process)
        self._running.unlinked(process, goodbye, now_ms)
        self._finish(now_ms)

    def arrived(self, process: MemberId, bodies: Sequence[Body], now_ms: int) -> None:
        """Frames have come from this process."""
        try:
            for body in bodies:
                self._running.received(process, _plain(body), now_ms)
        except FormatError as error:
            logger.warning("%s sends what is not a frame of this stack: %s", process, error)
            self._port.refuse(process, Refused(f"not a frame of this stack: {error}", again=False))
        # What layers say at the end of a batch, such as acknowledgements, leaves with the rest: for
        # a timer it would be a turn of the loop later.
        self._running.tick(now_ms)
        self._finish(now_ms)

    def fail(self, error: JMSError) -> None:
        """End at once, for this reason."""
        self._end(error)
        self._tell()

    # -- What follows every input ---------------------------------------------------------------

    def _finish(self, now_ms: int) -> None:
        if self._conversation.over:
            return
        self._carry_out(now_ms)
        self._transfer_states(now_ms)
        if self._conversation.board.has_unwritten:
            self._write_number(now_ms)
        self._pass_note_on(now_ms)
        self._hand_down(now_ms)
        self._look_at_reader(now_ms)
        if self._conversation.leaving:
            self._leave(now_ms)
        if self._trace is not None:
            self._trace.flush()
        self._port.flush()
        self._tell()
        if not self._conversation.over:
            self._set_timer(now_ms)

    def _carry_out(self, now_ms: int) -> None:
        conversation, port, trace = self._conversation, self._port, self._trace
        for output in self._running.take():
            match output:
                case Transmit(to, head, body):
                    port.transmit(to, head, body)
                case Delivered():
                    if trace is not None:
                        trace.delivered(output, now_ms)
                    conversation.delivered(output)
                case Shown():
                    self._awaited.clear()
                    if trace is not None:
                        trace.shown(output, now_ms)
                    conversation.shown(output)
                    self._drop_namesakes()
                case Passing():
                    conversation.passes(output)
                case HandOut() | Begins() | Arrived() | Ended():
                    conversation.told_of_state(output)
                case Dial(address):
                    port.dial(address)
                case Numbers(numbers):
                    conversation.board.took(numbers)
                case Waits():
                    self._waits_for = output if output.process is not None else None
                case Awaited(waiter):
                    self._awaited[waiter] = output
                case Left():
                    conversation.has_ended_cluster = output.ends
                    self._end(None)

    def _transfer_states(self, now_ms: int) -> None:
        """Have the layer do what the program wants of states."""
        layer, states = self._state, self._conversation.states
        while layer is not None and (call := states.next_call()) is not None:
            self._running.act(layer, call(layer, now_ms), now_ms)
            self._carry_out(now_ms)

    def _write_number(self, now_ms: int) -> None:
        """Have the layer take what the program has written on the whiteboard: before messages that
        the program has sent, for these can carry it."""
        assert self._whiteboard is not None
        with self._lock:
            number = self._conversation.board.take_written()
        self._running.act(self._whiteboard, self._whiteboard.write(number, now_ms), now_ms)
        self._carry_out(now_ms)

    def _pass_note_on(self, now_ms: int) -> None:
        """Have the layer show the note that the program wants."""
        layer, note = self._notes, self._conversation.note
        if layer is not None and layer.own != note:
            self._running.act(layer, layer.set(note, now_ms), now_ms)
            self._carry_out(now_ms)

    def _hand_down(self, now_ms: int) -> None:
        """Give the stack what it can take at once; the rest waits where it may still grow."""
        running, conversation = self._running, self._conversation
        while conversation.has_unsent and not (running.frozen or running.waiting):
            with self._lock:
                leaving = conversation.next_leaving()
            if leaving is None:
                break
            if self._trace is not None:
                self._trace.sent(leaving, now_ms)
            running.send(leaving.body, now_ms, leaving.to, leaving.level)
            self._carry_out(now_ms)

    def _look_at_reader(self, now_ms: int) -> None:
        """Tell the stack when the program gets behind, and when it has caught up; leave if it is
        gone for good."""
        inbox = self._conversation.inbox
        is_behind = inbox.is_behind
        if is_behind != inbox.was_behind:
            inbox.was_behind = is_behind
            self._running.behind(is_behind, now_ms)
            self._carry_out(now_ms)
        if not is_behind:
            return
        taken_bytes = inbox.taken_bytes + self._conversation.states.arrived_bytes
        if taken_bytes != self._taken_bytes:
            self._taken_bytes, self._stuck_ms = taken_bytes, now_ms
        elif now_ms - self._stuck_ms >= BEHIND_MS and not self._asked_to_leave:
            self._running.leave(now_ms)
            self._asked_to_leave = True
            self._carry_out(now_ms)
            self._end(
                ConnectionLostError(
                    f"{self._conversation.me} has left {self._conversation.cluster!r}: its program "
                    f"has received nothing for {BEHIND_MS / 1000:g} s, with "
                    f"{inbox.waiting_bytes} bytes waiting for it, and the others had to wait"
                )
            )

    def _drop_namesakes(self) -> None:
        """A name belongs to one member, the first one of the view that has it: the others end.
        Processes that were taken for dead, and whose names are taken, are told so when they come
        back: they read it from their old connections."""
        running = self._running
        owners: dict[str, MemberId] = {}
        for member in running.view.members:
            owners.setdefault(member.name, member)
        if owners.get(running.me.name, running.me) != running.me:
            taken = f"another process has taken the name {running.me.name!r}"
            self._end(IllegalStateError(taken, happened="unknown"))
            return
        for process in [one for one in self._linked if owners.get(one.name, one) != one]:
            if refused := self.welcome(process):
                self._port.refuse(process, refused)

    # -- The end --------------------------------------------------------------------------------

    def _leave(self, now_ms: int) -> None:
        """Leave once what was sent has come back, and end once the others have let this process
        go; each within a bound."""
        if self._leave_by_ms is None:
            self._leave_by_ms = now_ms + LEAVE_MS
        late = now_ms >= self._leave_by_ms
        done = self._conversation.all_left and not self._is_needed
        if not self._asked_to_leave and (late or done):
            self._asked_to_leave = True
            self._leave_by_ms = now_ms + LEAVE_MS
            self._running.leave(now_ms)
            self._carry_out(now_ms)
        elif self._asked_to_leave and late:
            self._end(None)

    @property
    def _is_needed(self) -> bool:
        """Whether the others are still to get the state that this process alone has."""
        view = self._running.view
        return bool(view.learners) and view.voters == (self._running.me,)

    def _end(self, error: JMSError | None) -> None:
        if self._conversation.over:
            return
        with self._lock:
            self._conversation.end(error)
        if self._trace is not None:
            self._trace.ended()
        self._port.flush()
        self._port.over()

    def _tell(self) -> None:
        for ticket in self._conversation.take_settled():
            ticket.tell()

    def _set_timer(self, now_ms: int) -> None:
        due_ms = self._running.next_deadline_ms()
        for own_ms in (self._leave_by_ms, self._behind_by_ms):
            if own_ms is not None:
                due_ms = own_ms if due_ms is None else min(due_ms, own_ms)
        if due_ms is not None and (self._timer_ms is None or due_ms < self._timer_ms):
            # An earlier timer than needed is left alone: it finds out that it is too early.
            self._timer_ms = due_ms
            self._port.set_timer(due_ms, now_ms)

    @property
    def _behind_by_ms(self) -> int | None:
        if not self._conversation.inbox.was_behind:
            return None
        return self._stuck_ms + BEHIND_MS


def _plain(body: Body) -> bytes | memoryview:
    """Return a body as the stack takes it."""
    return memoryview(body) if isinstance(body, bytearray) else body
