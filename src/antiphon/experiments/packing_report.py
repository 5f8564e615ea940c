"""The report of `antiphon experiment packing`: JBora's tables and figures with ours beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from antiphon.experiments import published
from antiphon.experiments.crew import Look
from antiphon.experiments.output import Output, Row
from antiphon.experiments.packing_plan import BURSTS, MEMBERS, MIXED, SERVERS, SHORT, Plan
from antiphon.experiments.published import Point
from antiphon.spark.charts import Line
from antiphon.spark.report import Cell


class Over(NamedTuple):
    """What hill climbing did as time went on."""

    looks: list[Look]
    rates: list[Row]


def medians(rows: Sequence[Row]) -> list[Row]:
    """One row for each source and policy: the median of its rounds, and `rates`, that of each."""
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        together.setdefault((row["source"], row["policy"]), []).append(row)
    return [
        {
            **{name: _median(name, rounds) for name in rounds[0] if name != "run"},
            "rates": [row["messages_per_s"] for row in rounds],
        }
        for rounds in together.values()
    ]


def _median(name: str, rounds: Sequence[Row]) -> Any:
    values = [row[name] for row in rounds]
    if name == "lost":
        return sum(values)
    return values[0] if isinstance(values[0], str) else median(values)


def ratio(ours: Row, theirs: Row) -> float:
    """Of the rates, in the middle round; of what did not take turns, of the medians."""
    if len(ours["rates"]) != len(theirs["rates"]):
        return float(ours["messages_per_s"] / theirs["messages_per_s"])
    pairs = zip(ours["rates"], theirs["rates"], strict=True)
    return float(median(a / b for a, b in pairs))


def best_fixed(rows: Sequence[Row], source: str) -> Row:
    """The one with the highest rate; without packing it is one too."""
    fixed = [r for r in rows if r["source"] == source and r["policy"].startswith(("fixed", "off"))]
    return max(fixed, key=lambda row: float(row["messages_per_s"]))


def degree(row: Row) -> int:
    return 1 if row["policy"] == "off" else int(row["policy"].partition("=")[2])


def _row(rows: Sequence[Row], source: str, policy: str) -> Row:
    return next(r for r in rows if r["source"] == source and r["policy"].startswith(policy))


def tell(rows: list[Row], over: dict[str, Over], plan: Plan, output: Output) -> None:
    output.setting(
        f"{SERVERS} servers without stable storage, {MEMBERS} members, one publisher with "
        f"`send_async`. The policies take turns of {plan.seconds:g} s, {plan.rounds} rounds of "
        "them; figures are medians, and ratios those within a round. Hill climbing does not take "
        f"part: it has {plan.climbing_s:g} s to itself, from degree 1 on, with a step every "
        f"{plan.step_s:g} s (JBora: 10 s), and its figures are of all that time."
    )
    output.report.text(
        f"Published: {published.JBORA}; {published.JBORA_SETTING}. Latency here is from the call "
        "to the first delivery, on average, as JBora's is at the sender. A continuous source is "
        "held back when it is far ahead of the slowest member, so its latency is what it is ahead "
        "divided by the rate, and says little about the system: a higher rate makes it lower."
    )
    measured = list(plan.degrees)
    _fixed_sizes(rows, [s for s in measured if s.isdecimal()], output)
    _mixed(rows, over, output)
    _bursts(rows, output)
    _short_bursts(rows, [s for s in measured if s in SHORT], output)
    output.report.heading("Adaptive beside the best fixed degree, without tuning")
    output.report.text(
        "Bursts are carried whole by every policy, so their rates differ by chance only: what a "
        "policy does to them shows in latency and processor time."
    )
    output.report.table(
        (
            "source",
            "best degree",
            "adaptive / best rate",
            "hill climbing / best rate",
            "CPU/message",
        ),
        [_adaptive(rows, source) for source in measured],
    )
    output.report.heading("All values")
    output.report.table(_HEADER, [_values(row) for row in rows])


def _adaptive(rows: Sequence[Row], source: str) -> list[Cell]:
    best, ours = best_fixed(rows, source), _row(rows, source, "adaptive")
    climbing = _row(rows, source, "hill")
    return [
        source,
        degree(best),
        ratio(ours, best),
        ratio(climbing, best),
        ours["cpu_us"] / best["cpu_us"],
    ]


_COLUMNS = (
    "source",
    "policy",
    "messages_per_s",
    "early_mean_ms",
    "early_p50_ms",
    "early_p99_ms",
    "messages_per_pack",
    "cpu_us",
    "cpu_percent",
    "lost",
)
_HEADER = tuple(name.replace("_", " ") for name in _COLUMNS)


def _values(row: Row) -> list[Cell]:
    return [row[name] for name in _COLUMNS]


def _beside(ours: Row, theirs: Point | None) -> list[Cell]:
    """Rate and latency, ours and theirs."""
    theirs = theirs or Point()
    return [ours["messages_per_s"], theirs.per_s, ours["early_mean_ms"], theirs.latency_ms]


_BESIDE = ("messages/s here", "JBora", "latency ms here", "JBora")


def _fixed_sizes(rows: list[Row], sources: Sequence[str], output: Output) -> None:
    sizes = [int(source) for source in sources]
    output.report.heading("Table 1: continuous source, no packing")
    output.report.table(
        ("bytes", *_BESIDE),
        [[n, *_beside(_row(rows, str(n), "off"), published.OFF.get(n))] for n in sizes],
    )
    output.report.heading("Table 2: the best fixed degree, and the policies")
    output.report.table(
        ("bytes", "policy", "degree here", "JBora", "times no packing here", "JBora", *_BESIDE),
        [line for n in sizes for line in _table_2(rows, n)],
    )
    if 1000 in sizes:
        _over_degrees(rows, "1000", "Figure 3", output)


def _table_2(rows: list[Row], size: int) -> Iterator[list[Cell]]:
    off = _row(rows, str(size), "off")
    chosen = (
        ("best fixed", best_fixed(rows, str(size)), published.BEST.get(size)),
        ("hill climbing", _row(rows, str(size), "hill"), published.CLIMBING.get(size)),
        ("adaptive", _row(rows, str(size), "adaptive"), None),
    )
    for name, ours, theirs in chosen:
        yield [
            size,
            name,
            ours["messages_per_pack"],
            theirs.degree if theirs else None,
            ratio(ours, off),
            _times(theirs, published.OFF.get(size)),
            *_beside(ours, theirs),
        ]


def _times(point: Point | None, off: Point | None) -> float | None:
    if point is None or off is None or point.per_s is None or off.per_s is None:
        return None
    return point.per_s / off.per_s


def _over_degrees(rows: list[Row], source: str, figure: str, output: Output) -> None:
    """Throughput, latency and processor time over fixed degrees; the policies as level lines."""
    fixed = [r for r in rows if r["source"] == source and r["policy"].startswith(("fixed", "off"))]
    fixed.sort(key=degree)
    for column, unit in (
        ("messages_per_s", "messages/s"),
        ("early_mean_ms", "ms"),
        ("cpu_us", "CPU µs a message"),
        ("cpu_percent", "CPU % of a core"),
    ):
        lines = [Line("fixed", [(degree(r), r[column]) for r in fixed])]
        for policy in ("adaptive", "hill-climbing"):
            level = _row(rows, source, policy)[column]
            ends = [(1.0, level), (float(degree(fixed[-1])), level)]
            lines.append(Line(policy, ends, dashed=True))
        output.chart(f"{figure}: {unit} over the packing degree, {source}", "degree", unit, lines)


def _mixed(rows: list[Row], over: dict[str, Over], output: Output) -> None:
    output.report.heading("Figure 5: 1000 and 3000 bytes in turn")
    output.report.table(
        ("policy", "messages a pack here", "JBora", *_BESIDE),
        _three(rows, MIXED, published.MIXED_OFF, published.MIXED_BEST, published.MIXED_CLIMBING),
    )
    looks, rates = over[MIXED]
    began = rates[0]["at"]
    instant = [(row["at"] - began, row["messages_per_s"]) for row in rates]
    average = [
        (x, sum(y for _, y in instant[: n + 1]) / (n + 1)) for n, (x, _) in enumerate(instant)
    ]
    output.chart(
        "Figure 5: throughput over time, hill climbing",
        "s",
        "messages/s",
        [Line("at that time", instant), Line("average until then", average, dashed=True)],
    )
    output.chart(
        "Figure 5: messages a pack over time, hill climbing",
        "s",
        "messages a pack",
        [Line("messages a pack", pack_sizes(looks, began))],
    )


def pack_sizes(looks: Sequence[Look], began: float) -> list[tuple[float, float]]:
    """Between one look and the next."""
    return [
        (max(0.0, b.at - began), (b.messages - a.messages) / (b.packs - a.packs))
        for a, b in pairwise(looks)
        if b.packs > a.packs
    ]


def _three(
    rows: list[Row], source: str, off: Point, best: Point, climbing: Point
) -> list[list[Cell]]:
    chosen: list[tuple[str, Row, Point | None]] = [
        ("no packing", _row(rows, source, "off"), off),
        ("best fixed", best_fixed(rows, source), best),
        ("hill climbing", _row(rows, source, "hill"), climbing),
        ("adaptive", _row(rows, source, "adaptive"), None),
    ]
    return [
        [name, ours["messages_per_pack"], theirs.degree if theirs else None, *_beside(ours, theirs)]
        for name, ours, theirs in chosen
    ]


def _bursts(rows: list[Row], output: Output) -> None:
    output.report.heading("Figure 6: bursts of 15 messages, then 20 ms")
    points = {
        "off": published.BURSTS_OFF,
        "fixed=8": published.BURSTS_BEST,
        "hill": published.BURSTS_CLIMBING,
        "adaptive": None,
    }
    output.report.table(("policy", *_BESIDE, *_CPU), _with_cpu(rows, BURSTS, points))
    _over_degrees(rows, BURSTS, "Figure 6", output)


_CPU = ("CPU % of a core here", "JBora", "CPU µs a message here")


def _with_cpu(
    rows: list[Row], source: str, points: dict[str, Point | None]
) -> Iterator[list[Cell]]:
    for policy, theirs in points.items():
        ours = _row(rows, source, policy)
        percent = theirs.cpu_percent if theirs else None
        yield [
            ours["policy"],
            *_beside(ours, theirs),
            ours["cpu_percent"],
            percent,
            ours["cpu_us"],
        ]


def _short_bursts(rows: list[Row], sources: Sequence[str], output: Output) -> None:
    output.report.heading("Table 3: very short bursts")
    lines: list[list[Cell]] = []
    for source in sources:
        off, policy = published.SHORT[SHORT[source]]
        points = {"off": off, "hill": policy, "adaptive": None}
        lines += [[source, *line] for line in _with_cpu(rows, source, points)]
    output.report.table(("source", "policy", *_BESIDE, *_CPU), lines)
