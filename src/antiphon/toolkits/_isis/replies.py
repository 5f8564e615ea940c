"""The replies to one broadcast: how many are wanted, and who can still give one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

ALL: Literal["all"] = "all"
MAJORITY: Literal["majority"] = "majority"
Wanted: TypeAlias = int | Literal["all", "majority"]


class Reply(NamedTuple):
    """A reply, with its values."""

    sender: str
    values: tuple[Any, ...]


class Replies:
    """Collects the replies to a broadcast.

    Promise: `done` as soon as as many are here as are wanted, or nobody can give another one: all
    to whom it was handed out have replied, have said that they will not, or have left. Nobody is
    waited for who has left.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._replies: list[Reply] = []
        self._wanted = wanted
        self._members: tuple[str, ...] | None = None  # to whom it was handed out; None: not yet
        self._finished: set[str] = set()

    def handed_out(self, members: Iterable[str]) -> None:
        """The broadcast is handed out, to these members."""
        self._members = tuple(members)

    def replied(self, sender: str, values: tuple[Any, ...] | None) -> None:
        """A member has replied; None: it will not. It may be quicker than `handed_out`."""
        if sender in self._finished:
            return
        self._finished.add(sender)
        if values is not None:
            self._replies.append(Reply(sender, values))

    def left(self, members: Iterable[str]) -> None:
        """These have left the group, after the broadcast was handed out."""
        if self._members is not None:
            self._finished.update(members)

    @property
    def replies(self) -> list[Reply]:
        """The replies that have come, of members; who only overhears the broadcast has no say."""
        return [one for one in self._replies if self._members is None or one[0] in self._members]

    @property
    def awaited(self) -> tuple[str, ...]:
        """The members that can still reply."""
        return tuple(one for one in self._members or () if one not in self._finished)

    @property
    def done(self) -> bool:
        """Whether there is nothing more to wait for."""
        if self._members is None:
            return False
        return not self.awaited or len(self.replies) >= self._number(len(self._members))

    def _number(self, members: int) -> int:
        if self._wanted == ALL:
            return members
        return members // 2 + 1 if self._wanted == MAJORITY else int(self._wanted)


def checked(wanted: Any) -> Wanted:
    """Return how many replies are wanted. Raise `ValueError` or `TypeError` for what is none."""
    if wanted in (ALL, MAJORITY):
        return ALL if wanted == ALL else MAJORITY
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise TypeError(f"nwanted is a number, ALL or MAJORITY, not {wanted!r}")
    if wanted < 0:
        raise ValueError(f"nwanted is 0 or more, not {wanted}")
    return wanted
