"""Blocks with asyncio: a member that runs a block, and a client that calls a group."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Generic

import antiphon
from antiphon import aio
from antiphon.blocks.aio.lifecycle import Opened, Station, at_most, fail
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.pure.block import Effect, Effects, Multicast, Remove, Reply, Tell
from antiphon.blocks.pure.calls import ALL, NONE, Call, Replies, check_replies
from antiphon.blocks.pure.replies import failed, take_reply
from antiphon.blocks.threads.host import (
    TIMEOUT_S,
    AnyBlock,
    effects_of,
    forget,
    take_over,
    with_patience,
)
from antiphon.errors import (
    ConnectionLostError,
    JMSError,
    MessageFormatError,
    OutcomeUnknownError,
    ResourceAllocationError,
)


async def group_of(ctx: aio.Context, group: antiphon.Topic | str) -> antiphon.Topic:
    return await ctx.create_group(group) if isinstance(group, str) else group


async def _tell_nobody(what: Any) -> None:
    pass


class Host(Station, Generic[AnyBlock]):
    """A member of a group that does what a block says."""

    TITLE = "member"
    member: aio.Member
    group: antiphon.Topic
    _producer: aio.Producer

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        block: AnyBlock,
        *,
        name: str | None = None,
        durable: bool = False,
        told: Callable[[Any], Awaitable[None]] = _tell_nobody,
        begins_anew: bool = False,
    ) -> None:
        """`told` gets what the block has to tell; what comes next waits for it. `begins_anew`: it
        is no error that all who had the state have gone before they could hand it out."""
        super().__init__(ctx)
        self.block = block
        self._joins = group, name, durable
        self._told = told
        self._begins_anew = begins_anew
        self._changed = asyncio.Event()
        self._joined_at: int | None = None  # the position of its first event, which is its view
        self._waiting: dict[Any, asyncio.Future[Any]] = {}

    async def _open(self) -> None:
        group, name, durable = self._joins
        session = self._begin()
        self._producer = session.create_producer()
        self.group = await group_of(self._ctx, group)
        # Who has no state need not wait until another member can hand out none.
        provider = None if self.block.snapshot() is None else self._provide
        self.member = await session.join(self.group, name, durable, 1, provider)
        self.block.name = self.member.name
        state = await self._initial_state()
        if state is not None:
            take_over(self.block, self.group, state.read())
        self._serve(self.member)

    async def _initial_state(self) -> IO[bytes] | None:
        try:
            return await self.member.initial_state
        except ConnectionLostError:
            if self._begins_anew and not self._ctx.closed:
                return None
            raise

    @property
    def name(self) -> str:
        return self._opened_member.name

    @property
    def view(self) -> antiphon.View:
        return self._opened_member.view

    @property
    def _opened_member(self) -> aio.Member:
        if self._work is None:
            self._check()
        return self.member

    async def wait_until(
        self, what: Callable[[AnyBlock], Any], timeout: float | None = None
    ) -> Any:
        """Wait until a function finds something in the block, and return it; `TimeoutError` if it
        does not in time."""
        async with at_most(timeout):
            self._check()  # a member that is none any more knows only how it was
            while not (found := what(self.block)):
                await self._changed.wait()
                self._check()
            return found
        raise TimeoutError(f"it has not come about in {timeout:g} s")

    async def joined_at(self) -> int:
        """How many messages the cluster had accepted when this member joined."""
        await self.wait_until(lambda block: self._joined_at is not None)
        return self._joined_at or 0

    async def settle(self, what: Any, body: Any, timeout: float | None) -> Any:
        """Send this to the group, and return the value with which the block settles `what`."""
        self._check()
        settled = self._waiting[what] = asyncio.get_running_loop().create_future()
        try:
            async with at_most(timeout):
                await self.multicast(body)
                return await settled
            raise _not_settled(f"not within {timeout:g} s")
        finally:
            del self._waiting[what]

    async def multicast(self, body: Any) -> None:
        """To all members; returns when a majority of the servers has it."""
        self._check()
        await self._producer.send(self.group, body)

    async def cast(self, body: Any) -> None:
        """To all members, after what was sent before; waits for nothing but room."""
        self._check()
        await self._producer.send_async(self.group, body)

    # -- In the task that handles everything -----------------------------------------------------

    async def _handle(self, message: antiphon.Message) -> None:
        if self._joined_at is None:
            self._joined_at = message.position
        effects = await self._effects(message)
        await self.feed(lambda block: effects)

    async def feed(self, what: Callable[[AnyBlock], Effects]) -> None:
        """Tell the block something that did not come through the group."""
        effects = list(what(self.block))  # all of it happens before anybody looks
        self._wake()
        for effect in effects:
            await self._carry_out(effect)

    async def _effects(self, event: antiphon.Message) -> Effects:
        return effects_of(self.block, event, time.monotonic())

    def _provide(self) -> bytes:
        return self.block.snapshot() or b""

    async def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Multicast):
            await self._producer.send_async(self.group, effect.body, properties=effect.properties)
        elif isinstance(effect, Reply):
            await self._reply(effect)
        elif isinstance(effect, Tell):
            await self._told(effect.what)
        elif isinstance(effect, Remove):
            await self.member.remove(*effect.members)
        elif (settled := self._waiting.get(effect.what)) is not None and not settled.done():
            settled.set_result(effect.value)

    async def _reply(self, reply: Reply) -> None:
        try:
            await self._send(reply)
        except (MessageFormatError, ResourceAllocationError) as error:
            await self._send(failed(reply, error))

    async def _send(self, reply: Reply) -> None:
        sent = await self._producer.send_async(
            reply.to, reply.body, correlation_id=reply.call, properties=reply.properties
        )
        sent.add_done_callback(forget)

    def _why_ended(self) -> str:
        removed = self.name not in self.view.members
        return "it was removed from the group" if removed else super()._why_ended()

    def _wake(self) -> None:
        """Whoever waits for a change looks again."""
        self._changed.set()
        self._changed.clear()

    def _ended(self, why: str) -> None:
        self._wake()
        for settled in self._waiting.values():
            fail(settled, _not_settled(why))


def _not_settled(why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"the group has not got to it: {why}")


class Hosted(Opened):
    """Something that is a member of a group."""

    _host: Host[Any]

    @property
    def is_member(self) -> bool:
        """As far as it is known here; not any more if it was closed or removed, or has lost its
        connection for good."""
        return self._host.is_open

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def view(self) -> antiphon.View:
        return self._host.view

    async def _open(self) -> None:
        await self._host

    async def close(self) -> None:
        """Leave the group."""
        await self._host.close()


class GroupClient(Station):
    """Calls a group, from outside or inside of it."""

    group: antiphon.Topic
    _producer: aio.Producer
    _inbox: antiphon.TemporaryQueue

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        super().__init__(ctx)
        self._given_group = group
        self._calls: dict[str, tuple[Call, asyncio.Future[None]]] = {}
        self._numbers = itertools.count(1)
        self._mark = secrets.token_hex(8)

    async def _open(self) -> None:
        session = self._begin()
        self.group = await group_of(self._ctx, self._given_group)
        self._producer = session.create_producer()
        self._inbox = await session.create_temporary_queue()
        self._serve(await session.create_consumer(self._inbox))

    async def call(
        self,
        body: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask all members, and return the replies of as many as wanted, by member. What a member
        raised stands there as an exception. `TooFewRepliesError` if they do not come in time."""
        check_replies(replies)
        self._check()
        if replies == NONE:
            await self._producer.send(self.group, body, properties=properties)
            return {}
        number, call = f"{self._mark}.{next(self._numbers)}", Call(replies)
        done = asyncio.get_running_loop().create_future()
        self._calls[number] = call, done
        try:
            async with at_most(timeout):
                await self._producer.send(
                    self.group,
                    body,
                    reply_to=self._inbox,
                    correlation_id=number,
                    properties=with_patience(properties, timeout),
                )
                await done
            return call.outcome()
        finally:
            del self._calls[number]

    async def cast(self, body: Any, properties: Mapping[str, Any] | None = None) -> None:
        """To all members; nobody replies, and nothing is waited for but room."""
        self._check()
        await self._producer.send_async(self.group, body, properties=properties)

    async def _handle(self, message: antiphon.Message) -> None:
        call, done = self._calls.get(message.correlation_id or "", (None, None))
        if call is None or done is None:
            return
        try:
            body = message.body
        except MessageFormatError as error:
            body = error  # as if the member had raised it
        take_reply(call, message.properties, body)
        if call.done and not done.done():
            done.set_result(None)

    def _ended(self, why: str) -> None:
        for call, done in self._calls.values():
            fail(done, TooFewRepliesError(f"no more replies come: {why}", call.replies))

    async def _leave(self, session: aio.Context) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            with suppress(JMSError):  # it is gone with its connection, then
                async with at_most(TIMEOUT_S):
                    await self._inbox.delete()
        await super()._leave(session)
