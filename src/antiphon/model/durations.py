"""Durations as programs give them: refused at once, with a text that helps, or as they are."""

from __future__ import annotations

FOR_EVER_S = 1e9
"""Thirty years. Clocks and locks of the system refuse much longer waits."""


def seconds(what: str, value: object) -> float:
    """Return the number, 0 or more; infinity is allowed. Raise `TypeError` or `ValueError`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} is a number of seconds, not {value!r}")
    if not value >= 0:
        raise ValueError(f"{what} is a number of seconds, 0 or more, not {value!r}")
    return value


def timeout(what: str, value: object) -> float | None:
    """Return the limit; None for no limit, which includes limits above `FOR_EVER_S`."""
    if value is None or (limit := seconds(what, value)) > FOR_EVER_S:
        return None
    return float(limit)
