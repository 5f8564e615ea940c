"""The report of `antiphon bench peers`: figures beside promises, and where Antiphon is worse.

Each figure is the median of the rounds, with the lowest and the highest. A peer is compared with
the Antiphon that promises no less: one that syncs before it acknowledges with the durable one, the
others with the one in memory. `times` is how many of the peer's messages Antiphon carries for each,
the median of the rounds, in each of which both had their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from antiphon.lab.bench.processes import Slice
from antiphon.lab.bench.rivals.common import Contender
from antiphon.terminal.screen import Screen, Table

MEMORY, DURABLE = "Antiphon, memory", "Antiphon, durable"
OURS = (MEMORY, DURABLE)


@dataclass
class Turns:
    """The figures of one contender for messages of one size; the lists have a slice for each
    round."""

    contender: Contender
    floods: list[Slice] = field(default_factory=list)
    light: list[Slice] = field(default_factory=list)
    failed: str = ""  # the reason if there are no more slices: lost messages, or no start


Turned = dict[str, Turns]
"""By the contender's name."""


def figures(turned: Turned) -> list[dict[str, Any]]:
    return [_figures(turns, turned) for turns in turned.values()]


def _figures(turns: Turns, turned: Turned) -> dict[str, Any]:
    name = turns.contender.name
    if turns.failed:
        return {"name": name, "failed": turns.failed}
    found: dict[str, Any] = {
        "name": name,
        "messages_per_s": _spread([one.per_s for one in turns.floods], 0),
        "latency_p50_ms": _spread([_cut(one, 50) for one in turns.light], 3),
        "latency_p99_ms": _spread([_cut(one, 99) for one in turns.light], 3),
        "cpu_s_per_million": _spread([one.cpu_s_per_million for one in turns.floods], 2),
    }
    if name not in OURS:
        found["beside"] = counterpart(turns.contender)
        ours = turned[found["beside"]]
        found["times"] = round(_ratio(ours.floods, turns.floods), 2)
    return found


def counterpart(peer: Contender) -> str:
    return DURABLE if peer.synced == "yes" else MEMORY


def _spread(values: Sequence[float], digits: int) -> dict[str, float]:
    parts = {"median": median(values), "lowest": min(values), "highest": max(values)}
    return {name: round(value, digits) for name, value in parts.items()}


def _cut(light: Slice, percent: int) -> float:
    """Return a percentile of the delays to the first member."""
    return quantiles(light.delays_ms(min), n=100)[percent - 1]


def _ratio(ours: Sequence[Slice], theirs: Sequence[Slice]) -> float:
    return median(our.per_s / their.per_s for our, their in zip(ours, theirs, strict=True))


# -- Where we lose ---------------------------------------------------------------------------------

MEASURES: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "messages_per_s": ("messages/s", lambda theirs, ours: theirs > ours),
    "latency_p50_ms": ("first delivery, p50 ms", lambda theirs, ours: theirs < ours),
    "latency_p99_ms": ("first delivery, p99 ms", lambda theirs, ours: theirs < ours),
    "cpu_s_per_million": ("CPU s per million", lambda theirs, ours: theirs < ours),
}


def losses(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each figure that is better than that of the Antiphon next to it."""
    return [sentence for run in runs for sentence in _losses(run["size"], run["systems"])]


def _losses(size: int, systems: Sequence[dict[str, Any]]) -> Iterator[str]:
    by_name = {system["name"]: system for system in systems}
    for peer in (system for system in systems if "beside" in system):
        for measure, (unit, better) in MEASURES.items():
            theirs = peer[measure]["median"]
            ours = by_name[peer["beside"]][measure]["median"]
            if better(theirs, ours):
                yield (
                    f"{size:,} bytes, {unit}: {peer['name']} {_short(theirs)}, "
                    f"{peer['beside']} {_short(ours)}"
                )


# -- For people ------------------------------------------------------------------------------------

HEADINGS = ("messages/s", "first, p50 ms", "first, p99 ms", "CPU s per million", "Antiphon")
LEGEND = (
    "messages/s: at the slowest subscriber. first: from the publish call to the first subscriber, "
    "at 1000 messages/s. CPU: of all processes. Each figure is the median of the rounds; below it, "
    "the lowest and the highest. Antiphon: its messages/s as a multiple of these; durable for what "
    "syncs before it acknowledges, in memory for the others."
)


def show(report: dict[str, Any]) -> None:
    screen = Screen()
    screen.print(_promises(report["promises"]))
    for run in report["runs"]:
        screen.print(_table(run))
    screen.print(LEGEND)
    screen.print()
    for title, lines in (
        ("Left out", [f"{name}: {why}" for name, why in report["left_out"].items()]),
        ("Failed", [line for run in report["runs"] for line in _failures(run)]),
        ("Where Antiphon is the worse one", report["losses"] or ["nowhere in this run"]),
    ):
        if lines:
            screen.print(f"{title}:")
            for line in lines:
                screen.print(f"- {line}")


def _failures(run: dict[str, Any]) -> list[str]:
    failed = [system for system in run["systems"] if "failed" in system]
    return [f"{run['size']:,} bytes: {one['name']}: {one['failed']}" for one in failed]


def _promises(promises: Sequence[dict[str, str]]) -> Table:
    table = Table("", "order", "survives", "synced before acknowledged", "publishes with")
    for one in promises:
        table.add_row(*one.values())
    return table


def _table(run: dict[str, Any]) -> Table:
    table = Table(title=f"{run['size']:,} bytes", show_lines=True)
    table.add_column("")
    for heading in (
        "messages/s",
        "first, p50 ms",
        "first, p99 ms",
        "CPU s per million",
        "Antiphon",
    ):
        table.add_column(heading, justify="right")
    for system in run["systems"]:
        if "failed" in system:
            table.add_row(system["name"], "failed")
        else:
            cells = (_text(system[measure]) for measure in MEASURES)
            times = f"{_short(system['times'])} times" if "times" in system else ""
            table.add_row(system["name"], *cells, times)
    return table


def _text(spread: dict[str, float]) -> str:
    middle, lowest, highest = map(_short, spread.values())
    return f"{middle}\n{lowest} to {highest}"


def _short(value: float) -> str:
    """Return a number with three digits: the rest is chance."""
    return f"{float(f'{value:.3g}'):,g}"
