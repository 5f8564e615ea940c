"""Subscriptions: points 24 to 31 of "What implementers get wrong" (`docs/jms.md`), and topics that
keep last values.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon.errors import IllegalStateError, InvalidDestinationError
from tests.api.support.backends import Backend
from tests.api.support.fronts import every_front
from tests.api.support.steps import (
    CLIENT,
    Connect,
    counted,
    heard,
    received,
    send,
    send_numbers,
    shared,
    texts,
)

END = "end"


def until_end(context: Any, topic: Any, consumer: Any) -> list[str]:
    """All that this consumer gets of what was sent up to now."""
    send(context, topic, END)
    return list(iter(lambda: received(consumer).text, END))


def send_floors(context: Any, topic: Any, *floors: int) -> None:
    for floor in floors:
        context.create_producer().send(topic, str(floor), properties={"floor": floor})


# -- Durable ones ----------------------------------------------------------------------------------


@every_front
def test_a_durable_subscription_of_another_topic_is_a_new_one(
    connect: Connect, backend: Backend
) -> None:
    """[24]"""
    context = connect(client_id=backend.name("client"))
    old, new = context.create_topic(backend.name()), context.create_topic(backend.name())
    context.create_durable_consumer(old, "mailbox").close()
    send_numbers(context, old, 3)
    consumer = context.create_durable_consumer(new, "mailbox")
    assert until_end(context, new, consumer) == []
    consumer.close()
    send_numbers(context, new, 3)
    again = context.create_durable_consumer(old, "mailbox")
    assert until_end(context, old, again) == []


@every_front
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"selector": "TRUE"}),
        ({"selector": "floor > 0"}, {"selector": "floor > 1"}),
        ({"selector": "floor > 0"}, {}),
        ({}, {"no_local": True}),
        ({"no_local": True}, {}),
    ],
)
def test_a_durable_subscription_that_chooses_otherwise_is_a_new_one(
    connect: Connect, backend: Backend, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """[24]"""
    publisher, context = connect(), connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    context.create_durable_consumer(topic, "mailbox", **before).close()
    send_floors(publisher, topic, 5)
    consumer = context.create_durable_consumer(topic, "mailbox", **after)
    send_floors(publisher, topic, 6)
    assert texts(consumer, 1) == ["6"]


@every_front
def test_a_durable_subscription_is_the_same_however_it_is_written(
    connect: Connect, backend: Backend
) -> None:
    """[24]"""
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    context.create_durable_consumer(topic, "mailbox", "floor > 3 AND wing IS NULL").close()
    send_floors(context, topic, 3, 4)
    again = context.create_durable_consumer(topic, "mailbox", " floor>3  and wing is null ")
    assert texts(again, 1) == ["4"]


@every_front
def test_an_active_durable_subscription_is_refused(connect: Connect, backend: Backend) -> None:
    """[24]: whatever is asked for."""
    context = connect(client_id=backend.name("client"))
    topic, other = context.create_topic(backend.name()), context.create_topic(backend.name())
    consumer = context.create_durable_consumer(topic, "mailbox")
    sibling = context.create_context(CLIENT)
    asked: list[tuple[Any, ...]] = [(topic,), (other,), (topic, "floor > 3"), (topic, None, True)]
    for one in (context, sibling):
        for destination, *choice in asked:
            with pytest.raises(IllegalStateError, match="'mailbox' is active"):
                one.create_durable_consumer(destination, "mailbox", *choice)
    assert until_end(context, topic, consumer) == []  # it is as it was


@every_front
def test_a_durable_selector_is_as_if_it_had_filtered_on_arrival(
    connect: Connect, backend: Backend
) -> None:
    """[25]: also after it was changed."""
    context, client = connect(), backend.name("client")
    topic = context.create_topic(backend.name())

    def subscribed(selector: str) -> tuple[Any, Any]:
        reader = connect(client_id=client)
        return reader, reader.create_durable_consumer(topic, "mailbox", selector)

    reader, _ = subscribed("floor > 3")
    reader.close()
    send_floors(context, topic, 3, 4, 1, 5)
    reader, consumer = subscribed("floor > 3")
    assert texts(consumer, 1) == ["4"]
    reader.close()
    send_floors(context, topic, 2, 6)
    reader, consumer = subscribed("floor > 3")
    assert texts(consumer, 2) == ["5", "6"]
    reader.close()
    send_floors(context, topic, 7, 2)
    reader, consumer = subscribed("floor < 3")
    reader.close()
    send_floors(context, topic, 8, 1)
    _, consumer = subscribed("floor < 3")
    send_floors(context, topic, 9, 0)
    assert texts(consumer, 2) == ["1", "0"]


@every_front
def test_unsubscribing(connect: Connect, backend: Backend) -> None:
    """[26]"""
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    consumer = context.create_durable_consumer(topic, "mailbox")
    with pytest.raises(IllegalStateError, match="active"):
        context.unsubscribe("mailbox")
    consumer.close()
    send_numbers(context, topic, 3)
    context.unsubscribe("mailbox")
    with pytest.raises(InvalidDestinationError, match="mailbox"):
        context.unsubscribe("mailbox")
    assert until_end(context, topic, context.create_durable_consumer(topic, "mailbox")) == []


@every_front
@pytest.mark.parametrize("known", [False, True], ids=["everybody's", "of a client id"])
def test_unsubscribing_what_is_shared(connect: Connect, backend: Backend, known: bool) -> None:
    """[26]"""
    context = connect(client_id=backend.name("client")) if known else connect()
    topic, name = context.create_topic(backend.name()), backend.name("sub")
    consumers = [context.create_shared_durable_consumer(topic, name) for _ in range(2)]
    for consumer in consumers:
        with pytest.raises(IllegalStateError, match="active"):
            context.unsubscribe(name)
        consumer.close()
    send_numbers(context, topic, 3)
    context.unsubscribe(name)
    with pytest.raises(InvalidDestinationError, match=name):
        context.unsubscribe(name)
    again = context.create_shared_durable_consumer(topic, name)
    assert until_end(context, topic, again) == []


@every_front
def test_a_name_is_of_a_shared_or_of_an_unshared_subscription(
    connect: Connect, backend: Backend
) -> None:
    """[27]"""
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    kinds: list[Callable[..., Any]] = [
        context.create_durable_consumer,
        context.create_shared_durable_consumer,
    ]
    for create, refused in (kinds, reversed(kinds)):
        consumer = create(topic, "mailbox")
        with pytest.raises(IllegalStateError, match=r"'mailbox' is a .*durable subscription"):
            refused(topic, "mailbox")
        consumer.close()
        with pytest.raises(IllegalStateError, match=r"'mailbox' is a .*durable subscription"):
            refused(topic, "mailbox")
        # One that is not durable is something else, and may have the name.
        context.create_shared_consumer(topic, "mailbox").close()
        context.unsubscribe("mailbox")
        refused(topic, "mailbox").close()
        context.unsubscribe("mailbox")


@every_front
def test_a_durable_subscription_needs_a_client_id(connect: Connect, backend: Backend) -> None:
    """[28]: a shared one does not."""
    context = connect()
    topic, name = context.create_topic(backend.name()), backend.name("sub")
    with pytest.raises(IllegalStateError, match="client id"):
        context.create_durable_consumer(topic, "mailbox")
    context.create_shared_durable_consumer(topic, name).close()
    send_numbers(context, topic, 1)
    assert texts(connect().create_shared_durable_consumer(topic, name), 1) == ["0"]


@every_front
def test_a_non_durable_subscription_is_gone_on_close(connect: Connect, backend: Backend) -> None:
    """[29]"""
    context = connect()
    topic, name = context.create_topic(backend.name()), backend.name("sub")
    consumers: list[Callable[[], Any]] = [
        lambda: context.create_consumer(topic),
        lambda: context.create_shared_consumer(topic, name),
    ]
    for create in consumers:
        consumer = create()
        send_numbers(context, topic, 3)
        consumer.close()
        assert until_end(context, topic, create()) == []


# -- Shared ones -----------------------------------------------------------------------------------


@every_front
@pytest.mark.parametrize("durable", [False, True], ids=["shared", "shared durable"])
def test_a_shared_subscription_divides_its_messages(
    connect: Connect, backend: Backend, durable: bool
) -> None:
    """[30]: and survives any one of its consumers."""
    publisher = connect()
    topic, name = publisher.create_topic(backend.name()), backend.name("sub")
    seen: Results[tuple[int, str]] = Results()
    contexts = [connect(), connect()]
    contexts.append(contexts[0].create_context(antiphon.AUTO_ACKNOWLEDGE))
    for n, context in enumerate(contexts):
        shared(context, durable)(topic, name).set_message_listener(
            lambda message, n=n: seen.put((n, message.text))
        )
    alone = publisher.create_consumer(topic)
    sent = send_numbers(publisher, topic, 30)
    found = heard(seen, 30)
    assert sorted((text for _, text in found), key=int) == sent
    assert {n for n, _ in found} == {0, 1, 2}
    assert texts(alone, 30) == sent  # another subscription has nothing to do with it
    contexts[1].close()
    contexts[2].close()
    send_numbers(publisher, topic, 5)
    assert [text for _, text in heard(seen, 5)] == ["0", "1", "2", "3", "4"]
    assert seen.empty()


@every_front
@pytest.mark.parametrize("durable", [False, True], ids=["shared", "shared durable"])
def test_what_one_consumer_has_not_acknowledged_goes_to_another(
    connect: Connect, backend: Backend, durable: bool
) -> None:
    """[30]"""
    publisher, one, two = connect(), connect(session_mode=CLIENT), connect()
    topic, name = publisher.create_topic(backend.name()), backend.name("sub")
    first = shared(one, durable)(topic, name)
    send_numbers(publisher, topic, 4)
    received(first).acknowledge()
    assert texts(first, 1) == ["1"]
    second = shared(two, durable)(topic, name)
    one.close()
    assert counted(second, 3) == [("1", 2), ("2", 1), ("3", 1)]


@every_front
def test_a_shared_durable_subscription_survives_all_its_consumers(
    connect: Connect, backend: Backend
) -> None:
    """[30]"""
    publisher = connect()
    topic, name = publisher.create_topic(backend.name()), backend.name("sub")
    for _ in range(2):
        context = connect()
        context.create_shared_durable_consumer(topic, name, "floor > 3")
        context.close()
        send_floors(publisher, topic, 3, 4)
    last = connect()
    assert texts(last.create_shared_durable_consumer(topic, name, "floor > 3"), 2) == ["4", "4"]
    with pytest.raises(IllegalStateError, match="another topic or selector"):
        publisher.create_shared_durable_consumer(topic, name, "floor < 3")
    last.close()
    send_floors(publisher, topic, 5)
    again = publisher.create_shared_durable_consumer(topic, name, "floor < 3")  # a new one
    send_floors(publisher, topic, 6, 2)
    assert texts(again, 1) == ["2"]


@every_front
def test_a_shared_subscription_belongs_to_a_client_id_or_to_everybody(
    connect: Connect, backend: Backend
) -> None:
    """[30]"""
    publisher, known = connect(), connect(client_id=backend.name("client"))
    topic, name = publisher.create_topic(backend.name()), backend.name("sub")
    consumers = [context.create_shared_consumer(topic, name) for context in (publisher, known)]
    send_numbers(publisher, topic, 3)
    for consumer in consumers:  # two subscriptions, each with one consumer
        assert texts(consumer, 3) == ["0", "1", "2"]


# -- One's own messages ----------------------------------------------------------------------------


@every_front
def test_ones_own_messages_are_those_of_the_connection(connect: Connect, backend: Backend) -> None:
    """[31]: not those of the session."""
    other, context = connect(), connect()
    topic = context.create_topic(backend.name())
    sibling = context.create_context(antiphon.AUTO_ACKNOWLEDGE)
    consumers = [one.create_consumer(topic, no_local=True) for one in (context, sibling, other)]
    for sender, text in ((context, "mine"), (sibling, "my sibling's"), (other, "another's")):
        send(sender, topic, text)
    assert texts(consumers[0], 1) == ["another's"]
    assert texts(consumers[1], 1) == ["another's"]
    assert texts(consumers[2], 2) == ["mine", "my sibling's"]


@every_front
def test_ones_own_messages_are_those_of_the_client_id(connect: Connect, backend: Backend) -> None:
    """[31]: a durable subscription outlives connections."""
    other, client = connect(), backend.name("client")
    topic = other.create_topic(backend.name())
    context = connect(client_id=client)
    context.create_durable_consumer(topic, "mailbox", no_local=True)
    context.close()
    context = connect(client_id=client)
    send(context, topic, "mine")
    send(other, topic, "another's")
    consumer = context.create_durable_consumer(topic, "mailbox", no_local=True)
    send(context, topic, "mine again")
    send(other, topic, "another's again")
    assert texts(consumer, 2) == ["another's", "another's again"]


def test_no_local_is_for_topics(connect: Connect, backend: Backend) -> None:
    """[31]: what one does not want of a queue would wait forever."""
    context = connect()
    with pytest.raises(IllegalStateError, match="no_local is for topics"):
        context.create_consumer(context.create_queue(backend.name()), no_local=True)


# -- Last values -----------------------------------------------------------------------------------


@every_front
def test_who_subscribes_later_begins_with_the_last_values(
    connect: Connect, backend: Backend
) -> None:
    """A topic that keeps the last message of each key; Antiphon's own."""
    with antiphon.connect(backend.url) as declaring:  # JMS has no call for it
        topic = declaring.create_last_value_topic(backend.name())
    context, late = connect(), connect(client_id=backend.name("client"))
    producer = context.create_producer()
    for key, text in (("a", "1"), ("b", "2"), (None, "3"), ("a", "4"), ("c", "5")):
        producer.send(topic, text, key=key)
    plain = late.create_consumer(topic)
    durable = late.create_durable_consumer(topic, "mailbox")
    some = late.create_consumer(topic, "JMSPriority > 4")
    producer.send(topic, "6", key="b")
    producer.send(topic, END, priority=9)
    for consumer in (plain, durable):
        assert texts(consumer, 5) == ["2", "4", "5", "6", END]
    assert texts(some, 1) == [END]
    durable.close()
    producer.send(topic, "7", key="b")
    again = late.create_durable_consumer(topic, "mailbox")
    assert until_end(context, topic, again) == ["7"]
