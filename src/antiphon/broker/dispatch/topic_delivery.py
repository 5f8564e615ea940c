"""Deliveries to the consumers of topics.

Promises: a consumer gets every message behind its subscription's floor that matches, once and in
log order. At most `prefetch` messages are sent and not acknowledged by the client, and at most
`RESERVE` times as many beyond what the state machine knows to be acknowledged.

A consumer that keeps up is *caught up*: new packs are handed to it as they are accepted, from
memory, before this server has written them: a majority has. One that does not *lags*: it costs a
number here, and reads from the journal when its window opens.

A member of a group gets its views and other events between the messages where they belong
(`view_delivery.py`).

What a consumer is not sent, its client cannot acknowledge. So that it does not stay in the journal
forever, the floor is moved past it from here, now and then (`pass_over`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from antiphon.broker.dispatch.audience import Audience
from antiphon.broker.dispatch.filtering import Sieve
from antiphon.broker.dispatch.outlets import TURN_BYTES, Outlet, Outlets
from antiphon.broker.dispatch.skipped_floors import SkippedFloors
from antiphon.broker.dispatch.topic_cursors import TopicCursor
from antiphon.broker.dispatch.view_delivery import ViewDelivery
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.groups.group import Group
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.ranges import Range, Span
from antiphon.broker.machine.topics import RESERVE, Subscription
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Row
from antiphon.formats.pack import SPECIAL, flags_of
from antiphon.log.effects import Accepted
from antiphon.model.destinations import is_pattern

ROWS_A_READ = 64
ROUTES_MAX = 10_000

LOOK_BYTES = 1024
"""A message that is looked at takes the time of this many bytes that are passed on."""


class PackSource(Protocol):
    """The journal, where accepted packs are read."""

    def pack(self, position: int) -> tuple[Row, bytes] | None:
        """The pack that holds this position; None: there is none, or it is gone."""

    def fresh(self, position: int) -> bytes | None:
        """The pack that begins there, if it was just accepted and is in memory."""

    def rows_for(self, pattern: str, first: int, most: int) -> list[Row]:
        """Packs for destinations that match, from position `first` on."""


class TopicDelivery:
    """The consumers of topics at one server, and how far each of them is.

    Needs: `applied` with all that is accepted, in order, and `read` for each cursor that is ready.
    """

    def __init__(
        self,
        broker: Broker,
        packs: PackSource,
        outlets: Outlets,
        sieve: Sieve,
        rows: list[tuple[int, cw.AckRow]],
        slow_quota: int,
        deliveries_max: int,
    ) -> None:
        """`rows`: what this server itself has to say, for the log, is added to these."""
        self._broker = broker
        self._packs = packs
        self._outlets = outlets
        self._views = ViewDelivery(broker, outlets.tell)
        self._sieve = sieve
        self._rows = rows
        self._slow_quota = slow_quota
        self._deliveries_max = deliveries_max
        self._audiences: dict[str, Audience[TopicCursor]] = {}  # by pattern
        self._wide: dict[str, Callable[[str], bool]] = {}  # of these, those with wildcards
        self._routes: dict[str, tuple[Audience[TopicCursor], ...]] = {}  # a cache
        self._skipped = SkippedFloors()
        self._accepted: list[Accepted] = []  # to be handed out when the journal has their rows
        self._uncounted: dict[TopicCursor, None] = {}  # their clients brought something along
        self._dispatched = broker.position  # up to here those who are caught up have been served
        self.dropped_messages = 0
        self.too_slow: list[tuple[int, str]] = []  # sessions to be ended, and why

    # -- Consumers come and go -----------------------------------------------------------------

    def open(
        self,
        consumer: Consumer,
        subscription: Subscription,
        outlet: Outlet,
        seen: cw.Seen | None,
    ) -> TopicCursor:
        """Serve this consumer from now on; `seen`: the receipts of its client."""
        cursor = TopicCursor(consumer, subscription, outlet, self._audience(subscription))
        cursor.audience.add(cursor, cursor.selector)
        if cursor.selector is not None:
            self._skipped.add(cursor)
        if seen is not None and seen.position >= cursor.next:
            cursor.had = min(seen.position, self._broker.position)
            if cursor.selector is None:
                cursor.uncounted = (cursor.next, cursor.had)
                self._uncounted[cursor] = None
                cursor.next = cursor.had + 1
        cursor.caught_up = cursor.next > self._dispatched
        in_group = self._views.open(cursor, seen)
        if in_group or not cursor.caught_up:
            self._outlets.ready[cursor] = None
        return cursor

    def close(self, cursor: TopicCursor) -> None:
        """Serve this consumer no longer."""
        self._skipped.remove(cursor)
        self._uncounted.pop(cursor, None)
        cursor.audience.remove(cursor)
        if not cursor.audience:
            pattern = cursor.subscription.pattern
            del self._audiences[pattern]
            self._wide.pop(pattern, None)
            self._routes.clear()

    def of_group(self, destination: str) -> list[TopicCursor]:
        """Return those who consume from this very topic."""
        return list(self._audiences.get(destination, ()))

    def _recount(self, cursor: TopicCursor) -> None:
        """The client has all of this, of which this server has sent nothing itself. What had
        expired before it could be sent counts too: it is not worth reading every pack for."""
        assert cursor.uncounted is not None
        position, upto = cursor.uncounted
        cursor.uncounted = None
        limit = cursor.consumer.prefetch * RESERVE
        while position <= upto and cursor.unsettled.count < limit:
            rows = self._packs.rows_for(cursor.subscription.pattern, position, ROWS_A_READ)
            for row in rows:
                first = max(row.position, position)
                last = min(row.position + row.count - 1, upto)
                if first <= last:
                    for low, high, _ in cursor.subscription.runs(first, last, 0):
                        cursor.sent(low, high)
            if len(rows) < ROWS_A_READ:
                break
            position = rows[-1].position + rows[-1].count

    def _audience(self, subscription: Subscription) -> Audience[TopicCursor]:
        pattern = subscription.pattern
        audience = self._audiences.get(pattern)
        if audience is None:
            audience = self._audiences[pattern] = Audience()
            if is_pattern(pattern.partition(":")[2]):
                self._wide[pattern] = subscription.matches
            self._routes.clear()
        return audience

    def _route(self, destination: str) -> tuple[Audience[TopicCursor], ...]:
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

    @property
    def is_waiting(self) -> bool:
        """Whether `catch_up` has work."""
        return bool(self._accepted or self._uncounted)

    def applied(self, accepted: tuple[Accepted, ...]) -> None:
        """Hand these out at once, as far as they are in memory; the rest waits for `catch_up`."""
        self._accepted += accepted
        if not self._uncounted:  # otherwise rows are needed first
            self._hand_out_accepted(from_memory=True)

    def catch_up(self) -> None:
        """Hand out what is new to those who are caught up. The journal has the rows of all that was
        applied."""
        while self._uncounted:
            self._recount(self._uncounted.popitem()[0])
        self._hand_out_accepted()

    def group_changed(self, cursor: TopicCursor, group: Group | None) -> None:
        """Note that there is an event that this member does not know yet."""
        if group is not None:
            self._views.look_after_state(cursor, group)
        cursor.skip()
        if cursor.caught_up or cursor.room > 0:
            self._outlets.ready[cursor] = None

    def acked(self, cursor: TopicCursor, row: cw.AckRow) -> bool:
        """The client acknowledged; the log will know later. Return whether it should know soon, for
        deliveries will wait for it."""
        cursor.acked(max(row.first, 1), row.last)
        self.go_on(cursor)
        return cursor.unsettled.count > cursor.consumer.prefetch * RESERVE // 2

    def settled(self, cursor: TopicCursor, row: cw.AckRow) -> None:
        """The state machine knows of the acknowledgement."""
        cursor.buried = cursor.buried and row.kind != cw.ACK
        cursor.burying = cursor.burying and row.kind != cw.DEAD
        cursor.unsettled.take(max(row.first, 1), row.last)
        cursor.acked(max(row.first, 1), row.last)  # it came before these were counted, perhaps
        self.go_on(cursor)

    def restored(self) -> None:
        """The state machine jumped ahead; no session is served now."""
        self._accepted = []
        self._dispatched = self._broker.position

    def go_on(self, cursor: TopicCursor) -> None:
        """Let it read on, if there is room: its window may have opened or widened."""
        if not cursor.caught_up and cursor.room > 0:
            self._outlets.ready[cursor] = None

    # -- Handing out ---------------------------------------------------------------------------

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
        route: tuple[Audience[TopicCursor], ...],
    ) -> None:
        """`found`: the pack, if it has been looked for."""
        for audience in route:
            for cursor in audience.plain:
                if one.position + one.count <= cursor.next:
                    continue
                if cursor.caught_up:
                    found = found or self._pack(one.position)
                    cursor.caught_up = self._send_from(cursor, *found)
                if not cursor.caught_up:
                    self._fell_behind(cursor, one.count)
            if audience.selects:
                found = found or self._pack(one.position)
                self._hand_out_by_selectors(audience, *found)

    def _hand_out_by_selectors(
        self, audience: Audience[TopicCursor], row: Row, pack: bytes
    ) -> None:
        for cursor, matched in audience.wanted(self._sieve.look_into(row, pack)).items():
            if row.position + row.count <= cursor.next:
                continue
            if cursor.caught_up:
                cursor.caught_up = self._send_from(cursor, row, pack, matched)
            if not cursor.caught_up:
                self._fell_behind(cursor, sum(last - first + 1 for first, last in matched))
        audience.passed = row.position + row.count - 1

    # -- Reading what lagged behind ------------------------------------------------------------

    def read(self, cursor: TopicCursor) -> None:
        """Read from the journal for a cursor that is ready, for a turn."""
        if cursor.selector is not None:
            self._read_by_selectors(cursor)
            return
        rows = self._packs.rows_for(cursor.subscription.pattern, cursor.next, ROWS_A_READ)
        for row in rows:
            if row.position > self._dispatched:
                break
            if not self._read_row(cursor, row):
                return
            if self._outlets.turn_bytes >= TURN_BYTES:
                self._outlets.ready[cursor] = None
                return
        else:
            if len(rows) == ROWS_A_READ:
                self._outlets.ready[cursor] = None
                return
        self._caught_up(cursor)

    def _read_row(self, cursor: TopicCursor, row: Row) -> bool:
        last = row.position + row.count - 1
        if cursor.subscription.is_done(row.position, last):  # the pack need not be read
            cursor.next = last + 1
            return True
        return self._send_from(cursor, *self._pack(row.position))

    def _caught_up(self, cursor: TopicCursor) -> None:
        cursor.next = max(cursor.next, self._dispatched + 1)
        cursor.caught_up = True
        cursor.behind = 0
        self._views.send(cursor, cursor.next)

    def _read_by_selectors(self, first: TopicCursor) -> None:
        """For all with selectors that want to go on: what is read for one is read for the others
        too."""
        audience = first.audience
        others = [cursor for cursor in audience.selecting if cursor in self._outlets.ready]
        going: dict[TopicCursor, None] = dict.fromkeys([first, *others])
        for cursor in going:
            self._outlets.ready.pop(cursor, None)
            if cursor.caught_up:  # it is not here for messages
                cursor.next = max(cursor.next, self._dispatched + 1)
        position = min(cursor.next for cursor in going)
        rows = self._packs.rows_for(first.subscription.pattern, position, ROWS_A_READ)
        more = len(rows) == ROWS_A_READ
        for row in rows:
            if row.position > self._dispatched:
                more = False
                break
            position = row.position + row.count
            self._read_row_for(going, row, audience)
            if not going or self._outlets.turn_bytes >= TURN_BYTES:
                more = True
                break
        for cursor in going:
            if more:
                cursor.next = max(cursor.next, position)
                self._outlets.ready[cursor] = None
            else:
                self._caught_up(cursor)

    def _read_row_for(
        self, going: dict[TopicCursor, None], row: Row, audience: Audience[TopicCursor]
    ) -> None:
        """Send this row to those who go on; cursors without room leave them."""
        last = row.position + row.count - 1
        if all(r.next > last or r.subscription.is_done(row.position, last) for r in going):
            return  # the pack need not be read
        row, pack = self._pack(row.position)
        self._outlets.turn_bytes += row.count * LOOK_BYTES
        stuck = False
        for cursor, matched in audience.wanted(self._sieve.look_into(row, pack)).items():
            if cursor in going and cursor.next <= last:
                cursor.caught_up = False
                if not self._send_from(cursor, row, pack, matched):
                    del going[cursor]
                    stuck = True
        audience.passed = max(audience.passed, last)
        for cursor in [r for r in going if not self._outlets.has_room(r)] if stuck else ():
            # Otherwise it would go on to its next message, and others with it again later.
            cursor.next = max(cursor.next, last + 1)
            cursor.caught_up = False
            del going[cursor]

    # -- Sending -------------------------------------------------------------------------------

    def _send_from(
        self, cursor: TopicCursor, row: Row, pack: bytes, matched: list[Range] | None = None
    ) -> bool:
        """Send what of this pack is for the cursor; False: its window or its outlet is full.
        `matched`: what its selector wants, by the index in the pack, if that is known."""
        first = max(row.position, cursor.next)
        self._views.send(cursor, first)
        wanted = [(first, row.position + row.count - 1)]
        if matched is not None or flags_of(pack) & SPECIAL:  # otherwise that is for the cursor
            wanted = self._wanted(cursor, row, pack, first, matched)
        for low, high in wanted:
            for run in cursor.subscription.runs(low, high, cursor.rank):
                if not self._send_run(cursor, row, pack, run):
                    return False
        cursor.next = row.position + row.count
        return True

    def _send_run(self, cursor: TopicCursor, row: Row, pack: bytes, run: Span) -> bool:
        """False: not all of it, because the window or the outlet is full."""
        low, high, deliveries = run
        if low <= cursor.had:  # another server has sent it
            cursor.sent(low, min(high, cursor.had))
            low = cursor.had + 1
        while low <= high:
            room = cursor.room
            if room <= 0 or not self._outlets.has_room(cursor):
                cursor.next = low
                return False
            if deliveries > self._deliveries_max and self._bury(cursor, low, deliveries):
                low += 1
                continue
            upto = min(high, low + room - 1)
            cursor.sent(low, upto)
            cursor.unacked_bytes += self._outlets.deliver(
                cursor, row, pack, (low, upto, deliveries)
            )
            low = upto + 1
        return True

    def _bury(self, cursor: TopicCursor, position: int, deliveries: int) -> bool:
        """Give up a message of a durable subscription that was delivered too often, one at a time
        (`queue_cursors.py`). A member of a group skips nothing. To acknowledge a later message
        acknowledges this one, too: so none is sent before the log knows of this."""
        consumer = cursor.consumer
        if cursor.buried or not cursor.subscription.durable:
            return False
        if consumer.destination in self._broker.groups:
            return False
        cursor.buried = cursor.burying = True
        reason = f"delivered {deliveries - 1} times, and not acknowledged"
        row = cw.AckRow(consumer.number, position, position, kind=cw.DEAD, reason=reason)
        self._rows.append((consumer.session, row))
        return True

    def _wanted(
        self,
        cursor: TopicCursor,
        row: Row,
        pack: bytes,
        first: int,
        matched: list[Range] | None,
    ) -> list[Range]:
        """Return the ranges that are for the cursor, from this position on."""
        wanted = self._sieve.wanted(row, pack, first, matched)
        last = row.position + row.count - 1
        if wanted != [(first, last)]:
            cursor.passed = last
            self._skipped.add(cursor)
        return wanted

    def pass_over(self, now_ms: int) -> None:
        """Have floors moved past what was not sent, where it is worth a row."""
        self._rows += self._skipped.rows(self._dispatched, now_ms)

    def _pack(self, position: int) -> tuple[Row, bytes]:
        found = self._packs.pack(position)
        assert found is not None, f"the journal has lost message {position}, which is live"
        return found

    # -- Consumers that do not keep up ---------------------------------------------------------

    def _fell_behind(self, cursor: TopicCursor, count: int) -> None:
        cursor.behind += count
        if cursor.behind <= self._slow_quota or cursor.consumer.slow == "spill":
            return
        if cursor.consumer.slow == "drop" and not cursor.subscription.durable:
            self.dropped_messages += cursor.behind
            cursor.next = self._dispatched + 1
            cursor.caught_up = True
            cursor.behind = 0
        elif cursor.consumer.slow == "disconnect":
            self.too_slow.append(
                (
                    cursor.consumer.session,
                    f"its consumer of {cursor.consumer.destination!r} is {cursor.behind} messages "
                    f"behind; the limit is {self._slow_quota}",
                )
            )
