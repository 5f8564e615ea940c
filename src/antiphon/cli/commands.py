"""The `antiphon` command.

Promise: exit 0 if all is well, 1 if the command failed, 2 on wrong usage; each `--help` ends with
an example. SIGTERM ends what a command has started, too. A command's implementation is imported
only when that command runs, so that help stays quick and loads none of the extras.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from antiphon._version import __version__
from antiphon.cli import arguments
from antiphon.cli.arguments import positive, seconds, words
from antiphon.cli.bench import QUICK, add_bench
from antiphon.cli.parsers import (
    Commands,
    Handler,
    Parser,
    add_command,
    add_contexts,
    add_group,
    add_json,
    add_json_lines,
    add_master,
    add_options,
    add_parser,
    add_storage,
    add_traces,
    epilog,
    flag,
    implementation,
    on_spark,
    option,
)
from antiphon.errors import ConfigurationError, JMSError
from antiphon.terminal.lines import complain

URL = option(
    "url", "antiphon://HOST:PORT[,...]; - takes $ANTIPHON_URL", type=arguments.url, metavar="URL"
)
DESTINATION = option(
    "destination", "topic:NAME or queue:NAME", type=arguments.destination, metavar="DESTINATION"
)
COMPLETE = flag("--complete", "channels had come to rest at the end: nothing was under way")
SERVER_TRACE = option(
    "--trace",
    "write accepted and delivered messages to traces here, for audits",
    type=arguments.path,
    metavar="DIR",
)


def main(argv: Sequence[str] | None = None) -> int:
    args = _build_parser().parse_args(argv)
    handler: Handler = args.handler
    if argv is None:  # the program, and not a part of another one
        signal.signal(signal.SIGTERM, _terminate)
        _print_anything()
    try:
        code = handler(args)
        sys.stdout.flush()
        return code
    except JMSError as error:
        complain(f"{type(error).__name__}: {error}")
        return 2 if isinstance(error, ConfigurationError) else 1
    except BrokenPipeError:
        # The reader, `head` perhaps, has closed the pipe. Without this the interpreter's own flush
        # at exit would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise  # no file is named: a traceback is better than a riddle
        complain(f"{error.filename}: {error.strerror}")
        return 2


def _print_anything() -> None:
    """Show characters that the encoding of the output lacks as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _terminate(number: int, _: FrameType | None) -> None:
    """Raise SystemExit, so that each caller ends the processes that it has started."""
    sys.exit(128 + number)


