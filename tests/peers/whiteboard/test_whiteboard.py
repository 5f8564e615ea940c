"""A number of each member travels on what is sent anyway, and newer ones are never replaced."""

from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.model.peer_views import Level
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.layer import Effect, Frame, Layer, Tell, To
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.stack.stack import Stack
from antiphon.peers.whiteboard.whiteboard import (
    AGAIN_MS,
    GONE_MAX,
    WAIT_MS,
    Numbers,
    Whiteboard,
    Written,
)
from tests.peers.support.changes import change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Whiteboard(), Reliable(), Scripted())


class Watch(Layer):
    """Counts the frames that have left, and those that have left for a number alone."""

    name = "watch"

    def __init__(self) -> None:
        self.left = self.alone = 0

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        written = frame.top(Written)
        self.left += 1
        self.alone += written is not None and written.alone
        return super().down(frame, to, now_ms)


IDLE = Stack(Watch(), Whiteboard(), Reliable(), Detector(), Scripted())


def group(stack: Stack = STACK, names: str = "abc") -> Group:
    made = Group(stack, *names)
    change(made, *names)
    made.run()
    return made


def write(group: Group, name: str, number: int) -> None:
    group.act(name, Whiteboard, lambda layer: layer.write(number, group.now_ms))


def read(group: Group, name: str) -> dict[str, int]:
    """Return what the program of a process knows."""
    told = [event for event in group.told[name] if isinstance(event, Numbers)]
    return {str(process): number for process, number in told[-1].of.items()}


def frames(group: Group) -> int:
    return sum(map(len, group.links.values()))


def test_a_message_carries_it() -> None:
    g = group()
    write(g, "a", 7)
    assert frames(g) == 0
    g.send("a", "hello")
    assert frames(g) == 2
    g.move("a", "b")
    assert read(g, "b") == {"a": 7}
    assert g.got("b") == ["hello"]
    assert read(g, "c") == {}


def test_an_acknowledgement_carries_it() -> None:
    g = group()
    g.send("a", "hello")
    g.move("a", "b")
    write(g, "b", -3)
    g.advance(60)  # the acknowledgement is due after 50 ms
    assert read(g, "a") == {"b": -3}
    assert read(g, "c") == {}


def test_only_the_first_frame_to_each_carries_it() -> None:
    g = group()
    write(g, "a", 7)
    g.send("a", "to b", to=["b"], level=Level.FIFO)
    g.send("a", "to all")
    g.send("a", "to all again")
    assert [b"Written" in data for data in g.links["a", "b"]] == [True, True, False]
    assert [b"Written" in data for data in g.links["a", "c"]] == [True, False]


def test_idle_processes_learn_it_from_heartbeats_in_time() -> None:
    g = group(IDLE)
    for one, other in g.links:
        g.running[one].linked(g.ids[other], other, g.now_ms)
        g.collect(one)
    for number in range(10):
        g.advance(AGAIN_MS + 33 * number)
        write(g, "a", number)
        g.advance(WAIT_MS)
        assert read(g, "b")["a"] == read(g, "c")["a"] == number
    g.advance(5 * AGAIN_MS)
    watch = g.layer("a", Watch)
    assert watch.alone == 0
    assert watch.left > 40


def test_without_other_frames_one_leaves_for_it_in_time() -> None:
    g = group()
    write(g, "a", 7)
    g.advance(WAIT_MS - 1)
    assert read(g, "b") == {}
    g.advance(1)
    assert read(g, "b") == read(g, "c") == {"a": 7}
    assert g.got("b") == []  # the program is given no message for it
    g.advance(20)
    write(g, "a", 8)
    write(g, "a", 9)
    g.advance(WAIT_MS)
    assert read(g, "b") == {"a": 9}


def test_a_second_number_does_not_put_off_the_first() -> None:
    g = group()
    for number in range(10):
        write(g, "a", number)
        g.advance(100)
    assert read(g, "b")["a"] >= 7


def test_an_older_number_does_not_replace_a_newer_one() -> None:
    g = group()
    write(g, "a", 1)
    g.send("a", "first")
    (late,) = g.links["a", "b"]
    g.lose("a", "b")
    write(g, "a", 2)
    g.send("a", "second")
    g.move("a", "b")
    g.running["b"].received(g.ids["a"], late, g.now_ms)
    g.collect("b")
    assert read(g, "b") == {"a": 2}
    assert g.got("b") == ["first", "second"]


