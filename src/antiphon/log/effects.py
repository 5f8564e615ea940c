"""Effects: requests of the pure log to its driver, which does all IO.

Durability is an effect with a tail: `Persist(records, then)` releases `then` only when the records,
and all records before them, are on disk. A granted vote, and an acknowledgement of entries that are
not on disk yet, leave in a tail only: `Replica.send`, through which all other messages leave, does
not take them (by type), and `Replica.send_held` acknowledges only entries on disk.
`Send.assert_free` checks each message that leaves without waiting: in the driver, and in the node
before a message is hidden in a `Via`. So "answered, then lost" cannot be written by accident. The
driver carries out effects in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.formats.entry import Entry, ReplicaId, SnapshotMeta
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import Appended, Message, Relay, Vote


class Send(msgspec.Struct, frozen=True):
    """Send a message to a server. It may be lost, repeated or overtaken."""

    to: ReplicaId
    message: Message

    def assert_free(self, stored: int) -> None:
        """Assert that this message may leave without waiting: that it promises nothing which is
        not on disk yet. `stored`: the last own entry that is."""
        message = self.message
        if isinstance(message, Vote):
            assert message.pre or not message.granted, "a vote leaves before its sync"
        elif isinstance(message, Appended):
            assert message.match <= stored, "an acknowledgement leaves before its sync"


class EntriesStored(msgspec.Struct, frozen=True):
    """Comes back as `Node.stored`: the log up to this entry is on disk."""

    index: int
    epoch: int


class VoteStored(msgspec.Struct, frozen=True):
    """Comes back as `Node.stored`: the vote for oneself in this epoch is on disk."""

    epoch: int


class LocalStored(msgspec.Struct, frozen=True):
    """Comes back to the server's home, not to the log: its local record is on disk."""

    batch: int


Tail = Send | EntriesStored | VoteStored | LocalStored


class Persist(msgspec.Struct, frozen=True):
    """Append to the journal; an entry replaces whatever it had at that index and after it."""

    records: tuple[Entry | Promise, ...]
    then: tuple[Tail, ...]


class Deliver(msgspec.Struct, frozen=True):
    """Committed entries, each once and in order; the node applies them to its state machine."""

    entries: tuple[Entry, ...]


class Read(msgspec.Struct, frozen=True):
    """Fetch entries that are not in memory; the answer goes to `Node.entries_read`."""

    reader: ReplicaId | None  # the server that lags; None: entries to be delivered here
    first: int
    max_bytes: int


class ReadPart(msgspec.Struct, frozen=True):
    """Fetch part `seq` of the newest snapshot for `to`; the answer goes to `Node.part_read`."""

    to: ReplicaId
    seq: int


class StorePart(msgspec.Struct, frozen=True):
    """Keep a part of an incoming snapshot; `seq` 0 begins a new one and drops the one before."""

    meta: SnapshotMeta
    seq: int
    data: bytes
    then: tuple[Send, ...]


class Install(msgspec.Struct, frozen=True):
    """All parts are here: make the snapshot the journal's base, in one step that a crash cannot
    halve, then call `Node.installed`."""

    meta: SnapshotMeta


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Store a snapshot of the state machine, then call `Node.snapshot_stored`."""

    meta: SnapshotMeta
    chunks: Iterator[bytes]
    live: tuple[tuple[int, int], ...]  # positions that may still be read
    parked: tuple[int, ...] = ()  # entries whose packs are stored, and not accepted yet


class Accepted(msgspec.Struct, frozen=True):
    """A pack that the state machine accepted: a row for the index."""

    index: int  # the entry with which its messages became visible
    position: int
    count: int
    stamp: int
    view: int
    destination: str
    session: int
    sequence: int
    producer: int = 0
    source: int = 0  # the earlier entry that holds the pack; 0: it is this one


class Applied(msgspec.Struct, frozen=True):
    """The state machine took these entries; `accepted` go into the index, and to their readers."""

    entries: tuple[Entry, ...]
    accepted: tuple[Accepted, ...]
    digest: int  # the machine's, after the last of them
    events: tuple[Any, ...] = ()  # of the machine; the log does not look into them

    def packs(self) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of the accepted packs that came with these entries."""
        payloads = {entry.index: entry.payload for entry in self.entries}
        for accepted in self.accepted:
            payload = payloads.get(accepted.source or accepted.index)
            if payload is not None:  # otherwise it came with an earlier step
                yield accepted.position, payload


class ReadReady(msgspec.Struct, frozen=True):
    """The state machine now reflects all that was committed when `request` was made."""

    request: int
    index: int  # -1: no leader could be asked; try again


class Decided(msgspec.Struct, frozen=True):
    """The outcome of `Node.change` or `Node.transfer`. With neither text it is in the log now, or
    was before; `Status` shows whether it is committed."""

    request: int
    refused: str = ""  # why it would do harm, or makes no sense
    waiting: str = ""  # why it cannot be done now: ask again


class Rejected(msgspec.Struct, frozen=True):
    """These payloads were not taken, and are nowhere."""

    packs: tuple[bytes, ...]
    reason: str


class Relayed(msgspec.Struct, frozen=True):
    """A message that came through another server, for a client that is attached here."""

    message: Relay


Effect = (
    Send
    | Persist
    | Deliver
    | Read
    | ReadPart
    | StorePart
    | Install
    | TakeSnapshot
    | Applied
    | ReadReady
    | Decided
    | Rejected
    | Relayed
)
