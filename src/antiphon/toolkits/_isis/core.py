"""The workings of a program in Isis: broadcasts on their way, replies, monitors, and two threads.

One thread receives. It only notes what has come: replies, who has left, and where this program's
own broadcasts are handed out. The other one (`dispatching.py`) calls routines, which may wait for
replies meanwhile.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import IllegalStateError, OutcomeUnknownError
from antiphon.toolkits._groups.directory import Echo, Event, GroupMessage, GroupView
from antiphon.toolkits._groups.process import GroupProcess, logger
from antiphon.toolkits._isis.dispatching import Dispatcher
from antiphon.toolkits._isis.replies import Replies, Reply, Wanted

MEMBERS, CLIENTS, SITES = "members/", "clients/", "sites/"
"""Groups of the cluster: the members and clients of a group of Isis, and the processes of a
site."""

_REPLY = "reply"


class Message(NamedTuple):
    """What the routine of an entry gets. `call`: for replies."""

    sender: str
    group: str
    entry: int
    values: tuple[Any, ...]
    call: int


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A broadcast on its way. `call`: its number, 0 if no replies are wanted; `member`: the only
    one that it is for."""

    call: int
    entry: int
    member: str | None
    values: tuple[Any, ...]


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """A reply on its way; without values there will be none."""

    call: int
    values: tuple[Any, ...] | None


