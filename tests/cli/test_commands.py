"""The command line: usage, help, and `trace show`."""

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon.cli import arguments, commands
from antiphon.cli import parsers as cli_parts
from antiphon.server.local_cluster import COMMAND

FIXTURES = Path(__file__).parents[1] / "fixtures"
URL = "antiphon://127.0.0.1:7470"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


PARSERS = {parser.prog: parser for parser in parsers(commands._build_parser())}


def leaves() -> dict[str, argparse.ArgumentParser]:
    """The commands that do something, by name."""
    return {
        prog: parser
        for prog, parser in PARSERS.items()
        if not any(isinstance(a, argparse._SubParsersAction) for a in parser._actions)
    }


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, argparse.Namespace]]:
    """What the command line hands to which implementation, none of which runs."""
    calls: list[tuple[str, argparse.Namespace]] = []

    class AnyModule:
        def __init__(self, module: str) -> None:
            self.module = module

        def __getattr__(self, function: str) -> cli_parts.Handler:
            return lambda args: calls.append((f"{self.module}.{function}", args)) or 0

    monkeypatch.setattr(cli_parts, "import_module", AnyModule)
    return calls


@pytest.mark.parametrize("command", PARSERS)
def test_each_help_ends_with_an_example_that_parses(command: str) -> None:
    example = PARSERS[command].format_help().splitlines()[-1].strip()
    assert example.startswith(command)
    commands._build_parser().parse_args(example.split()[1:])


@pytest.mark.parametrize("command", leaves())
def test_each_command_can_tell_programs_what_it_found(command: str) -> None:
    assert "--json" in leaves()[command]._option_string_actions


def test_an_option_says_what_it_is_in_every_command() -> None:
    for command, parser in PARSERS.items():
        for action in parser._actions:
            text = (action.help or "").partition("(default")[0].strip()
            assert text or isinstance(action, argparse._SubParsersAction), (command, action.dest)


def test_all_commands_on_spark_name_its_master_in_the_same_words() -> None:
    masters = {
        parser._option_string_actions["--master"].help
        for parser in leaves().values()
        if "--master" in parser._option_string_actions
    }
    assert len(masters) == 1


