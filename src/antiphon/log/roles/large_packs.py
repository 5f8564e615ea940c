"""Large packs at a replica that gets them in pieces, and at one that has them for the leader.

Promises: an entry that was sent under a name is taken with its pack, or not at all; the leader
learns which one is missing. A large proposal goes to the leader before it is named there, so that
the next proposals need not wait for it. Needs: `again` with each append, and `forget` in each new
epoch: the pieces were another leader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.formats.entry import ReplicaId
from antiphon.formats.server_messages import AppendNamed, Forward, ForwardNamed, Piece, PieceTaken
from antiphon.log.pieces import Arriving, Forwarding, name_of

if TYPE_CHECKING:
    from antiphon.log.replica import Replica


class LargePacks:
    """One replica's large packs, in and out; promises and needs are the module's."""

    def __init__(self, replica: Replica) -> None:
        self._r = replica
        self._arriving: dict[ReplicaId, Arriving] = {}
        self._forwarding: Forwarding | None = None  # to the leader
        self._again_ms = 0  # when to look whether that moves

    def forget(self) -> None:
        """Begin a new epoch: the pieces that came were another leader's."""
        self._arriving = {}
        self._forwarding = None

    # -- To the leader -------------------------------------------------------------------------

    def forward(self, leader: ReplicaId, packs: tuple[bytes, ...]) -> None:
        """Send a large proposal to the leader, its packs first."""
        settings = self._r.settings
        if self._forwarding is None or self._forwarding.leader != leader:
            self._forwarding = Forwarding(leader, settings.piece_bytes, settings.large_bytes)
        for pack in packs:
            if len(pack) > settings.large_bytes:
                self._from(leader).add(pack)  # which will want to spread it
        self._send(self._forwarding.propose(packs))

    def again(self) -> None:
        """Send pieces again that may be lost, if the leader lives and a heartbeat has passed."""
        if self._forwarding is not None and self._r.now_ms >= self._again_ms:
            self._send(self._forwarding.again())

    def _send(self, messages: Sequence[Piece | Forward | ForwardNamed]) -> None:
        assert self._forwarding is not None
        self._again_ms = self._r.now_ms + self._r.settings.heartbeat_ms
        for message in messages:
            self._r.send(self._forwarding.leader, message)
        if self._forwarding.empty:
            self._forwarding = None

    # -- From others ---------------------------------------------------------------------------

    def _from(self, sender: ReplicaId) -> Arriving:
        arriving = self._arriving.get(sender)
        if arriving is None:
            arriving = self._arriving[sender] = Arriving()
        return arriving

    def on_piece(self, sender: ReplicaId, m: Piece) -> None:
        """Keep a piece of a pack, and answer how much is here."""
        if self._r.is_member(sender):
            answer = self._from(sender).take(m)
            if answer is not None:
                self._r.send(sender, answer)

    def on_piece_taken(self, sender: ReplicaId, m: PieceTaken) -> None:
        """Send the next piece of a pack that is spread or proposed."""
        r = self._r
        if r.leading is not None:
            r.leading.piece_taken(sender, m)
        elif self._forwarding is not None and self._forwarding.leader == sender:
            self._send(self._forwarding.taken(m))

    def on_append_named(self, sender: ReplicaId, m: AppendNamed) -> None:
        """Take an append whose large packs came before it in pieces."""
        r, arriving = self._r, self._from(sender)
        entries = list(m.append.entries)
        for at in m.named:
            if not 0 <= at < len(entries):
                return
            name = entries[at].payload
            pack = arriving.named(name)
            if pack is None:
                entries = entries[:at]
                r.send(sender, PieceTaken(name, 0))
                break
            entries[at] = replace(entries[at], payload=pack)
        r.following.on_append(sender, replace(m.append, entries=tuple(entries)))
        stored = [e for e in entries if r.log.epoch_at(e.index) == e.epoch]
        arriving.forget([name_of(e.payload) for e in stored])

    def on_forward_named(self, sender: ReplicaId, m: ForwardNamed) -> None:
        """Propose the pack that a follower sent in pieces."""
        arriving = self._from(sender)
        packs = {at: arriving.named(m.packs[at]) for at in m.named if 0 <= at < len(m.packs)}
        if None not in packs.values():  # otherwise it is proposed again
            arriving.forget([m.packs[at] for at in packs])
            whole = tuple([packs.get(at) or pack for at, pack in enumerate(m.packs)])
            self._r.on_forward(sender, Forward(whole))
