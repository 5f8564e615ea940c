"""The whiteboard of a channel, as its program and its driver have it."""

import pytest

from antiphon.model.peer_views import MemberId
from antiphon.peers.layers.layer import Tell
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.whiteboard.whiteboard import Numbers, Whiteboard
from tests.peers.support.channels import Process
from tests.peers.support.scripted import Scripted

B, C = MemberId("b", 1), MemberId("c", 1)


def process(name: str) -> Process:
    return Process(name, Whiteboard(), Reliable(), Scripted())


def together() -> tuple[Process, Process]:
    a, b = process("a"), process("b")
    b.join(a, a.join(b))
    return a, b


def test_a_message_that_was_sent_with_it_carries_it() -> None:
    a, b = together()
    a.sent.clear()
    a.conversation.board.put(7)
    a.put("hello")
    assert [to for to, _ in a.sent] == [("b",)]
    b.receive_from(a)
    assert b.conversation.number_of("a") == 7
    assert b.received()[-1] == "hello"


def test_the_newest_number_alone_leaves() -> None:
    a, b = together()
    for number in range(5):
        a.conversation.board.put(number)
    a.pump()
    a.put("hello")
    b.receive_from(a)
    assert b.conversation.number_of("a") == 4


def test_the_own_number_is_there_at_once_and_stays() -> None:
    a, b = together()
    a.conversation.board.put(7)
    assert a.conversation.number_of("a") == 7
    a.pump()
    a.conversation.board.put(8)
    a.act(Tell(Numbers({a.me: 7, b.me: 1})))  # the layer does not know the 8 yet
    assert a.conversation.number_of("a") == 8
    assert a.conversation.number_of("b") == 1


def test_who_has_written_nothing_or_is_not_there_has_none() -> None:
    a, _ = together()
    for member in ("a", "b", "x", B, C):
        assert a.conversation.number_of(member) is None
    a.act(Tell(Numbers({C: 1})))  # it is connected, and not in the view yet
    assert a.conversation.number_of("c") is None
    assert a.conversation.number_of(C) is None
    with pytest.raises(TypeError, match="a member is its name"):
        a.conversation.number_of(7)  # type: ignore[arg-type]
