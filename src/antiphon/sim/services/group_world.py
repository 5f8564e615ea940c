"""A simulated group, with its replicas, clients and faults, but without the replicas' work.

The group keeps Antiphon's promises: all replicas get the same messages and views in the same order,
each in its own time. For a new one a single other, drawn by lot, is asked for its state, at its
place in that order; if that one is gone before it has answered, another is asked, later on.
Replicas crash, come back empty, pause, are cut off, and are suspected, rightly or not. Clients
crash, are cut off, and submit commands again that have no answer. A plan decides all of it, and
every delay has its own stream of chance, so a smaller plan runs as the large one did.

Subclasses have the replicas' work (`active_world.py`, `invocation_world.py`).
"""

from __future__ import annotations

import heapq
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, NamedTuple

from antiphon.blocks.pure.service import ReplicatedService, Requests, decode_outcome
from antiphon.checkers.histories import Operation, Raised
from antiphon.sim.seeds import stream
from antiphon.sim.services.states import difference, restored_difference
from antiphon.sim.violations import ViolationError

RESUBMIT_S = 0.5
SUSPECT_S = (0.2, 0.6)
ON_THE_WAY_S = (0.0005, 0.02)
BETWEEN_S = (0.0, 0.004)
"""From the end of one entry to the next, at a replica."""

PATIENCE_S = 600.0
"""A client without an answer by then will never get one."""

MakeService = Callable[[], ReplicatedService]


class Op(NamedTuple):
    """A command, with the time when a client submits it."""

    at: float
    client: int
    command: Any


class Fault(NamedTuple):
    """A fault of a process or client: its kind, when it begins, and how long it lasts."""

    at: float
    kind: str  # crash, pause, cut
    whom: str  # "replica 1", "client 2"
    lasts: float


class Plan(NamedTuple):
    """A run, as decided before it begins: the same plan gives the same run."""

    seed: int
    replicas: int
    clients: int
    ops: tuple[Op, ...]
    faults: tuple[Fault, ...]
    probes: tuple[Any, ...]  # commands at the end, when all is well again


class State(NamedTuple):
    """The state of a service, as its snapshot has it."""

    place: str
    state: bytes


class Line(NamedTuple):
    """A line of the story."""

    at: float
    who: str
    what: str


class View(NamedTuple):
    """An entry of the order: the members from here on, and the new ones among them."""

    number: int
    members: tuple[str, ...]
    joined: str


class StateRequest(NamedTuple):
    """At this place of the order one replica hands out its state to another."""

    whose: str
    to: str


class GroupMessage(NamedTuple):
    """A message to the group."""

    data: bytes
    client: int  # of a request; -1: a message of a replica
    life: int


class ServiceProcess:
    """A simulated process with a replica of the service, through all its lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.life = 0
        self.core: Any = None  # its pure replica; None: it has no state (yet)
        self.up = False
        self.held_until = 0.0  # paused, or cut off
        self.busy_until = 0.0  # with a command that takes time
        self.at = 0  # the entry that it handles next
        self.busy = False  # a delivery is due

    @property
    def place(self) -> str:
        return f"replica {self.number}"

    @property
    def name(self) -> str:
        return f"{self.place}.{self.life}"


class Client:
    """A simulated client, through all its lives: it submits one command after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.life = 1
        self.up = True
        self.held_until = 0.0
        self.requests = Requests(self.name)
        self.waiting: tuple[int, Op, float] | None = None  # request's number, its op, since when
        self.ops: list[Op] = []

    @property
    def place(self) -> str:
        return f"client {self.number}"

    @property
    def name(self) -> str:
        return f"client {self.number}.{self.life}"


