"""The trace of a channel: what its stack is given and gives back, written down as it happens.

Promise: what follows from an event leaves this process only after the event's row was handed to
`write` (`flush`), which the driver sees to. So of a process that is killed, the rows say all that
others can know of it. They are gathered and written once for each input of the driver.

The trace says that a process holds a safe message before it is delivered: a layer right above
`Reliable` looks at what comes in (`Receipts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from antiphon.errors import FormatError
from antiphon.formats import pack
from antiphon.formats.channel_trace import (
    ChannelEvent,
    Kind,
    encode_event,
    life_text,
    view_text,
)
from antiphon.formats.pack import PackHeader
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.channel.outbox import Leaving
from antiphon.peers.layers.layer import Body, Effect, Frame, Layer, Up
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.total import Ordered
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.peers.stack.stack import Stack


class ChannelTrace:
    """The rows of one life of a process; promises are the module's."""

    def __init__(
        self,
        run: str,
        process: str,
        incarnation: int,
        cluster: str,
        me: MemberId,
        write: Callable[[bytes], None],
    ) -> None:
        """`run`, `process` and `incarnation`: of the file that `write` writes to."""
        self._life = life_text(me)
        self._head: dict[str, Any] = {"run": run, "process": process, "incarnation": incarnation}
        self._cluster = cluster
        self._write = write
        self._seq = 0
        self._at_ms = 0  # of the last row
        self._rows: list[bytes] = []

    def sent(self, leaving: Leaving, now_ms: int) -> None:
        """A pack enters the stack."""
        to = None if leaving.to is None else _lives(leaving.to)
        header = pack.read_header(leaving.body)
        self._add_pack("send", now_ms, header, sender=self._life, level=leaving.level, to=to)

    def received(
        self, sender: MemberId, body: Body, level: Level, view: ViewId, now_ms: int
    ) -> None:
        """The process holds a pack."""
        self._came("receive", sender, body, level, view, now_ms)

    def delivered(self, delivered: Delivered, now_ms: int) -> None:
        """The stack hands a pack out."""
        self._came(
            "deliver",
            delivered.sender,
            delivered.body,
            delivered.level,
            delivered.view,
            now_ms,
            closing=delivered.closing,
        )

    def shown(self, shown: Shown, now_ms: int) -> None:
        """The stack shows a view."""
        view, changed = shown.view, shown.changed
        self._add(
            "view",
            now_ms,
            view=view_text(view.id),
            members=_lives(view.members),
            leader=life_text(view.leader),
            primary=view.primary,
            seats=_lives(view.seats),
            together=_lives(changed.together),
            merged=_ids(changed.merged),
            past=tuple(map(view_text, changed.past)),
            founding="" if changed.founding is None else view_text(changed.founding),
            origin="" if changed.origin is None else view_text(changed.origin),
        )

    def ended(self) -> None:
        """The channel is over: there will be no more rows."""
        self._add("end", self._at_ms)
        self.flush()

    def flush(self) -> None:
        """Have the rows written."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._write(b"".join(rows))

    def _came(
        self,
        kind: Kind,
        sender: MemberId,
        body: Body,
        level: Level,
        view: ViewId,
        now_ms: int,
        **columns: Any,
    ) -> None:
        try:
            header = pack.read_header(bytes(body))
        except FormatError:
            return  # it is no pack, and the program does not get it either
        who, where = life_text(sender), view_text(view)
        self._add_pack(kind, now_ms, header, sender=who, level=level, view=where, **columns)

    def _add_pack(self, kind: Kind, now_ms: int, header: PackHeader, **columns: Any) -> None:
        self._add(kind, now_ms, first=header.sequence, count=header.count, **columns)

    def _add(self, kind: Kind, now_ms: int, **columns: Any) -> None:
        self._seq += 1
        self._at_ms = now_ms
        event = ChannelEvent(
            **self._head,
            seq=self._seq,
            kind=kind,
            cluster=self._cluster,
            life=self._life,
            at=now_ms / 1000,
            **columns,
        )
        self._rows.append(encode_event(event))


def _lives(members: Sequence[MemberId]) -> tuple[str, ...]:
    return tuple(map(life_text, members))


def _ids(views: Sequence[PeerView]) -> tuple[str, ...]:
    return tuple(view_text(view.id) for view in views)


class Receipts(Layer):
    """Has each safe message written down that this process comes to hold, before it acknowledges
    it.

    Promise: frames pass unchanged. Need: `Reliable` below it. Limits: it belongs to one trace, and
    so to one running stack.
    """

    name = "receipts"
    needs = frozenset({"reliable"})
    local = True

    def __init__(self, trace: ChannelTrace) -> None:
        self._trace = trace

    def fresh(self) -> Layer:
        return Receipts(self._trace)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.number > 0 and frame.level >= Level.SAFE:
            ordered = (header.sender for header in frame.headers if isinstance(header, Ordered))
            origin = next(ordered, sender)
            self._trace.received(origin, frame.body, frame.level, self.view.id, now_ms)
        return (Up(frame, sender),)


def traced(stack: Stack, trace: ChannelTrace) -> Stack:
    """Return the stack with what its trace needs."""
    layers: list[Layer] = []
    for layer in stack.layers:
        layers.append(layer)
        if isinstance(layer, Reliable) and any(isinstance(each, Safe) for each in stack.layers):
            layers.append(Receipts(trace))
    return Stack(*layers)
