"""The asyncio front: the same names as `sync.py`, on the program's own event loop.

What talks to a server is awaited. `connect` and what opens something return objects that can be
awaited or entered with `async with`. A cancelled `receive` takes no message; a cancelled `send`
leaves it open whether the message was sent.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from types import EllipsisType, TracebackType
from typing import IO, Any, Generic, TypeVar, Unpack, cast

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
from antiphon.api.messages.message import Message
from antiphon.api.messages.properties import Value
from antiphon.api.modes import SessionMode
from antiphon.api.operations.consumer import LISTENER_TURN, BaseConsumer, Loop, Slow
from antiphon.api.operations.context import BaseContext, check_browsable, terms_of
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import BaseMember, Job
from antiphon.api.operations.producer import BaseProducer, Headers, Sending, split
from antiphon.api.operations.scripts import Deadline, Script
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.urls import default_url, route_to
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats.columns import Packed
from antiphon.model.conflicts import ConflictRelation

Outcome = TypeVar("Outcome")
Opened = TypeVar("Opened")


async def wait(ticket: Ticket, timeout: float | None) -> bool:  # noqa: ASYNC109
    """Until it is settled; False: it is not, and the time is over."""
    if ticket.done:
        return True
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()
    ticket.watch(partial(_resolve, future, True))
    timer = None if timeout is None else loop.call_later(timeout, _resolve, future, False)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


def _resolve(future: asyncio.Future[bool], outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)


async def run(script: Script[Outcome]) -> Outcome:
    try:
        pause = next(script)
        while True:
            pause = script.send(await wait(*pause))
    except StopIteration as end:
        return cast(Outcome, end.value)
    finally:
        script.close()


class Opening(Generic[Opened]):
    """Something that is being opened: `x = await opening`, or `async with opening as x`. What has
    no end, as a group, is entered too, and left as it is."""

    def __init__(self, opening: Coroutine[Any, Any, Opened]) -> None:
        self._opening = opening
        self._entered: AbstractAsyncContextManager[Any] = nullcontext()

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._opening.__await__()

    async def __aenter__(self) -> Opened:
        opened = await self._opening
        if isinstance(opened, AbstractAsyncContextManager):
            self._entered = opened
        await self._entered.__aenter__()
        return opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._entered.__aexit__(kind, error, trace)


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
) -> Opening[Context]:
    """A context on a new connection. Without a URL: `ANTIPHON_URL`, then `antiphon.toml`."""
    terms = terms_of(client_id, user, password, session_mode, connect_timeout, tls)
    options = options_of(send_timeout, close_timeout, allow_pickle, trace, packing)

    async def opening() -> Context:
        loop = asyncio.get_running_loop()
        route = route_to(url or default_url())
        connection = Connection(loop, loop.call_soon, route, terms, options)
        context = Context(connection, session_mode, owner=True)
        await run(context.connecting())
        return context

    return Opening(opening())


class Worker:
    """The one task at a time in which the listeners of a context run."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def is_caller(self) -> bool:
        return self._task is not None and asyncio.current_task() is self._task

    def submit(self, job: Callable[[], Awaitable[None]]) -> None:
        if self._ended:
            return
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def end(self) -> None:
        """After what it was given."""
        self._ended = True

    async def _work(self) -> None:
        try:
            while self._jobs:
                await self._jobs.popleft()()
                await asyncio.sleep(0)  # a listener that never waits lets others run too
        finally:
            self._task = None


