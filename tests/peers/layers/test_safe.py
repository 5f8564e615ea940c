"""A message of level safe is handed out when all members hold it."""

import pytest

from antiphon.model.peer_views import Level
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.uniform import Uniform
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import Storm, change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Reliable(), Scripted(), Safe())
TOTAL = Stack(Reliable(), Scripted(), Uniform(), Safe(), Total())


def group(stack: Stack = STACK, names: str = "abc", seed: int = 0) -> Group:
    made = Group(stack, *names, seed=seed)
    change(made, *names)
    return made


def test_it_waits_for_the_last_member() -> None:
    g = group()
    g.send("a", "a1", level=Level.SAFE)
    g.move("a", "b")
    g.tick()
    g.move("b", "a")
    assert g.got("a") == g.got("b") == []
    g.move("a", "c")
    assert g.got("c") == []
    g.run()
    assert g.got("a") == g.got("b") == g.got("c") == ["a1"]
    assert g.now_ms == 0


def test_what_the_same_member_sends_behind_it_waits_and_others_do_not() -> None:
    g = group()
    g.send("a", "a1", level=Level.SAFE)
    g.send("a", "a2", level=Level.FIFO)
    g.send("b", "b1", level=Level.FIFO)
    assert g.got("a") == []
    assert g.got("b") == ["b1"]
    g.run()
    assert g.got("b") == ["b1", "a1", "a2"]


def test_lower_levels_do_not_wait() -> None:
    g = group()
    g.send("a", "a1", level=Level.FIFO)
    g.send("a", "a2", to=["a", "b"], level=Level.SAFE)
    assert g.got("a") == ["a1", "a2"]


def test_who_goes_on_hands_it_out_before_the_view() -> None:
    g = group()
    g.send("a", "a1", level=Level.SAFE)
    g.move("a", "b")
    g.crash("c")
    change(g, "a", "b")
    assert g.history("a") == g.history("b") == ["[a b c]", "a1", "[a b]"]


def test_it_is_not_handed_out_if_it_is_not_in_the_view() -> None:
    g = group()
    g.send("a", "a1", level=Level.SAFE)
    g.move("a", "b")
    g.freeze("b", "c")
    g.install("b", "c", cut={"a": 0})
    assert g.history("b") == ["[a b c]", "[b c]"]


def test_it_keeps_its_place_in_the_total_order() -> None:
    g = group(TOTAL)
    g.send("b", "b1", level=Level.SAFE)
    g.move("b", "a")
    g.send("c", "c1", level=Level.AGREED)
    g.move("c", "a")
    g.move("a", "b")
    assert g.got("b") == []
    g.run()
    assert g.got("a") == g.got("b") == g.got("c") == ["b1", "c1"]
    assert g.now_ms == 0


@pytest.mark.parametrize("seed", range(10))
def test_through_a_storm_with_views_all_have_one_order(seed: int) -> None:
    g = group(TOTAL, "abcd", seed)
    storm = Storm(g, seed, [Level.AGREED, Level.SAFE])
    storm.blow(400, changes=True)
    g.advance(2000)
    for name in "abcd":
        assert g.got(name) == g.got("a")
        assert [text for text in g.got("a") if text.startswith(name)] == storm.sent[name]
