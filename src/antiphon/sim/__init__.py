"""Whole clusters in one thread, from one seed: the same core and journal over simulated faults.

For users: `simulate` runs their replicated service under simulated faults, and `linearizable` makes
a check of its history.
"""

from typing import Any

__all__ = ["Operation", "linearizable", "simulate"]


def __getattr__(name: str) -> Any:
    # Imported at first use: the simulation of the servers does not need them.
    if name == "simulate":
        from antiphon.sim.services.simulate import simulate

        return simulate
    if name in ("Operation", "linearizable"):
        from antiphon.checkers import linearizability

        return getattr(linearizability, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
