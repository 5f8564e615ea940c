"""How often, and when, a message comes again that could not be handled.

A queue may have options of its own (`OpenConsumer`), a server has defaults for all of them
(`Attached`), and the defaults of the defaults are here: ten deliveries, spread over two minutes.
"""

from __future__ import annotations

import msgspec

from antiphon.model.destinations import DEAD_LETTERS

DEAD_REASON = "JMS_dead_reason"
"""The property of a dead letter that says why it is one."""

WAIT_MAX_MS = 24 * 3600 * 1000
FACTOR_MAX = 1000.0
DELIVERIES_MAX = 1 << 31

STEPS_MAX = 64
"""A wait grows this often at most: with any factor that deserves the name it is the longest by
then."""


class Redelivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Options of a queue; None: the default applies."""

    delay_ms: int | None = None  # before the first redelivery
    factor: float | None = None  # by which each wait is longer than the one before
    most_ms: int | None = None  # that it grows to
    deliveries: int | None = None  # after this many a message goes to the dead letters
    dead_letters: str | None = None  # the destination that these are in

    def over(self, default: Redelivery) -> Redelivery:
        """Return these options, with the default in place of None."""
        own = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(default), strict=True)
        return Redelivery(*(theirs if mine is None else mine for mine, theirs in own))

    def wait_ms(self, deliveries: int) -> int:
        """Return the time from the failure of this delivery to the next one. All fields are
        given."""
        delay, factor, most = self.delay_ms, self.factor, self.most_ms
        assert delay is not None
        assert factor is not None
        assert most is not None
        wait = float(delay)
        for _ in range(min(deliveries - 1, STEPS_MAX)):
            if wait >= most:
                break
            wait *= factor
        return int(min(wait, most))


def in_ms(seconds: float | None) -> int | None:
    """Return seconds as milliseconds; None stays None."""
    return None if seconds is None else round(seconds * 1000)


DEFAULT = Redelivery(250, 2.0, 60_000, 10, DEAD_LETTERS)
