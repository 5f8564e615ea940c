"""Groups and JMS together, as `docs/jms.md` has it at the end of "What implementers get wrong".

Seen by programs that know nothing but JMS: for them a group is a topic with some messages more.
"""

from __future__ import annotations

from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon import SessionMode
from antiphon.errors import IllegalStateError, InvalidDestinationError
from tests.api.support.backends import Backend
from tests.api.support.fronts import PATIENCE_S, every_front
from tests.api.support.steps import (
    CLIENT,
    DELIVERIES,
    TRANSACTED,
    Connect,
    FailureError,
    counted,
    heard,
    in_thread,
    listed,
    plain,
    received,
    send,
    shared,
    texts,
    until,
)


def group_at(backend: Backend) -> antiphon.Group:
    """JMS has no call for it."""
    with antiphon.connect(backend.url) as context:
        return context.create_group(backend.name("group"), remove_after=None)


def told(consumer: Any, count: int) -> list[str]:
    """The next so many messages in words: a text, or what has happened to the group."""
    return [in_words(plain(received(consumer))) for _ in range(count)]


def in_words(message: Any) -> str:
    for name in ("JMS_join", "JMS_leave", "JMS_suspect"):
        if message.property_exists(name):
            return f"{name.removeprefix('JMS_')} {message.get_string_property(name)}"
    text: str = message.text
    return text


def joined_as(consumer: Any) -> str:
    """The name of a member that has just joined: its first message is the view with it."""
    (news,) = told(consumer, 1)
    assert news.startswith("join ")
    return news.removeprefix("join ")


# -- Members are consumers -------------------------------------------------------------------------


@every_front
def test_a_member_is_told_who_is_there_whatever_it_selects(
    connect: Connect, backend: Backend
) -> None:
    """Selectors and no-local are for messages, not for views."""
    group = group_at(backend)
    context, other = connect(), connect()
    choosy = context.create_consumer(group, "floor > 3", no_local=True)
    joined_as(choosy)
    guest = other.create_consumer(group)
    name = joined_as(guest)
    for sender in (context, other):
        for floor in (3, 4):
            sender.create_producer().send(group, f"{floor}", properties={"floor": floor})
    guest.close()
    assert told(choosy, 3) == [f"join {name}", "4", f"leave {name}"]


@every_front
def test_joining_is_creating_the_consumer(connect: Connect, backend: Backend) -> None:
    """Also while the connection is stopped; leaving is closing it."""
    group = group_at(backend)
    watching = connect().create_consumer(group)
    joined_as(watching)
    context = connect()
    context.stop()
    consumer = context.create_consumer(group)
    name = joined_as(watching)
    context.start()
    assert joined_as(consumer) == name
    consumer.close()
    assert told(watching, 1) == [f"leave {name}"]


@every_front
def test_closing_a_durable_consumer_is_not_leaving(connect: Connect, backend: Backend) -> None:
    """It is inactive, still a member, and misses nothing."""
    group = group_at(backend)
    watching = connect().create_consumer(group)
    joined_as(watching)
    context, name = connect(client_id=backend.name("client")), backend.name("member")
    consumer = context.create_durable_consumer(group, name)
    assert joined_as(consumer) == name
    consumer.close()
    send(context, group, "kept")
    again = context.create_durable_consumer(group, name)
    assert told(again, 1) == ["kept"]
    assert told(watching, 2) == [f"join {name}", "kept"]


@every_front
def test_a_member_is_removed_also_while_it_is_active(connect: Connect, backend: Backend) -> None:
    """[26]: other than a durable subscription."""
    group = group_at(backend)
    watching = connect().create_consumer(group)
    joined_as(watching)
    context, name = connect(client_id=backend.name("client")), backend.name("member")
    consumer = context.create_durable_consumer(group, name)
    joined_as(consumer)
    context.unsubscribe(name)
    assert told(watching, 2) == [f"join {name}", f"leave {name}"]
    assert told(consumer, 1) == [f"leave {name}"]
    with pytest.raises(IllegalStateError, match="removed"):
        consumer.receive(0)
    with pytest.raises(InvalidDestinationError, match=name):
        context.unsubscribe(name)


@every_front
def test_a_durable_consumer_of_a_group_needs_a_client_id(
    connect: Connect, backend: Backend
) -> None:
    """[28]: `join` needs none, whose members are known by group and name."""
    group = group_at(backend)
    with pytest.raises(IllegalStateError, match="client id"):
        connect().create_durable_consumer(group, "member")
    with antiphon.connect(backend.url) as context:
        context.join(group, "member", durable=True).close()
        context.unsubscribe("member", group)


# -- Members never skip ----------------------------------------------------------------------------


@every_front
@pytest.mark.process
@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED], ids=lambda mode: mode.name)
def test_a_message_of_a_group_is_no_dead_letter(
    quick: Connect, quick_backend: Backend, mode: SessionMode
) -> None:
    """[23]: not for one member, which would differ from the others."""
    group = group_at(quick_backend)
    context = quick(session_mode=mode)
    consumer = context.create_consumer(group)
    name = joined_as(consumer)
    send(quick(), group, "hard")
    for _ in range(DELIVERIES + 2):
        assert told(consumer, 1) == ["hard"]
        again = context.rollback if mode is TRANSACTED else context.recover
        again()
        assert told(consumer, 1) == [f"join {name}"]
    assert told(consumer, 1) == ["hard"]


