"""From a failing seed to a short story: leave out faults, noise, clients and time while it fails.

Every draw has its own stream (`seeds.py`), so the remaining plan behaves as before. A smaller plan
is accepted if it fails in the same way: it breaks the same promise, at any server and time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

RUNS_MAX = 400

AnyPlan = TypeVar("AnyPlan", bound=msgspec.Struct)


def failure_kind(violation: str) -> str:
    """Return the broken promise: the violation without its time, names and numbers."""
    what = violation.split(": ", 1)[-1]
    return what.split(":")[0].split("(")[0]


class Shrinker(Generic[AnyPlan]):
    """Looks for a smaller plan that fails in the same way."""

    def __init__(
        self,
        plan: AnyPlan,
        violation: str,
        run: Callable[[AnyPlan], str],
        simplifications: Callable[[AnyPlan], Iterator[dict[str, Any]]],
    ) -> None:
        """`run` returns the violation of a plan; `simplifications` yields fields of a plan with
        simpler values; a plan has `faults`, which are left out first."""
        self.plan = plan
        self._kind = failure_kind(violation)
        self._run = run
        self._simplifications = simplifications
        self._runs = 0

    def run(self, progress: Callable[[int], None] = lambda runs: None) -> AnyPlan:
        before = None
        while before != self.plan and self._runs < RUNS_MAX:
            before = self.plan
            self._drop_faults()
            for change in self._simplifications(self.plan):
                self._try(**change)
                progress(self._runs)
        return self.plan

    def _drop_faults(self) -> None:
        """Drop halves, then quarters, down to single faults."""
        size = max(1, len(self._faults) // 2)
        while True:
            at = 0
            while at < len(self._faults) and self._runs < RUNS_MAX:
                faults = self._faults
                if not self._try(faults=faults[:at] + faults[at + size :]):
                    at += size
            if size == 1:
                return
            size //= 2

    @property
    def _faults(self) -> tuple[Any, ...]:
        faults: tuple[Any, ...] = getattr(self.plan, "faults")  # noqa: B009
        return faults

    def _try(self, **change: Any) -> bool:
        smaller = msgspec.structs.replace(self.plan, **change)
        if smaller == self.plan or self._runs >= RUNS_MAX:
            return False
        self._runs += 1
        violation = self._run(smaller)
        if violation and failure_kind(violation) == self._kind:
            self.plan = smaller
            return True
        return False
