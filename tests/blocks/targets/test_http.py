"""The hotel of `examples/trip`, and the client that calls it: what is known after whatever happens,
and that a booking takes effect once or never."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from antiphon.blocks.errors import RefusedError
from antiphon.blocks.targets.http import HttpTarget
from antiphon.errors import ConnectionLostError, FormatError, JMSError, OutcomeUnknownError
from tests.blocks.support.trip import FOLDER

pytestmark = pytest.mark.process

PROGRAM = [sys.executable, "-X", "dev", "-W", "error", FOLDER / "hotel.py"]
ROOMS = 3
ANNA = {"guest": "Anna"}
BEN = {"guest": "Ben"}


class Hotel:
    """The service, as a process that can be killed and comes back with its file, elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.start()

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, self._folder / "bookings", "--rooms", str(ROOMS)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.target = HttpTarget(self.url, timeout=20)

    def kill(self) -> None:
        with self.process:
            self.process.kill()

    def kill_and_restart(self) -> None:
        self.kill()
        self.start()

    def book(self, name: str, fields: dict[str, str]) -> dict[str, Any]:
        return self.target.call(name, "/book", fields)

    def booked(self) -> dict[str, int]:
        """The rooms."""
        return {row["id"]: row["room"] for row in self.target.get("/bookings")["bookings"]}

    def log(self) -> str:
        return (self._folder / "log").read_text()


@pytest.fixture
def hotel(tmp_path: Path) -> Iterator[Hotel]:
    hotel = Hotel(tmp_path)
    yield hotel
    hotel.kill()
    assert "Traceback" not in hotel.log()


def test_a_booking_is_made_once_however_often_it_is_called_for(hotel: Hotel) -> None:
    answer = hotel.book("a", ANNA)
    assert answer == {"id": "a", "guest": "Anna", "room": 1}
    assert hotel.book("a", ANNA) == answer
    hotel.kill_and_restart()
    assert hotel.book("a", ANNA) == answer
    assert hotel.target.get("/bookings") == {"bookings": [answer], "free": ROOMS - 1}


def test_a_booking_is_undone_and_stays_so(hotel: Hotel) -> None:
    hotel.book("a", ANNA)
    for _ in range(2):
        hotel.target.compensate("a")
        assert hotel.booked() == {}
        hotel.kill_and_restart()
        with pytest.raises(RefusedError, match="'a' was compensated before it came"):
            hotel.book("a", ANNA)
    assert hotel.book("b", BEN)["room"] == 1


def test_a_booking_that_was_compensated_before_it_comes_is_refused(hotel: Hotel) -> None:
    hotel.target.compensate("a")
    hotel.kill_and_restart()
    with pytest.raises(RefusedError, match="answers 409: booking 'a' was compensated") as caught:
        hotel.book("a", ANNA)
    assert caught.value.happened == "no"
    assert hotel.booked() == {}


def test_who_was_refused_stays_so_though_a_room_is_free_again(hotel: Hotel) -> None:
    for number in range(ROOMS):
        hotel.book(f"{number}", ANNA)
    with pytest.raises(RefusedError, match="no room is free"):
        hotel.book("b", BEN)
    hotel.target.compensate("1")
    with pytest.raises(RefusedError, match="no room is free"):
        hotel.book("b", BEN)
    assert hotel.book("c", BEN)["room"] == 2


def test_an_id_is_for_one_guest(hotel: Hotel) -> None:
    hotel.book("a", ANNA)
    with pytest.raises(RefusedError, match="'a' is for another guest"):
        hotel.book("a", BEN)
    assert hotel.booked() == {"a": 1}


def test_a_booking_that_is_late_does_not_survive_its_compensation(hotel: Hotel) -> None:
    """The service is so slow that the caller gives up, and compensates: both wait there."""
    hotel.process.send_signal(signal.SIGSTOP)
    with pytest.raises(OutcomeUnknownError, match="has not answered"):
        HttpTarget(hotel.url, timeout=0.2).call("a", "/book", ANNA)
    with ThreadPoolExecutor(1) as pool:
        compensating = pool.submit(hotel.target.compensate, "a")
        hotel.process.send_signal(signal.SIGCONT)
        compensating.result(20)
    assert hotel.booked() == {}
    with pytest.raises(RefusedError):
        hotel.book("a", ANNA)


def test_calls_at_once_leave_one_outcome(hotel: Hotel) -> None:
    def outcome(call: Callable[[], object]) -> str:
        start.wait(20)
        try:
            call()
        except JMSError as error:
            return type(error).__name__
        return ""

    calls = [lambda: hotel.book("a", ANNA), lambda: hotel.target.compensate("a")] * 3
    calls += [lambda: hotel.book("b", BEN)] * 2
    start = threading.Barrier(len(calls))
    with ThreadPoolExecutor(len(calls)) as pool:
        outcomes = list(pool.map(outcome, calls))
    assert set(outcomes) <= {"", "RefusedError"}
    assert outcomes[1:6:2] + outcomes[6:] == [""] * 5
    assert hotel.booked().keys() == {"b"}


