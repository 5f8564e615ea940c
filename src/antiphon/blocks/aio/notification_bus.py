"""Events of several kinds to everybody in a group, with asyncio.

    async with NotificationBus(ctx, "alarms", Fire) as bus:
        await bus.subscribe(Fire, put_out)                  # a function, or `async def`
        await bus.publish(Fire(floor=4))

Promise: all members get the same events in the same order, and a new one begins with the last event
of each kind that was published before it came. A subscriber that raises gets the next one all the
same, and so do the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.host import Host, Hosted
from antiphon.blocks.aio.lifecycle import outcome_of
from antiphon.blocks.pure.notifications import BusBlock, Kinds
from antiphon.blocks.threads.notification_bus import AnyEvent

logger = logging.getLogger("antiphon.blocks")


class Subscriber:
    """Gets one event after the other."""

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call = call
        self._turn = asyncio.Lock()

    async def get(self, event: Any) -> None:
        async with self._turn:
            await outcome_of(self._call, event)


class NotificationBus(Hosted):
    """`kinds` are dataclasses or `msgspec.Struct`s; each is known to all members by its name."""

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        *kinds: type,
        name: str | None = None,
    ) -> None:
        self._kinds = Kinds(kinds)
        self._subscribed: dict[str, list[Subscriber]] = {}
        self._host = Host(ctx, group, BusBlock(), name=name, told=self._on_event)

    async def publish(self, event: Any) -> None:
        """To all members, this one included. Returns when a majority of the servers has it."""
        await self._host.multicast(antiphon.ObjectMessage(self._kinds.body_of(event)))

    async def subscribe(self, kind: type[AnyEvent], call: Callable[[AnyEvent], object]) -> None:
        """Have it called with the last event of this kind, if there was one, and each new one, one
        after the other. Returns when it has had the last one."""
        subscriber = Subscriber(call)
        last = self.last(kind)
        self._subscribed.setdefault(self._kinds.name_of(kind), []).append(subscriber)
        if last is not None:
            await subscriber.get(last)

    def last(self, kind: type[AnyEvent]) -> AnyEvent | None:
        """The last event of this kind that has arrived here."""
        name = self._kinds.name_of(kind)
        fields = self._host.block.last.get(name)
        return None if fields is None else self._kinds.event_of(name, fields)

    async def _on_event(self, told: tuple[int, str, Any]) -> None:
        _, kind, fields = told
        for subscriber in list(self._subscribed.get(kind, ())):  # who comes later has had it
            try:
                await subscriber.get(self._kinds.event_of(kind, fields))
            except Exception:
                logger.exception("a subscriber of %s raised, or could not read it", kind)
