"""The driver of a whole server: what concerns its log and its clients together, and its end."""

import pytest

from antiphon.broker.machine.sessions.servers import LOCAL, REPLICATED
from antiphon.driver.clients import BARRIER_AGAIN_MS
from antiphon.driver.server import LET_GO_S, SWEEP_S
from antiphon.errors import IllegalStateError
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.journal import REACHED, Local
from antiphon.formats.server_messages import ReadRequest, TimeoutNow
from tests.driver.support.rig import LEADER, OTHER
from tests.driver.support.server_rig import Pipe, ServerRig, started

UNLOGGED = Local(whole=True, data=commands.encode_rows(((7, (cw.AckRow(1, 1, 3),)),)))
"""An acknowledgement that only the journal of this server has."""


def heirs(rig: ServerRig) -> int:
    """How often somebody was asked to take over."""
    return sum(isinstance(message, TimeoutNow) for message in rig.sent)


# -- Contexts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "known"), [(LOCAL, REPLICATED), (REPLICATED, LOCAL)])
def test_a_server_whose_cluster_keeps_its_contexts_otherwise_does_not_start(
    own: str, known: str
) -> None:
    with pytest.raises(IllegalStateError, match="cannot be changed"):
        ServerRig(own, known_contexts=known)


def test_a_server_that_learns_it_later_does_nothing_more() -> None:
    rig = started(REPLICATED)
    rig.broker.servers.decide(LOCAL)
    rig.driver.log.settle_soon()
    with pytest.raises(IllegalStateError, match="cannot be changed"):
        rig.settle()


# -- Now and then ----------------------------------------------------------------------------------


def test_what_nobody_answers_is_asked_again_now_and_then() -> None:
    rig = started()
    rig.follow()
    Pipe(rig).client.take(cw.encode(cw.AskBarrier(1)))
    for asked in (1, 2, 3):
        assert sum(isinstance(message, ReadRequest) for message in rig.sent) == asked
        rig.time_ms += BARRIER_AGAIN_MS + 1
        assert rig.wait(SWEEP_S) == 1


# -- The end ---------------------------------------------------------------------------------------


def test_a_follower_ends_at_once_and_tells_its_clients() -> None:
    rig = started()
    pipe = Pipe(rig)
    rig.end()
    assert pipe.ended
    assert rig.driver.log.closed
    assert heirs(rig) == 0


def test_the_end_is_reported_when_the_journal_has_noted_how_far_it_is_synced() -> None:
    rig = started()
    rig.campaign()
    rig.is_overtaken()
    rig.end_all_syncs()
    rig.syncs.clear()
    rig.end()
    assert [names for names, _ in rig.syncs] == [(REACHED,)]
    assert rig.ends == 0
    rig.end_all_syncs()
    assert rig.ends == 1


def test_a_leader_hands_over_to_the_server_that_has_the_whole_log_before_it_ends() -> None:
    rig = started()
    rig.campaign()
    rig.acknowledge(OTHER)
    pipe = Pipe(rig)
    rig.end()
    assert heirs(rig) == 1
    assert not rig.driver.log.closed
    assert not pipe.ended
    rig.is_overtaken()
    assert rig.driver.log.closed
    assert pipe.ended


def test_a_leader_does_not_wait_for_an_heir_whose_process_has_ended() -> None:
    rig = started()
    rig.campaign()
    rig.acknowledge(OTHER)
    rig.end()
    assert not rig.driver.log.closed
    rig.driver.log.gone(LEADER.node)  # it is not the heir
    rig.settle()
    assert not rig.driver.log.closed
    rig.driver.log.gone(OTHER.node)
    rig.settle()
    assert rig.driver.log.closed


def test_a_leader_that_nobody_answers_ends_without_an_heir() -> None:
    rig = started()
    rig.campaign()
    rig.time_ms += 60_000  # the others are silent
    rig.end()
    assert heirs(rig) == 0
    assert rig.driver.log.closed


def test_a_server_that_alone_knows_something_waits_until_the_log_has_it_or_for_a_while() -> None:
    rig = started(LOCAL, UNLOGGED)
    pipe = Pipe(rig)
    rig.end()
    assert pipe.ended
    assert not rig.driver.log.closed
    rig.wait(LET_GO_S)
    rig.settle()
    assert rig.driver.log.closed


def test_a_server_that_knows_nothing_alone_does_not_wait() -> None:
    rig = started(LOCAL)
    rig.end()
    assert rig.driver.log.closed
    assert rig.wait(LET_GO_S) == 1  # too late, and nothing more comes of it
    rig.settle()
    rig.end_all_syncs()
    assert rig.ends == 1


def test_a_server_that_has_failed_is_closed_once() -> None:
    rig = started()
    pipe = Pipe(rig)
    rig.driver.close()
    rig.driver.close()
    rig.settle()
    rig.end_all_syncs()
    assert pipe.ended
    assert rig.ends == 0