def test_it_comes_again_if_its_connection_was_lost() -> None:
    g = group()
    write(g, "a", 7)
    g.send("a", "hello")
    g.lose("a", "b")
    g.running["a"].linked(g.ids["b"], "b", g.now_ms)
    g.collect("a")
    g.advance(WAIT_MS)
    assert read(g, "b") == {"a": 7}
    write(g, "a", 8)
    g.advance(WAIT_MS - 1)
    g.cut.add(("a", "b"))  # nobody notices
    g.advance(10)
    assert read(g, "b") == {"a": 7}
    g.cut.clear()
    g.advance(AGAIN_MS + WAIT_MS)
    assert read(g, "b") == {"a": 8}


def test_a_view_begins_with_all_numbers() -> None:
    g = Group(STACK, "a", "b", "c")
    change(g, "a", "b")
    write(g, "a", 1)
    write(g, "b", 2)
    change(g, "c")
    write(g, "c", 3)
    g.freeze("a", "b", "c")
    g.install("a", "b", "c")
    for name in "abc":
        assert read(g, name) == {"a": 1, "b": 2, "c": 3}
        shown, numbers = g.told[name][-2:]
        assert isinstance(numbers, Numbers)
        assert len(shown.view.members) == 3


def test_what_is_written_while_the_view_changes_arrives() -> None:
    g = group()
    g.freeze("a", "b", "c")
    g.install("a", "b", "c", now=())
    write(g, "a", 5)
    for name in "abc":
        g.show(name)
    g.advance(WAIT_MS)
    assert read(g, "b") == read(g, "c") == {"a": 5}


def test_nothing_is_sent_to_processes_that_are_gone() -> None:
    g = group()
    g.crash("c")
    change(g, "a", "b")
    g.run()
    write(g, "a", 1)
    g.advance(WAIT_MS)
    assert read(g, "b") == {"a": 1}
    assert g.layer("a", Whiteboard).status()["lacking"] == []
    assert ("a", "c") not in g.links or not g.links["a", "c"]


def test_a_late_frame_of_one_that_was_gone_brings_no_older_number() -> None:
    g = group()
    write(g, "c", 1)
    g.send("c", "first")
    (late,) = g.links["c", "a"]
    write(g, "c", 2)
    g.advance(WAIT_MS)
    change(g, "a", "b")
    change(g, "a", "b", "c")
    g.running["a"].received(g.ids["c"], late, g.now_ms)
    g.collect("a")
    assert read(g, "a") == {"c": 2}


def test_of_many_that_are_gone_the_first_are_forgotten() -> None:
    g = group()
    layer = g.layer("a", Whiteboard)
    for life in range(GONE_MAX + 10):
        layer.up(written(1, life), replace(g.ids["c"], incarnation=2 + life), 0)
    change(g, "a", "b")
    *_, told = (event for event in g.told["a"] if isinstance(event, Numbers))
    assert [*told.of.values()] == [*range(10, GONE_MAX + 10)]


def test_another_life_begins_anew() -> None:
    g = group()
    layer = g.layer("b", Whiteboard)
    for version in range(1, 5):
        g.act("b", Whiteboard, lambda one, v=version: one.up(written(v, v), g.ids["a"], 0))  # type: ignore[misc]
    reborn = replace(g.ids["a"], incarnation=2)
    told = layer.up(written(1, 100), reborn, 0)
    assert isinstance(told[0], Tell)
    assert told[0].event.of == {g.ids["a"]: 4, reborn: 100}


def written(version: int, value: int) -> Frame:
    return Frame(b"", (Written(version, value, alone=True),))


def test_who_writes_nothing_sends_nothing() -> None:
    g = group(IDLE)
    g.send("a", "hello")
    assert not any(b"Written" in data for link in g.links.values() for data in link)
    g.advance(5 * AGAIN_MS)
    assert g.layer("a", Watch).alone == 0
    assert g.layer("a", Whiteboard).next_deadline_ms() is None
