"""Which servers count, at every point of the log.

A membership holds from the moment its entry is *appended*, not committed (Raft, 4.1): old and new
majority overlap because only one server changes at a time, and waiting for the commit would leave
the two sides of a change undecided about who decides. So a truncated entry takes its membership
back with it, and the history must remember the one before.
"""

from __future__ import annotations

from antiphon.formats.entry import Membership

NOBODY = Membership(0, ())


class MembershipHistory:
    def __init__(self, history: list[tuple[int, Membership]]) -> None:
        self._history = history or [(0, NOBODY)]
        self.current = self._history[-1][1]

    @property
    def index(self) -> int:
        """Where the current membership stands in the log."""
        return self._history[-1][0]

    def append(self, index: int, membership: Membership) -> None:
        assert index > self.index
        self._history.append((index, membership))
        self.current = membership

    def truncate(self, first: int) -> None:
        while len(self._history) > 1 and self._history[-1][0] >= first:
            self._history.pop()
        self.current = self._history[-1][1]

    def forget_before(self, index: int) -> None:
        """Keep the one that holds at `index` and what came after."""
        while len(self._history) > 1 and self._history[1][0] <= index:
            self._history.pop(0)

    def at(self, index: int) -> Membership:
        """The membership that holds at `index`."""
        for start, membership in reversed(self._history):
            if start <= index:
                return membership
        return self._history[0][1]
