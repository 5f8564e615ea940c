"""What a replica does while it leads: replicate, commit, confirm, change the membership.

A `Leadership` lives exactly as long as one epoch of one leader, so nothing of an earlier one can
leak into it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from antiphon.formats.entry import (
    ANY,
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    encode_membership,
)
from antiphon.formats.server_messages import (
    Append,
    Appended,
    PartTaken,
    PieceTaken,
    ReadAnswer,
    Refused,
    SnapshotPart,
    TimeoutNow,
    Unwelcome,
    Welcome,
)
from antiphon.log.effects import Decided, Read, ReadPart, ReadReady, Rejected, Send
from antiphon.log.membership import named, no_majority, objection
from antiphon.log.quorum import held_by_majority, majority, tell_each_other
from antiphon.log.roles.progress import Flow, Progress
from antiphon.log.roles.spreading import Spreading

if TYPE_CHECKING:
    from antiphon.log.replica import Replica

logger = logging.getLogger("antiphon.log.roles.leader")

NO_LEADER = "this server does not lead any more"


class Removal(NamedTuple):
    """One that waits until a majority of the voters that it leaves has shown to be there and up
    to date: begun after it was asked for, so what was heard before does not count."""

    request: int
    node: int
    round: int  # which they must have echoed
    needed: int  # the entry up to which they must hold the log
    until_ms: int


class Leadership:
    def __init__(self, replica: Replica) -> None:
        self._r = self.replica = replica
        self._first_own = replica.log.last + 1  # the entry that opens this epoch
        self.progress: dict[ReplicaId, Progress] = {}
        self._round = 0
        self._reads: list[tuple[int, ReplicaId, int, int]] = []  # round, who, request, index
        self._heartbeat_at_ms = replica.now_ms + replica.settings.heartbeat_ms
        self._check_at_ms = replica.now_ms + replica.settings.election_ms
        self._commit_a_round_ago = 0
        self._handing_to: tuple[ReplicaId, int] | None = None  # and until when
        self.removal: Removal | None = None
        self._challenges: dict[int, tuple[ReplicaId, int]] = {}  # by node: who, nonce
        self._uncommitted: deque[tuple[int, int]] = deque()  # index, bytes
        self._uncommitted_bytes = 0  # without the large one
        self._spreading = Spreading(self)
        self._attempts = 0  # to send snapshots, to anybody
        self._tick_index = 0  # the newest tick entry
        self._last_append: Append | None = None

    def begin(self) -> None:
        self._follow_membership()
        # Entries of earlier epochs commit only behind one of this epoch (Raft, 5.4.2), and until
        # that is committed this leader does not know what is.
        self._append([(Kind.EPOCH, b"")])

    def end(self) -> None:
        for _, who, request, _ in self._reads:
            self._answer_read(who, request, -1)
        if self.removal is not None:
            self._r.emit(Decided(self.removal.request, waiting=NO_LEADER))

    def others(self) -> Iterable[ReplicaId]:
        """Whom this leader leads, learners included."""
        return self.progress

    @property
    def hands_over(self) -> bool:
        """Nothing is appended meanwhile."""
        return self._handing_to is not None

    # -- Time ----------------------------------------------------------------------------------

    def tick(self) -> None:
        now = self._r.now_ms
        if now >= self._check_at_ms:
            self._check_at_ms = now + self._r.settings.election_ms
            if not self._majority_is_heard():
                # Cut off: others may have elected somebody. Who asks here must not be answered
                # as if nobody else could be asked.
                self._r.election.give_way(self._r.epoch, None)
                return
        if self._handing_to is not None and now >= self._handing_to[1]:
            self._handing_to = None
            self._spreading.order()
        if now >= self._heartbeat_at_ms:
            self._beat()
        self._decide_removal()
        self._append_due_tick()

    def next_deadline_ms(self) -> int:
        deadline = min(self._heartbeat_at_ms, self._check_at_ms)
        wanted = self._r.deadline_stamp
        if wanted is not None and self._tick_index <= self._r.delivered:
            now = self._r.now_ms
            wait = wanted - self._r.clock.peek(now, now + self._r.wall_offset_ms)
            deadline = min(deadline, now + max(1, wait))
        return deadline

    def _append_due_tick(self) -> None:
        """Tell the state machine the time if it has asked, and only then; one at a time."""
        wanted, r = self._r.deadline_stamp, self._r
        if wanted is None or self._tick_index > r.delivered:
            return
        if r.clock.peek(r.now_ms, r.now_ms + r.wall_offset_ms) >= wanted:
            self._append([(Kind.TICK, b"")])
            self._tick_index = r.log.last

    def _majority_is_heard(self) -> bool:
        r = self._r
        voters = r.memberships.current.voters
        heard = sum(v == r.id or r.detector.opinion(v, r.now_ms) is None for v in voters)
        return heard >= majority(voters)

    def _beat(self) -> None:
        """A new round: everybody is asked to show that it is still in this epoch."""
        self._round += 1
        self._heartbeat_at_ms = self._r.now_ms + self._r.settings.heartbeat_ms
        for progress in list(self.progress.values()):
            progress.probed = False
            if progress.flow is not Flow.SNAPSHOT and progress.next <= self._r.log.base_index:
                self._start_snapshot(progress)  # what was lost on the way to it is gone here
            self._send_empty(progress, self._round)
            if progress.flow is Flow.SNAPSHOT:
                self._r.emit(ReadPart(progress.id, progress.part))  # the last one may be lost
            elif progress.flow is Flow.PROBE:
                self._replicate(progress)
        self._commit_a_round_ago = self._r.commit
        self._spreading.again()

    # -- Proposing -----------------------------------------------------------------------------

    def propose(self, packs: tuple[bytes, ...]) -> None:
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
        self._append([(Kind.PACK, pack) for pack in packs])

    def piece_taken(self, sender: ReplicaId, m: PieceTaken) -> None:
        if sender in self.progress:
            self._r.detector.heard(sender, self._r.now_ms)
            self._spreading.taken(sender, m)

    def _append(self, payloads: list[tuple[Kind, bytes]]) -> None:
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
                self._follow_membership()
        large = r.log.last == self._spreading.last
        size = 0 if large else sum([len(entry.payload) for entry in entries])
        self._uncommitted.append((r.log.last, size))
        self._uncommitted_bytes += size
        if r.settings.volatile:
            r.stored = r.log.last  # so that it is said to the others, too
        # Others may write while we do: they are told first, and each counts when it has synced.
        for progress in list(self.progress.values()):
            self._replicate(progress)
        r.keep(entries, [])
        if len(r.memberships.current.voters) == 1:
            self.advance_commit()  # otherwise others must have them, too

    # -- Replicating ---------------------------------------------------------------------------

    def replicate_to(self, id: ReplicaId) -> None:
        """Send what was held back until this server had a large pack."""
        if id in self.progress:
            self._replicate(self.progress[id])

    def _replicate(self, p: Progress) -> None:
        """Send what the window allows, in appends as large as what is waiting."""
        r = self._r
        while (p.flow is Flow.PROBE and not p.probed) or (
            p.flow is Flow.REPLICATE
            and len(p.inflight) < r.settings.inflight_max
            and p.inflight_bytes < r.settings.inflight_max_bytes
        ):
            if p.next <= r.log.base_index:
                self._start_snapshot(p)
                return
            if p.next > r.log.last:
                return
            entries = r.log.cached(p.next, r.settings.append_max_bytes)
            if entries is None:
                if not p.reading:
                    p.reading = True
                    r.emit(Read(p.id, p.next, r.settings.append_max_bytes))
                return
            if p.flow is Flow.PROBE and len(entries[0].payload) > r.settings.large_bytes:
                return  # heartbeats probe without it: they may have to several times
            if p.next <= self._spreading.spread_to:
                entries = self._spreading.that_may_leave(p.id, entries)
                if not entries:
                    return
            self._send_entries(p, entries)

    def _send_entries(self, p: Progress, entries: tuple[Entry, ...]) -> None:
        self._send_append(p, p.next - 1, entries, self._round)
        if p.flow is Flow.PROBE:
            p.probed = True
        else:
            p.next = entries[-1].index + 1
            p.flies(p.next - 1, sum([len(entry.payload) for entry in entries]))

    def _send_empty(self, p: Progress, round: int) -> None:
        """A sign of life that also tells how far the log is agreed. Its place is where we believe
        the other's log to end: if something was lost on the way, it is refused, and sent again."""
        prev = p.next - 1 if p.flow is not Flow.SNAPSHOT else p.match
        if self._r.log.epoch_at(prev) is None:
            prev = 0  # before every log: fits always, and says nothing
        self._send_append(p, prev, (), round)

    def _send_append(self, p: Progress, prev: int, entries: tuple[Entry, ...], round: int) -> None:
        r = self._r
        prev_epoch = r.log.epoch_at(prev) if prev else 0
        assert prev_epoch is not None
        append = Append(r.epoch, prev, prev_epoch, entries, r.commit, round, r.stored)
        if append == self._last_append:
            append = self._last_append  # the same object, so that drivers encode it once
        self._last_append = append
        p.told = r.stored
        spread = entries and entries[0].index <= self._spreading.spread_to
        r.emit(Send(p.id, self._spreading.by_name(p.id, append) if spread else append))

    def entries_read(self, reader: ReplicaId, first: int, entries: tuple[Entry, ...]) -> None:
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
                self._send_entries(p, still)
        self._replicate(p)

    def answer(self, sender: ReplicaId, m: Appended | Refused | PartTaken) -> None:
        p = self.progress.get(sender)
        if p is None:
            return
        self._r.detector.heard(sender, self._r.now_ms)
        if isinstance(m, Appended):
            self._on_appended(p, m)
        elif isinstance(m, Refused):
            self._on_refused(p, m)
        else:
            self._on_part_taken(p, m)

    def _on_appended(self, p: Progress, m: Appended) -> None:
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
            # It has what was sent, and meanwhile more is gone from our log: once more, the newest.
            self._start_snapshot(p)
        p.next = max(p.next, p.match + 1)
        # First: what is committed from now on is, by those who stay.
        self._decide_removal()
        if p.match > self._r.commit:
            self.advance_commit()
        if self._r.leading is self:
            self._confirm_reads()
            if p.next <= self._r.log.last:
                self._replicate(p)
            self._promote_learner(p)
            self._hand_over()

    def _on_refused(self, p: Progress, m: Refused) -> None:
        if m.prev_index == 0:
            # What it refused came from this server in an earlier epoch, and names a round of that
            # one. (Place 0 fits every log.)
            return
        p.round = max(p.round, m.round)
        self._confirm_reads()
        if p.flow is Flow.SNAPSHOT or self._is_stale(p, m):
            return
        if p.flow is Flow.REPLICATE:
            p.back = self._round
        agree = min(m.hint_index, m.prev_index - 1)
        if agree >= self._r.log.base_index:  # otherwise what it lacks is gone here
            agree = self._r.log.last_not_after(agree, m.hint_epoch)
        p.next = max(p.match, agree) + 1
        p.flow = Flow.PROBE
        p.probed = False
        p.grounded()
        self._replicate(p)

    def _is_stale(self, p: Progress, m: Refused) -> bool:
        """It says nothing new. Of a window of appends that missed the first one each is refused,
        and sending all of it again for each would make ever more of them: so once in a round."""
        if p.flow is Flow.PROBE:
            return m.prev_index != p.next - 1
        return not p.match < m.prev_index < p.next or m.round <= p.back

    # -- Committing ----------------------------------------------------------------------------

    def advance_commit(self) -> None:
        r = self._r
        voters = r.memberships.current.voters
        held = {p.id: p.match for p in self.progress.values()}
        held[r.id] = r.stored
        index = held_by_majority(voters, held)
        # Only an entry of this epoch commits by counting (Raft, figure 8).
        if index <= r.commit or r.log.epoch_at(index) != r.epoch:
            return
        while self._uncommitted and self._uncommitted[0][0] <= index:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        r.advance(index)
        self._spreading.committed(index)
        heard = held if tell_each_other(voters) else {}  # what each follower hears of the others
        for p in self.progress.values():
            # Who has no append on its way would hear of the commit only with the next heartbeat.
            waits = p.flow is Flow.REPLICATE and p.next > r.log.last
            if waits and not self._counts_itself(p, heard):
                self._send_empty(p, 0)
        if r.id not in voters and r.memberships.index <= r.commit and not r.is_member(r.id):
            self._leave()

    def _counts_itself(self, p: Progress, heard: Mapping[ReplicaId, int]) -> bool:
        """It knows of the commit as soon as it has what was sent to it, by who told it to hold the
        same (`Following.count`). If some of that is lost, the next heartbeat says it."""
        r = self._r
        voters = r.memberships.current.voters
        if p.id not in voters:
            return False  # a learner is told nothing by the others
        return r.commit <= held_by_majority(voters, {**heard, p.id: p.next - 1, r.id: p.told})

    def _leave(self) -> None:
        """This leader's own removal is committed: the others go on without waiting for silence."""
        r = self._r
        best = max(
            (p for p in self.progress.values() if p.id in r.memberships.current.voters),
            key=lambda p: p.match,
            default=None,
        )
        if best is not None:
            r.emit(Send(best.id, TimeoutNow(r.epoch)))
        r.election.give_way(r.epoch, None)

    # -- Reading -------------------------------------------------------------------------------

    def read(self, who: ReplicaId, request: int) -> None:
        """The end of our log is the answer, once a majority shows that it still follows us:
        otherwise another leader may have committed more. The end, and not what we know to be
        committed: a follower that counts for itself may have delivered an entry, and answered for
        it, of which we have not yet seen the acknowledgements. It also lies behind the entry that
        opened this epoch, before whose commit no new leader knows what is committed."""
        r = self._r
        if r.memberships.current.voters == (r.id,):
            self._answer_read(who, request, r.log.last)
            return
        waiting = bool(self._reads)
        self._reads.append((self._round + 1, who, request, r.log.last))
        if not waiting:
            self._beat()

    def _confirm_reads(self) -> None:
        if not self._reads:
            return
        rounds = {p.id: p.round for p in self.progress.values()}
        rounds[self._r.id] = self._round
        confirmed = held_by_majority(self._r.memberships.current.voters, rounds)
        done = [read for read in self._reads if read[0] <= confirmed]
        if done:
            self._reads = [read for read in self._reads if read[0] > confirmed]
            for _, who, request, index in done:
                self._answer_read(who, request, index)
            if self._reads and self._reads[0][0] > self._round:
                self._beat()  # these came while the round was on its way

    def _answer_read(self, who: ReplicaId, request: int, index: int) -> None:
        if who == self._r.id:
            self._r.emit(ReadReady(request, index))
        else:
            self._r.emit(Send(who, ReadAnswer(request, index)))

    # -- Membership ----------------------------------------------------------------------------

    def change(self, member: ClusterMember | int, request: int) -> None:
        """Add a server or remove one, unless that would do harm; the answer is `Decided`."""
        r = self._r
        refused = objection(r.memberships.current, member)
        waiting = self._obstacle()
        if refused or waiting or self._is_expected(member):
            self._r.emit(Decided(request, refused, "" if refused else waiting))
        elif isinstance(member, ClusterMember):
            learner = ClusterMember(member.node, ANY, False, member.address)
            self._change_to(self._r.memberships.current.with_member(learner))
            self._r.emit(Decided(request))
        else:
            self._ask_to_remove(member, request)

    def _ask_to_remove(self, node: int, request: int) -> None:
        r = self._r
        smaller = r.memberships.current.without(node)
        if smaller.voters == r.memberships.current.voters:
            self._change_to(smaller)
            r.emit(Decided(request))
        else:
            self._beat()
            until_ms = r.now_ms + r.settings.election_max_ms
            self.removal = Removal(request, node, self._round, r.commit, until_ms)
            self._decide_removal()

    def _is_expected(self, member: ClusterMember | int) -> bool:
        """It was added before, at the same address."""
        return (
            isinstance(member, ClusterMember)
            and self._r.memberships.current.member(member.node) is not None
        )

    def _obstacle(self) -> str:
        """Why no change can begin at this moment."""
        # One change at a time, and the first only after an entry of this epoch is committed:
        # otherwise two leaders could each hold a change that the other has not seen, and their
        # majorities need not overlap (Ongaro, raft-dev, 2015).
        r = self._r
        if r.commit < self._first_own:
            return "the leader is new, and does not know yet what is agreed"
        if r.memberships.index > r.commit or self.removal is not None:
            return "another change of the cluster is under way"
        if self._handing_to is not None:
            return "leadership is being handed over"
        return ""

    def _change_to(self, membership: Membership) -> bool:
        if self._obstacle():
            return False
        self._append([(Kind.MEMBERSHIP, encode_membership(membership))])
        return True

    def _decide_removal(self) -> None:
        """Remove the server once a majority of the others has shown that it can go on without it;
        refuse when it is clear that it cannot. Otherwise the removal might commit, with the last
        help of the one that leaves, and the rest be stuck for ever."""
        removal = self.removal
        if removal is None:
            return
        r = self._r
        smaller = r.memberships.current.without(removal.node)
        missing = {v: why for v in smaller.voters if (why := self._missing(v, removal))}
        enough = majority(smaller.voters) if smaller.voters else 1
        hopeless = [v for v in missing if r.detector.opinion(v, r.now_ms) is not None]
        if len(smaller.voters) - len(missing) >= enough:
            self.removal = None
            done = self._change_to(smaller)
            r.emit(Decided(removal.request, waiting="" if done else self._obstacle()))
        elif len(smaller.voters) - len(hopeless) < enough or r.now_ms >= removal.until_ms:
            self.removal = None
            r.emit(Decided(removal.request, no_majority(removal.node, smaller, missing)))

    def _missing(self, voter: ReplicaId, removal: Removal) -> str:
        """What keeps this voter from being counted on; empty: nothing."""
        p = self.progress.get(voter)
        match = self._r.stored if p is None else p.match
        if p is not None and p.round < removal.round:
            return f"node {voter.node} does not answer"
        if match < removal.needed:
            return f"node {voter.node} still lacks {removal.needed - match} entries of the log"
        return ""

    def _follow_membership(self) -> None:
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

    def _promote_learner(self, p: Progress) -> None:
        """A learner counts once it holds what was committed a round ago. Earlier, it would take
        the quorum away from those who do."""
        if p.id in self._r.memberships.current.voters or p.flow is not Flow.REPLICATE:
            return
        member = self._r.memberships.current.member(p.id.node)
        if member is None or member.voter:
            return
        if p.match >= max(self._commit_a_round_ago, self._first_own) and self._round > 0:
            self._change_to(
                self._r.memberships.current.with_member(
                    ClusterMember(member.node, member.incarnation, True, member.address)
                )
            )

    def knock(self, who: ReplicaId, echo: int) -> None:
        """Somebody without a place asks for one. It gets the place of its node number's earlier
        life, as a learner; but a knock may be old, and the earlier life be the newer one. So it
        must first echo a challenge: who answers now is the one that lives."""
        r = self._r
        member = r.memberships.current.member(who.node)
        if member is None:
            r.emit(Send(who, Unwelcome(f"node {who.node} is not a member of this cluster")))
            return
        if member.id == who or who == r.id:
            return
        if not echo:
            known = self._challenges.get(who.node)
            if known is None or known[0] != who:
                known = (who, r.random.getrandbits(62) + 1)
                self._challenges[who.node] = known
            r.emit(Send(who, Welcome(known[1])))
        elif self._challenges.get(who.node) == (who, echo):
            learner = ClusterMember(who.node, who.incarnation, False, member.address)
            if self._change_to(r.memberships.current.with_member(learner)):
                logger.info("%s takes the place of %s, as a learner", who, member.id)
                del self._challenges[who.node]

    # -- Handing over --------------------------------------------------------------------------

    def transfer(self, node: int, request: int) -> None:
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

    def _hand_over(self) -> None:
        if self._handing_to is None:
            return
        target = self.progress.get(self._handing_to[0])
        if target is not None and target.match == self._r.log.last:
            self._r.emit(Send(target.id, TimeoutNow(self._r.epoch)))

    # -- Snapshots leaving ---------------------------------------------------------------------

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
            self._r.emit(Send(to, part))

    def _on_part_taken(self, p: Progress, m: PartTaken) -> None:
        if p.flow is not Flow.SNAPSHOT or m.attempt != p.attempt:
            return
        if m.seq < 0:
            self._begin_transfer(p)
            self._r.emit(ReadPart(p.id, 0))
        elif m.seq == p.part:
            p.part += 1
            self._r.emit(ReadPart(p.id, p.part))
