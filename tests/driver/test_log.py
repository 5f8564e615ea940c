"""The driver of the log, input by input: what leaves when, and what becomes of a full disk."""

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.driver.log import DEFER_S, LATE_MS, READ_FIRST_MS, RETRY_S
from antiphon.errors import DiskFullError, SyncFailedError
from antiphon.formats import pack
from antiphon.formats.entry import Membership, SnapshotMeta
from antiphon.formats.journal import Local
from antiphon.formats.notes import REACHED
from antiphon.formats.server_messages import (
    Appended,
    Hears,
    Knock,
    PartTaken,
    Relay,
    SnapshotPart,
    Vote,
)
from antiphon.journal.reached import NOTE_SYNC_S
from antiphon.log.effects import (
    Accepted,
    Applied,
    Effect,
    EntriesStored,
    Install,
    Read,
    Send,
    StorePart,
    TakeSnapshot,
)
from tests.driver.support.bare_log import EPOCH, FOUNDED, LEADER, OTHER, BareLog

META = SnapshotMeta(9, EPOCH, 0, Membership(1, FOUNDED))


def keeps_part(seq: int) -> StorePart:
    return StorePart(META, seq, b"part", (Send(LEADER, PartTaken(EPOCH, 1, seq)),))


def parts_taken(bare: BareLog) -> list[int]:
    return [m.seq for m in bare.sent if isinstance(m, PartTaken)]


# -- What leaves, and when -------------------------------------------------------------------------


def test_an_acknowledgement_leaves_after_its_sync() -> None:
    bare = BareLog()
    bare.appends(2, 3)
    assert bare.acknowledged() == 0
    bare.settle()
    assert len(bare.syncs) == 1
    assert bare.acknowledged() == 0
    bare.end_sync()
    assert bare.acknowledged() == 3


def test_a_vote_during_a_sync_leaves_after_the_next_one() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()  # a sync has begun, and what is written from now on is not in it
    bare.is_asked_for_a_vote()
    bare.settle()
    assert bare.votes() == []
    bare.end_sync()
    assert bare.votes() == []
    assert len(bare.syncs) == 1
    bare.end_sync()
    assert bare.votes() == [Vote(EPOCH + 1, True, False)]


def test_two_syncs_never_run_at_once() -> None:
    bare = BareLog()
    for index in range(2, 12):
        bare.appends(index, index)
        bare.settle()
        assert len(bare.syncs) == 1
    bare.end_sync()
    assert bare.acknowledged() == 2
    assert len(bare.syncs) == 1  # for all that were written since the first began
    bare.end_sync()
    assert bare.acknowledged() == 11
    assert bare.syncs == []
    assert bare.log.syncs >= 2


def test_all_inputs_of_a_turn_are_one_write_and_one_sync() -> None:
    bare = BareLog()
    for index in range(2, 8):
        bare.appends(index, index)
    assert bare.settles == 1
    bare.settle()
    assert (bare.disk.batches, len(bare.syncs)) == (1, 1)
    bare.end_sync()
    assert [m.match for m in bare.sent if isinstance(m, Appended)] == [*range(2, 8)]


def test_what_comes_in_from_above_is_proposed_before_the_turn_is_written() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    bare.end_all_syncs()
    before = len(bare.sent)
    bare.above.proposals = [pack.encode("topic:x", 1, b"x")]
    bare.log.settle_soon()
    bare.settle()
    assert len(bare.sent) == before + 1  # forwarded to the leader
    assert bare.above.delivered > 0


def test_a_sync_that_fails_ends_the_server_and_nothing_leaves() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    error = SyncFailedError("says the test")
    bare.end_sync(error)
    assert bare.failure is error
    assert bare.log.closed
    bare.is_asked_for_a_vote()
    bare.settle()
    assert bare.sent == []


