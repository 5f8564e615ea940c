"""The commands that try Antiphon, and put it to the test: their options and implementations.

Nothing that they run is imported here, so help stays quick (`cli/parsers.py`).
"""

from __future__ import annotations

import argparse
import os

from antiphon.cli import arguments
from antiphon.cli.arguments import positive, seconds
from antiphon.cli.bench import QUICK
from antiphon.cli.parsers import (
    Commands,
    Handler,
    add_command,
    add_contexts,
    add_group,
    add_json,
    add_master,
    add_storage,
    add_traces,
    flag,
    implementation,
    on_spark,
    option,
)


def add_demo(commands: Commands) -> None:
    add_command(
        commands,
        "demo",
        "run a replicated table that loses a server and a member, and no message",
        "antiphon demo",
        implementation("antiphon.lab.demo.command", "run"),
        flag("--peers", "without servers: processes that are killed and cut off, and merge again"),
        add_json,
    )


def add_doctor(commands: Commands) -> None:
    add_command(
        commands,
        "doctor",
        "check this machine, with a fix for each problem",
        "antiphon doctor --data /var/lib",
        implementation("antiphon.cli.doctor", "run"),
        option("--data", "measure this folder's disk (default: here)", ".", metavar="DIR"),
        add_json,
    )


def add_sim(commands: Commands) -> None:
    add_command(
        commands,
        "sim",
        "simulate whole clusters, or channels, under faults, and check their promises",
        "antiphon sim --seeds 200 --json",
        implementation("antiphon.cli.sim", "run"),
        option(
            "--peers",
            "channels, whose members run the protocols themselves; or `logs`, the servers of peer: "
            "on them (default: clusters)",
            "",
            nargs="?",
            const="channels",
            choices=("channels", "logs"),
        ),
        _which_seeds,
        add_traces,
        option(
            "--processes",
            "how many at a time (default: one a core, here %(default)s)",
            os.cpu_count() or 1,
            type=positive,
            metavar="N",
        ),
        _shrink,
        add_json,
    )


def _which_seeds(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seeds", type=positive, default=100, metavar="N", help="how many (default: %(default)s)"
    )
    which.add_argument("--seed", type=int, metavar="S", help="replay this one seed")
    parser.add_argument(
        "--first-seed",
        type=int,
        metavar="S",
        help="with --seeds: count from here (default: fresh seeds)",
    )
    command: Handler = parser.get_default("handler")

    def not_both(args: argparse.Namespace) -> int:
        if args.seed is not None and args.first_seed is not None:
            parser.error("argument --first-seed: not allowed with argument --seed")
        return command(args)

    parser.set_defaults(handler=not_both)


def _shrink(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shrink",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="make a failing seed's story as short as it still fails",
    )


def add_chaos(commands: Commands) -> None:
    add_command(
        commands,
        "chaos",
        "run real servers and programs under faults, and check their promises",
        "antiphon chaos --seconds 30 --seed 7",
        implementation("antiphon.lab.chaos.run", "run"),
        option("--seconds", "how long faults strike", 30.0, type=seconds, metavar="S"),
        option("--seed", "the plan of faults (default: a fresh one)", type=int, metavar="N"),
        option("--servers", "servers", 3, type=positive, metavar="N"),
        option(
            "--peers",
            "no servers, but N processes with channels, which order messages themselves",
            type=positive,
            metavar="N",
        ),
        add_storage,
        add_contexts,
        add_traces,
        _servers_or_peers,
        add_json,
    )


def _servers_or_peers(parser: argparse.ArgumentParser) -> None:
    command: Handler = parser.get_default("handler")

    def not_both(args: argparse.Namespace) -> int:
        for name in ("servers", "storage", "contexts"):
            if args.peers is not None and getattr(args, name) != parser.get_default(name):
                parser.error(f"argument --{name}: not allowed with argument --peers")
        return command(args)

    parser.set_defaults(handler=not_both)


def add_experiment(commands: Commands) -> None:
    example = "antiphon experiment groups --quick --out groups"
    experiment = add_group(
        commands, "experiment", "repeat measurements of the literature, and report", example
    )
    for name, module, text in EXPERIMENTS:
        add_command(
            experiment,
            name,
            text,
            example.replace("groups", name),
            on_spark("antiphon experiment", module),
            QUICK,
            option(
                "--out",
                "raw events, results, charts and the report go here",
                f"experiment-{name}",
                type=arguments.path,
                metavar="DIR",
            ),
            add_master,
            add_json,
        )


EXPERIMENTS = (
    (
        "groups",
        "antiphon.lab.experiments.groups",
        "latency and throughput over group sizes: the thesis' figures 6.7 to 6.10",
    ),
    (
        "architectures",
        "antiphon.lab.experiments.architectures",
        "latency and throughput of servers and of peers, side by side: the thesis' 5.2 to 5.4",
    ),
    (
        "packing",
        "antiphon.lab.experiments.packing.run",
        "packing policies, sizes and sources: JBora's tables 1 to 3",
    ),
)