class Crew:
    """The tasks in which a member with several workers handles messages."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_caller(self) -> bool:
        return asyncio.current_task() in self._tasks

    def submit(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        pass  # a task ends with its message

    async def _work(self, job: Job) -> None:
        error: BaseException | None = None
        try:
            result = job.listener(job.message)
            if inspect.isawaitable(result):
                await result
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):
                raise  # cancelled
        finally:
            job.member.worked(job.item, job.message, error)


class SendFuture(Sending, eq=False, gc=False):
    """What `await send_async(...)` gives: the answer to come, to be awaited."""

    def __await__(self) -> Generator[Any, Any, None]:
        if not self._batch.done:
            yield from wait(self._batch, None).__await__()
        self._outcome()

    def result(self) -> None:
        self._check_done()
        self._outcome()

    def exception(self) -> JMSError | None:
        self._check_done()
        return self._error()

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Have it called with this future, on the event loop."""
        loop = asyncio.get_running_loop()
        self._batch.watch(lambda: loop.call_soon(callback, self))

    def _check_done(self) -> None:
        if not self._batch.done:
            raise IllegalStateError("the servers have not answered yet: await this future")


class Producer(BaseProducer):
    async def send(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[Headers]
    ) -> None:
        """Returns when the servers have the message: persistent, a majority of them."""
        await run(self.sending(destination, message_or_body, headers))

    async def send_async(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[Headers]
    ) -> SendFuture:
        """Returns as soon as there is room."""
        flags, rest = split(headers) if headers else (0, headers)
        message = self._prepare(destination, message_or_body, rest)
        batch = self._put(destination, message_or_body, flags, message)
        if batch is None:
            deadline = Deadline(self._timeout)
            batch = await run(self._putting(destination, message_or_body, flags, message, deadline))
        return SendFuture(batch, self._context)

    async def send_all(
        self, destination: Destination, messages: Iterable[Any], **headers: Unpack[Headers]
    ) -> int:
        """Send many, and return how many when the servers have them all. An error says in its
        `sent` how many they had before it."""
        return await run(self._sending_all(destination, messages, headers))

    async def send_packed(self, destination: Destination, messages: Packed) -> None:
        """Send messages that stand in columns, as one pack: for pipelines, which have them so."""
        await run(self._sending_packed(destination, messages))

    async def close(self) -> None:
        self._close()

    def __await__(self) -> Generator[Any, Any, Producer]:
        """A named producer is open when it is first used; to have that done, await it."""
        yield from run(self.opening()).__await__()
        return self

    async def __aenter__(self) -> Producer:
        return await self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Acknowledging:
    """What `message.acknowledge()` gives. It is begun at once, so that it happens even if nobody
    awaits it; then its error goes to the exception listener and the log."""

    def __init__(self, context: BaseContext, script: Script[None]) -> None:
        self._context = context
        self._awaited = False
        self._task = asyncio.ensure_future(run(script))
        self._task.add_done_callback(self._done)

    def __await__(self) -> Generator[Any, Any, None]:
        self._awaited = True
        return self._task.__await__()

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if self._awaited or task.cancelled() else task.exception()
        if error is not None:
            self._context.complain(cast(JMSError, error))


