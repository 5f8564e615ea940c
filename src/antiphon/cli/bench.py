"""The commands `antiphon bench ...`: their options, and what implements each.

Nothing that measures is imported here: help stays quick (`cli/parsers.py`).
"""

from __future__ import annotations

import argparse

from antiphon.cli.parsers import (
    Commands,
    add_command,
    add_contexts,
    add_group,
    add_json,
    add_storage,
    add_traces,
    duration,
    implementation,
    on_spark,
    positive,
)


def add_bench(commands: Commands) -> None:
    example = "antiphon bench throughput --storage memory --seconds 10"
    bench = add_group(commands, "bench", "measure, beside what the bare machine could do", example)
    for name, what in (
        ("throughput", "messages a second to all members, and what they cost"),
        ("latency", "from the publish call to the delivery, at a light load"),
    ):
        parser = add_command(
            bench,
            name,
            what,
            example.replace("throughput", name),
            implementation("antiphon.lab.bench.compare", name),
        )
        _add_options(parser)
    _add_connections(bench)
    _add_selectors(bench)
    _add_failover(bench)
    _add_soak(bench)
    _add_start(bench)
    _add_growth(bench)
    _add_packing(bench)
    _add_spark(bench)
    _add_peers(bench)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--servers",
        type=int,
        choices=(1, 3, 5),
        default=3,
        help="servers, each a process (default: %(default)s)",
    )
    parser.add_argument(
        "--members",
        type=positive,
        default=3,
        metavar="N",
        help="subscribers, each a process (default: %(default)s)",
    )
    parser.add_argument(
        "--publishers",
        type=positive,
        default=1,
        metavar="N",
        help="each a process, all at the leader (default: %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=positive,
        default=100,
        metavar="BYTES",
        help="bytes a message (default: %(default)s)",
    )
    parser.add_argument(
        "--policy",
        dest="packing",
        type=_packing,
        default="adaptive",
        metavar="POLICY",
        help="adaptive, off, fixed=N or hill-climbing[=SECONDS] (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        default=20.0,
        metavar="S",
        help="how long (default: %(default)s)",
    )
    add_storage(parser)
    add_contexts(parser)
    add_traces(parser)
    add_json(parser)


def _add_connections(bench: Commands) -> None:
    parser = add_command(
        bench,
        "connections",
        "what idle clients cost a server",
        "antiphon bench connections --clients 10000 --json",
        implementation("antiphon.lab.bench.connections", "run"),
    )
    parser.add_argument(
        "--clients",
        type=positive,
        default=10_000,
        metavar="N",
        help="connections (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        default=20.0,
        metavar="S",
        help="how long (default: %(default)s)",
    )
    add_storage(parser)
    add_json(parser)


def _add_selectors(bench: Commands) -> None:
    parser = add_command(
        bench,
        "selectors",
        "what up to a thousand consumers with selectors cost a server",
        "antiphon bench selectors --storage memory --seconds 15",
        implementation("antiphon.lab.bench.selectors", "run"),
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        default=20.0,
        metavar="S",
        help="how long (default: %(default)s)",
    )
    add_storage(parser)
    add_json(parser)


def _add_failover(bench: Commands) -> None:
    parser = add_command(
        bench,
        "failover",
        "how long members of a group get nothing when a server fails",
        "antiphon bench failover --storage memory --rounds 10",
        implementation("antiphon.lab.bench.failover", "run"),
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        default=50,
        metavar="N",
        help="of each kind of failure (default: %(default)s)",
    )
    add_storage(parser)
    add_json(parser)


def _add_soak(bench: Commands) -> None:
    parser = add_command(
        bench,
        "soak",
        "full load for a long time, in which nobody may be suspected",
        "antiphon bench soak --minutes 60 --json",
        implementation("antiphon.lab.bench.soak", "run"),
    )
    parser.add_argument(
        "--minutes",
        type=duration,
        default=60.0,
        metavar="N",
        help="how long (default: %(default)s)",
    )
    add_storage(parser)
    add_json(parser)


def _add_start(bench: Commands) -> None:
    parser = add_command(
        bench,
        "start",
        "import, embedded server, cluster, and recovery of a large journal",
        "antiphon bench start --journal-mb 100",
        implementation("antiphon.lab.bench.start", "run"),
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--journal-mb",
        type=positive,
        default=1000,
        metavar="MB",
        help="messages in the journal that is recovered (default: %(default)s)",
    )
    add_json(parser)


def _add_growth(bench: Commands) -> None:
    parser = add_command(
        bench,
        "growth",
        "what it costs to have more of something",
        "antiphon bench growth members --out growth",
        implementation("antiphon.lab.bench.growth", "run"),
    )
    parser.add_argument(
        "dimension",
        nargs="?",
        choices=("members", "servers", "backlog", "topics", "subscriptions", "connections"),
        help="what there is more of (default: all of these in turn)",
    )
    parser.add_argument("--quick", action="store_true", help="a few points, to see that it works")
    parser.add_argument("--out", metavar="DIR", help="figures and charts go here")
    add_json(parser)


def _add_packing(bench: Commands) -> None:
    parser = add_command(
        bench,
        "packing",
        "packing policies, sizes and sources: JBora's tables 1 to 3 and figures 3, 5 and 6",
        "antiphon bench packing --quick",
        implementation("antiphon.lab.experiments.packing.bench", "run"),
    )
    parser.add_argument("--quick", action="store_true", help="a few points, to see that it works")
    add_json(parser)


def _add_spark(bench: Commands) -> None:
    parser = add_command(
        bench,
        "spark",
        "how fast Spark reads a topic, beside Parquet",
        "antiphon bench spark --messages 1000000",
        on_spark("antiphon bench spark", "antiphon.lab.bench.spark"),
    )
    parser.add_argument(
        "--messages",
        type=positive,
        default=2_000_000,
        metavar="N",
        help="of 100 bytes (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument("--master", metavar="URL", help="of Spark (default: local[*])")
    add_json(parser)


def _add_peers(bench: Commands) -> None:
    parser = add_command(
        bench,
        "peers",
        "the same work by JetStream, RabbitMQ and Redis, in turns with Antiphon",
        "antiphon bench peers --fetch",
        implementation("antiphon.lab.bench.rivals.run", "run"),
    )
    parser.add_argument(
        "--sizes",
        type=positive,
        nargs="+",
        default=(100, 1000, 10_000),
        metavar="BYTES",
        help="bytes a message (default: 100 1000 10000)",
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        default=2.0,
        metavar="S",
        help="of each turn at full speed, and again at a light load (default: %(default)s)",
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="servers that are not here: unpack the distribution's packages into the user's cache",
    )
    add_json(parser)


def _packing(text: str) -> str:
    from antiphon.api.protocol.packing import policy_of

    try:
        policy_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
