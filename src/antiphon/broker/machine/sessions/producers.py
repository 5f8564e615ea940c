"""Named producers: how many messages of each were accepted, ever.

A named producer outlives its sessions for a while: a program that opens it again goes on where the
producer had stopped, even in another life of the program.
"""

from __future__ import annotations

import msgspec

from antiphon.broker.machine.deadlines import PRODUCER, Deadlines

RETENTION_MS = 7 * 24 * 3600 * 1000
"""A named producer that no session has open keeps its sequence for this long."""


class Producer(msgspec.Struct, array_like=True):
    """A named producer, which outlives its sessions for a while."""

    name: str
    last: int  # messages accepted, ever
    session: int  # 0: none has it open
    number: int  # in that session
    expires: int  # a stamp, while no session has it open


class Producers(dict[str, Producer]):
    """All named producers, by name.

    Promise: one that no session has open has a deadline, at which it is forgotten.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        super().__init__()
        self._deadlines = deadlines

    def open(self, name: str, session: int, number: int) -> Producer:
        """Return the producer of this name, which this session has open now; it is new if there
        was none."""
        producer = self.setdefault(name, Producer(name, 0, 0, 0, 0))
        producer.session, producer.number = session, number
        return producer

    def accepted(self, name: str, last: int) -> None:
        """Note that its messages are accepted up to this one."""
        self[name].last = last

    def close(self, name: str, stamp: int) -> None:
        """Close a producer; it is remembered for a while."""
        producer = self[name]
        producer.session, producer.number = 0, 0
        producer.expires = stamp + RETENTION_MS
        self._deadlines.add(producer.expires, PRODUCER, name)

    def due(self, name: str) -> int | None:
        """Return when it is forgotten; None: a session has it open, or it is not known."""
        producer = self.get(name)
        return producer.expires if producer is not None and not producer.session else None

    def forget(self, name: str) -> None:
        """Forget a producer that no session has opened again in time."""
        del self[name]

    def restore(self, producer: Producer) -> None:
        """Take a producer from a snapshot."""
        self[producer.name] = producer
        if not producer.session:
            self._deadlines.add(producer.expires, PRODUCER, producer.name)
