"""Groups in the state machine: views, suspicion, removal, names."""

import msgspec
import pytest

from antiphon.broker.machine.groups import membership as rules
from antiphon.broker.machine.groups import registry
from antiphon.broker.machine.groups.suspicion import SUSPECT_MS
from antiphon.formats import columns, commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Kind
from antiphon.model.conflicts import ConflictRelation
from tests.broker.support.bare_broker import BareBroker

A, B, C = 0xA, 0xB, 0xC
G = "topic:g"


def bare(*sessions: int) -> BareBroker:
    one = BareBroker()
    for session in sessions:
        one.attach(session, client_id=f"c{session:x}")
    return one


def join(
    r: BareBroker, session: int, name: str, *, durable: bool = False, consumer: int = 1
) -> cw.Result:
    return r.ask(session, cw.Join(consumer, G, 100, name, durable))


def control(r: BareBroker, session: int, body: bytes = b"", **properties: str | int) -> None:
    extra = columns.encode_extra(columns.Extra(properties=dict(properties)))
    data, flags = columns.encode([columns.Outgoing(columns.TEXT, body, extra, 0)])
    sequence = r.broker.last_sequence(session) + 1
    r.sequences[session, 0] = sequence
    payload = pack.encode(G, 1, data, session, sequence, 0, flags | pack.CONTROL)
    r.entry(Kind.PACK, payload)