def test_closing_with_a_tail_waiting_releases_nothing() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    bare.log.close(lambda: None)
    bare.end_all_syncs()
    bare.wait(NOTE_SYNC_S)
    bare.settle()
    assert bare.sent == []
    assert bare.failure is None


def test_what_is_synced_is_noted_and_the_note_is_synced_at_the_end() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    bare.end_all_syncs()
    closed: list[bool] = []
    bare.log.close(lambda: closed.append(True))
    assert [names for names, _ in bare.syncs] == [(REACHED,)]
    assert closed == []
    bare.end_all_syncs()
    assert closed == [True]


def test_the_note_is_synced_again_and_again_one_after_the_other() -> None:
    bare = BareLog()
    for index in (2, 3):
        bare.appends(index, index)
        bare.settle()
        bare.end_all_syncs()
        assert bare.wait(NOTE_SYNC_S) == 1
        assert [names for names, _ in bare.syncs] == [(REACHED,)]
        assert bare.wait(NOTE_SYNC_S) == 0  # it is under way
        bare.end_sync()
    error = SyncFailedError("says the test")
    bare.appends(4, 4)
    bare.settle()
    bare.end_all_syncs()
    bare.wait(NOTE_SYNC_S)
    bare.end_sync(error)
    assert bare.failure is error


@pytest.mark.parametrize("message", [Vote(EPOCH, True, False), Appended(EPOCH, 7, 1)])
def test_what_waits_for_a_sync_cannot_leave_as_what_does_not(message: Vote | Appended) -> None:
    bare = BareLog()
    with pytest.raises(AssertionError, match="leaves before its sync"):
        bare.log.carry_out([Send(LEADER, message)])
    assert bare.sent == []


def test_what_promises_nothing_leaves_at_once() -> None:
    bare = BareLog()
    free = [Vote(EPOCH, True, True), Vote(EPOCH, False, False), Appended(EPOCH, 1, 1)]
    bare.log.carry_out([Send(LEADER, message) for message in free])
    assert bare.sent == free


def test_a_tail_that_nobody_wrote_cannot_be_released() -> None:
    bare = BareLog()
    with pytest.raises(AssertionError, match="leaves before its sync"):
        bare.log._release([EntriesStored(2, EPOCH)])


def test_what_a_server_keeps_to_itself_is_told_when_it_is_synced() -> None:
    bare = BareLog()
    bare.log.store(Local(False, b"mine"), 7)
    assert bare.settles == 1
    bare.settle()
    assert 7 not in bare.above.told
    bare.end_sync()
    assert 7 in bare.above.told
    assert bare.settles == 1  # more may have gathered


def test_effects_are_carried_out_in_order_and_what_they_lead_to_after_them() -> None:
    bare = BareLog()
    order: list[str] = []
    do = bare.log._carry_out

    def knocks(_: Effect) -> None:
        order.append("applied")
        if len(order) == 1:
            bare.log.carry_out([Send(LEADER, Knock(OTHER, 0))])
            assert bare.sent == []

    bare.log._carry_out = {**do, Read: knocks}
    bare.log.carry_out([Read(None, 1, 1), Read(None, 2, 1)])
    assert order == ["applied", "applied"]
    assert bare.sent == [Knock(OTHER, 0)]


# -- No room ---------------------------------------------------------------------------------------


def test_a_full_disk_is_waited_for_and_then_all_is_written_and_leaves() -> None:
    bare = BareLog()
    bare.disk.full = True
    bare.appends(2, 3)
    bare.settle()
    assert bare.news == ["impaired"]
    assert bare.node.replica.impaired == "disk full: no room, says the test"
    for _ in range(3):
        assert bare.wait(RETRY_S) == 1
        bare.settle()
    assert bare.news == ["impaired"]
    assert bare.syncs == []
    bare.disk.full = False
    bare.wait(RETRY_S)
    bare.settle()
    assert bare.news == ["impaired", "recovered"]
    assert not bare.node.replica.impaired
    assert bare.acknowledged() == 0
    bare.end_sync()
    assert bare.acknowledged() == 3
    assert bare.wait(RETRY_S) == 0


