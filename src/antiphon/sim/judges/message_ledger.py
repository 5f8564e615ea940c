"""The rules that hold for the programs that use a simulated cluster, under all faults.

The ledger gets all that the state machines accept, refuse and end, and every message that reaches
an application. A message is known by its body, which is unique. It checks the following rules, each
with a history in `tests/sim/judges/test_message_ledger.py` that breaks it:

- *Sending.* A message that was answered is accepted, one that was refused never is; none is
  accepted twice; a session's messages are accepted in its order, and without a gap if they are
  persistent. A delayed message is not visible before its time, and is then. Transactions are judged
  by `sim/judges/transactions.py`.
- *Receiving.* A subscription gets all messages that match its pattern and selector, in order, no
  others, and none twice unless it is flagged; only messages that may have been seen are flagged;
  one that is known to be acknowledged never comes again; a message of a queue is with one consumer
  at a time, and those of one priority come in order; no consumer has more than its window. At the
  end, all messages that have not expired were acknowledged. `queue_assignments.py` judges how
  messages are divided.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.sessions.lifecycle import CLIENT_ID_TAKEN, HOME_IS_GONE
from antiphon.formats.columns import PRIORITY, Columns, decode_extra
from antiphon.formats.pack import DELAYED, EXTRAS, NON_PERSISTENT, STAGED
from antiphon.formats.protocol import AckRow
from antiphon.log.effects import Accepted
from antiphon.model.destinations import DEAD_LETTERS, is_temporary, matcher
from antiphon.sim.judges.queue_assignments import Division
from antiphon.sim.judges.queue_failures import Failures
from antiphon.sim.judges.transactions import Deals
from antiphon.sim.message_traits import PLAIN, Traits, traits_of
from antiphon.sim.violations import ViolationError

Reader = tuple[int, int]
"""A consumer: its session, and its number there."""

FAST = 1.25
"""Faster than any clock, even if its time is caught up with another's."""


SELECTOR = "JMSTimestamp - JMSTimestamp / 3 * 3 <> 0"
"""The selector of those consumers of topics that have one."""


def selected(timestamp: int) -> bool:
    return timestamp % 3 != 0


