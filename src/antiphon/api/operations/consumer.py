"""Consumers, but for waiting: both fronts take in messages, and hand them out, in this way.

A call that waits for a message hangs up a bell, which rings when a message arrives or the consumer
ends. `acknowledgements.py` has the messages that were handed out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from antiphon.api import arguments
from antiphon.api.connection import logger
from antiphon.api.group_standing import Standing
from antiphon.api.messages.arriving import arrived, arrived_together
from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.group_messages import occurred
from antiphon.api.messages.message import Arrival, Message
from antiphon.api.operations.acknowledgements import Acknowledgements, Loop
from antiphon.api.operations.front import MessageListener
from antiphon.api.operations.scripts import Deadline, Pause, Script, ring
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox, Loan, Slice
from antiphon.api.protocol.inbox_items import GroupColumns, Notice, admission
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats.columns import Columns
from antiphon.formats.protocol import RELATION, GroupEvent, Kept, Widen
from antiphon.model.conflicts import ConflictRelation

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore

PREFETCH_MAX = 1 << 20
"""The most messages that a server hands out before one is acknowledged."""


class ConsumerCore(Acknowledgements):
    """One consumer: its arrived messages, the calls that wait for them, and its listener."""

    def __init__(self, context: ContextCore, destination: Destination, inbox: Inbox) -> None:
        super().__init__(context, destination, inbox)
        self.durable = False
        self.standing = Standing()  # if the destination is a group
        self.finished = False  # loops end: closed, or removed from the group
        self.unusable = False  # finished, or no messages come any more
        self.lends = self._automatic and self._trace is None  # many messages at a time, to loops
        self._dropped: JMSError | None = None  # why
        self._allow_pickle = context.connection.options.allow_pickle
        self._looks = False  # it is a browser
        self._complete = False  # all messages of the browser are here
        self._bells: set[Ticket] = set()  # of calls that wait for a message
        self._listener: MessageListener | None = None
        self._scheduled = False  # the worker knows that there is work

    # -- Called by the connection, on the loop's thread -------------------------------------------

    def arrive(self, slice_: Slice) -> None:
        """Take messages of one pack into the inbox."""
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
        """Take an event of the group into the inbox, behind all that arrived before it."""
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
        """Make this a browser: in all modes there is nothing to acknowledge; and it delivers
        nothing, so it shows messages even while deliveries are held."""
        self._automatic = self._looks = True

    def complete(self) -> None:
        """For browsers: note that all messages have come."""
        self._complete = True
        self.stir()

    def dropped(self, error: JMSError) -> None:
        """End, for the servers have closed this consumer."""
        self._dropped = error
        self.unusable = True
        self.stir()
        if self._listener is not None:
            self._context.complain(error)

    def state(self, event: StateEvent) -> None:
        """For members alone: take a part of the state."""
        raise AssertionError("only a member takes a state over")

    def opened(self, request: Request) -> None:
        """Take the servers' answer that it is open. `request.data` is its admission, if the
        destination is a group; `value`: several consumers are one member together."""
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

    # -- Handing out ----------------------------------------------------------------------------

    def stir(self) -> None:
        """Wake the listener and waiting calls: there may be messages for them."""
        if self._listener is not None:
            self._schedule()
        ring(self._bells)

    def take(self, loop: Loop | None = None) -> Message | None:
        """Return the next message, if there is one here."""
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
        """Return a message for the program."""
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
        """Return the message for an event of the group. The view without this member is its last
        one."""
        self.standing.install(event)
        if self.standing.removed is not None:
            self.finished = self.unusable = True
        return occurred(event, self.standing.view, self.destination, deliveries, self)

    def _may_take(self, in_loop: bool) -> bool:
        """Return False if deliveries are held, or a loop has to end. The caller is done with the
        previous message, and holds the lock."""
        self.call_in()
        if self._looped is not None:
            self._leave_loop()
        if in_loop and self.closed:
            return False
        if self.unusable or self._listener is not None:
            raise self._why_not()
        return self._connection.started or self._looks

    def borrow(self, loop: Loop) -> Loan | None:
        """Lend a loop messages that it may take without a lock. The loop is done with the previous
        one."""
        with self._lock:
            if not self._may_take(in_loop=True):
                return None
            self._loan = self.inbox.lend()
            self._loop = loop
            self._gather()  # reports messages that the loop is done with soon, however long it runs
            return self._loan

    def caller(self) -> object:
        """Return the calling thread, or task."""
        return self._context.front.caller()

    def lent(self, loan: Loan) -> Iterator[Message]:
        """Return the messages of a loan, for the loop that has it."""
        slice_ = loan.slice
        if isinstance(slice_.columns, Notice):
            return (self._message(slice_, index) for index in loan.indexes)
        arrival = self._arrival(slice_.columns, slice_)
        return arrived_together(arrival, loan.first, loan.end, loan.indexes)

    def receiving(self, timeout: float | None, loop: Loop | None = None) -> Script[Message | None]:
        """Wait for a message. Return None if none came in time, or the consumer was closed."""
        deadline = Deadline(timeout)
        while True:
            bell = Ticket()
            self._bells.add(bell)
            try:
                # Asked after the bell was hung up: later messages ring it.
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
        """Ask for more if the window is full of messages that the program acknowledges later: it
        may take as many as it likes. Caller holds the lock."""
        if self._automatic or not self.inbox.is_full:
            return
        wider = min(2 * self.inbox.prefetch, PREFETCH_MAX)
        if wider > self.inbox.prefetch:
            self.inbox.prefetch = wider
            body = Widen(self.inbox.consumer, wider)
            self._connection.do(lambda c: None if c.over else c.request(body))

    @property
    def must_provide(self) -> bool:
        """For members: whether it must hand out its state before it goes on."""
        return False

    def providing(self) -> Script[None]:
        """For members: hand out the state."""
        yield from ()

    def looping(self, loop: Loop) -> Script[Message | None]:
        """Return the next message of a loop; None: the consumer is closed, and the loop ends."""
        message = None
        if not self.finished:
            message = yield from self.receiving(None, loop)
        if message is None:
            with self._lock:
                self.call_in()
                self._leave_loop()
        return message

    def _why_not(self) -> JMSError:
        """Return the error for a call that cannot receive."""
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

    # -- Listeners ------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether the listener has a message."""
        return self._context.running is self

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have each message handed to `listener`, one at a time; None: to no listener."""
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
        """Return the listener and its next message, for the worker; None: there is none now."""
        self._scheduled = False  # first: later arrivals schedule it again
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
        """Take the end of a listener's call: it has returned, or raised `error`."""
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
        """Stop a member that cannot go on, and have its group suspect it: it never skips messages
        that the others handle."""
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
        """Close, after a running listener has returned."""
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
        """End the `with` block by closing; `failed`: it ends with an exception."""
        with self._lock:
            self.call_in()
            self.leave_loop_of(self.caller(), failed)
            if failed:
                self._looped = None  # of any caller's loop: it goes back
        yield from self.closing()

    def shut(self) -> None:
        """Hand out nothing more, and wake waiting calls. Caller holds the lock."""
        self.closed = self.finished = self.unusable = True
        self.call_in()
        self.stir()

    def going(self, give_back: bool) -> Script[None]:
        """Close it at the servers. The program's messages can still be acknowledged, or with
        `give_back` go back, except those that it is handling. Messages that it was about to get
        again go back at once."""
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
        """Whether a closed member is inactive, and still in the view."""
        return self.durable

    def _goodbye(self, conversation: Conversation, back: list[Kept]) -> Request:
        return conversation.close_consumer(self.inbox.consumer, self.inbox.kept(), back)

    def forked(self, lock: threading.Lock) -> None:
        """Take a new lock, in the child of a fork: a thread of the parent may have held the old
        one."""
        self.unusable = True
        self._lock = lock
        self.call_in()

    def lost(self) -> None:
        """Wake waiting calls, for the session has ended."""
        self.unusable = True
        with self._lock:
            self.call_in()
        self.stir()
