"""Every command, where names and texts from outside would be markup, or would drive a terminal.

A command without a case here fails: what of others' text it shows is to be tried, or that it shows
nothing but its own arguments is to be said (`OWN_ARGUMENTS`).
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import antiphon
import antiphon.peers
from antiphon.cli import commands
from antiphon.formats.frames import frame
from antiphon.formats.peer_wire import Answer, encode_word
from antiphon.formats.trace import TraceEvent, encode_event, encode_header
from antiphon.peers.stack.stacks import TOTAL_UNIFORM
from antiphon.server.local_cluster import COMMAND, LocalCluster
from antiphon.terminal.lines import _HARMFUL, harmless
from tests import quick_java

pytestmark = pytest.mark.process

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = ("x[/y]", "[red]", ":warning:", "[link=http://a]b[/link]", "l" * 200)
"""Legal for groups, queues and members."""

TEXT = "[/y] [red]:warning:\x1b[31m\x9b2J\x07\u202e\u2028\nforged: line"
"""For what has no rules: bodies, properties, ids, what is in a trace."""

FOLDER = "[red]:warning:\x1b[31m\u202e\nforged"
OWN_ARGUMENTS = "shows nothing but its own arguments and figures"
PAINT = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "250"}  # as on a terminal


class World(NamedTuple):
    url: str
    folder: Path  # with a name like that


def leaves(parser: argparse.ArgumentParser) -> Iterator[str]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield parser.prog.removeprefix("antiphon ")
    for action in below:
        for choice in action.choices.values():
            yield from leaves(choice)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hostile") / FOLDER
    folder.mkdir()
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(1, folder, "memory"))
        cluster.start()
        ctx = stack.enter_context(antiphon.connect(cluster.url, client_id=TEXT))
        for name in NAMES:
            stack.enter_context(ctx.join(ctx.create_group(name), name=name))
        yield World(cluster.url, folder)


def run(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, env = [*COMMAND, *arguments], {**os.environ, **quick_java.ENVIRONMENT}
    done = subprocess.run(
        command, cwd=world.folder, env=env, capture_output=True, text=True, timeout=150
    )
    check(done.stdout + done.stderr)
    return done


def check(shown: str, *names: str) -> None:
    assert not _HARMFUL.search(shown.replace("\n", "")), shown
    assert not any(line.startswith("forged") for line in shown.splitlines()), shown
    assert "Traceback" not in shown
    for name in names:
        assert harmless(name) in shown, (name, shown)


def until_interrupted(
    world: World, *arguments: str, until: str, env: dict[str, str] | None = None
) -> str:
    """What it shows up to a line that contains `until`, and then until it ends."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=world.folder, env=env, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        shown = ""
        try:
            for line in process.stdout:
                shown += line
                if until in line:
                    break
            process.send_signal(signal.SIGINT)
            return shown + process.stdout.read()
        finally:
            process.kill()


# -- Commands --------------------------------------------------------------------------------------


def serve(world: World) -> None:
    path = world.folder / "server.toml"
    path.write_text(f"{json.dumps(TEXT)} = 1\n")
    done = run(world, "serve", "--config", str(path))
    assert done.returncode == 2
    assert "[/y] [red]:warning:" in done.stderr


def cluster_up(world: World) -> None:
    data = world.folder / "up"
    arguments = ("cluster", "up", "1", "--data", str(data), "--storage", "memory")
    check(until_interrupted(world, *arguments, until="antiphon://"), str(data))


def cluster_status(world: World) -> None:
    done = run(world, "cluster", "status", world.url)
    check(done.stdout, *NAMES[:-1], "l" * 20)
    found = json.loads(run(world, "cluster", "status", world.url, "--json").stdout)
    assert sorted(group["name"] for group in found["groups"]) == sorted(NAMES)


def cluster_change(command: str, node: str) -> Callable[[World], None]:
    def case(world: World) -> None:
        assert run(world, "cluster", command, f"antiphon://{TEXT}:1", node).returncode != 0

    return case