def test_help_loads_none_of_the_extras() -> None:
    program = (
        "import sys\n"
        "from antiphon import cli\n"
        "try: cli.main([*sys.argv[1:], '--help'])\n"
        "finally: print(*(n for n in ('pyspark', 'pyarrow', 'pandas') if n in sys.modules))\n"
    )
    for command in ("audit", "archive", "trace to-parquet", "experiment groups", "bench spark"):
        done = subprocess.run(
            [sys.executable, "-c", program, *command.split()], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "", command


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "required: COMMAND"),
        ("nonsense", "invalid choice"),
        ("cluster", "required: COMMAND"),
        ("cluster up", "required: N"),
        ("cluster up 0", "not a number above 0"),
        (f"cluster add {URL} 4", "not NODE=HOST:PORT"),
        (f"cluster transfer {URL} 1 2", "unrecognized arguments: 2"),
        ("cluster status -", "needs ANTIPHON_URL"),
        ("sim --seeds many", "not a number above 0"),
        ("sim --seeds 3 --seed 4", "not allowed with"),
        ("sim --seed 3 --first-seed 4", "--first-seed: not allowed with argument --seed"),
        ("chaos --peers 3 --servers 5", "--servers: not allowed with argument --peers"),
        ("chaos --peers 3 --contexts local", "--contexts: not allowed with argument --peers"),
        ("sim --audit", "--audit needs --trace"),
        ("bench channels --processes 2", "invalid choice: 2"),
        ("bench peers --sizes 100 0", "not a number above 0"),
        ("bench throughput --architecture queues", "invalid choice: 'queues'"),
        ("bench throughput --architecture peers --servers 3", "--servers is about servers"),
        ("bench latency --architecture peers --contexts local", "--contexts is about servers"),
        ("bench latency --architecture peers --storage durable", "not --storage durable"),
        ("bench latency --policy loose", "'loose' is not a packing policy"),
        ("serve --listen 7470", "not HOST:PORT"),
        ("serve --listen localhost:99999", "not HOST:PORT"),
        ("serve --node 1", "--node and --cluster go together"),
        ("serve --node 3 --cluster 1=a:1,2=b:2", "lists no node 3"),
        ("serve --node 1 --cluster 1=a:1,1=b:2", "lists a node twice"),
        ("serve --storage tape", "invalid choice"),
        ("serve --contexts global", "invalid choice"),
        ("serve --contexts local --storage memory", "needs storage = durable"),
        ("serve --metrics 9470", "not HOST:PORT"),
        ("serve --config missing.toml", "missing.toml cannot be read"),
        ("journal inspect", "required: DIR"),
        (f"pub {URL} Alarms Fire!", "'Alarms' is not a destination: write it as topic:NAME"),
        (f"pub {URL} topic:Alarms", "required: BODY"),
        (f"pub {URL} topic:Alarms Fire! -p floor", "'floor' is not NAME=VALUE"),
        ("pub - topic:Alarms Fire!", "needs ANTIPHON_URL"),
        (f"sub {URL} topic:", "a name has 1 to"),
        (f"sub {URL} queue:q --count 0", "not a number above 0"),
        (f"sub {URL} queue:q --timeout soon", "'soon' is not a number of seconds"),
        (f"sub {URL} queue:q --timeout nan", "'nan' is not a number of seconds"),
        (f"sub {URL} topic:t --durable mail", "--durable needs --client-id"),
        (f"sub {URL} queue:q --durable mail --client-id me", "--durable is for topics"),
        (f"sub {URL} queue:q --shared both", "--shared is for topics"),
        (f"sub {URL} topic:t --shared s --durable d --client-id me", "not both"),
        (f"sub {URL} topic:t --browse", "--browse is for queues"),
        (f"pub {URL} queue:q x --priority 10", "'10' is not a priority"),
        (f"pub {URL} queue:q x --ttl -5", "'-5' is not a number of seconds"),
        (f"pub {URL} queue:q x --delay 1e300", "'1e300' is not a number of seconds"),
        (f"pub {URL} queue:q \udcff", "is not UTF-8"),
        (f"sub {URL} queue:q --client-id \udcff", "is not UTF-8"),
        (f"sub {URL} queue:q --timeout -5", "'-5' is not a number of seconds"),
        (f"cluster remove {URL} -4", "'-4' is not a number above 0"),
        (f"cluster transfer {URL} 99999999999999999999", "is not a number above 0"),
        ("chaos --seconds -5", "'-5' is not a number of seconds"),
        ("bench throughput --seconds nan", "'nan' is not a number above 0"),
        ("bench latency --seconds -5", "'-5' is not a number above 0"),
        ("bench connections --seconds inf", "'inf' is not a number above 0"),
        ("bench selectors --seconds 0", "'0' is not a number above 0"),
        ("bench peers --seconds -1", "'-1' is not a number above 0"),
        ("bench soak --minutes -1", "'-1' is not a number above 0"),
        ("cluster up 1000000", "'1000000' are too many servers for one machine"),
        ("serve --listen [::1", "not HOST:PORT"),
        ("cluster up 3 --data=", "an empty path names nothing"),
        ("serve --data=", "an empty path names nothing"),
        ("serve --trace=", "an empty path names nothing"),
        ("chaos --seconds 1 --trace=", "an empty path names nothing"),
        ("bench growth --out=", "an empty path names nothing"),
        ("experiment groups --out=", "an empty path names nothing"),
    ],
)
def test_wrong_usage_exits_2_and_says_why(
    line: str,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTIPHON_URL", raising=False)
    with pytest.raises(SystemExit) as exit_:
        commands.main(line.split())
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("serve --data FILE", "FILE' cannot be used: it is not a folder"),
        ("serve --data FILE/below", "FILE/below' cannot be used: Not a directory"),
        ("serve --listen TAKEN --storage memory", "cannot listen at TAKEN: Address already in use"),
        ("serve --listen 192.0.2.1:7470 --storage memory", "cannot listen at 192.0.2.1:7470: "),
        ("serve --config FOLDER", "FOLDER cannot be read: Is a directory"),
        ("serve --storage memory --listen 127.0.0.1:0 --trace FILE", "no trace can be written to"),
        ("bench growth members --quick --out FILE", "FILE: File exists"),
        ("bench growth members --quick --out FILE/below", "FILE/below: Not a directory"),
        ("cluster up 1 --data FILE", "FILE: File exists"),
        ("sim --seeds 1 --processes 1 --trace FILE", "FILE: File exists"),
        ("pub nowhere queue:q x", "ConfigurationError: 'nowhere' is not an address of a server"),
        ("sub antiphon://a queue:q", "'a' is not HOST:PORT"),
        ("group antiphon:// g", "'' is not HOST:PORT"),
        ("cluster status embedded:", "is not an address of a server"),
    ],
)
def test_what_cannot_be_used_exits_2_with_one_sentence(
    tmp_path: Path, line: str, sentence: str
) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = {"FILE": str(tmp_path / "file"), "FOLDER": str(tmp_path), "TAKEN": address}
        for word, meant in words.items():
            line, sentence = line.replace(word, meant), sentence.replace(word, meant)
        done = subprocess.run(
            [*COMMAND, *line.split()], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "implementation"),
    [
        ("sim", "antiphon.cli.sim.run"),
        ("journal inspect data", "antiphon.cli.journal.run"),
        ("demo", "antiphon.lab.demo.command.run"),
        ("chaos --seconds 1", "antiphon.lab.chaos.run.run"),
        ("serve", "antiphon.cli.serve.run"),
        ("cluster up 3", "antiphon.cli.cluster.up"),
        (f"cluster status {URL}", "antiphon.cli.cluster.status"),
        (f"cluster remove {URL} 3", "antiphon.cli.cluster.change"),
        (f"pub {URL} topic:Alarms Fire!", "antiphon.cli.pubsub.publish"),
        (f"sub {URL} queue:q", "antiphon.cli.pubsub.subscribe"),
        (f"group {URL} accounts", "antiphon.cli.group.run"),
        ("bench throughput", "antiphon.lab.bench.compare.throughput"),
        ("bench latency", "antiphon.lab.bench.compare.latency"),
        ("bench channels --sizes 100", "antiphon.lab.bench.channels.run.run"),
        ("bench peers --sizes 100 1000", "antiphon.lab.bench.rivals.run.run"),
        ("bench packing --quick", "antiphon.lab.experiments.packing.bench.run"),
        ("experiment groups", "antiphon.lab.experiments.groups.run"),
        ("experiment architectures", "antiphon.lab.experiments.architectures.run"),
        ("experiment packing", "antiphon.lab.experiments.packing.run.run"),
        ("trace show x.trace", "antiphon.cli.trace.run"),
        ("trace to-parquet traces out.parquet", "antiphon.spark.traces.table.run"),
        ("audit traces", "antiphon.spark.audit.report.run"),
    ],
)
def test_each_command_has_its_implementation(
    line: str, implementation: str, called: list[tuple[str, argparse.Namespace]]
) -> None:
    assert commands.main(line.split()) == 0
    assert [name for name, _ in called] == [implementation]


