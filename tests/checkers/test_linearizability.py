"""The check itself: histories that some order explains are told from those that none does, and the
search is short where it can be."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.checkers.histories import Operation, Raised
from antiphon.checkers.linearizability import linearizable
from antiphon.errors import ResourceAllocationError

Command = tuple[Any, ...]


class Register:
    def initial(self) -> Any:
        return 0

    def step(self, state: Any, command: Command) -> tuple[Any, Any]:
        match command:
            case ("put", value):
                return value, None
            case ("swap", value):
                return value, state
            case ("cas", old, new):
                return (new, True) if state == old else (state, False)
        return state, state


class Counter:
    def initial(self) -> int:
        return 0

    def step(self, state: int, command: Command) -> tuple[int, int | None]:
        match command:
            case ("incr",):
                return state + 1, state + 1
            case ("add", amount):
                return state + amount, None
            case ("double",):
                return state * 2, None
            case ("reset",):
                return 0, None
        return state, state


class Queue:
    """Its states are lists, which have no hash."""

    def initial(self) -> list[Any]:
        return []

    def step(self, state: list[Any], command: Command) -> tuple[list[Any], Any]:
        match command:
            case ("push", value):
                return [*state, value], None
            case ("length",):
                return state, len(state)
        return (state[1:], state[0]) if state else (state, None)


class Map:
    def initial(self) -> dict[str, Any]:
        return {}

    def step(self, state: dict[str, Any], command: Command) -> tuple[dict[str, Any], Any]:
        match command:
            case ("put", key, value):
                return {**state, key: value}, None
        return state, state.get(command[1])


class MapByKey(Map):
    def key(self, command: Command) -> str:
        return str(command[1])


def op(
    client: int, span: tuple[float, float | None], command: Command, result: Any = None
) -> Operation:
    return Operation(str(client), command, result, *span)


def put(client: int, span: tuple[float, float | None], value: Any) -> Operation:
    return op(client, span, ("put", value))


def get(client: int, span: tuple[float, float | None], value: Any) -> Operation:
    return op(client, span, ("get",), value)


# -- Known histories -------------------------------------------------------------------------------


def test_operations_at_the_same_time_may_happen_in_any_order() -> None:
    check = linearizable(Register)
    at_once = [put(1, (0, 9), 1), put(2, (0, 9), 2)]
    assert check([*at_once, get(3, (1, 2), 2), get(3, (3, 4), 1)]) is None
    assert check([*at_once, get(3, (1, 2), 1), get(3, (3, 4), 2)]) is None
    assert check([*at_once, get(3, (1, 2), 1), get(3, (3, 4), 2), get(3, (5, 6), 1)])


def test_nothing_happened() -> None:
    assert linearizable(Register)([]) is None


def test_a_stale_read() -> None:
    check = linearizable(Register)
    assert check([put(1, (0, 1), 1), put(1, (2, 3), 2), get(2, (4, 5), 2)]) is None
    assert check([put(1, (0, 1), 1), put(1, (2, 3), 2), get(2, (4, 5), 1)])


def test_a_lost_update() -> None:
    check = linearizable(Counter)
    assert check([op(1, (0, 5), ("incr",), 1), op(2, (0, 5), ("incr",), 2)]) is None
    assert check([op(1, (0, 5), ("incr",), 1), op(2, (0, 5), ("incr",), 1)])


def test_a_read_that_travels_in_time() -> None:
    check = linearizable(Register)
    assert check([get(1, (0, 3), 7), put(2, (2, 4), 7)]) is None
    assert check([get(1, (0, 1), 7), put(2, (2, 4), 7)])


def test_two_readers_that_saw_changes_in_different_order() -> None:
    writes = [put(1, (0, 9), 1), put(2, (0, 9), 2)]
    one = [get(3, (1, 2), 1), get(3, (3, 4), 2)]
    other = [get(4, (1, 2), 2), get(4, (3, 4), 1)]
    assert linearizable(Register)(writes + one) is None
    assert linearizable(Register)(writes + other) is None
    assert linearizable(Register)(writes + one + other)


def test_a_resubmitted_command_that_took_effect_twice() -> None:
    check = linearizable(Counter)
    assert check([op(1, (0, 5), ("incr",), 1), op(2, (6, 7), ("get",), 1)]) is None
    assert check([op(1, (0, 5), ("incr",), 2), op(2, (6, 7), ("get",), 2)])
    assert check([op(1, (0, 5), ("incr",), 1), op(2, (6, 7), ("get",), 2)])


def test_a_message_that_was_taken_from_a_queue_twice() -> None:
    pushed = [op(1, (0, 1), ("push", "a")), op(1, (2, 3), ("push", "b"))]
    check = linearizable(Queue)
    assert check([*pushed, op(2, (4, 6), ("pop",), "b"), op(3, (4, 6), ("pop",), "a")]) is None
    assert check([*pushed, op(2, (4, 6), ("pop",), "a"), op(3, (4, 6), ("pop",), "a")])
    assert check([*pushed, op(2, (4, 5), ("pop",), "b")])


# -- Unknown outcomes ------------------------------------------------------------------------------


def test_what_was_never_answered_may_have_happened_or_not() -> None:
    check = linearizable(Register)
    before = [put(1, (0, 1), 1), put(2, (2, None), 2)]
    assert check([*before, get(3, (3, 4), 1)]) is None
    assert check([*before, get(3, (3, 4), 2)]) is None
    assert check([*before, get(3, (3, 4), 1), get(3, (900, 901), 2)]) is None


def test_what_was_never_answered_happens_once_and_not_before_its_call() -> None:
    check = linearizable(Register)
    assert check([put(1, (5, None), 2), get(2, (3, 4), 2)])
    twice = [put(1, (0, None), 2), get(2, (1, 2), 2), put(2, (3, 4), 3), get(2, (5, 6), 2)]
    assert check(twice)
    assert check([*twice, put(3, (0, None), 2)]) is None


def test_the_result_of_what_was_never_answered_is_ignored() -> None:
    lost = op(1, (0, None), ("incr",), "whatever")
    assert linearizable(Counter)([lost, op(2, (1, 2), ("get",), 1)]) is None


def test_several_unanswered_operations_explain_one_result() -> None:
    lost = [op(client, (0, None), ("incr",)) for client in range(5)]
    check = linearizable(Counter)
    assert check([*lost, op(9, (1, 2), ("get",), 5)]) is None
    assert check([*lost, op(9, (1, 2), ("get",), 6)])


def test_a_client_may_go_on_when_it_got_no_answer() -> None:
    history = [put(1, (0, None), 1), put(1, (2, 3), 2), get(1, (4, 5), 1)]
    assert linearizable(Register)(history) is None
    assert linearizable(Register)([put(1, (0, None), 1), get(1, (0, 3), 1)]) is None


# -- Equal times -----------------------------------------------------------------------------------


def test_equal_times_of_two_clients_do_not_say_which_was_first() -> None:
    assert linearizable(Register)([put(1, (1, 2), 1), get(2, (2, 3), 0)]) is None


def test_a_client_does_one_thing_after_the_other_even_at_one_time() -> None:
    check = linearizable(Register)
    assert check([put(1, (1, 2), 1), get(1, (2, 3), 0)])
    assert check([put(1, (2, 2), 1), get(1, (2, 2), 0)])
    assert check([get(1, (2, 2), 0), put(1, (2, 2), 1)]) is None


# -- What the search leaves out --------------------------------------------------------------------


def test_a_write_of_what_is_there_already_is_no_read() -> None:
    """It changes nothing where it fits first, but may come after another."""
    history = [put(1, (0, 3), 0), op(2, (0, 3), ("swap", 1), 0), op(3, (6, 9), ("swap", 1), 0)]
    assert linearizable(Register)(history) is None


def test_the_same_state_with_fewer_unanswered_operations_is_another() -> None:
    early, late = op(1, (0, None), ("incr",)), op(1, (8, None), ("incr",))
    history = [early, op(2, (6, 7), ("double",)), late, op(2, (9, 13), ("get",), 3)]
    assert linearizable(Counter)(history) is None


def test_an_unanswered_operation_may_matter_only_later() -> None:
    history = [op(1, (2, None), ("push", "a")), op(2, (2, 6), ("push", "b"))]
    assert linearizable(Queue)([*history, op(3, (7, 12), ("pop",), "a")]) is None


def test_of_operations_that_are_alike_the_first_to_return_may_come_last() -> None:
    """What follows the other one was called when both returned, and knows only of its own."""
    one, other = op(1, (1, 4), ("add", 2)), op(2, (2, 4), ("add", 2))
    assert linearizable(Counter)([one, other, op(2, (4, 11), ("incr",), 3)]) is None


def test_operations_that_are_alike_return_at_different_times() -> None:
    one, other = op(1, (1, 1), ("incr",), 1), op(2, (0, 3), ("incr",), 1)
    assert linearizable(Counter)([one, other, op(1, (3, None), ("reset",))]) is None


# -- Keys ------------------------------------------------------------------------------------------


def test_keys_are_checked_apart() -> None:
    history = [
        op(1, (0, 1), ("put", "x", 1)),
        op(1, (2, 3), ("put", "y", 2)),
        op(2, (4, 5), ("get", "x"), 1),
        op(2, (6, 7), ("get", "y"), 1),
    ]
    explanation = linearizable(MapByKey)(history)
    assert explanation
    assert "of key 'y'" in explanation
    assert "'x'" not in explanation
    assert linearizable(Map)(history)
    assert linearizable(MapByKey)(history[:3]) is None


def test_what_is_too_much_together_is_little_apart() -> None:
    """Every key has a few unanswered writes, which can have happened in any combination."""
    keys = [f"k{number}" for number in range(12)]
    lost = [op(client, (0, None), ("put", key, client)) for client, key in enumerate(keys)]
    reads = [op(99, (at + 1, at + 2), ("get", key), -1) for at, key in enumerate(keys)]
    assert linearizable(MapByKey, steps_max=100)(lost + reads)
    with pytest.raises(ResourceAllocationError):
        linearizable(Map, steps_max=100)(lost + reads)


# -- Explanations ----------------------------------------------------------------------------------


def test_an_explanation_shows_what_matters() -> None:
    history = [
        put(1, (0.1, 0.2), "old"),
        get(2, (0.25, 0.3), "old"),
        put(3, (0.4, 0.5), "new"),
        get(2, (0.55, 0.6), "new"),
        put(1, (0.6, None), "lost"),
        get(4, (0.7, 0.8), "old"),
        get(2, (0.9, 1.1), "new"),
    ]
    assert linearizable(Register)(history) == (
        "not linearizable: no order of the operations explains these results\n"
        "  client 1  [0.100 .. 0.200]  put('old') -> None\n"
        "  client 2  [0.550 .. 0.600]  get() -> 'new'\n"
        "  client 4  [0.700 .. 0.800]  get() -> 'old'   <- not explained\n"
        "there the model allows get() -> 'new' or 'lost'\n"
        "3 others make no difference, however they ended"
    )


def test_an_explanation_is_short() -> None:
    pushes = [op(1, (at, at + 0.5), ("push", "x" * 200)) for at in range(50)]
    explanation = linearizable(Queue)([*pushes, op(2, (60, 61), ("length",), 49)])
    assert explanation
    assert "there the model allows length() -> 50" in explanation
    lines = explanation.splitlines()
    assert "and those of 31 more" in lines[-2]
    assert len(lines) < 25
    assert max(map(len, lines)) < 150


def test_times_are_told_apart() -> None:
    explanation = linearizable(Register)([put(1, (0.1, 0.10001), 1), get(1, (0.10002, 0.2), 0)])
    assert explanation
    assert "[0.100000 .. 0.100010]" in explanation


def test_commands_of_any_kind_are_shown_as_they_are() -> None:
    class Echo:
        def initial(self) -> None:
            return None

        def step(self, state: None, command: Any) -> tuple[None, Any]:
            return state, command

    explanation = linearizable(Echo)([Operation("a", {"say": 1}, 2, 0, 1)])
    assert explanation
    assert "client a  [0.000 .. 1.000]  {'say': 1} -> 2" in explanation


# -- Models ----------------------------------------------------------------------------------------


@dataclass
class Account:
    balance: int
    log: deque[int]


class Bank:
    """States that have no hash, in one another."""

    def initial(self) -> dict[str, Any]:
        return {"account": Account(0, deque()), "names": {"x"}, "raw": bytearray(b"r"), "l": [(1,)]}

    def step(self, state: dict[str, Any], command: Command) -> tuple[dict[str, Any], Any]:
        account = state["account"]
        if command[0] == "balance":
            return {**state}, account.balance
        changed = Account(account.balance + command[1], deque([*account.log, command[1]]))
        return {**state, "account": changed}, None


def test_states_without_a_hash_are_compared_by_value() -> None:
    deposits = [op(client, (0, 9), ("deposit", 1)) for client in range(12)]
    check = linearizable(Bank, steps_max=200)
    assert check([*deposits, op(99, (10, 11), ("balance",), 12)]) is None
    assert check([*deposits, op(99, (10, 11), ("balance",), 11)])


def test_a_model_may_be_an_instance() -> None:
    class From(Register):
        def __init__(self, value: int) -> None:
            self._value = value

        def initial(self) -> int:
            return self._value

    assert linearizable(From(7))([get(1, (0, 1), 7)]) is None
    assert linearizable(From(8))([get(1, (0, 1), 7)])


def test_results_that_were_raised_are_results() -> None:
    class Strict(Queue):
        def step(self, state: list[Any], command: Command) -> tuple[list[Any], Any]:
            if command == ("pop",) and not state:
                return state, Raised("IndexError", "empty")
            return super().step(state, command)

    check = linearizable(Strict)
    assert check([op(1, (0, 1), ("pop",), Raised("IndexError", "empty"))]) is None
    explanation = check([op(1, (0, 1), ("pop",), Raised("KeyError", "empty"))])
    assert explanation
    assert "IndexError('empty')" in explanation


def test_a_model_that_lacks_something() -> None:
    with pytest.raises(TypeError, match=r"object has no method initial\(\)"):
        linearizable(object)  # type: ignore[arg-type]

    class Still:
        def initial(self) -> int:
            return 0

    with pytest.raises(TypeError, match=r"Still has no method step\(\)"):
        linearizable(Still())  # type: ignore[arg-type]


def test_a_model_that_returns_no_pair() -> None:
    class Single(Register):
        def step(self, state: Any, command: Command) -> Any:
            return state

    with pytest.raises(TypeError, match=r"\(state, result\), but for get\(\) it returned 0"):
        linearizable(Single)([get(1, (0, 1), 0)])


def test_a_model_that_changes_the_state_it_was_given() -> None:
    class InPlace(Queue):
        def step(self, state: list[Any], command: Command) -> tuple[list[Any], Any]:
            state.append(command)
            return state, None

    with pytest.raises(ValueError, match="changed the one that it was given"):
        linearizable(InPlace)([op(1, (0, 1), ("push", 1))])


# -- Bad histories, and too large ones -------------------------------------------------------------


def test_what_is_no_history() -> None:
    check = linearizable(Register)
    with pytest.raises(TypeError, match="made of Operations, not of 'get'"):
        check(["get"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="returned before it was called"):
        check([get(1, (2, 1), 0)])
    with pytest.raises(ValueError, match=r"called before its client had got an answer to get\(\)"):
        check([put(1, (2, 4), 0), get(1, (1, 3), 0)])
    with pytest.raises(ValueError, match="called before its client had got an answer"):
        check([put(1, (2, None), 0), get(1, (1, 3), 0)])


def test_the_search_has_a_bound() -> None:
    pushes = [op(client, (0, 1), ("push", client)) for client in range(12)]
    pops = [op(99, (at, at + 0.5), ("pop",), at - 2) for at in range(2, 13)]
    history = [*pushes, *pops, op(99, (20, 21), ("pop",), "never pushed")]
    with pytest.raises(ResourceAllocationError) as caught:
        linearizable(Queue, steps_max=1_000)(history)
    assert "after 1,000 steps of the model, for 24 operations and 0 that" in str(caught.value)
    assert "key()" in str(caught.value)
    assert "client 99  [" in str(caught.value)


# -- Against every possible order ------------------------------------------------------------------


def precedes(history: Sequence[Operation], one: int, other: int) -> bool:
    a, b = history[one], history[other]
    if a.returned is None:
        return False
    if a.client != b.client:
        return a.returned < b.called
    # A client gives up before what it calls next, if that is at the same time.
    return a.returned < b.called or (
        a.returned == b.called and (a.called, True, a.returned, one) < (b.called, *ended(b), other)
    )


def ended(operation: Operation) -> tuple[bool, float]:
    return operation.returned is not None, operation.returned or 0.0


def some_order_explains(model: Any, history: Sequence[Operation]) -> bool:
    everything = range(len(history))
    answered = {place for place in everything if history[place].returned is not None}
    before = [{one for one in everything if precedes(history, one, other)} for other in everything]

    def goes_on(done: frozenset[int], state: Any) -> bool:
        if answered <= done:
            return True
        for place in set(everything) - done:
            if before[place] <= done:
                after, result = model.step(state, history[place].command)
                fits = place not in answered or result == history[place].result
                if fits and goes_on(done | {place}, after):
                    return True
        return False

    return goes_on(frozenset(), model.initial())


SMALL = st.integers(0, 2)
COMMANDS: dict[Callable[[], Any], st.SearchStrategy[Command]] = {
    Register: st.one_of(
        st.just(("get",)),
        st.tuples(st.sampled_from(["put", "swap"]), SMALL),
        st.tuples(st.just("cas"), SMALL, SMALL),
    ),
    Counter: st.sampled_from([("get",), ("incr",), ("add", 2), ("double",), ("reset",)]),
    Queue: st.one_of(st.sampled_from([("pop",), ("length",)]), st.tuples(st.just("push"), SMALL)),
}
any_model = pytest.mark.parametrize("model", COMMANDS)


@st.composite
def histories(draw: st.DrawFn, model: Callable[[], Any]) -> list[Operation]:
    """Of a service that keeps its promise; some answers are lost, some commands as well."""
    now = dict.fromkeys("abcd", 0)
    calls = []
    for _ in range(draw(st.integers(1, 7))):
        client = draw(st.sampled_from("abcd"))
        called = now[client] + draw(SMALL)
        happens = called + draw(SMALL)
        now[client] = returned = happens + draw(SMALL)
        fate = draw(st.sampled_from(["answered", "answered", "answered", "happens", "lost"]))
        calls.append((happens, client, draw(COMMANDS[model]), called, returned, fate))
    service = model()
    state = service.initial()
    history = []
    for _, client, command, called, returned, fate in sorted(calls, key=lambda call: call[0]):
        result = None
        if fate != "lost":
            state, result = service.step(state, command)
        end = returned if fate == "answered" else None
        history.append(Operation(client, command, result, called, end))
    return history


@st.composite
def doubtful(draw: st.DrawFn, model: Callable[[], Any]) -> list[Operation]:
    """Histories with a result that is another one, or comes from another operation."""
    history = draw(histories(model))
    at = draw(st.integers(0, len(history) - 1))
    results = [operation.result for operation in history]
    other = draw(st.one_of(st.sampled_from(results), SMALL))
    return [*history[:at], replace(history[at], result=other), *history[at + 1 :]]


@any_model
@given(data=st.data())
def test_what_happened_one_after_the_other_is_explained(
    model: Callable[[], Any], data: st.DataObject
) -> None:
    history = data.draw(histories(model))
    assert linearizable(model())(history) is None


@any_model
@settings(max_examples=300)
@given(data=st.data())
def test_nothing_is_explained_but_by_an_order(
    model: Callable[[], Any], data: st.DataObject
) -> None:
    history = data.draw(doubtful(model))
    explanation = linearizable(model())(history)
    assert (explanation is None) == some_order_explains(model(), history)
    if explanation:
        shown = [o if line_of(o) in explanation else replace(o, returned=None) for o in history]
        assert not some_order_explains(model(), shown)


def line_of(operation: Operation) -> str:
    span = f"[{operation.called:.3f} .. {operation.returned or 0:.3f}]"
    name, *arguments = operation.command
    call = f"{name}({', '.join(map(repr, arguments))})"
    return f"client {operation.client}  {span}  {call} -> {operation.result!r}"


# -- Long histories --------------------------------------------------------------------------------


def long_history(
    model: Any, draw: Callable[[Random, int], Command], unanswered: int = 0, clients: int = 10
) -> list[Operation]:
    """A thousand calls, with hardly a pause between those of a client."""
    chance = Random(7)
    lost = set(chance.sample(range(1000), unanswered))
    state = model.initial()
    history: list[Operation] = []
    calls = iter(range(1000))
    result = None
    happens: list[tuple[float, int, float, int]] = []

    def call(client: int, now: float) -> None:
        number = next(calls, None)
        if number is not None:
            heapq.heappush(happens, (now + chance.expovariate(1), client, now, number))

    for client in range(clients):
        call(client, chance.random())
    while happens:
        now, client, called, number = heapq.heappop(happens)
        command = draw(chance, number)
        returned = now + chance.expovariate(1)
        if number not in lost or chance.random() < 0.5:
            state, result = model.step(state, command)
        end = None if number in lost else returned
        history.append(Operation(str(client), command, result, called, end))
        call(client, returned + chance.expovariate(10))
    return history


def reads_and_writes(chance: Random, number: int) -> Command:
    return chance.choice([("get",), ("put", number)])


def swaps(chance: Random, number: int) -> Command:
    old, new = chance.randrange(5), chance.randrange(5)
    return chance.choice([("get",), ("put", new), ("cas", old, new), ("cas", old, new)])


def increments(chance: Random, number: int) -> Command:
    return chance.choice([("get",), ("incr",)])


def pushes_and_pops(chance: Random, number: int) -> Command:
    return ("push", number) if chance.random() < 0.4 else ("pop",)


def timed(check: Callable[[Sequence[Operation]], str | None], history: list[Operation]) -> Any:
    began = perf_counter()
    explanation = check(history)
    print(f"{len(history)} operations in {perf_counter() - began:.3f} s")
    return explanation


@pytest.mark.parametrize("unanswered", [0, 12])
@pytest.mark.parametrize(
    ("model", "draw"),
    [(Register, reads_and_writes), (Register, swaps), (Counter, increments)],
)
def test_a_thousand_operations_of_ten_clients(
    model: Callable[[], Any], draw: Callable[[Random, int], Command], unanswered: int
) -> None:
    history = long_history(model(), draw, unanswered)
    assert timed(linearizable(model(), steps_max=50_000), history) is None


@pytest.mark.parametrize("unanswered", [0, 12])
def test_a_thousand_operations_on_a_queue_that_stays_short(unanswered: int) -> None:
    """Which of two messages came first shows only when they are taken out."""
    history = long_history(Queue(), pushes_and_pops, unanswered, clients=5)
    assert timed(linearizable(Queue, steps_max=50_000), history) is None


@pytest.mark.parametrize(
    ("model", "draw", "unanswered", "steps_max"),
    [
        (Counter, increments, 0, 20_000),
        (Counter, increments, 12, 200_000),
        (Register, reads_and_writes, 0, 1_000_000),
    ],
)
def test_a_wrong_result_among_a_thousand(
    model: Callable[[], Any],
    draw: Callable[[Random, int], Command],
    unanswered: int,
    steps_max: int,
) -> None:
    history = long_history(model(), draw, unanswered)
    reads = [at for at, o in enumerate(history) if o.command == ("get",) and o.returned is not None]
    at = reads[len(reads) * 9 // 10]
    history[at] = replace(history[at], result=history[reads[50]].result)
    explanation = timed(linearizable(model(), steps_max=steps_max), history)
    assert f"get() -> {history[at].result}   <- not explained" in explanation


def test_a_model_raises_what_the_service_raises() -> None:
    class Stack(Register):
        def step(self, state: Any, command: Command) -> tuple[Any, Any]:
            if command == ("pop",) and not state:
                raise IndexError("it is empty")
            return super().step(state, command)

    check = linearizable(Stack)
    empty = Operation("1", ("pop",), Raised("IndexError", "it is empty"), 0.0, 1.0)
    assert check([empty]) is None
    assert check([replace(empty, result=0)]) is not None
