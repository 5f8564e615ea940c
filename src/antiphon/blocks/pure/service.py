"""Replicated services: one object that lives in several processes, and survives some of them.

A program writes a `ReplicatedService` as if there were one of it. Its replicas are the members of a
group, so all of them apply the same commands in the same order (active replication), and a new one
gets the state of another. `ActiveReplica` is that without the group: it takes a member's events,
and never sends, waits or reads a clock. So the same class runs with real groups in
`blocks/threads/replica.py`, and under simulated faults in `antiphon.sim.simulate`.

Promise: a command has its effect once, even if its client submits it again, to any replica; it gets
the same result each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from antiphon.errors import FormatError
from antiphon.formats import values
from antiphon.model.exceptions import describe, restored

CLIENTS_MAX = 10_000
"""Replicas remember the results of this many clients, those that were heard last."""


class ReplicatedService:
    """The base of replicated services: subclass it, and write `apply`, `snapshot` and `restore`.
    They must be deterministic: their effect depends on the commands alone, never on a clock, a
    random number, the network, or the order of a set."""

    def apply(self, command: Any) -> Any:
        """Carry out a command, and return its result. An exception is a result, too: the caller
        that submitted the command gets it raised."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """Return the whole state, for a new replica."""
        raise NotImplementedError

    def restore(self, data: bytes) -> None:
        """Replace the whole state by that of another replica, as its `snapshot` returned it."""
        raise NotImplementedError

    def viewed(self, members: tuple[str, ...]) -> None:
        """Note that the replicas are these from now on. All replicas get this at the same place in
        the order of commands. Most services need not know."""


class Request(NamedTuple):
    """A command with its identity: the same client and number are the same request."""

    client: str
    number: int
    answered: int  # the client has the results of all numbers up to this one
    command: Any

    def encode(self) -> bytes:
        """Return its bytes. Raise `MessageFormatError` if the command cannot travel."""
        return values.encode(tuple(self))


class Outcome(NamedTuple):
    """The outcome of a command: a result, or an exception."""

    value: Any
    error: tuple[str, str] | None = None  # the name of its type, its text

    def get(self) -> Any:
        if self.error is not None:
            raise restored(*self.error)
        return self.value

    def encode(self) -> bytes:
        return values.encode(tuple(self))


def decode_request(data: bytes) -> Request:
    fields = values.decode(data)
    match fields:
        case (str(), int(), int(), _):
            return Request(*fields)
    raise FormatError("not a request to a replicated service")


def decode_outcome(data: bytes) -> Outcome:
    fields = values.decode(data)
    match fields:
        case (_, None | (str(), str())):
            return Outcome(*fields)
    raise FormatError("not the outcome of a command")


def attempt(apply: Callable[[Any], Any], command: Any) -> Outcome:
    """Apply a command, and return its outcome. A result that cannot travel becomes that error."""
    try:
        result = apply(command)
    except Exception as error:
        return Outcome(None, describe(error))
    return outcome_of(result)


def outcome_of(result: Any) -> Outcome:
    """Return the outcome of a command with this result; if that cannot travel, the error of it."""
    try:
        values.encode(result)
    except Exception as error:
        return Outcome(None, describe(error))
    return Outcome(result)


class Results:
    """The outcomes of requests whose clients may submit them again."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, tuple[int, dict[int, bytes]]] = OrderedDict()

    def find(self, request: Request) -> bytes | None:
        """Return its outcome, if it was carried out before. Forget the outcomes that its client
        has."""
        answered, known = self._clients.get(request.client, (0, {}))
        answered = max(answered, request.answered)
        known = {number: outcome for number, outcome in known.items() if number > answered}
        self._clients[request.client] = (answered, known)
        self._clients.move_to_end(request.client)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
        return _LATE if request.number <= answered else known.get(request.number)

    def add(self, request: Request, outcome: bytes) -> None:
        self._clients.setdefault(request.client, (0, {}))[1][request.number] = outcome

    def state(self) -> list[Any]:
        return [
            (c, answered, list(known.items())) for c, (answered, known) in self._clients.items()
        ]

    def restore(self, state: Any) -> None:
        self._clients = OrderedDict((c, (answered, dict(known))) for c, answered, known in state)


_LATE = Outcome(None, ("RuntimeError", "the client has had the result of this request")).encode()
"""The outcome of a late copy of a request, whose client has got the result from another one."""


class ActiveReplica:
    """One replica of a service: it applies every command, as all others do."""

    def __init__(self, service: ReplicatedService) -> None:
        self.service = service
        self._results = Results()

    def viewed(self, members: tuple[str, ...]) -> None:
        self.service.viewed(members)

    def begin(self, data: bytes) -> tuple[Request, bytes | None]:
        """Take a request at its place in the order, and return it, with its outcome if it was
        carried out before. If not, its command must be applied (which may wait), and `finish`ed
        before the next one begins. Raise `FormatError` if that is not a request."""
        request = decode_request(data)
        return request, self._results.find(request)

    def finish(self, request: Request, outcome: Outcome) -> bytes:
        data = outcome.encode()
        self._results.add(request, data)
        return data

    def snapshot(self) -> bytes:
        return values.encode((self._results.state(), self.service.snapshot()))

    def restore(self, data: bytes) -> None:
        """Take over the state of another replica. Raise `FormatError` if that is not a snapshot."""
        fields = values.decode(data)
        match fields:
            case (list(results), bytes(state)):
                self._results.restore(results)
                self.service.restore(state)
            case _:
                raise FormatError("no state of a replica")


class Requests:
    """The requests of one client, numbered; several may wait for their results at once."""

    def __init__(self, client: str) -> None:
        self.client = client
        self._numbered = 0
        self._waiting: dict[int, None] = {}

    def next(self, command: Any) -> Request:
        self._numbered += 1
        self._waiting[self._numbered] = None
        return Request(self.client, self._numbered, self._answered, command)

    def done(self, number: int) -> None:
        """Note that a request will not be submitted again: its result is here, or not wanted any
        more."""
        self._waiting.pop(number, None)

    @property
    def _answered(self) -> int:
        return min(self._waiting, default=self._numbered + 1) - 1
