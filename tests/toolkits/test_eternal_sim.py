"""The manager as a simulated service: its replicas stay the same, whoever crashes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from antiphon.sim import simulate
from antiphon.toolkits.eternal import Criteria
from antiphon.toolkits.eternal.pure import manager
from antiphon.toolkits.eternal.pure.manager import ManagerService

LOCATIONS = [f"{n}.{life}" for n in (1, 2, 3) for life in (1, 1, 2)]  # as the simulated replicas
GROUPS = ("stock", "bank")
SEEN: set[str] = set()
"""The kinds of faults that there were."""


class Shown(ManagerService):
    """Returns its whole state with each command, so that a difference is one of results. Its
    replicas are the factories."""

    def apply(self, command: Any) -> bytes:
        try:
            super().apply(command)
        except ValueError as error:
            return str(error).encode()
        SEEN.update(fault.kind for fault in self.faults)
        return self.snapshot()


def random_command(draw: Random) -> Any:
    group, location = draw.choice(GROUPS), draw.choice(LOCATIONS)
    members = tuple(f"{group}.{n}" for n in range(1, 12) if draw.random() < 0.5)
    return draw.choice(
        [
            *[("offer", location, ("ledger",))] * 3,
            ("withdraw", location),
            ("create", group, "ledger", tuple(Criteria(initial=2, minimum=draw.choice([1, 2])))),
            ("create", group, "ledger", tuple(Criteria(initial=1, minimum=1))),
            ("view", group, draw.randrange(1, 4), draw.randrange(1, 60), members),
            ("ended", group, f"{group}.{draw.randrange(1, 12)}", "crashed"),
            ("create member", group, location, "ledger", ()),
            ("remove member", group, location),
            ("delete", group),
        ]
    )


@pytest.mark.sim
def test_replicas_of_the_manager_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "FACTORY", "replica ")
    SEEN.clear()
    simulate(Shown, commands=random_command, seeds=100)
    assert {"location", "object", "group"} <= SEEN  # there were such faults
