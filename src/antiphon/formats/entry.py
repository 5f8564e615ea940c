"""Entries, of which the log is made, and the membership that some of them carry.

An entry is one decision of the replicated log. Its `index` is its place, `epoch` the leadership
that appended it, `stamp` the log's own time in milliseconds, `payload` bytes that the log itself
never looks into (except for `Kind.MEMBERSHIP`). A large one begins with the CRC32C of its rest, as
packs and commands do: frames and records that carry it rely on that (`checksums.py`).
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import msgspec

from antiphon.errors import FormatError

ANY = 0
"""In place of an incarnation: any one, "whichever answers at that node"."""


class Kind(IntEnum):
    """The kind of an entry's payload."""

    PACK = 1  # a pack of messages, opaque here
    MEMBERSHIP = 2  # the servers from here on
    EPOCH = 3  # a new leader's first entry: commits what earlier epochs left behind
    TICK = 4  # time passed, and the state machine had asked for this


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One decision of the log; the module's docstring explains its fields."""

    index: int
    epoch: int
    stamp: int
    kind: int
    payload: bytes


class ReplicaId(NamedTuple):
    """One life of one server: if it forgot its promises, it comes back as a new incarnation."""

    node: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node}" if self.incarnation == ANY else f"{self.node}.{self.incarnation:x}"


class ClusterMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One server of a cluster: which incarnation counts, and where it is reached."""

    node: int
    incarnation: int  # ANY: expected, but not yet seen
    voter: bool  # False: a learner, which catches up and does not count
    address: str = ""

    @property
    def id(self) -> ReplicaId:
        """The incarnation that is the member."""
        return ReplicaId(self.node, self.incarnation)


class Membership(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The servers of a cluster, sorted by node number."""

    cluster: int
    members: tuple[ClusterMember, ...]

    def member(self, node: int) -> ClusterMember | None:
        """Return the member with this node number, or None."""
        return next((m for m in self.members if m.node == node), None)

    @cached_property  # this is asked for with every entry
    def voters(self) -> tuple[ReplicaId, ...]:
        """The members that count."""
        return tuple(m.id for m in self.members if m.voter)

    def with_member(self, member: ClusterMember) -> Membership:
        """Return the membership with this member, instead of an earlier one of its node."""
        others = [m for m in self.members if m.node != member.node]
        return Membership(self.cluster, tuple(sorted([*others, member], key=lambda m: m.node)))

    def without(self, node: int) -> Membership:
        """Return the membership without this node."""
        return Membership(self.cluster, tuple(m for m in self.members if m.node != node))


class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The entry that a snapshot stands for: it has the state after `index`, and the servers at that
    point."""

    index: int
    epoch: int
    stamp: int
    membership: Membership


_encoder = msgspec.msgpack.Encoder()
_membership_decoder = msgspec.msgpack.Decoder(Membership)
_meta_decoder = msgspec.msgpack.Decoder(SnapshotMeta)


def encode_membership(membership: Membership) -> bytes:
    """Return the payload of a `Kind.MEMBERSHIP` entry."""
    return _encoder.encode(membership)


def decode_membership(payload: bytes) -> Membership:
    """Return the membership in such a payload. Raise `FormatError`."""
    try:
        return _membership_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a membership: {error}") from None


def encode_meta(meta: SnapshotMeta) -> bytes:
    """Return the header of a snapshot."""
    return _encoder.encode(meta)


def decode_meta(data: bytes) -> SnapshotMeta:
    """Return the content of such a header. Raise `FormatError`."""
    try:
        return _meta_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a snapshot header: {error}") from None