class Reading:
    """The deliveries of a queue, of a shared or durable subscription, or of one life of another
    subscription, through all consumers."""

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        pattern: str,
        floor: int,
        queue: bool,
        selects: bool = False,
    ) -> None:
        self.name = name
        self.floor = floor  # what came before is not for it
        self.begun = 0  # of a shared subscription: messages after this are certainly for it
        self.queue = queue  # its messages are divided among the consumers
        self.seen: set[int] = set()  # positions that reached an application
        self._done: set[int] = set()  # that an application acknowledged
        self._confirmed: set[int] = set()  # acknowledged, and the client knows that
        # -> the last position that it got; of a queue, of each priority
        self._handed: dict[tuple[Reader, int], int] = {}
        self._held: dict[int, Reader] = {}  # of a queue: the message -> its consumer
        self._given_up = ledger.given_up[name]
        self._buried = ledger.buried[name]
        self._ledger = ledger
        self._matches = matcher(pattern)
        self._selects = selects

    def expected(self, after: int, before: int) -> list[int]:
        """Return the positions that are for this reading, between these two, and have not
        expired."""
        positions = self._ledger.positions
        low = bisect_right(positions, max(after, self.floor))
        found = []
        for position in positions[low:]:
            if position >= before:
                break
            if self._is_meant(position) and not self._ledger.may_have_expired(position):
                found.append(position)
        return found

    def _is_meant(self, position: int) -> bool:
        destination = self._ledger.destinations.get(position)
        if position <= self.floor or destination is None or not self._matches(destination):
            return False
        return not self._selects or selected(self._ledger.times[position])

    def missing(self, after: int = 0) -> list[int]:
        """Return the messages that no application has seen, or acknowledged."""
        over = self._done | self._buried
        return [p for p in self.expected(after, 1 << 62) if p not in over]

    def awaits(self, reader: Reader) -> bool:
        """Return whether there is more of a topic that this consumer must get."""
        left = self.missing(self._handed.get((reader, PRIORITY), 0))
        return not self.queue and any(p not in self._given_up for p in left)

    def delivered(self, reader: Reader, position: int, deliveries: int, body: bytes) -> None:
        """Judge a message that an application gets."""
        self._is_for_it(position, body)
        if reader[0] in self._ledger.robbed:
            self.seen.add(position)  # others have it by now, and may have acknowledged it
            return
        self._is_flagged_rightly(position, deliveries)
        if self.queue:
            self._is_with_nobody_else(reader, position)
        rank = (reader, self._ledger.traits(position).priority if self.queue else PRIORITY)
        self._is_in_order(rank, position, deliveries)
        self._handed[rank] = max(self._handed.get(rank, 0), position)
        self._held[position] = reader
        self.seen.add(position)
        self._ledger.deliveries += 1

    def _is_for_it(self, position: int, body: bytes) -> None:
        if not self._is_meant(position):
            raise ViolationError(f"{self.name} got message {position}, which is not for it")
        if body != self._ledger.bodies[position]:
            raise ViolationError(f"{self.name} got another body at {position}")

    def _is_flagged_rightly(self, position: int, deliveries: int) -> None:
        if position in self._confirmed or position in self._buried:
            raise ViolationError(f"{self.name} got {position} again, which it had acknowledged")
        if deliveries == 1 and position in self.seen:
            raise ViolationError(f"{self.name} got {position} twice, and it is not flagged")
        doubtful = self.name in self._ledger.doubtful
        if deliveries > 1 and position not in self.seen and not doubtful:
            raise ViolationError(f"{self.name} got {position} flagged, and nobody had seen it")

    def _is_with_nobody_else(self, reader: Reader, position: int) -> None:
        other = self._held.get(position, reader)
        if other != reader and not self._ledger.has_let_go(other):
            raise ViolationError(f"{self.name} gave {position} to {reader} while {other} has it")

    def _is_in_order(self, rank: tuple[Reader, int], position: int, deliveries: int) -> None:
        last = self._handed.get(rank, 0)
        if not self.queue and position > last:
            expected = self.expected(last, position)
            missed = [p for p in expected if p not in self.seen and p not in self._given_up]
            if missed:
                raise ViolationError(f"{self.name} got {position} and not {missed} before it")
        came_back = self.name in self._ledger.came_back
        if deliveries == 1 and position < last and not came_back:
            raise ViolationError(f"{self.name} got {position} after {last}")

    def failed(self, position: int) -> None:
        """Note that an application could not handle a message, and gives it back."""
        self._held.pop(position, None)

    def done(self, position: int) -> None:
        """Note that an application acknowledges, which may be lost with its session."""
        self._done.add(position)

    def forget_acknowledgements(self) -> None:
        """Forget acknowledgements that only a server knew that is gone for good."""
        self._confirmed.clear()

    def acknowledged(self, first: int, last: int) -> None:
        """Note acknowledgements that are certain now. `first` 0: all messages that the consumer got
        up to `last`."""
        self._confirmed.update(p for p in self.seen if max(first, 1) <= p <= last)


