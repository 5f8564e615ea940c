"""The packing policies, which decide when a pack leaves, and how many messages make one.

`adaptive`, the default, clocks itself. With fewer than `PACKS_IN_FLIGHT` packs unanswered, the
gathered messages leave at once; otherwise they wait and leave together when an answer comes. So
there is no pause to tune: a lone message does not wait, and under load packs grow until the servers
keep up. If the packs on their way are large, a pack that could still grow already waits with
`GROWING_IN_FLIGHT` of them.

The others are JBora's (its section 5), to be compared with it. `off`: every message is a pack.
`fixed=N`: N messages are one. `hill-climbing`: N is sought, one step at a time, where the rate of
answers is highest; `hill-climbing=S` takes a step every S seconds. With these a pack leaves as soon
as it is full, however many are unanswered, and one that does not get full waits `WAIT_MS`.

No clocks here: time is passed in.
"""

from __future__ import annotations

from typing import Protocol

from antiphon.formats.pack import FULL_BYTES, FULL_MESSAGES

PACKS_IN_FLIGHT = 4
GROWING_IN_FLIGHT, LARGE_BYTES = 2, 64 << 10
WAIT_MS = 20
DEGREE_MAX = 128
STEP_S = 10.0
"""Seconds of a step, as JBora had it: two measures of 5 seconds each."""


class Packing(Protocol):
    """Says when a pack leaves. One policy serves one connection."""

    bytes_max: int
    messages_max: int
    """The most messages of a pack; may change with each `observe`."""

    wait_ms: int
    """Milliseconds that a pack that could take more messages waits for them."""

    def may_leave(self, in_flight: int, size: int, grows: bool) -> bool:
        """Return whether the next pack may leave. `in_flight`: packs that were sent and not
        answered, of `size` bytes together; `grows`: the next one could take more messages."""

    def observe(self, answered: int, now_ms: int) -> None:
        """Note that `answered` messages were answered until now, in all. Called whenever packs
        could leave."""


class SelfClocking:
    """`adaptive`: packs leave at once while few are unanswered, and grow while many are."""

    bytes_max = FULL_BYTES
    messages_max = FULL_MESSAGES
    wait_ms = 0

    def may_leave(self, in_flight: int, size: int, grows: bool) -> bool:
        waits = grows and size >= LARGE_BYTES
        return in_flight < (GROWING_IN_FLIGHT if waits else PACKS_IN_FLIGHT)

    def observe(self, answered: int, now_ms: int) -> None:
        pass


class Fixed:
    """`fixed=N`: a pack leaves when it has N messages, or after `WAIT_MS`."""

    bytes_max = FULL_BYTES
    wait_ms = WAIT_MS

    def __init__(self, messages: int) -> None:
        self.messages_max = messages

    def may_leave(self, in_flight: int, size: int, grows: bool) -> bool:
        return True

    def observe(self, answered: int, now_ms: int) -> None:
        pass


class HillClimbing(Fixed):
    """`hill-climbing`: as `fixed=N`, with an N that changes. It goes on in its direction while the
    rate rises, and turns when it falls, so that a short disturbance does not lead all the way down
    (the refined rule of JBora 5.3)."""

    def __init__(self, step_s: float) -> None:
        super().__init__(1)
        self._step_ms = step_s * 1000
        self._direction = 1
        self._rate = 0.0  # during the last step, messages a millisecond
        self._answered = 0  # when this step began
        self._began_ms: int | None = None

    def observe(self, answered: int, now_ms: int) -> None:
        if self._began_ms is None:
            self._began_ms = now_ms
        passed_ms = now_ms - self._began_ms
        if passed_ms < self._step_ms:
            return
        self._climb((answered - self._answered) / passed_ms)
        self._answered = answered
        self._began_ms = now_ms

    def _climb(self, rate: float) -> None:
        before, self._rate = self._rate, rate
        if rate == before:
            self._direction = 1  # a rate that stays the same counts as a rise
            return
        if rate < before:
            self._direction = -self._direction
        degree = min(max(1, self.messages_max + self._direction), DEGREE_MAX)
        if degree == self.messages_max:
            self._direction = 1
        self.messages_max = degree


def policy_of(name: str) -> Packing:
    """Return the policy of this name; raise `ValueError` if there is none."""
    kind, _, value = str(name).partition("=")
    if name == "adaptive":
        return SelfClocking()
    if name == "off":
        return Fixed(1)
    if name == "hill-climbing":
        return HillClimbing(STEP_S)
    if kind == "fixed" and value.isdecimal() and 0 < int(value) <= FULL_MESSAGES:
        return Fixed(int(value))
    if kind == "hill-climbing" and _is_positive(value):
        return HillClimbing(float(value))
    raise ValueError(
        f"{name!r} is not a packing policy: 'adaptive', 'off', 'fixed=N' with N from 1 to "
        f"{FULL_MESSAGES}, 'hill-climbing' or 'hill-climbing=SECONDS'"
    )


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
