"""The commands `antiphon bench ...`: a table of their options and implementations.

No module that measures is imported here, so help stays quick (`cli/parsers.py`).
"""

from __future__ import annotations

import argparse

from antiphon.cli import arguments
from antiphon.cli.arguments import duration, positive
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

EXAMPLE = "antiphon bench throughput --storage memory --seconds 10"


def add_bench(commands: Commands) -> None:
    bench = add_group(commands, "bench", "measure, beside what the bare machine could do", EXAMPLE)
    for name, text, example, handler, options in COMMANDS:
        add_command(bench, name, text, example, handler, *options)


def _packing(text: str) -> str:
    from antiphon.api.protocol.packing import policy_of

    try:
        policy_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


MEMBERS = option("--members", "subscribers, each a process", 3, type=positive, metavar="N")
PUBLISHERS = option(
    "--publishers", "each a process; with servers, all at the leader", 1, type=positive, metavar="N"
)
SIZE = option("--size", "bytes a message", 100, type=positive, metavar="BYTES")
POLICY = option(
    "--policy",
    "adaptive, off, fixed=N or hill-climbing[=SECONDS]",
    "adaptive",
    type=_packing,
    dest="packing",
    metavar="POLICY",
)
SECONDS = option("--seconds", "how long", 20.0, type=duration, metavar="S")
ROUNDS = option("--rounds", "how often each thing is measured", 5, type=positive, metavar="N")
SIZES = option(
    "--sizes",
    "bytes a message (default: 100 1000 10000)",
    (100, 1000, 10_000),
    type=positive,
    nargs="+",
    metavar="BYTES",
)
TURN = option(
    "--seconds",
    "of each turn at full speed, and again at a light load",
    2.0,
    type=duration,
    metavar="S",
)
QUICK = flag("--quick", "a few points, to see that it works")


def _add_architecture(parser: argparse.ArgumentParser) -> None:
    """Add `--architecture`, and the options that mean something with servers alone. Call it after
    the handler is set."""
    parser.add_argument(
        "--architecture",
        choices=("servers", "peers"),
        default="servers",
        help="who keeps the messages: servers, or the processes themselves (default: %(default)s)",
    )
    number = "servers, each a process (default: 3)"
    option("--servers", number, type=int, choices=(1, 3, 5))(parser)
    add_storage(parser, default=None)
    add_contexts(parser, default=None)
    command: Handler = parser.get_default("handler")

    def checked(args: argparse.Namespace) -> int:
        if args.architecture == "servers":
            args.servers = args.servers or 3
            args.storage = args.storage or "durable"
            args.contexts = args.contexts or "replicated"
        elif args.servers is not None or args.contexts is not None:
            given = "--servers" if args.servers is not None else "--contexts"
            parser.error(f"{given} is about servers, and --architecture peers has none")
        elif args.storage == "durable":
            parser.error("--architecture peers keeps messages in memory, not --storage durable")
        return command(args)

    parser.set_defaults(handler=checked)


SIDE_BY_SIDE = (
    _add_architecture,
    MEMBERS,
    PUBLISHERS,
    SIZE,
    POLICY,
    SECONDS,
    add_traces,
    add_json,
)

