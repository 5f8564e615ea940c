"""The inbox of one consumer: messages that wait for the application, and messages that it has and
has not acknowledged.

Promises: messages are handed out in the order in which they came, of a queue those of greater
priority first; `recover` puts the open ones back in front, in that order, with a higher count, or
gives them up if they were handed out too often. Acknowledgements are gathered into as few rows as
possible (`protocol.AckRow`): for a topic, one number as long as no message before it is open; for a
queue, exact ranges.

A group's events wait among its messages, each as a slice of its own (`inbox_items.py`).
They are acknowledged by their serial numbers: up to the first one that is still open, and a message
that is acknowledged takes the events before it with it. Events that the application does not see
are done when all items before them were handed out; a request for this member's state stops
everything until `pass_request`.

A member that joins waits for the state of the others, if they have one (`wait_for_state`): until
that is known, nothing is handed out. When the state is here and the application has asked for more,
the next acknowledgement covers the state, too.

A message that has expired by the time it would be handed out is not: it counts as acknowledged.

All work is done by the slice (messages of one pack), never by the message, except to hand one out.
One thread may call `arrive` while another uses the other methods, which need a lock. A loop over
thousands of messages would pay for that lock and for the bookkeeping with each of them: so the
inbox lends it some (`Loan`), which it takes without either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from itertools import groupby
from typing import Any

import msgspec

from antiphon.api.protocol.inbox_items import Notice, PerishableColumns, key
from antiphon.errors import FormatError
from antiphon.formats.columns import PRIORITY, Columns, decode_extra
from antiphon.formats.pack import SPECIAL
from antiphon.formats.protocol import DEAD, FAILED, STATE, AckRow, GroupEvent, Kept

AGAIN = 10
"""The rank of messages that come again, in place of a priority: they come first."""


class Slice:
    """Messages `at` to `end - 1` of a pack, delivered together."""

    __slots__ = ("again", "at", "columns", "deliveries", "end", "priority", "start")

    def __init__(
        self,
        columns: Columns | Notice,
        start: int,
        at: int,
        end: int,
        deliveries: int,
        again: bool = False,
    ) -> None:
        self.columns = columns
        self.start = start  # the position of the pack's message 0, if it is whole; < 0: an event
        self.at = at
        self.end = end
        self.deliveries = deliveries  # 1: for the first time
        self.again = again  # the application had it, and gets it again
        self.priority = AGAIN if again else PRIORITY

    @property
    def first(self) -> int:
        return self.start + self.at

    @property
    def last(self) -> int:
        return self.start + self.end - 1

    @property
    def is_special(self) -> bool:
        """Return whether some of the messages may have a priority."""
        return isinstance(self.columns, Columns) and bool(self.columns.header.flags & SPECIAL)

    def part(self, at: int, end: int) -> Slice:
        part = Slice(self.columns, self.start, at, end, self.deliveries, self.again)
        part.priority = self.priority
        return part


class Loan:
    """Messages lent to a loop, which takes them from `indexes`. The thread that calls in the rest
    empties `indexes`: of two threads that take from one iterator, each gets different ones."""

    __slots__ = ("end", "first", "indexes", "slice")

    def __init__(self, slice_: Slice, first: int, end: int) -> None:
        self.slice = slice_
        self.first = first
        self.end = end
        self.indexes = iter(range(first, end))

    def call_in(self) -> int:
        """Return the end of the messages that the loop took. It gets no more."""
        return next(iter(list(self.indexes)), self.end)


class Inbox:
    """One consumer's messages between their arrival and their acknowledgement. It has at most
    `prefetch` messages that are not acknowledged, since servers send no more."""

    def __init__(
        self, consumer: int, divided: bool, prefetch: int, clock: Callable[[], int] = lambda: 0
    ) -> None:
        """`divided`: other consumers get a part of the messages, as from a queue. `clock`: in ms;
        without one nothing expires here."""
        self.consumer = consumer
        self.ready: deque[Slice] = deque()
        self.divided = divided
        self.ranked = False  # some message had a priority: from then on all are put in their place
        self.prefetch = prefetch
        self._enough = max(1, prefetch // 4)  # acknowledgements to be sent without delay
        self._open: list[Slice] = []  # handed out and not acknowledged, as they were handed out
        self._floor = 0  # of a topic: everything up to here is acknowledged
        self._ranges: list[tuple[int, int]] = []  # acknowledged above the floor
        self._beyond = 0  # the last of those, ever
        self._count = 0  # messages acknowledged since `take_rows`
        self._lend = 1  # messages to lend the next time
        self._internal = 0  # events that wait, and that the application does not get
        self._event = 0  # the last event that was acknowledged
        self._told = 0  # the last event that `take_rows` has returned
        self.relation = ""  # of a group: the last one that was passed, as JSON
        self.request: GroupEvent | None = None  # for this member's state; messages wait for it
        self._lacks_state = False  # a member that joins has to have it first
        self._state = 0  # the event that asked for the state that is here
        self._state_seen = False  # the application has asked for more since then
        self._state_done = False  # and has acknowledged a message since then
        self.deliveries_max = 0  # a message that was handed out this often is given up; 0: none is
        self._dead: list[AckRow] = []  # rows of messages that were given up, or failed
        self._waits: dict[int, int] = {}  # by position: ms that a failed message waits
        self.pauses = 0  # nothing is handed out while there are some
        self._clock = clock
        self._perishes = False  # there were messages that may expire
        self.expired = False  # some did, and count as acknowledged; the reader of this clears it

    def arrive(self, slice_: Slice) -> None:
        self._look_at(slice_)
        self.ready.append(slice_)

    def _look_at(self, slice_: Slice) -> None:
        if isinstance(slice_.columns, PerishableColumns):
            self._perishes = True

    def insert(self, slice_: Slice) -> None:
        """Insert messages of a queue with priorities, each before those of lesser ones."""
        self.ranked = True
        self._look_at(slice_)
        for priority, at, end in _by_priority(slice_):
            part = slice_.part(at, end)
            part.priority = priority
            place = len(self.ready)
            while place > 0 and self.ready[place - 1].priority < priority:
                place -= 1
            self.ready.insert(place, part)

    def occur(self, event: GroupEvent) -> None:
        notice = Notice(event)
        self._internal += notice.is_internal
        self.ready.append(Slice(notice, key(event), 0, 1, 1))

    # -- Handing out ----------------------------------------------------------------------------

    def take(self) -> tuple[Slice, int] | None:
        """Return the next message, as slice and index; it is open until it is acknowledged."""
        if not self._may_hand_out():
            return None
        slice_ = self.ready[0]
        index = slice_.at
        slice_.at = index + 1
        if slice_.at >= slice_.end:
            self.ready.popleft()
        self._hold(slice_, index)
        return slice_, index

    def take_for_good(self) -> tuple[Slice, int] | None:
        """Return the next message, and acknowledge it."""
        if not self._may_hand_out():
            return None
        slice_ = self.ready[0]
        index = slice_.at
        slice_.at = index + 1
        if slice_.at >= slice_.end:
            self.ready.popleft()
        position = slice_.start + index
        self._settled(position, position)
        return slice_, index

    def lend(self) -> Loan | None:
        """Return the next messages, for a loop that acknowledges each when it takes another. Call
        no other method before `call_in`."""
        if not self._may_hand_out():
            return None
        slice_ = self.ready[0]
        # Those that may expire are looked at one by one.
        most = 1 if isinstance(slice_.columns, PerishableColumns) else self._lend
        loan = Loan(slice_, slice_.at, min(slice_.at + most, slice_.end))
        slice_.at = loan.end
        if slice_.at >= slice_.end:
            self.ready.popleft()
        return loan

    def call_in(self, loan: Loan) -> int | None:
        """Take back what the loop has not taken. The last message that it took is open, and is
        returned; those before it are acknowledged. A loop that took all of them gets more the next
        time, so a slow one never has many that it does not need."""
        slice_, end = loan.slice, loan.call_in()
        self._lend = min(2 * self._lend, self._enough) if end == loan.end else 1
        if end < loan.end:
            self.ready.appendleft(slice_.part(end, loan.end))
        if end == loan.first:
            return None
        if end - loan.first > 1:
            self._settled(slice_.start + loan.first, slice_.start + end - 2)
        self._hold(slice_, end - 1)
        return slice_.start + end - 1

    def _may_hand_out(self) -> bool:
        """Return whether the first waiting message is next; only for a caller that wants one."""
        if self._lacks_state or self.pauses:
            return False
        if self._state:
            self._state_seen = True
        if self._internal:
            self._pass_internal()
        if self._perishes:
            self._pass_expired()
        return bool(self.ready) and self.request is None

    def _pass_internal(self) -> None:
        """Finish the next events, as far as the application does not see them."""
        while self.ready and self.request is None:
            columns = self.ready[0].columns
            if not isinstance(columns, Notice) or not columns.is_internal:
                return
            if columns.event.kind == STATE:
                self.request = columns.event
                return
            self.relation = columns.event.relation or self.relation
            slice_ = self.ready.popleft()
            self._internal -= 1
            self._settled(slice_.first, slice_.last)

    def _pass_expired(self) -> None:
        now_ms = self._clock()
        while self.ready:
            slice_ = self.ready[0]
            columns, position = slice_.columns, slice_.first
            if not isinstance(columns, PerishableColumns) or not columns.is_over(slice_.at, now_ms):
                return
            slice_.at += 1
            if slice_.at >= slice_.end:
                self.ready.popleft()
            self._settled(position, position)
            self.expired = True

    def wait_for_state(self) -> None:
        """Hand out nothing, for a member that has joined has no state yet."""
        self._lacks_state = True

    def state_is_known(self, serial: int = 0) -> None:
        """Go on: the state that this event asked for is here; or, with 0, there is none."""
        self._lacks_state = False
        self._state = serial

    def pass_request(self, serial: int) -> None:
        """Go on behind this request for the member's state, which is done."""
        self.request = None
        for slice_ in [s for s in self.ready if s.first == -serial]:
            self.ready.remove(slice_)
            self._internal -= 1
            self._settled(slice_.first, slice_.last)

    def _hold(self, slice_: Slice, index: int) -> None:
        last = self._open[-1] if self._open else None
        if (
            last is not None
            and last.columns is slice_.columns
            and last.end == index
            and last.deliveries == slice_.deliveries
        ):
            last.end += 1
        else:
            self._open.append(slice_.part(index, index + 1))

    # -- Acknowledging --------------------------------------------------------------------------

    def acknowledge_all(self) -> None:
        """Acknowledge all messages that the application has."""
        slices, self._open = self._open, []
        for slice_ in slices:
            self._settled(slice_.first, slice_.last)
        self._state_done = self._state > 0

    def acknowledge(self, position: int) -> bool:
        """Acknowledge one message; return False if it is not open."""
        if self._remove(position) is None:
            return False
        self._settled(position, position)
        return True

    def _settled(self, first: int, last: int) -> None:
        self._state_done = self._state_done or self._state_seen
        if first < 0:
            self._event = max(self._event, -first)
            return
        if self._open and self._open[0].first < 0:
            self._settle_events(last)
        self._count += last - first + 1
        if self._ranges and self._ranges[-1][1] + 1 == first:
            self._ranges[-1] = (self._ranges[-1][0], last)
        elif self.divided or (self._open and self._has_open_before(first)):
            self._ranges.append((first, last))
        else:
            self._floor = max(self._floor, last)
            if self._beyond > last:
                self._pass_over()
            return
        if last > self._beyond:
            self._beyond = last

    def _has_open_before(self, position: int) -> bool:
        first = next((slice_.first for slice_ in self._open if slice_.first > 0), position)
        return first < position

    def _settle_events(self, before: int) -> None:
        """Settle the events before a handled message: the application has handled them, too."""
        while self._open and isinstance(notice := self._open[0].columns, Notice):
            if notice.event.position >= before:
                break
            self._settled(self._open[0].first, self._open[0].last)
            del self._open[0]

    def _pass_over(self) -> None:
        """Move the floor past all messages below the first open one that were acknowledged out of
        order. The servers cannot find that themselves: they do not know which messages between are
        for this consumer."""
        again = [slice_ for slice_ in list(self.ready) if slice_.again and slice_.first > 0][:1]
        held = [slice_ for slice_ in self._open if slice_.first > 0][:1]
        waiting = [slice_.first - 1 for slice_ in (*held, *again)]
        self._floor = max(self._floor, min([self._beyond, *waiting]))
        self._ranges = [(first, last) for first, last in self._ranges if last > self._floor]

    @property
    def enough(self) -> bool:
        """Return whether the server should soon learn of the acknowledgements, since its window may
        be closing."""
        return self._count >= self._enough

    def take_rows(self) -> list[AckRow]:
        """Return rows of the acknowledgements since the last call."""
        event, state = self._events_done(), self._take_state()
        rows, self._dead = self._dead, []
        if self._floor or event or state:
            rows.append(AckRow(self.consumer, 0, self._floor, event, state))
        rows += [AckRow(self.consumer, first, last) for first, last in self._ranges]
        self._floor, self._ranges, self._count = 0, [], 0
        return rows

    def _take_state(self) -> int:
        if not self._state_done:
            return 0
        state, self._state = self._state, 0
        self._state_seen = self._state_done = False
        return state

    def _events_done(self) -> int:
        """Return the last acknowledged event before the first open one; 0: it is not a new one."""
        if self._event == self._told:
            return 0
        waiting = (*self._open, *(slice_ for slice_ in list(self.ready) if slice_.again))
        upto = min([self._event, *(-s.first - 1 for s in waiting if s.first < 0)])
        if upto <= self._told:
            return 0
        self._told = upto
        return upto

    def remember(self) -> tuple[Any, ...]:
        """Return the acknowledged and the open messages, for `restore`."""
        settled = (self._floor, self._beyond, self._count, self._event, self._told)
        state = (self._state, self._state_seen, self._state_done)
        return list(self._open), list(self._ranges), list(self._dead), settled, state

    def restore(self, before: tuple[Any, ...]) -> None:
        slices, self._ranges, dead, settled, state = before
        self._open = [*slices, *self._open]
        self._dead = [*dead, *self._dead]
        self._floor, self._beyond, self._count, self._event, self._told = settled
        self._state, self._state_seen, self._state_done = state

    # -- Again ----------------------------------------------------------------------------------

    def recover(self) -> int:
        """Hand out all open messages again, before all others. Return the greatest count of
        deliveries among them; 0: none is open."""
        slices, self._open = self._open, []
        self.request = None  # it is not the next item any more
        most = 0
        for slice_ in reversed(slices):
            if self.is_hopeless(slice_.deliveries) and not _is_letter(slice_):
                self._give_up(slice_, f"delivered {slice_.deliveries} times, and not acknowledged")
            else:
                most = max(most, slice_.deliveries)
                self.ready.appendleft(_again(slice_))
        return most

    def redeliver(self, position: int) -> None:
        """Hand out this one message again, next."""
        slice_ = self._remove(position)
        if slice_ is not None:
            self.request = None
            self.ready.appendleft(_again(slice_))

    def fail(self, position: int, wait_ms: int) -> None:
        """Give back this one message of a queue, whose handling has failed. It comes again after
        the wait, here or at another consumer."""
        slice_ = self._remove(position)
        if slice_ is None:
            return
        self._count += 1
        deliveries = slice_.deliveries
        row = AckRow(
            self.consumer, position, position, kind=FAILED, deliveries=deliveries, wait=wait_ms
        )
        last = self._dead[-1] if self._dead else None
        if last is not None and last.last + 1 == position:
            joined = msgspec.structs.replace(row, first=last.first)
            if joined == msgspec.structs.replace(last, last=position):
                self._dead[-1] = joined
                return
        self._dead.append(row)

    def deliveries(self, position: int) -> int:
        """Return how often this open message was delivered; 0: it is not open."""
        return next((s.deliveries for s in self._open if s.first <= position <= s.last), 0)

    def is_letter(self, position: int) -> bool:
        """Return whether this open message is a dead letter, which stays one."""
        return any(
            _is_letter(slice_)
            for slice_ in self._open
            if slice_.at <= position - slice_.start < slice_.end
        )

    def will_wait(self, position: int, wait_ms: int) -> None:
        """Note that handling this open message has failed: when it goes back, it waits."""
        self._waits[position] = wait_ms

    def is_hopeless(self, deliveries: int) -> bool:
        return 0 < self.deliveries_max <= deliveries

    def bury(self, position: int, reason: str) -> None:
        """Give up this one message: the servers put it into the dead letters."""
        slice_ = self._remove(position)
        if slice_ is not None:
            self._give_up(slice_, reason)

    def _give_up(self, slice_: Slice, reason: str) -> None:
        if slice_.first > 0:
            row = AckRow(self.consumer, slice_.first, slice_.last, kind=DEAD, reason=reason)
            self._dead.append(row)

    @property
    def is_full(self) -> bool:
        """Return whether the application has the whole window, so that no more messages will
        come."""
        return sum(s.end - s.at for s in self._open if s.first > 0) >= self.prefetch

    @property
    def has_dead(self) -> bool:
        return bool(self._dead)

    def put_back(self, position: int) -> None:
        """Put back a message that was taken and not seen."""
        self._remove(position)

    def _remove(self, position: int) -> Slice | None:
        """Take one message out of those that are open."""
        for at, slice_ in enumerate(self._open):
            index = position - slice_.start
            if slice_.at <= index < slice_.end:
                if slice_.end - slice_.at == 1:
                    del self._open[at]
                    return slice_
                rest = [slice_.part(slice_.at, index), slice_.part(index + 1, slice_.end)]
                self._open[at : at + 1] = [part for part in rest if part.at < part.end]
                return slice_.part(index, index + 1)
        return None

    # -- The end --------------------------------------------------------------------------------

    def close(self) -> list[Kept]:
        """Hand out nothing more. The application's messages stay open (`kept`). Return those that
        it was about to get again: they go back, and no later acknowledgement covers them."""
        again = [slice_ for slice_ in self.ready if slice_.again]
        self.ready.clear()
        self._open += [slice_ for slice_ in again if slice_.first < 0]  # events do not go back
        back = [
            Kept(self.consumer, s.first, s.last, s.deliveries - 1) for s in again if s.first > 0
        ]
        self.divided = self.divided or bool(back)  # from now on exact ranges, not "up to here"
        return back

    def kept(self) -> list[Kept]:
        slices = [s for s in self._open if s.first > 0]
        kept = [Kept(self.consumer, s.first, s.last, s.deliveries) for s in slices]
        for position, wait in self._waits.items():
            kept = [part for k in kept for part in _waiting(k, position, wait)]
        return kept

    def give_up(self, but: Container[int] = ()) -> list[Kept]:
        """Give back the open messages, except those that are still being handled."""
        handled = [s for s in self._open if any(p in but for p in range(s.first, s.last + 1))]
        kept = [k for k in self.kept() if not any(p in but for p in range(k.first, k.last + 1))]
        self._open = handled
        return kept


