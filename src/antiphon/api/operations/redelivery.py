"""What a program says of redeliveries when it names a queue (`create_queue`)."""

from __future__ import annotations

from typing import TypedDict

from antiphon.api.messages.destinations import Queue
from antiphon.api.operations import arguments
from antiphon.model.redelivery import DELIVERIES_MAX, FACTOR_MAX, WAIT_MAX_MS, Redelivery, in_ms


class Redeliveries(TypedDict, total=False):
    redelivery_delay: float | None
    """Seconds from the first delivery that fails to the next one."""
    redelivery_factor: float | None
    """By which each wait is longer than the one before."""
    redelivery_most: float | None
    """The longest wait, in seconds."""
    deliveries: int | None
    """After so many a message goes to the dead letters."""
    dead_letters: Queue | str | None
    """The queue that these are in, or its name."""


def said(
    queue: str,
    *,
    redelivery_delay: float | None = None,
    redelivery_factor: float | None = None,
    redelivery_most: float | None = None,
    deliveries: int | None = None,
    dead_letters: Queue | str | None = None,
) -> Redelivery:
    """Raises what is wrong with it."""
    factor = redelivery_factor
    if factor is not None and not 1 <= arguments.seconds("redelivery_factor", factor) <= FACTOR_MAX:
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
