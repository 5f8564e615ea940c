"""Commands on their way into the log: proposed until they are seen to be done.

A proposal may be lost with a leader or on the way to it, and applying a command twice changes
nothing: so each is proposed at once, again under every new leader, and again after a pause that
doubles, so that a cluster which is merely slow is not given the same work over and over.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from antiphon.formats import commands

AGAIN_MS, AGAIN_MAX_MS = 1000, 8000
RETRY_MS = 250
"""The pause after a leader refused a proposal: it is overloaded, or about to leave."""

COMMANDS_MAX = 64
"""Commands in one entry."""


class _Wanted:
    def __init__(self, what: commands.Command, after: int) -> None:
        self.what = what
        self.after = after  # this number must be reached first
        self.due_ms = 0  # when to propose it again
        self.pause_ms = AGAIN_MS


class Proposals:
    """Commands that this server wants in the log, by key: one of each key at a time."""

    def __init__(self) -> None:
        self._wanted: dict[Hashable, _Wanted] = {}
        self._due: dict[Hashable, None] = {}
        self._reached = 0
        self._retry_ms: int | None = None  # when to try refused proposals again

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._wanted

    @property
    def due(self) -> bool:
        """Whether there is a command to propose."""
        return bool(self._due)

    def want(self, key: Hashable, what: commands.Command, after: int = 0) -> None:
        """Propose this until `done`, but not before this number is `reached`; it takes the place of
        what had that key."""
        self._wanted[key] = _Wanted(what, after)
        self._due[key] = None

    def reached(self, number: int) -> None:
        """This number is reached: commands that waited for it may be proposed."""
        self._reached = number

    def done(self, key: Hashable) -> None:
        """The state machine has dealt with it, or it is not wanted any more."""
        self._wanted.pop(key, None)
        self._due.pop(key, None)

    def withdraw(self, key: Hashable) -> commands.Command | None:
        """Propose this no longer. Return it if it has been proposed: it may still get into the
        log."""
        wanted = self._wanted.get(key)
        self.done(key)
        return wanted.what if wanted is not None and wanted.due_ms else None

    def all_again(self) -> None:
        """Propose everything again: the old leader's proposals may have died with it."""
        self._due = dict.fromkeys(self._wanted)

    def refused(self, now_ms: int) -> None:
        """A proposal was not taken; which one is not worth finding out."""
        self._retry_ms = now_ms + RETRY_MS

    def look(self, now_ms: int, *, lost: bool) -> None:
        """Propose again all that was refused a while ago and, if proposals may have been `lost` on
        their way, all that was not done in time."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self.all_again()
        for key, wanted in self._wanted.items() if lost else ():
            if wanted.due_ms <= now_ms and key not in self._due:
                wanted.pause_ms = min(2 * wanted.pause_ms, AGAIN_MAX_MS)
                self._due[key] = None

    def take(self, now_ms: int) -> Iterator[bytes]:
        """Return the commands to be proposed now, as payloads of entries."""
        some: list[commands.Command] = []
        due, self._due = self._due, {}
        for key in due:
            wanted = self._wanted[key]
            if wanted.after > self._reached:
                self._due[key] = None
                continue
            wanted.due_ms = now_ms + wanted.pause_ms
            some.append(wanted.what)
            if len(some) == COMMANDS_MAX:
                yield commands.encode(some)
                some = []
        if some:
            yield commands.encode(some)
