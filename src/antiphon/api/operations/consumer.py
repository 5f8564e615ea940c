"""Consumers, but for waiting: what both fronts do with messages that have arrived.

When a message counts as acknowledged, in the automatic modes: by `receive`, when it is handed over;
with a listener, when that returns; in a loop, when the next one is asked for, or when the `with`
block ends without an exception. Otherwise it stays open: it can be acknowledged as long as its
context lives, also after its consumer was closed, and goes back when that ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from antiphon.api.connection import logger
from antiphon.api.messages.arriving import arrived, arrived_together
from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.group_messages import occurred
from antiphon.api.messages.message import Arrival, Message
from antiphon.api.modes import SessionMode
from antiphon.api.operations import arguments
from antiphon.api.operations.front import MessageListener
from antiphon.api.operations.group_standing import Standing
from antiphon.api.operations.scripts import Deadline, Pause, Script, ring
from antiphon.api.operations.transactions import acknowledging
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox, Loan, Slice
from antiphon.api.protocol.inbox_items import GroupColumns, Notice, admission
from antiphon.api.protocol.requests import Acknowledgement, Request
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats.columns import Columns
from antiphon.formats.protocol import RELATION, AckRow, GroupEvent, Kept, Widen
from antiphon.model.conflicts import ConflictRelation
from antiphon.model.destinations import DEAD_LETTERS

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore

PREFETCH_MAX = 1 << 20
"""What a server gives at most."""

GROUP_ID = "JMSXGroupID"


class Loop:
    """A `for` loop over a consumer."""

    def __init__(self, caller: object) -> None:
        self.caller = caller
        self.over = False  # by `break` or an exception: it asks for nothing more


class ConsumerCore:
    """One consumer: what has arrived for it, who waits for it, and what is acknowledged."""

    def __init__(self, context: ContextCore, destination: Destination, inbox: Inbox) -> None:
        self.destination = destination
        self.durable = False
        self.inbox = inbox  # under the context's lock, but for what arrives
        self.standing = Standing()  # if the destination is a group
        self.exclusive = False  # of a queue
        self.redelivery = context.connection.conversation.redelivery
        self.closed = False
        self.finished = False  # loops end: closed, or removed from the group
        self.unusable = False  # finished, or nothing comes any more
        self._dropped: JMSError | None = None  # why
        self._context = context
        self._connection = context.connection
        self._lock = context.lock
        self._automatic = context.automatic
        self._trace = context.connection.trace
        self.lends = (
            self._automatic and self._trace is None
        )  # loops may take several messages at a time
        self._allow_pickle = context.connection.options.allow_pickle
        self._looks = False  # it is a browser, and
        self._complete = False  # all is here
        self._bells: set[Ticket] = set()  # of those who wait for a message
        self._looped: int | None = None  # the message in the body of a loop, and
        self._loop: Loop | None = None  # which that is
        self._loan: Loan | None = None  # what that loop may take without asking
        self._gathering = False  # the connection knows that there are acknowledgements here
        self._listener: MessageListener | None = None
        self._scheduled = False  # the worker knows that there is something to do
        self._running: int | None = None  # the message that the listener has

    def acknowledge_message(self, message: Message) -> Any:
        """Acknowledge as the context's mode says, in the way of the front."""
        return self._context.front.run_at_once(self._acknowledging(message))

    # -- Called by the connection, on the loop's thread -------------------------------------------

    def arrive(self, slice_: Slice) -> None:
        columns = slice_.columns
        if isinstance(columns, GroupColumns) and columns.view is None:
            columns.view = self.standing.view_of(columns.view_id)
        if self.inbox.divided and (self.inbox.ranked or slice_.is_special):
            with self._lock:
                self.inbox.insert(slice_)
        else:
            self.inbox.arrive(slice_)
        self.stir()

    def occur(self, event: GroupEvent) -> None:
        self.standing.arrive(event)
        if event.kind == RELATION:
            relation = ConflictRelation.from_json(event.relation)
            self._connection.relations[self.destination.text] = relation
            if self._trace is not None:
                self._trace.add(
                    "conflict",
                    group=self.destination.text,
                    position=event.position,
                    relation=event.relation,
                )
        self.inbox.occur(event)
        self.stir()

    def only_looks(self) -> None:
        """Of a browser: whatever the context's mode, there is nothing to acknowledge; and nothing
        is delivered, so it looks while deliveries are held, too."""
        self._automatic = self._looks = True

    def complete(self) -> None:
        """Of a browser: nothing more comes."""
        self._complete = True
        self.stir()

    def dropped(self, error: JMSError) -> None:
        self._dropped = error
        self.unusable = True
        self.stir()
        if self._listener is not None:
            self._context.complain(error)

    def report(self) -> None:
        with self._lock:
            self.report_now()

    def state(self, event: StateEvent) -> None:
        raise AssertionError("only who has joined takes a state over")

    def opened(self, request: Request) -> None:
        """The servers have granted it; `data` says who it is, if the destination is a group, and
        `value` that several are a member of one together."""
        if self.inbox.divided and request.value:
            self.inbox.deliveries_max = 0
        self._comes_again_as(request)
        if request.data:
            admitted = admission(request.value, request.data)
            self.standing.enter(admitted)
            self.inbox.deliveries_max = 0  # a member never skips what the others handle
            self._connection.relations.setdefault(self.destination.text, admitted.relation)
            if self._trace is not None:
                self._trace.joined(self.destination.text, admitted.name, self.durable)

    # -- Again ----------------------------------------------------------------------------------

    def _comes_again_as(self, request: Request) -> None:
        """What the servers know of redeliveries."""
        self.redelivery = request.redelivery.over(self.redelivery)
        if self.inbox.deliveries_max:
            self.inbox.deliveries_max = self.redelivery.deliveries or 0
        if request.wait_ms:  # what comes first has failed with the consumer before
            with self._lock:
                self._pause(request.wait_ms)

    def _pause(self, ms: int) -> None:
        """What keeps its order waits here: nothing is handed out meanwhile. Under the lock."""
        if ms:
            self.inbox.pauses += 1
            self._connection.after(ms, self._go_on)

    def _go_on(self) -> None:
        """A wait is over."""
        with self._lock:
            self.inbox.pauses -= 1
        self.stir()

    def _failed(self, message: Message, reason: str) -> bool:
        """It could not be handled. False: it does not come again. Under the lock."""
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
        """It is a member of a group, or one of several that are one together."""
        return not self.inbox.deliveries_max and self.destination.text != DEAD_LETTERS

    def _keeps_order(self, message: Message) -> bool:
        """What comes after this one waits for it, too."""
        holds = self._connection.conversation.holds
        return (
            not (holds and self.inbox.divided) or self.exclusive or GROUP_ID in message.properties
        )

    # -- Handing out ----------------------------------------------------------------------------

    def stir(self) -> None:
        """There may be something to hand out, or to be said to those who wait."""
        if self._listener is not None:
            self._schedule()
        ring(self._bells)

    def take(self, loop: Loop | None = None) -> Message | None:
        """The next message, if there is one here."""
        with self._lock:
            if not self._may_take(in_loop=loop is not None):
                return None
            for_good = self._automatic and loop is None
            taken = self.inbox.take_for_good() if for_good else self.inbox.take()
            self._report_expired()
            if taken is None:
                return None
            slice_, index = taken
            position = slice_.start + index
            if for_good and (not self._gathering or self.inbox.enough):
                self._acknowledged()
            elif self._automatic:
                self._looped, self._loop = position, loop
        return self._message(slice_, index)

    def _message(self, slice_: Slice, index: int) -> Message:
        """For the application."""
        columns = slice_.columns
        if isinstance(columns, Notice):
            message = self._news(columns.event, slice_.deliveries)
        else:
            message = next(arrived(self._arrival(columns, slice_), (index,)))
        if self._trace is not None:
            self._trace.handed_out(self.destination.text, message, self.standing)
        return message

    def _arrival(self, columns: Columns, slice_: Slice) -> Arrival:
        return Arrival(columns, slice_.start, slice_.deliveries, self, self._allow_pickle)

    def _news(self, event: GroupEvent, deliveries: int) -> Message:
        """What has happened to the group. After being told that it was removed, a member is told
        nothing more."""
        self.standing.install(event)
        if self.standing.removed is not None:
            self.finished = self.unusable = True
        return occurred(event, self.standing.view, self.destination, deliveries, self)

    def _may_take(self, in_loop: bool) -> bool:
        """False: deliveries are held, or a loop has to end. Whoever asks is done with the message
        before."""
        self.call_in()
        if self._looped is not None:
            self._leave_loop()
        if in_loop and self.closed:
            return False
        if self.unusable or self._listener is not None:
            raise self._why_not()
        return self._connection.started or self._looks

    def borrow(self, loop: Loop) -> Loan | None:
        """For a loop: messages that it may take without a lock. It is done with the one before."""
        with self._lock:
            if not self._may_take(in_loop=True):
                return None
            self._loan = self.inbox.lend()
            self._loop = loop
            self._gather()  # what the loop is done with is reported soon, however long it takes
            return self._loan

    def caller(self) -> object:
        """Return who is calling: a thread, or a task."""
        return self._context.front.caller()

    def lent(self, loan: Loan) -> Iterator[Message]:
        """The messages of a loan, for the loop that has it."""
        slice_ = loan.slice
        if isinstance(slice_.columns, Notice):
            return (self._message(slice_, index) for index in loan.indexes)
        arrival = self._arrival(slice_.columns, slice_)
        return arrived_together(arrival, loan.first, loan.end, loan.indexes)

    def call_in(self) -> None:
        """What a loop has not taken waits again for whoever asks first. Under the lock."""
        loan, self._loan = self._loan, None
        if loan is not None:
            self._looped = self.inbox.call_in(loan)

    def receiving(self, timeout: float | None, loop: Loop | None = None) -> Script[Message | None]:
        """None: nothing came in time, or the consumer was closed meanwhile."""
        deadline = Deadline(timeout)
        while True:
            bell = Ticket()
            self._bells.add(bell)
            try:
                # Looked at after the bell was hung up: what comes from now on rings it.
                if self.closed or (loop is not None and self.finished):
                    return None
                complete = self._complete
                message = self.take(loop)
                if message is not None or complete:
                    return message
                with self._lock:
                    self._widen_if_full()
                if self.must_provide:
                    yield from self.providing()
                elif not (yield Pause(bell, deadline.left())):
                    return None
            finally:
                self._bells.discard(bell)

    def _widen_if_full(self) -> None:
        """Whoever acknowledges later, or commits, may take as many messages as it likes. Under the
        lock."""
        if self._automatic or not self.inbox.is_full:
            return
        wider = min(2 * self.inbox.prefetch, PREFETCH_MAX)
        if wider > self.inbox.prefetch:
            self.inbox.prefetch = wider
            body = Widen(self.inbox.consumer, wider)
            self._connection.do(lambda c: None if c.over else c.request(body))

    @property
    def must_provide(self) -> bool:
        """Of a group: this member is to hand out its state before it goes on."""
        return False

    def providing(self) -> Script[None]:
        """Do so."""
        yield from ()

    def looping(self, loop: Loop) -> Script[Message | None]:
        """The next message of a loop; None: the consumer is closed, and the loop ends."""
        message = None
        if not self.finished:
            message = yield from self.receiving(None, loop)
        if message is None:
            with self._lock:
                self.call_in()
                self._leave_loop()
        return message

    def _why_not(self) -> JMSError:
        if self._listener is not None and not self.unusable:
            return IllegalStateError(
                f"the consumer of {self.destination} has a listener: messages go there"
            )
        if self._context.unusable:
            return self._context.why_not()
        if self._dropped is not None:
            return type(self._dropped)(*self._dropped.args)
        if self.standing.removed is not None:
            return self.standing.why_not(str(self.destination))
        if self.closed:
            return IllegalStateError(f"the consumer of {self.destination} is closed")
        return self._context.why_not()

    # -- Acknowledging; under the context's lock --------------------------------------------------

    def _leave_loop(self) -> None:
        """The next message is asked for: the one before is done with."""
        if self._looped is not None:
            position, self._looped = self._looped, None
            if self.inbox.acknowledge(position):
                self._acknowledged()

    def leave_loop_of(self, caller: object, failed: bool) -> None:
        """A `with` block ends; `failed`: with an exception, and the message of the loop goes back.
        A loop that somebody else is in goes on."""
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

    def leaves(self, loop: Loop) -> None:
        """This loop asks for nothing more. Called where the program leaves it, perhaps by the
        garbage collector: so without a lock."""
        loop.over = True
        if self.closed and self._loop is loop and self._looped is not None:
            self._connection.after(0, self._left_behind)

    def _left_behind(self) -> None:
        """The message of a loop that was left after its consumer was closed goes back."""
        with self._lock:
            if self._looped is not None and not self.in_hand():
                self._looped = None
                self._context.give_back([self])

    def _acknowledged(self) -> None:
        """Something was, and nobody waits until that is certain."""
        if self.inbox.enough or self.closed:
            self.report_now()
        else:
            self._gather()

    def _report_expired(self) -> None:
        """What expired here fills the window as long as the servers do not know."""
        if self.inbox.expired:
            self.inbox.expired = False
            self._acknowledged()

    def _gather(self) -> None:
        """Have `report` called soon."""
        if not self._gathering:
            self._gathering = True
            self._connection.acks_wait(self)

    def recover(self, waits: bool) -> None:
        self.call_in()
        self._looped = None
        deliveries = self.inbox.recover()
        if waits and deliveries:
            self._pause(self.redelivery.wait_ms(deliveries))
        if self.inbox.has_dead:
            self.report_now()

    def report_now(self, patient: bool = True) -> Acknowledgement | None:
        """Still under the lock: who closes this consumer must find what was acknowledged before."""
        self._gathering = False
        self.call_in()
        rows = self.inbox.take_rows()
        if not rows:
            return None
        if self._trace is not None:
            self._trace.acknowledges(self.destination.text, rows)
        return self._connection.do(lambda c: None if c.over else c.acknowledge(rows, patient))

    def all_done(self) -> list[AckRow]:
        """All that the application has is acknowledged, once these rows are."""
        self.call_in()
        self._looped = None
        self.inbox.acknowledge_all()
        return self.inbox.take_rows()

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

    # -- Listeners ------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """The listener has a message."""
        return self._context.running is self

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have each message handed to `listener`, one at a time; None: to nobody."""
        arguments.check_listener(listener)
        with self._lock:
            if self.unusable:
                raise self._why_not()
            self.call_in()
            self._listener = listener
        if listener is not None:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and self.inbox.ready:
            self._scheduled = True
            self._context.front.schedule(self)

    def turn(self) -> tuple[MessageListener, Message] | None:
        """For the worker: what the listener gets next; None: nothing now."""
        self._scheduled = False  # first: what arrives from now on is news
        with self._lock:
            listener = self._listener
            if listener is None or self.unusable or not self._connection.started:
                return None
            taken = self.inbox.take()
            self._report_expired()
            if taken is None:
                self._widen_if_full()
                return None
            slice_, index = taken
            self._running = slice_.start + index
            self._context.running = self
        return listener, self._message(slice_, index)

    def handled(self, message: Message, error: BaseException | None) -> None:
        """The listener has returned, or raised."""
        again = False
        with self._lock:
            self._running = None
            if not self._automatic:
                pass  # the application acknowledges
            elif error is None:
                if self.inbox.acknowledge(message._key()):
                    self._acknowledged()
            elif self.closed:
                self._context.give_back([self])
            else:
                again = self._failed(message, f"its listener raised {error!r}")
        if error is not None:
            self._complain(message, error, again)
        self._context.rest()

    def _complain(self, message: Message, error: BaseException, again: bool) -> None:
        if again:
            logger.warning(
                "the listener of %s raised, and gets message %s again",
                self.destination,
                message.id,
                exc_info=error,
            )
            return
        stops = self._automatic and bool(self.standing.name)
        fate = (
            f"The member {self.standing.name!r} has stopped: it would differ from the others"
            if stops
            else f"It went to the dead letters, {self.redelivery.dead_letters}"
            if self._automatic and self.inbox.deliveries_max
            else "The message is left unacknowledged"
        )
        complaint = IllegalStateError(
            f"the listener of {self.destination} raised {error!r} for message {message.id}, "
            f"delivered {message.delivery_count} times. {fate}"
        )
        complaint.__cause__ = error
        if stops:
            self._fail(complaint)
        self._context.complain(complaint)

    def _fail(self, error: JMSError) -> None:
        """A member that cannot go on stops, and has its group suspect it: it never skips what the
        others handle."""
        with self._lock:
            if self.closed or self._dropped is not None:
                return
            self._dropped = error
            self.unusable = True
            self.report_now()
            self.inbox.close()
            self.inbox.give_up()
            self._context.gone(self)
            self._connection.do(lambda c: None if c.over else self._give_up(c))
        self.stir()

    def _give_up(self, conversation: Conversation) -> Request:
        return conversation.close_consumer(self.inbox.consumer, failed=True)

    # -- The end --------------------------------------------------------------------------------

    def closing(self) -> Script[None]:
        if self._context.forked_from:
            raise self._context.why_not()
        with self._lock:
            if self.closed:
                return
            self.shut()
        if not self._context.front.inside_listener():
            yield from self._context.until_rest(self)
        yield from self.going(give_back=self._automatic)

    def leaving(self, failed: bool) -> Script[None]:
        """The `with` block ends; `failed`: with an exception."""
        with self._lock:
            self.call_in()
            self.leave_loop_of(self.caller(), failed)
            if failed:
                self._looped = None  # whoever's loop it was: it goes back
        yield from self.closing()

    def shut(self) -> None:
        """Nothing more is handed out; those who wait are told. Under the lock."""
        self.closed = self.finished = self.unusable = True
        self.call_in()
        self.stir()

    def going(self, give_back: bool) -> Script[None]:
        """Tell the servers. What the application has can still be acknowledged, or goes back but
        for what it is handling. What it was to have again goes back at once: it is nobody's."""
        with self._lock:
            self.report_now()
            back = self.inbox.close()
            if give_back:
                back += self.inbox.give_up(self.in_hand())
            self._context.gone(self)
            request = self._connection.do(lambda c: None if c.over else self._goodbye(c, back))
            if self._trace is not None and self.standing.name and not self.stays_member:
                self._trace.add("leave", group=self.destination.text)
        if request is not None:
            yield Pause(request, self._connection.options.close_timeout)

    @property
    def stays_member(self) -> bool:
        """When it is closed: inactive, but in the view."""
        return self.durable

    def _goodbye(self, conversation: Conversation, back: list[Kept]) -> Request:
        return conversation.close_consumer(self.inbox.consumer, self.inbox.kept(), back)

    def in_hand(self) -> set[int]:
        """Messages that are being handled at this moment."""
        looped = None if self._loop is not None and self._loop.over else self._looped
        return {position for position in (looped, self._running) if position is not None}

    def forked(self, lock: threading.Lock) -> None:
        """In the child: some thread of the parent may have held the old lock."""
        self.unusable = True
        self._lock = lock
        self.call_in()

    def lost(self) -> None:
        """The session has ended."""
        self.unusable = True
        with self._lock:
            self.call_in()
        self.stir()
