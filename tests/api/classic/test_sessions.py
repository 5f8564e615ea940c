"""The classic API: connections that must be started, sessions, and what each refuses."""

from __future__ import annotations

import itertools
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from logging.handlers import QueueHandler
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon.api.classic import sessions as classic
from antiphon.api.classic.endpoints import MessageConsumer, MessageProducer
from antiphon.api.modes import DeliveryMode, SessionMode
from antiphon.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
)
from tests.api.support.fronts import PATIENCE_S

numbers = itertools.count()
TOPIC, QUEUE = antiphon.Topic("Alarms"), antiphon.Queue("fires")


@pytest.fixture
def url() -> Iterator[str]:
    """A server of the test's own; a connection keeps it."""
    url = f"embedded:classic-{next(numbers)}"
    with antiphon.connect(url):
        yield url


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., antiphon.Connection]]:
    connections = []

    def connect(**options: Any) -> antiphon.Connection:
        connection = antiphon.ConnectionFactory(url, **options).create_connection()
        connections.append(connection)
        return connection

    yield connect
    for connection in connections:
        connection.close()


@pytest.fixture
def connection(connect: Callable[..., antiphon.Connection]) -> antiphon.Connection:
    return connect()


@pytest.fixture
def session(connection: antiphon.Connection) -> antiphon.Session:
    return connection.create_session()


def until_arrived(consumer: MessageConsumer) -> None:
    """Until there is something to be handed out."""
    arrived = threading.Event()
    inner = consumer._consumer._core
    stir = inner.stir

    def stirred() -> None:
        stir()
        if inner.inbox.ready:
            arrived.set()

    inner.stir = stirred  # type: ignore[method-assign]
    if not inner.inbox.ready:
        assert arrived.wait(PATIENCE_S)
    del inner.stir


def text(message: antiphon.Message | None) -> str:
    assert message is not None, "nothing came"
    return message.text


# -- Connections -----------------------------------------------------------------------------------