class Core:
    """One program's part; see the module. `entries`: the routines by their numbers; `monitors`:
    what is called with each view of a group; `views`: as the routines were told; `looks`: called
    with each view on the thread that receives."""

    def __init__(
        self, name: str | None, cluster: str, timeout: float | None, options: dict[str, Any]
    ) -> None:
        self.entries: dict[int, Callable[[Message], object]] = {}
        self.monitors: dict[int, Callable[[GroupView], object]] = {}
        self.views: dict[str, GroupView] = {}
        self.looks: Callable[[GroupView], object] = lambda view: None
        self.numbers = itertools.count(secrets.randbits(48) + 1)
        self._news = threading.Condition()
        self._calls: dict[int, tuple[str, Replies]] = {}  # with their groups
        self.process = GroupProcess(name, cluster, True, timeout, echoes=True, **options)
        self.process.wants = lambda view: not view.transitional
        self._dispatcher: Dispatcher[GroupMessage | GroupView]
        self._dispatcher = Dispatcher(self._handle, self.process.name)

    def start(self) -> None:
        """Begin to receive."""
        self.process.listen(self._take, self._notify)

    def close(self) -> None:
        self.process.close()
        self._dispatcher.close()
        self._notify()

    def members(self, group: str) -> tuple[str, ...]:
        """Return the members of a group of the cluster, as received; the routines may know an
        older view."""
        return self.process.directory.members(group)

    def is_in(self, group: str) -> bool:
        return self.process.name in self.members(group)

    def is_known_in(self, group: str) -> bool:
        """Return whether this process is in a group, and the routines were told so, unless it is a
        routine that asks."""
        if self._dispatcher.is_here:
            return self.is_in(group)
        view = self.views.get(group)
        return view is not None and self.process.name in view.members

    # -- Broadcasts ------------------------------------------------------------------------------

    def broadcast(
        self,
        order: str,
        group: str,
        call: Call,
        clients: bool,
        wanted: Wanted,
        timeout: float | None,
    ) -> list[Reply]:
        """Broadcast to the members of a group, and its clients, and wait for replies of members.
        `order`: a level, or "last" for what conflicts with all others."""
        targets = (f"{MEMBERS}{group}", *((f"{CLIENTS}{group}",) if clients else ()))
        if wanted and self._dispatcher.is_here and self._is_for_me(call, targets):
            raise IllegalStateError(
                f"a routine of a member of {group!r} cannot wait for replies of {group!r}: its own "
                "would come after it has returned"
            )
        level, last = ("agreed", True) if order == "last" else (order, False)
        body = msgspec.msgpack.encode(call)
        if wanted == 0:
            self.process.send(targets, body, level, timeout=timeout, last=last)
            return []
        replies = Replies(wanted)
        with self._news:
            self._calls[call.call] = targets[0], replies
        try:
            self.process.send(targets, body, level, timeout=timeout, last=last)
            with self._dispatcher.waiting():
                self.wait(
                    lambda: replies.done,
                    timeout,
                    lambda: (
                        f"{', '.join(replies.awaited) or 'nobody has it, and none'} of "
                        f"{group!r} has not replied; {len(replies.replies)} have"
                    ),
                )
            return list(replies.replies)
        finally:
            with self._news:
                del self._calls[call.call]

    def _is_for_me(self, call: Call, targets: tuple[str, ...]) -> bool:
        return call.member in (None, self.process.name) and any(map(self.is_in, targets))

    def answer(self, message: Message, values: tuple[Any, ...] | None) -> None:
        """Reply to a broadcast; None: there will be no reply."""
        if message.call:
            answer = msgspec.msgpack.encode(_Answer(message.call, values))
            self.process.send_to(message.sender, answer, _REPLY)

    # -- Waiting ---------------------------------------------------------------------------------

    def wait(
        self, condition: Callable[[], bool], timeout: float | None, why: Callable[[], str]
    ) -> None:
        """Wait for something that is received. Raise `OutcomeUnknownError` after `timeout` seconds,
        and `IllegalStateError` if nothing is received any more."""
        channel = self.process.channel
        with self._news:
            come = self._news.wait_for(lambda: condition() or channel.closed, timeout)
            if condition():
                return
        if come:
            raise IllegalStateError(f"{channel.name!r} has left Isis", happened="unknown")
        raise OutcomeUnknownError(f"not within {timeout:g} s: {why()}")

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()

    # -- The thread that receives ----------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if isinstance(event, Echo):
            self._handed_out(event)
        elif isinstance(event, GroupView):
            self._seen(event)
        elif event.kind == _REPLY:
            self._replied(event)
        else:
            self._dispatcher.put(event)
        self._notify()

    def _handed_out(self, echo: Echo) -> None:
        if echo.message.targets and not echo.message.kind:
            call = msgspec.msgpack.decode(echo.message.body, type=Call)
            with self._news:
                if call.call in self._calls:
                    members = (one for one in echo.members if call.member in (None, one))
                    self._calls[call.call][1].handed_out(members)

    def _seen(self, view: GroupView) -> None:
        with self._news:
            for group, replies in self._calls.values():
                if group == view.group:
                    replies.left(view.left)
        self.looks(view)
        self._dispatcher.put(view)

    def _replied(self, message: GroupMessage) -> None:
        answer = msgspec.msgpack.decode(message.body, type=_Answer)
        with self._news:
            if answer.call in self._calls:
                self._calls[answer.call][1].replied(message.sender, answer.values)

    # -- The thread of the routines --------------------------------------------------------------

    def _handle(self, event: GroupMessage | GroupView) -> None:
        if isinstance(event, GroupView):
            self._tell(event)
            return
        call = msgspec.msgpack.decode(event.body, type=Call)
        if call.member not in (None, self.process.name):
            return
        group = event.targets[0].removeprefix(MEMBERS)
        message = Message(event.sender, group, call.entry, call.values, call.call)
        routine = self.entries.get(call.entry)
        try:
            if routine is None:
                logger.warning("%s has no entry %d", self.process.name, call.entry)
                self.answer(message, None)
            else:
                routine(message)
        except Exception:
            self.answer(message, None)
            raise

    def _tell(self, view: GroupView) -> None:
        self.views[view.group] = view
        if not view.members:
            del self.views[view.group]
        for monitor in list(self.monitors.values()):
            try:
                monitor(view)
            except Exception:
                logger.exception("%s: a monitor raised", self.process.name)
        self._notify()
