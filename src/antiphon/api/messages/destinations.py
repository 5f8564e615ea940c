"""Topics and queues as values: equal by kind and name, unchangeable, picklable.

A wrong name raises `InvalidDestinationError` when the destination is made, not when it is used.
`docs/wire.md` and `model/destinations.py` have the rules for names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Protocol

from antiphon.errors import IllegalStateError, InvalidDestinationError
from antiphon.model import destinations as names
from antiphon.model.redelivery import Redelivery

NOTHING_SAID = Redelivery()


class Owner(Protocol):
    """What a temporary destination knows of the context that created it."""

    def delete_temporary(self, destination: Temporary) -> Any: ...


class Destination:
    """Somewhere to send to: a `Topic` or a `Queue`."""

    __slots__ = ("name", "redelivery", "text")  # of a queue; a class with two bases can have none
    KIND: ClassVar[str] = ""
    name: str
    text: str

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise InvalidDestinationError(f"the name of a destination is a str, not {name!r}")
        text = f"{self.KIND}:{name}"
        names.parse(text)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "text", text)

    @staticmethod
    def parse(text: str) -> Destination:
        """The destination that is written as `text`, for instance `topic:Alarms`."""
        return _parse(text)

    def check_sendable(self) -> None:
        """A topic with wildcards can be consumed from, but no message goes to many topics."""
        if names.is_pattern(self.name):
            raise InvalidDestinationError(
                f"{self.text!r} stands for many topics: send to one of them"
            )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} cannot be changed: make another one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Destination) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> tuple[type[Destination], tuple[Any, ...]]:
        return type(self), (self.name,)


class Topic(Destination):
    """Every subscriber receives every message. `a.*` and `a.>` are for consumers only."""

    __slots__ = ()
    KIND = names.TOPIC


class Group(Topic):
    """A topic that tells its subscribers who they are: they are its members."""

    __slots__ = ()


class Queue(Destination):
    """Every message goes to one of the consumers. It may say how messages come again that could not
    be handled; that counts from when a consumer of it is opened."""

    __slots__ = ()
    KIND = names.QUEUE
    redelivery: Redelivery

    def __init__(self, name: str, redelivery: Redelivery = NOTHING_SAID) -> None:
        super().__init__(name)
        object.__setattr__(self, "redelivery", redelivery)

    def __reduce__(self) -> tuple[type[Destination], tuple[Any, ...]]:
        said = () if self.redelivery == NOTHING_SAID else (self.redelivery,)
        return type(self), (self.name, *said)


class Temporary(Destination):
    """Lives until `delete()`, or as long as the connection that created it."""

    __slots__ = ("_owner",)
    _owner: Owner | None

    def __init__(self, name: str, owner: Owner | None = None) -> None:
        super().__init__(name)
        object.__setattr__(self, "_owner", owner)

    def delete(self) -> Any:
        """With asyncio, to be awaited."""
        if self._owner is None:
            raise IllegalStateError(
                f"{self.text} was not created here: only the context that created it can delete it"
            )
        return self._owner.delete_temporary(self)


class TemporaryTopic(Temporary, Topic):
    __slots__ = ()
    KIND = names.TEMP_TOPIC


class TemporaryQueue(Temporary, Queue):
    __slots__ = ()
    KIND = names.TEMP_QUEUE


_CLASSES: dict[str, type[Destination]] = {
    kind.KIND: kind for kind in (Topic, Queue, TemporaryTopic, TemporaryQueue)
}


@lru_cache(maxsize=4096)
def _parse(text: str) -> Destination:
    kind, name = names.parse(text)
    return _CLASSES[kind](name)
