"""Causal order; the order of the frames is that of GCom's table 2."""

from random import Random

import pytest

from antiphon.errors import FormatError
from antiphon.model.peer_views import Level
from antiphon.peers.layers.causal import Causal, Causes
from antiphon.peers.layers.debugging import Hold, Shuffle
from antiphon.peers.layers.in_view import InView, SentIn
from antiphon.peers.layers.layer import Frame
from antiphon.peers.stack.codec import FrameCodec
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted
from tests.peers.support.sequencer import Sequencer

STACK = Stack(Hold(), Scripted(), InView(), Causal())
MIXED = Stack(Scripted(), InView(), Sequencer(), Hold(), Causal())


def release_reversed(group: Group, name: str) -> None:
    group.layer(name, Hold).reverse()
    group.act(name, Hold, Hold.release)


def test_gcom_table_2() -> None:
    group = Group(STACK, "p1", "p2", "p3")
    group.install("p1", "p2", "p3")
    group.layer("p3", Hold).hold()
    for sender, text in (("p1", "one"), ("p2", "2"), ("p1", "three"), ("p2", "4"), ("p3", "V")):
        group.send(sender, text)
        group.run()
    assert group.got("p3") == []
    release_reversed(group, "p3")
    assert group.got("p1") == group.got("p2") == ["one", "2", "three", "4", "V"]
    assert group.got("p3") == ["V", "one", "2", "three", "4"]


def test_own_messages_wait_too() -> None:
    group = Group(STACK, "a", "b")
    group.install("a", "b")
    group.layer("a", Hold).hold()
    group.send("a", "1", "2", "3")
    release_reversed(group, "a")
    assert group.got("a") == ["1", "2", "3"]


def test_an_answer_does_not_overtake_the_question() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b", "c")
    group.send("a", "question")
    group.move("a", "b")
    group.send("b", "answer")
    group.move("b", "c")
    assert group.got("c") == []
    assert dict(group.running["c"].status())["causal"]["from"] == ["b"]
    group.run()
    assert group.got("c") == ["question", "answer"]


def test_independent_messages_do_not_wait_for_each_other() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b", "c")
    group.send("a", "one")
    group.send("b", "other")
    group.move("b", "c")
    assert group.got("c") == ["other"]


def test_counts_begin_again_with_each_view() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b")
    group.send("a", "1", "2")
    group.run()
    group.install("a", "b", "c")
    group.send("b", "3")
    group.send("a", "4")
    group.run()
    assert sorted(group.got("c")) == ["3", "4"]


def test_what_waits_for_a_lost_message_ends_with_the_view() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b", "c")
    group.send("a", "lost at c")
    group.lose("a", "c")
    group.move("a", "b")
    group.send("b", "waits at c")
    group.run()
    group.install("b", "c")
    group.send("b", "new")
    group.run()
    assert group.got("c") == ["new"]


def test_a_message_to_some_waits_for_its_causes_and_nothing_waits_for_it() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b", "c")
    group.send("a", "1")
    group.move("a", "b")
    group.send("b", "alone", to=["c"])
    group.send("b", "2")
    group.move("b", "c")
    assert group.got("c") == []
    group.run()
    assert group.got("c") == ["1", "alone", "2"]
    assert group.got("a") == ["1", "2"]


def test_a_message_without_order_passes_by() -> None:
    group = Group(STACK, "a", "b")
    group.install("a", "b")
    group.send("a", "lost")
    group.lose("a", "b")
    group.send("a", "waits")
    group.send("a", "no order", level=Level.NONE)
    group.run()
    assert group.got("b") == ["no order"]


def test_counts_that_do_not_fit_the_view_are_garbage() -> None:
    group = Group(STACK, "a", "b")
    view = group.install("a", "b")
    codec = FrameCodec(group.running["a"].layers)
    data = codec.encode(Frame(b"", (Causes((0, 0, 0, 0, 0)), SentIn(view.id))))
    with pytest.raises(FormatError, match="5 counts from b"):
        group.running["a"].received(group.ids["b"], data, 0)


# -- Together with agreed messages ---------------------------------------------------------------


def mixed(*names: str) -> Group:
    group = Group(MIXED, *names)
    group.install(*names)
    return group


def test_an_agreed_message_does_not_overtake_its_causes() -> None:
    group = mixed("leader", "a", "b")
    group.send("a", "cause", level=Level.CAUSAL)
    group.send("a", "agreed")
    group.move("a", "leader")
    group.move("leader", "b")
    assert group.got("b") == []
    group.run()
    assert group.got("b") == group.got("leader") == ["cause", "agreed"]