def test_a_full_disk_is_told_once_and_tried_again_once_at_a_time() -> None:
    bare = BareLog()
    bare.disk.full = True
    bare.appends(2, 2)
    bare.settle()
    bare.log.settle_soon()
    bare.settle()
    assert bare.news == ["impaired"]
    assert bare.wait(RETRY_S) == 1


def test_nothing_is_handed_out_whose_rows_are_not_written() -> None:
    bare = BareLog()
    bare.disk.full = True
    bare.appends(2, 2)
    delivered = bare.above.delivered
    bare.settle()
    assert bare.above.delivered == delivered


def test_without_room_to_note_a_sync_nothing_leaves_until_there_is() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    bare.disk.full = True
    bare.end_sync()
    assert bare.acknowledged() == 0
    assert bare.news == ["impaired"]
    bare.disk.full = False
    bare.wait(RETRY_S)
    bare.settle()
    bare.end_sync()
    assert bare.acknowledged() == 2


def test_no_timer_is_set_while_there_is_no_room() -> None:
    bare = BareLog()
    bare.disk.full = True
    bare.appends(2, 2)
    bare.settle()
    bare.log.tick()
    bare.timers.clear()
    bare.settle()
    assert bare.timers == []
    bare.disk.full = False
    bare.wait(RETRY_S)
    bare.settle()
    assert len(bare.timers) == 1


# -- Snapshots -------------------------------------------------------------------------------------


def test_after_a_lost_part_no_other_is_kept_until_the_leader_begins_again() -> None:
    bare = BareLog()
    bare.log.carry_out([keeps_part(0)])
    bare.disk.full = True
    bare.log.carry_out([keeps_part(1)])
    assert bare.news == ["impaired"]
    bare.disk.full = False
    bare.log.carry_out([keeps_part(2), Install(META)])
    bare.settle()
    assert parts_taken(bare) == [0]
    assert bare.syncs == []  # nothing is installed
    bare.log.carry_out([keeps_part(0), keeps_part(1)])
    assert parts_taken(bare) == [0, 0, 1]


def test_a_snapshot_is_refused_whose_rows_cannot_be_written() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.disk.full = True
    bare.log.carry_out([TakeSnapshot(META, iter([b"state"]), ())])
    assert bare.news == [
        "impaired",
        "no snapshot: the index is not complete up to this snapshot",
    ]
    assert bare.turns == []


def without_room(*_: Any) -> Any:
    raise DiskFullError("no room, says the test")


def without_room_later(*_: Any) -> Iterator[tuple[str, ...]]:
    yield ()
    without_room()


@pytest.mark.parametrize("store", [without_room, without_room_later])
def test_a_snapshot_for_which_there_was_no_room_is_taken_later(
    monkeypatch: pytest.MonkeyPatch, store: Any
) -> None:
    bare = BareLog(snapshot_every_entries=4)
    with monkeypatch.context() as full:
        full.setattr(bare.journal, "store_snapshot", store)
        bare.appends(2, 5, commit=5)
        bare.settle()
        bare.end_all_syncs()
    assert bare.news == ["no snapshot: no room, says the test"]
    bare.appends(6, 9, commit=9)
    bare.settle()
    bare.end_all_syncs()
    assert bare.news[1:] == ["snapshot 9"]


def test_what_a_server_keeps_to_itself_counts_for_the_next_snapshot() -> None:
    bare = BareLog(snapshot_every_bytes=100)
    bare.log.store(Local(False, bytes(100)), 1)
    bare.settle()
    bare.end_all_syncs()
    bare.appends(2, 2, commit=2)
    bare.settle()
    bare.end_all_syncs()
    assert bare.news == ["snapshot 2"]