@pytest.mark.parametrize("line", ["sim", "chaos", "bench throughput", "bench latency"])
def test_what_writes_traces_can_end_with_their_audit(
    line: str, called: list[tuple[str, argparse.Namespace]]
) -> None:
    assert commands.main([*line.split(), "--trace", "traces", "--audit"]) == 0
    assert [name for name, _ in called][1:] == ["antiphon.spark.audit.report.at_the_end"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("experiment groups", "antiphon experiment"),
        ("experiment architectures", "antiphon experiment"),
        ("experiment packing", "antiphon experiment"),
        ("bench spark", "antiphon bench spark"),
        ("archive data out", "antiphon archive"),
        ("audit traces", "antiphon audit"),
        ("trace to-parquet traces out.parquet", "antiphon trace to-parquet"),
        ("sim --trace traces --audit", "--audit"),
        ("bench latency --trace traces --audit", "--audit"),
    ],
)
def test_without_spark_a_command_that_needs_it_says_so_before_it_does_anything(
    line: str,
    what: str,
    called: list[tuple[str, argparse.Namespace]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert commands.main(line.split()) == 1
    assert f"{what} needs Spark: pip install 'antiphon[spark]'" in capsys.readouterr().err
    assert not called


@pytest.mark.parametrize(
    ("options", "listen"),
    [
        ("", ("127.0.0.1", 7470)),
        ("--listen [::1]:0", ("::1", 0)),
        ("--node 2 --cluster 1=a:1,2=b:2", ("b", 2)),
        ("--node 2 --cluster 1=a:1,2=b:2 --listen 0.0.0.0:2", ("0.0.0.0", 2)),
    ],
)
def test_where_a_server_listens(
    options: str, listen: tuple[str, int], called: list[tuple[str, argparse.Namespace]]
) -> None:
    commands.main(["serve", *options.split()])
    assert called[0][1].listen == listen


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("floor=4", 4),
        ("floor=-4.5", -4.5),
        ("floor=1e3", 1000.0),
        ("floor=true", True),
        ("floor=True", "True"),
        ('floor="4"', "4"),
        ("floor=four", "four"),
        ("floor=", ""),
        ("floor=a=b", "a=b"),
        ("floor=null", "null"),
        ("floor=[1]", "[1]"),
    ],
)
def test_what_a_property_on_the_command_line_means(
    text: str, value: object, called: list[tuple[str, argparse.Namespace]]
) -> None:
    commands.main(["pub", URL, "topic:Alarms", "Fire!", "-p", text, "-p", "type=old"])
    assert called[0][1].properties == [("floor", value), ("type", "old")]
    assert type(called[0][1].properties[0][1]) is type(value)


