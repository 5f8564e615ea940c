"""The travel agency: trips are booked at both servers or at none, whichever process is killed."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import antiphon
from antiphon.blocks import ServiceClient
from antiphon.blocks.targets.http import HttpTarget
from antiphon.server.local_cluster import LocalCluster

FOLDER = Path(__file__).parents[3] / "examples" / "trip"
sys.path.insert(0, str(FOLDER))
import agency  # noqa: E402
from database import Database, open_flights  # noqa: E402

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]

SEATS = {"LX 318": 1000, "LX 340": 5}


def test_the_example_prints_what_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / "agency.py"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in (agency.__doc__ or "").splitlines() if line.startswith("   ")]
    assert done.stdout.splitlines() == lines[:5]


class Place(NamedTuple):
    url: str
    conninfo: str
    hotel: str


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        database = stack.enter_context(Database())
        open_flights(database.conninfo, SEATS)
        agency.PostgresTarget(database.conninfo).set_up()
        hotel = agency.open_hotel(stack, rooms=1000)
        cluster = stack.enter_context(LocalCluster(3, tmp_path, storage="memory"))
        cluster.start()
        yield Place(cluster.url, database.conninfo, hotel)


class Replicas:
    """Three processes; the one that was killed is started again, under another name."""

    def __init__(self, stack: ExitStack, place: Place) -> None:
        self._stack, self._place = stack, place
        self._started = 0
        self._running = [self._start() for _ in range(3)]

    def _start(self) -> subprocess.Popen[str]:
        self._started += 1
        process = self._stack.enter_context(
            subprocess.Popen(
                [
                    sys.executable,
                    FOLDER / "agency.py",
                    "replica",
                    *self._place,
                    f"r{self._started}",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        self._stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def kill_the_primary(self) -> None:
        """The one that has been there longest."""
        self._running.pop(0).kill()
        self._running.append(self._start())


def test_no_booking_is_lost_doubled_or_left_open_when_primaries_are_killed(place: Place) -> None:
    with ExitStack() as stack:
        ctx = stack.enter_context(antiphon.connect(place.url))
        replicas = Replicas(stack, place)
        client = stack.enter_context(ServiceClient(ctx, "agency"))
        booked: dict[str, Any] = {}
        over = threading.Event()

        def book() -> None:
            while not over.is_set():
                guest = f"guest {len(booked)}"
                booked[guest] = client.call(("book", guest), timeout=60)

        thread = threading.Thread(target=book)
        thread.start()
        for kills in range(4):
            enough = len(booked) + 5
            while len(booked) < enough:
                thread.join(0.05)
                assert thread.is_alive()
            if kills < 3:
                replicas.kill_the_primary()
        over.set()
        thread.join(60)
        assert dict(client.call("trips", timeout=60)) == booked
        seats = agency.Seats(place.conninfo)
        while seats.pending():  # what was decided last is committed any moment
            thread.join(0.05)
            client.call("trips", timeout=60)
        rooms = HttpTarget(place.hotel).get("/bookings")["bookings"]
        assert sorted(one["guest"] for one in rooms) == sorted(booked)
        assert sum(SEATS.values()) - agency.seats_left(place.conninfo) == len(booked)
