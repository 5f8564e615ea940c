"""The life of a port of the asyncio front: it begins, serves and ends.

A port has a session of its own on the program's connection, with one consumer. One task handles its
messages, one after the other: the next waits until the script for the last has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import antiphon
from antiphon import aio
from antiphon.blocks.aio.running import run
from antiphon.blocks.pure.scripts import Script
from antiphon.errors import IllegalStateError

logger = logging.getLogger("antiphon.blocks")

UNOPENED = "it is not open: await it, or enter it with `async with`"


class Lifecycle:
    """Serves the messages of a consumer.

    Promise: `ended` is called once, when no more messages will be served. Closing waits until the
    running handler has ended, goes on even if its caller is cancelled, and is only begun if a
    handler calls it.
    """

    TITLE = ""

    def __init__(self, ctx: aio.Context) -> None:
        self._ctx = ctx
        self._ended: Callable[[], None] = lambda: None  # until it is opened
        self._over = UNOPENED  # the reason why it cannot be used
        self._session: aio.Context | None = None
        self._consumer: aio.Consumer | None = None
        self._work: asyncio.Task[None] | None = None
        self._busy = False  # it handles a message
        self._closing: asyncio.Task[None] | None = None

    def check(self) -> None:
        if self._over:
            raise IllegalStateError(f"the {self.TITLE} cannot be used: {self._over}")

    def why_over(self) -> str:
        return self._over

    def end(self, why: str) -> None:
        if self._over in ("", UNOPENED):
            self._over = why
            self._ended()

    def _begin(self, ended: Callable[[], None]) -> aio.Context:
        self._check_unopened()
        self._ended = ended
        self._session = self._ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        return self._session

    def _check_unopened(self) -> None:
        if self._over != UNOPENED:
            self.check()

    def _serve(
        self, consumer: aio.Consumer, handle: Callable[[antiphon.Message], Script[None]]
    ) -> None:
        self._check_unopened()
        self._over = ""
        self._consumer = consumer
        self._work = asyncio.get_running_loop().create_task(self._handle_all(consumer, handle))

    async def _handle_all(
        self, consumer: aio.Consumer, handle: Callable[[antiphon.Message], Script[None]]
    ) -> None:
        why = ""
        try:
            async for message in consumer:
                self._busy = True
                await run(handle(message))
                await asyncio.sleep(0)  # so that a handler that never waits lets others run
                if self._closing is not None:
                    await self._close_after_message(consumer)
                self._busy = False
        except Exception as error:
            logger.warning("a %s stops, and leaves its group", self.TITLE, exc_info=error)
            why = f"it has failed: {error!r}"
            self._leave_soon()
        finally:
            self.end(why or "its context was closed")

    async def _close_after_message(self, consumer: aio.Consumer) -> None:
        async with consumer:  # the end of the block acknowledges the last message
            pass

    async def close(self) -> None:
        self.end("it was closed")
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
