"""How a replica takes the leader's log: appends, the snapshot that replaces entries that are gone,
and deliveries by its own count.

Promises: it acknowledges only entries on disk (in memory mode: in its log); it never takes back a
committed entry; and it delivers only entries that a majority holds, with or without the leader's
notice. Needs: the senders of appends and parts have been accepted as leaders (`Election.follows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.formats.entry import Entry, ReplicaId, SnapshotMeta
from antiphon.formats.server_messages import (
    Append,
    Appended,
    PartTaken,
    Refused,
    SnapshotPart,
)
from antiphon.log.effects import Install, Send, StorePart
from antiphon.log.quorum import held_by_majority, tell_each_other

if TYPE_CHECKING:
    from antiphon.log.replica import Replica


class Following:
    """The part of a replica that follows. It belongs to the replica and changes its log; its counts
    are of one epoch, and forgotten with it."""

    def __init__(self, replica: Replica) -> None:
        self._r = replica
        self._leader_has = 0
        self._held: dict[ReplicaId, int] = {}  # acknowledgements seen in this epoch
        self._told_alive_ms = replica.now_ms  # the leader, of parts that come from it
        # The attempt (epoch, number) to send us a snapshot, and the part that comes next.
        self._incoming: tuple[tuple[int, int], int] | None = None
        self.installing: SnapshotMeta | None = None

    # -- Entries -------------------------------------------------------------------------------

    def on_append(self, sender: ReplicaId, m: Append) -> None:
        """Take the leader's entries, or refuse them with a hint where the logs may agree."""
        r = self._r
        if not r.election.follows(sender, m.epoch, m.round):
            return
        if self.installing is not None:
            return  # the log is about to be replaced; the leader will ask again
        log, base = r.log, r.log.base_index
        prev_index, prev_epoch, entries = m.prev_index, m.prev_epoch, m.entries
        if prev_index < base:
            # Our snapshot stands for committed entries: those cannot differ.
            skip = min(base - prev_index, len(entries))
            prev_index, entries = prev_index + skip, entries[skip:]
            if prev_index < base:
                self._acknowledge(base, m.round)
                return
            prev_epoch = log.base_epoch
        if log.epoch_at(prev_index) != prev_epoch:
            self._refuse(sender, m)
            return
        match = prev_index + len(entries)
        new = self._store(entries)
        self._leader_has = max(self._leader_has, m.has)
        if new:
            r.keep(new, [Send(to, Appended(m.epoch, match, m.round)) for to in self._ack_to()])
        elif entries or m.round:
            self._acknowledge(match, m.round)
        r.advance(min(m.commit, match))
        self.count()
        r.large_packs.again()

    def _refuse(self, sender: ReplicaId, m: Append) -> None:
        # The hint is the last place where the logs may agree: not beyond our end, and not inside
        # an epoch that the leader's log did not have at that place.
        r = self._r
        hint = r.log.last_not_after(m.prev_index, m.prev_epoch)
        epoch = r.log.epoch_at(hint)
        assert epoch is not None
        r.send(sender, Refused(r.epoch, m.prev_index, hint, epoch, m.round))

    def _store(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Take the new ones among these entries; cut off those that contradict them."""
        r = self._r
        for at, entry in enumerate(entries):
            epoch = r.log.epoch_at(entry.index)
            if epoch == entry.epoch:
                continue
            if epoch is not None:
                self._truncate(entry.index)
            new = entries[at:]
            r.log.append(new)
            for entry in new:
                r.took(entry)
            return new
        return ()

    def _truncate(self, first: int) -> None:
        # A leader that contradicts a committed entry cannot have been elected.
        r = self._r
        assert first > r.commit, f"entry {first} is committed and must not change"
        r.log.truncate(first)
        r.memberships.truncate(first)
        r.stored = min(r.stored, first - 1)

    def _acknowledge(self, match: int, round: int) -> None:
        """Answer an append that brought nothing new: at once, so that a slow disk does not look
        like a dead server, but only for entries on disk."""
        r = self._r
        for to in self._ack_to():
            r.send_held(to, match, round)

    def _ack_to(self) -> tuple[ReplicaId, ...]:
        """Return the leader, and the voters that count this acknowledgement, too."""
        r = self._r
        assert r.leader_id is not None
        voters = r.memberships.current.voters
        if not tell_each_other(voters) or r.id not in voters:
            return (r.leader_id,)
        others = tuple(v for v in voters if v not in (r.id, r.leader_id))
        return (r.leader_id, *others)

    # -- Counting ------------------------------------------------------------------------------

    def on_appended(self, sender: ReplicaId, m: Appended) -> None:
        """Take an acknowledgement: to this leader, or that of another follower to this epoch's
        leader."""
        r = self._r
        if m.epoch > r.epoch:
            r.on_answer(sender, m)
        elif m.epoch < r.epoch:
            return
        elif r.leading is not None:
            r.leading.answer(sender, m)
        elif m.match > self._held.get(sender, 0):
            self._held[sender] = m.match
            self.count()

    def forget_counts(self) -> None:
        """Begin a new epoch: the counts were of another leader's log."""
        self._leader_has = 0
        self._held = {}

    def count(self) -> None:
        """Deliver entries that a majority is known to hold, without the leader's notice.

        Counted are this replica's own synced entries; the acknowledgements it saw in this epoch;
        and the leader up to what it *said* it holds, for having sent an entry is not having it on
        disk. Only an entry of this epoch commits by counting: an older one could still be replaced
        by a leader who never saw it (Raft, 5.4.2). And an entry of this epoch in our log came from
        this epoch's leader, so up to it our log is the leader's.
        """
        r = self._r
        if r.leader_id is None or r.leading is not None:
            return
        held = {**self._held, r.leader_id: self._leader_has, r.id: r.stored}
        index = min(r.stored, held_by_majority(r.memberships.current.voters, held))
        if index > r.commit and r.log.epoch_at(index) == r.epoch:
            r.advance(index)

    # -- Signs of life, and snapshots ----------------------------------------------------------

    def alive(self, sender: ReplicaId) -> None:
        """Take a part of a large message as a sign of life of its sender, and answer the leader now
        and then, which hears nothing else while it sends nothing that is answered."""
        r = self._r
        r.detector.alive(sender, r.now_ms)
        if sender == r.leader_id and r.leading is None:
            r.election.wait_for_leader()
            if r.now_ms >= self._told_alive_ms + r.settings.heartbeat_ms:
                self._told_alive_ms = r.now_ms
                r.send_held(sender, 0, 0)  # answers nothing

    def on_snapshot_part(self, sender: ReplicaId, m: SnapshotPart) -> None:
        """Take a part of a snapshot, in order; with the last one, install it."""
        r = self._r
        if not r.election.follows(sender, m.epoch) or self.installing is not None:
            return
        if r.log.epoch_at(m.meta.index) == m.meta.epoch or m.meta.index <= r.commit:
            # Everything in it is here already.
            r.send_held(sender, m.meta.index, 0)
            return
        attempt = (m.epoch, m.attempt)
        if m.seq == 0 and (self._incoming is None or self._incoming[0] < attempt):
            self._incoming = (attempt, 0)
        if self._incoming is None or self._incoming[0] < attempt:
            r.send(sender, PartTaken(m.epoch, m.attempt, -1))
            return
        expected = self._incoming[1]
        if self._incoming[0] > attempt or m.seq > expected:
            return  # late, or early
        taken = PartTaken(m.epoch, m.attempt, m.seq)
        if m.seq < expected:
            r.send(sender, taken)
            return
        self._incoming = (attempt, expected + 1)
        r.emit(StorePart(m.meta, m.seq, m.data, (Send(sender, taken),)))
        if m.last:
            self.installing = m.meta
            r.emit(Install(m.meta))

    def drop_incoming(self) -> None:
        """Forget the snapshot that was being sent: it could not be stored."""
        self._incoming = self.installing = None

    def installed(self, meta: SnapshotMeta) -> None:
        """Take appends again: the snapshot that was sent is the journal's base now."""
        assert self.installing == meta
        self.installing = None
