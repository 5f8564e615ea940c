"""JBora's tables and figures with ours beside them, of `antiphon experiment packing` and `antiphon
bench packing`. They are written on a `Paper`: an HTML report here, a terminal in
`lab/experiments/packing/bench.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from antiphon.lab.experiments import published_values
from antiphon.lab.experiments.evaluation import Row
from antiphon.lab.experiments.packing.plan import BURSTS, MEMBERS, MIXED, SERVERS, SHORT, Plan
from antiphon.lab.experiments.processes import Look
from antiphon.lab.experiments.published_values import Point
from antiphon.reports.charts import Line
from antiphon.reports.html import Cell

if TYPE_CHECKING:
    from antiphon.lab.experiments.output import Output


class Over(NamedTuple):
    """The course of hill climbing over time."""

    looks: list[Look]
    rates: list[Row]


class Curve(NamedTuple):
    """One chart of a figure."""

    title: str
    unit: str
    lines: list[Line]  # the measured one comes first


class Figure(NamedTuple):
    """All curves have the same points on the x axis."""

    title: str
    x_name: str
    curves: list[Curve]


class Paper(Protocol):
    """A place for a report: paragraphs, tables and figures."""

    def heading(self, text: str) -> None: ...

    def text(self, text: str) -> None: ...

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None: ...

    def figure(self, figure: Figure) -> None: ...


class Html:
    """A paper that is a file of HTML."""

    def __init__(self, output: Output) -> None:
        self._chart = output.chart
        self.heading = output.report.heading
        self.text = output.report.text
        self.table = output.report.table

    def figure(self, figure: Figure) -> None:
        for curve in figure.curves:
            self._chart(curve.title, figure.x_name, curve.unit, curve.lines)


def medians(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each source and policy: the median of its rounds, and `rates`, that of
    each."""
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
    """Return the median of the rounds' ratios; for runs that did not take turns, that of
    medians."""
    if len(ours["rates"]) != len(theirs["rates"]):
        return float(ours["messages_per_s"] / theirs["messages_per_s"])
    pairs = zip(ours["rates"], theirs["rates"], strict=True)
    return float(median(a / b for a, b in pairs))


_FIXED = ("fixed", "off")


def best_fixed(rows: Sequence[Row], source: str) -> Row:
    """Return the fixed degree with the highest rate; no packing is one of them."""
    fixed = [r for r in rows if r["source"] == source and r["policy"].startswith(_FIXED)]
    return max(fixed, key=lambda row: float(row["messages_per_s"]))


def degree(row: Row) -> int:
    return 1 if row["policy"] == "off" else int(row["policy"].partition("=")[2])


def _row(rows: Sequence[Row], source: str, policy: str) -> Row:
    return next(r for r in rows if r["source"] == source and r["policy"].startswith(policy))


def tell(rows: list[Row], over: dict[str, Over], plan: Plan, output: Output) -> None:
    output.setting(setting(plan))
    tables(rows, over, plan, Html(output))
    output.report.heading("All values")
    output.report.table(_HEADER, [_values(row) for row in rows])


def setting(plan: Plan) -> str:
    return (
        f"{SERVERS} servers without stable storage, {MEMBERS} members, one publisher with "
        f"`send_async`. The policies take turns of {plan.seconds:g} s, {plan.rounds} rounds of "
        "them; figures are medians, and ratios those within a round. Hill climbing does not take "
        f"part: it has {plan.climbing_s:g} s to itself, from degree 1 on, with a step every "
        f"{plan.step_s:g} s (JBora: 10 s), and its figures are of all that time."
    )


def tables(rows: list[Row], over: dict[str, Over], plan: Plan, paper: Paper) -> None:
    paper.text(
        f"Published: {published_values.JBORA}; {published_values.JBORA_SETTING}. Latency here is "
        "from the call "
        "to the first delivery, on average, as JBora's is at the sender. A continuous source is "
        "held back when it is far ahead of the slowest member, so its latency is what it is ahead "
        "divided by the rate, and says little about the system: a higher rate makes it lower."
    )
    measured = list(plan.degrees)
    _fixed_sizes(rows, [s for s in measured if s.isdecimal()], paper)
    _mixed(rows, over[MIXED], paper)
    _bursts(rows, paper)
    _short_bursts(rows, [s for s in measured if s in SHORT], paper)
    paper.heading("Every source: the policies beside the best fixed degree, without tuning")
    paper.text(
        "Bursts are carried whole by every policy, so their rates differ by chance only: what a "
        "policy does to them shows in latency and processor time."
    )
    paper.table(_SUMMARY, [list(row.values()) for row in summary(rows, measured)])


_SUMMARY = (
    "source",
    "policy",
    "degree",
    "messages a pack",
    "messages/s",
    "of the best",
    "latency ms, mean",
    "p50",
    "p99",
    "CPU µs a message",
)


def summary(rows: Sequence[Row], sources: Sequence[str]) -> list[Row]:
    return [row for source in sources for row in _summary(rows, source)]


def _summary(rows: Sequence[Row], source: str) -> Iterator[Row]:
    best = best_fixed(rows, source)
    for name, ours in _compared(rows, source).items():
        yield {
            "source": source,
            "policy": name,
            "degree": degree(ours) if ours["policy"].startswith(_FIXED) else None,
            "messages_per_pack": ours["messages_per_pack"],
            "messages_per_s": ours["messages_per_s"],
            "of_best": ratio(ours, best),
            "early_mean_ms": ours["early_mean_ms"],
            "early_p50_ms": ours["early_p50_ms"],
            "early_p99_ms": ours["early_p99_ms"],
            "cpu_us": ours["cpu_us"],
        }


