"""The settings of a group, and what processes ask a name service."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from antiphon.errors import FormatError


class Ordering(StrEnum):
    """In which order the members of a group are given its messages."""

    NONE = "none"
    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL = "total"
    CAUSAL_TOTAL = "causal-total"


class Multicast(StrEnum):
    """Who gets a message whose sender crashes while it is sending it: whoever was reached before
    (basic), or all or none of the members that do not crash (reliable)."""

    BASIC = "basic"
    RELIABLE = "reliable"


class GroupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group, as the name service knows it: its name, its leader with the address at which others
    reach it, and the settings that all members share. `names`: the address of the name service, as
    the members know it."""

    name: str
    leader: str
    address: str
    ordering: Ordering
    multicast: Multicast
    names: str = ""


class Look(msgspec.Struct, frozen=True, tag=True):
    """Which settings does this group have?"""

    group: str


class Connect(msgspec.Struct, frozen=True, tag=True):
    """Here is a new group, unless there is one of this name already."""

    settings: GroupSettings


class Lead(msgspec.Struct, frozen=True, tag=True):
    """The sender leads this group, with these members."""

    settings: GroupSettings
    members: tuple[str, ...]


class Leave(msgspec.Struct, frozen=True, tag=True):
    """The leader leaves; `last`: the group ends with it."""

    group: str
    leader: str
    last: bool


Request: TypeAlias = Look | Connect | Lead | Leave

_request: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_groups = msgspec.json.Decoder(tuple[GroupSettings, ...])
_answer: msgspec.json.Decoder[GroupSettings | None] = msgspec.json.Decoder(GroupSettings | None)


def encode(request: Request | GroupSettings | None) -> str:
    """Return a request, or the answer to it, as text."""
    return msgspec.json.encode(request).decode()


def decode_request(text: str) -> Request:
    """Return the request in this text. Raise `FormatError`."""
    try:
        return _request.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FormatError(f"not a request to a name service: {error}") from None


def decode_answer(text: str) -> GroupSettings | None:
    """Return the settings in an answer. Raise `FormatError`."""
    try:
        return _answer.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FormatError(f"not an answer of a name service: {error}") from None


def encode_groups(groups: tuple[GroupSettings, ...]) -> bytes:
    """Return groups as the content of a file."""
    return msgspec.json.format(msgspec.json.encode(groups)) + b"\n"


def decode_groups(content: bytes) -> tuple[GroupSettings, ...]:
    """Return the groups in a file. Raise `FormatError`."""
    try:
        return _groups.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FormatError(f"these are not the groups of a name service: {error}") from None
