"""Our own replicated services under simulated faults: all replicas agree, and tables and counters
are linearizable."""

from functools import partial
from random import Random
from typing import Any

from antiphon.blocks.pure.coordination import (
    BarrierService,
    CounterService,
    ElectionService,
    SemaphoreService,
)
from antiphon.blocks.pure.table import TableService
from antiphon.formats import values
from antiphon.sim import linearizable, simulate

SEEDS = 60
MEMBERS = ("replica 1.1", "replica 2.1", "replica 2.2", "replica 3.1", "somebody else")


class Rows:
    def initial(self) -> Any:
        return None

    def key(self, command: Any) -> Any:
        return command[1]

    def step(self, state: Any, command: Any) -> tuple[Any, Any]:
        match command:
            case ("put", _, value):
                return value, state
            case ("replace", _, expected, value):
                return (value, True) if state == expected else (state, False)
            case ("remove", _):
                return None, state
        return state, state


def rows(draw: Random) -> Any:
    key, value = draw.choice("ab"), draw.randrange(3)
    return draw.choice(
        [
            ("put", key, value),
            ("replace", key, draw.choice([None, 0, 1, 2]), value),
            ("remove", key),
            ("get", key),
        ]
    )


def test_a_table() -> None:
    simulate(TableService, commands=rows, seeds=SEEDS, check=linearizable(Rows))


class Sum:
    def initial(self) -> int:
        return 0

    def step(self, state: int, command: Any) -> tuple[int, int]:
        after = state + command[1] if command[0] == "add" else command[1]
        return after, after


def test_a_counter() -> None:
    def commands(draw: Random) -> Any:
        return draw.choice(["add", "add", "set"]), draw.randrange(5)

    simulate(CounterService, commands=commands, seeds=SEEDS, check=linearizable(Sum), operations=25)


class CountingSemaphore(SemaphoreService):
    """Numbers the commands, since no block tells it their positions."""

    def apply(self, command: Any) -> bool:
        self.position += 1
        return super().apply(command)

    def snapshot(self) -> bytes:
        return values.encode((self.position, super().snapshot()))

    def restore(self, data: bytes) -> None:
        self.position, state = values.decode(data)
        super().restore(state)


def test_a_lock_whose_holders_leave() -> None:
    def commands(draw: Random) -> Any:
        wish = draw.choice(MEMBERS), draw.choice("12")
        return draw.choice(["acquire", "release"]), *wish

    simulate(partial(CountingSemaphore, 1), commands=commands, seeds=SEEDS)
    simulate(partial(CountingSemaphore, 2), commands=commands, seeds=SEEDS)


def test_an_election() -> None:
    simulate(ElectionService, commands=lambda draw: ("resign", draw.choice(MEMBERS)), seeds=SEEDS)


def test_a_barrier() -> None:
    def commands(draw: Random) -> Any:
        return draw.choice(["arrive", "arrive", "leave"]), draw.choice(MEMBERS)

    simulate(partial(BarrierService, 2), commands=commands, seeds=SEEDS)