class GroupWorld:
    """A group, its replicas and clients, from a plan. Subclasses handle views and messages at a
    replica; `run` raises `ViolationError` if a promise is broken."""

    def __init__(self, make: MakeService, plan: Plan) -> None:
        self._make = make
        self.refused: list[str] = []  # sentences of calls that the guard has refused
        self._plan = plan
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._draws: dict[str, Random] = {}
        self.now = 0.0
        self.story: list[Line] = []
        self.history: list[Operation] = []
        self._entries: list[View | StateRequest | GroupMessage] = []
        self._asked: dict[str, str] = {}  # replica without a state -> the one that was asked for it
        self._members: tuple[str, ...] = ()
        self._views = 0
        self._replicas = [ServiceProcess(n + 1) for n in range(plan.replicas)]
        self._clients = [Client(n + 1) for n in range(plan.clients + 1)]  # the last one probes

    # -- The run --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the plan. Raise `ViolationError`."""
        first = self._replicas[0]
        first.up, first.life = True, 1
        first.core = self._new_core(first)
        self._change_view((first.name,), first.name)
        for replica in self._replicas[1:]:
            self._start(replica)
        for op in self._plan.ops:
            self._at(op.at, partial(self._give, self._clients[op.client], op))
        for fault in self._plan.faults:
            self._schedule(fault)
        self._run_all()
        self._probe()
        self._run_all()
        self._check_answered()
        self._check_states()

    def _run_all(self) -> None:
        while self._heap:
            self.now, _, call = heapq.heappop(self._heap)
            if self.now > PATIENCE_S:
                break
            call()

    def _probe(self) -> None:
        """Submit commands in the end, when all replicas are up and have all messages: they must
        agree on the outcomes."""
        for command in self._plan.probes:
            self._give(self._clients[-1], Op(self.now, len(self._clients) - 1, command))

    def close(self) -> None:
        """Free resources, after the run was judged."""

    def _check_answered(self) -> None:
        for client in self._clients:
            if client.up and client.waiting is not None:
                _, op, since = client.waiting
                raise ViolationError(
                    f"no answer: {client.name} waits for that of {op.command!r} since {since:.3f}"
                )

    # -- Time and chance ------------------------------------------------------------------------

    def _at(self, at: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(at, self.now), self._count, call))

    def _after(self, span: tuple[float, float], draw: str, call: Callable[[], None]) -> None:
        self._at(self.now + self._draw(draw).uniform(*span), call)

    def _draw(self, name: str) -> Random:
        if name not in self._draws:
            self._draws[name] = stream(self._plan.seed, name)
        return self._draws[name]

    def _tell(self, who: str, what: str) -> None:
        self.story.append(Line(self.now, who, what))

    # -- The group ------------------------------------------------------------------------------

    def _change_view(self, members: tuple[str, ...], joined: str = "") -> None:
        self._members = members
        self._views += 1
        self._append(View(self._views, members, joined))

        for name, whose in [*self._asked.items()]:
            if name not in members:
                del self._asked[name]
            elif whose not in members:
                self._ask(name)
        if joined and len(members) > 1:
            self._ask(joined)

    def _ask(self, name: str) -> None:
        """Ask a replica that has the state, on behalf of a new one."""
        whose = [r.name for r in self._replicas if r.core is not None and r.name in self._members]
        self._asked[name] = self._draw(f"whose state for {name}").choice(whose)
        self._append(StateRequest(self._asked[name], name))

    def _append(self, entry: View | StateRequest | GroupMessage) -> None:
        self._entries.append(entry)
        for replica in self._replicas:
            self._wake(replica)

    def _join(self, replica: ServiceProcess, life: int) -> None:
        if replica.life != life or not replica.up:
            return
        if self._is_held(replica):
            self._at(replica.held_until, lambda: self._join(replica, life))
            return
        self._tell(replica.place, "joins")
        replica.at = len(self._entries)
        self._change_view((*self._members, replica.name), replica.name)

    def _suspect(self, name: str) -> None:
        """Remove a replica that was silent for too long, unless it has the last state."""
        if name in self._members and self._others_with_state(name):
            self._tell(name, "is taken for dead and removed")
            self._change_view(tuple(m for m in self._members if m != name))

    def _others_with_state(self, name: str) -> bool:
        others = (r for r in self._replicas if r.name in self._members and r.name != name)
        return any(r.core is not None for r in others)

    # -- For subclasses --------------------------------------------------------------------------

    def _new_core(self, replica: ServiceProcess) -> Any:
        raise NotImplementedError

    def _handle_view(self, replica: ServiceProcess, core: Any, view: View) -> None:
        raise NotImplementedError

    def _handle(self, replica: ServiceProcess, core: Any, said: GroupMessage) -> None:
        raise NotImplementedError

    def _check_states(self) -> None:
        """Compare the states after the run, when all replicas are up and have all messages. Raise
        `ViolationError`."""
        raise NotImplementedError

    # -- Replicas -------------------------------------------------------------------------------

    def _start(self, replica: ServiceProcess) -> None:
        """Begin a new life, without a state."""
        replica.up, replica.core, replica.busy = True, None, False
        replica.busy_until = 0.0
        self._forget(replica)
        replica.life += 1
        life = replica.life
        self._after(ON_THE_WAY_S, replica.place, lambda: self._join(replica, life))

    def _forget(self, replica: ServiceProcess) -> None:
        """End the work of its former life."""

    def _is_held(self, one: ServiceProcess | Client) -> bool:
        return self.now < one.held_until

    def _wake(self, replica: ServiceProcess) -> None:
        if not replica.busy and replica.core is not None and replica.at < len(self._entries):
            replica.busy = True
            life = replica.life
            self._after(BETWEEN_S, replica.place, lambda: self._deliver(replica, life))

    def _deliver(self, replica: ServiceProcess, life: int) -> None:
        if replica.life != life or not replica.up or replica.core is None:
            return
        if (until := max(replica.held_until, replica.busy_until)) > self.now:
            self._at(until, lambda: self._deliver(replica, life))
            return
        replica.busy = False
        entry = self._entries[replica.at]
        replica.at += 1
        if isinstance(entry, View):
            self._view(replica, replica.core, entry)
        elif isinstance(entry, StateRequest):
            if entry.whose == replica.name:
                self._provide(replica, replica.core, entry.to)
        else:
            self._handle(replica, replica.core, entry)
        self._wake(replica)

    def _view(self, replica: ServiceProcess, core: Any, view: View) -> None:
        if replica.name not in view.members:
            self._tell(replica.place, "finds itself removed, and begins again")
            self._start(replica)
            return
        with self._users_code(replica, "is told of a view"):
            self._handle_view(replica, core, view)

    def _provide(self, replica: ServiceProcess, core: Any, name: str) -> None:
        """Hand out the state with all entries before the request; the new replica goes on behind
        them."""
        with self._users_code(replica, "gives its state"):
            state = core.snapshot()
        source, at = replica.place, replica.at
        self._after(
            ON_THE_WAY_S, f"state {source}", lambda: self._take_over(name, state, source, at)
        )

    def _take_over(self, name: str, state: bytes, source: str, at: int) -> None:
        for replica in self._replicas:
            if replica.name == name and replica.up and replica.core is None:
                self._tell(replica.place, f"takes over the state of {source}")
                self._asked.pop(name, None)
                core = self._new_core(replica)
                with self._users_code(replica, "takes over a state"):
                    core.restore(state)
                replica.core, replica.at, replica.busy = core, at, False
                self._wake(replica)

    def _reply(
        self, replica: ServiceProcess, life: int, entry: GroupMessage, number: int, outcome: bytes
    ) -> None:
        if replica.life != life or not replica.up:
            return  # it crashed before it could
        client = self._clients[entry.client]
        self._after(
            ON_THE_WAY_S,
            f"to {client.place}",
            lambda: self._answered(client, entry.life, number, outcome),
        )

    # -- Clients --------------------------------------------------------------------------------

    def _give(self, client: Client, op: Op) -> None:
        client.ops.append(op)
        self._next_op(client)

    def _next_op(self, client: Client) -> None:
        if client.waiting is not None or not client.up or not client.ops:
            return
        op = client.ops.pop(0)
        request = client.requests.next(op.command)
        client.waiting = (request.number, op, self.now)
        self._tell(client.place, f"submits {op.command!r}")
        self._submit(client, client.life, request.number, request.encode())

    def _submit(self, client: Client, life: int, number: int, data: bytes) -> None:
        if client.life != life or client.waiting is None or client.waiting[0] != number:
            return
        place = f"from {client.place}"
        client_number = self._clients.index(client)
        entry = GroupMessage(data, client_number, life)
        self._after(ON_THE_WAY_S, place, lambda: self._accept(client, life, entry))
        self._at(self.now + RESUBMIT_S, lambda: self._submit_again(client, life, number, data))

    def _submit_again(self, client: Client, life: int, number: int, data: bytes) -> None:
        if client.life == life and client.waiting is not None and client.waiting[0] == number:
            self._tell(client.place, f"submits {client.waiting[1].command!r} again")
            self._submit(client, life, number, data)

    def _accept(self, client: Client, life: int, entry: GroupMessage) -> None:
        """Let a message arrive: at once if it can, or, if its client is gone, perhaps."""
        if self._is_held(client):
            self._at(client.held_until, lambda: self._accept(client, life, entry))
        elif client.life == life or self._draw(f"last words {client.place}").random() < 0.5:
            self._append(entry)

    def _answered(self, client: Client, life: int, number: int, outcome: bytes) -> None:
        if client.life != life or client.waiting is None or client.waiting[0] != number:
            return
        if self._is_held(client):
            self._at(client.held_until, lambda: self._answered(client, life, number, outcome))
            return
        _, op, since = client.waiting
        client.waiting = None
        client.requests.done(number)
        self._tell(client.place, f"gets {shown(outcome)}")
        self._saw(client, op, result_of(outcome), since, self.now)
        self._next_op(client)

    def _saw(
        self, client: Client, op: Op, result: Any, called: float, returned: float | None
    ) -> None:
        name = f"{client.number}.{client.life}"
        self.history.append(Operation(name, op.command, result, called, returned))

    # -- Faults ---------------------------------------------------------------------------------

    def _schedule(self, fault: Fault) -> None:
        self._at(fault.at, partial(self._strike, fault))

    def _strike(self, fault: Fault) -> None:
        everybody: list[ServiceProcess | Client] = [*self._replicas, *self._clients]
        whom = next(one for one in everybody if one.place == fault.whom)
        if not whom.up or self._is_held(whom):
            return
        if isinstance(whom, Client):
            self._strike_client(whom, fault)
        elif fault.kind == "crash":
            self._crash(whom, fault)
        else:
            self._hold(whom, fault)
            replica, name = whom, whom.name
            self._after(SUSPECT_S, f"suspect {name}", lambda: self._doubt(replica, name))

    def _hold(self, whom: ServiceProcess | Client, fault: Fault) -> None:
        self._tell(whom.place, "stands still" if fault.kind == "pause" else "is cut off")
        whom.held_until = self.now + fault.lasts
        self._at(whom.held_until, lambda: self._tell(whom.place, "is back"))

    def _doubt(self, replica: ServiceProcess, name: str) -> None:
        if replica.name == name and self._is_held(replica):
            self._suspect(name)

    def _crash(self, replica: ServiceProcess, fault: Fault) -> None:
        if not self._others_with_state(replica.name):
            return  # with the last one the state would be gone, and no promise left to check
        self._tell(replica.place, "crashes")
        name, life = replica.name, replica.life
        replica.up, replica.core, replica.busy = False, None, False
        self._after(SUSPECT_S, f"suspect {replica.place}", lambda: self._remove(name))
        self._at(self.now + fault.lasts, lambda: self._restart(replica, life))

    def _remove(self, name: str) -> None:
        if name in self._members:
            self._tell(name, "is taken for dead and removed")
            self._change_view(tuple(m for m in self._members if m != name))

    def _restart(self, replica: ServiceProcess, life: int) -> None:
        if replica.life == life and not replica.up:
            self._tell(replica.place, "starts again")
            self._start(replica)

    def _strike_client(self, client: Client, fault: Fault) -> None:
        if fault.kind != "crash":
            self._hold(client, fault)
            return
        self._tell(client.place, "crashes")
        if client.waiting is not None:
            _, op, since = client.waiting
            self._saw(client, op, None, since, None)
        client.up, client.waiting = False, None
        client.life += 1
        client.requests = Requests(client.name)
        self._at(self.now + fault.lasts, lambda: self._revive(client))

    def _revive(self, client: Client) -> None:
        client.up = True
        self._next_op(client)

    # -- The user's code ------------------------------------------------------------------------

    def states(self) -> list[State]:
        """Return the states of all services."""
        states = []
        for replica in self._replicas:
            if replica.up and replica.core is not None:
                with self._users_code(replica, "gives its state"):
                    states.append(State(replica.place, replica.core.service.snapshot()))
        return states

    def state_difference(self, one: bytes, other: bytes) -> str:
        with self._users_code(self._replicas[0], "takes over a state"):
            return restored_difference(self._make, one, other)

    @contextmanager
    def _users_code(self, replica: ServiceProcess, what: str) -> Iterator[None]:
        try:
            yield
        except ViolationError:
            raise
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-3:])
            raise ViolationError(
                f"{replica.place} fails as it {what}: {error!r}\n{where}"
            ) from error
        finally:
            if self.refused:  # even if the service caught the error
                raise ViolationError(f"refused as {replica.place} {what}: {self.refused[0]}")


def differ(one: bytes, other: bytes) -> bool:
    """Return whether two outcomes differ; equal sets may have different bytes."""
    return one != other and bool(difference(result_of(one), result_of(other)))


def result_of(outcome: bytes) -> Any:
    found = decode_outcome(outcome)
    return found.value if found.error is None else Raised(*found.error)


def shown(outcome: bytes) -> str:
    return repr(result_of(outcome))
