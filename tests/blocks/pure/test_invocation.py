"""Services that call others, on real groups: passive and active replicas with two targets."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import antiphon
from antiphon.blocks import (
    Invocation,
    Kind,
    RefusedError,
    Replica,
    ReplicatedService,
    ServiceClient,
)
from antiphon.blocks.pure.block import Heard
from antiphon.blocks.pure.invocation import Leaving
from antiphon.blocks.pure.service import Request, Requests
from antiphon.blocks.pure.service_block import ServiceBlock
from antiphon.formats import values


class Ledger:
    """A target: who has called, and what lasts of it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.open: dict[str, Any] = {}
        self.lasting: dict[str, Any] = {}
        self.undone: set[str] = set()
        self.taken: set[str] = set()  # asked again, they get the same reply
        self.calls = 0
        self.held = threading.Event()  # set: calls go on
        self.held.set()
        self.reached = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.troubles = 0  # so many calls fail without a word of what came of them
        self.ends = threading.Event()  # not set: nothing is ended
        self.ends.set()

    def call(self, id: str, request: Any) -> Any:
        with self._lock:
            self.calls += 1
            if id in self.undone and id in self.taken:
                return f"{request} done"  # for a slower active replica
            if id in self.undone:
                raise RefusedError("it was undone")
            if request == "too much":
                raise RefusedError("that is too much")
            self.taken.add(id)
            (self.open if self.kind is Kind.PESSIMISTIC else self.lasting).setdefault(id, request)
            if self.troubles:
                self.troubles -= 1
                raise ConnectionError("the line is dead")
        self.reached.release()
        assert self.held.wait(30)
        return f"{request} done"

    def commit(self, id: str) -> None:
        assert self.ends.wait(30)
        with self._lock:
            if id in self.open:
                self.lasting[id] = self.open.pop(id)
            assert id in self.lasting

    def undo(self, id: str, compensation: Any) -> None:
        with self._lock:
            self.open.pop(id, None)
            if self.lasting.pop(id, None) is not None:
                assert self.kind is Kind.OPTIMISTIC
            self.undone.add(id)


class Trips(ReplicatedService):
    def __init__(self) -> None:
        self.trips: list[Any] = []

    def apply(self, command: Any) -> Any:
        if command == "list":
            return list(self.trips)
        return self._book(command)

    def _book(self, command: Any) -> Any:
        seat = yield Invocation("flights", command)
        room = yield Invocation("hotel", command, compensation=("cancel", command))
        if command == "no":
            raise ValueError("thought better of it")
        self.trips.append(command)
        return seat, room

    def snapshot(self) -> bytes:
        return values.encode(self.trips)

    def restore(self, data: bytes) -> None:
        self.trips = list(values.decode(data))


class Agency:
    """Three replicas, one client, two targets."""

    def __init__(self, stack: ExitStack, url: str, passive: bool) -> None:
        self.flights, self.hotel = Ledger(Kind.PESSIMISTIC), Ledger(Kind.OPTIMISTIC)
        targets = {"flights": self.flights, "hotel": self.hotel}
        self.contexts = [stack.enter_context(antiphon.connect(url)) for _ in range(3)]
        self.replicas = [
            stack.enter_context(
                Replica(ctx, "trips", Trips(), name=name, passive=passive, targets=targets)
            )
            for name, ctx in zip("abc", self.contexts, strict=True)
        ]
        self.client = ServiceClient(stack.enter_context(antiphon.connect(url)), "trips")
        stack.enter_context(self.client)

    def lasting(self) -> tuple[list[Any], list[Any]]:
        return sorted(self.flights.lasting.values()), sorted(self.hotel.lasting.values())

    def settle(self) -> None:
        """Until nothing is open any more."""
        for replica in self.replicas[1:]:
            replica.wait_until(lambda _: not self.flights.open, 20)


@pytest.fixture(params=[True, False], ids=["passive", "active"])
def agency(request: pytest.FixtureRequest) -> Iterator[Agency]:
    with ExitStack() as stack:
        yield Agency(stack, f"embedded:{request.node.name}", request.param)


@pytest.fixture
def passive(request: pytest.FixtureRequest) -> Iterator[Agency]:
    with ExitStack() as stack:
        yield Agency(stack, f"embedded:{request.node.name}", True)


