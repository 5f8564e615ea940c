"""A program of a chaos run as a member of a group: it multicasts, removes suspects, leaves, comes
back, and writes a trace for `core/group_spec.py`.

A file `calm` in the folder of the traces makes all members calm: they stay what they are and send
no more, so that the group comes to rest. (A signal could come before a program can take it.)
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import antiphon

if TYPE_CHECKING:
    from antiphon.chaos.program import Program

CALM = "calm"
REMOVE_AFTER_S = 3.0
ACKNOWLEDGE_EVERY = 20

# How often, at each turn.
MULTICASTS = 0.5
LEAVES = 0.002
REMOVES_SUSPECTS = 0.5


class GroupMember:
    """One membership. A durable member acknowledges what is in its trace: otherwise what it had got
    and not written down when it was killed would seem to be lost."""

    def __init__(self, program: Program, ctx: antiphon.Context) -> None:
        spec = program.spec
        self._program = program
        self._ctx = ctx
        self._chance = program.chance
        self._trace = program.trace
        self._where = spec.consumes
        self._calm = Path(spec.folder, CALM)
        self._durable = spec.durable
        self._numbers = count(1)
        self._unacknowledged = 0
        destination = antiphon.Destination.parse(self._where)
        group = ctx.create_group(destination.name, remove_after=REMOVE_AFTER_S)
        self._me = ctx.join(group, spec.name, durable=spec.durable)
        self._trace.add("join", group=self._where, sender=spec.name, durable=spec.durable)

    def run(self) -> None:
        """Until it leaves, is removed, or the program is to end."""
        while not self._program.stop.is_set():
            message = self._me.receive(timeout=0.02)
            if message is not None:
                self._handle(message)
                self._acknowledge(ACKNOWLEDGE_EVERY)
                if self._me.name not in self._me.view.members:
                    return self._acknowledge(1)
                continue
            self._acknowledge(1)
            if self._chooses(LEAVES):
                return self._leave()
            if self._chooses(MULTICASTS):
                self._multicast()
        if self._durable:
            self._trace.add("crash")  # it stays a member, and is not up any more
            self._me.close()
        else:
            self._leave()

    def _chooses(self, probability: float) -> bool:
        return self._chance.random() < probability and not self._calm.exists()

    def _handle(self, message: antiphon.Message) -> None:
        self._unacknowledged += 1
        is_event = isinstance(message, antiphon.ViewMessage | antiphon.SuspicionMessage)
        self._trace.handed_out(self._where, message, "" if is_event else message.text)
        match message:
            case antiphon.SuspicionMessage(suspects=suspects) if suspects:
                if self._chooses(REMOVES_SUSPECTS):
                    self._trace.add("remove", group=self._where, members=suspects)
                    self._me.remove(*suspects)

    def _acknowledge(self, at_least: int) -> None:
        if self._durable and self._unacknowledged >= at_least:
            self._ctx.acknowledge()
            self._unacknowledged = 0

    def _multicast(self) -> None:
        id = f"{self._program.session}#{next(self._numbers)}"
        self._trace.add("send", group=self._where, message=id, persistent=True)
        self._me.multicast(id)
        self._trace.add("sent", group=self._where, message=id, persistent=True)

    def _leave(self) -> None:
        self._trace.add("leave", group=self._where)
        self._me.leave()
