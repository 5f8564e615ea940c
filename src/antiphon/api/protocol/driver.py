"""The client's driver: it carries out a conversation's decisions, between a program and a port that
has the sockets, the timers and the threads.

Promises: after any number of wakes it is pumped once; requests leave in the order in which the
conversation gave them, on the connection for which they were meant; input from a connection after
this side gave it up, or after its end, is dropped; each receiver gets its events in order and
outside the lock, so that it may ask the conversation for more; each error reaches the caller of
`connect`, or the exception listener.

Needs: a port (`Port`), which calls `pump` soon after `wake`, and `timer_fired` at the time for
which the timer is set, and reports the outcome of each attempt to connect under the attempt's
number; all methods but `do`, `wake` and `acks_wait` called on one thread.

Left out: sockets, threads, clocks (`api/connection.py` has them, and in the simulator
`sim/programs/connection.py`), and every decision about the protocol (`conversation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.effects import (
    AcksDue,
    Arrived,
    Complete,
    Dial,
    Dropped,
    Event,
    HangUp,
    Occurred,
    Over,
    Settled,
)
from antiphon.api.protocol.inbox import Slice
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.errors import JMSError
from antiphon.formats import protocol as cw
from antiphon.formats.frames import Body

Outcome = TypeVar("Outcome")

ENDED = "it closed the connection"
"""The reason for the end of a connection that came without one."""


class Reporter(Protocol):
    """An object that gathers acknowledgements. Called on the loop's thread."""

    def report(self) -> None:
        """Hand the gathered acknowledgements to the conversation."""


class Receiver(Reporter, Protocol):
    """A consumer or a member of a group, as the driver sees it. Called on the loop's thread."""

    def arrive(self, slice_: Slice) -> None:
        """Take these messages."""

    def occur(self, event: cw.GroupEvent) -> None:
        """For members: take a group event, which is after all that arrived before it."""

    def complete(self) -> None:
        """For browsers: all messages have arrived."""

    def dropped(self, error: JMSError) -> None:
        """No more messages will arrive."""

    def state(self, event: StateEvent) -> None:
        """For members: take the next event of the state that this member takes over."""


class Link(Protocol):
    """A connection to a server, as the driver sees it."""

    def send(self, requests: list[cw.Request]) -> None:
        """Send these requests; do nothing after the end of the connection."""

    def close(self) -> None:
        """End the connection; its end is not reported."""


class Port(Protocol):
    """The process in which a driver runs, as the driver needs it. `wake` is called on any thread
    that may use the driver, everything else on the loop's."""

    def wake(self) -> None:
        """Call `ClientDriver.pump` soon, on the loop's thread."""

    def dial(self, attempt: int, address: str) -> str:
        """Begin to connect to the server at this address, or, if it is empty, to the next one.
        Return its address; empty, if servers have none. `connected` or `dial_failed` follows, with
        the attempt's number, unless `stop_dialling` was called."""

    def stop_dialling(self) -> None:
        """Give up the attempt to connect that was begun last."""

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        """Call `ClientDriver.timer_fired` at `due_ms`; this replaces the time that was set
        before."""

    def cancel_timer(self) -> None:
        """Do not call `ClientDriver.timer_fired`."""

    def over(self, error: JMSError | None) -> None:
        """The session has ended; no more calls of the port follow."""

    def complain(self, error: JMSError) -> None:
        """Report an error that no caller gets."""

    def note(self, text: str) -> None:
        """Log an event of the connection."""


