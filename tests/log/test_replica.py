"""A replica alone, with words put into the others' mouths: what is hard to time in a scenario."""

import logging
from random import Random

import pytest

from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    encode_membership,
)
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import Append, Envelope, Refused, RequestVote, Vote
from antiphon.log.effects import Deliver, EntriesStored, Persist, ReadPart, Send, VoteStored
from antiphon.log.recovered import Recovered
from antiphon.log.replica import Replica
from antiphon.log.roles.transitions import Role
from antiphon.log.settings import Settings

MEMBERS = Membership(7, tuple(ClusterMember(n, n * 10, True) for n in (1, 2, 3)))
ME, TWO, THREE = (member.id for member in MEMBERS.members)


def founded(
    last: int = 1, runs: tuple[tuple[int, int], ...] = ((1, 1),), epoch: int = 1
) -> Replica:
    recovered = Recovered(
        10,
        Promise(epoch, None),
        runs=runs,
        last=last,
        memberships=((1, MEMBERS),),
    )
    listed = {1: "a", 2: "b", 3: "c"}
    return Replica(1, listed, recovered, Settings(), Random(1), 0)


def entry(index: int, epoch: int, payload: bytes = b"") -> Entry:
    return Entry(index, epoch, 0, Kind.PACK, payload)


def append(epoch: int, prev: tuple[int, int], *entries: Entry, commit: int = 0) -> Append:
    return Append(epoch, *prev, entries, commit, 1, 0)


def hear(replica: Replica, sender: ReplicaId, message, now_ms: int = 1):
    return replica.receive(Envelope(sender, replica.id, message), now_ms)


def test_who_doubts_its_leader_says_why_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    replica = founded()
    hear(replica, TWO, append(2, (1, 1)))
    doubts_ms = replica.next_deadline_ms()
    replica.tick(doubts_ms - 1)
    assert replica.election.doubts == 0
    assert "doubts" not in caplog.text
    replica.tick(doubts_ms)
    assert replica.election.doubts == 1
    assert f"doubts its leader: nothing heard from {TWO}" in caplog.text
    hear(replica, TWO, append(2, (1, 1)), doubts_ms)
    replica.gone(TWO.node, doubts_ms)
    assert replica.election.doubts == 2
    replica.gone(TWO.node, doubts_ms)  # there is no leader to be doubted
    assert replica.election.doubts == 2


def test_a_sync_does_not_count_for_the_entry_that_replaced_the_synced_one() -> None:
    replica = founded()
    hear(replica, TWO, append(2, (1, 1), entry(2, 2, b"old")))
    hear(replica, THREE, append(3, (1, 1), entry(2, 3, b"new")))
    replica.stored_back(EntriesStored(2, 2), 2)
    assert replica.stored == 1
    replica.stored_back(EntriesStored(2, 3), 3)
    assert replica.stored == 2


def test_a_longer_log_of_an_older_epoch_is_not_more_up_to_date() -> None:
    replica = founded(last=3, runs=((1, 1), (3, 3)), epoch=3)
    (effect,) = hear(replica, TWO, RequestVote(4, 9, 2, False, False))
    assert isinstance(effect, Persist)
    assert effect.then == (Send(TWO, Vote(4, False, False)),)
    (effect,) = hear(replica, THREE, RequestVote(5, 3, 3, False, False))
    assert isinstance(effect, Persist)
    assert effect.then == (Send(THREE, Vote(5, True, False)),)


def test_entries_replaced_while_they_were_read_are_not_delivered() -> None:
    replica = founded(last=3, runs=((1, 1), (2, 2)), epoch=2)
    hear(replica, TWO, append(2, (3, 2), commit=2))  # delivering 1 and 2 needs the journal
    hear(replica, THREE, append(3, (2, 2), entry(3, 3, b"new"), commit=3))
    founding = Entry(1, 1, 0, Kind.MEMBERSHIP, encode_membership(MEMBERS))
    stale = (founding, entry(2, 2), entry(3, 2, b"old"))
    delivered = [
        delivery
        for effect in replica.entries_read(None, 1, stale, 2)
        if isinstance(effect, Deliver)
        for delivery in effect.entries
    ]
    assert [(e.index, e.epoch) for e in delivered] == [(1, 1), (2, 2), (3, 3)]
    assert delivered[-1].payload == b"new"


def test_a_leader_whose_removal_is_undecided_may_be_elected() -> None:
    """Its log may be the longest of those who are left: then nobody else can be elected."""
    replica = founded()
    removal = Entry(2, 2, 0, Kind.MEMBERSHIP, encode_membership(MEMBERS.without(1)))
    hear(replica, TWO, append(2, (1, 1), removal, commit=1))
    replica.tick(10_000)
    assert replica.role is Role.PRE_CANDIDATE
    hear(replica, TWO, append(2, (2, 2), commit=2), 10_001)
    replica.tick(20_000)
    assert replica.role is Role.NEWCOMER


def test_a_follower_that_differs_below_the_leaders_base_gets_a_snapshot() -> None:
    """The leader's log begins at 3, of epoch 3; the follower has an entry 3 of epoch 2."""
    recovered = Recovered(
        10,
        Promise(3, None),
        snapshot=SnapshotMeta(3, 3, 0, MEMBERS),
        base_index=3,
        base_epoch=3,
        runs=((4, 3),),
        last=4,
        memberships=((3, MEMBERS),),
    )
    leader = Replica(1, {1: "a", 2: "b", 3: "c"}, recovered, Settings(), Random(1), 0)
    leader.tick(10_000)
    hear(leader, TWO, Vote(4, True, True), 10_001)
    leader.stored_back(VoteStored(4), 10_002)
    hear(leader, TWO, Vote(4, True, False), 10_003)
    assert leader.role is Role.LEADER
    hear(leader, TWO, Refused(4, 4, 3, 2, 0), 10_004)
    effects = hear(leader, TWO, Refused(4, 3, 3, 2, 0), 10_005)
    assert ReadPart(TWO, 0) in effects
