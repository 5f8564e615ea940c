"""`simulate` finds services that depend on who is asked for a state, on the process, on files, or
on what was there before a `restore`; and says nothing about good ones that look like them."""

import hashlib
import logging
import os
import pathlib
import pickle
import platform
import random
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from antiphon.blocks import ReplicatedService
from antiphon.formats import values
from antiphon.sim import linearizable, simulate
from antiphon.sim.services.passive_world import PassiveWorld
from antiphon.sim.services.simulate import draw_plan
from antiphon.sim.services.states import difference

WORDS = ("ann", "bob", "cid", "dora", "emil")


class Names(ReplicatedService):
    """Puts names on a list and takes them off."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def apply(self, command: Any) -> Any:
        what, name = command
        if what == "put" and name not in self.names:
            self.names.append(name)
        elif what == "drop" and name in self.names:
            self.names.remove(name)
        return len(self.names)

    def snapshot(self) -> bytes:
        return values.encode(self.names)

    def restore(self, data: bytes) -> None:
        self.names = list(values.decode(data))


def commands(draw: Random) -> Any:
    return draw.choice(["put", "put", "drop"]), draw.choice(WORDS)


class Model:
    def initial(self) -> frozenset[str]:
        return frozenset()

    def step(self, state: frozenset[str], command: Any) -> tuple[frozenset[str], int]:
        after = state | {command[1]} if command[0] == "put" else state - {command[1]}
        return after, len(after)


CHECK = linearizable(Model)


def failure(service: Callable[[], ReplicatedService], **given: Any) -> str:
    """The second line of what is said: what was found."""
    with pytest.raises(AssertionError) as caught:
        simulate(service, **{"commands": commands, "seeds": 60, **given})
    return str(caught.value).splitlines()[1]


# -- A snapshot that changes something -------------------------------------------------------------


class CountsItsSnapshots(Names):
    def __init__(self) -> None:
        super().__init__()
        self.snapshots = 0

    def apply(self, command: Any) -> Any:
        return super().apply(command), self.snapshots

    def snapshot(self) -> bytes:
        self.snapshots += 1
        return values.encode((self.names, self.snapshots))

    def restore(self, data: bytes) -> None:
        names, self.snapshots = values.decode(data)
        self.names = list(names)


class ClearsAsItIsSaved(Names):
    """Nothing that it returns tells."""

    def __init__(self) -> None:
        super().__init__()
        self.unsaved: list[str] = []

    def apply(self, command: Any) -> None:
        super().apply(command)
        self.unsaved.append(command[1])

    def snapshot(self) -> bytes:
        said = values.encode((self.names, self.unsaved))
        self.unsaved = []
        return said

    def restore(self, data: bytes) -> None:
        self.names, self.unsaved = map(list, values.decode(data))


def test_a_snapshot_with_a_side_effect_is_found_by_results() -> None:
    assert failure(CountsItsSnapshots).startswith("replicas differ: ('")


def test_a_snapshot_with_a_side_effect_is_found_by_the_state() -> None:
    found = failure(ClearsAsItIsSaved)
    assert found.startswith("states differ: unsaved is [")
    assert found.endswith(("replica 1", "replica 2", "replica 3"))


class KeepsItsAddress(Names):
    """Nothing that it returns tells."""

    def apply(self, command: Any) -> Any:
        count = super().apply(command)
        self.names.sort(key=lambda name: (id(self) >> 4) % (ord(name[0])))
        return count


def test_a_state_that_nothing_tells_is_compared() -> None:
    assert failure(KeepsItsAddress).startswith("states differ: names[")


# -- What differs between processes ----------------------------------------------------------------


class TakesTheFirstOfASet(Names):
    def apply(self, command: Any) -> Any:
        super().apply(command)
        return next(iter(set(self.names)), None)


class LeavesThemInTheOrderOfASet(Names):
    """Nothing that it returns tells."""

    def apply(self, command: Any) -> Any:
        count = super().apply(command)
        self.names = list(set(self.names))
        return count


class HashesBehindTheBack(Names):
    def apply(self, command: Any) -> Any:
        super().apply(command)
        return str.__hash__(command[1]) % 3


class LooksAtTheTimeZone(Names):
    def apply(self, command: Any) -> Any:
        super().apply(command)
        return time.localtime(1_000_000_000).tm_hour


@pytest.mark.parametrize(
    "service",
    [
        TakesTheFirstOfASet,
        LeavesThemInTheOrderOfASet,
        HashesBehindTheBack,
        LooksAtTheTimeZone,
    ],
)
def test_what_differs_between_processes_is_found(service: type[Names]) -> None:
    found = failure(service, seeds=12)
    assert found.startswith("processes differ: ")
    assert "PYTHONHASHSEED=1" in found
    assert found == failure(service, seeds=12), "what is found is found again"


class Asks(Names):
    """What, subclasses say."""

    def apply(self, command: Any) -> Any:
        super().apply(command)
        return self.ask(command[1])

    def ask(self, name: str) -> Any:
        raise NotImplementedError


def asking(what: Callable[[str], Any]) -> type[Asks]:
    class Asking(Asks):
        def ask(self, name: str) -> Any:
            return what(name)

    return Asking


def write_a_database(name: str) -> None:
    sqlite3.connect(f"/tmp/{name}").close()


REFUSED: list[tuple[Callable[[str], Any], str, str]] = [
    (lambda name: hash(name) % 3, "hash of str", "text has another hash in every process"),
    (lambda name: hash((name, 1)) % 3, "hash of tuple", "use zlib.crc32"),
    (lambda name: os.environ["PATH"], "os.environ", "an environment of its own"),
    (lambda name: os.environ.get(name), "os.environ", "an environment of its own"),
    (lambda name: os.getenv(name), "os.environ", "put what it says into the command"),
    (lambda name: name in os.environ, "os.environ", "an environment of its own"),
    (lambda name: dict(os.environ), "os.environ", "an environment of its own"),
    (lambda name: os.environ.update(a=name), "os.environ", "an environment of its own"),
    (lambda name: Path("~").expanduser(), "os.environ", "an environment of its own"),
    (lambda name: os.getpid(), "os.getpid", "it says where this replica runs"),
    (lambda name: os.getcwd(), "os.getcwd", "it says where this replica runs"),
    (lambda name: os.path.abspath(name), "os.getcwd", "it says where this replica runs"),
    (lambda name: socket.gethostname(), "socket.gethostname", "it says where"),
    (lambda name: platform.node(), "platform.node", "it says where"),
    (
        lambda name: open(name, "w").close(),
        "open of 'ann' for writing",
        "a file is not part of the state",
    ),
    (lambda name: open(name, mode="a+b").close(), "open of 'ann'", "keep it in the state"),
    (lambda name: Path(name).write_text(name), "open of", "keep it in the state"),
    (lambda name: Path(name).touch(), "os.", "keep it in the state"),
    (lambda name: Path(name).mkdir(), "os.mkdir", "keep it in the state"),
    (lambda name: pathlib.Path(name).unlink(), "os.unlink", "keep it in the state"),
    (lambda name: os.remove(name), "os.remove", "keep it in the state"),
    (lambda name: os.replace(name, "b"), "os.replace", "keep it in the state"),
    (lambda name: os.open(name, os.O_CREAT | os.O_RDWR), "os.open of 'ann'", "keep it in the"),
    (lambda name: os.write(1, b""), "os.write", "keep it in the state"),
    (lambda name: shutil.copyfile(__file__, name), "open of 'ann'", "keep it in the state"),
    (lambda name: shutil.move(__file__, name), "os.rename", "keep it in the state"),
    (lambda name: tempfile.mkstemp(dir="/tmp"), "os.getpid", "it says where this replica runs"),
    (write_a_database, "sqlite3.connect of '/tmp/ann' for writing", "keep it in the state"),
    (lambda name: os.kill(0, 0), "os.kill", "another process is outside"),
]


@pytest.mark.parametrize(("what", "called", "why"), REFUSED)
def test_what_cannot_be_compared_is_refused_with_a_sentence(
    what: Callable[[str], Any],
    called: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = failure(asking(what), seeds=1, commands=lambda draw: ("put", "ann"))
    assert found.startswith("refused as replica")
    assert f" applies a command: {called}" in found
    assert f"is not simulated: {why}" in found or why in found
    assert not list(tmp_path.iterdir())


# -- Good services that look like bad ones ---------------------------------------------------------


class Tag:
    """Of the user's own: equal ones are equal, and its hash is that of its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tag) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Note:
    """Each one is another, and none can be compared."""

    def __init__(self, text: str) -> None:
        self.text = text


