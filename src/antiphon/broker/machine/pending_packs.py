"""Packs that are stored in the log and not visible yet; the rules are in `transactions.py`."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.broker.machine.deadlines import DELAYED, STAGED, Deadlines
from antiphon.broker.machine.keys import Owner
from antiphon.broker.machine.queues.lanes import Special
from antiphon.errors import ResourceAllocationError
from antiphon.formats.pack import PackHeader

PACKS_MAX = 1_000_000
"""Packs of all sessions together that are stored and not visible."""

TOKENS_MAX = 1_000_000


class Notes(msgspec.Struct, frozen=True, gc=False):
    """Facts about a pack's messages that the state machine keeps, for it reads the pack only
    once."""

    owner: Owner  # their sender's `Session.owner`
    specials: tuple[Special, ...] = ()  # empty: all are plain
    keys: dict[str, int] = {}  # of a last-value topic: -> the index of its last message


class Parked(msgspec.Struct, frozen=True, gc=False):
    """A pack that is stored and not visible."""

    index: int  # of the entry that has it
    header: PackHeader
    notes: Notes
    delay: int  # ms from when it is accepted until it is visible
    payload: bytes  # only of messages for a group itself, which are not delivered

    def state(self) -> tuple[Any, ...]:
        """Return what snapshots have of it."""
        notes = (self.notes.owner.encoded, self.notes.specials, self.notes.keys)
        return self.index, self.header, notes, self.delay, self.payload

    @classmethod
    def from_state(cls, state: Any) -> Parked:
        """Return the pack that a snapshot has."""
        index, header, (owner, specials, keys), delay, payload = state
        notes = Notes(Owner.decoded(owner), msgspec.convert(specials, tuple[Special, ...]), keys)
        return cls(index, msgspec.convert(header, PackHeader), notes, delay, payload)


class Staged(msgspec.Struct, frozen=True):
    """Packs that any session may commit."""

    expires: int
    packs: list[Parked]


class PendingPacks:
    """All packs that wait: for their time, or for a commit of any session. (Those that wait for a
    commit of their own session are in that session, `Session.staged`, and only counted here.)

    Promise: `count` is the number of all packs that wait, and each that waits for its time, or for
    a commit of any session, has a deadline.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.delayed: dict[int, tuple[int, Parked]] = {}  # entry -> due, its pack
        self.staged: dict[str, Staged] = {}  # by handle
        self.count = 0  # of packs that are delayed or staged, also by sessions
        self.tokens: dict[str, int] = {}  # of commits -> remembered until

    def check_room(self) -> None:
        """Raise if no more packs can be stored."""
        if self.count >= PACKS_MAX:
            raise ResourceAllocationError(
                f"{PACKS_MAX} packs wait for a commit or for their time; no more can be stored"
            )

    def park(self) -> None:
        """Count a pack that waits for a commit of its own session."""
        self.count += 1

    def unpark(self, count: int) -> None:
        """Count packs that wait no longer for a commit of their own session."""
        self.count -= count

    def delay(self, due: int, parked: Parked) -> None:
        """Keep a pack until its time."""
        self.delayed[parked.index] = (due, parked)
        self.count += 1
        self._deadlines.add(due, DELAYED, parked.index)

    def take_due(self, index: int) -> Parked:
        """Remove and return a pack whose time has come."""
        _, parked = self.delayed.pop(index)
        self.count -= 1
        return parked

    def stage(self, handle: str, expires: int, packs: list[Parked]) -> None:
        """Keep packs under a handle until a commit names it."""
        self.staged[handle] = Staged(expires, packs)
        self.count += len(packs)
        self._deadlines.add(expires, STAGED, handle)

    def release(self, handle: str) -> None:
        """Forget a handle, if it exists: its packs were committed, or their time is over."""
        released = self.staged.pop(handle, None)
        if released is not None:
            self.count -= len(released.packs)

    def knows(self, token: str, stamp: int) -> bool:
        """Return whether a transaction was committed with this token."""
        return bool(token) and self.tokens.get(token, 0) > stamp

    def remember(self, token: str, stamp: int, until: int) -> None:
        """Remember the token of a commit, and forget tokens whose time is over."""
        if not token or self.knows(token, stamp):
            return
        while self.tokens and (
            len(self.tokens) >= TOKENS_MAX or next(iter(self.tokens.values())) <= stamp
        ):
            del self.tokens[next(iter(self.tokens))]
        self.tokens[token] = until

    # -- From a snapshot -----------------------------------------------------------------------

    def restore_staged(self, handle: str, parked: Parked) -> None:
        """Take a pack that was staged under a handle from a snapshot."""
        self.staged[handle].packs.append(parked)
        self.count += 1

    def restore_tokens(self, tokens: list[tuple[str, int]]) -> None:
        """Take tokens of commits from a snapshot."""
        self.tokens.update(tokens)
