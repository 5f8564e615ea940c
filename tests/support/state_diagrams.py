"""State machines as the docs show them: drawn from the tables that the code runs.

`python -m tests.support.state_diagrams` writes every machine of `MACHINES` into `docs/STATES.md`,
between the two comments that name it; `tests/test_states.py` fails when the page differs.

To add one: a table `{(state, cause): state}` in the code, with two enums whose values are words
for people; a line in `MACHINES`; and in the page a heading, a sentence or two, and the comments

    <!-- drawn: NAME -->
    <!-- end -->
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.api.protocol import phases
from antiphon.api.protocol.phases import Phase
from antiphon.broker.machine.groups import presence
from antiphon.broker.machine.groups.presence import Presence
from antiphon.broker.machine.sessions import attachment
from antiphon.broker.machine.sessions.attachment import Attachment
from antiphon.log.roles.transitions import TRANSITIONS, Role
from antiphon.peers.membership import phases as change_phases

PAGE = Path(__file__).parents[2] / "docs" / "STATES.md"


class StateMachine(NamedTuple):
    """One table of the code. Promise: what is drawn is in the table, and the other way round."""

    name: str
    starts: tuple[Enum, ...]  # the states in which it can begin
    ends: tuple[Enum, ...]  # and those that nothing leads out of
    transitions: Mapping[tuple[Any, Any], Any]  # (state, cause) -> state, each an Enum

    def states(self) -> list[Enum]:
        """Return all states, in the order of their enum."""
        return list(type(self.starts[0]))

    def causes(self) -> list[Enum]:
        """Return all causes, in the order of their enum."""
        (_, cause), *_ = self.transitions
        return list(type(cause))

    def reachable(self) -> set[Enum]:
        """Return the states that a machine can come to."""
        found: set[Enum] = set()
        new = set(self.starts)
        while new:
            found |= new
            new = {to for (state, _), to in self.transitions.items() if state in new} - found
        return found


MACHINES = [
    StateMachine("role of a replica", (Role.NEWCOMER, Role.FOLLOWER), (), TRANSITIONS),
    StateMachine(
        "attachment of a session",
        (Attachment.NEW,),
        (Attachment.ENDED,),
        attachment.TRANSITIONS,
    ),
    StateMachine(
        "presence of a member",
        (Presence.PRESENT, Presence.INACTIVE),
        (),
        presence.TRANSITIONS,
    ),
    StateMachine("phase of a conversation", (Phase.PAUSING,), (Phase.OVER,), phases.TRANSITIONS),
    StateMachine(
        "phase of a change",
        (change_phases.Phase.IN_VIEW, change_phases.Phase.WAITING),
        (change_phases.Phase.OUT,),
        change_phases.TRANSITIONS,
    ),
]


def drawn(machine: StateMachine) -> str:
    """Return the diagram, without what changes nothing, and the table with everything."""
    return f"```mermaid\n{diagram(machine)}\n```\n\n{table(machine)}\n"


def diagram(machine: StateMachine) -> str:
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state.value}" as {_id(state)}' for state in machine.states()]
    lines += [f"    [*] --> {_id(state)}" for state in machine.starts]
    for source in machine.states():
        for target in machine.states():
            causes = [
                cause.value
                for cause in machine.causes()
                if machine.transitions.get((source, cause)) is target is not source
            ]
            if causes:
                lines.append(f"    {_id(source)} --> {_id(target)}: {'<br/>'.join(causes)}")
    lines += [f"    {_id(state)} --> [*]" for state in machine.ends]
    return "\n".join(lines)


def table(machine: StateMachine) -> str:
    states = machine.states()
    rows = [["because", *(f"*{state.value}*" for state in states)], ["---"] * (len(states) + 1)]
    for cause in machine.causes():
        to = [machine.transitions.get((state, cause)) for state in states]
        rows.append([cause.value, *("" if state is None else str(state.value) for state in to)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def redrawn(page: str) -> str:
    """Return the page with each machine as it is in the code."""
    for machine in MACHINES:
        begin, end = f"<!-- drawn: {machine.name} -->\n", "<!-- end -->"
        before, _, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        assert closed, f"{PAGE.name} has no place for the {machine.name}"
        page = f"{before}{begin}{drawn(machine)}{end}{after}"
    return page


def _id(state: Enum) -> str:
    return state.name.lower()


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
