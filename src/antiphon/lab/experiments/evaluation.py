"""Computes the figures of a run from the notes of its processes, without Spark.

Promise: the same figures under the same names as `spark/traces/latency.py` finds in the same events
once they are rows of a trace table. *Early* latency goes from the call that published a message to
its first delivery, *late* latency to its last one; throughput counts from the first call to the
last delivery.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from antiphon.lab.experiments.processes import Done

PERCENTS = (50, 99)

Row = dict[str, Any]


class Messages(NamedTuple):
    """The messages that were delivered at all; the lists have a time for each."""

    sent: list[float]
    first: list[float]
    last: list[float]


def by_run(done: Done) -> Row:
    sent, first, last = _messages(done)
    return {
        "run": done.run.name,
        "messages": len(sent),
        "deliveries": sum(len(one.numbers) for one in done.delivered),
        "messages_per_s": len(sent) / (max(last) - min(sent)),
        **_figures("early", sent, first),
        **_figures("late", sent, last),
    }


def over_time(done: Done, every_s: float) -> list[Row]:
    """Return a row for each stretch of time with first deliveries: at (when it begins) and
    messages_per_s."""
    stretches = Counter(math.floor(at / every_s) for at in _messages(done).first)
    return [
        {"at": stretch * every_s, "messages_per_s": count / every_s}
        for stretch, count in sorted(stretches.items())
    ]


def with_losses(row: Row) -> Row:
    """Return a row with the count of lost deliveries: every message is due at every member."""
    return {**row, "lost": row["sent"] * row["members"] - row["deliveries"]}


def _messages(done: Done) -> Messages:
    sent = done.sent.times
    first, last = [math.inf] * len(sent), [-math.inf] * len(sent)
    for delivered in done.delivered:
        for number, at in zip(delivered.numbers, delivered.times, strict=True):
            first[number] = min(first[number], at)
            last[number] = max(last[number], at)
    there = [number for number, at in enumerate(first) if at < math.inf]
    return Messages(*([times[number] for number in there] for times in (sent, first, last)))


def _figures(name: str, sent: Sequence[float], arrived: Sequence[float]) -> Row:
    ordered = sorted((b - a) * 1000 for a, b in zip(sent, arrived, strict=True))
    return {
        f"{name}_mean_ms": fmean(ordered),
        **{f"{name}_p{p}_ms": ordered[math.ceil(len(ordered) * p / 100) - 1] for p in PERCENTS},
    }
