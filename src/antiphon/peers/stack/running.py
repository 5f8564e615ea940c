"""A running stack: the layers of one process, connected.

It carries out the effects of its layers, depth first and in their order, and collects what the
driver must do (`Transmit`, `Dial`) and what the program is told (`Delivered`, `Shown`, `Waits` and
whatever layers say by `Tell`). The driver calls one input at a time and then takes the outputs
(`take`).

Frames pass in loops, not in calls of calls, as long as a layer passes on one frame for one; layers
that do not override `up` or `down` are not asked.

A process hears what it sends itself (an `Up` out of `down`) once the input at hand is carried out:
if a layer hands out two frames, and the first makes a layer above send, then the second one still
comes before the answer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from antiphon.errors import FormatError
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import (
    Acknowledged,
    Blocked,
    Body,
    Change,
    Changed,
    Dial,
    Down,
    Effect,
    Frame,
    Freeze,
    Install,
    Layer,
    Suspect,
    Tell,
    To,
    Up,
    Value,
)
from antiphon.peers.layers.views.notes import Notes, read_notes
from antiphon.peers.membership.membership import Membership
from antiphon.peers.stack.codec import FrameCodec
from antiphon.peers.stack.stack import Stack

logger = logging.getLogger("antiphon.peers.stack")


class Transmit(Value, frozen=True):
    """For the driver: send this to these processes, as far as there are connections to them. It is
    in two parts, so that a large body is not copied."""

    to: tuple[MemberId, ...]
    head: bytes
    body: Body

    @property
    def data(self) -> bytes:
        """Return all of it."""
        return b"".join((self.head, self.body))


class Delivered(Value, frozen=True):
    """For the program: a body that a member has sent in this view. `closing`: the view ends with
    it, or with others that come in the same step."""

    sender: MemberId
    body: Body
    level: Level
    view: ViewId
    closing: bool = False


class Shown(NamedTuple):
    """For the program: a new view, after all that belongs to the one before."""

    view: PeerView
    changed: Changed
    notes: Mapping[MemberId, str] = {}


class Waits(NamedTuple):
    """For the program: sending waits for this process; None: no more."""

    process: MemberId | None
    why: str


Output: TypeAlias = Transmit | Dial | Delivered | Shown | Waits | Any


class Running:
    """The layers of one process; see the module.

    Promise: what the program sends (`send`) while a change is under way leaves in the next view,
    and while a layer is blocked once it is not, in its order. `frozen`: a change is under way.
    """

    def __init__(
        self, stack: Stack, me: MemberId, random: Callable[[str], Random], now_ms: int
    ) -> None:
        """`random` gives each layer a stream of chance of its own, by the layer's name."""
        self.me = me
        self.view = PeerView(ViewId(0, me), (me,), me)
        self.frozen = False
        self.layers = stack.fresh()
        self._codec = FrameCodec(self.layers)
        self._places = {id(layer): at for at, layer in enumerate(self.layers)}
        self._above = [
            next(((at, layer.up) for at, layer in self._those_with("up") if at >= first), None)
            for first in range(len(self.layers) + 1)
        ]
        """By place: the first layer from there upwards that looks at what comes in."""

        self._below = [
            next(
                ((at, layer.down) for at, layer in self._those_with("down")[::-1] if at < end), None
            )
            for end in range(len(self.layers) + 1)
        ]
        """By place: the first layer below it that looks at what goes out."""

        self._timed = [layer for _, layer in self._those_with("next_deadline_ms")]
        self._watching = self._those_with("acknowledged")
        self._outputs: list[Output] = []
        self._waiting: deque[tuple[Frame, To]] = deque()
        self._installing = False
        self._blocked: dict[str, Waits] = {}  # by the names of layers
        self._echoes: deque[tuple[int, Frame, MemberId]] = deque()
        for at, layer in enumerate(self.layers):
            layer.codec = self._codec
            layer.stack = self.layers
            layer.bind(me, self.view, self.layers[:at], random(layer.name))
        self._each(lambda layer: layer.start(now_ms), now_ms)
        self._settle(now_ms)

    def _those_with(self, method: str) -> list[tuple[int, Layer]]:
        """Return the layers that override a method, with their places."""
        return [
            (at, layer)
            for at, layer in enumerate(self.layers)
            if getattr(type(layer), method) is not getattr(Layer, method)
        ]

    @property
    def formed(self) -> PeerView:
        """The last view that was formed with this process: `view`, or one that is hidden from the
        program."""
        for layer in self.layers:
            if isinstance(layer, Membership):
                return layer.formed
        return self.view

    def take(self) -> list[Output]:
        """Return the outputs since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # -- Inputs --------------------------------------------------------------------------------

    def send(self, body: Body, now_ms: int, to: To = None, level: Level = Level.AGREED) -> None:
        """Send to all members of the view, or to some."""
        self._waiting.append((Frame(body, level=level), to))
        self._settle(now_ms)

    @property
    def waiting(self) -> int:
        """How many bodies wait, for the next view or for a blocked layer."""
        return len(self._waiting)

    def received(self, sender: MemberId, data: Body, now_ms: int) -> None:
        """Take what another process has transmitted. Raises `FormatError` on garbage."""
        self._hand_up(-1, self._codec.decode(data), sender, now_ms)
        self._settle(now_ms)

    def linked(self, process: MemberId, address: str, now_ms: int) -> None:
        self._each(lambda layer: layer.linked(process, address, now_ms), now_ms)
        self._settle(now_ms)

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> None:
        self._each(lambda layer: layer.unlinked(process, goodbye, now_ms), now_ms)
        self._settle(now_ms)

    def behind(self, is_behind: bool, now_ms: int) -> None:
        """The program is behind with receiving, or no longer."""
        self._each(lambda layer: layer.behind(is_behind, now_ms), now_ms)
        self._settle(now_ms)

    def found(self, now_ms: int) -> None:
        """This process holds the founding record."""
        self._each(lambda layer: layer.found(now_ms), now_ms)
        self._settle(now_ms)

    def listens(self, address: str, now_ms: int) -> None:
        """Others reach this process at this address."""
        self._each(lambda layer: layer.listens(address, now_ms), now_ms)
        self._settle(now_ms)

    def leave(self, now_ms: int) -> None:
        self._each(lambda layer: layer.leave(now_ms), now_ms)
        self._settle(now_ms)

    def act(self, layer: Layer, effects: Sequence[Effect], now_ms: int) -> None:
        """Carry out effects that a method of a layer, called by the driver, has returned: such
        methods are for what only this kind of layer can do."""
        self._carry_out(layer, effects, now_ms)
        self._settle(now_ms)

    def tick(self, now_ms: int) -> None:
        for layer in self._timed:
            due_ms = layer.next_deadline_ms()
            if due_ms is not None and due_ms <= now_ms:
                self._carry_out(layer, layer.tick(now_ms), now_ms)
                self._settle(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` is due."""
        due = [at for layer in self._timed if (at := layer.next_deadline_ms()) is not None]
        return min(due, default=None)

    # -- Effects -------------------------------------------------------------------------------

    def _each(self, call: Callable[[Layer], Sequence[Effect]], now_ms: int) -> None:
        for layer in self.layers:
            self._carry_out(layer, call(layer), now_ms)

    def _carry_out(self, layer: Layer, effects: Sequence[Effect], now_ms: int) -> None:
        if effects:
            self._carry_out_at(self._places[id(layer)], effects, now_ms)

    def _carry_out_at(
        self, at: int, effects: Sequence[Effect], now_ms: int, of_down: bool = False
    ) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Down:
                self._hand_down(at, effect.frame, effect.to, now_ms)  # type: ignore[union-attr]
            elif kind is not Up:
                self._carry_out_rarer(at, effect, now_ms)
            elif of_down:
                self._echoes.append((at, effect.frame, effect.sender))  # type: ignore[union-attr]
            else:
                self._hand_up(at, effect.frame, effect.sender, now_ms)  # type: ignore[union-attr]

    def _carry_out_rarer(self, at: int, effect: Effect, now_ms: int) -> None:
        match effect:
            case Acknowledged(stream):
                for place, above in self._watching:
                    if place > at and (effects := above.acknowledged(stream, now_ms)):
                        self._carry_out_at(place, effects, now_ms)
            case Install():
                self._install(effect, now_ms)
            case Freeze():
                self.frozen = True
                self._each(lambda layer: layer.freeze(now_ms), now_ms)
            case Suspect(process, why):
                for above in self.layers:
                    self._carry_out(above, above.suspected(process, why, now_ms), now_ms)
            case Change():
                self._each(lambda layer: layer.change(now_ms), now_ms)
            case Blocked(process, why):
                self._block(at, process, why, now_ms)
            case Tell(event):
                self._outputs.append(event)
            case Dial():
                self._outputs.append(effect)

    def _hand_up(self, at: int, frame: Frame, sender: MemberId, now_ms: int) -> None:
        while (above := self._above[at + 1]) is not None:
            at, up = above
            effects = up(frame, sender, now_ms)
            if len(effects) != 1 or type(effect := effects[0]) is not Up:
                self._carry_out_at(at, effects, now_ms)
                return
            frame, sender = effect.frame, effect.sender
        if frame.headers:
            raise FormatError(f"no layer takes the header {type(frame.headers[-1]).__name__}")
        closing = self._installing
        self._outputs.append(Delivered(sender, frame.body, frame.level, self.view.id, closing))

    def _hand_down(self, at: int, frame: Frame, to: To, now_ms: int) -> None:
        assert frame.control or not (self.frozen or self._installing), "frozen, and sends"
        while (below := self._below[at]) is not None:
            at, down = below
            effects = down(frame, to, now_ms)
            if len(effects) != 1 or type(effect := effects[0]) is not Down:
                self._carry_out_at(at, effects, now_ms, of_down=True)
                return
            frame, to = effect.frame, effect.to
        self._transmit(frame, self.view.members if to is None else to)

    def _transmit(self, frame: Frame, to: tuple[MemberId, ...]) -> None:
        others = to
        if self.me in to:
            # What a process sends to itself looks like what others get.
            self._echoes.append((-1, replace(frame, control=False), self.me))
            others = tuple(process for process in to if process != self.me)
        if others:
            self._outputs.append(Transmit(others, self._codec.encode_head(frame), frame.body))

    def _install(self, install: Install, now_ms: int) -> None:
        self._installing = True
        for layer in self.layers:
            self._carry_out(layer, layer.close(install.closing, now_ms), now_ms)
        self.view = install.view
        begun: list[tuple[Layer, Sequence[Effect]]] = []
        for layer in self.layers:
            summary = install.summary.get(layer.name)
            begun.append((layer, layer.install(install.view, summary, now_ms)))
        notes = read_notes(install.summary.get(Notes.name), install.view)
        self._outputs.append(Shown(install.view, install.changed, notes))
        for _, effects in begun:
            self._outputs += [effect.event for effect in effects if isinstance(effect, Tell)]
        self.frozen = self._installing = False
        for layer, effects in begun:
            rest = [effect for effect in effects if not isinstance(effect, Tell)]
            self._carry_out(layer, rest, now_ms)

    def _block(self, at: int, process: MemberId | None, why: str, now_ms: int) -> None:
        if process is None:
            self._blocked.pop(self.layers[at].name, None)
        else:
            self._blocked[self.layers[at].name] = Waits(process, why)
        self._outputs.append(next(iter(self._blocked.values()), Waits(None, "")))
        for above in self.layers[at + 1 :]:
            self._carry_out(above, above.blocked(process, now_ms), now_ms)

    def _settle(self, now_ms: int) -> None:
        """Finish an input: hand up what this process has sent itself, and send what may leave."""
        while True:
            if self._echoes:
                self._hand_up(*self._echoes.popleft(), now_ms)
            elif self._waiting and not (self.frozen or self._blocked):
                frame, to = self._waiting.popleft()
                self._hand_down(len(self.layers), frame, to, now_ms)
            else:
                return

    # -- For people ----------------------------------------------------------------------------

    def status(self) -> Iterator[tuple[str, Any]]:
        """Yield each layer's name and what it says of itself."""
        for layer in self.layers:
            yield layer.name, dict(layer.status())
