"""Calls to a group and their replies, as JGroups has them: `MessageDispatcher`, `RpcDispatcher`.

Promises: a call reaches all members of one view, at the same place in the order of messages and
views; it waits for as many replies as wanted (the first, a number, a majority, all, or none), and
never for a member that has left the group before it replied. An exception of a handler travels to
the caller. Members handle messages one after the other, so all do the same in the same order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import antiphon
from antiphon.blocks.operations.caller import Caller
from antiphon.blocks.operations.front import Front
from antiphon.blocks.operations.host import TIMEOUT_S, Host
from antiphon.blocks.operations.hosted import Hosted
from antiphon.blocks.operations.opened import Opened
from antiphon.blocks.pure.block import Heard, Whole
from antiphon.blocks.pure.calls import ALL, FIRST, Replies, check_replies
from antiphon.blocks.pure.replies import Responder
from antiphon.blocks.pure.rpc import check_public, first_of, invoke
from antiphon.blocks.pure.scripts import Script


class GroupClient(Opened):
    """Calls a group, from outside or inside of it.

    Members with a handler reply (`MessageDispatcher`), to a temporary queue in a session of the
    client's own.
    """

    def __init__(self, ctx: Any, group: antiphon.Topic | str) -> None:
        self._client = Caller(self._front, self._front.caller_port(ctx, group))

    @property
    def group(self) -> antiphon.Topic:
        """The group that is called."""
        group: antiphon.Topic = self._client.group
        return group

    @abstractmethod
    def call(
        self,
        body: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send `body` to all members, and return as many replies as wanted, by member. The reply of
        a member whose handler raised is that exception.

        `replies`: `FIRST`, a number, `MAJORITY`, `ALL`, or `NONE`, which returns an empty dict when
        the servers have the message. The call does not wait for members that leave. `properties`:
        those of the message, for members that read it as JMS.

        Raise `TooFewRepliesError`, with the replies that came, if they are too few after `timeout`
        seconds (None: no limit) or when the connection is lost for good. Raise
        `OutcomeUnknownError` if the servers did not take the message in time, `IllegalStateError`
        if this is closed, `MessageFormatError` if the body cannot be sent, and `ValueError` for a
        number of replies that is none of these."""

    @abstractmethod
    def cast(self, body: Any, properties: Mapping[str, Any] | None = None) -> Any:
        """Send `body` to all members, after earlier messages of this object; no member replies.
        Return at once (asyncio: when the connection's buffer has room). Raise `IllegalStateError`
        if this is closed, and `MessageFormatError` if the body cannot be sent."""

    @abstractmethod
    def close(self) -> Any:
        """Close the client: waiting calls raise `TooFewRepliesError`, and later ones
        `IllegalStateError`. Closing twice is no error."""

    def _opening(self) -> Script[None]:
        yield from self._client.opening()

    def _closing(self) -> Script[None]:
        yield from self._client.closing()


class MessageDispatcher(Hosted, GroupClient):
    """A member of a group that handles messages and can ask all the others, and itself.

    `handler` gets each message's body, one after the other, on a thread of the dispatcher (asyncio:
    in a task; it may be `async def`); its result, or its exception, is the reply. One that calls
    its own group, and waits for it, would wait for itself. `name`, `durable`: of this member, as in
    `Context.join`; opening raises the errors of that call.
    """

    def _prepare(
        self,
        ctx: Any,
        group: antiphon.Topic | str,
        handler: Callable[[Any], Any],
        name: str | None,
        durable: bool,
    ) -> None:
        self._client = Caller(self._front, self._front.caller_port(ctx, group))
        block = Responder(self._front.program(lambda message: handler(message.body)))
        self._host = Host(self._front, self._front.port(ctx, group, name, durable), block)

    def _opening(self) -> Script[None]:
        yield from opening_both(self._client, self._host)

    def _closing(self) -> Script[None]:
        yield from closing_both(self._client, self._host)


