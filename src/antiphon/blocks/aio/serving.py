"""Replicated services with asyncio: replicas that are members of a group, and clients of them.

    async with Replica(ctx, "counter", Counter()) as counter:     # in each of some processes
        print(await counter.call(5))

    async with ServiceClient(ctx, "counter") as counter:          # in any other
        print(await counter.call(5))

Promise: `call` returns the result of a command that took effect once, after all that was answered
before it began. A service itself is not asynchronous: it only computes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic

import antiphon
from antiphon import aio
from antiphon.blocks.aio.hosting import GroupClient, Host, Hosted
from antiphon.blocks.aio.station import Opened, at_most
from antiphon.blocks.calls import FIRST
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.hosting import TIMEOUT_S
from antiphon.blocks.service import Requests, decode_outcome
from antiphon.blocks.serving import RESUBMIT_S, AnyService, ServiceBlock, no_outcome, outcome_in
from antiphon.errors import JMSError


class Replica(Hosted, Generic[AnyService]):
    """One of the replicas of a service: a member of the group of them."""

    def __init__(
        self,
        ctx: aio.Context,
        group: antiphon.Topic | str,
        service: AnyService,
        *,
        name: str | None = None,
    ) -> None:
        self._service = service
        self._requests = Requests(secrets.token_hex(8))
        self._host = Host(ctx, group, ServiceBlock(service), name=name)

    async def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Have a command applied by all replicas, and return its result, or raise its exception."""
        request = self._requests.next(command)
        try:
            what = request.client, request.number
            outcome = await self._host.settle(what, request.encode(), timeout)
            return decode_outcome(outcome).get()
        finally:
            self._requests.done(request.number)

    def look(self, what: Callable[[AnyService], Any]) -> Any:
        """What a function finds in this replica, which may be behind the others. Nothing is sent.
        To see all that was done before, `call`."""
        return what(self._service)

    async def wait_until(
        self, what: Callable[[AnyService], Any], timeout: float | None = None
    ) -> Any:
        """Wait until a function finds something in this replica, and return it."""
        return await self._host.wait_until(lambda block: what(self._service), timeout)

    async def _undo(self, command: Any) -> None:
        """Have a command applied after all that was sent here, also by who is cancelled now: it
        is not waited for. Who is no member any more has nothing to undo."""
        request = self._requests.next(command)
        self._requests.done(request.number)
        with suppress(JMSError):
            await self._host.cast(request.encode())


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
                    return outcome_in(await self._client.call(data, FIRST, RESUBMIT_S))
        raise no_outcome(timeout)

    async def close(self) -> None:
        await self._client.close()
