"""Independent streams of random numbers.

Every stream of draws has its own generator, seeded by the run's seed and the stream's name: taking
one event out of a run does not change the draws of the others, which makes shrinking possible.
"""

from __future__ import annotations

from random import Random


def stream(seed: int, *name: object) -> Random:
    # A seed given as text is hashed with SHA-512 inside Random: the same in every process,
    # whatever PYTHONHASHSEED is.
    return Random("/".join([str(seed), *map(str, name)]))
