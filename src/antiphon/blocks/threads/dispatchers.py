"""Calls to a group with threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import antiphon
from antiphon.blocks.operations import dispatchers
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.calls import ALL, Replies
from antiphon.blocks.pure.scripts import Script, run
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.front import Blocking


class GroupClient(Blocking, dispatchers.GroupClient):
    __doc__ = dispatchers.GroupClient.__doc__

    def __init__(self, ctx: antiphon.Context | ChannelPlace, group: antiphon.Topic | str) -> None:
        super().__init__(ctx, group)
        run(self._opening())

    def call(
        self,
        body: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return run(self._client.calling(body, replies, timeout, properties))

    def cast(self, body: Any, properties: Mapping[str, Any] | None = None) -> None:
        run(self._client.casting(body, properties))

    def close(self) -> None:
        run(self._closing())


class MessageDispatcher(dispatchers.MessageDispatcher, GroupClient):
    __doc__ = dispatchers.MessageDispatcher.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        handler: Callable[[Any], Any],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        self._prepare(ctx, group, handler, name, durable)
        run(self._opening())

    def close(self) -> None:
        run(self._closing())

    def _closing(self) -> Script[None]:
        """Close the client first: a handler that waits for a call of its own does not go on."""
        yield from self._client.closing()
        yield from self._host.closing()


class RpcClient(Blocking, dispatchers.RpcClient):
    __doc__ = dispatchers.RpcClient.__doc__

    def __init__(self, ctx: antiphon.Context | ChannelPlace, group: antiphon.Topic | str) -> None:
        super().__init__(ctx, group)
        run(self._opening())

    def call(
        self,
        method: str,
        /,
        *args: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        **named: Any,
    ) -> dict[str, Any]:
        return run(self._calling(method, args, named, replies, timeout))

    def close(self) -> None:
        run(self._closing())


class RpcDispatcher(dispatchers.RpcDispatcher, RpcClient):
    __doc__ = dispatchers.RpcDispatcher.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        target: object,
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        self._prepare(ctx, group, target, name, durable)
        run(self._opening())

    def close(self) -> None:
        run(self._closing())

    def _closing(self) -> Script[None]:
        """Close the client first: a method that waits for a call of its own does not go on."""
        yield from self._client.closing()
        yield from self._host.closing()
