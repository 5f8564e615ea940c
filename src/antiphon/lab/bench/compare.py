"""`antiphon bench throughput` and `antiphon bench latency`: Antiphon beside the bare relay.

Publishers and members, each a process; every message goes to all members. With the architecture
`servers` they are clients of servers, each a process, too; with `peers` each of them is a server
itself (`peer:`), and there are no others: what such a server spends is its client's time, so
`leader` and `followers` spend nothing, and `server_peak_mb` is of a client's process. The relay
then has one server, so that messages take the same way: publisher, orderer, members.

Antiphon and the bare
relay (`bare_relay.py`) are both there all the time and work in turns, slice by slice, so that other
load on the machine affects both. Trust `cpu_s_per_million` most, then `of_bare_relay`, then the
rates, which move with the machine.

`messages_per_s` is that of the slowest member. `latency_ms` goes from the call that published a
message to its arrival at the first member, `last_delivery_ms` to its arrival at the last one, at a
light load of `RATE` messages a second; `saturated_` marks the same in a flood, when all queues are
full. `of_bare_relay` is Antiphon's rate as a part of the relay's; of a latency, the
relay's as a part of Antiphon's: 1 would be as quick as can be. `times_bare_relay` has every figure
of Antiphon's divided by the relay's, and `spread` the lowest and the highest of the slices.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

from antiphon.lab.bench.antiphon_side import Messaging
from antiphon.lab.bench.bare_relay import BareRelay
from antiphon.lab.bench.processes import Flood, Job, Load, Paced, Shape, Slice
from antiphon.lab.bench.servers import Place, Serverless, Servers
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Progress, Screen, Table

RATE = 1000
SLICE_S = 1.0
WARM_S = 0.25
LATENCY_PART = 0.2
"""The part of a throughput run in which latencies are measured."""


PERCENTS = (50, 99, 99.9)

Figures = dict[str, Any]


class Side(Protocol):
    """One of the two systems that are compared."""

    def work(self, job: Job) -> Slice: ...


class Turns:
    """The slices of both, in pairs that were taken one right after the other."""

    def __init__(self) -> None:
        self.ours: list[Slice] = []
        self.relays: list[Slice] = []

    def ratios(self, measure: Callable[[Slice], float]) -> list[float]:
        """Return our measure as a part of the relay's, for each pair of slices."""
        pairs = zip(self.ours, self.relays, strict=True)
        return [measure(ours) / measure(relay) for ours, relay in pairs]


class Peaks(NamedTuple):
    """The most memory of each system."""

    ours: Figures
    relays: Figures


