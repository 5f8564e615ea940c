"""The states of a channel's program: one that it takes over, and its own that it hands out.

A state belongs to a place in what the program receives. What came before that place is in the
state, and is dropped if the program has not received it; what comes behind waits until the state is
here. Until then nothing is dropped: an attempt that is given up leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    JMSError,
    ResourceAllocationError,
)
from antiphon.model.peer_views import MemberId, ViewId
from antiphon.peers.layers.layer import Effect
from antiphon.peers.layers.state import Begins, Outcome, Source, State

Call: TypeAlias = Callable[[State, int], Sequence[Effect]]


class Sink(Protocol):
    """Where a state is put that comes in parts."""

    def restart(self) -> None:
        """Begin anew."""

    def write(self, data: bytes | memoryview) -> None: ...


class TakingOver:
    """One attempt of the program to take over a state. `ended`: settled when `outcome` is known, or
    with the reason why there will be none."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.ended = Ticket()
        self.outcome: Outcome | None = None
        self.place: ViewId | None = None
        self.provider: MemberId | None = None
        self.size = 0
        self.over = False  # the program has what it wanted, or wants it no more

    def waits_for(self) -> str:
        """Return what an attempt waits for that has not ended, for people."""
        if self.provider is None:
            return "no member was there to hand one out"
        return f"{self.provider} has handed out {self.size} bytes of it"


class StatePlace(NamedTuple):
    """In what a channel receives: here belongs a state that is on its way."""

    taking: TakingOver
    place: ViewId

    @property
    def holds(self) -> bool:
        """Whether what is behind this has to wait."""
        return not self.taking.over and self.taking.place == self.place


class StateWanted(NamedTuple):
    """In what a channel receives: the program has to hand out its state as it is here."""

    place: ViewId


class States:
    """States, and requests for them, on their way between a program and the layer `State`.

    Threads: the program's call the first part, with the lock; the driver's calls the second one.
    """

    def __init__(self) -> None:
        self.arrived_bytes = 0  # ever
        self._taking: TakingOver | None = None
        self._known: TakingOver | None = None  # the one that the layer knows of
        self._calls: deque[Call] = deque()

    # -- For the program -------------------------------------------------------------------------

    def begin(self, sink: Sink) -> TakingOver:
        """Begin to take over a state, into `sink`."""
        if self._taking is not None:
            raise IllegalStateError("this channel takes over a state already")
        taking = self._taking = TakingOver(sink)

        def ask(layer: State, now_ms: int) -> Sequence[Effect]:
            self._known = taking
            return layer.ask(now_ms)

        self._calls.append(ask)
        return taking

    def end(self, taking: TakingOver) -> None:
        """The program has what it wanted, or wants it no more."""
        taking.over = True
        self._taking = None

        def give_up(layer: State, now_ms: int) -> Sequence[Effect]:
            self._known = None
            return layer.give_up(now_ms)

        self._calls.append(give_up)

    def hand_out(self, place: ViewId, source: Source | None) -> None:
        """Hand out the state as of this place; None: that is not possible."""
        self._calls.append(lambda layer, now_ms: layer.provide(place, source, now_ms))

    # -- For the driver --------------------------------------------------------------------------

    def next_call(self) -> Call | None:
        """Return what the layer has to do next. Needs no lock."""
        return self._calls.popleft() if self._calls else None

    def begins(self, begins: Begins) -> StatePlace | None:
        """A state begins to come; return its place."""
        taking = self._known
        if taking is None:
            return None
        taking.place, taking.provider, taking.size = begins.place, begins.provider, 0
        taking.sink.restart()
        return StatePlace(taking, begins.place)

    def arrived(self, data: bytes | memoryview) -> Ticket | None:
        """Take a part; return the ticket of the attempt if it cannot be kept."""
        self.arrived_bytes += len(data)
        taking = self._known
        if taking is None:
            return None
        taking.size += len(data)
        try:
            taking.sink.write(data)
        except OSError as error:
            self._known = None
            return _settled(taking, ResourceAllocationError(f"no room for the state: {error}"))
        return None

    def ended(self, outcome: Outcome) -> Ticket | None:
        """The attempt has ended; return its ticket."""
        taking, self._known = self._known, None
        if taking is None:
            return None
        taking.outcome = outcome
        return _settled(taking, _lost() if outcome is Outcome.LOST else None)

    def close(self, error: JMSError) -> Ticket | None:
        """The channel is over."""
        self._known, taking = None, self._taking
        if taking is None or taking.ended.done:
            return None
        return _settled(taking, error)


def _settled(taking: TakingOver, error: JMSError | None) -> Ticket:
    taking.ended.settle(error)
    return taking.ended


def _lost() -> ConnectionLostError:
    return ConnectionLostError(
        "the state is lost: every member that had it is gone, or could not hand it out",
        happened="no",
    )
