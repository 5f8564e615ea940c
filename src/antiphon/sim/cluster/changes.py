"""Changes of the servers in a simulated cluster: the operators' requests, and a check of removals.

A removal must leave a majority of servers that are up and hold all entries that were committed at
the time of the request: otherwise the others are stuck as soon as the removed one has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antiphon.formats.entry import ClusterMember, ReplicaId
from antiphon.log.effects import Decided
from antiphon.log.quorum import majority
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.cluster.server import SimServer
    from antiphon.sim.cluster.world import World


class Asked(NamedTuple):
    """One request for a change, with the state at its time."""

    at_us: int
    member: ClusterMember | int
    commit: int  # the leader's commit index at that time
    voters: tuple[ReplicaId, ...]


class Changes:
    """All requests for changes of the servers, and the check of removals."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[int, Asked] = {}
        self.died_us: dict[ReplicaId, int] = {}  # when each life of a server ended last

    def asked(self, server: SimServer, member: ClusterMember | int) -> int:
        """Note a request to this server; return its number."""
        request = len(self._asked) + 1
        replica = server.node.replica
        voters = replica.memberships.current.voters
        self._asked[request] = Asked(self._world.now_us, member, replica.commit, voters)
        return request

    def decided(self, server: SimServer, effect: Decided) -> None:
        asked = self._asked.get(effect.request)
        if asked is None:
            return
        if effect.refused or effect.waiting:
            self._world.faults["change refused" if effect.refused else "change put off"] += 1
            self._world.note(server.number, effect.refused or effect.waiting)
        elif isinstance(asked.member, int):
            self._check_removal(server, asked)

    def _check_removal(self, server: SimServer, asked: Asked) -> None:
        """Check a removal; call it right after the leader has appended it."""
        voters = server.node.replica.memberships.current.voters
        if voters == asked.voters:
            return  # a learner does not count
        there = [v for v in voters if self._was_there(v, asked)]
        if len(there) < majority(voters):
            raise ViolationError(
                f"server {server.number} removes {asked.member} and leaves {[*map(str, voters)]}, "
                f"of which only {[*map(str, there)]} are there and up to date"
            )

    def _was_there(self, voter: ReplicaId, asked: Asked) -> bool:
        """Return whether it was up since the request, and held all entries that were committed
        then."""
        server, replica = self._world.servers[voter.node], self._world.replicas.get(voter)
        if replica is None or replica.stored < asked.commit:
            return False
        lives = server.alive and server.id == voter
        return lives or self.died_us.get(voter, -1) >= asked.at_us
