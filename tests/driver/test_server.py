"""The driver of a whole server: what concerns its log and its clients together, and its end."""

import pytest

from antiphon.broker.machine.sessions.servers import LOCAL, REPLICATED
from antiphon.driver.clients import BARRIER_AGAIN_MS
from antiphon.driver.server import LET_GO_S, SWEEP_S
from antiphon.errors import IllegalStateError
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Local
from antiphon.formats.notes import REACHED
from antiphon.formats.server_messages import ReadRequest, TimeoutNow
from tests.driver.support.bare_log import LEADER, OTHER
from tests.driver.support.bare_server import BareServer, Pipe, started

UNLOGGED = Local(whole=True, data=commands.encode_rows(((7, (cw.AckRow(1, 1, 3),)),)))
"""An acknowledgement that only the journal of this server has."""


def heirs(bare: BareServer) -> int:
    """How often somebody was asked to take over."""
    return sum(isinstance(message, TimeoutNow) for message in bare.sent)


# -- Contexts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "known"), [(LOCAL, REPLICATED), (REPLICATED, LOCAL)])
def test_a_server_whose_cluster_keeps_its_contexts_otherwise_does_not_start(
    own: str, known: str
) -> None:
    with pytest.raises(IllegalStateError, match="cannot be changed"):
        BareServer(own, known_contexts=known)


def test_a_server_that_learns_it_later_does_nothing_more() -> None:
    bare = started(REPLICATED)
    bare.broker.servers.decide(LOCAL)
    bare.driver.log.settle_soon()
    with pytest.raises(IllegalStateError, match="cannot be changed"):
        bare.settle()


# -- Now and then ----------------------------------------------------------------------------------


def test_what_nobody_answers_is_asked_again_now_and_then() -> None:
    bare = started()
    bare.follow()
    Pipe(bare).client.take(cw.encode(cw.AskBarrier(1)))
    for asked in (1, 2, 3):
        assert sum(isinstance(message, ReadRequest) for message in bare.sent) == asked
        bare.time_ms += BARRIER_AGAIN_MS + 1
        assert bare.wait(SWEEP_S) == 1


# -- The end ---------------------------------------------------------------------------------------


def test_a_follower_ends_at_once_and_tells_its_clients() -> None:
    bare = started()
    pipe = Pipe(bare)
    bare.end()
    assert pipe.ended
    assert bare.driver.log.closed
    assert heirs(bare) == 0


def test_the_end_is_reported_when_the_journal_has_noted_how_far_it_is_synced() -> None:
    bare = started()
    bare.campaign()
    bare.is_overtaken()
    bare.end_all_syncs()
    bare.syncs.clear()
    bare.end()
    assert [names for names, _ in bare.syncs] == [(REACHED,)]
    assert bare.ends == 0
    bare.end_all_syncs()
    assert bare.ends == 1


def test_a_leader_hands_over_to_the_server_that_has_the_whole_log_before_it_ends() -> None:
    bare = started()
    bare.campaign()
    bare.acknowledge(OTHER)
    pipe = Pipe(bare)
    bare.end()
    assert heirs(bare) == 1
    assert not bare.driver.log.closed
    assert not pipe.ended
    bare.is_overtaken()
    assert bare.driver.log.closed
    assert pipe.ended


def test_a_leader_does_not_wait_for_an_heir_whose_process_has_ended() -> None:
    bare = started()
    bare.campaign()
    bare.acknowledge(OTHER)
    bare.end()
    assert not bare.driver.log.closed
    bare.driver.log.gone(LEADER.node)  # it is not the heir
    bare.settle()
    assert not bare.driver.log.closed
    bare.driver.log.gone(OTHER.node)
    bare.settle()
    assert bare.driver.log.closed


def test_a_leader_that_nobody_answers_ends_without_an_heir() -> None:
    bare = started()
    bare.campaign()
    bare.time_ms += 60_000  # the others are silent
    bare.end()
    assert heirs(bare) == 0
    assert bare.driver.log.closed


def test_a_server_that_alone_knows_something_waits_until_the_log_has_it_or_for_a_while() -> None:
    bare = started(LOCAL, UNLOGGED)
    pipe = Pipe(bare)
    bare.end()
    assert pipe.ended
    assert not bare.driver.log.closed
    bare.wait(LET_GO_S)
    bare.settle()
    assert bare.driver.log.closed


def test_a_server_that_knows_nothing_alone_does_not_wait() -> None:
    bare = started(LOCAL)
    bare.end()
    assert bare.driver.log.closed
    assert bare.wait(LET_GO_S) == 1  # too late, and nothing more comes of it
    bare.settle()
    bare.end_all_syncs()
    assert bare.ends == 1


def test_a_server_that_has_failed_is_closed_once() -> None:
    bare = started()
    pipe = Pipe(bare)
    bare.driver.close()
    bare.driver.close()
    bare.settle()
    bare.end_all_syncs()
    assert pipe.ended
    assert bare.ends == 0