COMMANDS = (
    (
        "throughput",
        "measure messages a second to all members, and their cost",
        EXAMPLE,
        implementation("antiphon.lab.bench.compare", "throughput"),
        SIDE_BY_SIDE,
    ),
    (
        "latency",
        "measure the time from the publish call to the delivery, at a light load",
        "antiphon bench latency --architecture peers --members 5 --seconds 10",
        implementation("antiphon.lab.bench.compare", "latency"),
        SIDE_BY_SIDE,
    ),
    (
        "connections",
        "measure the cost of idle clients to a server",
        "antiphon bench connections --clients 10000 --json",
        implementation("antiphon.lab.bench.connections", "run"),
        (
            option("--clients", "connections", 10_000, type=positive, metavar="N"),
            SECONDS,
            add_storage,
            add_json,
        ),
    ),
    (
        "selectors",
        "measure the cost of up to a thousand consumers with selectors to a server",
        "antiphon bench selectors --storage memory --seconds 15",
        implementation("antiphon.lab.bench.selectors", "run"),
        (SECONDS, add_storage, add_json),
    ),
    (
        "failover",
        "measure how long members of a group get nothing when a server fails",
        "antiphon bench failover --storage memory --rounds 10",
        implementation("antiphon.lab.bench.failover", "run"),
        (
            option("--rounds", "of each kind of failure", 50, type=positive, metavar="N"),
            add_storage,
            add_json,
        ),
    ),
    (
        "large",
        "measure how long small messages wait while large ones are on their way",
        "antiphon bench large --storage memory",
        implementation("antiphon.lab.bench.large_messages", "run"),
        (
            option("--senders", "of one large message each", 10, type=positive, metavar="N"),
            option("--size-mb", "of a large message, in MiB", 64, type=positive, metavar="MB"),
            ROUNDS,
            add_storage,
            add_json,
        ),
    ),
    (
        "soak",
        "run full load for a long time, in which no member may be suspected",
        "antiphon bench soak --minutes 60 --json",
        implementation("antiphon.lab.bench.soak", "run"),
        (
            option("--minutes", "how long", 60.0, type=duration, metavar="N"),
            add_storage,
            add_json,
        ),
    ),
    (
        "start",
        "measure import, embedded server, cluster, and recovery of a large journal",
        "antiphon bench start --journal-mb 100",
        implementation("antiphon.lab.bench.start", "run"),
        (
            ROUNDS,
            option(
                "--journal-mb",
                "messages in the journal that is recovered",
                1000,
                type=positive,
                metavar="MB",
            ),
            add_json,
        ),
    ),
    (
        "growth",
        "measure the cost of more members, servers, backlog, topics, subscriptions or connections",
        "antiphon bench growth members --out growth",
        implementation("antiphon.lab.bench.growth.run", "run"),
        (
            option(
                "dimension",
                "the one that grows (default: all of these in turn)",
                nargs="?",
                choices=("members", "servers", "backlog", "topics", "subscriptions", "connections"),
            ),
            QUICK,
            option("--out", "figures and charts go here", type=arguments.path, metavar="DIR"),
            add_json,
        ),
    ),
    (
        "packing",
        "measure packing policies, sizes and sources as `experiment packing` does, without Spark",
        "antiphon bench packing --quick",
        implementation("antiphon.lab.experiments.packing.bench", "run"),
        (QUICK, add_json),
    ),
    (
        "spark",
        "measure how fast Spark reads a topic, beside Parquet",
        "antiphon bench spark --messages 1000000",
        on_spark("antiphon bench spark", "antiphon.lab.bench.spark"),
        (
            option("--messages", "of 100 bytes", 2_000_000, type=positive, metavar="N"),
            ROUNDS,
            add_master,
            add_json,
        ),
    ),
    (
        "channels",
        "measure channels beside a bare star and our servers, their views, or up to 30 members",
        "antiphon bench channels speed --sizes 100",
        implementation("antiphon.lab.bench.channels.run", "run"),
        (
            option(
                "what",
                "speed beside others, how soon views come, or what more members cost",
                "speed",
                nargs="?",
                choices=("speed", "views", "members"),
            ),
            option(
                "--processes",
                "of the channel, 3 to 30",
                3,
                type=int,
                choices=range(3, 31),
                metavar="N",
            ),
            SIZES,
            ROUNDS,
            TURN,
            option(
                "--rate", "messages a second of the light load", 1000, type=positive, metavar="N"
            ),
            add_json,
        ),
    ),
    (
        "peers",
        "measure JetStream, RabbitMQ and Redis at the same work, in turns with Antiphon",
        "antiphon bench peers --fetch",
        implementation("antiphon.lab.bench.rivals.run", "run"),
        (
            SIZES,
            ROUNDS,
            TURN,
            flag(
                "--fetch",
                "unpack the distribution's packages of missing servers into the user's cache",
            ),
            add_json,
        ),
    ),
)
