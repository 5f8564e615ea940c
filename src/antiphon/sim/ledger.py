"""What must hold for the programs that use a simulated cluster, whatever breaks.

The ledger sees every pack that a server accepts and every message that reaches an application. A
message is known by its body, which is unique. Checked: a send that was answered is accepted, none
is accepted twice, and those of one program in its order; a subscription gets everything that
matches, in order, and nothing twice unless it is flagged; what is known to be acknowledged never
comes again; nothing for a queue or a durable subscription is missing at the end.
"""

from __future__ import annotations

from bisect import bisect_right

from antiphon.core.effects import Accepted
from antiphon.formats.columns import Columns
from antiphon.formats.destination import matcher
from antiphon.sim.checks import ViolationError


class Reading:
    """A queue, a durable subscription, or one life of a non-durable one, through all consumers."""

    def __init__(self, ledger: Ledger, name: str, pattern: str, floor: int, queue: bool) -> None:
        self.name = name
        self.floor = floor  # what came before is not for it
        self.queue = queue
        self.seen: set[int] = set()  # positions that reached an application
        self.confirmed: set[int] = set()  # acknowledged, and the client knows that
        self.handed: dict[int, int] = {}  # consumer -> the last position it was handed
        self._ledger = ledger
        self._matches = matcher(pattern)

    def expected(self, after: int, before: int) -> list[int]:
        """Positions that are for this reading, between these two."""
        positions = self._ledger.positions
        low = bisect_right(positions, max(after, self.floor))
        found = []
        for position in positions[low:]:
            if position >= before:
                break
            if self._matches(self._ledger.destinations[position]):
                found.append(position)
        return found

    def delivered(self, consumer: int, position: int, deliveries: int, body: bytes) -> None:
        if position <= self.floor or not self._matches(self._ledger.destinations[position]):
            raise ViolationError(f"{self.name} got message {position}, which is not for it")
        if body != self._ledger.bodies[position]:
            raise ViolationError(f"{self.name} got another body at {position}")
        if position in self.confirmed:
            raise ViolationError(f"{self.name} got {position} again, which it had acknowledged")
        if deliveries == 1 and position in self.seen:
            raise ViolationError(f"{self.name} got {position} twice, and it is not flagged")
        last = self.handed.get(consumer, 0)
        if not self.queue and position > last:
            missed = [p for p in self.expected(last, position) if p not in self.seen]
            if missed:
                raise ViolationError(f"{self.name} got {position} and not {missed} before it")
        self.handed[consumer] = max(last, position)
        self.seen.add(position)
        self._ledger.deliveries += 1

    def acknowledged(self, consumer: int, first: int, last: int) -> None:
        """It is certain now. From 0: all that the consumer was handed up to `last`."""
        self.confirmed.update(p for p in self.seen if max(first, 1) <= p <= last)

    def missing(self) -> list[int]:
        return [p for p in self.expected(0, 1 << 62) if p not in self.seen]


class Ledger:
    def __init__(self) -> None:
        self.positions: list[int] = []  # of all accepted messages
        self.destinations: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.readings: dict[str, Reading] = {}
        self.deliveries = 0
        self._accepted: dict[bytes, int] = {}  # body -> position
        self._last: dict[bytes, int] = {}  # sender -> the last number of its messages

    def accepted(self, one: Accepted, payload: bytes) -> None:
        """A server's state machine took a pack; most have taken it before."""
        if one.position in self.bodies:
            return
        columns = Columns(payload)
        for i in range(one.count):
            body = columns.body(i)
            if body in self._accepted:
                raise ViolationError(f"{body!r} is accepted twice")
            sender, _, number = body.rpartition(b"#")
            if int(number) <= self._last.get(sender, 0):
                raise ViolationError(f"{body!r} is accepted after {self._last[sender]}")
            self._last[sender] = int(number)
            self._accepted[body] = one.position + i
            self.positions.append(one.position + i)
            self.destinations[one.position + i] = one.destination
            self.bodies[one.position + i] = body

    def answered(self, body: bytes) -> None:
        """The servers have told the sender that they have it."""
        if body not in self._accepted:
            raise ViolationError(f"{body!r} was acknowledged to its sender, and nobody has it")

    def reading(self, name: str, pattern: str, floor: int, queue: bool = False) -> Reading:
        """A durable subscription and a queue go on where they were."""
        reading = self.readings.get(name)
        if reading is None:
            reading = self.readings[name] = Reading(self, name, pattern, floor, queue)
        return reading
