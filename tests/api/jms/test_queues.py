"""Queues: points 37 and 38 of "What implementers get wrong" (`docs/jms.md`), and what else is
special about them: priorities, exclusive consumers, browsers.

What is to happen in an order of time is sent in one transaction: so all times begin together,
however slow this machine is.
"""

from __future__ import annotations

from queue import Queue as Results
from typing import Any

import pytest

from antiphon import SessionMode
from tests.api.support.backends import Backend
from tests.api.support.fronts import Sync, every_front
from tests.api.support.steps import (
    CLIENT,
    SOON,
    TRANSACTED,
    Connect,
    counted,
    heard,
    inside,
    listed,
    received,
    send,
    send_numbers,
    texts,
    until,
)

BRIEFLY, LONG = 0.05, 3600.0


# -- Priority --------------------------------------------------------------------------------------


@every_front
def test_greater_priorities_go_first_and_equals_in_order(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    producer = context.create_producer()
    for n, priority in enumerate((4, 0, 9, 4, 9, 5)):
        producer.send(queue, str(n), priority=priority)
    assert texts(context.create_consumer(queue), 6) == ["2", "4", "5", "0", "3", "1"]


@every_front
def test_a_greater_priority_overtakes_what_has_arrived(connect: Connect, backend: Backend) -> None:
    """What a consumer has been sent and has not taken is not in its way."""
    publisher, context = connect(), connect()
    queue = context.create_queue(backend.name())
    consumer = context.create_consumer(queue)
    producer = publisher.create_producer()
    for n, priority in enumerate((4, 3, 9)):
        producer.send(queue, str(n), priority=priority)
    until(lambda: len(inside(consumer).inbox.ready) == 3)
    assert texts(consumer, 3) == ["2", "0", "1"]


@every_front
def test_priorities_do_not_change_the_order_of_a_topic(connect: Connect, backend: Backend) -> None:
    """All subscribers see one order."""
    context = connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic)
    for n, priority in enumerate((1, 9, 5)):
        context.create_producer().send(topic, str(n), priority=priority)
    assert texts(consumer, 3) == ["0", "1", "2"]


# -- Time ------------------------------------------------------------------------------------------


@every_front
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_delayed_message_comes_when_its_time_has_come(
    connect: Connect, backend: Backend, kind: str
) -> None:
    """[37]"""
    context = connect(session_mode=TRANSACTED)
    destination = getattr(context, f"create_{kind}")(backend.name())
    consumer = connect().create_consumer(destination)
    producer = context.create_producer()
    producer.send(destination, "last", delivery_delay=2 * BRIEFLY)
    producer.send(destination, "second", delivery_delay=BRIEFLY)
    producer.send(destination, "never", delivery_delay=BRIEFLY, time_to_live=BRIEFLY / 2)
    producer.send(destination, "first")
    context.commit()
    messages = [received(consumer) for _ in range(3)]
    assert [message.text for message in messages] == ["first", "second", "last"]
    assert messages[0].position < messages[1].position < messages[2].position
    assert messages[1].delivery_time <= messages[2].delivery_time


@every_front
def test_a_queue_drops_by_itself_what_has_expired(connect: Connect, backend: Backend) -> None:
    """[37]: without a consumer's help."""
    context = connect()
    queue = context.create_queue(backend.name())
    producer = context.create_producer()
    producer.send(queue, "brief", time_to_live=BRIEFLY)
    producer.send(queue, "long", time_to_live=LONG)
    producer.send(queue, "forever")
    until(lambda: listed(context, queue) == ["long", "forever"])
    messages = [received(consumer) for consumer in [context.create_consumer(queue)] * 2]
    assert [message.text for message in messages] == ["long", "forever"]
    assert messages[0].expiration > messages[0].timestamp
    assert messages[1].expiration == 0


@every_front
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_consumer_that_has_it_does_not_show_what_has_expired(
    connect: Connect, backend: Backend, kind: str
) -> None:
    """[37]"""
    publisher, context = connect(), connect()
    destination = getattr(context, f"create_{kind}")(backend.name())
    consumer = context.create_consumer(destination)
    context.stop()
    producer = publisher.create_producer()
    producer.send(destination, "brief", time_to_live=BRIEFLY)
    producer.send(destination, "long", time_to_live=LONG)
    until(lambda: bool(inside(consumer).inbox.ready))
    assert consumer.receive(2 * BRIEFLY) is None  # that is its time
    context.start()
    assert texts(consumer, 1) == ["long"]


