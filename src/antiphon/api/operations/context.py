"""Contexts, but for waiting: a session of the application on a connection.

A context has one lock, and one worker on which its listeners run, one message at a time. The
context that `connect` returned owns the connection: closing it closes those that were made from it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import Any, NoReturn, TypeVar, Unpack

from antiphon.api.connection import Connection, logger, now_ms
from antiphon.api.messages.destinations import Destination, Group, Queue, Temporary, Topic
from antiphon.api.messages.message import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from antiphon.api.modes import SessionMode
from antiphon.api.operations import arguments
from antiphon.api.operations.consumer import PREFETCH_MAX, BaseConsumer
from antiphon.api.operations.group_standing import Standing
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import (
    NAME_RETRY_S,
    NAME_WAIT_S,
    BaseMember,
    Crew,
    check_joinable,
    remove_after_ms,
)
from antiphon.api.operations.redelivery import Redeliveries, said
from antiphon.api.operations.scripts import Deadline, Pause, Script, ring
from antiphon.api.protocol.conversation import Conversation, Request, Terms
from antiphon.api.protocol.inbox import Inbox
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.protocol.transaction import Transaction
from antiphon.api.urls import look_up
from antiphon.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    OutcomeUnknownError,
    ResourceAllocationError,
)
from antiphon.formats import protocol as cw
from antiphon.model.conflicts import ConflictRelation
from antiphon.model.destinations import DEAD_LETTERS
from antiphon.model.redelivery import Redelivery

PREFETCH_TOPIC, PREFETCH_QUEUE = 65_536, 1000
"""Messages that a consumer has here and has not acknowledged: enough to keep it busy while the next
ones are on their way. Of a queue it is less, since what one consumer has the others do not get."""

AUTOMATIC = (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE)

MemberKind = TypeVar("MemberKind", bound=BaseMember)
ConsumerKind = TypeVar("ConsumerKind", bound=BaseConsumer)
TemporaryKind = TypeVar("TemporaryKind", bound=Temporary)
ExceptionListener = Callable[[JMSError], Any]


class BaseContext(ABC):
    def __init__(self, connection: Connection, mode: SessionMode, owner: bool) -> None:
        self.connection = connection
        self.mode = SessionMode(mode)
        transacted = self.mode is SessionMode.SESSION_TRANSACTED
        # What was sent since the last commit; None: this context is not transacted.
        self.transaction = Transaction() if transacted else None
        self.automatic = mode in AUTOMATIC
        self.lock = threading.Lock()
        self.closed = False
        self.unusable = False  # closed, or the connection is lost, or this is a forked process
        self.forked_from = False
        self.running: BaseConsumer | None = None  # whose listener has a message now
        self._owner = owner
        self.crews: list[Crew] = []
        self._rest_bells: set[Ticket] = set()  # of those who wait for the listener to return
        self._consumers: list[BaseConsumer] = []
        self._gone: list[BaseConsumer] = []  # closed, with messages not acknowledged
        connection.members.append(self)

    # -- Given by each front ----------------------------------------------------------------------

    @abstractmethod
    def caller(self) -> object:
        """Who is calling: a thread, or a task."""

    @abstractmethod
    def inside_listener(self) -> bool:
        """The caller is this context's worker."""

    @abstractmethod
    def schedule(self, consumer: BaseConsumer) -> None:
        """Have the worker give this consumer's listener a turn."""

    @abstractmethod
    def call_soon(self, what: Callable[[Any], Any], argument: Any) -> None:
        """Have the worker call this."""

    @abstractmethod
    def end_worker(self) -> None: ...

    @abstractmethod
    def new_crew(self, workers: int) -> Crew: ...

    @abstractmethod
    def plain_producer(self) -> Any:
        """A producer without a name."""

    @abstractmethod
    def delete_temporary(self, destination: Temporary) -> Any: ...

    # -- The beginning ----------------------------------------------------------------------------

    def connecting(self) -> Script[None]:
        """Until a server has taken the session."""
        ready = self.connection.conversation.ready
        self.connection.wake()
        try:
            yield Pause(ready)
            ready.outcome()
        except BaseException:
            self.closed = self.unusable = True
            self.connection.do(Conversation.abandon)
            raise

    # -- Plain calls ------------------------------------------------------------------------------

    def create_topic(self, name: str) -> Topic:
        return Topic(name)

    def create_queue(self, name: str, **redelivery: Unpack[Redeliveries]) -> Queue:
        """What is said of redeliveries counts from when a consumer of this queue is opened, as long
        as there are consumers or messages. What is left out is as others have said, or the default;
        who says something else is refused (`create_consumer` raises `IllegalStateError`)."""
        return Queue(name, said(name, **redelivery))

    def create_message(self) -> Message:
        return Message()

    def create_text_message(self, text: str = "") -> TextMessage:
        return TextMessage(text)

    def create_bytes_message(self, body: bytes = b"") -> BytesMessage:
        return BytesMessage(body)

    def create_map_message(self, body: Mapping[str, Any] | None = None) -> MapMessage:
        return MapMessage(body)

    def create_stream_message(self, body: list[Any] | None = None) -> StreamMessage:
        return StreamMessage(body)

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        return ObjectMessage(body)

    def lookup(self, name: str) -> Destination:
        """The destination of this name in `antiphon.toml`."""
        return look_up(name)

    @property
    def session_mode(self) -> SessionMode:
        return self.mode

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Told of what has gone wrong and no call raises: the connection was lost for good, a send
        that nobody looked at has failed, a listener does not get on with a message."""
        return self.connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        arguments.check_listener(listener)
        self.connection.exception_listener = listener

    def start(self) -> None:
        """Go on delivering after `stop()`."""
        self.check()
        self.connection.started = True
        for consumer in self._all_consumers():
            consumer.stir()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: connect inside the task")

    # -- Usable? ----------------------------------------------------------------------------------

    def check(self) -> None:
        if self.unusable:
            raise self.why_not()

    def why_not(self) -> JMSError:
        if self.forked_from:
            return IllegalStateError(
                "this process was forked from the one that connected. Connect here, after the fork"
            )
        if self.closed:
            return IllegalStateError("the context is closed")
        return self.connection.conversation.problem()

    # -- Called by the connection, on the loop's thread -------------------------------------------

    def ended(self, error: JMSError | None) -> None:
        self.unusable = True
        for consumer in list(self._consumers):
            consumer.lost()

    def complain(self, error: JMSError) -> None:
        logger.warning("%s", error)
        listener = self.connection.exception_listener
        if listener is not None:
            self.call_soon(listener, error)

    def forked(self) -> None:
        self.forked_from = self.unusable = True
        self.lock = threading.Lock()
        for consumer in self._consumers:
            consumer.forked(self.lock)

    # -- Consumers --------------------------------------------------------------------------------

    def opening(
        self,
        kind: type[ConsumerKind],
        destination: Destination,
        selector: str | None,
        no_local: bool,
        prefetch: int | None,
        slow: str | None,
        durable: str = "",
        shared: str = "",
        exclusive: bool = False,
    ) -> Script[ConsumerKind]:
        self.check()
        check_consumable(destination, selector)
        divided = isinstance(destination, Queue) or bool(shared)
        if exclusive and not isinstance(destination, Queue):
            raise IllegalStateError("exclusive is for queues: of a topic everybody gets everything")
        consumer = self._new_consumer(kind, destination, prefetch, divided)
        consumer.durable, consumer.exclusive = bool(durable), exclusive
        asked = cw.OpenConsumer(
            consumer.inbox.consumer,
            destination.text,
            consumer.inbox.prefetch,
            durable,
            selector or "",
            bool(no_local),
            "spill" if slow is None else slow,
            shared,
            exclusive=exclusive,
            redelivery=asked_of(destination),
        )
        yield from self._granting(consumer, lambda c: c.open_consumer(asked))
        return consumer

    def opening_durable(
        self,
        kind: type[ConsumerKind],
        topic: Topic,
        name: str,
        selector: str | None,
        no_local: bool,
        prefetch: int | None,
        slow: str | None,
    ) -> Script[ConsumerKind]:
        check_subscription_name(name)
        script = self.opening(kind, topic, selector, no_local, prefetch, slow, name)
        return (yield from script)

    def opening_shared(
        self,
        kind: type[ConsumerKind],
        topic: Topic,
        name: str,
        selector: str | None,
        prefetch: int | None,
        slow: str | None,
        durable: bool,
    ) -> Script[ConsumerKind]:
        """One of the consumers that divide a subscription."""
        if not isinstance(topic, Topic):
            raise InvalidDestinationError(f"{topic!r} is no topic: only topics are subscribed to")
        check_subscription_name(name)
        kept = name if durable else ""
        script = self.opening(kind, topic, selector, False, prefetch, slow, kept, name)
        return (yield from script)

    def browsing(
        self, kind: type[ConsumerKind], queue: Queue, selector: str | None
    ) -> Script[ConsumerKind]:
        """A consumer that gets what is in the queue now, and leaves it there."""
        self.check()
        consumer = self._new_consumer(kind, queue, None, False)
        consumer.only_looks()
        asked = cw.OpenConsumer(
            consumer.inbox.consumer,
            queue.text,
            consumer.inbox.prefetch,
            selector=selector or "",
            browse=True,
        )
        yield from self._granting(consumer, lambda c: c.open_consumer(asked))
        return consumer

    def _new_consumer(
        self,
        kind: type[ConsumerKind],
        destination: Destination,
        prefetch: int | None,
        divided: bool = False,
    ) -> ConsumerKind:
        """`divided`: other consumers get a part of the messages."""
        if prefetch is None:
            prefetch = PREFETCH_QUEUE if divided else PREFETCH_TOPIC
        if not 1 <= arguments.number("prefetch", prefetch) <= PREFETCH_MAX:
            raise ResourceAllocationError(f"prefetch is 1 to {PREFETCH_MAX}, not {prefetch}")
        with self.connection.lock:
            number = self.connection.conversation.next_consumer()
        inbox = Inbox(number, divided, prefetch, now_ms)
        if destination.text != DEAD_LETTERS:
            inbox.deliveries_max = self.connection.conversation.redelivery.deliveries or 0
        consumer = kind(self, destination, inbox)
        with self.lock:
            self.check()
            self._consumers.append(consumer)
        self.connection.receivers[number] = consumer  # before anything can arrive
        return consumer

    def _granting(
        self, consumer: BaseConsumer, ask: Callable[[Conversation], Request]
    ) -> Script[None]:
        """Until the servers have opened this consumer."""
        try:
            request = self.connection.do(ask)
            yield Pause(request)
            request.outcome()
            consumer.opened(request)
        except BaseException as error:
            self._not_opened(consumer, error)
            raise

    def _not_opened(self, consumer: BaseConsumer, error: BaseException) -> None:
        with self.lock:
            consumer.shut()
            self.gone(consumer)
        if not isinstance(error, JMSError):
            # Nobody waits for it any more: it must not stay open at the servers.
            number = consumer.inbox.consumer
            self.connection.do(lambda c: None if c.over else c.close_consumer(number))

    def gone(self, consumer: BaseConsumer) -> None:
        """Nothing more arrives for it. Under the lock."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self.connection.receivers.pop(consumer.inbox.consumer, None)
        if consumer.inbox.kept():
            self._gone.append(consumer)

    def give_back(self, consumers: Iterable[BaseConsumer]) -> Request | None:
        """What closed consumers have and nobody handles is delivered again, to whomever. Under the
        lock."""
        kept = tuple(k for c in consumers for k in c.inbox.give_up(c.in_hand()))
        self._gone = [consumer for consumer in self._gone if consumer.inbox.kept()]
        if not kept:
            return None
        return self.connection.do(lambda c: None if c.over else c.request(cw.Return(kept)))

    def _all_consumers(self) -> list[BaseConsumer]:
        """Of all contexts of this connection."""
        return [consumer for context in self._family() for consumer in list(context._consumers)]

    def _family(self) -> list[BaseContext]:
        return [member for member in self.connection.members if isinstance(member, BaseContext)]

    # -- Groups -----------------------------------------------------------------------------------

    def creating_group(
        self,
        name: str,
        conflict: ConflictRelation | None,
        remove_after: float | EllipsisType | None,
    ) -> Script[Group]:
        self.check()
        group = Group(name)
        if conflict is not None and not isinstance(conflict, ConflictRelation):
            raise TypeError(f"conflict is a ConflictRelation, not {conflict!r}")
        relation = "" if conflict is None else conflict.to_json()
        body = cw.CreateGroup(group.text, relation, remove_after_ms(remove_after))
        request = self.connection.do(lambda c: c.request(body))
        yield Pause(request)
        request.outcome()
        known = ConflictRelation.from_json(request.data.decode())
        if self.connection.trace is not None and request.value == 0:  # nobody was ever in it
            self.connection.trace.created(group.text, known.to_json())
        self.connection.relations[group.text] = known
        if conflict is not None or remove_after is not ...:
            self.connection.asked_of_groups[group.text] = (body.relation, body.remove_after_ms)
        return group

    def deleting_group(self, name: str | Group, force: bool) -> Script[None]:
        self.check()
        group = Group(name) if isinstance(name, str) else name
        body = cw.DeleteGroup(group.text, force)
        request = self.connection.do(lambda c: c.request(body))
        yield Pause(request)
        request.outcome()
        self.connection.relations.pop(group.text, None)
        self.connection.asked_of_groups.pop(group.text, None)

    def joining(
        self,
        kind: type[MemberKind],
        group: Topic,
        name: str | None,
        durable: bool,
        workers: int,
        state_provider: StateProvider | None,
    ) -> Script[MemberKind]:
        """A name that seems to be taken may be that of a member which has just died: it is free as
        soon as that one is suspected."""
        self.check()
        check_joinable(group, name, durable, workers)
        if workers > 1 and not self.automatic:
            raise IllegalStateError("workers need a context that acknowledges automatically")
        deadline = Deadline(NAME_WAIT_S)
        while True:
            member = self._new_consumer(kind, group, None)
            member.prepare(durable, workers, state_provider)
            asked = member.request_to_join(name)
            try:
                yield from self._granting(member, lambda c, asked=asked: c.join(asked))  # type: ignore[misc]
            except IllegalStateError:
                if name is None or self.unusable or not deadline.left():
                    raise
                yield Pause(Ticket(), NAME_RETRY_S)
            else:
                return member

    def standing_in(self, destination: str) -> Standing | None:
        """Of the member that this context has in a group; None: it has none."""
        for consumer in list(self._consumers):
            if consumer.destination.text == destination and consumer.standing.name:
                return consumer.standing
        return None

    # -- Acknowledging ----------------------------------------------------------------------------

    def acknowledging(self) -> Script[None]:
        """All that this context has delivered."""
        self.check()
        if self.automatic or self.transaction is not None:
            return
        with self.lock:
            rows = []
            for consumer in (*self._consumers, *self._gone):
                consumer.inbox.acknowledge_all()
                rows += consumer.inbox.take_rows()
            self._gone.clear()
            ack = self.connection.do(lambda c: c.acknowledge(rows)) if rows else None
        if ack is not None:
            yield Pause(ack)
            ack.outcome()

    def recovering(self) -> Script[None]:
        """All that this context has delivered and that is not acknowledged comes again."""
        self.check()
        if self.transaction is not None:
            raise IllegalStateError("a transacted context is rolled back, not recovered")
        yield from self._starting_over(waits=False)

    def _starting_over(self, waits: bool) -> Script[None]:
        """`waits`: what this context had could not be handled, and comes again after a wait."""
        with self.lock:
            for consumer in self._consumers:
                consumer.recover(waits)
            request = self.give_back(self._gone)
        for consumer in list(self._consumers):
            consumer.stir()
        if request is not None:
            yield Pause(request)
            request.outcome()

    # -- Transactions -----------------------------------------------------------------------------

    def _take_transaction(self) -> Transaction:
        """What was sent since the last commit. What is sent from now on is of the next one."""
        self.check()
        with self.connection.lock:
            transaction = self.transaction
            if transaction is None:
                raise IllegalStateError(
                    "this context is not transacted: connect(session_mode=SESSION_TRANSACTED), or "
                    "create_session(True) of a classic connection"
                )
            self.transaction = Transaction()
        return transaction

    def committing(self, token: str | None, staged: Iterable[str]) -> Script[bool]:
        """False: this token was committed before, and what was sent since then is dropped."""
        token = arguments.optional_text("a token", token)
        handles = arguments.texts("staged", staged)
        transaction = self._take_transaction()
        with self.lock:
            consumers = (*self._consumers, *self._gone)
            before = [(consumer, consumer.inbox.remember()) for consumer in consumers]
            rows = [row for consumer in consumers for row in consumer.all_done()]
        if not (rows or transaction or handles or token):
            return True
        request = self.connection.do(
            lambda c: c.commit(transaction, rows, token, handles),
        )
        yield Pause(request)
        try:
            fresh = bool(request.outcome())
        except JMSError:
            with self.lock:
                for consumer, remembered in before:
                    consumer.inbox.restore(remembered)
            if not self.unusable:
                yield from self._starting_over(waits=True)
            raise
        if fresh:
            transaction.committed.settle()
            transaction.committed.tell()
        return fresh

    def rolling_back(self) -> Script[None]:
        transaction = self._take_transaction()
        if transaction:
            self.connection.do(lambda c: None if c.over else c.discard(transaction))
        yield from self._starting_over(waits=True)

    def staging(self) -> Script[str]:
        """Until what was sent is kept by the servers."""
        transaction = self._take_transaction()
        request = self.connection.do(lambda c: c.stage(transaction))
        yield Pause(request)
        request.outcome()
        return request.data.decode()

    # -- Requests ---------------------------------------------------------------------------------

    def asking(self, body: cw.Body) -> Script[int]:
        self.check()
        request = self.connection.do(lambda c: c.request(body))
        yield Pause(request)
        return request.outcome()

    def unsubscribing(self, name: str, group: str | Topic | None) -> Script[None]:
        arguments.text("the name of a subscription", name)
        topic = Group(group) if isinstance(group, str) else group
        if topic is not None and not isinstance(topic, Topic):
            raise InvalidDestinationError(f"{topic!r} is no group")
        yield from self.asking(cw.Unsubscribe(name, "" if topic is None else topic.text))

    def creating_temporary(self, kind: type[TemporaryKind]) -> Script[TemporaryKind]:
        self.check()
        with self.connection.lock:
            name = self.connection.conversation.next_temporary()
        destination = kind(name, self)
        yield from self.asking(cw.CreateTemporary(destination.text))
        return destination

    def creating_last_value_topic(self, name: str) -> Script[Topic]:
        topic = Topic(name)
        yield from self.asking(cw.CreateTopic(topic.text))
        return topic

    def deleting_temporary(self, destination: Temporary) -> Script[None]:
        yield from self.asking(cw.DeleteTemporary(destination.text))

    # -- Stopping and closing ---------------------------------------------------------------------

    def rest(self) -> None:
        """The listener has returned."""
        self.running = None
        self.rested()

    def rested(self) -> None:
        ring(self._rest_bells)

    def until_rest(self, consumer: BaseConsumer | None = None) -> Script[None]:
        """Until no listener has a message, or that of this consumer has none."""
        while True:
            bell = Ticket()
            self._rest_bells.add(bell)
            try:
                consumers = [*self._consumers, self.running] if consumer is None else [consumer]
                if not any(one.busy for one in consumers if one is not None):
                    return
                yield Pause(bell)
            finally:
                self._rest_bells.discard(bell)

    def stopping(self) -> Script[None]:
        """Hold deliveries; returns when the listeners that are running have returned."""
        self.check()
        self._not_inside_listener("stop")
        self.connection.started = False
        for context in self._family():
            with context.lock:
                for consumer in context._consumers:
                    consumer.call_in()
            yield from context.until_rest()

    def closing(self) -> Script[None]:
        if self.forked_from:
            raise self.why_not()
        self._not_inside_listener("close")
        with self.lock:
            if self.closed:
                return
            self.closed = True
        contexts = self._family() if self._owner else [self]
        for context in contexts:
            context._shut()
        for context in contexts:
            yield from context.until_rest()
        try:
            if self._owner:
                yield from self._ending(contexts)
            else:
                yield from self._going()
        finally:
            for context in contexts:
                context.end_worker()
                for crew in context.crews:
                    crew.end()

    def leaving(self, failed: bool) -> Script[None]:
        """The `with` block ends; `failed`: with an exception."""
        if not self.unusable:
            for context in self._family() if self._owner else [self]:
                with context.lock:
                    for consumer in context._consumers:
                        consumer.leave_loop_of(self.caller(), failed)
        yield from self.closing()

    def _not_inside_listener(self, what: str) -> None:
        if any(context.inside_listener() for context in self._family()):
            raise IllegalStateError(
                f"{what}() inside a listener would wait for that listener. Have another thread or "
                "task do it; a consumer may be closed here"
            )

    def _shut(self) -> None:
        with self.lock:
            self.closed = self.unusable = True
            for consumer in self._consumers:
                consumer.shut()

    def _going(self) -> Script[None]:
        """One of several contexts: what it has goes back, the connection stays."""
        if self.transaction:
            transaction = self.transaction
            self.connection.do(lambda c: None if c.over else c.discard(transaction))
        for consumer in list(self._consumers):
            yield from consumer.going(give_back=True)
        with self.lock:
            request = self.give_back(list(self._gone))
        if request is not None:
            yield Pause(request, self.connection.options.close_timeout)
        self.connection.members.remove(self)

    def _ending(self, contexts: list[BaseContext]) -> Script[None]:
        connection = self.connection
        deadline = Deadline(connection.options.close_timeout)
        unanswered = yield from self._settling_sends(deadline)
        kept = [k for context in contexts for k in context._last_words()]
        request = connection.do(lambda c: _close_session(c, kept))
        if request is not None and not (yield Pause(request, deadline.left())):
            connection.do(Conversation.abandon)
        yield Pause(connection.released)
        if unanswered:
            raise OutcomeUnknownError(
                f"closed with {unanswered} messages unanswered for "
                f"{connection.options.close_timeout:g} s; servers may have stored them"
            )

    def _settling_sends(self, deadline: Deadline) -> Script[int]:
        """Wait for what was sent; returns how many messages have no answer. What nobody committed
        is dropped, whether it has arrived or not."""
        with self.connection.lock:
            sent = self.connection.conversation.unsettled()
            open_ones = [context.transaction for context in self._family() if context.transaction]
            dropped = {batch for transaction in open_ones for batch in transaction.batches}
            batches = [batch for batch in sent if batch not in dropped]
        for batch in batches:
            if not (yield Pause(batch, deadline.left())):
                break
        return sum(batch.count for batch in batches if not batch.done)

    def _last_words(self) -> list[cw.Kept]:
        """What was acknowledged is told; returns what the application saw besides."""
        with self.lock:
            for consumer in (*self._consumers, *self._gone):
                consumer.report_now()
            self._trace_departures()
            inboxes = [consumer.inbox for consumer in self._consumers]
            return [kept for inbox in inboxes for kept in (*inbox.close(), *inbox.kept())]

    def _trace_departures(self) -> None:
        """With the session its members leave, or are away until they come back."""
        trace = self.connection.trace
        if trace is None:
            return
        members = [c for c in self._consumers if c.standing.name]
        for consumer in members:
            if not consumer.stays_member:
                trace.add("leave", group=consumer.destination.text)
        if any(consumer.stays_member for consumer in members):
            trace.add("crash")


