"""Test a replicated service of yours under thousands of fault schedules, with a few lines.

    from antiphon.sim import linearizable, simulate

    def test_my_service():
        simulate(MyService, commands=random_command, seeds=500, check=linearizable(MyModel))

Promise: what a seed does, it does again, on every machine; a seed that fails is shown as a short
story, with as few commands and faults as could be found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

from antiphon.sim.draws import stream
from antiphon.sim.group_world import Fault, Line, MakeService, Op, Plan, Violation
from antiphon.sim.guard import guarded
from antiphon.sim.linearizability import Operation
from antiphon.sim.service_world import World

SPAN_S = 5.0
"""Of virtual time, in which clients begin commands and faults strike."""

FAULTS_MAX = 8
PROBES = 5
RUNS_MAX = 300
"""To make a failing plan smaller."""

LINES_MAX = 100

Commands = Callable[[Random], Any]
Check = Callable[[Sequence[Operation]], "str | bool | None"]

replayed: list[int] = []
"""Seeds to be run instead of those that a test names: see `pytest_plugin.py`."""


def simulate(
    service: MakeService,
    *,
    commands: Commands,
    clients: int = 3,
    replicas: int = 3,
    seeds: int | Iterable[int] = 500,
    check: Check | None = None,
    operations: int = 40,
) -> None:
    """Run `replicas` of a service, and `clients` that submit `operations` commands in all, once for
    each seed, each time with other commands and faults.

    `service` is the class (or a function that makes one), `commands(rng)` draws a command. `check`
    gets what the clients saw, and returns an explanation if something is wrong with it
    (`linearizable(Model)` makes one). Whatever it says, all replicas must agree on every result.
    Raises `AssertionError`, whose first line says how to replay the seed that failed.
    """
    _check_numbers(clients=clients, replicas=replicas, operations=operations)
    run = _Runs(service, check, _modules_of(service, commands))
    for seed in replayed or (range(seeds) if isinstance(seeds, int) else seeds):
        plan = draw_plan(seed, commands, clients, replicas, operations)
        found = run.once(plan)
        if found.violation:
            small = _Shrinker(run, plan, found.violation).run()
            raise AssertionError(_told(plan, small, run.once(small)))


def _check_numbers(**numbers: int) -> None:
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise ValueError(f"{name}={number!r}: a number of at least 1 is wanted")


def _modules_of(*things: object) -> list[ModuleType]:
    """Where the user's code is: what it imported is guarded there, too."""
    names = {getattr(thing, "__module__", "") for thing in things}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def draw_plan(seed: int, commands: Commands, clients: int, replicas: int, operations: int) -> Plan:
    draw = stream(seed, "commands")
    ops = [
        Op(draw.uniform(0, SPAN_S), draw.randrange(clients), commands(draw))
        for _ in range(operations)
    ]
    probes = tuple(commands(draw) for _ in range(PROBES))
    faults = draw_faults(stream(seed, "faults"), clients, replicas)
    return Plan(seed, replicas, clients, tuple(sorted(ops, key=_time)), faults, probes)


def draw_faults(draw: Random, clients: int, replicas: int) -> tuple[Fault, ...]:
    places = [f"replica {n + 1}" for n in range(replicas)] * 2
    places += [f"client {n + 1}" for n in range(clients)]
    faults = [
        Fault(
            draw.uniform(0, SPAN_S),
            draw.choice(("crash", "pause", "cut")),
            draw.choice(places),
            draw.uniform(0.05, 2.0),
        )
        for _ in range(draw.randint(0, FAULTS_MAX))
    ]
    return tuple(sorted(faults, key=_time))


def _time(one: Op | Fault) -> float:
    return one.at


class _Found(NamedTuple):
    violation: str  # empty: none
    story: list[Line]


class _Runs:
    def __init__(
        self, service: MakeService, check: Check | None, modules: Sequence[ModuleType]
    ) -> None:
        self._service = service
        self._check = check
        self._modules = modules

    def once(self, plan: Plan) -> _Found:
        world = World(self._service, plan)
        try:
            with guarded(lambda: world.now, modules=self._modules) as guard:
                world.refused = guard.refused
                world.run()
        except Violation as violation:
            return _Found(str(violation), world.story)
        finally:
            world.close()
        return _Found(self._checked(world.history), world.story)

    def _checked(self, history: list[Operation]) -> str:
        if self._check is None:
            return ""
        answer = self._check(sorted(history, key=lambda operation: operation.called))
        if answer is None or answer is True:
            return ""
        return answer or "the check says that this is wrong"


class _Shrinker:
    """Leaves out faults and commands, as long as it fails in the same way."""

    def __init__(self, runs: _Runs, plan: Plan, violation: str) -> None:
        self._runs = runs
        self._plan = plan
        self._kind = _kind(violation)
        self._left = RUNS_MAX

    def run(self) -> Plan:
        before = None
        while before != self._plan and self._left > 0:
            before = self._plan
            for field in ("faults", "ops", "probes"):
                self._drop(field)
        return self._plan

    def _drop(self, field: str) -> None:
        """Halves, then quarters, down to single ones."""
        size = max(1, len(getattr(self._plan, field)) // 2)
        while size:
            at = 0
            while at < len(getattr(self._plan, field)) and self._left > 0:
                all_of_them = getattr(self._plan, field)
                fewer = all_of_them[:at] + all_of_them[at + size :]
                if not self._still_fails(self._plan._replace(**{field: fewer})):
                    at += size
            size //= 2

    def _still_fails(self, smaller: Plan) -> bool:
        self._left -= 1
        violation = self._runs.once(smaller).violation
        if not violation or _kind(violation) != self._kind:
            return False
        self._plan = smaller
        return True


def _kind(violation: str) -> str:
    return violation.split("\n")[0].split(":")[0]


def _told(plan: Plan, small: Plan, found: _Found) -> str:
    enough = (
        f"What happened ({len(small.ops) + len(small.probes)} of "
        f"{len(plan.ops) + len(plan.probes)} commands and {len(small.faults)} of "
        f"{len(plan.faults)} faults are enough):"
    )
    lines = [f"{line.at:8.3f}  {line.who:<14}{line.what}" for line in found.story]
    if len(lines) > LINES_MAX:
        lines = ["     ...", *lines[-LINES_MAX:]]
    first = f"seed {plan.seed} fails: pytest --antiphon-seed={plan.seed} replays it"
    return "\n".join([first, found.violation, "", enough, *lines])
