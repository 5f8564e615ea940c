"""What clients and servers say to each other, in frames as between servers (`wire.py`).

A first, small protocol: publish packs exactly once, read what was accepted from a position on, ask
for the state of the server, and change the cluster. Everything here raises `FormatError` on bytes
that are not such a message.

**Publishing.** A client numbers its messages in a session of its own (`formats/pack.py`) and sends
packs in order. `Published` is cumulative: everything up to that sequence was accepted. What is
unanswered when a connection is lost is sent again, with the same numbers, to any server.

**Reading.** `Tail` asks for all packs from a position on, now and in future; `Credit` allows the
server to send that many more bytes of packs.
"""

from __future__ import annotations

import msgspec

from antiphon.errors import FormatError
from antiphon.formats.entry import Membership, ReplicaId

PACK_MAX = 65 << 20
"""A message of 64 MiB, its headers, and the pack's own."""

REQUEST_MAX = PACK_MAX + 1024


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    pack: bytes


class Tail(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    first: int  # the position to begin with
    credit: int  # bytes of packs that may be sent


class Credit(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    more: int


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    pass


class AskBarrier(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Answer when this server's state reflects all that is committed anywhere now."""

    request: int


class Add(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    node: int
    address: str


class Remove(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    node: int


class Transfer(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    node: int


Change = Add | Remove | Transfer
Request = Publish | Tail | Credit | AskStatus | AskBarrier | Add | Remove | Transfer


class Published(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    session: int
    sequence: int  # of the last message accepted


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A request that cannot be granted, however often it is repeated. It had no effect."""

    reason: str


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    position: int  # of the pack's first message
    stamp: int
    pack: bytes


class Status(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """One server's view of itself and of the cluster."""

    id: ReplicaId
    pid: int
    role: str
    epoch: int
    leader: ReplicaId | None
    membership: Membership
    addresses: dict[int, str]  # of the servers that it knows
    committed: int
    applied: int
    position: int  # of the last accepted message
    digest: int  # of its state, to be compared at equal `applied`
    cpu_s: float
    trouble: tuple[str, ...]  # why it does not take part as it should


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    request: int
    position: int  # the last one accepted, as of some moment after the request


class Asked(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The leader has been told of the change; `Status` shows when it has happened."""


class NotLeader(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Only a leader changes the cluster. Nothing was changed."""

    leader: int | None
    address: str


Answer = Published | Refused | Delivered | Status | Barrier | Asked | NotLeader

_encoder = msgspec.msgpack.Encoder()
_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    return _encoder.encode(message)


def decode_request(body: bytes) -> Request:
    try:
        return _request.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a client's request: {error}") from None


def decode_answer(body: bytes) -> Answer:
    try:
        return _answer.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a server's answer: {error}") from None
