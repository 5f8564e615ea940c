"""Deliveries to the consumers and browsers of queues.

Promises: a consumer gets exactly what the state machine assigned to it, greater priorities first; a
message that has expired meanwhile, or was delivered too often, is not sent, and the log gets a
command (`rows`). A program that dies of one message has had the next ones too, and they count as
delivered: so of several that were delivered too often one is given up, and the others have their
chance.

For a consumer with a selector its server looks into the waiting messages, and claims those that
fit; one that another consumer got first is not granted. A browser gets the messages that were in
the queue when it was opened, as far as they still are, and then a notice that these were all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from antiphon.broker.dispatch.filtering import Contents, matching
from antiphon.broker.dispatch.outlets import Outlet
from antiphon.broker.dispatch.queue_cursors import BrowserCursor, QueueCursor
from antiphon.broker.machine.consumers.acknowledging import buries
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.queues.lanes import PLAIN
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.ranges import Range, Span, Spans
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Row

TURN_MESSAGES = 4096
"""Looked at for one consumer before the others have their turn."""

Packs = Callable[[int], tuple[Row, bytes] | None]
Deliver = Callable[[QueueCursor | BrowserCursor, Row, bytes, Span, str], object]


class QueueDelivery:
    """The consumers and browsers of queues at one server: the messages that each was assigned, and
    is sent."""

    def __init__(
        self,
        broker: Broker,
        packs: Packs,
        deliver: Deliver,
        rows: list[tuple[int, cw.AckRow]],
        time: Callable[[], int],
        deliveries_max: int,
    ) -> None:
        """`packs`: the pack that holds a position; None: it is gone. Commands for the log are
        added to `rows`."""
        self._broker = broker
        self._packs = packs
        self._deliver = deliver
        self._rows = rows
        self._time = time
        self._deliveries_max = deliveries_max
        self.seekers: dict[QueueCursor, None] = {}
        self._in_groups: dict[QueueCursor, str] = {}  # of shared members -> the group
        self.dead = 0  # letters
        self.expired = 0  # messages that were assigned, and not sent

    # -- They come and go ------------------------------------------------------------------------

    def open(self, consumer: Consumer, outlet: Outlet, seen: cw.Seen | None) -> QueueCursor:
        """Return the cursor of a consumer; messages that its client has `seen` are not sent
        again."""
        pending = Spans(self._broker.assigned(consumer))
        for first, last in seen.held if seen is not None else ():
            pending.take(first, last)
        queue = self._broker.queues[consumer.destination]
        cursor = QueueCursor(consumer, outlet, _by_priority(queue, list(pending)))
        if cursor.selector is not None:
            self.seekers[cursor] = None
        if queue.pattern in self._broker.groups:
            self._in_groups[cursor] = queue.pattern
        return cursor

    def browse(self, consumer: Consumer, outlet: Outlet, seen: cw.Seen | None) -> BrowserCursor:
        """Return the cursor of a browser, which goes on behind what its client has `seen`."""
        queue = self._broker.queues.get(consumer.destination)
        first = (seen.position if seen is not None else 0) + 1
        last = consumer.browses or 0
        ranges = sorted(queue.live()) if queue is not None else []
        cut = ((max(low, first), min(high, last)) for low, high in ranges)
        return BrowserCursor(consumer, outlet, [(low, high) for low, high in cut if low <= high])

    def close(self, cursor: QueueCursor | BrowserCursor) -> None:
        """Serve this cursor no longer."""
        if isinstance(cursor, QueueCursor):
            self.seekers.pop(cursor, None)
            self._in_groups.pop(cursor, None)

    def removed_from(self, group: str) -> list[QueueCursor]:
        """Consumers of shared members that are none any more."""
        return [r for r, g in self._in_groups.items() if g == group and not self._is_open(r)]

    def _is_open(self, cursor: QueueCursor) -> bool:
        session = self._broker.sessions.get(cursor.consumer.session)
        number = cursor.consumer.number
        return session is not None and session.consumers.get(number) is cursor.consumer

    # -- Assigned messages -----------------------------------------------------------------------

    def send(self, cursor: QueueCursor) -> None:
        """Send one run of the pending messages. Only if there are some."""
        queue = self._broker.queues.get(cursor.consumer.destination)
        first, last, deliveries = cursor.pending[0]
        row, pack = self._pack(first)
        upto = min(last, row.position + row.count - 1)
        reason, upto = _reason(queue, first, upto)
        if queue is not None and queue.special:
            upto = min(upto, queue.special.run(first)[1] or upto)
        limit = queue.redelivery.deliveries if queue is not None else None
        hopeless = deliveries > (limit or self._deliveries_max) and not cursor.buried
        if hopeless and buries(self._broker, cursor.consumer, first):
            upto = first
            self._bury(cursor, first, deliveries)
        elif queue is not None and self._has_expired(queue, first):
            self.expired += upto - first + 1
            self._say(cursor, first, upto, cw.ACK)
        else:
            self._deliver(cursor, row, pack, (first, upto, deliveries), reason)
        if upto < last:
            cursor.pending[0] = (upto + 1, last, deliveries)
        else:
            del cursor.pending[0]

    def _has_expired(self, queue: Queue, position: int) -> bool:
        special = queue.special.of(position) or PLAIN
        return 0 < special.expires <= self._time()

    def _bury(self, cursor: QueueCursor, position: int, deliveries: int) -> None:
        cursor.buried = True
        self.dead += 1
        reason = f"delivered {deliveries - 1} times, and not acknowledged"
        self._say(cursor, position, position, cw.DEAD, reason)

    def _say(self, cursor: QueueCursor, first: int, last: int, kind: int, reason: str = "") -> None:
        number = cursor.consumer.number
        self._rows.append(
            (cursor.consumer.session, cw.AckRow(number, first, last, kind=kind, reason=reason))
        )

    def _pack(self, position: int) -> tuple[Row, bytes]:
        found = self._packs(position)
        assert found is not None, f"the journal has lost message {position}, which is live"
        return found

    # -- With a selector -------------------------------------------------------------------------

    def seek(self) -> bool:
        """Look into waiting messages, for consumers with a selector; True: there is more to look
        at."""
        more = [self._seek(cursor) for cursor in self.seekers]
        return any(more)

    def _seek(self, cursor: QueueCursor) -> bool:
        queue = self._broker.queues.get(cursor.consumer.destination)
        if queue is None or cursor.claims:
            return False
        if queue.returned != cursor.returned:
            cursor.returned, cursor.looked = queue.returned, 0
        if queue.last <= cursor.looked:
            return False
        taker = queue.takers.get((cursor.consumer.session, cursor.consumer.number))
        if taker is None or taker.room <= 0:
            return False  # the next acknowledgement gives it room
        wanted, unwanted, more = self._look(cursor, queue, taker.room)
        self._claim(cursor, queue, wanted, taker.room)
        if queue.pattern:
            for first, last in unwanted:
                self._say(cursor, first, last, cw.SKIP)
                cursor.claims += 1
        return more and not cursor.claims

    def _look(
        self, cursor: QueueCursor, queue: Queue, room: int
    ) -> tuple[list[Range], list[Range], bool]:
        """Return the ranges that the selector wants and does not want, and whether there is more to
        look at."""
        assert cursor.selector is not None
        wanted: list[Range] = []
        unwanted: list[Range] = []
        found = looked = 0
        for row, contents, first, last in self._waiting(queue, cursor.looked):
            at = row.position
            fits = matching(cursor.selector, contents, first - at, last - at)
            ranges = [(at + low, at + high) for low, high in fits]
            wanted += ranges
            found += sum(high - low + 1 for low, high in ranges)
            unwanted += _between(ranges, first, last)
            cursor.looked = last
            looked += last - first + 1
            if found >= room or looked >= TURN_MESSAGES:
                return wanted, unwanted, True
        cursor.looked = max(cursor.looked, queue.last)
        return wanted, unwanted, False

    def _waiting(self, queue: Queue, after: int) -> Iterator[tuple[Row, Contents, int, int]]:
        for first, last in queue.waiting_after(after):
            while first <= last:
                row, pack = self._pack(first)
                reason, upto = _reason(queue, first, min(last, row.position + row.count - 1))
                yield row, Contents(pack, row.stamp, reason), first, upto
                first = upto + 1

    def _claim(self, cursor: QueueCursor, queue: Queue, wanted: list[Range], room: int) -> None:
        """Claim as much as there is room for, greater priorities first. The rest is looked at
        again."""
        for first, last, _ in _by_priority(queue, [(low, high, 0) for low, high in wanted]):
            if room <= 0:
                cursor.looked = min(cursor.looked, first - 1)
                continue
            self._say(cursor, first, min(last, first + room - 1), cw.CLAIM)
            cursor.claims += 1
            if last - first + 1 > room:
                cursor.looked = min(cursor.looked, first + room - 1)
            room -= last - first + 1

    def settled(self, cursor: QueueCursor, row: cw.AckRow) -> None:
        """The log knows."""
        if row.kind in (cw.CLAIM, cw.SKIP):
            cursor.claims -= 1
        elif row.kind == cw.ACK:
            cursor.buried = False

    # -- Browsing --------------------------------------------------------------------------------

    def send_to_browser(self, cursor: BrowserCursor) -> bool:
        """Send one run of the messages that are left. Return False if the window is full, or none
        is left."""
        if cursor.done or cursor.room <= 0:
            return False
        if not cursor.ranges:
            cursor.done = True
            return False
        first, last = cursor.ranges.pop(0)
        found = self._packs(first)
        if found is None:
            return True  # acknowledged meanwhile, and gone
        row, pack = found
        queue = self._broker.queues.get(cursor.consumer.destination)
        reason, upto = _reason(queue, first, min(last, row.position + row.count - 1))
        contents, at = Contents(pack, row.stamp, reason), row.position
        fits = [(first - at, upto - at)]
        if cursor.selector is not None:
            fits = matching(cursor.selector, contents, first - at, upto - at)
        fresh = fits
        if not reason:  # dead letters do not expire
            fresh = [r for low, high in fits for r in contents.fresh(low, high, self._time())]
        room = cursor.room
        for low, high in fresh:
            end = min(high, low + room - 1)
            if low <= end:
                cursor.unacked.add(at + low, at + end, 1)
                self._deliver(cursor, row, pack, (at + low, at + end, 1), reason)
                room -= end - low + 1
            if end < high:  # there is no room for the rest, nor for all after it
                cursor.ranges.insert(0, (at + max(low, end + 1), last))
                return True
        if upto < last:
            cursor.ranges.insert(0, (upto + 1, last))
        return True


def _reason(queue: Queue | None, first: int, upto: int) -> tuple[str, int]:
    """Why a message is a dead letter, if it is one, and up to where the others are alike."""
    if queue is None or not queue.reasons:
        return "", upto
    reason, end = queue.reasons.run(first)
    return reason or "", min(upto, end or upto)


def _by_priority(queue: Queue, spans: list[Span]) -> list[Span]:
    """Return the spans in the order in which they are handed out."""
    if not queue.special:
        return spans
    pieces: list[tuple[int, Span]] = []
    for first, last, deliveries in spans:
        while first <= last:
            special, end = queue.special.run(first)
            upto = min(last, end or last)
            pieces.append((-(special or PLAIN).priority, (first, upto, deliveries)))
            first = upto + 1
    return [span for _, span in sorted(pieces)]


def _between(ranges: list[Range], first: int, last: int) -> list[Range]:
    """Return the parts of `first` to `last` that are in none of these ranges, which ascend."""
    found = []
    for low, high in ranges:
        if first < low:
            found.append((first, low - 1))
        first = high + 1
    return [*found, (first, last)] if first <= last else found
