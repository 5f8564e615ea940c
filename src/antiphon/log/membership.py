"""The servers of the cluster, at every point of the log.

A membership holds from the moment its entry is *appended*, not committed (Raft, 4.1): old and new
majority overlap because only one server changes at a time, and waiting for the commit would leave
the two sides of a change undecided about who decides. So a truncated entry takes its membership
back with it, and the history must remember the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiphon.formats.entry import ClusterMember, Membership, ReplicaId
from antiphon.log.quorum import majority

NOBODY = Membership(0, ())


class MembershipHistory:
    """The memberships of one replica's log, each with the index of its entry; the last one
    holds."""

    def __init__(self, history: list[tuple[int, Membership]]) -> None:
        self._history = history or [(0, NOBODY)]
        self.current = self._history[-1][1]

    @property
    def index(self) -> int:
        """The index of the entry with the current membership."""
        return self._history[-1][0]

    def append(self, index: int, membership: Membership) -> None:
        """Take the membership of an entry that was appended: it holds from now on."""
        assert index > self.index
        self._history.append((index, membership))
        self.current = membership

    def truncate(self, first: int) -> None:
        """Take back the memberships of entries that were cut off, from `first` on."""
        while len(self._history) > 1 and self._history[-1][0] >= first:
            self._history.pop()
        self.current = self._history[-1][1]

    def forget_before(self, index: int) -> None:
        """Keep the one that holds at `index` and those after it."""
        while len(self._history) > 1 and self._history[1][0] <= index:
            self._history.pop(0)

    def at(self, index: int) -> Membership:
        """Return the membership that holds at `index`."""
        for start, membership in reversed(self._history):
            if start <= index:
                return membership
        return self._history[0][1]


def objection(current: Membership, member: ClusterMember | int) -> str:
    """Why this server can never be added to these, or (a number) removed from them."""
    if isinstance(member, ClusterMember):
        for m in current.members:
            if (m.node == member.node) != (m.address == member.address):
                return (
                    f"node {member.node} cannot be added at {member.address}: node {m.node} is a "
                    f"member at {m.address}. Remove that one first, or give the new server a "
                    "number and an address of its own"
                )
        return ""
    if current.member(member) is None:
        members = named(current.members)
        return f"node {member} is not a member of the cluster; its members are {members}"
    if not current.without(member).voters:
        return f"node {member} is the only one that has the data; add another one first"
    return ""


def no_majority(node: int, smaller: Membership, missing: Mapping[ReplicaId, str]) -> str:
    """Why `node` is not removed."""
    voters = smaller.voters
    return (
        f"node {node} is not removed: without it {majority(voters)} of {named(voters)} must be "
        f"there and up to date, but {', '.join(missing.values())}. Wait for that or bring it back, "
        f"or remove it instead of node {node}"
    )


def named(members: Sequence[ClusterMember] | Sequence[ReplicaId]) -> str:
    """Return these servers as words for an error text."""
    return ("nodes " if len(members) > 1 else "node ") + ", ".join(str(m.node) for m in members)
