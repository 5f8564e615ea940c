"""Ports with asyncio: a member, or an address for replies, in a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import antiphon
from antiphon import aio
from antiphon.blocks.aio.lifecycle import Lifecycle
from antiphon.blocks.aio.running import at_most
from antiphon.blocks.operations.events import (
    event_of,
    log_failure,
    outgoing,
    reply_body,
    reply_of,
    title_of,
)
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.block import Reply
from antiphon.blocks.pure.port import Handle, Provide, Replied
from antiphon.blocks.pure.scripts import Script
from antiphon.errors import JMSError, OutcomeUnknownError


async def group_of(ctx: aio.Context, group: antiphon.Topic | str) -> antiphon.Topic:
    return await ctx.create_group(group) if isinstance(group, str) else group


class MemberPort(Lifecycle):
    """A member of a group as a port."""

    TITLE = "member"
    _group: antiphon.Topic
    _producer: aio.Producer
    _member: aio.Member | None = None

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        name: str | None,
        durable: bool,
    ) -> None:
        super().__init__(ctx)
        self.group = title_of(group)
        self._joins = group, name, durable

    @property
    def member(self) -> aio.Member:
        """The member; raises `IllegalStateError` before the port is open."""
        if self._member is None:
            self.check()
        assert self._member is not None
        return self._member

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def view(self) -> antiphon.View:
        return self.member.view

    def is_lost(self) -> bool:
        return self._ctx.closed

    async def open(self, provide: Provide | None, ended: Callable[[], None]) -> None:
        session = self._begin(ended)
        group, name, durable = self._joins
        self._producer = session.create_producer()
        self._group = await group_of(self._ctx, group)
        self._member = await session.join(self._group, name, durable, 1, provide)

    async def initial_state(self) -> bytes | None:
        state = await self.member.initial_state
        return None if state is None else state.read()

    def deliver(self, handle: Handle) -> None:
        self._serve(self.member, lambda message: handle(event_of(message)))

    async def multicast(self, body: Any, timeout: float | None) -> None:
        async with at_most(timeout):
            await self._producer.send(self._group, outgoing(body))
            return
        raise OutcomeUnknownError(f"the group has not got to it: not within {timeout:g} s")

    async def cast(self, body: Any, properties: Any = None) -> None:
        await self._producer.send_async(self._group, outgoing(body), properties=properties)

    async def reply(self, reply: Reply) -> None:
        sent = await self._producer.send_async(
            reply.to, reply_body(reply), correlation_id=reply.call, properties=reply.properties
        )
        sent.add_done_callback(log_failure)

    async def remove(self, *members: str) -> None:
        await self.member.remove(*members)


class ReplyPort(Lifecycle):
    """A temporary queue for replies."""

    TITLE = "client of a group"
    group: antiphon.Topic
    _producer: aio.Producer
    _inbox: antiphon.TemporaryQueue
    _replies: aio.Consumer

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        super().__init__(ctx)
        self._given_group = group

    async def open(self, ended: Callable[[], None]) -> None:
        session = self._begin(ended)
        self.group = await group_of(self._ctx, self._given_group)
        self._producer = session.create_producer()
        self._inbox = await session.create_temporary_queue()
        self._replies = await session.create_consumer(self._inbox)

    def deliver(self, handle: Callable[[Replied], Script[None]]) -> None:
        self._serve(self._replies, lambda message: handle(reply_of(message)))

    async def multicast(self, body: Any, properties: Any, timeout: float | None) -> None:
        async with at_most(timeout):
            await self._producer.send(self.group, outgoing(body), properties=properties)
            return
        raise OutcomeUnknownError(f"no server has taken it within {timeout:g} s")

    async def cast(self, body: Any, properties: Any) -> None:
        await self._producer.send_async(self.group, outgoing(body), properties=properties)

    async def ask(self, number: str, body: Any, properties: Any) -> aio.SendFuture:
        return await self._producer.send_async(
            self.group,
            outgoing(body),
            reply_to=self._inbox,
            correlation_id=number,
            properties=properties,
        )

    async def acknowledged(self, sent: aio.SendFuture, timeout: float | None) -> None:
        async with at_most(timeout):
            await sent
            return
        raise OutcomeUnknownError(f"no server has taken it within {timeout:g} s")

    async def _leave(self, session: aio.Context) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            with suppress(JMSError):  # the queue is gone with its connection then
                async with at_most(TIMEOUT_S):
                    await self._inbox.delete()
        await super()._leave(session)
