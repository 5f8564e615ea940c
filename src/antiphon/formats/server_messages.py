"""The messages between servers. Values only; `formats/frames.py` turns them into bytes.

A message travels in an `Envelope` that names one life of its sender and one of its receiver
(`ReplicaId`): a message for an earlier incarnation is not taken by a later one.
"""

from __future__ import annotations

import msgspec

from antiphon.formats.entry import Entry, Membership, ReplicaId, SnapshotMeta


class RequestVote(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A candidate asks for a vote, or a pre-candidate whether it would get one."""

    epoch: int
    last_index: int
    last_epoch: int
    pre: bool  # only asks whether it would have a chance; no epoch changes
    forced: bool  # the old leader asked for this election: listen even if you hear a leader


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The answer: granted, or refused with the epoch of the server that refuses."""

    epoch: int
    granted: bool
    pre: bool


class Append(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The leader's entries behind `prev_index`, and how far the log is committed. Without entries
    it is a sign of life."""

    epoch: int
    prev_index: int
    prev_epoch: int
    entries: tuple[Entry, ...]
    commit: int
    round: int  # echoed by the answer: its sender was in this epoch after the round was sent
    has: int = 0  # how much the leader itself holds (durable mode: synced). Since wire version 2


class Appended(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """An acknowledgement: it counts for commits, and shows that the sender was in this epoch in
    this round."""

    epoch: int
    match: int  # the sender holds the leader's log up to here
    round: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """An append that does not fit the sender's log, or whose leader's time is over."""

    epoch: int
    prev_index: int  # of the append that did not fit
    hint_index: int  # try no later than here
    hint_epoch: int
    round: int


class SnapshotPart(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A part of the leader's snapshot, for a server that lacks entries which the leader's log no
    longer has."""

    epoch: int
    attempt: int  # a transfer that begins again has a new number
    meta: SnapshotMeta
    seq: int
    data: bytes
    last: bool


class PartTaken(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The answer to a part."""

    epoch: int
    attempt: int
    seq: int  # parts up to here are stored; -1: none, begin again


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The leader asks its successor to campaign at once."""

    epoch: int


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """Packs that a follower's home proposes, for the leader to append."""

    packs: tuple[bytes, ...]


class ReadRequest(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A follower asks for an index up to which all that is committed now is."""

    request: int


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """The answer, once a majority has shown that it still follows the leader."""

    request: int
    index: int  # -1: not answered here; ask again


class Knock(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A server without a place asks for one."""

    who: ReplicaId  # a follower passes a knock on to its leader
    echo: int  # the challenge of the welcome that this answers; 0: none yet


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """There is a cluster; if it comes from the leader, the server that knocked must echo the
    challenge."""

    challenge: int  # 0: from a member that does not lead


class Unwelcome(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """This node is not a member of the cluster."""

    reason: str


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """The founder asks a fresh server to be founded by it alone."""

    nonce: int
    listed: tuple[int, ...]


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """The answer: no other server will found this one."""

    nonce: int
    listed: tuple[int, ...]


class Found(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """The cluster is founded, with these members."""

    nonce: int
    membership: Membership


class Relay(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """For a client that is attached there. Not of the log: the server hands it to its home. Since
    wire version 3."""

    session: int
    attachment: int
    body: bytes  # as in `formats/protocol/`


class View(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A report of one server about itself."""

    node: int
    age_ms: int  # since it said so
    seeks: bool  # it does not hear its leader, or a member that it leads
    hears: tuple[int, ...]  # nodes, not through others


class Hears(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """A report of the servers that the sender hears, with the reports of others to it
    (`log/routes.py`). Since wire version 4."""

    views: tuple[View, ...]


class Via(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """A message for a server that does not hear its source: to be passed on. Since wire
    version 4."""

    source: ReplicaId
    to: ReplicaId
    hops: int  # how often it was sent
    body: bytes  # the message, which servers that pass it on do not read


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """A piece of a large pack, before that is forwarded or appended under its name
    (`log/pieces.py`). Since wire version 4."""

    name: bytes
    at: int  # where in the pack it begins
    data: bytes


class PieceTaken(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """Since wire version 4."""

    name: bytes
    held: int  # bytes, from the beginning


class AppendNamed(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """An append to a server that holds its large packs. Since wire version 4."""

    append: Append
    named: tuple[int, ...]  # of its entries, those that have a pack's name as payload


class ForwardNamed(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """Packs for a leader that holds the large ones. Since wire version 4."""

    packs: tuple[bytes, ...]
    named: tuple[int, ...]  # of these, those that are names


Message = (
    RequestVote
    | Vote
    | Append
    | Appended
    | Refused
    | SnapshotPart
    | PartTaken
    | TimeoutNow
    | Forward
    | ReadRequest
    | ReadAnswer
    | Knock
    | Welcome
    | Unwelcome
    | Ask
    | Promise
    | Found
    | Relay
    | Hears
    | Via
    | Piece
    | PieceTaken
    | AppendNamed
    | ForwardNamed
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message with the incarnations of its sender and its receiver."""

    sender: ReplicaId
    to: ReplicaId
    message: Message
