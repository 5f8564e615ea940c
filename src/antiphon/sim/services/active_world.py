"""One run of a replicated service: every replica applies every command.

It checks that each request has one outcome, whichever replica reports it; that every client gets
its answer; and that in the end all replicas have the same state.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from antiphon.blocks.pure.service import ActiveReplica, Outcome, attempt
from antiphon.sim.event_loop.loop import SimulatedLoop
from antiphon.sim.services.group_world import (
    BETWEEN_S,
    GroupMessage,
    GroupWorld,
    MakeService,
    Plan,
    ServiceProcess,
    View,
    differ,
    shown,
)
from antiphon.sim.violations import ViolationError


class Came(NamedTuple):
    """The outcome of a command at the first replica that carried it out."""

    command: Any
    outcome: bytes
    place: str


class World(GroupWorld):
    """A group whose replicas all apply every command."""

    def __init__(self, make: MakeService, plan: Plan) -> None:
        super().__init__(make, plan)
        self.outcomes: dict[int, Came] = {}  # by entry
        self._loops: dict[str, SimulatedLoop] = {}

    def _new_core(self, replica: ServiceProcess) -> ActiveReplica:
        with self._users_code(replica, "is made"):
            return ActiveReplica(self._make())

    def _handle_view(self, replica: ServiceProcess, core: Any, view: View) -> None:
        core.viewed(view.members)

    def _handle(self, replica: ServiceProcess, core: Any, said: GroupMessage) -> None:
        with self._users_code(replica, "applies a command"):
            request, known = core.begin(said.data)
            outcome = known or core.finish(request, self._outcome(replica, core, request.command))
        self._compare(replica, replica.at - 1, request.command, outcome)
        life, number = replica.life, request.number
        leaves = max(self.now, replica.busy_until)
        self._at(
            leaves + self._draw(f"reply {replica.place}").uniform(*BETWEEN_S),
            lambda: self._reply(replica, life, said, number, outcome),
        )

    def _outcome(self, replica: ServiceProcess, core: ActiveReplica, command: Any) -> Outcome:
        def apply(command: Any) -> Any:
            result = core.service.apply(command)
            if inspect.isgenerator(result):
                self.refused.append("apply yields: calls to other servers are not simulated here")
            if not inspect.isawaitable(result):
                return result
            # The command takes time, and its replica does nothing else meanwhile.
            loop = self._loop_of(replica)
            loop.advance(self.now)
            try:
                return loop.run_until_complete(result)
            finally:
                replica.busy_until = loop.time()

        return attempt(apply, command)

    def _compare(self, replica: ServiceProcess, at: int, command: Any, outcome: bytes) -> None:
        first = self.outcomes.setdefault(at, Came(command, outcome, replica.place))
        self._tell(replica.place, f"{command!r} -> {shown(outcome)}")
        if differ(first.outcome, outcome):
            raise ViolationError(
                f"replicas differ: {command!r} came to {shown(first.outcome)} at {first.place}, "
                f"and to {shown(outcome)} at {replica.place}"
            )

    def _check_states(self) -> None:
        first, *others = self.states()
        for other in others:
            if told := self.state_difference(first.state, other.state):
                raise ViolationError(
                    f"states differ: {told}, in the state of {first.place} and in that of "
                    f"{other.place}"
                )

    def _loop_of(self, replica: ServiceProcess) -> SimulatedLoop:
        if replica.name not in self._loops:
            self._loops[replica.name] = SimulatedLoop(self._draw(f"loop {replica.name}"))
        return self._loops[replica.name]

    def _forget(self, replica: ServiceProcess) -> None:
        if replica.name in self._loops:
            self._loops[replica.name].abandon()

    def close(self) -> None:
        """Close the loops, for the run is over."""
        for loop in self._loops.values():
            loop.abandon()
            loop.close()