def asked(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, names)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("POST", "/book", b"", 400, "not JSON"),
        ("POST", "/book", b"{", 400, "not JSON"),
        ("POST", "/book", b"\xff\xff", 400, "not JSON"),
        ("POST", "/book", b"[" * 60_000, 400, "not JSON"),
        ("POST", "/book", b"[]", 400, "not a JSON object"),
        ("POST", "/book", b"{}", 400, "'id' has to be"),
        ("POST", "/book", b'{"id": "a"}', 400, "'guest' has to be"),
        ("POST", "/book", b'{"id": 1, "guest": "Anna"}', 400, "'id' has to be"),
        ("POST", "/book", b'{"id": "", "guest": "Anna"}', 400, "'id' has to be"),
        ("POST", "/book", b'{"id": "\\ud800", "guest": "Anna"}', 400, "'id' has to be"),
        ("POST", "/book", b'{"id": "\\u0000", "guest": "Anna"}', 400, "'id' has to be"),
        ("POST", "/book", b'{"id": "%s", "guest": "Anna"}' % (b"x" * 201), 400, "'id' has to be"),
        ("POST", "/compensate", b'{"ID": "a"}', 400, "'id' has to be"),
        ("POST", "/bookings", b"{}", 405, "/bookings does not know POST"),
        ("GET", "/book", b"", 405, "/book does not know GET"),
        ("DELETE", "/book", b"{}", 405, "/book does not know DELETE"),
        ("BREW", "/book", b"{}", 405, "BREW"),
        ("POST", "/", b"{}", 404, "there are /book"),
        ("GET", "/bookings/../book", b"", 404, "there are /book"),
    ],
)
def test_a_bad_request_is_refused_with_a_sentence(
    shared: Hotel, method: str, path: str, body: bytes, status: int, sentence: str
) -> None:
    answered, answer = asked(shared.url, method, path, body)
    assert answered == status
    assert sentence in answer["error"]
    assert shared.booked() == {}


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Content_Length", "many", 400),
        ("Content_Length", "-1", 400),
        ("Content_Length", "65537", 413),
        ("Content_Length", "9" * 5000, 413),
        ("Transfer_Encoding", "chunked", 411),
    ],
)
def test_a_body_has_a_length_in_bounds(shared: Hotel, header: str, value: str, status: int) -> None:
    answered, answer = asked(shared.url, "POST", "/book", **{header: value})
    assert (answered, list(answer)) == (status, ["error"])


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /bookings HTTP/x\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /bookings HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b'POST /book HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"id": "a", "guest": "b"}',
        b"\x00\xff" * 100,
    ],
)
def test_what_is_no_request_does_no_harm(shared: Hotel, request_: bytes) -> None:
    host, port = shared.url.removeprefix("http://").split(":")
    answer = b""
    # Who does not read to the end breaks the connection.
    with socket.create_connection((host, int(port)), 20) as connection, suppress(ConnectionError):
        connection.sendall(request_)
        connection.shutdown(socket.SHUT_WR)
        while chunk := connection.recv(65536):
            answer += chunk
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert shared.booked() == {}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hotel]:
    """For tests in which nothing is booked."""
    hotel = Hotel(tmp_path_factory.mktemp("hotel"))
    yield hotel
    hotel.kill()
    assert "Traceback" not in hotel.log()


@contextmanager
def answering(answer: bytes) -> Iterator[HttpTarget]:
    """A service that reads one request, says this, and hangs up."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            request = b""
            while not request.endswith(b"}"):  # what is left unread would break the connection
                request += connection.recv(65536)
            with suppress(ConnectionError):
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield HttpTarget(f"http://127.0.0.1:{listener.getsockname()[1]}/v1/", timeout=20)
        finally:
            server.join()


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (b"", ConnectionLostError, "lost the connection"),
        (b"HTTP/1.1 2", ConnectionLostError, "lost the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", ConnectionLostError, "Incomplete"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 20) + b"{}", FormatError, "answers 200"),
        (b"HTTP/1.1 200 OK\r\n\r\nwell", FormatError, "answers 200: b'well'"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", FormatError, "answers 200"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", OutcomeUnknownError, "answers 302"),
        (b'HTTP/1.1 500 Oh\r\n\r\n{"error": "my disk"}', OutcomeUnknownError, "500: my disk"),
    ],
)
def test_what_is_no_clear_answer_leaves_the_outcome_unknown(
    answer: bytes, error: type[JMSError], sentence: str
) -> None:
    with answering(answer) as target, pytest.raises(error, match=sentence) as caught:
        target.call("a", "/book", ANNA)
    assert caught.value.happened == "unknown"


def test_a_refusal_need_not_be_json() -> None:
    with (
        answering(b"HTTP/1.1 403 Forbidden\r\n\r\n<html>") as target,
        pytest.raises(RefusedError, match="answers 403: b'<html>'"),
    ):
        target.call("a", "/book", ANNA)


def test_who_is_not_there_has_done_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionLostError, match="no connection") as caught:
        HttpTarget(f"http://127.0.0.1:{port}").call("a", "/book", ANNA)
    assert caught.value.happened == "no"


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://localhost", "http://"])
def test_an_address_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="is not an address of a service"):
        HttpTarget(url)


def test_an_id_is_checked_before_anything_is_sent() -> None:
    target = HttpTarget("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="the id of a request"):
        target.call("", "/book", ANNA)
    with pytest.raises(ValueError, match="the id of a request"):
        target.compensate("two\nlines")
