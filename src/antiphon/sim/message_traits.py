"""Special messages: how simulated programs draw their headers, and the facts by which they are
judged.

A priority, a time to live, a delay, a `JMSXGroupID`; the servers' rules for them are in
`broker/machine/queues/queue.py` and `broker/machine/transactions.py`, which this module does not
use.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from antiphon.formats.columns import PRIORITY, Extra, decode_extra
from antiphon.formats.pack import DELAYED, SPECIAL

GROUP_IDS = ("x", "y")
CLOSING = 0.1
"""How often a message is the last of its `JMSXGroupID`."""


class Flavour(msgspec.Struct, frozen=True):
    """How often the messages of a program are special."""

    ranked: float = 0.0  # with a priority
    mortal: float = 0.0  # with a time to live
    delayed: float = 0.0
    grouped: float = 0.0  # with a `JMSXGroupID`


def draw_extra(random: Random, flavour: Flavour) -> Extra:
    if random.random() < flavour.grouped:
        return Extra(_group(random))  # no other headers: among themselves these keep their order
    return Extra(
        priority=random.choice((0, 3, 8, 9)) if random.random() < flavour.ranked else PRIORITY,
        time_to_live=random.choice((20, 300, 3_000, 100_000_000))
        if random.random() < flavour.mortal
        else 0,
        delivery_delay=random.choice((1, 50, 500, 3_000))
        if random.random() < flavour.delayed
        else 0,
    )


def _group(random: Random) -> dict[str, bool | int | float | str | None]:
    closes = -1 if random.random() < CLOSING else 1
    return {"JMSXGroupID": random.choice(GROUP_IDS), "JMSXGroupSeq": closes}


def flags_of(extra: Extra) -> int:
    """Return the flags of a pack, as producers set them."""
    special = extra.priority != PRIORITY or extra.time_to_live or extra.properties
    return (SPECIAL if special else 0) | (DELAYED if extra.delivery_delay else 0)


class Traits(NamedTuple):
    """The headers of a message that consumers can read."""

    priority: int = PRIORITY
    expires: int = 0  # a stamp; 0: never
    group: str = ""
    closes: bool = False  # it is the last of its group


PLAIN = Traits()


def traits_of(data: bytes, stamp: int) -> Traits:
    """Return the traits of a message. `stamp`: of the entry with which it became visible."""
    extra = decode_extra(data)
    left = max(1, extra.time_to_live - extra.delivery_delay)
    return Traits(
        extra.priority,
        stamp + left if extra.time_to_live else 0,
        str(extra.properties.get("JMSXGroupID", "")),
        extra.properties.get("JMSXGroupSeq") == -1,
    )
