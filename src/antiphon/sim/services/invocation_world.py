"""One run of a passively replicated service that calls others, and the seven properties of it.

There are two targets, as in the thesis: `flights` keeps a row locked from a call until its commit
or abort, `hotel` books at once and can undo. Messages to and from them are slow, and
acknowledgements get lost. A primary that stands still sends its call when it goes on: by then
another one may have undone it.

Promise: `check` judges by the group's log and the targets alone, not by the replicas' own records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

from antiphon.blocks.pure.passive import (
    Call,
    End,
    Fate,
    Invocation,
    Kind,
    PassiveReplica,
    Undo,
    Update,
)
from antiphon.blocks.pure.service import ReplicatedService
from antiphon.formats import values
from antiphon.sim.services.group_world import (
    ON_THE_WAY_S,
    Fault,
    GroupMessage,
    Plan,
    ServiceProcess,
    View,
)
from antiphon.sim.services.passive_world import STEP, PassiveWorld
from antiphon.sim.violations import ViolationError

LOST = 0.2
"""The share of the targets' acknowledgements that do not arrive."""

AGAIN_S = 0.3
FLIGHTS, HOTEL = "flights", "hotel"
ROWS = ("red", "blue")
KINDS = {FLIGHTS: Kind.PESSIMISTIC, HOTEL: Kind.OPTIMISTIC}


class RefusedError(Exception):
    """A target refuses a call."""


# -- Targets --------------------------------------------------------------------------------------


class Flights:
    """Pessimistic: a call locks its row until it is committed or aborted."""

    def __init__(self) -> None:
        self.prepared: dict[str, str] = {}  # calls, and the row that each has locked
        self.committed: dict[str, str] = {}
        self.aborted: set[str] = set()
        self._waiting: list[tuple[str, str, Callable[[Any, Exception | None], None]]] = []

    def call(self, id: str, row: str, answer: Callable[[Any, Exception | None], None]) -> None:
        if id in self.aborted:
            answer(None, RefusedError("it was aborted before it came"))
        elif row in self.prepared.values():
            self._waiting.append((id, row, answer))
        else:
            self.prepared[id] = row
            answer(f"a seat in {row}", None)

    def end(self, id: str, fate: Fate, _: Any) -> None:
        if fate is Fate.COMMIT:
            if id in self.prepared:
                self.committed[id] = self.prepared.pop(id)
            elif id not in self.committed:
                raise ViolationError(f"a call is to be committed that was not prepared: {id}")
        else:
            if id in self.committed:
                raise ViolationError(f"a call is to be aborted that was committed: {id}")
            self.prepared.pop(id, None)
            self.aborted.add(id)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self.call(*one)

    def has_effect(self, id: str) -> bool:
        return id in self.committed

    def is_open(self, id: str) -> bool:
        return id in self.prepared


class Hotel:
    """Optimistic: it books at once; a compensation undoes it, which may come before the call."""

    def __init__(self) -> None:
        self.booked: dict[str, Any] = {}
        self.compensated: set[str] = set()

    def call(self, id: str, trip: Any, answer: Callable[[Any, Exception | None], None]) -> None:
        if id in self.compensated:
            answer(None, RefusedError("it was undone before it came"))
        else:
            self.booked[id] = trip
            answer(f"a room for {trip}", None)

    def end(self, id: str, fate: Fate, compensation: Any) -> None:
        assert fate is Fate.UNDO
        assert compensation is not None
        self.booked.pop(id, None)
        self.compensated.add(id)

    def has_effect(self, id: str) -> bool:
        return id in self.booked

    def is_open(self, id: str) -> bool:
        return False


