"""Groups as programs see them: each test runs on both fronts, against each kind of server.

The Python API and the plain JMS mapping (thesis, tables 4.1, 4.2 and 6.2 to 6.5) meet in the same
groups, and must see the same.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Callable
from queue import Empty
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon import ConflictRelation, SessionMode, SuspicionMessage, View, ViewMessage
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    MessageNotWriteableError,
)
from tests.api.support.backends import Backend, abandon, lose_connection
from tests.api.support.fronts import PATIENCE_S

Connect = Callable[..., Any]
SOON = 0.1
"""How long to wait for what must not come."""

CLIENT = SessionMode.CLIENT_ACKNOWLEDGE
INDIVIDUAL = SessionMode.INDIVIDUAL_ACKNOWLEDGE


def plain(wrapped: Any) -> Any:
    """The object itself, of whichever front."""
    return getattr(wrapped, "wrapped", wrapped)


def received(consumer: Any) -> Any:
    message = consumer.receive(PATIENCE_S)
    assert message is not None, "nothing came"
    return plain(message)


def told(consumer: Any, count: int) -> list[Any]:
    """The next so many things, in words that compare."""
    return [words(received(consumer)) for _ in range(count)]


def words(message: Any) -> Any:
    if isinstance(message, ViewMessage):
        return message.view.id, message.view.members, message.joined, message.left
    if isinstance(message, SuspicionMessage):
        return "suspected", message.suspects, message.withdrawn
    return message.body


def until_acknowledged(member: Any) -> None:
    """The servers know what was acknowledged."""
    one = plain(member)._core
    deadline = time.monotonic() + PATIENCE_S
    while one._gathering or not one._connection.conversation.idle:
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


# -- Views ----------------------------------------------------------------------------------------


def test_all_members_see_the_same_messages_and_views_in_one_order(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    assert (a.name, a.view) == ("a", View(1, ("a",)))
    a.multicast("first")
    b = two.join(group, "b")
    b.multicast("second")
    c = two.join(group, "c")
    a.multicast("third")
    c.leave()
    b.multicast("fourth")
    everything = [
        (1, ("a",), ("a",), ()),
        "first",
        (2, ("a", "b"), ("b",), ()),
        "second",
        (3, ("a", "b", "c"), ("c",), ()),
        "third",
        (4, ("a", "b"), (), ("c",)),
        "fourth",
    ]
    assert told(a, 8) == everything
    assert told(b, 6) == everything[2:]
    assert a.view == b.view == View(4, ("a", "b"))
    assert a.receive(0) is None


def test_every_message_says_in_which_view_it_was_delivered(
    connect: Connect, backend: Backend
) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    a.multicast("x")
    b = one.join(group, "b")
    a.multicast("y")
    _, x, _, y = (received(a) for _ in range(4))
    assert (x.view, y.view) == (View(1, ("a",)), View(2, ("a", "b")))
    assert x.view.primary
    assert y.get_string_property("JMS_view") == str(y.view) == "2: a b"
    assert not y.property_exists("JMS_view")
    assert list(y.properties) == []
    again = pickle.loads(pickle.dumps(y))
    assert (again.view, again.body) == (y.view, "y")
    y.clear_body()
    assert y.view == View(2, ("a", "b"))
    assert told(b, 2)[1] == "y"
    outside = one.create_consumer(one.create_topic(backend.name("t")))
    one.create_producer().send(plain(outside).destination, "z")
    assert received(outside).view is None


def test_a_view_is_an_object_message_and_a_suspicion_an_empty_text_message(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"), remove_after=None)
    a = one.join(group, "a")
    received(a)
    two.join(group, "b")
    view = received(a)
    assert isinstance(view, antiphon.ObjectMessage)
    assert dict(view.properties) == {"JMS_view": "2: a b", "JMS_join": "b"}
    assert view.body == View(2, ("a", "b"))
    assert view.get_string_property("JMS_join") == "b"
    assert view.destination == plain(group)
    with pytest.raises(MessageNotWriteableError):
        view.body = None
    with pytest.raises(MessageNotWriteableError):
        view.properties["x"] = 1
    again = pickle.loads(pickle.dumps(view))
    assert (again.view, again.joined, again.left) == (View(2, ("a", "b")), ("b",), ())
    abandon(two)
    suspicion = received(a)
    assert isinstance(suspicion, antiphon.TextMessage)
    assert suspicion.text == ""
    assert dict(suspicion.properties) == {"JMS_suspect": "b"}
    again = pickle.loads(pickle.dumps(suspicion))
    assert (again.suspects, again.withdrawn) == (("b",), ())
    match suspicion:
        case SuspicionMessage(("b",), ()):
            pass
        case _:
            pytest.fail("it does not match")


def test_a_member_without_a_name_gets_one_and_its_first_view_tells_it(
    connect: Connect, backend: Backend
) -> None:
    one = connect()
    member = one.join(one.create_group(backend.name("g")))
    view = received(member)
    assert view.joined == view.view.members == (member.name,)
    assert " " not in member.name


def test_a_program_may_be_in_many_groups(connect: Connect, backend: Backend) -> None:
    one = connect()
    g, h = one.create_group(backend.name("g")), one.create_group(backend.name("h"))
    members = [one.join(g, "a"), one.join(h, "a"), one.join(g, "b")]
    members[0].multicast("in g")
    members[1].multicast("in h")
    assert told(members[0], 3)[2] == "in g"
    assert told(members[1], 2) == [(1, ("a",), ("a",), ()), "in h"]
    assert told(members[2], 2)[1] == "in g"


def test_groups_are_open(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    name = backend.name("g")
    a = one.join(one.create_group(name), "a")
    two.create_producer().send(two.create_topic(name), "from outside")
    assert told(a, 2)[1] == "from outside"


# -- Suspicion and removal ------------------------------------------------------------------------


def test_a_member_whose_connection_is_lost_is_suspected_and_not_excluded(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"), remove_after=None)
    a, _ = one.join(group, "a"), two.join(group, "b")
    told(a, 2)
    abandon(two)
    assert told(a, 1) == [("suspected", ("b",), ())]
    assert a.view.members == ("a", "b")
    a.remove("b", "nobody")
    assert told(a, 1) == [(3, ("a",), (), ("b",))]
    a.remove("b")  # all members may remove the same suspect
    a.remove()


def test_a_short_break_of_the_connection_is_not_noticed(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), two.join(group, "b")
    for n in range(20):
        a.multicast(n)
        if n in (3, 11):
            lose_connection(two)
    assert told(b, 21) == [(2, ("a", "b"), ("b",), ()), *range(20)]
    assert told(a, 22)[2:] == list(range(20))
    assert a.receive(0) is None


def test_a_suspect_that_is_not_durable_is_removed_in_time(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"), remove_after=0.1)
    a = one.join(group, "a")
    two.join(group, "b"), two.join(group, "c", durable=True)
    told(a, 3)
    abandon(two)
    seen = told(a, 3)
    assert sorted(seen[:2]) == [("suspected", ("b",), ()), ("suspected", ("c",), ())]
    assert seen[2][1:] == (("a", "c"), (), ("b",))
    assert a.receive(SOON) is None


def test_a_removed_member_is_told_last_and_then_nothing(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), two.join(group, "b", durable=True)
    told(a, 2)
    a.multicast("before")
    a.remove("b")
    a.multicast("after")
    assert [words(plain(m)) for m in b] == [
        (2, ("a", "b"), ("b",), ()),
        "before",
        (3, ("a",), (), ("b",)),
    ]
    assert b.view == View(3, ("a",))
    with pytest.raises(IllegalStateError, match=r"removed .* view 3: a"):
        b.receive(0)
    with pytest.raises(IllegalStateError, match="removed"):
        b.remove("a")
    assert [words(plain(m)) for m in b] == []
    b.close()
    b = two.join(group, "b", durable=True)  # a new member
    assert told(b, 1) == [(4, ("a", "b"), ("b",), ())]


def test_a_listener_of_a_removed_member_gets_its_last_view(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), two.join(group, "b")
    got: Results[Any] = Results()
    b.set_message_listener(lambda m: got.put(words(plain(m))))
    told(a, 2)
    a.remove("b")
    a.multicast("after")
    assert [got.get(timeout=PATIENCE_S) for _ in range(2)][1] == (3, ("a",), (), ("b",))
    assert told(a, 2)[1] == "after"
    assert got.empty()


def test_a_removal_does_not_concern_who_joined_later(connect: Connect, backend: Backend) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    received(a)
    b = one.join(group, "b")
    a.remove("b")  # a has not seen view 2: there is no b for it
    a.multicast("x")
    assert told(a, 2) == [(2, ("a", "b"), ("b",), ()), "x"]
    a.remove("b")
    assert told(b, 3)[2] == (3, ("a",), (), ("b",))


# -- Names ----------------------------------------------------------------------------------------


def test_the_name_of_a_live_member_is_refused_after_a_suspicion_time(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    with pytest.raises(IllegalStateError, match="a live member has that name"):
        two.join(group, "a")
    assert told(a, 1) == [(1, ("a",), ("a",), ())]
    assert a.receive(0) is None


def test_the_name_of_a_lost_member_is_taken_over_in_one_view(
    connect: Connect, backend: Backend
) -> None:
    one, two, three = connect(), connect(), connect()
    group = one.create_group(backend.name("g"), remove_after=None)
    a, _ = one.join(group, "a"), two.join(group, "b")
    abandon(two)
    b = three.join(group, "b")  # waits until the old one is suspected
    assert told(a, 4)[2:] == [("suspected", ("b",), ()), (3, ("a", "b"), ("b",), ("b",))]
    assert told(b, 1) == [(3, ("a", "b"), ("b",), ("b",))]


def test_a_durable_member_misses_nothing(connect: Connect, backend: Backend) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    two = connect()
    b = two.join(group, "b", durable=True)
    a.multicast("1")
    assert told(b, 2)[1] == "1"
    two.close()
    assert told(a, 3)[2] == "1"
    a.multicast("2")
    c = one.join(group, "c")
    a.multicast("3")
    b = connect().join(group, "b", durable=True)
    assert b.view.members == ("a", "b", "c")
    message = received(b)
    assert (message.body, message.view.id) == ("2", 2)
    assert told(b, 2) == [(3, ("a", "b", "c"), ("c",), ()), "3"]
    c.leave()
    assert told(a, 4)[3] == (4, ("a", "b"), (), ("c",))


def test_a_durable_member_that_was_killed_is_suspected_until_it_is_back(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a, _ = one.join(group, "a"), two.join(group, "b", durable=True)
    abandon(two)
    a.multicast("1")
    assert set(told(a, 4)[2:]) == {"1", ("suspected", ("b",), ())}
    b = connect().join(group, "b", durable=True)
    assert told(a, 1) == [("suspected", (), ("b",))]
    bodies = [m for m in told(b, 4) if isinstance(m, str)]
    assert bodies == ["1"]


def test_leaving_is_for_durable_members_too(connect: Connect, backend: Backend) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), one.join(group, "b", durable=True)
    b.leave()
    b.leave()
    with pytest.raises(IllegalStateError, match="closed"):
        b.receive(0)
    assert told(a, 3)[2] == (3, ("a",), (), ("b",))
    with one.join(group, "c"):
        pass
    assert [m[2:] for m in told(a, 2)] == [(("c",), ()), ((), ("c",))]


def test_an_invited_member_misses_nothing_until_it_comes(
    connect: Connect, backend: Backend
) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    a.invite("b", durable=True)
    a.multicast("for b")
    assert told(a, 3)[1:] == [(2, ("a", "b"), ("b",), ()), "for b"]
    b = connect().join(group, "b", durable=True)
    assert told(b, 2) == [(2, ("a", "b"), ("b",), ()), "for b"]


def test_who_is_invited_and_not_durable_is_suspected_until_it_comes(
    connect: Connect, backend: Backend
) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    a.invite("b")
    a.multicast("not for b")
    view, suspicion, message = told(a, 4)[1:]
    assert view == (2, ("a", "b"), ("b",), ())
    assert suspicion == ("suspected", ("b",), ())
    assert message == "not for b"
    b = connect().join(group, "b")
    assert told(b, 1) == told(a, 1) == [(3, ("a", "b"), ("b",), ("b",))]


def test_wrong_arguments_are_refused_before_anything_happens(
    connect: Connect, backend: Backend
) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")
    for call, error in (
        (lambda: one.join(group, durable=True), ValueError),
        (lambda: one.join(group, "two words"), ValueError),
        (lambda: one.join(group, ""), ValueError),
        (lambda: one.join(group, "b", workers=0), ValueError),
        (lambda: one.join(one.create_queue("q"), "b"), InvalidDestinationError),
        (lambda: one.join(one.create_topic("q.*"), "b"), InvalidDestinationError),
        (lambda: one.create_group("x.*"), InvalidDestinationError),
        (lambda: one.create_group("x", remove_after=-1), ValueError),
        (lambda: one.create_group("x", conflict="atomic"), TypeError),
        (lambda: a.remove("two words"), ValueError),
        (lambda: a.set_conflict("atomic"), TypeError),
    ):
        with pytest.raises(error):
            call()
    assert told(a, 1) == [(1, ("a",), ("a",), ())]
    assert a.receive(SOON) is None


def test_what_a_name_is_is_fixed(connect: Connect, backend: Backend) -> None:
    one = connect()
    name = backend.name("g")
    one.create_consumer(one.create_topic(name))
    with pytest.raises(InvalidDestinationError, match="plain topic"):
        one.create_group(name)
    producer, topic = one.create_producer(), one.create_topic(name)
    with pytest.raises(InvalidDestinationError, match="is not a group"):
        producer.send(topic, "", properties={"JMS_remove": "a"})
    group = one.create_group(backend.name("g"), remove_after=5)
    assert one.create_group(plain(group).name) == group
    for after in (6.5, None):
        with pytest.raises(IllegalStateError, match=f"remove_after=5, not {after}"):
            one.create_group(plain(group).name, remove_after=after)
    with pytest.raises(IllegalStateError, match="conflict relation"):
        one.create_group(plain(group).name, conflict=ConflictRelation.RELIABLE)


def test_who_only_uses_a_group_decides_nothing_about_it(connect: Connect, backend: Backend) -> None:
    user, service = connect(), connect()
    group = user.create_group(backend.name("g"))
    client = user.join(plain(group), "client")
    service.create_group(plain(group).name, remove_after=5, conflict=ConflictRelation.RELIABLE)
    with pytest.raises(IllegalStateError, match="remove_after=5, not 60"):
        user.create_group(plain(group).name, remove_after=60)
    client.close()
    # It is over; who joins it again says again how it is to be.
    member = service.join(plain(group), "service")
    with pytest.raises(IllegalStateError, match="remove_after=5, not 60"):
        user.create_group(plain(group).name, remove_after=60)
    member.close()


def test_a_group_that_is_deleted_is_free_to_be_something_else(
    connect: Connect, backend: Backend
) -> None:
    one, other = connect(), connect()
    group = one.create_group(backend.name("g"))
    name = plain(group).name
    durable = one.join(plain(group), "a", durable=True)
    with pytest.raises(IllegalStateError, match="live members: a"):
        other.delete_group(name)
    durable.close()
    with pytest.raises(InvalidDestinationError, match="is a group"):
        other.create_last_value_topic(name)
    other.delete_group(name)
    with pytest.raises(InvalidDestinationError, match=f"there is no group {name!r}"):
        other.delete_group(name)
    other.create_last_value_topic(name)


def test_members_of_a_group_that_is_deleted_are_told(connect: Connect, backend: Backend) -> None:
    one, other = connect(), connect()
    group = one.create_group(backend.name("g"))
    member = one.join(plain(group), "a")
    other.delete_group(plain(group).name, force=True)
    assert told(member, 2) == [(1, ("a",), ("a",), ()), (2, (), (), ("a",))]
    member.close()
    assert one.join(plain(group), "a").view == View(3, ("a",))


# -- Conflict relations ---------------------------------------------------------------------------


def test_an_unknown_tag_is_refused_with_the_known_ones(connect: Connect, backend: Backend) -> None:
    one = connect()
    relation = ConflictRelation(("read", "write"), [("read", "write"), ("write", "write")])
    group = one.create_group(backend.name("g"), conflict=relation)
    a = one.join(group, "a")
    with pytest.raises(ValueError, match=r"'wirte'.*'read', 'write'"):
        a.multicast("x", tag="wirte")
    a.multicast("y", tag="write", key="k")
    message = [received(a) for _ in range(2)][1]
    assert (message.body, message.tag, message.key) == ("y", "write", "k")


def test_a_relation_is_changed_at_one_point_for_all(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), two.join(group, "b")
    with pytest.raises(ValueError, match="none"):
        b.multicast("x", tag="rbcast")
    a.set_conflict(ConflictRelation.RELIABLE_ATOMIC)
    a.multicast("now", tag="rbcast")
    assert told(b, 2)[1] == "now"  # the new relation is not a message
    b.multicast("too", tag="abcast")
    assert told(a, 4)[2:] == ["now", "too"]
    assert two.create_group(plain(group).name, conflict=ConflictRelation.RELIABLE_ATOMIC) == group


# -- The plain JMS mapping ------------------------------------------------------------------------


def test_subscribing_to_a_group_is_joining_and_closing_is_leaving(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    name = backend.name("g")
    a = one.join(one.create_group(name), "a")
    consumer = two.create_consumer(two.create_topic(name))
    view = received(consumer)
    mine = view.get_string_property("JMS_join")
    assert view.get_string_property("JMS_view") == f"2: a {mine}"
    a.multicast("x")
    assert received(consumer).get_string_property("JMS_view") == f"2: a {mine}"
    consumer.close()
    assert told(a, 4) == [
        (1, ("a",), ("a",), ()),
        (2, ("a", mine), (mine,), ()),
        "x",
        (3, ("a",), (), (mine,)),
    ]


def test_a_durable_consumer_of_a_group_is_a_durable_member(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect(client_id=backend.name("c"))
    name = backend.name("g")
    a = one.join(one.create_group(name), "a")
    topic = two.create_topic(name)
    consumer = two.create_durable_consumer(topic, "b")
    consumer.close()
    a.multicast("kept")
    b = one.join(topic, "b", durable=True)  # the same member, with the other API
    assert told(b, 2) == [(2, ("a", "b"), ("b",), ()), "kept"]
    b.close()
    two.unsubscribe("b", group=name)
    assert told(a, 4)[3] == (3, ("a",), (), ("b",))
    with pytest.raises(InvalidDestinationError):
        two.unsubscribe("b", group=topic)
    with pytest.raises(IllegalStateError, match="client id"):
        one.create_durable_consumer(topic, "c")


def test_a_name_alone_is_enough_to_unsubscribe_if_only_one_has_it(
    connect: Connect, backend: Backend
) -> None:
    one = connect(client_id=backend.name("c"))
    g, h = one.create_group(backend.name("g")), one.create_group(backend.name("h"))
    name = backend.name("m")
    a = one.join(g, "a")
    one.join(g, name, durable=True).close()
    one.join(h, name)
    with pytest.raises(IllegalStateError, match=f"{plain(g).text}, {plain(h).text}. Say"):
        one.unsubscribe(name)
    one.unsubscribe(name, group=h)
    consumer = one.create_durable_consumer(one.create_topic(backend.name("t")), name)
    with pytest.raises(IllegalStateError, match="a durable subscription"):
        one.unsubscribe(name)
    consumer.close()
    one.unsubscribe(name, group=g)
    assert told(a, 3)[2] == (3, ("a",), (), (name,))
    one.unsubscribe(name)
    with pytest.raises(InvalidDestinationError):
        one.unsubscribe(name)


def test_messages_with_properties_act_as_the_methods_do(connect: Connect, backend: Backend) -> None:
    one = connect()
    name = backend.name("g")
    group = one.create_group(name)
    a = one.join(group, "a")
    producer, topic = one.create_producer(), one.create_topic(name)

    def publish(text: str = "", **properties: str) -> None:
        message = one.create_text_message(text)
        plain(message).properties.update(properties)
        producer.send(topic, message)

    publish(JMS_join_process="b c", JMS_subscription="durable")
    assert told(a, 2)[1] == (2, ("a", "b", "c"), ("b", "c"), ())
    publish(JMS_remove="b c")
    assert told(a, 1) == [(3, ("a",), (), ("b", "c"))]
    publish(ConflictRelation.RELIABLE.to_json(), JMS_set_conflict="")
    producer.send_all(topic, ["1", "2"], tag="rbcast")
    assert told(a, 2) == ["1", "2"]
    with pytest.raises(MessageFormatError, match="conflict relation"):
        publish("{}", JMS_set_conflict="")
    producer.send_async(topic, "", properties={"JMS_remove": "a"}).result(PATIENCE_S)
    assert [words(plain(m)) for m in a] == [(4, (), (), ("a",))]


def test_a_plain_consumer_that_is_removed_is_told_last(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    name = backend.name("g")
    a = one.join(one.create_group(name), "a")
    consumer = two.create_consumer(two.create_topic(name))
    mine = received(consumer).joined[0]
    told(a, 2)
    a.remove(mine)
    assert [m.get_string_property("JMS_leave") for m in map(plain, consumer)] == [mine]


# -- Acknowledging --------------------------------------------------------------------------------


def test_what_was_not_acknowledged_comes_again_events_in_their_places(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect(session_mode=CLIENT)
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), two.join(group, "b", durable=True)
    a.multicast("1")
    one.join(group, "c")
    a.multicast("2")
    everything = told(b, 4)
    two.recover()
    again = [received(b) for _ in range(4)]
    assert [words(m) for m in again] == everything
    assert {m.delivery_count for m in again} == {2}
    two.acknowledge()
    two.recover()
    assert b.receive(SOON) is None
    a.multicast("3")
    assert told(b, 1) == ["3"]
    two.close()
    b = connect().join(group, "b", durable=True)
    message = received(b)
    assert (message.body, message.redelivered) == ("3", True)


def test_a_message_that_is_acknowledged_takes_the_events_before_it_with_it(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect(session_mode=INDIVIDUAL)
    group = one.create_group(backend.name("g"))
    a, b = one.join(group, "a"), two.join(group, "b", durable=True)
    a.multicast("1")
    one.join(group, "c")
    view, message, later = (b.receive(PATIENCE_S) for _ in range(3))
    assert [words(plain(m)) for m in (view, message, later)][1] == "1"
    message.acknowledge()
    two.close()
    b = connect().join(group, "b", durable=True)
    assert told(b, 1) == [(3, ("a", "b", "c"), ("c",), ())]


def test_a_loop_that_fails_gets_the_event_again(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a = one.join(group, "a")

    def fail_on_the_first() -> None:
        with two.join(group, "b", durable=True) as b:
            for _ in b:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_on_the_first()
    a.multicast("x")
    b = two.join(group, "b", durable=True)
    assert told(b, 2) == [(2, ("a", "b"), ("b",), ()), "x"]


# -- Listeners that fail --------------------------------------------------------------------------


@pytest.mark.process
def test_a_member_that_keeps_failing_on_a_message_stops_and_is_suspected(quick: Connect) -> None:
    one, two = quick(), quick()
    group = one.create_group("g", remove_after=None)
    a, b = one.join(group, "a"), two.join(group, "b", durable=True)
    told(a, 2)
    complaints: Results[Exception] = Results()
    two.exception_listener = complaints.put
    got: list[str] = []

    def listener(message: Any) -> None:
        if isinstance(message, antiphon.TextMessage):
            got.append(message.text)
            if message.text == "bad":
                raise ZeroDivisionError

    b.set_message_listener(listener)
    for text in ("good", "bad", "never"):
        a.multicast(text)
    seen = told(a, 4)
    assert seen[:2] == ["good", "bad"]
    assert set(seen[2:]) == {"never", ("suspected", ("b",), ())}
    assert "ZeroDivisionError" in str(complaints.get(timeout=PATIENCE_S))
    assert set(got) == {"good", "bad"}
    with pytest.raises(IllegalStateError, match="ZeroDivisionError"):
        b.receive(0)
    back = quick().join(group, "b", durable=True)
    texts = [m for m in told(back, 3) if isinstance(m, str)]
    assert texts == ["bad", "never"]  # it is not skipped


# -- Workers --------------------------------------------------------------------------------------


class Crossing:
    """A listener whose messages wait until the test lets them through."""

    def __init__(self, front: Any) -> None:
        self.front = front
        self.begun: Results[Any] = Results()
        self.gates: dict[Any, Any] = {}

    def listener(self) -> Any:
        if self.front.name == "aio":
            return self._await
        return self._wait

    def _wait(self, message: Any) -> None:
        gate = self.gates.setdefault(words(message), threading.Event())
        self.begun.put(words(message))
        assert gate.wait(PATIENCE_S)

    async def _await(self, message: Any) -> None:
        gate = self.gates.setdefault(words(message), asyncio.Event())
        self.begun.put(words(message))
        await asyncio.wait_for(gate.wait(), PATIENCE_S)

    def next(self, count: int) -> set[Any]:
        return {self.begun.get(timeout=PATIENCE_S) for _ in range(count)}

    def let(self, *names: Any) -> None:
        for name in names:
            if self.front.name == "aio":
                self.front.loop.call_soon_threadsafe(self.gates[name].set)
            else:
                self.gates[name].set()

    def stays(self) -> bool:
        """Nothing more begins."""
        try:
            self.begun.get(timeout=SOON)
        except Empty:
            return True
        return False


RW = ConflictRelation(("read", "write"), [("read", "write"), ("write", "write")])


def test_workers_handle_in_parallel_what_does_not_conflict(
    connect: Connect, backend: Backend, front: Any
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"), conflict=RW)
    a = one.join(group, "a")
    b = two.join(group, "b", workers=3, durable=True)
    crossing = Crossing(front)
    b.set_message_listener(crossing.listener())
    view = (2, ("a", "b"), ("b",), ())
    assert crossing.next(1) == {view}
    for text, tag in (("r1", "read"), ("r2", "read"), ("w1", "write"), ("r3", "read")):
        a.multicast(text, tag=tag)
    assert crossing.stays()  # the view is a barrier
    crossing.let(view)
    assert crossing.next(2) == {"r1", "r2"}
    assert crossing.stays()
    crossing.let("r1", "r2")
    assert crossing.next(1) == {"w1"}
    assert crossing.stays()
    crossing.let("w1")
    assert crossing.next(1) == {"r3"}
    crossing.let("r3")
    b.close()
    again = two.join(group, "b", durable=True)
    assert again.receive(SOON) is None  # all was acknowledged


def test_what_was_handled_behind_something_unfinished_is_not_acknowledged(
    connect: Connect, backend: Backend, front: Any
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"), conflict=ConflictRelation.RELIABLE)
    a = one.join(group, "a")
    b = two.join(group, "b", workers=3, durable=True)
    crossing = Crossing(front)
    b.set_message_listener(crossing.listener())
    view = (2, ("a", "b"), ("b",), ())
    crossing.next(1)
    crossing.let(view)
    for text in ("1", "2", "3"):
        a.multicast(text)
    assert crossing.next(3) == {"1", "2", "3"}
    crossing.let("1", "3")
    a.multicast("4")
    assert crossing.next(1) == {"4"}
    until_acknowledged(b)
    abandon(two)
    again = connect().join(group, "b", durable=True)
    texts = [m for m in told(again, 5) if isinstance(m, str)]
    assert texts == ["2", "3", "4"]
    crossing.let("2", "4")


@pytest.mark.process
def test_workers_that_fail_get_it_again_and_then_the_member_stops(quick: Connect) -> None:
    one, two = quick(), quick()
    group = one.create_group("g", conflict=RW, remove_after=None)
    a, b = one.join(group, "a"), two.join(group, "b", workers=2)
    told(a, 2)
    counts: Results[int] = Results()

    def listener(message: Any) -> None:
        if isinstance(message, antiphon.TextMessage):
            counts.put(message.delivery_count)
            raise ZeroDivisionError

    b.set_message_listener(listener)
    a.multicast("bad", tag="write")
    assert told(a, 2) == ["bad", ("suspected", ("b",), ())]
    assert [counts.get(timeout=PATIENCE_S) for _ in range(10)] == list(range(1, 11))
    with pytest.raises(IllegalStateError, match="ZeroDivisionError"):
        b.receive(0)


def test_workers_need_automatic_acknowledgement(connect: Connect, backend: Backend) -> None:
    one = connect(session_mode=CLIENT)
    with pytest.raises(IllegalStateError, match="automatically"):
        one.join(one.create_group(backend.name("g")), "a", workers=2)


# -- State ----------------------------------------------------------------------------------------


def state_of(member: Any) -> bytes | None:
    """What it takes over."""
    stream = plain(member).initial_state if plain(member) is member else awaited_state(member)
    return None if stream is None else stream.read()


def awaited_state(member: Any) -> Any:
    async def wait() -> Any:
        return await member.wrapped.initial_state

    return member.front.do(wait)


class Table:
    """A member that adds up what it is told, and hands that out."""

    def __init__(self, context: Any, group: Any, name: str, **options: Any) -> None:
        self.handled: list[str] = []
        self.news = threading.Condition()
        self.member = context.join(group, name, state_provider=self.state, **options)

    def state(self) -> list[bytes]:
        return [f"{one}\n".encode() for one in self.handled]

    def load(self) -> None:
        state = state_of(self.member)
        self.handled = [] if state is None else state.decode().splitlines()

    def listen(self) -> None:
        self.member.set_message_listener(self.handle)

    def handle(self, message: Any) -> None:
        if type(message) is antiphon.TextMessage:
            with self.news:
                self.handled.append(message.text)
                self.news.notify_all()

    def until(self, text: str) -> list[str]:
        with self.news:
            assert self.news.wait_for(lambda: text in self.handled, PATIENCE_S)
            return list(self.handled)


def test_a_new_member_takes_over_the_state_and_then_all_that_follows(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a = Table(one, group, "a")
    assert state_of(a.member) is None
    a.listen()
    for n in range(20):
        a.member.multicast(f"{n}")
    b = Table(two, group, "b")
    for n in range(20, 40):
        a.member.multicast(f"{n}")
    b.load()
    assert len(b.handled) >= 20
    b.listen()
    a.member.multicast("end")
    assert a.until("end") == b.until("end") == [str(n) for n in range(40)] + ["end"]


def test_the_state_is_handed_out_inside_receive_and_after_the_members_own_view(
    connect: Connect, backend: Backend
) -> None:
    one, two = connect(), connect()
    group = one.create_group(backend.name("g"))
    a = Table(one, group, "a")
    told(a.member, 1)
    b = two.join(group, "b", workers=2)
    assert b.receive(0.1) is None  # its own view waits for the state, too
    a.handled.append("the state")
    assert told(a.member, 1) == [(2, ("a", "b"), ("b",), ())]
    a.member.multicast("after")
    assert told(a.member, 1) == ["after"]  # and before that, it has handed out its state
    assert state_of(b) == b"the state\n"
    assert told(b, 2) == [(2, ("a", "b"), ("b",), ()), "after"]


def test_a_provider_that_raises_is_reported_and_another_one_is_asked(
    connect: Connect, backend: Backend
) -> None:
    one, two, three = connect(), connect(), connect()
    group = one.create_group(backend.name("g"))
    complaints: Results[Exception] = Results()
    one.exception_listener = complaints.put

    def broken() -> bytes:
        raise ZeroDivisionError

    a = one.join(group, "a", state_provider=broken)
    b = two.join(group, "b", state_provider=lambda: b"from b")
    got: Results[Any] = Results()
    a.set_message_listener(lambda message: got.put(words(message)))
    b.set_message_listener(lambda message: None)
    c = three.join(group, "c")
    assert state_of(c) == b"from b"
    assert "ZeroDivisionError" in str(complaints.get(timeout=PATIENCE_S))
    a.multicast("on")
    while got.get(timeout=PATIENCE_S) != "on":
        pass


def test_a_durable_member_that_is_back_needs_no_state(connect: Connect, backend: Backend) -> None:
    one = connect()
    group = one.create_group(backend.name("g"))
    a = Table(one, group, "a", durable=True, workers=2)
    a.listen()
    with connect() as two:
        b = two.join(group, "b", durable=True)
        assert state_of(b) == b""
        assert told(b, 1) == [(2, ("a", "b"), ("b",), ())]
    a.member.multicast("x")
    a.until("x")
    b = connect().join(group, "b", durable=True)
    assert state_of(b) is None
    assert told(b, 1) == ["x"]