def test_a_leader_s_snapshot_for_which_there_was_no_room_is_taken_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = BareLog()
    with monkeypatch.context() as full:
        full.setattr(bare.journal, "install", without_room_later)
        bare.hears(LEADER, SnapshotPart(EPOCH, 1, META, 0, b"part", True))
        bare.settle()
        bare.end_all_syncs()
    assert bare.news == ["impaired"]
    bare.wait(RETRY_S)
    bare.hears(LEADER, SnapshotPart(EPOCH, 2, META, 0, b"part", False))
    assert [(m.attempt, m.seq) for m in bare.sent if isinstance(m, PartTaken)] == [(1, 0), (2, 0)]


def test_rows_from_before_an_installation_are_not_written_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = BareLog()
    indexed: list[tuple[Accepted, ...]] = []
    state = b"".join(bare.node.machine.snapshot())
    monkeypatch.setattr(bare.journal, "install", lambda meta: iter([("file",)]))
    monkeypatch.setattr(bare.journal, "read_snapshot", lambda: (META, iter([state])))
    monkeypatch.setattr(bare.journal, "index", indexed.append)
    monkeypatch.setattr(bare.node.machine, "restore", lambda chunks: None)
    monkeypatch.setattr(bare.node, "installed", lambda meta, now_ms: [])
    bare.log.carry_out([Install(META)])
    bare.turns.pop()()
    assert [names for names, _ in bare.syncs] == [("file",)]
    accepted = Accepted(5, 5, 1, 0, 1, "topic:t", 7, 1)
    bare.log.carry_out([Applied((), (accepted,), 0)])
    bare.syncs[0][1](None)
    bare.settle()
    assert bare.news == ["installed 9"]
    assert bare.above.told[-1] == "restored"
    assert indexed == []


def test_a_snapshot_is_stored_step_by_step_and_its_syncs_are_waited_for() -> None:
    bare = BareLog()
    bare.appends(2, 9, commit=9)
    bare.settle()
    bare.end_all_syncs()
    bare.log.carry_out([TakeSnapshot(META, bare.node.machine.snapshot(), ())])
    assert len(bare.turns) == 1
    bare.turns.pop()()
    assert len(bare.syncs) == 1  # nothing goes on before it ends
    assert bare.turns == []
    bare.end_all_syncs()
    assert bare.news == ["snapshot 9"]


def test_snapshots_are_stored_one_after_the_other() -> None:
    bare = BareLog()
    bare.appends(2, 9, commit=9)
    bare.settle()
    bare.end_all_syncs()
    for _ in range(2):
        bare.log.carry_out([TakeSnapshot(META, bare.node.machine.snapshot(), ())])
    bare.settle()
    assert len(bare.syncs) == 1
    bare.end_all_syncs()
    assert bare.news == ["snapshot 9", "snapshot 9"]


def test_a_sync_of_a_snapshot_that_fails_ends_the_server() -> None:
    bare = BareLog()
    bare.appends(2, 9, commit=9)
    bare.settle()
    bare.end_all_syncs()
    bare.log.carry_out([TakeSnapshot(META, bare.node.machine.snapshot(), ())])
    bare.settle()
    error = SyncFailedError("says the test")
    bare.end_sync(error)
    assert bare.failure is error
    assert bare.news == []


# -- Reading ---------------------------------------------------------------------------------------


def test_the_log_is_read_in_a_later_turn_and_what_is_collected_is_written_before() -> None:
    bare = BareLog()
    bare.appends(2, 4)
    bare.log.carry_out([Read(LEADER, 1, 1 << 20)])
    assert len(bare.turns) == 1
    assert bare.disk.batches == 0
    bare.turns.pop()()
    assert bare.disk.batches == 1


# -- A journal in memory ---------------------------------------------------------------------------


