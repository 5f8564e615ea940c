"""A pack: messages for one destination, ordered, journaled and replicated as one `bytes`.

The servers read the header and never the body::

    0      4      5         6        8          16         24      28
    +------+------+---------+--------+----------+----------+-------+-------------+------+
    | crc  | ver  | flags=0 | dstlen | session  | sequence | count | destination | body |
    +------+------+---------+--------+----------+----------+-------+-------------+------+
      u32    u8     u8        u16      u64        u64        u32     utf-8

`crc` is the CRC32C of everything after it. `sequence` is the number of the pack's first message in
its session; session 0 has no sequence, and every pack of it counts. Integers are little-endian.
"""

from __future__ import annotations

import struct

import google_crc32c
import msgspec

from antiphon.errors import FormatError

VERSION = 1
COUNT_MAX = 1 << 20
_HEADER = struct.Struct("<IBBHQQI")


class PackHeader(msgspec.Struct, frozen=True, gc=False):
    destination: str
    count: int
    session: int
    sequence: int


def encode(destination: str, count: int, body: bytes, session: int = 0, sequence: int = 0) -> bytes:
    name = destination.encode()
    if not 0 < count <= COUNT_MAX:
        raise FormatError(f"a pack holds 1 to {COUNT_MAX} messages, not {count}")
    if len(name) > 0xFFFF:
        raise FormatError(f"a destination has at most 65535 bytes, not {len(name)}")
    head = _HEADER.pack(0, VERSION, 0, len(name), session, sequence, count)
    rest = b"".join((head[4:], name, body))
    return struct.pack("<I", google_crc32c.value(rest)) + rest


def read_header(pack: bytes) -> PackHeader:
    """The header alone; raises `FormatError` on what cannot be one. Does not check the CRC."""
    if len(pack) < _HEADER.size:
        raise FormatError(f"a pack has at least {_HEADER.size} bytes, not {len(pack)}")
    _, version, flags, length, session, sequence, count = _HEADER.unpack_from(pack)
    if version != VERSION or flags:
        raise FormatError(f"pack version {version}, flags {flags}: this server knows version 1")
    if not 0 < count <= COUNT_MAX or _HEADER.size + length > len(pack):
        raise FormatError(f"pack header out of bounds: count {count}, destination of {length}")
    try:
        destination = pack[_HEADER.size : _HEADER.size + length].decode()
    except UnicodeDecodeError:
        raise FormatError("a pack's destination is not UTF-8") from None
    return PackHeader(destination, count, session, sequence)


def check(pack: bytes) -> PackHeader:
    """The header of a pack that came from outside: everything about it is verified."""
    header = read_header(pack)
    if google_crc32c.value(pack[4:]) != int.from_bytes(pack[:4], "little"):
        raise FormatError(f"a pack for {header.destination!r} does not match its checksum")
    return header


def body(pack: bytes) -> bytes:
    return pack[_HEADER.size + int.from_bytes(pack[6:8], "little") :]