def test_how_many_servers_fit_one_machine() -> None:
    assert arguments.servers("25") == 25
    with pytest.raises(argparse.ArgumentTypeError, match="too many servers for one machine"):
        arguments.servers("26")


def test_an_empty_path_is_not_the_current_folder() -> None:
    assert arguments.path(".") == "."
    with pytest.raises(argparse.ArgumentTypeError, match="an empty path names nothing"):
        arguments.path("")


def test_an_option_counts_more_than_the_file(
    tmp_path: Path, called: list[tuple[str, argparse.Namespace]]
) -> None:
    file = tmp_path / "server.toml"
    file.write_text('data = "here"\nstorage = "memory"\n')
    commands.main(["serve", "--config", str(file), "--data", "there"])
    options = called[0][1]
    assert (options.data, options.storage) == ("there", "memory")


def test_the_nodes_of_a_change(called: list[tuple[str, argparse.Namespace]]) -> None:
    commands.main(["cluster", "add", URL, "4=a:1", "5=b:2"])
    commands.main(["cluster", "transfer", URL, "2"])
    (_, add), (_, transfer) = called
    assert (add.change, add.url, add.nodes) == ("add", URL, [(4, ("a", 1)), (5, ("b", 2))])
    assert (transfer.change, transfer.nodes) == ("transfer", [2])


def test_a_dash_takes_the_url_from_the_environment(
    called: list[tuple[str, argparse.Namespace]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_URL", URL)
    commands.main(["cluster", "status", "-"])
    assert called[0][1].url == URL


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        commands.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"antiphon {antiphon.__version__}\n"


def test_trace_show_prints_a_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["trace", "show", str(FIXTURES / "trace-v1.trace")]) == 0
    _, view, _ = capsys.readouterr().out.splitlines()
    assert view == (
        "8812 replica-1/2      2 view        position=7 group='accounts' view_id=3"
        " members=('replica-1', 'Zoë') at=1.5"
    )


def test_trace_show_prints_an_object_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["trace", "show", str(FIXTURES / "trace-v1.trace"), "--json"]) == 0
    _, view, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert view == {
        "run": "8812",
        "process": "replica-1",
        "incarnation": 2,
        "seq": 2,
        "kind": "view",
        "position": 7,
        "group": "accounts",
        "view_id": 3,
        "members": ["replica-1", "Zoë"],
        "at": 1.5,
    }


def test_trace_show_tells_of_a_torn_tail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn.trace"
    torn.write_bytes((FIXTURES / "trace-v1.trace").read_bytes()[:-1])
    assert commands.main(["trace", "show", str(torn)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "torn tail" in err


def test_trace_show_fails_on_what_is_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.trace"
    other.write_bytes(b"something else altogether")
    assert commands.main(["trace", "show", str(other)]) == 1
    assert "FormatError: not a trace file" in capsys.readouterr().err
    assert commands.main(["trace", "show", str(tmp_path / "missing.trace")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = "import sys; from antiphon import cli; sys.exit(cli.main())"
    shown = subprocess.Popen(
        [sys.executable, "-c", program, "trace", "show", str(FIXTURES / "trace-v1.trace")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert shown.stdout is not None
    shown.stdout.close()
    assert shown.communicate() == (b"", b"")
    assert shown.returncode == 1
