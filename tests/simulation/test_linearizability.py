"""`linearizable`: the same answer as trying all orders, and a history of a thousand in time."""

from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import ResourceAllocationError
from antiphon.sim import Operation, linearizable
from antiphon.sim.linearizability import Raised


class Register:
    def initial(self) -> Any:
        return None

    def step(self, state: Any, command: Any) -> tuple[Any, Any]:
        match command:
            case ("put", value):
                return value, None
            case ("swap", value):
                return value, state
            case ("add", n):
                if state is None:
                    raise ValueError("there is nothing yet")
                return state + n, state + n
        return state, state


class Line:
    """A queue."""

    def initial(self) -> tuple[Any, ...]:
        return ()

    def step(self, state: tuple[Any, ...], command: Any) -> tuple[tuple[Any, ...], Any]:
        if command[0] == "in":
            return (*state, command[1]), None
        return (state[1:], state[0]) if state else (state, None)


def op(command: Any, result: Any, called: float, returned: float | None, client: str = "") -> Any:
    return Operation(client or f"{called}", command, result, called, returned)


def by_trying(model: Any, history: Sequence[Operation]) -> bool:
    """Whether there is an order, found by trying all of them."""
    sure = [one for one in history if one.returned is not None]
    unsure = [one for one in history if one.returned is None]
    for chosen in range(1 << len(unsure)):
        some = sure + [one for i, one in enumerate(unsure) if chosen >> i & 1]
        if any(_fits(model, order) for order in permutations(some)):
            return True
    return False


def _fits(model: Any, order: Sequence[Operation]) -> bool:
    latest = 0.0
    state = model.initial()
    for one in order:
        if one.returned is not None and one.returned < latest:
            return False
        latest = max(latest, one.called)
        try:
            state, result = model.step(state, one.command)
        except ValueError as error:
            result = Raised("ValueError", str(error))
        if one.returned is not None and result != one.result:
            return False
    return True


registers = st.sampled_from(
    [("put", 1), ("put", 2), ("swap", 1), ("swap", 3), ("get",), ("get",), ("add", 1)]
)
lines = st.sampled_from([("in", 1), ("in", 2), ("out",), ("out",)])


def histories(commands: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Operation]]:
    results = st.sampled_from([None, None, 1, 2, 3, Raised("ValueError", "there is nothing yet")])
    times = st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(0, 6))

    def made(drawn: Any) -> Operation:
        command, result, (called, lasts, unsure) = drawn
        returned = None if unsure == 0 else called + lasts + 0.5
        return Operation("", command, result, called, returned)

    def named(drawn: list[Operation]) -> list[Operation]:
        return [
            Operation(f"client {i}", o.command, o.result, o.called, o.returned)
            for i, o in enumerate(drawn)
        ]

    return st.lists(st.tuples(commands, results, times).map(made), max_size=5).map(named)


@settings(max_examples=300)
@given(histories(registers))
def test_a_register_is_judged_as_by_trying_all_orders(history: list[Operation]) -> None:
    assert (linearizable(Register)(history) is None) == by_trying(Register(), history)


@settings(max_examples=300)
@given(histories(lines))
def test_a_queue_is_judged_as_by_trying_all_orders(history: list[Operation]) -> None:
    assert (linearizable(Line)(history) is None) == by_trying(Line(), history)


@settings(max_examples=100)
@given(st.randoms(use_true_random=False), st.integers(1, 8))
def test_what_did_happen_in_some_order_is_linearizable(draw: Random, clients: int) -> None:
    assert linearizable(Register)(happened(Register(), draw, 40, clients)) is None


