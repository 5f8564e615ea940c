"""Tells whether a history is linearizable: whether each call can have happened at one moment.

A history is what the clients of a service saw: which commands they called, when, and what came
back. It is linearizable if every command can be given a moment between its call and its return,
such that a model of the service, stepped through the commands in that order, gives the same
results. A command that was never answered may have happened at any time after its call, or never.

    class Register:
        def initial(self):
            return None

        def step(self, state, command):
            name, *arguments = command
            return (arguments[0], None) if name == "put" else (state, state)

    check = linearizable(Register)
    assert check([Operation("1", ("put", 3), None, called=0.1, returned=0.2)]) is None

Promised is an exact answer: `None` if there is such an order, and if there is none the first
operation that no order explains, with those that rule out every explanation. The question is hard
in general, so the search has a bound, and an error says where it was reached.

The search is that of Wing and Gong, with Lowe's memory of what was tried: orders grow by one
operation at a time, which was called before any that is still missing returned, and the same
operations that lead to the same state a second time are not tried again. What keeps it short:

- An operation that changes no state, like a read, is taken as soon as its result is right, and
  nothing is tried instead. Whether it really changes none is looked at when the search has failed,
  which then may have to start anew.
- Of operations that are alike, the one that returned first comes first.
- Unanswered operations are tried last, where they change the state, and if what comes next would
  not be the same without them or before them. Whoever came to a state with fewer of them can do all
  that others can.
- What was seen early is tried early: that says much about the order in which a queue was filled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf
from typing import Any, NamedTuple, Protocol

from antiphon.errors import ResourceAllocationError
from antiphon.model.exceptions import describe

STEPS_MAX = 2_000_000
"""Of the model, for the operations of one key: some seconds, and 600 MB if states are large."""

SHRINKING_STEPS = 1_000_000
"""To find out which operations matter, if there is a violation."""

ATTEMPT_STEPS = 200_000
"""To find out whether some of them do."""

LINES_MAX = 20
"""Operations in an explanation."""

VALUES_MAX = 5
"""Results that the model allows, in an explanation."""

WIDTH_MAX = 80
"""Of a value, in an explanation."""

PARTS_MAX = 100
"""Of a value, that are looked at for a hint: the last ones, which are the new ones of a list."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A call as its client saw it. The clock is one that all clients share."""

    client: str
    command: Any
    result: Any
    called: float
    returned: float | None
    """`None`: never answered. Whether it happened is unknown, and `result` says nothing."""


class Raised(NamedTuple):
    """The result of a command that raised."""

    type_name: str
    text: str

    def __repr__(self) -> str:
        return f"{self.type_name}({self.text!r})"


class Model(Protocol):
    """The sequential specification: what the service does if commands come one after the other.

    A model may also have `key(command)`: commands with different keys have nothing to do with each
    other, and are checked apart, each from the initial state. States are compared by value, and
    should be hashable, or made of the usual containers and dataclasses.
    """

    def initial(self) -> Any: ...

    def step(self, state: Any, command: Any, /) -> tuple[Any, Any]:
        """The next state, and the result. The given state stays as it is. It raises what the
        service raises, which changes nothing."""


def linearizable(
    model: Model | type[Model], *, steps_max: int = STEPS_MAX
) -> Callable[[Sequence[Operation]], str | None]:
    """A check of histories against the model: `None`, or why a history is not linearizable.

    The check raises `ResourceAllocationError` if it has no answer after `steps_max` steps."""
    made: Model = model() if isinstance(model, type) else model
    for name in ("initial", "step"):
        if not callable(getattr(made, name, None)):
            raise TypeError(f"the model {type(made).__name__} has no method {name}()")

    def check(history: Sequence[Operation]) -> str | None:
        _check_input(history)
        for of_key, operations in _by_key(made, history):
            explanation = _violation(made, operations, of_key, steps_max)
            if explanation:
                return explanation
        return None

    return check


def _check_input(history: Sequence[Operation]) -> None:
    for operation in history:
        if not isinstance(operation, Operation):
            raise TypeError(f"a history is made of Operations, not of {_short(operation)}")
        if _end(operation) < operation.called:
            raise ValueError(f"{_line(operation)} returned before it was called")
    for before, after in _neighbours(history):
        if history[after].called < _end(history[before]):
            raise ValueError(
                f"{_line(history[after])} was called before its client had got an answer to"
                f" {_call(history[before].command)}"
            )


