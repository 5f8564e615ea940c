"""The promises of the client API: each test runs on both fronts, against each kind of server.

`jms/test_*.py` have what JMS implementers get wrong; here is the rest.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from itertools import chain
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon import SessionMode
from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    MessageFormatError,
    ResourceAllocationError,
)
from tests.api.support.backends import Backend, lose_connection
from tests.api.support.fronts import PATIENCE_S
from tests.api.support.steps import (
    CLIENT,
    INDIVIDUAL,
    SOON,
    Connect,
    FailureError,
    in_thread,
    plain,
    received,
    send_numbers,
    texts,
    until_waiting,
)

# -- Topics ---------------------------------------------------------------------------------------


def test_every_subscriber_of_a_topic_gets_every_message_in_order(
    connect: Connect, backend: Backend
) -> None:
    publisher, one, two = connect(), connect(), connect()
    topic = publisher.create_topic(backend.name())
    consumers = [one.create_consumer(topic), two.create_consumer(topic), two.create_consumer(topic)]
    sent = send_numbers(publisher, topic, 500)
    for consumer in consumers:
        assert texts(consumer, 500) == sent
        assert consumer.receive(0) is None


def test_a_subscription_begins_when_it_is_made(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_topic(backend.name())
    producer = context.create_producer()
    producer.send(topic, "before")
    consumer = context.create_consumer(topic)
    producer.send(topic, "after")
    assert texts(consumer, 1) == ["after"]


def test_wildcards_receive_what_they_match(connect: Connect, backend: Backend) -> None:
    context = connect()
    base = backend.name()
    one_part = context.create_consumer(context.create_topic(f"{base}.*"))
    all_below = context.create_consumer(context.create_topic(f"{base}.>"))
    producer = context.create_producer()
    for name in (f"{base}", f"{base}.a", f"{base}.a.b", f"x{base}.a", f"{base}.c"):
        producer.send(context.create_topic(name), name)
    assert texts(one_part, 2) == [f"{base}.a", f"{base}.c"]
    assert texts(all_below, 3) == [f"{base}.a", f"{base}.a.b", f"{base}.c"]
    assert one_part.receive(SOON) is None


def test_nothing_is_sent_to_a_wildcard(connect: Connect, backend: Backend) -> None:
    context = connect()
    with pytest.raises(InvalidDestinationError, match="many topics"):
        context.create_producer().send(context.create_topic(f"{backend.name()}.*"), "x")


def test_a_durable_subscription_misses_nothing(connect: Connect, backend: Backend) -> None:
    publisher = connect()
    topic = publisher.create_topic(backend.name())
    client = backend.name("client")
    first = connect(client_id=client)
    first.create_durable_consumer(topic, "mailbox").close()
    send_numbers(publisher, topic, 3)
    first.close()
    send_numbers(publisher, topic, 3)
    consumer = connect(client_id=client).create_durable_consumer(topic, "mailbox")
    assert texts(consumer, 6) == ["0", "1", "2", "0", "1", "2"]


def test_a_durable_subscription_goes_on_where_it_was(connect: Connect, backend: Backend) -> None:
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    consumer = context.create_durable_consumer(topic, "mailbox")
    send_numbers(context, topic, 5)
    assert texts(consumer, 2) == ["0", "1"]
    consumer.close()
    consumer = context.create_durable_consumer(topic, "mailbox")
    message = received(consumer)
    assert (message.text, message.redelivered) == ("2", False)


# -- Queues ---------------------------------------------------------------------------------------


def test_a_queue_keeps_its_messages_until_somebody_comes(
    connect: Connect, backend: Backend
) -> None:
    producer = connect()
    queue = producer.create_queue(backend.name())
    sent = send_numbers(producer, queue, 100)
    producer.close()
    assert texts(connect().create_consumer(queue), 100) == sent


def test_competing_consumers_share_a_queue(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    consumers = [connect().create_consumer(queue, prefetch=10) for _ in range(3)]
    sent = send_numbers(context, queue, 300)
    shares: list[list[str]] = [[], [], []]
    while sum(map(len, shares)) < 300:
        for consumer, share in zip(consumers, shares, strict=True):
            message = consumer.receive(SOON)
            if message is not None:
                share.append(message.text)
    assert sorted(chain.from_iterable(shares), key=int) == sent
    assert all(share == sorted(share, key=int) and share for share in shares)


# -- Temporary destinations, request and reply ----------------------------------------------------


def test_request_and_reply(connect: Connect, backend: Backend) -> None:
    client, server = connect(), connect()
    questions = client.create_queue(backend.name())
    answers = client.create_temporary_queue()
    answer_consumer = client.create_consumer(answers)
    client.create_producer().send(questions, "6 * 7", reply_to=answers, correlation_id="q1")

    question = received(server.create_consumer(questions))
    assert question.reply_to == answers
    server.create_producer().send(question.reply_to, "42", correlation_id=question.correlation_id)

    answer = received(answer_consumer)
    assert (answer.text, answer.correlation_id) == ("42", "q1")


# -- Acknowledging --------------------------------------------------------------------------------


def test_what_was_received_automatically_does_not_come_again(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 20)
    consumer = connect()
    assert len(texts(consumer.create_consumer(queue), 20)) == 20
    consumer.close()
    assert context.create_consumer(queue).receive(SOON) is None


def test_acknowledging_message_by_message(connect: Connect, backend: Backend) -> None:
    context = connect(client_id=backend.name("client"))
    queue, topic = context.create_queue(backend.name()), context.create_topic(backend.name())
    reader = connect(session_mode=INDIVIDUAL, client_id=(client := backend.name("client")))
    consumers = [reader.create_consumer(queue), reader.create_durable_consumer(topic, "box")]
    for destination in (queue, topic):
        send_numbers(context, destination, 5)
    for consumer in consumers:
        messages = [received(consumer) for _ in range(4)]
        messages[2].acknowledge()
        messages[0].acknowledge()
    reader.close()
    left = connect(client_id=client)
    for consumer in (left.create_consumer(queue), left.create_durable_consumer(topic, "box")):
        messages = [received(consumer) for _ in range(3)]
        assert [(m.text, m.redelivered) for m in messages] == [
            ("1", True),
            ("3", True),
            ("4", False),
        ]
        assert consumer.receive(SOON) is None


def test_the_context_acknowledges_what_it_delivered(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    reader = connect(session_mode=CLIENT)
    assert texts(reader.create_consumer(queue), 2) == ["0", "1"]
    reader.acknowledge()
    reader.close()
    assert texts(context.create_consumer(queue), 1) == ["2"]


def test_a_message_of_a_closed_consumer_can_be_acknowledged(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 4)
    reader = connect(session_mode=CLIENT)
    consumer = reader.create_consumer(queue)
    message = received(consumer)
    consumer.close()
    message.acknowledge()
    consumer = reader.create_consumer(queue)
    assert texts(consumer, 2) == ["1", "2"]
    consumer.close()
    reader.recover()  # gives back what the closed consumer had
    other = context.create_consumer(queue)
    messages = [received(other) for _ in range(3)]
    assert [(m.text, m.delivery_count) for m in messages] == [("1", 2), ("2", 2), ("3", 1)]


# -- Loops ----------------------------------------------------------------------------------------


def test_a_loop_acknowledges_a_message_when_the_next_is_asked_for(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=0)
    send_numbers(context, queue, 5)

    def handle_some() -> None:
        with connect() as reader:
            for message in reader.create_consumer(queue):
                if message.text == "2":
                    raise FailureError

    with pytest.raises(FailureError):
        handle_some()
    messages = [received(consumer) for consumer in [context.create_consumer(queue)] * 3]
    assert [(m.text, m.redelivered) for m in messages] == [
        ("2", True),
        ("3", False),
        ("4", False),
    ]


def test_a_message_whose_loop_raised_comes_again_on_the_same_context(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=0)
    send_numbers(context, queue, 2)

    def handle_one() -> None:
        with context.create_consumer(queue) as consumer:
            for _ in consumer:
                raise FailureError

    with pytest.raises(FailureError):
        handle_one()
    with context.create_consumer(queue) as consumer:
        messages = [received(consumer) for _ in range(2)]
    assert [(m.text, m.delivery_count) for m in messages] == [("0", 2), ("1", 1)]


@pytest.mark.parametrize("block", ["consumer", "context"])
def test_leaving_a_with_block_acknowledges_the_message_of_its_loop(
    connect: Connect, backend: Backend, block: str
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    reader = connect()
    consumer = reader.create_consumer(queue)
    with consumer if block == "consumer" else reader:
        for _ in consumer:
            break
    reader.close()
    assert texts(context.create_consumer(queue), 2) == ["1", "2"]


@pytest.mark.parametrize("how", ["after it", "inside", "with its context"])
def test_a_message_whose_loop_was_left_goes_back_when_its_consumer_is_closed(
    connect: Connect, backend: Backend, how: str
) -> None:
    """While its connection lives: nobody has asked for the next one."""
    context, other = connect(), connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 2)
    inner = context.create_context(antiphon.AUTO_ACKNOWLEDGE)
    consumer = inner.create_consumer(queue)
    for _ in consumer:
        if how == "inside":
            consumer.close()
        break
    if how == "with its context":
        inner.close()
    else:
        consumer.close()
    watching = other.create_consumer(queue)
    messages = sorted((received(watching) for _ in range(2)), key=lambda message: message.text)
    assert [(m.text, m.delivery_count) for m in messages] == [("0", 2), ("1", 1)]


def test_a_message_whose_loop_goes_on_does_not_go_back_when_its_consumer_is_closed(
    connect: Connect, backend: Backend
) -> None:
    context, other = connect(), connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 2)
    consumer = context.create_consumer(queue)
    loop = iter(consumer)
    assert next(loop).text == "0"
    consumer.close()
    watching = other.create_consumer(queue)
    assert received(watching).text == "1"
    assert watching.receive(0.05) is None
    assert next(loop, None) is None  # which acknowledges it
    context.close()
    assert watching.receive(0) is None


def test_a_loop_ends_when_its_consumer_is_closed(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    consumer = context.create_consumer(queue)
    seen = []
    for message in consumer:
        seen.append(message.text)
        if message.text == "1":
            consumer.close()
    assert seen == ["0", "1"]
    assert texts(context.create_consumer(queue), 1) == ["2"]  # what was seen is acknowledged


def test_a_loop_that_waits_ends_when_the_context_is_closed(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    consumer = context.create_consumer(context.create_queue(backend.name()))
    loop = in_thread(lambda: list(consumer))
    context.close()
    assert loop.get(timeout=PATIENCE_S) == []


# -- Receiving ------------------------------------------------------------------------------------


def test_receiving_with_and_without_time(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    consumer = context.create_consumer(queue)
    assert consumer.receive(0.01) is None
    assert consumer.receive(0) is None
    assert consumer.receive_no_wait() is None
    waiting = in_thread(lambda: received(consumer).text)
    context.create_producer().send(queue, "came")
    assert waiting.get(timeout=PATIENCE_S) == "came"


# -- Listeners ------------------------------------------------------------------------------------


def test_a_listener_gets_the_messages_one_at_a_time_and_in_order(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queues = [context.create_queue(backend.name()) for _ in range(2)]
    seen: Results[str] = Results()
    inside = threading.Lock()

    def listener(message: Any) -> None:
        assert inside.acquire(blocking=False), "two at a time"
        seen.put(message.text)
        inside.release()

    for queue in queues:
        context.create_consumer(queue).set_message_listener(listener)
    sent = send_numbers(context, queues[0], 50)
    assert [seen.get(timeout=PATIENCE_S) for _ in range(50)] == sent
    send_numbers(context, queues[1], 50)
    assert [seen.get(timeout=PATIENCE_S) for _ in range(50)] == sent


def test_messages_that_wait_go_to_a_listener_that_is_set_later(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    sent = send_numbers(context, queue, 10)
    consumer = context.create_consumer(queue)
    assert texts(consumer, 1) == ["0"]
    seen: Results[str] = Results()
    consumer.set_message_listener(lambda m: seen.put(m.text))
    assert [seen.get(timeout=PATIENCE_S) for _ in range(9)] == sent[1:]
    with pytest.raises(IllegalStateError, match="listener"):
        consumer.receive(1)


# -- Sending --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("text", antiphon.TextMessage),
        (b"bytes", antiphon.BytesMessage),
        ({"a": 1, "b": [b"x", None]}, antiphon.MapMessage),
        ([1, "two", 3.0], antiphon.StreamMessage),
        ((1, 2), antiphon.ObjectMessage),
        ("", antiphon.TextMessage),
    ],
)
def test_bodies_arrive_as_they_were_sent(
    connect: Connect, backend: Backend, body: Any, kind: type[Any]
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    context.create_producer().send(queue, body)
    message = received(context.create_consumer(queue))
    assert message.body == body
    assert isinstance(plain(message), kind)
    assert message  # also if its body is empty


def test_send_all_says_how_many_were_sent_before_one_failed(
    connect: Connect, backend: Backend
) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    producer = context.create_producer()
    assert producer.send_all(queue, []) == 0
    with pytest.raises(MessageFormatError) as caught:
        producer.send_all(queue, ["a", "b", object(), "c"])
    assert vars(caught.value)["sent"] == 2
    assert texts(context.create_consumer(queue), 2) == ["a", "b"]


def test_a_refused_send_says_so_however_it_was_sent(
    connect: Connect, backend: Backend, front: Any
) -> None:
    context = connect()
    producer = context.create_producer()
    queue = context.create_temporary_queue()
    front.do(queue.delete)
    with pytest.raises(InvalidDestinationError) as caught:
        producer.send(queue, "x")
    assert caught.value.happened == "no"
    future = producer.send_async(queue, "x")
    assert isinstance(future.exception(PATIENCE_S), InvalidDestinationError)
    with pytest.raises(InvalidDestinationError):
        producer.send_all(queue, ["x", "y"])
    good = context.create_queue(backend.name())
    producer.send(good, "the session goes on")
    assert texts(context.create_consumer(good), 1) == ["the session goes on"]


def test_a_failed_send_that_nobody_looks_at_is_reported(
    connect: Connect, backend: Backend, front: Any
) -> None:
    context = connect()
    complaints: Results[Exception] = Results()
    context.exception_listener = complaints.put
    queue = context.create_temporary_queue()
    front.do(queue.delete)
    context.create_producer().send_async(queue, "x")
    assert isinstance(complaints.get(timeout=PATIENCE_S), InvalidDestinationError)


def test_a_message_that_is_too_large_is_refused_at_once(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    with pytest.raises(ResourceAllocationError):
        context.create_producer().send(queue, bytes((64 << 20) + 1))
    large = bytes(1 << 20)
    context.create_producer().send(queue, large)
    assert received(context.create_consumer(queue)).body == large


def test_a_named_producer_goes_on_where_it_was(connect: Connect, backend: Backend) -> None:
    context = connect()
    name = backend.name("producer")
    queue = context.create_queue(backend.name())
    producer = context.create_producer(name=name)
    assert producer.send_all(queue, ["a", "b", "c"]) == 3
    assert producer.last_sequence == 3
    context.close()
    later = connect()
    producer = later.create_producer(name=name)
    producer.send(queue, "d")
    producer.close()
    producer = later.create_producer(name=name)
    producer.send(queue, "e")
    assert producer.last_sequence == 5
    assert texts(later.create_consumer(queue), 5) == ["a", "b", "c", "d", "e"]
    with pytest.raises(IllegalStateError, match="open"):
        connect().create_producer(name=name).send(queue, "f")


def test_objects_are_pickled_only_by_consent(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    with pytest.raises(MessageFormatError):
        context.create_producer().send(queue, Pickled(1))
    trusting = connect(allow_pickle=True)
    topic = context.create_topic(backend.name())
    consumers = [context.create_consumer(topic), trusting.create_consumer(topic)]
    trusting.create_producer().send(topic, Pickled(1))
    message = received(consumers[0])
    with pytest.raises(MessageFormatError, match="pickle"):
        _ = message.body
    assert received(consumers[1]).body == Pickled(1)


class Pickled:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pickled) and self.value == other.value

    def __hash__(self) -> int:
        return self.value


# -- Contexts -------------------------------------------------------------------------------------


def test_after_close_every_call_is_refused(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    context.close()
    context.close()
    consumer.close()
    producer.close()
    for call in (
        lambda: producer.send(queue, "x"),
        lambda: producer.send_async(queue, "x"),
        lambda: producer.send_all(queue, ["x"]),
        lambda: consumer.receive(0),
        lambda: consumer.set_message_listener(print),
        context.create_producer,
        lambda: context.create_consumer(queue),
        lambda: context.create_context(CLIENT),
        context.create_temporary_queue,
        context.recover,
        context.acknowledge,
        context.start,
        context.stop,
        lambda: context.unsubscribe("x"),
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_contexts_on_one_connection(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    root = connect()
    one, two = root.create_context(CLIENT), root.create_context(SessionMode.AUTO_ACKNOWLEDGE)
    assert one.session_mode is CLIENT
    consumer = one.create_consumer(queue)
    assert texts(consumer, 1) == ["0"]
    one.close()  # only this one; what it had goes back
    other = two.create_consumer(queue)
    assert texts(other, 3) == ["0", "1", "2"]
    root.close()
    with pytest.raises(IllegalStateError, match="closed"):
        other.receive(0)
    with pytest.raises(IllegalStateError, match="closed"):
        two.create_consumer(queue)


def test_wrong_arguments_are_refused_and_the_connection_goes_on(
    connect: Connect, backend: Backend
) -> None:
    context = connect(client_id=backend.name("client"))
    transacted = context.create_context(SessionMode.SESSION_TRANSACTED)
    topic, queue = context.create_topic(backend.name()), context.create_queue(backend.name())
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    group = context.create_group(backend.name("group"))
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("a selector is a str", lambda: context.create_consumer(topic, True)),
        ("a selector is a str", lambda: context.create_browser(queue, 5)),
        ("prefetch is an int", lambda: context.create_consumer(topic, prefetch=1.5)),
        ("cannot be sent", lambda: context.create_consumer(topic, slow=5)),
        ("the name of a subscription", lambda: context.create_durable_consumer(topic, 5)),
        ("the name of a subscription", lambda: context.create_shared_consumer(topic, None)),
        ("the name of a subscription", lambda: context.unsubscribe(None)),
        ("the name of a producer", lambda: plain(context).create_producer(name=5)),
        (r"create_producer\(\), then send", lambda: plain(context).create_producer(queue)),
        ("a token is a str", lambda: transacted.commit(token=5)),
        ("staged is a list", lambda: transacted.commit(staged="handle")),
        ("each of staged", lambda: transacted.commit(staged=[5])),
        ("a listener is a function", lambda: consumer.set_message_listener(5)),
        ("a listener is a function", lambda: setattr(context, "exception_listener", 5)),
        ("a timeout is a number of seconds", lambda: consumer.receive("1")),
        ("time_to_live is a number", lambda: producer.send(queue, "x", time_to_live="1")),
        ("remove_after is a number", lambda: context.create_group("g", remove_after="1")),
        ("cannot be sent", lambda: context.join(group, "a", durable="yes")),
        ("client_id is a str", lambda: connect(client_id=5)),
        ("connect_timeout is a number", lambda: connect(connect_timeout=None)),
    ]
    for complaint, call in wrong:
        with pytest.raises(TypeError, match=complaint):
            call()
    with pytest.raises(ValueError, match="UTF-8"):
        context.unsubscribe("\ud800")
    with pytest.raises(InvalidClientIDError, match="not empty"):
        connect(client_id="")
    with pytest.raises(IllegalStateError, match="has a name"):
        context.create_durable_consumer(topic, "")
    with pytest.raises(IllegalStateError, match="exclusive is for queues"):
        context.create_consumer(topic, exclusive=True)
    with pytest.raises(MessageFormatError, match="mapping"):
        producer.send(queue, "x", properties=[1])
    producer.send(queue, "the connection goes on")
    assert texts(consumer, 1) == ["the connection goes on"]


def test_a_context_is_not_pickled(connect: Connect) -> None:
    context = connect()
    with pytest.raises(TypeError, match="connect inside the task"):
        pickle.dumps(plain(context))


def test_a_destination_that_is_none_is_refused(connect: Connect) -> None:
    context = connect()
    with pytest.raises(InvalidDestinationError, match="create_topic"):
        context.create_producer().send("topic:x", "x")
    with pytest.raises(InvalidDestinationError, match="create_topic"):
        context.create_consumer("topic:x")


# -- Lost connections -----------------------------------------------------------------------------


def test_a_lost_connection_is_only_a_pause(connect: Connect, backend: Backend) -> None:
    sender, reader = connect(), connect()
    queue, topic = sender.create_queue(backend.name()), sender.create_topic(backend.name())
    consumers = [reader.create_consumer(queue), reader.create_consumer(topic)]
    temporary = reader.create_temporary_queue()
    producer = sender.create_producer()
    futures = []
    for n in range(600):
        futures += [producer.send_async(queue, str(n)), producer.send_async(topic, str(n))]
        if n % 200 == 100:
            lose_connection(sender)
            lose_connection(reader)
    for future in futures:
        future.result(PATIENCE_S)
    for consumer in consumers:
        messages = [received(consumer) for _ in range(600)]
        assert [m.text for m in messages] == [str(n) for n in range(600)]
        assert not any(m.redelivered for m in messages)
        lose_connection(reader)
    producer.send(temporary, "still there")
    assert texts(reader.create_consumer(temporary), 1) == ["still there"]
    reader.close()
    assert sender.create_consumer(queue).receive(SOON) is None  # all was acknowledged


def test_a_blocked_receive_outlives_its_connection(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    reader = connect(session_mode=CLIENT)
    consumer = reader.create_consumer(queue)
    waiting = in_thread(lambda: received(consumer).text)
    until_waiting(consumer)
    lose_connection(reader)
    context.create_producer().send(queue, "came")
    assert waiting.get(timeout=PATIENCE_S) == "came"
    lose_connection(reader)
    reader.acknowledge()
    reader.close()
    assert context.create_consumer(queue).receive(SOON) is None


def test_requests_are_answered_across_lost_connections(connect: Connect, backend: Backend) -> None:
    context = connect()
    topics = [context.create_topic(backend.name()) for _ in range(4)]
    consumers = []
    for topic in topics:
        lose_connection(context)
        consumers.append(context.create_consumer(topic))
    for topic, consumer in zip(topics, consumers, strict=True):
        context.create_producer().send(topic, topic.name)
        assert texts(consumer, 1) == [topic.name]


def test_nobody_to_connect_to(front: Any) -> None:
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1: ") as caught:
        front.connect("antiphon://127.0.0.1:1", connect_timeout=0.3)
    assert caught.value.happened == "no"
