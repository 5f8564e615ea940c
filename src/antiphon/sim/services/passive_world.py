"""One run of a passively replicated service: the primary carries out commands, the others take over
its state.

A strike hits the replica that takes a certain step of the run, so that a primary can be gone
between any two of its steps: when it has carried out a command and before the others know of it,
for instance. One that was wrongly suspected goes back to the agreed state, by a `restore` of a
service that is in another state.

It checks that all replicas agree on one state where a view begins, and that in the end each service
is in the agreed state. Clients get their answers as always, and the user's check judges these.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.blocks.pure.passive import Answer, Call, Cast, Effect, End, Kind, PassiveReplica
from antiphon.sim.services.group_world import (
    ON_THE_WAY_S,
    Fault,
    GroupMessage,
    GroupWorld,
    MakeService,
    Plan,
    ServiceProcess,
    State,
    View,
    shown,
)
from antiphon.sim.violations import ViolationError

STEP = "step "
"""The prefix of a fault's place that is a step of the run instead of a time."""


class PassiveWorld(GroupWorld):
    """A group whose primary applies commands, while the others take over the states."""

    def __init__(
        self, make: MakeService, plan: Plan, kinds: Mapping[str, Kind] | None = None
    ) -> None:
        """`kinds`: of the targets that the service calls, by name."""
        self._strikes: dict[int, Fault] = {}
        super().__init__(make, plan)
        self._kinds = kinds
        self.steps = 0
        self._casts: dict[str, list[bytes]] = {}  # that have not left, by replica
        self._begins: dict[int, State] = {}  # by view: what the first replica there agrees on

    def _schedule(self, fault: Fault) -> None:
        if fault.whom.startswith(STEP):
            self._strikes[int(fault.whom.removeprefix(STEP))] = fault
        else:
            super()._schedule(fault)

    def _check_states(self) -> None:
        cores = [r.core for r in self._replicas if r.up and r.core is not None]
        for found, core in zip(self.states(), cores, strict=True):
            agreed = State("that all agreed on", core.agreed)
            self._compare(agreed, State(f"of {found.place}", found.state))

    def _compare(self, one: State, other: State) -> None:
        if told := self.state_difference(one.state, other.state):
            raise ViolationError(
                f"states differ: {told}, in the state {one.place} and in that {other.place}: "
                "restore() has to leave nothing of what was there before, snapshot() has to change "
                "nothing, and viewed() has to do the same in every replica"
            )

    # -- Replicas -------------------------------------------------------------------------------

    def _new_core(self, replica: ServiceProcess) -> PassiveReplica:
        with self._users_code(replica, "is made"):
            service = self._make()
            if self._kinds is None and inspect.isgeneratorfunction(service.apply):
                self.refused.append("apply yields: calls to other servers are not simulated here")
            if inspect.iscoroutinefunction(service.apply):
                self.refused.append("apply is a coroutine: a primary cannot wait for it")
            return PassiveReplica(service, replica.name, self._kinds)

    def _handle_view(self, replica: ServiceProcess, core: Any, view: View) -> None:
        effects = core.viewed(view.number, view.members)
        # The next update hides a difference, and its primary may be who differs.
        agreed = State(f"of {replica.place} in view {view.number}", core.agreed)
        self._compare(self._begins.setdefault(view.number, agreed), agreed)
        self._carry_out(replica, effects)

    def _handle(self, replica: ServiceProcess, core: Any, said: GroupMessage) -> None:
        with self._users_code(replica, "handles a message"):
            effects = core.heard(said.data)
        self._carry_out(replica, effects)

    def _carry_out(self, replica: ServiceProcess, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._count_step(replica)
            if not replica.up or replica.core is None:
                return  # it crashed before the other effects
            if isinstance(effect, Cast):
                self._cast(replica, effect)
            elif isinstance(effect, Answer):
                self._answer(replica, effect)
            else:
                self._at_target(replica, effect)

    def _at_target(self, replica: ServiceProcess, effect: Call | End) -> None:
        raise NotImplementedError

    def _count_step(self, replica: ServiceProcess) -> None:
        self.steps += 1
        if strike := self._strikes.get(self.steps):
            self._strike(strike._replace(whom=replica.place))

    def _leave(self, replica: ServiceProcess, call: Any) -> None:
        """Send a message: when its sender is not held, and if it has not crashed by then."""
        life = replica.life

        def leave() -> None:
            if replica.life != life or not replica.up:
                return
            if self._is_held(replica):
                self._at(replica.held_until, leave)
            else:
                call()

        self._after(ON_THE_WAY_S, f"leaves {replica.place}", leave)

    def _cast(self, replica: ServiceProcess, cast: Cast) -> None:
        """Send a message to the group. A replica's messages keep their order, as a session's do."""
        queue = self._casts.setdefault(replica.name, [])
        queue.append(cast.data)
        life = replica.life
        self._leave(replica, lambda: self._append(GroupMessage(queue.pop(0), -1, life)))

    def _answer(self, replica: ServiceProcess, answer: Answer) -> None:
        name, number = answer.key
        if not answer.is_primary:
            return
        for index, client in enumerate(self._clients):
            if client.name == name:
                self._tell(replica.place, f"answers {client.place}: {shown(answer.outcome)}")
                said = GroupMessage(b"", index, client.life)
                self._reply(replica, replica.life, said, number, answer.outcome)
