"""The programs of a chaos run: publishers, consumers, members of a group, and programs that move
coins, on the public API, a process each.

    python -m antiphon.lab.chaos.program SPEC         SPEC: a `Spec` as JSON

Each writes a trace (`recorder.py`). SIGTERM ends a program in order: a publisher waits for its
answers, a consumer acknowledges its messages. A session that is lost for good is not a failure; the
program connects again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec

import antiphon
from antiphon.lab.chaos.coin_program import CoinProgram
from antiphon.lab.chaos.member import GroupMember, send_from_outside
from antiphon.lab.chaos.recorder import Recorder
from antiphon.terminal.lines import complain

ACKNOWLEDGE_EVERY = 40
PREFETCH = 100
RETRY_S = 0.2
CLOSE_S = 40.0
"""Longer than a session outlives its connection: then each request was answered, or is lost."""


class Spec(msgspec.Struct, frozen=True):
    """The role of one program, as its command line has it."""

    role: Literal["publisher", "acknowledging", "listening", "member", "outsider", "coins"]
    name: str
    url: str
    folder: str  # for the trace
    run: str
    incarnation: int
    to: tuple[str, ...] = ()  # a publisher's destinations
    named: bool = False  # whether its producer is
    consumes: str = ""
    durable: bool = False


class Program:
    """One life of a program; it may need several sessions."""

    def __init__(self, spec: Spec, stop: threading.Event) -> None:
        self.spec = spec
        self.stop = stop
        self.in_a_group = spec.role in ("member", "outsider")  # then the contexts write the trace
        if not self.in_a_group:
            self.trace = Recorder(spec.folder, spec.run, spec.name, spec.incarnation)
        self.chance = Random(f"{spec.run}/{spec.name}/{spec.incarnation}")
        self.sessions = 0
        self.session = ""

    def run(self) -> None:
        work = {
            "publisher": self._publish,
            "acknowledging": self._acknowledge,
            "listening": self._listen,
            "member": lambda ctx: GroupMember(self, ctx).run(),
            "outsider": lambda ctx: send_from_outside(self, ctx),
            "coins": lambda ctx: CoinProgram(self, ctx).run(),
        }[self.spec.role]
        while not self.stop.is_set():
            try:
                self._in_a_session(work)
            except antiphon.JMSError as error:
                complain(f"{type(error).__name__}: {error}")
                self.stop.wait(RETRY_S)

    def _in_a_session(self, work: Callable[[antiphon.Context], None]) -> None:
        mode = antiphon.AUTO_ACKNOWLEDGE
        if self.spec.role == "acknowledging":
            mode = antiphon.CLIENT_ACKNOWLEDGE
        elif self.spec.role == "coins":
            mode = antiphon.SESSION_TRANSACTED
        self.sessions += 1
        self.session = f"{self.spec.name}.{self.spec.incarnation}.{self.sessions}"
        with antiphon.connect(
            self.spec.url,
            client_id=self.spec.name,
            session_mode=mode,
            close_timeout=CLOSE_S,
            trace=self.spec.folder if self.in_a_group else None,
        ) as ctx:
            work(ctx)

    # -- Publishing ------------------------------------------------------------------------------

    def _publish(self, ctx: antiphon.Context) -> None:
        producer = ctx.create_producer(self.spec.name if self.spec.named else None)
        # A named producer continues its sequence, whatever happened to it.
        sender = self.spec.name if self.spec.named else self.session
        number = producer.last_sequence if self.spec.named else 0
        while not self.stop.is_set():
            burst = self.chance.choice((1, 1, 1, 4, 20))
            on_the_way = [self._send(producer, sender, number + i + 1) for i in range(burst)]
            for i, sending in enumerate(on_the_way):
                sending.result()
                self.trace.add("sent", message=f"{sender}#{number + i + 1}")
            number += burst
            self.stop.wait(self.chance.uniform(0.001, 0.02))

    def _send(self, producer: antiphon.Producer, sender: str, number: int) -> antiphon.SendFuture:
        destination = self.chance.choice(self.spec.to)
        body = f"{sender}#{number}"
        self.trace.add(
            "send",
            group=destination,
            message=body,
            sender=sender,
            sender_seq=number,
            session=self.session,
            persistent=True,
        )
        return producer.send_async(antiphon.Destination.parse(destination), body)

    # -- Consuming -------------------------------------------------------------------------------

    def _open(self, ctx: antiphon.Context) -> antiphon.Consumer:
        destination = antiphon.Destination.parse(self.spec.consumes)
        if self.spec.durable:
            assert isinstance(destination, antiphon.Topic)
            return ctx.create_durable_consumer(destination, "mail", prefetch=PREFETCH)
        return ctx.create_consumer(destination, prefetch=PREFETCH)

    def _joined(self) -> None:
        self.trace.add(
            "join", group=self.spec.consumes, session=self.session, durable=self.spec.durable
        )

    def _delivered(self, message: antiphon.Message) -> None:
        self.trace.add(
            "deliver",
            position=message.position,
            group=self.spec.consumes,
            message=message.text,
            session=self.session,
            durable=self.spec.durable,
            redelivered=message.redelivered,
            persistent=True,
        )

    def _acknowledge(self, ctx: antiphon.Context) -> None:
        """Receive and acknowledge; now and then get everything again."""
        with self._open(ctx) as consumer:
            self._joined()
            open_count = 0
            while not self.stop.is_set() or open_count:
                # Not at once: a program that is killed should have unacknowledged messages.
                message = consumer.receive(timeout=0 if self.stop.is_set() else 0.1)
                if message is not None:
                    self._delivered(message)
                    open_count += 1
                if open_count >= ACKNOWLEDGE_EVERY or (message is None and open_count):
                    if self.chance.random() < 0.05 and not self.stop.is_set():
                        ctx.recover()
                    else:
                        ctx.acknowledge()
                        self.trace.add("acknowledge", session=self.session)
                    open_count = 0

    def _listen(self, ctx: antiphon.Context) -> None:
        """Set a listener, which acknowledges a message when it returns."""
        lost = threading.Event()
        ctx.exception_listener = lambda _: lost.set()
        consumer = self._open(ctx)
        self._joined()
        consumer.set_message_listener(self._delivered)
        while not self.stop.is_set() and not lost.is_set():
            self.stop.wait(RETRY_S)


def main(spec: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Program(msgspec.json.decode(spec, type=Spec), stop).run()


if __name__ == "__main__":
    main(sys.argv[1])
