"""All members hand out the messages of all in one order."""

from collections.abc import Sequence

import pytest

from antiphon.model.peer_views import Level
from antiphon.peers.layers import total
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.uniform import Uniform
from antiphon.peers.stack.running import Delivered, Waits
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import Storm, change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Reliable(), Scripted(), Total())
UNIFORM = Stack(Reliable(), Scripted(), Uniform(), Total())


def group(stack: Stack = STACK, names: str = "abc", seed: int = 0) -> Group:
    made = Group(stack, *names, seed=seed)
    made.install(*names)
    return made


def of(sender: str, texts: Sequence[str]) -> list[str]:
    return [text for text in texts if text.startswith(sender)]


def test_all_have_one_order_which_is_the_leader_s() -> None:
    g = group()
    g.send("c", "c1", "c2")
    g.send("b", "b1")
    g.move("b", "a")
    g.move("c", "a")
    g.run()
    assert g.got("a") == g.got("b") == g.got("c") == ["b1", "c1", "c2"]


def test_the_sender_is_who_sent_it_not_the_leader() -> None:
    g = group()
    g.send("c", "c1")
    g.run()
    (delivered,) = [output for output in g.told["b"] if isinstance(output, Delivered)]
    assert (delivered.sender, delivered.level) == (g.ids["c"], Level.AGREED)


def test_a_message_to_some_is_ordered_with_all_and_handed_out_by_those() -> None:
    g = group()
    g.send("c", "both", to=["a", "b"])
    g.move("c", "a")
    g.send("b", "all")
    g.run()
    assert g.got("a") == g.got("b") == ["both", "all"]
    assert g.got("c") == ["all"]


def test_a_lower_level_takes_the_short_way_but_not_past_an_ordered_one() -> None:
    g = group()
    g.send("b", "b1", level=Level.FIFO)
    assert g.got("b") == ["b1"]
    g.send("b", "b2", level=Level.AGREED)
    g.send("b", "b3", level=Level.FIFO)
    assert g.got("b") == ["b1"]
    g.send("b", "b4", level=Level.NONE)
    assert g.got("b") == ["b1", "b4"]
    g.run()
    assert [text for text in g.got("c") if text != "b4"] == ["b1", "b2", "b3"]


def test_a_message_that_the_leader_took_away_is_sent_again_before_newer_ones() -> None:
    g = group()
    g.send("b", "b1", "b2")
    g.move("b", "a")
    g.freeze("b", "c")
    g.send("b", "b3")
    g.crash("a")
    change(g, "b", "c")
    g.run()
    assert g.history("b") == g.history("c") == ["[a b c]", "[b c]", "b1", "b2", "b3"]
    assert g.layer("b", Total).status()["kept"] == 0


def test_what_was_sent_again_is_handed_out_once() -> None:
    g = group()
    g.send("c", "c1", "c2")
    g.move("c", "a")
    g.move("a", "b", 1)
    # b hands c1 out; c, who has not got it, sends both again.
    assert g.got("b") == ["c1"]
    g.freeze("c", "b")
    g.install("c", "b", cut={"a": 0})
    g.run()
    assert g.got("b") == ["c1", "c2"]
    assert g.got("c") == ["c2"]


def test_a_merge_filters_what_any_part_has_handed_out() -> None:
    g = group()
    g.send("c", "c1")
    g.run()
    change(g, "c", primary=False)
    g.send("c", "c2")
    assert g.got("c") == ["c1", "c2"]
    change(g, "a", "b", "c")
    g.send("c", "c3")
    g.run()
    assert g.got("a") == ["c1", "c3"]
    assert g.got("c") == ["c1", "c2", "c3"]


def test_nobody_waits_for_what_its_sender_has_got_back_elsewhere() -> None:
    """The change that ends a minority's view hands out what the others never hear of."""
    g = group(Stack(Reliable(), Scripted(), Safe(), Total()))
    g.install("c", "b", primary=False)
    g.install("a")
    g.send("c", "safe in the minority", level=Level.SAFE)
    g.crash("b")
    g.install("a", "c", cut={"c": 1})
    g.send("c", "next", "last")
    g.run()
    assert g.got("c") == ["safe in the minority", "next", "last"]
    assert g.got("a") == ["next", "last"]
    for name in "ac":
        assert [beyond for *_, beyond in g.layer(name, Total).summary()] == [[], [], []]


