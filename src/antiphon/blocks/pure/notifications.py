"""Events of a notification bus: the last of each kind, which members keep, and their encoding."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import msgspec

from antiphon.blocks.pure.block import Block, Effects, Heard, Tell
from antiphon.errors import FormatError, MessageFormatError
from antiphon.formats import values

logger = logging.getLogger("antiphon.blocks")


class BusBlock(Block):
    """Keeps the last event of each kind, and hands all events to the program."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}  # by the kind's name: its fields
        self.count = 0  # of events that came here

    def heard(self, message: Heard, now: float) -> Effects:
        match message.body:
            case (str(kind), fields):
                self.count += 1
                self.last[kind] = fields
                yield Tell((self.count, kind, fields))
            case _:
                logger.warning("a message to a notification bus is not an event")

    def snapshot(self) -> bytes:
        return values.encode(self.last)

    def restore(self, data: bytes) -> None:
        match values.decode(data):
            case dict(last):
                self.last = last
            case other:
                raise FormatError(f"no state of a notification bus: {type(other).__name__}")


class Kinds:
    """The kinds of events that a bus has, by their names."""

    def __init__(self, kinds: Collection[type]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        if len(self._kinds) < len(kinds):
            raise ValueError("two kinds of events have the same name")

    def name_of(self, kind: type) -> str:
        if self._kinds.get(kind.__name__) is not kind:
            known = ", ".join(self._kinds) or "none"
            raise MessageFormatError(f"{kind.__name__} is not a kind of event of this bus: {known}")
        return kind.__name__

    def body_of(self, event: Any) -> tuple[str, Any]:
        """Return the body of the object message that carries it."""
        return self.name_of(type(event)), msgspec.to_builtins(event)

    def event_of(self, kind: str, fields: Any) -> Any:
        try:
            return msgspec.convert(fields, self._kinds[kind])
        except msgspec.ValidationError as error:
            raise FormatError(f"an event is no {kind} as this program has it: {error}") from None
