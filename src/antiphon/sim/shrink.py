"""From a failing seed to a short story: leave out faults, noise, clients and time while it fails.

Every draw has its own stream (`seeds.py`), so the rest of a plan behaves as before. A smaller plan
is accepted if it fails in the same way: the same promise is broken, wherever and whenever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from antiphon.sim.plan import Fault, Messaging, Plan
from antiphon.sim.programs.member import Membership
from antiphon.sim.programs.message_traits import Flavour
from antiphon.sim.programs.transactor import Transacting
from antiphon.sim.run import run_plan

RUNS_MAX = 400


def failure_kind(violation: str) -> str:
    """Return the broken promise: the violation without its time, names and numbers."""
    what = violation.split(": ", 1)[-1]
    return what.split(":")[0].split("(")[0]


class Shrinker:
    """Looks for a smaller plan that fails in the same way."""

    def __init__(self, plan: Plan, violation: str) -> None:
        self.plan = plan
        self._kind = failure_kind(violation)
        self._runs = 0

    def run(self, progress: Callable[[int], None] = lambda runs: None) -> Plan:
        before = None
        while before != self.plan and self._runs < RUNS_MAX:
            before = self.plan
            self._drop_faults()
            for change in _simplifications(self.plan):
                self._try(**change)
                progress(self._runs)
        return self.plan

    def _drop_faults(self) -> None:
        """Drop halves, then quarters, down to single faults."""
        size = max(1, len(self.plan.faults) // 2)
        while True:
            at = 0
            while at < len(self.plan.faults) and self._runs < RUNS_MAX:
                faults = self.plan.faults
                if not self._try(faults=faults[:at] + faults[at + size :]):
                    at += size
            if size == 1:
                return
            size //= 2

    def _try(self, **change: Any) -> bool:
        smaller = msgspec.structs.replace(self.plan, **change)
        if smaller == self.plan or self._runs >= RUNS_MAX:
            return False
        self._runs += 1
        violation = run_plan(smaller).violation
        if violation and failure_kind(violation) == self._kind:
            self.plan = smaller
            return True
        return False


def _less_messaging(m: Messaging) -> Iterator[Messaging]:
    replace = msgspec.structs.replace
    yield replace(m, faults=())
    yield replace(m, breaks=0.0)
    yield replace(m, repeats=0.0)
    yield replace(m, silent=0.0)
    for at in range(len(m.faults)):
        yield replace(m, faults=m.faults[:at] + m.faults[at + 1 :])
    yield replace(m, home=replace(m.home, deliveries_max=10))
    for at, role in enumerate(m.roles):
        if role.member is not None:
            for quieter in _less_membership(role.member):
                less = replace(role, member=quieter)
                yield replace(m, roles=(*m.roles[:at], less, *m.roles[at + 1 :]))
        if role.transacts is not None:
            for plainer in _less_transacting(role.transacts):
                less = replace(role, transacts=plainer)
                yield replace(m, roles=(*m.roles[:at], less, *m.roles[at + 1 :]))
        for less in (
            replace(role, flavour=Flavour()),
            replace(role, shares=False, exclusive=False),
            replace(role, publishes=role.publishes // 4, consumes=()),
            replace(role, consumes=role.consumes[:1]),
            replace(role, publishes=0, restless=0.0),
            replace(role, restless=0.0),
            replace(role, ack_every=1),
            replace(role, individually=False),
            replace(role, slow="spill"),
            replace(role, publishes=min(1, role.publishes)),
        ):
            yield replace(m, roles=(*m.roles[:at], less, *m.roles[at + 1 :]))


def _less_transacting(how: Transacting) -> Iterator[Transacting]:
    replace = msgspec.structs.replace
    yield Transacting(1)
    yield replace(how, size=1)
    yield replace(how, gives=0.0)
    yield replace(how, tokens=0.0)
    yield replace(how, stages=0.0)
    yield replace(how, rolls_back=0.0)


def _less_membership(member: Membership) -> Iterator[Membership]:
    replace = msgspec.structs.replace
    yield replace(member, ruthless=0.0, invites=0.0, changes=0.0, removes_suspects=0.0)
    yield replace(member, ruthless=0.0)
    yield replace(member, invites=0.0)
    yield replace(member, changes=0.0)
    yield replace(member, removes_suspects=0.0)
    yield replace(member, provides=False, fails=0.0)
    yield replace(member, groups=member.groups[:1])
    yield replace(member, durable=False)


def _simplifications(plan: Plan) -> Iterator[dict[str, Any]]:
    calm = plan.delay_us[0]
    yield {"loss": 0.0}
    yield {"duplication": 0.0}
    yield {"straggle": 0.0}
    yield {"encode": False}
    yield {"partial": ""}
    yield {"rates": dict.fromkeys(plan.rates, 1.0)}
    yield {"delay_us": (calm, calm * 2)}
    yield {"clients": 1}
    if plan.messaging is not None:
        yield from ({"messaging": smaller} for smaller in _less_messaging(plan.messaging))
    yield {"reads_us": plan.duration_us}
    for operations in (1, plan.operations // 4, plan.operations // 2):
        yield {"operations": max(1, operations)}
    last = max((fault.at_us for fault in plan.faults), default=0)
    yield {"duration_us": last + 1_000_000}
    yield {"duration_us": plan.duration_us // 2}
    for at, fault in enumerate(plan.faults):
        shorter = Fault(fault.at_us, fault.kind, fault.target, 5_000, fault.detail)
        yield {"faults": (*plan.faults[:at], shorter, *plan.faults[at + 1 :])}