def test_what_others_had_meanwhile_does_not_come_behind_later_messages() -> None:
    """The change in which a sender is back ends a view that it has left, with a message of its own
    that it does not hear of."""
    g = group(Stack(Reliable(), Scripted(), Safe(), Total()), "abcd")
    g.send("b", "b1", level=Level.SAFE)
    g.move("b", "a")
    g.lose("a", "b")
    g.run("b", "d")
    g.install("d", "b", primary=False)
    g.lose("b", "d")
    g.install("a", "c", "b", cut={"a": 1})
    g.send("b", "b2")
    g.run()
    assert g.got("a") == g.got("c") == ["b1", "b2"]
    assert g.layer("b", Total).status()["kept"] == 0
    g.install("b", primary=False)
    g.run()
    assert g.got("b") == ["b2"]


def test_a_new_member_hands_out_what_comes_after_it() -> None:
    g = Group(STACK, "a", "b")
    g.send("a", "a1", "a2")
    change(g, "b", "a")
    g.send("a", "a3")
    g.run()
    assert g.got("b") == ["a3"]
    assert g.got("a") == ["a1", "a2", "a3"]


def test_the_leader_orders_what_comes_in_the_sender_s_order() -> None:
    g = group(Stack(Scripted(), Total()))
    g.send("b", "b1", "b2")
    g.links["b", "a"].rotate(1)
    g.run()
    assert g.got("c") == ["b1", "b2"]


def test_doubled_frames_are_handed_out_once() -> None:
    g = group(Stack(Scripted(), Total()))
    g.send("b", "b1", "b2")
    g.links["b", "a"] *= 2
    g.move("b", "a")
    assert len(g.links["a", "c"]) == 2
    g.links["a", "c"] *= 2
    g.run()
    assert g.got("a") == g.got("b") == g.got("c") == ["b1", "b2"]
    assert g.layer("a", Total).status()["waiting"] == 0


def test_plain_total_order_is_the_order_of_arrival() -> None:
    g = group(Stack(Scripted(), Total(plain=True)))
    g.send("b", "b1", "b2")
    g.links["b", "a"].rotate(1)
    g.run()
    assert g.got("a") == g.got("b") == g.got("c") == ["b2", "b1"]
    assert str(Stack(Scripted(), Total(plain=True))) == "total(plain=True) / scripted"


def test_a_sender_waits_if_too_much_of_its_own_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(total, "KEPT_BYTES_MAX", 4)
    g = group()
    g.send("b", "b1", "b2", "b3")
    assert g.running["b"].waiting == 1
    (waits,) = [output for output in g.told["b"] if isinstance(output, Waits)]
    assert waits.process == g.ids["a"]
    g.run()
    assert g.got("b") == ["b1", "b2", "b3"]
    assert g.running["b"].waiting == 0


def test_who_waits_for_a_leader_that_is_gone_is_freed_by_the_view(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(total, "KEPT_BYTES_MAX", 4)
    g = group()
    g.send("b", "b1", "b2", "b3")
    g.crash("a")
    change(g, "b", "c")
    g.run()
    assert g.got("c") == ["b1", "b2", "b3"]
    assert g.running["b"].waiting == 0


@pytest.mark.parametrize("stack", [STACK, UNIFORM], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_through_a_storm_with_views_all_have_one_order(stack: Stack, seed: int) -> None:
    g = group(stack, "abcd", seed)
    storm = Storm(g, seed, [Level.AGREED])
    storm.blow(500, changes=True)
    g.advance(2000)
    for name in "abcd":
        assert g.got(name) == g.got("a")
    for sender in "abcd":
        assert of(sender, g.got("a")) == storm.sent[sender]
        assert g.layer(sender, Total).status() == {"kept": 0, "waiting": 0}
