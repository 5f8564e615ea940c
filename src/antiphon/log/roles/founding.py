"""How a cluster begins, and how a server without a past finds its place in one.

**Founding.** A cluster is founded only when *all* listed servers are fresh and agree: two restarted
servers of three must never found an empty cluster beside the one that has the data. The lowest
listed server asks every other one (`Ask`), each fresh one promises (`Promise`) to be founded by
nobody else, and when all have promised, all write the same first entry (`Found`). A nonce ties the
three together: a promise given to an earlier life of the founder is not counted by a later one, and
a server that has promised again ignores the earlier founding. A server that has not written the
first entry and restarts is a new incarnation, so a server that is still bound cannot forget its
promise.

**Returning.** A server that cannot vouch for its promises (memory mode, a wiped or a damaged disk)
is a new incarnation. It knocks at the listed servers until the leader gives it the place of its
earlier life, as a learner (`Leadership.knock`). Meanwhile it founds nothing as soon as it learns of
a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.formats.entry import ANY, ClusterMember, Membership, ReplicaId
from antiphon.formats.server_messages import Ask, Found, Knock, Promise, Welcome

if TYPE_CHECKING:
    from antiphon.log.replica import Replica


class Newcomer:
    """A replica's search for a place: it founds a cluster with the others that are listed, or asks
    a cluster that exists for a place. It ends with the place (`Election.become`)."""

    def __init__(self, replica: Replica, listed: dict[int, str], may_found: bool) -> None:
        self._r = replica
        self._listed = listed
        self._nodes = tuple(sorted(listed))
        self.may_found = may_found
        self.complaint = ""  # why a founding does not come about, for `status`
        self._nonce = replica.random.getrandbits(62) + 1
        self._promised_to_me: dict[int, ReplicaId] = {}
        self._promise: int | None = None  # the nonce of the founding that may name this server
        self._past_nonces: set[int] = set()
        self.next_deadline_ms = replica.now_ms

    def tick(self) -> None:
        """Ask the listed servers again, if it is time."""
        if self._r.now_ms < self.next_deadline_ms:
            return
        pause = self._r.settings.election_ms // 2
        self.next_deadline_ms = self._r.now_ms + pause + self._r.random.randrange(pause)
        founder = self.may_found and self._nodes[0] == self._r.id.node
        if founder:
            self._found_if_all_agree()
        for node in self._nodes:
            if self._r.newcomer is self and node != self._r.id.node:
                if founder:
                    self._send(node, Ask(self._nonce, self._nodes))
                self._send(node, Knock(self._r.id, 0))

    def receive(self, sender: ReplicaId, m: Ask | Promise | Found) -> None:
        """Take part in a founding, unless a cluster is known to exist."""
        if not self.may_found:
            return
        if isinstance(m, Ask):
            self._on_ask(sender, m)
        elif isinstance(m, Promise):
            self._on_promise(sender, m)
        elif self._names_me(m.membership) and (
            m.nonce == self._promise or sender.node != self._nodes[0]
        ):
            # A server other than the founder that passes a founding on has taken it while bound to
            # it, and will promise no other: so no other can come about, and it may be followed even
            # by a server that has promised itself to a later life of the founder.
            self._r.found(m.membership)

    def welcomed(self, sender: ReplicaId, m: Welcome) -> None:
        """Found nothing any more: there is a cluster. Answer the leader's challenge."""
        self.may_found = False
        if m.challenge:
            # By all ways: the leader may have welcomed us through a server that we listed.
            self._r.send(sender, Knock(self._r.id, m.challenge))
            for node in self._nodes:
                if node not in (self._r.id.node, sender.node):
                    self._send(node, Knock(self._r.id, m.challenge))

    def _on_ask(self, sender: ReplicaId, m: Ask) -> None:
        if m.listed != self._nodes:
            self.complaint = (
                f"node {sender.node} lists the servers {m.listed}, this one {self._nodes}"
            )
        elif m.nonce not in self._past_nonces:
            if self._promise is not None and self._promise != m.nonce:
                self._past_nonces.add(self._promise)  # a delayed ask must not win back its promise
            self._promise = m.nonce
            self._r.send(sender, Promise(m.nonce, self._nodes))

    def _on_promise(self, sender: ReplicaId, m: Promise) -> None:
        if m.nonce == self._nonce and m.listed == self._nodes:
            self._promised_to_me[sender.node] = sender
            self._found_if_all_agree()

    def _found_if_all_agree(self) -> None:
        others = self._nodes[1:]
        if all(node in self._promised_to_me for node in others):
            ids = {**self._promised_to_me, self._r.id.node: self._r.id}
            members = (
                ClusterMember(node, ids[node].incarnation, True, self._listed[node])
                for node in self._nodes
            )
            self._r.found(Membership(self._nonce, tuple(members)))

    def _names_me(self, membership: Membership) -> bool:
        member = membership.member(self._r.id.node)
        return member is not None and member.id == self._r.id

    def _send(self, node: int, message: Ask | Knock) -> None:
        self._r.send(ReplicaId(node, ANY), message)