def _close_session(conversation: Conversation, kept: list[cw.Kept]) -> Request | None:
    if conversation.over:
        return None
    if conversation.idle and not conversation.attached:
        conversation.abandon()  # nobody is there, and nobody waits: the lease will end it
        return None
    return conversation.request(cw.CloseSession(tuple(kept)))


def terms_of(
    client_id: str | None,
    user: str | None,
    password: str | None,
    session_mode: SessionMode,
    connect_timeout: float,
    tls: Any,
) -> Terms:
    SessionMode(session_mode)
    patience = arguments.seconds("connect_timeout", connect_timeout)
    arguments.check_credentials(user, password)
    if tls is not None:
        not_yet("TLS")
    if client_id == "":
        raise InvalidClientIDError("a client id is not empty: leave it out to have none")
    return Terms(
        arguments.optional_text("client_id", client_id),
        int(min(patience, arguments.FOR_EVER_S) * 1000),
    )


def check_consumable(destination: Destination, selector: str | None) -> None:
    """A wrong selector is refused before anything is sent, as the servers would."""
    if not isinstance(destination, Destination):
        raise InvalidDestinationError(
            f"{destination!r} is no destination: create_topic(name) or create_queue(name) makes one"
        )
    if selector is not None and not isinstance(selector, str):
        raise TypeError(f"a selector is a str, not {selector!r}")
    if selector:
        # Loaded here, since most programs have none, and loading takes long.
        from antiphon.model.selectors.evaluate import parse

        parse(selector)


def asked_of(destination: Destination) -> Redelivery | None:
    """What its name says of redeliveries, if it is a queue's; None: nothing."""
    if not isinstance(destination, Queue) or destination.redelivery == Redelivery():
        return None
    return destination.redelivery


def check_subscription_name(name: str) -> None:
    if not arguments.text("the name of a subscription", name):
        raise IllegalStateError("a durable or shared subscription has a name")


def check_browsable(queue: Queue, selector: str | None) -> None:
    if not isinstance(queue, Queue):
        raise InvalidDestinationError(f"{queue!r} is no queue: only queues are browsed")
    check_consumable(queue, selector)


def not_yet(what: str) -> NoReturn:
    raise IllegalStateError(f"{what}: not supported yet by this release. Nothing was done")
