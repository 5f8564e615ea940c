"""The interface of all ways of finding the other processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from antiphon.model.peer_views import MemberId


class Discovery(Protocol):
    """Where the processes of one cluster find each other's addresses. Used on one event loop, by
    one process: `enter`, then `look` now and then, then `leave`; without `enter` by a program that
    only wants to look."""

    @property
    def listen(self) -> tuple[str, ...]:
        """The addresses to listen at, the first one that can be had, if the program names none."""

    @property
    def listed(self) -> tuple[str, ...]:
        """The addresses of all processes that found the cluster together; empty: it is founded by
        the process for which `enter` returned True."""

    @property
    def founds(self) -> bool:
        """Whether somebody ever founds a cluster that is found in this way."""

    async def enter(self, member: MemberId, address: str) -> bool:
        """Make this process known. Return whether it is the one that founds the cluster: there is
        at most one, ever, as long as what the discovery keeps is not removed. Raises `OSError` or
        an error of the family."""

    async def claim(self) -> bool:
        """Return whether this process, which has entered and is in no primary view, founds the
        cluster now: the one that it found has ended since. Raises as `enter` does."""

    async def look(self) -> Sequence[str]:
        """Return the addresses that are known now, this process's own perhaps among them. Raises as
        `enter` does."""

    async def leave(self, last: bool) -> None:
        """Make this process known no more. `last`: the founding record that was there when this
        process entered, or looked last, stands for nothing any more, and the cluster may be founded
        again: all members of the primary view have left, or this process has created it, and
        founded nothing."""