def pub(world: World) -> None:
    for name in NAMES:
        text = run(world, "pub", world.url, f"topic:{name}", TEXT, "-p", f"p={TEXT}")
        check(text.stdout, name)
        object_ = run(world, "pub", world.url, f"topic:{name}", TEXT, "--json")
        assert json.loads(object_.stdout)["destination"] == f"topic:{name}"


def sub(world: World) -> None:
    queue = f"queue:{NAMES[0]}"
    arguments = ("sub", world.url, queue, "--count", "1", "--timeout", "20")
    for _ in range(2):
        run(world, "pub", world.url, queue, TEXT, "-p", f"p={TEXT}")
    text = run(world, *arguments).stdout
    check(text, TEXT)
    assert len(text.splitlines()) == 1
    found = json.loads(run(world, *arguments, "--json").stdout)
    assert (found["body"], found["properties"]) == (TEXT, {"p": TEXT})


def group(world: World) -> None:
    for name in NAMES:
        check(until_interrupted(world, "group", world.url, name, until="view 1"), name)
    live = until_interrupted(world, "group", world.url, NAMES[0], until="view 1", env=PAINT)
    assert live.count(NAMES[0]) >= 2  # in the title, and as a member
    found = until_interrupted(world, "group", world.url, NAMES[0], "--json", until="view_id")
    assert json.loads(found.splitlines()[0])["name"] == NAMES[0]
    check(run(world, "group", world.url, TEXT).stderr, "[red]:warning:")


def peers_command(command: str) -> Callable[[World], None]:
    """Members with names that are allowed; and what answers at an address may be anything."""

    def case(world: World) -> None:
        cluster = f"{command}{os.getpid()}"
        with ExitStack() as stack:
            for name in NAMES[:-1]:
                channel = stack.enter_context(antiphon.peers.Channel(TOTAL_UNIFORM, name=name))
                channel.connect(cluster)
            done = run(world, "peers", command, f"peer:{cluster}")
        if command == "status":
            check(done.stdout, *NAMES[:-1])
        else:
            assert done.returncode == 1
        with socket.create_server(("127.0.0.1", 0)) as forger:
            thread = threading.Thread(target=forge, args=(forger,))
            thread.start()
            address = f"127.0.0.1:{forger.getsockname()[1]}"
            done = run(world, "peers", command, f"peer://{address}/c")
            thread.join()
        assert done.returncode == 1
        check(done.stdout + done.stderr, "[/y] [red]:warning:")

    return case


def forge(forger: socket.socket) -> None:
    with forger.accept()[0] as sock:
        sock.recv(1000)
        sock.sendall(frame(encode_word(Answer(False, TEXT))))


def doctor(world: World) -> None:
    check(run(world, "doctor", "--data", str(world.folder)).stdout, "[red]:warning:")
    check(run(world, "doctor", "--data", str(world.folder / "none")).stdout, "[red]:warning:")
    found = json.loads(run(world, "doctor", "--data", str(world.folder), "--json").stdout)
    assert any(str(world.folder) in finding["what"] for finding in found["findings"])


def journal_inspect(world: World) -> None:
    data = world.folder / "journal"
    shutil.copytree(FIXTURES / "journal-v1", data, dirs_exist_ok=True)
    (data / f"damaged-{FOLDER}").touch()
    check(run(world, "journal", "inspect", str(data)).stdout, f"damaged-{FOLDER}")
    found = json.loads(run(world, "journal", "inspect", str(data), "--json").stdout)
    assert found["set_aside"] == [f"damaged-{FOLDER}"]
    check(run(world, "journal", "inspect", str(world.folder / "none")).stderr, FOLDER)


