"""Consumers and browsers, as programs see them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from antiphon.api.face.not_pickled import NotPickled
from antiphon.api.messages.destinations import Destination, Queue
from antiphon.api.operations.consumer import ConsumerCore
from antiphon.api.operations.front import MessageListener
from antiphon.api.signatures import made_by


class ConsumerFace(NotPickled, ABC):
    """A receiver of the messages of one destination (`create_consumer` and its siblings).

    Take messages with `receive`, with a `for` loop (asyncio: `async for`), or with a listener. A
    context that acknowledges automatically does so when `receive` returns the message, when the
    listener returns, and in a loop when the next message is asked for, or the `with` block of the
    consumer ends without an exception. A message that is not acknowledged is delivered again.

    A loop ends when the consumer is closed, by whomever; it never ends because something broke:
    then it raises, for instance `ConnectionLostError`.
    """

    @made_by("`create_consumer` and its siblings")
    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    @property
    def destination(self) -> Destination:
        """Where its messages come from."""
        return self._core.destination

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more: it was closed, dropped by the servers, removed from its
        group, or its connection is lost for good."""
        return self._core.unusable

    @abstractmethod
    def receive(self, timeout: float | None = None) -> Any:
        """Return the next message; None if none came within `timeout` seconds, or if the consumer
        was closed meanwhile.

        `timeout`: None waits without limit, 0 does not wait. Raise `IllegalStateError` if the
        consumer is closed or has a listener, and `ConnectionLostError` if the connection is lost
        for good. With asyncio, a `receive` that is cancelled takes no message."""

    @abstractmethod
    def receive_no_wait(self) -> Any:
        """Return the next message, or None if none is here: `receive(0)`. Raise what `receive`
        raises."""

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have each message handed to `listener`, one at a time; None: no listener
        any more.

        Listeners of one context run one after the other, on a thread of their own; with asyncio in
        a task, and they may be coroutines. A message whose listener raises comes again, after a
        wait, as often as the queue's redelivery says; then it goes to the dead letters. A member of
        a group stops instead, since it would differ from the others. Raise `IllegalStateError` if
        the consumer is closed."""
        self._core.set_message_listener(listener)

    @abstractmethod
    def close(self) -> Any:
        """Receive nothing more, and return when a running listener has returned. Calls that wait
        for a message return None, loops end.

        Messages that were not acknowledged go to others; in the modes where the program
        acknowledges, they can still be acknowledged until the context is closed. Closing twice is
        no error. Raise `IllegalStateError` in a forked process."""


class BrowserFace(NotPickled, ABC):
    """A view of the messages of a queue that leaves them there (`create_browser`).

    Each iteration shows the messages that are in the queue when it begins, also those that
    consumers have and have not acknowledged. It raises what `create_consumer` raises.
    """

    @made_by("`create_browser`")
    def __init__(self, queue: Queue, selector: str | None) -> None:
        self._queue = queue
        self._selector = selector

    @property
    def queue(self) -> Queue:
        """The queue that it looks at."""
        return self._queue

    @property
    def selector(self) -> str | None:
        """The condition for messages to be shown, or None."""
        return self._selector

    @abstractmethod
    def close(self) -> Any:
        """Do nothing, and raise nothing: a browser holds nothing between iterations. JMS has this
        call."""