def _by_priority(slice_: Slice) -> Iterator[tuple[int, int, int]]:
    """Yield priority, begin and end of each part of the same priority."""
    priorities = (_priority(slice_.columns, i) for i in range(slice_.at, slice_.end))
    at = slice_.at
    for priority, run in groupby(priorities):
        end = at + len(list(run))
        yield priority, at, end
        at = end


def _priority(columns: Columns | Notice, i: int) -> int:
    try:
        return decode_extra(columns.extra(i)).priority if isinstance(columns, Columns) else PRIORITY
    except FormatError:
        return PRIORITY


def _is_letter(slice_: Slice) -> bool:
    return isinstance(slice_.columns, Columns) and bool(slice_.columns.reason)


def _waiting(k: Kept, position: int, wait: int) -> list[Kept]:
    """Return the same ranges, with a wait for this message."""
    if not k.first <= position <= k.last:
        return [k]
    parts = [(k.first, position - 1, k.wait), (position, position, wait)]
    parts.append((position + 1, k.last, k.wait))
    return [Kept(k.consumer, low, high, k.deliveries, ms) for low, high, ms in parts if low <= high]


def _again(slice_: Slice) -> Slice:
    return Slice(
        slice_.columns, slice_.start, slice_.at, slice_.end, slice_.deliveries + 1, again=True
    )
