"""GCom's two multicasts: the basic one loses a message, the reliable one does not."""

from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.relay import Relay
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted


def group_of(*layers: Layer) -> Group:
    group = Group(Stack(Scripted(), InView(), *layers), "a", "b", "c", "d")
    group.install("a", "b", "c", "d")
    return group


def die_half_way(group: Group) -> None:
    """The sender ends when one of the others has its message."""
    group.send("a", "half")
    group.lose("a", "c")
    group.lose("a", "d")
    group.crash("a")
    group.run()


def test_basic_multicast_loses_a_message_whose_sender_dies_half_way() -> None:
    group = group_of()
    die_half_way(group)
    assert [group.got(name) for name in "bcd"] == [["half"], [], []]


def test_relay_brings_it_to_all() -> None:
    group = group_of(Relay())
    die_half_way(group)
    assert [group.got(name) for name in "bcd"] == 3 * [["half"]]


def test_who_gets_a_frame_passes_it_on_before_handing_it_up() -> None:
    group = group_of(Relay())
    group.send("a", "half")
    group.lose("a", "c")
    group.lose("a", "d")
    group.crash("a")
    group.move("a", "b")
    assert group.got("b") == ["half"]
    group.crash("b")
    group.run()
    assert group.got("c") == group.got("d") == ["half"]


def test_each_message_comes_once_and_from_its_sender() -> None:
    group = group_of(Relay())
    group.send("a", "1", "2")
    group.send("c", "3")
    group.run()
    for name in "abcd":
        assert sorted(group.got(name)) == ["1", "2", "3"]
        senders = {bytes(d.body): d.sender.name for d in group.told[name][1:]}
        assert senders == {b"1": "a", b"2": "a", b"3": "c"}


def test_a_message_to_some_is_not_passed_on() -> None:
    group = group_of(Relay())
    group.send("a", "only b and c", to=["b", "c"])
    group.lose("a", "c")
    group.run()
    assert [group.got(name) for name in "abcd"] == [[], ["only b and c"], [], []]


def test_a_frame_that_comes_during_a_change_is_handed_up_and_not_sent() -> None:
    group = group_of(Relay())
    group.send("a", "hello")
    group.freeze("b", "c", "d")
    group.run()
    group.install("b", "c", "d")
    assert group.history("b") == ["[a b c d]", "hello", "[b c d]"]
