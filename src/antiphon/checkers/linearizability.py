"""Checks whether a history is linearizable: whether each call can have happened at one moment.

A history is the clients' view of a service: the commands that they called, with times and results.
It is linearizable if every command can be given a moment between its call and its return, such that
a model of the service, stepped through the commands in that order, gives the same results. A
command without an answer may have happened at any time after its call, or never.

    class Register:
        def initial(self):
            return None

        def step(self, state, command):
            name, *arguments = command
            return (arguments[0], None) if name == "put" else (state, state)

    check = linearizable(Register)
    assert check([Operation("1", ("put", 3), None, called=0.1, returned=0.2)]) is None

Promise: the answer is exact: `None` if there is such an order, and if there is none the first
operation that no order explains, with those that rule out every explanation. The question is hard
in general, so the search has a bound, and an error tells where it was reached.

The search is in `search.py`, the text in `explanation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from antiphon.checkers.explanation import call_text, explanation, line_of, short
from antiphon.checkers.histories import (
    Operation,
    end_of,
    frozen,
    neighbours,
    values_in,
)
from antiphon.checkers.search import Model, Search, Steps
from antiphon.errors import ResourceAllocationError

STEPS_MAX = 2_000_000
"""Most steps of the model, for the operations of one key: some seconds, and 600 MB if states are
large."""

SHRINKING_STEPS = 1_000_000
"""Most steps to find out which operations matter, if there is a violation."""

ATTEMPT_STEPS = 200_000
"""Most steps to find out whether some of them do."""


def linearizable(
    model: Model | type[Model], *, steps_max: int = STEPS_MAX
) -> Callable[[Sequence[Operation]], str | None]:
    """Return a check of histories against the model, which returns `None`, or why a history is not
    linearizable.

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
            raise TypeError(f"a history is made of Operations, not of {short(operation)}")
        if end_of(operation) < operation.called:
            raise ValueError(f"{line_of(operation)} returned before it was called")
    for before, after in neighbours(history):
        if history[after].called < end_of(history[before]):
            raise ValueError(
                f"{line_of(history[after])} was called before its client had got an answer to"
                f" {call_text(history[before].command)}"
            )


def _by_key(model: Model, history: Sequence[Operation]) -> list[tuple[str, list[Operation]]]:
    """Return the operations of each key, the shortest history first: there a violation is found
    soon and explained well."""
    key_of = getattr(model, "key", None)
    if key_of is None:
        return [("", list(history))]
    parts: dict[Hashable, tuple[str, list[Operation]]] = {}
    for operation in history:
        key = key_of(operation.command)
        parts.setdefault(frozen(key), (f" of key {short(key)}", []))[1].append(operation)
    return sorted(parts.values(), key=lambda part: len(part[1]))


def _violation(
    model: Model, operations: Sequence[Operation], of_key: str, steps_max: int
) -> str | None:
    steps = Steps(model)
    search = Search(operations, steps, steps_max)
    if search.succeeds():
        return None
    culprit = search.answered[search.furthest]
    until_then = [o for o in operations if o.called <= end_of(culprit)]
    relevant = _relevant(until_then, culprit, steps)
    return explanation(relevant, len(until_then), search.allowed(), of_key)


def _relevant(
    until_then: Sequence[Operation], culprit: Operation, steps: Steps
) -> Sequence[Operation]:
    """Return the culprit, and operations that leave it without an explanation even if the results
    of all others are unknown: few of them, as far as they are found within the bound."""
    likely = _likely(until_then, culprit)
    # Later operations may explain results that came later.
    later = [o for o in until_then if end_of(o) > end_of(culprit)]
    others = [replace(o, returned=None) for o in later]
    steps_left = SHRINKING_STEPS

    def suffice(kept: Sequence[int]) -> bool:
        nonlocal steps_left
        known = set(kept)
        tried = [o if at in known else replace(o, returned=None) for at, o in enumerate(likely)]
        search = Search([culprit, *tried, *others], steps, min(steps_left, ATTEMPT_STEPS))
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
    """Return the operations that ended before the culprit, the likely causes first: those with the
    same values, and then those that ended last."""
    values = set(values_in(culprit.result))

    def likelihood(operation: Operation) -> tuple[bool, float]:
        others = (*values_in(operation.command), *values_in(operation.result))
        return values.isdisjoint(others), -end_of(operation)

    ended = (o for o in until_then if end_of(o) <= end_of(culprit) and o is not culprit)
    return sorted(ended, key=likelihood)


def _surely_fails(search: Search) -> bool:
    try:
        return not search.succeeds()
    except ResourceAllocationError:
        return False
