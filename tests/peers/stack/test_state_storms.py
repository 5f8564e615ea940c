"""States in storms: processes die, come back, are cut off and ask for states, all by chance; in the
end all who are together have the same table."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from antiphon.peers.layers.state import PART_BYTES, Outcome, State
from antiphon.peers.stack import stacks
from antiphon.peers.stack.running import Shown
from tests.peers.support.mesh import Mesh, Process
from tests.peers.support.replicas import Replica

FOUNDERS = ("a", "b", "c")
NAMES = (*FOUNDERS, "d", "e")
STEPS = 60


class Program:
    """A program that keeps a table. It asks for the state when it comes into a primary view from
    one that was not, unless it founds the cluster."""

    def __init__(self, storm: Storm, process: Process) -> None:
        self.process = process
        self.is_right = False  # its table is that of the primary views
        self.asks = False
        self.replica = Replica(self.act)
        self.replica.answers = False
        self.replica.padding = b"x" * storm.random.choice((0, 10, PART_BYTES, 6 * PART_BYTES))
        self.storm = storm
        self.was_primary = False
        self.taken = 0
        self.ended = 0

    @property
    def layer(self) -> State:
        layer = self.process.layer("state")
        assert isinstance(layer, State)
        return layer

    def act(self, call: Any) -> None:
        mesh = self.storm.mesh
        mesh.act(self.process, lambda: self.process.running.act(self.layer, call(self.layer), 0))

    def look(self) -> None:
        """Take what the program was told."""
        while self.taken < len(self.process.told):
            event = self.process.told[self.taken]
            self.taken += 1
            self.replica.told(event)
            if isinstance(event, Shown):
                self.shown(event)
        while self.ended < len(self.replica.outcomes):
            outcome = self.replica.outcomes[self.ended]
            self.ended += 1
            self.asks = False
            # Without one, its own is the one that the others take over.
            self.is_right = outcome is not Outcome.LOST

    def shown(self, shown: Shown) -> None:
        view, changed = shown.view, shown.changed
        if view.primary and not changed.past:
            self.is_right = True  # all who found it have nothing
            self.replica.table.clear()
            self.layer.provides = True
        elif view.primary and not self.was_primary:
            self.is_right = False
            self.ask()
        self.was_primary = view.primary

    def ask(self) -> None:
        self.layer.provides = True
        if not self.asks:
            self.asks = True
            self.act(lambda layer: layer.ask(self.storm.mesh.now_ms))


class Storm:
    """Processes, and what happens to them by chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"storm {seed}")
        self.mesh = Mesh(*stacks.total_uniform(FOUNDERS).layers, seed=seed)
        self.programs: dict[str, Program] = {}
        self.sent = 0
        for name in FOUNDERS:
            self.start(name)
        self.run(500)

    def start(self, name: str) -> None:
        self.mesh.start(name)
        self.programs[name] = Program(self, self.mesh.processes[name])

    def look(self) -> bool:
        for name, program in self.programs.items():
            if program.process.alive and program.process is self.mesh.processes[name]:
                program.look()
        return False

    def run(self, for_ms: int) -> None:
        self.mesh.until(self.look, for_ms)
        self.look()

    def step(self) -> None:
        """Let something happen."""
        random, living = self.random, [process.name for process in self.mesh.living()]
        match random.choices(
            ("send", "kill", "start", "part", "heal", "answer", "ask"), (10, 1, 2, 1, 2, 6, 1)
        )[0]:
            case "send" if living:
                for _ in range(random.randint(1, 4)):
                    self.sent += 1
                    self.mesh.send(random.choice(living), f"m{self.sent}")
            case "kill" if len(living) > 2:
                self.mesh.kill(random.choice(living))
            case "start":
                dead = [name for name in NAMES if name not in living]
                if dead:
                    self.start(random.choice(dead))
            case "part" if living:
                some = {name for name in living if random.random() < 0.4}
                self.mesh.part(some, set(living) - some)
            case "heal":
                self.mesh.heal()
            case "answer" if living:
                replica = self.programs[random.choice(living)].replica
                (replica.fail if random.random() < 0.1 else replica.hand_out)()
            case "ask" if living:
                program = self.programs[random.choice(living)]
                if program.is_right:
                    program.ask()
        self.run(random.choice((0, 0, 1, 2, 5, 20, 200, 1000)))

    def calm(self) -> list[Program]:
        """End the storm; return the programs, once nothing happens any more."""
        self.mesh.heal()
        for name in NAMES:
            if not self.mesh.processes.get(name) or not self.mesh.processes[name].alive:
                self.start(name)
        for _ in range(40):
            self.run(1000)
            for program in self.programs.values():
                program.replica.hand_out()
                if program.was_primary and not program.is_right:
                    program.ask()
        return list(self.programs.values())


@pytest.mark.parametrize("seed", range(1, 13))
def test_in_the_end_all_have_one_table(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.step()
    programs = storm.calm()
    views = {program.process.view for program in programs}
    if not all(view.primary for view in views):
        return  # a majority was lost for good
    assert len(views) == 1
    if not any(program.is_right for program in programs):
        return  # all who had the state are gone
    assert all(program.is_right for program in programs)
    tables = [program.replica.table for program in programs]
    assert len(set(tables[0])) == len(tables[0])
    assert all(table == tables[0] for table in tables)
