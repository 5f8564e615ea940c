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
    listener returns, and in a loop when the program asks for the next message, or the `with` block
    of the consumer ends without an exception. A message that is not acknowledged is delivered
    again.

    A loop ends when the consumer is closed, by any thread or task. After a failure it does not end
    but raises, for instance `ConnectionLostError`.
    """

    @made_by("`create_consumer` and its siblings")
    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    @property
    def destination(self) -> Destination:
        """The topic or queue from which its messages come."""
        return self._core.destination

    @property
    def closed(self) -> bool:
        """Whether no more messages come: it was closed, dropped by the servers, removed from its
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
        """Return the next message, or None if none is here: `receive(0)`. Raise the errors of
        `receive`."""

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Call `listener` with each message, one at a time; None: no listener any more.

        Listeners of one context run one after the other, on a thread of their own; with asyncio in
        a task, and they may be coroutines. A message whose listener raises comes again, after a
        wait, up to the limit of the queue's redelivery (`create_queue`); then it goes to the dead
        letters. A member of a group stops instead, since it would differ from the others. Raise
        `IllegalStateError` if the consumer is closed."""
        self._core.set_message_listener(listener)

    @abstractmethod
    def close(self) -> Any:
        """Stop receiving, and return when a running listener has returned. Calls that wait for a
        message return None, loops end.

        Messages that were not acknowledged go to other consumers; in the modes in which the program
        acknowledges, it can still acknowledge them until the context is closed. Closing twice is no
        error. Raise `IllegalStateError` in a forked process."""


class BrowserFace(NotPickled, ABC):
    """A view of the messages of a queue that leaves them there (`create_browser`).

    Each iteration returns the messages that are in the queue when it begins, including those that
    consumers have received and not acknowledged. It raises the errors of `create_consumer`.
    """

    @made_by("`create_browser`")
    def __init__(self, queue: Queue, selector: str | None) -> None:
        self._queue = queue
        self._selector = selector

    @property
    def queue(self) -> Queue:
        """The queue whose messages it shows."""
        return self._queue

    @property
    def selector(self) -> str | None:
        """The condition for messages to be shown, or None."""
        return self._selector

    @abstractmethod
    def close(self) -> Any:
        """Do nothing, and raise nothing: a browser holds no resources between iterations. It is
        here because JMS has it."""
