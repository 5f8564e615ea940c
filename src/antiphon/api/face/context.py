"""Contexts, as programs see them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import Any, Unpack

from msgspec.structs import astuple

from antiphon.api import arguments
from antiphon.api.face.not_pickled import NotPickled
from antiphon.api.messages.destinations import (
    Destination,
    Group,
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
from antiphon.api.modes import SessionMode, SlowPolicy
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.redelivery import NO_REDELIVERY, RedeliveryOptions, redelivery_of
from antiphon.api.signatures import made_by, spelled_out
from antiphon.api.urls import look_up
from antiphon.errors import JMSError
from antiphon.model.conflicts import ConflictRelation

ExceptionListener = Callable[[JMSError], Any]


class ContextFace(NotPickled, ABC):
    """A session with the servers, with its connection to them (the `JMSContext` of JMS 2.0).

    `connect` returns one that is started. It makes destinations, messages, producers, consumers and
    members of groups; it acknowledges delivered messages by its `session_mode`; at the end of its
    `with` block it closes all that it has made. It may be used from any thread, with asyncio from
    any task of its loop; its listeners get one message at a time.

    Any call raises `IllegalStateError` if the context is closed, or if this process was forked from
    the one that connected, and `ConnectionLostError` once the connection is lost for good; the
    errors that a call has in addition are in its own text. A connection that is merely interrupted
    comes back by itself: calls wait meanwhile, no persistent message is lost, and none is stored
    twice.

    With asyncio, calls that talk to a server are awaited; those that open something (`connect`,
    `create_consumer`, `create_group`, `join`) return an `Opening`, which is awaited or entered with
    `async with`.
    """

    @made_by("`connect` and `create_context`")
    def __init__(self, core: ContextCore) -> None:
        self._core = core

    # -- Made without a server --------------------------------------------------------------------

    @abstractmethod
    def create_context(self, session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE) -> Any:
        """Return another session on the same connection, with its own mode and its own listeners.

        Closing the context that `connect` returned closes it, too."""

    def create_topic(self, name: str) -> Topic:
        """Return the topic of this name: each of its subscribers gets each message.

        No server is asked; a topic exists from its first use. To consume from many topics, `*`
        stands for one part of a name with dots, and `>` at the end for all further parts. Raise
        `InvalidDestinationError` if the name is malformed."""
        return Topic(name)

    @spelled_out(RedeliveryOptions, NO_REDELIVERY)
    def create_queue(self, name: str, **redelivery: Unpack[RedeliveryOptions]) -> Queue:
        """Return the queue of this name: each message goes to one of its consumers.

        No server is asked; a queue exists from its first use. Options, all by keyword, set how
        messages come again that a consumer could not handle. `redelivery_delay`: seconds from the
        first delivery that fails to the next one. `redelivery_factor`: the factor by which each
        wait is longer than the one before. `redelivery_most`: the longest wait, in seconds.
        `deliveries`: after this many a message goes to the dead letters. `dead_letters`: the queue
        for these, or its name.

        They apply when a consumer of this queue object is opened, and as long as the queue has
        consumers or messages; an option that is None, or left out, is as other consumers have set
        it, or else the servers' default. If others have set it differently, `create_consumer`
        raises `IllegalStateError`. Raise `InvalidDestinationError` if the name is malformed,
        `TypeError` or `ValueError` for an option that makes no sense."""
        return Queue._with(name, *astuple(redelivery_of(name, **redelivery)))

    def create_message(self) -> Message:
        """Return a message without a body."""
        return Message()

    def create_text_message(self, text: str = "") -> TextMessage:
        """Return a message with a text."""
        return TextMessage(text)

    def create_bytes_message(self, body: bytes = b"") -> BytesMessage:
        """Return a message with bytes, which can also be written piece by piece."""
        return BytesMessage(body)

    def create_map_message(self, body: Mapping[str, Any] | None = None) -> MapMessage:
        """Return a message with names and values."""
        return MapMessage(body)

    def create_stream_message(self, body: list[Any] | None = None) -> StreamMessage:
        """Return a message with a list of values, which can also be written one by one."""
        return StreamMessage(body)

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        """Return a message with a value of Python: None, numbers, text, bytes, times, and lists and
        mappings of these; other objects only if the connection allows pickle. Sending another one
        raises `MessageFormatError`."""
        return ObjectMessage(body)

    def lookup(self, name: str) -> Destination:
        """Return the destination of this name in `antiphon.toml`. Raise `InvalidDestinationError`
        if there is none."""
        return look_up(name)

    # -- Settings ---------------------------------------------------------------------------------

    @property
    def session_mode(self) -> SessionMode:
        """The mode in which this context acknowledges; fixed when it is created."""
        return self._core.mode

    @property
    def closed(self) -> bool:
        """Whether it cannot be used any more: it was closed, its connection is lost for good, or
        this process was forked from the one that connected."""
        return self._core.unusable

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """A function that is called with each error of this connection that no call raises, or
        None.

        For instance: the connection is lost for good; a message of `send_async` was refused and the
        program did not ask its future; a listener could not handle a message. They are also
        logged."""
        return self._core.connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        arguments.check_listener(listener)
        self._core.connection.exception_listener = listener

    # -- Sending and receiving --------------------------------------------------------------------

    @abstractmethod
    def create_producer(self, name: str | None = None) -> Any:
        """Return a producer, which sends to all destinations.

        Without a name no server is asked. A named one keeps its sequence beyond the connection: its
        `last_sequence` is the number of its accepted messages, with which a restarted program can
        go on so that each message is stored exactly once. Raise `IllegalStateError` for a name in a
        transacted context, or one that another connection has open, and `ResourceAllocationError`
        if the connection has too many named ones."""

    @abstractmethod
    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
        exclusive: bool = False,
    ) -> Any:
        """Open a consumer: of a topic it gets all messages from now on, of a queue a share of them,
        of a group all that its members get, for it becomes a member.

        `selector`: receive only messages for which this condition on headers and properties is
        true. `no_local`, for topics: receive only messages of other connections. `prefetch`: the
        number of messages that may be here and not acknowledged. `slow`, for topics, the fate of a
        consumer that does not keep up: "spill" (the default), its messages wait in the servers'
        journal; "disconnect", it is closed, and its calls raise; "drop", it misses messages.
        `exclusive`, for queues: while it is open, no other consumer gets messages; of several
        exclusive ones, the one that was opened first gets them.

        Raise `InvalidDestinationError` for a destination that this connection cannot consume from,
        `InvalidSelectorError` for a selector that cannot be parsed, `ResourceAllocationError` for a
        `prefetch` out of bounds or too many consumers, and `IllegalStateError` for an option that
        this kind of destination does not have."""

    @abstractmethod
    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Any:
        """Open the consumer of a subscription that lasts until `unsubscribe(name)`, and keeps the
        messages that come while it has no open consumer.

        The subscription belongs to the client id of the connection. With another topic or selector,
        it begins anew and drops the messages that it kept. The other arguments are those of
        `create_consumer`. Raise the errors of `create_consumer`, and `IllegalStateError` if the
        connection has no client id, if the subscription has an open consumer, or if a shared
        durable subscription has the name."""

    @abstractmethod
    def create_shared_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Any:
        """Open one of the consumers among which the messages of a subscription are divided.

        The subscription, known by its name, lasts as long as one of them is open. The other
        arguments are those of `create_consumer`. Raise the errors of `create_consumer`, and
        `IllegalStateError` if the subscription has another topic or selector."""

    @abstractmethod
    def create_shared_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Any:
        """Open one of the consumers of a shared subscription that lasts until `unsubscribe(name)`,
        and keeps the messages that come while none of them is open. If the connection has a client
        id, the name belongs to that client, otherwise to all clients without one. The other
        arguments are those of `create_consumer`. Raise the errors of `create_shared_consumer`."""

    @abstractmethod
    def create_browser(self, queue: Queue, selector: str | None = None) -> Any:
        """Return a browser, which shows the messages of a queue and leaves them there.

        Raise `InvalidDestinationError` for a destination that is not a queue, and
        `InvalidSelectorError` for a selector that cannot be parsed."""

    @abstractmethod
    def unsubscribe(self, name: str, group: str | Topic | None = None) -> Any:
        """End the durable subscription of this name, with all that it kept; with `group`, remove
        the durable member of this name from that group.

        Raise `IllegalStateError` if it has an open consumer, or if the name fits several and
        `group` is not given, and `InvalidDestinationError` if there is none."""

    # -- Groups and other destinations ------------------------------------------------------------

    @abstractmethod
    def create_group(
        self,
        name: str,
        *,
        conflict: ConflictRelation | None = None,
        remove_after: float | EllipsisType | None = ...,
    ) -> Any:
        """Create a process group, or find the one of this name: a topic whose members learn of each
        other, and get all messages and views in one order.

        `conflict`: the messages that must be in one order (`ConflictRelation`). `remove_after`:
        seconds after which a suspected member that is not durable is removed; None: never. An
        argument that is left out is as the group has it; if the group is new,
        `ConflictRelation.ATOMIC` and 60 seconds. Raise `IllegalStateError` if the group has another
        relation or limit than the one given, and `InvalidDestinationError` if the name is that of a
        plain topic."""

    @abstractmethod
    def delete_group(self, name: str | Group, *, force: bool = False) -> Any:
        """Remove all members of a group with one view, the inactive ones too, so that its name is
        free. Raise `IllegalStateError` if members are active, unless `force`, and
        `InvalidDestinationError` if there is no such group."""

    @abstractmethod
    def join(
        self,
        group: Topic,
        name: str | None = None,
        durable: bool = False,
        workers: int = 1,
        state_provider: StateProvider | None = None,
    ) -> Any:
        """Become a member of a group.

        `name`: unique in the group, printable and without blanks; None: the servers choose one.
        Under the name of a member that is inactive or suspected this one takes its place, and a
        durable one goes on where it was. `durable`: it stays a member while it is away, and gets
        the messages that it missed later; it needs a name. `workers`: how many messages that do not
        conflict the listener handles at a time; only in a context that acknowledges automatically.
        `state_provider`: a function that returns the state of this member as bytes, or as an
        iterable of bytes, for members that join later.

        Raise `IllegalStateError` if the name belongs to a member that is alive, or for workers in
        another mode, `InvalidDestinationError` if this is not a group, `ResourceAllocationError` if
        the group is full, and `ValueError` for a malformed name or a number out of bounds."""

    @abstractmethod
    def create_last_value_topic(self, name: str) -> Any:
        """Create a topic that keeps the last message of each `key`: a later subscriber begins with
        these. Of an existing topic, messages that were sent before this call are not kept.

        Raise `InvalidDestinationError` if the name is malformed or that of a group, and
        `ResourceAllocationError` if the servers have too many of these topics."""

    @abstractmethod
    def create_temporary_topic(self) -> Any:
        """Create a topic that lives until it is deleted, or as long as this connection. Only this
        connection may consume from it; any program may send to it, for instance replies. Raise
        `ResourceAllocationError` if the connection has too many temporary destinations."""

    @abstractmethod
    def create_temporary_queue(self) -> Any:
        """Create a queue that lives until it is deleted, or as long as this connection. Only this
        connection may consume from it; any program may send to it, for instance replies. Raise
        `ResourceAllocationError` if the connection has too many temporary destinations."""

    @abstractmethod
    def delete_temporary(self, destination: TemporaryTopic | TemporaryQueue) -> Any:
        """Delete a temporary destination of this connection, with its messages. Raise
        `IllegalStateError` if it has a consumer, and `InvalidDestinationError` if this connection
        did not create it."""

    # -- Acknowledging and transactions -----------------------------------------------------------

    @abstractmethod
    def acknowledge(self) -> Any:
        """Acknowledge all messages that this context has delivered, and return when the servers
        have the acknowledgement. If the context acknowledges by itself, or is transacted, do
        nothing. Raise `ConnectionLostError` if the connection is lost for good: the messages that
        were not acknowledged come again, to the next consumer."""

    @abstractmethod
    def recover(self) -> Any:
        """Deliver all messages again that were delivered and not acknowledged, flagged as
        redelivered. Raise `IllegalStateError` in a transacted context: roll back there."""

    @abstractmethod
    def commit(self, token: str | None = None, staged: Iterable[str] = ()) -> Any:
        """Commit the transaction: its received messages are acknowledged, and its sent ones become
        visible, at one place in the order. Return True, or False if there was a commit with this
        token before: then the sent messages are dropped.

        `token`: a text by which the servers recognize a repeated commit. `staged`: handles of
        `stage()`, of any session; their messages become visible at the same place.

        Raise `TransactionRolledBackError` if the servers could not commit, for instance since they
        do not know a handle any more; the transaction is rolled back. Raise `ConnectionLostError`
        if the connection was lost for good meanwhile: its `happened` is "unknown" if the commit may
        have taken effect. Raise `IllegalStateError` if the context is not transacted."""

    @abstractmethod
    def rollback(self) -> Any:
        """Roll the transaction back: its received messages are delivered again, its sent ones are
        dropped. Raise `IllegalStateError` if the context is not transacted."""

    @abstractmethod
    def stage(self) -> Any:
        """Hand the messages sent since the last commit to the servers, which keep them invisible,
        and return a handle: any session may commit them, even after this one has ended. The servers
        drop messages that no session commits (`docs/PROMISES.md` has the time).

        Raise `TransactionRolledBackError` if the servers refused one of the messages, for instance
        since they keep too many that are not committed: none of them is kept. Raise
        `IllegalStateError` if the context is not transacted."""

    # -- The end ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver again after `stop()`, on the whole connection."""
        self._core.start()

    @abstractmethod
    def stop(self) -> Any:
        """Hold deliveries on the whole connection, and return when running listeners have returned.
        Raise `IllegalStateError` inside a listener."""

    @abstractmethod
    def close(self) -> Any:
        """Close this context with all that it has made; if `connect` returned it, end the
        connection. Wait for running listeners, and up to `close_timeout` for pending sends.

        Messages that were delivered and not acknowledged go to other consumers. Closing twice is no
        error. Raise `OutcomeUnknownError` if sends remained without an answer, and
        `IllegalStateError` inside a listener and in a forked process."""
