"""`antiphon bench channels members`: what each message costs as a channel grows to 30 members.

Each member is a process with a channel (`TOTAL_UNIFORM`), one of them sends as fast as it can, and
all receive; beside them the bare star of as many processes (`star.py`), in turns. Every member has
its share of the work, so the cost of a message grows with them at least: `cpu_s_per_member` is the
processor time of all processes for a million messages, divided by the members. It stays the same
where the cost is linear. `cpu_of_star` is the cost beside the star's.

A machine with fewer cores than members says little of the rates.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from typing import Any

from antiphon.lab.bench.channels import members, star
from antiphon.lab.bench.channels.peers import Peers
from antiphon.lab.bench.channels.speed import WARM_S, per_pack, spread, text
from antiphon.lab.bench.processes import Flood, Load, Slice
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, track

COUNTS = (3, 5, 10, 20, 30)
FIGURES = ("messages_per_s", "cpu_s_per_million", "cpu_s_per_member", "cpu_of_star")


def run(args: argparse.Namespace) -> int:
    """Measure all numbers of members with the first of the sizes, and tell."""
    size = args.sizes[0]
    runs = [
        _run(count, size, args.rounds, args.seconds) for count in track(COUNTS, "channels grow")
    ]
    report = {"size": size, "rounds": args.rounds, "seconds": args.seconds, "runs": runs}
    say_json(report) if args.json else _show(report)
    return 0


def _run(count: int, size: int, rounds: int, seconds: float) -> dict[str, Any]:
    load = Load(size)
    ours: list[Slice] = []
    stars: list[Slice] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench"))
        channel = Peers(stack, load, count, members.open_member, folder, count)
        bare = Peers(stack, load, count, star.open_peer)
        packs = per_pack(channel.work(Flood(WARM_S)), load)
        bare.work(Flood(WARM_S, packs))
        for _ in range(rounds):
            ours.append(channel.work(Flood(seconds)))
            stars.append(bare.work(Flood(seconds, packs)))
    cost = [one.cpu_s_per_million for one in ours]
    beside = [mine / other.cpu_s_per_million for mine, other in zip(cost, stars, strict=True)]
    return {
        "members": count,
        "messages_per_s": spread([one.per_s for one in ours], 0),
        "cpu_s_per_million": spread(cost),
        "cpu_s_per_member": spread([one / count for one in cost]),
        "cpu_of_star": spread(beside),
    }


def _show(report: dict[str, Any]) -> None:
    table = Table("members", *FIGURES, title=f"channels of {report['size']:,} bytes a message")
    for one in report["runs"]:
        table.add_row(str(one["members"]), *(text(one[name]) for name in FIGURES))
    Screen().print(table)
