"""A process sends only as much as the slowest member has room for."""

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.model.peer_views import Level, MemberId
from antiphon.peers.layers import flow, total
from antiphon.peers.layers.flow import Awaited, Flow
from antiphon.peers.layers.layer import Down, Effect, Frame, Suspect, To
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.total import Total
from antiphon.peers.stack.running import Waits
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import Storm, change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Reliable(), Flow(window=8), Scripted())
TOTAL = Stack(Reliable(), Flow(window=8), Scripted(), Total())


@pytest.fixture(autouse=True)
def only_bodies_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "OVERHEAD", 0)


def group(stack: Stack = STACK, names: str = "abc") -> Group:
    made = Group(stack, *names)
    change(made, *names)
    return made


def waits(g: Group, name: str) -> list[MemberId | None]:
    return [output.process for output in g.told[name] if isinstance(output, Waits)]


def test_a_sender_stops_at_the_bound_and_goes_on_when_all_have_taken_something() -> None:
    g = group()
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    assert g.got("a") == ["1234", "5678"]
    assert g.running["a"].waiting == 1
    g.move("a", "b")
    g.move("b", "a")
    assert g.running["a"].waiting == 1
    assert waits(g, "a")[-1] == g.ids["c"]
    g.run()
    assert waits(g, "a")[-1] is None
    assert g.got("c") == ["1234", "5678", "9abc"]


def test_it_is_said_who_is_slow_and_why() -> None:
    g = group()
    g.cut.add(("a", "b"))
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    g.run()
    said = [output for output in g.told["a"] if isinstance(output, Waits)][-1]
    assert said.process == g.ids["b"]
    assert said.why == "it has not taken 8 bytes that are under way to it"
    assert g.layer("a", Flow).status() == {"under way": 8, "slowest": "b"}


def test_what_is_for_one_counts_for_that_one() -> None:
    g = group()
    g.send("a", "12345678", to=["b"], level=Level.FIFO)
    assert waits(g, "a") == [g.ids["b"]]
    g.send("a", "x", level=Level.FIFO)
    assert g.running["a"].waiting == 1
    g.run()
    assert g.got("c") == ["x"]


def test_a_member_whose_program_is_behind_makes_no_room_until_it_has_caught_up() -> None:
    g = group()
    g.running["b"].behind(True, g.now_ms)
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    g.advance(1000)
    assert waits(g, "a")[-1] == g.ids["b"]
    g.running["b"].behind(False, g.now_ms)
    g.tick()
    g.collect("b")
    g.run()
    assert g.got("b") == ["1234", "5678", "9abc"]


def test_a_view_frees_who_was_blocked_and_counts_from_the_start() -> None:
    g = group()
    g.cut.add(("a", "c"))
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    g.run()
    g.crash("c")
    change(g, "a", "b")
    g.run()
    assert waits(g, "a")[-1] is None
    assert g.got("b") == ["1234", "5678", "9abc"]
    g.send("a", "def", "0123", level=Level.FIFO)
    g.run()
    assert g.running["a"].waiting == 0


def test_a_new_member_counts_at_once() -> None:
    g = Group(STACK, *"abc")
    change(g, "a", "b")
    change(g, "a", "b", "c")
    g.cut.add(("a", "c"))
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    g.run()
    assert waits(g, "a")[-1] == g.ids["c"]


def test_nobody_waits_for_a_suspect_until_it_is_back() -> None:
    g = group()
    g.cut.add(("a", "c"))
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    g.act("a", Scripted, lambda _: [Suspect(g.ids["c"], "silent")])
    g.run()
    assert waits(g, "a")[-1] is None
    assert g.running["a"].waiting == 0
    g.act("a", Scripted, lambda _: [Suspect(g.ids["c"], "")])
    assert waits(g, "a")[-1] == g.ids["c"]


def test_control_frames_are_not_counted() -> None:
    g = group()
    control = Frame(b"123456789", control=True)
    g.act("a", Scripted, lambda _: [Down(control)])
    g.run()
    assert waits(g, "a") == []
    g.cut |= {("a", "b"), ("a", "c")}
    g.send("a", "1234", "5678", "9abc", level=Level.FIFO)
    assert g.running["a"].waiting == 1


