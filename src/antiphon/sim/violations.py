"""The error that ends a simulation with a finding, and findings in words."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Protocol


class ViolationError(Exception):
    """A promise was broken: by the simulated servers, their clients, or a user's service. Judges
    raise it, and the runner of a seed catches it."""


class Timed(Protocol):
    """A simulated world."""

    now_us: int


def violation_of(world: Timed, run: Callable[[], object]) -> str:
    """Run a world, and return what went wrong, with its time: a broken promise, or any error, which
    is a finding of the seed too. Empty: nothing."""
    try:
        run()
    except ViolationError as broken:
        return f"at {world.now_us / 1e6:.3f} s: {broken}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"at {world.now_us / 1e6:.3f} s: {type(error).__name__}: {error} "
            f"({where.filename.rsplit('/', 1)[-1]}:{where.lineno} {where.name})"
        )
    return ""
