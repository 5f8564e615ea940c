"""Blocks with threads: a member that runs a block, and a client that calls a group.

Each has a session of its own on the connection that it is given, and so its own listener thread: a
handler may call others, and wait for them.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

import antiphon
from antiphon.blocks.block import Block, Effects, Heard, Multicast, Reply, Tell
from antiphon.blocks.calls import ALL, NONE, Call, Replies, check_replies
from antiphon.blocks.responding import PATIENCE, take_reply
from antiphon.errors import IllegalStateError, MessageFormatError, OutcomeUnknownError

logger = logging.getLogger("antiphon.blocks")

TIMEOUT_S = 10.0
Self = TypeVar("Self", bound="Closing")
AnyBlock = TypeVar("AnyBlock", bound=Block)


class Closing:
    """Something that is closed at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def closed_on_error(what: Closing) -> Iterator[None]:
    """For constructors: what is only half there does not stay."""
    try:
        yield
    except BaseException:
        what.close()
        raise


def group_of(ctx: antiphon.Context, group: antiphon.Topic | str) -> antiphon.Topic:
    return ctx.create_group(group) if isinstance(group, str) else group


class Host(Closing, Generic[AnyBlock]):
    """A member of a group that does what a block says."""

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        block: AnyBlock,
        *,
        name: str | None = None,
        durable: bool = False,
        told: Callable[[Any], object] = lambda _: None,
    ) -> None:
        """`told` gets what the block has to tell, on the listener thread."""
        self.block = block
        self._told = told
        self._session = ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        self._producer = self._session.create_producer()
        self._changed = threading.Condition()
        self._settled: dict[Any, Any] = {}
        self._waiting: set[Any] = set()
        self._over = ""  # why nothing will happen here any more
        self.group = group_of(ctx, group)
        try:
            self.member = self._session.join(self.group, name, durable, 1, self._provide)
            self.block.name = self.member.name
            state = self.member.initial_state
            if state is not None:
                self.block.restore(state.read())
            self.member.set_message_listener(self._on_event)
        except BaseException:
            self._session.close()
            raise

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def view(self) -> antiphon.View:
        return self.member.view

    def close(self) -> None:
        """Leave the group."""
        self._end("it was closed")
        self._session.close()

    def look(self, what: Callable[[AnyBlock], Any]) -> Any:
        """What a function finds in the block, while nothing changes it."""
        with self._changed:
            return what(self.block)

    def wait_until(self, what: Callable[[AnyBlock], Any], timeout: float | None = None) -> Any:
        """Wait until a function finds something in the block, and return it; `TimeoutError` if it
        does not in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or what(self.block), timeout)
            if found := what(self.block):
                return found
            self._check()
            raise TimeoutError(f"it has not come about in {timeout:g} s")

    def expect(self, what: Any) -> None:
        """Somebody is going to `await_` this."""
        with self._changed:
            self._check()
            self._waiting.add(what)

    def await_(self, what: Any, timeout: float | None) -> Any:
        """The value with which the block settles this."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or what in self._settled, timeout)
            self._waiting.discard(what)
            if what in self._settled:
                return self._settled.pop(what)
            raise OutcomeUnknownError(
                f"the group has not got to it: {self._over or f'not within {timeout:g} s'}"
            )

    def multicast(self, body: Any, properties: Mapping[str, Any] | None = None) -> None:
        """To all members; returns when a majority of the servers has it."""
        self._producer.send(self.group, body, properties=properties)

    def feed(self, what: Callable[[AnyBlock], Effects]) -> None:
        """Tell the block something that did not come through the group."""
        with self._changed:
            if self._over:
                return
            told = self._carry_out(what(self.block))
            self._changed.notify_all()
        for one in told:
            self._told(one)

    # -- On the listener thread -----------------------------------------------------------------

    def _on_event(self, event: antiphon.Message) -> None:
        with self._changed:
            told = self._carry_out(effects_of(self.block, event, time.monotonic()))
            if isinstance(event, antiphon.ViewMessage) and self.name not in event.view.members:
                self._end("it was removed from the group")
            self._changed.notify_all()
        for one in told:
            self._told(one)

    def _provide(self) -> bytes:
        with self._changed:
            return self.block.snapshot() or b""

    def _carry_out(self, effects: Effects) -> list[Any]:
        """Returns what is to be told when nothing is locked any more."""
        told = []
        for effect in effects:
            if isinstance(effect, Multicast):
                self._producer.send_async(self.group, effect.body, properties=effect.properties)
            elif isinstance(effect, Reply):
                sent = self._producer.send_async(
                    effect.to, effect.body, correlation_id=effect.call, properties=effect.properties
                )
                sent.add_done_callback(forget)
            elif isinstance(effect, Tell):
                told.append(effect.what)
            elif effect.what in self._waiting:
                self._settled[effect.what] = effect.value
        return told

    # -- Inside ---------------------------------------------------------------------------------

    def _end(self, why: str) -> None:
        with self._changed:
            self._over = self._over or why
            self._changed.notify_all()

    def _check(self) -> None:
        if self._over:
            raise IllegalStateError(f"{self.name} is no member of the group any more: {self._over}")