def _build_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="antiphon",
        description="Group communication through the JMS model.",
        epilog=epilog("antiphon demo"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"antiphon {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_cluster(commands)
    _add_pub(commands)
    _add_sub(commands)
    _add_peers(commands)
    _add_watch_group(commands)
    _add_demo(commands)
    _add_doctor(commands)
    _add_sim(commands)
    _add_chaos(commands)
    add_bench(commands)
    _add_experiment(commands)
    _add_journal(commands)
    _add_trace(commands)
    _add_archive(commands)
    _add_audit(commands)
    return parser


# -- Servers and clusters --------------------------------------------------------------------------


def _add_serve(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "serve",
        "run one server in the foreground",
        "antiphon serve --node 1 --cluster 1=127.0.0.1:7471,2=127.0.0.1:7472,3=127.0.0.1:7473",
    )
    add_options(
        parser,
        option(
            "--config",
            "take options from this file; options of the command line take precedence",
            metavar="FILE.toml",
        ),
        option(
            "--listen",
            "where to listen; port 0 takes a free one (default: this node's address in --cluster, "
            "or 127.0.0.1:7470)",
            type=arguments.address,
            metavar="HOST:PORT",
        ),
        option("--node", "this server's number in --cluster", type=positive, metavar="N"),
        option(
            "--cluster",
            "all servers of the cluster, this one among them",
            type=arguments.cluster,
            metavar="1=HOST:PORT,...",
        ),
        option(
            "--data",
            "journal, if durable (default: ./antiphon-data)",
            type=arguments.path,
            metavar="DIR",
        ),
    )
    add_storage(parser, default=None)
    add_contexts(parser, default=None)
    add_options(
        parser,
        option(
            "--metrics",
            "answer /metrics (Prometheus) and /ready over HTTP here",
            type=arguments.address,
            metavar="HOST:PORT",
        ),
        SERVER_TRACE,
        add_json_lines,
    )
    parser.set_defaults(handler=lambda args: _serve(parser, args))


def _serve(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    from antiphon.io.config import serve_options

    names = ("listen", "node", "cluster", "data", "storage", "contexts", "metrics", "trace", "json")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    try:
        options = serve_options(given, args.config)
    except ConfigurationError as error:
        parser.error(str(error))
    return implementation("antiphon.cli.serve", "run")(options)


def _add_cluster(commands: Commands) -> None:
    cluster = add_group(
        commands, "cluster", "start, look at and change a cluster", "antiphon cluster up 3"
    )
    add_command(
        cluster,
        "up",
        "run N local servers, until Ctrl-C",
        "antiphon cluster up 3",
        implementation("antiphon.cli.cluster", "up"),
        option("servers", "how many servers", type=arguments.servers, metavar="N"),
        option(
            "--data",
            "keep the journals here (default: temporary)",
            type=arguments.path,
            metavar="DIR",
        ),
        add_storage,
        add_contexts,
        SERVER_TRACE,
        add_json_lines,
    )
    add_command(
        cluster,
        "status",
        "show leader, nodes and groups; exit code 1 without a leader or with a server down",
        "antiphon cluster status antiphon://127.0.0.1:7470",
        implementation("antiphon.cli.cluster", "status"),
        URL,
        flag("--counters", "also show the counters of each part of each server"),
        add_json,
    )
    for change, text, node, sample, nargs in CHANGES:
        add_command(
            cluster,
            change,
            text,
            f"antiphon cluster {change} antiphon://127.0.0.1:7470 {sample}",
            implementation("antiphon.cli.cluster", "change"),
            URL,
            option("nodes", f"for instance {sample}", type=node, nargs=nargs, metavar="NODE"),
            add_json,
        ).set_defaults(change=change)


CHANGES: tuple[tuple[str, str, Callable[[str], object], str, str | int], ...] = (
    ("add", "add servers, one after the other", arguments.node_address, "4=127.0.0.1:7474", "+"),
    ("remove", "remove servers, one after the other", positive, "4", "+"),
    ("transfer", "hand the leadership to a server", positive, "2", 1),
)


# -- Peers -----------------------------------------------------------------------------------------


def _add_peers(commands: Commands) -> None:
    peers = add_group(
        commands,
        "peers",
        "look at a cluster of peers, and repair it",
        "antiphon peers status peer:alarms",
    )
    options = (
        option("url", "peer:NAME, or another URL of a cluster of peers", metavar="URL"),
        option("--certificate", "this program's certificate", type=arguments.path, metavar="PEM"),
        option("--key", "its private key", type=arguments.path, metavar="PEM"),
        option("--authority", "the authority of all members", type=arguments.path, metavar="PEM"),
        flag("--plaintext", "without TLS also off loopback"),
        add_json,
    )
    add_command(
        peers,
        "status",
        "show the processes, their views and whom they wait for; exit code 1 without a primary one",
        "antiphon peers status peer:alarms",
        implementation("antiphon.cli.peers", "status"),
        *options,
    )
    add_command(
        peers,
        "reform",
        "found a cluster anew whose majority is gone for good, with those who are left; if the "
        "others are only cut off, there will be two clusters",
        "antiphon peers reform peer:alarms",
        implementation("antiphon.cli.peers", "reform"),
        *options,
    )


# -- Messages and groups ---------------------------------------------------------------------------


def _add_pub(commands: Commands) -> None:
    add_command(
        commands,
        "pub",
        "send messages by hand",
        "antiphon pub antiphon://127.0.0.1:7470 topic:Alarms Fire! -p floor=4",
        implementation("antiphon.cli.pubsub", "publish"),
        URL,
        DESTINATION,
        option("body", "the text; - sends each line of the input", type=words, metavar="BODY"),
        _property,
        option("--priority", "0 to 9; 4 is usual", type=arguments.priority, metavar="N"),
        option("--ttl", "expires after S seconds", type=seconds, metavar="S"),
        option("--delay", "delivered after S seconds", type=seconds, metavar="S"),
        add_json,
    )


def _property(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--property",
        dest="properties",
        type=arguments.named_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a number, true, false or a text; 'NAME=\"4\"' is the text 4",
    )


def _add_sub(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "sub",
        "show messages as they come, until Ctrl-C",
        "antiphon sub antiphon://127.0.0.1:7470 queue:orders --count 10 --timeout 5",
    )
    add_options(
        parser,
        URL,
        DESTINATION,
        option("--selector", "only messages that fit, as 'floor > 3'", type=words, metavar="S"),
        option("--count", "end after N messages", type=positive, metavar="N"),
        option(
            "--timeout",
            "end when none has come for S seconds; with --count that is a failure",
            type=seconds,
            metavar="S",
        ),
        option(
            "--durable",
            "go on with this subscription; needs --client-id",
            type=words,
            metavar="NAME",
        ),
        option(
            "--shared",
            "divide this subscription with its other consumers",
            type=words,
            metavar="NAME",
        ),
        flag("--browse", "show the messages of the queue, and leave them there"),
        option("--client-id", "the client id, to the servers", type=words, metavar="ID"),
        add_json_lines,
    )
    subscribe = implementation("antiphon.cli.pubsub", "subscribe")
    parser.set_defaults(handler=lambda args: subscribe(_checked_sub(parser, args)))


def _checked_sub(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.Namespace:
    if args.durable is not None and args.client_id is None:
        parser.error("--durable needs --client-id: a durable subscription belongs to a client")
    if args.durable is not None and not args.destination.startswith("topic:"):
        parser.error("--durable is for topics; a queue keeps its messages anyway")
    if args.shared is not None and not args.destination.startswith("topic:"):
        parser.error("--shared is for topics; the consumers of a queue divide its messages anyway")
    if args.shared is not None and args.durable is not None:
        parser.error("--shared or --durable, not both")
    if args.browse and not args.destination.startswith("queue:"):
        parser.error("--browse is for queues")
    return args


def _add_watch_group(commands: Commands) -> None:
    add_command(
        commands,
        "group",
        "follow a group: views, suspects, members that lag; until Ctrl-C",
        "antiphon group antiphon://127.0.0.1:7470 accounts",
        implementation("antiphon.cli.group", "run"),
        URL,
        option("name", "the group's", type=words, metavar="NAME"),
        flag(
            "--delete",
            "remove all its members, also inactive ones, and forget it; refused while some live",
        ),
        flag("--force", "delete it with its live members"),
        add_json_lines,
    )


# -- Trying it, and putting it to the test ---------------------------------------------------------


def _add_demo(commands: Commands) -> None:
    add_command(
        commands,
        "demo",
        "run a replicated table that loses a server and a member, and no message",
        "antiphon demo",
        implementation("antiphon.lab.demo.command", "run"),
        flag("--peers", "without servers: processes that are killed and cut off, and merge again"),
        add_json,
    )


def _add_doctor(commands: Commands) -> None:
    add_command(
        commands,
        "doctor",
        "check this machine, with a fix for each problem",
        "antiphon doctor --data /var/lib",
        implementation("antiphon.cli.doctor", "run"),
        option("--data", "measure this folder's disk (default: here)", ".", metavar="DIR"),
        add_json,
    )


def _add_sim(commands: Commands) -> None:
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


def _add_chaos(commands: Commands) -> None:
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
        add_json,
    )


def _add_experiment(commands: Commands) -> None:
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


# -- Files -----------------------------------------------------------------------------------------


def _add_journal(commands: Commands) -> None:
    example = "antiphon journal inspect ./antiphon-data"
    add_command(
        add_group(commands, "journal", "look into a journal", example),
        "inspect",
        "list the contents of a journal's files, and check them for damage",
        example,
        implementation("antiphon.cli.journal", "run"),
        option("dir", "a server's data folder", metavar="DIR"),
        add_json,
    )


def _add_trace(commands: Commands) -> None:
    example = "antiphon trace show traces/7-a-1.trace"
    trace = add_group(commands, "trace", "look into delivery traces", example)
    add_command(
        trace,
        "show",
        "print the events of a trace file",
        example,
        implementation("antiphon.cli.trace", "run"),
        option("file", "a file ending in .trace or .channel", metavar="FILE"),
        add_json_lines,
    )
    add_command(
        trace,
        "check",
        "check the promises of groups and channels, over traces that fit into memory",
        "antiphon trace check traces",
        implementation("antiphon.cli.trace", "check"),
        option("dir", "a folder with files ending in .trace or .channel", metavar="DIR"),
        COMPLETE,
        add_json,
    )
    add_command(
        trace,
        "to-parquet",
        "write the events of all trace files of a folder as one Parquet table",
        "antiphon trace to-parquet traces traces.parquet",
        on_spark("antiphon trace to-parquet", "antiphon.spark.traces.table"),
        option("dir", "a folder with files ending in .trace", metavar="DIR"),
        option("out", "the file to write", metavar="OUT"),
        add_json,
    )


def _add_archive(commands: Commands) -> None:
    add_command(
        commands,
        "archive",
        "write the finished segments of a journal as Parquet, on Spark",
        "antiphon archive ./antiphon-data ./archive",
        on_spark("antiphon archive", "antiphon.spark.archive.run"),
        option("journal", "a server's data folder; the server may run", metavar="JOURNAL"),
        option("archive", "the folder to write to, or to continue", metavar="ARCHIVE"),
        add_master,
        add_json,
    )


def _add_audit(commands: Commands) -> None:
    add_command(
        commands,
        "audit",
        "check the promises of groups and channels on Spark, over traces of any size",
        "antiphon audit traces",
        on_spark("antiphon audit", "antiphon.spark.audit.report"),
        option(
            "trace",
            "a folder with files ending in .trace or .channel, or a Parquet table",
            metavar="TRACE",
        ),
        COMPLETE,
        add_master,
        add_json,
    )
