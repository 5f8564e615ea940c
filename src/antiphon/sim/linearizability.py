"""Tells whether each call of a history can have happened at one moment: is it linearizable?

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

- An operation that changes no state is taken as soon as its result is right, and nothing else is
  tried instead. Which ones these are shows only when the search is over, which then may have to
  start anew.
- Of operations that are alike, the one that returned first comes first.
- Unanswered operations come last, and only where they change the state. Whoever reached a state
  with fewer of them can do all that is possible with more.
- What others saw early is tried early: it says much about the order in which a queue was filled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf
from typing import Any, NamedTuple, Protocol

from antiphon.blocks.errors import describe
from antiphon.errors import ResourceAllocationError

STEPS_MAX = 3_000_000
"""Of the model, for the operations of one key: some seconds, and some hundred megabytes."""

SHRINKING_STEPS = 2_000_000
"""To find out which operations matter."""

ATTEMPT_STEPS = SHRINKING_STEPS // 10
"""To find out whether some of them do."""

LINES_MAX = 20
"""Operations in an explanation."""

VALUES_MAX = 5
"""Results that the model allows, in an explanation."""

WIDTH_MAX = 80
"""Of a value, in an explanation."""


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
    """What the service does if commands come one after the other.

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
        parts.setdefault(frozen(key), (f" of key {_short(key)}", []))[1].append(operation)
    return sorted(parts.values(), key=lambda part: len(part[1]))


def frozen(value: Any) -> Hashable:
    """Hashable, and the same for values that are the same."""
    try:
        hash(value)
    except TypeError:
        return type(value), _frozen_content(value)
    return value  # type: ignore[no-any-return]


