"""Ports with threads: a member, or an address for replies, in a session of its own.

Each session has its own listener thread on the program's connection, so a handler may call others,
and wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import antiphon
from antiphon.blocks.operations.events import (
    event_of,
    log_failure,
    outgoing,
    reply_body,
    reply_of,
    title_of,
)
from antiphon.blocks.pure.block import Reply
from antiphon.blocks.pure.port import Handle, Provide, Replied
from antiphon.blocks.pure.scripts import Script, run
from antiphon.errors import JMSError


def group_of(ctx: antiphon.Context, group: antiphon.Topic | str) -> antiphon.Topic:
    return ctx.create_group(group) if isinstance(group, str) else group


class MemberPort:
    """A member of a group as a port."""

    _session: antiphon.Context
    _producer: antiphon.Producer
    _member: antiphon.Member

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        name: str | None,
        durable: bool,
    ) -> None:
        self._ctx = ctx
        self.group = title_of(group)
        self._joins = group, name, durable
        self._ended: Callable[[], None] = lambda: None  # until it is opened
        self._over = "it is not open"

    @property
    def name(self) -> str:
        return self._member.name

    @property
    def view(self) -> antiphon.View:
        return self._member.view

    def is_lost(self) -> bool:
        return self._session.closed

    def why_over(self) -> str:
        if not self._over and self._session.closed:
            self._over = "its context is closed, or has lost its connection"
        elif not self._over and self._member.closed:
            self._over = "it was removed, or has stopped after an error"
        return self._over

    def end(self, why: str) -> None:
        self._over = self._over or why
        self._ended()

    def open(self, provide: Provide | None, ended: Callable[[], None]) -> None:
        self._ended = ended
        group, name, durable = self._joins
        self._group = group_of(self._ctx, group)
        self._session = self._ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        try:
            self._producer = self._session.create_producer()
            self._member = self._session.join(self._group, name, durable, 1, provide)
        except BaseException:
            self._session.close()
            raise

    def initial_state(self) -> bytes | None:
        state = self._member.initial_state
        return None if state is None else state.read()

    def deliver(self, handle: Handle) -> None:
        self._over = ""
        self._member.set_message_listener(lambda message: run(handle(event_of(message))))

    def multicast(self, body: Any, timeout: float | None) -> None:
        self.cast(body).result(timeout)

    def cast(self, body: Any, properties: Any = None) -> antiphon.SendFuture:
        return self._producer.send_async(self._group, outgoing(body), properties=properties)

    def reply(self, reply: Reply) -> None:
        sent = self._producer.send_async(
            reply.to, reply_body(reply), correlation_id=reply.call, properties=reply.properties
        )
        sent.add_done_callback(log_failure)

    def remove(self, *members: str) -> None:
        self._member.remove(*members)

    def close(self) -> None:
        if hasattr(self, "_session"):
            self._session.close()
        self.end("it was closed")


class ReplyPort:
    """A temporary queue for replies."""

    _session: antiphon.Context
    _producer: antiphon.Producer
    _inbox: antiphon.TemporaryQueue

    def __init__(self, ctx: antiphon.Context, group: antiphon.Topic | str) -> None:
        self.group = group_of(ctx, group)
        self._ctx = ctx

    def check(self) -> None:
        """Do nothing: sending checks."""

    def why_over(self) -> str:
        return "closed here, or the connection is lost" if self._session.closed else ""

    def open(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._session = self._ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        try:
            self._producer = self._session.create_producer()
            self._inbox = self._session.create_temporary_queue()
        except BaseException:
            self._session.close()
            raise

    def deliver(self, handle: Callable[[Replied], Script[None]]) -> None:
        consumer = self._session.create_consumer(self._inbox)
        consumer.set_message_listener(lambda message: run(handle(reply_of(message))))

    def multicast(self, body: Any, properties: Any, timeout: float | None) -> None:
        self._producer.send_async(self.group, outgoing(body), properties=properties).result(timeout)

    def cast(self, body: Any, properties: Any) -> None:
        self._producer.send_async(self.group, outgoing(body), properties=properties)

    def ask(self, number: str, body: Any, properties: Any) -> antiphon.SendFuture:
        return self._producer.send_async(
            self.group,
            outgoing(body),
            reply_to=self._inbox,
            correlation_id=number,
            properties=properties,
        )

    def acknowledged(self, sent: antiphon.SendFuture, timeout: float | None) -> None:
        sent.result(timeout)

    def close(self) -> None:
        """Wake waiting calls, and delete the queue."""
        if not hasattr(self, "_session"):
            return
        self._session.close()
        self._ended()
        if hasattr(self, "_inbox"):
            with suppress(JMSError):  # its connection deletes it in any case
                self._ctx.delete_temporary(self._inbox)
