"""The `antiphon` command.

Promise: exit 0 if all is well, 1 if what was asked for failed, 2 on wrong usage; each `--help` ends
with an example. SIGTERM ends what a command has started, too. A command's implementation is
imported only when that command runs, so that help stays quick and loads none of the extras.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from antiphon._version import __version__
from antiphon.cli.bench import add_bench
from antiphon.cli.parsers import (
    Commands,
    Handler,
    Parser,
    add_command,
    add_contexts,
    add_group,
    add_json,
    add_parser,
    add_storage,
    add_traces,
    epilog,
    implementation,
    on_spark,
    positive,
    seconds,
    words,
)
from antiphon.errors import ConfigurationError, InvalidDestinationError, JMSError
from antiphon.terminal.lines import complain

Address = tuple[str, int]


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
        # The reader, `head` perhaps, has seen enough. Without this the interpreter's own flush at
        # exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise  # nobody has named what it is about: a story is better than a riddle
        complain(f"{error.filename}: {error.strerror}")
        return 2


def _print_anything() -> None:
    """What the encoding of the output lacks is shown as an escape, and is no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _terminate(number: int, _: FrameType | None) -> None:
    """As an exception, so that whoever has started something ends it."""
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


def _add_serve(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "serve",
        "run one server in the foreground",
        "antiphon serve --node 1 --cluster 1=127.0.0.1:7471,2=127.0.0.1:7472,3=127.0.0.1:7473",
    )
    parser.add_argument(
        "--config", metavar="FILE.toml", help="take options from here; those given here count more"
    )
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one (default: this node's address in --cluster, "
        "or 127.0.0.1:7470)",
    )
    parser.add_argument(
        "--node", type=positive, metavar="N", help="this server's number in --cluster"
    )
    parser.add_argument(
        "--cluster",
        type=_cluster,
        metavar="1=HOST:PORT,...",
        help="all servers of the cluster, this one among them",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="journal, if durable (default: ./antiphon-data)"
    )
    add_storage(parser, default=None)
    add_contexts(parser, default=None)
    parser.add_argument(
        "--metrics",
        type=_address,
        metavar="HOST:PORT",
        help="answer /metrics (Prometheus) and /ready over HTTP here",
    )
    _add_server_trace(parser)
    add_json(parser, lines=True)
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
    up = add_command(
        cluster,
        "up",
        "run N local servers, until Ctrl-C",
        "antiphon cluster up 3",
        implementation("antiphon.cli.cluster", "up"),
    )
    up.add_argument("servers", type=positive, metavar="N", help="how many servers")
    up.add_argument("--data", metavar="DIR", help="keep the journals here (default: temporary)")
    add_storage(up)
    add_contexts(up)
    _add_server_trace(up)
    add_json(up, lines=True)
    status = add_command(
        cluster,
        "status",
        "leader, every node's role, groups; exit code 1 without a leader or with a server down",
        "antiphon cluster status antiphon://127.0.0.1:7470",
        implementation("antiphon.cli.cluster", "status"),
    )
    _add_url(status)
    status.add_argument(
        "--counters", action="store_true", help="show what each part of each server has done, too"
    )
    add_json(status)
    _add_change(
        cluster, "add", "add servers, one after the other", _node_address, "4=127.0.0.1:7474"
    )
    _add_change(cluster, "remove", "remove servers, one after the other", positive, "4")
    _add_change(cluster, "transfer", "hand the leadership to a server", positive, "2", nargs=1)


def _add_server_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace", metavar="DIR", help="write down here what is accepted and handed out, for audits"
    )


def _add_change(
    cluster: Commands,
    change: str,
    text: str,
    node: Callable[[str], object],
    sample: str,
    nargs: str | int = "+",
) -> None:
    parser = add_command(
        cluster,
        change,
        text,
        f"antiphon cluster {change} antiphon://127.0.0.1:7470 {sample}",
        implementation("antiphon.cli.cluster", "change"),
    )
    _add_url(parser)
    parser.add_argument(
        "nodes", type=node, nargs=nargs, metavar="NODE", help=f"for instance {sample}"
    )
    add_json(parser)
    parser.set_defaults(change=change)


