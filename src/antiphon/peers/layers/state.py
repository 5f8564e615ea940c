"""State transfer: a member takes over the state of another one as it was when a view began.

::

    Pull     to the provider: I have so much of it, go on
    Part     from the provider: the next bytes
    Unable   from the provider: the rest will not come
    Enough   to the provider: I have all of it, or want it no more
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Change, Down, Effect, Frame, Header, Layer, Tell, Up

PART_BYTES = 64 * 1024
WINDOW_BYTES = 4 * PART_BYTES
"""So much of a state is under way to a member at most: other frames wait behind no more than
that."""
REPEAT_MS = 500
"""A member that gets nothing for this long asks again."""
PATIENCE_MS = 30_000
"""A provider that hands out nothing for this long is passed over."""


class Pull(Header, frozen=True):
    """The sender has `held` bytes of the state as of this view. `again`: what was sent behind them
    seems to be lost."""

    place: ViewId
    held: int
    again: bool = False


class Part(Header, frozen=True):
    """The body is the state from `start` on; `last`: nothing comes behind it."""

    place: ViewId
    start: int
    last: bool


class Unable(Header, frozen=True):
    """The sender cannot hand out the state as of this view."""

    place: ViewId


class Enough(Header, frozen=True):
    """The sender wants no more of the state as of this view."""

    place: ViewId


# -- For the program -------------------------------------------------------------------------------


class Source(Protocol):
    """A state that does not change any more."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class HandOut(NamedTuple):
    """Told where a view begins: hand out the state as it is here (`State.provide`)."""

    place: ViewId


class Begins(NamedTuple):
    """Told where a view begins: the state as it was here comes from this member. Frames behind this
    belong behind the state; those before it are in the state. An earlier place is void, and the
    parts that came of it."""

    place: ViewId
    provider: MemberId


class Arrived(NamedTuple):
    """The next part of the state."""

    data: bytes | memoryview


class Outcome(Enum):
    """How the attempt to take over a state has ended."""

    WHOLE = "whole"  # all of it has arrived
    NONE = "none"  # no member has one: there is nothing to take over
    LOST = "lost"  # whoever had it is gone, or could not hand it out


class Ended(NamedTuple):
    """The last word on a state that was asked for."""

    outcome: Outcome


