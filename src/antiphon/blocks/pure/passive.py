"""Passive replication, and calls to other servers that leave no orphans (thesis, chapter 7).

One replica, the primary, carries out each request, so the service need not be deterministic. The
others, its backups, take over the resulting state. The primary is the oldest member of the view;
when it is gone or removed as suspected, the next one carries out again all requests without an
outcome.

While it handles a request, a service may call other servers, its targets: `apply` is a generator
then, and yields an `Invocation` for each. Work that an unfinished primary left at a target is an
orphan. Against orphans:

- Before a call leaves, all replicas can undo it (`Undo`).
- Undo and update count only if they are delivered in the view in which their sender was primary. An
  update that comes later is void, and the sender of such an undo makes no call.
- With a new view the fate of every call without an update is to be undone; with an update it is to
  be committed, or undone if `apply` raised. All replicas know it, and the primary carries it out:
  COMMIT or ABORT at a pessimistic target, the compensation at an optimistic one; again and again,
  until the target has acknowledged it. Only then the replicas forget the call.

Targets refuse a call that was undone before it arrived, for a primary that was wrongly suspected
may be slow. Nothing here sends, waits or reads a clock: `PassiveReplica` takes a member's events,
and returns effects.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from antiphon.blocks.pure.service import (
    Outcome,
    ReplicatedService,
    Request,
    Results,
    decode_request,
)
from antiphon.errors import FormatError, MessageFormatError
from antiphon.formats import values
from antiphon.model.exceptions import describe

WAITING_MAX = 10_000
"""Limit of the requests that wait; more are refused."""

_TOO_MANY = Outcome(None, ("RuntimeError", "too many requests wait here: try later")).encode()

Key = tuple[str, int]
"""A request: its client, and its number there."""


class Kind(Enum):
    """How calls at a target are undone: a pessimistic target keeps locks until it learns how a call
    ends; an optimistic one has done it at once, and a second call compensates it."""

    PESSIMISTIC = "pessimistic"
    OPTIMISTIC = "optimistic"


class Fate(Enum):
    """The end of a call: it lasts, or is undone."""

    COMMIT = "commit"
    UNDO = "undo"


class Invocation(NamedTuple):
    """A call to a target, which `apply` yields. `apply` gets the target's reply, or its error."""

    target: str
    request: Any
    compensation: Any = None  # for an optimistic target: the request that undoes it


class Undo(NamedTuple):
    """A call that other replicas than its sender may have to end, with all that they need for
    it."""

    id: str
    view: int  # in which its sender was primary
    client: str
    number: int
    target: str
    compensation: Any

    @property
    def parent(self) -> Key:
        return self.client, self.number


class Update(NamedTuple):
    """The outcome of a request, and the state after it."""

    view: int
    client: str
    number: int
    outcome: bytes
    state: bytes
    commits: bool
    lasting: list[str]  # its calls that last: all others of this request are undone


# -- Effects --------------------------------------------------------------------------------------


class Cast(NamedTuple):
    """Send these bytes to the group."""

    data: bytes


class Call(NamedTuple):
    """Call a target, and hand the replica its reply or error (`called`)."""

    id: str
    target: str
    request: Any


class End(NamedTuple):
    """End a call at its target, again and again until the target has acknowledged it; then call the
    replica's `ended`."""

    id: str
    target: str
    fate: Fate
    compensation: Any


class Answer(NamedTuple):
    """A request has its outcome."""

    key: Key
    outcome: bytes
    is_primary: bool  # this replica answers the client


Effect = Cast | Call | End | Answer
Effects = list[Effect]


