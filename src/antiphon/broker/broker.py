"""The state machine of the messaging server: sessions, topics, queues, acknowledgements.

Promises: the same entries give the same state, the same events and the same snapshot, byte for
byte, on every replica; whatever a client put into an entry, `apply` does not raise. It knows
positions, never bodies. A message is accepted once, however often its pack is in the log; it stays
live until every subscription that must have it, or one consumer of its queue, has acknowledged it.

Time is the entries' stamps. A session is attached to a server; that server says every now and then
that it lives (`Renew`), and if it no longer does, or says that a connection is lost, the leases of
its clients begin. The first entry of a new leader renews everything: while there was no leader
nobody could.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

import google_crc32c
import msgspec

from antiphon.broker import events as ev
from antiphon.broker.queues import Queue, QueueConsumer
from antiphon.broker.sessions import Consumer, Producer, Serving, Session
from antiphon.broker.spans import Span, Spans, coarse
from antiphon.broker.topics import Key, Subscription, Topics
from antiphon.core.effects import Accepted
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    ResourceAllocationError,
)
from antiphon.formats import client_wire as cw
from antiphon.formats import command, pack
from antiphon.formats import destination as names
from antiphon.formats.entry import Entry, Kind

GRACE_MS = 3000
"""A server that has not renewed for so long has lost its clients."""

PRODUCER_RETENTION_MS = 7 * 24 * 3600 * 1000
"""How long a named producer that nobody has open keeps its sequence."""

NUMBER_MAX = 1 << 62
"""Numbers of a client that are counted on stay below, so that they always fit the formats."""

DELIVERIES_MAX = 1 << 31
LEASE_MAX_MS = 24 * 3600 * 1000
PREFETCH_MAX = 1 << 20
CONSUMERS_MAX = 10_000
TEMPORARIES_MAX = 10_000
PRODUCERS_MAX = 1_000
NAME_MAX = 1024
ROWS_A_CHUNK = 1024
KNOWN_MAX = 65536
SLOW = ("spill", "disconnect", "drop")

# What a deadline in the heap is about.
_SESSION, _SERVING, _PRODUCER = range(3)


class Broker:
    def __init__(self, retain: int | None = 0) -> None:
        """`retain`: how many of the last messages stay readable although nobody must have them;
        None: all."""
        self._retain = retain
        self._reset()

    def _reset(self) -> None:
        self.position = 0  # of the last accepted message
        self.digest = 0
        self.stamp = 0
        self.sessions: dict[int, Session] = {}
        self.topics = Topics()
        self.queues: dict[str, Queue] = {}
        self._client_ids: dict[str, int] = {}  # -> session
        self._producers: dict[str, Producer] = {}
        self._serving: dict[int, Serving] = {}
        self._events: list[ev.Event] = []
        self._deadlines: list[tuple[int, int, int | str]] = []  # a heap; may hold stale ones
        self._known: dict[str, str] = {}  # destination -> why nobody can send there; a cache

    # -- The machine ---------------------------------------------------------------------------

    def apply(self, entry: Entry) -> list[Accepted]:
        self.stamp = entry.stamp
        accepted: list[Accepted] = []
        told = len(self._events)
        if entry.kind == Kind.EPOCH:
            self._renew_all()
        else:
            self._expire()
        if entry.kind == Kind.PACK:
            if command.is_command(entry.payload):
                self._commands(entry.payload)
            else:
                accepted = self._pack(entry)
        self._chain(entry, self._events[told:])
        return accepted

    def _chain(self, entry: Entry, events: list[ev.Event]) -> None:
        mark = (self.digest, entry.index, entry.epoch, entry.stamp, self.position, events)
        self.digest = google_crc32c.value(_encoder.encode(mark))

    def take_events(self) -> tuple[ev.Event, ...]:
        events, self._events = tuple(self._events), []
        return events

    def next_deadline(self) -> int | None:
        while self._deadlines:
            due, kind, key = self._deadlines[0]
            if self._due_of(kind, key) == due:
                return due
            heapq.heappop(self._deadlines)  # it was moved or is gone
        return None

    def live(self) -> tuple[tuple[int, int], ...]:
        ranges = [*self.topics.live()]
        for queue in self.queues.values():
            ranges += queue.live()
        first = 1 if self._retain is None else max(1, self.position - self._retain + 1)
        if first <= self.position:
            ranges.append((first, self.position))
        return coarse(ranges)

    # -- For the servers of clients ------------------------------------------------------------

    def last_sequence(self, session: int, producer: int = 0) -> int:
        """Up to where this producer's messages are settled; 0 if it is not known."""
        one = self.sessions.get(session)
        return one.streams.get(producer, 0) if one is not None else 0

    def subscription(self, consumer: Consumer) -> Subscription | None:
        return (
            self.topics.subscriptions.get(consumer.subscription) if consumer.subscription else None
        )

    def assigned(self, consumer: Consumer) -> list[Span]:
        """What a consumer of a queue has and has not acknowledged."""
        queue = self.queues.get(consumer.destination)
        taker = queue.takers.get((consumer.session, consumer.number)) if queue else None
        return list(taker.assigned) if taker is not None else []

    # -- Messages ------------------------------------------------------------------------------

    def _pack(self, entry: Entry) -> list[Accepted]:
        try:
            header = pack.read_header(entry.payload)
        except FormatError:
            return []  # servers check what clients send; what slips in is nobody's message
        session = self.sessions.get(header.session)
        last = session.streams.get(header.producer) if session is not None else None
        if session is None or last is None or header.sequence != last + 1:
            return []  # a duplicate, or behind a gap, or of a session that is over
        if header.last > NUMBER_MAX:
            return []
        session.streams[header.producer] = header.last
        if header.producer and header.producer not in session.names:
            text = f"producer {header.producer} was opened by another connection meanwhile"
            self._refuse(session, header, IllegalStateError.__name__, text)
            return []
        if header.producer:
            self._producers[session.names[header.producer]].last = header.last
        wrong = self._why_not(header.destination)
        if wrong:
            self._refuse(session, header, InvalidDestinationError.__name__, wrong)
            return []
        first = self.position + 1
        self.position += header.count
        if names.is_queue(header.destination):
            queue = self._queue(header.destination)
            queue.put(first, self.position)
            self._assign(queue)
        else:
            self.topics.published(header.destination, self.position)
        return [
            Accepted(
                entry.index,
                first,
                header.count,
                entry.stamp,
                0,
                header.destination,
                header.session,
                header.sequence,
                header.producer,
            )
        ]

    def _why_not(self, destination: str) -> str:
        """Why nothing can be sent there; empty: it can."""
        wrong = self._known.get(destination)
        if wrong is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            wrong = self._known[destination] = self._check_sendable(destination)
        return wrong

    def _check_sendable(self, destination: str) -> str:
        try:
            _, name = names.parse(destination)
        except InvalidDestinationError as error:
            return str(error)
        if names.is_pattern(name):
            return f"{destination!r} has a wildcard: it can be subscribed to, not sent to"
        if names.is_temporary(destination) and not self._owner_of(destination):
            return f"{destination!r} does not exist: it was deleted, or its connection has ended"
        return ""

    def _owner_of(self, temporary: str) -> Session | None:
        try:
            session = self.sessions.get(names.owner(temporary))
        except InvalidDestinationError:
            return None
        return session if session is not None and temporary in session.temporaries else None

    def _refuse(self, session: Session, header: pack.PackHeader, code: str, text: str) -> None:
        refusal = cw.NotPublished(header.producer, header.sequence, header.last, code, text)
        session.refuse(refusal)
        self._events.append(ev.PackRefused(session.number, refusal))

    # -- Queues --------------------------------------------------------------------------------

    def _queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
        return queue

    def _assign(self, queue: Queue) -> None:
        for (session, consumer), (first, last, deliveries) in queue.assign():
            self._events.append(ev.Assigned(session, consumer, first, last, deliveries))

    def _settle_queue(self, queue: Queue) -> None:
        """After something came back or somebody left."""
        self._assign(queue)
        if queue.idle:
            del self.queues[queue.name]

    # -- Commands ------------------------------------------------------------------------------

    def _commands(self, payload: bytes) -> None:
        try:
            commands = command.decode(payload)
        except FormatError:
            return  # only servers write commands; a foreign one is not worth a crash
        for one in commands:
            self._COMMANDS[type(one)](self, one)

    def _attach(self, m: command.Attach) -> None:
        session = self.sessions.get(m.session)
        code, text = "", ""
        if session is None:
            code, text = self._why_not_open(m)
        elif session.token != m.token:
            code, text = "SecurityError", "this session belongs to somebody else"
        elif m.attempt < session.attempt:
            return  # the client has gone elsewhere since
        elif (session.attempt, session.node, session.life, session.link) == (
            m.attempt,
            m.node,
            m.life,
            m.link,
        ):
            self._tell_attached(session)  # it was proposed again
            return
        if code:
            self._events.append(ev.AttachRefused(m.session, m.node, m.life, m.link, code, text))
            return
        self._heard(m.node, m.life)
        if session is None:
            session = self._open(m)
        session.attachment += 1
        session.attempt, session.node, session.life, session.link = (
            m.attempt,
            m.node,
            m.life,
            m.link,
        )
        session.expires = None
        for producer, sequence in m.sequences:
            if producer in session.streams:
                # What was answered early and then lost does not come again (non-persistent).
                last = min(sequence - 1, NUMBER_MAX)
                session.streams[producer] = max(session.streams[producer], last)
        self._tell_attached(session)

    def _tell_attached(self, s: Session) -> None:
        self._events.append(ev.Attached(s.number, s.attachment, s.node, s.life, s.link))

    def _why_not_open(self, m: command.Attach) -> tuple[str, str]:
        if m.resume:
            return "ConnectionLostError", (
                "the session has ended: its lease ran out before the client came back, or another "
                "connection took its client id. Connect anew"
            )
        owner = self.sessions.get(self._client_ids.get(m.client_id, 0))
        if owner is not None and not owner.detached:
            return "InvalidClientIDError", (
                f"client id {m.client_id!r} is in use by another connection. Nothing was changed. "
                "Choose another, or close that connection first"
            )
        if m.session <= 0 or not 0 < m.lease_ms <= LEASE_MAX_MS or len(m.client_id) > NAME_MAX:
            return "ResourceAllocationError", (
                f"a lease has 1 to {LEASE_MAX_MS} ms, not {m.lease_ms}; "
                f"a client id at most {NAME_MAX} characters, not {len(m.client_id)}"
            )
        return "", ""

    def _open(self, m: command.Attach) -> Session:
        owner = self.sessions.get(self._client_ids.get(m.client_id, 0))
        if owner is not None:
            self._lose(owner, f"another connection has taken its client id {m.client_id!r}")
        session = self.sessions[m.session] = Session(m.session, m.token, m.client_id, m.lease_ms)
        if m.client_id:
            self._client_ids[m.client_id] = m.session
        return session

    def _detach(self, m: command.Detach) -> None:
        session = self.sessions.get(m.session)
        if session is not None and session.attachment == m.attachment and not session.detached:
            self._begin_lease(session)

    def _begin_lease(self, session: Session) -> None:
        session.expires = self.stamp + session.lease_ms
        heapq.heappush(self._deadlines, (session.expires, _SESSION, session.number))

    def _renew(self, m: command.Renew) -> None:
        self._heard(m.node, m.life)

    def _heard(self, node: int, life: int) -> None:
        known = self._serving.get(node)
        if known is not None and known.life != life:
            self._detach_all(node, known.life)
        self._serving[node] = Serving(node, life, self.stamp)
        heapq.heappush(self._deadlines, (self.stamp + GRACE_MS, _SERVING, node))

    def _detach_all(self, node: int, life: int) -> None:
        for session in self.sessions.values():
            if session.node == node and session.life == life and not session.detached:
                self._begin_lease(session)

    def _acks(self, m: command.Acks) -> None:
        for number, rows in m.rows:
            session = self.sessions.get(number)
            if session is not None:
                for row in rows:
                    self._acknowledge(session, row)
        self._events.append(ev.AcksDone(m.node, m.life, m.batch))

    def _acknowledge(self, session: Session, row: cw.AckRow) -> None:
        consumer = session.consumers.get(row.consumer)
        if consumer is None or not 0 <= row.first <= row.last <= self.position:
            return
        subscription = self.subscription(consumer)
        if subscription is not None:
            if subscription.consumer not in (None, (session.number, consumer.number)):
                return  # somebody else is served from this cursor now
            subscription.acknowledge(row.first, row.last)
            consumer.kept.take(row.first, row.last)
        elif (queue := self.queues.get(consumer.destination)) is not None:
            taker = queue.takers.get((session.number, consumer.number))
            if taker is not None and taker.assigned.take(row.first, row.last):
                self._assign(queue)
        self._drop_if_done(session, consumer)

    # -- What clients ask for ------------------------------------------------------------------

    def _request(self, m: command.Request) -> None:
        session = self.sessions.get(m.session)
        if session is None or m.number not in (session.request, session.request + 1):
            return
        if m.number == session.request + 1:
            session.request = m.number
            session.result = self._answer(session, m)
        self._events.append(ev.Answered(session.number, session.result))
        if isinstance(m.body, cw.CloseSession):
            self._close(session, m.body.kept)

    def _answer(self, session: Session, m: command.Request) -> cw.Result:
        try:
            value = self._REQUESTS[type(m.body)](self, session, m.body)
        except JMSError as error:
            return cw.Result(m.number, type(error).__name__, str(error))
        return cw.Result(m.number, value=value)

    def _open_consumer(self, session: Session, m: cw.OpenConsumer) -> int:
        names.parse(m.destination)
        if m.consumer in session.consumers:
            raise IllegalStateError(f"consumer {m.consumer} is open")
        if len(session.consumers) >= CONSUMERS_MAX:
            raise ResourceAllocationError(f"a connection has at most {CONSUMERS_MAX} consumers")
        if not 1 <= m.prefetch <= PREFETCH_MAX:
            raise ResourceAllocationError(f"prefetch is 1 to {PREFETCH_MAX}, not {m.prefetch}")
        if m.slow not in SLOW:
            raise IllegalStateError(f"slow={m.slow!r} is not one of {', '.join(SLOW)}")
        if m.selector:
            raise InvalidSelectorError("this server does not know selectors yet")
        if m.no_local:
            raise IllegalStateError("this server does not know no_local yet")
        if names.is_temporary(m.destination) and self._owner_of(m.destination) is not session:
            raise InvalidDestinationError(
                f"{m.destination!r} belongs to another connection, or is gone; only the connection "
                "that created it may consume from it"
            )
        if names.is_queue(m.destination):
            return self._open_queue_consumer(session, m)
        return self._open_topic_consumer(session, m)

    def _open_queue_consumer(self, session: Session, m: cw.OpenConsumer) -> int:
        if m.durable:
            raise InvalidDestinationError(f"{m.destination!r} is a queue: it needs no subscription")
        session.consumers[m.consumer] = Consumer(
            session.number, m.consumer, m.destination, m.prefetch, m.slow, None
        )
        queue = self._queue(m.destination)
        queue.takers[session.number, m.consumer] = QueueConsumer(m.prefetch)
        self._assign(queue)
        return 0

    def _open_topic_consumer(self, session: Session, m: cw.OpenConsumer) -> int:
        if m.durable:
            subscription = self._durable(session, m)
        else:
            key = (f"{session.number:x}", f"{m.consumer:x}")
            subscription = Subscription(key, False, m.destination, m.selector, self.position)
            self.topics.add(subscription)
        subscription.consumer = (session.number, m.consumer)
        session.consumers[m.consumer] = Consumer(
            session.number, m.consumer, m.destination, m.prefetch, m.slow, subscription.key
        )
        return subscription.floor

    def _durable(self, session: Session, m: cw.OpenConsumer) -> Subscription:
        key = self._durable_key(session, m.durable)
        known = self.topics.subscriptions.get(key)
        if known is not None and known.consumer is not None:
            raise IllegalStateError(
                f"the durable subscription {m.durable!r} is active. Close its consumer first"
            )
        if known is None or (known.pattern, known.selector) != (m.destination, m.selector):
            # Re-created with another topic it is a new one, and the old backlog is gone.
            known = Subscription(key, True, m.destination, m.selector, self.position)
            self._forget_kept(key)
            self.topics.add(known)
        return known

    def _durable_key(self, session: Session, name: str) -> Key:
        if not session.client_id:
            raise IllegalStateError(
                f"the durable subscription {name!r} needs a client id: connect(client_id=...)"
            )
        if len(name) > NAME_MAX:
            raise IllegalStateError(f"a subscription's name has at most {NAME_MAX} characters")
        # A blank cannot be in the number of a session: the two kinds of key do not meet.
        return (f"{session.client_id} ", name)

    def _forget_kept(self, key: Key) -> None:
        """Closed consumers of a subscription that is replaced or gone have nothing to keep."""
        for session in self.sessions.values():
            for consumer in list(session.consumers.values()):
                if consumer.closed and consumer.subscription == key:
                    del session.consumers[consumer.number]

    def _close_consumer(self, session: Session, m: cw.CloseConsumer) -> int:
        consumer = session.consumers.get(m.consumer)
        if consumer is not None and not consumer.closed:
            self._shut(session, consumer, [k for k in m.kept if k.consumer == m.consumer])
        return 0

    def _shut(self, session: Session, consumer: Consumer, kept: list[cw.Kept]) -> None:
        """Nothing more is for this consumer; what it has not seen goes back as it was."""
        consumer.closed = True
        subscription = self.subscription(consumer)
        if subscription is not None:
            subscription.consumer = None
            if subscription.durable:
                consumer.kept = self._valid(kept)
                subscription.give_back(list(consumer.kept))
            else:
                self.topics.remove(subscription.key)
        elif (queue := self.queues.get(consumer.destination)) is not None:
            taker = queue.takers[session.number, consumer.number]
            taker.closed = True
            stays = [span for k in kept for span in _counted(k, taker.assigned)]
            queue.give_back([(one, two, d - 1) for one, two, d in taker.assigned.clear()])
            for span in stays:
                taker.assigned.add(*span)
        self._drop_if_done(session, consumer)

    def _valid(self, kept: list[cw.Kept]) -> Spans:
        spans = Spans()
        for k in kept:
            if 0 < k.first <= k.last <= self.position:
                spans.take(k.first, k.last)
                spans.add(k.first, k.last, _bounded(k.deliveries))
        return spans

    def _drop_if_done(self, session: Session, consumer: Consumer) -> None:
        """A closed consumer stays only while something of it may yet be acknowledged."""
        if not consumer.closed or consumer.kept:
            return
        if consumer.subscription is None:
            queue = self.queues.get(consumer.destination)
            taker = queue.takers.get((session.number, consumer.number)) if queue else None
            if queue is not None and taker is not None:
                if taker.assigned:
                    self._assign(queue)
                    return
                del queue.takers[session.number, consumer.number]
                self._settle_queue(queue)
        del session.consumers[consumer.number]

    def _return(self, session: Session, m: cw.Return) -> int:
        for k in m.kept:
            consumer = session.consumers.get(k.consumer)
            if consumer is not None:
                self._give_back(session, consumer, k)
        return 0

    def _give_back(self, session: Session, consumer: Consumer, k: cw.Kept) -> None:
        subscription = self.subscription(consumer)
        if subscription is not None:
            subscription.give_back(_counted(k, consumer.kept))
        elif (queue := self.queues.get(consumer.destination)) is not None:
            taker = queue.takers[session.number, consumer.number]
            queue.give_back(_counted(k, taker.assigned))
            self._assign(queue)
        self._drop_if_done(session, consumer)

    def _unsubscribe(self, session: Session, m: cw.Unsubscribe) -> int:
        key = self._durable_key(session, m.name)
        subscription = self.topics.subscriptions.get(key)
        if subscription is None:
            raise InvalidDestinationError(f"there is no durable subscription {m.name!r}")
        if subscription.consumer is not None:
            raise IllegalStateError(
                f"the durable subscription {m.name!r} is active. Close its consumer first"
            )
        self.topics.remove(key)
        self._forget_kept(key)
        return 0

    def _create_temporary(self, session: Session, m: cw.CreateTemporary) -> int:
        names.parse(m.destination)
        if not names.is_temporary(m.destination) or names.owner(m.destination) != session.number:
            raise InvalidDestinationError(f"{m.destination!r} is not this connection's to create")
        if len(session.temporaries) >= TEMPORARIES_MAX:
            raise ResourceAllocationError(
                f"a connection has at most {TEMPORARIES_MAX} temporary destinations"
            )
        session.temporaries[m.destination] = None
        self._known.pop(m.destination, None)
        return 0

    def _delete_temporary(self, session: Session, m: cw.DeleteTemporary) -> int:
        if m.destination not in session.temporaries:
            raise InvalidDestinationError(f"{m.destination!r} does not exist here")
        users = [c for c in session.consumers.values() if c.destination == m.destination]
        if any(not consumer.closed for consumer in users):
            raise IllegalStateError(f"{m.destination!r} has consumers. Close them first")
        for consumer in users:
            del session.consumers[consumer.number]
        self._drop_temporary(session, m.destination)
        return 0

    def _drop_temporary(self, session: Session, destination: str) -> None:
        del session.temporaries[destination]
        self._known.pop(destination, None)
        self.queues.pop(destination, None)
        self.topics.forget(destination)

    def _open_producer(self, session: Session, m: cw.OpenProducer) -> int:
        if not 0 < len(m.name) <= NAME_MAX:
            raise IllegalStateError(f"a producer's name has 1 to {NAME_MAX} characters")
        if m.producer <= 0 or m.producer in session.streams:
            raise IllegalStateError(f"producer {m.producer} cannot be opened")
        if len(session.streams) > PRODUCERS_MAX:
            raise ResourceAllocationError(f"a connection has at most {PRODUCERS_MAX} producers")
        known = self._producers.setdefault(m.name, Producer(m.name, 0, 0, 0, 0))
        owner = self.sessions.get(known.session)
        if owner is not None:
            if not owner.detached or owner is session:
                raise IllegalStateError(f"the producer {m.name!r} is open in another connection")
            del owner.names[known.number]  # from now on, what it sends is refused
        known.session, known.number = session.number, m.producer
        session.streams[m.producer] = known.last
        session.names[m.producer] = m.name
        return known.last

    # -- The end of sessions -------------------------------------------------------------------

    def _close_session(self, session: Session, m: cw.CloseSession) -> int:
        return 0  # after it was answered (`_request`)

    def _close(self, session: Session, kept: tuple[cw.Kept, ...]) -> None:
        """In order: only what the application saw and did not acknowledge is flagged."""
        for consumer in list(session.consumers.values()):
            if not consumer.closed:
                self._shut(session, consumer, [k for k in kept if k.consumer == consumer.number])
        for consumer in list(session.consumers.values()):
            self._let_go(session, consumer)
        self._end(session, "", "")

    def _lose(self, session: Session, why: str) -> None:
        """Without a word from the client: whatever was sent to it may have been seen."""
        for consumer in list(session.consumers.values()):
            subscription = self.subscription(consumer)
            if subscription is None:
                consumer.closed = True
                self._let_go(session, consumer)
            elif consumer.closed:
                del session.consumers[consumer.number]
            else:
                subscription.consumer = None
                if subscription.durable:
                    subscription.lose(self.position, consumer.prefetch)
                else:
                    self.topics.remove(subscription.key)
                del session.consumers[consumer.number]
        self._end(session, "ConnectionLostError", why)

    def _let_go(self, session: Session, consumer: Consumer) -> None:
        """Whatever a closed consumer still has goes back, and counts as delivered."""
        del session.consumers[consumer.number]
        queue = self.queues.get(consumer.destination) if consumer.subscription is None else None
        if queue is not None:
            taker = queue.takers.pop((session.number, consumer.number))
            queue.give_back(taker.assigned.clear())
            self._settle_queue(queue)

    def _end(self, session: Session, code: str, text: str) -> None:
        for destination in list(session.temporaries):
            self._drop_temporary(session, destination)
        for name in session.names.values():
            producer = self._producers[name]
            producer.session, producer.number = 0, 0
            producer.expires = self.stamp + PRODUCER_RETENTION_MS
            heapq.heappush(self._deadlines, (producer.expires, _PRODUCER, name))
        if self._client_ids.get(session.client_id) == session.number:
            del self._client_ids[session.client_id]
        del self.sessions[session.number]
        self._events.append(ev.SessionEnded(session.number, code, text))

    # -- Time ----------------------------------------------------------------------------------

    def _expire(self) -> None:
        while (due := self.next_deadline()) is not None and due <= self.stamp:
            _, kind, key = heapq.heappop(self._deadlines)
            if kind == _SESSION:
                session = self.sessions[int(key)]
                self._lose(
                    session, f"no connection for the {session.lease_ms / 1000:g} s of its lease"
                )
            elif kind == _SERVING:
                silent = self._serving.pop(int(key))
                self._detach_all(silent.node, silent.life)
            else:
                del self._producers[str(key)]

    def _due_of(self, kind: int, key: int | str) -> int | None:
        """When this deadline is now; None: no longer at all."""
        if kind == _SESSION:
            session = self.sessions.get(int(key))
            return session.expires if session is not None else None
        if kind == _SERVING:
            serving = self._serving.get(int(key))
            return serving.renewed + GRACE_MS if serving is not None else None
        producer = self._producers.get(str(key))
        return producer.expires if producer is not None and not producer.session else None

    def _renew_all(self) -> None:
        for session in self.sessions.values():
            if session.detached:
                self._begin_lease(session)
        for serving in list(self._serving.values()):
            self._heard(serving.node, serving.life)

    # -- Snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> Iterator[bytes]:
        """In the order in which things came, which decides whose turn it is."""
        # Made at once, for the state goes on changing while it is being written.
        return iter([_encoder.encode(chunk) for chunk in self._chunks()])

    def _chunks(self) -> Iterator[tuple[str, list[Any]]]:
        yield "head", [self.position, self.digest, self.stamp]
        parts: tuple[tuple[str, Iterator[Any]], ...] = (
            ("session", (s.state() for s in self.sessions.values())),
            ("subscription", (s.state() for s in self.topics.subscriptions.values())),
            ("last", iter(self.topics.last.items())),
            ("queue", (q.state() for q in self.queues.values())),
            ("waiting", ((q.name, *span) for q in self.queues.values() for span in q.waiting)),
            ("producer", iter(self._producers.values())),
            ("serving", iter(self._serving.values())),
        )
        for part, rows in parts:
            yield from ((part, chunk) for chunk in _some_at_a_time(rows))

    def restore(self, chunks: Iterator[bytes]) -> None:
        self._reset()
        for chunk in chunks:
            part, rows = msgspec.msgpack.decode(chunk)
            self._RESTORE[part](self, rows)
        self._client_ids = {s.client_id: s.number for s in self.sessions.values() if s.client_id}
        self._deadlines = [
            *((s.expires, _SESSION, s.number) for s in self.sessions.values() if s.expires),
            *((s.renewed + GRACE_MS, _SERVING, s.node) for s in self._serving.values()),
            *((p.expires, _PRODUCER, p.name) for p in self._producers.values() if not p.session),
        ]
        heapq.heapify(self._deadlines)

    def _restore_head(self, rows: list[Any]) -> None:
        self.position, self.digest, self.stamp = rows

    def _restore_sessions(self, rows: list[Any]) -> None:
        for row in rows:
            session = Session.from_state(row)
            self.sessions[session.number] = session

    def _restore_subscriptions(self, rows: list[Any]) -> None:
        for row in rows:
            self.topics.add(Subscription.from_state(row))

    def _restore_last(self, rows: list[Any]) -> None:
        self.topics.last.update(rows)

    def _restore_queues(self, rows: list[Any]) -> None:
        for row in rows:
            queue = Queue.from_state(row)
            self.queues[queue.name] = queue

    def _restore_waiting(self, rows: list[Any]) -> None:
        for name, first, last, deliveries in rows:
            queue = self.queues[name]
            queue.waiting.append((first, last, deliveries))
            queue.waiting_count += last - first + 1

    def _restore_producers(self, rows: list[Any]) -> None:
        for producer in msgspec.convert(rows, list[Producer]):
            self._producers[producer.name] = producer

    def _restore_serving(self, rows: list[Any]) -> None:
        for serving in msgspec.convert(rows, list[Serving]):
            self._serving[serving.node] = serving

    _COMMANDS: ClassVar[dict[type, Callable[[Broker, Any], None]]] = {
        command.Attach: _attach,
        command.Detach: _detach,
        command.Request: _request,
        command.Acks: _acks,
        command.Renew: _renew,
    }
    _REQUESTS: ClassVar[dict[type, Callable[[Broker, Session, Any], int]]] = {
        cw.OpenConsumer: _open_consumer,
        cw.CloseConsumer: _close_consumer,
        cw.Return: _return,
        cw.Unsubscribe: _unsubscribe,
        cw.CreateTemporary: _create_temporary,
        cw.DeleteTemporary: _delete_temporary,
        cw.OpenProducer: _open_producer,
        cw.CloseSession: _close_session,
    }
    _RESTORE: ClassVar[dict[str, Callable[[Broker, list[Any]], None]]] = {
        "head": _restore_head,
        "session": _restore_sessions,
        "subscription": _restore_subscriptions,
        "last": _restore_last,
        "queue": _restore_queues,
        "waiting": _restore_waiting,
        "producer": _restore_producers,
        "serving": _restore_serving,
    }


_encoder = msgspec.msgpack.Encoder()


def _counted(k: cw.Kept, spans: Spans) -> list[Span]:
    """Take what the application saw out of `spans`, with the count that it saw."""
    deliveries = _bounded(k.deliveries)
    return [(one, two, max(d, deliveries)) for one, two, d in spans.take(k.first, k.last)]


def _bounded(deliveries: int) -> int:
    return max(1, min(deliveries, DELIVERIES_MAX))


def _some_at_a_time(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(rows, ROWS_A_CHUNK)):
        yield some