def test_a_journal_in_memory_is_written_later_for_several_turns() -> None:
    bare = BareLog(volatile=True)
    for index in range(2, 6):
        bare.appends(index, index)
        bare.settle()
    assert bare.acknowledged() == 5  # nobody waits for the journal
    assert bare.disk.batches == 0
    assert bare.wait(DEFER_S) == 1
    assert bare.disk.batches == 1
    bare.appends(6, 6)
    bare.settle()
    assert bare.wait(DEFER_S) == 1
    assert bare.disk.batches == 2


def test_a_journal_in_memory_is_written_at_once_if_somebody_reads_it() -> None:
    bare = BareLog(volatile=True)
    bare.above.waiting = True
    bare.appends(2, 2)
    bare.settle()
    assert bare.disk.batches == 1


def test_a_journal_in_memory_is_written_at_once_for_a_tail() -> None:
    bare = BareLog(volatile=True)
    bare.is_asked_for_a_vote()
    bare.settle()
    assert bare.disk.batches == 1
    assert len(bare.votes()) == 1
    assert bare.syncs == []


def test_what_was_left_for_later_is_not_written_after_the_end() -> None:
    bare = BareLog(volatile=True)
    bare.appends(2, 2)
    bare.settle()
    bare.log.close(lambda: None)
    bare.wait(DEFER_S)
    assert bare.disk.batches == 0


# -- Time ------------------------------------------------------------------------------------------


def test_a_timer_is_set_anew_only_for_what_is_due_earlier() -> None:
    bare = BareLog()
    first = bare.timers[-1]
    bare.timers.clear()
    bare.above.due_ms = first + 50
    bare.log.settle_soon()
    bare.settle()
    assert bare.timers == []
    bare.above.due_ms = first - 50
    bare.log.settle_soon()
    bare.settle()
    assert bare.timers == [first - 50]


def test_a_timer_that_rings_late_lets_what_has_arrived_be_read_first() -> None:
    bare = BareLog()
    bare.time_ms = bare.timers[-1] + LATE_MS + 1
    bare.log.tick()
    assert "tick" not in bare.above.told
    assert bare.timers[-1] == bare.time_ms + READ_FIRST_MS
    bare.appends(2, 2)  # the leader is there, and was all the time
    bare.settle()
    assert bare.timers[-1] == bare.time_ms + READ_FIRST_MS
    bare.time_ms += READ_FIRST_MS
    bare.log.tick()
    bare.settle()
    assert "tick" in bare.above.told
    assert bare.node.replica.leader_id == LEADER
    assert bare.timers[-1] > bare.time_ms


def test_a_timer_that_rings_in_time_is_heard_by_all() -> None:
    bare = BareLog()
    bare.time_ms = bare.timers[-1]
    bare.log.tick()
    bare.settle()
    assert bare.above.told.count("tick") == 1
    assert bare.sent != []  # it looks for votes


# -- Between homes ---------------------------------------------------------------------------------


def test_what_another_home_says_is_for_who_stands_on_the_log() -> None:
    bare = BareLog()
    heard = []
    bare.above.relayed = heard.append  # type: ignore[method-assign]
    bare.hears(LEADER, Relay(1, 1, b"x"))
    assert heard == [Relay(1, 1, b"x")]
    assert bare.settles == 0


def test_a_message_that_changes_nothing_ends_no_turn_unless_another_server_leads() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    bare.end_all_syncs()
    bare.settles = 0
    bare.node.receive = lambda *_: []  # type: ignore[method-assign]
    bare.hears(LEADER, Appended(EPOCH, 1, 1))
    assert bare.settles == 0
    bare.node.replica.leader_id = OTHER
    bare.hears(OTHER, Appended(EPOCH, 1, 1))
    assert bare.settles == 1


def test_a_report_of_who_hears_whom_ends_a_turn_for_it_may_bring_a_deadline_forward() -> None:
    bare = BareLog()
    bare.appends(2, 2)
    bare.settle()
    bare.end_all_syncs()
    bare.settles = 0
    bare.node.receive = lambda *_: []  # type: ignore[method-assign]
    bare.hears(LEADER, Hears(()))
    assert bare.settles == 1