class Trips(ReplicatedService):
    """Books a flight, of its own choice, and a room; and sometimes raises afterwards."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self.trips: dict[str, Any] = {}
        self.begun = 0

    def apply(self, command: Any) -> Any:
        self.begun += 1
        row = self._draw.choice(ROWS)
        seat = yield Invocation(FLIGHTS, row)
        room = yield Invocation(HOTEL, command, compensation=("cancel", command))
        if self._draw.random() < 0.15:
            raise RuntimeError("the traveller has changed his mind")
        self.trips[command] = (seat, room)
        return seat, room

    def snapshot(self) -> bytes:
        return values.encode((self.trips, self.begun))

    def restore(self, data: bytes) -> None:
        trips, self.begun = values.decode(data)
        self.trips = dict(trips)


# -- The world ------------------------------------------------------------------------------------


class Strike(NamedTuple):
    """A fault: at this step of the run, the primary crashes or stands still."""

    step: int
    kind: str
    lasts: float


class InvocationWorld(PassiveWorld):
    """Passive replicas that book trips at simulated targets; all promises of replicated invocation
    are judged in the end."""

    def __init__(self, plan: Plan, strike: Strike | None = None) -> None:
        if strike is not None:
            fault = Fault(0.0, strike.kind, f"{STEP}{strike.step}", strike.lasts)
            plan = plan._replace(faults=(*plan.faults, fault))
        super().__init__(self._new_service, plan, KINDS)
        self.flights, self.hotel = Flights(), Hotel()
        self.targets: dict[str, Flights | Hotel] = {FLIGHTS: self.flights, HOTEL: self.hotel}
        self._services = 0

    def run(self) -> None:
        super().run()
        check(self)

    def _new_service(self) -> Trips:
        self._services += 1
        return Trips(self._draw(f"service {self._services}"))

    def log(self) -> Iterator[tuple[int, Any]]:
        """Yield the messages of the replicas in the group, each with the view in which it was
        delivered."""
        view = 0
        for entry in self._entries:
            if isinstance(entry, View):
                view = entry.number
            elif isinstance(entry, GroupMessage) and entry.client < 0:
                yield view, values.decode(entry.data)

    def cores(self) -> list[tuple[str, PassiveReplica]]:
        return [(r.place, r.core) for r in self._replicas if r.up and r.core is not None]

    # -- Targets --------------------------------------------------------------------------------

    def _at_target(self, replica: ServiceProcess, effect: Call | End) -> None:
        if isinstance(effect, Call):
            self._tell(replica.place, f"calls {effect.target} ({effect.id})")
            self._leave(replica, partial(self._call, replica, replica.life, effect))
        else:
            self._tell(replica.place, f"ends {effect.id}: {effect.fate.value}")
            self._leave(replica, partial(self._end, replica, replica.life, effect))

    def _call(self, replica: ServiceProcess, life: int, call: Call) -> None:
        def answer(reply: Any, error: Exception | None) -> None:
            self._after(
                ON_THE_WAY_S,
                f"from {call.target}",
                lambda: self._called(replica, life, call, reply, error),
            )

        self._tell(call.target, f"gets {call.id}")
        self.targets[call.target].call(call.id, call.request, answer)

    def _called(
        self, replica: ServiceProcess, life: int, call: Call, reply: Any, error: Exception | None
    ) -> None:
        if replica.life != life or not replica.up or replica.core is None:
            return
        if self._is_held(replica):
            again = (replica, life, call, reply, error)
            self._at(replica.held_until, lambda: self._called(*again))
            return
        self._carry_out(replica, replica.core.called(call.id, reply, error))

    def _end(self, replica: ServiceProcess, life: int, end: End) -> None:
        self._tell(end.target, f"is told: {end.fate.value} {end.id}")
        self.targets[end.target].end(end.id, end.fate, end.compensation)
        if self._draw(f"acknowledged by {end.target}").random() < LOST:
            self._at(self.now + AGAIN_S, lambda: self._end_again(replica, life, end))
        else:
            self._after(ON_THE_WAY_S, f"from {end.target}", lambda: self._ended(replica, life, end))

    def _end_again(self, replica: ServiceProcess, life: int, end: End) -> None:
        if replica.life == life and replica.up:
            self._leave(replica, lambda: self._end(replica, life, end))

    def _ended(self, replica: ServiceProcess, life: int, end: End) -> None:
        if replica.life == life and replica.up and replica.core is not None:
            if self._is_held(replica):
                self._at(replica.held_until, lambda: self._ended(replica, life, end))
                return
            self._carry_out(replica, replica.core.ended(end.id))


# -- Properties 1 to 7 ----------------------------------------------------------------------------


def check(world: InvocationWorld) -> None:
    """Check the properties after the run, when all messages have arrived and all replicas are up.
    Raise `ViolationError`."""
    updates: dict[tuple[str, int], Update] = {}
    undos: list[Undo] = []
    for view, said in world.log():
        match said:
            case ("undo", *fields):
                undos.append(Undo(*fields))
                if undos[-1].parent in updates and undos[-1].view == view:
                    raise ViolationError(f"3, sequence: a call after the update: {undos[-1]}")
            case ("update", *fields):
                update = Update(*fields)
                if update.view == view:
                    updates.setdefault((update.client, update.number), update)
    for undo in undos:
        _check_call(world, undo, updates.get(undo.parent))
    _check_replicas(world, updates)


def _check_call(world: InvocationWorld, undo: Undo, update: Update | None) -> None:
    target = world.targets[undo.target]
    if target.is_open(undo.id):
        raise ViolationError(f"6 and 7, termination: {undo.id} is still open at {undo.target}")
    lasts = update is not None and undo.id in update.lasting
    if lasts and not target.has_effect(undo.id):
        raise ViolationError(
            f"7, remote commit atomicity: {undo.id} has no effect at {undo.target}"
        )
    if not lasts and target.has_effect(undo.id):
        raise ViolationError(
            f"1, 2 and 6, abort atomicity: {undo.id} has an effect at {undo.target}"
        )


def _check_replicas(world: InvocationWorld, updates: dict[tuple[str, int], Update]) -> None:
    cores = world.cores()
    states = {place: core.service.snapshot() for place, core in cores}
    if len(set(states.values())) > 1:
        raise ViolationError(f"4, termination: replicas have different states: {states}")
    committed = sum(update.commits for update in updates.values())
    for place, core in cores:
        if core.unended:
            raise ViolationError(f"6 and 7, termination: {place} still has {core.unended}")
        trips, begun = values.decode(core.service.snapshot())
        if len(trips) != committed:
            raise ViolationError(
                f"5, non-triviality: {committed} committed, {place} has {len(trips)}"
            )
        if begun != committed:
            raise ViolationError(
                f"1, abort atomicity: {place} has traces of {begun - committed} others"
            )