def test_a_blocked_leader_orders_nothing_until_it_is_free() -> None:
    g = group(TOTAL)
    g.cut.add(("a", "c"))
    g.send("a", "1234", "5678")
    g.send("b", "from b")
    g.advance(300)
    assert g.got("b") == ["1234", "5678"]
    assert g.layer("a", Total).status()["waiting"] == 1
    g.cut.clear()
    g.advance(1000)
    assert g.got("c") == ["1234", "5678", "from b"]


class Watched(Flow):
    """It notes the most that was ever under way."""

    def bind(self, *arguments: Any) -> None:
        super().bind(*arguments)
        self.most = 0

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        effects = super().down(frame, to, now_ms)
        self.most = max(self.most, self._under_way)
        return effects


WATCHED = Stack(Reliable(), Watched(window=8), Scripted(), Total())


def test_a_leader_that_is_free_again_orders_no_more_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(total, "ORDER_BYTES", 4)
    g = group(WATCHED)
    g.cut.add(("a", "c"))
    g.send("a", "1234", "5678")
    texts = [f"b{i:03}" for i in range(20)]
    g.send("b", *texts)
    g.advance(300)
    assert g.layer("a", Total).status()["waiting"] > 10
    g.cut.clear()
    g.advance(3000)
    assert g.got("c") == ["1234", "5678", *texts]
    assert g.layer("a", Watched).most < 8 + 4


def test_a_leader_orders_its_own_in_turn_with_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(total, "ORDER_BYTES", 8)
    monkeypatch.setattr(total, "KEPT_BYTES_MAX", 16)
    g = group(WATCHED)
    g.cut.add(("a", "c"))
    own, others = ([f"{name}{i:07}" for i in range(20)] for name in "ab")
    g.send("a", *own)
    g.send("b", *others)
    g.advance(300)
    g.cut.clear()
    g.advance(3000)
    got = g.got("c")
    assert sorted(got) == sorted(own + others)
    assert all({text[0] for text in got[i : i + 6]} == {"a", "b"} for i in range(34))


@pytest.mark.parametrize("seed", range(10))
def test_through_a_storm_nobody_waits_for_ever(seed: int) -> None:
    g = Group(TOTAL, *"abcd", seed=seed)
    change(g, *"abcd")
    storm = Storm(g, seed, [Level.AGREED, Level.FIFO])
    storm.blow(400, changes=True)
    g.advance(3000)
    for name in "abcd":
        assert g.running[name].waiting == 0
        sent = [text for texts in storm.sent.values() for text in texts]
        assert sorted(g.got(name)) == sorted(sent)


def awaited(g: Group, name: str) -> list[tuple[str, str | None]]:
    return [
        (said.waiter.name, said.process and said.process.name)
        for said in g.told[name]
        if isinstance(said, Awaited)
    ]


def test_the_others_are_told_whom_a_process_waits_for_and_when_no_more() -> None:
    g = group(TOTAL)
    g.cut.add(("a", "c"))
    g.send("a", "1234", "5678")
    g.advance(flow.PATIENCE_MS - 1)
    assert awaited(g, "b") == []
    g.advance(2)
    assert awaited(g, "b") == [("a", "c")]
    g.cut.clear()
    g.advance(1000)
    assert awaited(g, "b") == [("a", "c"), ("a", None)]


def test_what_ends_soon_is_told_to_nobody() -> None:
    g = group(TOTAL)
    g.send("a", "1234", "5678", "9abc")
    g.run()
    g.advance(2 * flow.PATIENCE_MS)
    assert awaited(g, "b") == awaited(g, "c") == []


def test_what_was_told_of_an_old_view_is_not_heard_in_a_new_one() -> None:
    g = group()
    old = flow.Waiting(g.running["a"].view.id, g.ids["c"], "why")
    change(g, "a", "b")
    g.act("a", Scripted, lambda _: [Down(Frame(b"", (old,), control=True), (g.ids["b"],))])
    g.run()
    assert awaited(g, "b") == []