def happened(model: Any, draw: Random, count: int, clients: int) -> list[Operation]:
    """Each command takes effect at some moment between its call and its return."""
    commands = [("put", 1), ("put", 2), ("swap", 3), ("get",), ("get",), ("add", 1)]
    free = dict.fromkeys(map(str, range(clients)), 0.0)
    moments = []
    for _ in range(count):
        client = min(free, key=lambda name: free[name])
        called = free[client] + draw.uniform(0.01, 1)
        effect = called + draw.uniform(0, 1)
        returned = effect + draw.uniform(0, 1)
        free[client] = returned + 0.001
        moments.append((effect, client, draw.choice(commands), called, returned))
    state, history = model.initial(), []
    for _, client, command, called, returned in sorted(moments):
        try:
            state, result = model.step(state, command)
        except ValueError as error:
            result = Raised("ValueError", str(error))
        history.append(Operation(client, command, result, called, returned))
    return sorted(history, key=lambda one: one.called)


def test_a_thousand_operations_of_ten_clients_are_judged_within_the_bound() -> None:
    history = happened(Register(), Random(1), 1000, 10)
    check = linearizable(Register, steps_max=200_000)
    assert check(history) is None
    wrong = next(i for i in range(700, 1000) if history[i].command == ("get",))
    one = history[wrong]
    history[wrong] = Operation(one.client, one.command, "nobody put it", one.called, one.returned)
    assert "nobody put it" in (check(history) or "")


@pytest.mark.parametrize(
    "history",
    [
        [op(("put", 1), None, 0, 1), op(("put", 2), None, 2, 3), op(("get",), 1, 4, 5)],
        [op(("put", 1), None, 0, 1), op(("get",), None, 2, 3)],
        [op(("put", 1), None, 0, 9), op(("get",), 1, 1, 2), op(("get",), None, 3, 4)],
        [op(("put", 1), None, 0, 1), op(("add", 1), 2, 2, 3), op(("get",), 3, 4, 5)],
        [op(("add", 1), 1, 0, 1)],
    ],
    ids=["stale read", "lost update", "back in time", "effect twice", "no exception"],
)
def test_what_cannot_have_happened_is_found_out(history: list[Operation]) -> None:
    told = linearizable(Register)(history)
    assert told is not None
    assert told.startswith("not linearizable")
    assert "not explained" in told


def test_what_was_never_answered_may_have_happened_or_not() -> None:
    check = linearizable(Register)
    put = op(("put", 1), None, 0, None)
    assert check([put, op(("get",), 1, 5, 6)]) is None
    assert check([put, op(("get",), None, 5, 6)]) is None
    assert check([put, op(("get",), None, 1, 2), op(("get",), 1, 5, 6)]) is None
    assert check([put, op(("get",), 1, 1, 2), op(("get",), None, 5, 6)]) is not None


def test_keys_are_judged_apart() -> None:
    class Table(Register):
        def key(self, command: Any) -> Any:
            return command[1]

        def step(self, state: Any, command: Any) -> tuple[Any, Any]:
            return (command[2], None) if command[0] == "put" else (state, state)

    check = linearizable(Table)
    good = [op(("put", "a", 1), None, 0, 1), op(("get", "b"), None, 2, 3)]
    assert check(good) is None
    told = check([*good, op(("get", "a"), None, 4, 5)])
    assert told is not None
    assert "of key 'a'" in told


def test_a_model_may_raise_what_the_service_raises() -> None:
    raised = Raised("ValueError", "there is nothing yet")
    assert linearizable(Register)([op(("add", 1), raised, 0, 1)]) is None


def test_wrong_input_is_refused() -> None:
    with pytest.raises(TypeError, match="no method initial"):
        linearizable(object)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        linearizable(Register)([op(("get",), None, 5, 1)])
    with pytest.raises((TypeError, ValueError)):
        linearizable(Register)([op(("get",), None, 0, 5, "a"), op(("get",), None, 1, 2, "a")])


def test_the_search_has_a_bound() -> None:
    history = [op(("in", n % 3), None, 0, 100, f"c{n}") for n in range(12)]
    history += [op(("out",), "nothing", 1, 99, f"d{n}") for n in range(12)]
    with pytest.raises(ResourceAllocationError):
        linearizable(Line, steps_max=2_000)(history)
