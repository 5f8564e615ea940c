"""Calls to a group, and their replies."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from antiphon.blocks.operations.front import Deadline, Front, Pending
from antiphon.blocks.pure.calls import FIRST, NONE, Call, Replies, check_replies
from antiphon.blocks.pure.port import CallerPort, Replied
from antiphon.blocks.pure.replies import PATIENCE, take_reply
from antiphon.blocks.pure.scripts import Script
from antiphon.errors import OutcomeUnknownError
from antiphon.model import durations


class Caller:
    """Calls a group, from outside or inside of it.

    Promise: a call ends with the replies that it wants, or an error, in time; it does not wait for
    members that have left. A call is kept as long as its caller waits for it.
    """

    def __init__(self, front: Front, port: CallerPort) -> None:
        self._front = front
        self._changed = front.watch()  # guards the calls
        self._calls: dict[str, Call] = {}
        self._pending: dict[str, Pending] = {}
        self._numbers = itertools.count(1)
        self._mark = secrets.token_hex(8)
        self._port = port

    @property
    def group(self) -> Any:
        """The group, as the program gave it."""
        return self._port.group

    def opening(self) -> Script[None]:
        """Begin to listen for replies."""
        try:
            yield partial(self._port.open, self._ended)
            self._port.deliver(self._taking)
        except BaseException:
            yield self._port.close
            raise

    def closing(self) -> Script[None]:
        """Stop listening: waiting calls end with `TooFewRepliesError`."""
        yield self._port.close

    def calling(
        self,
        body: Any,
        replies: Replies,
        timeout: float | None,
        properties: Mapping[str, Any] | None = None,
    ) -> Script[dict[str, Any]]:
        """Send a call to all members, and return as many replies as wanted, by member."""
        check_replies(replies)
        deadline = Deadline(timeout)
        self._port.check()
        if replies == NONE:
            yield partial(self._port.multicast, body, properties, timeout)
            return {}
        number, call, pending = self._begin(replies)
        try:
            asked = with_patience(properties, timeout)
            sent = yield partial(self._port.ask, number, body, asked)
            try:
                yield partial(self._port.acknowledged, sent, deadline.left())
            except OutcomeUnknownError:
                if deadline.left() != 0:
                    raise
            yield partial(pending.wait, self._port.why_over, deadline)
            return self._outcome(call)
        finally:
            self._end(number)

    def calling_again(self, body: Any, every: float, timeout: float | None) -> Script[Any]:
        """Return the first reply to a call that may be sent more than once. It is sent again
        after every `every` seconds, until there is a reply to any of the copies: the group may just
        be slow."""
        deadline = Deadline(timeout)
        self._port.check()
        number, call, pending = self._begin(FIRST)
        try:
            asked = with_patience(None, every)
            sent = yield partial(self._port.ask, number, body, asked)
            while not call.done and deadline.left() != 0 and not self._port.why_over():
                left = deadline.left()
                next_look = Deadline(every if left is None else min(left, every))
                yield partial(pending.wait, self._port.why_over, next_look)
                if call.done or self._port.why_over():
                    break
                if sent.done():  # otherwise the connection is still sending it
                    if (error := sent.exception()) is not None:
                        raise error
                    sent = yield partial(self._port.ask, number, body, asked)
            (reply, *_) = self._outcome(call).values()
            return reply
        finally:
            self._end(number)

    def casting(self, body: Any, properties: Mapping[str, Any] | None = None) -> Script[None]:
        """Send to all members, none of which replies; wait only for room."""
        self._port.check()
        yield partial(self._port.cast, body, properties)

    def _taking(self, reply: Replied) -> Script[None]:
        yield from ()
        with self._changed:
            call = self._calls.get(reply.call)
            if call is not None:
                take_reply(call, reply.properties, reply.body)
                if call.done:
                    self._pending[reply.call].set(None)

    def _begin(self, replies: Replies) -> tuple[str, Call, Pending]:
        number, call = f"{self._mark}.{next(self._numbers)}", Call(replies)
        with self._changed:
            pending = self._pending[number] = self._front.pending()
            self._calls[number] = call
        return number, call, pending

    def _end(self, number: str) -> None:
        with self._changed:
            del self._calls[number], self._pending[number]

    def _outcome(self, call: Call) -> dict[str, Any]:
        with self._changed:
            return call.outcome(self._port.why_over())

    def _ended(self) -> None:
        with self._changed:
            for pending in self._pending.values():
                pending.wake()


def with_patience(properties: Mapping[str, Any] | None, timeout: float | None) -> dict[str, Any]:
    """Return the properties of a call, among them how long it waits."""
    limit = durations.timeout("a timeout", timeout)
    return {**(properties or {}), **({} if limit is None else {PATIENCE: limit})}
