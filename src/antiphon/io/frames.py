"""Cuts a stream of bytes into frames (`formats/wire.py`), many from one read.

Promise: however the bytes arrive, the same frames come out; a frame that announces more than the
limit, or does not match its checksum, raises `FormatError` before anything is kept for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.errors import FormatError
from antiphon.formats import wire

SMALL_BYTES = 64 << 10


class FrameReader:
    def __init__(self, limit: int) -> None:
        self.limit = limit  # of a frame's body; may change between two frames
        self._held: list[bytes] = []  # the beginning of a frame that has not arrived whole
        self._held_bytes = 0
        self._needed = 0  # bytes until it has

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies of the frames that are complete now; to be taken to the end."""
        if self._held:
            self._hold(data)
            if self._held_bytes < self._needed:
                return  # a large frame gathers without being looked at again and again
            data = b"".join(self._held)
            self._held, self._held_bytes = [], 0
        at = 0
        while (end := self._end(data, at)) <= len(data):
            _, crc = wire.prefix(data, at)
            yield wire.unframe(data[at + wire.PREFIX_SIZE : end], crc)
            at = end
        if at < len(data):
            self._hold(data[at:])
            self._needed = end - at

    def _hold(self, data: bytes) -> None:
        """Large pieces by reference; a growing buffer would be copied again and again."""
        if self._held and len(self._held[-1]) + len(data) <= SMALL_BYTES:
            self._held[-1] += data  # many small ones would cost more than they hold
        else:
            self._held.append(data)
        self._held_bytes += len(data)

    def _end(self, data: bytes, at: int) -> int:
        """Where the frame at `at` ends; until its length is known, where that would be."""
        start = at + wire.PREFIX_SIZE
        if start > len(data):
            return start
        length, _ = wire.prefix(data, at)
        if length > self.limit:
            raise FormatError(f"a frame of {length} bytes announced; the limit is {self.limit}")
        return start + length
