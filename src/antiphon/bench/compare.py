"""`antiphon bench throughput` and `antiphon bench latency`: Antiphon beside the bare relay.

One publisher and some members, each a process; every message goes to all members. Antiphon and the
bare relay (`relay.py`) are both there all the time and work in turns, slice by slice, so that
whatever else happens on the machine hits both. What to trust most: `cpu_s_per_million`, then
`of_bare_relay`, then the rates, which move with the machine.

`messages_per_s` is that of the slowest member. `latency_ms` goes from the call that published a
message to its arrival at the first member, `last_delivery_ms` to its arrival at the last one, at a
light load of `RATE` messages a second. `of_bare_relay` is Antiphon's rate as a part of the relay's;
of a latency, the relay's as a part of Antiphon's: 1 would be as quick as can be.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from antiphon.bench.crew import Flood, Job, Load, Paced, Shape, Slice
from antiphon.bench.messaging import Messaging
from antiphon.bench.relay import BareRelay

RATE = 1000
SLICE_S = 1.0
WARM_S = 0.25
LATENCY_PART = 0.2
"""Of the time of a throughput run: what the latencies are taken from."""


class Side(Protocol):
    def work(self, job: Job) -> Slice: ...


class Turns:
    """The slices of both, in pairs that were taken one right after the other."""

    def __init__(self) -> None:
        self.ours: list[Slice] = []
        self.relays: list[Slice] = []

    def ratio(self, measure: Callable[[Slice], float]) -> float:
        """Ours as a part of the relay's, in the middle pair."""
        pairs = zip(self.ours, self.relays, strict=True)
        return median(measure(ours) / measure(relay) for ours, relay in pairs)


class Bench:
    """Both sides, ready; and the bar that shows how far the work is."""

    def __init__(self, stack: ExitStack, args: argparse.Namespace) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        shape = Shape(args.servers, args.members, Load(args.size))
        self._ours = Messaging(stack, shape, folder, args.storage, args.contexts, args.trace)
        durable = args.storage == "durable"
        self._relay = BareRelay(stack, shape, folder if durable else None)
        self._progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        self._bar: TaskID = self._progress.add_task("warming up", total=args.seconds)

    def warm_up(self) -> int:
        """Run both for a moment; returns how many messages a pack of ours has."""
        ours = self._ours.work(Flood(WARM_S))
        per_pack = round(ours.publisher.messages / max(1, ours.packs))
        self._relay.work(Flood(WARM_S, per_pack))
        return per_pack

    def turns(self, what: str, seconds: float, job: Callable[[float], Job]) -> Turns:
        """`job` gets the seconds of one slice."""
        self._progress.update(self._bar, description=what)
        turns = Turns()
        rounds = max(1, round(seconds / 2 / SLICE_S))
        for _ in range(rounds):
            one = job(seconds / 2 / rounds)
            turns.ours.append(self._ours.work(one))
            turns.relays.append(self._relay.work(one))
            self._progress.update(self._bar, advance=seconds / rounds)
        return turns


def throughput(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        bench = Bench(stack, args)
        per_pack = bench.warm_up()
        light = _light(bench, args.seconds * LATENCY_PART)
        flood = bench.turns(
            "flood", args.seconds * (1 - LATENCY_PART), lambda seconds: Flood(seconds, per_pack)
        )
    of_bare_relay = flood.ratio(lambda slice_: slice_.per_s)
    return _report("throughput", args, flood, light, of_bare_relay)


def latency(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        bench = Bench(stack, args)
        bench.warm_up()
        light = _light(bench, args.seconds)
    of_bare_relay = 1 / light.ratio(lambda slice_: median(slice_.delays_ms(min)))
    return _report("latency", args, light, light, of_bare_relay)


def _light(bench: Bench, seconds: float) -> Turns:
    return bench.turns("light load", seconds, lambda s: Paced(max(100, round(s * RATE)), RATE))


# -- Figures ---------------------------------------------------------------------------------------


def _report(
    title: str, args: argparse.Namespace, load: Turns, light: Turns, of_bare_relay: float
) -> int:
    report = {
        "servers": args.servers,
        "members": args.members,
        "size": args.size,
        "storage": args.storage,
        "contexts": args.contexts,
        "seconds": args.seconds,
        **_figures(load.ours, light.ours),
        "of_bare_relay": round(of_bare_relay, 3),
        "bare_relay": _figures(load.relays, light.relays),
    }
    print(json.dumps(report)) if args.json else _show(title, report)
    return 0


def _figures(slices: Sequence[Slice], light: Sequence[Slice]) -> dict[str, Any]:
    millions = sum(slice_.publisher.messages for slice_ in slices) / 1e6
    packs = sum(slice_.packs for slice_ in slices)
    cpu = {
        "publisher": sum(slice_.publisher.cpu_s for slice_ in slices),
        "leader": sum(slice_.leader_cpu_s for slice_ in slices),
        "followers": sum(slice_.followers_cpu_s for slice_ in slices),
        "members": sum(member.cpu_s for slice_ in slices for member in slice_.members),
    }
    found: dict[str, Any] = {
        "messages_per_s": round(median(slice_.per_s for slice_ in slices)),
        "latency_ms": _percentiles(light, min),
        "last_delivery_ms": _percentiles(light, max),
        "cpu_s_per_million": round(sum(cpu.values()) / millions, 2),
        "cpu_s_per_million_of": {who: round(s / millions, 2) for who, s in cpu.items()},
    }
    if packs:
        found["messages_per_pack"] = round(millions * 1e6 / packs, 1)
    return found


def _percentiles(
    slices: Sequence[Slice], which: Callable[[tuple[int, ...]], int]
) -> dict[str, float]:
    cuts = quantiles((ms for slice_ in slices for ms in slice_.delays_ms(which)), n=100)
    return {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)}


def _show(title: str, report: dict[str, Any]) -> None:
    table = Table("", "Antiphon", "bare relay", title=title)
    bare = report.pop("bare_relay")
    for name, value in report.items():
        table.add_row(name, _text(value), _text(bare.get(name, "")))
    Console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
