"""The driver of the log, input by input: what leaves when, and what becomes of a full disk."""

import pytest

from antiphon.driver.log import DEFER_S, LATE_MS, READ_FIRST_MS, RETRY_S
from antiphon.errors import SyncFailedError
from antiphon.formats import pack
from antiphon.formats.entry import Membership, SnapshotMeta
from antiphon.formats.journal import REACHED, Local
from antiphon.formats.server_messages import Appended, Knock, PartTaken, Relay, Vote
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
from tests.driver.support.rig import EPOCH, FOUNDED, LEADER, OTHER, Rig

META = SnapshotMeta(9, EPOCH, 0, Membership(1, FOUNDED))


def keeps_part(seq: int) -> StorePart:
    return StorePart(META, seq, b"part", (Send(LEADER, PartTaken(EPOCH, 1, seq)),))


def parts_taken(rig: Rig) -> list[int]:
    return [m.seq for m in rig.sent if isinstance(m, PartTaken)]


# -- What leaves, and when -------------------------------------------------------------------------


def test_an_acknowledgement_leaves_after_its_sync() -> None:
    rig = Rig()
    rig.appends(2, 3)
    assert rig.acknowledged() == 0
    rig.settle()
    assert len(rig.syncs) == 1
    assert rig.acknowledged() == 0
    rig.end_sync()
    assert rig.acknowledged() == 3


def test_a_vote_during_a_sync_leaves_after_the_next_one() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()  # a sync has begun, and what is written from now on is not in it
    rig.is_asked_for_a_vote()
    rig.settle()
    assert rig.votes() == []
    rig.end_sync()
    assert rig.votes() == []
    assert len(rig.syncs) == 1
    rig.end_sync()
    assert rig.votes() == [Vote(EPOCH + 1, True, False)]


def test_two_syncs_never_run_at_once() -> None:
    rig = Rig()
    for index in range(2, 12):
        rig.appends(index, index)
        rig.settle()
        assert len(rig.syncs) == 1
    rig.end_sync()
    assert rig.acknowledged() == 2
    assert len(rig.syncs) == 1  # for all that were written since the first began
    rig.end_sync()
    assert rig.acknowledged() == 11
    assert rig.syncs == []
    assert rig.log.syncs >= 2


def test_all_inputs_of_a_turn_are_one_write_and_one_sync() -> None:
    rig = Rig()
    for index in range(2, 8):
        rig.appends(index, index)
    assert rig.settles == 1
    rig.settle()
    assert (rig.disk.batches, len(rig.syncs)) == (1, 1)
    rig.end_sync()
    assert [m.match for m in rig.sent if isinstance(m, Appended)] == [*range(2, 8)]


def test_what_comes_in_from_above_is_proposed_before_the_turn_is_written() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()
    rig.end_all_syncs()
    before = len(rig.sent)
    rig.above.proposals = [pack.encode("topic:x", 1, b"x")]
    rig.log.settle_soon()
    rig.settle()
    assert len(rig.sent) == before + 1  # forwarded to the leader
    assert rig.above.delivered > 0


def test_a_sync_that_fails_ends_the_server_and_nothing_leaves() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()
    error = SyncFailedError("says the test")
    rig.end_sync(error)
    assert rig.failure is error
    assert rig.log.closed
    rig.is_asked_for_a_vote()
    rig.settle()
    assert rig.sent == []


def test_closing_with_a_tail_waiting_releases_nothing() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()
    rig.log.close(lambda: None)
    rig.end_all_syncs()
    rig.wait(NOTE_SYNC_S)
    rig.settle()
    assert rig.sent == []
    assert rig.failure is None


def test_what_is_synced_is_noted_and_the_note_is_synced_at_the_end() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()
    rig.end_all_syncs()
    closed: list[bool] = []
    rig.log.close(lambda: closed.append(True))
    assert [names for names, _ in rig.syncs] == [(REACHED,)]
    assert closed == []
    rig.end_all_syncs()
    assert closed == [True]