def _compared(rows: Sequence[Row], source: str) -> dict[str, Row]:
    return {
        "no packing": _row(rows, source, "off"),
        "best fixed": best_fixed(rows, source),
        "adaptive": _row(rows, source, "adaptive"),
        "hill climbing": _row(rows, source, "hill"),
    }


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
    """Return rate and latency, ours and theirs."""
    theirs = theirs or Point()
    return [ours["messages_per_s"], theirs.per_s, ours["early_mean_ms"], theirs.latency_ms]


_BESIDE = ("messages/s here", "JBora", "latency ms here", "JBora")


def _fixed_sizes(rows: list[Row], sources: Sequence[str], paper: Paper) -> None:
    sizes = [int(source) for source in sources]
    paper.heading("Table 1: continuous source, no packing")
    paper.table(
        ("bytes", *_BESIDE),
        [[n, *_beside(_row(rows, str(n), "off"), published_values.OFF.get(n))] for n in sizes],
    )
    paper.heading("Table 2: the best fixed degree, and the policies")
    paper.table(
        ("bytes", "policy", "degree here", "JBora", "times no packing here", "JBora", *_BESIDE),
        [line for n in sizes for line in _table_2(rows, n)],
    )
    if 1000 in sizes:
        paper.figure(_over_degrees(rows, "1000", "Figure 3"))


def _table_2(rows: list[Row], size: int) -> Iterator[list[Cell]]:
    off = _row(rows, str(size), "off")
    chosen = (
        ("best fixed", best_fixed(rows, str(size)), published_values.BEST.get(size)),
        ("hill climbing", _row(rows, str(size), "hill"), published_values.CLIMBING.get(size)),
        ("adaptive", _row(rows, str(size), "adaptive"), None),
    )
    for name, ours, theirs in chosen:
        yield [
            size,
            name,
            ours["messages_per_pack"],
            theirs.degree if theirs else None,
            ratio(ours, off),
            _times(theirs, published_values.OFF.get(size)),
            *_beside(ours, theirs),
        ]


def _times(point: Point | None, off: Point | None) -> float | None:
    if point is None or off is None or point.per_s is None or off.per_s is None:
        return None
    return point.per_s / off.per_s


def _over_degrees(rows: list[Row], source: str, figure: str) -> Figure:
    """Return curves of throughput, latency and processor time over fixed degrees; the policies are
    level lines."""
    fixed = [r for r in rows if r["source"] == source and r["policy"].startswith(_FIXED)]
    fixed.sort(key=degree)
    curves = []
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
        curves.append(Curve(f"{figure}: {unit} over the packing degree, {source}", unit, lines))
    return Figure(f"{figure}: over the packing degree, {source}", "degree", curves)


def _mixed(rows: list[Row], over: Over, paper: Paper) -> None:
    paper.heading("Figure 5: 1000 and 3000 bytes in turn")
    paper.table(
        ("policy", "messages a pack here", "JBora", *_BESIDE),
        _three(
            rows,
            MIXED,
            published_values.MIXED_OFF,
            published_values.MIXED_BEST,
            published_values.MIXED_CLIMBING,
        ),
    )
    for figure in over_time(over):
        paper.figure(figure)


def over_time(over: Over) -> Iterator[Figure]:
    looks, rates = over
    began = rates[0]["at"]
    instant = [(row["at"] - began, row["messages_per_s"]) for row in rates]
    average = [
        (x, sum(y for _, y in instant[: n + 1]) / (n + 1)) for n, (x, _) in enumerate(instant)
    ]
    title = "Figure 5: throughput over time, hill climbing"
    lines = [Line("at that time", instant), Line("average until then", average, dashed=True)]
    yield Figure(title, "s", [Curve(title, "messages/s", lines)])
    title = "Figure 5: messages a pack over time, hill climbing"
    lines = [Line("messages a pack", pack_sizes(looks, began))]
    yield Figure(title, "s", [Curve(title, "messages a pack", lines)])


def pack_sizes(looks: Sequence[Look], began: float) -> list[tuple[float, float]]:
    """Return the sizes of packs between one look and the next."""
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


def _bursts(rows: list[Row], paper: Paper) -> None:
    paper.heading("Figure 6: bursts of 15 messages, then 20 ms")
    points = {
        "off": published_values.BURSTS_OFF,
        "fixed=8": published_values.BURSTS_BEST,
        "hill": published_values.BURSTS_CLIMBING,
        "adaptive": None,
    }
    paper.table(("policy", *_BESIDE, *_CPU), _with_cpu(rows, BURSTS, points))
    paper.figure(_over_degrees(rows, BURSTS, "Figure 6"))


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


def _short_bursts(rows: list[Row], sources: Sequence[str], paper: Paper) -> None:
    paper.heading("Table 3: very short bursts")
    lines: list[list[Cell]] = []
    for source in sources:
        off, policy = published_values.SHORT[SHORT[source]]
        points = {"off": off, "hill": policy, "adaptive": None}
        lines += [[source, *line] for line in _with_cpu(rows, source, points)]
    paper.table(("source", "policy", *_BESIDE, *_CPU), lines)
