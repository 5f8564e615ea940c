"""Each member of a view gets every frame of the others once, in order."""

from collections.abc import Sequence

import pytest

from antiphon.model.peer_views import Level, ViewId
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.stack.running import Delivered
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import Storm, change, reconnect
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Reliable(), Scripted())


def group(names: str = "abc", seed: int = 0) -> Group:
    made = Group(STACK, *names, seed=seed)
    change(made, *names)
    return made


def of(sender: str, texts: Sequence[str]) -> list[str]:
    return [text for text in texts if text.startswith(sender)]


def test_the_sender_gets_its_own_at_once_and_the_others_get_all_in_order() -> None:
    g = group()
    g.send("a", "a1", "a2")
    assert g.got("a") == ["a1", "a2"]
    g.send("b", "b1")
    g.run()
    assert g.got("b") == ["b1", "a1", "a2"]
    assert of("a", g.got("c")) == ["a1", "a2"]


def test_levels_travel() -> None:
    g = group()
    g.send("a", "a1", level=Level.CAUSAL)
    g.run()
    assert [d.level for d in g.told["b"] if isinstance(d, Delivered)] == [Level.CAUSAL]


def test_a_gap_is_asked_for() -> None:
    g = group()
    g.send("a", "a1")
    g.lose("a", "b")
    g.send("a", "a2", "a3")
    g.run()
    assert g.got("b") == ["a1", "a2", "a3"]


def test_a_lost_tail_is_found_without_further_frames() -> None:
    g = group()
    g.send("a", "a1", "a2")
    g.lose("a", "b")
    g.advance(500)
    assert g.got("b") == ["a1", "a2"]


def test_a_new_connection_tells_at_once_of_a_lost_tail() -> None:
    g = group()
    g.send("a", "a1", "a2")
    reconnect(g, "a", "b")
    g.run()
    assert g.got("b") == ["a1", "a2"]


def test_a_gap_is_filled_by_another_member_if_the_origin_does_not_answer() -> None:
    g = group()
    g.send("a", "a1", "a2")
    g.move("a", "b", 1)
    g.links["a", "b"].clear()
    g.send("a", "a3")
    g.run()
    g.cut.add(("b", "a"))
    g.send("a", "a4")
    g.lose("a", "b")
    g.send("a", "a5")
    g.advance(500)
    assert g.got("b") == ["a1", "a2", "a3", "a4", "a5"]


def test_everything_is_forgotten_once_all_hold_it_and_the_group_comes_to_rest() -> None:
    g = group()
    g.send("a", "a1", "a2")
    g.send("b", "b1", to=["c"])
    g.advance(1000)
    for name in "abc":
        assert g.layer(name, Reliable).status() == {"kept": 0, "behind": {}, "missing": []}
        assert g.running[name].next_deadline_ms() is None


def test_nothing_is_forgotten_that_one_member_lacks() -> None:
    g = group()
    g.cut |= {("a", "c"), ("c", "a")}
    g.send("a", "a1", "a2")
    g.advance(1000)
    assert g.layer("a", Reliable).status()["kept"] == 2
    assert g.layer("b", Reliable).status()["kept"] == 2
    assert g.layer("a", Reliable).status()["behind"] == {"c": 2}
    g.crash("a")
    change(g, "b", "c")
    assert g.got("c") == ["a1", "a2"]


def test_a_frame_for_some_gets_to_them_alone_in_order() -> None:
    g = group()
    g.send("a", "one", to=["b"])
    g.send("a", "two", to=["b", "c", "a"])
    g.lose("a", "b")
    g.advance(500)
    assert g.got("a") == ["two"]
    assert g.got("b") == ["one", "two"]
    assert g.got("c") == ["two"]


def test_while_frozen_nothing_is_acknowledged_or_handed_out() -> None:
    g = group()
    g.send("a", "a1")
    g.freeze("b")
    g.advance(200)
    reliable = g.layer("b", Reliable)
    assert reliable.held(g.running["b"].view.id)[g.ids["a"]] == 0
    assert g.got("b") == []
    assert g.layer("a", Reliable).acknowledged_by[g.ids["b"]] == 0


def test_an_acknowledgement_that_is_owed_is_not_sent_after_freezing() -> None:
    g = group()
    g.send("a", "a1")
    g.move("a", "b")
    g.freeze("b")
    g.advance(200)
    assert g.layer("a", Reliable).acknowledged_by[g.ids["b"]] == 0


def test_who_goes_on_gets_what_the_others_hold_before_the_view() -> None:
    g = group()
    g.send("a", "a1", "a2", "a3")
    g.move("a", "b", 2)
    g.move("a", "c", 1)
    g.crash("a")
    change(g, "b", "c")
    g.run()
    assert g.history("b") == g.history("c") == ["[a b c]", "a1", "a2", "[b c]"]


