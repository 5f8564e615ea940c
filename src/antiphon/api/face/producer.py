"""Producers, and the futures of messages that they send, as programs see them."""

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

    Messages of one producer keep their order. A message is stored at most once, however often the
    connection is lost meanwhile. When a call returns without an error, the message is stored: if it
    is persistent, at a majority of the servers.
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
        """The number of messages of this named producer that were ever accepted. Raise
        `IllegalStateError` for a producer without a name, or before it is open."""
        return self._core.last_sequence

    @abstractmethod
    def send(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> Any:
        """Send a message, and return when the servers have it; in a transaction, return at once.

        A str becomes a text message, bytes a bytes message, a mapping a map message, a list a
        stream message, any other value an object message.

        Headers, all by keyword, take precedence over those of the message. `properties`: names and
        values, which selectors can read. `priority`: 0 to 9. `time_to_live`: seconds until the
        message expires, 0: never. `delivery_delay`: seconds until it may be delivered.
        `correlation_id`, `type`: texts for the receiver. `reply_to`: the destination for an answer.
        `tag`, `key`: for a group, its conflict relation orders by them; for a last-value topic,
        `key` names the value that the message replaces. `delivery_mode`: whether the message must
        outlive failures (`DeliveryMode`).

        Raise `OutcomeUnknownError` if no answer came within `send_timeout`; before anything is
        sent, `ResourceAllocationError` for a message of more than 64 MiB, `MessageFormatError` for
        a body or property that cannot be sent, `InvalidDestinationError` for a destination that
        takes no messages, and `ValueError` for a tag that the group's conflict relation does not
        know."""

    @abstractmethod
    def send_async(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> Any:
        """Send a message, and return a `SendFuture` as soon as there is room for it in the window
        of unanswered messages. Headers are those of `send`.

        Raise the errors of `send` before anything is sent. An error of the servers is in the
        future; if the program drops the future without asking it, the error goes to the exception
        listener and the log."""

    @abstractmethod
    def send_all(
        self, destination: Destination, messages: Iterable[Any], **headers: Unpack[SendHeaders]
    ) -> Any:
        """Send many messages, each as `send` does and with the same headers, and return their
        number when the servers have them all. Raise the errors of `send`; the error's `sent` is the
        number of messages that were accepted before it."""

    @abstractmethod
    def send_packed(self, destination: Destination, messages: Packed) -> Any:
        """Send messages in columns (`Packed`) as one pack, and return when the servers have it.

        It is for pipelines, whose data is in columns. Raise the errors of `send`, and
        `MessageFormatError` if one of them is a request to a group, which must be sent by
        itself."""

    @abstractmethod
    def close(self) -> Any:
        """Close the producer: `send` raises `IllegalStateError` from now on. Messages on their way
        are not affected. Closing twice is no error."""


class SendFutureFace(msgspec.Struct, eq=False, gc=False):
    """The servers' answer to a message that `send_async` sent: a light future.

    With asyncio it is awaited, which returns when the servers have the message, or raises.
    """

    _batch: Batch
    _context: ContextCore

    def done(self) -> bool:
        """Return whether the answer has come."""
        return self._batch.done

    def result(self) -> None:
        """Return when the servers have the message. Raise the error if they refused it, and
        `OutcomeUnknownError` if there is no answer after `timeout` seconds (None: wait as long as
        it takes). With asyncio there is no timeout: raise `IllegalStateError` if there is no answer
        yet."""
        self._outcome()

    def exception(self) -> JMSError | None:
        """Return the error, or None if the servers have the message. If there is no answer yet,
        wait or raise as `result` does."""
        return self._error()

    def _outcome(self) -> None:
        self._batch.outcome()

    def _error(self) -> JMSError | None:
        self._batch.looked_at = True
        return self._batch.error