class _Running:
    """The request that the primary is busy with."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.steps: Generator[Any, Any, Any] | None = None  # of its `apply`
        self.call: Call | None = None  # its present call to a target
        self.update = b""  # its outcome, on its way to the group
        self.lasting: list[str] = []  # calls that were carried out


class PassiveReplica:
    """One replica. `targets`: the kind of each."""

    def __init__(
        self, service: ReplicatedService, me: str, targets: Mapping[str, Kind] | None = None
    ) -> None:
        self.service = service
        self.me = me
        self._targets = dict(targets or {})
        self._view = 0
        self._restored = 0  # the view of the state that was taken over
        self._members: tuple[str, ...] = ()
        self._requests: OrderedDict[Key, Request] = OrderedDict()  # that have no outcome yet
        self._results = Results()
        self._undos: dict[str, tuple[Undo, Fate | None]] = {}
        self._ended: set[str] = set()  # acknowledged by the target; the group forgets them
        self.agreed = service.snapshot()  # the state that all replicas have
        self._running: _Running | None = None
        self._calls = 0

    @property
    def is_primary(self) -> bool:
        return self._members[:1] == (self.me,)

    @property
    def unended(self) -> list[str]:
        """Return the calls that may still have an effect or locks at their targets."""
        return [id for id in self._undos if id not in self._ended]

    # -- Events of a member ---------------------------------------------------------------------

    def viewed(self, view: int, members: tuple[str, ...]) -> Effects:
        if view <= self._restored:
            return []  # a new member may get again what its state has already
        self._view, self._members = view, members
        if self._running is not None:
            self._abandon()
        self._ended.clear()  # the primary that noted them may have been another one
        self._undos = {u.id: (u, fate or Fate.UNDO) for u, fate in self._undos.values()}
        # All services are in the agreed state, so a view leads all of them to the same state.
        self.service.viewed(members)
        self.agreed = self.service.snapshot()
        return [*self._end_all(), *self._go_on()]

    def heard(self, data: bytes) -> Effects:
        """Take a message of the group. Raise `FormatError` if no replica can have sent it."""
        match values.decode(data):
            case ("undo", *fields):
                return self._on_undo(Undo(*fields))
            case ("update", *fields):
                return self._on_update(Update(*fields), data)
            case ("forget", str(id)):
                self._undos.pop(id, None)
                self._ended.discard(id)
                return []
            case (str(), int(), int(), _):
                return self._on_request(decode_request(data))
        raise FormatError("not a message of a passively replicated service")

    # -- Replies of targets ---------------------------------------------------------------------

    def called(self, id: str, reply: Any = None, error: Exception | None = None) -> Effects:
        """Take the reply of a call. That of a request that was given up is ignored."""
        running = self._running
        if running is None or running.call is None or running.call.id != id:
            return []
        running.call = None
        if error is None:
            running.lasting.append(id)
        return self._step(running, reply, error)

    def ended(self, id: str) -> Effects:
        """Take the target's acknowledgement that this call has ended."""
        if id not in self._undos or id in self._ended or not self.is_primary:
            return []
        self._ended.add(id)
        return [Cast(values.encode(("forget", id)))]

    # -- State transfer -------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        undos = [(*undo, fate and fate.value) for undo, fate in self._undos.values()]
        requests = [tuple(request) for request in self._requests.values()]
        views = (self._view, self._members)
        return values.encode((views, self._results.state(), requests, undos, self.agreed))

    def restore(self, data: bytes) -> None:
        match values.decode(data):
            case ((int(view), members), list(results), list(requests), list(undos), bytes(agreed)):
                self._view, self._members = view, tuple(members)
                self._restored = view
                self._results.restore(results)
                queue = (Request(*fields) for fields in requests)
                self._requests = OrderedDict((_key(request), request) for request in queue)
                self._undos = {
                    fields[0]: (Undo(*fields), fate and Fate(fate)) for *fields, fate in undos
                }
                self.agreed = agreed
                self.service.restore(agreed)
            case _:
                raise FormatError("no state of a passive replica")

    # -- Requests -------------------------------------------------------------------------------

    def _on_request(self, request: Request) -> Effects:
        outcome = self._results.find(request)
        if outcome is not None:
            return [Answer(_key(request), outcome, self.is_primary)]
        if len(self._requests) >= WAITING_MAX and _key(request) not in self._requests:
            self._results.add(request, _TOO_MANY)
            return [Answer(_key(request), _TOO_MANY, self.is_primary)]
        self._requests.setdefault(_key(request), request)
        return self._go_on()

    def _go_on(self) -> Effects:
        """Begin the next request, if this is the primary and is not busy."""
        if not self.is_primary or self._running is not None or not self._requests:
            return []
        running = self._running = _Running(next(iter(self._requests.values())))
        try:
            result = self.service.apply(running.request.command)
        except Exception as error:
            return self._finish(running, Outcome(None, describe(error)))
        if not inspect.isgenerator(result):
            return self._finish(running, Outcome(result))
        running.steps = result
        return self._step(running, None, None)

    def _step(self, running: _Running, reply: Any, error: Exception | None) -> Effects:
        """Run `apply` on, to its next call or its end."""
        steps = running.steps
        assert steps is not None
        try:
            wanted = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as stop:
            return self._finish(running, Outcome(stop.value))
        except Exception as raised:
            return self._finish(running, Outcome(None, describe(raised)))
        if not isinstance(wanted, Invocation):
            return self._step(running, None, TypeError(f"{wanted!r} is not an Invocation"))
        if wanted.target not in self._targets:
            known = ", ".join(self._targets) or "none"
            return self._step(running, None, ValueError(f"no target {wanted.target!r}: {known}"))
        try:
            return self._prepare(running, wanted)
        except MessageFormatError as error:  # a compensation that cannot travel
            running.call = None
            return self._step(running, None, error)

    def _prepare(self, running: _Running, wanted: Invocation) -> Effects:
        """Send the replicas an `Undo`: before a call leaves, all must be able to undo it."""
        self._calls += 1
        id = f"{self.me}.{self._view}.{self._calls}"
        running.call = Call(id, wanted.target, wanted.request)
        key = _key(running.request)
        undo = Undo(id, self._view, *key, wanted.target, wanted.compensation)
        return [Cast(values.encode(("undo", *undo)))]

    def _finish(self, running: _Running, outcome: Outcome) -> Effects:
        commits = outcome.error is None
        try:
            data = outcome.encode()
        except Exception as error:  # a result that cannot travel
            data, commits = Outcome(None, describe(error)).encode(), False
        if not commits:
            self.service.restore(self.agreed)
        state = self.service.snapshot() if commits else self.agreed
        lasting = running.lasting if commits else []
        update = Update(self._view, *_key(running.request), data, state, commits, lasting)
        running.update = values.encode(("update", *update))
        return [Cast(running.update)]

    def _abandon(self) -> None:
        """Drop the running request, whose outcome would be void: go back to the agreed state."""
        running, self._running = self._running, None
        if running is not None and running.steps is not None:
            running.steps.close()
        self.service.restore(self.agreed)

    # -- Messages of the primary to all replicas, itself included -------------------------------

    def _on_undo(self, undo: Undo) -> Effects:
        if undo.view != self._view or undo.parent not in self._requests:
            self._undos[undo.id] = (undo, Fate.UNDO)  # and no call is made
            return self._end_one(undo, Fate.UNDO) if self.is_primary else []
        self._undos[undo.id] = (undo, None)
        running = self._running
        if running is not None and running.call is not None and running.call.id == undo.id:
            return [running.call]
        return []

    def _on_update(self, update: Update, data: bytes) -> Effects:
        key = (update.client, update.number)
        request = self._requests.get(key)
        if update.view != self._view or request is None:
            return []  # void
        del self._requests[key]
        self._results.add(request, update.outcome)
        self.agreed = update.state
        if self._running is not None and self._running.update == data:
            self._running = None  # and the service is in that state already
        else:
            self._abandon()
        for undo, _ in [*self._undos.values()]:
            if undo.parent == key:
                lasts = undo.id in update.lasting
                self._undos[undo.id] = (undo, Fate.COMMIT if lasts else Fate.UNDO)
        answer = Answer(key, update.outcome, self.is_primary)
        return [answer, *self._end_all(), *self._go_on()]

    # -- Ends of calls --------------------------------------------------------------------------

    def _end_all(self) -> Iterator[Effect]:
        for undo, fate in [*self._undos.values()]:
            if self.is_primary and fate is not None and undo.id not in self._ended:
                yield from self._end_one(undo, fate)

    def _end_one(self, undo: Undo, fate: Fate) -> Effects:
        if fate is Fate.COMMIT and self._targets[undo.target] is Kind.OPTIMISTIC:
            return self.ended(undo.id)  # it was done at once
        return [End(undo.id, undo.target, fate, undo.compensation)]


def _key(request: Request) -> Key:
    return request.client, request.number
