"""What is opened, closed and waited for in the blocks with asyncio.

A `Station` has a session of its own on the connection that it is given, with one consumer. What
that gets is handled in one task, one message after the other: the next waits until a handler that
is `async def` has returned.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Self

import antiphon
from antiphon import aio
from antiphon.api.operations import arguments
from antiphon.errors import IllegalStateError

logger = logging.getLogger("antiphon.blocks")

UNOPENED = "it is not open: await it, or enter it with `async with`"


@asynccontextmanager
async def at_most(seconds: float | None) -> AsyncIterator[None]:
    """A block that is left when the time is over; what follows it says what that means."""
    limit = asyncio.timeout(arguments.timeout("a timeout", seconds))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # it is the block's own


async def outcome_of(function: Callable[[Any], Any], argument: Any) -> Any:
    """What a function of the program returns, at last if it is `async def`. That something it
    waited for was cancelled is an error like others, unless who runs this is."""
    try:
        result = function(argument)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("what it waited for was cancelled") from error


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Whoever waits for it gets the error; if nobody does, nobody needs to know."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class Opened:
    """Something that is opened by being awaited or entered, and closed when it is left."""

    _begun = False

    async def _open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._opened().__await__()

    async def __aenter__(self) -> Self:
        return await self._opened()

    async def _opened(self) -> Self:
        if not self._begun:
            self._begun = True
            try:
                await self._open()
            except BaseException:
                await self.close()  # what is only half there does not stay
                raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Station(Opened):
    """Handles what a consumer gets."""

    TITLE = ""

    def __init__(self, ctx: aio.Context) -> None:
        self._ctx = ctx
        self._over = UNOPENED  # why it cannot be used
        self._session: aio.Context | None = None
        self._consumer: aio.Consumer | None = None
        self._work: asyncio.Task[None] | None = None
        self._busy = False  # it has a message that is not done with
        self._closing: asyncio.Task[None] | None = None

    async def _handle(self, message: antiphon.Message) -> None:
        raise NotImplementedError

    def _ended(self, why: str) -> None:
        """Nothing will come any more: tell who waits."""
        raise NotImplementedError

    def _check(self) -> None:
        if self._over:
            raise IllegalStateError(f"the {self._title} cannot be used: {self._over}")

    def _check_unopened(self) -> None:
        if self._over != UNOPENED:
            self._check()

    @property
    def is_open(self) -> bool:
        return not self._over

    @property
    def _title(self) -> str:
        return self.TITLE or type(self).__name__

    def _begin(self) -> aio.Context:
        self._check_unopened()
        self._session = self._ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        return self._session

    def _serve(self, consumer: aio.Consumer) -> None:
        self._check_unopened()
        self._over = ""
        self._consumer = consumer
        self._work = asyncio.get_running_loop().create_task(self._handle_all(consumer))

    async def _handle_all(self, consumer: aio.Consumer) -> None:
        why = ""
        try:
            async for message in consumer:
                self._busy = True
                await self._handle(message)
                await asyncio.sleep(0)  # so that a handler that never waits lets others run
                if self._closing is not None:
                    await self._close_after_message(consumer)
                self._busy = False
        except Exception as error:
            logger.warning("a %s stops, and leaves its group", self._title, exc_info=error)
            why = f"it has failed: {error!r}"
            self._leave_soon()
        finally:
            self._end(why or self._why_ended())

    def _why_ended(self) -> str:
        return "its context was closed"

    async def _close_after_message(self, consumer: aio.Consumer) -> None:
        async with consumer:  # only leaving it so acknowledges the message, too
            pass

    def _end(self, why: str) -> None:
        if self._over in ("", UNOPENED):
            self._over = why
            self._ended(why)

    async def close(self) -> None:
        """Ends when the handler that is running has returned. In a handler it is only begun, and
        so does not wait; nor does it stop when who waits for it is cancelled."""
        self._end("it was closed")
        self._leave_soon()
        if self._closing is not None and asyncio.current_task() is not self._work:
            await asyncio.shield(self._closing)

    def _leave_soon(self) -> None:
        if self._closing is None and self._session is not None:
            self._closing = asyncio.get_running_loop().create_task(self._leave(self._session))

    async def _leave(self, session: aio.Context) -> None:
        if self._consumer is not None and self._work is not None:
            if not self._busy:
                await self._consumer.close()
            await asyncio.wait([self._work])
        await session.close()
