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
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

import antiphon
from antiphon.api.operations import arguments
from antiphon.api.operations.scripts import Deadline
from antiphon.blocks.pure.block import (
    Block,
    Effects,
    Heard,
    Multicast,
    Remove,
    Reply,
    Settle,
    Tell,
)
from antiphon.blocks.pure.calls import ALL, FIRST, NONE, Call, Replies, check_replies
from antiphon.blocks.pure.replies import PATIENCE, failed, take_reply
from antiphon.errors import (
    ConnectionLostError,
    FormatError,
    IllegalStateError,
    JMSError,
    MessageFormatError,
    OutcomeUnknownError,
    ResourceAllocationError,
)
from antiphon.model.views import View

logger = logging.getLogger("antiphon.blocks")

TIMEOUT_S = 10.0
LOOK_S = 1.0
"""So often who waits looks whether its connection is still there: nobody tells it."""

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


def wait_for(
    changed: threading.Condition,
    what: Callable[[], object],
    is_over: Callable[[], object],
    deadline: Deadline,
) -> None:
    """Until there is something, or it is over, or the time is. Under the lock."""
    while not what() and not is_over():
        left = deadline.left()
        if left == 0:
            return
        changed.wait(LOOK_S if left is None else min(left, LOOK_S))


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
        begins_anew: bool = False,
    ) -> None:
        """`told` gets what the block has to tell, on the listener thread. `begins_anew`: it is no
        error that all who had the state have gone before they could hand it out."""
        self.block = block
        self._told = told
        self._changed = threading.Condition()  # the block; taken before the other one
        self._arrived = threading.Condition()  # the rest: it can be had while the block is at work
        self._settled: dict[Any, Any] = {}
        self._waiting: set[Any] = set()
        self._joined_at: int | None = None  # the position of its first event, which is its view
        self._over = ""  # why nothing will happen here any more
        self.group = group_of(ctx, group)
        # Who has no state to give must not be waited for by who joins, and skips nothing itself.
        provider = None if block.snapshot() is None else self._provide
        self._session = ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        try:
            self._producer = self._session.create_producer()
            self.member = self._session.join(self.group, name, durable, 1, provider)
            self.block.name = self.member.name
            state = self._initial_state(begins_anew)
            if state is not None:
                take_over(self.block, self.group, state.read())
            self.member.set_message_listener(self._on_event)
        except BaseException:
            self._session.close()
            raise

    def _initial_state(self, begins_anew: bool) -> IO[bytes] | None:
        try:
            return self.member.initial_state
        except ConnectionLostError:
            if begins_anew and not self._session.closed:
                return None
            raise

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def view(self) -> antiphon.View:
        return self.member.view

    @property
    def is_member(self) -> bool:
        """As far as it is known here."""
        return not self._is_over()

    def close(self) -> None:
        """Leave the group."""
        self._session.close()
        self._end("it was closed")

    def look(self, what: Callable[[AnyBlock], Any]) -> Any:
        """What a function finds in the block, while nothing changes it."""
        with self._changed:
            return what(self.block)

    def wait_until(self, what: Callable[[AnyBlock], Any], timeout: float | None = None) -> Any:
        """Wait until a function finds something in the block, and return it; `TimeoutError` if it
        does not in time."""
        with self._changed:
            wait_for(self._changed, lambda: what(self.block), self._is_over, Deadline(timeout))
            if found := what(self.block):
                return found
            self._check()
            raise TimeoutError(f"it has not come about in {timeout:g} s")

    def joined_at(self, timeout: float | None = None) -> int:
        """How many messages the cluster had accepted when this member joined."""
        with self._changed:
            self.wait_until(lambda block: self._joined_at is not None, timeout)
            return self._joined_at or 0

    def submit(self, what: Any, body: Any, timeout: float | None) -> Any:
        """To all members; returns the value with which the block here settles this."""
        deadline = Deadline(timeout)
        with self._arrived:
            self._waiting.add(what)
        try:
            self.multicast(body, timeout)
            with self._arrived:
                wait_for(self._arrived, lambda: what in self._settled, self._is_over, deadline)
                if what in self._settled:
                    return self._settled[what]
                why = self._over or f"not within {timeout:g} s"
                raise OutcomeUnknownError(f"the group has not got to it: {why}")
        finally:
            with self._arrived:
                self._waiting.discard(what)
                self._settled.pop(what, None)

    def multicast(self, body: Any, timeout: float | None = None) -> None:
        """To all members; returns when a majority of the servers has it."""
        self.cast(body).result(timeout)

    def cast(self, body: Any) -> antiphon.SendFuture:
        """To all members, without waiting."""
        self._check()
        return self._producer.send_async(self.group, body)

    def feed(self, what: Callable[[AnyBlock], Effects]) -> None:
        """Tell the block something that did not come through the group."""
        with self._changed:
            if self._over:
                return
            later = self._carry_out(what(self.block))
            self._changed.notify_all()
        self._do_later(later)

    # -- On the listener thread -----------------------------------------------------------------

    def _on_event(self, event: antiphon.Message) -> None:
        with self._changed:
            if self._joined_at is None:
                self._joined_at = event.position
            later = self._carry_out(effects_of(self.block, event, time.monotonic()))
            if isinstance(event, antiphon.ViewMessage) and self.name not in event.view.members:
                self._end("it was removed from the group")
            self._changed.notify_all()
        self._do_later(later)

    def _do_later(self, effects: list[Tell | Remove]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                self._told(effect.what)
            else:
                self.member.remove(*effect.members)

    def _provide(self) -> bytes:
        with self._changed:
            return self.block.snapshot() or b""

    def _carry_out(self, effects: Effects) -> list[Tell | Remove]:
        """Returns what is to be done when nothing is locked any more."""
        later: list[Tell | Remove] = []
        for effect in effects:
            if isinstance(effect, Multicast):
                self._producer.send_async(self.group, effect.body, properties=effect.properties)
            elif isinstance(effect, Reply):
                self._reply(effect)
            elif isinstance(effect, Settle):
                self._settle(effect)
            else:
                later.append(effect)
        return later

    def _settle(self, settle: Settle) -> None:
        with self._arrived:
            if settle.what in self._waiting:
                self._settled[settle.what] = settle.value
                self._arrived.notify_all()

    def _reply(self, reply: Reply) -> None:
        """What cannot be sent is an error of the handler, and its caller's to know; never one of
        the member, which would be given the message again."""
        try:
            try:
                self._send(reply)
            except (MessageFormatError, ResourceAllocationError) as error:
                self._send(failed(reply, error))
        except JMSError as error:
            logger.info("a reply was not sent: %s", error)

    def _send(self, reply: Reply) -> None:
        body = reply.body
        if type(body) in (dict, list):  # with any keys, and its receiver may change it
            body = antiphon.ObjectMessage(body)
        sent = self._producer.send_async(
            reply.to, body, correlation_id=reply.call, properties=reply.properties
        )
        sent.add_done_callback(forget)

    # -- Inside ---------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if not self._over and self._session.closed:
            self._over = "its context is closed, or has lost its connection"
        elif not self._over and self.member.closed:
            self._over = "it was removed, or has stopped after an error"
        return bool(self._over)

    def _end(self, why: str) -> None:
        with self._changed, self._arrived:
            self._over = self._over or why
            self._changed.notify_all()
            self._arrived.notify_all()

    def _check(self) -> None:
        if self._is_over():
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

    @property
    def is_member(self) -> bool:
        """As far as it is known here; not any more if it was closed or removed, or has lost its
        connection for good."""
        return self._host.is_member


def take_over(block: Block, group: antiphon.Topic, state: bytes) -> None:
    """Raises `IllegalStateError` if it is not that of such a block."""
    try:
        block.restore(state)
    except Exception as error:
        why = str(error) or repr(error)
        if isinstance(error, FormatError):
            why = "it is that of something else"
        raise IllegalStateError(
            f"a {block.title} cannot take over the state of group {group.name!r}: {why}. All "
            "members of a group must be of the same kind, made with the same arguments; give "
            "others a group of their own"
        ) from error


def effects_of(block: Block, event: antiphon.Message, now: float) -> Effects:
    """What a block does about what its member got."""
    if isinstance(event, antiphon.ViewMessage):
        for view in views_of(event):
            yield from block.viewed(view, now)
    elif isinstance(event, antiphon.SuspicionMessage):
        yield from block.suspected(event.suspects, event.withdrawn)
    else:
        yield from block.heard(heard_in(event), now)


def views_of(event: antiphon.ViewMessage) -> Iterator[View]:
    """Who was replaced by somebody of the same name has left, and another one has come: blocks are
    told so in two steps, since they know members by their names."""
    replaced = set(event.left).intersection(event.view.members)
    if replaced:
        others = tuple(one for one in event.view.members if one not in replaced)
        yield View(event.view.id, others)
    yield event.view


def heard_in(event: antiphon.Message) -> Heard:
    call = event.correlation_id or ""
    members = event.view.members if event.view is not None else ()
    return Heard(body_of(event), event.reply_to, call, event.properties, members)


def body_of(event: antiphon.Message) -> Any:
    try:
        return event.body
    except MessageFormatError as error:
        return error


def forget(sent: antiphon.SendFuture | antiphon.aio.SendFuture) -> None:
    """Who asked may be gone, and its address with it: that is nobody's error here."""
    if (error := sent.exception()) is not None:
        logger.info("a reply was not sent: %s", error)


def with_patience(properties: Mapping[str, Any] | None, timeout: float | None) -> dict[str, Any]:
    """The properties of a call, which say how long it waits."""
    limit = arguments.timeout("a timeout", timeout)
    return {**(properties or {}), **({} if limit is None else {PATIENCE: limit})}


class GroupClient(Closing):
    """Calls a group, from outside or inside of it."""

    def __init__(self, ctx: antiphon.Context, group: antiphon.Topic | str) -> None:
        self.group = group_of(ctx, group)
        self._ctx = ctx
        self._changed = threading.Condition()
        self._calls: dict[str, Call] = {}
        self._numbers = itertools.count(1)
        self._mark = secrets.token_hex(8)
        self._session = ctx.create_context(antiphon.AUTO_ACKNOWLEDGE)
        try:
            self._producer = self._session.create_producer()
            self._inbox = self._session.create_temporary_queue()
            self._session.create_consumer(self._inbox).set_message_listener(self._on_reply)
        except BaseException:
            self._session.close()
            raise

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
        deadline = Deadline(timeout)
        if replies == NONE:
            self._producer.send_async(self.group, body, properties=properties).result(timeout)
            return {}
        with self._calling(replies) as (number, call):
            self._ask(number, body, timeout, properties).result(timeout)
            return self._outcome(call, deadline)

    def _call_again(self, body: Any, every: float, timeout: float | None) -> Any:
        """The first reply to something that may be asked more than once, and is, while there is
        none. A reply to any of the copies will do: the group may just be slow."""
        deadline = Deadline(timeout)
        with self._calling(FIRST) as (number, call):
            sent = self._ask(number, body, every)
            while not call.done and deadline.left() != 0 and not self._session.closed:
                left = deadline.left()
                with self._changed:
                    self._wait(call, Deadline(every if left is None else min(left, every)))
                if not call.done and sent.done():  # otherwise the connection is still trying
                    sent.result()
                    sent = self._ask(number, body, every)
            (reply, *_) = self._outcome(call, deadline).values()
            return reply

    def cast(self, body: Any, properties: Mapping[str, Any] | None = None) -> None:
        """To all members; nobody replies, and nothing is waited for."""
        self._producer.send_async(self.group, body, properties=properties)

    def close(self) -> None:
        """Calls that wait end with `TooFewRepliesError`."""
        self._session.close()
        with self._changed:
            self._changed.notify_all()
        with suppress(JMSError):  # it goes with the connection in any case
            self._ctx.delete_temporary(self._inbox)

    def _calling(self, replies: Replies) -> _Calling:
        return _Calling(self._calls, f"{self._mark}.{next(self._numbers)}", Call(replies))

    def _ask(
        self,
        number: str,
        body: Any,
        timeout: float | None,
        properties: Mapping[str, Any] | None = None,
    ) -> antiphon.SendFuture:
        return self._producer.send_async(
            self.group,
            body,
            reply_to=self._inbox,
            correlation_id=number,
            properties=with_patience(properties, timeout),
        )

    def _outcome(self, call: Call, deadline: Deadline) -> dict[str, Any]:
        with self._changed:
            self._wait(call, deadline)
            gone = self._session.closed
            return call.outcome("closed here, or the connection is lost" if gone else "")

    def _wait(self, call: Call, deadline: Deadline) -> None:
        wait_for(self._changed, lambda: call.done, lambda: self._session.closed, deadline)

    def _on_reply(self, message: antiphon.Message) -> None:
        with self._changed:
            call = self._calls.get(message.correlation_id or "")
            if call is not None:
                take_reply(call, message.properties, body_of(message))
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
