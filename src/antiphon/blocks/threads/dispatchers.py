"""Calls to a group and their replies, as JGroups has them: `MessageDispatcher`, `RpcDispatcher`.

Promises: a call reaches all members of one view, in the same order with everything else; it waits
for as many replies as wanted (the first, a number, a majority, all, or none), and never for a
member that has left the group before it replied. What a handler raises travels to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import antiphon
from antiphon.blocks.pure.calls import ALL, FIRST, Replies, check_replies
from antiphon.blocks.pure.replies import Responder
from antiphon.blocks.pure.rpc import check_public, first_of, invoke
from antiphon.blocks.threads.host import (
    TIMEOUT_S,
    Closing,
    GroupClient,
    Host,
    Hosted,
    closed_on_error,
)


class MessageDispatcher(Hosted, GroupClient):
    """A member of a group that handles messages and can ask all the others, and itself.

    `handler` gets each message's body, on a thread of the dispatcher; what it returns is the reply.
    One that calls its own group would wait for itself.
    """

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        handler: Callable[[Any], Any],
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        super().__init__(ctx, group)
        block = Responder(lambda message: handler(message.body))
        with closed_on_error(self):
            self._host = Host(ctx, self.group, block, name=name, durable=durable)

    def close(self) -> None:
        """Leave the group."""
        super().close()
        if hasattr(self, "_host"):
            self._host.close()


class RpcClient(Closing):
    """Calls methods of the objects of a group, from outside of it."""

    def __init__(self, ctx: antiphon.Context, group: antiphon.Topic | str) -> None:
        self._client = GroupClient(ctx, group)

    def call(
        self,
        method: str,
        /,
        *args: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        **named: Any,
    ) -> dict[str, Any]:
        """Call a method on every member's object; results by member, exceptions among them."""
        return self._client.call(invocation(method, args, named), replies, timeout)

    def proxy(self, replies: Replies = FIRST, timeout: float | None = TIMEOUT_S) -> Any:
        """The objects of all members as if they were one here; see `Proxy`."""
        return Proxy(self._client, check_replies(replies), timeout)

    def close(self) -> None:
        self._client.close()


class RpcDispatcher(Hosted, RpcClient):
    """An object of which every member of a group has one: its public methods can be called on all
    of them at once."""

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        target: object,
        *,
        name: str | None = None,
        durable: bool = False,
    ) -> None:
        super().__init__(ctx, group)
        block = Responder(lambda message: invoke(target, message))
        with closed_on_error(self):
            self._host = Host(ctx, self._client.group, block, name=name, durable=durable)

    def close(self) -> None:
        """Leave the group."""
        super().close()
        if hasattr(self, "_host"):
            self._host.close()


class Proxy:
    """Stands for the objects of a group. Its methods are theirs: with `replies=FIRST` they return
    the first result, or raise what was raised there, as a local object does (transparent);
    otherwise they return the results by member."""

    def __init__(self, client: GroupClient, replies: Replies, timeout: float | None) -> None:
        self._client, self._replies, self._timeout = client, replies, timeout

    def __getattr__(self, method: str) -> Callable[..., Any]:
        check_public(method)

        def call(*args: Any, **named: Any) -> Any:
            body = invocation(method, args, named)
            replies = self._client.call(body, self._replies, self._timeout)
            return first_of(replies) if self._replies == FIRST else replies

        return call


def invocation(method: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> antiphon.Message:
    return antiphon.ObjectMessage((method, args, dict(named)))