class DeadLetters(Reading):
    """The messages that consumers, or their servers, have given up. One that several subscriptions
    have may come here more than once, and they come in no order."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger, DEAD_LETTERS, DEAD_LETTERS, 0, queue=True)
        self._put: set[int] = set()

    def put(self, position: int) -> None:
        """Add a dead letter; perhaps once more, for another subscription, when the earlier one is
        acknowledged."""
        self._put.add(position)
        self._held.pop(position, None)
        self.seen.discard(position)
        self._done.discard(position)
        self._confirmed.discard(position)
        self._buried.discard(position)

    def expected(self, after: int, before: int) -> list[int]:
        return [p for p in sorted(self._put) if after < p < before]

    def _is_for_it(self, position: int, body: bytes) -> None:
        if position not in self._put or body != self._ledger.bodies[position]:
            raise ViolationError(f"{body!r} at {position} is a dead letter that nobody has made")

    def _is_in_order(self, rank: tuple[Reader, int], position: int, deliveries: int) -> None:
        pass


class Ledger:
    """All messages that programs sent, received and acknowledged, compared with the reports of the
    state machines. Raise `ViolationError` at the step that breaks a promise."""

    def __init__(self, clock_us: Callable[[], int] = lambda: 0) -> None:
        self.given_up: dict[str, set[int]] = defaultdict(set)  # by servers; by reading
        self.buried: dict[str, set[int]] = defaultdict(set)  # dead letters, by reading
        self.deals = Deals()
        self.division = Division(self.traits, self.has_let_go)
        self.failures = Failures(lambda reader: self._opened[reader], self.has_let_go)
        self.dead_letters = DeadLetters(self)
        self.positions: list[int] = []  # of all accepted messages
        self.destinations: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.times: dict[int, int] = {}  # when they were sent, by the sender's clock
        self.views: dict[int, int] = {}  # of groups: the view that a message was ordered in
        self.readings: dict[str, Reading] = {DEAD_LETTERS: self.dead_letters}
        self.doubtful: set[str] = set()
        """Readings with a consumer whose session was lost: it may have seen any message."""

        self.came_back: set[str] = set()
        """Queues with a consumer that left: its messages go to others, behind later ones that these
        had."""

        self.forgotten: set[int] = set()
        """Sessions whose server is gone, with acknowledgements that it alone knew of."""

        self.robbed: set[int] = set()
        """Sessions that ended before their time, because another one took their client id: while
        they have no connection they go on with the messages that they have, and cannot know."""

        self.deliveries = 0
        self._clock_us = clock_us
        self._stamp = 0  # of the last entry
        self._latest, self._latest_us = 0.0, 0  # the latest that it can be by any clock, and when
        self._traits: dict[int, Traits] = {}  # of special messages
        self._delayed: dict[bytes, tuple[int, str]] = {}  # -> when it is due, its destination
        self._accepted: dict[bytes, int] = {}  # body -> position
        self._last: dict[bytes, int] = {}  # sender -> the last number of its messages
        self._sequences: dict[tuple[int, int], int] = {}  # session and producer -> the last one
        self._not_accepted: set[tuple[int, int, int]] = set()  # session, producer, sequence
        self._refused: set[bytes] = set()  # and the sender knows
        self._opened: dict[Reader, str] = {}  # consumers -> their readings
        self._gone: set[int] = set()  # sessions that have ended
        self._closed: set[Reader] = set()

    # -- Time ----------------------------------------------------------------------------------

    def applied(self, stamp: int) -> None:
        """Note that a server was the first to apply the next entry."""
        self._stamp = stamp
        self._latest, self._latest_us = max(stamp, self._at_latest()), self._clock_us()

    def _at_latest(self) -> float:
        """Return the latest stamp that it can be now: servers and clients measure the time since an
        entry by their own clocks."""
        return self._latest + (self._clock_us() - self._latest_us) * FAST / 1000

    def may_have_expired(self, position: int) -> bool:
        expires = self.traits(position).expires
        return expires > 0 and expires <= self._at_latest()

    def sent(self, first: int, count: int, stamp: int) -> None:
        """Judge messages that a server with this stamp sends to a consumer."""
        for position in range(first, first + count):
            if 0 < (expires := self.traits(position).expires) <= stamp:
                raise ViolationError(f"{position} is sent at {stamp}, and has expired at {expires}")

    def traits(self, position: int) -> Traits:
        return self._traits.get(position, PLAIN)

    # -- Sending -------------------------------------------------------------------------------

    def accepted(self, one: Accepted, payload: bytes) -> None:
        """Judge a pack that the state machine accepts."""
        columns = Columns(payload)
        flags = columns.header.flags
        if not one.source:
            if flags & (STAGED | DELAYED):
                raise ViolationError(f"{columns.body(0)!r} is visible as soon as it is stored")
            persistent = not flags & NON_PERSISTENT
            self._comes_next(one.session, one.producer, one.sequence, one.count, persistent)
        for i in range(one.count):
            body = columns.body(i)
            self._is_new(body)
            self._is_due(body)
            if flags & EXTRAS:
                traits = self._traits[one.position + i] = traits_of(columns.extra(i), one.stamp)
                self.division.accepted(one.position + i, traits)
            self.deals.accepted(one.position + i, body, one.stamp)
            self._accepted[body] = one.position + i
            self.positions.append(one.position + i)
            self.destinations[one.position + i] = one.destination
            self.bodies[one.position + i] = body
            self.times[one.position + i] = columns.timestamp(i)
            self.views[one.position + i] = one.view

    def parked(self, payload: bytes) -> None:
        """Note a pack of delayed messages, which the state machine takes with the present entry."""
        columns = Columns(payload)
        for i in range(columns.count):
            due = self._stamp + decode_extra(columns.extra(i)).delivery_delay
            self._delayed[columns.body(i)] = (due, columns.destination)

    def overdue(self) -> list[bytes]:
        """Return delayed messages that never became visible. A temporary destination may be gone by
        then."""
        return [
            body
            for body, (_, destination) in self._delayed.items()
            if body not in self._accepted and not is_temporary(destination)
        ]

    def _is_due(self, body: bytes) -> None:
        due, _ = self._delayed.get(body, (0, ""))
        if self._stamp < due:
            raise ViolationError(f"{body!r} is visible at {self._stamp}, and is delayed to {due}")

    @property
    def last(self) -> int:
        """Return the last position."""
        return self.positions[-1] if self.positions else 0

    def positions_of(self, destination: str) -> list[int]:
        return [p for p in self.positions if self.destinations[p] == destination]

    def not_a_message(self, session: int, producer: int, first: int, last: int) -> None:
        """Note numbers that a session used for messages without a position."""
        self._not_accepted.update((session, producer, n) for n in range(first, last + 1))

    def _comes_next(
        self, session: int, producer: int, sequence: int, count: int, persistent: bool
    ) -> None:
        stream = (session, producer)
        last = self._sequences.get(stream, sequence - 1)
        gap = [n for n in range(last + 1, sequence) if (*stream, n) not in self._not_accepted]
        if persistent and (gap or sequence <= last):
            raise ViolationError(f"message {sequence} of {stream} is accepted after {last}")
        self._sequences[stream] = sequence + count - 1

    def _is_new(self, body: bytes) -> None:
        if body in self._accepted:
            raise ViolationError(f"{body!r} is accepted twice")
        if body in self._refused:
            raise ViolationError(f"{body!r} was refused to its sender, and is accepted")
        sender, _, number = body.rpartition(b"#")
        if int(number) <= self._last.get(sender, 0):
            raise ViolationError(f"{body!r} is accepted after {self._last[sender]}")
        self._last[sender] = int(number)

    def answered(self, body: bytes) -> None:
        """Judge the servers' answer to a sender that they have a message."""
        if body not in self._accepted and body not in self._delayed:
            raise ViolationError(f"{body!r} was acknowledged to its sender, and nobody has it")

    def refused(self, body: bytes) -> None:
        """Judge the answer to a sender that a message was not accepted, and never will be."""
        if body in self._accepted:
            raise ViolationError(f"{body!r} was refused to its sender, and is accepted")
        self._refused.add(body)

    # -- Receiving -----------------------------------------------------------------------------

    def opens(self, reader: Reader, name: str, exclusive: bool = False) -> None:
        """Note that a program opens a consumer."""
        self._opened[reader] = name
        self.division.opens(reader, name, exclusive)
        # Its session may have ended before the program knew that it was open, and be opened again.
        self._gone.discard(reader[0])

    def closes(self, reader: Reader) -> None:
        """Note that a program closes a consumer: messages that it has not acknowledged go back."""
        self._closed.add(reader)
        self.came_back.add(self._opened[reader])

    def reads(self, reader: Reader, name: str) -> bool:
        return self._opened.get(reader) == name

    def gives_up(self, reader: Reader, position: int) -> None:
        """Note that a server does not send this message, which was delivered too often."""
        self.given_up[self._opened[reader]].add(position)

    def buries(self, reader: Reader, position: int, is_new: bool = True) -> None:
        """Note that the state machine makes a dead letter of a message that this consumer had; or
        there is one already."""
        name = self._opened[reader]
        self.buried[name].add(position)
        if name != DEAD_LETTERS and is_new:  # otherwise the message is just gone
            self.dead_letters.put(position)

    def has_let_go(self, reader: Reader) -> bool:
        return reader in self._closed or reader[0] in self._gone

    def happened(self, event: ev.Event) -> None:
        """Take an event of the state machine."""
        if isinstance(event, ev.Answered):
            self.deals.answered(event)
        elif isinstance(event, ev.PackRefused):
            no = event.refusal
            self.not_a_message(event.session, no.producer, no.first, no.last)
        elif isinstance(event, ev.SessionEnded) and event.session not in self._gone:
            self._gone.add(event.session)
            names = {name for reader, name in self._opened.items() if reader[0] == event.session}
            self.came_back |= names
            if event.code:
                self.doubtful |= names
            if event.text.startswith(CLIENT_ID_TAKEN):
                self.robbed.add(event.session)
            if event.text == HOME_IS_GONE:
                self.forgotten.add(event.session)
                for reading in (self.readings[n] for n in names & self.readings.keys()):
                    if not reading.queue:
                        reading.forget_acknowledgements()

    def reading(
        self, name: str, pattern: str, floor: int, queue: bool = False, selects: bool = False
    ) -> Reading:
        """Return the reading of this name, new or known: a durable subscription and a queue go on
        where they were. `selects`: it has the `SELECTOR`."""
        reading = self.readings.get(name)
        if reading is None:
            reading = self.readings[name] = Reading(self, name, pattern, floor, queue, selects)
        return reading


class Window:
    """The messages that one consumer has and has not acknowledged: never more than its prefetch."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._open: set[int] = set()

    def widen(self, prefetch: int) -> None:
        self._prefetch = prefetch

    def arrived(self, first: int, last: int) -> None:
        self._open.update(range(first, last + 1))
        if len(self._open) > self._prefetch:
            raise ViolationError(f"{len(self._open)} messages in a window of {self._prefetch}")

    def acknowledges(self, row: AckRow) -> None:
        self._open = {p for p in self._open if not row.first <= p <= row.last}
