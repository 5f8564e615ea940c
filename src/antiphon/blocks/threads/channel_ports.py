"""Ports over a channel of peers, with threads: blocks without a server.

    channel = peers.Channel(peers.TOTAL_UNIFORM, name="ann", state=lambda: place.state())
    channel.connect("peer:party")
    place = ChannelPlace(channel)
    MessageDispatcher(place, "party", str.upper).call("hello")

A call is a message to all members, and a reply one to the member that called.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeVar

import antiphon
from antiphon.blocks.operations.channel_messages import (
    CALL,
    ORDER,
    REPLY,
    TO,
    WAKE,
    heard,
    message_of,
    plain,
)
from antiphon.blocks.operations.events import views_of
from antiphon.blocks.operations.front import Deadline
from antiphon.blocks.pure.port import Arrived, Installed
from antiphon.blocks.threads.place_ports import ChannelCallerPort, ChannelPort
from antiphon.errors import IllegalStateError, OutcomeUnknownError

if TYPE_CHECKING:
    from antiphon.peers import Channel

ATTEMPT_S = 1.0
"""Seconds that the first attempt to take over a state may take."""
LOOK_S = 1.0
"""Seconds between a waiting caller's looks whether its channel is still open."""

_COUNT_BITS = 32

Listener = Callable[[antiphon.Message], object]
Outcome = TypeVar("Outcome")


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

    def __init__(self, channel: Channel, others: Listener | None = None) -> None:
        self.channel = channel
        self._others = others or (lambda message: None)
        self.turn = threading.RLock()  # held while a message is handled
        self._thread = 0  # that handles one; 0: none
        self._started = False
        self._jobs: deque[Callable[[], None]] = deque()
        self._port: ChannelPort | None = None
        self._caller: ChannelCallerPort | None = None
        self._view: antiphon.View | None = None  # the last one that was received
        self._count = 0  # messages to all members in that view

    # -- For the program -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to receive. A port that delivers does this, too."""
        with self.turn:
            if not self._started:
                self._started = True
                self.channel.set_message_listener(self._take)

    def in_turn(self, job: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of a job that is done between two messages: all earlier ones are
        handled, and no later one is. Raise the errors of the job, and `IllegalStateError` if the
        channel is closed meanwhile."""
        if not self._started or self.is_handling:
            return job()
        done: Future[Outcome] = Future()
        self._jobs.append(lambda: _settle(done, job))
        self.channel.send(message_of(None, {}, type=WAKE), to=self.channel.name)
        while not done.done():
            wait([done], LOOK_S)
            if self.channel.closed and not done.done():
                raise IllegalStateError("the channel was closed meanwhile")
        return done.result()

    def take_over(
        self, use: Callable[[IO[bytes]], Outcome], timeout: float | None = None
    ) -> Outcome | None:
        """Take over the state of the channel's cluster between two messages, and return what `use`
        makes of it; None: nobody has one. Raise the errors of `Channel.get_state`.

        It is attempted for longer and longer. Between two attempts this process hands out its own
        state: of several that begin together each may wait for that of another one."""
        deadline, attempt_s = Deadline(timeout), ATTEMPT_S
        while True:
            left = deadline.left()
            limit = attempt_s if left is None else min(left, attempt_s)
            try:
                return self.in_turn(partial(self._attempt, use, limit))
            except OutcomeUnknownError as error:
                if deadline.left() == 0:
                    why = f"the state was not taken over within {timeout:g} s: {error}"
                    raise OutcomeUnknownError(why, happened="no") from None
            attempt_s *= 2

    def _attempt(self, use: Callable[[IO[bytes]], Outcome], timeout: float) -> Outcome | None:
        stream = self.channel.get_state(timeout)
        if stream is None:
            return None
        with stream:
            return use(stream)

    def state(self) -> bytes:
        """Return the state of the block, for the channel to hand out. Raise `IllegalStateError` if
        there is no block with a state."""
        if self._port is None or self._port.provide is None:
            raise IllegalStateError(f"{self.channel.name} has no block with a state")
        return self._port.state()

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
        to: Any = None,
        **headers: str,
    ) -> None:
        """Send a message of a block, with these headers."""
        given = dict(properties or {})
        order = given.pop(ORDER, None)
        to = to or (str(given[TO]).split() if TO in given else None)
        message = message_of(body, given, **headers)
        if to is not None and order is None and message.type == CALL:
            order = "agreed"  # a call has its place among all others
        self.channel.send(message, to=to, order=order, timeout=timeout)

    @property
    def has_block(self) -> bool:
        """Whether a block is here."""
        return self._port is not None

    @property
    def is_handling(self) -> bool:
        """Whether the caller is the thread that hands messages out."""
        return self._thread == threading.get_ident()

    def enter(self, port: ChannelPort) -> None:
        """Take a port in, with the view that it joins in."""
        with self.turn:
            if self._port is not None:
                raise IllegalStateError(f"{self.channel.name} has a block already")
            self._port = port
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
            self._thread = threading.get_ident()
            try:
                self._hand(message)
                while self._jobs:
                    self._jobs.popleft()()
            finally:
                self._thread = 0

    def _hand(self, message: antiphon.Message) -> None:
        if isinstance(message, antiphon.ViewMessage):
            self._view, self._count = message.view, 0
            if self._port is not None:
                views = tuple(map(plain, views_of(message)))
                self._port.viewed(message, Installed(self._position, views))
            self._others(message)
        elif message.type == CALL:
            if TO not in message.properties:
                self._count += 1
            if self._port is not None:
                self._port.put(Arrived(self._position, heard(message, self._position)))
        elif message.type == REPLY:
            if self._caller is not None:
                self._caller.take(message)
        elif message.type != WAKE:  # which may be dropped: a view does as well
            self._others(message)

    @property
    def _position(self) -> int:
        """Return a number that grows with each message to all members, and is the same at all that
        are in a view from its begin on."""
        view = 0 if self._view is None else int(self._view.id)
        return (view << _COUNT_BITS) + self._count


def _settle(done: Future[Outcome], job: Callable[[], Outcome]) -> None:
    try:
        done.set_result(job())
    except Exception as error:
        done.set_exception(error)
