"""Commands: the proposals of servers to the state machine in addition to packs of messages, as log
entries.

::

    0      4      5
    +------+------+--------------------------+
    | crc  | 0x81 | msgpack list of commands |
    +------+------+--------------------------+

The fifth byte distinguishes a command from a pack, whose version stands there (`pack.py`). Every
command can be proposed twice: applying it a second time changes nothing.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from antiphon.errors import FormatError
from antiphon.formats.protocol import AckRow, Body

MARK = 0x81

Rows = tuple[tuple[int, tuple[AckRow, ...]], ...]
"""Sessions, and the acknowledgements of each."""


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A client is connected to server `node`: a new session, or one that goes on there."""

    session: int  # drawn at random by the client
    token: bytes  # a digest of the client's secret: a journal gives no session away
    resume: bool  # the session must exist
    attempt: int  # the client's; an older one, proposed again, must not win the session back
    node: int
    life: int  # drawn at each start of that server; and
    link: int  # the connection there, by which it knows its own proposal again
    client_id: str
    lease_ms: int
    sequences: tuple[tuple[int, int], ...]  # (producer, sequence) with which the client goes on
    local: bool = False  # that server keeps acknowledgements to itself for a while (`Begin`)


class Detach(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The connection of this attachment is lost: the lease begins."""

    session: int
    attachment: int


class Request(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A request of a client (`protocol.Control`)."""

    session: int
    number: int
    body: Body


class Acks(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Acknowledgements of all clients of one server since its last such command."""

    node: int
    life: int
    batch: int  # by which that server knows them again
    rows: Rows


class Renew(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """A server with clients lives. Without this, or after a new `life`, the leases of its clients
    begin."""

    node: int
    life: int


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """A server with local contexts begins a life. All that its journal kept from its former lives
    is in the log by now: so its clients are free to go on, here or elsewhere."""

    node: int
    incarnation: int
    opening: int  # of its journal, which counts them: a late `Begin` of a former life is ignored
    life: int


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The process of a server has ended, or the others go on without it: the leases of its clients
    begin. Written by processes that are servers themselves (`peer:`), which agree on that."""

    node: int


Command = Attach | Detach | Request | Acks | Renew | Begin | Gone

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Command]] = msgspec.msgpack.Decoder(list[Command])


def encode(commands: list[Command]) -> bytes:
    """Return the payload of an entry with these commands."""
    rest = bytes((MARK,)) + _encoder.encode(commands)
    crc: int = crc32c(rest)
    return crc.to_bytes(4, "little") + rest


def is_command(payload: bytes) -> bool:
    """Return whether a payload is commands, and no pack."""
    return len(payload) > 4 and payload[4] == MARK


def decode(payload: bytes) -> list[Command]:
    """Return the commands of a payload. Raise `FormatError`."""
    if crc32c(memoryview(payload)[4:]) != int.from_bytes(payload[:4], "little"):
        raise FormatError("a command does not match its checksum")
    try:
        return _decoder.decode(memoryview(payload)[5:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a command: {error}") from None


# -- In the journal of a server with local contexts ------------------------------------------------

_rows_decoder: msgspec.msgpack.Decoder[Rows] = msgspec.msgpack.Decoder(Rows)


def encode_rows(rows: Rows) -> bytes:
    """Return acknowledgements as a local record."""
    return _encoder.encode(rows)


def decode_rows(data: bytes) -> Rows:
    """Return the acknowledgements of a local record. Raise `FormatError`."""
    try:
        return _rows_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not acknowledgements: {error}") from None
