"""Large packs on their way between servers, in pieces, so that small ones need not wait for them.

A large pack that is appended at once keeps whatever is ordered after it waiting until a majority
has received it, and whatever is sent after it on the same link, heartbeats too. So it travels
before that: a follower sends it to the leader in pieces, and the leader to the followers, a few at
a time, and everything else finds its way between them. Once a majority holds the whole pack, the
leader appends it, and sends its name instead of it (`AppendNamed`).

Promises: a name stands for one pack only, since it has the pack's length and its beginning, and
that one has a checksum of the rest. A pack that does not get through (to a server that knows no
pieces, or does not answer) is given up after `STALLED_BEATS`, and travels as a whole, as small ones
do. Both ends keep few packs: `KEPT_MAX` for each server. Needs: a caller of `again` with each
heartbeat, so that lost pieces are sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.formats.entry import ReplicaId
from antiphon.formats.frames import FRAME_MAX, kept
from antiphon.formats.server_messages import Forward, ForwardNamed, Piece, PieceTaken

NAME_BYTES = 32
SIZE_BYTES = 8

WINDOW = 8
"""Pieces on their way to one server: the next message to it waits behind them."""

STALLED_BEATS = 10
"""Heartbeats in which nothing moved: the pack will travel as a whole."""

KEPT_MAX = 2
"""Packs that wait to be named, of one server. It has one large pack at a time on its way."""

PROPOSALS_MAX = 4
"""With large packs, of one server, on their way to the leader. A server that proposed others
proposes them again."""


def name_of(pack: bytes) -> bytes:
    return len(pack).to_bytes(SIZE_BYTES, "little") + bytes(pack[:NAME_BYTES])


def size_of(name: bytes) -> int:
    return int.from_bytes(name[:SIZE_BYTES], "little")


class Leaving:
    """Large packs that leave for one server, one after the other, and those that it holds."""

    def __init__(self, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._coming: dict[bytes, bytes] = {}
        self._held_whole: dict[bytes, None] = {}
        self._held = 0  # of the first that comes
        self._sent = 0
        self._less = -1  # how much it claimed to hold since then, if less; -1: nothing
        self._stalled = 0  # heartbeats since the other has said anything new

    @property
    def waits(self) -> int:
        """How many the other does not hold yet."""
        return len(self._coming)

    def holds(self, name: bytes) -> bool:
        """The other has said so."""
        return name in self._held_whole

    def comes(self, name: bytes) -> bool:
        """The other does not hold it, and may soon."""
        return name in self._coming

    def nearly_holds(self, name: bytes) -> bool:
        """Half of it is there: the rest takes no longer than that did."""
        return name == next(iter(self._coming), b"") and 2 * self._held >= size_of(name)

    def add(self, packs: Iterable[bytes]) -> list[Piece]:
        """Returns the pieces that may leave at once."""
        for pack in packs:
            name = name_of(pack)
            if name not in self._held_whole and len(self._coming) < KEPT_MAX:
                self._coming[name] = pack
        return self._pieces(WINDOW)

    def taken(self, m: PieceTaken) -> list[Piece]:
        """Returns the pieces that may leave now."""
        if m.held < size_of(m.name):
            self._held_whole.pop(m.name, None)  # it has been forgotten there
        if m.name != next(iter(self._coming), b"") or m.held == self._held:
            return []
        if m.held < self._held:
            # It has forgotten, or this answer is old: if nothing comes after it, the heartbeats
            # show. To go back at once, with a window for each such answer, would beget ever more.
            self._less = m.held
            return []
        self._held, self._less = m.held, -1
        self._sent = max(self._sent, m.held)
        self._stalled = 0
        if m.held >= size_of(m.name):
            self._end_first()
            self._held_whole[m.name] = None
            if len(self._held_whole) > KEPT_MAX:
                del self._held_whole[next(iter(self._held_whole))]
        return self._pieces(WINDOW)

    def again(self) -> list[Piece]:
        """A heartbeat has passed. If nothing has moved, the piece that would come next may be lost:
        returns it."""
        if not self._coming:
            return []
        self._stalled += 1
        if self._stalled > STALLED_BEATS:
            self._end_first()
            return self._pieces(WINDOW)
        if self._stalled == 1:
            return []
        if self._less >= 0:
            self._held, self._less = self._less, -1
        self._sent = self._held
        return self._pieces(1)

    def _pieces(self, most: int) -> list[Piece]:
        out: list[Piece] = []
        for name, pack in self._coming.items():
            end = min(len(pack), self._held + most * self._piece_bytes)
            while self._sent < end:
                data = bytes(pack[self._sent : self._sent + self._piece_bytes])
                out.append(Piece(name, self._sent, data))
                self._sent += len(data)
            break
        return out

    def _end_first(self) -> None:
        del self._coming[next(iter(self._coming))]
        self._held = self._sent = self._stalled = 0
        self._less = -1


class Arriving:
    """Large packs that come from one server."""

    def __init__(self) -> None:
        self._whole: dict[bytes, bytes] = {}
        self._name = b""  # of the one that has begun
        # Its beginning. It grows as pieces come: no step clears room for all of a large pack, and a
        # server that only names one costs nothing.
        self._held = bytearray()

    def add(self, pack: bytes) -> None:
        """Note that this server has the pack: no other one need send it."""
        self._whole[name_of(pack)] = pack
        if len(self._whole) > KEPT_MAX:
            del self._whole[next(iter(self._whole))]

    def take(self, m: Piece) -> PieceTaken | None:
        """Returns the answer. None: a piece before it is lost, or it makes no sense."""
        size = size_of(m.name)
        if not 0 <= m.at < m.at + len(m.data) <= size <= FRAME_MAX:
            return None
        if m.name in self._whole:
            return PieceTaken(m.name, size)
        if m.name != self._name:
            self._name, self._held = m.name, bytearray()
        if m.at > len(self._held) > 0:
            return None
        if m.at == len(self._held):
            self._held += m.data
        held = len(self._held)
        if held == size:
            self.add(kept(memoryview(self._held).toreadonly()))
            self._name, self._held = b"", bytearray()
        return PieceTaken(m.name, held)

    def named(self, name: bytes) -> bytes | None:
        return self._whole.get(name)

    def forget(self, names: Iterable[bytes]) -> None:
        """They are in the log now, or wait there for their turn."""
        for name in names:
            self._whole.pop(name, None)


class Forwarding:
    """Proposals with large packs, on their way from here to the leader."""

    def __init__(self, leader: ReplicaId, piece_bytes: int, large_bytes: int) -> None:
        self.leader = leader
        self._large_bytes = large_bytes
        self._leaving = Leaving(piece_bytes)
        self._proposals: dict[tuple[bytes, ...], Sequence[bytes]] = {}

    @property
    def empty(self) -> bool:
        return not self._proposals

    def propose(self, packs: Sequence[bytes]) -> list[Piece | Forward | ForwardNamed]:
        """Return the messages for the leader."""
        key = tuple([name_of(pack) for pack in packs])
        if key in self._proposals or len(self._proposals) >= PROPOSALS_MAX:
            return []
        self._proposals[key] = packs
        return self._begin() if len(self._proposals) == 1 else []

    def taken(self, m: PieceTaken) -> list[Piece | Forward | ForwardNamed]:
        return [*self._leaving.taken(m), *self._ready()]

    def again(self) -> list[Piece | Forward | ForwardNamed]:
        return [*self._leaving.again(), *self._ready()]

    def _begin(self) -> list[Piece | Forward | ForwardNamed]:
        packs = next(iter(self._proposals.values()))
        pieces = self._leaving.add([p for p in packs if len(p) > self._large_bytes])
        return [*pieces, *self._ready()]

    def _ready(self) -> list[Piece | Forward | ForwardNamed]:
        """The first proposal, if the leader holds its large packs or cannot be given them."""
        if not self._proposals:
            return []
        key, packs = next(iter(self._proposals.items()))
        if any(self._leaving.comes(name) for name in key):
            return []
        del self._proposals[key]
        named = tuple([at for at, name in enumerate(key) if self._leaving.holds(name)])
        carried = tuple([key[at] if at in named else pack for at, pack in enumerate(packs)])
        first = ForwardNamed(carried, named) if named else Forward(carried)
        return [first, *(self._begin() if self._proposals else [])]
