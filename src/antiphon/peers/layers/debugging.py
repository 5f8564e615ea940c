"""Layers for tests and debuggers: they watch the frames that come in, hold them, lose them.

They may stand anywhere in a stack, and in one process alone. Next to the network they are a bad
network; above a layer that promises `in view` they keep that promise: nothing is handed up during a
change of the view, and everything when the view is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Closing, Down, Effect, Frame, Layer, To, Up

SHUFFLE_MS = 20


class Passed(NamedTuple):
    """A frame that has passed by a `Tap`."""

    at_ms: int
    frame: Frame
    sender: MemberId | None  # None: this process, downwards
    to: To


class Tap(Layer):
    """Keeps the frames that pass by, in both directions: the last `keep` of them (`passed`).

    Promise: frames pass unchanged. Need: nothing. Limits: it keeps frames as the layers below and
    above have changed them; place it accordingly.
    """

    name = "tap"
    local = True

    def __init__(self, keep: int = 1000) -> None:
        self.passed: deque[Passed] = deque(maxlen=keep)
        self._counts = {"down": 0, "up": 0}

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        self._counts["down"] += 1
        self.passed.append(Passed(now_ms, frame, None, to))
        return (Down(frame, to),)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        self._counts["up"] += 1
        self.passed.append(Passed(now_ms, frame, sender, (self.me,)))
        return (Up(frame, sender),)

    def status(self) -> Mapping[str, Any]:
        return self._counts

    def options(self) -> Mapping[str, Any]:
        return {"keep": self.passed.maxlen}


class _Late(Layer):
    """The base of layers that hand frames up later than they came. `frozen`: no frame may be handed
    up now; it is never set next to the network, where views mean nothing."""

    local = True
    frozen = False
    _above_views = False

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._above_views = any("in view" in layer.gives for layer in below)

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self.frozen = self._above_views
        return ()

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        return self.hand_out() if self._above_views else ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        self.frozen = False
        return super().install(view, summary, now_ms)

    def hand_out(self) -> Sequence[Effect]:
        """Hand up all waiting frames."""
        raise NotImplementedError


class Hold(_Late):
    """Holds frames that come in until a test releases them.

    Promise: from `hold` to `unhold` frames wait (`held`), also this process's own; they can be
    released one at a time or all, reversed and shuffled. Hand the results of its methods to
    `Running.act`. Need: nothing. Limits: it holds without bound, and no frame can be released
    during a change of the view, when it stands above layers that promise `in view`.
    """

    name = "hold"

    def __init__(self) -> None:
        self.held: list[Up] = []
        self._which: Callable[[Frame, MemberId], bool] | None = None

    def hold(self, which: Callable[[Frame, MemberId], bool] = lambda frame, sender: True) -> None:
        """Hold the frames that come from now on, or those for which `which` returns True."""
        self._which = which

    def unhold(self) -> Sequence[Effect]:
        """Hold no more, and release the held frames."""
        self._which = None
        return self.release()

    def release(self, at: int | None = None) -> Sequence[Effect]:
        """Release all frames that are held, or the one at this place in `held`."""
        if self.frozen:
            return ()
        return self.hand_out() if at is None else (self.held.pop(at),)

    def reverse(self) -> None:
        """Reverse the order of the held frames."""
        self.held.reverse()

    def shuffle(self) -> None:
        """Shuffle the held frames."""
        self.random.shuffle(self.held)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if self._which is None or not self._which(frame, sender):
            return (Up(frame, sender),)
        self.held.append(Up(frame, sender))
        return ()

    def hand_out(self) -> Sequence[Effect]:
        held, self.held = self.held, []
        return held

    def status(self) -> Mapping[str, Any]:
        return {"held": len(self.held)}


class Shuffle(_Late):
    """Hands frames up in a random order.

    Promise: each frame is handed up once, when `width` others wait or after `SHUFFLE_MS` without a
    new one. Need: nothing. Limits: a frame is overtaken by few others, not by all.
    """

    name = "shuffle"

    def __init__(self, width: int = 4) -> None:
        self._width = width
        self._waiting: list[Up] = []
        self._due_ms: int | None = None

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        self._waiting.append(Up(frame, sender))
        self._due_ms = now_ms + SHUFFLE_MS
        if self.frozen or len(self._waiting) <= self._width:
            return ()
        return (self._waiting.pop(self.random.randrange(len(self._waiting))),)

    def tick(self, now_ms: int) -> Sequence[Effect]:
        return self.hand_out()

    def hand_out(self) -> Sequence[Effect]:
        waiting, self._waiting = self._waiting, []
        self._due_ms = None
        self.random.shuffle(waiting)
        return waiting

    def next_deadline_ms(self) -> int | None:
        return None if self.frozen else self._due_ms

    def options(self) -> Mapping[str, Any]:
        return {"width": self._width}


class Delay(_Late):
    """Hands frames up later, by a random time for each.

    Promise: each frame is handed up once, within `max_ms`, and those of one sender in their order,
    as by a slow link. Need: nothing. Limits: time passes only when the stack is ticked.
    """

    name = "delay"

    def __init__(self, max_ms: int) -> None:
        self._max_ms = max_ms
        self._waiting: list[tuple[int, int, Up]] = []
        self._latest_ms: dict[MemberId, int] = {}
        self._numbers = count()

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        drawn_ms = now_ms + self.random.randint(0, self._max_ms)
        due_ms = self._latest_ms[sender] = max(drawn_ms, self._latest_ms.get(sender, 0))
        heappush(self._waiting, (due_ms, next(self._numbers), Up(frame, sender)))
        return ()

    def tick(self, now_ms: int) -> Sequence[Effect]:
        due = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            due.append(heappop(self._waiting)[2])
        return due

    def hand_out(self) -> Sequence[Effect]:
        waiting, self._waiting = self._waiting, []
        return [up for _, _, up in sorted(waiting)]

    def next_deadline_ms(self) -> int | None:
        return self._waiting[0][0] if self._waiting and not self.frozen else None

    def options(self) -> Mapping[str, Any]:
        return {"max_ms": self._max_ms}


class Drop(Layer):
    """Loses a random `share` of the frames that come in.

    Promise: those that are not lost pass unchanged. Need: nothing. Limits: `share` may be changed
    at any time; the new one applies to frames that come later.
    """

    name = "drop"
    local = True

    def __init__(self, share: float) -> None:
        self.share = share
        self._dropped = 0

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if self.random.random() >= self.share:
            return (Up(frame, sender),)
        self._dropped += 1
        return ()

    def status(self) -> Mapping[str, Any]:
        return {"dropped": self._dropped}

    def options(self) -> Mapping[str, Any]:
        return {"share": self.share}


class Duplicate(Layer):
    """Hands a random `share` of the frames up twice.

    Promise: each frame is handed up once or twice, unchanged. Need: nothing. Limits: `share` may be
    changed at any time; a copy follows its frame at once, unless a `Shuffle` above separates them.
    """

    name = "duplicate"
    local = True

    def __init__(self, share: float) -> None:
        self.share = share

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        times = 2 if self.random.random() < self.share else 1
        return times * (Up(frame, sender),)

    def options(self) -> Mapping[str, Any]:
        return {"share": self.share}
