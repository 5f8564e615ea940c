"""Cuts a stream of bytes into frames (`formats/frames.py`), many from one read.

Promise: however the bytes arrive, the same frames come out; a frame that announces more than the
limit, or does not match its checksum, raises `FormatError` before anything is kept for it.

The caller asks where the bytes go (`room`) and then says how many came (`arrived`). Small frames
come by way of a buffer that all connections of a thread share, so that an idle one has none; the
rest of a larger frame goes straight to where it stays. For a large one that is memory which the
system hands out page by page as it is written to: no step clears, moves or copies all of it, so
other connections do not wait for one.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator

from antiphon.errors import FormatError
from antiphon.formats import frames

SHARED_BYTES = 64 << 10
AHEAD = 32
"""A frame that has not arrived whole gets room for this many times the bytes that did arrive: a
peer that only announces a large one costs little."""


class _Shared(threading.local):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(SHARED_BYTES))


_shared = _Shared()


class FrameReader:
    """Cuts the bytes of one connection into frames; promises are the module's."""

    def __init__(self, limit: int, at_once: int = SHARED_BYTES) -> None:
        self.limit = limit  # of a frame's body; may change between two frames
        self.at_once = (
            at_once  # bytes of small frames in one read, up to `SHARED_BYTES`; may change
        )
        self._start = b""  # of a frame whose length is not known yet
        # Of a frame that has not arrived whole, with room for more of it.
        self._body: bytearray | memoryview = bytearray()
        self._there = 0  # bytes of it
        self._length = 0  # 0: there is none
        self._crc = 0

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._length:
            return memoryview(self._body)[self._there :]
        return _shared.buffer[: self.at_once]

    @property
    def announced(self) -> int:
        """The size of a frame that has not arrived whole."""
        return self._length

    @property
    def room_kept(self) -> int:
        """For a frame that has not arrived whole."""
        return len(self._body) if self._length <= frames.LARGE_FRAME else self._there

    def arrived(self, count: int) -> Iterator[frames.Body]:
        """So many bytes are there: the bodies of the frames that are complete now. To be taken to
        the end, in the thread that read them and before it reads more."""
        if self._length:
            self._there += count
            if self._there == self._length:
                body, self._body = self._body, bytearray()
                self._there = self._length = 0
                yield frames.unframe(body, self._crc)
            elif self._there == len(self._body):
                self._make_room()
            return
        data = self._start + bytes(_shared.buffer[:count])
        at = 0
        while (start := at + frames.PREFIX_SIZE) <= len(data):
            length, crc = frames.PREFIX.unpack_from(data, at)
            if length > self.limit:
                raise FormatError(f"a frame of {length} bytes announced; the limit is {self.limit}")
            at = start + length
            if at > len(data):
                self._start, self._length, self._crc = b"", length, crc
                self._body, self._there = bytearray(data[start:]), len(data) - start
                self._make_room()
                return
            yield frames.unframe(data[start:at], crc)
        self._start = data[at:]

    def _make_room(self) -> None:
        there = self._body
        if self._length > frames.LARGE_FRAME:
            self._body = memoryview(mmap.mmap(-1, self._length))
        else:
            self._body = bytearray(min(self._length, AHEAD * (len(there) + frames.PREFIX_SIZE)))
        self._body[: len(there)] = there
