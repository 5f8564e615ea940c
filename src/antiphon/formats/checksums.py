"""Checksums of bytes that are put together, from those of the parts: without reading them again.

Packs and commands begin with the CRC32C of the rest. So the share of a large one in the checksum of
a frame or a record that has it inside follows from its first bytes alone.

Promise: the same checksum as by reading everything, as long as the bytes are as their maker summed
them. Bytes that were damaged since do not match: to sum it again on its way would hide that from
its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from crc32c import crc32c

Tables = tuple[list[int], ...]
"""Tables of a linear map: for each byte of a checksum, the lowest one first, its image."""

SUM_BYTES = 4
READ_BYTES = 128 << 10
"""Up to that, to read the bytes takes no longer than to do without."""

_ONES = 0xFFFFFFFF


def crc_with_nested(data: bytes, before: int) -> int:
    """Return the checksum of some bytes and then `data`, which begins with the checksum of its own
    rest; `before` is the checksum of those bytes."""
    if len(data) <= READ_BYTES:
        return crc32c(data, before)
    own = data[:SUM_BYTES]
    return joined(crc32c(own, before), int.from_bytes(own, "little"), len(data) - SUM_BYTES)


def joined(first: int, second: int, length: int) -> int:
    """Return the checksum of two pieces, one after the other, from theirs; `length` is the
    second's."""
    # It is that of the first one followed by as many zero bytes, XOR that of the second.
    power = 0
    while length:
        if length & 1:
            first = _mapped(_zeros(power), first)
        length >>= 1
        power += 1
    return first ^ second


@cache
def _zeros(power: int) -> Tables:
    """Return the map that 2**power zero bytes are to a checksum."""
    if power == 0:
        return _tables(lambda crc: crc32c(b"\0", crc ^ _ONES) ^ _ONES)
    half = _zeros(power - 1)
    return _tables(lambda crc: _mapped(half, _mapped(half, crc)))


def _mapped(tables: Tables, crc: int) -> int:
    a, b, c, d = tables
    return a[crc & 0xFF] ^ b[crc >> 8 & 0xFF] ^ c[crc >> 16 & 0xFF] ^ d[crc >> 24]


def _tables(linear: Callable[[int], int]) -> Tables:
    bits = [linear(1 << bit) for bit in range(32)]
    return tuple(_table(bits[low : low + 8]) for low in (0, 8, 16, 24))


def _table(bits: list[int]) -> list[int]:
    """Return, for each byte, the result of all its bits together."""
    table = [0]
    for bit in bits:
        table += [bit ^ other for other in table]
    return table