@every_front
def test_a_durable_subscriber_that_comes_late_gets_nothing_expired(
    connect: Connect, backend: Backend
) -> None:
    """[37]"""
    publisher, context = connect(), connect(client_id=backend.name("client"))
    topic, marks = context.create_topic(backend.name()), context.create_queue(backend.name())
    context.create_durable_consumer(topic, "mailbox").close()
    for destination in (topic, marks):
        producer = publisher.create_producer()
        producer.send(destination, "brief", time_to_live=BRIEFLY)
        producer.send(destination, "long", time_to_live=LONG)
    until(lambda: listed(publisher, marks) == ["long"])
    assert texts(context.create_durable_consumer(topic, "mailbox"), 1) == ["long"]


@every_front
def test_delay_expiry_and_priority_together(connect: Connect, backend: Backend) -> None:
    """[37]"""
    sender, context = connect(session_mode=TRANSACTED), connect()
    queue = context.create_queue(backend.name())
    producer = sender.create_producer()
    delayed: dict[str, Any] = {"delivery_delay": BRIEFLY}
    producer.send(queue, "dies before its time", priority=9, time_to_live=BRIEFLY / 2, **delayed)
    producer.send(queue, "low", priority=1, time_to_live=LONG, **delayed)
    producer.send(queue, "high", priority=8, time_to_live=LONG, **delayed)
    producer.send(queue, "brief", priority=9, time_to_live=2 * BRIEFLY, **delayed)
    send(sender, queue, "now")
    sender.commit()
    until(lambda: sorted(listed(context, queue)) == ["high", "low", "now"])
    assert texts(context.create_consumer(queue), 3) == ["high", "now", "low"]


@every_front
def test_the_times_of_a_transaction_run_from_its_commit(connect: Connect, backend: Backend) -> None:
    """[37]"""
    context, marking = connect(session_mode=TRANSACTED), connect()
    queue, marks = context.create_queue(backend.name()), context.create_queue(backend.name())
    producer = context.create_producer()
    producer.send(queue, "delayed", delivery_delay=BRIEFLY)
    send(context, queue, "at once")
    marking.create_producer().send(marks, "as long as that", time_to_live=2 * BRIEFLY)
    until(lambda: listed(marking, marks) == [])
    context.commit()
    assert texts(marking.create_consumer(queue), 2) == ["at once", "delayed"]


# -- Groups of messages ----------------------------------------------------------------------------


def in_group(context: Any, queue: Any, group: str, *texts: str, **properties: Any) -> None:
    for text in texts:
        context.create_producer().send(
            queue, f"{group} {text}", properties={"JMSXGroupID": group, **properties}
        )


class Crowd:
    """Consumers of one queue, each of a connection of its own, and who gets what."""

    def __init__(self, connect: Connect, queue: Any, count: int) -> None:
        self.seen: Results[tuple[int, str]] = Results()
        self.contexts = [connect() for _ in range(count)]
        for n, context in enumerate(self.contexts):
            context.create_consumer(queue).set_message_listener(
                lambda message, n=n: self.seen.put((n, message.text))
            )

    def owners(self, count: int) -> dict[str, set[int]]:
        """By group: who got its messages, which must come in order."""
        found: dict[str, set[int]] = {}
        last: dict[str, int] = {}
        for n, text in heard(self.seen, count):
            group, number = text.split()
            assert last.get(group, -1) < int(number)
            last[group] = int(number)
            found.setdefault(group, set()).add(n)
        return found


@every_front
def test_the_messages_of_a_group_go_to_one_consumer(connect: Connect, backend: Backend) -> None:
    """[38]: while it lives."""
    context = connect()
    queue = context.create_queue(backend.name())
    crowd = Crowd(connect, queue, 3)
    groups = [f"g{n}" for n in range(6)]
    for number in range(4):
        for group in groups:
            in_group(context, queue, group, str(number))
    before = crowd.owners(24)
    assert all(len(owners) == 1 for owners in before.values())
    assert len(set.union(*before.values())) == 3  # and the groups are divided
    gone = before["g0"].pop()
    crowd.contexts[gone].close()
    for number in range(4, 8):
        for group in groups:
            in_group(context, queue, group, str(number))
    after = crowd.owners(24)
    assert all(len(owners) == 1 and gone not in owners for owners in after.values())
    assert all(after[g] == before[g] for g in groups if before[g] not in (set(), {gone}))


