"""Channels without sockets, clocks and threads: drivers over ports that a test moves."""

import threading
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from antiphon.api.messages.sending import outgoing
from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.formats import bodies
from antiphon.formats.frames import Body
from antiphon.formats.peer_wire import Refused
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.channel.driver import ChannelDriver
from antiphon.peers.channel.tracing import ChannelTrace, traced
from antiphon.peers.channel.views import Occurrence
from antiphon.peers.layers.layer import Changed, Closing, Effect, Freeze, Install, Layer
from antiphon.peers.stack.running import Running
from antiphon.peers.stack.stack import Stack
from tests.peers.support.scripted import Scripted


class Ordering(Layer):
    """A stand-in for Total: hands a process's own frames out when the test says so."""

    name = "ordering"
    gives = frozenset({"total"})

    def __init__(self) -> None:
        self.held: deque[Effect] = deque()
        self.holds = False

    def up(self, frame: Any, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        effects = super().up(frame, sender, now_ms)
        if self.holds and sender == self.me:
            self.held.extend(effects)
            return ()
        return effects


class Process:
    """One process of a cluster, with its port."""

    def __init__(
        self, name: str, *layers: Layer, incarnation: int = 1, traces: bool = False
    ) -> None:
        self.now_ms = 0
        self.me = MemberId(name, incarnation)
        stack = Stack(*(layers or (Scripted(),)))
        self.written: list[bytes] = []  # of the trace
        self.written_at_flush = 0
        self.trace = (
            ChannelTrace("run", name, 1, "c", self.me, self.written.append) if traces else None
        )
        if self.trace is not None:
            stack = traced(stack, self.trace)
        self.running = Running(stack, self.me, lambda layer: Random(f"{name} {layer}"), 0)
        self.conversation = Conversation(self.me, self.running.view, "c", "topic:c")
        self.driver = ChannelDriver(
            self.conversation, self.running, threading.Lock(), self, self.trace
        )
        self.sent: list[tuple[tuple[str, ...], bytes]] = []
        self.flushed = 0
        self.dialled: list[str] = []
        self.refusals: list[tuple[str, str]] = []
        self.woken = 0
        self.due_ms: int | None = None
        self.released = False

    # -- The port --------------------------------------------------------------------------------

    def wake(self) -> None:
        self.woken += 1

    def transmit(self, to: Sequence[MemberId], head: bytes, body: Body) -> None:
        self.sent.append((tuple(process.name for process in to), head + body))

    def flush(self) -> None:
        self.flushed = len(self.sent)
        self.written_at_flush = len(self.written)

    def dial(self, address: str) -> None:
        self.dialled.append(address)

    def refuse(self, process: MemberId, refused: Refused) -> None:
        self.refusals.append((process.name, refused.reason))

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        self.due_ms = due_ms

    def over(self) -> None:
        self.released = True

    # -- What a test does ------------------------------------------------------------------------

    def put(self, body: Any, to: Any = None, level: Level = Level.AGREED) -> bool:
        """Send, and have the driver pumped."""
        meant = self.conversation.addressed(to)
        has_room = self.conversation.put(*outgoing(body, now_ms=0), meant, level)
        self.pump()
        return has_room

    def pump(self) -> None:
        self.driver.pump(self.now_ms)

    def advance(self, passed_ms: int) -> None:
        """Let time pass, and the timer fire."""
        self.now_ms += passed_ms
        if self.due_ms is not None and self.due_ms <= self.now_ms:
            self.due_ms = None
            self.driver.timer_fired(self.now_ms)

    def act(self, *effects: Effect) -> None:
        """Have the lowest layer say this."""
        self.running.act(self.running.layers[0], effects, self.now_ms)
        self.pump()

    def freeze(self) -> None:
        self.act(Freeze())

    def install(
        self, *others: MemberId, primary: bool = True, without_me: bool = False
    ) -> PeerView:
        """Show a view of these processes, and this one first."""
        members = others if without_me else (self.me, *others)
        change = ViewId(self.running.view.id.round + 1, members[0])
        view = PeerView(change, members, members[0], primary)
        closing = Closing(self.running.view.id, {})
        self.act(Install(closing, view, {}, Changed(members)))
        return view

    def join(self, other: "Process", view: PeerView | None = None) -> PeerView:
        """Show the view of this process and another one, which each comes to by itself."""
        change = ViewId(self.running.view.id.round + 1, self.me)
        view = view or PeerView(change, (self.me, other.me), self.me, True)
        closing = Closing(self.running.view.id, {})
        self._install(Install(closing, view, {}, Changed((self.me,))))
        return view

    def close_view(self) -> None:
        """Show a view of this process alone, after everything that it has sent."""
        view = PeerView(ViewId(self.running.view.id.round + 1, self.me), (self.me,), self.me)
        closing = Closing(self.running.view.id, {self.me: 1 << 30})
        self._install(Install(closing, view, {}, Changed((self.me,))))

    def _install(self, install: Install) -> None:
        layer = next(one for one in self.running.layers if isinstance(one, Scripted))
        self.running.act(layer, (Freeze(), install), self.now_ms)
        self.pump()

    def receive_from(self, other: "Process") -> None:
        """Take everything that the other one has sent to this one."""
        data = [data for to, data in other.sent if self.me.name in to]
        self.driver.arrived(other.me, data, self.now_ms)

    def received(self) -> list[Any]:
        """Return what waits for the program: bodies, and views as lists of names."""
        events: list[Any] = []
        while (item := self.conversation.take()) is not None:
            if isinstance(item, PeerColumns):
                events += [
                    bodies.read(item.kinds[i], item.body(i), False) for i in range(item.count)
                ]
            else:
                assert isinstance(item, Occurrence)
                events.append(list(item.view.members))
        return events
