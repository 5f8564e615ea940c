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
        self._start = b""  # of a frame whose length is not known yet
        self._held: list[bytes] = []  # of the body of a frame that has not arrived whole
        self._missing = 0  # bytes of it
        self._crc = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies of the frames that are complete now; to be taken to the end."""
        at = 0
        if self._missing:
            if len(data) < self._missing:
                self._hold(data)
                return  # a large frame gathers without being looked at again and again
            at = self._missing
            yield self._complete(memoryview(data)[:at])
        elif self._start:
            data = self._start + data
        while (start := at + wire.PREFIX_SIZE) <= len(data):
            length, crc = wire.prefix(data, at)
            if length > self.limit:
                raise FormatError(f"a frame of {length} bytes announced; the limit is {self.limit}")
            at = start + length
            if at > len(data):
                self._start, self._held = b"", [data[start:]]
                self._missing, self._crc = at - len(data), crc
                return
            yield wire.unframe(data[start:at], crc)
        self._start = data[at:]

    def _hold(self, data: bytes) -> None:
        """Large pieces by reference; a growing buffer would be copied again and again."""
        if len(self._held[-1]) + len(data) <= SMALL_BYTES:
            self._held[-1] += data  # many small ones would cost more than they hold
        else:
            self._held.append(data)
        self._missing -= len(data)

    def _complete(self, rest: memoryview) -> bytes:
        body = b"".join((*self._held, rest))  # copied once
        self._held, self._missing = [], 0
        return wire.unframe(body, self._crc)
