"""The fronts behind one blocking face, so that each test of behaviour is written once.

The asyncio front runs on an event loop in a thread of its own; calls are carried over to it and
awaited there. Code that runs inside a listener is on that loop already, and gets what it would get
without us: something to await (see `attempt`).

The classic API is one more front: a connection and one of its sessions look like a context, and
every call is one of theirs.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import antiphon
from antiphon import SessionMode, aio

PATIENCE_S = 20.0
"""How long a test waits for what must come."""

WRAPPED = (aio.Context, aio.Consumer, aio.Producer, aio.Browser, antiphon.Message)


class Sync:
    name = "sync"

    def connect(self, *args: Any, **options: Any) -> Any:
        return antiphon.connect(*args, **options)

    def do(self, call: Callable[[], Any]) -> Any:
        return call()

    def attempt(self, call: Callable[[], Any], errors: list[Exception | None]) -> Any:
        """For listeners: call it, and note what it raised."""
        try:
            call()
        except Exception as error:
            errors.append(error)
        else:
            errors.append(None)

    def close(self) -> None:
        pass


class Aio:
    name = "aio"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="aio-front")
        self._thread.start()
        self._tasks: dict[int, Task] = {}

    def connect(self, *args: Any, **options: Any) -> Any:
        return self.do(lambda: aio.connect(*args, **options))

    def do(self, call: Callable[[], Any]) -> Any:
        """All calls of one thread are made by one task, as in a program."""
        if threading.current_thread() is self._thread:
            return call()
        me = threading.get_ident()
        if me not in self._tasks:
            self._tasks[me] = Task(self.loop)
        return self.wrap(self._tasks[me].do(call))

    def wrap(self, value: Any) -> Any:
        if isinstance(value, aio.SendFuture):
            return WrappedFuture(self, value)
        if isinstance(
            value, aio.Context | aio.Consumer | aio.Producer | aio.Browser | antiphon.Message
        ):
            return Wrapped(self, value)
        return value

    async def attempt(self, call: Callable[[], Any], errors: list[Exception | None]) -> None:
        try:
            await call()
        except Exception as error:
            errors.append(error)
        else:
            errors.append(None)

    def close(self) -> None:
        for task in self._tasks.values():
            task.end()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Task:
    """Makes the calls that it is told to, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()
        self._work = asyncio.run_coroutine_threadsafe(self._run(), loop)

    def do(self, call: Callable[[], Any]) -> Any:
        outcome: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (call, outcome))
        return outcome.result()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        self._work.result()

    async def _run(self) -> None:
        while (job := await self._calls.get()) is not None:
            await self._make(*job)
            del job  # what comes of it belongs to the caller alone

    async def _make(self, call: Callable[[], Any], outcome: Future[Any]) -> None:
        try:
            result = call()
            outcome.set_result(await result if inspect.isawaitable(result) else result)
        except BaseException as error:
            outcome.set_exception(error)


class Wrapped:
    """An object of the asyncio front, whose methods block."""

    def __init__(self, front: Aio, wrapped: Any) -> None:
        vars(self).update(front=front, wrapped=wrapped)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.wrapped, name)
        if not inspect.ismethod(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            return self.front.do(lambda: attribute(*map(_unwrapped, args), **options))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.wrapped, name, value)

    def __iter__(self) -> Iterator[Any]:
        messages = self.wrapped.__aiter__()
        while True:
            try:
                yield self.front.do(messages.__anext__)
            except StopAsyncIteration:
                return

    def __enter__(self) -> Any:
        return self.front.do(self.wrapped.__aenter__)

    def __exit__(self, *error: Any) -> None:
        self.front.do(lambda: self.wrapped.__aexit__(*error))


