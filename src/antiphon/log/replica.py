"""The replicated log at one server: who leads, what is agreed, what may be delivered.

Promises above: every replica delivers the same entries in the same order (`Deliver`), and an entry
is delivered only once a majority of the servers has it: synced in durable mode, in memory in memory
mode, which is the journal's business and no concern of this class. Uniform: that holds for what a
replica delivered right before it crashed, too.
Needs below: a network that may lose, repeat, delay and reorder; a journal that keeps what it said
it stored. Both may fail at any time; then nothing is promised but silence.

The algorithm is Raft with the parts its users found necessary: pre-vote, check-quorum, leader
transfer, one membership change at a time with learners, read-index, and followers that count for
themselves (`_count_for_myself`). A reader who knows Raft finds: elections here, replication and
commitment in `leader.py`, how a cluster begins and how an amnesiac returns in `founding.py`,
application and snapshots in `node.py`. Terms are called *epochs*.

Every public method is a door: an input comes in with the local time, effects come out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from antiphon.formats.entry import (
    ANY,
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    decode_membership,
    encode_membership,
)
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import (
    Append,
    Appended,
    Ask,
    Envelope,
    Forward,
    Found,
    Knock,
    Message,
    PartTaken,
    ReadAnswer,
    ReadRequest,
    Refused,
    RequestVote,
    SnapshotPart,
    TimeoutNow,
    Unwelcome,
    Vote,
    Welcome,
)
from antiphon.formats.server_messages import Promise as FoundingPromise
from antiphon.log.clock import StampClock
from antiphon.log.effects import (
    Decided,
    Deliver,
    Effect,
    EntriesStored,
    Install,
    Persist,
    Read,
    ReadReady,
    Rejected,
    Send,
    StorePart,
    Tail,
    VoteStored,
)
from antiphon.log.entries import EntryLog
from antiphon.log.failure_detector import Detector
from antiphon.log.membership import MembershipHistory
from antiphon.log.quorum import held_by_majority, majority, tell_each_other
from antiphon.log.recovered import Recovered
from antiphon.log.roles.founding import Newcomer
from antiphon.log.roles.leader import NO_LEADER, Leadership
from antiphon.log.roles.transitions import KNOCKS, Cause, Role, next_role
from antiphon.log.settings import Settings

logger = logging.getLogger("antiphon.log.replica")

FOUNDING_EPOCH = 1
"""The epoch of entry 1, which names the founders; elections begin above it."""

HURRY = 4
"""Who knows that the leader is gone waits this part of `election_ms` at most, by chance."""


class Replica:
    def __init__(
        self,
        node: int,
        listed: dict[int, str],
        recovered: Recovered,
        settings: Settings,
        random: Random,
        now_ms: int,
    ) -> None:
        """`listed`: the servers named by the configuration, node number to address."""
        self.id = ReplicaId(node, recovered.incarnation)
        self.settings = settings
        self.random = random
        self.now_ms = now_ms
        self.wall_offset_ms = 0  # wall clock minus monotonic clock, as the driver last read it
        self.deadline_stamp: int | None = None  # when the state machine wants to be told the time

        self.epoch, self.vote = recovered.promise
        self.log = EntryLog(
            recovered.base_index, recovered.base_epoch, recovered.runs, recovered.last
        )
        self.memberships = MembershipHistory(list(recovered.memberships))
        self.clock = StampClock(recovered.last_stamp)
        self.snapshot = recovered.snapshot
        self.stored = recovered.last  # own entries on disk
        self.commit = recovered.snapshot.index if recovered.snapshot else 0
        self.delivered = self.commit

        self.role = Role.FOLLOWER
        self.leader_id: ReplicaId | None = None
        self.leading: Leadership | None = None
        self.impaired = ""  # why this replica takes part in nothing at the moment
        self.removed = ""  # why the cluster does not want this replica, if it said so
        self.detector: Detector[ReplicaId] = Detector(
            settings.election_ms, settings.election_max_ms
        )
        self.newcomer: Newcomer | None = None
        self._granted: set[ReplicaId] = set()
        self._leader_has = 0
        self._held: dict[ReplicaId, int] = {}  # acknowledgements seen in this epoch
        self._reading_to_deliver = False
        self._told_alive_ms = now_ms  # the leader, of parts that come from it
        # The attempt (epoch, number) to send us a snapshot, and the part that comes next.
        self._incoming: tuple[tuple[int, int], int] | None = None
        self.installing: SnapshotMeta | None = None
        self._out: list[Effect] = []

        self._election_at_ms = 0
        self._wait_for_leader()
        self._hurry_if_alone()
        member = self.memberships.current.member(node)
        self._listed = listed
        if member is None or member.id != self.id:
            self.role = Role.NEWCOMER
            self.newcomer = Newcomer(self, listed, may_found=recovered.fresh)

    @property
    def reign(self) -> tuple[int, int] | None:
        """The node that leads, as far as this replica knows, and its epoch."""
        return (self.leader_id.node, self.epoch) if self.leader_id is not None else None

    # -- Doors ---------------------------------------------------------------------------------

    def receive(self, envelope: Envelope, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        if self.impaired:
            return []
        if envelope.to.incarnation not in (self.id.incarnation, ANY):
            if self.newcomer is not None and isinstance(envelope.message, Append):
                # Meant for our earlier life, by a leader that we may not list: our list can be
                # older than the membership. Nobody else could tell us where to knock.
                self._send(envelope.sender, Knock(self.id, 0))
            return self._take()
        handler = self._HANDLERS[type(envelope.message)]
        handler(self, envelope.sender, envelope.message)
        return self._take()

    def alive(self, sender: ReplicaId, now_ms: int) -> list[Effect]:
        """A part of something large has come from there. What was sent after it, heartbeats too,
        waits behind it: so it counts as one. A leader is told now and then, for it hears nothing
        else from who gets nothing else to answer."""
        self.now_ms = now_ms
        if self.impaired:
            return []
        self.detector.alive(sender, now_ms)
        if sender == self.leader_id and self.leading is None:
            self._wait_for_leader()
            if now_ms >= self._told_alive_ms + self.settings.heartbeat_ms:
                self._told_alive_ms = now_ms
                self._send(sender, Appended(self.epoch, 0, 0))  # answers nothing
        return self._take()

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due: to be called at `next_deadline_ms`; more often is harmless."""
        self.now_ms = now_ms
        if self.impaired:
            return []
        if self.leading is not None:
            self.leading.tick()
        elif self.newcomer is not None:
            self.newcomer.tick()
        if self.leading is None and now_ms >= self._election_at_ms:
            self._no_leader()
        return self._take()

    def next_deadline_ms(self) -> int:
        if self.leading is not None:
            return self.leading.next_deadline_ms()
        if self.newcomer is not None:
            return min(self._election_at_ms, self.newcomer.next_deadline_ms)
        return self._election_at_ms

    def propose(self, packs: tuple[bytes, ...], now_ms: int) -> list[Effect]:
        """Order these packs, here or through the leader. The outcome is seen when they are
        delivered; what is lost on the way may be proposed again."""
        self.now_ms = now_ms
        self._propose(packs)
        return self._take()

    def stored_back(self, tail: EntriesStored | VoteStored, now_ms: int) -> list[Effect]:
        """What was persisted has reached the disk."""
        self.now_ms = now_ms
        if isinstance(tail, VoteStored):
            if self.role is Role.CANDIDATE and tail.epoch == self.epoch:
                self._count_vote(self.id)
        elif self.log.epoch_at(tail.index) == tail.epoch and tail.index > self.stored:
            # Index and epoch name one entry and all before it; if they are no longer in the log,
            # the entry was replaced meanwhile, and its replacement may not be on disk yet.
            self.stored = tail.index
            if self.leading is not None:
                self.leading.advance_commit()
            else:
                self._count_for_myself()
            self._forget_cached()
        return self._take()

    def entries_read(
        self, reader: ReplicaId | None, first: int, entries: tuple[Entry, ...], now_ms: int
    ) -> list[Effect]:
        """The answer to `Read`. No entries: the journal does not have them any more."""
        self.now_ms = now_ms
        if reader is None:
            self._reading_to_deliver = False
            if first == self.delivered + 1:
                # Read from the journal, they may have been replaced in the log in between.
                still = (e for e in entries if self.log.epoch_at(e.index) == e.epoch)
                self._hand_out(tuple(e for e in still if e.index <= self.commit))
                self._deliver()
        elif self.leading is not None:
            self.leading.entries_read(reader, first, entries)
        return self._take()

    def part_read(
        self,
        to: ReplicaId,
        meta: SnapshotMeta | None,
        seq: int,
        data: bytes,
        last: bool,
        now_ms: int,
    ) -> list[Effect]:
        """The answer to `ReadPart`; no meta: there is no snapshot, or it has no such part."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.part_read(to, meta, seq, data, last)
        return self._take()

    def installed(self, meta: SnapshotMeta, now_ms: int) -> list[Effect]:
        """The snapshot is the journal's base now; the state machine has been restored from it."""
        self.now_ms = now_ms
        assert self.installing == meta
        self.installing = None
        self.snapshot = meta
        self.log = EntryLog(meta.index, meta.epoch, (), meta.index)
        self.memberships = MembershipHistory([(meta.index, meta.membership)])
        self.clock.saw(meta.stamp, now_ms)
        self.stored = self.commit = self.delivered = meta.index
        if self.leader_id is not None:
            self._send(self.leader_id, Appended(self.epoch, meta.index, 0))
        return self._take()

    def compacted(self, base_index: int, snapshot: SnapshotMeta) -> None:
        """The journal stored this snapshot and let go of entries up to `base_index`."""
        self.snapshot = snapshot
        self.log.compact(min(base_index, snapshot.index))
        self.memberships.forget_before(snapshot.index)

    def read(self, request: int, now_ms: int) -> list[Effect]:
        """Find an index such that who has applied it has applied all that is committed now."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.read(self.id, request)
        elif self.leader_id is not None and not self.impaired:
            self._send(self.leader_id, ReadRequest(request))
        else:
            self._out.append(ReadReady(request, -1))
        return self._take()

    def transfer(self, node: int, now_ms: int, request: int = 0) -> list[Effect]:
        """Hand leadership to another voter; the answer is `Decided`."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.transfer(node, request)
        else:
            self._out.append(Decided(request, waiting=NO_LEADER))
        return self._take()

    def change(self, member: ClusterMember | int, now_ms: int, request: int = 0) -> list[Effect]:
        """Add a server, which becomes a learner first, or remove one, named by its number. The
        answer, which may take up to `election_max_ms`, is `Decided`."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.change(member, request)
        else:
            self._out.append(Decided(request, waiting=NO_LEADER))
        return self._take()

    def gone(self, node: int, now_ms: int) -> list[Effect]:
        """Nobody listens at this server's address: its process has ended. If it led, its silence
        is not waited for. Should it live after all, its next word is enough to follow it again,
        and pre-vote keeps it from being deposed while others hear it."""
        self.now_ms = now_ms
        if self.leading is None and self.leader_id is not None and self.leader_id.node == node:
            logger.info("%s doubts its leader: nobody listens at node %d", self.id, node)
            self.leader_id = None
            hurry_ms = self.random.randrange(self.settings.election_ms) // HURRY + 1
            self._election_at_ms = min(self._election_at_ms, now_ms + hurry_ms)
        return self._take()

    def impair(self, reason: str, now_ms: int) -> list[Effect]:
        """The journal cannot take anything (`reason`), or can again (empty)."""
        self.now_ms = now_ms
        if reason and self.role is not Role.NEWCOMER:
            self.become_follower(self.epoch, None)
        self.impaired = reason
        self._wait_for_leader()
        return self._take()

    # -- Elections -----------------------------------------------------------------------------

    def _no_leader(self) -> None:
        """Silence for too long: run for it, or, being no voter, ask to be let in: the entry that
        made us a learner may have been cut off, and nobody may know of us."""
        if self.leader_id is not None:
            case = self.detector.opinion(self.leader_id, self.now_ms)
            logger.info("%s doubts its leader: %s", self.id, case)
        self.leader_id = None
        self._wait_for_leader()
        if self._may_campaign():
            self._ask_for_pre_votes()
        else:
            self._knock()

    def _knock(self) -> None:
        if self.newcomer is None:
            self._become(Cause.NO_PLACE)

    def _become(self, cause: Cause) -> None:
        """Change the role, and what exists in that role only: nobody else does."""
        self.role = next_role(self.role, cause)
        if self.role is Role.LEADER:
            self.leading = Leadership(self)
        elif self.leading is not None:
            logger.info("%s no longer leads epoch %d", self.id, self.epoch)
            self.leading.end()
            self.leading = None
        if cause in KNOCKS:
            self.newcomer = Newcomer(self, self._listed, may_found=False) if KNOCKS[cause] else None

    def _may_campaign(self) -> bool:
        # A leader whose own removal is in its log, but not committed, may hold the longest log of
        # those who are left, and then only it can be elected: the removal does not count yet.
        # A replica that still lacks the state it is being sent would lead with an empty hand.
        decided = self.memberships.at(self.commit)
        voters = (*self.memberships.current.voters, *decided.voters)
        return self.id in voters and self.installing is None

    def _ask_for_pre_votes(self) -> None:
        """Ask whether an election would have a chance, without raising the epoch: so a replica
        that was cut off, or that nobody wants, does not depose a leader that all others hear."""
        self._become(Cause.SILENCE)
        self._granted = set()
        request = RequestVote(self.epoch + 1, self.log.last, self.log.last_epoch, True, False)
        self._send_voters(request)
        self._count_vote(self.id)

    def _campaign(self, cause: Cause) -> None:
        """Ask for votes, in a new epoch."""
        self._become(cause)
        self.leader_id = None
        self._granted = set()
        self._set_epoch(self.epoch + 1, self.id)
        forced = cause is Cause.HANDED_OVER
        request = RequestVote(self.epoch, self.log.last, self.log.last_epoch, False, forced)
        # Epoch and vote are on disk before anybody hears of them, and the vote for oneself
        # counts no earlier than any other.
        self._persist(
            (Promise(self.epoch, self.id),),
            (*(Send(v, request) for v in self._other_voters()), VoteStored(self.epoch)),
        )

    def _on_request_vote(self, sender: ReplicaId, m: RequestVote) -> None:
        if m.epoch < self.epoch:
            self._send(sender, Vote(self.epoch, False, m.pre))
            return
        if not m.forced and self._hears_a_leader():
            # A leader that is heard here is not deposed by one who does not hear it.
            if self.memberships.index <= self.commit and not self.is_member(sender):
                self._send(sender, Unwelcome(f"node {sender} is not a member of the cluster"))
            return
        fits = (m.last_epoch, m.last_index) >= (self.log.last_epoch, self.log.last)
        if m.pre:
            granted = fits and m.epoch > self.epoch
            # An answer to a pre-vote carries the epoch that was asked for, except for a refusal
            # that tells the asker of a newer one.
            self._send(sender, Vote(m.epoch if granted else self.epoch, granted, True))
            return
        if m.epoch > self.epoch:
            self.become_follower(m.epoch, None)
        granted = fits and self.vote in (None, sender)
        if granted:
            self.vote = sender
            self._wait_for_leader()
        self._persist(
            (Promise(self.epoch, self.vote),), (Send(sender, Vote(self.epoch, granted, False)),)
        )

    def _hears_a_leader(self) -> bool:
        if self.leading is not None:
            return True  # it steps down by itself when it loses the majority
        leader = self.leader_id
        return leader is not None and self.detector.opinion(leader, self.now_ms) is None

    def _on_vote(self, sender: ReplicaId, m: Vote) -> None:
        if not m.granted:
            if m.epoch > self.epoch and self.is_member(sender):
                self.become_follower(m.epoch, None)
                self._persist((Promise(self.epoch, self.vote),), ())
        elif m.pre:
            if self.role is Role.PRE_CANDIDATE and m.epoch == self.epoch + 1:
                self._count_vote(sender)
        elif self.role is Role.CANDIDATE and m.epoch == self.epoch:
            self._count_vote(sender)

    def _count_vote(self, voter: ReplicaId) -> None:
        self._granted.add(voter)
        voters = self.memberships.current.voters
        if sum(v in self._granted for v in voters) < majority(voters):
            return
        if self.role is Role.PRE_CANDIDATE:
            self._campaign(Cause.PRE_VOTES)
        else:
            self._lead()

    def _on_timeout_now(self, sender: ReplicaId, m: TimeoutNow) -> None:
        if m.epoch == self.epoch and sender == self.leader_id and self._may_campaign():
            self._campaign(Cause.HANDED_OVER)

    def _lead(self) -> None:
        logger.info("%s leads epoch %d", self.id, self.epoch)
        self.leader_id = self.id
        self._become(Cause.VOTES)
        assert self.leading is not None
        self.leading.begin()

    def become_follower(self, epoch: int, leader: ReplicaId | None) -> None:
        """Follow, perhaps in a newer epoch. The caller persists the epoch before it answers."""
        if epoch > self.epoch:
            self._set_epoch(epoch, None)
        self._become(Cause.GIVES_WAY)
        self.leader_id = leader
        self._wait_for_leader()

    def _set_epoch(self, epoch: int, vote: ReplicaId | None) -> None:
        assert epoch > self.epoch
        self.epoch, self.vote = epoch, vote
        # What was counted in an earlier epoch was said of another leader's log.
        self._leader_has = 0
        self._held = {}

    def _wait_for_leader(self) -> None:
        limit = self.settings.election_ms
        if self.leader_id is not None:
            limit = self.detector.limit_ms(self.leader_id)
        # Random, so that not all campaign at once and split the votes.
        self._election_at_ms = self.now_ms + limit + self.random.randrange(limit) + 1

    def _hurry_if_alone(self) -> None:
        """A sole voter has nobody to wait for."""
        if self.memberships.current.voters == (self.id,):
            self._election_at_ms = self.now_ms

    # -- Following -----------------------------------------------------------------------------

    def _on_append(self, sender: ReplicaId, m: Append) -> None:
        if not self._follow(sender, m.epoch, m.round):
            return
        if self.installing is not None:
            return  # the log is about to be replaced; the leader will ask again
        log, base = self.log, self.log.base_index
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
            self.keep(new, [Send(to, Appended(m.epoch, match, m.round)) for to in self._ack_to()])
        elif entries or m.round:
            self._acknowledge(match, m.round)
        self.advance(min(m.commit, match))
        self._count_for_myself()

    def _follow(self, sender: ReplicaId, epoch: int, round: int = 0) -> bool:
        """Accept the sender as leader of `epoch`, or tell it that its time is over."""
        if epoch < self.epoch:
            self._send(sender, Refused(self.epoch, 0, 0, 0, round))
            return False
        if epoch > self.epoch:
            self.become_follower(epoch, sender)
            self._persist((Promise(self.epoch, self.vote),), ())
        assert self.leading is None, f"two leaders in epoch {epoch}: {self.id} and {sender}"
        if self.newcomer is not None and self.is_member(self.id):
            self._become(Cause.ADMITTED)
        if self.role is not Role.FOLLOWER:
            self._become(Cause.LEADER_HEARD)
        self.removed = ""
        self.leader_id = sender
        self.detector.heard(sender, self.now_ms)
        self._wait_for_leader()
        return True

    def _refuse(self, sender: ReplicaId, m: Append) -> None:
        # The hint is the last place where the logs may agree: not beyond our end, and not inside
        # an epoch that the leader's log did not have at that place.
        hint = self.log.last_not_after(m.prev_index, m.prev_epoch)
        epoch = self.log.epoch_at(hint)
        assert epoch is not None
        self._send(sender, Refused(self.epoch, m.prev_index, hint, epoch, m.round))

    def _store(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Take what is new among these entries; cut off what contradicts them."""
        for at, entry in enumerate(entries):
            epoch = self.log.epoch_at(entry.index)
            if epoch == entry.epoch:
                continue
            if epoch is not None:
                self._truncate(entry.index)
            new = entries[at:]
            self.log.append(new)
            for entry in new:
                self.took(entry)
            return new
        return ()

    def _truncate(self, first: int) -> None:
        # A leader that contradicts what is committed cannot have been elected.
        assert first > self.commit, f"entry {first} is committed and must not change"
        self.log.truncate(first)
        self.memberships.truncate(first)
        self.stored = min(self.stored, first - 1)

    def took(self, entry: Entry) -> None:
        self.clock.saw(entry.stamp, self.now_ms)
        if entry.kind == Kind.MEMBERSHIP:
            self.memberships.append(entry.index, decode_membership(entry.payload))
            if self.newcomer is not None and self.is_member(self.id):
                self._become(Cause.ADMITTED)

    def _acknowledge(self, match: int, round: int) -> None:
        """Answer an append that brought nothing new: at once, so that a slow disk does not look
        like a dead server, but only for what is on disk."""
        for to in self._ack_to():
            self._send(to, Appended(self.epoch, min(match, self.stored), round))

    def _ack_to(self) -> tuple[ReplicaId, ...]:
        """The leader, and whoever else counts this."""
        assert self.leader_id is not None
        voters = self.memberships.current.voters
        if not tell_each_other(voters) or self.id not in voters:
            return (self.leader_id,)
        others = tuple(v for v in voters if v not in (self.id, self.leader_id))
        return (self.leader_id, *others)

    def _on_appended(self, sender: ReplicaId, m: Appended) -> None:
        if m.epoch > self.epoch or self.leading is not None:
            self._on_answer(sender, m)
        elif m.epoch == self.epoch and m.match > self._held.get(sender, 0):
            self._held[sender] = m.match
            self._count_for_myself()

    def _on_answer(self, sender: ReplicaId, m: Appended | Refused | PartTaken) -> None:
        if m.epoch > self.epoch:
            # A member ahead of us cannot follow us; it must be heard even though pre-vote keeps it
            # from campaigning. Who is no member is not heard: it cannot depose anybody.
            if self.is_member(sender):
                self.become_follower(m.epoch, None)
                self._persist((Promise(self.epoch, self.vote),), ())
        elif self.leading is not None and m.epoch == self.epoch:
            self.leading.answer(sender, m)

    def _count_for_myself(self) -> None:
        """Deliver without the leader's notice what a majority is known to hold.

        Counted are this replica's own synced entries; the acknowledgements it saw in this epoch;
        and the leader up to what it *said* it holds, for having sent an entry is not having it on
        disk. Only an entry of this epoch commits by counting: an older one could still be replaced
        by a leader who never saw it (Raft, 5.4.2). And an entry of this epoch in our log came from
        this epoch's leader, so up to it our log is the leader's.
        """
        if self.leader_id is None or self.leading is not None:
            return
        held = {**self._held, self.leader_id: self._leader_has, self.id: self.stored}
        index = min(self.stored, held_by_majority(self.memberships.current.voters, held))
        if index > self.commit and self.log.epoch_at(index) == self.epoch:
            self.advance(index)

    # -- Delivering ----------------------------------------------------------------------------

    def advance(self, commit: int) -> None:
        if commit > self.commit:
            self.commit = commit
            self._deliver()

    def _deliver(self) -> None:
        while self.delivered < self.commit and not self._reading_to_deliver:
            first = self.delivered + 1
            entries = self.log.cached(first, self.settings.append_max_bytes)
            if entries is None:
                self._reading_to_deliver = True
                self._out.append(Read(None, first, self.settings.append_max_bytes))
                return
            self._hand_out(entries[: self.commit - self.delivered])

    def _hand_out(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            assert entries[0].index == self.delivered + 1
            self.delivered = entries[-1].index
            self._out.append(Deliver(entries))
            self._forget_cached()

    def _forget_cached(self) -> None:
        self.log.forget_cached(min(self.delivered, self.stored), self.settings.cache_max_bytes)

    # -- Snapshots arriving --------------------------------------------------------------------

    def _on_snapshot_part(self, sender: ReplicaId, m: SnapshotPart) -> None:
        if not self._follow(sender, m.epoch) or self.installing is not None:
            return
        if self.log.epoch_at(m.meta.index) == m.meta.epoch or m.meta.index <= self.commit:
            # Everything in it is here already.
            self._send(sender, Appended(m.epoch, min(m.meta.index, self.stored), 0))
            return
        attempt = (m.epoch, m.attempt)
        if m.seq == 0 and (self._incoming is None or self._incoming[0] < attempt):
            self._incoming = (attempt, 0)
        if self._incoming is None or self._incoming[0] < attempt:
            self._send(sender, PartTaken(m.epoch, m.attempt, -1))
            return
        expected = self._incoming[1]
        if self._incoming[0] > attempt or m.seq > expected:
            return  # late, or early
        taken = Send(sender, PartTaken(m.epoch, m.attempt, m.seq))
        if m.seq < expected:
            self._out.append(taken)
            return
        self._incoming = (attempt, expected + 1)
        self._out.append(StorePart(m.meta, m.seq, m.data, (taken,)))
        if m.last:
            self.installing = m.meta
            self._out.append(Install(m.meta))

    def drop_incoming(self) -> None:
        self._incoming = self.installing = None

    # -- Proposing and reading -----------------------------------------------------------------

    def _propose(self, packs: tuple[bytes, ...]) -> None:
        if self.leading is not None:
            self.leading.propose(packs)
        elif self.impaired:
            self._out.append(Rejected(packs, self.impaired))
        elif self.leader_id is None:
            self._out.append(Rejected(packs, "no leader is known"))
        else:
            self._send(self.leader_id, Forward(packs))

    def _on_forward(self, sender: ReplicaId, m: Forward) -> None:
        if self.leading is not None:  # otherwise it is lost, and proposed again by who waits
            self.leading.propose(m.packs)
            self._out = [e for e in self._out if not isinstance(e, Rejected)]

    def _on_read_request(self, sender: ReplicaId, m: ReadRequest) -> None:
        if self.leading is not None:
            self.leading.read(sender, m.request)
        else:
            self._send(sender, ReadAnswer(m.request, -1))

    def _on_read_answer(self, sender: ReplicaId, m: ReadAnswer) -> None:
        self._out.append(ReadReady(m.request, m.index))

    # -- Beginning and returning ---------------------------------------------------------------

    def found(self, membership: Membership) -> None:
        """Become one of the founders: all of them write the same first entry."""
        entry = Entry(1, FOUNDING_EPOCH, 0, Kind.MEMBERSHIP, encode_membership(membership))
        if self.epoch < FOUNDING_EPOCH:  # an election may have been faster than the founding
            self._set_epoch(FOUNDING_EPOCH, None)
        self.log.append((entry,))
        self.took(entry)
        self._wait_for_leader()
        self._hurry_if_alone()
        # The founding is not announced before it is on disk: a founder that forgot it could
        # found another.
        tail: list[Tail] = [EntriesStored(1, FOUNDING_EPOCH)]
        tail += [Send(v, Found(membership.cluster, membership)) for v in self._other_voters()]
        self._persist((Promise(self.epoch, self.vote), entry), tuple(tail))

    def _on_knock(self, sender: ReplicaId, m: Knock) -> None:
        if self.leading is not None:
            self.leading.knock(m.who, m.echo)
        elif self.newcomer is None and sender == m.who and self.stored > 0:
            current = self.memberships.current
            if self.memberships.index == 1 and self.is_member(sender):
                self._send(sender, Found(current.cluster, current))  # it missed the founding
            elif self.commit > 0:
                self._send(sender, Welcome(0))
            if self.leader_id is not None:
                # The leader may be a server that the newcomer's list does not know.
                self._send(self.leader_id, m)

    def _on_founding(self, sender: ReplicaId, m: Ask | FoundingPromise | Found) -> None:
        if self.newcomer is not None:
            self.newcomer.receive(sender, m)

    def _on_welcome(self, sender: ReplicaId, m: Welcome) -> None:
        if self.newcomer is not None:
            self.newcomer.welcomed(sender, m)

    def _on_unwelcome(self, sender: ReplicaId, m: Unwelcome) -> None:
        if self.leader_id is not None:
            return
        self.removed = m.reason
        # It may be wanted again, as a learner: so it knocks. The word may also come from somebody
        # who has not heard of us yet: so we go on campaigning, which pre-vote makes harmless.
        self._knock()

    # -- Small things --------------------------------------------------------------------------

    def is_member(self, sender: ReplicaId) -> bool:
        member = self.memberships.current.member(sender.node)
        return member is not None and member.id == sender

    def _other_voters(self) -> tuple[ReplicaId, ...]:
        return tuple(v for v in self.memberships.current.voters if v != self.id)

    def _send_voters(self, message: Message) -> None:
        for voter in self._other_voters():
            self._send(voter, message)

    def _send(self, to: ReplicaId, message: Message) -> None:
        """Send at once, so nothing that promises what is not on disk: that belongs in the tail of
        a `Persist`."""
        if isinstance(message, Appended):
            assert message.match <= self.stored, "acknowledges what is not on disk"
        elif isinstance(message, Vote):
            assert message.pre or not message.granted, "grants a vote that is not on disk"
        self._out.append(Send(to, message))

    def _persist(self, records: tuple[Entry | Promise, ...], then: tuple[Tail, ...]) -> None:
        self._out.append(Persist(records, then))

    def keep(self, entries: tuple[Entry, ...], then: list[Send]) -> None:
        """Write what is new in the log, and send this when it is held: in memory mode that is so
        at once, otherwise when it is on disk (and `stored_back` is called)."""
        last = entries[-1]
        if self.settings.volatile:
            self.stored = last.index
            self._persist(entries, ())
            self._out += then
        else:
            self._persist(entries, (EntriesStored(last.index, last.epoch), *then))

    def emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def _take(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    _HANDLERS: ClassVar[dict[type, Callable[[Replica, ReplicaId, Any], None]]] = {
        RequestVote: _on_request_vote,
        Vote: _on_vote,
        Append: _on_append,
        Appended: _on_appended,
        Refused: _on_answer,
        SnapshotPart: _on_snapshot_part,
        PartTaken: _on_answer,
        TimeoutNow: _on_timeout_now,
        Forward: _on_forward,
        ReadRequest: _on_read_request,
        ReadAnswer: _on_read_answer,
        Knock: _on_knock,
        Welcome: _on_welcome,
        Unwelcome: _on_unwelcome,
        Ask: _on_founding,
        FoundingPromise: _on_founding,
        Found: _on_founding,
    }
