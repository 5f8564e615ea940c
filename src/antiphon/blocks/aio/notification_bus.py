"""A notification bus with asyncio.

async with NotificationBus(ctx, "alarms", Fire) as bus:
    await bus.subscribe(Fire, put_out)                  # a function, or `async def`
    await bus.publish(Fire(floor=4))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.front import Awaited
from antiphon.blocks.aio.running import run
from antiphon.blocks.operations import notification_bus
from antiphon.blocks.operations.notification_bus import AnyEvent


class NotificationBus(Awaited, notification_bus.NotificationBus):
    __doc__ = notification_bus.NotificationBus.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        *kinds: type,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, kinds, name)

    async def publish(self, event: Any) -> None:
        await run(self._publishing(event))

    async def subscribe(self, kind: type[AnyEvent], call: Callable[[AnyEvent], object]) -> None:
        await run(self._subscribing(kind, call))

    async def close(self) -> None:
        await run(self._closing())
