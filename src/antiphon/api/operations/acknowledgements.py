"""The messages that a consumer handed to the program, until they are acknowledged, failed or given
back.

In the automatic modes a message counts as acknowledged when `receive` returns it, when the listener
returns, or, in a loop, when the program asks for the next one or its `with` block ends without an
exception. In the other modes it stays open: it can be acknowledged as long as its context lives,
even after its consumer was closed, and goes back when the context ends.

Acknowledgements that no call waits for are gathered, and reported together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.message import Message
from antiphon.api.modes import SessionMode
from antiphon.api.operations.scripts import Pause, Script
from antiphon.api.operations.transactions import acknowledging
from antiphon.api.protocol.inbox import Inbox, Loan
from antiphon.api.protocol.requests import Acknowledgement, Request
from antiphon.formats.protocol import AckRow
from antiphon.model.destinations import DEAD_LETTERS

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore

GROUP_ID = "JMSXGroupID"


class Loop:
    """A `for` loop over a consumer."""

    def __init__(self, caller: object) -> None:
        self.caller = caller
        self.over = False  # ended by `break` or an exception: it asks for nothing more


class Acknowledgements:
    """The messages of one consumer that the program has, or had.

    Methods that are called under the context's lock say so.
    """

    def __init__(self, context: ContextCore, destination: Destination, inbox: Inbox) -> None:
        self.destination = destination
        self.inbox = inbox  # under the context's lock, but for arrivals
        self.exclusive = False  # of a queue
        self.redelivery = context.connection.conversation.redelivery
        self.closed = False
        self._context = context
        self._connection = context.connection
        self._lock = context.lock
        self._automatic = context.automatic
        self._trace = context.connection.trace
        self._looped: int | None = None  # the message in the body of the loop
        self._loop: Loop | None = None
        self._loan: Loan | None = None  # messages that the loop may take without asking
        self._running: int | None = None  # the message that the listener has
        self._gathering = False  # the connection knows that there are acknowledgements here

    def stir(self) -> None:
        """Wake the listener and waiting calls: there may be messages to hand out."""
        raise NotImplementedError

    # -- Acknowledging ----------------------------------------------------------------------------

    def acknowledge_message(self, message: Message) -> Any:
        """Acknowledge by the context's mode, in the way of the front."""
        return self._context.front.run_at_once(self._acknowledging(message))

    def _acknowledging(self, message: Message) -> Script[None]:
        self._context.check()
        mode = self._context.mode
        if mode is SessionMode.CLIENT_ACKNOWLEDGE:
            yield from acknowledging(self._context)
        elif mode is SessionMode.INDIVIDUAL_ACKNOWLEDGE:
            with self._lock:
                known = self.inbox.acknowledge(message._key())
                ack = self.report_now(patient=False) if known else None
            if ack is not None:
                yield Pause(ack)
                ack.outcome()

    def all_done(self) -> list[AckRow]:
        """Return rows that acknowledge all that the program has. Caller holds the lock."""
        self.call_in()
        self._looped = None
        self.inbox.acknowledge_all()
        return self.inbox.take_rows()

    def _acknowledged(self) -> None:
        """Note that messages were acknowledged, and no call waits for the answer. Caller holds the
        lock."""
        if self.inbox.enough or self.closed:
            self.report_now()
        else:
            self._gather()

    def _report_expired(self) -> None:
        """Report messages that expired here: until the servers know, they fill the window. Caller
        holds the lock."""
        if self.inbox.expired:
            self.inbox.expired = False
            self._acknowledged()

    def _gather(self) -> None:
        """Have the connection call `report` soon."""
        if not self._gathering:
            self._gathering = True
            self._connection.acks_wait(self)

    def report(self) -> None:
        """Hand the acknowledgements that were gathered to the conversation."""
        with self._lock:
            self.report_now()

    def report_now(self, patient: bool = True) -> Acknowledgement | None:
        """Hand them over now. Caller holds the lock until then: the call that closes this consumer
        must find all earlier acknowledgements."""
        self._gathering = False
        self.call_in()
        rows = self.inbox.take_rows()
        if not rows:
            return None
        if self._trace is not None:
            self._trace.acknowledges(self.destination.text, rows)
        return self._connection.do(lambda c: None if c.over else c.acknowledge(rows, patient))

    # -- Loops ------------------------------------------------------------------------------------

    def _leave_loop(self) -> None:
        """Acknowledge the message of the loop, which asks for the next one. Caller holds the
        lock."""
        if self._looped is not None:
            position, self._looped = self._looped, None
            if self.inbox.acknowledge(position):
                self._acknowledged()

    def leave_loop_of(self, caller: object, failed: bool) -> None:
        """End the loop of this caller, since its `with` block ends; `failed`: with an exception,
        and the message of the loop goes back. Another caller's loop goes on. Caller of this holds
        the lock."""
        self.call_in()
        if self._loop is None or self._loop.caller != caller:
            return
        if not failed:
            self._leave_loop()
        elif self._looped is not None:
            position, self._looped = self._looped, None
            deliveries = self.inbox.deliveries(position)
            if self.inbox.is_hopeless(deliveries) and not self.inbox.is_letter(position):
                self.inbox.bury(position, f"delivered {deliveries} times, and not acknowledged")
            else:
                self.inbox.will_wait(position, self.redelivery.wait_ms(deliveries))

    def call_in(self) -> None:
        """Take back the lent messages that the loop has not taken: they wait again for the next
        call. Caller holds the lock."""
        loan, self._loan = self._loan, None
        if loan is not None:
            self._looped = self.inbox.call_in(loan)

    def leaves(self, loop: Loop) -> None:
        """End a loop that asks for nothing more. The program calls this where it leaves the loop,
        perhaps through the garbage collector: so it takes no lock."""
        loop.over = True
        if self.closed and self._loop is loop and self._looped is not None:
            self._connection.after(0, self._left_behind)

    def _left_behind(self) -> None:
        """Give back the message of a loop that was left after its consumer was closed."""
        with self._lock:
            if self._looped is not None and not self.in_hand():
                self._looped = None
                self._context.give_back([self])

    def in_hand(self) -> set[int]:
        """Return the messages that are being handled at this moment."""
        looped = None if self._loop is not None and self._loop.over else self._looped
        return {position for position in (looped, self._running) if position is not None}

    # -- Again ------------------------------------------------------------------------------------

    def recover(self, waits: bool) -> None:
        """Hand out the program's open messages again; `waits`: after a wait. Caller holds the
        lock."""
        self.call_in()
        self._looped = None
        deliveries = self.inbox.recover()
        if waits and deliveries:
            self._pause(self.redelivery.wait_ms(deliveries))
        if self.inbox.has_dead:
            self.report_now()

    def _failed(self, message: Message, reason: str) -> bool:
        """Have a message come again that the listener could not handle. Return False if it has come
        too often, and does not. Caller holds the lock."""
        position, deliveries = message._key(), message.delivery_count
        wait_ms = self.redelivery.wait_ms(deliveries)
        if self.inbox.is_hopeless(deliveries) and not self.inbox.is_letter(position):
            self.inbox.bury(position, reason)
            self.report_now()
            return False
        if self._never_skips and deliveries >= (self.redelivery.deliveries or 0):
            return False
        if self._keeps_order(message):
            self.inbox.redeliver(position)
            self._pause(wait_ms)
        else:
            self.inbox.fail(position, wait_ms)
            self._acknowledged()
        return True

    @property
    def _never_skips(self) -> bool:
        """Whether it is a member of a group, or one of several consumers that are one member
        together."""
        return not self.inbox.deliveries_max and self.destination.text != DEAD_LETTERS

    def _keeps_order(self, message: Message) -> bool:
        """Return whether later messages wait for this one, too."""
        holds = self._connection.conversation.holds
        return (
            not (holds and self.inbox.divided) or self.exclusive or GROUP_ID in message.properties
        )

    def _comes_again_as(self, request: Request) -> None:
        """Take over the terms of redelivery from the servers."""
        self.redelivery = request.redelivery.over(self.redelivery)
        if self.inbox.deliveries_max:
            self.inbox.deliveries_max = self.redelivery.deliveries or 0
        if request.wait_ms:  # the first message has failed at the consumer before
            with self._lock:
                self._pause(request.wait_ms)

    def _pause(self, ms: int) -> None:
        """Hand out nothing for this time: messages that keep their order wait. Caller holds the
        lock."""
        if ms:
            self.inbox.pauses += 1
            self._connection.after(ms, self._go_on)

    def _go_on(self) -> None:
        """End a pause."""
        with self._lock:
            self.inbox.pauses -= 1
        self.stir()
