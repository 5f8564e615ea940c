"""A host for blocks of one's own, with asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.front import Awaited
from antiphon.blocks.aio.running import run
from antiphon.blocks.operations.hosted import OwnBlock
from antiphon.blocks.pure.block import Block, Effects


class Host(Awaited, OwnBlock):
    __doc__ = OwnBlock.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        block: Block,
        *,
        name: str | None = None,
        durable: bool = False,
        told: Callable[[Any], object] = lambda _: None,
        begins_anew: bool = False,
    ) -> None:
        super().__init__(ctx, group, block, name, durable, told, begins_anew)

    async def wait_until(self, what: Callable[[Any], Any], timeout: float | None = None) -> Any:
        return await run(self._host.waiting_until(what, timeout))

    async def submit(self, what: Any, body: Any, timeout: float | None) -> Any:
        return await run(self._host.submitting(what, body, timeout))

    async def multicast(self, body: Any, timeout: float | None = None) -> None:
        await run(self._host.multicasting(body, timeout))

    async def cast(self, body: Any) -> None:
        await run(self._host.casting(body))

    async def feed(self, what: Callable[[Any], Effects]) -> None:
        await run(self._host.feeding(what))

    async def close(self) -> None:
        await run(self._closing())