def test_a_connection_is_stopped_until_it_is_started(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    consumer = session.create_consumer(QUEUE)
    session.create_producer(QUEUE).send("Fire!")
    until_arrived(consumer)
    assert consumer.receive_no_wait() is None
    assert consumer.receive(0.01) is None
    connection.start()
    assert text(consumer.receive(PATIENCE_S)) == "Fire!"


def test_stop_and_start_are_for_all_sessions_of_a_connection(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    connection.start()
    connection.stop()
    consumer = connection.create_session().create_consumer(QUEUE)
    session.create_producer(QUEUE).send("Fire!")
    until_arrived(consumer)
    assert consumer.receive_no_wait() is None
    connection.start()
    assert text(consumer.receive(PATIENCE_S)) == "Fire!"


def test_another_connection_is_stopped_by_itself(connect: Any) -> None:
    one, two = connect(), connect()
    one.start()
    consumer = one.create_session().create_consumer(QUEUE)
    two.create_session().create_producer(QUEUE).send("Fire!")
    assert text(consumer.receive(PATIENCE_S)) == "Fire!"


@pytest.fixture
def warnings() -> Iterator[Results[logging.LogRecord]]:
    """What is logged meanwhile."""
    records: Results[logging.LogRecord] = Results()
    handler = QueueHandler(records)
    logging.getLogger("antiphon.api").addHandler(handler)
    yield records
    logging.getLogger("antiphon.api").removeHandler(handler)


def test_a_receive_that_nothing_can_end_is_warned_of(
    connection: antiphon.Connection,
    session: antiphon.Session,
    warnings: Results[logging.LogRecord],
) -> None:
    consumer, producer = session.create_consumer(QUEUE), session.create_producer(QUEUE)
    received: Results[Any] = Results()

    def receive_elsewhere() -> None:
        threading.Thread(target=lambda: received.put(consumer.receive())).start()

    assert consumer.receive(0.01) is None
    assert consumer.receive_no_wait() is None
    assert warnings.empty()
    receive_elsewhere()
    warning = warnings.get(timeout=PATIENCE_S).getMessage()
    assert "queue:fires" in warning
    assert "connection.start()" in warning
    connection.start()
    producer.send("Fire!")
    assert text(received.get(timeout=PATIENCE_S)) == "Fire!"
    connection.stop()  # that is no oversight
    receive_elsewhere()
    connection.start()
    producer.send("Smoke")
    assert text(received.get(timeout=PATIENCE_S)) == "Smoke"
    assert warnings.empty()


def test_a_client_id_is_set_before_anything_else(connection: antiphon.Connection) -> None:
    assert connection.client_id is None
    connection.client_id = "porter"
    assert connection.client_id == "porter"
    subscriber = connection.create_session().create_durable_subscriber(TOPIC, "mine")
    assert subscriber.topic == TOPIC
    with pytest.raises(IllegalStateError, match="'porter' and stays so"):
        connection.client_id = "another"
    assert connection.client_id == "porter"


@pytest.mark.parametrize(
    "use", [lambda c: c.start(), lambda c: c.stop(), lambda c: c.create_session()]
)
def test_after_any_use_it_is_too_late_for_a_client_id(
    connection: antiphon.Connection, use: Callable[[antiphon.Connection], Any]
) -> None:
    connection.exception_listener = print
    assert connection.metadata.provider_name == "Antiphon"
    use(connection)
    with pytest.raises(IllegalStateError, match="before anything else"):
        connection.client_id = "late"
    assert connection.client_id is None


def test_the_client_id_of_a_factory_stays(connect: Any) -> None:
    connection = connect(client_id="porter")
    assert connection.client_id == "porter"
    with pytest.raises(IllegalStateError):
        connection.client_id = "another"
    connection.create_session().create_durable_subscriber(TOPIC, "mine")


def test_a_client_id_that_is_taken_is_refused_and_can_be_set_anew(connect: Any) -> None:
    one, two = connect(), connect()
    one.client_id = "porter"
    with pytest.raises(InvalidClientIDError):
        two.client_id = "porter"
    assert two.client_id is None
    two.client_id = "other"
    two.create_session().create_durable_subscriber(TOPIC, "mine")
    one.close()
    three = connect()
    three.client_id = "porter"
    assert three.client_id == "porter"


def test_a_closed_connection_is_of_no_use(connection: antiphon.Connection) -> None:
    connection.close()
    connection.close()
    for use in (connection.start, connection.stop, connection.create_session):
        with pytest.raises(IllegalStateError, match="closed"):
            use()
    with pytest.raises(IllegalStateError, match="closed"):
        connection.client_id = "late"


def test_closing_a_connection_closes_all_that_is_on_it(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    producer, consumer = session.create_producer(QUEUE), session.create_consumer(QUEUE)
    connection.start()
    connection.close()
    connection.close()
    with pytest.raises(IllegalStateError, match="closed"):
        connection.create_session()
    with pytest.raises(IllegalStateError, match="closed"):
        session.create_consumer(QUEUE)
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("Fire!")
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.receive(0)


def test_with_blocks_close(url: str) -> None:
    with antiphon.ConnectionFactory(url).create_connection() as connection:
        connection.start()
        with connection.create_session() as session:
            with session.create_consumer(QUEUE) as consumer, session.create_producer() as producer:
                producer.send(QUEUE, "Fire!")
                assert text(consumer.receive(PATIENCE_S)) == "Fire!"
            with pytest.raises(IllegalStateError, match="closed"):
                consumer.receive(0)
            with pytest.raises(IllegalStateError, match="closed"):
                producer.send(QUEUE, "Fire!")
        with pytest.raises(IllegalStateError, match="closed"):
            session.create_consumer(QUEUE)
    with pytest.raises(IllegalStateError, match="closed"):
        connection.start()


def test_a_listener_may_not_close_what_waits_for_it(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    outcomes: Results[Exception | None] = Results()
    consumer = session.create_consumer(QUEUE)

    def attempt(call: Callable[[], None]) -> None:
        try:
            call()
        except IllegalStateError as error:
            outcomes.put(error)
        else:
            outcomes.put(None)

    def listen(message: antiphon.Message) -> None:
        for call in (connection.close, session.close, connection.stop, consumer.close):
            attempt(call)

    consumer.set_message_listener(listen)
    connection.start()
    session.create_producer(QUEUE).send("Fire!")
    found = [outcomes.get(timeout=PATIENCE_S) for _ in range(4)]
    assert [type(error) for error in found] == [IllegalStateError] * 3 + [type(None)]
    connection.create_session().create_producer(QUEUE).send("it is still of use")


def test_listeners_run_on_the_sessions_thread(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    heard: Results[tuple[str, threading.Thread]] = Results()

    def listen(message: antiphon.Message) -> None:
        heard.put((message.text, threading.current_thread()))

    other = connection.create_session()
    first, second = session.create_consumer(TOPIC), session.create_consumer(QUEUE)
    third = other.create_consumer(TOPIC)
    for consumer in (first, second, third):
        consumer.set_message_listener(listen)
    connection.start()
    producer = session.create_producer()
    producer.send(TOPIC, "to a topic")
    producer.send(QUEUE, "to a queue")
    found = [heard.get(timeout=PATIENCE_S) for _ in range(3)]
    assert len({thread for _, thread in found}) == 2
    assert sorted(text for text, _ in found) == ["to a queue", "to a topic", "to a topic"]
    with pytest.raises(IllegalStateError, match="listener"):
        first.receive(0)


@pytest.mark.parametrize("connected", [False, True])
def test_the_exception_listener_is_told(connection: antiphon.Connection, connected: bool) -> None:
    complaints: Results[Exception] = Results()
    if connected:
        connection.start()
    connection.exception_listener = complaints.put
    assert connection.exception_listener is not None
    session = connection.create_session()
    queue = session.create_queue(QUEUE.name, redelivery_delay=0)
    session.create_consumer(queue).set_message_listener(lambda message: 1 / 0)
    connection.start()
    session.create_producer(queue).send("Fire!")
    assert "ZeroDivisionError" in str(complaints.get(timeout=PATIENCE_S))


def test_what_belongs_to_a_connection_does_not_pickle(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    producer, consumer = session.create_producer(), session.create_consumer(QUEUE)
    for it in (connection, session, producer, consumer):
        with pytest.raises(TypeError, match="connect inside the task"):
            pickle.dumps(it)


def test_the_metadata_says_what_this_is(connection: antiphon.Connection) -> None:
    metadata = connection.metadata
    assert isinstance(metadata, antiphon.ConnectionMetaData)
    assert (metadata.jms_version, metadata.jms_major_version, metadata.jms_minor_version) == (
        *("2.0", 2, 0),
    )
    assert metadata.provider_version == antiphon.__version__
    version = f"{metadata.provider_major_version}.{metadata.provider_minor_version}."
    assert antiphon.__version__.startswith(version)
    assert metadata.jmsx_property_names == ("JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq")


# -- Factories -------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What contexts were asked for; there are none."""
    calls: list[dict[str, Any]] = []

    def connect(url: str | None, **options: Any) -> Any:
        calls.append({"url": url, **options})
        return Recorder()

    monkeypatch.setattr(classic, "connect", connect)
    return calls


def test_a_factory_has_what_connect_needs(asked: list[dict[str, Any]]) -> None:
    options: dict[str, Any] = {
        "client_id": "porter",
        "connect_timeout": 1.0,
        "send_timeout": 2.0,
        "close_timeout": 3.0,
        "trace": "folder",
        "tls": None,
        "allow_pickle": True,
        "packing": "off",
    }
    factory = antiphon.ConnectionFactory("embedded:", **options)
    factory.create_connection().start()
    auto = {"url": "embedded:", "session_mode": SessionMode.AUTO_ACKNOWLEDGE, **options}
    assert asked.pop() == auto
    factory.create_context(session_mode=antiphon.CLIENT_ACKNOWLEDGE)
    assert asked.pop() == {**auto, "session_mode": SessionMode.CLIENT_ACKNOWLEDGE}


@pytest.mark.parametrize("given", [("anna", "a"), ("anna", None), (None, "a")])
def test_users_and_passwords_are_refused_at_once(
    asked: list[dict[str, Any]], given: tuple[str | None, str | None]
) -> None:
    user, password = given
    factory = antiphon.ConnectionFactory("embedded:")
    for refused in (
        lambda: antiphon.ConnectionFactory("embedded:", user=user, password=password),
        lambda: factory.create_connection(user, password),
        lambda: factory.create_context(user, password),
        lambda: antiphon.TopicConnectionFactory().create_topic_connection(user, password),
        lambda: antiphon.QueueConnectionFactory().create_queue_connection(user, password),
    ):
        with pytest.raises(antiphon.SecurityError, match="keep no users") as error:
            refused()
        assert error.value.happened == "no"
    assert not asked


def test_a_connection_is_made_once_and_when_it_is_needed(asked: list[dict[str, Any]]) -> None:
    connection = antiphon.ConnectionFactory().create_connection()
    assert not asked
    connection.start()
    connection.create_session()
    assert [call["url"] for call in asked] == [None]


def test_a_factory_gives_contexts(url: str) -> None:
    with antiphon.ConnectionFactory(url).create_context() as context:
        context.create_producer().send(QUEUE, "Fire!")
        assert text(context.create_consumer(QUEUE).receive(PATIENCE_S)) == "Fire!"


def test_a_factory_pickles(url: str) -> None:
    factory = pickle.loads(pickle.dumps(antiphon.TopicConnectionFactory(url, client_id="porter")))
    with factory.create_topic_connection() as connection:
        connection.create_topic_session().create_durable_subscriber(TOPIC, "mine")


# -- Sessions --------------------------------------------------------------------------------------


def test_sessions_have_a_mode(connection: antiphon.Connection) -> None:
    auto = connection.create_session()
    assert (auto.transacted, auto.acknowledge_mode) == (False, SessionMode.AUTO_ACKNOWLEDGE)
    client = connection.create_session(acknowledge_mode=antiphon.CLIENT_ACKNOWLEDGE)
    assert (client.transacted, client.acknowledge_mode) == (False, SessionMode.CLIENT_ACKNOWLEDGE)


def test_a_mode_alone_makes_a_session(connection: antiphon.Connection) -> None:
    """As in JMS 2.0; as `transacted`, every mode but one would be true."""
    for mode in SessionMode:
        assert connection.create_session(mode).acknowledge_mode is mode


def test_what_is_not_acknowledged_can_be_had_again(connection: antiphon.Connection) -> None:
    session = connection.create_session(False, antiphon.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(QUEUE)
    session.create_producer(QUEUE).send("Fire!")
    connection.start()
    first = consumer.receive(PATIENCE_S)
    assert first is not None
    assert (first.redelivered, first.get_int_property("JMSXDeliveryCount")) == (False, 1)
    session.recover()
    again = consumer.receive(PATIENCE_S)
    assert again is not None
    assert (again.redelivered, again.get_int_property("JMSXDeliveryCount")) == (True, 2)
    session.close()
    other = connection.create_session()
    third = other.create_consumer(QUEUE).receive(PATIENCE_S)
    assert third is not None
    assert third.redelivered


def test_a_session_makes_messages(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    made = [
        session.create_message(),
        session.create_text_message(),
        session.create_text_message("Fire!"),
        session.create_bytes_message(b"x"),
        session.create_map_message({"a": 1}),
        session.create_stream_message([1]),
        session.create_object_message((1, 2)),
    ]
    consumer, producer = session.create_consumer(QUEUE), session.create_producer(QUEUE)
    connection.start()
    for message in made:
        producer.send(message)
        received = consumer.receive(PATIENCE_S)
        assert received is not None
        assert (type(received), received.body) == (type(message), message.body)


def test_temporary_destinations(connection: antiphon.Connection, session: antiphon.Session) -> None:
    connection.start()
    for destination in (session.create_temporary_queue(), session.create_temporary_topic()):
        consumer = session.create_consumer(destination)
        session.create_producer(destination).send("Fire!")
        assert text(consumer.receive(PATIENCE_S)) == "Fire!"
        consumer.close()
        destination.delete()
        with pytest.raises(InvalidDestinationError):
            session.create_producer(destination).send("Fire!")


def test_a_durable_subscriber_misses_nothing(connect: Any) -> None:
    publisher = connect().create_session().create_publisher(TOPIC)

    def subscribe() -> tuple[antiphon.Connection, antiphon.Session, antiphon.TopicSubscriber]:
        connection = connect()
        connection.client_id = "porter"
        connection.start()
        session = connection.create_session()
        return connection, session, session.create_durable_subscriber(TOPIC, "mine")

    connection, _, _ = subscribe()
    connection.close()
    publisher.publish("missed")
    connection, session, subscriber = subscribe()
    assert text(subscriber.receive(PATIENCE_S)) == "missed"
    with pytest.raises(IllegalStateError):
        session.unsubscribe("mine")
    subscriber.close()
    session.unsubscribe("mine")
    with pytest.raises(InvalidDestinationError):
        session.unsubscribe("mine")
    connection.close()
    publisher.publish("for nobody")
    _, session, subscriber = subscribe()
    publisher.publish("for a new subscription")
    assert text(subscriber.receive(PATIENCE_S)) == "for a new subscription"


def test_a_durable_consumer_is_the_same_thing(connect: Any) -> None:
    connection = connect(client_id="porter")
    session = connection.create_session()
    session.create_durable_consumer(TOPIC, "mine").close()
    session.create_producer(TOPIC).send("Fire!")
    connection.start()
    assert text(session.create_durable_subscriber(TOPIC, "mine").receive(PATIENCE_S)) == "Fire!"


def test_a_durable_subscriber_needs_a_client_id(session: antiphon.Session) -> None:
    for create in (session.create_durable_subscriber, session.create_durable_consumer):
        with pytest.raises(IllegalStateError, match="client id"):
            create(TOPIC, "mine")


@pytest.mark.parametrize("durable", [False, True])
def test_shared_consumers_divide_the_messages(connection: Any, durable: bool) -> None:
    connection.start()
    heard: Results[str] = Results()
    sessions = [connection.create_session() for _ in range(2)]
    for session in sessions:
        kind = "create_shared_durable_consumer" if durable else "create_shared_consumer"
        consumer = getattr(session, kind)(TOPIC, "us")
        consumer.set_message_listener(lambda message: heard.put(message.text))
    publisher = sessions[0].create_publisher(TOPIC)
    bodies = [str(number) for number in range(20)]
    for body in bodies:
        publisher.publish(body)
    assert sorted((heard.get(timeout=PATIENCE_S) for _ in bodies), key=int) == bodies
    assert heard.empty()


def test_a_transacted_session_commits_and_rolls_back(connection: antiphon.Connection) -> None:
    connection.start()
    plain, session = connection.create_session(), connection.create_session(True)
    assert (session.transacted, session.acknowledge_mode) == (True, SessionMode.SESSION_TRANSACTED)
    orders, bills = antiphon.Queue("orders"), antiphon.Queue("bills")
    plain.create_producer(orders).send("one piano")
    consumer, producer = session.create_consumer(orders), session.create_producer(bills)
    assert text(consumer.receive(PATIENCE_S)) == "one piano"
    producer.send("too cheap")
    session.rollback()
    again = consumer.receive(PATIENCE_S)
    assert again is not None
    assert again.redelivered
    producer.send("right")
    session.commit()
    assert text(plain.create_consumer(bills).receive(PATIENCE_S)) == "right"
    session.close()
    assert not list(plain.create_browser(orders))
    with pytest.raises(IllegalStateError, match="rolled back, not recovered"):
        connection.create_session(True).recover()
    for refused in (plain.commit, plain.rollback):
        with pytest.raises(IllegalStateError, match="not transacted"):
            refused()


def test_a_browser_shows_a_queue(connection: antiphon.Connection) -> None:
    session = connection.create_session()
    producer = session.create_sender(QUEUE)
    for body in ("mill", "barn"):
        producer.send(body)
    with session.create_browser(QUEUE) as browser:
        connection.start()
        assert [message.text for message in browser] == ["mill", "barn"]
    assert text(session.create_receiver(QUEUE).receive(PATIENCE_S)) == "mill"


# -- Producers and consumers -----------------------------------------------------------------------


def test_publishers_and_subscribers(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    subscriber = session.create_subscriber(TOPIC)
    assert (subscriber.topic, subscriber.no_local, subscriber.message_selector) == (
        *(TOPIC, False, None),
    )
    publisher = session.create_publisher(TOPIC)
    assert publisher.topic == publisher.destination == TOPIC
    publisher.publish("published")
    publisher.send("sent")
    anywhere = session.create_publisher()
    assert anywhere.topic is None
    anywhere.publish(TOPIC, "anywhere")
    connection.start()
    assert [text(subscriber.receive(PATIENCE_S)) for _ in range(3)] == [
        *("published", "sent", "anywhere"),
    ]


def test_senders_and_receivers(connection: antiphon.Connection, session: antiphon.Session) -> None:
    receiver = session.create_receiver(QUEUE)
    assert (receiver.queue, receiver.message_selector) == (QUEUE, None)
    sender = session.create_sender(QUEUE)
    assert sender.queue == sender.destination == QUEUE
    sender.send("sent")
    anywhere = session.create_sender()
    assert anywhere.queue is None
    anywhere.send(QUEUE, "anywhere")
    connection.start()
    assert [text(receiver.receive(PATIENCE_S)) for _ in range(2)] == ["sent", "anywhere"]
    assert receiver.receive_no_wait() is None


def test_subscribers_select(connect: Any) -> None:
    connection, elsewhere = connect(), connect()
    session = connection.create_session()
    high = session.create_subscriber(TOPIC, "floor > 3")
    foreign = session.create_subscriber(TOPIC, no_local=True)
    assert (high.message_selector, foreign.no_local) == ("floor > 3", True)
    connection.start()
    for name, sender in (("mine", session), ("another's", elsewhere.create_session())):
        for floor in (2, 4):
            message = sender.create_text_message(f"{name} {floor}")
            message.set_long_property("floor", floor)
            sender.create_publisher(TOPIC).publish(message)
    assert [text(high.receive(PATIENCE_S)) for _ in range(2)] == ["mine 4", "another's 4"]
    assert [text(foreign.receive(PATIENCE_S)) for _ in range(2)] == ["another's 2", "another's 4"]
    with pytest.raises(InvalidSelectorError):
        session.create_receiver(QUEUE, "floor >")


def test_a_topic_is_no_queue(session: antiphon.Session) -> None:
    for create in (session.create_publisher, session.create_subscriber):
        with pytest.raises(InvalidDestinationError, match="is not a topic"):
            create(QUEUE)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationError, match="is not a topic"):
        session.create_durable_subscriber(QUEUE, "x")  # type: ignore[arg-type]
    for create in (session.create_sender, session.create_receiver):
        with pytest.raises(InvalidDestinationError, match="is not a queue"):
            create(TOPIC)  # type: ignore[arg-type]


def test_a_producer_knows_where_to_send(session: antiphon.Session) -> None:
    producer = session.create_producer(QUEUE)
    assert producer.destination == QUEUE
    with pytest.raises(IllegalStateError, match="queue:fires only"):
        producer.send(QUEUE, "Fire!")
    with pytest.raises(IllegalStateError, match="has no destination"):
        session.create_producer().send("Fire!")
    for what in ((), (QUEUE, "Fire!", 4)):
        with pytest.raises(TypeError, match="takes a message"):
            producer.send(*what)
    with pytest.raises(MessageFormatError):
        producer.send(object())


def test_a_producer_has_defaults(
    connection: antiphon.Connection, session: antiphon.Session
) -> None:
    consumer, producer = session.create_consumer(QUEUE), session.create_producer(QUEUE)
    connection.start()

    def sent(**headers: Any) -> antiphon.Message:
        producer.send("Fire!", **headers)
        received = consumer.receive(PATIENCE_S)
        assert received is not None
        return received

    plain = sent()
    assert (plain.priority, plain.delivery_mode) == (4, DeliveryMode.PERSISTENT)
    producer.priority, producer.delivery_mode = 9, DeliveryMode.NON_PERSISTENT
    producer.disable_message_id = producer.disable_message_timestamp = True
    changed = sent(properties={"floor": 4}, correlation_id="c-1")
    assert (changed.priority, changed.delivery_mode) == (9, DeliveryMode.NON_PERSISTENT)
    assert (changed.properties, changed.correlation_id) == ({"floor": 4}, "c-1")
    assert changed.id is not None
    assert changed.timestamp > 0
    given = sent(priority=0, delivery_mode=DeliveryMode.PERSISTENT)
    assert (given.priority, given.delivery_mode) == (0, DeliveryMode.PERSISTENT)
    assert sent(priority=None).priority == 9
    producer.time_to_live = 60
    assert sent().expiration > 0
    assert sent(time_to_live=0).expiration == 0
    producer.priority = 10
    with pytest.raises(ValueError, match="priority"):
        producer.send("Fire!")


# -- Without a server: what is handed on -----------------------------------------------------------


class Recorder:
    """Stands for a context, a producer or a consumer, and takes note of what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Recorder:
            self.calls.append((name, *args, options) if options else (name, *args))
            return self

        return call


def test_a_producers_times_are_defaults_too() -> None:
    recorder: Any = Recorder()
    producer = MessageProducer(recorder, QUEUE)
    producer.time_to_live, producer.delivery_delay = 5.0, 0.5
    producer.send("Fire!", time_to_live=1)
    (_, destination, body, headers), *rest = recorder.calls
    assert (destination, body, rest) == (QUEUE, "Fire!", [])
    assert (headers["time_to_live"], headers["delivery_delay"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("transacted", "mode", "asked_for"),
    [
        (False, antiphon.AUTO_ACKNOWLEDGE, SessionMode.AUTO_ACKNOWLEDGE),
        (True, antiphon.AUTO_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED),
        (False, antiphon.SESSION_TRANSACTED, SessionMode.SESSION_TRANSACTED),
        (False, antiphon.DUPS_OK_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE),
    ],
)
def test_transacted_is_a_mode(
    asked: list[dict[str, Any]], transacted: bool, mode: SessionMode, asked_for: SessionMode
) -> None:
    connection = antiphon.ConnectionFactory().create_connection()
    session = connection.create_session(transacted, mode)
    recorder: Any = session._context
    assert ("create_context", asked_for) in recorder.calls


CALLS: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("commit", (), ("commit",)),
    ("rollback", (), ("rollback",)),
    ("create_browser", (QUEUE, "a = 1"), ("create_browser", QUEUE, "a = 1")),
    (
        "create_shared_consumer",
        (TOPIC, "us", "a = 1"),
        ("create_shared_consumer", TOPIC, "us", "a = 1"),
    ),
    (
        "create_shared_durable_consumer",
        (TOPIC, "us", "a = 1"),
        ("create_shared_durable_consumer", TOPIC, "us", "a = 1"),
    ),
    (
        "create_consumer",
        (TOPIC, "a = 1", True),
        ("create_consumer", TOPIC, "a = 1", True),
    ),
    (
        "create_durable_consumer",
        (TOPIC, "me", "a = 1", True),
        ("create_durable_consumer", TOPIC, "me", "a = 1", True),
    ),
    (
        "create_durable_subscriber",
        (TOPIC, "me", "a = 1", True),
        ("create_durable_consumer", TOPIC, "me", "a = 1", True),
    ),
    (
        "create_subscriber",
        (TOPIC, "a = 1", True),
        ("create_consumer", TOPIC, "a = 1", True),
    ),
    ("create_receiver", (QUEUE, "a = 1"), ("create_consumer", QUEUE, "a = 1")),
]


@pytest.mark.parametrize(("method", "given", "handed_on"), CALLS, ids=lambda value: str(value))
def test_a_session_hands_on_what_it_is_asked(
    method: str, given: tuple[Any, ...], handed_on: tuple[Any, ...]
) -> None:
    recorder: Any = Recorder()
    made = getattr(antiphon.Session(recorder, recorder), method)(*given)
    assert recorder.calls == [handed_on]
    if isinstance(made, MessageConsumer):
        assert made.message_selector == "a = 1"


# -- Topics alone, queues alone --------------------------------------------------------------------


def test_topics_alone(url: str) -> None:
    factory = antiphon.TopicConnectionFactory(url)
    with factory.create_topic_connection() as connection:
        session = connection.create_topic_session(False, antiphon.AUTO_ACKNOWLEDGE)
        topic = session.create_topic("Alarms")
        subscriber = session.create_subscriber(topic)
        connection.start()
        session.create_publisher(topic).publish(session.create_text_message("Fire!"))
        assert text(subscriber.receive(PATIENCE_S)) == "Fire!"
        session.create_temporary_topic().delete()
        for refused in (
            lambda: session.create_queue("q"),
            lambda: session.create_temporary_queue(),
            lambda: session.create_consumer(QUEUE),
            lambda: session.create_producer(QUEUE),
            lambda: session.create_sender(QUEUE),
            lambda: session.create_receiver(QUEUE),
            lambda: session.create_browser(QUEUE),
        ):
            with pytest.raises(IllegalStateError, match="TopicSession does not deal with a Queue"):
                refused()
        assert connection.create_session().create_queue("q") == antiphon.Queue("q")


def test_queues_alone(url: str) -> None:
    factory = antiphon.QueueConnectionFactory(url)
    with factory.create_queue_connection() as connection:
        session = connection.create_queue_session(False, antiphon.AUTO_ACKNOWLEDGE)
        queue = session.create_queue("fires")
        receiver = session.create_receiver(queue)
        connection.start()
        session.create_sender(queue).send(session.create_text_message("Fire!"))
        assert text(receiver.receive(PATIENCE_S)) == "Fire!"
        session.create_temporary_queue().delete()
        for refused in (
            lambda: session.create_topic("t"),
            lambda: session.create_temporary_topic(),
            lambda: session.create_consumer(TOPIC),
            lambda: session.create_producer(TOPIC),
            lambda: session.create_publisher(TOPIC),
            lambda: session.create_subscriber(TOPIC),
            lambda: session.create_durable_subscriber(TOPIC, "mine"),
            lambda: session.create_durable_consumer(TOPIC, "mine"),
            lambda: session.create_shared_consumer(TOPIC, "us"),
            lambda: session.create_shared_durable_consumer(TOPIC, "us"),
            lambda: session.unsubscribe("mine"),
        ):
            with pytest.raises(IllegalStateError, match="QueueSession does not deal with a Topic"):
                refused()


def test_sessions_of_one_kind_have_modes_too(asked: list[dict[str, Any]]) -> None:
    topics = antiphon.TopicConnectionFactory().create_topic_connection()
    queues = antiphon.QueueConnectionFactory().create_queue_connection()
    mode = antiphon.CLIENT_ACKNOWLEDGE
    made: list[Any] = [
        topics.create_topic_session(True),
        topics.create_topic_session(acknowledge_mode=mode),
        queues.create_queue_session(True),
        queues.create_queue_session(acknowledge_mode=mode),
    ]
    assert [type(session).__name__ for session in made] == [
        *("TopicSession", "TopicSession", "QueueSession", "QueueSession"),
    ]
    asked_for = [("create_context", SessionMode.SESSION_TRANSACTED), ("create_context", mode)]
    for session in made:
        assert [call for call in session._context.calls if call in asked_for] == asked_for
    assert len(asked) == 2