class LooksBad(Names):
    """Sets, pickled, of whom nobody sees the order; results that are sets; what is its own affair;
    log lines; files and modules that are read; the environment at the import alone."""

    FOLDER = os.environ.get("HOME", "")

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[Tag] = set()
        self.words: set[str] = set()
        self.notes: dict[str, Note] = {}
        self.asked = 0  # its own affair
        self.ratio = float("nan")

    def apply(self, command: Any) -> Any:
        import colorsys  # noqa: F401

        self.asked += 1
        count = super().apply(command)
        self.tags.add(Tag(command[1]))
        self.words ^= {command[1]}
        self.notes[command[1]] = Note(str(count))
        logging.getLogger("tests").debug("%s in %s", count, self.FOLDER)
        with open(__file__, "rb") as file, open(os.devnull, "w") as nothing:
            print(hashlib.sha256(file.read()).hexdigest(), file=nothing)
        digits = sorted(hash(number) for number in (3, 1.5, True, (1, 2)))
        return frozenset(self.words), dict.fromkeys(sorted(self.words)), len(digits)

    def snapshot(self) -> bytes:
        self.asked += 1
        return pickle.dumps((self.names, self.tags, self.words, self.notes, self.ratio))

    def restore(self, data: bytes) -> None:
        self.names, self.tags, self.words, self.notes, self.ratio = pickle.loads(data)