class RpcClient(Opened):
    """Calls methods of the objects of a group (`RpcDispatcher`), from outside of it."""

    def __init__(self, ctx: Any, group: antiphon.Topic | str) -> None:
        self._client = Caller(self._front, self._front.caller_port(ctx, group))

    @abstractmethod
    def call(
        self,
        method: str,
        /,
        *args: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        **named: Any,
    ) -> Any:
        """Call a method on every member's object, and return the results by member, exceptions
        among them.

        Arguments and results are what an object message may have. `replies` and `timeout` are those
        of `GroupClient.call`. Raise the errors of that call: `TooFewRepliesError` if too few
        replies came in time, `MessageFormatError` if an argument cannot be sent,
        `IllegalStateError` if this is closed."""

    def proxy(self, replies: Replies = FIRST, timeout: float | None = TIMEOUT_S) -> Any:
        """Return the objects of all members as if they were one here: its methods are theirs
        (asyncio: to be awaited).

        With `replies=FIRST` they return the first result, or raise what was raised there, as a
        local object does; otherwise they return the results by member. They raise the errors of
        `call`. Raise `ValueError` if `replies` is none of those that `call` knows."""
        return Proxy(self._front, self._client, check_replies(replies), timeout)

    @abstractmethod
    def close(self) -> Any:
        """Close the client: waiting calls raise `TooFewRepliesError`, and later ones
        `IllegalStateError`. Closing twice is no error."""

    def _calling(
        self,
        method: str,
        args: Any,
        named: Any,
        replies: Replies,
        timeout: float | None,
        properties: Mapping[str, Any] | None = None,
    ) -> Script[dict[str, Any]]:
        return self._client.calling(invocation(method, args, named), replies, timeout, properties)

    def _opening(self) -> Script[None]:
        yield from self._client.opening()

    def _closing(self) -> Script[None]:
        yield from self._client.closing()


class RpcDispatcher(Hosted, RpcClient):
    """An object of which every member of a group has one: its public methods (asyncio: plain or
    `async def`) can be called on all of them at once.

    Only methods whose names do not begin with an underscore can be called. They run one after the
    other, in the same order at all members. `name`, `durable`: of this member, as in
    `Context.join`; opening raises the errors of that call.
    """

    def _prepare(
        self,
        ctx: Any,
        group: antiphon.Topic | str,
        target: object,
        name: str | None,
        durable: bool,
    ) -> None:
        self._client = Caller(self._front, self._front.caller_port(ctx, group))

        def handle(message: Heard) -> Any:
            return invoke(target, message)

        block = Responder(self._front.program(handle))
        self._host = Host(self._front, self._front.port(ctx, group, name, durable), block)

    def _opening(self) -> Script[None]:
        yield from opening_both(self._client, self._host)

    def _closing(self) -> Script[None]:
        yield from closing_both(self._client, self._host)


class Proxy:
    """Stands for the objects of a group (`RpcClient.proxy`)."""

    def __init__(
        self, front: Front, client: Caller, replies: Replies, timeout: float | None
    ) -> None:
        self._front, self._client = front, client
        self._replies, self._timeout = replies, timeout

    def __getattr__(self, method: str) -> Callable[..., Any]:
        check_public(method)

        def call(*args: Any, **named: Any) -> Any:
            return self._front.run(self._calling(invocation(method, args, named)))

        return call

    def _calling(self, body: Whole) -> Script[Any]:
        replies = yield from self._client.calling(body, self._replies, self._timeout)
        return first_of(replies) if self._replies == FIRST else replies


def invocation(method: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Whole:
    """Return the body of a message that calls a method."""
    return Whole((method, args, dict(named)))


def opening_both(client: Caller, host: Host[Any]) -> Script[None]:
    """Open the client first, since handlers may call with it."""
    yield from client.opening()
    try:
        yield from host.opening()
    except BaseException:
        yield from client.closing()
        raise


def closing_both(client: Caller, host: Host[Any]) -> Script[None]:
    """Close the host first, since the handler that is running may need the client."""
    try:
        yield from host.closing()
    finally:
        yield from client.closing()