@every_front
def test_a_group_can_be_closed(connect: Connect, backend: Backend) -> None:
    """[38]: by a sequence of -1; then it goes to whoever's turn it is."""
    context = connect()
    queue = context.create_queue(backend.name())
    crowd = Crowd(connect, queue, 2)
    owners: list[int] = []
    for _ in range(4):
        in_group(context, queue, "g", "0", "1", JMSXGroupSeq=1)
        in_group(context, queue, "g", "2", JMSXGroupSeq=-1)
        (owner,) = crowd.owners(3)["g"]
        owners.append(owner)
    assert set(owners) == {0, 1}
    in_group(context, queue, "open", *map(str, range(12)))
    assert len(crowd.owners(12)["open"]) == 1


@every_front
def test_who_has_a_group_and_dies_leaves_it_to_others_in_order(
    connect: Connect, backend: Backend
) -> None:
    """[38]"""
    context, first = connect(), connect(session_mode=CLIENT)
    queue = context.create_queue(backend.name())
    consumer = first.create_consumer(queue)
    in_group(context, queue, "g", "0", "1", "2")
    assert texts(consumer, 2) == ["g 0", "g 1"]
    other = connect().create_consumer(queue)
    in_group(context, queue, "g", "3")
    in_group(context, queue, "h", "0")
    first.close()
    found = counted(other, 5)
    assert [one for one in found if one[0].startswith("g")] == [
        *(("g 0", 2), ("g 1", 2), ("g 2", 1), ("g 3", 1)),
    ]


# -- Exclusive consumers ---------------------------------------------------------------------------


def test_an_exclusive_consumer_gets_everything(connect: Connect, backend: Backend) -> None:
    """Antiphon's own. The next one goes on where it was."""
    context = connect()
    queue = context.create_queue(backend.name())
    plain = context.create_consumer(queue)
    contexts = [connect(), connect()]
    first, second = (one.create_consumer(queue, exclusive=True) for one in contexts)
    for consumer, leave in (
        (first, contexts[0].close),
        (second, second.close),
        (plain, plain.close),
    ):
        send_numbers(context, queue, 3)
        assert texts(consumer, 3) == ["0", "1", "2"]
        leave()
    assert listed(context, queue) == []


# -- Browsers --------------------------------------------------------------------------------------


@every_front
def test_a_browser_looks_and_takes_nothing(connect: Connect, backend: Backend) -> None:
    """It shows what nobody has acknowledged, also if a consumer has it."""
    context, reader = connect(), connect(session_mode=CLIENT)
    queue = context.create_queue(backend.name())
    assert listed(context, queue) == []
    send_numbers(context, queue, 4)
    browser = context.create_browser(queue)
    assert [message.text for message in browser] == ["0", "1", "2", "3"]
    consumer = reader.create_consumer(queue)
    received(consumer).acknowledge()
    assert texts(consumer, 1) == ["1"]
    assert [message.text for message in browser] == ["1", "2", "3"]
    reader.close()
    assert counted(context.create_consumer(queue), 3) == [("1", 2), ("2", 1), ("3", 1)]


@every_front
@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED], ids=lambda mode: mode.name)
def test_a_browser_selects(connect: Connect, backend: Backend, mode: SessionMode) -> None:
    """In whatever mode: there is nothing to acknowledge."""
    publisher, context = connect(), connect(session_mode=mode)
    queue = context.create_queue(backend.name())
    for floor in range(5):
        publisher.create_producer().send(queue, str(floor), properties={"floor": floor})
    for _ in range(2):
        found = list(context.create_browser(queue, "floor BETWEEN 1 AND 3"))
        assert [(message.text, message.redelivered) for message in found] == [
            *(("1", False), ("2", False), ("3", False)),
        ]
    context.close()
    assert listed(publisher, queue) == ["0", "1", "2", "3", "4"]


@every_front
def test_a_browser_that_stops_in_the_middle(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    assert next(iter(context.create_browser(queue))).text == "0"
    assert texts(context.create_consumer(queue), 3) == ["0", "1", "2"]


@pytest.mark.parametrize("front", [Sync], ids=["sync"], indirect=True)
def test_a_browser_shows_more_than_its_window(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    sent = send_numbers(context, queue, 10_000)
    assert listed(context, queue) == sent


@every_front
def test_temporary_queues_are_queues(connect: Connect, backend: Backend) -> None:
    context, other = connect(), connect()
    queue = context.create_temporary_queue()
    for n, priority in enumerate((1, 9)):
        other.create_producer().send(queue, str(n), priority=priority, properties={"n": n})
    assert listed(context, queue, "n = 0") == ["0"]
    assert texts(context.create_consumer(queue), 2) == ["1", "0"]
    assert context.create_consumer(queue, "n = 2").receive(SOON) is None
