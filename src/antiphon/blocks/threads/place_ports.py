"""The ports of a block and of a caller at a place on a channel (`channel_ports.py`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Queue
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import antiphon
from antiphon.blocks.operations.channel_messages import CALL, REPLY
from antiphon.blocks.operations.events import body_of
from antiphon.blocks.pure.block import Reply
from antiphon.blocks.pure.port import (
    Arrived,
    Event,
    Handle,
    Installed,
    Provide,
    Replaced,
    Replied,
)
from antiphon.blocks.pure.scripts import Script, run
from antiphon.errors import IllegalStateError, JMSError

if TYPE_CHECKING:
    from antiphon.blocks.threads.channel_ports import ChannelPlace

logger = logging.getLogger("antiphon.blocks")

WAITING_MAX = 1000
"""Events that wait for a handler; then the channel waits, too."""


class ChannelPort:
    """The port of a block on a channel.

    A block with a state gets its events on the listener thread of the channel, so that the state
    has all that came before its place. Any other block has a thread of its own: its handlers may
    call the group, and wait.
    """

    def __init__(self, place: ChannelPlace, group: Any) -> None:
        self.group = group if isinstance(group, str) else group.name
        self.provide: Provide | None = None
        self._place = place
        self._ended: Callable[[], None] = lambda: None  # until it is opened
        self._over = "it is not open"
        self._handle: Handle | None = None
        self._missed: list[Event] = []  # before there was a handler
        self._events: Queue[Event | None] = Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._view: antiphon.View | None = None
        self._as_of: int | None = None  # the last view before this port asked for a state

    @property
    def name(self) -> str:
        return self._place.channel.name

    @property
    def view(self) -> antiphon.View:
        return self._view or self._place.channel.view

    def is_lost(self) -> bool:
        return self._place.channel.closed

    def why_over(self) -> str:
        if not self._over and self._place.channel.closed:
            self._over = "its channel is closed, or has lost its cluster"
        return self._over

    def end(self, why: str) -> None:
        self._over = self._over or why
        self._ended()

    def open(self, provide: Provide | None, ended: Callable[[], None]) -> None:
        self.provide, self._ended = provide, ended
        self._place.enter(self)

    def initial_state(self) -> bytes | None:
        if self.provide is None:
            return None
        self._place.start()
        return self._take_over()

    def _take_over(self) -> bytes | None:
        self._as_of = self._place.channel.view.id
        return self._place.take_over(self._taken_over)

    def _taken_over(self, stream: IO[bytes]) -> bytes:
        self._missed = [event for event in self._missed if isinstance(event, Installed)]
        return stream.read()

    def state(self) -> bytes:
        """Return the state of the block, of which all that has arrived is part. Raise
        `IllegalStateError` if the block is still to take over a state, and the messages since."""
        if self.provide is None or any(isinstance(event, Arrived) for event in self._missed):
            raise IllegalStateError("the block has no state yet")
        return self.provide()

    def deliver(self, handle: Handle) -> None:
        with self._place.turn:
            self._over, self._handle = "", handle
            if self.provide is None:
                work = threading.Thread(target=self._work, daemon=True, name="antiphon-block")
                self._thread = work
                work.start()
            missed, self._missed = self._missed, []
            for event in missed:
                self.put(event)
        self._place.start()

    def viewed(self, message: antiphon.ViewMessage, event: Installed) -> None:
        """Take a view. Take over the state of the others first if they went on without this
        process."""
        self._view = message.view
        if self.provide is not None and self._has_missed(message):
            try:
                state = self._take_over()
            except JMSError as error:
                self.end(f"it has missed a view, and cannot take over the state: {error}")
                return
            if state is not None:
                self.put(Replaced(event.position, state))
        self.put(event)

    def _has_missed(self, message: antiphon.ViewMessage) -> bool:
        """Return whether the primary view of before this view did not have this process."""
        if self._as_of is None or message.view.id <= self._as_of:
            return False
        return any(former.primary and self.name not in former.members for former in message.merged)

    def put(self, event: Event) -> None:
        """Take an event. Caller holds the lock of the place."""
        if self._handle is None:
            self._missed.append(event)
        elif self.provide is None:
            self._events.put(event)
        else:
            self._handling(event)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            self._handling(event)

    def _handling(self, event: Event) -> None:
        if self._handle is None or self._over:
            return
        try:
            run(self._handle(event))
        except Exception as error:
            logger.exception("a block in %r raised, and takes no more part", self.group)
            self.end(f"it has stopped after an error: {error!r}")

    def multicast(self, body: Any, timeout: float | None) -> None:
        self._send(body, None, timeout)

    def cast(self, body: Any, properties: Any = None) -> None:
        self._send(body, properties, None)

    def _send(self, body: Any, properties: Any, timeout: float | None) -> None:
        if self._over:
            raise IllegalStateError(f"the block cannot be used: {self._over}")
        self._place.send(body, properties, timeout, type=CALL)

    def reply(self, reply: Reply) -> None:
        self._place.send(
            reply.body, reply.properties, to=reply.to, type=REPLY, correlation_id=reply.call
        )

    def remove(self, *members: str) -> None:
        raise IllegalStateError("members of a channel cannot be removed: they leave, or crash")

    def close(self) -> None:
        self.end("it was closed")
        self._place.leave(self)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._events.put(None)
            self._thread.join()


class Sent(NamedTuple):
    """A message that the stack of a channel has."""

    def done(self) -> bool:
        return True

    def exception(self) -> None:
        return None


class ChannelCallerPort:
    """An address for replies on a channel: the member itself."""

    def __init__(self, place: ChannelPlace, group: Any) -> None:
        self.group = group
        self._place = place
        self._ended: Callable[[], None] = lambda: None
        self._over = "it is not open"
        self._handle: Callable[[Replied], Script[None]] | None = None

    def check(self) -> None:
        if why := self.why_over():
            raise IllegalStateError(f"the group cannot be called: {why}")

    def why_over(self) -> str:
        if not self._over and self._place.channel.closed:
            self._over = "its channel is closed, or has lost its cluster"
        return self._over

    def open(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._place.enter_caller(self)

    def deliver(self, handle: Callable[[Replied], Script[None]]) -> None:
        self._over, self._handle = "", handle
        if not self._place.has_block:
            self._place.start()  # otherwise the block says when

    def take(self, message: antiphon.Message) -> None:
        """Take a reply."""
        if self._handle is not None:
            replied = Replied(message.correlation_id or "", message.properties, body_of(message))
            run(self._handle(replied))

    def multicast(self, body: Any, properties: Any, timeout: float | None) -> None:
        self._place.send(body, properties, timeout, type=CALL)

    def cast(self, body: Any, properties: Any) -> None:
        self._place.send(body, properties, type=CALL)

    def ask(self, number: str, body: Any, properties: Any) -> Sent:
        self._place.send(body, properties, type=CALL, correlation_id=number)
        return Sent()

    def acknowledged(self, sent: Sent, timeout: float | None) -> None:
        """Do nothing: the stack has it."""

    def close(self) -> None:
        self._over = self._over or "it was closed"
        self._ended()
        self._place.leave(self)
