"""The plan of `antiphon experiment packing`: JBora's sources, each with every policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from antiphon.lab.experiments.load_sources import Source

SERVERS, MEMBERS = 3, 3
SIZES = (100, 1000, 10_000)
MIXED = "1000-3000"
BURSTS = "15-20ms"
SHORT = {"5-20ms": (5, 0.020), "2-5ms": (2, 0.005)}
SOURCES = {
    **{str(size): Source((size,)) for size in SIZES},
    MIXED: Source((1000, 3000), switch=30_000),
    BURSTS: Source((1000,), burst=15, pause_s=0.020),
    **{name: Source((1000,), burst=n, pause_s=pause) for name, (n, pause) in SHORT.items()},
}


class Plan(NamedTuple):
    """The degrees for each source, and how long each is measured."""

    degrees: dict[str, Sequence[int]] = {  # noqa: RUF012  (nobody changes it)
        "100": (4, 11, 28, 64, 256, 512, 1024, 2048),
        "1000": (2, 4, 6, 8, 11, 16, 24, 48, 96, 192, 384, 768),
        "10000": (2, 3, 6, 12, 24, 48, 96),
        MIXED: (3, 6, 12, 24, 48, 96, 192, 384),
        BURSTS: (2, 4, 6, 8, 10, 12, 15),
        "5-20ms": (2, 5),
        "2-5ms": (2, 4),
    }
    rounds: int = 5
    seconds: float = 0.4  # of a policy's turn in a round
    climbing_s: float = 12.0
    step_s: float = 0.25
    """JBora's step of 10 s would take minutes to get anywhere."""

    @property
    def climbing(self) -> str:
        return f"hill-climbing={self.step_s:g}"

    def in_turns(self, source: str) -> list[str]:
        """Return the policies that take turns. Hill climbing does not: it needs time to itself."""
        return ["off", *(f"fixed={n}" for n in self.degrees[source]), "adaptive"]


QUICK = Plan(
    degrees={"1000": (4, 16), MIXED: (8,), BURSTS: (8,), "5-20ms": (5,)},
    rounds=2,
    seconds=0.3,
    climbing_s=1.5,
    step_s=0.1,
)
