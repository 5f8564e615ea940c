"""Packs on their way to the program: one message at a time, or lent to loops that may break off."""

import pickle
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

import antiphon
from antiphon.api.messages.arriving import CUT_BYTES
from antiphon.api.messages.message import Arrival
from antiphon.api.messages.sending import outgoing
from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.formats import columns, pack
from antiphon.peers.pack import Pack

BODIES = [bytes([n]) * n for n in range(10)]
MIXED = [*BODIES[:4], "text", *BODIES[5:]]
LARGE = [body * CUT_BYTES for body in BODIES]
KINDS = pytest.mark.parametrize(
    "sent", [BODIES, MIXED, LARGE], ids=["bytes", "mixed", "large bytes"]
)


def encoded(sent: Sequence[Any]) -> bytes:
    body, flags = columns.encode([outgoing(one, now_ms=0) for one in sent])
    return pack.encode("topic:c", len(sent), body, 1, 1, 0, flags)


def pack_of(sent: Sequence[Any], whole: bytes = b"") -> Pack:
    whole = whole or encoded(sent)
    return Pack(Arrival(PeerColumns(whole, "a", None), 1, 1), len(sent))


def next_of(held: Pack) -> bytes | str:
    message = held.next()
    assert message is not None
    body: bytes | str = message.body
    return body


@KINDS
def test_what_a_loop_has_not_taken_goes_to_who_asks(sent: list[bytes | str]) -> None:
    held = pack_of(sent)
    assert next_of(held) == sent[0]
    loop = held.lend()
    assert loop is not None
    assert [message.body for message in islice(loop, 3)] == sent[1:4]
    assert next_of(held) == sent[4]
    assert list(loop) == []
    rest = held.lend()
    assert rest is not None
    assert [message.body for message in rest] == sent[5:]
    assert held.lend() is held.next() is None


@KINDS
def test_two_loops_share_a_pack(sent: list[bytes | str]) -> None:
    held = pack_of(sent)
    bodies = []
    while (loop := held.lend()) is not None:
        bodies += [message.body for message in islice(loop, 2)]
    assert bodies == sent


def test_what_is_called_in_is_not_handed_out_before_somebody_asks() -> None:
    held = pack_of(BODIES)
    loop = held.lend()
    assert loop is not None
    next(loop)
    held.call_in()
    assert list(loop) == []
    assert next_of(held) == BODIES[1]


@KINDS
def test_a_large_pack_is_a_view_and_its_messages_are_like_others(sent: list[bytes | str]) -> None:
    """It comes as a view of its frame; whoever takes a message gets what is its own."""
    frame = bytearray(encoded(sent))
    for held in (pack_of(sent, memoryview(frame)), pack_of(sent, memoryview(frame))):  # type: ignore[arg-type]
        assert next_of(held) == sent[0]
        loop = held.lend()
        assert loop is not None
        bodies = [message.body for message in loop]
        assert bodies == sent[1:]
        assert {type(body) for body in bodies} <= {bytes, str}


def test_a_message_of_a_large_pack_has_its_headers_and_can_be_pickled() -> None:
    message = antiphon.TextMessage("Fire!")
    message.properties["floor"] = 4
    frame = bytearray(encoded([b"x", message]))
    held = pack_of([b"x", message], memoryview(frame))  # type: ignore[arg-type]
    held.next()
    received = held.next()
    assert isinstance(received, antiphon.TextMessage)
    for one in (received, pickle.loads(pickle.dumps(received))):
        assert (one.text, one.properties["floor"], one.timestamp) == ("Fire!", 4, 0)
