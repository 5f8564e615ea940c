"""The classic API (JMS 1.1): connection factories, connections and sessions.

For programs that use it; a thin layer over contexts, with their promises. A connection is the
context that owns it, and is stopped until `start()`; a session is another context on it. A
connection is made by the first call that needs it, so that the client id can be set before.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar, Unpack

from antiphon._version import __version__
from antiphon.api import arguments
from antiphon.api.classic.endpoints import (
    Closing,
    MessageConsumer,
    MessageProducer,
    QueueReceiver,
    QueueSender,
    TopicPublisher,
    TopicSubscriber,
    check_queue,
    check_topic,
)
from antiphon.api.face.context import ExceptionListener
from antiphon.api.messages.destinations import (
    Destination,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from antiphon.api.messages.kinds import (
    BytesMessage,
    MapMessage,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from antiphon.api.messages.message import Message
from antiphon.api.messages.properties import DELIVERY_COUNT
from antiphon.api.modes import SessionMode
from antiphon.api.operations.redelivery import NO_REDELIVERY, RedeliveryOptions
from antiphon.api.options import FACTORY_DEFAULTS, ConnectOptions, FactoryOptions, check_names
from antiphon.api.signatures import made_by, spelled_out
from antiphon.api.sync import Browser, Context, connect
from antiphon.errors import IllegalStateError

SessionKind = TypeVar("SessionKind", bound="Session")


class ConnectionFactory:
    """The arguments of `connect`, to be used any number of times.

    `url` and the options are those of `connect`, but for `session_mode`. Raise `SecurityError` for
    a user or a password, and `TypeError` for an unknown option; other mistakes raise when it
    connects.
    """

    url: str | None
    client_id: str | None

    @spelled_out(FactoryOptions, FACTORY_DEFAULTS)
    def __init__(self, url: str | None = None, **options: Unpack[FactoryOptions]) -> None:
        self.url = url
        self.client_id = options.get("client_id")
        arguments.check_credentials(options.get("user"), options.get("password"))
        check_names(options)
        self._options = options

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Return a connection, stopped. It is made by the first call that needs it, so that its
        client id can be set before. Raise `SecurityError` for a user or a password."""
        return Connection(self, user, password)

    def create_context(
        self,
        user: str | None = None,
        password: str | None = None,
        session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> Context:
        """Connect, and return a started context, as `connect` does. Raise the errors of `connect`,
        and `SecurityError` for a user or a password."""
        arguments.check_credentials(user, password)
        return self._connect(self.client_id, session_mode)

    def _connect(
        self,
        client_id: str | None,
        session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> Context:
        options: ConnectOptions = {
            **self._options,
            "client_id": client_id,
            "session_mode": session_mode,
        }
        return connect(self.url, **options)


class ConnectionMetaData(NamedTuple):
    """The version of JMS that this implements, its own version, and the `JMSX` properties that it
    knows."""

    jms_version: str
    jms_major_version: int
    jms_minor_version: int
    provider_name: str
    provider_version: str
    provider_major_version: int
    provider_minor_version: int
    jmsx_property_names: tuple[str, ...]


def _metadata() -> ConnectionMetaData:
    major, minor = __version__.split(".")[:2]
    ours = ("Antiphon", __version__, int(major), int(minor))
    return ConnectionMetaData("2.0", 2, 0, *ours, (DELIVERY_COUNT, "JMSXGroupID", "JMSXGroupSeq"))


class Connection(Closing):
    """A connection of the classic API (JMS 1.1), made by `ConnectionFactory.create_connection`.

    It is stopped until `start()`, and makes sessions, which send and receive. Closing it closes
    them with their producers and consumers.
    """

    metadata: ClassVar[ConnectionMetaData] = _metadata()

    @made_by("`ConnectionFactory.create_connection` and its siblings")
    def __init__(
        self, factory: ConnectionFactory, user: str | None = None, password: str | None = None
    ) -> None:
        self._ever_started = False
        arguments.check_credentials(user, password)
        self._factory = factory
        self._client_id = factory.client_id
        self._listener: ExceptionListener | None = None
        self._lock = threading.Lock()
        self._owner: Context | None = None  # None: not connected yet
        self._closed = False

    @property
    def client_id(self) -> str | None:
        """The name to which durable subscriptions belong. It can be set once, before anything else
        is done with the connection, unless the factory has one; otherwise setting it raises
        `IllegalStateError`. Setting it raises `InvalidClientIDError` if a live connection has this
        client id."""
        return self._client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        with self._lock:
            if self._client_id is not None or self._owner is not None:
                raise IllegalStateError(
                    f"the client id is {self._client_id!r} and stays so: set it once, before "
                    "anything else is done with the connection"
                )
            self._check_open()
            self._owner = self._connected(client_id)
            self._client_id = client_id

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function that gets each error of this connection that no call raises, or None."""
        return self._listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        with self._lock:
            self._listener = listener
            if self._owner is not None:
                self._owner.exception_listener = listener

    def start(self) -> None:
        """Begin to deliver, or deliver again after `stop()`. Raise `IllegalStateError` if the
        connection is closed, and the errors of `connect` if this is the call that connects."""
        self._context().start()
        self._ever_started = True

    def stop(self) -> None:
        """Hold deliveries, and return when running listeners have returned. Raise
        `IllegalStateError` inside a listener or if the connection is closed, and the errors of
        `connect` if this is the call that connects."""
        self._context().stop()

    def create_session(
        self,
        transacted: bool | SessionMode = False,
        acknowledge_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> Session:
        """Return a session. `transacted=True` wins over the mode; a mode alone, as in JMS 2.0, may
        stand in its place. Raise the errors of `connect` if this is the call that connects, and
        `IllegalStateError` if the connection is closed."""
        return self._new_session(Session, transacted, acknowledge_mode)

    def close(self) -> None:
        """Close the connection with its sessions. Wait for pending sends and running listeners;
        closing twice is no error. Raise the errors of `Context.close`."""
        with self._lock:
            if self._owner is None:
                self._closed = True
                return
        self._owner.close()
        self._closed = True

    def _new_session(
        self, kind: type[SessionKind], transacted: bool | SessionMode, mode: SessionMode
    ) -> SessionKind:
        if isinstance(transacted, SessionMode):
            mode = transacted
        elif transacted:
            mode = SessionMode.SESSION_TRANSACTED
        return kind(self, self._context().create_context(mode))

    def _context(self) -> Context:
        """The owner."""
        with self._lock:
            self._check_open()
            if self._owner is None:
                self._owner = self._connected(self._client_id)
            return self._owner

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the connection is closed")

    def _connected(self, client_id: str | None) -> Context:
        context = self._factory._connect(client_id)
        context.exception_listener = self._listener
        context.stop()
        return context


class Session(Closing):
    """A session of a connection: it sends and receives, with one mode of acknowledgement and one
    thread for its listeners.

    Calls raise `IllegalStateError` when the session or its connection is closed, and in a
    `TopicSession` or `QueueSession` for what belongs to the other one.
    """

    _REFUSES: ClassVar[type[Destination] | None] = None  # which this kind does not deal with

    @made_by("`Connection.create_session` and its siblings")
    def __init__(self, connection: Connection, context: Context) -> None:
        self._connection = connection
        self._context = context

    @property
    def transacted(self) -> bool:
        """Whether it was made with `transacted`: messages count at `commit()`."""
        return self.acknowledge_mode is SessionMode.SESSION_TRANSACTED

    @property
    def acknowledge_mode(self) -> SessionMode:
        """How it acknowledges, as it was created."""
        return self._context.session_mode

    # -- Destinations -----------------------------------------------------------------------------

    def create_topic(self, name: str) -> Topic:
        """Return the topic of this name, as `Context.create_topic` does."""
        self._deal_with(Topic)
        return self._context.create_topic(name)

    @spelled_out(RedeliveryOptions, NO_REDELIVERY)
    def create_queue(self, name: str, **redelivery: Unpack[RedeliveryOptions]) -> Queue:
        """Return the queue of this name, as `Context.create_queue` does."""
        self._deal_with(Queue)
        return self._context.create_queue(name, **redelivery)

    def create_temporary_topic(self) -> TemporaryTopic:
        """Create a topic that lives until it is deleted, or as long as the connection, as
        `Context.create_temporary_topic` does."""
        self._deal_with(Topic)
        return self._context.create_temporary_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        """Create a queue that lives until it is deleted, or as long as the connection, as
        `Context.create_temporary_queue` does."""
        self._deal_with(Queue)
        return self._context.create_temporary_queue()

    # -- Messages ---------------------------------------------------------------------------------

    def create_message(self) -> Message:
        """Return a message without a body."""
        return self._context.create_message()

    def create_text_message(self, text: str = "") -> TextMessage:
        """Return a message with a text."""
        return self._context.create_text_message(text)

    def create_bytes_message(self, body: bytes = b"") -> BytesMessage:
        """Return a message with bytes, which can also be written piece by piece."""
        return self._context.create_bytes_message(body)

    def create_map_message(self, body: Mapping[str, Any] | None = None) -> MapMessage:
        """Return a message with names and values."""
        return self._context.create_map_message(body)

    def create_stream_message(self, body: list[Any] | None = None) -> StreamMessage:
        """Return a message with a list of values, which can also be written one by one."""
        return self._context.create_stream_message(body)

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        """Return a message with a value of Python, as `Context.create_object_message` does."""
        return self._context.create_object_message(body)

    # -- Sending ----------------------------------------------------------------------------------

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """Return a producer for this destination; without one, each `send` names it. Raise
        `IllegalStateError` if the session is closed."""
        self._deal_with_kind_of(destination)
        return MessageProducer(self._context.create_producer(), destination)

    def create_publisher(self, topic: Topic | None = None) -> TopicPublisher:
        """Return a producer for this topic; without one, each `publish` names it. Raise
        `InvalidDestinationError` for a queue."""
        self._deal_with(Topic)
        check_topic(topic)
        return TopicPublisher(self._context.create_producer(), topic)

    def create_sender(self, queue: Queue | None = None) -> QueueSender:
        """Return a producer for this queue; without one, each `send` names it. Raise
        `InvalidDestinationError` for a topic."""
        self._deal_with(Queue)
        check_queue(queue)
        return QueueSender(self._context.create_producer(), queue)

    # -- Receiving --------------------------------------------------------------------------------

    def create_consumer(
        self, destination: Destination, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Open a consumer of this destination, as `Context.create_consumer` does: that explains
        `selector` and `no_local`."""
        self._deal_with_kind_of(destination)
        consumer = self._context.create_consumer(destination, selector, no_local)
        return MessageConsumer(self._connection, consumer, selector)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Open the consumer of a subscription that lasts until `unsubscribe(name)`, as
        `Context.create_durable_consumer` does."""
        self._deal_with(Topic)
        consumer = self._context.create_durable_consumer(topic, name, selector, no_local)
        return MessageConsumer(self._connection, consumer, selector)

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None
    ) -> MessageConsumer:
        """Open one of the consumers that divide the messages of a subscription, as
        `Context.create_shared_consumer` does."""
        self._deal_with(Topic)
        consumer = self._context.create_shared_consumer(topic, name, selector)
        return MessageConsumer(self._connection, consumer, selector)

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None
    ) -> MessageConsumer:
        """Open one of the consumers that divide the messages of a durable subscription, as
        `Context.create_shared_durable_consumer` does."""
        self._deal_with(Topic)
        consumer = self._context.create_shared_durable_consumer(topic, name, selector)
        return MessageConsumer(self._connection, consumer, selector)

    def create_subscriber(
        self, topic: Topic, selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        """Open a consumer of this topic. Raise `InvalidDestinationError` for a queue; for the
        rest see `Context.create_consumer`."""
        self._deal_with(Topic)
        check_topic(topic)
        consumer = self._context.create_consumer(topic, selector, no_local)
        return TopicSubscriber(self._connection, consumer, selector, topic, no_local)

    def create_durable_subscriber(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        """Open the consumer of a subscription that belongs to the connection's client id, which
        must be set, and lasts until `unsubscribe(name)`. The other arguments are those of
        `Context.create_durable_consumer`. Raise the errors of that call."""
        self._deal_with(Topic)
        check_topic(topic)
        consumer = self._context.create_durable_consumer(topic, name, selector, no_local)
        return TopicSubscriber(self._connection, consumer, selector, topic, no_local)

    def create_receiver(self, queue: Queue, selector: str | None = None) -> QueueReceiver:
        """Open a consumer of this queue. Raise `InvalidDestinationError` for a topic; for the
        rest see `Context.create_consumer`."""
        self._deal_with(Queue)
        check_queue(queue)
        consumer = self._context.create_consumer(queue, selector)
        return QueueReceiver(self._connection, consumer, selector, queue)

    def create_browser(self, queue: Queue, selector: str | None = None) -> Browser:
        """Return a browser, which shows the messages of a queue and leaves them there, as
        `Context.create_browser` does."""
        self._deal_with(Queue)
        return self._context.create_browser(queue, selector)

    def unsubscribe(self, name: str) -> None:
        """End the durable subscription of this name, with all that it kept. Raise the errors of
        `Context.unsubscribe`."""
        self._deal_with(Topic)
        self._context.unsubscribe(name)

    # -- What was received and sent ---------------------------------------------------------------

    def commit(self) -> None:
        """End the transaction: what was received is acknowledged, and what was sent becomes
        visible, at one place in the order. Raise `TransactionRolledBackError` if the servers could
        not commit, and `IllegalStateError` if the session is not transacted."""
        self._context.commit()

    def rollback(self) -> None:
        """End the transaction: what was received is delivered again, what was sent is dropped.
        Raise `IllegalStateError` if the session is not transacted."""
        self._context.rollback()

    def recover(self) -> None:
        """Have all messages that were delivered and not acknowledged delivered again, flagged.
        Raise `IllegalStateError` in a transacted session."""
        self._context.recover()

    def close(self) -> None:
        """Close this session with its producers and consumers. Messages that were not acknowledged
        go to others. Closing twice is no error. Raise the errors of `Context.close`."""
        self._context.close()

    def _deal_with(self, kind: type[Destination]) -> None:
        if kind is self._REFUSES:
            raise IllegalStateError(
                f"a {type(self).__name__} does not deal with a {kind.__name__}: "
                "connection.create_session() makes a session for topics and queues"
            )

    def _deal_with_kind_of(self, destination: Destination | None) -> None:
        if isinstance(destination, Topic):
            self._deal_with(Topic)
        elif isinstance(destination, Queue):
            self._deal_with(Queue)
