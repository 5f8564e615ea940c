"""The state of simulated members of a group: a replica that knows which messages it has handled
since its group began, hands that out to others, and takes it over from them.

It shows whether a state was taken at the right cut: it must have exactly the messages between its
origin and the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.state_transfer import (
    Began,
    Chunk,
    Handout,
    Missing,
    Ready,
    StateEvent,
)
from antiphon.sim.violations import ViolationError

PIECE_BYTES = 30


class Replica:
    """The messages that a member has handled; they survive its program if the member is durable."""

    def __init__(self) -> None:
        self.joined = (0, 0)  # the view with which it began, and its position
        self.origin = 0  # it has all messages after this position
        self.positions: set[int] = set()

    def begin(self, view: int, position: int, cut: int) -> None:
        """Begin as a new member, in this view, unless it has begun already. `cut`: of the state
        that it has taken over; < 0: it has none."""
        if self.joined != (view, position):
            self.joined = (view, position)
            if cut < 0:
                self.start_over()
            elif self.origin > position:
                raise ViolationError(f"a state from {self.origin} on, for who joined at {position}")

    def start_over(self) -> None:
        self.origin, self.positions = self.joined[1], set()

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((self.origin, sorted(self.positions)))

    def take_over(self, data: bytes, cut: int, positions: list[int]) -> None:
        """Take over a state, which must have exactly the messages up to its cut. `positions`: all
        messages of the group."""
        origin, mine = msgspec.msgpack.decode(data, type=tuple[int, list[int]])
        expected = [p for p in positions if origin < p <= cut]
        if mine != expected:
            raise ViolationError(f"a state with {mine} is cut at {cut}: it should be {expected}")
        self.origin, self.positions = origin, set(mine)


class Taker:
    """The state that one member waits for, chunk by chunk."""

    def __init__(self, replica: Replica, positions: Callable[[], list[int]]) -> None:
        self.cut = -1  # of the state that was taken over
        self.known = False  # whether there is one
        self._replica = replica
        self._positions = positions
        self._data = b""

    def event(self, event: StateEvent, conversation: Conversation) -> None:
        if isinstance(event, Began):
            self._data = b""
        elif isinstance(event, Chunk):
            self._data += event.data
            conversation.state_taken(event.consumer, event.serial, event.seq)
        elif isinstance(event, Ready):
            self._replica.take_over(self._data, event.position, self._positions())
            self.cut, self.known = event.position, True
        elif isinstance(event, Missing):
            self._replica.start_over()
            self.known = True


class Giver:
    """Hands out a replica's state, as long as a member wants it."""

    def __init__(
        self,
        replica: Replica,
        conversation: Conversation,
        handout: Handout,
        done: Callable[[], None],
    ) -> None:
        self._conversation = conversation
        self._handout = handout
        self._done = done
        self._chunks = _chunks(replica.encode())
        self._go_on()

    def _go_on(self) -> None:
        while not self._handout.over and not self._conversation.over:
            if not self._handout.has_room:
                self._handout.room().watch(self._go_on)
                return
            self._conversation.hand(self._handout, *next(self._chunks))
        self._done()


def _chunks(data: bytes) -> Iterator[tuple[bytes, bool]]:
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES], at + PIECE_BYTES >= len(data)
