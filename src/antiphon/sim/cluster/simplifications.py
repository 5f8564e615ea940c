"""Pieces of a plan that a shrinker takes out of it: faults of programs, noise, clients, time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.sim.message_traits import Flavour
from antiphon.sim.plan import Fault, Messaging, Plan
from antiphon.sim.roles import Membership, Transacting


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


def simplifications(plan: Plan) -> Iterator[dict[str, Any]]:
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
