"""`antiphon cluster status`: what all servers say, put together and shown."""

import argparse
import json

import msgspec
import pytest

from antiphon.cli import cluster
from antiphon.cli.cluster import ClusterStatus
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Membership, ReplicaId

MEMBERSHIP = Membership(
    3,
    (ClusterMember(1, 7, True, "a:1"), ClusterMember(2, 8, False, "b:2")),
)
LEADING = cw.Status(
    id=ReplicaId(1, 7),
    pid=101,
    role="leader",
    epoch=5,
    leader=ReplicaId(1, 7),
    membership=MEMBERSHIP,
    addresses={1: "a:1", 2: "b:2", 3: "c:3"},
    committed=41,
    applied=40,
    position=900,
    digest=0,
    cpu_s=1.5,
    trouble=("no room on the disk",),
    counts={"session": {"links": 12345, "waiting": 0}, "journal": {"segments": 2}},
)
LEARNING = msgspec.structs.replace(
    LEADING, id=ReplicaId(2, 8), pid=102, role="follower", trouble=(), counts={"journal": {"x": 9}}
)
FOUND = ClusterStatus(1, 5, {1: LEADING, 2: LEARNING}, (3,), ())


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "look", lambda url: FOUND)


def status(*, json: bool = False, counters: bool = False) -> int:
    return cluster.status(argparse.Namespace(url="", json=json, counters=counters))


@pytest.mark.usefixtures("found")
def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["leader"], report["epoch"], report["groups"]) == (1, 5, [])
    one, two, three = report["nodes"]
    assert (one["node"], one["role"], one["committed"], one["pid"]) == (1, "leader", 41, 101)
    assert one["counts"]["session"]["links"] == 12345
    assert one["trouble"] == ["no room on the disk"]
    assert two["role"] == "learner"
    assert (three["node"], three["role"], three["pid"]) == (3, "unreachable", None)


@pytest.mark.usefixtures("found")
def test_for_people_with_the_counts_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(counters=True) == 1
    shown = capsys.readouterr().out
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert "leader 1, epoch 5" in shown
    assert ["1", "leader", "41", "900", "101", "no room on the disk"] in cells
    assert ["session", "links", "12,345", ""] in cells
    assert ["", "waiting", "0", ""] in cells
    assert ["", "x", "", "9"] in cells


@pytest.mark.usefixtures("found")
def test_counts_are_shown_only_to_who_asks(capsys: pytest.CaptureFixture[str]) -> None:
    status()
    assert "12,345" not in capsys.readouterr().out


WELL = msgspec.structs.replace(LEADING, trouble=())


@pytest.mark.parametrize(
    ("answers", "unreachable", "down"),
    [
        ({1: WELL, 2: LEARNING}, (), []),
        # It may be listed on a command line; the cluster has removed it, or has not heard of it.
        ({1: WELL, 2: LEARNING}, (3,), []),
        ({1: WELL}, (2, 3), ["node 2 is down: nobody answers at b:2"]),
        ({1: LEADING, 2: LEARNING}, (), ["node 1 is in trouble: no room on the disk"]),
        (
            {1: WELL, 2: LEARNING, 3: msgspec.structs.replace(LEARNING, trouble=("removed",))},
            (),
            [],
        ),
    ],
)
def test_a_cluster_with_a_server_down_is_not_well(
    answers: dict[int, cw.Status],
    unreachable: tuple[int, ...],
    down: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = cw.GroupStatus("accounts", 3, 10, 60_000, ())
    answers = {n: msgspec.structs.replace(a, groups=(group,)) for n, a in answers.items()}
    found = ClusterStatus(1, 5, answers, unreachable, ())
    monkeypatch.setattr(cluster, "look", lambda url: found)
    assert status(json=True) == int(bool(down))
    report = json.loads(capsys.readouterr().out)
    assert report["trouble"] == down
    assert report["leader"] == 1
    assert [group["name"] for group in report["groups"]] == ["accounts"]
    assert status() == int(bool(down))
    shown = capsys.readouterr().out
    assert "accounts" in shown
    assert [line for line in shown.splitlines() if line.startswith("node ")] == down


def test_servers_that_only_some_know_of_are_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    newcomer = msgspec.structs.replace(LEARNING, addresses={1: "a:1", 2: "b:2"})
    says = {"a:1": LEADING, "b:2": newcomer, "c:3": None}
    asked: list[str] = []

    def ask(address: str) -> cw.Status | None:
        asked.append(address)
        return says[address]

    monkeypatch.setattr(cluster, "_ask", ask)
    found = cluster._ask_all(newcomer.addresses)
    assert found == {1: LEADING, 2: newcomer, 3: None}
    assert sorted(asked) == ["a:1", "b:2", "c:3"]
