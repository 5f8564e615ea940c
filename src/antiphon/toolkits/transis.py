"""Transis: groups in a partitionable network, with four services.

What the original promised, and what keeps it here:

- A mailbox (`zzz_Connect`), in several groups (`zzz_Join`, `zzz_Leave`): a process of a cluster of
  `antiphon.peers`, whose note says which groups it is in.
- FIFO and CAUSAL: the levels `fifo` and `causal`. AGREED, or ATOMIC, one order of every pair of
  messages in all their destinations: the level `agreed`, one order of all messages of the cluster,
  whatever groups they are for. SAFE, agreed and delivered when all have it: the level `safe`.
- Groups are open, and a message may go to several: `zzz_send` to any groups, of which nobody need
  be a member; who is in several of them gets it once.
- Virtual synchrony, in each part of a partitioned network, and from a merge on: the views of the
  stack `TOTAL_UNIFORM`, primary or not. `together` says who has the same history.
- Transitional views: the layer `Transitional`. What was received before one kept the promises of
  the whole view. Behind it come messages of which only its members are known to have them.

A group is there while it has members; nobody creates it. To send to one process, send to a group of
that process alone. Messages to groups go to all processes of the cluster, as on the broadcast
network that Transis was made for, and those that are in none of the groups drop them.

What only we have: views say whether they are primary. In a primary view an agreed message comes
when most members have it; in any other one as it is ordered.

Left out: the list of layers (`select_layers`), for the stack is one and has what the four services
need; the flags; the length of the buffer: bytes have theirs. Where C returned by pointers, these
calls return values.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from antiphon.errors import JMSError
from antiphon.toolkits._groups.directory import Event
from antiphon.toolkits._groups.directory import GroupMessage as Message
from antiphon.toolkits._groups.directory import GroupView as View
from antiphon.toolkits._groups.process import GroupProcess, logger

FIFO, CAUSAL, AGREED, SAFE = "fifo", "causal", "agreed", "safe"
"""The services; the types of what is received are these, and `REGULAR` and `TRANSITIONAL`."""

ATOMIC = AGREED
"""Its other name."""

REGULAR, TRANSITIONAL = "regular view", "transitional view"

_SERVICES = (FIFO, CAUSAL, AGREED, SAFE)

__all__ = [
    "AGREED",
    "ATOMIC",
    "CAUSAL",
    "FIFO",
    "LEFT_OUT",
    "REGULAR",
    "SAFE",
    "TRANSITIONAL",
    "Mailbox",
    "Message",
    "Upcall",
    "View",
    "zzz_add_upcall",
    "zzz_connect",
    "zzz_join",
    "zzz_leave",
    "zzz_receive",
    "zzz_remove_upcall",
    "zzz_send",
]

Upcall = Callable[["Mailbox", Any], object]

LEFT_OUT: dict[str, str] = {}
"""Names of the original that are not here, each with the reason: none."""


class Mailbox:
    """What `zzz_connect` returns: one process's place in Transis. Use it with the `zzz_` calls; a
    `with` statement closes it."""

    def __init__(self, process: GroupProcess) -> None:
        self._process = process
        self._upcalls: list[tuple[int, Upcall, Any]] = []
        self._pending: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._pump: threading.Thread | None = None

    @property
    def name(self) -> str:
        """By which the others know this process."""
        return self._process.name

    def close(self) -> None:
        """Leave all groups, and Transis."""
        self._process.close()

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- Upcalls ---------------------------------------------------------------------------------

    def _add(self, func: Upcall, priority: int, param: Any) -> None:
        with self._arrived:
            self._upcalls.append((priority, func, param))
            self._upcalls.sort(key=lambda one: -one[0])
            if self._pump is None:
                self._pump = threading.Thread(target=self._run, daemon=True)
                self._pump.start()

    def _remove(self, func: Upcall) -> None:
        with self._arrived:
            kept = [one for one in self._upcalls if one[1] != func]
            if len(kept) == len(self._upcalls):
                raise ValueError(f"{func!r} is not an upcall of {self.name!r}")
            self._upcalls = kept

    def _run(self) -> None:
        """Receive, and make the upcalls, until the mailbox is closed."""
        with suppress(JMSError):  # what ends the mailbox is raised by its next call
            while (event := self._process.receive()) is not None:
                with self._arrived:
                    self._pending.append(event)
                    self._arrived.notify_all()
                    upcalls = list(self._upcalls)
                for _, func, param in upcalls:
                    try:
                        func(self, param)
                    except Exception:
                        logger.exception("%s: an upcall raised", self.name)
        with self._arrived:
            self._pump = None
            self._arrived.notify_all()

    def _receive(self, timeout: float | None) -> Event | None:
        with self._arrived:
            self._arrived.wait_for(lambda: self._pending or self._pump is None, timeout)
            if self._pending or self._pump is not None:
                return self._pending.popleft() if self._pending else None
        return self._process.receive(timeout)


def zzz_connect(
    mbox_name: str | None = None,
    cluster: str = "peer:transis",
    timeout: float | None = 10.0,
    **options: Any,
) -> Mailbox:
    """Connect to Transis, under a name that is unique there; without one it gets one. `cluster` is
    one of `peers.Channel.connect`, `options` are those of `peers.Channel`: `listen`, `tls` and so
    on. Raise what `connect` raises."""
    return Mailbox(GroupProcess(mbox_name, cluster, False, timeout=timeout, **options))


def zzz_join(mbox: Mailbox, set_name: str) -> None:
    """Join a group. It returns at once: this mailbox is a member from the view on that it receives,
    in which it has joined."""
    mbox._process.join(set_name)


def zzz_leave(mbox: Mailbox, set_name: str) -> None:
    """Leave a group. It returns at once: what comes before the view without this mailbox is still
    received, and that view is the last of it. Raise `IllegalStateError` for a group that it has not
    joined."""
    mbox._process.leave(set_name)


def zzz_send(
    mbox: Mailbox,
    send_type: str,
    buf: bytes,
    targets: str | Sequence[str],
    timeout: float | None = None,
) -> int:
    """Send to all members of the target groups, and return how many bytes were sent. The sender
    need not be a member; if it is, it receives the message as the others do. Raise `ValueError` for
    a service that there is not, and what `peers.Channel.send` raises."""
    if send_type not in _SERVICES:
        raise ValueError(f"{send_type!r} is not a service: {', '.join(_SERVICES)}")
    groups = (targets,) if isinstance(targets, str) else tuple(targets)
    if not groups:
        raise ValueError("a message needs a group to go to")
    mbox._process.send(groups, buf, send_type, send_type, timeout)
    return len(buf)


def zzz_receive(
    mbox: Mailbox, timeout: float | None = None
) -> tuple[str, Message | View] | tuple[None, None]:
    """Return the type of what comes next, and that: a `Message` with its service, or a `View` of a
    group that this mailbox is in, or was, with `REGULAR` or `TRANSITIONAL`; `(None, None)` if
    nothing came within `timeout` seconds, or the mailbox was closed. Raise what
    `peers.Channel.receive` raises."""
    event = mbox._receive(timeout)
    if isinstance(event, Message):
        return event.kind, event
    if isinstance(event, View):
        return TRANSITIONAL if event.transitional else REGULAR, event
    return None, None


def zzz_add_upcall(mbox: Mailbox, func: Upcall, priority: int = 0, param: Any = None) -> None:
    """Have `func(mbox, param)` called whenever there is something to receive, on a thread of the
    mailbox; those of higher priority first. It receives with `zzz_receive(mbox, 0)`."""
    mbox._add(func, priority, param)


def zzz_remove_upcall(mbox: Mailbox, func: Upcall) -> None:
    """Have it called no more. Raise `ValueError` if it is no upcall of this mailbox."""
    mbox._remove(func)