def _neighbours(history: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Operations and the last one before them that the same client got an answer to. Who got none
    in time may go on."""
    last: dict[str, int] = {}
    for place, operation in sorted(enumerate(history), key=lambda item: _begin(item[1])):
        if operation.client in last:
            yield last[operation.client], place
        if operation.returned is not None:
            last[operation.client] = place


def _end(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned


def _begin(operation: Operation) -> tuple[float, bool, float]:
    """Sorts the operations of a client: it may give up a call and make another at the same time."""
    return operation.called, operation.returned is not None, _end(operation)


def _by_key(model: Model, history: Sequence[Operation]) -> list[tuple[str, list[Operation]]]:
    """Few operations first: there a violation is found soon and explained well."""
    key_of = getattr(model, "key", None)
    if key_of is None:
        return [("", list(history))]
    parts: dict[Hashable, tuple[str, list[Operation]]] = {}
    for operation in history:
        key = key_of(operation.command)
        parts.setdefault(_frozen(key), (f" of key {_short(key)}", []))[1].append(operation)
    return sorted(parts.values(), key=lambda part: len(part[1]))


def _frozen(value: Any) -> Hashable:
    """Hashable, and the same for values that are the same, as far as their `repr` tells if they are
    of an unusual kind."""
    try:
        hash(value)
    except TypeError:
        return type(value), _frozen_content(value)
    return value  # type: ignore[no-any-return]


def _frozen_content(value: Any) -> Hashable:
    if isinstance(value, OrderedDict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return tuple(map(_frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if is_dataclass(value):
        return tuple(_frozen(getattr(value, field.name)) for field in fields(value))
    return repr(value)


class _Steps:
    """The model's steps from state to state. States have numbers, and no step is taken twice."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._states: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._kinds: dict[Hashable, int] = {}
        self._taken: list[dict[int, tuple[int, Any]]] = []  # of each state, by kind of command
        self.initial = self._number(model.initial())

    def kind(self, value: Any) -> int:
        return self._kinds.setdefault(_frozen(value), len(self._kinds))

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
                f"step() of the model returns (state, result), but for {_call(command)} it"
                f" returned {_short(step)}"
            )
        if self._numbers.get(_frozen(before)) != state:
            raise ValueError(
                f"step() of the model returns a new state, but for {_call(command)} it changed the"
                " one that it was given"
            )
        return self._number(step[0]), step[1]

    def _number(self, state: Any) -> int:
        number = self._numbers.setdefault(_frozen(state), len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._taken.append({})
        return number


class _Node(NamedTuple):
    """How far an order of operations has come."""

    first: int
    """The first answered operation that is not in it."""
    ahead: int
    """Which answered ones after that are in it, as bits."""
    used: int
    """Which unanswered ones are in it, as bits."""
    state: int
    """That it leads to."""
    before: int = -1
    doubted: int = -1
    """If the last one was never answered: which it was, and the state before. What comes next must
    show that it was of use."""


class _Search:
    """For an order that explains all answered operations, by as many unanswered ones as it takes.

    An order can go on with what was called before the first one that is missing returned: that is
    at most one operation of each client, and unanswered ones.
    """

    def __init__(self, operations: Sequence[Operation], steps: _Steps, steps_max: int) -> None:
        ordered = sorted(operations, key=lambda o: (_end(o), o.called))
        self.answered = [o for o in ordered if o.returned is not None]
        self.unanswered = ordered[len(self.answered) :]
        self._ordered = ordered
        self.furthest = 0
        """The first answered operation that no order has come past."""
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
        self._hasty: dict[int, int] = {}  # of what was taken at once, and is alike: one operation
        self._changing: set[int] = set()  # what is alike and changes some state

    def _groups(self) -> list[int]:
        """The unanswered operations that are alike, as bits."""
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
        """Results of the furthest operation, each in some order of those before it."""
        command, kind = self.answered[self.furthest].command, self._kinds[self.furthest]
        results = (self._steps.take(state, kind, command)[1] for state in self._stuck)
        return list({_frozen(result): result for result in results}.values())

    def _finds_order(self) -> bool:
        self.furthest = 0
        self._seen, self._stuck, self._hasty = {}, [], {}
        stack = [iter([_Node(0, 0, 0, self._steps.initial)])]
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
        """A walk through the operations shows most of those that change something. To learn it
        later costs a second search."""
        state = self._steps.initial
        for place, operation in enumerate(self.answered):
            after, result = self._take(state, place)
            if after != state and result == operation.result:
                self._changing.add(self._alike[place])
            state = after

    def _was_too_hasty(self) -> bool:
        """Whether something that was taken because it changes no state does change one: it might
        have explained more at another place. From now on this is known."""
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

    def _is_known(self, node: _Node) -> bool:
        others = self._seen.setdefault((node.first, node.ahead, node.state), [])
        if any(other & node.used == other for other in others):
            return True
        others.append(node.used)
        return False

    def _note(self, node: _Node) -> None:
        if node.first > self.furthest:
            self.furthest = node.first
            self._stuck = []
        if node.first == self.furthest:
            self._stuck.append(node.state)

    def _successors(self, node: _Node) -> Iterator[_Node]:
        found: list[_Node] = []
        for place, after in self._fitting(node):
            bit = 1 << (place - node.first)
            successor = _Node(*_advanced(node.first, node.ahead | bit), node.used, after)
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

    def _fitting(self, node: _Node) -> Iterator[tuple[int, int]]:
        """Answered operations that can come next, and the states to which they lead."""
        tried: dict[int, int] = {}  # of what is alike, the one that was tried first
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
        """Whether the other operation, which is alike, may as well come later."""
        if one == other:
            return False
        end, other_end = _end(self.answered[one]), _end(self.answered[other])
        return end < other_end or (end == other_end and other not in self._is_awaited)

    def _doubt_remains(self, node: _Node, place: int, after: int) -> bool:
        """Whether the unanswered operation just before was of no use for this one: without it, or
        if it came later, all would be the same."""
        if node.doubted < 0:
            return False
        without, result = self._take(node.before, place)
        if result != self.answered[place].result:
            return False
        return after in (without, self._take(without, node.doubted)[0])

    def _unanswered_successors(self, node: _Node) -> Iterator[_Node]:
        latest = _end(self.answered[node.first])
        for alike in self._unanswered_alike:
            number = self._next_of(alike, node, latest)
            if number is None:
                continue
            place = len(self.answered) + number
            after, _ = self._take(node.state, place)
            without = self._take(node.before, place)[0] if node.doubted >= 0 else node.state
            if after not in (node.state, without):
                used = node.used | 1 << number
                yield _Node(node.first, node.ahead, used, after, node.state, place)

    def _next_of(self, alike: int, node: _Node, latest: float) -> int | None:
        """Of unanswered operations that are alike, the first that can come next."""
        left = alike & ~node.used
        while left:
            number = (left & -left).bit_length() - 1
            if self.unanswered[number].called > latest:
                return None
            if not self._must_wait(node, len(self.answered) + number):
                return number
            left &= left - 1
        return None

    def _must_wait(self, node: _Node, place: int) -> bool:
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
                f" {_line(self.answered[self.furthest])}"
            )
        return self._steps.take(state, self._kinds[place], self._ordered[place].command)


