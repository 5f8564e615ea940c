"""Ports over a channel of peers, with threads: blocks without a server.

    channel = peers.Channel(peers.TOTAL_UNIFORM, name="ann", state=lambda: place.state())
    channel.connect("peer:party")
    place = ChannelPlace(channel)
    MessageDispatcher(place, "party", str.upper).call("hello")

A call is a message to all members, and a reply one to the member that called.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from queue import Queue
from typing import TYPE_CHECKING, Any, NamedTuple

import antiphon
from antiphon.blocks.operations.events import body_of, views_of
from antiphon.blocks.pure.block import Heard, Reply, Whole
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
    from antiphon.peers import Channel

logger = logging.getLogger("antiphon.blocks")

TO = "antiphon_to"
"""A property of a call: it is for these members alone, by their names, with blanks between them."""
ORDER = "antiphon_order"
"""A property of a message of a block: the order that it asks for (`Channel.send`)."""

WAITING_MAX = 1000
"""Events that wait for a handler; then the channel waits, too."""

_CALL, _REPLY = "antiphon.call", "antiphon.reply"
"""The types of messages of blocks."""
_COUNT_BITS = 32

Listener = Callable[[antiphon.Message], object]


class ChannelPlace:
    """A process's place in the cluster of a channel, for one block that is a member, and one
    caller. Blocks take it in place of a context.

    Promise: what `Port` and `CallerPort` promise, as far as the stack of the channel does. There is
    one order for all only with the layer Total. With less, a block has each sender's order, or that
    of causes. If the primary view goes on without this process and takes it in again, a block with
    a state is given that of the others (`Replaced`). `others` gets the views, and the messages that
    are of no block, on the channel's listener thread.

    Need: a connected channel from which nothing else receives. For blocks with a state it was made
    with `state=lambda: place.state()`. Limits: a message counts as sent when the stack has it.
    Nobody can be removed. A handler that raises ends its port. What the program has not received
    when a block takes over a state is dropped for `others`, too (`Channel.get_state`).
    """

    def __init__(self, channel: Channel, others: Listener = lambda message: None) -> None:
        self.channel = channel
        self._others = others
        self.turn = threading.RLock()  # held while a message is handled
        self._port: ChannelPort | None = None
        self._caller: ChannelCallerPort | None = None
        self._view: antiphon.View | None = None  # the last one that was received
        self._count = 0  # messages to all members in that view

    # -- For the program -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to receive. A port that delivers does this, too."""
        self.channel.set_message_listener(self._take)

    def state(self) -> bytes:
        """Return the state of the block, for the channel to hand out. Raise `IllegalStateError` if
        there is no block with a state."""
        provide = None if self._port is None else self._port.provide
        if provide is None:
            raise IllegalStateError(f"{self.channel.name} has no block with a state")
        return provide()

    def close(self) -> None:
        """End the ports: nothing is sent or delivered any more. The channel stays open."""
        for port in (self._port, self._caller):
            if port is not None:
                port.close()

    # -- For the front of blocks -----------------------------------------------------------------

    def port(self, group: Any, name: str | None, durable: bool) -> ChannelPort:
        """Return the port of a block, to be opened."""
        if durable or name not in (None, self.channel.name):
            raise ValueError(
                f"a block on a channel has the channel's name, {self.channel.name!r}, and is not "
                "durable"
            )
        return ChannelPort(self, group)

    def caller_port(self, group: Any) -> ChannelCallerPort:
        """Return an address for replies, to be opened."""
        return ChannelCallerPort(self, group)

    # -- For the ports ---------------------------------------------------------------------------

    def send(
        self,
        body: Any,
        properties: Mapping[str, Any] | None,
        timeout: float | None = None,
        **headers: Any,
    ) -> None:
        """Send a message of a block."""
        given = dict(properties or {})
        order = given.pop(ORDER, None)
        to = headers.pop("to", None) or (str(given[TO]).split() if TO in given else None)
        message = _message(body, given)
        for header, value in headers.items():
            setattr(message, header, value)
        if to is not None and order is None and message.type == _CALL:
            order = "agreed"  # a call has its place among all others
        self.channel.send(message, to=to, order=order, timeout=timeout)

    @property
    def has_block(self) -> bool:
        return self._port is not None

    def enter(self, port: ChannelPort) -> None:
        """Take a port in, with the view that it joins in."""
        with self.turn:
            if self._port is not None:
                raise IllegalStateError(f"{self.channel.name} has a block already")
            self._port = port
            if port.provide is not None:
                self.channel.set_message_listener(None)
            if self._view is not None:
                port.put(Installed(self._position, (plain(self._view),)))

    def leave(self, port: ChannelPort | ChannelCallerPort) -> None:
        """Let a port go, once the handler that runs has ended."""
        with self.turn:
            self._port = None if port is self._port else self._port
            self._caller = None if port is self._caller else self._caller

    def enter_caller(self, caller: ChannelCallerPort) -> None:
        """Take an address for replies in."""
        with self.turn:
            if self._caller is not None:
                raise IllegalStateError(f"{self.channel.name} has a caller already")
            self._caller = caller

    def _take(self, message: antiphon.Message) -> None:
        """Hand a message to whom it is for. This is the listener of the channel."""
        with self.turn:
            if isinstance(message, antiphon.ViewMessage):
                self._view, self._count = message.view, 0
                if self._port is not None:
                    views = tuple(map(plain, views_of(message)))
                    self._port.viewed(message, Installed(self._position, views))
                self._others(message)
            elif message.type == _CALL:
                if TO not in message.properties:
                    self._count += 1
                if self._port is not None:
                    self._port.put(Arrived(self._position, heard(message, self._position)))
            elif message.type == _REPLY:
                if self._caller is not None:
                    self._caller.take(message)
            else:
                self._others(message)

    @property
    def _position(self) -> int:
        """Return a number that grows with each message to all members, and is the same at all that
        are in a view from its begin on."""
        view = 0 if self._view is None else int(self._view.id)
        return (view << _COUNT_BITS) + self._count


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
        self._events: Queue[Event | None] = Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._view: antiphon.View | None = None
        self._as_of = 0  # the last view before this port asked for a state

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
        return None if self.provide is None else self._take_over()

    def _take_over(self) -> bytes | None:
        channel = self._place.channel
        self._as_of = channel.view.id
        stream = channel.get_state()
        if stream is None:
            return None
        with stream:
            return stream.read()

    def deliver(self, handle: Handle) -> None:
        self._over, self._handle = "", handle
        if self.provide is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="antiphon-block")
            self._thread.start()
        else:
            with self._place.turn:
                while not self._events.empty():
                    self._handling(self._events.get())
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
        if message.view.id <= self._as_of:
            return False
        return any(former.primary and self.name not in former.members for former in message.merged)

    def put(self, event: Event) -> None:
        """Take an event. Caller holds the lock of the place."""
        if self.provide is None or self._handle is None:
            self._events.put(event)
        else:
            self._handling(event)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            self._handling(event)

    def _handling(self, event: Event | None) -> None:
        if event is None or self._handle is None or self._over:
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
        self._place.send(body, properties, timeout, type=_CALL)

    def reply(self, reply: Reply) -> None:
        self._place.send(
            reply.body, reply.properties, to=reply.to, type=_REPLY, correlation_id=reply.call
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
        self._place.send(body, properties, timeout, type=_CALL)

    def cast(self, body: Any, properties: Any) -> None:
        self._place.send(body, properties, type=_CALL)

    def ask(self, number: str, body: Any, properties: Any) -> Sent:
        self._place.send(body, properties, type=_CALL, correlation_id=number)
        return Sent()

    def acknowledged(self, sent: Sent, timeout: float | None) -> None:
        """Do nothing: the stack has it."""

    def close(self) -> None:
        self._over = self._over or "it was closed"
        self._ended()
        self._place.leave(self)


def plain(view: antiphon.View) -> antiphon.View:
    """Return a view as blocks get it: its number is a plain integer, which can be in a state."""
    return antiphon.View(int(view.id), view.members, view.primary)


def heard(message: antiphon.Message, position: int) -> Heard:
    """Return a message of a channel as a block gets it."""
    call = message.correlation_id
    members = message.view.members if message.view is not None else ()
    if TO in message.properties:
        members = tuple(str(message.properties[TO]).split())
    return Heard(
        body_of(message),
        message.sender if call else None,
        call or "",
        message.properties,
        members,
        position,
    )


def _message(body: Any, properties: Mapping[str, Any]) -> antiphon.Message:
    """Return a message with a body of any kind, which its receivers get as it is."""
    own: Mapping[str, Any] = {}
    if isinstance(body, antiphon.Message):
        own, body = body.properties, body.body
    message = antiphon.ObjectMessage(body.value if type(body) is Whole else body)
    for name, value in {**own, **properties}.items():
        message.properties[name] = value
    return message