def test_nothing_behind_the_cut_is_handed_out() -> None:
    g = group()
    g.send("a", "a1", "a2", "a3")
    g.freeze("b", "c")
    view = g.running["b"].view.id
    lent = g.layer("a", Reliable).read(view, g.ids["a"], 1, 3)
    g.layer("b", Reliable).add(view, g.ids["a"], 1, lent)
    g.install("b", "c", cut={"a": 2})
    assert g.history("b") == ["[a b c]", "a1", "a2", "[b c]"]


def test_what_is_added_leaves_no_gap_and_is_not_doubled() -> None:
    g = group()
    g.send("a", "a1", "a2", "a3")
    g.freeze("b", "c")
    view, a = g.running["b"].view.id, g.ids["a"]
    frames = g.layer("a", Reliable).read(view, a, 1, 3)
    reliable = g.layer("b", Reliable)
    reliable.add(view, a, 2, frames[1:])
    assert reliable.held(view)[a] == 0
    reliable.add(view, a, 1, frames[:2])
    reliable.add(view, a, 1, frames)
    assert reliable.held(view)[a] == 3
    g.install("b", "c", cut={"a": 3})
    assert g.got("b") == ["a1", "a2", "a3"]


def test_numbers_start_again_and_late_frames_of_an_old_view_are_dropped() -> None:
    g = group()
    g.send("a", "a1", "a2")
    late = list(g.links["a", "b"])
    g.run()
    change(g, "a", "b", "c")
    g.send("a", "a3")
    g.run()
    g.links["a", "b"].extend(late)
    g.advance(300)
    assert g.got("b") == ["a1", "a2", "a3"]


def test_frames_of_a_view_that_is_still_to_come_are_kept() -> None:
    g = group("ab")
    g.freeze("a", "b")
    view = change(g, "a")
    g.running["a"].take()
    ahead = Group(STACK, "a", "b")
    # The other process is in the view {a, b} already, and sends.
    change(ahead, "a", "b")
    ahead.send("a", "a1")
    (data,) = ahead.links["a", "b"]
    g = Group(STACK, "a", "b")
    g.running["b"].received(g.ids["a"], data, 0)
    assert g.got("b") == []
    change(g, "a", "b")
    assert g.got("b") == ["a1"]
    assert view.id.round == 2


def test_frames_of_the_last_primary_view_are_kept_through_views_that_are_not() -> None:
    g = group()
    g.send("a", "a1", "a2")
    g.move("a", "b")
    first = g.running["b"].view.id
    change(g, "b", primary=False)
    g.send("b", "b1")
    reliable = g.layer("b", Reliable)
    a = g.ids["a"]
    assert reliable.held(first)[a] == 2
    assert len(reliable.read(first, a, 1, 2)) == 2
    change(g, "b", "c", primary=True)
    assert reliable.held(first) == {}


def test_of_an_unknown_view_nothing_is_held() -> None:
    g = group()
    reliable = g.layer("a", Reliable)
    unknown = ViewId(99, g.ids["a"])
    assert reliable.held(unknown) == reliable.committed(unknown) == {}
    assert reliable.read(unknown, g.ids["a"], 1, 1) == []


def test_alone_a_process_keeps_nothing() -> None:
    g = Group(STACK, "a")
    g.send("a", "a1")
    g.send("a", "a2", to=["a"])
    assert g.got("a") == ["a1", "a2"]
    assert g.layer("a", Reliable).status()["kept"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_through_a_storm_everything_comes_once_and_in_order(seed: int) -> None:
    g = group("abcd", seed)
    storm = Storm(g, seed, [Level.FIFO])
    storm.blow(400)
    g.advance(2000)
    for name in "abcd":
        for sender in "abcd":
            assert of(sender, g.got(name)) == storm.sent[sender]
        assert g.layer(name, Reliable).status() == {"kept": 0, "behind": {}, "missing": []}


@pytest.mark.parametrize("seed", range(20))
def test_through_views_who_goes_on_together_has_the_same(seed: int) -> None:
    g = group("abcd", seed)
    Storm(g, seed, [Level.FIFO]).blow(400, changes=True)
    change(g, *"abcd")
    pasts = {_views(g.history(name)) for name in "abcd"}
    assert len(pasts) == 1


def _views(history: Sequence[str]) -> tuple[frozenset[str], ...]:
    views: list[set[str]] = [set()]
    for text in history:
        if text.startswith("["):
            views.append(set())
        assert text not in views[-1]
        views[-1].add(text)
    return tuple(frozenset(view) for view in views)


def test_numbers_begin_again_with_who_was_suspected_by_one_side_alone() -> None:
    g = group()
    g.send("a", "a1", "a2", to=["b"])
    g.run()
    change(g, "a", "c")  # b has not heard of it
    change(g, "a", "b", "c")
    g.send("a", "a3", to=["b"])
    g.send("b", "b1", to=["a"])
    g.advance(1000)
    assert g.got("b") == ["a1", "a2", "a3"]
    assert g.got("a") == ["b1"]
