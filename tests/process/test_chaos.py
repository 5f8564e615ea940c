"""`antiphon chaos`, and the parts of it that touch real things."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon import cli
from antiphon.formats.trace import TraceEvent, decode
from antiphon.lab.chaos.faulty_links import Link
from antiphon.lab.chaos.judge import COINS, Judge, judge_accounts, judge_group
from antiphon.lab.chaos.processes import Programs
from antiphon.lab.chaos.program import Spec
from antiphon.lab.chaos.recorder import Recorder

pytestmark = pytest.mark.process


def chaos(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = cli.main(["chaos", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def events(folder: Path) -> list[TraceEvent]:
    return [e for path in folder.glob("*.trace") for e in decode(path.read_bytes())[0]]


@pytest.mark.timeout(150)
def test_promises_are_kept_whatever_breaks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    arguments = ("--seconds", "15", "--seed", "59", "--trace", str(folder))
    code, report = chaos(capsys, *arguments)
    assert report["violations"] == []
    assert code == 0
    faults = report["faults"]
    assert isinstance(faults, dict)
    assert {"server-kill", "program-kill", "disk-full"} <= set(faults), faults
    assert any("no room" in log.read_text() for log in folder.glob("node-*.log"))
    assert int(str(report["acknowledged"])) > 500
    assert int(str(report["deliveries"])) > 1000
    # The judge has really seen it: without one message it is not content any more.
    told = events(folder)
    lost = next(e for e in told if e.kind == "deliver" and e.process == "mailbox")
    without = [e for e in told if (e.kind, e.message) != ("deliver", lost.message)]
    assert any(lost.message in violation for violation in Judge(without).violations)
    delivered = (e for e in told if (e.kind, e.process) == ("deliver", "member-4"))
    lost = min(delivered, key=lambda e: e.position)
    mine = ("deliver", "member-4", lost.message)  # it may have got it twice, killed in between
    without = [e for e in told if (e.kind, e.process, e.message) != mine]
    assert any(lost.message in violation for violation in judge_group(without))
    assert int(str(report["transfers"])) > 5
    lost = [complaint for complaint in judge_accounts(told, []) if "is lost" in complaint]
    assert len(lost) == COINS
    group = report["group"]
    assert isinstance(group, dict)
    assert min(group["view"], group["sent"], group["deliver"]) > 5, group
    # And a folder with an old run in it is not used again.
    assert cli.main(["chaos", *arguments]) == 1


@pytest.mark.timeout(150)
def test_promises_are_kept_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = chaos(capsys, "--seconds", "8", "--seed", "5", "--storage", "memory")
    assert (code, report["violations"]) == (0, [])


@pytest.mark.timeout(150)
def test_promises_are_kept_with_local_contexts(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = chaos(capsys, "--seconds", "8", "--seed", "5", "--contexts", "local")
    assert (code, report["violations"]) == (0, [])
    assert report["contexts"] == "local"


# -- Links -----------------------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_echo, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _echo(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                while data := connection.recv(1024):
                    connection.sendall(data)
            except OSError:
                pass


@pytest.fixture
def link(echo: tuple[str, int]) -> Iterator[Link]:
    link = Link(echo)
    yield link
    link.close()


def test_a_link_passes_on_what_it_gets(link: Link) -> None:
    with socket.create_connection(link.address, 20) as connection:
        connection.sendall(b"hello")
        assert connection.recv(1024) == b"hello"
        link.delay(0.01)
        connection.sendall(b"slowly")
        assert connection.recv(1024) == b"slowly"


def test_a_stalled_link_passes_nothing_until_it_is_mended(link: Link) -> None:
    with socket.create_connection(link.address, 20) as connection:
        connection.sendall(b"before")
        assert connection.recv(1024) == b"before"
        link.stall()
        connection.sendall(b"meanwhile")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1024)
        connection.settimeout(20)
        link.repair()
        assert connection.recv(1024) == b"meanwhile"


def test_a_cut_link_ends_connections_and_takes_none(link: Link) -> None:
    with socket.create_connection(link.address, 20) as connection:
        connection.sendall(b"before")
        assert connection.recv(1024) == b"before"
        link.cut()
        assert ended(connection)
    with socket.create_connection(link.address, 20) as connection:
        assert ended(connection)
    link.repair()
    with socket.create_connection(link.address, 20) as connection:
        connection.sendall(b"after")
        assert connection.recv(1024) == b"after"


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1024) == b""
    except ConnectionError:
        return True


def test_a_program_that_was_killed_before_it_began_is_at_work_when_its_next_life_is(
    tmp_path: Path,
) -> None:
    """Its contexts number their traces themselves: the next life has the number of the first."""
    spec = Spec("outsider", "p", "antiphon://127.0.0.1:1", str(tmp_path), "run", 1, ("topic:g",))
    with Programs([spec], tmp_path) as programs:
        programs.start("p")
        programs.kill("p")
        trace = Recorder(str(tmp_path), "run", "p", 1)
        trace.add("send")  # the last word of the first life
        programs.start("p")
        assert not programs.at_work("p")
        trace.add("send")
        assert programs.at_work("p")
