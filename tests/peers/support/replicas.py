"""Programs that keep a table of what they were handed out, hand it out, and take it over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from antiphon.model.peer_views import ViewId
from antiphon.peers.layers.layer import Effect
from antiphon.peers.layers.state import Arrived, Begins, Ended, HandOut, Outcome, State
from antiphon.peers.stack.running import Delivered

Act = Callable[[Callable[[State], Sequence[Effect]]], None]


class Text:
    """A state in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.closed = False
        self.largest = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, start: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return self.data[start : start + size]

    def close(self) -> None:
        self.closed = True


class Replica:
    """One program: its `table`, with the state that it takes over in the place of what came before,
    and behind it what came later."""

    def __init__(self, act: Act) -> None:
        """`act` has the state layer of this process do something."""
        self.table: list[str] = []
        self.outcomes: list[Outcome] = []
        self.places: list[ViewId] = []
        """Of the states that began to come."""

        self.asked: list[ViewId] = []
        """Places as of which it has to hand out its state, if `answers` is False."""

        self.sources: dict[ViewId, Text] = {}
        self.answers = True
        self.padding = b""
        """In front of each state that it hands out: it is large then."""

        self._act = act
        self._at: dict[ViewId, bytes] = {}
        self._parts = b""
        self._held: list[str] | None = None  # since the first place
        self._behind = 0  # so many of these are before the newest place

    def told(self, event: Any) -> None:
        """Take what the stack tells."""
        match event:
            case Delivered(_, body):
                table = self.table if self._held is None else self._held
                table.append(bytes(body).decode())
            case HandOut(place):
                self._at[place] = self.padding + b"|" + " ".join(self.table).encode()
                self.asked.append(place)
                if self.answers:
                    self.hand_out()
            case Begins(place):
                self.places.append(place)
                self._held = self._held or []
                self._parts, self._behind = b"", len(self._held)
            case Arrived(data):
                self._parts += bytes(data)
            case Ended(outcome):
                self.outcomes.append(outcome)
                held, self._held = self._held or [], None
                if outcome is Outcome.WHOLE:
                    state = self._parts.rpartition(b"|")[2].decode()
                    self.table = [*state.split(), *held[self._behind :]]
                else:
                    self.table += held

    def hand_out(self) -> None:
        """Hand out the state as it was when it was asked for."""
        for place in self.asked:
            source = self.sources[place] = Text(self._at[place])
            self._act(lambda state, p=place, s=source: state.provide(p, s, 0))
        self.asked.clear()

    def fail(self) -> None:
        """Be unable to hand out the state."""
        for place in self.asked:
            self._act(lambda state, p=place: state.provide(p, None, 0))
        self.asked.clear()
