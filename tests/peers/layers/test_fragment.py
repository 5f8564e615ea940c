"""Bodies of any size, in pieces that the network takes."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.model.peer_views import Level
from antiphon.peers.layers.fragment import PARTIAL_MAX, Fragment
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import change, reconnect
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

PLAIN = Stack(Fragment(size=4), Scripted())
RELIABLE = Stack(Fragment(size=4), Reliable(), Scripted())


def group(stack: Stack = PLAIN) -> Group:
    made = Group(stack, *"abc")
    made.install(*"abc")
    return made


@given(st.lists(st.text("xyz", max_size=20), min_size=1, max_size=5))
def test_bodies_of_any_size_arrive_whole_and_in_order(texts: list[str]) -> None:
    g = group()
    g.send("a", *texts, level=Level.CAUSAL)
    g.run()
    assert g.got("b") == g.got("a") == texts


def test_no_piece_is_larger_than_the_bound() -> None:
    g = group()
    g.send("a", "0123456789")
    codec = g.running["a"].layers[0].codec
    assert [len(codec.decode(data).body) for data in g.links["a", "b"]] == [4, 4, 2]
    g.send("c", "0123")
    assert len(g.links["c", "a"]) == 1


def test_pieces_of_several_senders_and_frames_are_told_apart() -> None:
    g = group()
    g.send("a", "aaaaaaaa", "bbbbbbbb")
    g.send("c", "cccccccc")
    g.links["a", "b"].rotate(1)
    for sender in "acaca":
        g.move(sender, "b", min(1, len(g.links[sender, "b"])))
    assert sorted(g.got("b")) == ["aaaaaaaa", "cccccccc"]
    g.run()
    assert sorted(g.got("b")) == ["aaaaaaaa", "bbbbbbbb", "cccccccc"]


def test_what_a_broken_connection_leaves_is_forgotten_and_sent_again() -> None:
    g = group(RELIABLE)
    g.send("a", "0123456789")
    g.move("a", "b", 2)
    reconnect(g, "a", "b")
    assert g.layer("b", Fragment).status() == {"incomplete": 0}
    g.advance(500)
    assert g.got("b") == ["0123456789"]


def test_few_frames_are_incomplete_at_a_time() -> None:
    g = group()
    for _ in range(PARTIAL_MAX + 2):
        g.send("a", "01234567")
        g.move("a", "b", 1)
        g.lose("a", "b")
    assert g.layer("b", Fragment).status() == {"incomplete": PARTIAL_MAX}


def test_a_view_forgets_what_comes_from_outside() -> None:
    g = group(RELIABLE)
    g.send("a", "01234567")
    g.send("c", "01234567")
    g.move("a", "b", 1)
    g.move("c", "b", 1)
    change(g, "b", "c")
    assert g.layer("b", Fragment).status() == {"incomplete": 1}
