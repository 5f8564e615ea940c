"""Packs that are stored in the log and not visible to anybody yet, as plain data; the rules are in
`transactions.py`."""

from __future__ import annotations

import msgspec

from antiphon.broker.machine.queues.lanes import Special
from antiphon.formats.pack import PackHeader


class Notes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Facts about a pack's messages that the state machine keeps, for it reads the pack only
    once."""

    owner: str = ""  # whose they are: `Session.owner`
    specials: tuple[Special, ...] = ()  # empty: all are plain
    keys: dict[str, int] = {}  # of a last-value topic: -> the index of its last message


class Parked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pack that is stored and not visible."""

    index: int  # of the entry that has it
    header: PackHeader
    notes: Notes
    delay: int  # ms from when it is accepted until it is visible
    payload: bytes  # only of messages for a group itself, which are not delivered


class Staged(msgspec.Struct, frozen=True):
    """Packs that any session may commit."""

    expires: int
    packs: list[Parked]


class PendingPacks:
    """All packs that wait: for their time, or for a commit of any session. (Those that wait for a
    commit of their own session are with that one: `Session.staged`.)"""

    def __init__(self) -> None:
        self.delayed: dict[int, tuple[int, Parked]] = {}  # entry -> due, its pack
        self.staged: dict[str, Staged] = {}  # by handle
        self.count = 0  # of packs that are delayed or staged, also by sessions
        self.tokens: dict[str, int] = {}  # of commits -> remembered until
