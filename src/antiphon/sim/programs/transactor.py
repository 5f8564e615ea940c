"""A simulated program that works in transactions: for each message that it receives it sends one,
and commits both together, or rolls back.

It does what a transacted context does (`api/operations/context.py`: `committing`, `rolling_back`,
`staging`): while a commit is on its way it receives nothing. Now and then it stages its messages
and commits them by their handle; or it sends messages of its own, for another program to commit, or
with a token that it uses twice. `sim/judges/transactions.py` judges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.transaction import Transaction
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Extra, Outgoing, encode_extra
from antiphon.formats.pack import DELAYED, STAGED
from antiphon.model.destinations import is_temporary
from antiphon.sim.judges.transactions import Deal, Input
from antiphon.sim.message_traits import draw_extra, flags_of

if TYPE_CHECKING:
    from antiphon.sim.programs.consumer import SimConsumer
    from antiphon.sim.programs.program import SimProgram

GIFTS_MAX = 6
"""Most messages that a program sends of its own, in all its lives."""


class Transactor:
    """The transactions in one life of a program."""

    def __init__(self, program: SimProgram, conversation: Conversation) -> None:
        assert program.role.transacts is not None
        self.busy = False  # the end of a transaction is on its way
        self._how = program.role.transacts
        self._program = program
        self._world = program.world
        self._deals = program.world.ledger.deals
        self._random = program.random
        self._conversation = conversation
        self._gone: list[SimConsumer] = []  # closed, with messages of the transaction
        self._deals_made = 0
        self._begin()

    def _begin(self) -> None:
        self._deals_made += 1
        self._transaction = Transaction()
        self._deal = Deal(f"{self._program.name}.{self._program.lives}.t{self._deals_made}")

    @property
    def idle(self) -> bool:
        return not (self.busy or self._transaction or self._deal.inputs)

    # -- Inside --------------------------------------------------------------------------------

    def received(self, consumer: SimConsumer, position: int, body: bytes) -> None:
        assert consumer.reading is not None
        is_over = partial(self._world.is_over, consumer.where, position)
        self._deal.inputs.append(Input(consumer.reading.name, position, is_over))
        self._send(body.decode())
        if len(self._deal.inputs) >= self._how.size:
            self._end()

    def _send(self, about: str) -> None:
        program, deal, destination = self._program, self._deal, self._program.somewhere()
        body = f"{deal.name}.{len(deal.bodies)}|{about}#1".encode()
        extra, flags = b"", STAGED
        delay = 0
        if self._world.is_group(destination):
            extra = program.tagged(destination, body)
        else:
            special = self._special(destination)
            delay = special.delivery_delay
            extra, flags = encode_extra(special), STAGED | flags_of(special)
        if is_temporary(destination):
            deal.risky[body] = destination
        self._deals.sends(deal, body, delay)
        message = Outgoing(TEXT, body, extra, self._world.now_us // 1000)
        key = (self._transaction, delay if flags & DELAYED else None)
        stream = self._conversation.stream
        self._transaction.add(self._conversation.send(stream, destination, flags, message, key))

    def _special(self, destination: str) -> Extra:
        special = draw_extra(self._random, self._program.role.flavour)
        if is_temporary(destination):  # it may be gone when the delay is over
            special = msgspec.structs.replace(special, delivery_delay=0)
        return special

    def closed(self, consumer: SimConsumer) -> None:
        """Note that a consumer is closed: its messages are still part of the transaction, unless
        its place is taken by another."""
        self._gone.append(consumer)
        self._deal.lends = self._deal.lends or isinstance(consumer.where, tuple)

    # -- The end -------------------------------------------------------------------------------

    def work(self) -> None:
        """Begin or end a transaction. Called now and then."""
        if self.busy:
            return
        if not self.idle:
            self._end()
        elif self._now_and_then(self._how.gives) and self._program.gifts < GIFTS_MAX:
            self._give()

    def _now_and_then(self, probability: float) -> bool:
        return self._world.core is None and self._random.random() < probability

    def _end(self) -> None:
        if self._now_and_then(self._how.rolls_back):
            self._roll_back()
        elif self._now_and_then(self._how.stages):
            self._stage(self._commit_staged)
        else:
            token = ""
            if self._random.random() < self._how.tokens:
                # If these come again, the transaction was not committed.
                token = " ".join(f"{one.reading}/{one.position}" for one in self._deal.inputs)
            self._commit(token, self._a_handle())

    def _a_handle(self) -> tuple[str, ...]:
        """Return a handle of messages that a program has staged; others may try the same."""
        handles = self._world.handles
        if not handles or not self._now_and_then(self._how.stages):
            return ()
        handle = self._random.choice(handles)
        if self._random.random() < 0.5:
            handles.remove(handle)
        return (handle,)

    def _commit(self, token: str = "", handles: tuple[str, ...] = ()) -> None:
        deal, transaction = self._deal, self._transaction
        self._begin()
        consumers = [*self._program.open_consumers(), *self._gone]
        rows = [(consumer, consumer.all_done()) for consumer in consumers]
        deal.token, deal.handles = token, handles
        deal.on_commit = partial(_tell, rows)
        request = self._conversation.commit(
            transaction, [row for _, some in rows for row in some], token, handles
        )
        self._ask(deal, request)
        request.watch(lambda: self._committed(request, deal, consumers))

    def _ask(self, deal: Deal, request: Request) -> None:
        self.busy = True
        self._deals.asks(deal, self._conversation.session, request.number)

    def _committed(self, request: Request, deal: Deal, consumers: list[SimConsumer]) -> None:
        self.busy = False
        request.looked_at = True
        self._deals.told(deal, request.error, request.value)
        if request.error is None:
            self._gone = [c for c in self._gone if c not in consumers]
            if request.value:
                self._program.trace_sent(deal.bodies)
        elif not self._conversation.over:
            for consumer in consumers:
                consumer.not_done()
            self._start_over()
        self._go_on()

    def _roll_back(self) -> None:
        if self._transaction:
            self._conversation.discard(self._transaction)
        self._begin()
        self._start_over()
        self._go_on()

    def _start_over(self) -> None:
        for consumer in self._program.open_consumers():
            consumer.recover()
        kept = [k for consumer in self._gone for k in consumer.give_up()]
        self._gone.clear()
        if kept:
            self._conversation.request(cw.Return(tuple(kept)))

    def _go_on(self) -> None:
        for consumer in self._program.open_consumers():
            consumer.go_on()

    # -- Handles and gifts ---------------------------------------------------------------------

    def _stage(self, then: Callable[[str], None]) -> None:
        """Stage the messages; `then` gets the handle."""
        deal, inputs = self._deal, self._deal.inputs
        deal.inputs, deal.stages = [], True
        request = self._conversation.stage(self._transaction)
        self._begin()
        self._deal.inputs, self._deal.lends = inputs, deal.lends
        self._ask(deal, request)
        request.watch(lambda: self._staged(request, deal, then))

    def _staged(self, request: Request, deal: Deal, then: Callable[[str], None]) -> None:
        self.busy = False
        request.looked_at = True
        self._deals.told(deal, request.error, request.value)
        if request.error is None:
            then(request.data.decode())
        elif not self._conversation.over:
            self._roll_back()

    def _commit_staged(self, handle: str) -> None:
        self._commit("", (handle,))

    def _give(self) -> None:
        """Send messages of its own: with a token that it uses twice, or for others to commit."""
        self._program.gifts += 1
        for _ in range(self._random.choice((1, 1, 3))):
            self._send("gift")
        if self._random.random() < 0.5:
            self._commit(f"{self._program.name} {self._program.gifts // 2}")
        else:
            self._stage(self._hand_over)

    def _hand_over(self, handle: str) -> None:
        self._world.handles.append(handle)
        self._go_on()


def _tell(rows: list[tuple[SimConsumer, list[cw.AckRow]]]) -> None:
    for consumer, some in rows:
        consumer.committed(some)
