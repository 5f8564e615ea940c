"""The gateway of a member: takes requests to a plain object, and logs those that it carried out.

The object knows nothing of its replicas: the gateway calls its methods in the order of the group.
That a request submitted again is not carried out again is a promise of `ReplicatedService`.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

from antiphon.blocks.pure.rpc import check_public
from antiphon.blocks.pure.service import ReplicatedService
from antiphon.errors import FormatError
from antiphon.formats import values

LOG_BYTES = 64 * 1024
"""The log has the last requests with their replies, as long as they take up no more than this: it
is a part of the state, and travels with it."""

LOG = "request log"
"""The operation that returns the log, which is no method of the object."""


class Checkpointable(Protocol):
    """An object that can be replicated: its public methods are its operations."""

    def get_state(self) -> bytes:
        """Return the whole state."""

    def set_state(self, state: bytes) -> None:
        """Replace the whole state."""


class Logged(NamedTuple):
    """A request that was carried out, and its reply. Requests that raised are not logged."""

    operation: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    reply: Any


class IncomingRequestGateway(ReplicatedService):
    """Calls the operations of one object. It refuses all of them as long as it has no state: only
    the founder of a group begins with one of its own. It takes over no state of another generation
    than its own."""

    def __init__(self, target: Checkpointable, founder: bool, generation: int = 0) -> None:
        self.target = target
        self.has_state = founder
        self._generation = generation
        self._log: deque[bytes] = deque()
        self._log_bytes = 0

    def apply(self, command: Any) -> Any:
        match command:
            case (str(operation), tuple(arguments), dict(named)):
                pass
            case _:
                raise TypeError("a request is an operation, its arguments, and those with names")
        if not self.has_state:
            raise RuntimeError("the object group has lost its state")
        if operation == LOG:
            return tuple(values.decode(entry) for entry in self._log)
        reply = self._invoke(operation, arguments, named)
        self._append(values.encode((operation, arguments, named, reply)))
        return reply

    def _invoke(self, operation: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        check_public(operation)
        method = getattr(self.target, operation, None)
        if not callable(method) or operation in vars(Checkpointable):
            raise AttributeError(f"{type(self.target).__name__} has no operation {operation!r}")
        return method(*arguments, **named)

    def _append(self, entry: bytes) -> None:
        self._log.append(entry)
        self._log_bytes += len(entry)
        while self._log_bytes > LOG_BYTES:
            self._log_bytes -= len(self._log.popleft())

    def snapshot(self) -> bytes:
        state = self.target.get_state()
        return values.encode((self._generation, self.has_state, list(self._log), state))

    def restore(self, data: bytes) -> None:
        match values.decode(data):
            case (int(generation), bool(has_state), list(log), bytes(state)):
                if generation != self._generation:
                    raise ValueError("its members are of an earlier group of this name")
                self.has_state = has_state
                self._log, self._log_bytes = deque(log), sum(map(len, log))
                self.target.set_state(state)
            case _:
                raise FormatError("no state of an object group")
