"""Calls to a group with asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.front import Awaited
from antiphon.blocks.aio.running import run
from antiphon.blocks.operations import dispatchers
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.calls import ALL, Replies


class GroupClient(Awaited, dispatchers.GroupClient):
    __doc__ = dispatchers.GroupClient.__doc__

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        super().__init__(ctx, group)

    async def call(
        self,
        body: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return await run(self._client.calling(body, replies, timeout, properties))

    async def cast(self, body: Any, properties: Mapping[str, Any] | None = None) -> None:
        await run(self._client.casting(body, properties))

    async def close(self) -> None:
        await run(self._closing())


class MessageDispatcher(dispatchers.MessageDispatcher, GroupClient):
    __doc__ = dispatchers.MessageDispatcher.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        handler: Callable[[Any], Any],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        self._prepare(ctx, group, handler, name, durable)

    async def close(self) -> None:
        await run(self._closing())


class RpcClient(Awaited, dispatchers.RpcClient):
    __doc__ = dispatchers.RpcClient.__doc__

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        super().__init__(ctx, group)

    async def call(
        self,
        method: str,
        /,
        *args: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        **named: Any,
    ) -> dict[str, Any]:
        return await run(self._calling(method, args, named, replies, timeout))

    async def close(self) -> None:
        await run(self._closing())


class RpcDispatcher(dispatchers.RpcDispatcher, RpcClient):
    __doc__ = dispatchers.RpcDispatcher.__doc__

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        target: object,
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        self._prepare(ctx, group, target, name, durable)

    async def close(self) -> None:
        await run(self._closing())
