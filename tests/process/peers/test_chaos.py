"""`antiphon chaos --peers`, and the network that goes wrong in it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon import cli
from antiphon.formats import peer_wire
from antiphon.formats.frames import frame
from antiphon.formats.peer_wire import PeerHello
from antiphon.io.transport import format_address
from antiphon.lab.chaos.channels.links import Network, Pair
from antiphon.lab.chaos.channels.program import Note
from antiphon.lab.chaos.channels.run import judge_programs, judged, read_traces
from antiphon.model.peer_views import MemberId, PeerView, ViewId

pytestmark = pytest.mark.process

THERE, BACK = Pair("a", "b"), Pair("b", "a")
WAIT_S = 20


@pytest.mark.timeout(150)
@pytest.mark.parametrize("peers", ["3", pytest.param("5", marks=pytest.mark.in_turn)])
def test_promises_are_kept_whatever_breaks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, peers: str
) -> None:
    folder = tmp_path / "traces"
    arguments = ["chaos", "--peers", peers, "--seconds", "12", "--seed", "2"]
    arguments += ["--trace", str(folder)]
    code = cli.main([*arguments, "--json"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["violations"] == []
    assert code == 0
    assert len(report["faults"]) >= 4, report["faults"]
    assert report["lives"] > 3
    assert min(report["sent"], report["delivered"]) > 300
    # The judge has really seen it: without one message it is not content any more.
    events = read_traces(folder)
    agreed = [event for event in events if event.kind == "deliver" and event.level == 3]
    lost = next(
        one
        for one, later in pairwise(agreed)
        if (one.life, one.view) == (later.life, later.view) and one.sender != one.life
    )
    found = judged([event for event in events if event != lost], complete=False)
    assert any(each.startswith("total: ") for each in found), found[:5]
    # And a folder with an old run in it is not used again.
    assert cli.main([*arguments]) == 1


def test_a_program_that_was_not_handed_what_its_trace_says_is_named() -> None:
    me = MemberId("a", 1)
    note = Note("1.a", PeerView(ViewId(2, me), (me,), me), 1, "", True)
    assert judge_programs([], [note]) == ["the program of a got 1 messages of 0"]


# -- The network -----------------------------------------------------------------------------------


def hello(name: str) -> PeerHello:
    member = MemberId(name, 1)
    return PeerHello(peer_wire.MAGIC, 1, 1, "c", 1, "stack", member, "127.0.0.1:1")


class Echo:
    """A process that shakes hands and says what it hears, until the other side has ended."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard = b""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with closing(connection), suppress(OSError):
                    self._serve(connection)
                self.ended.set()

    def _serve(self, connection: socket.socket) -> None:
        self.greeting = connection.recv(4096)
        connection.sendall(frame(peer_wire.encode_hello(hello("b"))))
        while data := connection.recv(4096):
            self.heard += data
            connection.sendall(data)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as process:
        yield process


@pytest.fixture
def network(echo: Echo) -> Iterator[Network]:
    with Network({"a": ("127.0.0.1", 1), "b": echo.listener.getsockname()}) as network:
        yield network


def dialled(network: Network) -> socket.socket:
    """Return a connection from a to b, which have shaken hands."""
    connection = socket.create_connection(network.gates["b"], WAIT_S)
    connection.sendall(frame(peer_wire.encode_hello(hello("a"))))
    told = frame(peer_wire.encode_hello(with_gate(network, "b")))
    assert connection.recv(len(told), socket.MSG_WAITALL) == told
    return connection


def with_gate(network: Network, name: str) -> PeerHello:
    return replace(hello(name), address=format_address(network.gates[name]))


def test_both_sides_learn_the_address_of_a_gate(network: Network, echo: Echo) -> None:
    with dialled(network) as connection:
        connection.sendall(b"one")
        assert connection.recv(100) == b"one"
    assert echo.greeting == frame(peer_wire.encode_hello(with_gate(network, "a")))


@pytest.mark.parametrize("pair", [THERE, BACK])
def test_a_way_stalls_by_itself(network: Network, echo: Echo, pair: Pair) -> None:
    with dialled(network) as connection:
        network.stall([pair])
        connection.sendall(b"meanwhile")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        assert echo.heard == (b"meanwhile" if pair == BACK else b"")
        connection.settimeout(WAIT_S)
        network.mend([pair])
        assert connection.recv(100) == b"meanwhile"


def test_between_two_that_are_cut_nothing_opens(network: Network) -> None:
    with dialled(network) as connection:
        network.cut(*THERE)
        assert has_ended(connection)
    with socket.create_connection(network.gates["b"], WAIT_S) as connection:
        connection.sendall(frame(peer_wire.encode_hello(hello("a"))))
        assert has_ended(connection)
    network.mend([THERE])
    dialled(network).close()


def test_a_late_reset_is_seen_by_one_side_first(network: Network, echo: Echo) -> None:
    """And what was under way arrives."""
    with dialled(network) as connection:
        network.stall([THERE])
        connection.sendall(b"late")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        connection.settimeout(WAIT_S)
        network.reset(*THERE, late_s=0.2)
        assert has_ended(connection)
        assert not echo.ended.is_set()
        network.mend([THERE])
        assert echo.ended.wait(WAIT_S)
    assert echo.heard == b"late"


def has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True
