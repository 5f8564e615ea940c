"""Random numbers that do not lean on each other.

Every stream of draws has its own generator, seeded by the run's seed and the stream's name: taking
one event out of a run does not shift what the others draw, which is what makes shrinking work.
"""

from __future__ import annotations

from random import Random


def stream(seed: int, *name: object) -> Random:
    # A seed given as text is hashed with SHA-512 inside Random: the same in every process,
    # whatever PYTHONHASHSEED is.
    return Random("/".join([str(seed), *map(str, name)]))
