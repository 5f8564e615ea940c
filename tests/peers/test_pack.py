"""Packs on their way to the program: one message at a time, or lent to loops that may break off."""

from itertools import islice

import pytest

from antiphon.api.messages.message import Arrival
from antiphon.api.messages.sending import outgoing
from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.formats import columns, pack
from antiphon.peers.pack import Pack

BODIES = [bytes([n]) * n for n in range(10)]
MIXED = [*BODIES[:4], "text", *BODIES[5:]]


def pack_of(sent: list[bytes | str]) -> Pack:
    body, flags = columns.encode([outgoing(one, now_ms=0) for one in sent])
    whole = pack.encode("topic:c", len(sent), body, 1, 1, 0, flags)
    return Pack(Arrival(PeerColumns(whole, "a", None), 1, 1), len(sent))


def next_of(held: Pack) -> bytes | str:
    message = held.next()
    assert message is not None
    body: bytes | str = message.body
    return body


@pytest.mark.parametrize("sent", [BODIES, MIXED], ids=["bytes", "mixed"])
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


@pytest.mark.parametrize("sent", [BODIES, MIXED], ids=["bytes", "mixed"])
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
