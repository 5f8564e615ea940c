"""How a leader changes its cluster: one server at a time, and never so that the rest is stuck.

Promises: two changes are never under way at once (each is committed before the next begins); a
learner counts only once it has caught up; a voter is removed only if a majority of those who stay
has just shown that it is there and up to date; and no new incarnation takes the place of a server
that lives.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from antiphon.formats.entry import (
    ANY,
    ClusterMember,
    Kind,
    Membership,
    ReplicaId,
    encode_membership,
)
from antiphon.formats.server_messages import Unwelcome, Welcome
from antiphon.log.effects import Decided
from antiphon.log.membership import no_majority, objection
from antiphon.log.quorum import majority
from antiphon.log.roles.progress import Flow, Progress

if TYPE_CHECKING:
    from antiphon.log.replica import Replica
    from antiphon.log.roles.leader import Leadership

logger = logging.getLogger("antiphon.log.roles.membership_changes")

NO_LEADER = "this server does not lead any more"


class Removal(NamedTuple):
    """A removal that waits until a majority of the voters that stay has shown to be there and up to
    date. Their proof is an answer to a round that began after the request: earlier ones do not
    count."""

    request: int
    node: int
    round: int  # which they must have echoed
    needed: int  # the entry up to which they must hold the log
    until_ms: int


class MembershipChanges:
    """The changes that one leader makes, in one epoch; those that wait when it ends are refused."""

    def __init__(self, leadership: Leadership, replica: Replica) -> None:
        self._lead = leadership
        self._r = replica
        self._first_own = replica.log.last + 1  # the entry that opens this epoch
        self._commit_a_round_ago = 0
        self.removal: Removal | None = None
        self._challenges: dict[int, tuple[ReplicaId, int]] = {}  # by node: who, nonce

    def end(self) -> None:
        """Answer the removal that waits: this server leads no more."""
        if self.removal is not None:
            self._r.emit(Decided(self.removal.request, waiting=NO_LEADER))

    def round_began(self) -> None:
        """Note how far the log is committed: a learner must hold that much to count."""
        self._commit_a_round_ago = self._r.commit

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
            self._lead.beat()
            until_ms = r.now_ms + r.settings.election_max_ms
            self.removal = Removal(request, node, self._lead.replication.round, r.commit, until_ms)
            self.decide_removal()

    def _is_expected(self, member: ClusterMember | int) -> bool:
        """Return whether this server was added before, at the same address."""
        return (
            isinstance(member, ClusterMember)
            and self._r.memberships.current.member(member.node) is not None
        )

    def _obstacle(self) -> str:
        """Return why no change can begin at this moment, or an empty text."""
        # One change at a time, and the first only after an entry of this epoch is committed:
        # otherwise two leaders could each hold a change that the other has not seen, and their
        # majorities need not overlap (Ongaro, raft-dev, 2015).
        r = self._r
        if r.commit < self._first_own:
            return "the leader is new, and does not know yet what is agreed"
        if r.memberships.index > r.commit or self.removal is not None:
            return "another change of the cluster is under way"
        if self._lead.hands_over:
            return "leadership is being handed over"
        return ""

    def _change_to(self, membership: Membership) -> bool:
        if self._obstacle():
            return False
        self._lead.append([(Kind.MEMBERSHIP, encode_membership(membership))])
        return True

    def decide_removal(self) -> None:
        """Remove the server once a majority of the others has shown that it can go on without it;
        refuse when it is clear that it cannot. Otherwise the removal might commit, with the last
        help of the one that leaves, and the rest be stuck forever."""
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
        elif len(smaller.voters) - len(hopeless) < enough:
            # The others may answer yet: no operator need look why they do not.
            missing = {v: missing[v] for v in hopeless}
            self._refuse(removal, no_majority(removal.node, smaller, missing))
        elif r.now_ms >= removal.until_ms:
            self._refuse(removal, no_majority(removal.node, smaller, missing))

    def _refuse(self, removal: Removal, why: str) -> None:
        self.removal = None
        self._r.emit(Decided(removal.request, why))

    def _missing(self, voter: ReplicaId, removal: Removal) -> str:
        """Return why this voter cannot be counted on, or an empty text."""
        p = self._lead.replication.progress.get(voter)
        match = self._r.stored if p is None else p.match
        if p is not None and p.round < removal.round:
            return f"node {voter.node} does not answer"
        if match < removal.needed:
            return f"node {voter.node} still lacks {removal.needed - match} entries of the log"
        return ""

    def promote_learner(self, p: Progress) -> None:
        """Make a learner a voter once it holds all that was committed a round ago. Earlier, it
        would raise the majority and not be part of it."""
        if p.id in self._r.memberships.current.voters or p.flow is not Flow.REPLICATE:
            return
        member = self._r.memberships.current.member(p.id.node)
        if member is None or member.voter:
            return
        caught_up = p.match >= max(self._commit_a_round_ago, self._first_own)
        if caught_up and self._lead.replication.round > 0:
            self._change_to(
                self._r.memberships.current.with_member(
                    ClusterMember(member.node, member.incarnation, True, member.address)
                )
            )

    def knock(self, who: ReplicaId, echo: int) -> None:
        """Give a server without a place that of its node number's earlier life, as a learner. But a
        knock may be old, and the earlier life be the newer one: so the server must first echo a
        challenge, since only the one that lives can answer now."""
        r = self._r
        member = r.memberships.current.member(who.node)
        if member is None:
            r.send(who, Unwelcome(f"node {who.node} is not a member of this cluster"))
            return
        if member.id == who or who == r.id:
            return
        if not echo:
            known = self._challenges.get(who.node)
            if known is None or known[0] != who:
                known = (who, r.random.getrandbits(62) + 1)
                self._challenges[who.node] = known
            r.send(who, Welcome(known[1]))
        elif self._challenges.get(who.node) == (who, echo):
            learner = ClusterMember(who.node, who.incarnation, False, member.address)
            if self._change_to(r.memberships.current.with_member(learner)):
                logger.info("%s takes the place of %s, as a learner", who, member.id)
                del self._challenges[who.node]
