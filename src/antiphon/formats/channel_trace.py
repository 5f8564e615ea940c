"""Traces of channels: what one process of a cluster of peers sent, delivered and was shown, in its
own order.

A file is made of the records of `trace.py`, behind a header of its own (magic "APCT"); a row is the
fields of `ChannelEvent` in order, as one msgpack array. A row stands for a whole pack of messages,
since all members deliver a pack whole or not at all: messages `first` to `first + count - 1` of
their sender, which numbers its messages from 1 in each life.

A process is named by its life, and a view by its round and the life of its coordinator::

    life    | incarnation, hex | "." | name |
    view    | round | "." | life |
"""

from __future__ import annotations

from mmap import mmap
from typing import Literal

import msgspec

from antiphon.errors import FormatError
from antiphon.formats.trace import Records, encode_record
from antiphon.formats.trace import encode_header as encode_any_header
from antiphon.model.peer_views import MemberId, ViewId

MAGIC = b"APCT"
VERSION = 1

Kind = Literal["send", "receive", "deliver", "view", "end"]


class ChannelEvent(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One event at one process; the fields are the columns of the channels' table, in their order.

    `send`: the program's messages enter the stack. `receive`: the process holds safe messages, and
    may say so to the others. `deliver`: they are the program's, which may not have taken them yet.
    `view`: the same for a view. `end`: the process has left, or lost its cluster; a life without it
    was killed, or goes on.
    """

    run: str
    process: str
    incarnation: int  # of the file: 1 for the first life of this name in the run
    seq: int  # order at that process
    kind: Kind
    cluster: str
    life: str
    sender: str = ""
    first: int = -1
    count: int = 0
    level: int = -1
    to: tuple[str, ...] | None = None  # of a `send` that is not for all members
    view: str = ""  # the one that is shown, or that these messages belong to
    closing: bool = False  # delivered at the end of the view, by the change that ended it
    members: tuple[str, ...] = ()
    leader: str = ""
    primary: bool = False
    seats: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    past: tuple[str, ...] = ()  # of a primary view: what may have been shown before it
    founding: str = ""  # of a primary view: the one with which its chain began
    at: float = 0.0
    origin: str = ""  # of a view: the one that this process comes from, which may have been hidden


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ChannelEvent)


def encode_header() -> bytes:
    """Return the first bytes of a file."""
    return encode_any_header(MAGIC, VERSION)


def encode_event(event: ChannelEvent) -> bytes:
    """Return the record of an event."""
    return encode_record(_encoder.encode(event))


class ChannelReading(Records[ChannelEvent]):
    """The events of a file."""

    def __init__(self, data: bytes | mmap) -> None:
        super().__init__(data, MAGIC, VERSION, _decoder)


def life_text(life: MemberId) -> str:
    """Return a life as rows have it."""
    return f"{life.incarnation:x}.{life.name}"


def life_of(text: str) -> MemberId:
    """Return the life of this text. Raises `FormatError`."""
    number, _, name = text.partition(".")
    try:
        return MemberId(name, int(number, 16))
    except ValueError:
        raise FormatError(f"{text!r} is not the life of a process") from None


def view_text(view: ViewId) -> str:
    """Return a view's id as rows have it."""
    return f"{view.round}.{life_text(view.coordinator)}"


def view_of(text: str) -> ViewId:
    """Return the id of this text. Raises `FormatError`."""
    number, _, life = text.partition(".")
    try:
        return ViewId(int(number), life_of(life))
    except ValueError:
        raise FormatError(f"{text!r} is not the id of a view") from None
