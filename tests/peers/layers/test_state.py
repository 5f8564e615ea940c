"""A member takes over the state of another one as it was when a view began."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from antiphon.model.peer_views import Level, ViewId
from antiphon.peers.layers import state
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.state import PART_BYTES, WINDOW_BYTES, Outcome, State
from antiphon.peers.layers.total import Total
from antiphon.peers.stack import stacks
from antiphon.peers.stack.running import Delivered
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import change
from tests.peers.support.group import Group
from tests.peers.support.mesh import Mesh
from tests.peers.support.replicas import Replica, Text
from tests.peers.support.scripted import Scripted

STACK = Stack(Reliable(), Scripted(), Total(), State())


class Replicas(Group):
    """Processes with programs that keep tables; all of them have a state to hand out."""

    def __init__(self, *names: str, providers: Iterable[str] | None = None) -> None:
        self.replica: dict[str, Replica] = {
            name: Replica(lambda call, name=name: self.act(name, State, call)) for name in names
        }
        self.taken = dict.fromkeys(names, 0)
        super().__init__(STACK, *names)
        for name in names if providers is None else providers:
            self.layer(name, State).provides = True

    def collect(self, name: str) -> None:
        super().collect(name)
        while self.taken[name] < len(self.told[name]):
            self.taken[name] += 1
            self.replica[name].told(self.told[name][self.taken[name] - 1])

    def ask(self, *names: str) -> None:
        for name in names:
            self.act(name, State, lambda layer: layer.ask(self.now_ms))

    def tables(self, names: str) -> list[str]:
        return [" ".join(self.replica[name].table) for name in names]

    def outcomes(self, name: str) -> list[Outcome]:
        return self.replica[name].outcomes


def founded(names: str = "ab", joiners: str = "c", providers: str | None = None) -> Replicas:
    """Return replicas of which some are in a primary view, with a message in their tables."""
    g = Replicas(*names, *joiners, providers=providers)
    g.install(*names)
    g.send(names[0], "m1")
    g.run()
    return g


def test_a_joiner_gets_the_view_the_state_there_and_later_messages() -> None:
    g = founded()
    g.ask("c")
    g.freeze("a", "b", "c")
    g.send("a", "m2")
    g.install("a", "b", "c")
    g.send("b", "m3")
    g.run()
    assert g.tables("abc") == ["m1 m2 m3"] * 3
    assert g.outcomes("c") == [Outcome.WHOLE]
    assert g.history("c")[:2] == ["[a b c]", "m2"]  # which waits behind the state


def test_what_comes_before_the_program_has_handed_out_its_state_is_not_in_it() -> None:
    g = founded()
    g.replica["a"].answers = False
    g.ask("c")
    g.install("a", "b", "c")
    g.send("b", "m2", "m3")
    g.run()
    assert g.tables("abc") == ["m1 m2 m3", "m1 m2 m3", ""]
    g.replica["a"].hand_out()
    g.run()
    assert g.tables("abc") == ["m1 m2 m3"] * 3


def test_the_place_is_right_behind_the_view_also_if_frames_of_it_came_early() -> None:
    g = founded()
    g.ask("c")
    g.install("a", "b", "c", now="b")
    g.show("a")
    g.send("a", "m2")
    g.move("a", "b")
    g.move("a", "c")
    g.show("c")
    g.run()
    assert g.tables("abc") == ["m1 m2"] * 3
    kinds = [type(event).__name__ for event in g.told["c"]]
    assert kinds[kinds.index("Shown") + 1] == "Begins"


def test_the_provider_is_told_its_place_right_behind_the_view() -> None:
    g = founded()
    g.ask("c")
    g.install("a", "b", "c", now="b", leader="b")
    g.send("b", "m2")
    g.move("b", "a")
    g.show("a")
    g.show("c")
    g.run()
    assert g.tables("abc") == ["m1 m2"] * 3


def test_the_oldest_member_provides_that_has_a_state() -> None:
    g = founded("abc", "d", providers="bcd")
    g.ask("d")
    g.install("a", "b", "c", "d")
    g.run()
    assert list(g.replica["b"].sources) == g.replica["d"].places
    assert not g.replica["a"].sources
    assert not g.replica["c"].sources
    assert g.tables("abcd") == ["m1"] * 4


def test_who_comes_from_a_minority_takes_the_state_of_the_primary_view_not_hands_out_its_own() -> (
    None
):
    g = Replicas(*"abc")
    g.install("a", "b", "c")
    g.send("a", "m1")
    g.run()
    g.install("a", primary=False)
    g.install("b", "c")
    g.send("b", "m2")
    g.run()
    g.ask("a")
    g.replica["a"].table.append("alone")
    g.install("a", "b", "c")
    g.run()
    assert g.tables("abc") == ["m1 m2"] * 3


def test_a_member_of_a_minority_does_not_provide_for_a_joiner() -> None:
    g = Replicas(*"abcd")
    g.install("a", "b", "c")
    g.install("a", primary=False)
    g.replica["a"].table.append("alone")
    g.install("b", "c")
    g.send("b", "m1")
    g.run()
    g.ask("d")
    g.install("a", "b", "c", "d")
    g.run()
    assert g.tables("bcd") == ["m1"] * 3


def large(g: Replicas, name: str, size: int = 10 * WINDOW_BYTES) -> None:
    """Have the state of a member be large."""
    g.replica[name].padding = b"x" * size


def test_a_large_state_travels_in_parts_of_which_few_are_under_way() -> None:
    g = founded()
    large(g, "a")
    g.ask("c")
    g.install("a", "b", "c")
    most = 0
    while not g.outcomes("c"):
        most = max(most, sum(map(len, g.links["a", "c"])))
        g.move("a", "c")
        g.move("c", "a")
        g.tick()
    assert most <= WINDOW_BYTES + 20 * 100
    (source,) = g.replica["a"].sources.values()
    assert source.largest == PART_BYTES
    assert source.closed
    assert g.tables("abc") == ["m1"] * 3


def test_messages_pass_by_a_large_state() -> None:
    g = founded()
    large(g, "a")
    g.ask("c")
    g.install("a", "b", "c")
    g.move("c", "a")
    g.send("b", "m2")
    for _ in range(3):
        g.move("b", "a")
        g.move("a", "b")
    assert "m2" in g.got("a")
    assert "m2" in g.got("b")
    assert g.outcomes("c") == []


def half_way(g: Replicas, provider: str, requester: str) -> None:
    """Have some parts of a state arrive."""
    for _ in range(2):
        g.move(requester, provider)
        g.move(provider, requester)
    assert g.replica[requester].outcomes == []
    assert g.layer(requester, State).status()["bytes"] > 0


def test_a_provider_killed_half_way_is_followed_by_another_one_at_a_later_place() -> None:
    g = founded()
    large(g, "a")
    g.ask("c")
    g.install("a", "b", "c", leader="b")
    half_way(g, "a", "c")
    g.send("b", "m2")
    g.run("a")
    g.crash("a")
    g.install("b", "c")
    g.send("b", "m3")
    g.run()
    assert g.tables("bc") == ["m1 m2 m3"] * 2
    assert len(g.replica["c"].places) == 2
    assert g.outcomes("c") == [Outcome.WHOLE]


def test_nothing_of_a_failed_state_stays() -> None:
    g = founded()
    large(g, "a")
    g.ask("c")
    g.install("a", "b", "c")
    half_way(g, "a", "c")
    g.crash("a")
    g.install("b", "c")
    g.run()
    assert g.tables("c") == ["m1"]
    assert g.layer("c", State).status() == {"to": []}


def test_late_parts_of_a_provider_that_was_passed_over_are_not_taken() -> None:
    g = founded()
    large(g, "a", 3 * PART_BYTES)
    g.replica["b"].padding = b"y" * 3 * PART_BYTES
    g.ask("c")
    g.install("a", "b", "c", leader="b")
    g.move("c", "a")  # which sends all parts
    g.crash("a")
    g.send("b", "m2")
    g.replica["b"].answers = False
    g.install("b", "c")
    g.move("a", "c")  # they arrive when another one provides
    g.replica["b"].hand_out()
    g.run()
    assert g.tables("bc") == ["m1 m2"] * 2


def test_a_provider_that_fails_is_passed_over_and_the_view_changes_for_the_next_one() -> None:
    g = founded()
    g.replica["a"].answers = False
    g.ask("c")
    g.install("a", "b", "c")
    g.replica["a"].fail()
    g.run()
    assert g.layer("c", Scripted).changes == 2
    g.send("b", "m2")
    g.run()
    g.install("a", "b", "c")
    g.run()
    assert g.tables("abc") == ["m1 m2"] * 3
    assert g.outcomes("c") == [Outcome.WHOLE]


def test_a_state_that_nobody_can_hand_out_is_lost() -> None:
    g = founded()
    g.replica["a"].answers = g.replica["b"].answers = False
    g.ask("c")
    g.install("a", "b", "c")
    g.replica["a"].fail()
    g.run()
    g.install("a", "b", "c")
    g.replica["b"].fail()
    g.run()
    g.install("a", "b", "c")
    assert g.outcomes("c") == [Outcome.LOST]


def test_a_state_is_lost_also_for_who_asks_when_only_those_are_left_that_wait_for_it() -> None:
    g = founded("a", "bc")
    large(g, "a")
    g.ask("b")
    g.install("a", "b")
    half_way(g, "a", "b")
    g.crash("a")
    g.ask("c")
    g.install("b", "c")
    assert g.outcomes("b") == g.outcomes("c") == [Outcome.LOST]


def test_where_nobody_has_a_state_there_is_none() -> None:
    g = founded(providers="c")
    g.ask("c")
    g.install("a", "b", "c")
    assert g.outcomes("c") == [Outcome.NONE]
    g.install("a")
    g.ask("a")
    assert g.outcomes("a") == [Outcome.NONE]


def test_of_those_who_begin_together_the_oldest_has_none_and_the_others_take_its_own() -> None:
    g = Replicas(*"abc")
    g.replica["a"].table.append("loaded")
    g.ask(*"abc")
    g.install("a", "b", "c")
    assert [g.outcomes(name) for name in "abc"] == [[Outcome.NONE], [], []]
    assert g.layer("b", Scripted).changes == 2
    g.install("a", "b", "c")
    g.run()
    assert g.tables("abc") == ["loaded"] * 3


def test_a_member_that_asks_though_it_has_the_state_does_not_hide_it() -> None:
    g = founded()
    g.ask("a", "b", "c")
    g.install("a", "b", "c")
    g.send("a", "m2")
    g.run()
    assert [g.outcomes(name) for name in "abc"] == [[Outcome.NONE], [], []]
    change(g, "a", "b", "c")
    g.run()
    assert g.tables("abc") == ["m1 m2"] * 3


def test_who_has_joined_and_not_asked_provides_only_if_nobody_else_can() -> None:
    g = founded("b", "acd")
    g.install("a", "b")
    g.ask("c")
    g.install("a", "b", "c")
    g.run()
    assert g.tables("bc") == ["m1"] * 2
    g.crash("b")
    g.crash("c")
    g.ask("d")
    g.install("a", "d")
    g.run()
    assert g.outcomes("d") == [Outcome.WHOLE]


def test_of_those_who_found_each_other_again_none_provides_that_was_never_in_a_primary_view() -> (
    None
):
    g = Replicas(*"abcd")
    g.install("b", "c", "d")
    g.send("b", "m1")
    g.run()
    g.install("b", primary=False)
    g.install("c", primary=False)
    g.ask("c")
    g.install("a", "b", "c")  # a quorum of the last primary view, and a new process
    g.run()
    assert g.tables("bc") == ["m1"] * 2


def test_a_state_that_was_begun_in_a_minority_begins_anew_in_the_primary_view() -> None:
    g = Replicas(*"abcd")
    g.install("a", "b", "c")
    g.send("a", "m1")
    g.run()
    g.install("b", "c")
    g.install("a", primary=False)
    large(g, "a")
    g.ask("d")
    g.install("a", "d", primary=False)
    g.send("a", "alone")
    half_way(g, "a", "d")
    g.send("b", "m2")
    g.run("a", "d")
    g.install("a", "b", "c", "d")
    g.run()
    assert g.tables("bcd") == ["m1 m2"] * 3
    assert all(source.closed for source in g.replica["a"].sources.values())


def test_outside_the_primary_view_who_finds_nobody_waits() -> None:
    g = founded()
    g.ask("c")
    g.install("c", primary=False)
    assert g.outcomes("c") == []
    g.install("a", "b", "c")
    g.run()
    assert g.outcomes("c") == [Outcome.WHOLE]
    assert g.tables("c") == ["m1"]


def test_who_asks_when_the_view_is_decided_already_gets_the_state_of_the_next_one() -> None:
    g = founded()
    g.install("a", "b", "c", now=())
    g.ask("c")
    for name in "abc":
        g.show(name)
    g.run()
    assert g.replica["c"].places == []
    assert g.layer("c", Scripted).changes == 2
    g.send("a", "m2")
    g.run()
    g.install("a", "b", "c")
    g.run()
    assert g.tables("abc") == ["m1 m2"] * 3
    assert g.replica["c"].places == [g.running["c"].view.id]


def test_a_transfer_goes_on_when_others_come_and_go() -> None:
    g = founded("ab", "cd")
    large(g, "a")
    g.ask("c")
    g.install("a", "b", "c")
    half_way(g, "a", "c")
    g.send("a", "m2")
    change(g, "a", "c")
    g.ask("d")
    change(g, "a", "c", "d")
    g.run()
    assert g.tables("acd") == ["m1 m2"] * 3
    assert len(g.replica["c"].places) == 1
    assert all(source.closed for source in g.replica["a"].sources.values())


def test_several_who_join_together_get_one_state() -> None:
    g = founded("ab", "cd")
    g.ask("c", "d")
    g.install("a", "b", "c", "d")
    g.run()
    assert g.tables("abcd") == ["m1"] * 4
    assert len(g.replica["a"].sources) == 1


def test_who_waits_for_a_state_does_not_provide() -> None:
    g = founded("a", "bc")
    g.replica["a"].answers = False
    g.ask("b")
    g.install("a", "b")
    g.ask("c")
    g.install("a", "b", "c")
    assert len(g.replica["a"].asked) == 2
    g.replica["a"].hand_out()
    g.run()
    assert g.tables("abc") == ["m1"] * 3


def test_lost_parts_are_asked_for_again() -> None:
    g = founded()
    large(g, "a", PART_BYTES * 6)
    g.ask("c")
    g.install("a", "b", "c")
    g.move("c", "a")
    g.move("a", "c", 1)
    g.lose("a", "c")
    g.advance(state.REPEAT_MS * 3)
    assert g.outcomes("c") == [Outcome.WHOLE]
    assert g.tables("c") == ["m1"]


def test_a_provider_that_does_not_get_there_is_passed_over_in_time() -> None:
    g = founded()
    g.replica["a"].answers = False
    g.ask("c")
    g.install("a", "b", "c")
    before = g.layer("c", Scripted).changes
    g.advance(state.PATIENCE_MS - 1)
    assert g.layer("c", Scripted).changes == before
    g.advance(state.REPEAT_MS + 1)
    assert g.layer("c", Scripted).changes == before + 1
    g.install("a", "b", "c")
    g.run()
    assert g.outcomes("c") == [Outcome.WHOLE]
    g.replica["a"].hand_out()
    assert all(source.closed for source in g.replica["a"].sources.values())


def test_who_gives_up_gets_no_more_and_the_source_is_closed() -> None:
    g = founded()
    large(g, "a")
    g.ask("c")
    g.install("a", "b", "c")
    half_way(g, "a", "c")
    g.act("c", State, lambda layer: layer.give_up(g.now_ms))
    g.run()
    assert g.outcomes("c") == []
    assert [source.closed for source in g.replica["a"].sources.values()] == [True]
    g.ask("c")
    g.install("a", "b", "c")
    g.run()
    assert g.outcomes("c") == [Outcome.WHOLE]


def test_who_gives_up_while_the_view_is_decided_frees_the_provider() -> None:
    g = founded()
    g.ask("c")
    g.install("a", "b", "c", now=())
    g.act("c", State, lambda layer: layer.give_up(g.now_ms))
    for name in "abc":
        g.show(name)
    g.run()
    assert [source.closed for source in g.replica["a"].sources.values()] == [True]


def test_an_empty_state_is_a_state() -> None:
    g = founded()
    empty = Text(b"")
    g.replica["a"].answers = False
    g.ask("c")
    place = g.install("a", "b", "c").id
    g.act("a", State, lambda layer: layer.provide(place, empty, g.now_ms))
    g.run()
    assert g.outcomes("c") == [Outcome.WHOLE]
    assert empty.closed


# -- With whole stacks -----------------------------------------------------------------------------


class Tables:
    """The programs of a mesh."""

    def __init__(self, make: Callable[..., Stack], *names: str) -> None:
        self.mesh = Mesh(*make(names).layers)
        self.replica: dict[str, Replica] = {}
        self.taken: dict[str, int] = {}
        self.start(*names)
        assert self.until(self.mesh.together(*names))

    def start(self, *names: str) -> None:
        for name in names:
            self.mesh.start(name)
            self.layer(name).provides = True
            self.taken[name] = 0
            self.replica[name] = Replica(lambda call, name=name: self.act(name, call))

    def layer(self, name: str) -> State:
        layer = self.mesh.processes[name].layer("state")
        assert isinstance(layer, State)
        return layer

    def act(self, name: str, call: Callable[[State], Any]) -> None:
        process, layer = self.mesh.processes[name], self.layer(name)
        self.mesh.act(process, lambda: process.running.act(layer, call(layer), self.mesh.now_ms))

    def ask(self, name: str) -> None:
        self.act(name, lambda layer: layer.ask(self.mesh.now_ms))

    def look(self) -> None:
        """Have the programs take what they were told."""
        for name, replica in self.replica.items():
            told = self.mesh.processes[name].told
            while self.taken[name] < len(told):
                self.taken[name] += 1
                replica.told(told[self.taken[name] - 1])

    def until(self, done: Callable[[], bool], within_ms: int = 20_000) -> bool:
        def is_done() -> bool:
            self.look()
            return done()

        return self.mesh.until(is_done, within_ms)


MAKERS = (stacks.total_uniform, stacks.total, stacks.causal, stacks.fifo)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: str(make.__name__))
def test_who_asks_in_the_midst_of_traffic_gets_what_all_have(make: Callable[..., Stack]) -> None:
    t = Tables(make, *"abc")
    random = Random(7)
    t.start("d")
    t.ask("d")
    for i in range(200):
        name = random.choice("abc")
        t.mesh.send(name, f"{name}{i}", random.choice(list(Level)[1:]))
        t.until(lambda: False, random.choice((0, 0, 1, 3)))
    assert t.until(lambda: bool(t.replica["d"].outcomes))
    assert t.replica["d"].outcomes == [Outcome.WHOLE]
    t.until(lambda: False, 500)
    wanted = sorted(t.replica["a"].table)
    assert len(wanted) == 200
    for name in "bcd":
        assert sorted(t.replica[name].table) == wanted
    if make in (stacks.total_uniform, stacks.total):
        agreed = {
            bytes(event.body).decode()
            for event in t.mesh.processes["a"].told
            if isinstance(event, Delivered) and event.level >= Level.AGREED
        }
        orders = [[text for text in t.replica[name].table if text in agreed] for name in "abcd"]
        assert orders[0] == orders[1] == orders[2] == orders[3]


def test_who_comes_back_from_a_minority_gets_the_state_and_a_killed_provider_is_followed() -> None:
    t = Tables(stacks.total_uniform, *"abcde")
    t.mesh.send("a", "m1")
    t.until(lambda: False, 50)
    t.mesh.part("abc", "de")
    assert t.until(t.mesh.together("a", "b", "c"))
    t.mesh.send("b", "m2")
    t.until(lambda: False, 50)
    for name in "abc":
        t.replica[name].padding = b"x" * 40 * WINDOW_BYTES
    t.ask("e")
    t.mesh.heal()
    assert t.until(lambda: bool(t.replica["e"].places))
    provider = t.layer("e").status()["from"]
    assert provider in "abc"
    assert t.until(lambda: t.layer("e").status()["bytes"] > 0)
    t.mesh.send("d", "m3")
    t.mesh.kill(provider)
    t.mesh.send("c" if provider != "c" else "b", "m4")
    assert t.until(lambda: bool(t.replica["e"].outcomes))
    t.until(lambda: False, 500)
    assert t.replica["e"].outcomes == [Outcome.WHOLE]
    other = next(name for name in "abc" if name != provider)
    assert sorted(t.replica["e"].table) == ["m1", "m2", "m3", "m4"]
    assert t.replica["e"].table == t.replica[other].table


def test_an_asking_member_has_the_view_changed_once() -> None:
    t = Tables(stacks.total_uniform, *"abc")
    rounds = t.mesh.processes["a"].view.id.round
    views = [event for event in t.mesh.processes["a"].told if type(event).__name__ == "Shown"]
    t.ask("c")
    assert t.until(lambda: bool(t.replica["c"].outcomes), 200)
    t.until(lambda: False, 5000)
    after = [event for event in t.mesh.processes["a"].told if type(event).__name__ == "Shown"]
    assert len(after) == len(views) + 1
    assert t.mesh.processes["a"].view.id.round > rounds
    assert t.replica["c"].places == [after[-1].view.id]
    assert isinstance(t.replica["c"].places[0], ViewId)
