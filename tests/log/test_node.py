"""Between the log and the state machine."""

from random import Random

import pytest

from antiphon.formats.entry import Entry, Kind, ReplicaId
from antiphon.formats.server_messages import Appended, Via, Vote
from antiphon.log.effects import Applied, Deliver, ReadReady, Rejected, Send
from antiphon.log.node import Node
from antiphon.log.recovered import Recovered
from antiphon.log.settings import Settings
from antiphon.log.state_machine import PackMachine


def tick(index: int) -> Entry:
    return Entry(index, 1, index, Kind.TICK, b"")


def test_what_one_step_delivers_is_applied_as_one() -> None:
    node = Node(1, {1: "a", 2: "b"}, Recovered(1), PackMachine(), Settings(), Random(1), 0)
    steps = [
        Deliver((tick(1),)),
        ReadReady(7, 1),
        Rejected((), "between"),
        Deliver((tick(2), tick(3))),
        ReadReady(8, 4),
    ]
    rejected, applied, ready = node._run(steps)
    assert isinstance(rejected, Rejected)
    # Nobody hears of entry 1 and finds a state that has 2 and 3 in it as well.
    assert isinstance(applied, Applied)
    assert [entry.index for entry in applied.entries] == [1, 2, 3]
    assert ready == ReadReady(7, 1)


@pytest.mark.parametrize("message", [Vote(1, True, False), Appended(1, 7, 1)])
def test_what_waits_for_a_sync_cannot_hide_in_a_detour(message: Vote | Appended) -> None:
    node = Node(1, {1: "a", 2: "b"}, Recovered(1), PackMachine(), Settings(), Random(1), 0)
    node.routes.detours = {2: 3}
    with pytest.raises(AssertionError, match="leaves before its sync"):
        node._run([Send(ReplicaId(2, 9), message)])
    (hidden,) = node._run([Send(ReplicaId(2, 9), Vote(1, False, False))])
    assert isinstance(hidden, Send)
    assert isinstance(hidden.message, Via)
