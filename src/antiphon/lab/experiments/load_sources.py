"""The message sources of the literature's measurements: sizes, bursts and pauses.

The first bytes of a body are the message's number in its run; an empty body ends the run.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

NUMBER_BYTES = 8
BLOCK = 16
"""Messages of a continuous source between two looks at the clock and at the members."""

WINDOW_MAX, WINDOW_BYTES = 4096, 8 << 20


class Source(NamedTuple):
    """A pattern of messages: their sizes, and bursts with pauses between them."""

    sizes: tuple[int, ...] = (1000,)  # bytes of a body, in turn
    switch: int = 1  # after this many messages it is the next size's turn
    burst: int = 0  # messages, and then a pause; 0: continuously
    pause_s: float = 0.0

    @property
    def window(self) -> int:
        """How many messages a continuous source may be ahead of the slowest member: without it
        slower members would read a growing backlog, and latency would have no bound."""
        return max(2 * BLOCK, min(WINDOW_MAX, WINDOW_BYTES // max(self.sizes)))

    def bodies(self) -> Iterator[bytes]:
        paddings = [bytes(size - NUMBER_BYTES) for size in self.sizes]
        number = 0
        while True:
            padding = paddings[number // self.switch % len(paddings)]
            yield number.to_bytes(NUMBER_BYTES, "big") + padding
            number += 1


def number_of(body: bytes) -> int:
    return int.from_bytes(body[:NUMBER_BYTES], "big")


def emit(
    source: Source,
    seconds: float,
    send: Callable[[bytes], object],
    wait_for_members: Callable[[int, int], None],
) -> array[float]:
    """Send for `seconds`; return the times of the calls. `wait_for_members(sent, ahead)` returns
    when the slowest member is at most `ahead` messages behind."""
    times: array[float] = array("d")
    clock, note, bodies = time.monotonic, times.append, source.bodies()
    end = clock() + seconds
    while clock() < end:
        wait_for_members(len(times), source.window)
        for _ in range(source.burst or BLOCK):
            body = next(bodies)
            note(clock())
            send(body)
        if source.pause_s:
            time.sleep(source.pause_s)
    return times
