"""Causal order."""

from random import Random

import pytest

from antiphon.errors import FormatError
from antiphon.model.peer_views import Level
from antiphon.peers.layers.causal import Causal, Causes
from antiphon.peers.layers.debugging import Hold, Shuffle
from antiphon.peers.layers.in_view import InView, SentIn
from antiphon.peers.layers.layer import Frame
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.uniform import Uniform
from antiphon.peers.stack.codec import FrameCodec
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import Storm, change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Hold(), Scripted(), InView(), Causal())
PLAIN = Stack(Scripted(), InView(), Causal(), Total())
SHUFFLED = Stack(Shuffle(), Scripted(), InView(), Causal())
UNIFORM = Stack(Reliable(), Scripted(), Uniform(), Causal(), Total())


def release_reversed(group: Group, name: str) -> None:
    group.layer(name, Hold).reverse()
    group.act(name, Hold, Hold.release)


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


# -- Together with the total order -----------------------------------------------------------------


def mixed(stack: Stack, *names: str) -> Group:
    group = Group(stack, *names)
    group.install(*names)
    return group


@pytest.mark.parametrize("stack", [PLAIN, UNIFORM], ids=str)
def test_an_agreed_message_does_not_overtake_its_causes(stack: Stack) -> None:
    group = mixed(stack, "leader", "a", "b")
    group.send("a", "cause", level=Level.CAUSAL)
    group.send("a", "agreed")
    group.move("a", "leader")
    group.move("leader", "b")
    assert group.got("b") == []
    group.advance(200)
    assert group.got("b") == group.got("leader") == ["cause", "agreed"]


def test_a_message_does_not_overtake_an_agreed_one_that_its_sender_was_given() -> None:
    group = mixed(PLAIN, "leader", "a", "b")
    group.send("leader", "agreed")
    group.move("leader", "a")
    group.send("a", "answer", level=Level.CAUSAL)
    group.move("a", "b")
    assert group.got("b") == []
    group.run()
    assert group.got("b") == ["agreed", "answer"]


def test_a_cause_is_not_overtaken_while_a_quorum_is_waited_for() -> None:
    """The answer is there when the question still waits for the leader's word."""
    group = mixed(UNIFORM, *"abcde")
    group.send("a", "question")
    for name in "bc":
        group.move("a", name)
        group.tick()
        group.move(name, "a")
    group.move("a", "d")
    group.tick()
    group.move("a", "b")
    assert group.got("b") == ["question"]
    assert group.got("d") == []
    group.send("b", "answer", level=Level.CAUSAL)
    group.move("b", "d")
    assert group.got("d") == []
    group.run()
    assert group.got("d") == ["question", "answer"]


def test_a_leader_orders_nothing_before_all_hold_its_causes() -> None:
    """Otherwise the cause could be lost, and the agreed message could not."""
    group = mixed(UNIFORM, *"abcde")
    group.send("b", "cause", level=Level.CAUSAL)
    group.send("b", "agreed")
    group.move("b", "a")
    for name in "cde":
        group.lose("b", name)
        group.move("a", name)
    group.tick()
    assert group.got("a") == ["cause"]
    assert dict(group.running["a"].status())["causal"]["leaving"] == 1
    group.crash("a")
    group.crash("b")
    change(group, "c", "d", "e")
    group.run()
    assert group.got("c") == group.got("d") == group.got("e") == []


def test_it_orders_once_they_do_and_at_once_if_there_are_none() -> None:
    group = mixed(UNIFORM, *"abcde")
    group.send("b", "agreed")
    group.run()
    assert group.got("e") == ["agreed"]
    group.send("b", "cause", level=Level.CAUSAL)
    group.send("b", "next")
    group.run()
    assert group.now_ms == 0
    assert group.got("e") == ["agreed", "cause", "next"]


def test_an_ordered_message_that_has_not_left_is_ordered_in_the_next_view() -> None:
    group = mixed(UNIFORM, *"abcde")
    group.send("b", "cause", level=Level.CAUSAL)
    group.send("b", "agreed")
    group.move("b", "a")
    assert dict(group.running["a"].status())["causal"]["leaving"] == 1
    change(group, *"abcd")
    group.run()
    for name in "abcd":
        assert group.history(name) == ["[a b c d e]", "cause", "[a b c d]", "agreed"]


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


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("stack", [SHUFFLED, PLAIN, UNIFORM], ids=str)
def test_causal_order_by_chance(seed: int, stack: Stack) -> None:
    random = Random(seed)
    levels = [Level.CAUSAL] if stack is SHUFFLED else [Level.FIFO, Level.CAUSAL, Level.AGREED]
    group = Group(stack, "a", "b", "c", "d", seed=seed)
    group.install("a", "b", "c", "d")
    histories = Histories(group)
    for number in range(150):
        histories.send(random.choice("abcd"), number, random.choice(levels))
        for _ in range(random.randrange(6)):
            sender, receiver = random.choice(list(group.links))
            if group.links[sender, receiver]:
                group.move(sender, receiver, 1)
        group.tick()
    group.advance(2000)
    for name in group.running:
        got = [int(text) for text in group.got(name)]
        assert sorted(got) == list(range(150))
        for at, number in enumerate(got):
            assert histories.before[number] <= set(got[:at]), f"{name} got {number} too early"


@pytest.mark.parametrize("seed", range(10))
def test_with_breaks_and_views_all_is_delivered_in_the_senders_order(seed: int) -> None:
    group = Group(UNIFORM, *"abcd", seed=seed)
    change(group, *"abcd")
    storm = Storm(group, seed, [Level.FIFO, Level.CAUSAL, Level.AGREED])
    storm.blow(500, changes=True)
    group.advance(3000)
    for name in "abcd":
        for sender in "abcd":
            got = [text for text in group.got(name) if text[0] == sender]
            assert got == storm.sent[sender]
