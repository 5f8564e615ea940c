"""How a replica leads: it orders proposals, commits, confirms reads, and hands over.

Promises: an entry is committed only when a majority of the voters holds it, and with it an entry of
this epoch; a read is confirmed only after a majority has shown that it still follows; a leader that
does not hear a majority stops leading. How the log reaches the others is in `replication.py`, how
the cluster changes in `membership_changes.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from antiphon.formats.entry import (
    Entry,
    Kind,
    ReplicaId,
)
from antiphon.formats.server_messages import (
    Appended,
    PartTaken,
    PieceTaken,
    ReadAnswer,
    Refused,
    TimeoutNow,
)
from antiphon.log.effects import Decided, ReadReady, Rejected
from antiphon.log.membership import named
from antiphon.log.quorum import held_by_majority, majority, tell_each_other
from antiphon.log.roles.membership_changes import MembershipChanges
from antiphon.log.roles.progress import Flow, Progress
from antiphon.log.roles.replication import Replication
from antiphon.log.roles.spreading import Spreading

if TYPE_CHECKING:
    from antiphon.log.replica import Replica

logger = logging.getLogger("antiphon.log.roles.leader")


class Leadership:
    """One epoch of one leader: it lives exactly as long, so nothing of an earlier epoch can leak
    into a later one. `Election` begins and ends it."""

    def __init__(self, replica: Replica) -> None:
        self._r = replica
        self._spreading = Spreading(self, replica)
        self.replication = Replication(replica, self._spreading)
        self.changes = MembershipChanges(self, replica)
        self._reads: list[tuple[int, ReplicaId, int, int]] = []  # round, who, request, index
        self._heartbeat_at_ms = replica.now_ms + replica.settings.heartbeat_ms
        self._check_at_ms = replica.now_ms + replica.settings.election_ms
        self._handing_to: tuple[ReplicaId, int] | None = None  # and until when
        self._uncommitted: deque[tuple[int, int]] = deque()  # index, bytes
        self._uncommitted_bytes = 0  # without the large one
        self._tick_index = 0  # the newest tick entry

    def begin(self) -> None:
        """Append the entry that opens this epoch."""
        self.replication.follow_membership()
        # Entries of earlier epochs commit only behind one of this epoch (Raft, 5.4.2), and until
        # that is committed this leader does not know what is.
        self.append([(Kind.EPOCH, b"")])

    def end(self) -> None:
        """Answer all that waits: this server no longer leads."""
        for _, who, request, _ in self._reads:
            self._answer_read(who, request, -1)
        self.changes.end()

    def others(self) -> Iterable[ReplicaId]:
        """Return the servers that this leader leads, learners included."""
        return self.replication.progress

    @property
    def hands_over(self) -> bool:
        """Whether it is handing over: then nothing is appended."""
        return self._handing_to is not None

    # -- Time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do all that is due."""
        now = self._r.now_ms
        if now >= self._check_at_ms:
            self._check_at_ms = now + self._r.settings.election_ms
            if not self._majority_is_heard():
                # Cut off: the others may have elected another leader, and programs that ask here
                # must not be answered as if there were no other.
                self._r.election.give_way(self._r.epoch, None)
                return
        if self._handing_to is not None and now >= self._handing_to[1]:
            self._end_handing_over()
        if now >= self._heartbeat_at_ms:
            self.beat()
        self.changes.decide_removal()
        self._append_due_tick()

    def next_deadline_ms(self) -> int:
        """Return when `tick` has work."""
        deadline = min(self._heartbeat_at_ms, self._check_at_ms)
        wanted = self._r.deadline_stamp
        if wanted is not None and self._tick_index <= self._r.delivered:
            now = self._r.now_ms
            wait = wanted - self._r.clock.peek(now, now + self._r.wall_offset_ms)
            deadline = min(deadline, now + max(1, wait))
        return deadline

    def _append_due_tick(self) -> None:
        """Append a tick if the state machine wants to know the time; one at a time."""
        wanted, r = self._r.deadline_stamp, self._r
        if wanted is None or self._tick_index > r.delivered:
            return
        if r.clock.peek(r.now_ms, r.now_ms + r.wall_offset_ms) >= wanted:
            self.append([(Kind.TICK, b"")])
            self._tick_index = r.log.last

    def _majority_is_heard(self) -> bool:
        r = self._r
        voters = r.memberships.current.voters
        heard = sum(v == r.id or r.detector.opinion(v, r.now_ms) is None for v in voters)
        return heard >= majority(voters)

    def beat(self) -> None:
        """Begin a round: ask all others to show that they are still in this epoch."""
        self._heartbeat_at_ms = self._r.now_ms + self._r.settings.heartbeat_ms
        self.replication.beat()
        self.changes.round_began()
        self._spreading.again()

    # -- Proposing -----------------------------------------------------------------------------

    def propose(self, packs: tuple[bytes, ...]) -> None:
        """Append these packs, or reject them all (`Rejected`)."""
        if self._handing_to is not None:
            self._r.emit(Rejected(packs, "leadership is being handed over"))
        elif self._uncommitted_bytes >= self._r.settings.uncommitted_max_bytes:
            self._r.emit(Rejected(packs, "too much is waiting for a majority"))
        elif max([len(pack) for pack in packs], default=0) > self._r.settings.large_bytes:
            if not self._spreading.propose(packs):
                self._r.emit(Rejected(packs, "too many large packs are waiting"))
        else:
            self.append_packs(packs)

    def append_packs(self, packs: tuple[bytes, ...]) -> None:
        """Append an entry for each pack."""
        self.append([(Kind.PACK, pack) for pack in packs])

    def piece_taken(self, sender: ReplicaId, m: PieceTaken) -> None:
        """Go on with the large pack of which this server took a piece."""
        if sender in self.replication.progress:
            self._r.detector.heard(sender, self._r.now_ms)
            self._spreading.taken(sender, m)

    def append(self, payloads: list[tuple[Kind, bytes]]) -> None:
        """Append entries to the log, and send them to the others."""
        r = self._r
        stamp = r.clock.next(r.now_ms, r.now_ms + r.wall_offset_ms)
        first = r.log.last + 1
        entries = tuple(
            [
                Entry(first + at, r.epoch, stamp, kind, payload)
                for at, (kind, payload) in enumerate(payloads)
            ]
        )
        r.log.append(entries)
        for entry in entries:
            if entry.kind == Kind.MEMBERSHIP:
                r.took(entry)
                self.replication.follow_membership()
        large = r.log.last == self._spreading.last
        if large:
            self._spreading.note(entries)
        size = 0 if large else sum([len(entry.payload) for entry in entries])
        self._uncommitted.append((r.log.last, size))
        self._uncommitted_bytes += size
        r.memory_holds(r.log.last)  # so that the appends tell it to the others, too
        # Others may write while we do: appends go to them first, and each counts when it has
        # synced.
        for progress in list(self.replication.progress.values()):
            self.replication.replicate(progress)
        r.keep(entries, [])
        if len(r.memberships.current.voters) == 1:
            self.advance_commit()  # otherwise others must have them, too

    # -- Answers -------------------------------------------------------------------------------

    def answer(self, sender: ReplicaId, m: Appended | Refused | PartTaken) -> None:
        """Take what another server answers to an append, or to a part of a snapshot."""
        p = self.replication.progress.get(sender)
        if p is None:
            return
        self._r.detector.heard(sender, self._r.now_ms)
        if isinstance(m, Appended):
            self._on_appended(p, m)
        elif isinstance(m, Refused):
            self._on_refused(p, m)
        else:
            self.replication.part_taken(p, m)

    def _on_appended(self, p: Progress, m: Appended) -> None:
        self.replication.appended(p, m)
        # First: from now on the servers that stay commit.
        self.changes.decide_removal()
        if p.match > self._r.commit:
            self.advance_commit()
        if self._r.leading is self:
            self._confirm_reads()
            if p.next <= self._r.log.last:
                self.replication.replicate(p)
            self.changes.promote_learner(p)
            self._hand_over()

    def _on_refused(self, p: Progress, m: Refused) -> None:
        if m.prev_index == 0:
            # The refused append came from this server in an earlier epoch, and names a round of
            # that one. (Place 0 fits every log.)
            return
        p.round = max(p.round, m.round)
        self._confirm_reads()
        self.replication.refused(p, m)

    # -- Committing ----------------------------------------------------------------------------

    def advance_commit(self) -> None:
        """Commit the entries that a majority holds, and see to it that the followers learn of
        it."""
        r = self._r
        voters = r.memberships.current.voters
        held = {p.id: p.match for p in self.replication.progress.values()}
        held[r.id] = r.stored
        index = held_by_majority(voters, held)
        # Only an entry of this epoch commits by counting (Raft, figure 8).
        if index <= r.commit or r.log.epoch_at(index) != r.epoch:
            return
        while self._uncommitted and self._uncommitted[0][0] <= index:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        r.advance(index)
        self._spreading.committed(index)
        heard = (
            held if tell_each_other(voters) else {}
        )  # what each follower knows of the others' acknowledgements
        for p in self.replication.progress.values():
            # A server without an append on its way would hear of it only with the next heartbeat.
            waits = p.flow is Flow.REPLICATE and p.next > r.log.last
            if waits and not self._counts_itself(p, heard):
                self.replication.send_empty(p, 0)
        if r.id not in voters and r.memberships.index <= r.commit and not r.is_member(r.id):
            self._leave()

    def _counts_itself(self, p: Progress, heard: Mapping[ReplicaId, int]) -> bool:
        """Return whether a follower will know of the commit without us: as soon as it has the
        entries that were sent to it, by the acknowledgements of the others (`Following.count`). If
        some of them are lost, the next heartbeat reports it."""
        r = self._r
        voters = r.memberships.current.voters
        if p.id not in voters:
            return False  # others send no acknowledgements to a learner
        return r.commit <= held_by_majority(voters, {**heard, p.id: p.next - 1, r.id: p.told})

    def _leave(self) -> None:
        """Stop leading, since this leader's own removal is committed; ask the voter that holds most
        to run at once."""
        r = self._r
        best = max(
            (p for p in self.replication.progress.values() if p.id in r.memberships.current.voters),
            key=lambda p: p.match,
            default=None,
        )
        if best is not None:
            r.send(best.id, TimeoutNow(r.epoch))
        r.election.give_way(r.epoch, None)

    # -- Reading -------------------------------------------------------------------------------

    def read(self, who: ReplicaId, request: int) -> None:
        """Answer with the end of our log, once a majority has shown that it still follows us:
        otherwise another leader may have committed more. The end, and not the last entry that we
        know to be committed: a follower that counts for itself may have delivered an entry, and
        answered for it, of which we have not yet seen the acknowledgements. It also lies behind the
        entry that opened this epoch, before whose commit no new leader knows what is committed."""
        r = self._r
        if r.memberships.current.voters == (r.id,):
            self._answer_read(who, request, r.log.last)
            return
        waiting = bool(self._reads)
        self._reads.append((self.replication.round + 1, who, request, r.log.last))
        if not waiting:
            self.beat()

    def _confirm_reads(self) -> None:
        if not self._reads:
            return
        rounds = {p.id: p.round for p in self.replication.progress.values()}
        rounds[self._r.id] = self.replication.round
        confirmed = held_by_majority(self._r.memberships.current.voters, rounds)
        done = [read for read in self._reads if read[0] <= confirmed]
        if done:
            self._reads = [read for read in self._reads if read[0] > confirmed]
            for _, who, request, index in done:
                self._answer_read(who, request, index)
            if self._reads and self._reads[0][0] > self.replication.round:
                self.beat()  # these came while the round was on its way

    def _answer_read(self, who: ReplicaId, request: int, index: int) -> None:
        if who == self._r.id:
            self._r.emit(ReadReady(request, index))
        else:
            self._r.send(who, ReadAnswer(request, index))

    # -- Handing over --------------------------------------------------------------------------

    def transfer(self, node: int, request: int) -> None:
        """Hand over to this voter as soon as it has the whole log; until then, for `election_ms` at
        most, nothing is proposed. The answer is `Decided`."""
        r = self._r
        refused = self._transfer_objection(node)
        r.emit(Decided(request, refused))
        member = r.memberships.current.member(node)
        if not refused and member is not None and member.id != r.id:
            self._handing_to = (member.id, r.now_ms + r.settings.election_ms)
            self._hand_over()

    def _transfer_objection(self, node: int) -> str:
        r = self._r
        member = r.memberships.current.member(node)
        if member is None:
            members = named(r.memberships.current.members)
            return f"node {node} cannot lead: it is not a member; the members are {members}"
        if not member.voter:
            return f"node {node} cannot lead before it runs and has caught up"
        if member.id != r.id and r.detector.opinion(member.id, r.now_ms) is not None:
            return f"node {node} cannot lead: it does not answer"
        return ""

    def heir(self) -> int | None:
        """Return the node to hand over to when this server ends: of the voters that answer, the one
        that has most of the log; None: no other one answers."""
        voters = self._r.memberships.current.voters
        fit = [
            p
            for p in self.replication.progress.values()
            if p.id in voters and not self._transfer_objection(p.id.node)
        ]
        return max(fit, key=lambda p: p.match).id.node if fit else None

    def gone(self, node: int) -> None:
        """Take note that a server's process has ended: it is not waited for."""
        if self._handing_to is not None and self._handing_to[0].node == node:
            self._end_handing_over()

    def _end_handing_over(self) -> None:
        self._handing_to = None
        self._spreading.order()

    def _hand_over(self) -> None:
        if self._handing_to is None:
            return
        target = self.replication.progress.get(self._handing_to[0])
        if target is not None and target.match == self._r.log.last:
            self._r.send(target.id, TimeoutNow(self._r.epoch))
