"""Shared subscriptions of groups: their consumers are one member, and divide its messages."""

import pytest

from antiphon.broker.machine.groups.suspicion import SUSPECT_MS
from antiphon.broker.machine.machine import Broker
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from tests.broker.machine.groups.test_membership import A, B, C, G, control, join, last
from tests.broker.support.bare_broker import BareBroker


def bare() -> BareBroker:
    """A member, and two sessions without a client id that share a subscription."""
    r = BareBroker()
    r.attach(A)
    join(r, A, "a")
    for session in (B, C):
        r.attach(session)
    return r


def share(r: BareBroker, session: int, *, durable: bool = False, consumer: int = 1) -> cw.Result:
    name = "both" if durable else ""
    return r.open(session, consumer, G, shared="both", durable=name, prefetch=1)


def members(r: BareBroker) -> tuple[str, ...]:
    return tuple(r.broker.groups[G].members)


def test_they_are_one_member_and_divide_its_messages() -> None:
    r = bare()
    share(r, B)
    assert (last(r).view, last(r).members, last(r).came) == (2, ("a", "both"), ("both",))
    share(r, C)
    assert r.broker.groups[G].view == 2
    r.publish(A, G, 2)
    assert [r.holds(B, 1), r.holds(C, 1)] == [[(1, 1, 1)], [(2, 2, 1)]]
    assert r.accepted[0].view == 2


def test_the_member_leaves_with_the_last_of_them() -> None:
    r = bare()
    share(r, B)
    share(r, C)
    r.close_consumer(B, 1)
    assert members(r) == ("a", "both")
    r.close(C)
    assert (members(r), last(r).went) == (("a",), ("both",))
    assert r.broker.queues == {}


def test_a_durable_one_stays_and_misses_nothing() -> None:
    r = bare()
    share(r, B, durable=True)
    r.close(B)
    assert members(r) == ("a", "both")
    assert not r.broker.groups[G].members["both"].suspected
    r.publish(A, G, 1)
    view = r.broker.groups[G].view
    share(r, C, durable=True)
    assert (r.holds(C, 1), r.broker.groups[G].view) == ([(1, 1, 1)], view)


def test_it_is_suspected_when_all_are_cut_off_and_not_before() -> None:
    r = bare()
    share(r, B)
    share(r, C)
    r.detach(B)
    r.wait(SUSPECT_MS)
    assert not r.broker.groups[G].members["both"].suspected
    r.detach(C)
    r.wait(SUSPECT_MS)
    assert (last(r).kind, last(r).came) == (cw.SUSPICION, ("both",))
    r.attach(C, resume=True, attempt=2)
    assert (last(r).kind, last(r).went) == (cw.SUSPICION, ("both",))


def test_a_lost_one_stays_suspected_and_comes_back_as_another() -> None:
    r = bare()
    share(r, B)
    r.detach(B)
    r.wait(10_000)  # its lease
    assert r.broker.groups[G].members["both"].suspected
    assert r.broker.queues == {}  # nothing is kept for it
    share(r, C)
    assert (last(r).came, last(r).went) == (("both",), ("both",))
    r.publish(A, G)
    assert r.holds(C, 1) == [(1, 1, 1)]


def test_it_is_removed_like_any_other() -> None:
    r = bare()
    share(r, B)
    share(r, C)
    r.publish(A, G, 2)
    control(r, A, JMS_remove="both")
    assert (members(r), last(r).went) == (("a",), ("both",))
    assert r.broker.queues == {}
    assert r.broker.sessions[B].consumers == r.broker.sessions[C].consumers == {}
    r.ack(B, (1, 1, 1))  # it does not know yet
    r.close(B)
    r.close(C)


@pytest.mark.parametrize("durable", [False, True])
def test_names_are_unique_in_a_group(durable: bool) -> None:
    r = bare()
    assert join(r, B, "both", durable=durable).code == ""
    assert share(r, C).code == "IllegalStateError"
    assert share(r, C, durable=True).code == "IllegalStateError"
    r = bare()
    share(r, B, durable=durable)
    assert join(r, C, "both", durable=durable).code == "IllegalStateError"
    if durable:
        r.close(B)
        assert join(r, C, "both", durable=True).code == "IllegalStateError"


def test_events_are_not_kept_for_it() -> None:
    r = bare()
    share(r, B, durable=True)
    r.close(B)
    row = cw.AckRow(1, 0, 0, r.broker.groups[G].serial)
    r.command(commands.Acks(1, 1, 1, ((A, (row,)),)))
    assert r.broker.groups[G].events == []


def test_a_snapshot_has_it() -> None:
    r = bare()
    share(r, B)
    share(r, C)
    r.publish(A, G, 3)
    chunks = r.snapshot()
    other = Broker()
    other.restore(iter(chunks))
    assert list(other.snapshot()) == chunks
    assert other.groups[G].members["both"].shared in other.queues
