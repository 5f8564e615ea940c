"""Frames of a stack as bytes, without the prefix that a connection adds.

::

    0       1        5
    +-------+--------+--------------------+--------+
    | level | length | headers: msgpack   | body   |
    +-------+--------+--------------------+--------+
      u8      u32 LE   `length` bytes       the rest
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Union, cast

import msgspec

from antiphon.errors import FormatError
from antiphon.model.peer_views import Level
from antiphon.peers.layers.layer import Body, Frame, Header, Layer

_PREFIX = struct.Struct("<BI")
_LEVELS = {int(level): level for level in Level}


class FrameCodec:
    """Encodes and decodes the frames of one stack: it knows the headers of its layers."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        kinds = tuple(kind for layer in layers for kind in layer.headers)
        union = cast(Any, Union)[kinds] if kinds else Header
        headers = cast(Any, list)[union]
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[list[Header]] = msgspec.msgpack.Decoder(headers)

    def encode(self, frame: Frame) -> bytes:
        return b"".join((self.encode_head(frame), frame.body))

    def encode_head(self, frame: Frame) -> bytes:
        """Return what stands before the body."""
        headers = self._encoder.encode(frame.headers)
        return _PREFIX.pack(frame.level, len(headers)) + headers

    def decode(self, data: Body) -> Frame:
        """Raise `FormatError` on what `encode` of an equal stack does not write."""
        view = memoryview(data)  # nothing is copied
        try:
            level, length = _PREFIX.unpack_from(view)
            start = _PREFIX.size + length
            if start > len(view):
                raise FormatError(f"a frame of {len(view)} bytes, with {length} of headers")
            headers = self._decoder.decode(view[_PREFIX.size : start])
            return Frame(view[start:], tuple(headers), _LEVELS[level])
        except (struct.error, KeyError, msgspec.DecodeError) as error:
            raise FormatError(f"not a frame of this stack: {error}") from error