def told(r: BareBroker) -> list[tuple[int, tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """Kind, members, came, went of every event that is kept."""
    return [(e.kind, e.members, e.came, e.went) for e in r.broker.groups[G].events]


def last(r: BareBroker) -> cw.GroupEvent:
    return r.broker.groups[G].events[-1]


# -- Views --------------------------------------------------------------------------------------


def test_views_are_numbered_and_stand_between_messages() -> None:
    r = bare(A, B)
    assert join(r, A, "a").value == 1
    r.publish(A, G, 3)
    assert r.accepted[0].view == 1
    result = join(r, B, "b")
    assert msgspec.msgpack.decode(result.data)[0] == "b"
    assert (last(r).view, last(r).position, last(r).members) == (2, 3, ("a", "b"))
    assert (last(r).came, last(r).went) == (("b",), ())
    r.publish(C, G) if C in r.broker.sessions else r.publish(A, G)
    assert r.accepted[0].view == 2


def test_a_member_gets_what_comes_after_its_view() -> None:
    r = bare(A, B)
    join(r, A, "a")
    r.publish(A, G, 2)
    join(r, B, "b")
    subscription = r.subscription(B, 1)
    assert subscription.floor == 2
    member = r.broker.groups[G].members["b"]
    assert [e.view for e in r.broker.groups[G].after(member.acked)] == [2]


def test_closing_a_non_durable_member_is_leaving() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.close_consumer(B, 1)
    assert (last(r).members, last(r).went) == (("a",), ("b",))
    r.close(A)
    assert G not in r.broker.groups
    assert r.broker.topics.subscriptions == {}


def test_closing_a_durable_member_keeps_it_in_the_view_and_its_messages() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.close(B)
    assert tuple(r.broker.groups[G].members) == ("a", "b")
    r.publish(A, G, 2)
    assert (1, 2) in r.broker.live()
    r.attach(C)
    view = r.broker.groups[G].view
    assert join(r, C, "b", durable=True).value == view  # no new view
    assert r.subscription(C, 1).runs(1, 2, 0) == [(1, 2, 1)]


def test_a_durable_member_can_leave() -> None:
    r = bare(A)
    join(r, A, "a", durable=True)
    assert r.ask(A, cw.Leave(1)).code == ""
    assert G not in r.broker.groups
    assert r.ask(A, cw.Leave(1)).code == "IllegalStateError"


def test_events_are_kept_until_every_member_has_acknowledged_them() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.command(commands.Acks(1, 1, 1, ((A, (cw.AckRow(1, 0, 0, 2),)),)))
    assert len(told(r)) == 1
    r.close(B)
    join(r, A, "c", consumer=2)
    r.command(commands.Acks(1, 1, 2, ((A, (cw.AckRow(1, 0, 0, 3), cw.AckRow(2, 0, 0, 3))),)))
    assert [e.view for e in r.broker.groups[G].events] == [2, 3]  # for b, when it is back


# -- Names --------------------------------------------------------------------------------------


def test_the_name_of_a_live_member_is_taken() -> None:
    r = bare(A, B)
    join(r, A, "a")
    assert join(r, B, "a").code == "IllegalStateError"
    assert r.broker.groups[G].view == 1


@pytest.mark.parametrize("name", ["two words", "x" * 2000, "tab\t"])
def test_a_name_has_no_blanks(name: str) -> None:
    r = bare(A)
    assert join(r, A, name).code == "IllegalStateError"
    assert G not in r.broker.groups or not r.broker.groups[G].members


def test_a_suspected_non_durable_member_is_replaced_in_one_view() -> None:
    r = bare(A, B)
    join(r, A, "a")
    r.detach(A)
    r.wait(SUSPECT_MS)
    join(r, B, "a")
    assert (last(r).members, last(r).came, last(r).went) == (("a",), ("a",), ("a",))
    r.publish(B, G)
    assert 1 not in r.broker.sessions[A].consumers


def test_a_group_is_no_plain_topic_and_a_plain_topic_no_group() -> None:
    r = bare(A)
    r.open(A, 5, "topic:plain")
    assert r.ask(A, cw.CreateGroup("topic:plain")).code == "InvalidDestinationError"
    assert r.ask(A, cw.CreateGroup("queue:q")).code == "InvalidDestinationError"
    assert r.ask(A, cw.CreateGroup("topic:a.*")).code == "InvalidDestinationError"
    assert r.ask(A, cw.CreateGroup(G)).code == ""
    assert r.open(A, 6, G).code == ""  # subscribing is joining
    assert len(r.broker.groups[G].members) == 1


def test_what_a_group_is_cannot_be_said_twice_differently() -> None:
    r = bare(A)
    reliable = ConflictRelation.RELIABLE.to_json()
    assert r.ask(A, cw.CreateGroup(G, reliable, 5000)).data.decode() == reliable
    assert r.ask(A, cw.CreateGroup(G)).data.decode() == reliable
    assert r.ask(A, cw.CreateGroup(G, reliable, 5000)).code == ""
    atomic = ConflictRelation.ATOMIC.to_json()
    assert r.ask(A, cw.CreateGroup(G, atomic)).code == "IllegalStateError"
    assert r.ask(A, cw.CreateGroup(G, "", 1)).code == "IllegalStateError"
    assert r.ask(A, cw.CreateGroup("topic:h", "nonsense")).code == "IllegalStateError"


# -- Suspicion ----------------------------------------------------------------------------------


def test_a_short_loss_of_connection_is_not_noticed() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    r.wait(SUSPECT_MS - 10)
    r.attach(B, resume=True, attempt=2)
    r.wait(SUSPECT_MS)
    assert [kind for kind, *_ in told(r)] == [cw.VIEW, cw.VIEW]


def test_suspicion_and_its_withdrawal_exclude_nobody() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    r.wait(SUSPECT_MS)
    assert (last(r).kind, last(r).came, last(r).members) == (cw.SUSPICION, ("b",), ("a", "b"))
    r.attach(B, resume=True, attempt=2)
    assert (last(r).kind, last(r).went, last(r).view) == (cw.SUSPICION, ("b",), 2)
    assert not r.broker.groups[G].members["b"].suspected


def test_a_suspected_non_durable_member_is_removed_after_a_while() -> None:
    r = bare(A)
    r.attach(B, lease_ms=5_000)
    r.ask(A, cw.CreateGroup(G, "", 20_000))
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    for _ in range(19):
        r.wait(1000)
        r.command(commands.Renew(1, 1))
    assert B not in r.broker.sessions  # its lease is over, and still it is in the view
    assert "b" in r.broker.groups[G].members
    for _ in range(4):
        r.wait(1000)
        r.command(commands.Renew(1, 1))
    assert (last(r).kind, last(r).went) == (cw.VIEW, ("b",))


def test_a_durable_member_is_never_removed_because_it_crashed() -> None:
    r = bare(A, B)
    r.ask(A, cw.CreateGroup(G, "", 1_000))
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.detach(B)
    for _ in range(100):
        r.wait(1000)
        r.command(commands.Renew(1, 1))
    assert (last(r).kind, last(r).came) == (cw.SUSPICION, ("b",))
    assert "b" in r.broker.groups[G].members
    r.publish(A, G, 2)
    r.attach(C)
    join(r, C, "b", durable=True)
    assert (last(r).kind, last(r).went) == (cw.SUSPICION, ("b",))
    assert r.subscription(C, 1).runs(1, 2, 0) == [(1, 2, 1)]


def test_without_a_leader_nobody_is_suspected() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    r.stamp += 100_000
    r.new_leader()
    r.attach(B, resume=True, attempt=2)
    assert [kind for kind, *_ in told(r)] == [cw.VIEW, cw.VIEW]


# -- What members say ---------------------------------------------------------------------------


def test_members_are_removed_by_a_message_that_nobody_receives() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    before = r.broker.position
    control(r, A, JMS_remove="b nobody")
    assert (last(r).went, last(r).members) == (("b",), ("a",))
    assert r.accepted == []
    assert r.broker.position == before
    r.publish(A, G, 2)
    assert r.subscription(B, 1).runs(1, 2, 0) == []  # it was told, and gets nothing more
    assert r.broker.live() == ((1, 2),)
    r.ack(A, (1, 0, 2))
    assert r.broker.live() == ()
    r.close_consumer(B, 1)
    assert r.broker.groups[G].departed == []
    assert B in r.broker.sessions
    assert len(r.broker.topics.subscriptions) == 1


def test_a_removal_does_not_concern_who_joined_after_it_was_decided() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    control(r, A, JMS_remove="b", JMS_in_view=2)
    join(r, C, "b")
    control(r, A, JMS_remove="b", JMS_in_view=2)  # the other members decide the same
    assert tuple(r.broker.groups[G].members) == ("a", "b")
    r.close_consumer(B, 1)  # of the one that was removed
    assert r.subscription(C, 1) is not None


def test_a_durable_member_can_be_invited() -> None:
    r = bare(A, B)
    join(r, A, "a")
    control(r, A, JMS_join_process="b", JMS_subscription="durable")
    assert last(r).members == ("a", "b")
    r.publish(A, G, 2)
    join(r, B, "b", durable=True)
    assert r.broker.groups[G].view == 2
    assert r.subscription(B, 1).runs(1, 2, 0) == [(1, 2, 1)]


def test_a_member_that_is_invited_and_not_durable_is_suspected_and_removed_in_time() -> None:
    r = bare(A, B)
    join(r, A, "a")
    control(r, A, JMS_join_process="b c", JMS_subscription="nondurable")
    assert [e.kind for e in r.broker.groups[G].events][-3:] == [cw.VIEW, cw.SUSPICION, cw.SUSPICION]
    r.publish(A, G, 2)
    join(r, B, "b")
    assert (last(r).came, last(r).went) == (("b",), ("b",))
    assert r.subscription(B, 1).runs(1, 2, 0) == []
    r.wait(rules.REMOVE_AFTER_MS)
    assert tuple(r.broker.groups[G].members) == ("a", "b")


def test_nobody_is_invited_under_an_impossible_name() -> None:
    r = bare(A)
    join(r, A, "a")
    control(r, A, JMS_join_process=f"{'x' * 2000} \x07 a", JMS_subscription="durable")
    assert tuple(r.broker.groups[G].members) == ("a",)
    assert r.broker.groups[G].view == 1


def test_the_relation_changes_at_one_place() -> None:
    r = bare(A)
    join(r, A, "a")
    r.publish(A, G)
    relation = ConflictRelation.RELIABLE_ATOMIC.to_json()
    control(r, A, relation.encode(), JMS_set_conflict="")
    assert (last(r).kind, last(r).position, last(r).relation) == (cw.RELATION, 1, relation)
    control(r, A, b"nonsense", JMS_set_conflict="")
    assert r.broker.groups[G].relation == relation


def test_control_messages_of_a_plain_topic_are_refused() -> None:
    r = bare(A)
    control(r, A, JMS_remove="b")
    assert r.broker.sessions[A].refusals[0].code == "InvalidDestinationError"


# -- Groups come and go ---------------------------------------------------------------------------


def restored(r: BareBroker) -> BareBroker:
    other = BareBroker()
    other.broker.restore(iter(r.snapshot()))
    assert list(other.broker.snapshot()) == r.snapshot()
    return other


def test_a_group_goes_with_its_last_member() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.publish(A, G, 2)
    r.close_consumer(A, 1)
    assert tuple(r.broker.groups[G].members) == ("b",)
    r.close_consumer(B, 1)
    assert r.broker.groups == {}
    restored(r)


@pytest.mark.parametrize("durable", [True, False])
def test_a_group_stays_while_it_has_a_member_that_is_not_there(durable: bool) -> None:
    r = bare(A)
    join(r, A, "a", durable=durable)
    r.detach(A)
    r.wait(10_000)  # the lease
    assert A not in r.broker.sessions
    assert tuple(r.broker.groups[G].members) == ("a",)
    r.wait(rules.REMOVE_AFTER_MS)
    assert (G in r.broker.groups) == durable


def test_a_group_stays_until_the_removed_know_that_they_are() -> None:
    r = bare(A, B)
    join(r, A, "a")
    control(r, B, JMS_remove="a")
    assert r.broker.groups[G].members == {}
    assert last(r).went == ("a",)
    r.close_consumer(A, 1)
    assert r.broker.groups == {}


def test_a_shared_member_takes_its_group_along() -> None:
    r = bare(A)
    r.ask(A, cw.CreateGroup(G))
    r.ask(A, cw.OpenConsumer(1, G, 10, shared="s"))
    assert tuple(r.broker.groups[G].members) == ("s",)
    r.close_consumer(A, 1)
    assert r.broker.groups == {}


def test_a_group_that_nobody_joins_is_kept_for_a_while() -> None:
    r = bare(A)
    r.ask(A, cw.CreateGroup(G))
    r.close(A)
    r = restored_in_place(r)
    r.wait(rules.KEPT_MS - 100)
    assert G in r.broker.groups
    r.wait(100)
    assert r.broker.groups == {}


def restored_in_place(r: BareBroker) -> BareBroker:
    """The same server, which has got its state from another one."""
    restored(r)
    chunks = r.snapshot()
    r.broker.restore(iter(chunks))
    return r


def test_naming_a_group_again_keeps_it_for_longer() -> None:
    r = bare(A)
    r.ask(A, cw.CreateGroup(G))
    r.wait(rules.KEPT_MS // 2)
    r.attach(B)
    r.ask(B, cw.CreateGroup(G))
    r.wait(rules.KEPT_MS - 100)
    assert G in r.broker.groups
    r.wait(200)
    assert r.broker.groups == {}


def test_a_join_that_is_refused_leaves_no_group() -> None:
    r = bare(A)
    assert join(r, A, "no name").code == "IllegalStateError"
    assert r.ask(A, cw.Join(1, G, 100, "a", relation="nonsense")).code == "IllegalStateError"
    assert r.ask(A, cw.CreateGroup(G, "nonsense")).code == "IllegalStateError"
    assert r.broker.groups == {}


def test_a_name_begins_anew_and_its_views_are_not_numbered_twice() -> None:
    r = bare(A, B)
    r.ask(A, cw.CreateGroup(G, ConflictRelation.RELIABLE.to_json(), 5_000))
    join(r, A, "a")
    r.close_consumer(A, 1)  # with view 2
    r = restored_in_place(r)
    assert join(r, B, "b").value == 3
    group = r.broker.groups[G]
    assert (group.relation, group.remove_after_ms) == (
        ConflictRelation.ATOMIC.to_json(),
        rules.REMOVE_AFTER_MS,
    )
    assert group.events[0].serial == 3
    control(r, A, JMS_remove="b", JMS_in_view=2)  # decided in the group's earlier life
    assert tuple(group.members) == ("b",)


def test_old_names_are_forgotten_and_their_numbers_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "PAST_MAX", 2)
    r = bare(A)
    for number, name in enumerate("gxyz"):
        r.ask(A, cw.Join(number + 1, f"topic:{name}", 100, "a"))
        r.close_consumer(A, number + 1)
    assert list(r.broker.groups.past) == ["topic:y", "topic:z"]
    r = restored_in_place(r)
    assert r.ask(A, cw.Join(9, "topic:y", 100, "a")).value == 3
    assert r.ask(A, cw.Join(10, "topic:g", 100, "a")).value == 3
    assert r.ask(A, cw.Join(11, "topic:new", 100, "a")).value == 3


def test_what_was_said_to_a_group_that_is_over_is_dropped() -> None:
    r = bare(A, B)
    join(r, A, "a")
    extra = columns.encode_extra(
        columns.Extra(properties={"JMS_remove": "a"}, delivery_delay=1_000)
    )
    data, flags = columns.encode([columns.Outgoing(columns.TEXT, b"", extra, 0)])
    payload = pack.encode(G, 1, data, B, 1, 0, flags | pack.CONTROL | pack.DELAYED)
    r.entry(Kind.PACK, payload)
    assert r.broker.pending.delayed
    r.close_consumer(A, 1)
    r.wait(2_000)
    assert not r.broker.pending.delayed
    assert r.broker.groups == {}


def test_a_group_of_an_old_snapshot_that_is_empty_goes() -> None:
    r = bare(A)
    join(r, A, "a", durable=True)
    group = r.broker.groups[G]
    group.members.clear()
    r.broker.groups[G] = type(group).from_state(group.state()[:9])
    r = restored_in_place(r)
    r.attach(B)
    assert r.broker.groups == {}


# -- Deleting -------------------------------------------------------------------------------------


def test_deleting_removes_who_is_not_there_with_one_view() -> None:
    r = bare(A, B, C)
    join(r, A, "a", durable=True)
    join(r, B, "b", durable=True)
    r.close_consumer(A, 1)
    assert "live members: b" in r.ask(C, cw.DeleteGroup(G)).text
    r.close_consumer(B, 1)
    view = r.broker.groups[G].view
    assert r.ask(C, cw.DeleteGroup(G)).code == ""
    assert r.broker.groups == {}
    assert r.broker.topics.subscriptions == {}
    assert r.broker.groups.past[G].view == view + 1
    assert "there is no group" in r.ask(C, cw.DeleteGroup(G)).text
    assert join(r, A, "a", durable=True).value == view + 2  # another member


def test_deleting_by_force_tells_the_members() -> None:
    r = bare(A, B, C)
    join(r, A, "a", durable=True)
    join(r, B, "b")
    assert r.ask(C, cw.DeleteGroup(G, force=True)).code == ""
    assert (last(r).members, last(r).went) == ((), ("a", "b"))
    r.close_consumer(A, 1)
    r.close_consumer(B, 1)
    assert r.broker.groups == {}
    assert r.broker.topics.subscriptions == {}


def test_deleting_a_group_that_was_only_named() -> None:
    r = bare(A)
    r.ask(A, cw.CreateGroup(G))
    assert r.ask(A, cw.DeleteGroup(G)).code == ""
    assert r.broker.groups == {}


# -- How a group is to be -------------------------------------------------------------------------


def test_who_only_uses_a_group_fixes_nothing() -> None:
    r = bare(A, B)
    relation = ConflictRelation.RELIABLE.to_json()
    r.ask(A, cw.CreateGroup(G))
    join(r, A, "a")
    assert r.ask(B, cw.CreateGroup(G, relation, 5_000)).code == ""
    group = r.broker.groups[G]
    assert (group.relation, group.remove_after_ms) == (relation, 5_000)
    assert (last(r).kind, last(r).relation) == (cw.RELATION, relation)
    r = restored_in_place(r)
    assert r.ask(B, cw.CreateGroup(G)).code == ""
    assert "remove_after=5, not 6." in r.ask(B, cw.CreateGroup(G, "", 6_000)).text
    atomic = ConflictRelation.ATOMIC.to_json()
    assert "conflict relation" in r.ask(B, cw.CreateGroup(G, atomic)).text


def test_the_default_is_fixed_by_saying_it() -> None:
    r = bare(A)
    assert r.ask(A, cw.CreateGroup(G, "", rules.REMOVE_AFTER_MS)).code == ""
    assert "remove_after=60, not 5." in r.ask(A, cw.CreateGroup(G, "", 5_000)).text


def test_a_time_that_is_given_later_counts_for_suspects() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    r.wait(SUSPECT_MS)
    assert r.broker.groups[G].members["b"].suspected
    r.ask(A, cw.CreateGroup(G, "", 5_000))
    r.wait(5_000)
    assert tuple(r.broker.groups[G].members) == ("a",)


def test_who_joins_says_again_how_the_group_is_to_be() -> None:
    r = bare(A)
    relation = ConflictRelation.RELIABLE.to_json()
    asked = cw.Join(1, G, 100, "a", relation=relation, remove_after_ms=5_000)
    assert r.ask(A, asked).code == ""
    group = r.broker.groups[G]
    assert (group.relation, group.remove_after_ms) == (relation, 5_000)
    assert len(group.events) == 1  # its view: there was nobody to tell of the relation
    again = cw.Join(2, G, 100, "b", remove_after_ms=6_000)
    assert r.ask(A, again).code == ""
    assert group.remove_after_ms == 5_000


def test_a_group_survives_a_snapshot() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.detach(B)
    r.wait(SUSPECT_MS)
    control(r, A, JMS_join_process="c", JMS_subscription="durable")
    other = type(r.broker)()
    other.restore(iter(r.snapshot()))
    assert list(other.snapshot()) == r.snapshot()
    assert other.next_deadline() == r.broker.next_deadline()


def test_a_member_that_cannot_go_on_is_suspected_and_stays_in_the_view() -> None:
    r = bare(A, B, C)
    for session, name, durable in ((A, "a", False), (B, "b", False), (C, "c", True)):
        join(r, session, name, durable=durable)
    r.publish(A, G, 2)
    for session, name in ((B, "b"), (C, "c")):
        assert r.ask(session, cw.CloseConsumer(1, failed=True)).code == ""
        assert (last(r).kind, last(r).came) == (cw.SUSPICION, (name,))
    assert last(r).members == ("a", "b", "c")
    assert (1, 2) in r.broker.live()  # for the durable one


def test_the_last_member_is_told_that_it_is_removed() -> None:
    r = bare(A)
    join(r, A, "a")
    r.command(commands.Acks(1, 1, 1, ((A, (cw.AckRow(1, 0, 0, 1),)),)))
    control(r, A, JMS_remove="a")
    assert [(e.view, e.went) for e in r.broker.groups[G].events] == [(2, ("a",))]
    r.command(commands.Acks(1, 1, 2, ((A, (cw.AckRow(1, 0, 0, 2),)),)))
    assert r.broker.groups[G].events == []


def test_nothing_is_kept_for_who_was_removed_and_is_lost() -> None:
    r = bare(A)
    r.attach(B, lease_ms=2_000)
    join(r, A, "a")
    join(r, B, "b")
    control(r, A, JMS_remove="b")
    r.command(commands.Acks(1, 1, 1, ((A, (cw.AckRow(1, 0, 0, 3),)),)))
    assert len(told(r)) == 2
    r.detach(B)
    r.wait(2_000)
    assert B not in r.broker.sessions
    assert r.broker.groups[G].events == []


def test_leaving_after_being_removed_leaves_nothing_behind() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    control(r, A, JMS_remove="b")
    r.command(commands.Acks(1, 1, 1, ((A, (cw.AckRow(1, 0, 0, 3),)),)))
    assert r.ask(B, cw.Leave(1)).code == ""
    assert r.broker.groups[G].departed == []
    assert r.broker.groups[G].events == []
    assert len(r.broker.topics.subscriptions) == 1


def test_who_takes_over_a_durable_member_is_told_what_may_have_been_seen() -> None:
    r = bare(A, B)
    join(r, A, "a", durable=True)
    r.publish(B, G, 2)
    r.detach(A)
    r.wait(SUSPECT_MS)
    assert A in r.broker.sessions
    join(r, B, "a", durable=True)
    r.publish(B, G)
    assert r.subscription(B, 1).runs(1, 3, 0) == [(1, 2, 2), (3, 3, 1)]
    assert r.broker.sessions[A].consumers == {}


def test_who_was_removed_gets_nothing_of_whoever_has_its_name_next() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.publish(A, G)
    control(r, A, JMS_remove="b")
    control(r, A, JMS_join_process="b", JMS_subscription="durable")
    r.publish(A, G)
    assert r.subscription(B, 1).runs(1, 1, 0) == [(1, 1, 1)]
    assert r.subscription(B, 1).runs(2, 2, 1) == []
    r.ack(B, (1, 0, 1))
    r.close_consumer(B, 1)
    join(r, B, "b", durable=True, consumer=2)
    assert r.subscription(B, 2).runs(1, 2, 0) == [(2, 2, 1)]
    assert len(r.broker.topics.subscriptions) == 2
