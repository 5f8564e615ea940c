"""Events of several kinds for all members of a group; later subscribers get the last one of each
kind.

Promise: all members get the same events in the same order, and a new one begins with the last event
of each kind that was published before it came. A subscriber that raises still gets the next event,
and so do the others.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import antiphon
from antiphon.blocks.operations.front import Lock
from antiphon.blocks.operations.host import Host
from antiphon.blocks.operations.hosted import Hosted
from antiphon.blocks.pure.block import Whole
from antiphon.blocks.pure.notifications import BusBlock, Kinds
from antiphon.blocks.pure.scripts import Script

logger = logging.getLogger("antiphon.blocks")

AnyEvent = TypeVar("AnyEvent")


class Subscriber(NamedTuple):
    """A function of the program that gets events of one kind, one after the other."""

    call: Callable[[Any], Any]
    after: int  # it gets the events after this one
    turn: Lock  # held while it has an event


class NotificationBus(Hosted):
    """Publishes events to all members of a group, and hands them to the program's subscribers.

    `kinds` are dataclasses or `msgspec.Struct`s; members know each by the name of its class. Raise
    `ValueError` if two of them have the same name. `name`: of this member, as in `Context.join`;
    opening raises the errors of that call.
    """

    def __init__(
        self, ctx: Any, group: antiphon.Topic | str, kinds: tuple[type, ...], name: str | None
    ) -> None:
        self._kinds = Kinds(kinds)
        self._subscribed: dict[str, list[Subscriber]] = {}
        self._host = Host(
            self._front,
            self._front.port(ctx, group, name, durable=False),
            BusBlock(),
            told=lambda event: self._front.run(self._telling(event)),
        )

    @abstractmethod
    def publish(self, event: Any) -> Any:
        """Send an event to all members, this one included, and return when a majority of the
        servers has it. Raise `MessageFormatError` if it is of no kind of this bus, and
        `IllegalStateError` if this is not a member any more."""

    @abstractmethod
    def subscribe(self, kind: type[AnyEvent], call: Callable[[AnyEvent], object]) -> Any:
        """Call `call` with the last event of this kind, if there was one, before this returns, and
        then with each new one, one after the other, on a thread of the bus (asyncio: in a task; it
        may be `async def`).

        Its errors are logged, and so is an event that does not fit the class. Raise
        `MessageFormatError` if this is not a kind of this bus."""

    def last(self, kind: type[AnyEvent]) -> AnyEvent | None:
        """Return the last event of this kind that has arrived here; None: there was none."""
        name = self._kinds.name_of(kind)
        fields = self._host.look(lambda block: block.last.get(name))
        return None if fields is None else self._kinds.event_of(name, fields)

    def _publishing(self, event: Any) -> Script[None]:
        body = Whole(self._kinds.body_of(event))
        yield from self._host.multicasting(body)

    def _subscribing(self, kind: type[Any], call: Callable[[Any], object]) -> Script[None]:
        name = self._kinds.name_of(kind)
        turn = self._front.lock()
        yield turn.acquire  # events that come meanwhile follow the last one
        try:
            subscriber, fields = self._host.look(lambda block: self._add(block, name, call, turn))
            if fields is not None:
                yield from self._handing_out(name, fields, subscriber)
        finally:
            turn.release()

    def _add(
        self, block: BusBlock, name: str, call: Callable[[Any], object], turn: Lock
    ) -> tuple[Subscriber, Any]:
        subscriber = Subscriber(self._front.program(call), block.count, turn)
        self._subscribed.setdefault(name, []).append(subscriber)
        return subscriber, block.last.get(name)

    def _telling(self, event: tuple[int, str, Any]) -> Script[None]:
        count, kind, fields = event
        for subscriber in list(self._subscribed.get(kind, ())):
            if subscriber.after < count:
                yield subscriber.turn.acquire
                try:
                    yield from self._handing_out(kind, fields, subscriber)
                finally:
                    subscriber.turn.release()

    def _handing_out(self, kind: str, fields: Any, subscriber: Subscriber) -> Script[None]:
        try:
            event = self._kinds.event_of(kind, fields)
            yield lambda: subscriber.call(event)
        except Exception:  # the others get the event all the same, and it must not come again
            logger.exception("a subscriber has not taken an event of kind %s", kind)
