"""Producers and the futures of what they send, as programs see them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Unpack

import msgspec

from antiphon.api.face.not_pickled import NotPickled
from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.headers import SendHeaders
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.producer import ProducerCore
from antiphon.api.protocol.outbox import Batch
from antiphon.api.signatures import made_by
from antiphon.errors import JMSError
from antiphon.formats.columns import Packed


class ProducerFace(NotPickled, ABC):
    """A sender of messages to any destination (`create_producer`).

    Messages of one producer keep their order. A message that was sent is stored at most once,
    however often the connection was lost meanwhile; a call that returns without an error promises
    that it is stored: if it is persistent, at a majority of the servers.
    """

    @made_by("`create_producer`")
    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    @property
    def name(self) -> str | None:
        """The name that it was created with, or None."""
        return self._core.name

    @property
    def last_sequence(self) -> int:
        """How many messages of this named producer were accepted, ever. Raise `IllegalStateError`
        for one without a name, or before it is open."""
        return self._core.last_sequence

    @abstractmethod
    def send(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> Any:
        """Send a message, and return when the servers have it; in a transaction, at once.

        A str becomes a text message, bytes a bytes message, a mapping a map message, a list a
        stream message, any other value an object message.

        Headers, all by keyword, win over those that the message has. `properties`: names and values
        that selectors see. `priority`: 0 to 9. `time_to_live`: seconds after which the message is
        of no use, 0: it never expires. `delivery_delay`: seconds before which it is not delivered.
        `correlation_id`, `type`: texts for the receiver. `reply_to`: the destination for an answer.
        `tag`, `key`: by which a group's conflict relation orders, and a last-value topic replaces.
        `delivery_mode`: whether the message must outlive failures (`DeliveryMode`).

        Raise `OutcomeUnknownError` if no answer came within `send_timeout`; before anything is
        sent, `ResourceAllocationError` for a message of more than 64 MiB, `MessageFormatError` for
        a body or property that cannot be sent, `InvalidDestinationError` for something that cannot
        be sent to, and `ValueError` for a tag that the group's conflict relation does not know."""

    @abstractmethod
    def send_async(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> Any:
        """Send a message, and return a `SendFuture` as soon as there is room for it in the window
        of what has no answer yet. Headers are those of `send`.

        Raise what `send` raises before anything is sent. An error of the servers is in the future;
        if nobody looks at it there, it goes to the exception listener and the log."""

    @abstractmethod
    def send_all(
        self, destination: Destination, messages: Iterable[Any], **headers: Unpack[SendHeaders]
    ) -> Any:
        """Send many messages, each as `send` would and with its headers, and return how many when
        the servers have them all. Raise what `send` raises; the error has in its `sent` how many of
        them were accepted before it."""

    @abstractmethod
    def send_packed(self, destination: Destination, messages: Packed) -> Any:
        """Send messages that are in columns as one pack, and return when the servers have it.

        For pipelines, which have their data so. Raise what `send` raises; a message for the group
        itself raises `MessageFormatError`, since it is sent by itself."""

    @abstractmethod
    def close(self) -> Any:
        """Send nothing more: `send` raises `IllegalStateError` from now on. Messages that were sent
        are not affected. Closing twice is no error."""


class SendFutureFace(msgspec.Struct, eq=False, gc=False):
    """The answer to a message that `send_async` sent: a light future.

    With asyncio it is awaited: that returns when the servers have the message, or raises.
    """

    _batch: Batch
    _context: ContextCore

    def done(self) -> bool:
        """Return whether the answer is there."""
        return self._batch.done

    def result(self) -> None:
        """Return when the servers have the message; raise the error if they refused it, and
        `OutcomeUnknownError` if nothing is known after `timeout` seconds (None: wait as long as it
        takes). With asyncio there is no timeout: raise `IllegalStateError` if there is no answer
        yet."""
        self._outcome()

    def exception(self) -> JMSError | None:
        """Return the error, or None if the servers have the message. Wait, or raise, as `result`
        does if there is no answer yet."""
        return self._error()

    def _outcome(self) -> None:
        self._batch.outcome()

    def _error(self) -> JMSError | None:
        self._batch.looked_at = True
        return self._batch.error
