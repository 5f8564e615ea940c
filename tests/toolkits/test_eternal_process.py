"""Replicated objects whose processes are killed: their number is restored, and no effect is lost or
doubled."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.toolkits import eternal
from tests.api.support import backends
from tests.api.support.steps import heard, in_thread, until
from tests.process.support.cluster import WAIT_S
from tests.toolkits.support.domain import Domain, Writer
from tests.toolkits.support.ledger_program import Ledger

pytestmark = [pytest.mark.process, pytest.mark.timeout(180), pytest.mark.in_turn]

LOCATIONS = ("north", "south", "east", "west")


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "servers":
        with backends.cluster(tmp_path) as backend:
            yield backend.url
    else:
        yield f"peer:file/{tmp_path}/test"


SERVERS = pytest.mark.parametrize("url", ["servers"], indirect=True)


@pytest.fixture
def domain(url: str, tmp_path: Path) -> Iterator[Domain]:
    folder = tmp_path / "members"
    folder.mkdir()
    with Domain(url, folder) as domain:
        domain.start("manager", "leader", "second")
        domain.start("location", *LOCATIONS)
        domain.open()
        assert domain.manager.replicas[0] == "leader"
        yield domain


@pytest.mark.parametrize(
    ("url", "style"),
    [("servers", eternal.ACTIVE), ("peers", eternal.PASSIVE)],
    indirect=["url"],
    ids=["servers", "peers"],
)
def test_the_number_is_restored_and_no_effect_lost_or_doubled(domain: Domain, style: str) -> None:
    created = domain.manager.create_object("ledger", domain.criteria(style, 3, 3), "accounts")
    before = created.members
    assert len(before) == len(set(before.values())) == 3
    writer = Writer(domain.url, "accounts")
    writer.start()
    until(lambda: len(writer.sizes) > 10)

    oldest = min(before)
    domain.signal_member(oldest)
    domain.wait_for_members("accounts", lambda now: len(now) == 3 and oldest not in now)

    domain.kill("leader")
    location = domain.members("accounts")[max(domain.members("accounts"))]
    domain.kill(location)
    now = domain.wait_for_members(
        "accounts", lambda now: len(now) == 3 and location not in now.values()
    )
    assert set(now.values()) == set(LOCATIONS) - {location}
    until(lambda: domain.manager.replicas[0] == "second")

    marks = writer.stop()
    with eternal.ObjectRequestGateway(domain.ctx, created) as client:
        assert client.proxy().marks() == list(range(marks))
        logged = client.request_log()
    assert logged[-1].operation == "marks"
    assert [(one.arguments, one.reply) for one in logged[-6:-1]] == [
        ((mark,), mark + 1) for mark in range(marks - 5, marks)
    ]
    assert writer.sizes == list(range(1, marks + 1))
    numbers = [fault.number for fault in domain.faults]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert {(f.kind, f.name) for f in domain.faults} >= {
        ("object", oldest),
        ("location", location),
    }


@SERVERS
def test_members_are_created_added_and_removed_and_the_leader_may_be_killed(
    domain: Domain,
) -> None:
    criteria = domain.criteria(eternal.ACTIVE, 2, 1)
    creating = in_thread(lambda: domain.manager.create_object("ledger", criteria, "stock"))
    domain.kill("leader")
    (stock,) = heard(creating, 1)
    made = set(stock.members.values())
    with eternal.ObjectRequestGateway(domain.ctx, stock) as client:
        assert client.proxy().add(5) == 1
        with pytest.raises(ValueError, match="not negative"):
            client.proxy().add(-1)
        third = min(set(LOCATIONS) - made)
        now = domain.manager.create_member(stock, third, "ledger")
        assert set(now.members.values()) == made | {third}
        with eternal.Member(domain.ctx, stock, Ledger(), "own") as own:
            domain.manager.add_member(stock, "attic", own.name)
            for location in made:
                domain.manager.remove_member(stock, location)
            domain.kill(third)
            domain.wait_for_members("stock", lambda now: now == {"own": "attic"})
            assert client.proxy().add(6) == 2
            domain.manager.create_member(stock, min(made), "ledger")
        domain.wait_for_members("stock", lambda now: list(now.values()) == [min(made)])
        assert client.proxy().marks() == [5, 6]
    domain.manager.delete_object(stock)
    with pytest.raises(ValueError, match="no object group"):
        domain.manager.get_object_group(stock)
    assert "own" not in [fault.name for fault in domain.faults]


@SERVERS
def test_members_and_locations_that_stand_still_are_replaced_and_lost_groups_reported(
    domain: Domain,
) -> None:
    alone = domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 1, 1), "alone")
    domain.manager.create_object("ledger", domain.criteria(eternal.PASSIVE, 2, 2), "pair")
    writer = Writer(domain.url, "pair")
    writer.start()
    until(lambda: len(writer.sizes) > 5)

    hung = min(domain.members("pair"))  # the primary
    domain.signal_member(hung, signal.SIGSTOP)
    domain.wait_for_members("pair", lambda now: len(now) == 2 and hung not in now)
    until(lambda: not domain.runs(hung))

    youngest = max(domain.members("pair"))
    location = domain.members("pair")[youngest]
    domain.signal_factory(location, signal.SIGSTOP)
    domain.wait_for_members("pair", lambda now: len(now) == 2 and youngest not in now)
    assert domain.runs(youngest)
    domain.signal_factory(location, signal.SIGCONT)
    until(lambda: not domain.runs(youngest))  # nobody has use for it any more
    until(lambda: set(domain.manager.locations()) == set(LOCATIONS))

    marks = writer.stop()
    with eternal.ObjectRequestGateway(domain.ctx, "pair") as client:
        assert client.proxy().marks() == list(range(marks))

    domain.signal_member(min(domain.members("alone")))
    domain.manager.wait_until(lambda manager: manager.group("alone").lost, WAIT_S)
    until(lambda: ("group", "alone") in [(fault.kind, fault.name) for fault in domain.faults])
    domain.manager.delete_object(alone)
    domain.manager.create_object("ledger", domain.criteria(eternal.ACTIVE, 1, 1), "alone")
    with eternal.ObjectRequestGateway(domain.ctx, "alone") as client:
        assert client.proxy().marks() == []
