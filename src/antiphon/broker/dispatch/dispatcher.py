"""Deliveries to the consumers of one server's clients.

Promises: a consumer of a topic gets every message behind its subscription's floor that matches,
once and in log order; a consumer of a queue gets exactly what the state machine assigned to it.
Packs go out as they are in the journal, by reference; they are cut only where a window, an
acknowledgement or an assignment ends inside one, or a message is not for the consumer: its selector
does not want it, or its time is over. At most `prefetch` messages of a topic are sent
and not acknowledged by the client, and at most `RESERVE` times as many beyond what the state
machine knows to be acknowledged. For one connection at most `delivery_bytes` are on their way; the
rest follows when it has drained.

A consumer of a topic that keeps up is *caught up*: new packs are handed to it as they are accepted,
from memory, before this server has written them: a majority has. One that does not *lags*: it costs
a number here, and reads from the journal when its window opens. Nobody's reading lasts longer than
`TURN_BYTES` before everybody else has a turn.

What a consumer of a topic is not sent, its client cannot acknowledge. So that it does not stay in
the journal for ever, the floor is moved past it from here, now and then (`pass_over`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from antiphon.broker.dispatch.audience import Audience
from antiphon.broker.dispatch.filtering import Sieve
from antiphon.broker.dispatch.queue_cursors import BrowseReader, QueueReader, QueueReading
from antiphon.broker.dispatch.skipped_floors import Passing
from antiphon.broker.dispatch.topic_cursors import Outlet, TopicReader
from antiphon.broker.machine.groups.group import Group
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.ranges import Range, Span
from antiphon.broker.machine.sessions.session import Consumer
from antiphon.broker.machine.topics import RESERVE, Subscription
from antiphon.formats import columns
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Row
from antiphon.formats.pack import SPECIAL, flags_of
from antiphon.log.effects import Accepted
from antiphon.model.destinations import is_pattern

TURN_BYTES = 4 << 20
"""Packs handed out in one turn; then the server looks after other things."""

ALL_DELIVERY_BYTES = 256 << 20
"""On their way to all clients together; beyond that each gets one pack at a time."""

ROWS_A_READ = 64
ROUTES_MAX = 10_000
OVERHEAD_BYTES = 64
"""What a delivery costs besides its pack."""

LOOK_BYTES = 1024
"""A message that is looked at takes the time of so many bytes that are passed on."""


class PackSource(Protocol):
    """Where accepted packs are read: the journal."""

    def pack(self, position: int) -> tuple[Row, bytes] | None:
        """The pack that holds this position; None: there is none, or it is gone."""

    def fresh(self, position: int) -> bytes | None:
        """The pack that begins there, if it was just accepted and is in memory."""

    def rows_for(self, pattern: str, first: int, most: int) -> list[Row]:
        """Packs for destinations that match, from position `first` on."""


Reader = TopicReader | QueueReader | BrowseReader
Tell = Callable[[int, cw.Answer], None]


class Dispatcher:
    def __init__(
        self,
        broker: Broker,
        packs: PackSource,
        tell: Tell,
        time: Callable[[], int],
        delivery_bytes: int,
        slow_quota: int,
        deliveries_max: int,
    ) -> None:
        """`time`: the servers' time, or a little less; never more."""
        self._broker = broker
        self._packs = packs
        self._tell = tell
        self._delivery_bytes = delivery_bytes
        self._slow_quota = slow_quota
        self._deliveries_max = deliveries_max
        self._sessions: dict[int, dict[int, Reader]] = {}
        self._outlets: dict[int, Outlet] = {}  # by session
        self._by_link: dict[int, Outlet] = {}
        self._ready: dict[Reader, None] = {}  # may have something to send
        self._audiences: dict[str, Audience[TopicReader]] = {}  # by pattern
        self._wide: dict[str, Callable[[str], bool]] = {}  # of these, those with wildcards
        self._routes: dict[str, tuple[Audience[TopicReader], ...]] = {}  # a cache
        self._sieve = Sieve(time)
        self._passing = Passing()
        self._accepted: list[Accepted] = []  # to be handed out when the journal has their rows
        self._uncounted: dict[TopicReader, None] = {}  # their clients brought something along
        self._dispatched = broker.position  # up to here those who are caught up have been served
        self._turn_bytes = 0
        self._on_the_way = 0  # bytes, to all outlets
        self.delivered_packs = 0
        self.delivered_bytes = 0
        self.dropped_messages = 0
        self.too_slow: list[tuple[int, str]] = []  # sessions to be ended, and why
        self.rows: list[tuple[int, cw.AckRow]] = []
        """What this server itself has to say of sessions and their messages, for the log."""

        self.queues = QueueReading(
            broker, packs.pack, self._deliver, self.rows, time, deliveries_max
        )
        self._seeking = False  # there is more to look at for consumers that choose

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
        known = self._broker.sessions.get(session)
        consumers = known.consumers if known is not None else {}
        for number in sorted(self._sessions[session].keys() | consumers.keys()):
            self.follow_consumer(session, number, (seen or {}).get(number))

    def follow_consumer(self, session: int, number: int, seen: cw.Seen | None = None) -> None:
        """Serve this consumer if the session has it now; if not, no longer."""
        readers = self._sessions[session]
        known = self._broker.sessions.get(session)
        consumer = known.consumers.get(number) if known is not None else None
        reader = readers.get(number)
        if consumer is None or consumer.closed:
            if reader is not None:
                self._remove(readers.pop(number))
        elif reader is None:
            readers[number] = self._reader(consumer, self._outlets[session], seen)
        elif isinstance(reader, TopicReader):
            self._go_on(reader)  # its window may have been widened

    def _reader(self, consumer: Consumer, outlet: Outlet, seen: cw.Seen | None) -> Reader:
        subscription = self._broker.subscription(consumer)
        if subscription is None:
            looks = consumer.browses is not None
            opened = self.queues.browse if looks else self.queues.open
            divided: QueueReader | BrowseReader = opened(consumer, outlet, seen)
            self._ready[divided] = None
            return divided
        reader = TopicReader(consumer, subscription, outlet, self._audience(subscription))
        reader.audience.add(reader, reader.selector)
        if reader.selector is not None:
            self._passing.add(reader)
        if seen is not None and seen.position >= reader.next:
            reader.had = min(seen.position, self._broker.position)
            if reader.selector is None:
                reader.uncounted = (reader.next, reader.had)
                self._uncounted[reader] = None
                reader.next = reader.had + 1
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

    def _recount(self, reader: TopicReader) -> None:
        """The client has all of this, of which this server has sent nothing itself. What had
        expired before it could be sent counts too: it is not worth reading every pack for."""
        assert reader.uncounted is not None
        position, upto = reader.uncounted
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
            self._passing.remove(reader)
            self._uncounted.pop(reader, None)
            reader.audience.remove(reader)
            if not reader.audience:
                pattern = reader.subscription.pattern
                del self._audiences[pattern]
                self._wide.pop(pattern, None)
                self._routes.clear()
        elif isinstance(reader, QueueReader):
            self.queues.close(reader)

    def _audience(self, subscription: Subscription) -> Audience[TopicReader]:
        pattern = subscription.pattern
        audience = self._audiences.get(pattern)
        if audience is None:
            audience = self._audiences[pattern] = Audience()
            if is_pattern(pattern.partition(":")[2]):
                self._wide[pattern] = subscription.matches
            self._routes.clear()
        return audience

    def _route(self, destination: str) -> tuple[Audience[TopicReader], ...]:
        route = self._routes.get(destination)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            patterns = [p for p, matches in self._wide.items() if matches(destination)]
            if destination in self._audiences:
                patterns.insert(0, destination)
            route = self._routes[destination] = tuple(self._audiences[p] for p in patterns)
        return route

    # -- What happens --------------------------------------------------------------------------

    def applied(self, accepted: tuple[Accepted, ...]) -> None:
        """Hand these out at once, as far as they are in memory; the rest waits for `dispatch`."""
        self._accepted += accepted
        if not self._uncounted:  # otherwise rows are needed first
            self._hand_out_accepted(from_memory=True)

    def group_changed(self, destination: str) -> None:
        """There is something that its members do not know yet; or it is over."""
        group = self._broker.groups.get(destination)
        for reader in list(self._audiences.get(destination, ())):
            session, number = reader.consumer.session, reader.consumer.number
            known = self._broker.sessions.get(session)
            if known is None or known.consumers.get(number) is not reader.consumer:
                self._remove(self._sessions[session].pop(number))
                self._end(reader.outlet.link, number)
            else:
                if group is not None:
                    self._look_after_state(reader, group)
                reader.skip()
                if reader.caught_up or reader.room > 0:
                    self._ready[reader] = None
        for gone in self.queues.removed_from(destination):
            self._remove(self._sessions[gone.consumer.session].pop(gone.consumer.number))
            self._end(gone.outlet.link, gone.consumer.number)

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
        if isinstance(reader, BrowseReader):
            reader.unacked.take(row.first, row.last)
            self._ready[reader] = None
            return False
        if not isinstance(reader, TopicReader):
            return True  # a queue assigns more only when it knows
        reader.acked(max(row.first, 1), row.last)
        self._go_on(reader)
        return reader.unsettled.count > reader.consumer.prefetch * RESERVE // 2

    def settled(self, session: int, row: cw.AckRow) -> None:
        """The state machine knows of the acknowledgement."""
        reader = self._sessions.get(session, {}).get(row.consumer)
        if isinstance(reader, TopicReader):
            reader.buried = reader.buried and row.kind != cw.ACK
            reader.burying = reader.burying and row.kind != cw.DEAD
            reader.unsettled.take(max(row.first, 1), row.last)
            reader.acked(max(row.first, 1), row.last)  # it came before these were counted, perhaps
            self._go_on(reader)
        elif isinstance(reader, QueueReader):
            self.queues.settled(reader, row)

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
        return bool(self._ready or self._seeking)

    @property
    def waiting(self) -> bool:
        """`dispatch` has something to do."""
        seekers = self.queues.seekers
        return bool(self.has_work or self._accepted or self._uncounted or self.too_slow or seekers)

    def dispatch(self) -> None:
        """Hand out what is new to those who are caught up, and a turn's worth to those who lag.
        The journal has the rows of all that was applied."""
        while self._uncounted:
            self._recount(self._uncounted.popitem()[0])
        self._hand_out_accepted()
        self._seeking = self.queues.seek()
        self._turn_bytes = 0  # those who lag have a turn of their own
        for _ in range(len(self._ready)):
            if self._turn_bytes >= TURN_BYTES or not self._ready:
                return
            reader = next(iter(self._ready))
            del self._ready[reader]  # if it has more to do, it comes after the others
            if isinstance(reader, TopicReader):
                self._read_topic(reader)
            elif isinstance(reader, QueueReader):
                self._read_queue(reader)
            else:
                self._browse(reader)

    def _hand_out_accepted(self, from_memory: bool = False) -> None:
        accepted, self._accepted = self._accepted, []
        for at, one in enumerate(accepted):
            route = self._route(one.destination)
            found = self._in_memory(one) if from_memory and route else None
            if from_memory and route and found is None:
                self._accepted = accepted[at:]
                return
            self._dispatched = one.position + one.count - 1
            if route:
                self._hand_out(one, found, route)

    def _in_memory(self, one: Accepted) -> tuple[Row, bytes] | None:
        pack = self._packs.fresh(one.position)
        if pack is None:
            return None
        row = Row(one.index, one.position, one.count, 0, one.stamp, one.view, one.destination)
        return row, pack

    def _hand_out(
        self,
        one: Accepted,
        found: tuple[Row, bytes] | None,
        route: tuple[Audience[TopicReader], ...],
    ) -> None:
        """`found`: the pack, if it has been looked for."""
        for audience in route:
            for reader in audience.plain:
                if one.position + one.count <= reader.next:
                    continue
                if reader.caught_up:
                    found = found or self._pack(one.position)
                    reader.caught_up = self._send_from(reader, *found)
                if not reader.caught_up:
                    self._fell_behind(reader, one.count)
            if audience.selects:
                found = found or self._pack(one.position)
                self._hand_out_by_selectors(audience, *found)

    def _hand_out_by_selectors(
        self, audience: Audience[TopicReader], row: Row, pack: bytes
    ) -> None:
        for reader, matched in audience.wanted(self._sieve.look_into(row, pack)).items():
            if row.position + row.count <= reader.next:
                continue
            if reader.caught_up:
                reader.caught_up = self._send_from(reader, row, pack, matched)
            if not reader.caught_up:
                self._fell_behind(reader, sum(last - first + 1 for first, last in matched))
        audience.passed = row.position + row.count - 1

    def _read_topic(self, reader: TopicReader) -> None:
        if reader.selector is not None:
            self._read_by_selectors(reader)
            return
        rows = self._packs.rows_for(reader.subscription.pattern, reader.next, ROWS_A_READ)
        for row in rows:
            if row.position > self._dispatched:
                break
            if not self._read_row(reader, row):
                return
            if self._turn_bytes >= TURN_BYTES:
                self._ready[reader] = None
                return
        else:
            if len(rows) == ROWS_A_READ:
                self._ready[reader] = None
                return
        self._caught_up(reader)

    def _read_row(self, reader: TopicReader, row: Row) -> bool:
        last = row.position + row.count - 1
        if reader.subscription.is_done(row.position, last):  # the pack need not be read
            reader.next = last + 1
            return True
        return self._send_from(reader, *self._pack(row.position))

    def _caught_up(self, reader: TopicReader) -> None:
        reader.next = max(reader.next, self._dispatched + 1)
        reader.caught_up = True
        reader.behind = 0
        self._send_events(reader, reader.next)

    def _read_by_selectors(self, first: TopicReader) -> None:
        """For all with selectors that want to go on: what is read for one is read for the others
        too."""
        audience = first.audience
        others = [reader for reader in audience.selecting if reader in self._ready]
        going: dict[TopicReader, None] = dict.fromkeys([first, *others])
        for reader in going:
            self._ready.pop(reader, None)
            if reader.caught_up:  # it is not here for messages
                reader.next = max(reader.next, self._dispatched + 1)
        position = min(reader.next for reader in going)
        rows = self._packs.rows_for(first.subscription.pattern, position, ROWS_A_READ)
        more = len(rows) == ROWS_A_READ
        for row in rows:
            if row.position > self._dispatched:
                more = False
                break
            position = row.position + row.count
            self._read_row_for(going, row, audience)
            if not going or self._turn_bytes >= TURN_BYTES:
                more = True
                break
        for reader in going:
            if more:
                reader.next = max(reader.next, position)
                self._ready[reader] = None
            else:
                self._caught_up(reader)

    def _read_row_for(
        self, going: dict[TopicReader, None], row: Row, audience: Audience[TopicReader]
    ) -> None:
        """Who cannot be sent more leaves those who go on."""
        last = row.position + row.count - 1
        if all(r.next > last or r.subscription.is_done(row.position, last) for r in going):
            return  # the pack need not be read
        row, pack = self._pack(row.position)
        self._turn_bytes += row.count * LOOK_BYTES
        stuck = False
        for reader, matched in audience.wanted(self._sieve.look_into(row, pack)).items():
            if reader in going and reader.next <= last:
                reader.caught_up = False
                if not self._send_from(reader, row, pack, matched):
                    del going[reader]
                    stuck = True
        audience.passed = max(audience.passed, last)
        for reader in [r for r in going if not self._has_room(r)] if stuck else ():
            # Otherwise it would go on to its next message, and others with it again later.
            reader.next = max(reader.next, last + 1)
            reader.caught_up = False
            del going[reader]

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

    def _send_from(
        self, reader: TopicReader, row: Row, pack: bytes, matched: list[Range] | None = None
    ) -> bool:
        """Send what of this pack is for the reader; False: its window or its outlet is full.
        `matched`: what its selector wants, by the index in the pack, if that is known."""
        first = max(row.position, reader.next)
        self._send_events(reader, first)
        wanted = [(first, row.position + row.count - 1)]
        if matched is not None or flags_of(pack) & SPECIAL:  # otherwise that is for the reader
            wanted = self._wanted(reader, row, pack, first, matched)
        for one, two in wanted:
            for run in reader.subscription.runs(one, two, reader.rank):
                if not self._send_run(reader, row, pack, run):
                    return False
        reader.next = row.position + row.count
        return True

    def _send_run(self, reader: TopicReader, row: Row, pack: bytes, run: Span) -> bool:
        """False: not all of it, because the window or the outlet is full."""
        one, two, deliveries = run
        if one <= reader.had:  # another server has sent it
            reader.sent(one, min(two, reader.had))
            one = reader.had + 1
        while one <= two:
            room = reader.room
            if room <= 0 or not self._has_room(reader):
                reader.next = one
                return False
            if deliveries > self._deliveries_max and self._bury(reader, one, deliveries):
                one += 1
                continue
            upto = min(two, one + room - 1)
            reader.sent(one, upto)
            reader.unacked_bytes += self._deliver(reader, row, pack, (one, upto, deliveries))
            one = upto + 1
        return True

    def _bury(self, reader: TopicReader, position: int, deliveries: int) -> bool:
        """Of a durable subscription: give up a message that was delivered too often, one at a time
        (`queue_cursors.py`). A member of a group skips nothing. Who acknowledges a later message
        acknowledges this one, too: so none is sent before the log knows of this."""
        consumer = reader.consumer
        if reader.buried or not reader.subscription.durable:
            return False
        if consumer.destination in self._broker.groups:
            return False
        reader.buried = reader.burying = True
        reason = f"delivered {deliveries - 1} times, and not acknowledged"
        row = cw.AckRow(consumer.number, position, position, kind=cw.DEAD, reason=reason)
        self.rows.append((consumer.session, row))
        return True

    def _wanted(
        self,
        reader: TopicReader,
        row: Row,
        pack: bytes,
        first: int,
        matched: list[Range] | None,
    ) -> list[Range]:
        """What is for the reader, from this position on."""
        wanted = self._sieve.wanted(row, pack, first, matched)
        last = row.position + row.count - 1
        if wanted != [(first, last)]:
            reader.passed = last
            self._passing.add(reader)
        return wanted

    def pass_over(self, now_ms: int) -> None:
        """Have floors moved past what was not sent, where it is worth a row."""
        self.rows += self._passing.rows(self._dispatched, now_ms)

    def _read_queue(self, reader: QueueReader) -> None:
        while reader.pending:
            if not self._has_room(reader):
                return
            if self._turn_bytes >= TURN_BYTES:
                self._ready[reader] = None
                return
            self.queues.send(reader)

    def _browse(self, reader: BrowseReader) -> None:
        while self._has_room(reader):
            if self._turn_bytes >= TURN_BYTES:
                self._ready[reader] = None
                return
            if not self.queues.send_to_browser(reader):
                break
        if reader.done and not reader.told:
            reader.told = True
            self._tell(reader.outlet.link, cw.Browsed(reader.consumer.number))

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

    def _deliver(self, reader: Reader, row: Row, pack: bytes, span: Span, reason: str = "") -> int:
        """Returns how many bytes that were."""
        first, last, deliveries = span
        count = last - first + 1
        data = pack if count == row.count else columns.cut(pack, first - row.position, count)
        number = reader.consumer.number
        age = self._sieve.age(row) if flags_of(pack) & SPECIAL else 0
        answer = cw.Deliver(number, first, row.stamp, deliveries, data, row.view, age, reason)
        self._tell(reader.outlet.link, answer)
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
            "expired_messages": self.queues.expired,
            "dead_letters": self.queues.dead,
        }