def test_a_message_does_not_overtake_an_agreed_one_that_its_sender_was_given() -> None:
    group = mixed("leader", "a", "b")
    group.send("leader", "agreed")
    group.move("leader", "a")
    group.send("a", "answer", level=Level.CAUSAL)
    group.move("a", "b")
    assert group.got("b") == []
    group.run()
    assert group.got("b") == ["agreed", "answer"]


def test_agreed_messages_keep_their_order_while_one_waits() -> None:
    group = mixed("leader", "a", "b", "c")
    group.send("a", "cause", level=Level.CAUSAL)
    group.send("a", "first")
    group.send("c", "second")
    group.move("a", "leader")
    group.move("c", "leader")
    group.move("leader", "b")
    assert group.got("b") == []
    group.run()
    assert group.got("b") == ["cause", "first", "second"]


def test_a_message_after_an_own_agreed_one_leaves_when_that_is_back() -> None:
    group = mixed("leader", "a", "b")
    group.send("a", "agreed")
    group.send("a", "next", level=Level.FIFO)
    group.send("a", "last")
    group.move("a", "b")
    assert group.got("b") == []
    group.run()
    for name in ("leader", "a", "b"):
        assert group.got(name) == ["agreed", "next", "last"]


def test_it_waits_for_an_agreed_message_that_is_sent_again_in_the_next_view() -> None:
    group = mixed("leader", "a", "b")
    group.send("a", "agreed")
    group.send("a", "next", level=Level.CAUSAL)
    group.lose("a", "leader")
    group.crash("leader")
    group.install("a", "b")
    group.run()
    assert group.got("a") == group.got("b") == ["agreed", "next"]
    group.send("b", "more", level=Level.CAUSAL)
    group.run()
    assert group.got("a") == ["agreed", "next", "more"]


def test_it_waits_no_more_when_nothing_is_sent_again() -> None:
    """The message was delivered elsewhere, and this process learns so by the change."""
    group = mixed("leader", "a", "b")
    group.send("a", "agreed")
    group.send("a", "next", level=Level.CAUSAL)
    group.layer("a", Sequencer)._kept.clear()
    group.crash("leader")
    group.install("a", "b")
    group.run()
    assert group.got("b") == ["next"]


def test_an_agreed_message_whose_cause_is_lost_is_handed_up_at_the_end_of_the_view() -> None:
    group = mixed("leader", "a", "b", "c")
    group.send("a", "lost", level=Level.CAUSAL)
    group.lose("a", "b")
    group.lose("a", "c")
    group.send("a", "first")
    group.run()
    group.send("leader", "second")
    group.send("leader", "needs the lost one", level=Level.CAUSAL)
    group.run()
    assert group.got("b") == []
    group.crash("a")
    group.crash("leader")
    group.install("b", "c")
    assert group.history("b")[1:] == ["first", "second", "[b c]"] == group.history("c")[1:]


# -- By chance -----------------------------------------------------------------------------------


class Histories:
    """What each program has sent and been given, in its order, by numbers that rise in time."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._known: dict[str, set[int]] = {name: set() for name in group.running}
        self.before: dict[int, set[int]] = {}
        """Of each message: all that it must not overtake."""

    def send(self, name: str, number: int, level: Level) -> None:
        known = self._known[name]
        for text in self._group.got(name):
            known |= {int(text)} | self.before[int(text)]
        self.before[number] = set(known)
        known.add(number)
        self._group.send(name, str(number), level=level)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("levels", [[Level.CAUSAL], [Level.CAUSAL, Level.AGREED, Level.FIFO]])
def test_causal_order_by_chance(seed: int, levels: list[Level]) -> None:
    random = Random(seed)
    stack = Stack(Shuffle(), Scripted(), InView(), Causal()) if len(levels) == 1 else MIXED
    group = Group(stack, "a", "b", "c", "d", seed=seed)
    group.install("a", "b", "c", "d")
    histories = Histories(group)
    for number in range(150):
        histories.send(random.choice("abcd"), number, random.choice(levels))
        for _ in range(random.randrange(6)):
            sender, receiver = random.choice(list(group.links))
            if group.links[sender, receiver]:
                group.move(sender, receiver, 1)
    group.advance(200)
    for name in group.running:
        got = [int(text) for text in group.got(name)]
        assert sorted(got) == list(range(150))
        for at, number in enumerate(got):
            assert histories.before[number] <= set(got[:at]), f"{name} got {number} too early"
