"""Views among whole stacks, which find each other by themselves."""

from contextlib import nullcontext
from typing import cast

import pytest

from antiphon.model.peer_views import MemberId, ViewId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.channel.driver import ChannelDriver, Port
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.membership.member import message
from antiphon.peers.membership.membership import Membership
from antiphon.peers.membership.messages import Ask
from antiphon.peers.stack.running import Shown
from tests.peers.support.mesh import Mesh

NAMES = ("a", "b", "c")


def mesh(names: tuple[str, ...] = NAMES, hides: bool = False) -> Mesh:
    return Mesh(Reliable(), Detector(), Membership(names, primary_partition=hides))


def founded(*names: str, hides: bool = False) -> Mesh:
    """Return the processes a, b, c in a primary view, and others that have joined."""
    group = mesh(hides=hides)
    group.start(*NAMES)
    assert group.until(group.together(*NAMES))
    for at, name in enumerate(names):
        group.start(name)
        assert group.until(group.together(*NAMES, *names[: at + 1]))
    return group


def test_the_listed_found_the_group_when_all_are_there() -> None:
    group = mesh()
    group.start("a", "b")
    assert group.until(group.together("a", "b", primary=False))
    group.start("c")
    assert group.until(group.together("a", "b", "c"))
    assert group.processes["c"].view.seats == group.processes["c"].view.members


def test_the_listed_may_be_addresses_and_a_new_life_has_the_seat_of_its_address() -> None:
    group = mesh(("h:1", "h:2", "h:3"))

    def start(name: str, address: str) -> None:
        group.start(name)
        process = group.processes[name]
        group.act(process, lambda: process.running.listens(address, group.now_ms))

    for number, name in enumerate("abc", 1):
        start(name, f"h:{number}")
    assert group.until(group.together("a", "b", "c"))
    present = ["a", "b", "c"]
    for number, (old, new) in enumerate(("ad", "be", "cf"), 1):
        group.kill(old)
        present.remove(old)
        assert group.until(group.together(*present))
        start(new, f"h:{number}")
        present.append(new)
        assert group.until(group.together(*present))
        assert group.processes[new].me in group.processes[new].view.seats
    start("g", "h:4")
    assert group.until(group.together(*present, "g"))
    group.kill("d")
    assert group.until(group.together("e", "f", "g"))
    group.kill("e")  # the rest is a majority of that view, but not of the seats
    assert group.until(group.together("f", "g", primary=False))


def test_of_processes_elsewhere_as_many_as_are_listed_found_nothing() -> None:
    group = mesh(("h:1", "h:2", "h:3"))
    for number, name in enumerate("abc", 2):
        group.start(name)
        process = group.processes[name]
        group.act(process, lambda n=number, p=process: p.running.listens(f"h:{n}", group.now_ms))
    assert group.until(group.together("a", "b", "c", primary=False))
    group.run(5000)
    assert not group.processes["a"].view.primary


def test_a_process_joins_within_100_ms() -> None:
    group = founded()
    group.start("d")
    assert group.until(group.together("a", "b", "c", "d"), within_ms=100)


def test_a_view_without_the_killed_comes_within_150_ms() -> None:
    for name in NAMES:
        group = founded()
        group.kill(name)
        rest = [other for other in NAMES if other != name]
        assert group.until(group.together(*rest), within_ms=100)


def test_who_waits_for_a_change_that_was_given_up_says_so() -> None:
    group = founded()
    view = group.processes["a"].view
    leader = group.processes[view.leader.name]
    other = next(group.processes[name] for name in NAMES if name != leader.name)
    ask = message(other.me, Ask(ViewId(view.id.round + 2, leader.me), view.members))
    group.act(leader, lambda: leader.running.act(leader.layer("membership"), [ask], group.now_ms))
    assert group.until(lambda: other.running.frozen)
    assert group.until(group.together(*NAMES), within_ms=1000)


def test_the_minority_comes_back() -> None:
    group = founded()
    group.part("b", "ac")
    assert group.until(group.together("a", "c"))
    assert group.until(group.together("b", primary=False))
    group.heal()
    assert group.until(group.together("a", "b", "c"), within_ms=200)
    assert group.histories()["b"].endswith("[a b c]* [b] [a c b]*")


