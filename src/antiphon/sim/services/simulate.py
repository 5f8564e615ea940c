"""Test a replicated service of yours under thousands of fault schedules, with a few lines.

    from antiphon.sim import linearizable, simulate

    def test_my_service():
        simulate(MyService, commands=random_command, seeds=500, check=linearizable(MyModel))

Promise: a seed always gives the same run, on every machine; a failing seed is reported as a short
story, with as few commands and faults as the search found.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

from antiphon.checkers.histories import Operation
from antiphon.sim.seeds import stream
from antiphon.sim.services import elsewhere
from antiphon.sim.services.elsewhere import CannotLoad, Elsewhere
from antiphon.sim.services.group_world import Fault, Line, MakeService, Op, Plan
from antiphon.sim.services.one_run import Ran, run
from antiphon.sim.services.passive_world import STEP

SPAN_S = 5.0
"""Seconds of virtual time in which clients begin commands and faults strike."""

FAULTS_MAX = 8
STRIKES_MAX = 3
STEPS = 4
"""About the number of steps of the primary and the others for a command: strikes hit any of
them."""

ELSEWHERE = 10
"""This many of the seeds run in other processes, too."""

PROBES = 5
RUNS_MAX = 300
"""Most runs to make a failing plan smaller."""

LINES_MAX = 100

Commands = Callable[[Random], Any]
Check = Callable[[Sequence[Operation]], "str | bool | None"]

replayed: list[int] = []
"""Seeds that run instead of those that a test names: see `sim/pytest_plugin.py`."""


def simulate(
    service: MakeService,
    *,
    commands: Commands,
    clients: int = 3,
    replicas: int = 3,
    seeds: int | Iterable[int] = 500,
    check: Check | None = None,
    operations: int = 40,
    passive: bool = False,
) -> None:
    """Run `replicas` of a service, and `clients` that submit `operations` commands in all, once for
    each seed, with other commands and faults each time.

    `service` is the class (or a function that makes an object of it), `commands(rng)` draws a
    command from a `random.Random`. `check` gets the history of the clients, a list of `Operation`s,
    and returns None, or a text that explains why it is wrong (`linearizable(Model)` makes such a
    check). In any case all replicas must agree on every result and on the state, and so must other
    processes. `seeds`: how many, or which ones. `passive`: as with `Replica(passive=True)`, the
    primary alone carries out commands and need not be deterministic; the others must get its state.
    Raise `AssertionError`, whose first line has the call that replays the failing seed.
    """
    _check_numbers(clients=clients, replicas=replicas, operations=operations)
    chosen = replayed or (range(seeds) if isinstance(seeds, int) else seeds)
    modules = _modules_of(service, commands)
    runs = _Runs(service, check, modules, passive)
    plans: list[Plan] = []
    for seed in chosen:
        plan = draw_plan(seed, commands, clients, replicas, operations, passive)
        _run(plan, runs.once)
        if len(plans) < ELSEWHERE:
            plans.append(plan)
    if not passive:
        _run_elsewhere(service, modules, runs, plans)


def _run_elsewhere(
    service: MakeService, modules: Sequence[ModuleType], runs: _Runs, plans: Sequence[Plan]
) -> None:
    try:
        with Elsewhere(service, modules) as others:
            for plan in plans:
                _run(plan, partial(runs.compared, others))
    except CannotLoad as why:
        warnings.warn(
            "simulate: what differs between processes (the order of a set of text, for one) is not "
            f"looked for, as another process does not find the service: {why}. Define it at the "
            'top of a module, or of a program with if __name__ == "__main__":',
            UserWarning,
            stacklevel=3,
        )


def _run(plan: Plan, once: Once) -> None:
    found = once(plan)
    if found.violation:
        small = _Shrinker(once, plan, found.violation).run()
        again = once(small)
        if not again.violation:  # it depends on a value that no seed decides
            small, again = plan, found
        raise AssertionError(_told(plan, small, again))


def _check_numbers(**numbers: int) -> None:
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise ValueError(f"{name}={number!r}: a number of at least 1 is wanted")


def _modules_of(*things: object) -> list[ModuleType]:
    """Return the modules of the user's code, in which imported functions are guarded, too."""
    whole = [thing.func if isinstance(thing, partial) else thing for thing in things]
    names = {getattr(thing, "__module__", "") for thing in whole}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def draw_plan(
    seed: int,
    commands: Commands,
    clients: int,
    replicas: int,
    operations: int,
    passive: bool = False,
) -> Plan:
    draw = stream(seed, "commands")
    ops = [
        Op(draw.uniform(0, SPAN_S), draw.randrange(clients), commands(draw))
        for _ in range(operations)
    ]
    probes = tuple(commands(draw) for _ in range(PROBES))
    faults = draw_faults(stream(seed, "faults"), clients, replicas)
    if passive:
        faults += draw_strikes(stream(seed, "strikes"), STEPS * operations)
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


def draw_strikes(draw: Random, steps: int) -> tuple[Fault, ...]:
    """Draw the faults that hit a replica at a step of the run instead of a time."""
    return tuple(
        Fault(
            0.0,
            draw.choice(("crash", "pause", "cut")),
            f"{STEP}{draw.randint(1, steps)}",
            draw.uniform(0.05, 2.0),
        )
        for _ in range(draw.randint(0, STRIKES_MAX))
    )


def _time(one: Op | Fault) -> float:
    return one.at


class _Found(NamedTuple):
    violation: str  # empty: none
    story: list[Line]


Once = Callable[[Plan], _Found]


class _Runs:
    def __init__(
        self,
        service: MakeService,
        check: Check | None,
        modules: Sequence[ModuleType],
        passive: bool,
    ) -> None:
        self._service = service
        self._check = check
        self._modules = modules
        self._passive = passive

    def once(self, plan: Plan) -> _Found:
        ran = self._run(plan)
        return _Found(ran.violation or self._checked(ran.history), ran.story)

    def compared(self, others: Elsewhere, plan: Plan) -> _Found:
        """Compare with the same run in other processes; here it has no violation."""
        ran = self._run(plan)
        return _Found(elsewhere.difference(self._service, others.run(plan)), ran.story)

    def _run(self, plan: Plan) -> Ran:
        return run(self._service, plan, self._modules, self._passive)

    def _checked(self, history: list[Operation]) -> str:
        if self._check is None:
            return ""
        answer = self._check(sorted(history, key=lambda operation: operation.called))
        if answer is None or answer is True:
            return ""
        return answer or "the check says that this is wrong"


class _Shrinker:
    """Leaves out faults and commands, as long as the run fails in the same way."""

    def __init__(self, once: Once, plan: Plan, violation: str) -> None:
        self._once = once
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
        """Drop halves, then quarters, down to single items."""
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
        violation = self._once(smaller).violation
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
