"""`simulate`: a good service passes every seed, a bad one is found out, and told about shortly."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from antiphon.blocks import ReplicatedService
from antiphon.formats import values
from antiphon.sim import Operation, linearizable, simulate
from antiphon.sim.services.active_world import World
from antiphon.sim.services.group_world import Plan
from antiphon.sim.services.simulate import draw_plan


class Accounts(ReplicatedService):
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def apply(self, command: Any) -> Any:
        match command:
            case ("put", name, n):
                self.rows[name] = n
                return None
            case ("add", name, n):
                self.rows[name] = self.rows.get(name, 0) + n
                return self.rows[name]
            case ("get", name):
                return self.rows.get(name, 0)
            case ("take", name, n):
                if self.rows.get(name, 0) < n:
                    raise ValueError(f"{name} has less than {n}")
                self.rows[name] = self.rows.get(name, 0) - n
                return self.rows[name]
        raise AssertionError(command)

    def snapshot(self) -> bytes:
        return values.encode(self.rows)

    def restore(self, data: bytes) -> None:
        self.rows = dict(values.decode(data))


class Model:
    def initial(self) -> int:
        return 0

    def key(self, command: Any) -> str:
        return str(command[1])

    def step(self, state: int, command: Any) -> tuple[int, Any]:
        match command:
            case ("put", _, n):
                return n, None
            case ("add", _, n):
                return state + n, state + n
            case ("take", name, n):
                if state < n:
                    raise ValueError(f"{name} has less than {n}")
                return state - n, state - n
        return state, state


def commands(draw: Random) -> Any:
    name, n = draw.choice("ab"), draw.randrange(5)
    return draw.choice(
        [("put", name, n), ("add", name, n), ("get", name), ("take", name, n), ("add", name, n)]
    )


CHECK = linearizable(Model)


def test_a_good_service_passes() -> None:
    simulate(Accounts, commands=commands, seeds=150, check=CHECK)


class ForgetsOnRestore(Accounts):
    def restore(self, data: bytes) -> None:
        self.rows = {name: n for name, n in values.decode(data).items() if name != "a"}


class CountsAllItHasSeen(Accounts):
    """How much one replica has seen is its own affair."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = 0

    def apply(self, command: Any) -> Any:
        self.applied += 1
        return self.applied if command[0] == "put" else super().apply(command)


