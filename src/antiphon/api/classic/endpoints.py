"""The classic API's producers and consumers: those of contexts, each for one destination.

A producer has defaults for what may be said with every `send`. A consumer says in the log when a
program seems to have forgotten `connection.start()`, which would make it wait for ever.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, Unpack, cast, overload

from antiphon.api.connection import logger
from antiphon.api.face.not_pickled import NotPickled
from antiphon.api.messages.destinations import Destination, Queue, Topic
from antiphon.api.messages.message import Message
from antiphon.api.modes import DeliveryMode
from antiphon.api.operations.front import Listener
from antiphon.api.operations.producer import SendHeaders
from antiphon.api.sync import Consumer, Producer
from antiphon.errors import IllegalStateError, InvalidDestinationError
from antiphon.formats.columns import PRIORITY


class Closing(NotPickled):
    """Closed at the end of its `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# -- Sending ---------------------------------------------------------------------------------------


class MessageProducer(Closing):
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
    priority: int = PRIORITY
    time_to_live: float = 0.0
    """Seconds; 0: for ever."""

    delivery_delay: float = 0.0
    """Seconds."""

    disable_message_id: bool = False
    disable_message_timestamp: bool = False
    """Hints, which change nothing: a message has both at no cost."""

    def __init__(self, producer: Producer, destination: Destination | None) -> None:
        self.destination = destination
        self._producer = producer

    @overload
    def send(self, message: Any, /, **headers: Unpack[SendHeaders]) -> None: ...

    @overload
    def send(
        self, destination: Destination, message: Any, /, **headers: Unpack[SendHeaders]
    ) -> None: ...

    def send(self, *what: Any, **headers: Unpack[SendHeaders]) -> None:
        """A message or a mere body; before it the destination, if this producer has none. Headers
        win over the producer's defaults. Returns when the servers have the message:
        persistent, a majority of them."""
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
    publish = MessageProducer.send

    @property
    def topic(self) -> Topic | None:
        return cast("Topic | None", self.destination)


class QueueSender(MessageProducer):
    @property
    def queue(self) -> Queue | None:
        return cast("Queue | None", self.destination)


# -- Receiving -------------------------------------------------------------------------------------


class Startable(Protocol):
    """A connection, as seen from here."""

    ever_started: bool


class MessageConsumer(Closing):
    def __init__(self, connection: Startable, consumer: Consumer, selector: str | None) -> None:
        self.message_selector = selector
        self._connection = connection
        self._consumer = consumer

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message. `timeout` in seconds, None: for ever; after it, or if the consumer is
        closed meanwhile, None."""
        if timeout is None and not self._connection.ever_started:
            logger.warning(
                "a receive from %s waits for ever, for the connection was never started: call "
                "connection.start()",
                self._consumer.destination,
            )
        return self._consumer.receive(timeout)

    def receive_no_wait(self) -> Message | None:
        return self._consumer.receive_no_wait()

    def set_message_listener(self, listener: Listener | None) -> None:
        """Have each message handed to `listener`, one at a time, on the session's thread."""
        self._consumer.set_message_listener(listener)

    def close(self) -> None:
        self._consumer.close()


class TopicSubscriber(MessageConsumer):
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
    def __init__(
        self, connection: Startable, consumer: Consumer, selector: str | None, queue: Queue
    ) -> None:
        super().__init__(connection, consumer, selector)
        self.queue = queue


def check_topic(destination: Destination | None) -> None:
    if destination is not None and not isinstance(destination, Topic):
        raise InvalidDestinationError(f"{destination!r} is no topic")


def check_queue(destination: Destination | None) -> None:
    if destination is not None and not isinstance(destination, Queue):
        raise InvalidDestinationError(f"{destination!r} is no queue")
