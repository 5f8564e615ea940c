"""The asyncio front of channels: `Channel` with the same names, to be awaited, on the program's own
event loop.

    async with antiphon.peers.aio.Channel(stack, name="a") as channel:
        await channel.connect("alarms")
        await channel.send("Fire!")
        async for event in channel: ...
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from typing import IO, Any, Self

from antiphon.api import arguments
from antiphon.api.messages.message import Message
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.waiting.tasks import Worker, run
from antiphon.io.peers.security import Tls
from antiphon.model.peer_views import Level, MemberId
from antiphon.peers.face import ChannelFace
from antiphon.peers.operations import ChannelCore, settings_of
from antiphon.peers.process import logger
from antiphon.peers.stack.stack import Stack

__all__ = ["Channel"]


class Channel(ChannelFace):
    __doc__ = ChannelFace.__doc__

    def __init__(
        self,
        stack: Stack,
        *,
        name: str | None = None,
        listen: str | None = None,
        tls: Tls | None = None,
        plaintext: bool = False,
        allow_pickle: bool = False,
        trace: str | None = None,
        state: StateProvider | None = None,
    ) -> None:
        settings = settings_of(stack, name, listen, tls, plaintext, trace, state)
        arguments.switch("allow_pickle", allow_pickle)
        self._worker = Worker()
        self._core = ChannelCore(settings, self._submit, allow_pickle, state)

    # The timeouts are those of the blocking front, with errors that say more than `TimeoutError`.
    async def connect(self, cluster: str, timeout: float | None = 10.0) -> None:  # noqa: ASYNC109
        loop = asyncio.get_running_loop()
        await run(self._core.connecting(cluster, timeout, loop, loop.call_soon))

    async def send(
        self,
        body: Any,
        to: str | MemberId | Iterable[str | MemberId] | None = None,
        order: Level | str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        if timeout is not None:
            arguments.timeout("a timeout", timeout)  # wrong also while there is room
        rest = self._core.post(body, to, order)
        if rest is not None:
            await run(self._core.sending(*rest, timeout))

    async def receive(self, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109
        if timeout is not None:
            arguments.timeout("a timeout", timeout)  # wrong also while messages are there
        message = self._core.take()
        if message is not None or timeout == 0:
            return message
        return await run(self._core.receiving(timeout))

    async def receive_no_wait(self) -> Message | None:
        return await self.receive(0)

    async def __aiter__(self) -> AsyncIterator[Message]:
        core = self._core
        while not core.closed:
            lent = core.borrow()
            if lent is None:
                message = await run(core.receiving(None))
                if message is None:
                    return
                lent = (message,)
            for message in lent:
                yield message

    async def get_state(self, timeout: float | None = None) -> IO[bytes] | None:  # noqa: ASYNC109
        return await run(self._core.taking_over(timeout))

    async def status(self) -> dict[str, Any]:
        return await run(self._core.asking_status(asyncio.get_running_loop().call_soon))

    async def close(self) -> None:
        await run(self._core.closing())
        self._worker.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _submit(self, turn: Callable[[], Iterable[tuple[Callable[[Any], Any], Message]]]) -> None:
        self._worker.submit(lambda: _serve(turn))


async def _serve(turn: Callable[[], Iterable[tuple[Callable[[Any], Any], Message]]]) -> None:
    """Give the listener its turn."""
    for listener, message in turn():
        try:
            result = listener(message)
            if inspect.isawaitable(result):
                await result
        except Exception:
            logger.exception("%r raised", listener)
