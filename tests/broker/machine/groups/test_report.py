"""The report of groups for operators."""

from antiphon.broker.machine.groups.report import groups
from antiphon.formats import protocol as cw
from tests.broker.machine.groups.test_membership import A, B, G, bare, control, join
from tests.broker.support.bare_broker import BareBroker


def members(r: BareBroker) -> dict[str, cw.MemberStatus]:
    (group,) = groups(r.broker)
    return {member.name: member for member in group.members}


def test_a_group_and_its_members() -> None:
    r = bare(A, B)
    assert groups(r.broker) == ()
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.publish(A, G, 3)
    (group,) = groups(r.broker)
    assert (group.name, group.view_id, group.messages) == ("g", 2, 3)
    assert [m.name for m in group.members] == ["a", "b"]
    a, b = group.members
    assert (a.durable, a.joined, a.why, a.suspected) == (False, 1, "", False)
    assert (b.durable, b.joined) == (True, 2)
    assert a.node == b.node != 0
    assert (a.behind, a.events) == (3, 2)
    assert (b.behind, b.events) == (3, 1)


def test_who_is_away_or_suspected_and_why() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    control(r, A, JMS_join_process="c", JMS_subscription="durable")
    assert members(r)["c"].why == "closed in order, or invited and not come yet"
    r.detach(B)
    lost = members(r)["b"]
    assert (lost.node, lost.suspected) == (0, False)
    assert lost.why == "its connection is lost; suspected in 1.0 s"
    r.wait(1001)
    lost = members(r)["b"]
    assert lost.suspected
    assert lost.why.startswith("its connection is lost; removed in ")
