"""A broker by itself: entries in, events out, with short names for what tests want to say."""

from typing import Any

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.formats import columns, pack
from antiphon.formats import commands as command
from antiphon.formats import protocol as cw
from antiphon.formats.columns import PLAIN, PRIORITY, Extra, Outgoing
from antiphon.formats.entry import Entry, Kind
from antiphon.log.effects import Accepted


class BareBroker:
    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker or Broker()
        self.entries: list[Entry] = []
        self.stamp = 1000
        self.events: tuple[ev.Event, ...] = ()  # of the last entry
        self.accepted: list[Accepted] = []
        self.numbers: dict[int, int] = {}  # session -> last request
        self.sequences: dict[tuple[int, int], int] = {}
        self._links = 0

    # -- Entries -------------------------------------------------------------------------------

    def entry(self, kind: Kind, payload: bytes = b"", *, after_ms: int = 1) -> None:
        self.stamp += after_ms
        entry = Entry(len(self.entries) + 1, 1, self.stamp, kind, payload)
        self.entries.append(entry)
        self.accepted = self.broker.apply(entry)
        self.events = self.broker.take_events()

    def command(self, *commands: command.Command, after_ms: int = 1) -> tuple[ev.Event, ...]:
        self.entry(Kind.PACK, command.encode(list(commands)), after_ms=after_ms)
        return self.events

    def wait(self, ms: int) -> tuple[ev.Event, ...]:
        """Time passes as the leader's ticks tell it."""
        end = self.stamp + ms
        told: list[ev.Event] = []
        while (due := self.broker.next_deadline()) is not None and due <= end:
            self.entry(Kind.TICK, after_ms=max(0, due - self.stamp))
            told += self.events
        self.stamp = end
        return tuple(told)

    def new_leader(self) -> None:
        self.entry(Kind.EPOCH)

    # -- Sessions ------------------------------------------------------------------------------

    def attach(
        self,
        session: int,
        *,
        node: int = 1,
        life: int = 1,
        client_id: str = "",
        resume: bool = False,
        attempt: int = 1,
        lease_ms: int = 10_000,
        token: bytes = b"t",
        sequences: tuple[tuple[int, int], ...] = (),
    ) -> ev.Event:
        self._links += 1
        attach = command.Attach(
            session,
            token,
            resume,
            attempt,
            node,
            life,
            self._links,
            client_id,
            lease_ms,
            sequences,
        )
        return self.command(attach)[-1]

    def detach(self, session: int) -> None:
        self.command(command.Detach(session, self.broker.sessions[session].attachment))

    def ask(self, session: int, body: Any) -> cw.Result:
        number = self.numbers[session] = self.numbers.get(session, 0) + 1
        told = self.command(command.Request(session, number, body))
        answers = [e.result for e in told if isinstance(e, ev.Answered)]
        assert len(answers) == 1
        return answers[0]

    def open(self, session: int, consumer: int, destination: str, **options: Any) -> cw.Result:
        prefetch = options.pop("prefetch", 100)
        return self.ask(session, cw.OpenConsumer(consumer, destination, prefetch, **options))

    def close(self, session: int, *kept: cw.Kept) -> None:
        self.ask(session, cw.CloseSession(kept))

    def close_consumer(
        self, session: int, consumer: int, *kept: cw.Kept, back: tuple[cw.Kept, ...] = ()
    ) -> None:
        self.ask(session, cw.CloseConsumer(consumer, kept, back=back))

    # -- Messages ------------------------------------------------------------------------------

    def publish(self, session: int, destination: str, count: int = 1, *, producer: int = 0) -> int:
        """Returns the position of the last message; 0: it was not accepted."""
        return self._publish(session, destination, count, b"", producer)

    def publish_keys(
        self, session: int, destination: str, *keys: str | None, flags: int = 0, delay: int = 0
    ) -> int:
        """A message with each of these keys, in one pack."""
        extras = [columns.encode_extra(Extra(key=key, delivery_delay=delay)) for key in keys]
        body, found = columns.encode([Outgoing(columns.TEXT, b"x", e, 0) for e in extras])
        return self._publish(session, destination, len(keys), body, flags=flags | found)

    def publish_each(self, session: int, destination: str, *extras: Extra, flags: int = 0) -> int:
        """A message with each of these headers, in one pack, flagged as clients do."""
        messages = [Outgoing(columns.TEXT, b"x", columns.encode_extra(e), 0) for e in extras]
        body, found = columns.encode(messages)
        if any(e.priority != PRIORITY or e.time_to_live or e.properties for e in extras):
            found |= pack.SPECIAL
        if extras[0].delivery_delay:
            found |= pack.DELAYED
        return self._publish(session, destination, len(extras), body, flags=flags | found)

    def stage(self, session: int, destination: str, *extras: Extra, flags: int = 0) -> cw.Sent:
        """Part of a transaction: what its commit lists."""
        self.publish_each(session, destination, *(extras or (PLAIN,)), flags=pack.STAGED | flags)
        last = self.sequences[session, 0]
        return 0, last - max(len(extras), 1) + 1, last

    def commit(self, session: int, *sent: cw.Sent, **more: Any) -> cw.Result:
        return self.ask(session, cw.Commit(more.pop("rows", ()), sent, **more))

    def _publish(
        self,
        session: int,
        destination: str,
        count: int,
        body: bytes,
        producer: int = 0,
        flags: int = 0,
    ) -> int:
        key = (session, producer)
        sequence = self.sequences.get(key, 0) + 1
        self.sequences[key] = sequence + count - 1
        data = pack.encode(destination, count, body, session, sequence, producer, flags)
        self.entry(Kind.PACK, data)
        return self.accepted[-1].position + count - 1 if self.accepted else 0

    def ack(self, session: int, *rows: tuple[int, int, int] | cw.AckRow) -> tuple[ev.Event, ...]:
        acks = tuple(row if isinstance(row, cw.AckRow) else cw.AckRow(*row) for row in rows)
        return self.command(command.Acks(1, 1, 1, ((session, acks),)))

    def assigned(self) -> list[tuple[int, int, int, int, int]]:
        """Session, consumer, first, last, deliveries, as of the last entry."""
        return [
            (e.session, e.consumer, e.first, e.last, e.deliveries)
            for e in self.events
            if isinstance(e, ev.Assigned)
        ]

    def holds(self, session: int, consumer: int) -> list[tuple[int, int, int]]:
        return self.broker.assigned(self.broker.sessions[session].consumers[consumer])

    def subscription(self, session: int, consumer: int) -> Any:
        return self.broker.subscription(self.broker.sessions[session].consumers[consumer])

    def snapshot(self) -> list[bytes]:
        return list(self.broker.snapshot())