def trace(world: World) -> Path:
    path = world.folder.parent / "traces" / f"{FOLDER}-1.trace"
    path.parent.mkdir(exist_ok=True)
    columns: dict[str, Any] = {"run": TEXT, "process": TEXT, "incarnation": 1, "sender": TEXT}
    columns |= {"group": TEXT, "message": TEXT, "view_id": 1, "members": (TEXT,)}
    kinds = ("join", "view", "deliver", "deliver")  # the same twice
    events = [
        TraceEvent(seq=n, position=n, kind=kind, **columns) for n, kind in enumerate(kinds, 1)
    ]
    path.write_bytes(encode_header() + b"".join(map(encode_event, events)))
    return path


def trace_show(world: World) -> None:
    shown = run(world, "trace", "show", str(trace(world))).stdout
    check(shown, "[/y] [red]:warning:")
    assert len(shown.splitlines()) == 4
    check(run(world, "trace", "show", str(world.folder / "none")).stderr, FOLDER)


def trace_check(world: World) -> None:
    done = run(world, "trace", "check", str(trace(world).parent))
    assert done.returncode == 1
    check(done.stdout, "VIOLATION of P3", TEXT)
    assert run(world, "trace", "check", str(world.folder)).returncode == 2


def trace_to_parquet(world: World) -> None:
    out = world.folder / "out.parquet"
    done = run(world, "trace", "to-parquet", str(trace(world).parent), str(out))
    check(done.stdout, str(out))


def audit(world: World) -> None:
    done = run(world, "audit", str(trace(world).parent), "--master", "local[1]")
    assert done.returncode == 1
    check(done.stdout, "VIOLATION", TEXT)


def archive(world: World) -> None:
    done = run(world, "archive", str(world.folder / "none"), str(world.folder / "archive"))
    assert done.returncode != 0
    check(done.stderr, FOLDER)


def chaos(world: World) -> None:
    done = run(world, "chaos", "--trace", str(world.folder))
    assert done.returncode == 1
    check(done.stderr, "is not empty")


CASES: dict[str, Callable[[World], None] | str] = {
    "serve": serve,
    "cluster up": cluster_up,
    "cluster status": cluster_status,
    "cluster add": cluster_change("add", "4=a:1"),
    "cluster remove": cluster_change("remove", "4"),
    "cluster transfer": cluster_change("transfer", "4"),
    "pub": pub,
    "sub": sub,
    "group": group,
    "doctor": doctor,
    "peers status": peers_command("status"),
    "peers reform": peers_command("reform"),
    "chaos": chaos,
    "journal inspect": journal_inspect,
    "trace show": trace_show,
    "trace check": trace_check,
    "trace to-parquet": trace_to_parquet,
    "archive": archive,
    "audit": audit,
    "demo": OWN_ARGUMENTS,
    "sim": OWN_ARGUMENTS,
    "experiment groups": OWN_ARGUMENTS,
    "experiment architectures": OWN_ARGUMENTS,
    "experiment packing": OWN_ARGUMENTS,
    **dict.fromkeys(
        (
            *("bench throughput", "bench latency", "bench connections", "bench selectors"),
            *("bench failover", "bench soak", "bench start", "bench growth", "bench packing"),
            *("bench large", "bench spark", "bench peers", "bench channels"),
        ),
        OWN_ARGUMENTS,
    ),
}
COMMANDS = tuple(leaves(commands._build_parser()))
ON_SPARK = ("audit", "archive", "trace to-parquet")


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=[pytest.mark.spark, pytest.mark.timeout(180)])
        if name in ON_SPARK
        else name
        for name, case in CASES.items()
        if not isinstance(case, str)
    ],
)
def test_what_others_have_named(command: str, world: World) -> None:
    case = CASES[command]
    assert not isinstance(case, str)
    case(world)


def test_every_command_has_a_case() -> None:
    assert sorted(COMMANDS) == sorted(CASES)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_complained_about(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = commands._build_parser()
    with pytest.raises(SystemExit) as exit_:
        parser.parse_args([*command.split(), f"--{TEXT}", TEXT, TEXT, TEXT, TEXT])
    assert exit_.value.code == 2
    shown = capsys.readouterr().err
    check(shown)
    assert shown.splitlines()[-1].startswith("antiphon"), shown  # one line, the last one
