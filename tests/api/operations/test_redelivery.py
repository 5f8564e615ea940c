"""Handling fails, and the message comes again: when, in whose way, and in which order."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from itertools import pairwise
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon import Queue
from antiphon.api.operations.redelivery import redelivery_of
from antiphon.errors import IllegalStateError, InvalidDestinationError
from tests.api.support.backends import Backend, lose_connection
from tests.api.support.fronts import every_front
from tests.api.support.steps import (
    TRANSACTED,
    Connect,
    FailureError,
    counted,
    dead_letter,
    heard,
    inside,
    listed,
    plain,
    received,
    send,
    send_numbers,
    shared,
    texts,
    until,
)

LONG_S = 1000.0
"""A wait that is not over before the test is."""


class Failing:
    """A listener that cannot handle some messages, so often."""

    def __init__(self, fails: Callable[[Any], bool]) -> None:
        self.handled: Results[str] = Results()
        self.failed: Results[tuple[str, int]] = Results()
        self._fails = fails

    def __call__(self, message: Any) -> None:
        if self._fails(message):
            self.failed.put((message.text, message.delivery_count))
            raise FailureError(message.text)
        self.handled.put(message.text)


# -- Queues ---------------------------------------------------------------------------------------


@every_front
def test_an_outage_makes_no_dead_letters(connect: Connect, backend: Backend) -> None:
    """All of a queue fails at first, more often than ten times within the time of one wait."""
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 50)
    listener = Failing(lambda message: message.delivery_count == 1)
    context.create_consumer(queue).set_message_listener(listener)
    assert sorted(heard(listener.handled, 50), key=int) == [str(n) for n in range(50)]
    assert listener.failed.qsize() == 50
    until(lambda: listed(context, queue) == [])


@every_front
def test_what_waits_is_in_nobody_s_way(connect: Connect, backend: Backend) -> None:
    """Not even in that of a consumer which has room for one message."""
    context, other = connect(), connect()
    queue = context.create_queue(backend.name(), redelivery_delay=LONG_S, redelivery_most=LONG_S)
    send_numbers(context, queue, 20)
    listener = Failing(lambda message: message.text in ("0", "7"))
    context.create_consumer(queue).set_message_listener(listener)
    expected = [str(n) for n in range(20) if n not in (0, 7)]
    assert heard(listener.handled, 18) == expected
    until(lambda: listed(other, queue) == ["0", "7"])  # whoever looks sees that they wait
    assert heard(listener.failed, 2) == [("0", 1), ("7", 1)]


@every_front
def test_a_wait_is_not_shorter_than_it_is_said(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(
        backend.name(), redelivery_delay=0.1, redelivery_factor=2, redelivery_most=0.3, deliveries=4
    )
    times: Results[float] = Results()

    def listener(message: Any) -> None:
        times.put(time.monotonic())
        raise FailureError

    context.create_consumer(queue).set_message_listener(listener)
    send(context, queue, "bad")
    came = heard(times, 4)
    waits = [later - earlier for earlier, later in pairwise(came)]
    # The log's time and ours differ by 1 ms at most, and by 2 % in speed.
    assert all(wait >= 0.97 * least for wait, least in zip(waits, (0.1, 0.2, 0.3), strict=True))
    letter = dead_letter(context, queue)
    assert letter.properties["JMS_dead_reason"] == "its listener raised FailureError()"


@every_front
def test_dead_letters_go_where_the_queue_says(connect: Connect, backend: Backend) -> None:
    context = connect()
    bad = context.create_queue(backend.name("bad"), redelivery_delay=0)
    queue = context.create_queue(backend.name(), redelivery_delay=0, deliveries=2, dead_letters=bad)
    consumer = context.create_consumer(queue)
    listener = Failing(lambda message: True)
    consumer.set_message_listener(listener)
    send(context, queue, "hopeless")
    assert heard(listener.failed, 2) == [("hopeless", 1), ("hopeless", 2)]
    consumer.close()
    letters = context.create_consumer(bad)
    letter = received(letters)
    assert (letter.text, letter.destination, letter.delivery_count) == ("hopeless", queue, 1)
    assert listed(context, queue) == []


@every_front
def test_dead_letters_are_selected_by_their_reason(connect: Connect, backend: Backend) -> None:
    context = connect()
    bad = context.create_queue(backend.name("bad"))
    queue = context.create_queue(backend.name(), deliveries=1, dead_letters=bad)
    listener = Failing(lambda message: message.text != "end")
    context.create_consumer(queue).set_message_listener(listener)
    send(context, queue, "a", "b", "end")
    context.create_producer().send(bad, "sent there", properties={"n": 1})
    assert heard(listener.handled, 1) == ["end"]
    until(lambda: len(listed(context, bad)) == 3)
    selector = "JMS_dead_reason LIKE '%FailureError(%b%'"
    assert listed(context, bad, selector) == ["b"]
    assert sorted(listed(context, bad, "JMS_dead_reason IS NOT NULL")) == ["a", "b"]
    assert listed(context, bad, "JMS_dead_reason IS NULL") == ["sent there"]
    assert texts(context.create_consumer(bad, selector), 1) == ["b"]


@every_front
def test_a_dead_letter_that_cannot_be_handled_stays(connect: Connect, backend: Backend) -> None:
    context = connect()
    bad = context.create_queue(backend.name("bad"), redelivery_delay=0, deliveries=2)
    queue = context.create_queue(backend.name(), deliveries=1, dead_letters=bad.name)
    context.create_consumer(queue).set_message_listener(Failing(lambda message: True))
    send(context, queue, "hopeless")
    listener = Failing(lambda message: True)
    context.create_consumer(bad).set_message_listener(listener)
    assert heard(listener.failed, 5) == [("hopeless", n) for n in range(1, 6)]


@every_front
def test_whoever_asks_first_decides(connect: Connect, backend: Backend) -> None:
    context, other = connect(), connect()
    name = backend.name()
    asked = context.create_queue(name, deliveries=3)
    first = context.create_consumer(context.create_queue(name))  # decides nothing
    second = context.create_consumer(asked)
    with pytest.raises(IllegalStateError, match="4"):
        other.create_consumer(other.create_queue(name, deliveries=4))
    third = other.create_consumer(other.create_queue(name, deliveries=3, dead_letters="bad"))
    for consumer in (first, second, third):
        consumer.close()
    other.create_consumer(other.create_queue(name, deliveries=4))  # nothing is left of it


@pytest.mark.parametrize(
    "asked",
    [
        {"redelivery_delay": -1},
        {"redelivery_delay": float("nan")},
        {"redelivery_most": float("inf")},
        {"redelivery_factor": 0.5},
        {"deliveries": 0},
        {"dead_letters": "q"},
        {"dead_letters": antiphon.Topic("t")},
    ],
)
def test_what_makes_no_sense_is_refused_at_once(connect: Connect, asked: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(asked))):
        connect().create_queue("q", **asked)
    with pytest.raises((ValueError, TypeError, InvalidDestinationError)):
        connect().create_queue("q", redelivery_delay="soon")
    with pytest.raises(TypeError):
        connect().create_queue("q", redeliver_after=1)


def test_a_queue_keeps_what_was_said_of_it_when_it_is_pickled(connect: Connect) -> None:
    queue = connect().create_queue("q", redelivery_delay=2.5, dead_letters="bad")
    again = pickle.loads(pickle.dumps(queue))
    assert again == queue == Queue("q")
    assert again._redelivery == queue._redelivery
    assert pickle.loads(pickle.dumps(Queue("q")))._redelivery == Queue("q")._redelivery


@every_front
def test_what_failed_comes_again_after_a_lost_connection(
    connect: Connect, backend: Backend
) -> None:
    """Once: whether the servers had heard of the failure or not."""
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=0.05)
    listener = Failing(lambda message: message.delivery_count == 1)
    context.create_consumer(queue).set_message_listener(listener)
    for n in range(30):
        send(context, queue, str(n))
        if n % 10 == 5:
            lose_connection(context)
    assert sorted(heard(listener.handled, 30), key=int) == [str(n) for n in range(30)]
    assert listener.failed.qsize() == 30


@pytest.mark.parametrize("kind", ["selector", "shared", "shared durable", "shared member"])
def test_it_comes_again_to_whoever_shares(connect: Connect, backend: Backend, kind: str) -> None:
    context, name = connect(), backend.name()
    destination: Any = context.create_queue(name, redelivery_delay=0.02)
    if kind == "shared member":
        destination = context.create_group(name)
    elif kind != "selector":
        destination = context.create_topic(name)
    listener = Failing(lambda message: message.text == "1" and message.delivery_count < 3)
    for reader in (connect(), connect()):
        if kind == "selector":
            consumer = reader.create_consumer(destination, "n = 1")
        else:
            durable = "durable" in kind
            consumer = shared(reader, durable)(destination, name)
        consumer.set_message_listener(lambda m: listener(m) if hasattr(m, "text") else None)
    context.create_producer().send_all(destination, "0123", properties={"n": 1})
    assert sorted(heard(listener.handled, 4)) == ["0", "1", "2", "3"]
    assert heard(listener.failed, 2) == [("1", 1), ("1", 2)]


# -- Loops ----------------------------------------------------------------------------------------


def fail_once(consumer: Any) -> tuple[str, int]:
    """In a loop over it."""
    try:
        with consumer:
            for message in consumer:
                seen = message.text, message.delivery_count
                raise FailureError
    except FailureError:
        return seen
    raise AssertionError("the loop is over")


def test_what_failed_in_a_loop_waits(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=LONG_S, redelivery_most=LONG_S)
    send(context, queue, "bad", "good")
    assert fail_once(context.create_consumer(queue)) == ("bad", 1)
    consumer = context.create_consumer(queue)
    assert counted(consumer, 1) == [("good", 1)]
    assert consumer.receive(0.05) is None
    assert listed(context, queue) == ["bad"]


def test_a_loop_that_is_begun_again_and_again_makes_a_dead_letter_in_the_end(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=0.01, deliveries=3)
    send(context, queue, "bad")
    for count in (1, 2, 3):
        assert fail_once(context.create_consumer(queue)) == ("bad", count)
    assert dead_letter(context, queue).text == "bad"


def test_a_context_that_ends_with_an_error_fails_the_message_of_its_loop(
    connect: Connect, backend: Backend
) -> None:
    watching = connect()
    queue = watching.create_queue(backend.name(), redelivery_delay=LONG_S, redelivery_most=LONG_S)
    send(watching, queue, "bad", "good")

    def program() -> None:
        with connect() as context:
            for _ in context.create_consumer(queue):
                raise FailureError

    with pytest.raises(FailureError):
        program()
    assert counted(watching.create_consumer(queue), 1) == [("good", 1)]
    assert listed(watching, queue)[:1] == ["bad"]


def test_a_durable_subscription_waits_for_who_goes_on(connect: Connect, backend: Backend) -> None:
    """Its order is kept: all of it waits."""
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    context.create_durable_consumer(topic, "kept").close()
    send(context, topic, "bad", "good")
    assert fail_once(context.create_durable_consumer(topic, "kept")) == ("bad", 1)
    begun = time.monotonic()
    consumer = context.create_durable_consumer(topic, "kept")
    assert consumer.receive(0) is None
    assert counted(consumer, 2) == [("bad", 2), ("good", 1)]
    assert time.monotonic() - begun > 0.1


@every_front
def test_an_orderly_close_punishes_nobody(connect: Connect, backend: Backend) -> None:
    """What was shown comes again at once, counted; what was not shown is not counted."""
    context = connect(session_mode=TRANSACTED)
    queue = context.create_queue(backend.name(), redelivery_delay=LONG_S, redelivery_most=LONG_S)
    send_numbers(connect(), queue, 3)
    other = connect(session_mode=TRANSACTED)
    assert texts(other.create_consumer(queue), 1) == ["0"]
    other.close()
    assert counted(context.create_consumer(queue), 3) == [("0", 2), ("1", 1), ("2", 1)]


# -- In order -------------------------------------------------------------------------------------


@every_front
@pytest.mark.parametrize("kind", ["topic", "exclusive", "grouped"])
def test_what_keeps_its_order_waits_together(connect: Connect, backend: Backend, kind: str) -> None:
    context, name = connect(), backend.name()
    listener = Failing(lambda message: message.text == "1" and message.delivery_count < 3)
    options: Any = {"properties": {"JMSXGroupID": "g"}} if kind == "grouped" else {}
    if kind == "topic":
        destination = context.create_topic(name)
        consumer = context.create_consumer(destination)
    else:
        destination = context.create_queue(name, redelivery_delay=0.02)
        consumer = context.create_consumer(destination)
    if kind == "exclusive":
        inside(plain(consumer)).exclusive = True  # the classic API cannot ask for it
    consumer.set_message_listener(listener)
    producer = context.create_producer()
    for n in range(5):
        producer.send(destination, str(n), **options)
    assert heard(listener.handled, 5) == [str(n) for n in range(5)]
    assert heard(listener.failed, 2) == [("1", 1), ("1", 2)]


@every_front
def test_a_rollback_waits_and_keeps_the_order(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=TRANSACTED)
    queue = context.create_queue(backend.name(), redelivery_delay=0.1)
    send_numbers(connect(), queue, 4)
    consumer = context.create_consumer(queue)
    assert texts(consumer, 2) == ["0", "1"]
    begun = time.monotonic()
    context.rollback()
    assert consumer.receive(0) is None
    assert counted(consumer, 4) == [("0", 2), ("1", 2), ("2", 1), ("3", 1)]
    assert time.monotonic() - begun > 0.09
    context.rollback()
    context.rollback()  # there is nothing to wait for
    assert counted(consumer, 4) == [("0", 3), ("1", 3), ("2", 2), ("3", 2)]
    context.commit()


def test_with_workers_only_what_conflicts_waits(connect: Connect, backend: Backend) -> None:
    context = connect()
    relation = antiphon.ConflictRelation(["a", "b"], {("a", "a"), ("b", "b")})
    group = context.create_group(backend.name(), conflict=relation)
    member = context.join(group, "m", workers=2)
    order: Results[str] = Results()
    failed = []

    def listener(message: Any) -> None:
        if isinstance(message, antiphon.ViewMessage):
            return
        if message.text == "a1" and not failed:
            failed.append(message)
            raise FailureError
        order.put(message.text)

    member.set_message_listener(listener)
    for text in ("a1", "a2", "b1", "b2"):
        member.multicast(text, tag=text[0])
    handled = heard(order, 4)
    assert [text for text in handled if text[0] == "a"] == ["a1", "a2"]
    assert handled[:2] == ["b1", "b2"]
    assert order.empty()


def test_recover_does_not_wait(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=antiphon.CLIENT_ACKNOWLEDGE)
    queue = context.create_queue(backend.name(), redelivery_delay=LONG_S, redelivery_most=LONG_S)
    send(context, queue, "a")
    consumer = context.create_consumer(queue)
    for count in (1, 2, 3):
        assert counted(consumer, 1) == [("a", count)]
        context.recover()
    assert received(consumer).delivery_count == 4


# -- Servers of 0.1 --------------------------------------------------------------------------------


def test_a_server_of_0_1_is_not_told_of_failures(connect: Connect, backend: Backend) -> None:
    """It knows no such word: the client waits by itself."""
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=0.02)
    plain(context)._core.connection.conversation.holds = False
    listener = Failing(lambda message: message.delivery_count < 3)
    context.create_consumer(queue).set_message_listener(listener)
    send(context, queue, "a", "b")
    assert heard(listener.handled, 2) == ["a", "b"]
    assert heard(listener.failed, 4) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("value", [True, "2", [2], {}], ids=repr)
def test_a_factor_is_a_number(value: Any) -> None:
    with pytest.raises(TypeError, match="redelivery_factor is a number, not"):
        redelivery_of("jobs", redelivery_factor=value)


def test_an_option_that_a_queue_does_not_have_is_named() -> None:
    with pytest.raises(TypeError, match="a queue has no option 'redelivery_dealy'"):
        redelivery_of("jobs", redelivery_dealy=1.0)
