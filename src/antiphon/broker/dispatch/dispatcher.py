"""Deliveries to the consumers of one server's clients.

Promises: a consumer of a topic gets every message that is for it, once and in log order
(`topic_delivery.py`); a consumer of a queue gets exactly what the state machine assigned to it
(`queue_delivery.py`). Packs go out as they are in the journal, by reference; they are cut only
where a window, an acknowledgement or an assignment ends inside one, or a message is not for the
consumer: the selector does not match it, or it has expired.

Reading for one connection ends after `TURN_BYTES`, and the others have their turn (`outlets.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from antiphon.broker.dispatch.filtering import Sieve
from antiphon.broker.dispatch.outlets import TURN_BYTES, Outlets, Tell
from antiphon.broker.dispatch.queue_cursors import BrowserCursor, QueueCursor
from antiphon.broker.dispatch.queue_delivery import QueueDelivery
from antiphon.broker.dispatch.topic_cursors import TopicCursor
from antiphon.broker.dispatch.topic_delivery import PackSource, TopicDelivery
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.ranges import Span
from antiphon.formats import protocol as cw
from antiphon.log.effects import Accepted

Cursor = TopicCursor | QueueCursor | BrowserCursor


class Dispatcher:
    """The consumers of the sessions that one server serves, each with a cursor.

    Needs: everything that is applied, in order (`applied`, `assigned`, `group_changed`), and
    `dispatch` when the journal has the rows of that; `drained` when bytes have left.
    """

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
        self._tell = tell
        self._sessions: dict[int, dict[int, Cursor]] = {}
        self.rows: list[tuple[int, cw.AckRow]] = []
        """Rows of this server's own about sessions and their messages, for the log."""

        sieve = Sieve(time)
        self._outlets = Outlets(tell, sieve, delivery_bytes)
        self._topics = TopicDelivery(
            broker, packs, self._outlets, sieve, self.rows, slow_quota, deliveries_max
        )
        self._queues = QueueDelivery(
            broker, packs.pack, self._outlets.deliver, self.rows, time, deliveries_max
        )
        self._seeking = False  # there is more to look at for consumers that choose

    @property
    def too_slow(self) -> list[tuple[int, str]]:
        """Sessions that must be ended, and why."""
        return self._topics.too_slow

    # -- Consumers come and go -----------------------------------------------------------------

    def open(self, session: int, link: int, seen: Iterable[cw.Seen]) -> None:
        """Begin to deliver to a session that is attached here; `seen`: the receipts of its
        client."""
        self._outlets.open(session, link)
        self._sessions[session] = {}
        had = {s.consumer: s for s in seen}
        self.follow(session, had)
        for number in had:
            if number not in self._sessions[session]:
                self._end(link, number)

    def close(self, session: int) -> None:
        """Serve this session no longer."""
        for cursor in self._sessions.pop(session, {}).values():
            self._remove(cursor)
        self._outlets.close(session)

    def follow(self, session: int, seen: dict[int, cw.Seen] | None = None) -> None:
        """Serve the consumers that the session has now, and no others."""
        known = self._broker.sessions.get(session)
        consumers = known.consumers if known is not None else {}
        for number in sorted(self._sessions[session].keys() | consumers.keys()):
            self.follow_consumer(session, number, (seen or {}).get(number))

    def follow_consumer(self, session: int, number: int, seen: cw.Seen | None = None) -> None:
        """Serve this consumer if the session has it now; if not, no longer."""
        cursors = self._sessions[session]
        known = self._broker.sessions.get(session)
        consumer = known.consumers.get(number) if known is not None else None
        cursor = cursors.get(number)
        if consumer is None or consumer.closed:
            if cursor is not None:
                self._remove(cursors.pop(number))
        elif cursor is None:
            cursors[number] = self._cursor(consumer, seen)
        elif isinstance(cursor, TopicCursor):
            self._topics.go_on(cursor)  # its window may have been widened

    def _cursor(self, consumer: Consumer, seen: cw.Seen | None) -> Cursor:
        outlet = self._outlets.of(consumer.session)
        subscription = self._broker.subscription(consumer)
        if subscription is not None:
            return self._topics.open(consumer, subscription, outlet, seen)
        looks = consumer.browses is not None
        opened = self._queues.browse if looks else self._queues.open
        cursor: QueueCursor | BrowserCursor = opened(consumer, outlet, seen)
        self._outlets.ready[cursor] = None
        return cursor

    def _end(self, link: int, consumer: int) -> None:
        text = "another member has taken its place in the group, or it was removed"
        self._tell(link, cw.ConsumerEnded(consumer, "IllegalStateError", text))

    def _remove(self, cursor: Cursor) -> None:
        self._outlets.forget(cursor)
        if isinstance(cursor, TopicCursor):
            self._topics.close(cursor)
        elif isinstance(cursor, QueueCursor):
            self._queues.close(cursor)

    # -- Events ---------------------------------------------------------------------------------

    def applied(self, accepted: tuple[Accepted, ...]) -> None:
        """Hand these out at once, as far as they are in memory; the rest waits for `dispatch`."""
        self._topics.applied(accepted)

    def group_changed(self, destination: str) -> None:
        """Note that a group has an event that its members do not know yet, or is over."""
        group = self._broker.groups.get(destination)
        for cursor in self._topics.of_group(destination):
            session, number = cursor.consumer.session, cursor.consumer.number
            known = self._broker.sessions.get(session)
            if known is None or known.consumers.get(number) is not cursor.consumer:
                self._remove(self._sessions[session].pop(number))
                self._end(cursor.outlet.link, number)
            else:
                self._topics.group_changed(cursor, group)
        for gone in self._queues.removed_from(destination):
            self._remove(self._sessions[gone.consumer.session].pop(gone.consumer.number))
            self._end(gone.outlet.link, gone.consumer.number)

    def assigned(self, session: int, consumer: int, span: Span) -> None:
        """A consumer of a queue has got these messages."""
        cursor = self._sessions.get(session, {}).get(consumer)
        if isinstance(cursor, QueueCursor):  # otherwise it is opened later, with all it has
            cursor.pending.append(span)
            self._outlets.ready[cursor] = None

    def acked(self, session: int, row: cw.AckRow) -> bool:
        """The client acknowledged; the log will know later. Return whether it should know soon, for
        deliveries will wait for it."""
        cursor = self._sessions.get(session, {}).get(row.consumer)
        if isinstance(cursor, TopicCursor):
            return self._topics.acked(cursor, row)
        if isinstance(cursor, BrowserCursor):
            cursor.unacked.take(row.first, row.last)
            self._outlets.ready[cursor] = None
            return False
        return True  # a queue assigns more only when it knows

    def settled(self, session: int, row: cw.AckRow) -> None:
        """The state machine knows of the acknowledgement."""
        cursor = self._sessions.get(session, {}).get(row.consumer)
        if isinstance(cursor, TopicCursor):
            self._topics.settled(cursor, row)
        elif isinstance(cursor, QueueCursor):
            self._queues.settled(cursor, row)

    def drained(self, link: int, left: int) -> bool:
        """All but `left` bytes have left. Return whether a cursor has waited for that."""
        return self._outlets.drained(link, left)

    def restored(self) -> None:
        """The state machine jumped ahead; no session is served now."""
        assert not self._sessions
        self._topics.restored()

    # -- Handing out ---------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a cursor is ready, or there is more to look at for those who choose."""
        return bool(self._outlets.ready or self._seeking)

    @property
    def waiting(self) -> bool:
        """Whether `dispatch` has work."""
        waits = self._topics.is_waiting or self._topics.too_slow or self._queues.seekers
        return bool(self.has_work or waits)

    def dispatch(self) -> None:
        """Hand new packs to consumers that are caught up, and a turn's worth to those that lag. The
        journal has the rows of all that was applied."""
        self._topics.catch_up()
        self._seeking = self._queues.seek()
        outlets = self._outlets
        outlets.turn_bytes = 0  # those who lag have a turn of their own
        for _ in range(len(outlets.ready)):
            if outlets.turn_bytes >= TURN_BYTES or not outlets.ready:
                return
            cursor = next(iter(outlets.ready))
            del outlets.ready[cursor]  # if it has more to do, it comes after the others
            if isinstance(cursor, TopicCursor):
                self._topics.read(cursor)
            elif isinstance(cursor, QueueCursor):
                self._read_queue(cursor)
            else:
                self._browse(cursor)

    def pass_over(self, now_ms: int) -> None:
        """Have floors moved past messages that were not sent, where it is worth a row."""
        self._topics.pass_over(now_ms)

    def _read_queue(self, cursor: QueueCursor) -> None:
        while cursor.pending:
            if not self._outlets.has_room(cursor):
                return
            if self._outlets.turn_bytes >= TURN_BYTES:
                self._outlets.ready[cursor] = None
                return
            self._queues.send(cursor)

    def _browse(self, cursor: BrowserCursor) -> None:
        while self._outlets.has_room(cursor):
            if self._outlets.turn_bytes >= TURN_BYTES:
                self._outlets.ready[cursor] = None
                return
            if not self._queues.send_to_browser(cursor):
                break
        if cursor.done and not cursor.told:
            cursor.told = True
            self._tell(cursor.outlet.link, cw.Browsed(cursor.consumer.number))

    def counts(self) -> dict[str, int]:
        """Return the counts for operators."""
        cursors = [c for some in self._sessions.values() for c in some.values()]
        of_topics = [c for c in cursors if isinstance(c, TopicCursor)]
        return {
            "consumers": len(cursors),
            "lagging": sum(not c.caught_up for c in of_topics),
            "unacknowledged": sum(c.unacked.count for c in of_topics),
            "on_the_way_bytes": self._outlets.on_the_way,
            "delivered_packs": self._outlets.delivered_packs,
            "delivered_bytes": self._outlets.delivered_bytes,
            "dropped_messages": self._topics.dropped_messages,
            "expired_messages": self._queues.expired,
            "dead_letters": self._queues.dead,
        }
