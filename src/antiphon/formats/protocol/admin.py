"""The questions of operators and of readers of the log, and the answers: neither needs a
session."""

from __future__ import annotations

import msgspec

from antiphon.formats.entry import Membership, ReplicaId


class Tail(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Read every accepted pack that is still kept, now and in future, without a session."""

    first: int  # the position to begin with
    credit: int  # bytes of packs that may be sent


class Credit(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Let the server send more bytes of packs, for `Tail` or `ReadLog`."""

    more: int


class AskLog(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """Ask which part of the log this server has; answered by `LogBounds`."""

    stamp: int = 0


class AskSlices(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """Ask where messages of these topics are between two positions; answered by `LogSlices`."""

    topics: tuple[str, ...]  # destinations, which may be patterns
    first: int
    last: int
    most: int  # messages in a slice, unless one pack has more


class ReadLog(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """The packs of one destination that have messages between two positions: each as `Delivered`,
    then `LogEnd`. Of this, `AskLog` and `AskSlices` a connection has the newest under way."""

    destination: str
    first: int
    last: int
    credit: int  # bytes of packs that may be sent


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Ask for the `Status` of this server."""


class AskBarrier(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Answer when this server's state reflects all that is committed anywhere now."""

    request: int


class Add(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """Add a server to the cluster."""

    node: int
    address: str


class Remove(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Remove a server from the cluster."""

    node: int


class Transfer(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Make this server the leader."""

    node: int


Change = Add | Remove | Transfer


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The answer to `Tail` and `ReadLog`."""

    position: int  # of the pack's first message
    stamp: int
    pack: bytes
    view: int = 0  # of a group: the one that these messages were ordered in


class LogBounds(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """Every message from `first` to `last`, the last one accepted, is kept here."""

    first: int
    last: int
    at: int  # the first of them that was accepted at the stamp that was asked for, or later


class LogSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where some messages of one topic are: the first and the last position are its own."""

    destination: str
    first: int
    last: int
    messages: int


class LogSlices(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """All slices below `following`. If that is not beyond the range in question, ask again from
    there."""

    slices: tuple[LogSlice, ...]  # of each destination in order
    following: int


class LogEnd(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """All that `ReadLog` asked for has been sent."""

    last: int


class MemberStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member of a group, as the server that answers sees it."""

    name: str
    durable: bool
    joined: int  # the view that it came with
    node: int  # the server that it is connected to; 0: none
    suspected: bool
    why: str  # it is suspected, or away; empty: it is there
    behind: int  # positions between its last acknowledgement and the group's last message
    events: int  # views and suspicions that it has not acknowledged
    state_from: str  # the member that hands it the state; "?": none can; empty: it needs none


class GroupStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group, as the server that answers sees it."""

    name: str
    view_id: int
    messages: int  # accepted, ever
    remove_after_ms: int  # 0: suspects are removed by members only
    members: tuple[MemberStatus, ...]  # in the order in which they joined


class Status(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """One server's view of itself and of the cluster."""

    id: ReplicaId
    pid: int
    role: str
    epoch: int
    leader: ReplicaId | None
    membership: Membership
    addresses: dict[int, str]  # of the servers that it knows
    committed: int
    applied: int
    position: int  # of the last accepted message
    digest: int  # of its state, to be compared at equal `applied`
    cpu_s: float
    trouble: tuple[str, ...]  # why it does not take part as it should
    counts: dict[str, dict[str, int]] = {}  # component -> its counts, and the lengths of its queues
    groups: tuple[GroupStatus, ...] = ()


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The answer to `AskBarrier`."""

    request: int
    position: int  # the last one accepted, as of some moment after the request


class Asked(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The leader has taken the change; `Status` shows when it has happened. One that it never will
    take is `Refused`."""

    waiting: str = ""  # why it has not taken it yet: ask again


class NotLeader(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Only a leader changes the cluster. Nothing was changed."""

    leader: int | None
    address: str
