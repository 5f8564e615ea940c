"""The replicated log at one server: who leads, which entries are agreed on, and which may be
delivered.

Promises above: every replica delivers the same entries in the same order (`Deliver`), and an entry
is delivered only once a majority of the servers has it: synced in durable mode, in memory in memory
mode, which is the journal's business and no concern of this class. Uniform: that holds for entries
that a replica delivered right before it crashed, too. Needs below: a network that may lose, repeat,
delay and reorder; a journal that keeps all that it reported as stored. Both may fail at any time;
then nothing is promised but silence.

The algorithm is Raft with the parts its users found necessary: pre-vote, check-quorum, leader
transfer, one membership change at a time with learners, read-index, and followers that count for
themselves (`Following.count`). A reader who knows Raft finds elections, replication, commitment,
how a cluster begins and how an amnesiac returns in `roles/`; application and snapshots are in
`node.py`. Terms are called *epochs*.

Every public method is a door: an input comes in with the local time, effects come out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

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
    AppendNamed,
    Ask,
    Envelope,
    Forward,
    ForwardNamed,
    Found,
    Knock,
    PartTaken,
    Piece,
    PieceTaken,
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
    ReadPart,
    ReadReady,
    Rejected,
    Send,
    StorePart,
    Tail,
    VoteStored,
)
from antiphon.log.entries import EntryLog
from antiphon.log.membership import MembershipHistory
from antiphon.log.recovered import Recovered
from antiphon.log.roles.election import Election
from antiphon.log.roles.following import Following
from antiphon.log.roles.founding import Newcomer
from antiphon.log.roles.large_packs import LargePacks
from antiphon.log.roles.leader import Leadership
from antiphon.log.roles.membership_changes import NO_LEADER
from antiphon.log.roles.transitions import Role
from antiphon.log.settings import Settings
from antiphon.model.failure_detector import Detector

FOUNDING_EPOCH = 1
"""The epoch of entry 1, which names the founders; elections begin above it."""

Unbinding = (
    RequestVote
    | Append
    | AppendNamed
    | Refused
    | SnapshotPart
    | PartTaken
    | TimeoutNow
    | Forward
    | ForwardNamed
    | Piece
    | PieceTaken
    | ReadRequest
    | ReadAnswer
    | Knock
    | Welcome
    | Unwelcome
    | Ask
    | FoundingPromise
    | Found
)
"""Messages that may leave at any time. The others, votes and acknowledgements, may promise
something that is not on disk: they leave in a tail, or by a method of `Replica` that makes only
harmless ones."""

Silent = Read | ReadPart | StorePart | Install | ReadReady | Decided | Rejected
"""Effects that neither send nor write."""


class Replica:
    """One incarnation of one server, as a member of the log; promises and needs are the module's.

    It holds the facts that its parts share: `election` changes the role and what belongs to it,
    `following` takes the leader's log, `leading` exists while this replica leads, `newcomer` while
    it has no place in the cluster. Their effects are collected (`emit`, `send`, `persist`, `keep`),
    and returned by the door through which the input came.
    """

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
        self.deadline_stamp: int | None = None  # when the state machine wants a tick

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
        self._reading_to_deliver = False
        self._out: list[Effect] = []
        self.election = Election(self, listed)
        self.following = Following(self)
        self.large_packs = LargePacks(self)
        self._handlers = self._handlers_of_messages()
        self.election.begin(fresh=recovered.fresh)

    @property
    def reign(self) -> tuple[int, int] | None:
        """The node that leads, as far as this replica knows, and its epoch."""
        return (self.leader_id.node, self.epoch) if self.leader_id is not None else None

    @property
    def installing(self) -> SnapshotMeta | None:
        """The snapshot from the leader that is being installed."""
        return self.following.installing

    # -- Doors ---------------------------------------------------------------------------------

    def receive(self, envelope: Envelope, now_ms: int) -> list[Effect]:
        """Take a message that another server sent to this incarnation."""
        self.now_ms = now_ms
        if self.impaired:
            return []
        if envelope.to.incarnation not in (self.id.incarnation, ANY):
            if self.newcomer is not None and isinstance(envelope.message, Append):
                # Meant for our earlier life, by a leader that we may not list: our list can be
                # older than the membership. No other message could name a server to knock at.
                self.send(envelope.sender, Knock(self.id, 0))
            return self._take()
        self._handlers[type(envelope.message)](envelope.sender, envelope.message)
        return self._take()

    def alive(self, sender: ReplicaId, now_ms: int) -> list[Effect]:
        """Take a part of a large message as a sign of life: later messages of its sender,
        heartbeats too, wait behind it. The leader gets an answer now and then, since a server that
        gets nothing else to answer would seem silent."""
        self.now_ms = now_ms
        if self.impaired:
            return []
        self.following.alive(sender)
        return self._take()

    def tick(self, now_ms: int) -> list[Effect]:
        """Do all that is due; call it at `next_deadline_ms`, more often is harmless."""
        self.now_ms = now_ms
        if self.impaired:
            return []
        if self.leading is not None:
            self.leading.tick()
        elif self.newcomer is not None:
            self.newcomer.tick()
        if self.leading is None and now_ms >= self.election.quiet_until_ms:
            self.election.silence()
        return self._take()

    def next_deadline_ms(self) -> int:
        """Return when `tick` has work."""
        if self.leading is not None:
            return self.leading.next_deadline_ms()
        if self.newcomer is not None:
            return min(self.election.quiet_until_ms, self.newcomer.next_deadline_ms)
        return self.election.quiet_until_ms

    def propose(self, packs: tuple[bytes, ...], now_ms: int) -> list[Effect]:
        """Order these packs, here or through the leader. The outcome is seen when they are
        delivered; a payload that was lost on the way may be proposed again."""
        self.now_ms = now_ms
        self._propose(packs)
        return self._take()

    def stored_back(self, tail: EntriesStored | VoteStored, now_ms: int) -> list[Effect]:
        """Take a tail that was released: its records are on disk."""
        self.now_ms = now_ms
        if isinstance(tail, VoteStored):
            self.election.vote_stored(tail.epoch)
        elif self.log.epoch_at(tail.index) == tail.epoch and tail.index > self.stored:
            # Index and epoch name one entry and all before it; if they are no longer in the log,
            # the entry was replaced meanwhile, and its replacement may not be on disk yet.
            self.stored = tail.index
            if self.leading is not None:
                self.leading.advance_commit()
            else:
                self.following.count()
            self._forget_cached()
        return self._take()

    def entries_read(
        self, reader: ReplicaId | None, first: int, entries: tuple[Entry, ...], now_ms: int
    ) -> list[Effect]:
        """Take the answer to `Read`. No entries: the journal does not have them any more."""
        self.now_ms = now_ms
        if reader is None:
            self._reading_to_deliver = False
            if first == self.delivered + 1:
                # Read from the journal, they may have been replaced in the log in between.
                still = (e for e in entries if self.log.epoch_at(e.index) == e.epoch)
                self._hand_out(tuple(e for e in still if e.index <= self.commit))
                self._deliver()
        elif self.leading is not None:
            self.leading.replication.entries_read(reader, first, entries)
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
        """Take the answer to `ReadPart`. No meta: there is no snapshot, or it has no such part."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.replication.part_read(to, meta, seq, data, last)
        return self._take()

    def installed(self, meta: SnapshotMeta, now_ms: int) -> list[Effect]:
        """Go on behind a snapshot: it is the journal's base now, and the state machine has been
        restored from it."""
        self.now_ms = now_ms
        self.following.installed(meta)
        self.snapshot = meta
        self.log = EntryLog(meta.index, meta.epoch, (), meta.index)
        self.memberships = MembershipHistory([(meta.index, meta.membership)])
        self.clock.saw(meta.stamp, now_ms)
        self.stored = self.commit = self.delivered = meta.index
        if self.leader_id is not None:
            self.send_held(self.leader_id, meta.index, 0)
        return self._take()

    def compacted(self, base_index: int, snapshot: SnapshotMeta) -> None:
        """Take note that the journal stored this snapshot and removed entries up to
        `base_index`."""
        self.snapshot = snapshot
        self.log.compact(min(base_index, snapshot.index))
        self.memberships.forget_before(snapshot.index)

    def read(self, request: int, now_ms: int) -> list[Effect]:
        """Find an index such that a server that has applied it has applied all that is committed
        now; the answer is `ReadReady`."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.read(self.id, request)
        elif self.leader_id is not None and not self.impaired:
            self.send(self.leader_id, ReadRequest(request))
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
            self.leading.changes.change(member, request)
        else:
            self._out.append(Decided(request, waiting=NO_LEADER))
        return self._take()

    def gone(self, node: int, now_ms: int) -> list[Effect]:
        """Take note that no process listens at this server's address: it has ended. If it led, its
        silence is not waited for. Should it live after all, its next message is enough to follow it
        again, and pre-vote keeps it from being deposed while others hear it."""
        self.now_ms = now_ms
        if self.leading is not None:
            self.leading.gone(node)
        self.election.gone(node)
        return self._take()

    def impair(self, reason: str, now_ms: int) -> list[Effect]:
        """Stop taking part while the journal cannot be written (`reason`), or begin again
        (empty)."""
        self.now_ms = now_ms
        self.election.impair(reason)
        return self._take()

    # -- Entries and answers -------------------------------------------------------------------

    def took(self, entry: Entry) -> None:
        """Take into account an entry that was added to the log."""
        self.clock.saw(entry.stamp, self.now_ms)
        if entry.kind == Kind.MEMBERSHIP:
            self.memberships.append(entry.index, decode_membership(entry.payload))
            self.election.admit()

    def on_answer(self, sender: ReplicaId, m: Appended | Refused | PartTaken) -> None:
        """Take what another server answers to its leader."""
        if m.epoch > self.epoch:
            # A member ahead of us cannot follow us; it must be heard even though pre-vote keeps it
            # from campaigning. A server that is not a member is not heard: it cannot depose a
            # leader.
            if self.is_member(sender):
                self.election.enter(m.epoch, None)
        elif self.leading is not None and m.epoch == self.epoch:
            self.leading.answer(sender, m)

    # -- Delivering ----------------------------------------------------------------------------

    def advance(self, commit: int) -> None:
        """Deliver the entries that are committed now."""
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

    # -- Proposing and reading -----------------------------------------------------------------

    def _propose(self, packs: tuple[bytes, ...]) -> None:
        if self.leading is not None:
            self.leading.propose(packs)
        elif self.impaired:
            self._out.append(Rejected(packs, self.impaired))
        elif self.leader_id is None:
            self._out.append(Rejected(packs, "no leader is known"))
        elif max([len(pack) for pack in packs], default=0) > self.settings.large_bytes:
            self.large_packs.forward(self.leader_id, packs)
        else:
            self.send(self.leader_id, Forward(packs))

    def on_forward(self, sender: ReplicaId, m: Forward) -> None:
        """Append payloads that a follower passed on. If this replica does not lead, they are lost,
        and their home proposes them again."""
        if self.leading is not None:  # otherwise it is lost, and proposed again by those that wait
            self.leading.propose(m.packs)
            self._out = [e for e in self._out if not isinstance(e, Rejected)]

    def _on_read_request(self, sender: ReplicaId, m: ReadRequest) -> None:
        if self.leading is not None:
            self.leading.read(sender, m.request)
        else:
            self.send(sender, ReadAnswer(m.request, -1))

    def _on_read_answer(self, sender: ReplicaId, m: ReadAnswer) -> None:
        self._out.append(ReadReady(m.request, m.index))

    # -- Beginning and returning ---------------------------------------------------------------

    def found(self, membership: Membership) -> None:
        """Become one of the founders: all of them write the same first entry."""
        entry = Entry(1, FOUNDING_EPOCH, 0, Kind.MEMBERSHIP, encode_membership(membership))
        if self.epoch < FOUNDING_EPOCH:  # an election may have been faster than the founding
            self.election.set_epoch(FOUNDING_EPOCH, None)
        self.log.append((entry,))
        self.took(entry)
        self.election.wait_for_leader()
        self.election.hurry_if_alone()
        # The founding is not announced before it is on disk: a founder that forgot it could
        # found another.
        tail: list[Tail] = [EntriesStored(1, FOUNDING_EPOCH)]
        tail += [Send(v, Found(membership.cluster, membership)) for v in self.other_voters()]
        self.persist((Promise(self.epoch, self.vote), entry), tuple(tail))

    def _on_knock(self, sender: ReplicaId, m: Knock) -> None:
        if self.leading is not None:
            self.leading.changes.knock(m.who, m.echo)
        elif self.newcomer is None and sender == m.who and self.stored > 0:
            current = self.memberships.current
            if self.memberships.index == 1 and self.is_member(sender):
                self.send(sender, Found(current.cluster, current))  # it missed the founding
            elif self.commit > 0:
                self.send(sender, Welcome(0))
            if self.leader_id is not None:
                # The leader may be a server that the newcomer's list does not know.
                self.send(self.leader_id, m)

    def _on_founding(self, sender: ReplicaId, m: Ask | FoundingPromise | Found) -> None:
        if self.newcomer is not None:
            self.newcomer.receive(sender, m)

    def _on_welcome(self, sender: ReplicaId, m: Welcome) -> None:
        if self.newcomer is not None:
            self.newcomer.welcomed(sender, m)

    # -- Small things --------------------------------------------------------------------------

    def is_member(self, sender: ReplicaId) -> bool:
        """Return whether this incarnation is a member of the cluster, as far as this log goes."""
        member = self.memberships.current.member(sender.node)
        return member is not None and member.id == sender

    def other_voters(self) -> tuple[ReplicaId, ...]:
        """Return the voters but this replica."""
        return tuple(v for v in self.memberships.current.voters if v != self.id)

    def send(self, to: ReplicaId, message: Unbinding) -> None:
        """Send at once. A message that promises something that is not on disk yet belongs in the
        tail of a `Persist`, and is not of this type."""
        self._out.append(Send(to, message))

    def send_held(self, to: ReplicaId, match: int, round: int) -> None:
        """Acknowledge at once the leader's entries up to `match`, as far as they are on disk."""
        self._out.append(Send(to, Appended(self.epoch, min(match, self.stored), round)))

    def refuse_vote(self, to: ReplicaId, *, pre: bool) -> None:
        """Refuse at once a vote, or a pre-vote."""
        self._out.append(Send(to, Vote(self.epoch, False, pre)))

    def grant_pre_vote(self, to: ReplicaId, epoch: int) -> None:
        """Answer at once that this replica would vote: it may still decide otherwise."""
        self._out.append(Send(to, Vote(epoch, True, True)))

    def persist(self, records: tuple[Entry | Promise, ...], then: tuple[Tail, ...]) -> None:
        """Write these records, and release `then` when they are on disk."""
        self._out.append(Persist(records, then))

    def memory_holds(self, index: int) -> None:
        """In memory mode, count the log up to this entry as stored: no disk is waited for."""
        if self.settings.volatile:
            self.stored = index

    def keep(self, entries: tuple[Entry, ...], then: list[Send]) -> None:
        """Write the new entries of the log, and send this when they are held: in memory mode that
        is so at once, otherwise when it is on disk (and `stored_back` is called)."""
        last = entries[-1]
        self.memory_holds(last.index)
        if self.settings.volatile:
            self.persist(entries, ())
            self._out += then
        else:
            self.persist(entries, (EntriesStored(last.index, last.epoch), *then))

    def emit(self, effect: Silent) -> None:
        """Add an effect that is neither a message nor a write."""
        self._out.append(effect)

    def _take(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    def _handlers_of_messages(self) -> dict[type, Callable[[ReplicaId, Any], None]]:
        election, following, large_packs = self.election, self.following, self.large_packs
        return {
            RequestVote: election.on_request_vote,
            Vote: election.on_vote,
            Append: following.on_append,
            Appended: following.on_appended,
            Refused: self.on_answer,
            SnapshotPart: following.on_snapshot_part,
            PartTaken: self.on_answer,
            TimeoutNow: election.on_timeout_now,
            Forward: self.on_forward,
            ForwardNamed: large_packs.on_forward_named,
            AppendNamed: large_packs.on_append_named,
            Piece: large_packs.on_piece,
            PieceTaken: large_packs.on_piece_taken,
            ReadRequest: self._on_read_request,
            ReadAnswer: self._on_read_answer,
            Knock: self._on_knock,
            Welcome: self._on_welcome,
            Unwelcome: election.on_unwelcome,
            Ask: self._on_founding,
            FoundingPromise: self._on_founding,
            Found: self._on_founding,
        }
