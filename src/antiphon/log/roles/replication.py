"""How the log reaches the other servers: appends in a window, probes, and snapshots in parts.

Promises: a server that answers is brought to the end of the leader's log, in appends, or, where the
entries that it lacks are gone from the log, by a snapshot and the appends behind it. Lost messages
are noticed with the next round, and sent again. At most `inflight_max` appends, and about
`inflight_max_bytes` bytes, are on their way to each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.formats.entry import ANY, Entry, ReplicaId, SnapshotMeta
from antiphon.formats.server_messages import (
    Append,
    Appended,
    AppendNamed,
    PartTaken,
    Refused,
    SnapshotPart,
)
from antiphon.log.effects import Read, ReadPart
from antiphon.log.roles.progress import Flow, Progress

if TYPE_CHECKING:
    from antiphon.log.replica import Replica
    from antiphon.log.roles.spreading import Spreading


class Replication:
    """Sends the log of one leader to the others, in one epoch; `progress` is how far each of them
    is.

    It decides nothing: `Leadership` draws the conclusions for commits and reads.
    """

    def __init__(self, replica: Replica, spreading: Spreading) -> None:
        self._r = replica
        self._spreading = spreading
        self.progress: dict[ReplicaId, Progress] = {}
        self.round = 0  # the newest; a server that echoes it was in this epoch after it began
        self._attempts = 0  # to send snapshots, to any server
        self._last_append: Append | None = None

    def follow_membership(self) -> None:
        """Begin with servers that are new in the membership, and forget those that left."""
        r = self._r
        present = {m.id for m in r.memberships.current.members if m.id != r.id}
        for gone in [id for id in self.progress if id not in present]:
            del self.progress[gone]
            self._spreading.forget(gone)
            r.detector.forget(gone)
        for m in r.memberships.current.members:
            if m.id != r.id and m.incarnation != ANY and m.id not in self.progress:
                self.progress[m.id] = Progress(m.id, r.log.last + 1)
                r.detector.watch(m.id, r.now_ms)

    def beat(self) -> None:
        """Begin a round: send each server the entries that it may not have, or a sign of life."""
        self.round += 1
        for progress in list(self.progress.values()):
            progress.probed = False
            if progress.flow is not Flow.SNAPSHOT and progress.next <= self._r.log.base_index:
                self._start_snapshot(progress)  # the entries lost on the way to it are gone here
            self.send_empty(progress, self.round)
            if progress.flow is Flow.SNAPSHOT:
                self._r.emit(ReadPart(progress.id, progress.part))  # the last one may be lost
            elif progress.flow is Flow.PROBE:
                self.replicate(progress)

    # -- Appends -------------------------------------------------------------------------------

    def replicate_to(self, id: ReplicaId) -> None:
        """Send the entries that were held back until this server had a large pack."""
        if id in self.progress:
            self.replicate(self.progress[id])

    def replicate(self, p: Progress) -> None:
        """Send as much as the window allows, in appends as large as possible."""
        r = self._r
        while (p.flow is Flow.PROBE and not p.probed) or (
            p.flow is Flow.REPLICATE
            and len(p.inflight) < r.settings.inflight_max
            and p.inflight_bytes < r.settings.inflight_max_bytes
        ):
            if p.next <= r.log.base_index:
                self._start_snapshot(p)
                return
            if p.next > r.log.last or self._spreading.comes(p.id, p.next):
                return
            entries = r.log.cached(p.next, r.settings.append_max_bytes)
            if entries is None:
                named = self._spreading.named(p.id, p.next) if p.flow is Flow.REPLICATE else None
                if named is not None:
                    self._send_named(p, named)
                    continue
                if not p.reading:
                    p.reading = True
                    r.emit(Read(p.id, p.next, r.settings.append_max_bytes))
                return
            entries = self._that_may_leave(p, entries)
            if not entries:
                return
            self._send_entries(p, entries)

    def _that_may_leave(self, p: Progress, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Return those before the first that has to wait, wherever they come from: a large pack
        that is still on its way in pieces is not sent a second time."""
        if p.flow is Flow.PROBE and len(entries[0].payload) > self._r.settings.large_bytes:
            return ()  # heartbeats probe without it: they may have to several times
        if p.next <= self._spreading.spread_to:
            return self._spreading.that_may_leave(p.id, entries)
        return entries

    def _send_entries(self, p: Progress, entries: tuple[Entry, ...]) -> None:
        self._send_append(p, p.next - 1, entries, self.round)
        if p.flow is Flow.PROBE:
            p.probed = True
        else:
            p.next = entries[-1].index + 1
            p.flies(p.next - 1, sum([len(entry.payload) for entry in entries]))

    def _send_named(self, p: Progress, entry: Entry) -> None:
        """Send an entry whose pack this server holds, without the pack."""
        append = self._append_of(p, p.next - 1, (entry,), self.round)
        self._r.send(p.id, AppendNamed(append, (0,)))
        p.next = entry.index + 1
        p.flies(entry.index, len(entry.payload))

    def send_empty(self, p: Progress, round: int) -> None:
        """Send a sign of life that also names how far the log is committed. It names the place
        where we believe the other's log to end: if an append was lost on the way, the sign is
        refused, and the append is sent again."""
        prev = p.next - 1 if p.flow is not Flow.SNAPSHOT else p.match
        if self._r.log.epoch_at(prev) is None:
            prev = 0  # before every log: it always fits, and proves nothing
        self._send_append(p, prev, (), round)

    def _send_append(self, p: Progress, prev: int, entries: tuple[Entry, ...], round: int) -> None:
        append = self._append_of(p, prev, entries, round)
        if append == self._last_append:
            append = self._last_append  # the same object, so that drivers encode it once
        self._last_append = append
        spread = entries and entries[0].index <= self._spreading.spread_to
        self._r.send(p.id, self._spreading.by_name(p.id, append) if spread else append)

    def _append_of(self, p: Progress, prev: int, entries: tuple[Entry, ...], round: int) -> Append:
        r = self._r
        prev_epoch = r.log.epoch_at(prev) if prev else 0
        assert prev_epoch is not None
        p.told = r.stored
        return Append(r.epoch, prev, prev_epoch, entries, r.commit, round, r.stored)

    def entries_read(self, reader: ReplicaId, first: int, entries: tuple[Entry, ...]) -> None:
        """Go on with entries that were read back for this server."""
        p = self.progress.get(reader)
        if p is None:
            return
        p.reading = False
        if (
            first == p.next
            and p.flow is not Flow.SNAPSHOT
            and self._r.log.epoch_at(first - 1) is not None
        ):
            # Read from the journal, they may have been cut from the log in between.
            still = tuple(e for e in entries if self._r.log.epoch_at(e.index) == e.epoch)
            if still and still[0].index == first:
                leaves = self._that_may_leave(p, still)
                if not leaves:
                    return  # to read it again would show the same
                self._send_entries(p, leaves)
        self.replicate(p)

    def appended(self, p: Progress, m: Appended) -> None:
        """Note how much a server has now, and how to go on with it."""
        p.round = max(p.round, m.round)
        if m.match > p.match:
            p.match = m.match
            p.landed()
        if p.flow is Flow.PROBE and m.match >= p.next - 1:
            p.flow = Flow.REPLICATE
        elif p.flow is Flow.SNAPSHOT and m.match >= self._r.log.base_index:
            p.flow = Flow.REPLICATE
            p.next = 0
        elif p.flow is Flow.SNAPSHOT and 0 < p.sending <= m.match:
            # It has the snapshot, and meanwhile more is gone from our log: once more, the newest.
            self._start_snapshot(p)
        p.next = max(p.next, p.match + 1)

    def refused(self, p: Progress, m: Refused) -> None:
        """Find where a server's log agrees with ours, and send the entries after that."""
        if p.flow is Flow.SNAPSHOT or self._is_stale(p, m):
            return
        if p.flow is Flow.REPLICATE:
            p.back = self.round
        agree = min(m.hint_index, m.prev_index - 1)
        if agree >= self._r.log.base_index:  # otherwise the entries that it lacks are gone here
            agree = self._r.log.last_not_after(agree, m.hint_epoch)
        p.next = max(p.match, agree) + 1
        p.flow = Flow.PROBE
        p.probed = False
        p.grounded()
        self.replicate(p)

    def _is_stale(self, p: Progress, m: Refused) -> bool:
        """Return whether this refusal brings nothing new. If the first append of a window was lost,
        each of the others is refused, and sending all of them again for each refusal would make
        ever more of them: so it is done once in a round."""
        if p.flow is Flow.PROBE:
            return m.prev_index != p.next - 1
        return not p.match < m.prev_index < p.next or m.round <= p.back

    # -- Snapshots ------------------------------------------------------------------------------

    def _start_snapshot(self, p: Progress) -> None:
        p.flow = Flow.SNAPSHOT
        p.grounded()
        self._begin_transfer(p)
        self._r.emit(ReadPart(p.id, 0))

    def _begin_transfer(self, p: Progress) -> None:
        # Numbered, so that late parts and answers of an earlier attempt cannot confuse this one:
        # also one before the server was removed and added again.
        self._attempts += 1
        p.attempt = self._attempts
        p.part = p.sending = 0

    def part_read(
        self, to: ReplicaId, meta: SnapshotMeta | None, seq: int, data: bytes, last: bool
    ) -> None:
        """Send a part that was read for this server; no meta: there is none."""
        p = self.progress.get(to)
        if p is None or p.flow is not Flow.SNAPSHOT:
            return
        if meta is None:
            self._begin_transfer(p)  # a newer snapshot took its place: so the next time
        elif seq == p.part:
            if p.sending not in (0, meta.index):
                self._begin_transfer(p)  # a newer one took its place before it got under way
            p.sending = meta.index
            part = SnapshotPart(self._r.epoch, p.attempt, meta, seq, data, last)
            self._r.send(to, part)

    def part_taken(self, p: Progress, m: PartTaken) -> None:
        """Read the next part, now that the one before it was taken."""
        if p.flow is not Flow.SNAPSHOT or m.attempt != p.attempt:
            return
        if m.seq < 0:
            self._begin_transfer(p)
            self._r.emit(ReadPart(p.id, 0))
        elif m.seq == p.part:
            p.part += 1
            self._r.emit(ReadPart(p.id, p.part))
