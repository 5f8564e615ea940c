"""The asyncio front: the same names as `api/sync.py`, on the program's own event loop.

Calls that talk to a server are awaited. `connect`, and calls that open a consumer or the like,
return an `Opening`, which is awaited or entered with `async with`. A cancelled `receive` takes no
message; after a cancelled `send` the message may or may not have been sent.
"""

from __future__ import annotations

import asyncio
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
from types import EllipsisType, TracebackType
from typing import IO, Any, Generic, Self, TypeVar, Unpack

from antiphon.api import arguments
from antiphon.api.connection import Connection
from antiphon.api.face.consumer import BrowserFace, ConsumerFace
from antiphon.api.face.context import ContextFace
from antiphon.api.face.member import MemberFace
from antiphon.api.face.producer import ProducerFace, SendFutureFace
from antiphon.api.messages.destinations import (
    Destination,
    Group,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from antiphon.api.messages.headers import DEFAULT_HEADERS, SendHeaders
from antiphon.api.messages.message import Message
from antiphon.api.messages.properties import PropertyValue
from antiphon.api.modes import SessionMode, SlowPolicy
from antiphon.api.operations import closing, destinations, opening, transactions
from antiphon.api.operations.acknowledgements import Loop
from antiphon.api.operations.consumer import ConsumerCore
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import MemberCore
from antiphon.api.operations.producer import ProducerCore, split
from antiphon.api.operations.scripts import Deadline, Script
from antiphon.api.options import DEFAULTS, ConnectOptions, parts_of
from antiphon.api.signatures import made_by, spelled_out
from antiphon.api.urls import default_url, route_to
from antiphon.api.waiting.tasks import Tasks, run, wait
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats.columns import Packed
from antiphon.model.conflicts import ConflictRelation

Opened = TypeVar("Opened")


@spelled_out(ConnectOptions, DEFAULTS)
def connect(url: str | None = None, **options: Unpack[ConnectOptions]) -> Opening[Context]:
    """Connect to servers. Await the result, or enter it with `async with`, for a context on the new
    connection, started.

    `url`: `antiphon://HOST:PORT[,HOST:PORT...]` for a server or a cluster; `embedded:`,
    `embedded:NAME` or `embedded:///PATH` for a server in this process, which is private, shared by
    its name, or keeps a journal. Without one: the URL in the environment variable `ANTIPHON_URL`,
    or else the one in `antiphon.toml`.

    Options, all by keyword. `client_id`: the name to which durable subscriptions belong; one live
    connection has it at a time. `session_mode`: when a message that the context receives counts as
    handled (`SessionMode`). `connect_timeout`: seconds until a server must have taken the session.
    `send_timeout`: seconds that `send` waits for an answer, None: no limit. `close_timeout`:
    seconds that `close` waits for the answers to sent messages. `packing`: when a pack of messages
    leaves: "adaptive" by itself, "off" with each message, "fixed=N" when it has N messages, or
    "hill-climbing", which looks for the best N. `allow_pickle`: object messages may contain any
    object; only between programs that trust each other, for the sender of such a message can run
    code in the receiver. `trace`: a folder in which this program records all messages that it sends
    and receives, for an audit. `user`, `password` and `tls` are refused, since servers of this
    version know neither users nor encryption.

    Raise `ConfigurationError` for a URL that makes no sense, `TypeError` or `ValueError` for such
    an option, `SecurityError` for a user or a password, `IllegalStateError` for `tls`,
    `ConnectionLostError` if no server took the session within `connect_timeout`, and
    `InvalidClientIDError` if a live connection has the client id.

    The call itself raises errors in the options, before it is awaited."""
    terms, rest, mode = parts_of(**options)

    async def opening() -> Context:
        loop = asyncio.get_running_loop()
        route = route_to(url or default_url())
        core = ContextCore(Connection(loop, loop.call_soon, route, terms, rest), mode, True, Tasks)
        await run(core.connecting())
        return Context(core)

    return Opening(opening())


class Opening(Generic[Opened]):
    """An object that is being opened: `x = await opening`, or `async with opening as x`, which
    closes it.

    One that is not closed, such as a group, can be entered too, and stays as it is.
    """

    @made_by("`connect` and calls that open something")
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


class SendFuture(SendFutureFace, eq=False, gc=False):
    __doc__ = SendFutureFace.__doc__

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
        """Call `callback` with this future when the answer is there, on the event loop."""
        loop = asyncio.get_running_loop()
        self._batch.watch(lambda: loop.call_soon(callback, self))

    def _check_done(self) -> None:
        if not self._batch.done:
            raise IllegalStateError("the servers have not answered yet: await this future")


class Producer(ProducerFace):
    __doc__ = ProducerFace.__doc__

    @spelled_out(SendHeaders, DEFAULT_HEADERS)
    async def send(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> None:
        await run(self._core.sending(destination, message_or_body, headers))

    @spelled_out(SendHeaders, DEFAULT_HEADERS)
    async def send_async(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> SendFuture:
        core = self._core
        flags, rest = split(headers) if headers else (0, headers)
        message = core.prepare(destination, message_or_body, rest)
        batch = core.put(destination, message_or_body, flags, message)
        if batch is None:
            deadline = Deadline(core.timeout)
            batch = await run(core.putting(destination, message_or_body, flags, message, deadline))
        return SendFuture(batch, core.context)

    @spelled_out(SendHeaders, DEFAULT_HEADERS)
    async def send_all(
        self, destination: Destination, messages: Iterable[Any], **headers: Unpack[SendHeaders]
    ) -> int:
        return await run(self._core.sending_all(destination, messages, headers))

    async def send_packed(self, destination: Destination, messages: Packed) -> None:
        await run(self._core.sending_packed(destination, messages))

    async def close(self) -> None:
        self._core.close()

    def __await__(self) -> Generator[Any, Any, Self]:
        # A named producer is opened by its first use; awaiting it does so, too.
        yield from run(self._core.opening()).__await__()
        return self

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Consumer(ConsumerFace):
    __doc__ = ConsumerFace.__doc__

    # JMS has the timeout here, and returns no message after it instead of raising.
    async def receive(self, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109
        core = self._core
        if timeout is not None:
            arguments.timeout("a timeout", timeout)  # wrong also while messages are there
        message = core.take()
        if message is not None or (timeout == 0 and not core.must_provide):
            return message
        return await run(core.receiving(timeout))

    async def receive_no_wait(self) -> Message | None:
        return await self.receive(0)

    async def close(self) -> None:
        await run(self._core.closing())

    async def __aiter__(self) -> AsyncIterator[Message]:
        core = self._core
        loop = Loop(core.caller())
        try:
            while True:
                message = None if core.finished else core.take(loop)
                if message is None:
                    message = await run(core.looping(loop))
                if message is None:
                    return
                yield message
        finally:
            core.leaves(loop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await run(self._core.leaving(failed=error is not None))


async def _open_consumer(script: Script[ConsumerCore]) -> Consumer:
    return Consumer(await run(script))


class Browser(BrowserFace):
    __doc__ = BrowserFace.__doc__

    @made_by("`create_browser`")
    def __init__(self, context: ContextCore, queue: Queue, selector: str | None) -> None:
        super().__init__(queue, selector)
        self._context = context

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from ()  # there is nothing to wait for; but all created objects may be awaited
        return self

    async def __aiter__(self) -> AsyncIterator[Message]:
        script = opening.browsing(self._context, self.queue, self.selector)
        async with Opening(_open_consumer(script)) as consumer:
            async for message in consumer:
                yield message

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Member(MemberFace, Consumer):
    __doc__ = MemberFace.__doc__

    @made_by("`join`")
    def __init__(self, core: MemberCore) -> None:
        super().__init__(core)
        self._producer = Producer(core.producer)

    @property
    def initial_state(self) -> Awaitable[IO[bytes] | None]:
        return run(self._core.knowing_state())

    async def multicast(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> None:
        await self._producer.send(self.destination, body, tag=tag, key=key, properties=properties)

    async def multicast_async(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> SendFuture:
        return await self._producer.send_async(
            self.destination, body, tag=tag, key=key, properties=properties
        )

    async def remove(self, *names: str) -> None:
        await run(self._core.removing(names))

    async def invite(self, name: str, durable: bool = False) -> None:
        await run(self._core.inviting(name, durable))

    async def set_conflict(self, relation: ConflictRelation) -> None:
        await run(self._core.setting_conflict(relation))

    async def leave(self) -> None:
        await run(self._core.leaving_group())

    async def close(self) -> None:
        await run(self._core.closing())


async def _open_member(script: Script[MemberCore]) -> Member:
    return Member(await run(script))


class Context(ContextFace):
    __doc__ = ContextFace.__doc__

    def create_context(self, session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE) -> Context:
        return Context(self._core.another(session_mode))

    def create_producer(self, name: str | None = None) -> Producer:
        self._core.check()
        return Producer(ProducerCore(self._core, name))

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
        exclusive: bool = False,
    ) -> Opening[Consumer]:
        script = opening.opening(
            self._core, destination, selector, no_local, prefetch, slow, exclusive=exclusive
        )
        return Opening(_open_consumer(script))

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Opening[Consumer]:
        script = opening.opening_durable(
            self._core, topic, name, selector, no_local, prefetch, slow
        )
        return Opening(_open_consumer(script))

    def create_shared_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Opening[Consumer]:
        script = opening.opening_shared(
            self._core, topic, name, selector, prefetch, slow, durable=False
        )
        return Opening(_open_consumer(script))

    def create_shared_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Opening[Consumer]:
        script = opening.opening_shared(
            self._core, topic, name, selector, prefetch, slow, durable=True
        )
        return Opening(_open_consumer(script))

    def create_browser(self, queue: Queue, selector: str | None = None) -> Browser:
        self._core.check()
        opening.check_browsable(queue, selector)
        return Browser(self._core, queue, selector)

    async def unsubscribe(self, name: str, group: str | Topic | None = None) -> None:
        await run(destinations.unsubscribing(self._core, name, group))

    def create_group(
        self,
        name: str,
        *,
        conflict: ConflictRelation | None = None,
        remove_after: float | EllipsisType | None = ...,
    ) -> Opening[Group]:
        return Opening(run(destinations.creating_group(self._core, name, conflict, remove_after)))

    async def delete_group(self, name: str | Group, *, force: bool = False) -> None:
        await run(destinations.deleting_group(self._core, name, force))

    def join(
        self,
        group: Topic,
        name: str | None = None,
        durable: bool = False,
        workers: int = 1,
        state_provider: StateProvider | None = None,
    ) -> Opening[Member]:
        script = opening.joining(self._core, group, name, durable, workers, state_provider)
        return Opening(_open_member(script))

    async def create_last_value_topic(self, name: str) -> Topic:
        return await run(destinations.creating_last_value_topic(self._core, name))

    async def create_temporary_topic(self) -> TemporaryTopic:
        return await run(destinations.creating_temporary(self._core, TemporaryTopic))

    async def create_temporary_queue(self) -> TemporaryQueue:
        return await run(destinations.creating_temporary(self._core, TemporaryQueue))

    async def delete_temporary(self, destination: TemporaryTopic | TemporaryQueue) -> None:
        await run(destinations.deleting_temporary(self._core, destination))

    async def acknowledge(self) -> None:
        await run(transactions.acknowledging(self._core))

    async def recover(self) -> None:
        await run(transactions.recovering(self._core))

    async def commit(self, token: str | None = None, staged: Iterable[str] = ()) -> bool:
        return await run(transactions.committing(self._core, token, staged))

    async def rollback(self) -> None:
        await run(transactions.rolling_back(self._core))

    async def stage(self) -> str:
        return await run(transactions.staging(self._core))

    async def stop(self) -> None:
        await run(closing.stopping(self._core))

    async def close(self) -> None:
        await run(closing.closing(self._core))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await run(closing.leaving(self._core, failed=error is not None))
