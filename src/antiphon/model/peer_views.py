"""Members and views of a channel, whose members run the protocols themselves.

A server's group numbers its views 1, 2, 3 (`model/views.py`), since one log decides. Members of a
channel may be cut off from one another and go on, so there may be several views at a time: a view
is named by the change that made it, and says whether it is the primary one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

import msgspec


class MemberId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """One life of a process: its name, and a number drawn when it started.

    Addresses are no identity, and neither is a name: whoever comes back under it is somebody
    else, with another incarnation.
    """

    name: str
    incarnation: int

    def __str__(self) -> str:
        return self.name


class ViewId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The change that made a view: its round and its coordinator. A process only takes part in
    changes that are above all that it took part in before."""

    round: int
    coordinator: MemberId

    def __str__(self) -> str:
        return f"{self.round}.{self.coordinator}"


class PeerView(msgspec.Struct, frozen=True, array_like=True):
    """The members of a channel from one point up to the next change.

    `members`: the oldest first; `leader`: the member that sequences and is the first to start the
    next change. `primary`: of all views at a time at most one is primary, and all primary views
    that are shown form one chain. `seats`: the members that hold the votes of a listed group
    (empty if the group was not founded by a list). `learners`: members that do not count for a
    quorum yet, because they lack the state that others have (`State.counts`).
    """

    id: ViewId
    members: tuple[MemberId, ...]
    leader: MemberId
    primary: bool = False
    seats: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()

    @property
    def voters(self) -> tuple[MemberId, ...]:
        """The members that count."""
        if not self.learners:
            return self.members
        return tuple(member for member in self.members if member not in self.learners)

    def __str__(self) -> str:
        kind = "primary" if self.primary else "minority"
        return f"{self.id} {kind}: {' '.join(map(str, self.members))}"


def is_quorum(view: PeerView, processes: Collection[MemberId]) -> bool:
    """Whether these processes may go on as the primary one after this view: of all sets at most one
    of two that have no process in common."""
    return held_by_quorum(view, dict.fromkeys(processes, 1)) == 1


def held_by_quorum(view: PeerView, held: Mapping[MemberId, int]) -> int:
    """Return the highest number that a quorum of the view has reached; 0 for one that is not named.

    A quorum is a strict majority of the members that are no learners, or half of them with the
    first one; and a majority of the seats, if there are any.
    """
    voters = view.voters
    members = sorted(held.get(member, 0) for member in voters)
    half = len(members) // 2
    reached = members[-half - 1]
    if len(members) % 2 == 0:
        reached = max(reached, min(members[half], held.get(voters[0], 0)))
    if view.seats:
        seats = sorted(held.get(seat, 0) for seat in view.seats)
        reached = min(reached, seats[-(len(seats) // 2) - 1])
    return reached


class Level(IntEnum):
    """How much order a message asks for; each level keeps the promises of those below it."""

    NONE = 0
    FIFO = 1
    CAUSAL = 2
    AGREED = 3
    SAFE = 4
