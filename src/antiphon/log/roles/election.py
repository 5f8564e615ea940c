"""How a replica comes to its role: silence, votes, epochs, and the place that it lost.

Promises: a replica votes once an epoch at most, and a vote, also the one for itself, counts only
once it is on disk (`on_request_vote`: it leaves as the tail of a `Persist`); so an epoch has one
leader at most. A replica that was cut off, or removed, does not depose a leader that the others
hear (pre-vote). Needs: `Replica.tick` checks `quiet_until_ms`, and every message that shows a
leader goes through `follows`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from antiphon.formats.entry import ReplicaId
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import (
    Refused,
    RequestVote,
    TimeoutNow,
    Unwelcome,
    Vote,
)
from antiphon.log.effects import Send, VoteStored
from antiphon.log.quorum import majority
from antiphon.log.roles.founding import Newcomer
from antiphon.log.roles.leader import Leadership
from antiphon.log.roles.transitions import KNOCKS, Cause, Role, next_role

if TYPE_CHECKING:
    from antiphon.log.replica import Replica

logger = logging.getLogger("antiphon.log.roles.election")

HURRY = 4
"""A follower that knows that its leader is gone waits at most `election_ms` divided by this."""


class Election:
    """The only one that changes the role of its replica, and the facts that belong to the role:
    `role`, `leading`, `newcomer`, `leader_id`, `epoch`, `vote`, `removed`, `impaired`.

    The facts themselves are the replica's, since all its parts read them.
    """

    def __init__(self, replica: Replica, listed: dict[int, str]) -> None:
        self._r = replica
        self._listed = listed
        self._granted: set[ReplicaId] = set()  # by whom, of the votes asked for last
        self.quiet_until_ms = 0  # how long a leader may be silent before this replica doubts it
        self.doubts = 0  # how often it took its leader for dead, elected or not

    def begin(self, *, fresh: bool) -> None:
        """Begin as a follower, or as a newcomer without a place. `fresh`: nothing was ever stored
        here, so it may found a cluster."""
        r = self._r
        self.wait_for_leader()
        self.hurry_if_alone()
        if not r.is_member(r.id):
            r.role = Role.NEWCOMER
            r.newcomer = Newcomer(r, self._listed, may_found=fresh)

    def become(self, cause: Cause) -> None:
        """Change the role as the table says, and what exists only in one role."""
        r = self._r
        r.role = next_role(r.role, cause)
        if r.role is Role.LEADER:
            r.leading = Leadership(r)
        elif r.leading is not None:
            logger.info("%s no longer leads epoch %d", r.id, r.epoch)
            r.leading.end()
            r.leading = None
        if cause in KNOCKS:
            r.newcomer = Newcomer(r, self._listed, may_found=False) if KNOCKS[cause] else None

    # -- Hearing a leader, or none ---------------------------------------------------------------

    def follows(self, sender: ReplicaId, epoch: int, round: int = 0) -> bool:
        """Accept the sender as leader of `epoch`, or answer that its time is over."""
        r = self._r
        if epoch < r.epoch:
            r.send(sender, Refused(r.epoch, 0, 0, 0, round))
            return False
        if epoch > r.epoch:
            self.enter(epoch, sender)
        assert r.leading is None, f"two leaders in epoch {epoch}: {r.id} and {sender}"
        if r.newcomer is not None:
            self.admit()
        if r.role is not Role.FOLLOWER:
            self.become(Cause.LEADER_HEARD)
        r.removed = ""
        r.leader_id = sender
        r.detector.heard(sender, r.now_ms)
        self.wait_for_leader()
        return True

    def silence(self) -> None:
        """Campaign, since the leader was silent for too long. A replica that is not a voter knocks
        instead: the entry that made it a learner may have been cut off, and then no other server
        knows it."""
        r = self._r
        if r.leader_id is not None:
            self.doubts += 1
            case = r.detector.opinion(r.leader_id, r.now_ms)
            logger.info("%s doubts its leader: %s", r.id, case)
        r.leader_id = None
        self.wait_for_leader()
        if self._may_campaign():
            self._ask_for_pre_votes()
        else:
            self._knock()

    def gone(self, node: int) -> None:
        """Doubt the leader at once if it is this node, whose process has ended."""
        r = self._r
        if r.leading is None and r.leader_id is not None and r.leader_id.node == node:
            self.doubts += 1
            logger.info("%s doubts its leader: nobody listens at node %d", r.id, node)
            r.leader_id = None
            hurry_ms = r.random.randrange(r.settings.election_ms) // HURRY + 1
            self.quiet_until_ms = min(self.quiet_until_ms, r.now_ms + hurry_ms)

    def wait_for_leader(self) -> None:
        """Give the leader, known or not, the full time to be heard."""
        r = self._r
        limit = r.settings.election_ms
        if r.leader_id is not None:
            limit = r.detector.limit_ms(r.leader_id)
        # Random, so that not all campaign at once and split the votes.
        self.quiet_until_ms = r.now_ms + limit + r.random.randrange(limit) + 1

    def hurry_if_alone(self) -> None:
        """Campaign at once if this replica is the only voter."""
        if self._r.memberships.current.voters == (self._r.id,):
            self.quiet_until_ms = self._r.now_ms

    # -- Epochs ----------------------------------------------------------------------------------

    def enter(self, epoch: int, leader: ReplicaId | None) -> None:
        """Give way to a newer epoch, and persist it."""
        self.give_way(epoch, leader)
        r = self._r
        r.persist((Promise(r.epoch, r.vote),), ())

    def give_way(self, epoch: int, leader: ReplicaId | None) -> None:
        """Stop running or leading, perhaps for a newer epoch, which the caller persists before it
        answers."""
        r = self._r
        if epoch > r.epoch:
            self.set_epoch(epoch, None)
        self.become(Cause.GIVES_WAY)
        r.leader_id = leader
        self.wait_for_leader()

    def set_epoch(self, epoch: int, vote: ReplicaId | None) -> None:
        """Begin an epoch, with the vote in it. The caller persists both."""
        r = self._r
        assert epoch > r.epoch
        r.epoch, r.vote = epoch, vote
        r.following.forget_counts()
        r.large_packs.forget()

    def impair(self, reason: str) -> None:
        """Take part in nothing while the journal cannot be written, for this reason; again, if it
        is empty."""
        r = self._r
        if reason and r.role is not Role.NEWCOMER:
            self.give_way(r.epoch, None)
        r.impaired = reason
        self.wait_for_leader()

    # -- Asking for votes ------------------------------------------------------------------------

    def _may_campaign(self) -> bool:
        # A leader whose own removal is in its log, but not committed, may hold the longest log of
        # those who are left, and then only it can be elected: the removal does not count yet.
        # A replica that still lacks the state it is being sent would lead with an empty hand.
        r = self._r
        decided = r.memberships.at(r.commit)
        voters = (*r.memberships.current.voters, *decided.voters)
        return r.id in voters and r.following.installing is None

    def _ask_for_pre_votes(self) -> None:
        """Ask whether an election would have a chance, without raising the epoch: so a replica that
        was cut off, or removed, does not depose a leader that all others hear."""
        r = self._r
        self.become(Cause.SILENCE)
        self._granted = set()
        request = RequestVote(r.epoch + 1, r.log.last, r.log.last_epoch, True, False)
        for voter in r.other_voters():
            r.send(voter, request)
        self._count_vote(r.id)

    def _campaign(self, cause: Cause) -> None:
        """Ask for votes, in a new epoch."""
        r = self._r
        self.become(cause)
        r.leader_id = None
        self._granted = set()
        self.set_epoch(r.epoch + 1, r.id)
        forced = cause is Cause.HANDED_OVER
        request = RequestVote(r.epoch, r.log.last, r.log.last_epoch, False, forced)
        # Epoch and vote are on disk before a message names them, and the vote for oneself counts no
        # earlier than any other.
        r.persist(
            (Promise(r.epoch, r.id),),
            (*(Send(v, request) for v in r.other_voters()), VoteStored(r.epoch)),
        )

    def vote_stored(self, epoch: int) -> None:
        """Count the vote for itself, which is on disk now."""
        if self._r.role is Role.CANDIDATE and epoch == self._r.epoch:
            self._count_vote(self._r.id)

    def on_vote(self, sender: ReplicaId, m: Vote) -> None:
        """Count a vote or a pre-vote, or give way to the newer epoch that a refusal names."""
        r = self._r
        if not m.granted:
            if m.epoch > r.epoch and r.is_member(sender):
                self.enter(m.epoch, None)
        elif m.pre:
            if r.role is Role.PRE_CANDIDATE and m.epoch == r.epoch + 1:
                self._count_vote(sender)
        elif r.role is Role.CANDIDATE and m.epoch == r.epoch:
            self._count_vote(sender)

    def _count_vote(self, voter: ReplicaId) -> None:
        self._granted.add(voter)
        voters = self._r.memberships.current.voters
        if sum(v in self._granted for v in voters) < majority(voters):
            return
        if self._r.role is Role.PRE_CANDIDATE:
            self._campaign(Cause.PRE_VOTES)
        else:
            self._lead()

    def on_timeout_now(self, sender: ReplicaId, m: TimeoutNow) -> None:
        """Campaign at once, since the leader hands over."""
        r = self._r
        if m.epoch == r.epoch and sender == r.leader_id and self._may_campaign():
            self._campaign(Cause.HANDED_OVER)

    def _lead(self) -> None:
        r = self._r
        logger.info("%s leads epoch %d", r.id, r.epoch)
        r.leader_id = r.id
        self.become(Cause.VOTES)
        assert r.leading is not None
        r.leading.begin()

    # -- Voting ----------------------------------------------------------------------------------

    def on_request_vote(self, sender: ReplicaId, m: RequestVote) -> None:
        """Vote, if the asker's log is up to date, no leader is heard and no other got this vote."""
        r = self._r
        if m.epoch < r.epoch:
            r.refuse_vote(sender, pre=m.pre)
            return
        if not m.forced and self._hears_a_leader():
            # A leader that is heard here is not deposed by one who does not hear it.
            if r.memberships.index <= r.commit and not r.is_member(sender):
                r.send(sender, Unwelcome(f"node {sender} is not a member of the cluster"))
            return
        fits = (m.last_epoch, m.last_index) >= (r.log.last_epoch, r.log.last)
        if m.pre:
            # An answer to a pre-vote carries the epoch that was asked for, except for a refusal
            # that names a newer one.
            if fits and m.epoch > r.epoch:
                r.grant_pre_vote(sender, m.epoch)
            else:
                r.refuse_vote(sender, pre=True)
            return
        if m.epoch > r.epoch:
            self.give_way(m.epoch, None)
        granted = fits and r.vote in (None, sender)
        if granted:
            r.vote = sender
            self.wait_for_leader()
        r.persist((Promise(r.epoch, r.vote),), (Send(sender, Vote(r.epoch, granted, False)),))

    def _hears_a_leader(self) -> bool:
        r = self._r
        if r.leading is not None:
            return True  # it steps down by itself when it loses the majority
        leader = r.leader_id
        return leader is not None and r.detector.opinion(leader, r.now_ms) is None

    # -- A place in the cluster ------------------------------------------------------------------

    def admit(self) -> None:
        """Stop knocking if the membership names this replica."""
        if self._r.newcomer is not None and self._r.is_member(self._r.id):
            self.become(Cause.ADMITTED)

    def _knock(self) -> None:
        if self._r.newcomer is None:
            self.become(Cause.NO_PLACE)

    def on_unwelcome(self, sender: ReplicaId, m: Unwelcome) -> None:
        """Ask for a place, since another server says that this one is not a member."""
        if self._r.leader_id is not None:
            return
        self._r.removed = m.reason
        # It may be admitted again, as a learner: so it knocks. The sender may also be a server that
        # does not know of us yet: so we go on campaigning, which pre-vote makes harmless.
        self._knock()
