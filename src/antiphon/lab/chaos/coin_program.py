"""A program of a chaos run that works in transactions: it moves coins from one account to another.

Accounts are queues, coins are messages: `7@3` is coin 7 after its third transfer. A transfer
receives some coins from one account and sends each of them, moved on by one, to the other; both
happen or neither. Now and then one is rolled back. The coins are put into circulation by a commit
with a token, which takes effect once, however often the program starts again.

Each event of a transfer has the transfer's name as its session; `acknowledge`: the commit was
answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import antiphon
from antiphon.lab.chaos.judge import ACCOUNTS, COINS
from antiphon.model.destinations import DEAD_LETTERS

if TYPE_CHECKING:
    from antiphon.lab.chaos.program import Program

LEFT, RIGHT = "queue:accounts.left", "queue:accounts.right"
SIZE_MAX = 5
ROLLS_BACK = 0.1
WAIT_S = 0.1
PREFETCH = 10


class CoinProgram:
    """In one session."""

    def __init__(self, program: Program, ctx: antiphon.Context) -> None:
        self._program = program
        self._trace = program.trace
        self._ctx = ctx
        self._from = antiphon.Destination.parse(program.spec.consumes)
        self._to = antiphon.Destination.parse(program.spec.to[0])
        self._producer = ctx.create_producer()
        self._transfers = 0

    def run(self) -> None:
        self._put_into_circulation()
        with self._ctx.create_consumer(self._from, prefetch=PREFETCH) as consumer:
            self._trace.add("join", group=ACCOUNTS, session=self._program.session)
            while not self._program.stop.is_set():
                self._transfer(consumer)

    def _put_into_circulation(self) -> None:
        for coin in range(COINS):
            self._producer.send(self._from, f"{coin}@0")
        self._ctx.commit(token="coins")

    def _transfer(self, consumer: antiphon.Consumer) -> None:
        self._transfers += 1
        name = f"{self._program.session}/{self._transfers}"
        size = self._program.chance.randrange(1, SIZE_MAX + 1)
        moved = sum(self._move(consumer, name) for _ in range(size))
        if self._program.chance.random() < ROLLS_BACK:
            self._ctx.rollback()
        elif moved:
            self._commit(name)

    def _move(self, consumer: antiphon.Consumer, name: str) -> bool:
        message = consumer.receive(timeout=0 if self._program.stop.is_set() else WAIT_S)
        if message is None:
            return False
        self._trace.add(
            "deliver",
            group=ACCOUNTS,
            message=message.text,
            position=message.position,
            redelivered=message.redelivered,
            session=name,
        )
        coin, _, moves = message.text.partition("@")
        moved = f"{coin}@{int(moves) + 1}"
        self._trace.add("send", group=ACCOUNTS, message=moved, session=name)
        self._producer.send(self._to, moved)
        return True

    def _commit(self, name: str) -> None:
        try:
            self._ctx.commit()
        except antiphon.TransactionRolledBackError:
            return  # the messages that it received come again
        self._trace.add("acknowledge", group=ACCOUNTS, session=name)


def find_coins(url: str) -> list[str]:
    """Return the coins in the accounts, and among the dead letters."""
    with antiphon.connect(url) as ctx:
        queues = [antiphon.Destination.parse(name) for name in (LEFT, RIGHT, DEAD_LETTERS)]
        return [
            message.text
            for queue in queues
            if isinstance(queue, antiphon.Queue)
            for message in ctx.create_browser(queue)
        ]
