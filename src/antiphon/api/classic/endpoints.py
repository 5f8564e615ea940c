"""The classic API's producers and consumers: those of contexts, each for one destination.

A producer has defaults for the headers of `send`. A consumer logs a warning when a program seems to
have forgotten `connection.start()`, which would make it wait forever.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, Unpack, cast, overload

from antiphon.api.connection import logger
from antiphon.api.face.not_pickled import NotPickled
from antiphon.api.messages.destinations import Destination, Queue, Topic
from antiphon.api.messages.headers import DEFAULT_HEADERS, SendHeaders
from antiphon.api.messages.message import Message
from antiphon.api.modes import DeliveryMode
from antiphon.api.operations.front import MessageListener
from antiphon.api.signatures import made_by, spelled_out
from antiphon.api.sync import Consumer, Producer
from antiphon.errors import IllegalStateError, InvalidDestinationError
from antiphon.formats.columns import PRIORITY


class Closing(NotPickled):
    """An object that is closed at the end of its `with` block."""

    def close(self) -> None:
        """Close it. Raise the errors of `close` of the context's own object. Closing twice is no
        error."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# -- Sending ---------------------------------------------------------------------------------------

PRODUCER_HEADERS: SendHeaders = {
    **DEFAULT_HEADERS,
    "delivery_mode": None,
    "priority": None,
    "time_to_live": None,
    "delivery_delay": None,
}
"""None: the producer's own default."""


class MessageProducer(Closing):
    """A producer of the classic API: it sends to its `destination`, or if that is None, to the one
    that each `send` names.

    Its settings apply to each message that is sent without such a header: `delivery_mode`,
    `priority` (0 to 9), `time_to_live` and `delivery_delay` in seconds (0: it never expires, and is
    not delayed). `disable_message_id` and `disable_message_timestamp` are hints that change
    nothing: a message has both at no cost.
    """

    destination: Destination | None
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
    priority: int = PRIORITY
    time_to_live: float = 0.0
    delivery_delay: float = 0.0
    disable_message_id: bool = False
    disable_message_timestamp: bool = False

    @made_by("`Session.create_producer` and its siblings")
    def __init__(self, producer: Producer, destination: Destination | None) -> None:
        self.destination = destination
        self._producer = producer

    @overload
    def send(self, message: Any, /, **headers: Unpack[SendHeaders]) -> None: ...

    @overload
    def send(
        self, destination: Destination, message: Any, /, **headers: Unpack[SendHeaders]
    ) -> None: ...

    @spelled_out(SendHeaders, PRODUCER_HEADERS)
    def send(self, *what: Any, **headers: Unpack[SendHeaders]) -> None:
        """Send a message or a mere body: `send(message)`, or `send(destination, message)` if this
        producer has no destination.

        Headers are those of `Producer.send`, and win over the producer's defaults. Return when the
        servers have the message: if it is persistent, a majority of them. Raise the errors of
        `Producer.send`, and `IllegalStateError` if there is no destination, or one too many."""
        destination, message = self._addressed(what)
        self._producer.send(destination, message, **self._with_defaults(headers))

    def close(self) -> None:
        self._producer.close()

    def _addressed(self, what: tuple[Any, ...]) -> tuple[Destination, Any]:
        if len(what) not in (1, 2):
            raise TypeError(f"send takes a message, and a destination before it, not {len(what)}")
        if self.destination is None:
            if len(what) == 1:
                raise IllegalStateError(
                    "this producer has no destination: send(destination, message)"
                )
            return what[0], what[1]
        if len(what) == 2:
            raise IllegalStateError(
                f"this producer sends to {self.destination} only: send(message)"
            )
        return self.destination, what[0]

    def _with_defaults(self, headers: SendHeaders) -> SendHeaders:
        defaults = {
            "delivery_mode": self.delivery_mode,
            "priority": self.priority,
            "time_to_live": self.time_to_live,
            "delivery_delay": self.delivery_delay,
        }
        given = {name: value for name, value in headers.items() if value is not None}
        return cast(SendHeaders, defaults | given)


class TopicPublisher(MessageProducer):
    """A producer for a topic; `publish` is `send`."""

    publish = MessageProducer.send

    @property
    def topic(self) -> Topic | None:
        """The topic that it publishes to, or None."""
        return cast("Topic | None", self.destination)


class QueueSender(MessageProducer):
    """A producer for a queue."""

    @property
    def queue(self) -> Queue | None:
        """The queue that it sends to, or None."""
        return cast("Queue | None", self.destination)


# -- Receiving -------------------------------------------------------------------------------------


class Startable(Protocol):
    """A connection, as its consumers need it."""

    _ever_started: bool


class MessageConsumer(Closing):
    """A consumer of the classic API: it receives once its connection was started.

    `message_selector` is the condition on headers and properties that it was opened with, or None.
    """

    message_selector: str | None

    @made_by("`Session.create_consumer` and its siblings")
    def __init__(self, connection: Startable, consumer: Consumer, selector: str | None) -> None:
        self.message_selector = selector
        self._connection = connection
        self._consumer = consumer

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None if none came within `timeout` seconds, or if the consumer
        was closed meanwhile. Raise the errors of `Consumer.receive`. Without a timeout, on a
        connection that was never started, it waits without end, and logs a warning."""
        if timeout is None and not self._connection._ever_started:
            logger.warning(
                "a receive from %s waits forever, for the connection was never started: call "
                "connection.start()",
                self._consumer.destination,
            )
        return self._consumer.receive(timeout)

    def receive_no_wait(self) -> Message | None:
        """Return the next message, or None if none is here. Raise the errors of
        `Consumer.receive`."""
        return self._consumer.receive_no_wait()

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Call `listener` with each message, one at a time, on the session's thread; None: no
        listener any more. Redelivery and errors are those of `Consumer.set_message_listener`."""
        self._consumer.set_message_listener(listener)

    def close(self) -> None:
        self._consumer.close()


class TopicSubscriber(MessageConsumer):
    """A consumer of a `topic`; with `no_local`, of messages from other connections only."""

    topic: Topic
    no_local: bool

    @made_by("`Session.create_subscriber` and `create_durable_subscriber`")
    def __init__(
        self,
        connection: Startable,
        consumer: Consumer,
        selector: str | None,
        topic: Topic,
        no_local: bool,
    ) -> None:
        super().__init__(connection, consumer, selector)
        self.topic = topic
        self.no_local = no_local


class QueueReceiver(MessageConsumer):
    """A consumer of a `queue`."""

    queue: Queue

    @made_by("`Session.create_receiver`")
    def __init__(
        self, connection: Startable, consumer: Consumer, selector: str | None, queue: Queue
    ) -> None:
        super().__init__(connection, consumer, selector)
        self.queue = queue


def check_topic(destination: Destination | None) -> None:
    if destination is not None and not isinstance(destination, Topic):
        raise InvalidDestinationError(f"{destination!r} is not a topic")


def check_queue(destination: Destination | None) -> None:
    if destination is not None and not isinstance(destination, Queue):
        raise InvalidDestinationError(f"{destination!r} is not a queue")