def _advanced(first: int, ahead: int) -> tuple[int, int]:
    while ahead & 1:
        first += 1
        ahead >>= 1
    return first, ahead


def _awaited(ordered: Sequence[Operation]) -> list[int]:
    """Of each operation, the one before it of the same client, or -1 where time says as much.

    Equal times do not say which came first: one clock may be too coarse to tell. But a client
    does one thing after the other."""
    awaited = [-1] * len(ordered)
    for before, after in _neighbours(ordered):
        if ordered[before].returned == ordered[after].called:
            awaited[after] = before
    return awaited


def _candidates(answered: Sequence[Operation]) -> list[list[int]]:
    """Of each operation: itself and those after it that were called before it returned, the most
    promising first."""
    seen_at = _seen_at(answered)
    by_call = deque(sorted(range(len(answered)), key=lambda place: answered[place].called))
    called: set[int] = set()
    candidates: list[list[int]] = []
    for place, operation in enumerate(answered):
        while by_call and answered[by_call[0]].called <= _end(operation):
            called.add(by_call.popleft())
        candidates.append(sorted(called, key=lambda other: (seen_at[other], other)))
        called.remove(place)
    return candidates


def _seen_at(answered: Sequence[Operation]) -> list[float]:
    """When a value of the command was in a result for the first time; where none ever was, when
    the operation was called. Only a hint: values may be the same by chance."""
    times: dict[Hashable, list[float]] = defaultdict(list)
    for operation in answered:
        for value in _values(operation.result):
            times[value].append(_end(operation))

    def first_seen(operation: Operation) -> float:
        found = []
        for value in _values(operation.command):
            seen = times.get(value, [])
            found += seen[bisect_left(seen, operation.called) :][:1]
        return min(found, default=operation.called)

    return [first_seen(operation) for operation in answered]


def _values(value: Any) -> Iterator[Hashable]:
    """What a value is made of, as far as it is easily seen."""
    if isinstance(value, list | tuple | set | frozenset | deque):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    else:
        parts = [getattr(value, name, None) for name in getattr(value, "__match_args__", ())]
    for part in parts[-PARTS_MAX:]:
        yield from _values(part)
    if not parts:
        yield _frozen(value)


