"""A simulated program's consumer: handles messages, acknowledges them, closes.

It acknowledges all messages now and then, or single ones in any order; recovers those that it did
not acknowledge; gives up those that came too often; acknowledges, or gives back, after it was
closed. In a program that works in transactions, their ends do all that (`transactor.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox, Slice
from antiphon.api.protocol.requests import Acknowledgement, Request
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.broker.machine import keys
from antiphon.broker.machine.keys import SubscriptionKey
from antiphon.errors import JMSError
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns
from antiphon.model.destinations import DEAD_LETTERS, is_queue, is_temporary
from antiphon.sim.judges.message_ledger import SELECTOR, Ledger, Reading, Window
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.programs.program import SimProgram


MS = 1000


class SimConsumer:
    """One consumer of a program: it handles messages, in its own time, and acknowledges them, or
    fails, or closes."""

    def __init__(
        self,
        program: SimProgram,
        conversation: Conversation,
        destination: str,
        durable: str,
        selects: bool,
    ) -> None:
        """`durable`: the name of its subscription. `selects`: it has a selector, for a topic that
        is not shared."""
        role = program.role
        queue = is_queue(destination)
        self.destination = destination
        self.reading: Reading | None = None  # once it is open
        self.number = conversation.next_consumer()
        self._program = program
        self._world = program.world
        self._role = role
        self._conversation = conversation
        self._random = program.random
        self._shared = role.shares and not queue and not is_temporary(destination)
        self._durable = destination if durable and self._shared else durable
        self._selects = selects and not queue and not self._shared
        divided = queue or self._shared
        self._inbox = Inbox(self.number, divided, role.prefetch, self._now_ms)
        if destination != DEAD_LETTERS:
            self._inbox.deliveries_max = conversation.redelivery.deliveries or 0
        self._window = Window(role.prefetch)
        self._open: list[int] = []  # handled and not acknowledged, in the order of handling
        self._again: deque[int] = deque()  # they come before all others
        self._before: tuple[tuple[Any, ...], list[int]] | None = None  # a commit
        self._untold = 0  # handled since the last acknowledgement
        self._busy = False  # it will handle the next message
        self._closed = False
        self._after = 0  # it, or others that share with it, must get the messages after this
        self._reader = (conversation.session, self.number)
        self._name = self._name_of_reading()
        exclusive = role.exclusive and queue
        self._world.ledger.opens(self._reader, self._name, exclusive)
        if self._shared:
            self._shares(self._world.ledger)
        asked = cw.OpenConsumer(
            self.number,
            destination,
            role.prefetch,
            self._durable,
            SELECTOR if self._selects else "",
            slow=role.slow,
            shared=destination if self._shared else "",
            exclusive=exclusive,
        )
        request = conversation.open_consumer(asked)
        request.watch(lambda: self._opened(request))

    def _name_of_reading(self) -> str:
        if self._shared:
            return f"{'durable' if self._durable else 'shared'} {self.destination}"
        if self._durable:
            return f"{self._program.name} {self._durable}"
        if is_queue(self.destination) and not is_temporary(self.destination):
            return self.destination
        return f"{self._program.name}.{self._program.lives}.{self.number}"

    @property
    def where(self) -> str | SubscriptionKey:
        """Return where the servers keep its messages: the name of a queue, or the key of a
        subscription."""
        if self._shared:
            return f"{'durable' if self._durable else 'shared'} '' {self.destination}"
        if self._durable:
            return keys.durable(self._program.name, self._durable)
        return self._name

    @property
    def _lasting(self) -> bool:
        """Return whether messages that are not consumed here are consumed later, or by others."""
        return " " in self._name or self._name == self.destination

    def _opened(self, request: Request) -> None:
        if self._closed or self._conversation.over:
            return
        if request.error is not None:
            raise AssertionError(f"{self._name} cannot be consumed: {request.error}")
        ledger = self._world.ledger
        ledger.division.opened(self._reader)
        if self._shared:
            self._opened_shared(ledger)
        else:
            queue = is_queue(self.destination)
            floor = 0 if queue else request.value
            self.reading = ledger.reading(self._name, self.destination, floor, queue, self._selects)
        if is_temporary(self.destination):
            self._world.mailboxes[self.destination] = None
        self.go_on()  # messages may have come before the answer

    def _shares(self, ledger: Ledger) -> Reading:
        """Return the reading of a shared subscription, which begins at some time after the first
        request for it."""
        return ledger.reading(self._name, self.destination, ledger.last, queue=True)

    def _opened_shared(self, ledger: Ledger) -> None:
        """Note that a shared subscription is open: it lasts as long as this consumer, or if it is
        durable, forever."""
        self.reading = self._shares(ledger)
        if self._durable:
            self.reading.begun = self.reading.begun or ledger.last
        self._after = self.reading.begun or ledger.last

    def missing(self) -> list[int]:
        """Return the messages that it must still get, or that need an acknowledgement."""
        return self.reading.missing(self._after) if self.reading is not None else []

    def _now_ms(self) -> int:
        return self._world.now_us // MS

    # -- Handling ------------------------------------------------------------------------------

    def arrive(self, slice_: Slice) -> None:
        self._window.arrived(slice_.first, slice_.last)
        if self._inbox.divided and (self._inbox.ranked or slice_.is_special):
            self._inbox.insert(slice_)
        else:
            self._inbox.arrive(slice_)
        self.go_on()

    def occur(self, event: cw.GroupEvent) -> None:
        """Nothing: it is not a member of a group."""

    def complete(self) -> None:
        """Do nothing: it does not browse."""

    def dropped(self, error: JMSError) -> None:
        """Do nothing: it stays without messages until it is closed."""

    def state(self, event: StateEvent) -> None:
        """Nothing: it is not a member of a group."""

    def go_on(self) -> None:
        if self._program.commits:
            return
        if not self._busy and not self._closed and self._inbox.ready and self.reading is not None:
            self._busy = True
            think = self._random.randrange(1, 2 * self._role.think_us)
            self._world.at(think, self._handle)

    def _handle(self) -> None:
        self._busy = False
        if self._closed:
            return
        if self._program.paused_until_us > self._world.now_us or self._program.commits:
            self.go_on()
            return
        taken = self._inbox.take()
        if self._inbox.expired:
            self._inbox.expired = False
            self._acknowledged_something()
        if taken is None or self.reading is None:
            if self._untold:
                self._tell_in_time()  # the awaited messages have expired
                self.go_on()  # those that it recovered come again
            self._program.step()
            return
        slice_, index = taken
        position = slice_.start + index
        assert isinstance(slice_.columns, Columns)
        body = slice_.columns.body(index)
        self.reading.delivered(self._reader, position, slice_.deliveries, body)
        self._is_next(position)
        if self._program.transactor is not None:
            self._open.append(position)
            self._program.transactor.received(self, position, body)
            self._widen_if_full()
        elif self._now_and_then(0.03):
            self._raises(position, slice_.deliveries)
        else:
            self._handled(position)
        self.go_on()
        self._program.step()

    def _is_next(self, position: int) -> None:
        while self._again and (first := self._again.popleft()) != position:
            if not self._world.ledger.may_have_expired(first):
                raise ViolationError(f"{self._name} got {position}, and {first} was to come again")

    def _raises(self, position: int, deliveries: int) -> None:
        """Fail a message, as a listener does that raises."""
        assert self.reading is not None
        hopeless = self._inbox.is_hopeless(deliveries)
        if not hopeless and not self._keeps_order(position):
            wait_ms = self._conversation.redelivery.wait_ms(deliveries)
            self._inbox.fail(position, wait_ms)
            self.reading.failed(position)
            self._acknowledged_something()
        elif not hopeless:
            self._inbox.redeliver(position)
            self._again.appendleft(position)
        else:
            self._inbox.bury(position, "its listener raised")
            self.report()

    def _keeps_order(self, position: int) -> bool:
        """Return whether later messages wait for one that failed: then this program just handles it
        again."""
        exclusive = self._role.exclusive and is_queue(self.destination)
        return (
            not self._inbox.divided or exclusive or bool(self._world.ledger.traits(position).group)
        )

    def _now_and_then(self, probability: float) -> bool:
        return self._world.core is None and self._random.random() < probability

    def _handled(self, position: int) -> None:
        self._open.append(position)
        self._untold += 1
        self._tell_in_time()

    def _tell_in_time(self) -> None:
        if self._untold < self._role.ack_every and self._more_comes():
            return
        self._untold = 0
        if self._role.ack_every > 1 and self._now_and_then(0.1):
            self.recover()
            return
        if self._role.individually and self._world.core is None:
            self._acknowledge_some()
        else:
            self._acknowledge_all()
        self._acknowledged_something()

    def _acknowledged_something(self) -> None:
        if self._inbox.enough:
            self.report()
        else:
            self._program.acks_wait(self)

    def _more_comes(self) -> bool:
        """Return whether more messages come without an acknowledgement: the window has room, and
        there are some."""
        assert self.reading is not None
        if self._inbox.ready:
            return True
        return len(self._open) < self._role.prefetch and self.reading.awaits(self._reader)

    def _acknowledge_some(self) -> None:
        """Acknowledge some messages, in any order, and enough that more can come."""
        keep = self._random.randrange(min(len(self._open) + 1, self._role.prefetch))
        some = list(self._open)
        self._random.shuffle(some)
        while len(some) > keep:
            position = some.pop()
            self._open.remove(position)
            self._done(position)
            self._inbox.acknowledge(position)

    def _acknowledge_all(self) -> None:
        for position in self._open:
            self._done(position)
        self._open.clear()
        self._inbox.acknowledge_all()

    def _done(self, position: int) -> None:
        assert self.reading is not None
        self.reading.done(position)

    def report(self) -> None:
        rows = self._inbox.take_rows()
        if not rows or self._conversation.over:
            return
        for row in rows:
            self._window.acknowledges(row)
            if row.kind == cw.DEAD:
                self._gives_up(row)
        reading = self.reading
        ack = self._conversation.acknowledge(rows)
        ack.watch(lambda: self._acknowledged(ack, reading))

    def _gives_up(self, row: cw.AckRow) -> None:
        for position in range(row.first, row.last + 1):
            if position in self._again:
                self._again.remove(position)
            self._done(position)

    def _acknowledged(self, ack: Acknowledgement, reading: Reading | None) -> None:
        ack.looked_at = True
        if ack.error is not None or reading is None:
            return
        if self._reader[0] in self._world.ledger.forgotten:
            return  # its server has not learnt yet that it ended
        for row in ack.rows:
            if row.kind != cw.FAILED:
                reading.acknowledged(row.first, row.last)

    def finish(self) -> None:
        """Acknowledge all messages."""
        if self._program.transactor is None:
            self._acknowledge_all()
            self.report()

    def recover(self) -> None:
        """Have all open messages come again, in their order, or give them up."""
        self._again.extendleft(reversed(self._open))
        self._open.clear()
        self._inbox.recover()
        if self._inbox.has_dead:
            self.report()

    # -- In transactions -----------------------------------------------------------------------

    def _widen_if_full(self) -> None:
        """Widen the window now and then: a transaction may receive more than it has."""
        if self._open and self._inbox.is_full and self._now_and_then(0.5):
            self._inbox.prefetch *= 2
            self._window.widen(self._inbox.prefetch)
            self._conversation.request(cw.Widen(self.number, self._inbox.prefetch))

    def all_done(self) -> list[cw.AckRow]:
        """Return rows that acknowledge all messages of the application."""
        self._before = (self._inbox.remember(), list(self._open))
        self._open.clear()
        self._inbox.acknowledge_all()
        return self._inbox.take_rows()

    def not_done(self) -> None:
        """Undo `all_done`, for the commit failed."""
        assert self._before is not None
        remembered, self._open = self._before
        self._inbox.restore(remembered)

    def committed(self, rows: list[cw.AckRow]) -> None:
        """Note that the state machine has these rows."""
        assert self.reading is not None
        for row in rows:
            self._window.acknowledges(row)
            self.reading.acknowledged(row.first, row.last)
        for position in self._before[1] if self._before is not None else ():
            self._done(position)

    def give_up(self) -> list[cw.Kept]:
        """Return the ranges that a closed consumer gives back."""
        self._open.clear()
        return self._inbox.give_up()

    # -- The end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Acknowledge the messages that were handled and are not acknowledged yet, or give them
        back: with the consumer, or later."""
        back = self.shut()
        kept = self._inbox.kept()
        later = self._program.transactor is not None or not kept or self._random.random() < 0.5
        if not later and kept[0].first % 2:  # not drawn: so seeds keep their meaning
            self._conversation.close_consumer(self.number, back=[*back, *kept])
            return
        self._conversation.close_consumer(self.number, kept, back)
        if self._program.transactor is not None:
            self._program.transactor.closed(self)
        elif not later:
            self._conversation.request(cw.Return(tuple(kept)))
        elif kept:
            self.finish()

    def shut(self) -> list[cw.Kept]:
        """Handle nothing more; return the messages that were about to come again."""
        self.report()
        self._world.ledger.closes(self._reader)
        self.forget()
        return self._inbox.close()

    def last_words(self) -> list[cw.Kept]:
        """Return the messages that the application has seen and not acknowledged, for the session
        closes."""
        return [*self.shut(), *self._inbox.kept()]

    def forget(self) -> None:
        """Forget its state, for the program is gone, or has closed it."""
        self._closed = True
        self._world.mailboxes.pop(self.destination, None)
        if not self._lasting:
            self._world.ledger.readings.pop(self._name, None)