def test_the_note_is_synced_again_and_again_one_after_the_other() -> None:
    rig = Rig()
    for index in (2, 3):
        rig.appends(index, index)
        rig.settle()
        rig.end_all_syncs()
        assert rig.wait(NOTE_SYNC_S) == 1
        assert [names for names, _ in rig.syncs] == [(REACHED,)]
        assert rig.wait(NOTE_SYNC_S) == 0  # it is under way
        rig.end_sync()
    error = SyncFailedError("says the test")
    rig.appends(4, 4)
    rig.settle()
    rig.end_all_syncs()
    rig.wait(NOTE_SYNC_S)
    rig.end_sync(error)
    assert rig.failure is error


@pytest.mark.parametrize("message", [Vote(EPOCH, True, False), Appended(EPOCH, 7, 1)])
def test_what_waits_for_a_sync_cannot_leave_as_what_does_not(message: Vote | Appended) -> None:
    rig = Rig()
    with pytest.raises(AssertionError, match="leaves before its sync"):
        rig.log.carry_out([Send(LEADER, message)])
    assert rig.sent == []


def test_what_promises_nothing_leaves_at_once() -> None:
    rig = Rig()
    free = [Vote(EPOCH, True, True), Vote(EPOCH, False, False), Appended(EPOCH, 1, 1)]
    rig.log.carry_out([Send(LEADER, message) for message in free])
    assert rig.sent == free


def test_a_tail_that_nobody_wrote_cannot_be_released() -> None:
    rig = Rig()
    with pytest.raises(AssertionError, match="leaves before its sync"):
        rig.log._release([EntriesStored(2, EPOCH)])


def test_what_a_server_keeps_to_itself_is_told_when_it_is_synced() -> None:
    rig = Rig()
    rig.log.store(Local(False, b"mine"), 7)
    assert rig.settles == 1
    rig.settle()
    assert 7 not in rig.above.told
    rig.end_sync()
    assert 7 in rig.above.told
    assert rig.settles == 1  # more may have gathered


def test_effects_are_carried_out_in_order_and_what_they_lead_to_after_them() -> None:
    rig = Rig()
    order: list[str] = []
    do = rig.log._carry_out

    def knocks(_: Effect) -> None:
        order.append("applied")
        if len(order) == 1:
            rig.log.carry_out([Send(LEADER, Knock(OTHER, 0))])
            assert rig.sent == []

    rig.log._carry_out = {**do, Read: knocks}
    rig.log.carry_out([Read(None, 1, 1), Read(None, 2, 1)])
    assert order == ["applied", "applied"]
    assert rig.sent == [Knock(OTHER, 0)]


# -- No room ---------------------------------------------------------------------------------------


def test_a_full_disk_is_waited_for_and_then_all_is_written_and_leaves() -> None:
    rig = Rig()
    rig.disk.full = True
    rig.appends(2, 3)
    rig.settle()
    assert rig.news == ["impaired"]
    assert rig.node.replica.impaired == "disk full: no room, says the test"
    for _ in range(3):
        assert rig.wait(RETRY_S) == 1
        rig.settle()
    assert rig.news == ["impaired"]
    assert rig.syncs == []
    rig.disk.full = False
    rig.wait(RETRY_S)
    rig.settle()
    assert rig.news == ["impaired", "recovered"]
    assert not rig.node.replica.impaired
    assert rig.acknowledged() == 0
    rig.end_sync()
    assert rig.acknowledged() == 3
    assert rig.wait(RETRY_S) == 0


def test_a_full_disk_is_told_once_and_tried_again_once_at_a_time() -> None:
    rig = Rig()
    rig.disk.full = True
    rig.appends(2, 2)
    rig.settle()
    rig.log.settle_soon()
    rig.settle()
    assert rig.news == ["impaired"]
    assert rig.wait(RETRY_S) == 1


def test_nothing_is_handed_out_whose_rows_are_not_written() -> None:
    rig = Rig()
    rig.disk.full = True
    rig.appends(2, 2)
    delivered = rig.above.delivered
    rig.settle()
    assert rig.above.delivered == delivered


def test_without_room_to_note_a_sync_nothing_leaves_until_there_is() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()
    rig.disk.full = True
    rig.end_sync()
    assert rig.acknowledged() == 0
    assert rig.news == ["impaired"]
    rig.disk.full = False
    rig.wait(RETRY_S)
    rig.settle()
    rig.end_sync()
    assert rig.acknowledged() == 2


