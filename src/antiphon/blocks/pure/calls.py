"""Calls to a group, without the group: the members that were asked, have replied, or never will.

A call is a message to the group with an address for replies and a number. All members get it in one
view, so each reply says who is in that view, and the caller, who may be outside the group, knows
from the first one how many to wait for. A call does not wait for a member that has left the group
without a reply: members remember the last calls (`Asked`), and the oldest one reports to their
callers which members have left.

Nothing here sends, waits or reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from antiphon.blocks.errors import TooFewRepliesError

FIRST: Literal[1] = 1
MAJORITY: Literal["majority"] = "majority"
ALL: Literal["all"] = "all"
NONE: Literal[0] = 0
Replies = int | Literal["majority", "all"]
"""The replies that a call waits for: a number, those of more than half of the asked members, or
all."""

REMEMBERED = 10_000
"""A member remembers at most this many of the last calls."""


def check_replies(replies: Replies) -> Replies:
    if replies in (MAJORITY, ALL) or (type(replies) is int and replies >= 0):
        return replies
    raise ValueError(f"replies={replies!r}: a number, {MAJORITY!r} or {ALL!r} are known")


class Call:
    """One call, until it has the replies that it wants."""

    def __init__(self, wanted: Replies) -> None:
        self._wanted = wanted
        self._asked: frozenset[str] | None = None  # not known before the first reply
        self._left: set[str] = set()
        self.replies: dict[str, Any] = {}  # by member; an exception: its handler raised that

    def replied(self, member: str, asked: Iterable[str], value: Any) -> None:
        """Take a reply. `asked`: the members of the call's view; empty: the member does not know
        them."""
        self._asked = frozenset(asked) or self._asked
        self.replies.setdefault(member, value)

    def left(self, asked: Iterable[str], members: Iterable[str]) -> None:
        """Note that these members are gone, and will not reply any more."""
        self._asked = frozenset(asked)
        self._left.update(members)

    @property
    def waits_for(self) -> frozenset[str]:
        return (self._asked or frozenset()) - self.replies.keys() - self._left

    @property
    def done(self) -> bool:
        return self._enough or (self._asked is not None and not self.waits_for)

    @property
    def _enough(self) -> bool:
        known = self._asked is not None or isinstance(self._wanted, int)
        return known and len(self.replies) >= self._needed

    @property
    def _needed(self) -> int:
        asked = len(self._asked or ())
        if self._wanted == ALL:
            return asked
        return asked // 2 + 1 if self._wanted == MAJORITY else int(self._wanted)

    def outcome(self, why: str = "") -> dict[str, Any]:
        """Return the replies of a call that is done. Raise `TooFewRepliesError` for one that ends
        without them: because of `why`, or because its time is over."""
        if self._enough or (self._wanted == ALL and self.done):
            return self.replies
        raise TooFewRepliesError(self._complaint(why), self.replies)

    def _complaint(self, why: str) -> str:
        if self._asked is None and not self.replies:
            return f"nobody has replied: {why or UNHEARD}"
        if self._asked is None:
            got = f"{len(self.replies)} replies, of who does not know how many there should be"
        else:
            got = (
                f"{len(self.replies)} of {self._needed} replies from a group of {len(self._asked)}"
            )
        parts = [why, got] if why else [got]
        if self.waits_for:
            parts.append(f"none from {_names(self.waits_for)}")
        if self._left:
            parts.append(f"{_names(self._left)} left the group before")
        return "; ".join(parts)


UNHEARD = (
    "the time is over. Its members may be slow (give them more), or the group has no member that "
    "handles calls (start one)"
)


class Notice(NamedTuple):
    """Report to a caller that these members, which it had asked, have left."""

    reply_to: Any
    call: str
    asked: tuple[str, ...]
    left: tuple[str, ...]


class _Remembered(NamedTuple):
    until: float
    reply_to: Any
    call: str
    asked: tuple[str, ...]


class Asked:
    """The calls that a member got, as long as their callers wait for replies."""

    def __init__(self) -> None:
        self._calls: deque[_Remembered] = deque(maxlen=REMEMBERED)

    def add(self, reply_to: Any, call: str, asked: tuple[str, ...], until: float) -> None:
        self._calls.append(_Remembered(until, reply_to, call, asked))

    def viewed(self, me: str, members: tuple[str, ...], now: float) -> list[Notice]:
        """Take a new view; return notices for callers. Only the oldest member sends them, for all
        calls that it knows, since the oldest one before it may have gone without sending them."""
        while self._calls and self._calls[0].until < now:
            self._calls.popleft()
        if not members or members[0] != me:
            return []
        notices = [
            Notice(c.reply_to, c.call, c.asked, tuple(m for m in c.asked if m not in members))
            for c in self._calls
        ]
        return [notice for notice in notices if notice.left]


def _names(members: Iterable[str]) -> str:
    return ", ".join(sorted(members))
