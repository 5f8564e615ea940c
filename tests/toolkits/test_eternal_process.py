"""Replicated objects whose processes are killed: their number is restored, and no effect is lost or
doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.toolkits import eternal
from tests.api.support import backends
from tests.api.support.steps import until
from tests.toolkits.support.domain import Domain, Writer

pytestmark = [pytest.mark.process, pytest.mark.timeout(180), pytest.mark.in_turn]

LOCATIONS = ("north", "south", "east", "west")


@pytest.fixture(params=["servers", "peers"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with {"servers": backends.cluster, "peers": backends.peers}[request.param](tmp_path) as backend:
        yield backend.url


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


@pytest.mark.parametrize("style", [eternal.ACTIVE, eternal.PASSIVE])
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
