"""Replicated services with asyncio.

async with Replica(ctx, "counter", Counter()) as counter:     # in each of some processes
    print(await counter.call(5))

async with ServiceClient(ctx, "counter") as counter:          # in any other
    print(await counter.call(5))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.front import Awaited
from antiphon.blocks.aio.running import run
from antiphon.blocks.operations import replica
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.invocation import Target
from antiphon.blocks.pure.service_block import AnyService


class Replica(Awaited, replica.Replica[AnyService]):
    __doc__ = replica.Replica.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        service: AnyService,
        *,
        name: str | None = None,
        passive: bool = False,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        self._set_up(ctx, group, service, name, passive, targets)

    async def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return await run(self._calling(command, timeout))

    async def post(self, command: Any) -> None:
        await run(self._posting(command))

    async def wait_until(
        self, what: Callable[[AnyService], Any], timeout: float | None = None
    ) -> Any:
        return await run(self._waiting_until(what, timeout))

    async def close(self) -> None:
        await run(self._closing())


class ServiceClient(Awaited, replica.ServiceClient):
    __doc__ = replica.ServiceClient.__doc__

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        super().__init__(ctx, group)

    async def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return await run(self._calling(command, timeout))

    async def close(self) -> None:
        await run(self._closing())