def test_calls_are_made_and_last(agency: Agency) -> None:
    assert agency.client.call("rome") == ("rome done", "rome done")
    assert agency.replicas[1].call("oslo") == ("oslo done", "oslo done")
    assert agency.replicas[2].call("list") == ["rome", "oslo"]
    agency.settle()
    assert agency.lasting() == (["oslo", "rome"], ["oslo", "rome"])


def test_what_raises_leaves_nothing(agency: Agency) -> None:
    with pytest.raises(ValueError, match="thought better"):
        agency.client.call("no")
    with pytest.raises(antiphon.JMSError, match="too much"):
        agency.client.call("too much")
    assert agency.client.call("list") == []
    agency.settle()
    assert agency.lasting() == ([], [])


def test_active_replicas_count_as_one_caller() -> None:
    with ExitStack() as stack:
        agency = Agency(stack, "embedded:active-one-caller", False)
        agency.client.call("rome")
        for replica in agency.replicas:
            replica.wait_until(lambda service: service.trips == ["rome"], 20)
        assert agency.flights.calls == 3
        assert agency.lasting() == (["rome"], ["rome"])


def test_active_replicas_wait_until_the_target_has_decided() -> None:
    with ExitStack() as stack:
        agency = Agency(stack, "embedded:active-waits", False)
        agency.flights.troubles = 1
        assert agency.client.call("rome", timeout=30) == ("rome done", "rome done")
        assert agency.lasting() == (["rome"], ["rome"])


def test_a_passive_replica_that_leaves_in_the_middle_leaves_no_orphan(passive: Agency) -> None:
    passive.hotel.held.clear()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(passive.client.call("rome", 30)))
    thread.start()
    assert passive.hotel.reached.acquire(timeout=20)  # the primary waits for the hotel
    passive.replicas[0].close()
    passive.hotel.held.set()
    thread.join(30)
    assert got == [("rome done", "rome done")]
    passive.settle()
    passive.replicas[1].wait_until(lambda _: len(passive.hotel.lasting) == 1, 20)
    assert passive.lasting() == (["rome"], ["rome"])
    assert passive.replicas[2].call("list") == ["rome"]


def test_a_target_without_an_answer_is_undone_and_the_service_hears_of_it(passive: Agency) -> None:
    passive.flights.troubles = 1
    with pytest.raises(ConnectionError, match="the line is dead"):
        passive.client.call("rome")
    passive.settle()
    assert passive.client.call("oslo") == ("oslo done", "oslo done")
    passive.settle()
    assert passive.lasting() == (["oslo"], ["oslo"])


def test_a_service_with_coroutines_is_refused_here() -> None:
    class Slow(Trips):
        async def apply(self, command: Any) -> Any:
            return command

    with antiphon.connect("embedded:slow") as ctx, pytest.raises(TypeError, match="aio"):
        Replica(ctx, "slow", Slow())


def test_an_active_replica_that_is_closed_does_not_answer_for_the_others() -> None:
    with ExitStack() as stack:
        agency = Agency(stack, "embedded:active-closed", False)
        agency.flights.troubles = 1_000_000
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(agency.client.call("rome", 30)))
        thread.start()
        while agency.flights.calls < 3:
            thread.join(0.01)
        agency.replicas[0].close()
        agency.flights.troubles = 0
        thread.join(30)
        assert got == [("rome done", "rome done")]


def test_a_target_that_ends_nothing_holds_up_nobody_else(passive: Agency) -> None:
    passive.flights.ends.clear()
    trips = [f"trip {n}" for n in range(8)]
    assert [passive.client.call(trip)[0] for trip in trips] == [f"{trip} done" for trip in trips]
    assert len(passive.flights.open) == 8
    passive.flights.ends.set()
    passive.replicas[0].wait_until(lambda _: not passive.flights.open, 20)
    assert passive.lasting() == (trips, trips)


def test_a_command_that_was_given_up_has_no_outcome_here() -> None:
    def leave(service: ReplicatedService, request: Request) -> Any:
        raise Leaving

    request = Requests("me").next("rome").encode()
    block = ServiceBlock(Trips(), leave)
    assert list(block.heard(Heard(request, reply_to="somebody"), 0.0)) == []
    assert block.replica.begin(request)[1] is None
