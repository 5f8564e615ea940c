"""Transactions and special messages in the simulator: that the seeds contain them."""

from collections import Counter
from collections.abc import Callable

import pytest

from antiphon.sim.message_traits import PLAIN, Traits
from antiphon.sim.messaging_world import MessagingWorld
from antiphon.sim.plan import Messaging, Plan, draw_plan
from antiphon.sim.run import make_world, run_world


def has_transactions(m: Messaging) -> bool:
    return any(role.transacts is not None for role in m.roles)


def has_kinds(m: Messaging) -> bool:
    return any(role.shares for role in m.roles)


def plans(count: int, wanted: Callable[[Messaging], bool]) -> list[Plan]:
    """The first ones that are wanted."""
    drawn = (draw_plan(seed) for seed in range(1, 1000))
    found = [plan for plan in drawn if plan.messaging is not None and wanted(plan.messaging)]
    return found[:count]


def run(plan: Plan) -> MessagingWorld:
    world = make_world(plan)
    assert isinstance(world, MessagingWorld)
    assert run_world(world).violation == ""
    return world


def test_half_of_the_seeds_with_programs_have_them() -> None:
    drawn = [m for seed in range(400) if (m := draw_plan(seed).messaging) is not None]
    for wanted in (has_transactions, has_kinds):
        assert 0.4 < sum(map(wanted, drawn)) / len(drawn) < 0.6


@pytest.mark.sim
@pytest.mark.timeout(300)
def test_transactions_end_in_all_ways() -> None:
    outcomes: Counter[str] = Counter()
    ways = {"committed", "staged", "void", "refused"}
    for plan in plans(80, has_transactions):  # which of them are refused changes with the code
        outcomes.update(run(plan).ledger.deals.outcomes)
        if set(outcomes) == ways and outcomes["committed"] > 100:
            break
    assert set(outcomes) == ways
    assert outcomes["committed"] > 100


@pytest.mark.sim
@pytest.mark.timeout(300)
def test_messages_of_all_kinds_are_sent_and_received() -> None:
    seen: Counter[str] = Counter()
    for plan in plans(15, has_kinds):
        ledger = run(plan).ledger
        for name, reading in ledger.readings.items():
            seen[name.split()[0]] += len(reading.seen)
            for position in reading.seen:
                seen.update(_about(ledger.traits(position)))
        seen["delayed"] += len(ledger._delayed)
    kinds = ("ranked", "mortal", "grouped", "delayed", "shared", "durable", "queue:DLQ")
    assert {kind: seen[kind] for kind in kinds if seen[kind] < 10} == {}


def _about(traits: Traits) -> list[str]:
    names = ("ranked", "mortal", "grouped")
    return [name for name, one, plain in zip(names, traits, PLAIN, strict=False) if one != plain]
