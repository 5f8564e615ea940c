"""The form of a scenario file: a claim, then steps.

    # What this file shows.
    command
    another command
    ----
    what happened
    what happened then

    # A remark.
    command
    ----
    what happened

A blank line ends a step. The commands are those of `cluster.py`, `groups.py` or `messaging.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tests.scenarios.support.cluster import ScenarioError, ScriptedCluster

RULE = "----"
NOTHING = "(nothing)"


class Scripted(Protocol):
    def do(self, command: str) -> list[str]:
        """Carry out a command; returns what happened."""


class Step(NamedTuple):
    line: int  # where it begins, counted from 1
    script: tuple[str, ...]  # remarks and commands as they stand in the file
    expected: tuple[str, ...]


def parse(text: str) -> list[Step]:
    steps = []
    line = 1
    for block in text.rstrip("\n").split("\n\n"):
        lines = block.split("\n")
        if all(one.startswith("#") for one in lines):
            steps.append(Step(line, tuple(lines), ()))
        elif RULE in lines:
            rule = lines.index(RULE)
            steps.append(Step(line, tuple(lines[:rule]), tuple(lines[rule + 1 :])))
        else:
            raise ScenarioError(f"line {line}: a step has commands, a line {RULE}, and a trace")
        line += len(lines) + 1
    return steps


def play(text: str, make_scripted: Callable[[], Scripted] = ScriptedCluster) -> str:
    """The same file with what really happens."""
    scripted = make_scripted()
    return "\n\n".join(_play_step(scripted, step) for step in parse(text)) + "\n"


def _play_step(scripted: Scripted, step: Step) -> str:
    commands = [
        (step.line + at, command)
        for at, command in enumerate(step.script)
        if not command.startswith("#")
    ]
    if not commands:
        return "\n".join(step.script)
    told = []
    for line, command in commands:
        try:
            told += scripted.do(command)
        except Exception as error:
            error.add_note(f"at line {line}: {command}")
            raise
    return "\n".join([*step.script, RULE, *(told or [NOTHING])])
