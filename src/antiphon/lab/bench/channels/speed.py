"""`antiphon bench channels speed`: a channel beside the bare star of peers and beside our servers.

The same loops drive all three, in turns, round by round, so that other load on the machine affects
all of them. One process sends, and every message goes to all:

- `channel`: N processes, `TOTAL_UNIFORM`, loopback; the last one sends, the first one orders;
- `star`: the same processes without a protocol (`star.py`), with packs of the channel's size;
- `servers`: as many of our servers, but five at most, in memory, with N members and a sender, each
  a process.

`messages_per_s` is that of the slowest member, `cpu_s_per_million` of all processes together;
`first_ms` goes from the call that sent a message to its arrival at the first member, `last_ms` to
the last one, at a light load of `rate` messages a second. `of_star` and `of_servers` are the
channel's rate as a part of theirs, in each round; `cpu_of_...` and `p50_of_...` its cost and the
median of `first_ms`, where less is better. Trust those, and `cpu_s_per_million`, on a busy machine;
rates and latencies want a quiet one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Any, NamedTuple

from antiphon.lab.bench.antiphon_side import Messaging
from antiphon.lab.bench.channels import members, star
from antiphon.lab.bench.channels.peers import Peers
from antiphon.lab.bench.compare import Side
from antiphon.lab.bench.processes import Flood, Load, Paced, Shape, Slice
from antiphon.lab.bench.servers import Servers
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Progress, Screen, Table

WARM_S = 0.5
SYSTEMS = ("channel", "star", "servers")
SERVERS_MAX = 5

Figures = dict[str, Any]


class Turns(NamedTuple):
    """The slices of one system; each list has one for each round."""

    floods: list[Slice]
    light: list[Slice]


def run(args: argparse.Namespace) -> int:
    """Measure all sizes, and report."""
    with Progress() as progress:
        bar = progress.add_task("", total=len(args.sizes) * (1 + args.rounds) * len(SYSTEMS))

        def tell(what: str) -> None:
            progress.update(bar, advance=1, description=what)

        runs = [_run(size, args, tell) for size in args.sizes]
    settings = {name: getattr(args, name) for name in ("processes", "rounds", "seconds", "rate")}
    report = {**settings, "runs": runs}
    say_json(report) if args.json else _show(report)
    return 0


def _run(size: int, args: argparse.Namespace, tell: Callable[[str], None]) -> Figures:
    load, count = Load(size), args.processes
    turns = {name: Turns([], []) for name in SYSTEMS}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench"))
        channel = Peers(stack, load, count, members.open_member, folder, count)
        shape = Shape(min(SERVERS_MAX, count | 1), count, load)
        sides: dict[str, Side] = {
            "channel": channel,
            "star": Peers(stack, load, count, star.open_peer),
            "servers": Messaging(stack, shape, Servers(stack, shape.servers, "memory")),
        }
        tell(f"{size} bytes: warming up")
        packs = per_pack(channel.work(Flood(WARM_S)), load)
        for name in SYSTEMS[1:]:
            tell(f"{size} bytes: warming up")
            sides[name].work(Flood(WARM_S, packs))
        for _ in range(args.rounds):
            for name, side in sides.items():
                tell(f"{size} bytes: {name}")
                light = Paced(max(100, round(args.seconds * args.rate)), args.rate)
                turns[name].light.append(side.work(light))
                turns[name].floods.append(side.work(Flood(args.seconds, packs)))
    return {"size": size, **{name: figures(one) for name, one in turns.items()}, **ratios(turns)}


def per_pack(done: Slice, load: Load) -> int:
    """Return how many messages the star is to pack, as many as the channel did."""
    # A pack is smaller than the lead that the sender may have: otherwise all would wait.
    return min(round(done.messages / max(1, done.packs)), load.window // 2)


# -- Figures ---------------------------------------------------------------------------------------


def figures(turns: Turns) -> Figures:
    """Return the figures of one system: for each the median of the rounds, the lowest and the
    highest."""
    floods, light = turns
    found = {
        "messages_per_s": spread([one.per_s for one in floods], 0),
        "cpu_s_per_million": spread([one.cpu_s_per_million for one in floods]),
    }
    for name, which in (("first_ms", min), ("last_ms", max)):
        cuts = [quantiles(one.delays_ms(which), n=100) for one in light]
        found[f"{name}_p50"] = spread([cut[49] for cut in cuts], 3)
        found[f"{name}_p99"] = spread([cut[98] for cut in cuts], 3)
    packs = sum(one.packs for one in floods)
    if packs:
        per_pack = sum(one.messages for one in floods) / packs
        return {**found, "messages_per_pack": round(per_pack, 1)}
    return found


MEASURES: dict[str, Callable[[Turns, int], float]] = {
    "": lambda turns, i: turns.floods[i].per_s,
    "cpu_": lambda turns, i: turns.floods[i].cpu_s_per_million,
    "p50_": lambda turns, i: median(turns.light[i].delays_ms(min)),
}
"""The figures by which the channel is compared, in round `i`."""


def ratios(turns: dict[str, Turns]) -> Figures:
    """Return the channel's figures as parts of the others', round by round."""
    ours = turns["channel"]
    return {
        f"{measure}of_{name}": spread(
            [value(ours, i) / value(turns[name], i) for i in range(len(ours.floods))]
        )
        for measure, value in MEASURES.items()
        for name in SYSTEMS[1:]
    }


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    parts = {"median": median(values), "lowest": min(values), "highest": max(values)}
    return {name: round(value, digits) if digits else round(value) for name, value in parts.items()}


# -- The report ------------------------------------------------------------------------------------


def _show(report: Figures) -> None:
    screen = Screen()
    for one in report["runs"]:
        title = f"{report['processes']} processes, {one['size']:,} bytes"
        table = Table("", *SYSTEMS, title=title)
        for name in figures_of(one["star"]):
            table.add_row(name, *(text(one[system][name]) for system in SYSTEMS))
        for measure in MEASURES:
            parts = (text(one[f"{measure}of_{name}"]) for name in SYSTEMS[1:])
            table.add_row(f"{measure}channel's part of it", "", *parts)
        screen.print(table)


def figures_of(one: Figures) -> list[str]:
    """Return the names of the figures that have a spread."""
    return [name for name, value in one.items() if isinstance(value, dict)]


def text(parts: dict[str, float]) -> str:
    """Return a figure with its lowest and highest value as text."""
    middle, lowest, highest = (f"{value:,}" for value in parts.values())
    return f"{middle} ({lowest} to {highest})"
