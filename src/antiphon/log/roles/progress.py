"""A leader's knowledge of one other server: how much of the log it holds, and how much was sent to
it."""

from __future__ import annotations

from collections import deque
from enum import Enum

from antiphon.formats.entry import ReplicaId


class Flow(Enum):
    """How a leader sends to one server at the moment."""

    PROBE = "probe"  # where its log agrees with ours is not known: one append at a time
    REPLICATE = "replicate"  # it is known: appends follow each other without waiting
    SNAPSHOT = (
        "snapshot"  # the entries that it lacks are gone from our log: the state itself is sent
    )


class Progress:
    """How far one other server is. Invariant: `match < next`, and everything up to `match` is
    held by it for good."""

    __slots__ = (
        "attempt",
        "back",
        "flow",
        "id",
        "inflight",
        "inflight_bytes",
        "match",
        "next",
        "part",
        "probed",
        "reading",
        "round",
        "sending",
        "told",
    )

    def __init__(self, id: ReplicaId, next_index: int) -> None:
        self.id = id
        self.match = 0
        self.next = next_index
        self.flow = Flow.PROBE
        self.probed = False  # a probe is on its way
        # Of each append that is not answered yet: its last index, and its size.
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        self.round = 0  # the newest round that it echoed
        self.reading = False  # entries for it are being read back from the journal
        self.attempt = 0  # to send it a snapshot
        self.sending = 0  # the index of that snapshot
        self.part = 0  # of which it needs this part next
        self.back = (
            -1
        )  # the round in which it last turned out to lack entries that had been sent to it
        self.told = 0  # up to here it knows that this leader holds its log, unless that was lost

    def flies(self, last: int, size: int) -> None:
        """Note an append that is on its way."""
        self.inflight.append((last, size))
        self.inflight_bytes += size

    def landed(self) -> None:
        """Forget the appends that were answered."""
        while self.inflight and self.inflight[0][0] <= self.match:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def grounded(self) -> None:
        """Forget the appends on their way: their answers are not waited for."""
        self.inflight.clear()
        self.inflight_bytes = 0
