"""Programs of a chaos run in a group: members that multicast, remove suspects, leave and come back,
and an outsider that sends to them. Their contexts write the traces (`connect(trace=...)`), which
must keep to `checkers/groups.py`.

Members that are not durable are replicas: their state is a digest of all messages since the group
began, which they hand to members that join. At the end all of them must have the same digest.

A file `calm` in the folder of the traces makes all members calm: they neither join nor leave, send
nothing more and write down their state. (A signal could come before a program can take it.)
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import antiphon

if TYPE_CHECKING:
    from antiphon.lab.chaos.program import Program

CALM = "calm"
REMOVE_AFTER_S = 3.0

# How often, whenever there is nothing to receive.
MULTICASTS = 0.5
LEAVES = 0.002
REMOVES_SUSPECTS = 0.5


def state_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.state"


def send_from_outside(program: Program, ctx: antiphon.Context) -> None:
    producer = ctx.create_producer()
    destination = antiphon.Destination.parse(program.spec.to[0])
    for number in count(1):
        producer.send(destination, f"{program.session}#{number}")
        if program.stop.wait(program.chance.uniform(0.001, 0.02)):
            return


class GroupMember:
    """One membership."""

    def __init__(self, program: Program, ctx: antiphon.Context) -> None:
        spec = program.spec
        self._program = program
        self._chance = program.chance
        self._folder = Path(spec.folder)
        self._numbers = count(1)
        self._digest = b""
        self._written = ""
        group = ctx.create_group(
            antiphon.Destination.parse(spec.consumes).name, remove_after=REMOVE_AFTER_S
        )
        provider = None if spec.durable else self._hand_out
        self._me = ctx.join(group, spec.name, durable=spec.durable, state_provider=provider)
        state = None if spec.durable else self._me.initial_state
        if state is not None:
            self._digest = state.read()

    def _hand_out(self) -> bytes:
        return self._digest

    def run(self) -> None:
        """Work until the member leaves, is removed, or the program is asked to end."""
        while not self._program.stop.is_set():
            message = self._me.receive(timeout=0.02)
            if message is not None:
                self._handle(message)
                if self._me.name not in self._me.view.members:
                    return
            elif self._chooses(LEAVES):
                return self._me.leave()
            elif self._chooses(MULTICASTS):
                self._me.multicast(f"{self._program.session}#{next(self._numbers)}")
            elif self._is_calm:
                self._write_state()

    @property
    def _is_calm(self) -> bool:
        return (self._folder / CALM).exists()

    def _chooses(self, probability: float) -> bool:
        return self._chance.random() < probability and not self._is_calm

    def _handle(self, message: antiphon.Message) -> None:
        match message:
            case antiphon.ViewMessage():
                pass
            case antiphon.SuspicionMessage(suspects=suspects):
                if suspects and self._chooses(REMOVES_SUSPECTS):
                    self._me.remove(*suspects)
            case _:
                self._digest = blake2b(self._digest + message.text.encode()).digest()

    def _write_state(self) -> None:
        state = self._digest.hex()
        if state != self._written:
            state_file(self._folder, self._me.name).write_text(state)
            self._written = state