def test_a_good_service_that_looks_bad_passes() -> None:
    simulate(LooksBad, commands=commands, seeds=60)


def test_differences_are_told_by_their_place() -> None:
    one, other = LooksBad(), LooksBad()
    assert difference(one, other) == ""
    one.notes["ann"], other.notes["ann"] = Note("1"), Note("2")
    assert difference(one, other) == "notes['ann'].text is '1' and '2'"
    assert difference([1, {"a": (2, 3)}], [1, {"a": (2, 4)}]) == "[1]['a'][1] is 3 and 4"
    assert difference({1, 2}, {1, 3}) == "it is {1, 2} and {1, 3}"
    assert difference({object()}, {object()}) == "", "nobody knows"
    assert difference(len, max) == "it is <built-in function len> and <built-in function max>"
    assert difference({"a": 1}, {"b": 1}) == "it is {'a': 1} and {'b': 1}"
    assert difference(1, 1.0) == ""
    loop: list[Any] = []
    loop.append(loop)
    again: list[Any] = [loop]
    assert difference(loop, again) == ""


# -- Passive replication ---------------------------------------------------------------------------


class DecidesAsItLikes(Names):
    """Not deterministic, which passive replication allows."""

    def apply(self, command: Any) -> Any:
        super().apply(command)
        random.shuffle(self.names)
        self.at = time.time()
        if command[0] == "drop" and random.random() < 0.2:
            raise ValueError("not today")
        return len(self.names)


class Registry(Names):
    """By name, and how often."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def apply(self, command: Any) -> Any:
        what, name = command
        if what == "put":
            self.counts[name] = self.counts.get(name, 0) + 1
        else:
            self.counts.pop(name, None)
        return sum(self.counts.values())

    def snapshot(self) -> bytes:
        return values.encode(self.counts)

    def restore(self, data: bytes) -> None:
        self.counts = dict(values.decode(data))


class Merges(Registry):
    def restore(self, data: bytes) -> None:
        self.counts.update(values.decode(data))


class RegistryModel:
    def initial(self) -> tuple[tuple[str, int], ...]:
        return ()

    def step(self, state: Any, command: Any) -> tuple[Any, int]:
        counts = dict(state)
        if command[0] == "put":
            counts[command[1]] = counts.get(command[1], 0) + 1
        else:
            counts.pop(command[1], None)
        return tuple(sorted(counts.items())), sum(counts.values())


class KeepsViews(Names):
    """Who was there is part of its state."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[tuple[str, ...]] = []

    def viewed(self, members: tuple[str, ...]) -> None:
        self.views.append(members)

    def snapshot(self) -> bytes:
        return values.encode((self.names, self.views))

    def restore(self, data: bytes) -> None:
        self.names, self.views = map(list, values.decode(data))


REGISTRY = linearizable(RegistryModel)


def test_good_passive_services_pass() -> None:
    simulate(DecidesAsItLikes, commands=commands, seeds=100, passive=True)
    simulate(Registry, commands=commands, seeds=100, passive=True, check=REGISTRY)
    simulate(Names, commands=commands, seeds=100, passive=True, check=CHECK)
    simulate(KeepsViews, commands=commands, seeds=100, passive=True, check=CHECK)


def test_a_restore_that_merges_is_found_by_the_state() -> None:
    found = failure(Merges, passive=True)
    assert found.startswith("states differ: counts is ")
    assert "restore() has to leave nothing of what was there before" in found


def test_a_restore_that_merges_is_found_by_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PassiveWorld, "_compare", lambda *_: None)
    assert failure(Merges, passive=True, check=REGISTRY).startswith("not linearizable")