@every_front
@pytest.mark.process
def test_a_member_whose_listener_keeps_failing_stops(
    quick: Connect, quick_backend: Backend
) -> None:
    """[34]: and is suspected."""
    group = group_at(quick_backend)
    watching = quick().create_consumer(group)
    joined_as(watching)
    context = quick()
    complaints: Results[Exception] = Results()
    context.exception_listener = complaints.put
    consumer = context.create_consumer(group)
    name = joined_as(watching)

    def listener(message: Any) -> None:
        if in_words(message) == "bad":
            raise FailureError

    consumer.set_message_listener(listener)
    send(quick(), group, "bad")
    assert told(watching, 2) == ["bad", f"suspect {name}"]
    complaint = complaints.get(timeout=PATIENCE_S)
    assert "has stopped" in str(complaint)
    assert isinstance(complaint.__cause__, FailureError)
    with pytest.raises(IllegalStateError, match="FailureError"):
        consumer.receive(0)


@every_front
@pytest.mark.parametrize("durable", [False, True], ids=["shared", "shared durable"])
def test_a_shared_subscription_of_a_group_is_one_member(
    connect: Connect, backend: Backend, durable: bool
) -> None:
    """Its consumers divide the work, and it stays as long as one of them."""
    group, name = group_at(backend), backend.name("us")
    watching = connect().create_consumer(group)
    joined_as(watching)
    contexts = [connect(), connect()]
    seen: Results[str] = Results()
    for context in contexts:
        consumer = shared(context, durable)(group, name)
        consumer.set_message_listener(lambda message: seen.put(in_words(message)))
    assert joined_as(watching) == name
    for n in range(10):
        send(contexts[0], group, str(n))
    assert sorted(heard(seen, 10)) == told(watching, 10) == [str(n) for n in range(10)]
    contexts[0].close()
    send(contexts[1], group, "for the other one")
    assert heard(seen, 1) == told(watching, 1) == ["for the other one"]
    contexts[1].close()
    if durable:
        send(connect(), group, "kept")
        assert told(shared(connect(), durable)(group, name), 1) == told(watching, 1) == ["kept"]
    else:
        assert told(watching, 1) == [f"leave {name}"]


@every_front
@pytest.mark.process
def test_a_shared_member_skips_nothing(quick: Connect, quick_backend: Backend) -> None:
    """[23]: nothing is a dead letter, and nothing expires."""
    group, name = group_at(quick_backend), quick_backend.name("us")
    sender, context = quick(), quick(session_mode=TRANSACTED)
    marks = sender.create_queue(quick_backend.name())
    context.create_shared_durable_consumer(group, name).close()
    for destination in (group, marks):
        sender.create_producer().send(destination, "brief", time_to_live=0.05)
    until(lambda: listed(sender, marks) == [])
    consumer = context.create_shared_durable_consumer(group, name)
    for count in range(1, DELIVERIES + 3):
        assert counted(consumer, 1) == [("brief", count)]
        context.rollback()
    complaints: Results[Exception] = Results()
    other = quick()
    other.exception_listener = complaints.put
    context.close()

    def listener(message: Any) -> None:
        raise FailureError

    failing = other.create_shared_durable_consumer(group, name)
    failing.set_message_listener(listener)
    assert "left unacknowledged" in str(complaints.get(timeout=PATIENCE_S))
    failing.close()
    assert told(quick().create_shared_durable_consumer(group, name), 1) == ["brief"]


# -- Transactions ----------------------------------------------------------------------------------


@every_front
def test_a_transaction_over_groups_and_a_queue_is_at_one_place(
    connect: Connect, backend: Backend
) -> None:
    """[22]: in the order of every member; no view and no message of others stands within it."""
    groups, outside = [group_at(backend), group_at(backend)], connect()
    queue = outside.create_queue(backend.name())
    members = [connect().create_consumer(group) for group in groups for _ in range(2)]
    context, guests = connect(session_mode=TRANSACTED), connect()
    coming = in_thread(lambda: come_and_go(guests, groups))
    for n in range(5):
        for destination in (groups[0], groups[1], queue, groups[0], groups[1]):
            send(context, destination, f"{n}")
        send(outside, groups[0], "of somebody else")
        context.commit()
    assert coming.get(timeout=PATIENCE_S) is None
    for group in groups:
        send(outside, group, "end")
    found = [until_end(member) for member in members]
    consumer = connect().create_consumer(queue)
    at_queue = [plain(received(consumer)) for _ in range(5)]
    for n in range(5):
        for one in found:
            first, second = (at for at, message in enumerate(one) if in_words(message) == str(n))
            assert second == first + 1
        ours = (m for one in (*found, at_queue) for m in one if in_words(m) == str(n))
        positions = {message.position for message in ours}
        assert positions == set(range(min(positions), min(positions) + 5))
    for one, joined_later in (found[:2], found[2:]):  # they are told the same, from there on
        assert [in_words(message) for message in one[1:]] == list(map(in_words, joined_later))


def come_and_go(context: Any, groups: list[antiphon.Group]) -> None:
    for _ in range(5):
        for group in groups:
            context.create_consumer(group).close()


def until_end(member: Any) -> list[Any]:
    messages = []
    while in_words(message := plain(received(member))) != "end":
        messages.append(message)
    return messages


@every_front
def test_what_a_member_receives_and_sends_is_one_transaction(
    connect: Connect, backend: Backend
) -> None:
    """[22]"""
    group = group_at(backend)
    context, other = connect(session_mode=TRANSACTED), connect()
    queue = context.create_queue(backend.name())
    member, watching = context.create_consumer(group), other.create_consumer(group)
    names = [joined_as(member), joined_as(watching)]
    context.commit()
    send(other, group, "question")
    for outcome in (context.rollback, context.commit):
        assert told(member, 2) == [f"join {names[1]}", "question"]
        send(context, group, "answer")
        send(context, queue, "log")
        outcome()
    assert told(member, 1) == ["answer"]
    assert told(watching, 2) == ["question", "answer"]
    assert listed(other, queue) == ["log"]
    assert texts(other.create_consumer(queue), 1) == ["log"]