def test_no_timer_is_set_while_there_is_no_room() -> None:
    rig = Rig()
    rig.disk.full = True
    rig.appends(2, 2)
    rig.settle()
    rig.log.tick()
    rig.timers.clear()
    rig.settle()
    assert rig.timers == []
    rig.disk.full = False
    rig.wait(RETRY_S)
    rig.settle()
    assert len(rig.timers) == 1


# -- Snapshots -------------------------------------------------------------------------------------


def test_after_a_lost_part_no_other_is_kept_until_the_leader_begins_again() -> None:
    rig = Rig()
    rig.log.carry_out([keeps_part(0)])
    rig.disk.full = True
    rig.log.carry_out([keeps_part(1)])
    assert rig.news == ["impaired"]
    rig.disk.full = False
    rig.log.carry_out([keeps_part(2), Install(META)])
    rig.settle()
    assert parts_taken(rig) == [0]
    assert rig.syncs == []  # nothing is installed
    rig.log.carry_out([keeps_part(0), keeps_part(1)])
    assert parts_taken(rig) == [0, 0, 1]


def test_a_snapshot_is_refused_whose_rows_cannot_be_written() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.disk.full = True
    rig.log.carry_out([TakeSnapshot(META, iter([b"state"]), ())])
    assert rig.news == [
        "impaired",
        "no snapshot: the index is not complete up to this snapshot",
    ]
    assert rig.turns == []


def test_rows_from_before_an_installation_are_not_written_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    indexed: list[tuple[Accepted, ...]] = []
    state = b"".join(rig.node.machine.snapshot())
    monkeypatch.setattr(rig.journal, "install", lambda meta: iter([("file",)]))
    monkeypatch.setattr(rig.journal, "read_snapshot", lambda: (META, iter([state])))
    monkeypatch.setattr(rig.journal, "index", indexed.append)
    monkeypatch.setattr(rig.node.machine, "restore", lambda chunks: None)
    monkeypatch.setattr(rig.node, "installed", lambda meta, now_ms: [])
    rig.log.carry_out([Install(META)])
    rig.turns.pop()()
    assert [names for names, _ in rig.syncs] == [("file",)]
    accepted = Accepted(5, 5, 1, 0, 1, "topic:t", 7, 1)
    rig.log.carry_out([Applied((), (accepted,), 0)])
    rig.syncs[0][1](None)
    rig.settle()
    assert rig.news == ["installed 9"]
    assert rig.above.told[-1] == "restored"
    assert indexed == []


def test_a_snapshot_is_stored_step_by_step_and_its_syncs_are_waited_for() -> None:
    rig = Rig()
    rig.appends(2, 9, commit=9)
    rig.settle()
    rig.end_all_syncs()
    rig.log.carry_out([TakeSnapshot(META, rig.node.machine.snapshot(), ())])
    assert len(rig.turns) == 1
    rig.turns.pop()()
    assert len(rig.syncs) == 1  # nothing goes on before it ends
    assert rig.turns == []
    rig.end_all_syncs()
    assert rig.news == ["snapshot 9"]


def test_snapshots_are_stored_one_after_the_other() -> None:
    rig = Rig()
    rig.appends(2, 9, commit=9)
    rig.settle()
    rig.end_all_syncs()
    for _ in range(2):
        rig.log.carry_out([TakeSnapshot(META, rig.node.machine.snapshot(), ())])
    rig.settle()
    assert len(rig.syncs) == 1
    rig.end_all_syncs()
    assert rig.news == ["snapshot 9", "snapshot 9"]


def test_a_sync_of_a_snapshot_that_fails_ends_the_server() -> None:
    rig = Rig()
    rig.appends(2, 9, commit=9)
    rig.settle()
    rig.end_all_syncs()
    rig.log.carry_out([TakeSnapshot(META, rig.node.machine.snapshot(), ())])
    rig.settle()
    error = SyncFailedError("says the test")
    rig.end_sync(error)
    assert rig.failure is error
    assert rig.news == []


# -- Reading ---------------------------------------------------------------------------------------


