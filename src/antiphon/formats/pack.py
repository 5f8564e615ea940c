"""A pack: messages for one destination, ordered, journaled and replicated as one `bytes`.

The servers read the header and never the body::

    0      4      5       6        8          16         24      28         32
    +------+------+-------+--------+----------+----------+-------+----------+-------------+------+
    | crc  | ver  | flags | dstlen | session  | sequence | count | producer | destination | body |
    +------+------+-------+--------+----------+----------+-------+----------+-------------+------+
      u32    u8     u8      u16      u64        u64        u32     u32        utf-8

`crc` is the CRC32C of everything after it. `sequence` is the number of the pack's first message in
its session, or, if `producer` is not 0, in that named producer of the session. The body has the
messages as columns (`columns.py`). Integers are little-endian.

Version 1 had no producer and no columns; no release wrote it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from antiphon.errors import FormatError

VERSION = 2
COUNT_MAX = 1 << 20
FULL_BYTES = 1 << 20
"""A sender adds no more messages to a pack of this size; a larger message is a pack of its own."""

FULL_MESSAGES = 16_384  # empty ones have that size, as the sender counts them
NON_PERSISTENT = 1
"""The sender was answered before a majority had the pack: it reaches all subscribers or none."""

EXTRAS = 2
"""Some message has headers or properties beyond the common ones."""

CONTROL = 4
"""The messages are for the group itself (`JMS_remove` and others), and are not delivered."""

STAGED = 8
"""Part of a transaction: the messages are stored, and not delivered before it is committed."""

SPECIAL = 16
"""Some message has a priority, a time to live or a `JMSXGroupID`: servers look at the extras."""

DELAYED = 32
"""The messages are not delivered before the delivery delay is over, which all of them share."""

FLAGS = NON_PERSISTENT | EXTRAS | CONTROL | STAGED | SPECIAL | DELAYED
_HEADER = struct.Struct("<IBBHQQII")


class PackHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed beginning of a pack: where its messages go, and which they are of their session."""

    destination: str
    count: int
    session: int
    sequence: int
    producer: int = 0
    flags: int = 0

    @property
    def last(self) -> int:
        """The sequence of the last message."""
        return self.sequence + self.count - 1


class LogPack(NamedTuple):
    """An accepted pack, for readers of the log: the `position` of its first message, its `stamp`
    (ms, by the log's clock), its group's `view` (0: it is for none), and its bytes, which
    `docs/formats.md` draws."""

    position: int  # of its first message
    stamp: int  # ms; when it was accepted, by the log's clock
    view: int  # of its group; 0: it is for none
    pack: bytes


def encode(
    destination: str,
    count: int,
    body: bytes,
    session: int = 0,
    sequence: int = 0,
    producer: int = 0,
    flags: int = 0,
) -> bytes:
    """Return a pack with this body."""
    name = destination.encode()
    if not 0 < count <= COUNT_MAX:
        raise FormatError(f"a pack holds 1 to {COUNT_MAX} messages, not {count}")
    if len(name) > 0xFFFF:
        raise FormatError(f"a destination has at most 65535 bytes, not {len(name)}")
    head = _HEADER.pack(0, VERSION, flags, len(name), session, sequence, count, producer)[4:] + name
    crc = crc32c(body, crc32c(head))
    return b"".join((struct.pack("<I", crc), head, body))  # the body is copied once


def read_header(pack: bytes) -> PackHeader:
    """Return the header of a pack, its checksum not verified. Raise `FormatError` on bytes that
    cannot be one."""
    if len(pack) < _HEADER.size:
        raise FormatError(f"a pack has at least {_HEADER.size} bytes, not {len(pack)}")
    _, version, flags, length, session, sequence, count, producer = _HEADER.unpack_from(pack)
    if version != VERSION or flags & ~FLAGS:
        raise FormatError(f"pack version {version}, flags {flags}: this server knows {VERSION}")
    if not 0 < count <= COUNT_MAX or _HEADER.size + length > len(pack):
        raise FormatError(f"pack header out of bounds: count {count}, destination of {length}")
    try:
        destination = str(pack[_HEADER.size : _HEADER.size + length], "utf-8")
    except UnicodeDecodeError:
        raise FormatError("a pack's destination is not UTF-8") from None
    return PackHeader(destination, count, session, sequence, producer, flags)


def flags_of(pack: bytes) -> int:
    """Return the flags of a pack whose header is good."""
    return pack[5]


def check(pack: bytes) -> PackHeader:
    """Return the header of a pack that came from outside, after everything about it was
    verified."""
    header = read_header(pack)
    if crc32c(memoryview(pack)[4:]) != int.from_bytes(pack[:4], "little"):
        raise FormatError(f"a pack for {header.destination!r} does not match its checksum")
    return header


def body_start(pack: bytes) -> int:
    """Return where the body of a pack begins."""
    return _HEADER.size + int.from_bytes(pack[6:8], "little")


def body(pack: bytes) -> bytes:
    """Return the body of a pack."""
    return pack[body_start(pack) :]
