"""What programs can do with a channel, written once for both fronts: scripts that yield what they
wait for (`api/operations/scripts.py`)."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from antiphon.api import arguments
from antiphon.api.messages.destinations import Group
from antiphon.api.messages.group_messages import peer_view
from antiphon.api.messages.message import Arrival, Message
from antiphon.api.messages.sending import BODY_MAX, outgoing
from antiphon.api.operations.front import LISTENER_TURN, MessageListener
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import check_name
from antiphon.api.operations.scripts import Deadline, Pause, Script
from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import (
    ConfigurationError,
    IllegalStateError,
    JMSError,
    OutcomeUnknownError,
)
from antiphon.formats.columns import BYTES, Outgoing
from antiphon.formats.peer_wire import PROCESS_NAME_MAX
from antiphon.model.peer_views import Level, ViewId
from antiphon.peers.channel.conversation import Address, Conversation
from antiphon.peers.channel.states import StateWanted
from antiphon.peers.channel.views import Occurrence, View
from antiphon.peers.discovery.urls import cluster_of
from antiphon.peers.layers.layer import To
from antiphon.peers.layers.state import Outcome
from antiphon.peers.layers.views.notes import NOTE_MAX
from antiphon.peers.pack import Pack
from antiphon.peers.process import Process, Settings, logger
from antiphon.peers.state_files import StateFile, source_of
from antiphon.peers.whiteboard.whiteboard import VALUE_MAX, VALUE_MIN

AGREED = Level.AGREED


class ChannelCore:
    """One channel, but for waiting."""

    def __init__(
        self,
        settings: Settings,
        schedule: Callable[[Callable[[], Any]], None],
        allow_pickle: bool,
        provider: StateProvider | None,
    ) -> None:
        """`schedule` has a job run where the front's listeners run; `provider` returns the state of
        the program."""
        self.settings = settings
        self.process: Process | None = None
        self.closed = False
        self.forked = False
        self._schedule_job = schedule
        self._allow_pickle = allow_pickle
        self._provider = provider
        self._provides = False  # the provider is called just now
        self._destination = Group("?")
        self._taking = threading.RLock()
        self._pack: Pack | None = None  # that is being handed out
        self._received = 0  # messages, ever
        self._listener: MessageListener | None = None
        self._scheduled = False
        _cores.add(self)

    # -- Joining and leaving ---------------------------------------------------------------------

    def connecting(
        self,
        url: str,
        timeout: float | None,
        loop: Any,
        call: Callable[[Callable[[], object]], object],
    ) -> Script[None]:
        """Join a cluster, and wait for the first view in it."""
        if self.process is not None or self.closed:
            raise IllegalStateError("a channel is connected once: make another one")
        cluster = cluster_of(arguments.text("a cluster", url))
        deadline = Deadline(timeout)
        self._destination = Group(cluster.name)
        process = self.process = Process(loop, call, self.settings, cluster)
        call(process.start)
        try:
            if (yield Pause(process.started, deadline.left())):
                process.started.outcome()
            if (yield Pause(process.conversation.joined, deadline.left())):
                process.conversation.joined.outcome()
                return
            raise self._not_joined(process, timeout)
        except BaseException:
            self.closed = True
            process.driver.do(Conversation.leave)
            raise

    def _not_joined(self, process: Process, timeout: float | None) -> JMSError:
        if process.refusals:
            return process.why_refused()
        conversation = process.conversation
        wanted = f" of {conversation.members_min} members" if conversation.members_min > 1 else ""
        return OutcomeUnknownError(
            f"{self.settings.name!r} was in no view{wanted} of {conversation.cluster!r} within "
            f"{timeout:g} s: {process.whom_it_found()}",
            happened="no",
        )

    def closing(self) -> Script[None]:
        """Leave, and wait until nothing is left."""
        process = self.process
        if self.forked:
            raise self._why_not()
        if self.closed or process is None:
            self.closed = True
            return
        self.closed = True
        self._call_in()
        process.driver.do(Conversation.leave)
        yield Pause(process.released)

    def _why_not(self) -> JMSError:
        if self.forked:
            return IllegalStateError("this is a fork: make a channel of its own in it")
        if self.process is None:
            return IllegalStateError("the channel is not connected: call connect() first")
        return self.process.conversation.why_not()

    @property
    def usable(self) -> Process:
        """The process, if the channel is open. Raises why it is not."""
        process = self.process
        if process is None or self.closed or self.forked or process.conversation.over:
            raise self._why_not()
        return process

    @property
    def view(self) -> View:
        """The newest view."""
        if self.process is None:
            raise self._why_not()
        return self.process.conversation.view

    def asking_status(
        self, call: Callable[[Callable[[], object]], object]
    ) -> Script[dict[str, Any]]:
        """Have the process say how it is doing."""
        process = self.usable
        answered, status = Ticket(), {}

        def ask() -> None:
            status.update(process.status())
            answered.settle()
            answered.tell()

        call(ask)
        yield Pause(answered)
        return status

    # -- The whiteboard --------------------------------------------------------------------------

    def put_value(self, value: int) -> None:
        """Write a number of this process on the whiteboard."""
        if type(value) is not int:
            raise TypeError(f"a value on the whiteboard is an int, not {value!r}")
        if not VALUE_MIN <= value <= VALUE_MAX:
            raise ValueError(f"a value on the whiteboard has at most 64 bits: {value} has more")
        self._with_whiteboard.driver.do(lambda c: c.board.put(value))

    def get_value(self, member: Address) -> int | None:
        """Return the newest number of a member that has arrived."""
        return self._with_whiteboard.conversation.number_of(member)

    @property
    def _with_whiteboard(self) -> Process:
        """The process, if the channel is open and has a whiteboard. Raises why it is not."""
        process = self.usable
        if "whiteboard" not in self.settings.stack.gives:
            raise IllegalStateError("the stack of this channel has no layer for a whiteboard")
        return process

    # -- Sending ---------------------------------------------------------------------------------

    def post(
        self, content: Any, to: Address | Iterable[Address] | None, order: Level | str | None
    ) -> tuple[Outgoing, To, Level] | None:
        """Send if there is room at once; otherwise return what is to be sent."""
        # This is done for every message: as little as possible.
        process = self.process
        if process is None or self.closed or self.forked:
            raise self._why_not()
        conversation = process.conversation
        now_ms = time.time_ns() // 1_000_000
        kind, body, extra = BYTES, content, b""  # what `outgoing` returns for bytes
        if type(content) is not bytes or len(content) > BODY_MAX:
            kind, body, extra, _ = outgoing(content, now_ms=now_ms, allow_pickle=self._allow_pickle)
        level = AGREED if to is None and order is None else self._level(to, order)
        meant = None if to is None else conversation.addressed(to)
        process.lock.acquire()  # in half the time of a `with`
        try:
            has_room = conversation.try_put(kind, body, extra, now_ms, meant, level)
        finally:
            process.lock.release()
        driver = process.driver
        if not driver.woken:
            driver.wake()
        return None if has_room else (Outgoing(kind, body, extra, now_ms), meant, level)

    def sending(
        self, message: Outgoing, to: To, level: Level, timeout: float | None
    ) -> Script[None]:
        """Wait for room, and send."""
        deadline = Deadline(timeout)
        while True:
            process = self.usable
            conversation = process.conversation
            with process.lock:
                if conversation.put(*message, to, level):
                    break
                room = conversation.room()
            if not (yield Pause(room, deadline.left())):
                raise OutcomeUnknownError(
                    f"no room for a message to {conversation.cluster!r} within {timeout:g} s: "
                    f"{process.driver.hindrance or 'the stack does not keep up'}. It was not sent",
                    happened="no",
                )
        process.driver.wake()

    def _level(self, to: object, order: Level | str | None) -> Level:
        if order is None:
            return Level.AGREED if to is None else Level.FIFO
        if isinstance(order, Level):
            return order
        names = ", ".join(level.name.lower() for level in Level)
        if not isinstance(order, str):
            raise TypeError(f"order is a Level, or its name, not {order!r}: {names}")
        try:
            return Level[order.upper()]
        except KeyError:
            raise ValueError(f"{order!r} is not an order: {names}") from None

    def set_note(self, note: str) -> None:
        """Have views say this of this process."""
        process = self.usable
        if "notes" not in self.settings.stack.gives:
            raise IllegalStateError("the stack of this channel has no layer for notes")
        if len(arguments.text("a note", note).encode()) > NOTE_MAX:
            raise ValueError(f"a note has at most {NOTE_MAX} bytes, not {len(note.encode())}")

        def put(conversation: Conversation) -> None:
            conversation.note = note

        process.driver.do(put)

    # -- Receiving -------------------------------------------------------------------------------

    def take(self) -> Message | None:
        """Return what comes next, if it is here."""
        return self._take(self._receiving_process)

    def borrow(self) -> Iterable[Message] | None:
        """Return all that is here of a pack, or the event that comes next, for a loop, which gets
        no more of it once anybody asks for what comes next; None: nothing is here."""
        process = self._receiving_process
        with self._taking:
            self._check_provides()
            if self._pack is not None and (lent := self._pack.lend()) is not None:
                return lent
            self._pack = lent = None
            item = self._next_item(process)
            if isinstance(item, PeerColumns):
                lent = self._begin(item).lend()
            elif item is not None:
                lent = iter((peer_view(*item[:-1], self._destination),))
        self._look_after(process, item)
        return lent

    @property
    def _receiving_process(self) -> Process:
        """The process, if its messages go to whoever calls `receive` or loops. Raises why they do
        not."""
        process = self.process
        if process is None or self.closed or self.forked or self._listener is not None:
            raise self._why_not_receive()
        return process

    def _take(self, process: Process) -> Message | None:
        with self._taking:
            self._check_provides()
            if self._pack is not None and (message := self._pack.next()) is not None:
                return message
            self._pack = message = None
            item = self._next_item(process)
            if isinstance(item, PeerColumns):
                message = self._begin(item).next()
            elif item is not None:
                message = peer_view(*item[:-1], self._destination)
        self._look_after(process, item)
        return message

    def _check_provides(self) -> None:
        if self._provides:
            raise IllegalStateError("the function that returns the state may not receive")

    def _next_item(self, process: Process) -> PeerColumns | Occurrence | None:
        """Return the next pack or view, with what was received before it all handed out. Caller
        holds the lock."""
        while isinstance(item := process.conversation.take(), StateWanted):
            self._hand_out(process, item.place)
        return item

    def _begin(self, columns: PeerColumns) -> Pack:
        """Begin to hand out a pack. Caller holds the lock."""
        arrival = Arrival(columns, self._received + 1, 1, None, self._allow_pickle)
        self._received += columns.count
        self._pack = Pack(arrival, columns.count)
        return self._pack

    def _look_after(self, process: Process, taken: PeerColumns | Occurrence | None) -> None:
        """Have the others told that there is room again. Raise why nothing comes any more."""
        inbox = process.conversation.inbox
        if inbox.was_behind and not inbox.is_behind:
            process.driver.wake()
        if taken is None and process.conversation.over:
            raise self._why_not()

    def _call_in(self) -> None:
        """Have a loop look at what has changed before it takes another message."""
        with self._taking:
            if self._pack is not None:
                self._pack.call_in()

    def receiving(self, timeout: float | None) -> Script[Message | None]:
        """Wait for what comes next. Return None if nothing came in time, or the channel was
        closed."""
        deadline = Deadline(timeout)
        process = self.usable if self._listener is None else None
        if process is None:
            raise self._why_not_receive()
        conversation = process.conversation
        while True:
            bell = Ticket()
            conversation.hang_up(bell)
            try:
                # Looked at after the bell was hung up: what comes from now on rings it.
                if self.closed:
                    return None
                message = self.take()
                if message is not None:
                    return message
                if not (yield Pause(bell, deadline.left())):
                    return None
            finally:
                conversation.take_down(bell)

    # -- States ----------------------------------------------------------------------------------

    def _hand_out(self, process: Process, place: ViewId) -> None:
        """Hand out the state as it is now. Caller holds the lock of those who receive."""
        source = None
        self._provides = True
        try:
            if self._provider is not None:
                source = source_of(self._provider)
        except Exception:
            logger.exception("%s: the function that returns the state raised", self.settings.name)
        finally:
            self._provides = False
        process.driver.do(lambda c: c.states.hand_out(place, source))

    def taking_over(self, timeout: float | None) -> Script[IO[bytes] | None]:
        """Take over the state of another member; return None if nobody has one."""
        deadline = Deadline(timeout)
        process = self.usable
        if "state" not in self.settings.stack.gives:
            raise IllegalStateError("the stack of this channel has no layer for states")
        file = StateFile()
        taking = process.driver.do(lambda c: c.states.begin(file))
        try:
            if not (yield Pause(taking.ended, deadline.left())):
                raise OutcomeUnknownError(
                    f"the state of {process.conversation.cluster!r} was not here within "
                    f"{timeout:g} s: {taking.waits_for()}",
                    happened="no",
                )
            taking.ended.outcome()
            if taking.outcome is Outcome.NONE:
                return None
            self._replace_by_state(process)
            return file.opened()
        finally:
            process.driver.do(lambda c: c.end_state(taking))

    def _replace_by_state(self, process: Process) -> None:
        """Drop what has arrived, and not been received, and is in the state that has come."""
        with self._taking:
            if self._pack is not None:
                self._pack.call_in()
                self._pack = None
            wanted = process.conversation.inbox.go_to_state()
        for place in wanted:
            process.driver.do(lambda c, p=place: c.states.hand_out(p, None))  # type: ignore[misc]

    def _why_not_receive(self) -> JMSError:
        if self._listener is not None and not self.closed:
            return IllegalStateError("the channel has a listener: messages go there")
        return self._why_not()

    # -- Listeners -------------------------------------------------------------------------------

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have each message handed to `listener`, one at a time; None: to nobody."""
        arguments.check_listener(listener)
        if listener is not None:
            _ = self.usable  # raises why it is not
        self._listener = listener
        self._call_in()
        if listener is not None:
            self._schedule()  # what is left of a pack rings no bell

    def _await_arrival(self, conversation: Conversation) -> None:
        """Have the listener called when something is here."""
        bell = Ticket()
        bell.watch(self._schedule)
        conversation.hang_up(bell)
        if conversation.inbox.has_next or conversation.over:
            conversation.take_down(bell)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._schedule_job(self.turn)

    def turn(self) -> Iterator[tuple[MessageListener, Message]]:
        """Yield what the listener is to be called with, for one turn of it."""
        self._scheduled = False
        process = self.process
        assert process is not None
        for _ in range(LISTENER_TURN):
            listener = self._listener
            if listener is None or self.closed:
                return
            try:
                message = self._take(process)
            except JMSError as error:
                logger.warning("%s: %s", self.settings.name, error)
                return
            if message is None:
                self._await_arrival(process.conversation)
                return
            yield listener, message
        self._schedule()