def test_the_log_is_read_in_a_later_turn_and_what_is_collected_is_written_before() -> None:
    rig = Rig()
    rig.appends(2, 4)
    rig.log.carry_out([Read(LEADER, 1, 1 << 20)])
    assert len(rig.turns) == 1
    assert rig.disk.batches == 0
    rig.turns.pop()()
    assert rig.disk.batches == 1


# -- A journal in memory ---------------------------------------------------------------------------


def test_a_journal_in_memory_is_written_later_for_several_turns() -> None:
    rig = Rig(volatile=True)
    for index in range(2, 6):
        rig.appends(index, index)
        rig.settle()
    assert rig.acknowledged() == 5  # nobody waits for the journal
    assert rig.disk.batches == 0
    assert rig.wait(DEFER_S) == 1
    assert rig.disk.batches == 1
    rig.appends(6, 6)
    rig.settle()
    assert rig.wait(DEFER_S) == 1
    assert rig.disk.batches == 2


def test_a_journal_in_memory_is_written_at_once_if_somebody_reads_it() -> None:
    rig = Rig(volatile=True)
    rig.above.waiting = True
    rig.appends(2, 2)
    rig.settle()
    assert rig.disk.batches == 1


def test_a_journal_in_memory_is_written_at_once_for_a_tail() -> None:
    rig = Rig(volatile=True)
    rig.is_asked_for_a_vote()
    rig.settle()
    assert rig.disk.batches == 1
    assert len(rig.votes()) == 1
    assert rig.syncs == []


def test_what_was_left_for_later_is_not_written_after_the_end() -> None:
    rig = Rig(volatile=True)
    rig.appends(2, 2)
    rig.settle()
    rig.log.close(lambda: None)
    rig.wait(DEFER_S)
    assert rig.disk.batches == 0


# -- Time ------------------------------------------------------------------------------------------


def test_a_timer_is_set_anew_only_for_what_is_due_earlier() -> None:
    rig = Rig()
    first = rig.timers[-1]
    rig.timers.clear()
    rig.above.due_ms = first + 50
    rig.log.settle_soon()
    rig.settle()
    assert rig.timers == []
    rig.above.due_ms = first - 50
    rig.log.settle_soon()
    rig.settle()
    assert rig.timers == [first - 50]


def test_a_timer_that_rings_late_lets_what_has_arrived_be_read_first() -> None:
    rig = Rig()
    rig.time_ms = rig.timers[-1] + LATE_MS + 1
    rig.log.tick()
    assert "tick" not in rig.above.told
    assert rig.timers[-1] == rig.time_ms + READ_FIRST_MS
    rig.appends(2, 2)  # the leader is there, and was all the time
    rig.settle()
    assert rig.timers[-1] == rig.time_ms + READ_FIRST_MS
    rig.time_ms += READ_FIRST_MS
    rig.log.tick()
    rig.settle()
    assert "tick" in rig.above.told
    assert rig.node.replica.leader_id == LEADER
    assert rig.timers[-1] > rig.time_ms


def test_a_timer_that_rings_in_time_is_heard_by_all() -> None:
    rig = Rig()
    rig.time_ms = rig.timers[-1]
    rig.log.tick()
    rig.settle()
    assert rig.above.told.count("tick") == 1
    assert rig.sent != []  # it looks for votes


# -- Between homes ---------------------------------------------------------------------------------


def test_what_another_home_says_is_for_who_stands_on_the_log() -> None:
    rig = Rig()
    heard = []
    rig.above.relayed = heard.append  # type: ignore[method-assign]
    rig.hears(LEADER, Relay(1, 1, b"x"))
    assert heard == [Relay(1, 1, b"x")]
    assert rig.settles == 0


def test_a_message_that_changes_nothing_ends_no_turn_unless_another_server_leads() -> None:
    rig = Rig()
    rig.appends(2, 2)
    rig.settle()
    rig.end_all_syncs()
    rig.settles = 0
    rig.node.receive = lambda *_: []  # type: ignore[method-assign]
    rig.hears(LEADER, Appended(EPOCH, 1, 1))
    assert rig.settles == 0
    rig.node.replica.leader_id = OTHER
    rig.hears(OTHER, Appended(EPOCH, 1, 1))
    assert rig.settles == 1
