"""Replicated services with asyncio: replicas that are members of a group, and clients of them.

    async with Replica(ctx, "counter", Counter()) as counter:     # in each of some processes
        print(await counter.call(5))

    async with ServiceClient(ctx, "counter") as counter:          # in any other
        print(await counter.call(5))

Promise: `call` returns the result of a command that took effect once, after all that was answered
before it began. A service's `apply` may be `async def`: the next command waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic

import antiphon
from antiphon import aio
from antiphon.blocks.aio.host import GroupClient, Host, Hosted
from antiphon.blocks.aio.lifecycle import Opened, at_most, outcome_of
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.pure.block import Effects
from antiphon.blocks.pure.calls import FIRST
from antiphon.blocks.pure.invocation import ActiveCalls, Leaving, PassiveBlock, Target, end_at
from antiphon.blocks.pure.passive import Call, End
from antiphon.blocks.pure.service import Outcome, Request, Requests, attempt, decode_outcome
from antiphon.blocks.pure.service_block import AnyService, ServiceBlock, no_outcome, outcome_in
from antiphon.blocks.threads.host import TIMEOUT_S, heard_in
from antiphon.blocks.threads.replica import AGAIN_S, RESUBMIT_S
from antiphon.errors import JMSError
from antiphon.model.exceptions import describe

logger = logging.getLogger("antiphon.blocks")


class _ServiceHost(Host[ServiceBlock]):
    """Its service's `apply` may be `async def`, or call targets, which happens in a thread."""

    def __init__(self, *args: Any, apply: Callable[[Request], Any], **options: Any) -> None:
        super().__init__(*args, **options)
        self._apply = apply

    async def _effects(self, event: antiphon.Message) -> Effects:
        if isinstance(event, antiphon.ViewMessage | antiphon.SuspicionMessage):
            return await super()._effects(event)
        message = heard_in(event)
        begun = self.block.begin(message)
        if begun is None:
            return ()
        request, outcome = begun
        if outcome is None:
            try:
                done = await self._attempt(request)
            except Leaving:
                return ()  # the others carry it out, and answer
            outcome = self.block.replica.finish(request, done)
        return self.block.finished(message, request, outcome)

    async def _attempt(self, request: Request) -> Outcome:
        try:
            result = await outcome_of(self._apply, request)
        except Exception as error:
            return Outcome(None, describe(error))
        return attempt(lambda _: result, None)


class Replica(Hosted, Generic[AnyService]):
    """One of the replicas of a service: a member of the group of them. `passive` and `targets` are
    as with threads; targets are called in threads, too."""

    _begins_anew = False  # if all who had the state have gone

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
        self._service = service
        self._requests = Requests(secrets.token_hex(8))
        self._targets = dict(targets or {})
        self._closing = threading.Event()
        self._at_work: set[asyncio.Task[None]] = set()
        self._ending: set[str] = set()
        if passive:
            block = PassiveBlock(service, {n: target.kind for n, target in self._targets.items()})
            self._host: Host[Any] = Host(ctx, group, block, name=name, told=self._at_target)
        else:
            given = ctx, group, ServiceBlock(service)
            anew = self._begins_anew
            self._host = _ServiceHost(*given, apply=self._apply, name=name, begins_anew=anew)

    async def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Have a command applied by all replicas, and return its result, or raise its exception."""
        request = self._requests.next(command)
        try:
            what = request.client, request.number
            outcome = await self._host.settle(what, request.encode(), timeout)
            return decode_outcome(outcome).get()
        finally:
            self._requests.done(request.number)

    async def post(self, command: Any) -> None:
        """Have a command applied by all replicas, and wait for nothing but room."""
        request = self._requests.next(command)
        self._requests.done(request.number)
        await self._host.cast(request.encode())

    def look(self, what: Callable[[AnyService], Any]) -> Any:
        """What a function finds in this replica, which may be behind the others. Nothing is sent.
        To see all that was done before, `call`."""
        return what(self._service)

    async def wait_until(
        self, what: Callable[[AnyService], Any], timeout: float | None = None
    ) -> Any:
        """Wait until a function finds something in this replica, and return it."""
        return await self._host.wait_until(lambda block: what(self._service), timeout)

    async def close(self) -> None:
        """Leave the group. What is at targets then is ended by the next primary."""
        self._closing.set()
        await super().close()
        for task in self._at_work:
            task.cancel()

    # -- Targets --------------------------------------------------------------------------------

    def _apply(self, request: Request) -> Any:
        if not self._targets:
            return self._service.apply(request.command)
        calls = ActiveCalls(self._targets, self._pause)
        return asyncio.to_thread(calls.apply, self._service, request)

    async def _at_target(self, effect: Call | End) -> None:
        """What a passive replica has to say to a target, which may take long."""
        if isinstance(effect, End):
            if effect.id in self._ending:
                return
            self._ending.add(effect.id)
        work = self._call(effect) if isinstance(effect, Call) else self._end(effect)
        task = asyncio.get_running_loop().create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _call(self, call: Call) -> None:
        reply: Any = None
        error: Exception | None = None
        try:
            reply = await asyncio.to_thread(self._targets[call.target].call, call.id, call.request)
        except Exception as raised:
            error = raised
        await self._host.feed(lambda block: block.called(call.id, reply, error, time.monotonic()))

    async def _end(self, end: End) -> None:
        while not self._closing.is_set():
            try:
                await asyncio.to_thread(end_at, self._targets[end.target], end)
            except Exception as error:
                logger.warning("%s does not end a call, it is asked again: %s", end.target, error)
                await asyncio.sleep(AGAIN_S)
            else:
                self._ending.discard(end.id)
                await self._host.feed(lambda block: block.ended(end.id, time.monotonic()))
                return

    def _pause(self) -> None:
        """In a thread."""
        if self._closing.wait(AGAIN_S):
            raise Leaving

    async def _undo(self, command: Any) -> None:
        """After all that was sent here, also by who is cancelled now. Who is no member any more
        has nothing to undo."""
        with suppress(JMSError):
            await self.post(command)


class ServiceClient(Opened):
    """Submits commands from outside the group of replicas."""

    def __init__(self, ctx: aio.Context, group: antiphon.Topic | str) -> None:
        self._client = GroupClient(ctx, group)
        self._requests = Requests(secrets.token_hex(8))

    async def _open(self) -> None:
        await self._client

    async def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        request = self._requests.next(command)
        try:
            return decode_outcome(await self._submit(request.encode(), timeout)).get()
        finally:
            self._requests.done(request.number)

    async def _submit(self, data: bytes, timeout: float | None) -> bytes:
        """Again and again, if nobody replies: it counts once."""
        async with at_most(timeout):
            while True:
                with suppress(TooFewRepliesError):
                    (reply, *_) = (await self._client.call(data, FIRST, RESUBMIT_S)).values()
                    return outcome_in(reply)
        raise no_outcome(f"not within {timeout:g} s")

    async def close(self) -> None:
        await self._client.close()
