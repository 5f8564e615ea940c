"""Members and views of a channel, whose members run the protocols themselves.

A server's group numbers its views 1, 2, 3 (`model/views.py`), since one log decides. Members of a
channel may be cut off from one another and go on, so there may be several views at a time: a view
is named by the change that made it, and says whether it is the primary one.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec


class MemberId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """One life of a process: its name, and a number drawn when it started.

    Addresses are no identity, and neither is a name: who comes back under the same name is somebody
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
    (empty if the group was not founded by a list).
    """

    id: ViewId
    members: tuple[MemberId, ...]
    leader: MemberId
    primary: bool = False
    seats: tuple[MemberId, ...] = ()

    def __str__(self) -> str:
        kind = "primary" if self.primary else "minority"
        return f"{self.id} {kind}: {' '.join(map(str, self.members))}"


class Level(IntEnum):
    """How much order a message asks for; each level keeps the promises of those below it."""

    NONE = 0
    FIFO = 1
    CAUSAL = 2
    AGREED = 3
    SAFE = 4
