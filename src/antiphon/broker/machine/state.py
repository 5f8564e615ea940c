"""The state of the state machine: its parts, and results that need several of them.

Each part is written by the methods of its own class alone: `topics`, `sessions`, `groups` and so
on, and the subscriptions, sessions and groups in them (`tests/broker/machine/test_state.py` reads
the code for that). The rules are functions in the rooms, which the machine calls (`machine.py`);
they read everything, and call these methods. The state's way into a snapshot and back is in
`snapshot.py`.
"""

from __future__ import annotations

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.deadlines import (
    DELAYED,
    EXPIRY,
    HELD,
    SERVING,
    SESSION,
    STAGED,
    Deadlines,
    GroupKey,
    Key,
)
from antiphon.broker.machine.groups.registry import Groups
from antiphon.broker.machine.last_values import LastValues
from antiphon.broker.machine.pending_packs import PendingPacks
from antiphon.broker.machine.queues.registry import Queues
from antiphon.broker.machine.ranges import Span, coarse
from antiphon.broker.machine.sendable import Sendable
from antiphon.broker.machine.sessions.producers import Producers
from antiphon.broker.machine.sessions.registry import Sessions
from antiphon.broker.machine.sessions.servers import Servers
from antiphon.broker.machine.topics import Subscription, Topics
from antiphon.log.effects import Accepted


class State:
    """The replicated state of the messaging server, the same on every server at the same entry."""

    def __init__(self, retain: int | None = 0) -> None:
        """`retain`: the number of last messages that stay readable although no consumer needs them;
        None: all."""
        self._retain = retain
        self.dropped = 0  # messages to destinations that had ended; no part of the state
        self.reset()

    def reset(self) -> None:
        """Become the state of a new cluster."""
        self.position = 0  # of the last accepted message
        self.digest = 0
        self.stamp = 0
        self.index = 0  # of the entry that is being applied
        self.accepted: list[Accepted] = []  # by that entry
        self.events: list[ev.Event] = []
        self.deadlines = Deadlines()
        self.sessions = Sessions()
        self.servers = Servers(self.deadlines)
        self.producers = Producers(self.deadlines)
        self.topics = Topics()
        self.last_values = LastValues()
        self.queues = Queues(self.deadlines, self.events)
        self.groups = Groups(self.events)
        self.pending = PendingPacks(self.deadlines)
        self.sendable = Sendable(self.sessions)

    def restore_head(self, position: int, digest: int, stamp: int) -> None:
        """Take the numbers at the beginning of a snapshot."""
        self.position, self.digest, self.stamp = position, digest, stamp

    def take_positions(self, count: int) -> int:
        """Give the next positions to this many messages, and return the first of these."""
        first = self.position + 1
        self.position += count
        return first

    def accept(self, pack: Accepted) -> None:
        """Note that the present entry made this pack visible."""
        self.accepted.append(pack)

    def count_dropped(self, messages: int) -> None:
        """Count messages to destinations that had ended."""
        self.dropped += messages

    def report(self, event: ev.Event) -> None:
        """Report this event to the servers."""
        self.events.append(event)

    def next_deadline(self) -> int | None:
        """Return the next deadline, in log time; None: there is none."""
        while (first := self.deadlines.first) is not None:
            due, kind, key = first
            if self._due_of(kind, key) == due:
                return due
            self.deadlines.pop()  # it was moved or is gone
            if kind == EXPIRY and key in self.queues:
                self.queues.watch_anew(self.queues[str(key)], due)
        return None

    def _due_of(self, kind: int, key: Key) -> int | None:
        """Return the present stamp of this deadline; None: it does not hold any more."""
        if isinstance(key, GroupKey):
            group = self.groups.get(key.destination)
            return group.due(key.member) if group is not None else None
        if kind == SESSION:
            session = self.sessions.get(int(key))
            return session.expires if session is not None else None
        if kind == SERVING:
            return self.servers.due(int(key))
        if kind == EXPIRY:
            queue = self.queues.get(str(key))
            return queue.next_expiry() if queue is not None else None
        if kind == HELD:
            queue = self.queues.get(str(key))
            return queue.next_release if queue is not None else None
        if kind == DELAYED:
            found = self.pending.delayed.get(int(key))
            return found[0] if found is not None else None
        if kind == STAGED:
            staged = self.pending.staged.get(str(key))
            return staged.expires if staged is not None else None
        return self.producers.due(str(key))

    def live(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of positions whose messages the journal must keep."""
        ranges = [*self.topics.live(), *self.last_values.live()]
        for queue in self.queues.values():
            ranges += queue.live()
        first = 1 if self._retain is None else max(1, self.position - self._retain + 1)
        if first <= self.position:
            ranges.append((first, self.position))
        return coarse(ranges)

    def parked(self) -> tuple[int, ...]:
        """Return the entries with packs that are not visible yet."""
        staged = (p for some in self.pending.staged.values() for p in some.packs)
        own = (p for session in self.sessions.values() for p in session.staged.values())
        return (*self.pending.delayed, *(p.index for p in staged), *(p.index for p in own))

    def last_sequence(self, session: int, producer: int = 0) -> int:
        """Return up to where this producer's messages are settled; 0 if it is not known."""
        one = self.sessions.get(session)
        return one.streams.get(producer, 0) if one is not None else 0

    def subscription(self, consumer: Consumer) -> Subscription | None:
        """Return the subscription of a consumer of a topic; None: it is a queue's."""
        return (
            self.topics.subscriptions.get(consumer.subscription) if consumer.subscription else None
        )

    def assigned(self, consumer: Consumer) -> list[Span]:
        """Return the messages that a consumer of a queue has and has not acknowledged."""
        queue = self.queues.get(consumer.destination)
        taker = queue.takers.get((consumer.session, consumer.number)) if queue else None
        return list(taker.assigned) if taker is not None else []

    def take_events(self) -> tuple[ev.Event, ...]:
        """Return the events since the last call, and forget them."""
        events = tuple(self.events)
        self.events.clear()
        return events