# -- The layer -------------------------------------------------------------------------------------


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A process's report to a change. `provider`, `place`: of the state that it takes
    over just now; `begun`: it began to take one over, of whomever; `unable`: who could not hand it
    out; `last`, `stayed`: the last primary view that it was in, and whether it comes from there
    straight; `lacks`: it has neither founded the group nor taken a state over since it came into
    the primary views."""

    process: MemberId
    provides: bool
    last: ViewId | None
    stayed: bool
    wants: bool = False
    begun: bool = False
    provider: MemberId | None = None
    place: ViewId | None = None
    unable: tuple[MemberId, ...] = ()
    lacks: bool = False

    @property
    def standing(self) -> tuple[ViewId, bool, bool]:
        """How far it has followed the primary views: who has followed them most has their state,
        unless it lacks it."""
        return self.last or _NEVER, self.stayed, not self.lacks


_NEVER = ViewId(-1, MemberId("", 0))


class _Taking:
    """The state that this process takes over."""

    def __init__(self) -> None:
        self.provider: MemberId | None = None
        self.place: ViewId | None = None
        self.begun = False
        self.unable: set[MemberId] = set()
        self.held = 0
        self.pulled = 0  # as of the last `Pull`
        self.repeat_ms = 0
        self.patience_ms = 0


class _Offer:
    """The state of this process as of one view, and how much of it was sent to whom."""

    def __init__(self, requesters: Sequence[MemberId]) -> None:
        self.source: Source | None = None  # None: the program has not come to this place
        self.sent = dict.fromkeys(requesters, 0)
        self.may_send = dict.fromkeys(requesters, -1)  # up to this byte; -1: not pulled yet
        self.done: set[MemberId] = set()  # they were sent the last part

    def close(self) -> None:
        if self.source is not None:
            self.source.close()


class State(Layer):
    """Hands the state of one member over to another one, as it was when a view began.

    Promise: a process that asks (`ask`) gets the state as its provider's program had it exactly
    where a view began: with all that was handed out before that view, and nothing behind. That is
    the same place in the history of both, at every level of order. The provider is the oldest
    member that has a state to hand out (`provides`), does not want one itself, and has followed the
    primary views as far as anybody in the view has. If it is gone, or is not able to, the next one
    provides, as of a later view; nothing is left of what came before. A state travels in parts,
    beside other frames, of which few are under way: it needs little memory, and blocks nobody. If
    all who have a state to hand out ask for one, the oldest of them gets none, and the others get
    its state.

    `counts`: only members that have the state count for a quorum, so that it lives as long as a
    majority of those does that have it. Otherwise members that have just come may outvote the one
    that has it, and go on without.

    Need: views. Limits: a process that asks has the view changed, unless it changes anyway. What is
    handed up behind the place while the state is on its way is not held back here: the channel does
    that, where it counts as not taken by the program. In a view that is not primary, and in which
    nobody has a state, a process that asks waits for the next view.
    """

    name = "state"
    gives = frozenset({"state"})
    needs = frozenset({"views"})
    headers = (Pull, Part, Unable, Enough)

    def __init__(self, counts: bool = False) -> None:
        self._counts = counts

    def options(self) -> Mapping[str, Any]:
        return {"counts": True} if self._counts else {}

    @property
    def learns(self) -> bool | None:  # type: ignore[override]
        """Whether this process lacks the state, if only those count that have it."""
        return self._lacks if self._counts else None

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self.provides = False
        """The program of this process has a state to hand out; set by the driver."""
        self._last: ViewId | None = None  # primary view
        self._lacks = True
        self._taking: _Taking | None = None
        self._offers: dict[ViewId, _Offer] = {}

    # -- For the driver --------------------------------------------------------------------------

    def ask(self, now_ms: int) -> Sequence[Effect]:
        """Take over the state of another member, as of a view that is still to come."""
        if self.view.primary and self.view.members == (self.me,):
            return (self._end(Outcome.NONE),)
        self._taking = _Taking()
        return (Change(),)

    def give_up(self, now_ms: int) -> Sequence[Effect]:
        """Take nothing over any more."""
        taking, self._taking = self._taking, None
        return _enough(taking.provider, taking.place) if taking else ()

    def _end(self, outcome: Outcome) -> Effect:
        """Tell the program how the attempt has ended."""
        self._taking, self._lacks = None, outcome is Outcome.LOST
        return Tell(Ended(outcome))

    def _have(self) -> Sequence[Effect]:
        """The state is here. If only now this process counts, the others learn that in a view."""
        return (self._end(Outcome.WHOLE), *((Change(),) if self._counts else ()))

    def provide(self, place: ViewId, source: Source | None, now_ms: int) -> Sequence[Effect]:
        """Hand out this state, which was asked for by `HandOut`; None: the program has failed. The
        source is closed when nobody wants more of it."""
        offer = self._offers.get(place)
        if offer is None:
            if source is not None:
                source.close()
            return ()
        if source is None:
            del self._offers[place]
            return [_control(Unable(place), requester) for requester in offer.sent]
        offer.source = source
        return [effect for each in offer.sent for effect in self._send(place, offer, each)]

    # -- The provider ----------------------------------------------------------------------------

    def _send(self, place: ViewId, offer: _Offer, requester: MemberId) -> list[Effect]:
        """Send what the requester has room for."""
        effects: list[Effect] = []
        source = offer.source
        if source is None or offer.may_send[requester] < 0:
            return effects
        end = min(source.size, offer.may_send[requester])
        while requester not in offer.done:
            start = offer.sent[requester]
            size = min(PART_BYTES, end - start)
            last = start + size == source.size
            if size <= 0 and not last:
                break
            data = source.read(start, size)
            effects.append(_control(Part(place, start, last), requester, data))
            offer.sent[requester] = start + size
            if last:
                offer.done.add(requester)
        return effects

    def _pulled(self, pull: Pull, sender: MemberId) -> Sequence[Effect]:
        offer = self._offers.get(pull.place)
        if offer is None or sender not in offer.sent:
            # A view that this process has still to install may make it the provider.
            return () if pull.place > self.view.id else (_control(Unable(pull.place), sender),)
        if pull.again:
            offer.sent[sender] = pull.held
            offer.done.discard(sender)
        offer.may_send[sender] = pull.held + WINDOW_BYTES
        return self._send(pull.place, offer, sender)

    def _leave_out(self, place: ViewId, requester: MemberId) -> None:
        """Send no more of an offer to this process."""
        offer = self._offers.get(place)
        if offer is None:
            return
        offer.sent.pop(requester, None)
        if not offer.sent:
            offer.close()
            del self._offers[place]

    # -- Who asks --------------------------------------------------------------------------------

    def _pull(self, now_ms: int, again: bool = False) -> Sequence[Effect]:
        taking = self._taking
        assert taking
        assert taking.provider
        assert taking.place
        taking.repeat_ms = now_ms + REPEAT_MS
        taking.pulled = taking.held
        return (_control(Pull(taking.place, taking.held, again), taking.provider),)

    def _arrives(self, part: Part, data: bytes | memoryview, now_ms: int) -> Sequence[Effect]:
        taking = self._taking
        if taking is None or part.place != taking.place or part.start != taking.held:
            return ()
        taking.held += len(data)
        taking.patience_ms = now_ms + PATIENCE_MS
        arrived = Tell(Arrived(data))
        if part.last:
            return (arrived, *self._have(), *_enough(taking.provider, taking.place))
        if taking.held - taking.pulled >= WINDOW_BYTES // 2:
            return (arrived, *self._pull(now_ms))
        return (arrived,)

    def _pass_over(self) -> Sequence[Effect]:
        """Want another provider, as of a later view."""
        taking = self._taking
        assert taking
        assert taking.provider
        effects = _enough(taking.provider, taking.place)
        taking.unable.add(taking.provider)
        taking.provider = taking.place = None
        return (*effects, Change())

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.headers[-1] if frame.headers else None
        if not isinstance(header, Pull | Part | Unable | Enough):
            return (Up(frame, sender),)
        if isinstance(header, Pull):
            return self._pulled(header, sender)
        if isinstance(header, Part):
            return self._arrives(header, frame.body, now_ms)
        if isinstance(header, Enough):
            self._leave_out(header.place, sender)
        elif self._taking and (self._taking.provider, self._taking.place) == (sender, header.place):
            return self._pass_over()
        return ()

    def tick(self, now_ms: int) -> Sequence[Effect]:
        taking = self._taking
        if taking is None or taking.provider is None:
            return ()
        if now_ms >= taking.patience_ms:
            return self._pass_over()
        return self._pull(now_ms, again=True) if now_ms >= taking.repeat_ms else ()

    def next_deadline_ms(self) -> int | None:
        taking = self._taking
        return taking.repeat_ms if taking and taking.provider else None

    # -- Views -----------------------------------------------------------------------------------

    def summary(self) -> Any:
        """Return what this process has, wants, and is in the midst of taking over."""
        row = _Row(self.me, self.provides, self._last, self.view.primary, lacks=self._lacks)
        taking = self._taking
        if taking is not None:
            row = _Row(
                self.me,
                self.provides,
                self._last,
                self.view.primary,
                True,
                taking.begun,
                taking.provider,
                taking.place,
                tuple(sorted(taking.unable)),
                self._lacks,
            )
        return msgspec.to_builtins(row)

    def merge(self, summaries: Mapping[MemberId, Any]) -> Any:
        return [summaries[process] for process in sorted(summaries)]

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        before = self.view.id
        super().install(view, summary, now_ms)
        rows = {row.process: row for row in msgspec.convert(summary or [], list[_Row])}
        if view.primary:
            is_founded = all(row.last is None for row in rows.values())
            # Views that are hidden are not installed: who was in one has an older last one.
            newest = max((row.last for row in rows.values() if row.last), default=None)
            is_straight = self._last == before == newest
            self._lacks = not is_founded and (self._lacks or not is_straight)
            self._last = view.id
        for place, offer in list(self._offers.items()):
            for requester in list(offer.sent):
                row = rows.get(requester)
                if not (row and row.place == place and self._continues(row)):
                    self._leave_out(place, requester)
        return (*self._offer(rows), *self._go_on(rows, now_ms))

    def _offer(self, rows: Mapping[MemberId, _Row]) -> Sequence[Effect]:
        """Have the program hand out its state as of this view to those who begin with it now."""
        requesters = [
            process
            for process in self.view.members
            if process in rows
            and not self._continues(rows[process])
            and self._provider_for(process, rows) == self.me
        ]
        if not requesters:
            return ()
        self._lacks = False  # nobody has a better one
        self._offers[self.view.id] = _Offer(requesters)
        return (Tell(HandOut(self.view.id)),)

    def _go_on(self, rows: Mapping[MemberId, _Row], now_ms: int) -> Sequence[Effect]:
        """Take over the state as of this view, or go on with the one as of an earlier view."""
        taking, row = self._taking, rows.get(self.me)
        provider = self._provider_for(self.me, rows)
        if taking is None:
            return _enough(provider, self.view.id)
        if row is None or not row.wants or row.place != taking.place:
            return (Change(),)  # this view was decided before
        if provider is None:
            return self._without_provider(taking, rows)
        if self._continues(row):
            return ()
        taking.unable.intersection_update(self.view.members)
        taking.provider, taking.place, taking.begun = provider, self.view.id, True
        taking.held = 0
        taking.patience_ms = now_ms + PATIENCE_MS
        return (Tell(Begins(self.view.id, provider)), *self._pull(now_ms))

    def _without_provider(self, taking: _Taking, rows: Mapping[MemberId, _Row]) -> Sequence[Effect]:
        taking.provider = taking.place = None
        if not self.view.primary and not taking.unable:
            return ()  # somebody may come who has it
        oldest = self._oldest_able(rows, True, taking.unable)
        is_gone = oldest is None or rows[oldest].lacks
        if is_gone and any(row.begun for row in rows.values()):
            return (self._end(Outcome.LOST),)
        if oldest in (None, self.me):
            return (self._end(Outcome.NONE),)
        return (Change(),)  # it has its own state as soon as it knows that nobody has another

    def _provider_for(self, process: MemberId, rows: Mapping[MemberId, _Row]) -> MemberId | None:
        """Return who hands the state out to a process in this view; all members agree on it."""
        row = rows.get(process)
        if row is None or not row.wants:
            return None
        if self._continues(row):
            return row.provider
        return self._oldest_able(rows, False, row.unable)

    def _continues(self, row: _Row) -> bool:
        """Whether a process goes on taking over the state that it had begun with. One that comes
        into a primary view by way of another one needs a newer state."""
        members = self.view.members
        is_straight = row.stayed or not self.view.primary
        return row.process in members and row.provider in members and is_straight

    def _oldest_able(
        self, rows: Mapping[MemberId, _Row], wants: bool, unable: Collection[MemberId]
    ) -> MemberId | None:
        """Return the oldest member that may hand out a state, of those that want one themselves or
        of the others."""
        there = [rows[member] for member in self.view.members if member in rows]
        providing = [row for row in there if row.provides]
        highest = max((row.standing for row in providing), default=None)
        able = (
            row.process
            for row in providing
            if row.standing == highest and row.wants == wants and row.process not in unable
        )
        return next(able, None)

    # -- For people ------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """`from`: who hands its state out to this process, if it takes one over; `bytes`: how much
        is here; `to`: to whom this process hands out its own."""
        taking = self._taking
        to = sorted({requester.name for offer in self._offers.values() for requester in offer.sent})
        if taking is None:
            return {"to": to}
        return {
            "from": str(taking.provider or "nobody"),
            "bytes": taking.held,
            "to": to,
        }


def _enough(provider: MemberId | None, place: ViewId | None) -> Sequence[Effect]:
    if provider is None or place is None:
        return ()
    return (_control(Enough(place), provider),)


def _control(header: Header, to: MemberId, body: bytes = b"") -> Effect:
    return Down(Frame(body, (header,), control=True), (to,))
