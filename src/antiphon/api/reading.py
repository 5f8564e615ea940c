"""Who waits, reads: a thread of the program that is blocked reads the connection's socket itself.

Otherwise the background thread would be woken by every message, only to wake the thread that waits
for it. Promises: one thread at most reads at a time; while threads wait, one of them does, or the
loop; when none waits any more, the loop goes on soon (`HAND_BACK_S`, or at once if it is told to);
and who waits returns when its ticket is settled, whoever settles it.

The loop *lends* its link when something has arrived and a thread waits. So it has no byte of it in
its own hands then, and what programs do that never block stays with the loop.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from antiphon.api.conversation_ticket import Ticket
from antiphon.api.waiting import Deadline
from antiphon.io.dialing import Descriptor, TcpLink

HAND_BACK_S = 0.02
"""A lent link that no thread has read for so long, or twice as long, goes back to the loop."""


class Waiter:
    """The eye of one thread: sees that it is woken, and what arrives where it reads."""

    def __init__(self) -> None:
        self.awaits = False  # news: from now on, or again; so set before looking for them
        self._rung = False
        self._bell, self._hammer = socket.socketpair()
        self._bell.setblocking(False)

    def __del__(self) -> None:
        self._bell.close()
        self._hammer.close()

    def wake(self) -> None:
        """From any thread."""
        if self.awaits and not self._rung:
            self._rung = True
            self._hammer.send(b"\0")

    def look(self, at: Descriptor | None, left_s: float | None) -> bool:
        """Until it is woken, or something has arrived there: then True."""
        bell = self._bell.fileno()
        seen = readable((bell,) if at is None else (bell, at.number), left_s)
        if bell in seen:
            with suppress(BlockingIOError):
                self._bell.recv(1)
            self._rung = False
        return at is not None and at.number in seen


def readable(descriptors: tuple[int, ...], left_s: float | None) -> list[int]:
    """Those that are, as soon as one is, or none when the time is over."""
    if not hasattr(select, "poll"):
        return select.select(descriptors, (), (), left_s)[0]
    eye = select.poll()  # not kept: an interrupt could leave one in it that is closed later
    for descriptor in descriptors:
        eye.register(descriptor, select.POLLIN)
    return [seen for seen, _ in eye.poll(None if left_s is None else left_s * 1000)]


class _Own(threading.local):
    def __init__(self) -> None:
        self.waiter = Waiter()


_own = _Own()


def _forked() -> None:
    global _own
    _own = _Own()  # the child would share its bells with the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Reading:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[], None],
        take_back: Callable[[TcpLink], None],
    ) -> None:
        """`read` takes what is there, and does all that follows from it; `take_back`, on the loop,
        has the loop read again."""
        self._loop = loop
        self._read = read
        self._take_back = take_back
        self._lock = threading.Lock()  # of who reads
        self._waiters: dict[Waiter, None] = {}
        self._link: TcpLink | None = None  # that the loop has lent
        self._descriptor: Descriptor | None = None  # of it
        self._reader: Waiter | None = None  # who looks at it
        self._turns = 0  # how often somebody began to
        self._looks_after = False  # the loop will, soon: so that what is lent is not forgotten

    # -- On threads of the program ----------------------------------------------------------------

    def wait(self, ticket: Ticket, timeout: float | None) -> bool:
        """Until it is settled; False: it is not, and the time is over."""
        if ticket.done:
            return True
        waiter, deadline = _own.waiter, Deadline(timeout)
        ticket.watch(waiter.wake)
        try:
            while not ticket.done:
                waiter.awaits = True
                descriptor = self._enter(waiter)
                left = deadline.left()
                if ticket.done or left == 0:
                    break
                arrived = waiter.look(descriptor, left)
                waiter.awaits = False
                if arrived:
                    self._read()
            return ticket.done
        finally:
            waiter.awaits = False
            self._leave(waiter)

    def _enter(self, waiter: Waiter) -> Descriptor | None:
        """What this thread is to read, if anything."""
        with self._lock:
            self._waiters[waiter] = None
            if self._reader is None and self._descriptor is not None:
                self._reader = waiter
                self._turns += 1
            return self._descriptor if self._reader is waiter else None

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.pop(waiter, None)
            has_read = self._reader is waiter
            if has_read:
                self._reader = None
            self._find_reader()
            alarm = has_read and not self._looks_after
            self._looks_after |= alarm
        if alarm:  # it has waited for long: who gets many messages does not come here
            self._loop.call_soon_threadsafe(self._look_later)

    def _find_reader(self) -> None:
        """One of those who wait, if nobody reads what is lent."""
        if self._link is not None and self._reader is None and self._waiters:
            next(iter(self._waiters)).wake()

    def give_back(self) -> None:
        """The loop is to read on: it finds the end of the stream, or a flood."""
        with self._lock:
            link = self._forget()
        if link is not None:
            self._loop.call_soon_threadsafe(self._take_back, link)

    # -- On the loop ------------------------------------------------------------------------------

    def offer(self, link: TcpLink) -> None:
        """Lend it, if anybody waits."""
        if not self._waiters or self._link is not None:
            return
        descriptor = link.lend()
        if descriptor is None:
            return
        with self._lock:
            self._link, self._descriptor = link, descriptor
            self._find_reader()
            alarm, self._looks_after = not self._looks_after, True
        if alarm:
            self._look_later()

    def _look_later(self) -> None:
        self._loop.call_later(HAND_BACK_S, self._look_after, self._turns)

    def _look_after(self, turns: int) -> None:
        """What is lent and not used comes back. Who reads, and waits for long, has it looked after
        when it leaves: nobody is woken for programs that have nothing to do."""
        with self._lock:
            used = self._link is not None and self._turns != turns
            self._looks_after = used
        if used:
            self._look_later()
        else:
            self.recall()

    def recall(self) -> None:
        """Unless somebody reads, the loop does."""
        with self._lock:
            link = self._forget() if self._reader is None else None
        if link is not None:
            self._take_back(link)

    def end(self) -> None:
        """The link is closed."""
        with self._lock:
            reader = self._reader
            self._forget()
        if reader is not None:
            reader.wake()  # it holds what would keep the socket open

    def _forget(self) -> TcpLink | None:
        link, self._link = self._link, None
        self._descriptor = self._reader = None
        return link
