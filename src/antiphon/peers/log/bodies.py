"""Bodies: what the processes of a `peer:` URL send each other over their channel.

All but `Relayed` go to all of them, and arrive in one order. Frames and their checksums are the
channel's.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from antiphon.errors import FormatError
from antiphon.formats.server_messages import Relay
from antiphon.model.peer_views import ViewId


class Proposed(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Payloads of entries, and the log's time as the process has it that proposes them. Without
    payloads it says only how late it is."""

    stamp: int
    payloads: tuple[bytes, ...]


class Reigns(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """From the first member of a view that has the state: the log's time goes on from here, as this
    process has it. Until then it stands still in that view."""

    stamp: int
    view: ViewId


class Asked(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Nothing: when it is back, its sender has all that was ordered before it asked."""

    number: int


class Relayed(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """To one process: a message for a client that is attached there."""

    message: Relay


Body: TypeAlias = Proposed | Reigns | Asked | Relayed

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Body] = msgspec.msgpack.Decoder(Body)


def encode(body: Body) -> bytes:
    return _encoder.encode(body)


def decode(data: bytes) -> Body:
    """Return what these bytes are. Raise `FormatError`."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not of the log: {error}") from None
