"""What the broker knows, its way into a snapshot and back, and its next deadline.

Only data and what follows from it; the rules are in the modules beside it (`lifecycle.py`,
`consumers/`, `requests.py`), which the machine calls (`broker/machine/machine.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

import msgspec

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.groups.group import Group, Past
from antiphon.broker.machine.last_values import LastValues
from antiphon.broker.machine.pending_packs import Parked, Staged
from antiphon.broker.machine.queues.lanes import Special
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.ranges import Span, coarse
from antiphon.broker.machine.sessions.session import Consumer, Life, Producer, Serving, Session
from antiphon.broker.machine.topics import Subscription, Topics
from antiphon.errors import InvalidDestinationError
from antiphon.log.effects import Accepted
from antiphon.model import destinations as names

GRACE_MS = 3000
"""A server that has not renewed for so long has lost its clients."""

ROWS_A_CHUNK = 1024

# What a deadline is about.
SESSION, SERVING, PRODUCER, GROUP, EXPIRY, DELAYED, STAGED, HELD = range(8)

MATCHES_MAX = 65536

REPLICATED, LOCAL = "replicated", "local"

encoder = msgspec.msgpack.Encoder()


class State:
    def __init__(self, retain: int | None = 0) -> None:
        """`retain`: how many of the last messages stay readable although nobody must have them;
        None: all."""
        self._retain = retain
        self.dropped = 0  # messages to destinations that had ended; no part of the state
        self._reset()

    def _reset(self) -> None:
        self.position = 0  # of the last accepted message
        self.digest = 0
        self.stamp = 0
        self.index = 0  # of the entry that is being applied
        self.accepted: list[Accepted] = []  # by that entry
        self.sessions: dict[int, Session] = {}
        self.topics = Topics()
        self.last_values = LastValues()
        self.queues: dict[str, Queue] = {}
        self.groups: dict[str, Group] = {}
        # Whose events this entry has acknowledged, or that somebody has left: see `groups.settle`.
        self.told_groups: dict[str, None] = {}
        self.past_groups: dict[str, Past] = {}  # by destination, the last to be forgotten last
        self.past_floor = Past(0, 0)  # above which all others begin
        self.client_ids: dict[str, int] = {}  # -> session
        self.ended: dict[int, tuple[int, int]] = {}  # session -> last attempt, remembered until
        self.producers: dict[str, Producer] = {}
        self.delayed: dict[int, tuple[int, Parked]] = {}  # entry -> due, its pack
        self.staged: dict[str, Staged] = {}  # by handle
        self.parked_count = 0  # of packs that are delayed or staged, also by sessions
        self.tokens: dict[str, int] = {}  # of commits -> remembered until
        self._shared: dict[str, tuple[Queue, ...]] = {}  # topic -> shared subscriptions; a cache
        self.serving: dict[int, Serving] = {}
        self.contexts = ""  # REPLICATED or LOCAL, from the first client on
        self.lives: dict[int, Life] = {}  # of servers with local contexts
        self.incarnations: dict[int, int] = {}  # of the servers, by node
        self.events: list[ev.Event] = []
        self.deadlines: list[tuple[int, int, int | str]] = []  # a heap; may hold stale ones
        self._later: dict[str, None] | None = None  # queues to be assigned from `together`
        self.unsendable: dict[str, str] = {}  # destination -> why nobody can send there; a cache

    def next_deadline(self) -> int | None:
        while self.deadlines:
            due, kind, key = self.deadlines[0]
            if self._due_of(kind, key) == due:
                return due
            heapq.heappop(self.deadlines)  # it was moved or is gone
            if kind == EXPIRY and key in self.queues:
                self._watch_anew(self.queues[str(key)], due)
        return None

    def _due_of(self, kind: int, key: int | str) -> int | None:
        """When this deadline is now; None: no longer at all."""
        if kind == SESSION:
            session = self.sessions.get(int(key))
            return session.expires if session is not None else None
        if kind == SERVING:
            serving = self.serving.get(int(key))
            return serving.renewed + GRACE_MS if serving is not None else None
        if kind == GROUP:
            destination, _, name = str(key).partition(" ")
            group = self.groups.get(destination)
            return group.due(name) if group is not None else None
        if kind == EXPIRY:
            queue = self.queues.get(str(key))
            return queue.next_expiry() if queue is not None else None
        if kind == HELD:
            queue = self.queues.get(str(key))
            return queue.next_release if queue is not None else None
        if kind == DELAYED:
            return self.delayed[int(key)][0] if key in self.delayed else None
        if kind == STAGED:
            return self.staged[str(key)].expires if key in self.staged else None
        producer = self.producers.get(str(key))
        return producer.expires if producer is not None and not producer.session else None

    def live(self) -> tuple[tuple[int, int], ...]:
        ranges = [*self.topics.live(), *self.last_values.live()]
        for queue in self.queues.values():
            ranges += queue.live()
        first = 1 if self._retain is None else max(1, self.position - self._retain + 1)
        if first <= self.position:
            ranges.append((first, self.position))
        return coarse(ranges)

    def parked(self) -> tuple[int, ...]:
        """Entries with packs that are not visible yet."""
        staged = (p for some in self.staged.values() for p in some.packs)
        own = (p for session in self.sessions.values() for p in session.staged.values())
        return (*self.delayed, *(p.index for p in staged), *(p.index for p in own))

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

    def queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
        return queue

    def assign(self, queue: Queue) -> None:
        if self._later is not None:
            self._later[queue.name] = None
            return
        for (session, consumer), (first, last, deliveries) in queue.assign(self.stamp):
            self.events.append(ev.Assigned(session, consumer, first, last, deliveries))
        self._watch(queue)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What comes, or comes back, meanwhile is handed out at the end, in its order: what was
        seen before what was not, greater priorities first, whoever had it."""
        later: dict[str, None] = {}
        self._later = later
        try:
            yield
        finally:
            self._later = None
        for name in later:
            if name in self.queues:
                self.settle(self.queues[name])

    def _watch(self, queue: Queue) -> None:
        """See to it that its messages expire in time."""
        due = queue.next_expiry()
        if due is not None and (queue.watched is None or due < queue.watched):
            queue.watched = due
            heapq.heappush(self.deadlines, (due, EXPIRY, queue.name))

    def _watch_anew(self, queue: Queue, passed: int) -> None:
        """There is no longer a deadline at this stamp."""
        if queue.watched == passed:
            queue.watched = None
            self._watch(queue)

    def shared_by(self, destination: str) -> tuple[Queue, ...]:
        """The shared subscriptions of a topic."""
        found = self._shared.get(destination)
        if found is None:
            if len(self._shared) >= MATCHES_MAX:
                self._shared.clear()
            some = (q for q in self.queues.values() if q.pattern)
            found = tuple(q for q in some if names.matcher(q.pattern)(destination))
            self._shared[destination] = found
        return found

    def is_shared(self, destination: str) -> bool:
        """There is a shared subscription to this very topic."""
        return any(queue.pattern == destination for queue in self.shared_by(destination))

    def shared_changed(self) -> None:
        """A shared subscription has begun or ended."""
        self._shared.clear()

    def settle(self, queue: Queue) -> None:
        """After something came back or somebody left."""
        self.assign(queue)
        if queue.idle:
            self.drop_queue(queue.name)

    def drop_queue(self, name: str) -> None:
        gone = self.queues.pop(name, None)
        if gone is not None and gone.pattern:
            self.shared_changed()

    def owner_of(self, temporary: str) -> Session | None:
        try:
            session = self.sessions.get(names.owner(temporary))
        except InvalidDestinationError:
            return None
        return session if session is not None and temporary in session.temporaries else None

    def tell_group(self, destination: str) -> None:
        self.events.append(ev.GroupChanged(destination))

    def take_events(self) -> tuple[ev.Event, ...]:
        events, self.events = tuple(self.events), []
        return events

    def snapshot(self) -> Iterator[bytes]:
        """In the order in which things came, which decides whose turn it is."""
        # Made at once, for the state goes on changing while it is being written.
        return iter([encoder.encode(chunk) for chunk in self._chunks()])

    def _chunks(self) -> Iterator[tuple[str, list[Any]]]:
        yield "head", [self.position, self.digest, self.stamp, self.contexts]
        parts: tuple[tuple[str, Iterator[Any]], ...] = (
            ("session", (s.state() for s in self.sessions.values())),
            ("subscription", (s.state() for s in self.topics.subscriptions.values())),
            ("last", iter(self.topics.last.items())),
            ("last value topic", self.last_values.topics()),
            ("last value", self.last_values.rows()),
            ("queue", (q.state() for q in self.queues.values())),
            ("waiting", ((q.name, *one) for q in self.queues.values() for one in q.waiting())),
            ("held", ((q.name, *one) for q in self.queues.values() for one in sorted(q.held))),
            ("special", ((q.name, *one) for q in self.queues.values() for one in q.special)),
            ("reason", ((q.name, *one) for q in self.queues.values() for one in q.reasons)),
            ("delayed", iter(self.delayed.values())),
            ("parked", ((s.number, p) for s in self.sessions.values() for p in s.staged.values())),
            ("staged", ((handle, some.expires) for handle, some in self.staged.items())),
            ("staged pack", ((handle, p) for handle, s in self.staged.items() for p in s.packs)),
            ("token", iter(self.tokens.items())),
            ("group", (g.state() for g in self.groups.values())),
            ("past group", ((name, *past) for name, past in self.past_groups.items())),
            ("past floor", iter([self.past_floor] if self.past_floor.view else [])),
            ("producer", iter(self.producers.values())),
            ("serving", iter(self.serving.values())),
            ("life", iter(self.lives.values())),
            ("incarnation", iter(self.incarnations.items())),
            ("ended", iter(self.ended.items())),
        )
        for part, rows in parts:
            yield from ((part, chunk) for chunk in _some_at_a_time(rows))

    def restore(self, chunks: Iterator[bytes]) -> None:
        self._reset()
        for chunk in chunks:
            part, rows = msgspec.msgpack.decode(chunk)
            self._RESTORE[part](self, rows)
        self.client_ids = {s.client_id: s.number for s in self.sessions.values() if s.client_id}
        self.deadlines = [
            *((s.expires, SESSION, s.number) for s in self.sessions.values() if s.expires),
            *((s.renewed + GRACE_MS, SERVING, s.node) for s in self.serving.values()),
            *((p.expires, PRODUCER, p.name) for p in self.producers.values() if not p.session),
            *((due, DELAYED, index) for index, (due, _) in self.delayed.items()),
            *((some.expires, STAGED, handle) for handle, some in self.staged.items()),
            *(
                (due, HELD, queue.name)
                for queue in self.queues.values()
                if (due := queue.next_release) is not None
            ),
            *(
                (due, GROUP, f"{g.destination} {name}")
                for g in self.groups.values()
                for name in ("", *g.members)
                if (due := g.due(name)) is not None
            ),
        ]
        heapq.heapify(self.deadlines)
        for queue in self.queues.values():
            queue.expire(self.stamp)  # no message: only what consumers have may have expired
            self._watch(queue)
        self.parked_count = len(self.parked())

    def _restore_head(self, rows: list[Any]) -> None:
        self.position, self.digest, self.stamp, self.contexts = rows

    def _restore_sessions(self, rows: list[Any]) -> None:
        for row in rows:
            session = Session.from_state(row)
            self.sessions[session.number] = session

    def _restore_subscriptions(self, rows: list[Any]) -> None:
        for row in rows:
            self.topics.add(Subscription.from_state(row))

    def _restore_last(self, rows: list[Any]) -> None:
        self.topics.last.update(rows)

    def _restore_last_value_topics(self, rows: list[Any]) -> None:
        self.last_values.restore_topics(rows)

    def _restore_last_values(self, rows: list[Any]) -> None:
        self.last_values.restore_rows(rows)

    def _restore_queues(self, rows: list[Any]) -> None:
        for row in rows:
            queue = Queue.from_state(row)
            self.queues[queue.name] = queue

    def _restore_waiting(self, rows: list[Any]) -> None:
        for name, *waiting in rows:
            self.queues[name].restore_waiting(*waiting)

    def _restore_held(self, rows: list[Any]) -> None:
        for name, until, first, last, deliveries in rows:
            self.queues[name].hold(until, (first, last, deliveries))

    def _restore_special(self, rows: list[Any]) -> None:
        for name, first, last, special in rows:
            self.queues[name].restore_special(first, last, msgspec.convert(special, Special))

    def _restore_reasons(self, rows: list[Any]) -> None:
        for name, first, last, reason in rows:
            self.queues[name].reasons.add(first, last, reason)

    def _restore_delayed(self, rows: list[Any]) -> None:
        for due, parked in msgspec.convert(rows, list[tuple[int, Parked]]):
            self.delayed[parked.index] = (due, parked)

    def _restore_parked(self, rows: list[Any]) -> None:
        for session, parked in msgspec.convert(rows, list[tuple[int, Parked]]):
            self.sessions[session].stage(parked)

    def _restore_staged(self, rows: list[Any]) -> None:
        self.staged.update((handle, Staged(expires, [])) for handle, expires in rows)

    def _restore_staged_packs(self, rows: list[Any]) -> None:
        for handle, parked in msgspec.convert(rows, list[tuple[str, Parked]]):
            self.staged[handle].packs.append(parked)

    def _restore_tokens(self, rows: list[Any]) -> None:
        self.tokens.update(rows)

    def _restore_groups(self, rows: list[Any]) -> None:
        for row in rows:
            group = Group.from_state(row)
            self.groups[group.destination] = group
            if group.is_over:  # 0.1 forgot none
                self.told_groups[group.destination] = None

    def _restore_past_groups(self, rows: list[Any]) -> None:
        self.past_groups.update((name, Past(*past)) for name, *past in rows)

    def _restore_past_floor(self, rows: list[Any]) -> None:
        self.past_floor = Past(*rows[0])

    def _restore_producers(self, rows: list[Any]) -> None:
        for producer in msgspec.convert(rows, list[Producer]):
            self.producers[producer.name] = producer

    def _restore_serving(self, rows: list[Any]) -> None:
        for serving in msgspec.convert(rows, list[Serving]):
            self.serving[serving.node] = serving

    def _restore_lives(self, rows: list[Any]) -> None:
        for life in msgspec.convert(rows, list[Life]):
            self.lives[life.node] = life

    def _restore_incarnations(self, rows: list[Any]) -> None:
        self.incarnations.update(rows)

    def _restore_ended(self, rows: list[Any]) -> None:
        self.ended.update((session, (attempt, until)) for session, (attempt, until) in rows)

    _RESTORE: ClassVar[dict[str, Callable[[State, list[Any]], None]]] = {
        "head": _restore_head,
        "session": _restore_sessions,
        "subscription": _restore_subscriptions,
        "last": _restore_last,
        "last value topic": _restore_last_value_topics,
        "last value": _restore_last_values,
        "queue": _restore_queues,
        "waiting": _restore_waiting,
        "held": _restore_held,
        "special": _restore_special,
        "reason": _restore_reasons,
        "delayed": _restore_delayed,
        "parked": _restore_parked,
        "staged": _restore_staged,
        "staged pack": _restore_staged_packs,
        "token": _restore_tokens,
        "group": _restore_groups,
        "past group": _restore_past_groups,
        "past floor": _restore_past_floor,
        "producer": _restore_producers,
        "serving": _restore_serving,
        "life": _restore_lives,
        "incarnation": _restore_incarnations,
        "ended": _restore_ended,
    }


def _some_at_a_time(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(rows, ROWS_A_CHUNK)):
        yield some
