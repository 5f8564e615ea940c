"""Large proposals at the leader: one at a time, and ordered when a majority holds their packs.

Promises: a small proposal does not wait until a large pack has travelled, and of large ones only
the one whose turn it is stands in the log without a majority. A proposal that is made again while
it waits is ordered once. A follower gets the pack of an entry once: in pieces before it
(`log/pieces.py`), or with it, if the pieces do not get through. What a follower holds is not read
back from the journal for it. Needs: `again` with each heartbeat, `committed` with each commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.formats.entry import Entry, ReplicaId
from antiphon.formats.server_messages import Append, AppendNamed, Piece, PieceTaken
from antiphon.log.pieces import Leaving, name_of
from antiphon.log.quorum import majority
from antiphon.log.roles.progress import Flow

if TYPE_CHECKING:
    from antiphon.log.replica import Replica
    from antiphon.log.roles.leader import Leadership

Key = tuple[bytes, ...]
"""The names of a proposal's packs: by which it is distinguished."""


class Spreading:
    """Belongs to a `Leadership`, which knows the followers, and appends the packs that are
    spread."""

    def __init__(self, leadership: Leadership, replica: Replica) -> None:
        self._leadership = leadership
        self._r = replica
        self.last = 0  # entry of the large proposal that is not committed; 0: none is
        self.spread_to = 0  # no entry above it has a pack that was spread
        self._key: Key = ()  # of that proposal, or of the next one, which is being spread
        self._waiting: dict[Key, tuple[bytes, ...]] = {}  # not appended
        self._leaving: dict[ReplicaId, Leaving] = {}
        # Entries whose pack comes to a follower, or is held there, with its name in its place.
        self._named: dict[int, Entry] = {}

    # -- Ordering ------------------------------------------------------------------------------

    def propose(self, packs: tuple[bytes, ...]) -> bool:
        """Return False if too many wait already: each server proposes one at a time."""
        key = tuple([name_of(pack) for pack in packs])
        if key == self._key or key in self._waiting:
            return True  # proposed again
        if len(self._waiting) > len(self._leadership.replication.progress) + 1:
            return False
        self._waiting[key] = packs
        self.order()
        return True

    def order(self) -> None:
        """Spread the next large proposal, and append it once a majority has its packs."""
        if self.last or self._leadership.hands_over or not self._waiting:
            return
        if not self._key:
            self._key = next(iter(self._waiting))
            self._spread()
        if self._is_spread():
            packs = self._waiting.pop(self._key)
            self.last = self.spread_to = self._r.log.last + len(packs)
            self._leadership.append_packs(packs)

    def note(self, entries: tuple[Entry, ...]) -> None:
        """Take note of the entries of the proposal, and forget earlier ones that no follower is
        about to get by name."""
        named = {i: e for i, e in self._named.items() if self._may_get(e.payload)}
        for entry in filter(self._is_large, entries):
            named[entry.index] = replace(entry, payload=name_of(entry.payload))
        self._named = named

    def _may_get(self, name: bytes) -> bool:
        return any(one.comes(name) or one.holds(name) for one in self._leaving.values())

    def committed(self, index: int) -> None:
        if 0 < self.last <= index:
            self.last, self._key = 0, ()
            self.order()

    def _spread(self) -> None:
        """Only to those who count; others get it with the entries."""
        r = self._r
        large = [p for p in self._waiting[self._key] if len(p) > r.settings.large_bytes]
        for voter in r.memberships.current.voters:
            p = self._leadership.replication.progress.get(voter)
            if p is not None and p.flow is Flow.REPLICATE:
                if voter not in self._leaving:
                    self._leaving[voter] = Leaving(r.settings.piece_bytes)
                self._send(voter, self._leaving[voter].add(large))

    def _is_spread(self) -> bool:
        """Return whether a majority holds the next pack, and every server that has half of it has
        all of it: the rest takes not long. Or whether there is no server to wait for."""
        r = self._r
        names = [
            name
            for name, pack in zip(self._key, self._waiting[self._key], strict=True)
            if len(pack) > r.settings.large_bytes
        ]
        voters = r.memberships.current.voters
        leaving = [self._leaving[v] for v in voters if v in self._leaving]
        holders = sum([all(map(one.holds, names)) for one in leaving]) + (r.id in voters)
        if holders >= majority(voters):
            return not any(one.nearly_holds(name) for one in leaving for name in names)
        return not any(one.comes(name) for one in leaving for name in names)

    # -- Pieces --------------------------------------------------------------------------------

    def taken(self, sender: ReplicaId, m: PieceTaken) -> None:
        leaving = self._leaving.get(sender)
        if leaving is not None:
            came = leaving.comes(m.name)
            self._send(sender, leaving.taken(m))
            if came and not leaving.comes(m.name):
                self._no_longer_comes(sender)

    def again(self) -> None:
        """Note that a heartbeat has passed: send pieces again that may be lost, give up a pack that
        does not move."""
        for id, leaving in list(self._leaving.items()):
            waited = leaving.waits
            self._send(id, leaving.again())
            if leaving.waits != waited:
                self._no_longer_comes(id)

    def forget(self, gone: ReplicaId) -> None:
        self._leaving.pop(gone, None)

    def _send(self, to: ReplicaId, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._r.send(to, piece)

    def _no_longer_comes(self, id: ReplicaId) -> None:
        """This server holds a pack now, or will get it with the entry."""
        self.order()
        if self._r.leading is self._leadership:
            self._leadership.replication.replicate_to(id)

    # -- Entries -------------------------------------------------------------------------------

    def comes(self, to: ReplicaId, index: int) -> bool:
        """Return whether the pack of this entry is still on its way to this server: the entry need
        not be read, for it cannot leave."""
        leaving, named = self._leaving.get(to), self._named.get(index)
        return leaving is not None and named is not None and leaving.comes(named.payload)

    def named(self, to: ReplicaId, index: int) -> Entry | None:
        """Return this entry with its pack's name in place of the pack, if this server holds that:
        the entry need not be read."""
        leaving, named = self._leaving.get(to), self._named.get(index)
        return named if leaving and named and leaving.holds(named.payload) else None

    def that_may_leave(self, to: ReplicaId, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Return those before the first whose pack is still on its way to this server."""
        leaving = self._leaving.get(to)
        if leaving is None or not leaving.waits:
            return entries
        for at, entry in enumerate(entries):
            if self._is_large(entry) and leaving.comes(name_of(entry.payload)):
                return entries[:at]
        return entries

    def by_name(self, to: ReplicaId, append: Append) -> Append | AppendNamed:
        """Return the append without the packs that this server holds."""
        leaving = self._leaving.get(to)
        if leaving is None:
            return append
        entries, named = list(append.entries), []
        for at, entry in enumerate(append.entries):
            if self._is_large(entry) and leaving.holds(name := name_of(entry.payload)):
                entries[at] = replace(entry, payload=name)
                named.append(at)
        if not named:
            return append
        return AppendNamed(replace(append, entries=tuple(entries)), tuple(named))

    def _is_large(self, entry: Entry) -> bool:
        return len(entry.payload) > self._r.settings.large_bytes
