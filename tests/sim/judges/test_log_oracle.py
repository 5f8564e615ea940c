"""The oracle itself: a history that breaks a promise must be told apart from one that keeps it."""

from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, ReplicaId, SnapshotMeta
from antiphon.log.effects import Accepted, Applied
from antiphon.log.membership import MembershipHistory
from antiphon.sim.judges.log_oracle import Held, Oracle
from antiphon.sim.violations import ViolationError

MEMBERS = Membership(1, tuple(ClusterMember(n, n * 10, True) for n in (1, 2, 3)))


def server(number: int, applied: int = 0, removed_3_at: int = 0) -> Any:
    memberships = MembershipHistory([(0, MEMBERS)])
    if removed_3_at:
        memberships.append(removed_3_at, MEMBERS.without(3))
    replica = SimpleNamespace(memberships=memberships)
    return SimpleNamespace(
        number=number,
        lives=1,
        id=ReplicaId(number, number * 10),
        node=SimpleNamespace(replica=replica, applied=applied),
        machine=SimpleNamespace(digest=0, last_sequence=lambda session: 0, live=lambda: ()),
    )


def entry(index: int, payload: bytes = b"x", epoch: int = 1, stamp: int = 5) -> Entry:
    return Entry(index, epoch, stamp, Kind.PACK, payload)


def deliver(
    oracle: Oracle,
    who: Any,
    *entries: Entry,
    holders: tuple[int, ...] = (1, 2),
    digest: int = 0,
) -> None:
    oracle.delivered(who, Applied(entries, (), digest), lambda voter, _: voter.node in holders)


@pytest.fixture
def oracle() -> Oracle:
    oracle = Oracle()
    for number in (1, 2, 3):
        oracle.started(server(number), 0)
    return oracle


def test_a_good_history_passes(oracle: Oracle) -> None:
    deliver(oracle, server(1), entry(1), entry(2, b"y", stamp=6))
    deliver(oracle, server(2), entry(1))
    deliver(oracle, server(2), entry(2, b"y", stamp=6))
    oracle.leads(1, ReplicaId(1, 10))
    oracle.leads(1, ReplicaId(1, 10))
    assert oracle.deliveries == 4


def test_two_leaders_in_an_epoch(oracle: Oracle) -> None:
    oracle.leads(3, ReplicaId(1, 10))
    with pytest.raises(ViolationError, match="one leader an epoch"):
        oracle.leads(3, ReplicaId(2, 20))


def test_a_gap(oracle: Oracle) -> None:
    with pytest.raises(ViolationError, match="no gaps"):
        deliver(oracle, server(1), entry(2))


def test_another_entry_at_an_index(oracle: Oracle) -> None:
    deliver(oracle, server(1), entry(1, b"x"))
    with pytest.raises(ViolationError, match="one order"):
        deliver(oracle, server(2), entry(1, b"other"))


def test_delivered_without_a_majority(oracle: Oracle) -> None:
    with pytest.raises(ViolationError, match="uniform"):
        deliver(oracle, server(1), entry(1), holders=(1,))


def test_the_removed_do_not_count(oracle: Oracle) -> None:
    leader = server(1, removed_3_at=2)
    deliver(oracle, leader, entry(1), holders=(1, 2, 3))
    with pytest.raises(ViolationError, match=r"uniform: .* of \['1.a', '2.14'\]$"):
        deliver(oracle, leader, entry(2), holders=(1, 3))


def test_time_going_back(oracle: Oracle) -> None:
    deliver(oracle, server(1), entry(1, stamp=9))
    with pytest.raises(ViolationError, match="time never goes back"):
        deliver(oracle, server(1), entry(2, stamp=8))


def test_diverging_states(oracle: Oracle) -> None:
    deliver(oracle, server(1), entry(1), digest=1)
    with pytest.raises(ViolationError, match="equal state"):
        deliver(oracle, server(2), entry(1), digest=2)


def test_diverging_snapshots(oracle: Oracle) -> None:
    meta = SnapshotMeta(5, 1, 5, MEMBERS)
    oracle.same_snapshot(server(1), meta, 7)
    with pytest.raises(ViolationError, match="snapshots at 5 differ"):
        oracle.same_snapshot(server(2), meta, 8)


def test_a_pack_accepted_twice(oracle: Oracle) -> None:
    oracle.accept(Accepted(1, 1, 1, 5, 0, "q", 1, 1), 0)
    with pytest.raises(ViolationError, match="accepted twice"):
        oracle.accept(Accepted(2, 2, 1, 5, 0, "q", 1, 1), 0)


def test_acknowledged_out_of_nowhere(oracle: Oracle) -> None:
    with pytest.raises(ViolationError, match="nowhere accepted"):
        oracle.acknowledge(1, 1)


def test_acknowledged_and_lost(oracle: Oracle) -> None:
    oracle.accept(Accepted(1, 1, 1, 5, 0, "q", 1, 1), 0)
    oracle.acknowledge(1, 1)
    with pytest.raises(ViolationError, match="lost"):
        oracle.nothing_lost(server(1), lambda _: True)


def test_a_stale_read(oracle: Oracle) -> None:
    deliver(oracle, server(1), entry(1))
    oracle.read_begins(1)
    with pytest.raises(ViolationError, match="stale read"):
        oracle.read_ends(server(2, applied=0), 1)
    oracle.read_begins(2)
    oracle.read_ends(server(2, applied=1), 2)


def test_held_forgets_what_was_replaced() -> None:
    held = Held(0, {1: 1, 2: 1, 3: 1}, "seg-00000001.log")
    held._put(2, 2)
    assert held.has(1, 1)
    assert held.has(2, 2)
    assert not held.has(2, 1)
    assert not held.has(3, 1)