def _violation(
    model: Model, operations: Sequence[Operation], of_key: str, steps_max: int
) -> str | None:
    steps = _Steps(model)
    search = _Search(operations, steps, steps_max)
    if search.succeeds():
        return None
    culprit = search.answered[search.furthest]
    until_then = [o for o in operations if o.called <= _end(culprit)]
    relevant = _relevant(until_then, culprit, steps)
    return _explanation(relevant, len(until_then), search.allowed(), of_key)


def _relevant(
    until_then: Sequence[Operation], culprit: Operation, steps: _Steps
) -> Sequence[Operation]:
    """The culprit, and those that leave it without an explanation even if nobody knows how the
    others ended: few of them, as far as that is not too much work to find out."""
    likely = _likely(until_then, culprit)
    # How operations ended that ended later may be explained by what came later.
    later = [o for o in until_then if _end(o) > _end(culprit)]
    others = [replace(o, returned=None) for o in later]
    steps_left = SHRINKING_STEPS

    def suffice(kept: Sequence[int]) -> bool:
        nonlocal steps_left
        known = set(kept)
        tried = [o if at in known else replace(o, returned=None) for at, o in enumerate(likely)]
        search = _Search([culprit, *tried, *others], steps, min(steps_left, ATTEMPT_STEPS))
        fails = _surely_fails(search)
        steps_left -= search.steps_taken
        return fails

    kept: list[int] = []
    while not suffice(kept):
        if len(kept) == len(likely):
            return [culprit, *likely, *later]
        kept = list(range(len(likely)))[: 2 * len(kept) + 1]
    size = len(kept) // 2
    while size:
        at = 0
        while at < len(kept) and steps_left > 0:
            fewer = kept[:at] + kept[at + size :]
            if suffice(fewer):
                kept = fewer
            else:
                at += size
        size //= 2
    return [culprit, *(likely[at] for at in kept)]


def _likely(until_then: Sequence[Operation], culprit: Operation) -> list[Operation]:
    """Operations that ended before the culprit. Those that have to do with the same values are the
    likely causes, and then those that ended last."""
    values = set(_values(culprit.result))

    def likelihood(operation: Operation) -> tuple[bool, float]:
        others = (*_values(operation.command), *_values(operation.result))
        return values.isdisjoint(others), -_end(operation)

    ended = (o for o in until_then if _end(o) <= _end(culprit) and o is not culprit)
    return sorted(ended, key=likelihood)


def _surely_fails(search: _Search) -> bool:
    try:
        return not search.succeeds()
    except ResourceAllocationError:
        return False


def _explanation(relevant: Sequence[Operation], total: int, allowed: list[Any], of_key: str) -> str:
    """The most relevant come first, and the culprit before all."""
    culprit = relevant[0]
    shown = sorted(relevant[:LINES_MAX], key=_begin)
    lines = [f"not linearizable: no order of the operations{of_key} explains these results"]
    for operation, line in zip(shown, _table(shown), strict=True):
        lines.append(f"  {line}   <- not explained" if operation is culprit else f"  {line}")
    if len(relevant) > len(shown):
        lines.append(f"  and those of {len(relevant) - len(shown)} more")
    lines.append(f"there the model allows {_call(culprit.command)} -> {_alternatives(allowed)}")
    if total > len(relevant):
        lines.append(f"{total - len(relevant)} others make no difference, however they ended")
    return "\n".join(lines)


def _table(operations: Sequence[Operation]) -> list[str]:
    digits = _digits({time for o in operations for time in (o.called, _end(o))})
    rows = [_columns(operation, digits) for operation in operations]
    client, span = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:{client}}  {row[1]:{span}}  {row[2]}" for row in rows]


def _digits(times: set[float]) -> int:
    """Enough to tell the times apart."""
    return next((n for n in (3, 6) if len({f"{t:.{n}f}" for t in times}) == len(times)), 9)


def _line(operation: Operation) -> str:
    return "  ".join(_columns(operation, 3))


def _columns(operation: Operation, digits: int) -> tuple[str, str, str]:
    answered = operation.returned is not None
    end = f"{operation.returned:.{digits}f}" if answered else "never"
    outcome = _short(operation.result) if answered else "?"
    return (
        f"client {operation.client}",
        f"[{operation.called:.{digits}f} .. {end}]",
        f"{_call(operation.command)} -> {outcome}",
    )


def _call(command: Any) -> str:
    """`("put", "x", 3)` as `put('x', 3)`, anything else as it is."""
    match command:
        case (str(name), *arguments) if name.isidentifier():
            return f"{name}({', '.join(map(_short, arguments))})"
    return _short(command)


def _alternatives(values: Sequence[Any]) -> str:
    shown = [_short(value) for value in values[:VALUES_MAX]]
    if len(values) > VALUES_MAX:
        shown.append(f"{len(values) - VALUES_MAX} others")
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 3]}..."
