"""Factories, members, managers and notifiers on one server, with members as processes."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest

import antiphon
from antiphon.errors import IllegalStateError, OutcomeUnknownError
from antiphon.toolkits import eternal
from antiphon.toolkits.eternal.pure.policy import ATTEMPTS
from antiphon.toolkits.eternal.replication_manager import MANAGERS
from tests.api.support import backends
from tests.api.support.steps import SOON, heard, in_thread, until
from tests.blocks.conftest import Connect, connect
from tests.blocks.support.steps import buried
from tests.toolkits.support.domain import PROGRAM, Domain
from tests.toolkits.support.ledger_program import Ledger

__all__ = ["connect"]

TYPES = {"ledger": [sys.executable, str(PROGRAM), "ledger"]}
WAIT_S = 20.0


# -- Without processes ----------------------------------------------------------------------------


def test_a_member_that_nobody_hands_the_state_does_not_join(connect: Connect) -> None:
    eternal.ReplicationManager(connect())
    with pytest.raises(IllegalStateError, match="no member of stock has its state"):
        eternal.Member(connect(), "stock", Ledger())


@pytest.mark.parametrize("style", [eternal.ACTIVE, eternal.PASSIVE])
def test_a_group_looks_like_one_object(connect: Connect, style: str) -> None:
    eternal.ReplicationManager(connect())
    founder = eternal.Member(connect(), "stock", Ledger(), style=style, founder=True)
    with eternal.ObjectRequestGateway(connect(), "stock") as client:
        assert client.proxy().add(7) == 1
        follower = eternal.Member(connect(), "stock", Ledger(), style=style)
        assert client.call("add", 8) == 2
        founder.close()
        assert client.proxy().marks() == [7, 8]
        with pytest.raises(ValueError, match="not negative"):
            client.proxy().add(-1)
        with pytest.raises(AttributeError, match="no operation 'get_state'"):
            client.proxy().get_state()
        assert [entry.operation for entry in client.request_log()] == ["add", "add", "marks"]
        follower.close()
        with pytest.raises(OutcomeUnknownError):
            client.call("add", 9, timeout=0.1)


class Dice:
    """Not deterministic."""

    def __init__(self) -> None:
        self.rolled = b""

    def roll(self) -> bytes:
        self.rolled += secrets.token_bytes(8)
        return self.rolled

    def get_state(self) -> bytes:
        return self.rolled

    def set_state(self, state: bytes) -> None:
        self.rolled = state


def test_a_founder_waits_until_members_of_an_earlier_group_of_the_name_have_left(
    connect: Connect,
) -> None:
    eternal.ReplicationManager(connect())
    old = eternal.Member(connect(), "stock", Ledger(), founder=True, generation=1)
    with eternal.ObjectRequestGateway(connect(), "stock") as client:
        client.proxy().add(1)
        opening = in_thread(
            lambda: eternal.Member(connect(), "stock", Ledger(), founder=True, generation=2)
        )
        with pytest.raises(Empty):
            opening.get(timeout=SOON)
        old.close()
        assert isinstance(heard(opening, 1)[0], eternal.Member)
        assert client.proxy().marks() == []


def test_of_a_passive_group_the_oldest_carries_requests_out(connect: Connect) -> None:
    eternal.ReplicationManager(connect())
    dice = [Dice(), Dice()]
    for number, one in enumerate(dice):
        eternal.Member(connect(), "dice", one, style=eternal.PASSIVE, founder=number == 0)
    with eternal.ObjectRequestGateway(connect(), "dice") as client:
        client.proxy().roll()
        rolled = client.proxy().roll()
    assert len(rolled) == 16
    until(lambda: dice[0].rolled == dice[1].rolled == rolled)


def test_all_replicas_of_the_manager_know_the_same(connect: Connect) -> None:
    managers = [eternal.ReplicationManager(connect(), name) for name in ("one", "two")]
    managers[0].submit(("offer", "north", ("ledger",)))  # of no replica called at.north
    assert managers[1].locations() == {}
    at_north = eternal.ReplicationManager(connect(), "at.north")
    at_north.submit(("offer", "north", ("ledger",)))
    managers[1].wait_until(lambda manager: manager.locations, WAIT_S)
    managers[0].close()  # the oldest
    late = eternal.ReplicationManager(connect(), "three")
    assert late.locations() == managers[1].locations() == {"north": ("ledger",)}
    assert late.replicas == ("two", "at.north", "three")


def test_subscribers_get_each_fault_after_their_subscription_once(connect: Connect) -> None:
    manager = eternal.ReplicationManager(connect(), "one")
    early: list[eternal.Fault] = []

    def raising(fault: eternal.Fault) -> None:
        early.append(fault)
        raise ValueError("a subscriber's own fault")

    late: list[eternal.Fault] = []
    eternal.FaultNotifier(manager).subscribe(raising)
    for number in (1, 2, 3):
        at_north = eternal.ReplicationManager(connect(), "at.north")
        at_north.submit(("offer", "north", ("ledger",)))
        at_north.close()  # without a word: as if it had crashed
        until(lambda number=number: len(early) == number)  # type: ignore[misc]
        if number == 2:
            eternal.FaultNotifier(manager).subscribe(late.append)
    until(lambda: bool(late))
    assert [(fault.number, fault.kind, fault.location) for fault in early] == [
        (number, "location", "north") for number in (1, 2, 3)
    ]
    assert late == early[2:]


def test_a_message_that_is_not_a_command_changes_nothing(connect: Connect) -> None:
    manager = eternal.ReplicationManager(connect())
    ctx = connect()
    ctx.create_producer().send(ctx.create_topic(MANAGERS), "hello")
    with pytest.raises(ValueError, match="not a command"):
        manager.submit(("dance",))
    assert manager.locations() == {}


def test_a_factory_needs_its_programs() -> None:
    with pytest.raises(ValueError, match="there is no program 'no-such-program'"):
        eternal.Factory("embedded:", "north", {"ledger": ["no-such-program"]})


# -- With processes -------------------------------------------------------------------------------


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    """Two factories in this process, whose members are processes of their own."""
    with backends.one_server() as backend, Domain(backend.url, tmp_path) as domain:
        factories = [eternal.Factory(backend.url, place, TYPES) for place in ("north", "south")]
        domain.open()
        yield domain
        for factory in factories:
            factory.close()


@pytest.mark.process
def test_a_member_whose_process_ends_is_replaced(domain: Domain) -> None:
    domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 2, 2), "stock")
    domain.signal_member("stock.1")
    assert set(
        domain.wait_for_members("stock", lambda now: len(now) == 2 and "stock.1" not in now)
    ) == {"stock.2", "stock.3"}
    until(lambda: bool(domain.faults))
    (fault,) = domain.faults
    assert fault[1:] == ("object", "stock.1", "north", "its process ended with status -9")


@pytest.mark.process
def test_what_is_not_wanted_any_more_is_ended(domain: Domain) -> None:
    criteria = domain.criteria(eternal.ACTIVE, 2, 1)
    stock = domain.manager.create_object("ledger", criteria, "stock")
    domain.manager.remove_member(stock, "north")
    until(lambda: not domain.runs("stock.1"))
    assert list(domain.members("stock")) == ["stock.2"]
    domain.manager.delete_object(stock)
    until(lambda: not domain.runs("stock.2"))
    assert domain.faults == []


@pytest.mark.process
def test_a_factory_that_leaves_takes_its_members_with_it(tmp_path: Path) -> None:
    with backends.one_server() as backend, Domain(backend.url, tmp_path) as domain:
        north = eternal.Factory(backend.url, "north", TYPES)
        domain.open()
        domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 1, 1), "stock")
        with pytest.raises(ValueError, match="'south' makes no member"):
            domain.manager.create_member("stock", "south", "ledger")
        south = eternal.Factory(backend.url, "south", TYPES)
        domain.manager.create_member("stock", "south", "ledger")
        north.close()
        assert not domain.runs("stock.1")
        domain.wait_for_members("stock", lambda now: now == {"stock.2": "south"})
        assert domain.faults == []
        south.close()
        assert domain.manager.get_object_group("stock").lost
        until(lambda: [one[1:3] for one in domain.faults] == [("group", "stock")])


@pytest.mark.process
def test_a_factory_that_was_removed_ends_its_members_and_comes_back(domain: Domain) -> None:
    domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 2, 2), "stock")
    assert set(domain.members("stock")) == {"stock.1", "stock.2"}
    remove(domain, MANAGERS, "at.north")
    until(lambda: not domain.runs("stock.1"))
    now = domain.wait_for_members("stock", lambda now: len(now) == 2 and "stock.1" not in now)
    assert now == {"stock.2": "south", "stock.3": "north"}


@pytest.mark.process
def test_members_end_with_a_factory_that_is_killed(domain: Domain) -> None:
    domain.start("location", "east")
    domain.manager.wait_until(lambda manager: "east" in manager.locations, WAIT_S)
    domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 3, 2), "stock")
    (member,) = [name for name, place in domain.members("stock").items() if place == "east"]
    domain.signal_factory("east", signal.SIGKILL)
    until(lambda: not domain.runs(member))
    domain.wait_for_members("stock", lambda now: len(now) == 2)
    until(lambda: ("location", "east") in [(one.kind, one.location) for one in domain.faults])


@pytest.mark.process
def test_a_member_of_a_program_is_added_and_reported_if_it_fails(domain: Domain) -> None:
    stock = domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 1, 1), "stock")
    with antiphon.connect(domain.url) as ctx, eternal.Member(ctx, stock, Ledger(), "own") as own:
        domain.manager.add_member(stock, "attic", own.name)
        assert domain.members("stock") == {"stock.1": "north", "own": "attic"}
    domain.wait_for_members("stock", lambda now: now == {"stock.1": "north"})
    assert domain.faults == []  # it has told the manager that it leaves

    ctx = antiphon.connect(domain.url)
    domain.manager.add_member(stock, "attic", eternal.Member(ctx, stock, Ledger(), "mine").name)
    backends.abandon(ctx)
    domain.wait_for_members("stock", lambda now: now == {"stock.1": "north"})
    until(lambda: bool(domain.faults))
    (fault,) = domain.faults
    assert fault[1:4] == ("object", "mine", "attic")
    buried(ctx)


@pytest.mark.process
def test_a_member_that_its_group_removes_ends_and_is_replaced(domain: Domain) -> None:
    domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 2, 2), "stock")
    remove(domain, "stock", "stock.1")
    until(lambda: not domain.runs("stock.1"))
    domain.wait_for_members("stock", lambda now: now == {"stock.2": "south", "stock.3": "north"})
    until(lambda: [one[1:4] for one in domain.faults] == [("object", "stock.1", "north")])


@pytest.mark.process
def test_a_group_whose_members_cannot_start_is_refused_with_the_reason(
    domain: Domain, tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    criteria = domain.criteria(eternal.ACTIVE, 1, 1, "broken")
    with pytest.raises(IllegalStateError, match="ended with status 1"):
        domain.manager.create_object("ledger", criteria, "stock")
    until(lambda: len(domain.faults) == 2 * ATTEMPTS)  # two locations


@pytest.mark.process
def test_a_program_that_is_gone_is_not_started(domain: Domain, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch(0o755)
    with eternal.Factory(domain.url, "east", {"script": [str(program)]}):
        program.unlink()
        with pytest.raises(IllegalStateError, match=r"it cannot start: .*No such file"):
            domain.manager.create_object("script", domain.criteria(eternal.ACTIVE, 1, 1), "stock")


@pytest.mark.process
def test_a_member_without_a_manager_ends_with_its_factory(tmp_path: Path) -> None:
    order = ("stock", 1, "stock.1", "ledger", eternal.ACTIVE, True, (str(tmp_path),))
    with backends.one_server() as backend:
        given = json.dumps({"url": backend.url, "order": order})
        with subprocess.Popen([*TYPES["ledger"], given], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            until((tmp_path / "stock.1").exists)
            process.stdin.close()
            assert process.wait(WAIT_S) == 1


def remove(domain: Domain, group: str, member: str) -> None:
    """Remove a member, as others do that suspect it."""
    with antiphon.connect(domain.url) as ctx:
        properties = {"JMS_remove": member}
        ctx.create_producer().send(ctx.create_topic(group), "", properties=properties)
