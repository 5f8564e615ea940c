"""Cuts a stream of bytes into frames (`formats/wire.py`), many from one read.

Promise: however the bytes arrive, the same frames come out; a frame that announces more than the
limit, or does not match its checksum, raises `FormatError` before anything is kept for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.errors import FormatError
from antiphon.formats import wire


class FrameReader:
    def __init__(self, limit: int) -> None:
        self.limit = limit  # of a frame's body; may change between two frames
        self._held = bytearray()  # the beginning of a frame that has not arrived whole
        self._needed = 0  # bytes until it has

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """The bodies of the frames that are complete now; to be taken to the end."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return  # a large frame gathers without being looked at again and again
            data, self._held = self._held, bytearray()
        view = memoryview(data)  # so that a large body is copied once
        at = 0
        while (end := self._end(data, at)) <= len(data):
            _, crc = wire.prefix(data, at)
            yield wire.unframe(bytes(view[at + wire.PREFIX_SIZE : end]), crc)
            at = end
        self._held += view[at:]
        self._needed = end - at

    def _end(self, data: bytes | bytearray, at: int) -> int:
        """Where the frame at `at` ends; until its length is known, where that would be."""
        start = at + wire.PREFIX_SIZE
        if start > len(data):
            return start
        length, _ = wire.prefix(data, at)
        if length > self.limit:
            raise FormatError(f"a frame of {length} bytes announced; the limit is {self.limit}")
        return start + length
