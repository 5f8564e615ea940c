"""Calls to a group and their replies with asyncio: `MessageDispatcher`, `RpcDispatcher`.

Promises, besides those of the blocking ones: a handler may be `async def`. Messages are handled one
after the other all the same, so all members do the same in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.host import GroupClient, Host, Hosted
from antiphon.blocks.aio.lifecycle import Opened, outcome_of
from antiphon.blocks.pure.block import Effects, Heard
from antiphon.blocks.pure.calls import ALL, FIRST, Replies
from antiphon.blocks.pure.replies import Answer, Responder
from antiphon.blocks.pure.rpc import check_public, first_of, invoke
from antiphon.blocks.threads.dispatchers import invocation
from antiphon.blocks.threads.host import TIMEOUT_S, heard_in
from antiphon.errors import MessageFormatError


class Answering(Host[Responder]):
    """A member that replies to calls with what a handler returns or raises, in the end."""

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        handler: Callable[[Heard], Any],
        name: str | None,
        durable: bool,
    ) -> None:
        super().__init__(ctx, group, Responder(handler), name=name, durable=durable)
        self._handler = handler

    async def _effects(self, event: antiphon.Message) -> Effects:
        if isinstance(event, antiphon.ViewMessage | antiphon.SuspicionMessage):
            return await super()._effects(event)
        message = heard_in(event)
        try:
            if isinstance(message.body, MessageFormatError):
                raise message.body
            answer = Answer(await outcome_of(self._handler, message))
        except Exception as error:
            answer = Answer(None, error)
        return self.block.answered(message, answer, time.monotonic())


class MessageDispatcher(Hosted, GroupClient):
    """A member of a group that handles messages and can ask all the others, and itself.

    `handler` gets each message's body; what it returns is the reply. One that waits for a call to
    its own group would wait for itself.
    """

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        handler: Callable[[Any], Any],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        GroupClient.__init__(self, ctx, group)
        self._host = Answering(
            ctx, group, lambda message: handler(message.body), name=name, durable=durable
        )

    async def _open(self) -> None:
        await GroupClient._open(self)
        await self._host

    async def close(self) -> None:
        """Leave the group."""
        try:
            await self._host.close()  # first: the handler that is running may need the client
        finally:
            await GroupClient.close(self)


class RpcClient(Opened):
    """Calls methods of the objects of a group, from outside of it."""

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        self._client = GroupClient(ctx, group)

    async def _open(self) -> None:
        await self._client

    async def call(
        self,
        method: str,
        /,
        *args: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        **named: Any,
    ) -> dict[str, Any]:
        """Call a method on every member's object; results by member, exceptions among them."""
        return await self._client.call(invocation(method, args, named), replies, timeout)

    def proxy(self, replies: Replies = FIRST, timeout: float | None = TIMEOUT_S) -> Any:
        """The objects of all members as if they were one here; see `Proxy`."""
        return Proxy(self._client, replies, timeout)

    async def close(self) -> None:
        await self._client.close()


class RpcDispatcher(Hosted, RpcClient):
    """An object of which every member of a group has one: its public methods, plain or `async def`,
    can be called on all of them at once."""

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        target: object,
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        RpcClient.__init__(self, ctx, group)
        self._host = Answering(
            ctx, group, lambda message: invoke(target, message), name=name, durable=durable
        )

    async def _open(self) -> None:
        await RpcClient._open(self)
        await self._host

    async def close(self) -> None:
        """Leave the group."""
        try:
            await self._host.close()
        finally:
            await RpcClient.close(self)


class Proxy:
    """Stands for the objects of a group. Its methods are theirs, to be awaited: with
    `replies=FIRST` they return the first result, or raise what was raised there (transparent);
    otherwise they return the results by member."""

    def __init__(self, client: GroupClient, replies: Replies, timeout: float | None) -> None:
        self._client, self._replies, self._timeout = client, replies, timeout

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        check_public(method)

        async def call(*args: Any, **named: Any) -> Any:
            body = invocation(method, args, named)
            replies = await self._client.call(body, self._replies, self._timeout)
            return first_of(replies) if self._replies == FIRST else replies

        return call
