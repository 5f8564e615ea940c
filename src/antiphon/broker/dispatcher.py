"""Deliveries to the consumers of one server's clients.

Promises: a consumer of a topic gets every message behind its subscription's floor that matches,
once and in log order; a consumer of a queue gets exactly what the state machine assigned to it.
Packs go out as they are in the journal, by reference; they are cut only where a window, an
acknowledgement or an assignment ends inside one. At most `prefetch` messages of a topic are sent
and not acknowledged by the client, and at most `RESERVE` times as many beyond what the state
machine knows to be acknowledged. For one connection at most `delivery_bytes` are on their way; the
rest follows when it has drained.

A consumer of a topic that keeps up is *caught up*: new packs are handed to it as they are accepted.
One that does not *lags*: it costs a number here, and reads from the journal when its window opens.
Nobody's reading lasts longer than `TURN_BYTES` before everybody else has a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from antiphon.broker.broker import Broker
from antiphon.broker.group_state import Group
from antiphon.broker.sessions import Consumer
from antiphon.broker.spans import Range, Span, Spans
from antiphon.broker.topics import RESERVE, Subscription
from antiphon.core.effects import Accepted
from antiphon.formats import client_wire as cw
from antiphon.formats import columns
from antiphon.formats.destination import is_pattern
from antiphon.formats.journal import Row

TURN_BYTES = 4 << 20
"""Packs handed out in one turn; then the server looks after other things."""

WINDOW_BYTES = 16 << 20
"""Sent to one consumer of a topic and not acknowledged by it; what goes beyond that is one pack."""

ALL_DELIVERY_BYTES = 256 << 20
"""On their way to all clients together; beyond that each gets one pack at a time."""

ROWS_A_READ = 64
ROUTES_MAX = 10_000
OVERHEAD_BYTES = 64
"""What a delivery costs besides its pack."""


class PackSource(Protocol):
    """Where accepted packs are read: the journal."""

    def pack(self, position: int) -> tuple[Row, bytes] | None:
        """The pack that holds this position; None: there is none, or it is gone."""

    def rows_for(self, pattern: str, first: int, most: int) -> list[Row]:
        """Packs for destinations that match, from position `first` on."""


class Outlet:
    """A connection, and what is on its way to its client."""

    def __init__(self, link: int) -> None:
        self.link = link
        self.bytes = 0
        self.blocked: dict[Reader, None] = {}  # to go on when it has drained


class TopicReader:
    """Where one consumer of a topic is."""

    def __init__(self, consumer: Consumer, subscription: Subscription, outlet: Outlet) -> None:
        self.consumer = consumer
        self.subscription = subscription
        self.outlet = outlet
        self.next = subscription.floor + 1  # the next position to look at
        self.caught_up = False
        self.behind = 0  # messages that came while it lagged
        self.rank = 0  # messages sent since it was opened
        self.unacked = Spans()  # sent, and not acknowledged by the client
        self.unacked_bytes = 0  # about
        self.unsettled = Spans()  # sent, and not known to the state machine as acknowledged
        self.uncounted: Range | None = None  # the client has it, and it is in neither of these yet
        self.event = 0  # of a group: its events up to here were sent
        self.waits = False  # of a member: for its state; so messages wait here
        self.told: cw.StateComes | None = None  # the last that it was told of that

    @property
    def room(self) -> int:
        prefetch = self.consumer.prefetch
        if self.waits or self.unacked_bytes >= WINDOW_BYTES:
            return 0
        return min(prefetch - self.unacked.count, prefetch * RESERVE - self.unsettled.count)

    def acked(self, first: int, last: int) -> None:
        before = self.unacked.count
        self.unacked.take(first, last)
        if before:
            self.unacked_bytes = self.unacked_bytes * self.unacked.count // before

    def skip(self) -> None:
        """The floor may have moved by itself: what is in the state that a member takes over is
        not for it any more, and does not fill its window."""
        floor = self.subscription.floor
        self.acked(1, floor)
        self.unsettled.take(1, floor)
        self.next = max(self.next, floor + 1)

    def sent(self, first: int, last: int) -> None:
        self.unacked.add(first, last, 1)
        self.unsettled.add(first, last, 1)
        self.rank += last - first + 1


class QueueReader:
    """What one consumer of a queue has been assigned, and was not sent."""

    def __init__(self, consumer: Consumer, outlet: Outlet, pending: list[Span]) -> None:
        self.consumer = consumer
        self.outlet = outlet
        self.pending = pending


Reader = TopicReader | QueueReader
Tell = Callable[[int, cw.Answer], None]


class Dispatcher:
    def __init__(
        self, broker: Broker, packs: PackSource, tell: Tell, delivery_bytes: int, slow_quota: int
    ) -> None:
        self._broker = broker
        self._packs = packs
        self._tell = tell
        self._delivery_bytes = delivery_bytes
        self._slow_quota = slow_quota
        self._sessions: dict[int, dict[int, Reader]] = {}
        self._outlets: dict[int, Outlet] = {}  # by session
        self._by_link: dict[int, Outlet] = {}
        self._ready: dict[Reader, None] = {}  # may have something to send
        self._exact: dict[str, dict[TopicReader, None]] = {}  # by destination
        self._wide: dict[TopicReader, None] = {}  # with wildcards
        self._routes: dict[str, tuple[TopicReader, ...]] = {}  # a cache
        self._accepted: list[Accepted] = []
        self._dispatched = broker.position  # up to here those who are caught up have been served
        self._turn_bytes = 0
        self._on_the_way = 0  # bytes, to all outlets
        self.delivered_packs = 0
        self.delivered_bytes = 0
        self.dropped_messages = 0
        self.too_slow: list[tuple[int, str]] = []  # sessions to be ended, and why

    # -- Consumers come and go -----------------------------------------------------------------

    def open(self, session: int, link: int, seen: Iterable[cw.Seen]) -> None:
        """The session is attached here; its client has `seen` something of its consumers."""
        self._outlets[session] = self._by_link[link] = Outlet(link)
        self._sessions[session] = {}
        had = {s.consumer: s for s in seen}
        self.follow(session, had)
        for number in had:
            if number not in self._sessions[session]:
                self._end(link, number)

    def close(self, session: int) -> None:
        for reader in self._sessions.pop(session, {}).values():
            self._remove(reader)
        outlet = self._outlets.pop(session, None)
        if outlet is not None:
            self._on_the_way -= outlet.bytes
            del self._by_link[outlet.link]

    def follow(self, session: int, seen: dict[int, cw.Seen] | None = None) -> None:
        """Serve the consumers that the session has now, and no others."""
        readers = self._sessions[session]
        known = self._broker.sessions.get(session)
        consumers = known.consumers if known is not None else {}
        for number in [n for n in readers if n not in consumers or consumers[n].closed]:
            self._remove(readers.pop(number))
        for number in sorted(consumers.keys() - readers.keys()):
            if not consumers[number].closed:
                had = (seen or {}).get(number)
                readers[number] = self._reader(consumers[number], self._outlets[session], had)

    def _reader(self, consumer: Consumer, outlet: Outlet, seen: cw.Seen | None) -> Reader:
        subscription = self._broker.subscription(consumer)
        if subscription is None:
            pending = Spans(self._broker.assigned(consumer))
            for first, last in seen.held if seen is not None else ():
                pending.take(first, last)
            queue_reader = QueueReader(consumer, outlet, list(pending))
            self._ready[queue_reader] = None
            return queue_reader
        reader = TopicReader(consumer, subscription, outlet)
        if seen is not None and seen.position >= reader.next:
            had = min(seen.position, self._broker.position)
            reader.uncounted = (reader.next, had)
            reader.next = had + 1
        self._add_route(reader)
        reader.caught_up = reader.next > self._dispatched
        group = self._broker.groups.get(consumer.destination)
        if group is not None:
            acked = group.acked_by(consumer.session, consumer.number)
            reader.event = max(acked, seen.event if seen is not None else 0)
            self._look_after_state(reader, group)
        if not reader.caught_up or group is not None:
            self._ready[reader] = None
        return reader

    def _end(self, link: int, consumer: int) -> None:
        text = "another member has taken its place in the group, or it was removed"
        self._tell(link, cw.ConsumerEnded(consumer, "IllegalStateError", text))

    def _recount(self, reader: TopicReader, position: int, upto: int) -> None:
        """The client has all of this, of which this server has sent nothing itself. Not before it
        is sent something more: the journal may not have the rows of what was just applied."""
        reader.uncounted = None
        limit = reader.consumer.prefetch * RESERVE
        while position <= upto and reader.unsettled.count < limit:
            rows = self._packs.rows_for(reader.subscription.pattern, position, ROWS_A_READ)
            for row in rows:
                first = max(row.position, position)
                last = min(row.position + row.count - 1, upto)
                if first <= last:
                    for one, two, _ in reader.subscription.runs(first, last, 0):
                        reader.sent(one, two)
            if len(rows) < ROWS_A_READ:
                break
            position = rows[-1].position + rows[-1].count

    def _remove(self, reader: Reader) -> None:
        self._ready.pop(reader, None)
        reader.outlet.blocked.pop(reader, None)
        if isinstance(reader, TopicReader):
            pattern = reader.subscription.pattern
            self._wide.pop(reader, None)
            exact = self._exact.get(pattern)
            if exact is not None:
                exact.pop(reader, None)
                if not exact:
                    del self._exact[pattern]
            self._routes.clear()

    def _add_route(self, reader: TopicReader) -> None:
        pattern = reader.subscription.pattern
        if is_pattern(pattern.partition(":")[2]):
            self._wide[reader] = None
        else:
            self._exact.setdefault(pattern, {})[reader] = None
        self._routes.clear()

    def _route(self, destination: str) -> tuple[TopicReader, ...]:
        route = self._routes.get(destination)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            wide = (r for r in self._wide if r.subscription.matches(destination))
            route = self._routes[destination] = (*self._exact.get(destination, ()), *wide)
        return route

    # -- What happens --------------------------------------------------------------------------

    def applied(self, accepted: tuple[Accepted, ...]) -> None:
        self._accepted += accepted

    def group_changed(self, destination: str) -> None:
        """There is something that its members do not know yet."""
        for reader in list(self._exact.get(destination, ())):
            session, number = reader.consumer.session, reader.consumer.number
            known = self._broker.sessions.get(session)
            if known is None or known.consumers.get(number) is not reader.consumer:
                self._remove(self._sessions[session].pop(number))
                self._end(reader.outlet.link, number)
            else:
                self._look_after_state(reader, self._broker.groups[destination])
                reader.skip()
                if reader.caught_up or reader.room > 0:
                    self._ready[reader] = None

    def _look_after_state(self, reader: TopicReader, group: Group) -> None:
        """A member that waits for its state gets messages when it has it, and is told at once whom
        to expect it from: that is not for the others, and has no place among messages."""
        session, number = reader.consumer.session, reader.consumer.number
        member = group.member_of(session, number)
        reader.waits = member is not None and member.needs_state
        if group.waits_in_vain(session, number):
            news = cw.StateComes(number, 0, 0, "")
        elif member is not None and member.needs_state and member.request:
            news = cw.StateComes(number, member.request, member.cut, member.provider)
        else:
            return
        if news != reader.told:
            reader.told = news
            self._tell(reader.outlet.link, news)

    def assigned(self, session: int, consumer: int, span: Span) -> None:
        reader = self._sessions.get(session, {}).get(consumer)
        if isinstance(reader, QueueReader):  # otherwise it is opened later, with all it has
            reader.pending.append(span)
            self._ready[reader] = None

    def acked(self, session: int, row: cw.AckRow) -> bool:
        """The client acknowledged; the log will know later. True: it should know soon, for
        deliveries will wait for it."""
        reader = self._sessions.get(session, {}).get(row.consumer)
        if not isinstance(reader, TopicReader):
            return True  # a queue assigns more only when it knows
        reader.acked(max(row.first, 1), row.last)
        self._go_on(reader)
        return reader.unsettled.count > reader.consumer.prefetch * RESERVE // 2

    def settled(self, session: int, row: cw.AckRow) -> None:
        """The state machine knows of the acknowledgement."""
        reader = self._sessions.get(session, {}).get(row.consumer)
        if isinstance(reader, TopicReader):
            reader.unsettled.take(max(row.first, 1), row.last)
            reader.acked(max(row.first, 1), row.last)  # it came before these were counted, perhaps
            self._go_on(reader)

    def drained(self, link: int, left: int) -> bool:
        """So many bytes have not left yet. True: somebody has waited for that."""
        outlet = self._by_link.get(link)
        if outlet is None:
            return False
        self._on_the_way += left - outlet.bytes
        outlet.bytes = left
        waited = bool(outlet.blocked)
        self._ready.update(outlet.blocked)
        outlet.blocked.clear()
        return waited

    def restored(self) -> None:
        """The state machine jumped ahead; no session is served now."""
        assert not self._sessions
        self._accepted = []
        self._dispatched = self._broker.position

    def _go_on(self, reader: TopicReader) -> None:
        if not reader.caught_up and reader.room > 0:
            self._ready[reader] = None

    # -- Handing out ---------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._ready)

    def dispatch(self) -> None:
        """Hand out what is new to those who are caught up, and a turn's worth to those who lag.
        The journal has the rows of all that was applied."""
        accepted, self._accepted = self._accepted, []
        for one in accepted:
            self._dispatched = one.position + one.count - 1
            if route := self._route(one.destination):
                self._hand_out(one, route)
        self._turn_bytes = 0  # those who lag have a turn of their own
        for _ in range(len(self._ready)):
            if self._turn_bytes >= TURN_BYTES:
                return
            reader = next(iter(self._ready))
            del self._ready[reader]  # if it has more to do, it comes after the others
            if isinstance(reader, TopicReader):
                self._read_topic(reader)
            else:
                self._read_queue(reader)

    def _hand_out(self, one: Accepted, route: tuple[TopicReader, ...]) -> None:
        found: tuple[Row, bytes] | None = None
        for reader in route:
            if one.position + one.count <= reader.next:
                continue
            if reader.caught_up:
                found = found or self._pack(one.position)
                reader.caught_up = self._send_from(reader, *found)
            if not reader.caught_up:
                self._fell_behind(reader, one.count)

    def _read_topic(self, reader: TopicReader) -> None:
        rows = self._packs.rows_for(reader.subscription.pattern, reader.next, ROWS_A_READ)
        for row in rows:
            if row.position > self._dispatched:
                break
            if not self._send_from(reader, *self._pack(row.position)):
                return
            if self._turn_bytes >= TURN_BYTES:
                self._ready[reader] = None
                return
        else:
            if len(rows) == ROWS_A_READ:
                self._ready[reader] = None
                return
        reader.next = max(reader.next, self._dispatched + 1)
        reader.caught_up = True
        reader.behind = 0
        self._send_events(reader, reader.next)

    def _send_events(self, reader: TopicReader, before: int) -> None:
        """Of a group: what happened before the message at this position, and was not sent."""
        consumer = reader.consumer
        group = self._broker.groups.get(consumer.destination)
        if group is None or reader.event >= group.serial:
            return
        last = group.last_for(consumer.session, consumer.number)
        for event in group.after(reader.event):
            if event.position >= before or event.serial > last:
                return
            reader.event = event.serial
            if group.concerns(event, consumer.session, consumer.number):
                self._tell(reader.outlet.link, cw.Happened(consumer.number, event))

    def _send_from(self, reader: TopicReader, row: Row, pack: bytes) -> bool:
        """Send what of this pack is for the reader; False: its window or its outlet is full."""
        if reader.uncounted is not None:
            self._recount(reader, *reader.uncounted)
        last = row.position + row.count - 1
        first = max(row.position, reader.next)
        self._send_events(reader, first)
        for one, two, deliveries in reader.subscription.runs(first, last, reader.rank):
            while one <= two:
                room = reader.room
                if room <= 0 or not self._has_room(reader):
                    reader.next = one
                    return False
                upto = min(two, one + room - 1)
                reader.sent(one, upto)
                reader.unacked_bytes += self._deliver(reader, row, pack, (one, upto, deliveries))
                one = upto + 1
        reader.next = last + 1
        return True

    def _read_queue(self, reader: QueueReader) -> None:
        while reader.pending:
            if not self._has_room(reader):
                return
            if self._turn_bytes >= TURN_BYTES:
                self._ready[reader] = None
                return
            first, last, deliveries = reader.pending[0]
            row, pack = self._pack(first)
            upto = min(last, row.position + row.count - 1)
            self._deliver(reader, row, pack, (first, upto, deliveries))
            if upto < last:
                reader.pending[0] = (upto + 1, last, deliveries)
            else:
                del reader.pending[0]

    def _pack(self, position: int) -> tuple[Row, bytes]:
        found = self._packs.pack(position)
        assert found is not None, f"the journal has lost message {position}, which is live"
        return found

    def _has_room(self, reader: Reader) -> bool:
        limit = self._delivery_bytes if self._on_the_way < ALL_DELIVERY_BYTES else 1
        if reader.outlet.bytes < limit:
            return True
        reader.outlet.blocked[reader] = None
        return False

    def _deliver(self, reader: Reader, row: Row, pack: bytes, span: Span) -> int:
        """Returns how many bytes that were."""
        first, last, deliveries = span
        data = columns.cut(pack, first - row.position, last - first + 1)
        number = reader.consumer.number
        self._tell(
            reader.outlet.link, cw.Deliver(number, first, row.stamp, deliveries, data, row.view)
        )
        size = len(data) + OVERHEAD_BYTES
        reader.outlet.bytes += size
        self._on_the_way += size
        self._turn_bytes += size
        self.delivered_packs += 1
        self.delivered_bytes += len(data)
        return len(data)

    # -- Consumers that do not keep up ---------------------------------------------------------

    def _fell_behind(self, reader: TopicReader, count: int) -> None:
        reader.behind += count
        if reader.behind <= self._slow_quota or reader.consumer.slow == "spill":
            return
        if reader.consumer.slow == "drop" and not reader.subscription.durable:
            self.dropped_messages += reader.behind
            reader.next = self._dispatched + 1
            reader.caught_up = True
            reader.behind = 0
        elif reader.consumer.slow == "disconnect":
            self.too_slow.append(
                (
                    reader.consumer.session,
                    f"its consumer of {reader.consumer.destination!r} is {reader.behind} messages "
                    f"behind; the limit is {self._slow_quota}",
                )
            )

    def counts(self) -> dict[str, int]:
        readers = [r for some in self._sessions.values() for r in some.values()]
        topic = [r for r in readers if isinstance(r, TopicReader)]
        return {
            "consumers": len(readers),
            "lagging": sum(not r.caught_up for r in topic),
            "unacknowledged": sum(r.unacked.count for r in topic),
            "on_the_way_bytes": self._on_the_way,
            "delivered_packs": self.delivered_packs,
            "delivered_bytes": self.delivered_bytes,
            "dropped_messages": self.dropped_messages,
        }
