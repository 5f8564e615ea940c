"""A simulated program's consumer: handles messages, acknowledges them, closes.

It acknowledges everything now and then, or single messages in any order; has what it did not
acknowledge handed to it again; acknowledges, or gives back, after it was closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.api.conversation import Acknowledgement, Conversation, Request
from antiphon.api.conversation_inbox import Inbox, Slice
from antiphon.formats import client_wire as cw
from antiphon.formats.columns import Columns
from antiphon.formats.destination import is_queue, is_temporary
from antiphon.sim.ledger import Reading, Window

if TYPE_CHECKING:
    from antiphon.sim.programs import SimProgram


class SimConsumer:
    def __init__(
        self, program: SimProgram, conversation: Conversation, destination: str, durable: str
    ) -> None:
        role = program.role
        self.destination = destination
        self.reading: Reading | None = None  # once it is open
        self.number = conversation.next_consumer()
        self._program = program
        self._world = program.world
        self._role = role
        self._conversation = conversation
        self._random = program.random
        self._inbox = Inbox(self.number, is_queue(destination), role.prefetch)
        self._window = Window(role.prefetch)
        self._open: list[int] = []  # handled and not acknowledged
        self._untold = 0  # handled since something was acknowledged
        self._busy = False  # it will handle the next message
        self._closed = False
        self._reader = (conversation.session, self.number)
        self._name = self._name_of_reading(durable)
        self._world.ledger.opens(self._reader, self._name)
        asked = cw.OpenConsumer(self.number, destination, role.prefetch, durable, slow=role.slow)
        request = conversation.open_consumer(asked)
        request.watch(lambda: self._opened(request))

    def _name_of_reading(self, durable: str) -> str:
        if durable:
            return f"{self._program.name} {durable}"
        if is_queue(self.destination) and not is_temporary(self.destination):
            return self.destination
        return f"{self._program.name}.{self._program.lives}.{self.number}"

    @property
    def _lasting(self) -> bool:
        """What is not consumed here will be later, or by others."""
        return " " in self._name or self._name == self.destination

    def _opened(self, request: Request) -> None:
        if self._closed or self._conversation.over:
            return
        if request.error is not None:
            raise AssertionError(f"{self._name} cannot be consumed: {request.error}")
        queue = is_queue(self.destination)
        floor = 0 if queue else request.value
        ledger = self._world.ledger
        self.reading = ledger.reading(self._name, self.destination, floor, queue)
        if is_temporary(self.destination):
            self._world.mailboxes[self.destination] = None
        self._go_on()  # messages may have come before the answer

    # -- Handling ------------------------------------------------------------------------------

    def arrived(self, slice_: Slice) -> None:
        self._window.arrived(slice_.first, slice_.last)
        self._inbox.arrive(slice_)
        self._go_on()

    def _go_on(self) -> None:
        if not self._busy and not self._closed and self._inbox.ready and self.reading is not None:
            self._busy = True
            think = self._random.randrange(1, 2 * self._role.think_us)
            self._world.at(think, self._handle)

    def _handle(self) -> None:
        self._busy = False
        if self._closed:
            return
        if self._program.paused_until_us > self._world.now_us:
            self._go_on()
            return
        taken = self._inbox.take()
        if taken is None or self.reading is None:
            return
        slice_, index = taken
        position = slice_.start + index
        assert isinstance(slice_.columns, Columns)
        body = slice_.columns.body(index)
        self.reading.delivered(self._reader, position, slice_.deliveries, body)
        if self._now_and_then(0.03):
            self._inbox.redeliver(position)  # as for a listener that raises
        else:
            self._handled(position)
        self._go_on()
        self._program.step()

    def _now_and_then(self, probability: float) -> bool:
        return self._world.core is None and self._random.random() < probability

    def _handled(self, position: int) -> None:
        self._open.append(position)
        self._untold += 1
        if self._untold < self._role.ack_every and self._more_comes():
            return
        self._untold = 0
        if self._role.ack_every > 1 and self._now_and_then(0.1):
            self._open.clear()
            self._inbox.recover()
            return
        if self._role.individually and self._world.core is None:
            self._acknowledge_some()
        else:
            self._acknowledge_all()
        if self._inbox.enough:
            self.report()
        else:
            self._conversation.acks_wait()

    def _more_comes(self) -> bool:
        """Although nothing is acknowledged: the window has room, and there is something for it."""
        assert self.reading is not None
        if self._inbox.ready:
            return True
        return len(self._open) < self._role.prefetch and self.reading.awaits(self._reader)

    def _acknowledge_some(self) -> None:
        """In any order, and enough that more can come."""
        keep = self._random.randrange(min(len(self._open) + 1, self._role.prefetch))
        self._random.shuffle(self._open)
        while len(self._open) > keep:
            position = self._open.pop()
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
        reading = self.reading
        ack = self._conversation.acknowledge(rows)
        ack.watch(lambda: _acknowledged(ack, reading))

    def finish(self) -> None:
        """Leave nothing unacknowledged."""
        self._acknowledge_all()
        self.report()

    # -- The end -------------------------------------------------------------------------------

    def close(self) -> None:
        """What was handled and not acknowledged is acknowledged yet, or given back."""
        kept = self.shut()
        self._conversation.close_consumer(self.number, kept)
        if kept and self._random.random() < 0.5:
            self.finish()
        elif kept:
            self._conversation.request(cw.Return(tuple(kept)))

    def shut(self) -> list[cw.Kept]:
        """Nothing more is handled; returns what the application has."""
        self.report()
        self._world.ledger.closes(self._reader)
        self.forget()
        kept = self._inbox.close()
        # Among them what was to be handed to it again.
        self._open = [p for k in kept for p in range(k.first, k.last + 1)]
        return kept

    def forget(self) -> None:
        """The program is gone, or done with it."""
        self._closed = True
        self._world.mailboxes.pop(self.destination, None)
        if not self._lasting:
            self._world.ledger.readings.pop(self._name, None)


def _acknowledged(ack: Acknowledgement, reading: Reading | None) -> None:
    ack.looked_at = True
    if ack.error is None and reading is not None:
        for row in ack.rows:
            reading.acknowledged(row.first, row.last)
