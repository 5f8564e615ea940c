"""A travel agency that survives: a replicated service that books at two other servers.

A trip is a seat in a flight and a room in a hotel. Seats are in PostgreSQL, which keeps a booking
locked until it is told how it ends (`database.py`); rooms are at a service that books at once and
can be asked to undo (`hotel.py`). Whichever replica fails, and whenever: a trip is booked at both
or at none.

    anna flies LX 340 and sleeps in room 1
    the primary leaves, another one takes over
    bob flies LX 318 and sleeps in room 2
    carol stays at home: no room is free
    2 trips, 2 rooms taken, 2 seats taken, nothing open

    python agency.py                                    all of it, as above
    python agency.py replica URL CONNINFO HOTEL NAME    one replica, until it is killed
"""

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from database import TAKE_A_SEAT, Database, open_flights

import antiphon
from antiphon.blocks import Invocation, Kind, RefusedError, Replica, ReplicatedService, Target
from antiphon.blocks.targets.http import HttpTarget
from antiphon.blocks.targets.postgres import PostgresTarget, StatementError

FLIGHTS = {"LX 318": 100, "LX 340": 1}
Steps = Generator[Invocation, Any, Any]


class Seats:
    """The flights as a target: what is called is prepared, and lasts when it is committed."""

    kind = Kind.PESSIMISTIC

    def __init__(self, conninfo: str) -> None:
        self._database = PostgresTarget(conninfo)
        self.pending = self._database.pending

    def call(self, id: str, flight: str) -> str:
        try:
            self._database.prepare(id, [(TAKE_A_SEAT, (flight,))])
        except StatementError as error:
            raise RefusedError(f"no seat is free in {flight}") from error
        return flight

    def commit(self, id: str) -> None:
        self._database.commit(id)

    def undo(self, id: str, compensation: object) -> None:
        self._database.abort(id)


class Rooms:
    """The hotel as a target: what is called is done."""

    kind = Kind.OPTIMISTIC

    def __init__(self, url: str) -> None:
        self._hotel = HttpTarget(url)

    def call(self, id: str, guest: str) -> int:
        try:
            return int(self._hotel.call(id, "/book", {"guest": guest})["room"])
        except RefusedError as error:
            raise RefusedError(str(error).split(": ")[-1]) from error

    def commit(self, id: str) -> None:
        """It is done already."""

    def undo(self, id: str, compensation: object) -> None:
        self._hotel.compensate(id)


class Agency(ReplicatedService):
    """What targets say decides what it does next, so it is not deterministic: the primary alone
    carries out what is to be done, and the others take over what it came to."""

    def __init__(self) -> None:
        self.trips: dict[str, tuple[str, int]] = {}

    def apply(self, command: Any) -> Any:
        match command:
            case ("book", str(guest)):
                return self._book(guest)
            case "trips":
                return sorted(self.trips.items())
        raise ValueError(f"an agency does not know {command!r}")

    def _book(self, guest: str) -> Steps:
        try:
            flight = yield Invocation("seats", "LX 340")
        except RefusedError:
            flight = yield Invocation("seats", "LX 318")
        room = yield Invocation("rooms", guest, compensation="give it back")
        self.trips[guest] = (flight, room)
        return flight, room

    def snapshot(self) -> bytes:
        return json.dumps(self.trips).encode()

    def restore(self, data: bytes) -> None:
        self.trips = {guest: (flight, room) for guest, (flight, room) in json.loads(data).items()}


def open_replica(ctx: antiphon.Context, conninfo: str, hotel: str, name: str) -> Replica[Agency]:
    targets: dict[str, Target] = {"seats": Seats(conninfo), "rooms": Rooms(hotel)}
    return Replica(ctx, "agency", Agency(), name=name, passive=True, targets=targets)


def main(url: str = "") -> None:
    url = url or f"embedded:{secrets.token_hex(4)}"
    with ExitStack() as stack:
        database = stack.enter_context(Database())
        open_flights(database.conninfo, FLIGHTS)
        PostgresTarget(database.conninfo).set_up()
        hotel = open_hotel(stack, rooms=2)
        contexts = [stack.enter_context(antiphon.connect(url)) for _ in range(3)]
        replicas = [
            stack.enter_context(open_replica(ctx, database.conninfo, hotel, f"replica-{n}"))
            for n, ctx in enumerate(contexts, 1)
        ]
        book(replicas[1], "anna")
        replicas[0].close()
        print("the primary leaves, another one takes over")
        book(replicas[1], "bob")
        book(replicas[2], "carol")
        show(replicas[2], database.conninfo, hotel)


def book(agency: Replica[Agency], guest: str) -> None:
    try:
        flight, room = agency.call(("book", guest))
        print(f"{guest} flies {flight} and sleeps in room {room}")
    except antiphon.JMSError as error:
        print(f"{guest} stays at home: {str(error).split(': ')[-1]}")


def show(agency: Replica[Agency], conninfo: str, hotel: str) -> None:
    seats = Seats(conninfo)
    agency.wait_until(lambda _: not seats.pending(), timeout=20)  # what is committed is in the end
    trips, rooms = agency.call("trips"), HttpTarget(hotel).get("/bookings")["bookings"]
    taken = sum(FLIGHTS.values()) - seats_left(conninfo)
    print(f"{len(trips)} trips, {len(rooms)} rooms taken, {taken} seats taken, nothing open")


def seats_left(conninfo: str) -> int:
    import psycopg

    with psycopg.connect(conninfo) as connection:
        row = connection.execute("SELECT sum(seats) FROM flights").fetchone()
        assert row is not None
        return int(row[0])


def open_hotel(stack: ExitStack, rooms: int) -> str:
    """As a process of its own; returns its address."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    program = [sys.executable, str(Path(__file__).parent / "hotel.py"), f"{folder}/bookings"]
    process = stack.enter_context(
        subprocess.Popen(
            [*program, "--rooms", str(rooms)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    return str(process.stdout.readline().split()[-1])


def run_replica(url: str, conninfo: str, hotel: str, name: str) -> None:
    with antiphon.connect(url) as ctx, open_replica(ctx, conninfo, hotel, name):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:2] == ["replica"]:
        run_replica(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
