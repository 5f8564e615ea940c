"""One process in the cluster of a toolkit that has groups: a channel, and the groups it is in."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from antiphon import Message, ViewMessage, peers
from antiphon.errors import IllegalStateError, InvalidDestinationError, JMSError
from antiphon.peers.channel.views import ViewNumber
from antiphon.peers.layers.views.notes import Notes
from antiphon.peers.stack.stacks import transitional
from antiphon.toolkits._groups.directory import (
    GRANT,
    Directory,
    Envelope,
    Event,
    Grant,
    GroupMessage,
    GroupView,
    Note,
)

logger = logging.getLogger("antiphon.toolkits")


def stack_of(primary_partition: bool) -> peers.Stack:
    """Return the stack of these toolkits: every level, notes and transitional views."""
    whole = peers.total_uniform(primary_partition=primary_partition)
    return transitional(peers.Stack(*whole.layers, Notes()))


class GroupProcess:
    """A process that joins groups of its cluster, sends to them, and receives.

    `join` and `leave` return at once; the view that shows it is received as all others see it.
    `receive` is for one thread at a time, everything else for any. `wants` says which views of
    groups are received: those of its own groups. `options`: those of `peers.Channel`, such as
    `listen` and `tls`.
    """

    def __init__(
        self,
        name: str | None,
        cluster: str,
        primary_partition: bool,
        timeout: float | None = 10.0,
        echoes: bool = False,
        **options: Any,
    ) -> None:
        self.channel = peers.Channel(stack_of(primary_partition), name=name, **options)
        self.name = self.channel.name
        self.directory = Directory(self.name, echoes)
        self._note = Note()
        self._joining = threading.Lock()
        self._arrived: deque[Event] = deque()
        self._thread: threading.Thread | None = None  # on which `listen` calls
        self._closing = False
        self.wants: Callable[[GroupView], bool] = self._concerns
        self.channel.connect(cluster, timeout)

    def join(self, *groups: str) -> None:
        """Be in these groups, too, from a view on that all get."""
        number = self.channel.view.id
        assert isinstance(number, ViewNumber)
        with self._joining:
            for group in groups:
                self._note = self._note.joining(checked(group), number.change.round)
            self.channel.set_note(self._note.written())

    def leave(self, *groups: str) -> None:
        """Be in these groups no longer. Raise `IllegalStateError` for one that was not joined."""
        with self._joining:
            for group in groups:
                if group not in self._note.groups:
                    raise IllegalStateError(f"{self.name!r} is not in the group {group!r}")
                self._note = self._note.leaving(group)
            self.channel.set_note(self._note.written())

    def send(
        self,
        targets: Sequence[str],
        body: bytes,
        order: str,
        kind: str = "",
        timeout: float | None = None,
        last: bool = False,
    ) -> None:
        """Send to all members of some groups: all who are in one of them get it, and once. It goes
        to every process of the cluster, for only where it is received it is known who is in them
        then. `last`: it is the last thing that is handed out in its view, which ends for it."""
        envelope = Envelope(tuple(map(checked, targets)), bytes(body), kind, last)
        self.channel.send(msgspec.msgpack.encode(envelope), order=order, timeout=timeout)

    def send_to(self, process: str, body: bytes, kind: str) -> None:
        """Send to one process; nothing happens if it is gone."""
        envelope = msgspec.msgpack.encode(Envelope((), body, kind))
        with suppress(InvalidDestinationError):
            self.channel.send(envelope, to=process)

    def grant(self, group: str, members: Sequence[str]) -> None:
        """Have a group begin with these members, in one view."""
        granted = msgspec.msgpack.encode(Grant(checked(group), tuple(members)))
        self.send((), granted, "agreed", GRANT, last=True)

    def receive(self, timeout: float | None = None) -> Event | None:
        """Return the next message or view of a group; None if none came in time, or it is closed.

        What a view of the channel begins with is returned one at a time, without waiting."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._arrived:
            left = None if end is None else max(0.0, end - time.monotonic())
            message = self.channel.receive(left)
            if message is None:
                return None
            self._arrived.extend(self._events_of(message))
        return self._arrived.popleft()

    def _events_of(self, message: Message) -> list[Event]:
        if isinstance(message, ViewMessage):
            assert isinstance(message.view, peers.View)
            shown = self.directory.shown(message.view, message.together)
            return [one for one in shown if not isinstance(one, GroupView) or self._has_view(one)]
        try:
            envelope = msgspec.msgpack.decode(message.body, type=Envelope)
        except (msgspec.DecodeError, TypeError) as error:
            logger.warning("%s has sent what is not for groups: %s", message.sender, error)
            return []
        if envelope.last and message.sender == self.name:
            self._end_view()
        targets, body, kind, last = msgspec.structs.astuple(envelope)
        received = GroupMessage(str(message.sender), targets, body, kind)
        return self.directory.received(received, last)

    def _end_view(self) -> None:
        """Have the view end: with a new note, even if it says nothing new."""
        with self._joining:
            self._note = Note(self._note.groups, self._note.count + 1)
            self.channel.set_note(self._note.written())

    def _has_view(self, view: GroupView) -> bool:
        """Return whether a view is received. One of a group that was granted goes into the note."""
        own = self.directory.notes.get(self.name, Note()).groups
        if self.name in view.joined and view.group not in own:
            self.join(view.group)
        return self.wants(view)

    def _concerns(self, view: GroupView) -> bool:
        """Return whether this process is in the group, or was."""
        return self.name in view.members or self.name in view.left

    def listen(
        self, take: Callable[[Event], object], ended: Callable[[], object] = lambda: None
    ) -> None:
        """Have `take` called with everything that is received, on a thread of this process, and
        `ended` when nothing comes any more. What `take` raises is logged."""
        self._thread = threading.Thread(target=self._run, args=(take, ended), daemon=True)
        self._thread.start()

    def _run(self, take: Callable[[Event], object], ended: Callable[[], object]) -> None:
        try:
            while (event := self.receive()) is not None:
                try:
                    take(event)
                except Exception:
                    logger.exception("%s: a callback raised", self.name)
        except JMSError as error:
            if not self._closing:
                logger.warning("%s receives nothing any more: %s", self.name, error)
        ended()

    def close(self) -> None:
        """Leave all groups, and the cluster."""
        self._closing = True
        self.channel.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def checked(group: str) -> str:
    """Return the name of a group. Raise `TypeError` or `ValueError` if it is none."""
    if not isinstance(group, str):
        raise TypeError(f"the name of a group is a str, not {group!r}")
    if not group:
        raise ValueError("a group needs a name")
    return group