def settings_of(
    stack: Any,
    name: str | None,
    listen: str | None,
    tls: Any,
    plaintext: bool,
    trace: str | None,
    state: Any,
) -> Settings:
    """Return the settings of a channel. Raises `TypeError`, `ValueError` or
    `ConfigurationError`."""
    from antiphon.io.peers.security import Tls
    from antiphon.peers.stack.stack import Stack

    if not isinstance(stack, Stack):
        raise TypeError(f"a Stack is needed, not {stack!r}")
    if name is None:
        name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(2).hex()}"
    check_name(name)
    if len(name.encode()) > PROCESS_NAME_MAX:
        raise ValueError(
            f"the name of a process has at most {PROCESS_NAME_MAX} bytes, not {len(name.encode())}"
        )
    if tls is not None and not isinstance(tls, Tls):
        raise TypeError(f"tls is a Tls, or None, not {tls!r}")
    if tls is not None:
        for what in ("certificate", "key", "authority"):
            arguments.text(f"the {what} of tls", getattr(tls, what))
    if listen is not None:
        arguments.text("listen", listen)
    if state is not None and not callable(state):
        raise TypeError(f"state is a function that returns the state, not {state!r}")
    if state is not None and "state" not in stack.gives:
        raise ConfigurationError(f"no layer of this stack hands out a state: {stack}")
    plaintext, trace = arguments.switch("plaintext", plaintext), arguments.path("trace", trace)
    return Settings(stack, name, listen, tls, plaintext, trace, state is not None)


# -- After a fork ----------------------------------------------------------------------------------

_cores: weakref.WeakSet[ChannelCore] = weakref.WeakSet()


def _forked() -> None:
    for core in list(_cores):
        core.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
