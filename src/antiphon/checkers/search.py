"""The search for an order that explains a history.

Promise: `succeeds` is exact; if there is no order, `furthest` is an operation that none explains.
Limit: the question is hard in general, so the search takes a bounded number of steps, and raises
`ResourceAllocationError` where the bound is reached.

The search is that of Wing and Gong, with Lowe's memory of earlier attempts: orders grow by one
operation at a time, which was called before any that is still missing returned, and the same
operations that lead to the same state a second time are not tried again. These rules keep it short:

- An operation that changes no state, like a read, is taken as soon as its result is right, and no
  other is tried instead. Whether it really changes none is checked when the search has failed,
  which then may have to start again.
- Of operations that are alike, the one that returned first comes first.
- Unanswered operations are tried last, where they change the state, and only if the next operation
  would not be the same without them or before them. An order that reaches a state with fewer of
  them can go on in all ways that others can.
- Values that results show early are tried early: this often is the order in which a queue was
  filled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from antiphon.checkers.explanation import call_text, line_of, short
from antiphon.checkers.histories import (
    Operation,
    Raised,
    end_of,
    frozen,
    neighbours,
    values_in,
)
from antiphon.errors import ResourceAllocationError
from antiphon.model.exceptions import describe


class Model(Protocol):
    """The sequential specification: the behaviour of the service if commands come one after the
    other.

    A model may also have `key(command)`: commands with different keys do not affect each other, and
    are checked apart, each from the initial state. States are compared by value, and should be
    hashable, or made of the usual containers and dataclasses.
    """

    def initial(self) -> Any: ...

    def step(self, state: Any, command: Any, /) -> tuple[Any, Any]:
        """Return the next state, and the result. The given state stays as it is. Raise the error
        that the service raises for this command; then the state does not change."""


class Steps:
    """The model's steps from state to state. States have numbers, and no step is taken twice."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._states: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._kinds: dict[Hashable, int] = {}
        self._taken: list[dict[int, tuple[int, Any]]] = []  # of each state, by kind of command
        self.initial = self._number(model.initial())

    def kind(self, value: Any) -> int:
        return self._kinds.setdefault(frozen(value), len(self._kinds))

    def take(self, state: int, kind: int, command: Any) -> tuple[int, Any]:
        taken = self._taken[state]
        if kind not in taken:
            taken[kind] = self._take(state, command)
        return taken[kind]

    def _take(self, state: int, command: Any) -> tuple[int, Any]:
        before = self._states[state]
        try:
            step = self._model.step(before, command)
        except Exception as error:
            return state, Raised(*describe(error))
        if not isinstance(step, tuple) or len(step) != 2:
            raise TypeError(
                f"step() of the model returns (state, result), but for {call_text(command)} it"
                f" returned {short(step)}"
            )
        if self._numbers.get(frozen(before)) != state:
            raise ValueError(
                f"step() of the model returns a new state, but for {call_text(command)} it changed"
                " the one that it was given"
            )
        return self._number(step[0]), step[1]

    def _number(self, state: Any) -> int:
        number = self._numbers.setdefault(frozen(state), len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._taken.append({})
        return number


class Node(NamedTuple):
    """How far an order of operations has come."""

    first: int
    """The first answered operation that is not in it."""
    ahead: int
    """The later answered operations that are in it, as bits."""
    used: int
    """The unanswered operations that are in it, as bits."""
    state: int
    """The number of the state that it leads to."""
    before: int = -1
    doubted: int = -1
    """If the last operation is unanswered: its number, and the state before. The next one must show
    that it was of use."""


class Search:
    """A search for an order that explains all answered operations, with as many unanswered ones as
    needed.

    An order can go on with operations that were called before the first missing one returned: at
    most one of each client, and unanswered ones.
    """

    def __init__(self, operations: Sequence[Operation], steps: Steps, steps_max: int) -> None:
        ordered = sorted(operations, key=lambda o: (end_of(o), o.called))
        self.answered = [o for o in ordered if o.returned is not None]
        self.unanswered = ordered[len(self.answered) :]
        self._ordered = ordered
        self.furthest = 0
        """The first answered operation that no order has passed."""
        self.steps_taken = 0
        self._steps = steps
        self._steps_max = steps_max
        self._kinds = [steps.kind(o.command) for o in ordered]
        self._alike = [steps.kind((o.command, o.result)) for o in self.answered]
        self._awaited = _awaited(ordered)
        self._is_awaited = set(self._awaited)
        self._candidates = _candidates(self.answered)
        self._unanswered_alike = self._groups()
        # (first, ahead, state) -> the unanswered operations that were used, each time.
        self._seen: dict[tuple[int, int, int], list[int]] = {}
        self._stuck: list[int] = []  # the states before the furthest operation
        self._hasty: dict[int, int] = {}  # of alike operations that were taken at once: one
        self._changing: set[int] = set()  # by `_alike`: operations that change some state

    def _groups(self) -> list[int]:
        """Return the unanswered operations of each kind, as bits."""
        groups: dict[int, int] = defaultdict(int)
        for number, kind in enumerate(self._kinds[len(self.answered) :]):
            groups[kind] |= 1 << number
        return list(groups.values())

    def succeeds(self) -> bool:
        self._look_for_changes()
        while not self._finds_order():
            if not self._was_too_hasty():
                return False
        return True

    def allowed(self) -> list[Any]:
        """Return the results of the furthest operation, each in some order of those before it."""
        command, kind = self.answered[self.furthest].command, self._kinds[self.furthest]
        results = (self._steps.take(state, kind, command)[1] for state in self._stuck)
        return list({frozen(result): result for result in results}.values())

    def _finds_order(self) -> bool:
        self.furthest = 0
        self._seen, self._stuck, self._hasty = {}, [], {}
        stack = [iter([Node(0, 0, 0, self._steps.initial)])]
        while stack:
            for node in stack[-1]:
                if node.first == len(self.answered):
                    return True
                if not self._is_known(node):
                    self._note(node)
                    stack.append(self._successors(node))
                    break
            else:
                stack.pop()
        return False

    def _look_for_changes(self) -> None:
        """Walk through the operations once, which finds most of those that change a state. Finding
        one later costs a second search."""
        state = self._steps.initial
        for place, operation in enumerate(self.answered):
            after, result = self._take(state, place)
            if after != state and result == operation.result:
                self._changing.add(self._alike[place])
            state = after

    def _was_too_hasty(self) -> bool:
        """Return whether an operation that was taken as one that changes no state does change one:
        it might have explained more at another place. Note such operations."""
        by_kind: dict[int, list[int]] = defaultdict(list)
        for place in self._hasty.values():
            by_kind[self._kinds[place]].append(place)
        for state in {state for _, _, state in self._seen}:
            for places in by_kind.values():
                after, result = self._take(state, places[0])
                if after != state:
                    same = (p for p in places if self.answered[p].result == result)
                    self._changing.update(self._alike[place] for place in same)
        return not self._changing.isdisjoint(self._hasty)

    def _is_known(self, node: Node) -> bool:
        others = self._seen.setdefault((node.first, node.ahead, node.state), [])
        if any(other & node.used == other for other in others):
            return True
        others.append(node.used)
        return False

    def _note(self, node: Node) -> None:
        if node.first > self.furthest:
            self.furthest = node.first
            self._stuck = []
        if node.first == self.furthest:
            self._stuck.append(node.state)

    def _successors(self, node: Node) -> Iterator[Node]:
        found: list[Node] = []
        for place, after in self._fitting(node):
            bit = 1 << (place - node.first)
            successor = Node(*_advanced(node.first, node.ahead | bit), node.used, after)
            alike = self._alike[place]
            if after != node.state:
                self._changing.add(alike)
            elif alike not in self._changing:
                self._hasty[alike] = place
                yield successor
                return
            found.append(successor)
        yield from found
        yield from self._unanswered_successors(node)

    def _fitting(self, node: Node) -> Iterator[tuple[int, int]]:
        """Yield the answered operations that can come next, and the states to which they lead."""
        tried: dict[int, int] = {}  # of alike operations, the one that was tried first
        for place in self._candidates[node.first]:
            operation = self.answered[place]
            if node.ahead >> (place - node.first) & 1 or self._must_wait(node, place):
                continue
            if self._can_replace(tried.setdefault(self._alike[place], place), place):
                continue
            after, result = self._take(node.state, place)
            if result == operation.result and not self._doubt_remains(node, place, after):
                yield place, after

    def _can_replace(self, one: int, other: int) -> bool:
        """Return whether the other operation, which is alike, may as well come later."""
        if one == other:
            return False
        end, other_end = end_of(self.answered[one]), end_of(self.answered[other])
        return end < other_end or (end == other_end and other not in self._is_awaited)

    def _doubt_remains(self, node: Node, place: int, after: int) -> bool:
        """Return whether the unanswered operation just before was of no use for this one: without
        it, or if it came later, all would be the same."""
        if node.doubted < 0:
            return False
        without, result = self._take(node.before, place)
        if result != self.answered[place].result:
            return False
        return after in (without, self._take(without, node.doubted)[0])

    def _unanswered_successors(self, node: Node) -> Iterator[Node]:
        latest = end_of(self.answered[node.first])
        for alike in self._unanswered_alike:
            number = self._next_of(alike, node, latest)
            if number is None:
                continue
            place = len(self.answered) + number
            after, _ = self._take(node.state, place)
            without = self._take(node.before, place)[0] if node.doubted >= 0 else node.state
            if after not in (node.state, without):
                used = node.used | 1 << number
                yield Node(node.first, node.ahead, used, after, node.state, place)

    def _next_of(self, alike: int, node: Node, latest: float) -> int | None:
        """Return the first of several unanswered operations, all alike, that can come next."""
        left = alike & ~node.used
        while left:
            number = (left & -left).bit_length() - 1
            if self.unanswered[number].called > latest:
                return None
            if not self._must_wait(node, len(self.answered) + number):
                return number
            left &= left - 1
        return None

    def _must_wait(self, node: Node, place: int) -> bool:
        awaited = self._awaited[place]
        return awaited >= node.first and not node.ahead >> (awaited - node.first) & 1

    def _take(self, state: int, place: int) -> tuple[int, Any]:
        self.steps_taken += 1
        if self.steps_taken > self._steps_max:
            raise ResourceAllocationError(
                f"no answer after {self._steps_max:,} steps of the model, for"
                f" {len(self.answered):,} operations and {len(self.unanswered):,} that were never"
                " answered: give the model a key(), record shorter histories or fewer clients at a"
                " time, or allow more with steps_max. Not explained so far:"
                f" {line_of(self.answered[self.furthest])}"
            )
        return self._steps.take(state, self._kinds[place], self._ordered[place].command)


def _advanced(first: int, ahead: int) -> tuple[int, int]:
    while ahead & 1:
        first += 1
        ahead >>= 1
    return first, ahead


def _awaited(ordered: Sequence[Operation]) -> list[int]:
    """Return for each operation the one before it of the same client, or -1 where times tell their
    order.

    Equal times do not tell which came first, for a clock may be too coarse. But a client makes one
    call after the other."""
    awaited = [-1] * len(ordered)
    for before, after in neighbours(ordered):
        if ordered[before].returned == ordered[after].called:
            awaited[after] = before
    return awaited


def _candidates(answered: Sequence[Operation]) -> list[list[int]]:
    """Return for each operation itself and those after it that were called before it returned, the
    most promising first."""
    seen_at = _seen_at(answered)
    by_call = deque(sorted(range(len(answered)), key=lambda place: answered[place].called))
    called: set[int] = set()
    candidates: list[list[int]] = []
    for place, operation in enumerate(answered):
        while by_call and answered[by_call[0]].called <= end_of(operation):
            called.add(by_call.popleft())
        candidates.append(sorted(called, key=lambda other: (seen_at[other], other)))
        called.remove(place)
    return candidates


def _seen_at(answered: Sequence[Operation]) -> list[float]:
    """Return for each operation when a value of its command was in a result for the first time; if
    none ever was, when it was called. Only a hint: values may be the same by chance."""
    times: dict[Hashable, list[float]] = defaultdict(list)
    for operation in answered:
        for value in values_in(operation.result):
            times[value].append(end_of(operation))

    def first_seen(operation: Operation) -> float:
        found = []
        for value in values_in(operation.command):
            seen = times.get(value, [])
            found += seen[bisect_left(seen, operation.called) :][:1]
        return min(found, default=operation.called)

    return [first_seen(operation) for operation in answered]
