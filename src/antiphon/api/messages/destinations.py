"""Topics and queues as values: equal by kind and name, unchangeable, picklable.

A wrong name raises `InvalidDestinationError` when the destination is made, not when it is used.
`docs/wire.md` and `model/destinations.py` have the rules for names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Protocol

from msgspec.structs import astuple

from antiphon.api.signatures import made_by
from antiphon.errors import IllegalStateError, InvalidDestinationError
from antiphon.model import destinations as names
from antiphon.model.redelivery import Redelivery

NOTHING_SAID = Redelivery()
"""No terms: those of other consumers, or the servers' default, apply."""


class Owner(Protocol):
    """A context, as its temporary destinations need it."""

    def delete_temporary(self, destination: Temporary) -> Any: ...


class Destination:
    """A place to send to: a `Topic` or a `Queue`.

    Destinations are values: equal by kind and name, unchangeable, hashable, picklable. Raise
    `InvalidDestinationError` for a malformed name.
    """

    # A class with two bases can have no slots of its own: this one has those of queues, too.
    __slots__ = {
        "_redelivery": "",
        "name": "Its name, without the kind.",
        "text": "Kind and name, as `parse` reads them: `topic:Alarms`.",
    }
    _KIND: ClassVar[str] = ""
    name: str
    text: str

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise InvalidDestinationError(f"the name of a destination is a str, not {name!r}")
        text = f"{self._KIND}:{name}"
        names.parse(text)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "text", text)

    @staticmethod
    def parse(text: str) -> Destination:
        """Return the destination that is written as `text`, for instance `topic:Alarms`."""
        return _parse(text)

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
    """A destination whose subscribers all receive every message.

    Names have parts with dots between them. To consume from many topics, `*` stands for one part
    and `>` at the end for all further ones; nothing can be sent to such a topic.
    """

    __slots__ = ()
    _KIND = names.TOPIC


class Group(Topic):
    """A topic whose subscribers are members, which learn of each other (`create_group`)."""

    __slots__ = ()


class Queue(Destination):
    """A destination whose messages each go to one of its consumers.

    An object that `create_queue` returned may have terms of redelivery, for messages that a
    consumer could not handle; they apply when a consumer of it is opened.
    """

    __slots__ = ()
    _KIND = names.QUEUE
    _redelivery: Redelivery

    def __init__(self, name: str) -> None:
        super().__init__(name)
        object.__setattr__(self, "_redelivery", NOTHING_SAID)

    @classmethod
    def _with(cls, name: str, *redelivery: Any) -> Queue:
        """Return a queue with these fields of `Redelivery`."""
        queue = cls(name)
        object.__setattr__(queue, "_redelivery", Redelivery(*redelivery))
        return queue

    def __reduce__(self) -> tuple[Any, ...]:
        if self._redelivery == NOTHING_SAID:
            return super().__reduce__()
        return self._with, (self.name, *astuple(self._redelivery))


class Temporary(Destination):
    """A destination that lives until `delete()`, or as long as the connection that created it."""

    __slots__ = ("_owner",)
    _owner: Owner | None

    @made_by("`create_temporary_topic` and `create_temporary_queue`")
    def __init__(self, name: str, owner: Owner | None = None) -> None:
        super().__init__(name)
        object.__setattr__(self, "_owner", owner)

    def delete(self) -> Any:
        """Delete it, with its messages; with asyncio, this is awaited. Raise `IllegalStateError`
        if this object was not made by the context that created it, or if it has a consumer."""
        if self._owner is None:
            raise IllegalStateError(
                f"{self.text} was not created here: only the context that created it can delete it"
            )
        return self._owner.delete_temporary(self)


class TemporaryTopic(Temporary, Topic):
    """A topic that lives until `delete()`, or as long as the connection that created it."""

    __slots__ = ()
    _KIND = names.TEMP_TOPIC


class TemporaryQueue(Temporary, Queue):
    """A queue that lives until `delete()`, or as long as the connection that created it."""

    __slots__ = ()
    _KIND = names.TEMP_QUEUE


def check_sendable(destination: Destination) -> None:
    """Raise for a topic with wildcards: a consumer may read many topics, but a message goes to
    one."""
    if names.is_pattern(destination.name):
        raise InvalidDestinationError(
            f"{destination.text!r} stands for many topics: send to one of them"
        )


_CLASSES: dict[str, type[Destination]] = {
    kind._KIND: kind for kind in (Topic, Queue, TemporaryTopic, TemporaryQueue)
}


@lru_cache(maxsize=4096)
def _parse(text: str) -> Destination:
    kind, name = names.parse(text)
    return _CLASSES[kind](name)