class KeepsWhatFailed(Names):
    """Commands that fail half way, and a restore that merges."""

    def apply(self, command: Any) -> Any:
        count = super().apply(("put", command[1]))
        if command[0] == "drop":
            raise ValueError("not possible")
        return count

    def restore(self, data: bytes) -> None:
        self.names += [name for name in values.decode(data) if name not in self.names]


def test_a_difference_is_found_in_the_end() -> None:
    assert "in the state that all agreed on and in that of" in failure(
        KeepsWhatFailed, passive=True
    )


class KeepsNames(Names):
    """Does again what was undone: the next update makes all of them the same."""

    def restore(self, data: bytes) -> None:
        self.names += [name for name in values.decode(data) if name not in self.names]


class DrawsInAView(KeepsViews):
    """Nothing that it returns tells."""

    def viewed(self, members: tuple[str, ...]) -> None:
        self.views.append((random.choice(members),))


@pytest.mark.parametrize("service", [KeepsNames, DrawsInAView])
def test_a_difference_that_the_next_update_hides_is_found_where_a_view_begins(
    service: type[Names],
) -> None:
    found = failure(
        service, passive=True, seeds=200, commands=lambda draw: ("put", draw.choice(WORDS))
    )
    assert re.match(
        r"states differ: (names|views\[\d]\[0]) is .*, in the state of replica \d in view", found
    )
    assert "viewed() has to do the same in every replica" in found


def test_a_passive_snapshot_with_a_side_effect_is_found() -> None:
    assert failure(ClearsAsItIsSaved, passive=True).startswith("states differ: unsaved is ")


def test_a_primary_is_struck_between_its_steps() -> None:
    told: Counter[str] = Counter()
    for seed in range(60):
        plan = draw_plan(seed, commands, 3, 3, 40, passive=True)
        strikes = [fault for fault in plan.faults if fault.whom.startswith("step ")]
        world = PassiveWorld(Names, plan._replace(faults=tuple(strikes)))
        world.run()
        told.update(line.what for line in world.story if line.who.startswith("replica"))
        told["new primary"] += len({line.who for line in world.story if "answers" in line.what}) > 1
    for what in ("crashes", "stands still", "is cut off", "new primary"):
        assert told[what] > 0, (what, told)
    assert told["finds itself removed, and begins again"] > 0


class CallsOthers(Names):
    def apply(self, command: Any) -> Iterator[Any]:
        yield command


class Waits(Names):
    async def apply(self, command: Any) -> Any:
        return super().apply(command)


class WritesAFile(Names):
    def apply(self, command: Any) -> Any:
        Path("names").write_text(command[1])


@pytest.mark.parametrize(
    ("service", "said"),
    [
        (CallsOthers, "calls to other servers are not simulated here"),
        (Waits, "apply is a coroutine"),
        (WritesAFile, "open of PosixPath('names') for writing is not simulated: a file is not"),
    ],
)
def test_what_a_passive_service_may_not_do_is_refused(service: type[Names], said: str) -> None:
    assert said in failure(service, passive=True)


# -- Services that another process finds, or not ---------------------------------------------------


def test_a_service_that_nobody_else_finds_is_told_about() -> None:
    class Local(Names):
        pass

    with pytest.warns(UserWarning, match="another process does not find the service: .*Local"):
        simulate(Local, commands=commands, seeds=2)


PROGRAM = """
import random
from antiphon.blocks import ReplicatedService
from antiphon.sim import simulate

print("loaded", __name__)

class Bad(ReplicatedService):
    def __init__(self):
        self.names = []
    def apply(self, name):
        self.names.append(name)
        return list(set(self.names))
    def snapshot(self):
        return repr(self.names).encode()
    def restore(self, data):
        self.names = eval(data)

def main():
    try:
        simulate(Bad, commands=lambda draw: draw.choice(["ann", "bob", "cid"]), seeds=5)
    except AssertionError as error:
        print(str(error).splitlines()[1])

"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ('if __name__ == "__main__":\n    main()\n', "processes differ: "),
        ("if (__name__=='__main__'): main()\n", "processes differ: "),
        ('if "__main__" == __name__ and True:\n    main()\n', "processes differ: "),
        ('if __name__ != "__main__":\n    pass\nmain()\n', 'has no if __name__ == "__main__":'),
        ("main()\n", 'has no if __name__ == "__main__":'),
    ],
)
def test_a_program_is_loaded_elsewhere_if_that_does_not_run_it(
    end: str, said: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + end)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.stdout.count("loaded") == 1, "what others print is not seen"
    assert said in done.stdout + done.stderr
