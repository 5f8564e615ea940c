"""The messages of a server to its clients: answers, and those that it sends unasked, deliveries
first of all.

The machine and its snapshots store `Result` and `NotPublished`, to give the same answer again: a
change of them is a change of the snapshot's format.
"""

from __future__ import annotations

import msgspec

from antiphon.model.redelivery import Redelivery


class Published(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """All messages of a producer up to this one are settled: accepted, or refused as
    `NotPublished` stated."""

    producer: int
    sequence: int  # of the last message accepted; all before it are settled too


class NotPublished(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Messages `first` to `last` were refused, and will be however often they are sent."""

    producer: int
    first: int
    last: int
    code: str  # the name of an error in `errors.py`
    text: str


class ConsumerEnded(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Nothing more comes for this consumer, which the client did not close: another member has
    taken its place."""

    consumer: int
    code: str
    text: str


class Browsed(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """This browser has been sent all that there was when it was opened."""

    consumer: int


class Attached(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The session is attached to this server: how far it is settled, and the limits that the client
    must keep."""

    session: int
    attachment: int  # 1 for a new session, then 2, 3...
    published: tuple[tuple[int, int], ...]  # (producer, sequence) up to which all is settled
    refused: tuple[NotPublished, ...]  # among those, lately
    heartbeat_ms: int  # a client that is silent for three of these is gone
    pack_max: int
    deliveries_max: int = 10  # after this many a message goes to the dead letters
    redelivery: Redelivery | None = None  # the defaults; None: this server is of 0.1


class Result(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """The answer to `Control`."""

    number: int
    code: str = ""  # the name of an error in `errors.py`; empty: it was done
    text: str = ""
    value: int = 0
    data: bytes = b""
    redelivery: Redelivery | None = None  # `OpenConsumer` of a queue: the options that it has
    wait: int = 0  # `OpenConsumer`, `Join`: ms for which nothing is to be handed out


class Acked(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """The acknowledgements are certain."""

    number: int  # this `Ack` and all before it


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A pack, or a slice of one, for one consumer."""

    consumer: int
    position: int  # of the pack's first message
    stamp: int
    deliveries: int  # 1: never delivered before
    pack: bytes
    view: int = 0  # of a group: the one that these messages were ordered in
    age: int = 0  # ms by which the servers' time is past `stamp`, if some of them may expire
    reason: str = ""  # of a dead letter: why it is one


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """The answer to `Ping`."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """The session is over, or was not opened; nothing more comes on this connection."""

    code: str
    text: str


class Redirect(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """With local contexts: server `node` alone knows what this session, or the last one with this
    client id, has acknowledged. That server was asked to propose it; nothing more comes on this
    connection."""

    node: int
    address: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A request that cannot be granted, however often it is repeated. It had no effect."""

    reason: str
    code: str = ""  # the name of an error in `errors.py`; empty: the request makes no sense