class Hosted:
    """Something that is a member of a group."""

    _host: Host[Any]

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def view(self) -> antiphon.View:
        return self._host.view


def effects_of(block: Block, event: antiphon.Message, now: float) -> Effects:
    """What a block does about what its member got."""
    if isinstance(event, antiphon.ViewMessage):
        return block.viewed(event.view, now)
    if isinstance(event, antiphon.SuspicionMessage):
        return block.suspected(event.suspects, event.withdrawn)
    message = heard_in(event)
    return () if message is None else block.heard(message, now)


def heard_in(event: antiphon.Message) -> Heard | None:
    """None: its body cannot be read here. That is its sender's error, and stops nobody."""
    try:
        body = event.body
    except MessageFormatError as error:
        logger.warning("a message to the group is passed over: %s", error)
        return None
    return Heard(body, event.reply_to, event.correlation_id or "", event.properties)


def forget(sent: antiphon.SendFuture | antiphon.aio.SendFuture) -> None:
    """Who asked may be gone, and its address with it: that is nobody's error here."""
    if (error := sent.exception()) is not None:
        logger.info("a reply was not sent: %s", error)


def with_patience(properties: Mapping[str, Any] | None, timeout: float | None) -> dict[str, Any]:
    """The properties of a call, which say how long it waits."""
    return {**(properties or {}), **({} if timeout is None else {PATIENCE: timeout})}


class GroupClient(Closing):
    """Calls a group, from outside or inside of it."""

    def __init__(self, ctx: antiphon.Context, group: antiphon.Topic | str) -> None:
        self.group = group_of(ctx, group)
        self._session = ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        try:
            self._producer = self._session.create_producer()
            self._inbox = self._session.create_temporary_queue()
            self._session.create_consumer(self._inbox).set_message_listener(self._on_reply)
        except BaseException:
            self._session.close()
            raise
        self._changed = threading.Condition()
        self._calls: dict[str, Call] = {}
        self._numbers = itertools.count(1)
        self._mark = secrets.token_hex(8)

    def call(
        self,
        body: Any,
        replies: Replies = ALL,
        timeout: float | None = TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask all members, and return the replies of as many as wanted, by member. What a member
        raised stands there as an exception. `TooFewRepliesError` if they do not come in time."""
        check_replies(replies)
        if replies == NONE:
            self._producer.send(self.group, body, properties=properties)
            return {}
        with self._calling(replies) as (number, call):
            headers = with_patience(properties, timeout)
            deadline = None if timeout is None else time.monotonic() + timeout
            self._producer.send(
                self.group, body, reply_to=self._inbox, correlation_id=number, properties=headers
            )
            with self._changed:
                left = None if deadline is None else deadline - time.monotonic()
                self._changed.wait_for(lambda: call.done, left)
                return call.outcome()

    def cast(self, body: Any, properties: Mapping[str, Any] | None = None) -> None:
        """To all members; nobody replies, and nothing is waited for."""
        self._producer.send_async(self.group, body, properties=properties)

    def close(self) -> None:
        self._session.close()

    def _calling(self, replies: Replies) -> _Calling:
        return _Calling(self._calls, f"{self._mark}.{next(self._numbers)}", Call(replies))

    def _on_reply(self, message: antiphon.Message) -> None:
        with self._changed:
            call = self._calls.get(message.correlation_id or "")
            if call is not None:
                take_reply(call, message.properties, message.body)
                self._changed.notify_all()


class _Calling:
    """A call is known as long as somebody waits for it."""

    def __init__(self, calls: dict[str, Call], number: str, call: Call) -> None:
        self._calls, self._number, self._call = calls, number, call

    def __enter__(self) -> tuple[str, Call]:
        self._calls[self._number] = self._call
        return self._number, self._call

    def __exit__(self, *error: object) -> None:
        del self._calls[self._number]
