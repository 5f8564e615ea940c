"""The terms of redelivery of a queue's messages, as a program asks for them."""

from __future__ import annotations

from typing import TypedDict

from antiphon.api import arguments
from antiphon.api.messages.destinations import Queue
from antiphon.model.redelivery import DELIVERIES_MAX, FACTOR_MAX, WAIT_MAX_MS, Redelivery, in_ms


class RedeliveryOptions(TypedDict, total=False):
    """The options of `create_queue`, which explains them. None means not given."""

    redelivery_delay: float | None
    redelivery_factor: float | None
    redelivery_most: float | None
    deliveries: int | None
    dead_letters: Queue | str | None


NO_REDELIVERY = RedeliveryOptions(
    redelivery_delay=None,
    redelivery_factor=None,
    redelivery_most=None,
    deliveries=None,
    dead_letters=None,
)
"""No terms: those of other consumers, or of the servers' configuration, apply."""


def redelivery_of(
    queue: str,
    *,
    redelivery_delay: float | None = None,
    redelivery_factor: float | None = None,
    redelivery_most: float | None = None,
    deliveries: int | None = None,
    dead_letters: Queue | str | None = None,
    **others: object,
) -> Redelivery:
    """Return the terms of redelivery of a queue. Raise an error for an option that makes no
    sense."""
    for name in others:
        raise TypeError(f"a queue has no option {name!r}")
    factor = redelivery_factor
    if isinstance(factor, bool) or not isinstance(factor, int | float | None):
        raise TypeError(f"redelivery_factor is a number, not {factor!r}")
    if factor is not None and not 1 <= factor <= FACTOR_MAX:
        raise ValueError(f"redelivery_factor is a number from 1 to {FACTOR_MAX:g}, not {factor!r}")
    if deliveries is not None and not 1 <= arguments.number("deliveries", deliveries) <= (
        DELIVERIES_MAX
    ):
        raise ValueError(f"deliveries is a number from 1 on, not {deliveries!r}")
    if isinstance(dead_letters, str):
        dead_letters = Queue(dead_letters)
    if dead_letters is not None and (type(dead_letters) is not Queue or dead_letters.name == queue):
        raise ValueError(f"dead_letters is another queue, or its name, not {dead_letters!r}")
    return Redelivery(
        _wait_ms("redelivery_delay", redelivery_delay),
        None if factor is None else float(factor),
        _wait_ms("redelivery_most", redelivery_most),
        deliveries,
        None if dead_letters is None else dead_letters.text,
    )


def _wait_ms(what: str, seconds: float | None) -> int | None:
    if seconds is not None and not 0 <= arguments.seconds(what, seconds) <= WAIT_MAX_MS / 1000:
        raise ValueError(f"{what} is 0 to {WAIT_MAX_MS / 1000:g} seconds, not {seconds!r}")
    return in_ms(seconds)
