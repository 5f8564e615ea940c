"""The classic API (JMS 1.1): connection factories, connections and sessions.

For programs that are written so; it promises nothing that contexts do not, for it is a thin layer
over them. A connection is the context that owns it, and is stopped until `start()`; a session is
another context on it. A connection is made by the first call that needs it, so that the client id
can be set before.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar, Unpack

from antiphon._version import __version__
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
from antiphon.api.messages.message import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from antiphon.api.messages.properties import DELIVERY_COUNT
from antiphon.api.modes import SessionMode
from antiphon.api.operations import arguments
from antiphon.api.operations.redelivery import RedeliveryOptions
from antiphon.api.options import ConnectOptions, FactoryOptions, check_names
from antiphon.api.sync import Browser, Context, connect
from antiphon.errors import IllegalStateError

SessionKind = TypeVar("SessionKind", bound="Session")


class ConnectionFactory:
    """What is needed to connect: the arguments of `connect`, to be used any number of times."""

    def __init__(self, url: str | None = None, **options: Unpack[FactoryOptions]) -> None:
        self.url = url
        self.client_id = options.get("client_id")
        arguments.check_credentials(options.get("user"), options.get("password"))
        check_names(options)
        self._options = options

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """A connection that is stopped. `user` and `password` are refused, as by `connect`."""
        return Connection(self, user, password)

    def create_context(
        self,
        user: str | None = None,
        password: str | None = None,
        session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> Context:
        """As `connect` does, started. `user` and `password` are refused, as by `connect`."""
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
    """What this is an implementation of, and which one."""

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
    """Closing it closes its sessions, with all that is in them."""

    metadata: ClassVar[ConnectionMetaData] = _metadata()

    def __init__(
        self, factory: ConnectionFactory, user: str | None = None, password: str | None = None
    ) -> None:
        self.ever_started = False
        arguments.check_credentials(user, password)
        self._factory = factory
        self._client_id = factory.client_id
        self._listener: ExceptionListener | None = None
        self._lock = threading.Lock()
        self._owner: Context | None = None  # None: not connected yet
        self._closed = False

    @property
    def client_id(self) -> str | None:
        """By which durable subscriptions are known. It can be set once, before anything else is
        done with the connection, unless the factory has one."""
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
        """As that of a context."""
        return self._listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        with self._lock:
            self._listener = listener
            if self._owner is not None:
                self._owner.exception_listener = listener

    def start(self) -> None:
        """Begin to deliver, or go on after `stop()`."""
        self._context().start()
        self.ever_started = True

    def stop(self) -> None:
        """Hold deliveries; returns when running listeners have."""
        self._context().stop()

    def create_session(
        self,
        transacted: bool | SessionMode = False,
        acknowledge_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> Session:
        """`transacted` counts more than the mode. A mode alone, as in JMS 2.0, will do."""
        return self._new_session(Session, transacted, acknowledge_mode)

    def close(self) -> None:
        """Waits for pending sends and running listeners; closing twice is no error."""
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
    """Sends and receives, with one mode of acknowledgement and one thread for listeners."""

    REFUSES: ClassVar[type[Destination] | None] = None
    """Destinations that this kind of session does not deal with."""

    def __init__(self, connection: Connection, context: Context) -> None:
        self._connection = connection
        self._context = context

    @property
    def transacted(self) -> bool:
        return self.acknowledge_mode is SessionMode.SESSION_TRANSACTED

    @property
    def acknowledge_mode(self) -> SessionMode:
        return self._context.session_mode

    # -- Destinations -----------------------------------------------------------------------------

    def create_topic(self, name: str) -> Topic:
        self._deal_with(Topic)
        return self._context.create_topic(name)

    def create_queue(self, name: str, **redelivery: Unpack[RedeliveryOptions]) -> Queue:
        self._deal_with(Queue)
        return self._context.create_queue(name, **redelivery)

    def create_temporary_topic(self) -> TemporaryTopic:
        self._deal_with(Topic)
        return self._context.create_temporary_topic()

    def create_temporary_queue(self) -> TemporaryQueue:
        self._deal_with(Queue)
        return self._context.create_temporary_queue()

    # -- Messages ---------------------------------------------------------------------------------

    def create_message(self) -> Message:
        return self._context.create_message()

    def create_text_message(self, text: str = "") -> TextMessage:
        return self._context.create_text_message(text)

    def create_bytes_message(self, body: bytes = b"") -> BytesMessage:
        return self._context.create_bytes_message(body)

    def create_map_message(self, body: Mapping[str, Any] | None = None) -> MapMessage:
        return self._context.create_map_message(body)

    def create_stream_message(self, body: list[Any] | None = None) -> StreamMessage:
        return self._context.create_stream_message(body)

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        return self._context.create_object_message(body)

    # -- Sending ----------------------------------------------------------------------------------

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """Without a destination, each `send` names one."""
        self._deal_with_kind_of(destination)
        return MessageProducer(self._context.create_producer(), destination)

    def create_publisher(self, topic: Topic | None = None) -> TopicPublisher:
        self._deal_with(Topic)
        check_topic(topic)
        return TopicPublisher(self._context.create_producer(), topic)

    def create_sender(self, queue: Queue | None = None) -> QueueSender:
        self._deal_with(Queue)
        check_queue(queue)
        return QueueSender(self._context.create_producer(), queue)

    # -- Receiving --------------------------------------------------------------------------------

    def create_consumer(
        self, destination: Destination, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        self._deal_with_kind_of(destination)
        consumer = self._context.create_consumer(destination, selector, no_local)
        return MessageConsumer(self._connection, consumer, selector)

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        self._deal_with(Topic)
        consumer = self._context.create_durable_consumer(topic, name, selector, no_local)
        return MessageConsumer(self._connection, consumer, selector)

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None
    ) -> MessageConsumer:
        self._deal_with(Topic)
        consumer = self._context.create_shared_consumer(topic, name, selector)
        return MessageConsumer(self._connection, consumer, selector)

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None
    ) -> MessageConsumer:
        self._deal_with(Topic)
        consumer = self._context.create_shared_durable_consumer(topic, name, selector)
        return MessageConsumer(self._connection, consumer, selector)

    def create_subscriber(
        self, topic: Topic, selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        self._deal_with(Topic)
        check_topic(topic)
        consumer = self._context.create_consumer(topic, selector, no_local)
        return TopicSubscriber(self._connection, consumer, selector, topic, no_local)

    def create_durable_subscriber(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        """It belongs to the connection's client id, which must be set, and lasts until
        `unsubscribe(name)`."""
        self._deal_with(Topic)
        check_topic(topic)
        consumer = self._context.create_durable_consumer(topic, name, selector, no_local)
        return TopicSubscriber(self._connection, consumer, selector, topic, no_local)

    def create_receiver(self, queue: Queue, selector: str | None = None) -> QueueReceiver:
        self._deal_with(Queue)
        check_queue(queue)
        consumer = self._context.create_consumer(queue, selector)
        return QueueReceiver(self._connection, consumer, selector, queue)

    def create_browser(self, queue: Queue, selector: str | None = None) -> Browser:
        self._deal_with(Queue)
        return self._context.create_browser(queue, selector)

    def unsubscribe(self, name: str) -> None:
        """End the durable subscription of this name."""
        self._deal_with(Topic)
        self._context.unsubscribe(name)

    # -- What was received and sent ---------------------------------------------------------------

    def commit(self) -> None:
        """What was received is acknowledged, what was sent becomes visible."""
        self._context.commit()

    def rollback(self) -> None:
        """What was received comes again, what was sent is dropped."""
        self._context.rollback()

    def recover(self) -> None:
        """Have all messages that were delivered and not acknowledged delivered again."""
        self._context.recover()

    def close(self) -> None:
        """Its producers and consumers, too; what was not acknowledged is delivered again."""
        self._context.close()

    def _deal_with(self, kind: type[Destination]) -> None:
        if kind is self.REFUSES:
            raise IllegalStateError(
                f"a {type(self).__name__} does not deal with a {kind.__name__}: "
                "connection.create_session() makes a session for topics and queues"
            )

    def _deal_with_kind_of(self, destination: Destination | None) -> None:
        if isinstance(destination, Topic):
            self._deal_with(Topic)
        elif isinstance(destination, Queue):
            self._deal_with(Queue)
