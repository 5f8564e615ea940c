"""Events of several kinds to everybody in a group; who comes later gets the last one of each kind.

    @dataclass
    class Fire:
        floor: int

    with NotificationBus(ctx, "alarms", Fire) as bus:
        bus.subscribe(Fire, lambda fire: print("fire on floor", fire.floor))
        bus.publish(Fire(floor=4))

Promise: all members get the same events in the same order, and a new one begins with the last event
of each kind that was published before it came.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import antiphon
from antiphon.blocks.pure.notifications import BusBlock, Kinds
from antiphon.blocks.threads.host import Closing, Host, Hosted

logger = logging.getLogger("antiphon.blocks")

AnyEvent = TypeVar("AnyEvent")


class Subscriber(NamedTuple):
    call: Callable[[Any], object]
    after: int  # it gets the events after this one


class NotificationBus(Hosted, Closing):
    """`kinds` are dataclasses or `msgspec.Struct`s; each is known to all members by its name."""

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        *kinds: type,
        name: str | None = None,
    ) -> None:
        self._kinds = Kinds(kinds)
        self._subscribed: dict[str, list[Subscriber]] = {}
        self._lock = threading.RLock()
        self._host = Host(ctx, group, BusBlock(), name=name, told=self._on_event)

    def publish(self, event: Any) -> None:
        """To all members, this one included. Returns when a majority of the servers has it."""
        self._host.multicast(antiphon.ObjectMessage(self._kinds.body_of(event)))

    def subscribe(self, kind: type[AnyEvent], call: Callable[[AnyEvent], object]) -> None:
        """Have it called with the last event of this kind, if there was one, before this returns,
        and then with each new one, on a thread of the bus, one after the other. What it raises is
        logged, and so is an event that does not fit the class."""
        name = self._kinds.name_of(kind)
        with self._lock:  # what comes meanwhile comes after the last one
            fields, count = self._host.look(lambda block: (block.last.get(name), block.count))
            subscriber = Subscriber(call, count)
            self._subscribed.setdefault(name, []).append(subscriber)
            if fields is not None:
                self._hand_out(name, fields, [subscriber])

    def last(self, kind: type[AnyEvent]) -> AnyEvent | None:
        """The last event of this kind that has arrived here."""
        name = self._kinds.name_of(kind)
        fields = self._host.look(lambda block: block.last.get(name))
        return None if fields is None else self._kinds.event_of(name, fields)

    def close(self) -> None:
        """Leave the group."""
        self._host.close()

    def _on_event(self, event: tuple[int, str, Any]) -> None:
        count, kind, fields = event
        with self._lock:
            subscribed = [one for one in self._subscribed.get(kind, ()) if one.after < count]
            self._hand_out(kind, fields, subscribed)

    def _hand_out(self, kind: str, fields: Any, subscribed: list[Subscriber]) -> None:
        for subscriber in subscribed:
            try:
                subscriber.call(self._kinds.event_of(kind, fields))
            except Exception:  # it must not keep the event from others, or have it come again
                logger.exception("a subscriber has not taken an event of kind %s", kind)