class WrappedFuture:
    def __init__(self, front: Aio, future: aio.SendFuture) -> None:
        self._front = front
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> None:
        async def wait() -> None:
            await asyncio.wait_for(self._wait(), timeout)
            self._future.result()

        self._front.do(wait)

    async def _wait(self) -> None:
        await self._future

    def exception(self, timeout: float | None = None) -> Exception | None:
        try:
            self.result(timeout)
        except antiphon.JMSError:
            return self._future.exception()
        return None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        async def add() -> None:
            self._future.add_done_callback(callback)

        self._front.do(add)


def _unwrapped(value: Any) -> Any:
    return value.wrapped if isinstance(value, Wrapped) else value


# -- The classic API ------------------------------------------------------------------------------


class Classic(Sync):
    name = "classic"

    def connect(self, url: str, client_id: str | None = None, **options: Any) -> Any:
        mode = options.pop("session_mode", SessionMode.AUTO_ACKNOWLEDGE)
        connection = antiphon.ConnectionFactory(url, **options).create_connection()
        if client_id is not None:
            connection.client_id = client_id
        connection.start()
        return ClassicContext(connection, mode)


class ClassicContext:
    """A session, and its connection if it is the first one there."""

    def __init__(
        self, connection: antiphon.Connection, mode: SessionMode, owner: bool = True
    ) -> None:
        self._classic = connection
        self._session = connection.create_session(mode is SessionMode.SESSION_TRANSACTED, mode)
        self._owner = owner

    def create_context(self, session_mode: SessionMode) -> ClassicContext:
        return ClassicContext(self._classic, session_mode, owner=False)

    def create_producer(self) -> ClassicProducer:
        return ClassicProducer(self._session)

    def create_consumer(
        self, destination: Any, selector: str | None = None, no_local: bool = False
    ) -> antiphon.MessageConsumer:
        if isinstance(destination, antiphon.Queue):
            return self._session.create_receiver(destination, selector)
        return self._session.create_subscriber(destination, selector, no_local)

    def create_durable_consumer(self, *args: Any, **options: Any) -> antiphon.MessageConsumer:
        return self._session.create_durable_subscriber(*args, **options)

    def start(self) -> None:
        self._classic.start()

    def stop(self) -> None:
        self._classic.stop()

    def close(self) -> None:
        if self._owner:
            self._classic.close()
        else:
            self._session.close()

    @property
    def exception_listener(self) -> Any:
        return self._classic.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: Any) -> None:
        self._classic.exception_listener = listener

    @property
    def _core(self) -> Any:
        """Below the API, for tests that cut the connection."""
        return self._session._context._core

    def __getattr__(self, name: str) -> Any:
        """What a session calls as a context does."""
        return getattr(self._session, name)


class ClassicProducer:
    """Sends as programs of JMS 1.1 do: a producer for each destination, and a message that is made
    first."""

    ON_PRODUCER = ("delivery_mode", "priority", "time_to_live", "delivery_delay")

    def __init__(self, session: antiphon.Session) -> None:
        self._session = session

    def send(self, destination: Any, content: Any, **headers: Any) -> None:
        producer = self._session.create_producer(destination)
        message = self._made(content)
        for name, value in headers.pop("properties", {}).items():
            message.set_object_property(name, value)
        for name, value in headers.items():
            setattr(producer if name in self.ON_PRODUCER else message, name, value)
        producer.send(message)

    def send_all(self, destination: Any, contents: Iterable[Any], **headers: Any) -> int:
        count = 0
        for content in contents:
            self.send(destination, content, **headers)
            count += 1
        return count

    def _made(self, content: Any) -> Any:
        session = self._session
        match content:
            case antiphon.Message():
                return content
            case str():
                return session.create_text_message(content)
            case bytes():
                return session.create_bytes_message(content)
            case dict():
                return session.create_map_message(content)
            case list():
                return session.create_stream_message(content)
        return session.create_object_message(content)


every_front = pytest.mark.parametrize(
    "front", [Sync, Aio, Classic], ids=["sync", "aio", "classic"], indirect=True
)
"""For tests that need nothing but what JMS 1.1 has, too."""