class Bench:
    """Both sides, ready; and the bar that shows how far the work is."""

    def __init__(self, stack: ExitStack, args: argparse.Namespace) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        self._shape = Shape(args.servers or 1, args.members, Load(args.size), args.publishers)
        self._ours = Messaging(stack, self._shape, _place(stack, args), args.packing, args.trace)
        durable = args.storage == "durable"
        self._relay = BareRelay(stack, self._shape, folder if durable else None)
        self._progress = stack.enter_context(Progress())
        self._bar = self._progress.add_task("warming up", total=args.seconds)

    def warm_up(self) -> int:
        """Run both for a moment; returns how many messages a pack of ours has."""
        ours = self._ours.work(Flood(WARM_S))
        per_pack = round(ours.messages / max(1, ours.packs))
        # A pack must be smaller than the lead that publishers may have: otherwise all would wait.
        per_pack = min(per_pack, self._shape.load.window // (2 * self._shape.publishers))
        self._relay.work(Flood(WARM_S, per_pack))
        return per_pack

    def turns(self, what: str, seconds: float, job: Callable[[float], Job]) -> Turns:
        """Let both sides work in turns. `job` gets the seconds of one slice."""
        self._progress.update(self._bar, description=what)
        turns = Turns()
        rounds = max(1, round(seconds / 2 / SLICE_S))
        for _ in range(rounds):
            one = job(seconds / 2 / rounds)
            turns.ours.append(self._ours.work(one))
            turns.relays.append(self._relay.work(one))
            self._progress.update(self._bar, advance=seconds / rounds)
        return turns

    def peaks(self) -> Peaks:
        mb = "server_peak_mb"
        return Peaks({mb: self._ours.peak_mb()}, {mb: self._relay.peak_mb()})


def _place(stack: ExitStack, args: argparse.Namespace) -> Place:
    if args.architecture == "peers":
        return Serverless(stack)
    return Servers(stack, args.servers, args.storage, args.contexts)


def throughput(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        bench = Bench(stack, args)
        per_pack = bench.warm_up()
        light = _light(bench, args.seconds * LATENCY_PART)
        flood = bench.turns(
            "flood", args.seconds * (1 - LATENCY_PART), lambda seconds: Flood(seconds, per_pack)
        )
        peaks = bench.peaks()
    ours = {**figures(flood.ours, light.ours), **_saturated(flood.ours), **peaks.ours}
    relays = {**figures(flood.relays, light.relays), **_saturated(flood.relays), **peaks.relays}
    return _report("throughput", args, ours, relays, flood.ratios(lambda one: one.per_s))


def latency(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        bench = Bench(stack, args)
        bench.warm_up()
        light = _light(bench, args.seconds)
        peaks = bench.peaks()
    ours = {**figures(light.ours, light.ours), **peaks.ours}
    relays = {**figures(light.relays, light.relays), **peaks.relays}
    ratios = light.ratios(lambda one: 1 / median(one.delays_ms(min)))
    return _report("latency", args, ours, relays, ratios)


def _light(bench: Bench, seconds: float) -> Turns:
    return bench.turns("light load", seconds, lambda s: Paced(max(100, round(s * RATE)), RATE))


# -- Figures ---------------------------------------------------------------------------------------


def figures(slices: Sequence[Slice], light: Sequence[Slice]) -> Figures:
    messages = sum(one.messages for one in slices)
    seconds = sum(one.seconds for one in slices)
    packs = sum(one.packs for one in slices)
    cpu = {
        "publisher": sum(part.cpu_s for one in slices for part in one.publishers),
        "leader": sum(one.leader_cpu_s for one in slices),
        "followers": sum(one.followers_cpu_s for one in slices),
        "members": sum(part.cpu_s for one in slices for part in one.members),
    }
    millions = messages / 1e6
    found: Figures = {
        "messages_per_s": round(median(one.per_s for one in slices)),
        "latency_ms": percentiles(light, min),
        "last_delivery_ms": percentiles(light, max),
        "cpu_s_per_million": round(sum(cpu.values()) / millions, 2),
        "cpu_s_per_million_of": {who: round(s / millions, 2) for who, s in cpu.items()},
        "syncs_per_s": round(sum(one.syncs for one in slices) / seconds, 1),
        "spread": {
            "messages_per_s": _spread([one.per_s for one in slices]),
            "cpu_s_per_million": _spread([one.cpu_s_per_million for one in slices], 2),
        },
    }
    if packs:
        found["messages_per_pack"] = round(messages / packs, 1)
    return found


def _saturated(flood: Sequence[Slice]) -> Figures:
    """Return the latencies in the flood. With several publishers there are none, for nobody knows
    whose message was the last one of a block."""
    if len(flood[0].publishers) > 1:
        return {}
    return {
        "saturated_latency_ms": percentiles(flood, min),
        "saturated_last_delivery_ms": percentiles(flood, max),
    }


def percentiles(
    slices: Sequence[Slice], which: Callable[[tuple[int, ...]], int]
) -> dict[str, float]:
    delays = [ms for one in slices for ms in one.delays_ms(which)]
    # Inclusive: of a few messages p99.9 is the slowest one, and not a guess beyond it.
    cuts = quantiles(delays, n=1000, method="inclusive")
    return {f"p{percent:g}": round(cuts[round(percent * 10) - 1], 3) for percent in PERCENTS}


def _spread(values: Sequence[float], digits: int | None = None) -> dict[str, float]:
    return {"lowest": round(min(values), digits), "highest": round(max(values), digits)}


def times(ours: Figures, relays: Figures) -> Figures:
    """Return each of our figures divided by the relay's, where that is not 0."""
    found: Figures = {}
    for name in (name for name in ours if name in relays and name != "spread"):
        if isinstance(ours[name], dict):
            found[name] = times(ours[name], relays[name])
        elif relays[name]:
            found[name] = round(ours[name] / relays[name], 3)
    return found


# -- Telling ---------------------------------------------------------------------------------------

SETTINGS = (
    "architecture",
    "servers",
    "members",
    "publishers",
    "size",
    "storage",
    "contexts",
    "packing",
    "seconds",
)
"""Without servers there is neither their number, nor their storage, nor their contexts."""


def _report(
    title: str, args: argparse.Namespace, ours: Figures, relays: Figures, ratios: Sequence[float]
) -> int:
    ours["spread"]["of_bare_relay"] = _spread(ratios, 3)
    report = {
        **{name: found for name in SETTINGS if (found := getattr(args, name)) is not None},
        **ours,
        "of_bare_relay": round(median(ratios), 3),
        "times_bare_relay": times(ours, relays),
        "bare_relay": relays,
    }
    say_json(report) if args.json else show(title, report)
    return 0


def show(title: str, report: Figures) -> None:
    settings = ", ".join(f"{name} {report[name]}" for name in SETTINGS if name in report)
    table = Table(title=f"{title}: {settings}")
    table.add_column("", no_wrap=True)
    for heading in ("Antiphon", "bare relay", "times"):
        table.add_column(heading, justify="right")
    ours = {name: value for name, value in report.items() if name not in SETTINGS}
    bare, quotients = ours.pop("bare_relay"), _flat(ours.pop("times_bare_relay"))
    for name in _flat(ours):
        table.add_row(name, _cell(name, ours), _cell(name, bare), _text(quotients.get(name)))
    Screen().print(table)


def _flat(figures: Figures) -> Figures:
    """Return the figures with one for each part of those that have parts."""
    found: Figures = {}
    for name, value in figures.items():
        if not isinstance(value, dict):
            found[name] = value
        elif name != "spread":
            found |= {f"{name} {part}": one for part, one in value.items()}
    return found


def _cell(name: str, figures: Figures) -> str:
    """Return a figure with the lowest and the highest, if they are known."""
    text = _text(_flat(figures).get(name))
    spread = figures["spread"].get(name)
    return f"{text}\n({' to '.join(map(_text, spread.values()))})" if spread else text


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