class ClientDriver:
    """Drives one `Conversation`. It keeps the present connection, the timer's time, and the
    receivers by number; it holds `lock` while it uses the conversation, and never while it calls
    others."""

    def __init__(
        self, conversation: Conversation, lock: AbstractContextManager[Any], port: Port
    ) -> None:
        self.receivers: dict[int, Receiver] = {}  # by the consumer's number
        self.link: Link | None = None  # the present connection
        self.attempt = 0  # its number: input under an earlier number is dropped
        self._conversation = conversation
        self._lock = lock
        self._port = port
        self._dialling = False
        self._woken = False
        self._timer_ms: int | None = None
        self._gathering: dict[Reporter, None] = {}  # have acknowledgements that no call waits for

    # -- On any thread --------------------------------------------------------------------------

    def do(self, what: Callable[[Conversation], Outcome]) -> Outcome:
        """Call a function with the conversation, under the lock, and have its effects carried out
        soon."""
        with self._lock:
            outcome = what(self._conversation)
        self.wake()
        return outcome

    def wake(self) -> None:
        """Have the port call `pump` soon; once, however often this is called before."""
        if not self._woken:
            self._woken = True
            self._port.wake()

    def acks_wait(self, receiver: Reporter) -> None:
        """Note that this receiver has gathered acknowledgements for which no call waits."""
        self._gathering[receiver] = None
        self.do(Conversation.acks_wait)

    # -- On the loop's thread: from the port ----------------------------------------------------

    def pump(self, now_ms: int) -> bool:
        """Send the requests and carry out the events of the conversation; return whether there were
        any."""
        self._woken = False  # first: requests from here on wake it again
        conversation = self._conversation
        with self._lock:
            requests = conversation.flush(now_ms)
            events = conversation.take_events()
            deadline = conversation.next_deadline_ms()
        if requests and self.link is not None:
            self.link.send(requests)
        if deadline != self._timer_ms:
            self._set_timer(deadline, now_ms)
        if events:
            self._carry_out(events)
        if conversation.has_neglected:
            self._complain_of_neglected()
        return bool(requests or events)

    def timer_fired(self, now_ms: int) -> None:
        """Take the timer that was set with `Port.set_timer`."""
        self._timer_ms = None
        with self._lock:
            self._conversation.tick(now_ms)
        self.pump(now_ms)

    def connected(self, attempt: int, link: Link, now_ms: int) -> None:
        """Take the connection of this attempt."""
        if attempt != self.attempt:
            link.close()
            return
        self._dialling = False
        self.link = link
        with self._lock:
            self._conversation.connected(now_ms)
        self.pump(now_ms)

    def dial_failed(self, attempt: int, error: Exception, now_ms: int) -> None:
        """Take the failure of this attempt to connect. With a `JMSError` all later ones would fail,
        too."""
        if attempt != self.attempt:
            return
        if isinstance(error, JMSError):
            with self._lock:
                self._conversation.fail(error)
            self.pump(now_ms)
        else:
            self.link_ended(attempt, error, now_ms)

    def arrived(self, attempt: int, bodies: Sequence[Body], now_ms: int) -> None:
        """Take answers of a server on this connection; none: a part of a large one has come."""
        if attempt != self.attempt:
            return
        conversation = self._conversation
        with self._lock:
            for body in bodies:
                conversation.received(body, now_ms)
            if not bodies:
                conversation.part_came(now_ms)
        self.pump(now_ms)

    def link_ended(self, attempt: int, error: Exception | None, now_ms: int) -> None:
        """Take the end of the connection, which this side has not closed."""
        if attempt != self.attempt:
            return
        reason = str(error or ENDED)
        self._port.note(f"no connection: {reason}")
        self._leave_link()
        with self._lock:
            self._conversation.lost(now_ms, reason)
        self.pump(now_ms)

    # -- Events of the conversation -------------------------------------------------------------

    def _set_timer(self, deadline: int | None, now_ms: int) -> None:
        if deadline is None:
            self._timer_ms = None
            self._port.cancel_timer()
        elif self._timer_ms is None or deadline < self._timer_ms:
            # A timer that is too early stays: when it rings, the next one is set.
            self._timer_ms = deadline
            self._port.set_timer(deadline, now_ms)

    def _carry_out(self, events: list[Event]) -> None:
        receivers = self.receivers
        for event in events:
            if isinstance(event, Arrived):
                if (receiver := receivers.get(event.consumer)) is not None:
                    receiver.arrive(event.slice)
            elif isinstance(event, Settled):
                event.ticket.tell()
            elif isinstance(event, Complete):
                if (receiver := receivers.get(event.consumer)) is not None:
                    receiver.complete()
            elif isinstance(event, Occurred):
                if (receiver := receivers.get(event.consumer)) is not None:
                    receiver.occur(event.event)
            elif isinstance(event, Dropped):
                if (receiver := receivers.pop(event.consumer, None)) is not None:
                    receiver.dropped(event.error)
            elif isinstance(event, StateEvent):
                if (receiver := receivers.get(event.consumer)) is not None:
                    receiver.state(event)
            elif isinstance(event, AcksDue):
                self._report()
            elif isinstance(event, Dial):
                self._dial(event.address)
            elif isinstance(event, HangUp):
                self._hang_up(event.reason)
            elif isinstance(event, Over):
                self._over(event.error)

    def _report(self) -> None:
        gathering, self._gathering = self._gathering, {}
        for receiver in gathering:
            receiver.report()

    def _dial(self, address: str) -> None:
        self.attempt += 1
        self._dialling = True
        address = self._port.dial(self.attempt, address)
        with self._lock:
            self._conversation.dials(address)

    def _hang_up(self, reason: str) -> None:
        self._port.note(f"hanging up: {reason}")
        link = self.link
        if self._dialling:
            self._port.stop_dialling()
        self._leave_link()
        if link is not None:
            link.close()

    def _leave_link(self) -> None:
        """Forget the connection, and drop its later input."""
        self.attempt += 1
        self.link = None
        self._dialling = False

    def _over(self, error: JMSError | None) -> None:
        self._port.over(error)
        if error is not None and self._conversation.ready.error is None:
            self._port.complain(error)  # otherwise `connect` raises it

    def _complain_of_neglected(self) -> None:
        with self._lock:
            errors = self._conversation.take_neglected()
        for error in errors:
            self._port.complain(error)