def test_a_hidden_minority_waits() -> None:
    group = founded(hides=True)
    group.part("b", "ac")
    assert group.until(group.together("a", "c"))
    group.run(100)
    group.send("b", "waits")
    group.run(1000)
    group.heal()
    assert group.until(group.together("a", "b", "c"), within_ms=200)
    group.run(100)
    assert group.histories() == {
        "a": "[a b c]* [a c]* [a c b]* waits",
        "b": "[a b c]* [a c b]* waits",
        "c": "[a b c]* [a c]* [a c b]* waits",
    }
    shown = {
        name: [event for event in process.told if isinstance(event, Shown)]
        for name, process in group.processes.items()
    }
    assert shown["a"][2].changed.origin == shown["a"][1].view.id
    hidden = shown["b"][1].changed.origin
    assert hidden is not None
    assert hidden.coordinator == group.processes["b"].me
    assert shown["a"][0].view.id < hidden < shown["b"][1].view.id


@pytest.mark.parametrize("hides", [False, True])
def test_a_rest_that_is_told_to_founds_the_group_anew(hides: bool) -> None:
    group = founded(hides=hides)
    group.kill("b")
    group.kill("c")
    group.start("d")
    group.run(5000)
    for name in "ad":
        status = group.processes[name].layer("membership").status()
        assert not status["primary"]
    a = group.processes["a"]
    group.act(a, lambda: a.running.found(group.now_ms))
    assert group.until(group.together("a", "d"))
    group.start("b", "c")
    assert group.until(group.together("a", "b", "c", "d"))
    group.kill("a")
    assert group.until(group.together("b", "c", "d"))


def test_leave_to_found_ends_with_the_next_primary_view() -> None:
    group = founded()
    c = group.processes["c"]
    group.act(c, lambda: c.running.found(group.now_ms))
    group.start("d")
    assert group.until(group.together("a", "b", "c", "d"))
    group.part("c", "abd")
    assert group.until(group.together("a", "b", "d"))
    assert group.until(group.together("c", primary=False))
    group.run(5000)
    assert not c.view.primary


def test_the_last_process_leaves_at_once() -> None:
    group = founded()
    group.kill("b")
    group.kill("c")
    group.run(5000)
    group.leave("a")
    group.run(10)
    assert group.histories()["a"].endswith("Left()")


def test_the_group_ends_with_those_who_leave_last_also_at_once() -> None:
    group = founded()
    group.leave("c")
    assert group.until(group.together("a", "b"))
    group.leave("a")
    group.leave("b")
    group.run(6000)
    histories = group.histories()
    assert histories["c"].endswith("Left()")
    assert {history.rpartition(" ")[2] for history in histories.values()} >= {"Left(ends)"}


def test_the_group_does_not_end_while_one_of_it_may_go_on() -> None:
    group = founded()
    group.part("c", "ab")
    assert group.until(group.together("a", "b"))
    group.kill("a")
    group.leave("b")  # while it is in the primary view, with who might go on
    group.run(6000)
    assert group.histories()["b"].endswith("Left()")


@pytest.mark.parametrize("name", NAMES)
def test_a_process_leaves(name: str) -> None:
    group = founded()
    group.send(name, "last")
    group.leave(name)
    rest = [other for other in NAMES if other != name]
    assert group.until(group.together(*rest), within_ms=100)
    group.run(10)
    for other in rest:
        assert group.histories()[other].count("last") == 1
    assert group.histories()[name].endswith("Left()")


def test_in_a_hidden_minority_the_names_of_the_lost_are_free() -> None:
    group = founded(hides=True)
    group.kill("b")
    group.kill("c")
    a = group.processes["a"]
    assert group.until(lambda: len(a.running.formed.members) == 1)
    assert len(a.view.members) == 3
    conversation = Conversation(a.me, a.view, "c", "topic:c")
    driver = ChannelDriver(conversation, a.running, nullcontext(), cast("Port", None))
    assert driver.welcome(MemberId("b", 9)) is None
