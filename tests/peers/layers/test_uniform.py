"""What one member hands out in a primary view, every later primary view has."""

from collections.abc import Sequence

import pytest

from antiphon.model.peer_views import Level, PeerView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.uniform import Uniform
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import Storm, change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Reliable(), Scripted(), Uniform(), Total())


def group(names: str = "abc", seed: int = 0, primary: bool = True, *above: Layer) -> Group:
    made = Group(STACK, *names, seed=seed)
    change(made, *names, primary=primary)
    return made


def test_among_three_a_member_hands_out_what_it_gets_and_the_leader_what_is_acknowledged() -> None:
    g = group()
    g.send("a", "a1")
    assert g.got("a") == []
    g.move("a", "b")
    assert g.got("b") == ["a1"]
    g.tick()
    g.move("b", "a")
    assert g.got("a") == ["a1"]
    assert g.now_ms == 0


def test_among_five_a_member_waits_for_the_leader_s_word() -> None:
    g = group("abcde")
    g.send("a", "a1")
    g.move("a", "b")
    g.tick()
    g.move("b", "a")
    assert g.got("a") == g.got("b") == []
    g.move("a", "c")
    g.tick()
    g.move("c", "a")
    assert g.got("a") == ["a1"]
    assert g.got("b") == g.got("c") == []
    g.run()
    assert g.got("b") == g.got("e") == ["a1"]
    assert g.now_ms == 0


def test_the_word_rides_on_the_next_frame() -> None:
    g = group("abcde")
    g.send("a", "a1")
    for name in "bc":
        g.move("a", name)
        g.tick()
        g.move(name, "a")
    g.send("a", "a2")
    g.move("a", "b", 1)
    assert g.got("b") == ["a1"]


def test_a_lost_word_comes_again() -> None:
    g = group("abcde")
    g.send("a", "a1")
    for name in "bc":
        g.move("a", name)
        g.tick()
        g.move(name, "a")
    g.tick()
    g.lose("a", "b")
    g.advance(500)
    assert g.got("b") == ["a1"]


def test_in_a_view_that_is_not_primary_nothing_waits() -> None:
    g = group(primary=False)
    g.send("a", "a1")
    assert g.got("a") == ["a1"]


def test_other_streams_do_not_wait() -> None:
    g = group("abcde")
    g.send("b", "b1", level=Level.FIFO)
    g.send("a", "one", to=["c"], level=Level.FIFO)
    g.move("b", "c")
    g.move("a", "c")
    assert g.got("c") == ["b1", "one"]


def test_what_no_quorum_held_is_not_handed_out_in_a_minority() -> None:
    g = group("abcde")
    g.send("b", "b1")
    g.move("b", "a")
    g.move("a", "b")
    g.send("a", "a1", level=Level.FIFO)
    change(g, "a", "b", primary=False)
    g.run()
    # Both have new places: who sent them did so again, in the new view.
    assert g.history("a") == ["[a b c d e]", "[a b]", "a1", "b1"]


def test_what_a_quorum_held_is_handed_out_in_a_minority_that_knows_it() -> None:
    g = group("abcde")
    g.send("a", "a1")
    for name in "bc":
        g.move("a", name)
        g.tick()
        g.move(name, "a")
    assert g.got("b") == []
    change(g, "b", "a", primary=False)
    assert g.history("b") == ["[a b c d e]", "a1", "[b a]"]


def test_what_the_survivors_hold_is_handed_out_before_the_next_primary_view() -> None:
    g = group("abcde")
    g.send("a", "a1", "a2")
    g.move("a", "b", 1)
    g.crash("a")
    change(g, *"bcde")
    assert g.history("e") == ["[a b c d e]", "a1", "[b c d e]"]


def test_who_holds_back_says_how_much_may_have_been_handed_out() -> None:
    g = group("abcde")
    g.send("a", "a1", "a2")
    view, a = g.running["a"].view.id, g.ids["a"]
    reliable = g.layer("a", Reliable)
    assert (reliable.held(view)[a], reliable.committed(view)[a]) == (2, 0)
    g.run()
    assert reliable.committed(view)[a] == 2
    assert g.layer("b", Reliable).committed(view)[a] == 2


@pytest.mark.parametrize("names", ["abc", "abcde"])
@pytest.mark.parametrize("seed", range(25))
def test_through_splits_what_is_handed_out_in_a_primary_view_is_a_prefix(
    names: str, seed: int
) -> None:
    g = group(names, seed)
    storm = Storm(g, seed, [Level.AGREED], splits=True)
    storm.blow(600, changes=True)
    storm.bring(*names)
    g.advance(2000)
    _check_prefixes(g, names)
    assert all(g.layer(name, Total).status()["kept"] == 0 for name in names)


def _check_prefixes(g: Group, names: Sequence[str]) -> None:
    """Of each primary view all have a prefix of one sequence; who went on to the same view has the
    same."""
    longest: dict[object, list[bytes]] = {}
    same: dict[object, list[bytes]] = {}
    for name in names:
        for view, bodies, after in _views(g.told[name]):
            if view.primary:
                known = longest.setdefault(view.id, bodies)
                shorter, longer = sorted((known, bodies), key=len)
                assert longer[: len(shorter)] == shorter
                longest[view.id] = longer
            assert same.setdefault((view.id, after), bodies) == bodies


def _views(told: Sequence[object]) -> list[tuple[PeerView, list[bytes], object]]:
    found: list[tuple[PeerView, list[bytes], object]] = []
    view: PeerView | None = None
    bodies: list[bytes] = []
    for output in told:
        if isinstance(output, Shown):
            if view is not None:
                found.append((view, bodies, output.view.id))
            view, bodies = output.view, []
        elif isinstance(output, Delivered):
            bodies.append(bytes(output.body))
    assert view is not None
    return [*found, (view, bodies, None)]