def _add_pub(commands: Commands) -> None:
    parser = add_command(
        commands,
        "pub",
        "send messages by hand",
        "antiphon pub antiphon://127.0.0.1:7470 topic:Alarms Fire! -p floor=4",
        implementation("antiphon.cli.pubsub", "publish"),
    )
    _add_url(parser)
    _add_destination(parser)
    parser.add_argument(
        "body", type=words, metavar="BODY", help="the text; - sends each line of the input"
    )
    parser.add_argument(
        "-p",
        "--property",
        dest="properties",
        type=_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a number, true, false or a text; 'NAME=\"4\"' is the text 4",
    )
    parser.add_argument("--priority", type=_priority, metavar="N", help="0 to 9; 4 is usual")
    parser.add_argument("--ttl", type=seconds, metavar="S", help="expires after S seconds")
    parser.add_argument("--delay", type=seconds, metavar="S", help="delivered after S seconds")
    add_json(parser)


def _add_sub(commands: Commands) -> None:
    parser = add_parser(
        commands,
        "sub",
        "show messages as they come, until Ctrl-C",
        "antiphon sub antiphon://127.0.0.1:7470 queue:orders --count 10 --timeout 5",
    )
    _add_url(parser)
    _add_destination(parser)
    parser.add_argument(
        "--selector", type=words, metavar="S", help="only messages that fit, as 'floor > 3'"
    )
    parser.add_argument("--count", type=positive, metavar="N", help="end after so many")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help="end when none has come for S seconds; with --count that is a failure",
    )
    parser.add_argument(
        "--durable",
        type=words,
        metavar="NAME",
        help="go on with this subscription; needs --client-id",
    )
    parser.add_argument(
        "--shared",
        type=words,
        metavar="NAME",
        help="divide this subscription with others who have it",
    )
    parser.add_argument(
        "--browse", action="store_true", help="show what is in the queue, and leave it there"
    )
    parser.add_argument("--client-id", type=words, metavar="ID", help="who this is, to the servers")
    add_json(parser, lines=True)
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


