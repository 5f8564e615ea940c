"""The blocking front: contexts, producers and consumers for programs with threads.

Objects may be used from any thread. Sockets are served by one background thread of the process
(`io/background_loop.py`); listeners run on one thread for each context.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from queue import SimpleQueue
from types import EllipsisType, TracebackType
from typing import IO, Any, TypeVar, Unpack, cast

from antiphon.api.connection import Connection, logger, options_of
from antiphon.api.messages.destinations import (
    Destination,
    Group,
    Queue,
    Temporary,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from antiphon.api.messages.message import Message, arrived_together
from antiphon.api.messages.properties import Value
from antiphon.api.modes import SessionMode
from antiphon.api.operations import arguments
from antiphon.api.operations.consumer import LISTENER_TURN, BaseConsumer, Loop, Slow
from antiphon.api.operations.context import BaseContext, check_browsable, terms_of
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import BaseMember, Job
from antiphon.api.operations.producer import BaseProducer, Headers, Sending, split
from antiphon.api.operations.scripts import Deadline, Script
from antiphon.api.protocol.inbox import Loan
from antiphon.api.protocol.inbox_items import Notice
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.urls import default_url, route_to
from antiphon.errors import JMSError, OutcomeUnknownError
from antiphon.formats.columns import Packed
from antiphon.io.background_loop import background_loop
from antiphon.model.conflicts import ConflictRelation

Outcome = TypeVar("Outcome")


def connect(
    url: str | None = None,
    *,
    client_id: str | None = None,
    user: str | None = None,
    password: str | None = None,
    session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    connect_timeout: float = 10.0,
    send_timeout: float | None = None,
    close_timeout: float = 10.0,
    trace: str | None = None,
    tls: Any = None,
    allow_pickle: bool = False,
    packing: str = "adaptive",
) -> Context:
    """A context on a new connection. Without a URL: `ANTIPHON_URL`, then `antiphon.toml`."""
    terms = terms_of(client_id, user, password, session_mode, connect_timeout, tls)
    options = options_of(send_timeout, close_timeout, allow_pickle, trace, packing)
    loop = background_loop()
    route = route_to(url or default_url())
    connection = Connection(loop, loop.call_soon_threadsafe, route, terms, options)
    context = Context(connection, session_mode, owner=True)
    run(context.connecting())
    return context


def wait(ticket: Ticket, timeout: float | None) -> bool:
    """Until it is settled; False: it is not, and the time is over."""
    if ticket.done:
        return True
    gate = allocate_lock()
    gate.acquire()
    ticket.watch(gate.release)
    return gate.acquire(timeout=-1 if timeout is None else max(0, timeout))


def run(script: Script[Outcome]) -> Outcome:
    try:
        pause = next(script)
        while True:
            pause = script.send(wait(*pause))
    except StopIteration as end:
        return cast(Outcome, end.value)
    finally:
        script.close()


class Worker:
    """The one thread on which the listeners of a context run. It begins when there is work."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False

    @property
    def is_caller(self) -> bool:
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], object]) -> None:
        with self._lock:
            if self._ended:
                return
            self._jobs.put(job)
            if self._thread is None:
                # A daemon: a program that ends without closing its contexts ends all the same.
                self._thread = threading.Thread(target=self._work, name="antiphon-listener")
                self._thread.daemon = True
                self._thread.start()

    def end(self) -> None:
        """After what it was given."""
        with self._lock:
            self._ended = True
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Crew:
    """The threads on which a member with several workers handles messages."""

    def __init__(self, workers: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name="antiphon-worker", daemon=True)
            for _ in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_caller(self) -> bool:
        return threading.current_thread() in self._threads

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def end(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                job.listener(job.message)
            except BaseException as raised:  # whatever it is, the thread goes on
                error = raised
            job.member.worked(job.item, job.message, error)
            del job, error  # not kept until the next one comes


class SendFuture(Sending, eq=False, gc=False):
    """What `send_async` returns: the answer to come."""

    def result(self, timeout: float | None = None) -> None:
        """Returns when the servers have the message, raises if they refused it, or after
        `timeout` seconds `OutcomeUnknownError`."""
        self._wait(timeout)
        self._outcome()

    def exception(self, timeout: float | None = None) -> JMSError | None:
        """The error, None if there is none; waits as `result` does."""
        self._wait(timeout)
        return self._error()

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Have it called with this future, on the context's listener thread."""
        self._batch.watch(lambda: self._context.call_soon(callback, self))

    def _wait(self, timeout: float | None) -> None:
        limit = None if timeout is None else arguments.timeout("a timeout", timeout)
        if not wait(self._batch, limit):
            raise OutcomeUnknownError(
                f"no answer for a message to {self._batch.destination} within {timeout:g} s; a "
                "server may have stored it"
            )


class Producer(BaseProducer):
    def send(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[Headers]
    ) -> None:
        """Returns when the servers have the message: persistent, a majority of them."""
        run(self.sending(destination, message_or_body, headers))

    def send_async(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[Headers]
    ) -> SendFuture:
        """Returns as soon as there is room."""
        batch = self._post(destination, message_or_body) if not headers else None
        if batch is None:
            flags, rest = split(headers)
            message = self._prepare(destination, message_or_body, rest)
            deadline = Deadline(self._timeout)
            batch = run(self._putting(destination, message_or_body, flags, message, deadline))
        return SendFuture(batch, self._context)

    def send_all(
        self, destination: Destination, messages: Iterable[Any], **headers: Unpack[Headers]
    ) -> int:
        """Send many, and return how many when the servers have them all. An error says in its
        `sent` how many they had before it."""
        return run(self._sending_all(destination, messages, headers))

    def send_packed(self, destination: Destination, messages: Packed) -> None:
        """Send messages that stand in columns, as one pack: for pipelines, which have them so."""
        run(self._sending_packed(destination, messages))

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Consumer(BaseConsumer):
    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message. `timeout` in seconds, None: for ever; after it, or if the consumer is
        closed meanwhile, None."""
        message = self._take()
        if message is not None or (timeout == 0 and not self.must_provide):
            return message
        return run(self._receiving(timeout))

    def receive_no_wait(self) -> Message | None:
        return self.receive(0)

    def acknowledge_message(self, message: Message) -> None:
        run(self._acknowledging(message))

    def close(self) -> None:
        run(self.closing())

    def __iter__(self) -> Iterator[Message]:
        """Until the consumer is closed. A message is acknowledged when the next is asked for."""
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterable[Message]]:
        """Messages as they can be had: many at once, if there are and may be."""
        loop = Loop(self._context.caller())
        try:
            while True:
                if self._lends and not self.finished and (loan := self._borrow(loop)) is not None:
                    yield self._lent(loan)
                    continue
                message = None if self.finished or self._lends else self._take(loop)
                if message is None:
                    message = run(self._looping(loop))
                if message is None:
                    return
                yield (message,)
        finally:
            self.leaves(loop)

    def _lent(self, loan: Loan) -> Iterator[Message]:
        slice_ = loan.slice
        if isinstance(slice_.columns, Notice):
            return (self._message(slice_, index) for index in loan.indexes)
        arrival = self._arrival(slice_.columns, slice_)
        return arrived_together(arrival, loan.first, loan.end, loan.indexes)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self.leaving(failed=error is not None))


class Browser:
    """The messages of a queue: each iteration shows those that are there when it begins, also those
    that consumers have and have not acknowledged."""

    def __init__(self, context: Context, queue: Queue, selector: str | None) -> None:
        self._context = context
        self.queue = queue
        self.selector = selector

    def __iter__(self) -> Iterator[Message]:
        with run(self._context.browsing(Consumer, self.queue, self.selector)) as consumer:
            yield from consumer

    def close(self) -> None:
        """There is nothing to be closed; JMS has it."""

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Member(BaseMember, Consumer):
    """A member of a group: it gets the group's messages and what happens to the group, in one
    order, the same for all members."""

    _producer: Producer

    def multicast(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """To all members. Returns when a majority of the servers has it."""
        self._producer.send(self.destination, body, tag=tag, key=key, properties=properties)

    def multicast_async(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> SendFuture:
        return self._producer.send_async(
            self.destination, body, tag=tag, key=key, properties=properties
        )

    def remove(self, *names: str) -> None:
        """Remove members, as of the view that this member has; who joined later is not meant."""
        run(self._removing(names))

    def invite(self, name: str, durable: bool = False) -> None:
        """Make somebody a member that is not there yet. All messages are kept for a durable one;
        another one is suspected until it joins."""
        run(self._inviting(name, durable))

    def set_conflict(self, relation: ConflictRelation) -> None:
        """Give the group another conflict relation, from this point of its order on."""
        run(self._setting_conflict(relation))

    def leave(self) -> None:
        """Be no member any more, not even an inactive one."""
        run(self._leaving_group())

    @property
    def initial_state(self) -> IO[bytes] | None:
        """The state that this member takes over, to be read; None: nobody has one. Waits until it
        is there."""
        return run(self._knowing_state())

    def __enter__(self) -> Member:
        return self


class Context(BaseContext):
    """A session with the servers (JMS 2.0's `JMSContext`).

    For programs: `create_...`, `join`, `lookup`, `acknowledge`, `recover`, `commit`, `rollback`,
    `stage`, `unsubscribe`, `start`, `stop`, `close`, `session_mode` and `exception_listener`. The
    rest is how it works inside.
    """

    def __init__(self, connection: Connection, mode: SessionMode, owner: bool) -> None:
        super().__init__(connection, mode, owner)
        self._worker = Worker()

    def create_context(self, session_mode: SessionMode) -> Context:
        """Another session on the same connection, with its own mode and listener thread."""
        self.check()
        return Context(self.connection, session_mode, owner=False)

    def create_producer(self, name: str | None = None) -> Producer:
        """A named one keeps its sequence beyond the connection, so that a restarted program can go
        on exactly once."""
        self.check()
        producer = Producer(self, name)
        run(producer.opening())
        return producer

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: Slow | None = None,
        exclusive: bool = False,
    ) -> Consumer:
        """For the messages of a topic from now on, or a share of a queue's. `selector`: for those
        that it selects; `no_local`, of a topic: for those of other connections; `prefetch`: how
        many may be here and not acknowledged; `slow`, of a topic: what becomes of a consumer that
        does not keep up ("spill": it reads later, "disconnect", "drop"). `exclusive`, of a queue:
        while it is open, no other consumer gets messages; among several exclusive ones, the one
        that was opened first."""
        script = self.opening(
            Consumer, destination, selector, no_local, prefetch, slow, exclusive=exclusive
        )
        return run(script)

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: Slow | None = None,
    ) -> Consumer:
        """A subscription that lasts until `unsubscribe(name)`, and keeps what comes while nobody
        has it open. It belongs to the client id. For the rest see `create_consumer`."""
        return run(self.opening_durable(Consumer, topic, name, selector, no_local, prefetch, slow))

    def create_shared_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: Slow | None = None,
    ) -> Consumer:
        """One of the consumers among which the messages of this subscription are divided. It lasts
        as long as one of them is open."""
        return run(
            self.opening_shared(Consumer, topic, name, selector, prefetch, slow, durable=False)
        )

    def create_shared_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: Slow | None = None,
    ) -> Consumer:
        """The same; it lasts until `unsubscribe`."""
        return run(
            self.opening_shared(Consumer, topic, name, selector, prefetch, slow, durable=True)
        )

    def create_browser(self, queue: Queue, selector: str | None = None) -> Browser:
        """To look at the messages of a queue, and leave them there."""
        self.check()
        check_browsable(queue, selector)
        return Browser(self, queue, selector)

    def create_group(
        self,
        name: str,
        *,
        conflict: ConflictRelation | None = None,
        remove_after: float | EllipsisType | None = ...,
    ) -> Group:
        """A topic that is a process group. What is left out is as the group has it. `remove_after`:
        seconds after which a suspected member that is not durable is removed; None: never."""
        return run(self.creating_group(name, conflict, remove_after))

    def delete_group(self, name: str | Group, *, force: bool = False) -> None:
        """Remove all members of a group, those that are inactive too, with one view, so that it is
        over and its name is free. With members that are there it raises `IllegalStateError`, unless
        by force."""
        run(self.deleting_group(name, force))

    def join(
        self,
        group: Topic,
        name: str | None = None,
        durable: bool = False,
        workers: int = 1,
        state_provider: StateProvider | None = None,
    ) -> Member:
        """Become a member of a group. Under the name of a member that is inactive or suspected, in
        its place; a durable one goes on where it was."""
        return run(self.joining(Member, group, name, durable, workers, state_provider))

    def create_last_value_topic(self, name: str) -> Topic:
        """A topic that keeps the last message of each `key`: who subscribes later begins with
        these. What was sent before it was first made one is not among them."""
        return run(self.creating_last_value_topic(name))

    def create_temporary_topic(self) -> TemporaryTopic:
        return run(self.creating_temporary(TemporaryTopic))

    def create_temporary_queue(self) -> TemporaryQueue:
        return run(self.creating_temporary(TemporaryQueue))

    def delete_temporary(self, destination: Temporary) -> None:
        run(self.deleting_temporary(destination))

    def unsubscribe(self, name: str, group: str | Topic | None = None) -> None:
        """End the durable subscription of this name; with `group`, remove its member."""
        run(self.unsubscribing(name, group))

    def acknowledge(self) -> None:
        """All messages that this context has delivered."""
        run(self.acknowledging())

    def recover(self) -> None:
        """Have all messages that were delivered and not acknowledged delivered again."""
        run(self.recovering())

    def commit(self, token: str | None = None, staged: Iterable[str] = ()) -> bool:
        """End the transaction: what was received is acknowledged, what was sent becomes visible, at
        one place in the order; and with it what was staged under these handles. False: a commit
        with this token has happened before, and what was sent is dropped."""
        return run(self.committing(token, staged))

    def rollback(self) -> None:
        """End the transaction: what was received comes again, what was sent is dropped."""
        run(self.rolling_back())

    def stage(self) -> str:
        """Hand what was sent since the last commit to the servers, invisible, for anybody to
        commit; returns the handle."""
        return run(self.staging())

    def stop(self) -> None:
        """Hold deliveries on the whole connection; returns when running listeners have."""
        run(self.stopping())

    def close(self) -> None:
        """Waits for pending sends and running listeners; closing twice is no error."""
        run(self.closing())

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self.leaving(failed=error is not None))

    # -- The worker -----------------------------------------------------------------------------

    def plain_producer(self) -> Producer:
        return Producer(self, None)

    def caller(self) -> object:
        return threading.get_ident()

    def inside_listener(self) -> bool:
        return self._worker.is_caller or any(crew.is_caller for crew in self.crews)

    def new_crew(self, workers: int) -> Crew:
        crew = Crew(workers)
        self.crews.append(crew)
        return crew

    def schedule(self, consumer: BaseConsumer) -> None:
        self._worker.submit(partial(_serve, consumer))

    def call_soon(self, what: Callable[[Any], Any], argument: Any) -> None:
        self._worker.submit(partial(_call, what, argument))

    def end_worker(self) -> None:
        self._worker.end()


def _serve(consumer: BaseConsumer) -> None:
    """Give a consumer's listener its turn."""
    for _ in range(LISTENER_TURN):
        taken = consumer.turn()
        if taken is None:
            if not consumer.must_provide:
                return
            run(consumer.providing())
            continue
        listener, message = taken
        error: BaseException | None = None
        try:
            listener(message)
        except BaseException as raised:  # whatever it is, the thread goes on
            error = raised
        consumer.handled(message, error)
    consumer.stir()


def _call(what: Callable[[Any], Any], argument: Any) -> None:
    """Call the application's code, which may raise, where nobody would catch that."""
    try:
        what(argument)
    except Exception:
        logger.exception("%r raised", what)
