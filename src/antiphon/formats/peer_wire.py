"""What processes of a channel say to each other beside the frames of their stacks: who they are,
and how a connection begins and ends.

Each is the body of a frame as in `frames.py`. The first one each way is a `PeerHello`, the second
one `Ready`, or `Refused` by a process that does not want this connection. From then on the bodies
are frames of the stack, or, if they begin with `MARK`, words about the connection. No frame of a
stack begins with it: its first byte is a level (`peers/stack/codec.py`).

::

    dials                              listens
      | ------------ PeerHello ----------> |
      | <------- PeerHello, Ready -------- |
      | ------------- Ready -------------> |
      | <------- frames both ways -------> |
      | ------ Goodbye, or nothing ------> |

A program that is no process of the cluster, as `antiphon peers` is none, sends a `Question` in
place of all that, and gets an `Answer`.

Everything here raises `FormatError` on bytes that are not as drawn.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from antiphon.errors import FormatError
from antiphon.formats.frames import Body
from antiphon.model.peer_views import MemberId

MAGIC = "antiphon peer"
OLDEST = NEWEST = 1

HELLO_MAX = 16 << 10
"""Limit of the bytes in the body of a `PeerHello`, and of all messages before `Ready`. The longest
name of a process, that of a cluster (`NAME_MAX` characters) and a printed stack fit, two of each in
a refusal."""

PROCESS_NAME_MAX = 1024
"""Bytes of a process's name."""

STACK_MAX = 2048
"""Bytes of a printed stack that go into a `PeerHello`."""

MARK = 0xFF


class PeerHello(msgspec.Struct, frozen=True, array_like=True):
    """The first words of a process: what it belongs to, and who it is."""

    magic: str
    oldest: int
    newest: int
    cluster: str
    digest: int  # of its stack
    stack: str  # printed, for people
    member: MemberId
    address: str  # where it can be dialled; without a host: at the one that it comes from


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This process wants to use this connection."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This connection is not wanted, and ends. `again`: a later attempt may succeed. `replaced`: a
    primary view has another process of the same name; if the one that is refused was in a view
    before, it has no way back."""

    reason: str
    again: bool
    replaced: bool = False


class Goodbye(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This process ends, and means to."""


class Doubled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """There is another connection between these two, which is used instead."""


class Question(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The only words of a program that does not take part: it asks a process of this cluster for
    its status ("status"), for that of the server in it ("server", of `peer:` URLs alone), or to
    found the cluster anew ("reform")."""

    cluster: str
    what: str


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer in JSON, or, if it is not `good`, why there is none."""

    good: bool
    text: str


Word: TypeAlias = Ready | Refused | Goodbye | Doubled | Question | Answer

_encoder = msgspec.msgpack.Encoder()
_hello = msgspec.msgpack.Decoder(PeerHello)
_word: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def printed(stack: str) -> str:
    """Return a printed stack, or as much of it as goes into a handshake."""
    return stack.encode()[:STACK_MAX].decode(errors="ignore")


def encode_hello(hello: PeerHello) -> bytes:
    """Return the body of a handshake."""
    return _encoder.encode(hello)


def decode_hello(body: Body) -> PeerHello:
    """Return the handshake in this body. Raise `FormatError`."""
    try:
        hello = _hello.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not the handshake of a channel: {error}") from None
    if hello.magic != MAGIC:
        raise FormatError(f"not the handshake of a channel: magic {hello.magic!r}")
    return hello


def why_not(own: PeerHello, other: PeerHello) -> str:
    """Return why these two cannot be in one channel, as the first one says it; "" if they can."""
    if other.cluster != own.cluster:
        return f"{other.member} belongs to the cluster {other.cluster!r}, not to {own.cluster!r}"
    if max(own.oldest, other.oldest) > min(own.newest, other.newest):
        return (
            f"no common wire version: {own.member} speaks {own.oldest} to {own.newest}, "
            f"{other.member} speaks {other.oldest} to {other.newest}"
        )
    if other.digest != own.digest:
        return (
            f"{other.member} runs another stack, {other.stack!r}; that of {own.member} is "
            f"{own.stack!r}. All members of a cluster need the same"
        )
    return ""


def encode_word(word: Word) -> bytes:
    """Return the body of a word about the connection."""
    return bytes((MARK,)) + _encoder.encode(word)


def decode_word(body: Body) -> Word:
    """Return the word in this body. Raise `FormatError`."""
    if not body or body[0] != MARK:
        raise FormatError(f"a frame of {len(body)} bytes, which is not about the connection")
    try:
        return _word.decode(body[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a word about a connection: {error}") from None