def _priority(text: str) -> int:
    if text not in tuple("0123456789"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a priority from 0 to 9")
    return int(text)


def _add_watch_group(commands: Commands) -> None:
    parser = add_command(
        commands,
        "group",
        "show a group as it lives: views, suspects, who is behind; until Ctrl-C",
        "antiphon group antiphon://127.0.0.1:7470 accounts",
        implementation("antiphon.cli.group", "run"),
    )
    _add_url(parser)
    parser.add_argument("name", type=words, metavar="NAME", help="the group's")
    parser.add_argument(
        "--delete",
        action="store_true",
        help="remove all its members, also inactive ones, and forget it; refused while some live",
    )
    parser.add_argument("--force", action="store_true", help="delete it with its live members")
    add_json(parser, lines=True)


def _add_demo(commands: Commands) -> None:
    parser = add_command(
        commands,
        "demo",
        "the main job, end to end",
        "antiphon demo",
        implementation("antiphon.lab.demo.run", "run"),
    )
    add_json(parser)


def _add_sim(commands: Commands) -> None:
    parser = add_command(
        commands,
        "sim",
        "simulate whole clusters under faults, and check what they promise",
        "antiphon sim --seeds 200 --json",
        implementation("antiphon.cli.sim", "run"),
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seeds", type=positive, default=100, metavar="N", help="how many (default: %(default)s)"
    )
    which.add_argument("--seed", type=int, metavar="S", help="replay this one seed")
    parser.add_argument(
        "--first-seed", type=int, metavar="S", help="count from here (default: fresh seeds)"
    )
    add_traces(parser)
    parser.add_argument(
        "--processes",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many at a time (default: one a core, here %(default)s)",
    )
    parser.add_argument(
        "--shrink",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="make a failing seed's story as short as it still fails",
    )
    add_json(parser)


def _add_chaos(commands: Commands) -> None:
    parser = add_command(
        commands,
        "chaos",
        "real servers and programs under faults, and whether they keep their promises",
        "antiphon chaos --seconds 30 --seed 7",
        implementation("antiphon.lab.chaos.run", "run"),
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=30.0,
        metavar="S",
        help="how long things break (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="what breaks when (default: a fresh one)"
    )
    parser.add_argument(
        "--servers", type=positive, default=3, metavar="N", help="servers (default: %(default)s)"
    )
    add_storage(parser)
    add_contexts(parser)
    add_traces(parser)
    add_json(parser)


def _add_experiment(commands: Commands) -> None:
    example = "antiphon experiment groups --quick --out groups"
    experiment = add_group(
        commands, "experiment", "measure what the literature measured, and report on it", example
    )
    for name, module, what in (
        (
            "groups",
            "groups",
            "latency and throughput over group sizes: the thesis' figures 6.7 to 6.10",
        ),
        ("packing", "packing.run", "packing policies, sizes and sources: JBora's tables 1 to 3"),
    ):
        parser = add_command(
            experiment,
            name,
            what,
            example.replace("groups", name),
            on_spark("antiphon experiment", f"antiphon.lab.experiments.{module}"),
        )
        parser.add_argument(
            "--quick", action="store_true", help="a few points, to see that it works"
        )
        parser.add_argument(
            "--out",
            metavar="DIR",
            default=f"experiment-{name}",
            help="raw events, results, charts and the report go here (default: %(default)s)",
        )
        parser.add_argument("--master", metavar="URL", help="Spark's (default: this machine)")
        add_json(parser)


def _add_doctor(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        "look at this machine, and say what to mend",
        "antiphon doctor --data /var/lib",
        implementation("antiphon.cli.doctor", "run"),
    )
    parser.add_argument(
        "--data", metavar="DIR", default=".", help="measure this folder's disk (default: here)"
    )
    add_json(parser)


def _add_journal(commands: Commands) -> None:
    journal = add_group(
        commands, "journal", "look into a journal", "antiphon journal inspect ./antiphon-data"
    )
    inspect = add_command(
        journal,
        "inspect",
        "what the files of a journal hold, and whether they are whole",
        "antiphon journal inspect ./antiphon-data",
        implementation("antiphon.cli.journal", "run"),
    )
    inspect.add_argument("dir", metavar="DIR", help="a server's data folder")
    add_json(inspect)


def _add_archive(commands: Commands) -> None:
    parser = add_command(
        commands,
        "archive",
        "turn what is finished in a journal into Parquet, on Spark",
        "antiphon archive ./antiphon-data ./archive",
        on_spark("antiphon archive", "antiphon.spark.archive.run"),
    )
    parser.add_argument(
        "journal", metavar="JOURNAL", help="a server's data folder; the server may run"
    )
    parser.add_argument("archive", metavar="ARCHIVE", help="where to, or what to go on with")
    parser.add_argument("--master", metavar="URL", help="of Spark (default: this machine)")
    add_json(parser)


def _add_trace(commands: Commands) -> None:
    trace = add_group(
        commands, "trace", "look into delivery traces", "antiphon trace show traces/7-a-1.trace"
    )
    show = add_command(
        trace,
        "show",
        "print the events of a trace file",
        "antiphon trace show traces/7-a-1.trace",
        implementation("antiphon.cli.trace", "run"),
    )
    show.add_argument("file", metavar="FILE", help="a file ending in .trace")
    add_json(show, lines=True)
    to_parquet = add_command(
        trace,
        "to-parquet",
        "write the events of all trace files of a folder as one Parquet table",
        "antiphon trace to-parquet traces traces.parquet",
        on_spark("antiphon trace to-parquet", "antiphon.spark.traces.table"),
    )
    to_parquet.add_argument("dir", metavar="DIR", help="a folder with files ending in .trace")
    to_parquet.add_argument("out", metavar="OUT", help="the file to write")
    add_json(to_parquet)


def _add_audit(commands: Commands) -> None:
    parser = add_command(
        commands,
        "audit",
        "check on Spark what groups promise, over delivery traces of any size",
        "antiphon audit traces",
        on_spark("antiphon audit", "antiphon.spark.audit.report"),
    )
    parser.add_argument(
        "trace", metavar="TRACE", help="a folder with files ending in .trace, or a Parquet table"
    )
    parser.add_argument(
        "--master", metavar="URL", help="where Spark runs (default: on all cores of this machine)"
    )
    add_json(parser)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url", type=_url, metavar="URL", help="antiphon://HOST:PORT[,...]; - takes $ANTIPHON_URL"
    )


def _add_destination(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "destination", type=_destination, metavar="DESTINATION", help="topic:NAME or queue:NAME"
    )


def _destination(text: str) -> str:
    from antiphon.model import destinations

    try:
        destinations.parse(text)
    except InvalidDestinationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _property(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        read = json.loads(value)
    except ValueError:
        return name, value
    return name, read if isinstance(read, bool | int | float | str) else value


def _url(text: str) -> str:
    if text != "-":
        return text
    try:
        return os.environ["ANTIPHON_URL"]
    except KeyError:
        raise argparse.ArgumentTypeError("- needs ANTIPHON_URL to be set") from None


def _address(text: str) -> Address:
    """`127.0.0.1:7470`, `localhost:0`, `[::1]:7470`."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _node_address(text: str) -> tuple[int, Address]:
    node, equals, address = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NODE=HOST:PORT")
    return positive(node), _address(address)


def _cluster(text: str) -> dict[int, Address]:
    listed = [_node_address(part) for part in text.split(",")]
    if len(dict(listed)) < len(listed):
        raise argparse.ArgumentTypeError(f"{text!r} lists a node twice")
    return dict(listed)