def _frozen_content(value: Any) -> Hashable:
    if isinstance(value, OrderedDict):
        return tuple((key, frozen(item)) for key, item in value.items())
    if isinstance(value, dict):
        return frozenset((key, frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return tuple(map(frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if is_dataclass(value):
        return tuple(frozen(getattr(value, field.name)) for field in fields(value))
    return repr(value)


class _Steps:
    """The model's steps from state to state. States have numbers, and no step is taken twice."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._states: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._kinds: dict[Hashable, int] = {}
        self._taken: list[dict[int, tuple[int, Any]]] = []  # of each state, by kind of command
        self.changing: set[int] = set()
        """Kinds of (command, result) that change some state."""
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
                f"step() of the model returns (state, result), but for {_call(command)} it"
                f" returned {_short(step)}"
            )
        if self._numbers.get(frozen(before)) != state:
            raise ValueError(
                f"step() of the model returns a new state, but for {_call(command)} it changed the"
                " one that it was given"
            )
        after = self._number(step[0])
        if after != state:
            self.changing.add(self.kind((command, step[1])))
        return after, step[1]

    def _number(self, state: Any) -> int:
        number = self._numbers.setdefault(frozen(state), len(self._states))
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
        self._candidates = _candidates(self.answered)
        # The unanswered operations with which a configuration was reached, each time.
        self._seen: dict[tuple[int, int, int], list[int]] = {}
        self._stuck: list[int] = []  # the states before the furthest operation
        self._hasty: dict[int, int] = {}  # what was taken at once: (command, result) -> operation

    def succeeds(self) -> bool:
        while not self._finds_order():
            if not self._was_too_hasty():
                return False
        return True

    def allowed(self) -> list[Any]:
        """Results of the furthest operation, each in some order of those before it."""
        command, kind = self.answered[self.furthest].command, self._kinds[self.furthest]
        results = (self._steps.take(state, kind, command)[1] for state in self._stuck)
        return list({frozen(result): result for result in results}.values())

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

    def _was_too_hasty(self) -> bool:
        """Whether something that was taken because it changes no state does change one: it might
        have explained more at another place. From now on it is known."""
        for state in {state for _, _, state in self._seen}:
            for place in self._hasty.values():
                self._take(state, place)
        return not self._steps.changing.isdisjoint(self._hasty)

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
            if after == node.state and alike not in self._steps.changing:
                self._hasty[alike] = place
                yield successor
                return
            found.append(successor)
        yield from found
        yield from self._unanswered_successors(node)

    def _fitting(self, node: _Node) -> Iterator[tuple[int, int]]:
        """Answered operations that can come next, and the states to which they lead."""
        tried: dict[int, float] = {}  # of what is alike: when the one that was tried returned
        for place in self._candidates[node.first]:
            operation = self.answered[place]
            if node.ahead >> (place - node.first) & 1 or self._must_wait(node, place):
                continue
            if tried.setdefault(self._alike[place], _end(operation)) < _end(operation):
                continue
            after, result = self._take(node.state, place)
            if result == operation.result and not self._doubt_remains(node, place, after):
                yield place, after

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
        tried: set[int] = set()
        for number, operation in enumerate(self.unanswered):
            if operation.called > latest:
                break
            place = len(self.answered) + number
            kind = self._kinds[place]
            if node.used >> number & 1 or kind in tried or self._must_wait(node, place):
                continue
            tried.add(kind)
            after, _ = self._take(node.state, place)
            without = self._take(node.before, place)[0] if node.doubted >= 0 else node.state
            if after not in (node.state, without):
                used = node.used | 1 << number
                yield _Node(node.first, node.ahead, used, after, node.state, place)

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
    the operation returned. Only a hint: values may be the same by chance."""
    times: dict[Hashable, list[float]] = defaultdict(list)
    for operation in answered:
        for value in _values(operation.result):
            times[value].append(_end(operation))

    def first_seen(operation: Operation) -> float:
        found = []
        for value in _values(operation.command):
            seen = times.get(value, [])
            found += seen[bisect_left(seen, operation.called) :][:1]
        return min(found, default=_end(operation))

    return [first_seen(operation) for operation in answered]


def _values(value: Any) -> Iterator[Hashable]:
    """What a value is made of, as far as it is easily seen."""
    if isinstance(value, list | tuple | set | frozenset | deque):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    else:
        parts = [getattr(value, name) for name in getattr(value, "__match_args__", ())]
    for part in parts:
        yield from _values(part)
    if not parts:
        yield frozen(value)


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
    return _explanation(relevant, len(until_then), culprit, search.allowed(), of_key)


def _relevant(
    operations: Sequence[Operation], culprit: Operation, steps: _Steps
) -> list[Operation]:
    """Those that have no explanation together even if nobody knows how the others ended. These are
    found by halves, then quarters, down to single ones, as long as that is not too much work."""
    kept = [o for o in operations if o.returned is not None and o is not culprit]
    others = [o for o in operations if o.returned is None]
    size, steps_left = len(kept), SHRINKING_STEPS
    while size:
        at = 0
        while at < len(kept) and steps_left > 0:
            fewer = kept[:at] + kept[at + size :]
            more = others + [replace(o, returned=None) for o in kept[at : at + size]]
            search = _Search([culprit, *fewer, *more], steps, ATTEMPT_STEPS)
            if _surely_fails(search):
                kept, others = fewer, more
            else:
                at += size
            steps_left -= search.steps_taken
        size //= 2
    return [culprit, *kept]


def _surely_fails(search: _Search) -> bool:
    try:
        return not search.succeeds()
    except ResourceAllocationError:
        return False


def _explanation(
    relevant: Sequence[Operation], total: int, culprit: Operation, allowed: list[Any], of_key: str
) -> str:
    in_time = sorted(relevant, key=lambda o: (o.called, _end(o)))
    lines = [f"not linearizable: no order of the operations{of_key} explains these results"]
    if len(in_time) > LINES_MAX:
        lines.append(f"  ... {len(in_time) - LINES_MAX} earlier ones, and")
    shown = in_time[-LINES_MAX:]
    for operation, line in zip(shown, _table(shown), strict=True):
        lines.append(f"  {line}   <- not explained" if operation is culprit else f"  {line}")
    lines.append(f"there the model allows {_call(culprit.command)} -> {_alternatives(allowed)}")
    if total > len(in_time):
        lines.append(f"how {total - len(in_time)} other operations ended makes no difference")
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
