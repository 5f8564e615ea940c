"""Explanations of violations of linearizability, in words: the operations that rule out every
order, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.checkers.histories import Operation, begin_of, end_of

LINES_MAX = 20
"""Most operations in an explanation."""

VALUES_MAX = 5
"""Most results in an explanation that the model allows."""

WIDTH_MAX = 80
"""Most characters of a value in an explanation."""


def explanation(relevant: Sequence[Operation], total: int, allowed: list[Any], of_key: str) -> str:
    """Return the explanation: a table of operations, the culprit first, then the most relevant
    ones."""
    culprit = relevant[0]
    shown = sorted(relevant[:LINES_MAX], key=begin_of)
    lines = [f"not linearizable: no order of the operations{of_key} explains these results"]
    for operation, line in zip(shown, _table(shown), strict=True):
        lines.append(f"  {line}   <- not explained" if operation is culprit else f"  {line}")
    if len(relevant) > len(shown):
        lines.append(f"  and those of {len(relevant) - len(shown)} more")
    lines.append(f"there the model allows {call_text(culprit.command)} -> {_alternatives(allowed)}")
    if total > len(relevant):
        lines.append(f"{total - len(relevant)} others make no difference, however they ended")
    return "\n".join(lines)


def _table(operations: Sequence[Operation]) -> list[str]:
    digits = _digits({time for o in operations for time in (o.called, end_of(o))})
    rows = [_columns(operation, digits) for operation in operations]
    client, span = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:{client}}  {row[1]:{span}}  {row[2]}" for row in rows]


def _digits(times: set[float]) -> int:
    """Return how many digits distinguish the times."""
    return next((n for n in (3, 6) if len({f"{t:.{n}f}" for t in times}) == len(times)), 9)


def line_of(operation: Operation) -> str:
    return "  ".join(_columns(operation, 3))


def _columns(operation: Operation, digits: int) -> tuple[str, str, str]:
    answered = operation.returned is not None
    end = f"{operation.returned:.{digits}f}" if answered else "never"
    outcome = short(operation.result) if answered else "?"
    return (
        f"client {operation.client}",
        f"[{operation.called:.{digits}f} .. {end}]",
        f"{call_text(operation.command)} -> {outcome}",
    )


def call_text(command: Any) -> str:
    """Return a command as text: `("put", "x", 3)` as `put('x', 3)`, others as they are."""
    match command:
        case (str(name), *arguments) if name.isidentifier():
            return f"{name}({', '.join(map(short, arguments))})"
    return short(command)


def _alternatives(values: Sequence[Any]) -> str:
    shown = [short(value) for value in values[:VALUES_MAX]]
    if len(values) > VALUES_MAX:
        shown.append(f"{len(values) - VALUES_MAX} others")
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 3]}..."