class AnswersLate(Accounts):
    """Reads what was there before the last change: all replicas agree on it, and it is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, int] = {}

    def apply(self, command: Any) -> Any:
        if command[0] == "get":
            return self.before.get(command[1], 0)
        self.before = dict(self.rows)
        return super().apply(command)

    def snapshot(self) -> bytes:
        return values.encode((self.rows, self.before))

    def restore(self, data: bytes) -> None:
        self.rows, self.before = map(dict, values.decode(data))


def failure(service: Callable[[], ReplicatedService], **given: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        simulate(service, **{"commands": commands, "check": CHECK, "seeds": 300, **given})
    return str(caught.value)


@pytest.mark.parametrize(
    ("service", "said"),
    [
        (ForgetsOnRestore, "replicas differ"),
        (CountsAllItHasSeen, "replicas differ"),
        (AnswersLate, "not linearizable"),
    ],
)
def test_a_bad_service_is_found_out_and_told_about_shortly(
    service: Callable[[], ReplicatedService], said: str
) -> None:
    text = failure(service)
    first, second, *_ = text.splitlines()
    seed = int(first.split()[1])
    assert first == f"seed {seed} fails: pytest --antiphon-seed={seed} replays it"
    assert second.startswith(said)
    story = text.split("are enough):\n")[1].splitlines()
    assert len(story) <= 40
    assert "submits" in text


def test_what_a_seed_does_it_does_again() -> None:
    seed = int(failure(ForgetsOnRestore).split()[1])
    assert failure(ForgetsOnRestore, seeds=[seed]) == failure(ForgetsOnRestore, seeds=[seed])


class LooksAtTheClock(Accounts):
    def apply(self, command: Any) -> Any:
        return time.time()


class Sleeps(Accounts):
    def apply(self, command: Any) -> Any:
        time.sleep(0.001)
        return super().apply(command)


class StartsThreads(Accounts):
    def apply(self, command: Any) -> Any:
        threading.Thread(target=print).start()
        return super().apply(command)


class HidesThatItSleeps(Accounts):
    def apply(self, command: Any) -> Any:
        with contextlib.suppress(RuntimeError):
            time.sleep(0.001)
        return super().apply(command)


class DrawsLots(Accounts):
    def snapshot(self) -> bytes:
        import random

        random.random()
        return super().snapshot()


class CallsOthers(Accounts):
    def apply(self, command: Any) -> Any:
        yield command


@pytest.mark.parametrize(
    ("service", "called"),
    [
        (CallsOthers, "calls to other servers"),
        (LooksAtTheClock, "time.time"),
        (Sleeps, "time.sleep"),
        (HidesThatItSleeps, "time.sleep"),
        (StartsThreads, "threading.Thread"),
        (DrawsLots, "random.random"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_a_reason(
    service: Callable[[], ReplicatedService], called: str
) -> None:
    text = failure(service)
    assert text.splitlines()[1].startswith("refused as replica")
    assert called in text.splitlines()[1]


class TakesItsTime(Accounts):
    async def apply(self, command: Any) -> Any:
        await asyncio.sleep(0.03)
        return super().apply(command)


def test_a_coroutine_runs_on_a_simulated_loop() -> None:
    simulate(TakesItsTime, commands=commands, seeds=40, check=CHECK)


class RaisesInItsSnapshot(Accounts):
    def snapshot(self) -> bytes:
        raise OSError("no room")


def test_an_error_outside_of_commands_is_shown_where_it_happened() -> None:
    text = failure(RaisesInItsSnapshot)
    assert "fails as it gives its state: OSError('no room')" in text
    assert "def snapshot" in text or "in snapshot" in text


def test_the_check_gets_what_clients_saw() -> None:
    seen: list[Operation] = []

    def check(history: Sequence[Operation]) -> None:
        seen.extend(history)

    simulate(Accounts, commands=commands, seeds=20, check=check, operations=10)
    assert {operation.command[0] for operation in seen} == {"put", "add", "get", "take"}
    assert any(operation.returned is None for operation in seen)
    assert all(operation.called <= (operation.returned or 1e9) for operation in seen)


@pytest.mark.parametrize("answer", [False, "there is something"])
def test_what_the_check_says_is_told(answer: Any) -> None:
    text = failure(Accounts, check=lambda history: answer)
    assert (answer or "the check says that this is wrong") in text


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"replicas": -1}, {"operations": 1.5}])
def test_wrong_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        simulate(Accounts, commands=commands, **wrong)


def test_one_replica_and_one_client_are_enough() -> None:
    simulate(Accounts, commands=commands, replicas=1, clients=1, seeds=20, check=CHECK)


def stories(seeds: int) -> Counter[str]:
    told: Counter[str] = Counter()
    for seed in range(seeds):
        plan: Plan = draw_plan(seed, commands, 3, 3, 40)
        world = World(Accounts, plan)
        world.run()
        for line in world.story:
            words = line.what.split(" the state of")[0].split(" (")[0]
            told[f"{line.who.split()[0]} {words}"] += 1
            told["again"] += line.what.endswith(" again") and line.what.startswith("submits")
    return told


def test_everything_that_can_happen_does() -> None:
    told = stories(60)
    for what in (
        "replica crashes",
        "replica starts again",
        "replica stands still",
        "replica is cut off",
        "replica is taken for dead and removed",
        "replica finds itself removed, and begins again",
        "replica takes over",
        "client crashes",
        "client stands still",
        "client is cut off",
        "again",
    ):
        assert told[what] > 0, (what, told)


TEST_FILE = """
import time

from antiphon.blocks import ReplicatedService
from antiphon.sim import simulate

class Bad(ReplicatedService):
    def apply(self, command):
        return time.time()
    def snapshot(self):
        return b""
    def restore(self, data):
        pass

def test_it():
    simulate(Bad, commands=lambda draw: draw.random(), seeds=range(100, 200))
"""


def test_the_plugin_names_the_seed_and_replays_it(tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text(TEST_FILE)

    def run(*options: str) -> str:
        line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_bad.py", *options]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True).stdout

    def seed_told(output: str) -> str:
        (told,) = [line for line in output.splitlines() if line.startswith("antiphon: ")]
        seed = told.split("--antiphon-seed=")[1].split()[0]
        assert told == f"antiphon: pytest --antiphon-seed={seed} 'test_bad.py::test_it' replays it"
        return seed

    assert seed_told(run()) == "100"
    assert seed_told(run("--antiphon-seed=7")) == "7"