class Consumer(BaseConsumer):
    # JMS has the timeout here, and after it there is no message, but no error either.
    async def receive(self, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109
        """The next message. `timeout` in seconds, None: for ever; after it, or if the consumer is
        closed meanwhile, None."""
        message = self._take()
        if message is not None or (timeout == 0 and not self.must_provide):
            return message
        return await run(self._receiving(timeout))

    async def receive_no_wait(self) -> Message | None:
        return await self.receive(0)

    def acknowledge_message(self, message: Message) -> Awaitable[None]:
        return Acknowledging(self._context, self._acknowledging(message))

    async def close(self) -> None:
        await run(self.closing())

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Until the consumer is closed. A message is acknowledged when the next is asked for."""
        loop = Loop(self._context.caller())
        try:
            while True:
                message = None if self.finished else self._take(loop)
                if message is None:
                    message = await run(self._looping(loop))
                if message is None:
                    return
                yield message
        finally:
            self.leaves(loop)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await run(self.leaving(failed=error is not None))


class Browser:
    """The messages of a queue: each iteration shows those that are there when it begins, also those
    that consumers have and have not acknowledged."""

    def __init__(self, context: Context, queue: Queue, selector: str | None) -> None:
        self._context = context
        self.queue = queue
        self.selector = selector

    def __await__(self) -> Generator[Any, Any, Browser]:
        """There is nothing to wait for; but all that is created may be awaited."""
        yield from ()
        return self

    async def __aiter__(self) -> AsyncIterator[Message]:
        script = self._context.browsing(Consumer, self.queue, self.selector)
        async with Opening(run(script)) as consumer:
            async for message in consumer:
                yield message

    async def close(self) -> None:
        """There is nothing to be closed; JMS has it."""

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Member(BaseMember, Consumer):
    """A member of a group: it gets the group's messages and what happens to the group, in one
    order, the same for all members."""

    _producer: Producer

    async def multicast(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """To all members. Returns when a majority of the servers has it."""
        await self._producer.send(self.destination, body, tag=tag, key=key, properties=properties)

    async def multicast_async(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> SendFuture:
        return await self._producer.send_async(
            self.destination, body, tag=tag, key=key, properties=properties
        )

    async def remove(self, *names: str) -> None:
        """Remove members, as of the view that this member has; who joined later is not meant."""
        await run(self._removing(names))

    async def invite(self, name: str, durable: bool = False) -> None:
        """Make somebody a member that is not there yet. All messages are kept for a durable one;
        another one is suspected until it joins."""
        await run(self._inviting(name, durable))

    async def set_conflict(self, relation: ConflictRelation) -> None:
        """Give the group another conflict relation, from this point of its order on."""
        await run(self._setting_conflict(relation))

    async def leave(self) -> None:
        """Be no member any more, not even an inactive one."""
        await run(self._leaving_group())

    @property
    def initial_state(self) -> Awaitable[IO[bytes] | None]:
        """The state that this member takes over, to be read; None: nobody has one. To be awaited,
        until it is there."""
        return run(self._knowing_state())

    async def __aenter__(self) -> Member:
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
        """Another session on the same connection, with its own mode and listener task."""
        self.check()
        return Context(self.connection, session_mode, owner=False)

    def create_producer(self, name: str | None = None) -> Producer:
        """A named one keeps its sequence beyond the connection, so that a restarted program can go
        on exactly once."""
        self.check()
        return Producer(self, name)

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: Slow | None = None,
        exclusive: bool = False,
    ) -> Opening[Consumer]:
        """For the messages of a topic from now on, or a share of a queue's. `selector`: for those
        that it selects; `no_local`, of a topic: for those of other connections; `prefetch`: how
        many may be here and not acknowledged; `slow`, of a topic: what becomes of a consumer that
        does not keep up ("spill": it reads later, "disconnect", "drop"). `exclusive`, of a queue:
        while it is open, no other consumer gets messages; among several exclusive ones, the one
        that was opened first."""
        script = self.opening(
            Consumer, destination, selector, no_local, prefetch, slow, exclusive=exclusive
        )
        return Opening(run(script))

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: Slow | None = None,
    ) -> Opening[Consumer]:
        """A subscription that lasts until `unsubscribe(name)`, and keeps what comes while nobody
        has it open. It belongs to the client id. For the rest see `create_consumer`."""
        script = self.opening_durable(Consumer, topic, name, selector, no_local, prefetch, slow)
        return Opening(run(script))

    def create_shared_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: Slow | None = None,
    ) -> Opening[Consumer]:
        """One of the consumers among which the messages of this subscription are divided. It lasts
        as long as one of them is open."""
        script = self.opening_shared(Consumer, topic, name, selector, prefetch, slow, durable=False)
        return Opening(run(script))

    def create_shared_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: Slow | None = None,
    ) -> Opening[Consumer]:
        """The same; it lasts until `unsubscribe`."""
        script = self.opening_shared(Consumer, topic, name, selector, prefetch, slow, durable=True)
        return Opening(run(script))

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
    ) -> Opening[Group]:
        """A topic that is a process group. What is left out is as the group has it. `remove_after`:
        seconds after which a suspected member that is not durable is removed; None: never."""
        return Opening(run(self.creating_group(name, conflict, remove_after)))

    async def delete_group(self, name: str | Group, *, force: bool = False) -> None:
        """Remove all members of a group, those that are inactive too, with one view, so that it is
        over and its name is free. With members that are there it raises `IllegalStateError`, unless
        by force."""
        await run(self.deleting_group(name, force))

    def join(
        self,
        group: Topic,
        name: str | None = None,
        durable: bool = False,
        workers: int = 1,
        state_provider: StateProvider | None = None,
    ) -> Opening[Member]:
        """Become a member of a group. Under the name of a member that is inactive or suspected, in
        its place; a durable one goes on where it was."""
        return Opening(run(self.joining(Member, group, name, durable, workers, state_provider)))

    async def create_last_value_topic(self, name: str) -> Topic:
        """A topic that keeps the last message of each `key`: who subscribes later begins with
        these. What was sent before it was first made one is not among them."""
        return await run(self.creating_last_value_topic(name))

    async def create_temporary_topic(self) -> TemporaryTopic:
        return await run(self.creating_temporary(TemporaryTopic))

    async def create_temporary_queue(self) -> TemporaryQueue:
        return await run(self.creating_temporary(TemporaryQueue))

    async def delete_temporary(self, destination: Temporary) -> None:
        await run(self.deleting_temporary(destination))

    async def unsubscribe(self, name: str, group: str | Topic | None = None) -> None:
        """End the durable subscription of this name; with `group`, remove its member."""
        await run(self.unsubscribing(name, group))

    async def acknowledge(self) -> None:
        """All messages that this context has delivered."""
        await run(self.acknowledging())

    async def recover(self) -> None:
        """Have all messages that were delivered and not acknowledged delivered again."""
        await run(self.recovering())

    async def commit(self, token: str | None = None, staged: Iterable[str] = ()) -> bool:
        """End the transaction: what was received is acknowledged, what was sent becomes visible, at
        one place in the order; and with it what was staged under these handles. False: a commit
        with this token has happened before, and what was sent is dropped."""
        return await run(self.committing(token, staged))

    async def rollback(self) -> None:
        """End the transaction: what was received comes again, what was sent is dropped."""
        await run(self.rolling_back())

    async def stage(self) -> str:
        """Hand what was sent since the last commit to the servers, invisible, for anybody to
        commit; returns the handle."""
        return await run(self.staging())

    async def stop(self) -> None:
        """Hold deliveries on the whole connection; returns when running listeners have."""
        await run(self.stopping())

    async def close(self) -> None:
        """Waits for pending sends and running listeners; closing twice is no error."""
        await run(self.closing())

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await run(self.leaving(failed=error is not None))

    # -- The worker -----------------------------------------------------------------------------

    def plain_producer(self) -> Producer:
        return Producer(self, None)

    def caller(self) -> object:
        return asyncio.current_task()

    def inside_listener(self) -> bool:
        return self._worker.is_caller or any(crew.is_caller for crew in self.crews)

    def new_crew(self, workers: int) -> Crew:
        crew = Crew()
        self.crews.append(crew)
        return crew

    def schedule(self, consumer: BaseConsumer) -> None:
        self._worker.submit(partial(_serve, consumer))

    def call_soon(self, what: Callable[[Any], Any], argument: Any) -> None:
        self._worker.submit(partial(_call, what, argument))

    def end_worker(self) -> None:
        self._worker.end()


async def _serve(consumer: BaseConsumer) -> None:
    """Give a consumer's listener its turn."""
    for _ in range(LISTENER_TURN):
        taken = consumer.turn()
        if taken is None:
            if not consumer.must_provide:
                return
            await run(consumer.providing())
            continue
        listener, message = taken
        error: BaseException | None = None
        try:
            result = listener(message)
            if inspect.isawaitable(result):
                await result
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):
                raise  # cancelled
        finally:
            consumer.handled(message, error)
    consumer.stir()


async def _call(what: Callable[[Any], Any], argument: Any) -> None:
    """Call the application's code, which may raise, where nobody would catch that."""
    try:
        result = what(argument)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("%r raised", what)
