"""Reliable streams: each member of a view gets every frame of the others once, in order.

What a member sends to all is its *stream* of the view, numbered from 1; what it sends to one member
is a stream of those two. Everybody keeps the frames of all streams until all members hold them, so
that whoever lacks one can ask any other, even if the sender is gone.

::

    Sent, Single   a frame of the own stream, or of the one to this process
    Held           to a sender: up to where I hold what it sent
    Last           to all, or to one: up to where I have sent, if nothing else says it
    Wanted, Again  a request for missing frames, and one of them
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.fragment import came_ms_of
from antiphon.peers.layers.layer import (
    Acknowledged,
    Closing,
    Down,
    Effect,
    Frame,
    Header,
    Layer,
    To,
    Up,
)
from antiphon.peers.layers.streams import Gap, Stream, ViewStreams

HELD_MS = 50
"""Frames are acknowledged within this time."""
CHECK_MS = 100
"""If a member acknowledges nothing new for this long, the sender tells it what it should hold."""
ANSWER_MAX = 1 << 20
"""The most bytes of an answer to a request; the member asks again for the rest."""
AHEAD_FRAMES_MAX = 256
AHEAD_BYTES_MAX = 4 << 20
"""How much is kept of a view that others have installed already."""


class Sent(Header, frozen=True):
    """A frame of the sender's stream. `mark` and `stable`: up to where a layer above has committed
    that stream, and up to where all members hold it."""

    view: ViewId
    number: int
    mark: int
    stable: int


class Single(Header, frozen=True):
    """A frame for this process alone."""

    view: ViewId
    number: int


class Held(Header, frozen=True):
    """The sender of this holds its receiver's stream up to `number`, and what it was sent alone
    up to `single`. It has seen these marks."""

    view: ViewId
    number: int
    single: int
    mark: int
    stable: int


class Last(Header, frozen=True):
    """The last number of the own stream, and of the frames for this process alone, with marks."""

    view: ViewId
    number: int
    single: int
    mark: int
    stable: int


class Wanted(Header, frozen=True):
    """Please send these frames again, of this stream; None: of those for me alone."""

    view: ViewId
    stream: MemberId | None
    first: int
    last: int


class Again(Header, frozen=True):
    """A frame of any stream, for the process that wanted it."""

    view: ViewId
    stream: MemberId
    number: int


class _Peer:
    """Another member in this view: up to where it holds the own stream (`number`), and the frames
    for it alone (`out`); those from it to this process alone; and when it last made progress."""

    __slots__ = ("looked", "out", "seen", "singles")

    def __init__(self, view: ViewId) -> None:
        self.seen = Held(view, 0, 0, 0, 0)
        self.looked: Held | None = None  # `seen` at the last look at who is behind
        self.out = Stream()  # what it was sent alone, up to the last number
        self.singles = Stream()


class Reliable(Layer):
    """Each member gets each frame of each other member.

    Promise: every member that goes on to the next view gets every frame of the stream of each
    member, up to one cut, once and in the order it was sent; a frame for one member gets there
    unless the view changes first. The sender gets its own frames at once. `Streams` (layer.py) is
    kept.

    Need: nothing; frames may be lost, doubled and overtaken. A membership has to remove a member
    that acknowledges nothing any more, and the size of what is under way is bounded by `Flow`.

    Limits: frames are kept until all members hold them. A frame for one process alone that is under
    way when the view changes may be lost.
    """

    name = "reliable"
    gives = frozenset({"reliable", "fifo", "in view"})
    headers = (Sent, Single, Held, Last, Wanted, Again)

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._came_ms = came_ms_of(below)
        self._primary: ViewStreams | None = None
        self._ahead: deque[tuple[MemberId, Frame]] = deque()
        self._takers: dict[type[Header], Callable[..., Sequence[Effect]]] = {
            Sent: self._take_sent,
            Single: self._take_single,
            Held: self._take_held,
            Last: self._take_last,
            Wanted: self._take_wanted,
            Again: self._take_again,
        }
        self._begin(view)

    def _begin(self, view: PeerView) -> None:
        """Start the numbers again."""
        self._now = ViewStreams(view)
        if view.primary:
            self._primary = self._now
        self._own = self._now.streams[self.me]
        self._others = tuple(member for member in view.members if member != self.me)
        self._peers = {member: _Peer(view.id) for member in self._others}
        self._acked = dict.fromkeys(view.members, 0)
        self._marks = dict.fromkeys(view.members, 0)
        self._stables = dict.fromkeys(view.members, 0)
        self._gaps: dict[tuple[MemberId, bool], Gap] = {}  # of a stream; True: of single frames
        self._frozen = False
        self._owed: set[MemberId] = set()  # who is to get `Held`
        self._announce = False  # all are to get `Last`
        self._hurried: set[MemberId] = set()  # the same, at the end of this batch
        self._batch_ms: int | None = None
        self._held_ms: int | None = None
        self._check_ms: int | None = None

    # -- For layers above ------------------------------------------------------------------------

    @property
    def acknowledged_by(self) -> Mapping[MemberId, int]:
        """Up to where each member holds the own stream."""
        return self._acked

    def stable(self, stream: MemberId) -> int:
        """Return up to where all members hold a stream, as far as this process knows."""
        return self._stables[stream]

    def mark(self, stream: MemberId) -> int:
        """Return up to where the sender of a stream has committed it, as it says."""
        return self._marks[stream]

    def commits(self, stream: MemberId, number: int, now_ms: int) -> None:
        """A layer above hands a stream of this view out only up to this number. For the own stream
        this is the mark that the others get."""
        self._now.committed[stream] = number
        if stream == self.me and number > self._marks[stream]:
            self._marks[stream] = number
            self._announce = True
            self._by(now_ms)

    def hurry(self, stream: MemberId, now_ms: int) -> None:
        """Have what is to be said about a stream said at the end of this batch, not some time
        later: that it is held, or its marks if it is the own one."""
        if not self._frozen:
            self._hurried.add(stream)
            self._batch_ms = now_ms

    # -- Sending ---------------------------------------------------------------------------------

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control:
            return (Down(frame, to),)
        if to is None:
            return self._multicast(frame, now_ms)
        effects: list[Effect] = []
        for target in to:
            if target == self.me:
                effects.append(Up(frame, self.me))
            elif (peer := self._peers.get(target)) is not None:
                peer.out.append(frame)
                effects.append(Down(frame.push(Single(self.view.id, peer.out.held)), (target,)))
        self._check_by(now_ms)
        return effects

    def _multicast(self, frame: Frame, now_ms: int) -> Sequence[Effect]:
        own, me = self._own, self.me
        number = own.held + 1
        kept = Frame(frame.body, frame.headers, frame.level, False, number)
        self._acked[me] = number
        if not self._others:
            own.held = self._stables[me] = number
            return (Up(kept, me),)
        own.append(kept)
        self._announce = False
        self._hurried.discard(me)
        header = Sent(self.view.id, number, self._marks[me], self._stables[me])
        self._check_by(now_ms)
        return (Down(kept.push(header), self._others), Up(kept, me))

    # -- Receiving -------------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.headers[-1] if frame.headers else None
        taker = self._takers.get(type(header))  # type: ignore[arg-type]
        if taker is None:
            return (Up(frame, sender),)
        view = header.view  # type: ignore[union-attr]
        if view != self.view.id:
            if view > self.view.id:
                self._keep_ahead(frame, sender)
            return ()
        if self._frozen or sender not in self._peers:
            return ()
        return taker(frame, header, sender, now_ms)

    def _keep_ahead(self, frame: Frame, sender: MemberId) -> None:
        """Keep a frame of a view that is still to come; if there are too many, the sender will be
        asked for it again."""
        size = sum(len(kept.body) for kept, _ in self._ahead_frames())
        if len(self._ahead) < AHEAD_FRAMES_MAX and size + len(frame.body) <= AHEAD_BYTES_MAX:
            self._ahead.append((sender, frame))

    def _ahead_frames(self) -> Iterable[tuple[Frame, MemberId]]:
        return ((frame, sender) for sender, frame in self._ahead)

    def _take_sent(
        self, frame: Frame, header: Sent, sender: MemberId, now_ms: int
    ) -> Sequence[Effect]:
        effects = self._fresh(frame, header.number, sender, now_ms)
        if header.mark > self._marks[sender] or header.stable > self._stables[sender]:
            effects.append(self._marked(sender, header.mark, header.stable))
        self._owe(sender, now_ms)
        return effects

    def _take_again(
        self, frame: Frame, header: Again, sender: MemberId, now_ms: int
    ) -> Sequence[Effect]:
        if header.stream not in self._peers:
            return ()
        self._owe(header.stream, now_ms)
        return self._fresh(frame, header.number, header.stream, now_ms)

    def _fresh(self, frame: Frame, number: int, origin: MemberId, now_ms: int) -> list[Effect]:
        """Return what can be handed up now."""
        stream = self._now.streams[origin]
        kept = Frame(frame.body, frame.headers[:-1], frame.level, False, number)
        fresh = stream.take(number, kept)
        if len(fresh) != 1:
            self._look_for_gap((origin, False), stream, now_ms)
        return [Up(one, origin) for one in fresh]

    def _take_single(
        self, frame: Frame, header: Single, sender: MemberId, now_ms: int
    ) -> Sequence[Effect]:
        stream = self._peers[sender].singles
        kept = Frame(frame.body, frame.headers[:-1], frame.level, False, -header.number)
        fresh = stream.take(header.number, kept)
        stream.purge(stream.held)
        if not fresh:
            self._look_for_gap((sender, True), stream, now_ms)
        self._owe(sender, now_ms)
        return [Up(one, sender) for one in fresh]

    def _take_last(
        self, frame: Frame, header: Last, sender: MemberId, now_ms: int
    ) -> Sequence[Effect]:
        stream, singles = self._now.streams[sender], self._peers[sender].singles
        stream.known = max(stream.known, header.number)
        singles.known = max(singles.known, header.single)
        self._look_for_gap((sender, False), stream, now_ms)
        self._look_for_gap((sender, True), singles, now_ms)
        self._owe(sender, now_ms)
        if header.mark > self._marks[sender] or header.stable > self._stables[sender]:
            return (self._marked(sender, header.mark, header.stable),)
        return ()

    def _marked(self, stream: MemberId, mark: int, stable: int) -> Effect:
        self._marks[stream] = max(mark, self._marks[stream])
        self._stables[stream] = max(stable, self._stables[stream])
        self._now.streams[stream].purge(self._stables[stream])
        return Acknowledged(stream)

    def _take_held(
        self, frame: Frame, header: Held, sender: MemberId, now_ms: int
    ) -> Sequence[Effect]:
        peer = self._peers[sender]
        before = peer.seen
        peer.seen = Held(
            header.view,
            max(before.number, header.number),
            max(before.single, header.single),
            max(before.mark, header.mark),
            max(before.stable, header.stable),
        )
        peer.out.purge(peer.seen.single)
        if header.number <= before.number:
            return ()
        self._acked[sender] = header.number
        if before.number == self._stables[self.me]:
            stable = min(self._acked.values())
            if stable > before.number:
                self._stables[self.me] = stable
                self._own.purge(stable)
                self._announce = True
                self._by(now_ms)
        return (Acknowledged(self.me),)

    # -- What is missing -------------------------------------------------------------------------

    def _look_for_gap(self, key: tuple[MemberId, bool], stream: Stream, now_ms: int) -> None:
        if key not in self._gaps and stream.missing() is not None:
            origin, single = key
            others = () if single else (other for other in self._others if other != origin)
            self._gaps[key] = Gap(stream, (origin, *others), self._came_ms)
            self._batch_ms = now_ms

    def _ask(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for (origin, single), gap in list(self._gaps.items()):
            ask = gap.ask(now_ms)
            if ask is not None:
                stream = None if single else origin
                wanted = Wanted(self.view.id, stream, ask.first, ask.last)
                effects.append(_control(wanted, (ask.holder,)))
            elif gap.is_filled:
                del self._gaps[origin, single]
        return effects

    def _take_wanted(
        self, frame: Frame, header: Wanted, sender: MemberId, now_ms: int
    ) -> Sequence[Effect]:
        view = self.view.id
        if header.stream is None:
            frames = self._peers[sender].out.read(header.first, header.last)
        elif (stream := self._now.streams.get(header.stream)) is not None:
            frames = stream.read(header.first, header.last)
        else:
            return ()
        effects: list[Effect] = []
        size = 0
        for number, kept in frames:
            size += len(kept.body)
            if effects and size > ANSWER_MAX:
                break
            again: Header = Single(view, number)
            if header.stream is not None:
                again = Again(view, header.stream, number)
            effects.append(Down(kept.push(again), (sender,)))
        return effects

    # -- Acknowledging ---------------------------------------------------------------------------

    def _owe(self, origin: MemberId, now_ms: int) -> None:
        self._owed.add(origin)
        if self._held_ms is None:
            self._held_ms = now_ms + HELD_MS

    def _by(self, now_ms: int) -> None:
        if self._held_ms is None:
            self._held_ms = now_ms + HELD_MS

    def _check_by(self, now_ms: int) -> None:
        if self._check_ms is None:
            self._check_ms = now_ms + CHECK_MS

    def next_deadline_ms(self) -> int | None:
        if self._frozen:
            return None
        if self._batch_ms is not None:
            return self._batch_ms
        due_ms = self._held_ms
        if self._check_ms is not None and (due_ms is None or self._check_ms < due_ms):
            due_ms = self._check_ms
        for gap in self._gaps.values():
            due_ms = gap.due_ms if due_ms is None else min(due_ms, gap.due_ms)
        return due_ms

    def tick(self, now_ms: int) -> Sequence[Effect]:
        effects = self._ask(now_ms)
        self._batch_ms = None
        whom: Iterable[MemberId] = [one for one in self._hurried if one in self._owed]
        announce = self._announce and self.me in self._hurried
        self._hurried.clear()
        if self._held_ms is not None and self._held_ms <= now_ms:
            self._held_ms = None
            whom, announce = self._owed, self._announce
        effects += [self._held(member) for member in sorted(whom)]
        self._owed.difference_update(list(whom))
        if announce and self._others:
            self._announce = False
            self._check_by(now_ms)
            effects.append(_control(self._last(None), self._others))
        if self._check_ms is not None and self._check_ms <= now_ms:
            effects += self._check(now_ms)
        return effects

    def _held(self, origin: MemberId) -> Effect:
        held = Held(
            self.view.id,
            self._now.streams[origin].held,
            self._peers[origin].singles.held,
            self._marks[origin],
            self._stables[origin],
        )
        return _control(held, (origin,))

    def _last(self, peer: _Peer | None) -> Last:
        single = peer.out.held if peer else 0
        me = self.me
        return Last(self.view.id, self._own.held, single, self._marks[me], self._stables[me])

    def _check(self, now_ms: int) -> list[Effect]:
        """Tell whoever is behind, and has made no progress since the last look."""
        self._check_ms = None
        effects: list[Effect] = []
        for member, peer in self._peers.items():
            last = self._last(peer)
            if peer.seen == Held(*_fields(last)):
                peer.looked = None
                continue
            if peer.looked == peer.seen:
                effects.append(_control(last, (member,)))
            peer.looked = peer.seen
            self._check_by(now_ms)
        return effects

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        """Ask, and say what was sent, at once: frames on the connection before are lost."""
        peer = self._peers.get(process)
        if peer is not None and not self._frozen:
            peer.looked = peer.seen
            self._check_ms = now_ms
            for gap in self._gaps.values():
                gap.hurry()
        return ()

    # -- Views -----------------------------------------------------------------------------------

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        for stream in self._now.streams.values():
            stream.drop_early()
        self._handed = self._now.held()
        return ()

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        if not self._frozen:
            self.freeze(now_ms)
        effects: list[Effect] = []
        for member, stream in self._now.streams.items():
            last = min(closing.cut.get(member, 0), stream.held)
            for _, frame in stream.read(self._handed[member] + 1, last):
                effects.append(Up(frame, member))
            if member in self._now.committed:
                self._now.committed[member] = max(self._now.committed[member], last)
        return effects

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view)
        effects: list[Effect] = []
        ahead, self._ahead = self._ahead, deque()
        for sender, frame in ahead:
            effects += self.up(frame, sender, now_ms)
        return effects

    def held(self, view: ViewId) -> Mapping[MemberId, int]:
        streams = self._of(view)
        return streams.held() if streams else {}

    def committed(self, view: ViewId) -> Mapping[MemberId, int]:
        streams = self._of(view)
        return streams.all_committed() if streams else {}

    def read(self, view: ViewId, stream: MemberId, first: int, last: int) -> Sequence[bytes]:
        streams = self._of(view)
        if streams is None or stream not in streams.streams:
            return []
        frames = streams.streams[stream].read(first, last)
        return [self.codec.encode(frame) for _, frame in frames]

    def add(self, view: ViewId, stream: MemberId, first: int, frames: Sequence[bytes]) -> None:
        streams = self._of(view)
        if streams is None or stream not in streams.streams:
            return
        held = streams.streams[stream]
        for number, data in enumerate(frames, first):
            if number == held.held + 1:
                held.append(replace(self.codec.decode(data), number=number))

    def _of(self, view: ViewId) -> ViewStreams | None:
        for streams in (self._now, self._primary):
            if streams is not None and streams.view.id == view:
                return streams
        return None

    # -- For people ------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """`kept`: frames in memory; `behind`: members that lack frames of this process, and how
        many; `missing`: streams of which this process lacks frames."""
        behind = {
            str(member): self._own.held - peer.seen.number
            for member, peer in self._peers.items()
            if peer.seen.number < self._own.held
        }
        return {
            "kept": sum(len(stream) for stream in self._now.streams.values()),
            "behind": behind,
            "missing": sorted({str(origin) for origin, _ in self._gaps}),
        }


def _control(header: Header, to: To) -> Down:
    return Down(Frame(b"", (header,), control=True), to)


def _fields(last: Last) -> tuple[ViewId, int, int, int, int]:
    return last.view, last.number, last.single, last.mark, last.stable
