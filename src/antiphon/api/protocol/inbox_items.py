"""The items of an inbox that are not plain packs: messages that may expire, messages of a group,
and the events that its members get.

A group event stands between two messages, so it waits among them in the inbox: as a slice whose
columns are a `Notice`. Messages are known by their positions, events by their serial numbers; as
one number for both, an event's is negative (`key`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import FormatError
from antiphon.formats.columns import Columns, decode_extra, expires
from antiphon.formats.protocol import RELATION, STATE, GroupEvent
from antiphon.model.conflicts import ConflictRelation


class GroupColumns(Columns):
    """A pack of messages for a group, which were ordered in one view."""

    __slots__ = ("view", "view_id")

    def __init__(self, pack: bytes, view_id: int) -> None:
        super().__init__(pack)
        self.view_id = view_id
        self.view: Any = None  # the `View`, once its members are known


class PeerColumns(GroupColumns):
    """A pack of messages of a channel, which has no servers: with its sender."""

    __slots__ = ("sender",)

    def __init__(self, pack: bytes, sender: str, view: Any) -> None:
        super().__init__(pack, 0)
        self.sender = sender
        self.view = view


class PerishableColumns(Columns):
    """A pack with messages that may expire while they wait here."""

    __slots__ = ("_visible_ms",)

    def __init__(self, pack: bytes, visible_ms: int) -> None:
        """`visible_ms`: when they could first be delivered, by this client's clock."""
        super().__init__(pack)
        self._visible_ms = visible_ms

    def is_over(self, i: int, now_ms: int) -> bool:
        try:
            extra = decode_extra(self.extra(i))
        except FormatError:
            return False  # reading its headers raises that
        return 0 < expires(extra, self._visible_ms) <= now_ms


class Notice:
    """A group event in the place of a pack's columns."""

    __slots__ = ("event", "kinds")

    def __init__(self, event: GroupEvent) -> None:
        self.event = event
        self.kinds = b""  # no messages

    @property
    def is_internal(self) -> bool:
        """Return whether the application does not get this event."""
        return self.event.kind in (RELATION, STATE)


class Admission(msgspec.Struct, frozen=True):
    """The answer of the servers to a member that joins (`protocol.Join`)."""

    view: int
    name: str
    relation: ConflictRelation
    members: tuple[str, ...]
    waits_for_state: bool


_admission = msgspec.msgpack.Decoder(tuple[str, str, tuple[str, ...], bool])


def admission(view: int, data: bytes) -> Admission:
    name, relation, members, waits = _admission.decode(data)
    return Admission(view, name, ConflictRelation.from_json(relation), members, waits)


def key(event: GroupEvent) -> int:
    return -event.serial
