"""The ready-made stacks, whole, among processes that find each other by themselves."""

from collections.abc import Callable

import pytest

from antiphon.model.peer_views import Level
from antiphon.peers.stack import stacks
from antiphon.peers.stack.stack import Stack
from tests.peers.support.mesh import Mesh

NAMES = ("a", "b", "c")
MAKERS = (stacks.total_uniform, stacks.total, stacks.causal, stacks.fifo)


def founded(make: Callable[..., Stack] = stacks.total_uniform, *names: str) -> Mesh:
    everybody = names or NAMES
    mesh = Mesh(*make(everybody).layers)
    mesh.start(*everybody)
    assert mesh.until(mesh.together(*everybody))
    return mesh


def texts(mesh: Mesh, name: str) -> list[str]:
    return [text for text in mesh.processes[name].history() if not text.startswith(("[", "W"))]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: str(make.__name__))
def test_everybody_gets_everything_also_after_a_crash_and_a_join(
    make: Callable[..., Stack],
) -> None:
    mesh = founded(make)
    mesh.send("a", "a1")
    mesh.send("b", "b1")
    mesh.run(10)
    leader = mesh.processes["b"].view.leader.name
    others = [name for name in NAMES if name != leader]
    mesh.kill(leader)
    for name in others:
        mesh.send(name, f"{name}2")
    assert mesh.until(mesh.together(*others))
    mesh.start("d")
    assert mesh.until(mesh.together("d", *others))
    mesh.send("d", "d1")
    mesh.run(100)
    sent = {"a1", "b1", "d1", *(f"{name}2" for name in others)}
    for name in others:
        assert sorted(texts(mesh, name)) == sorted(sent)
    assert texts(mesh, "d")[-1] == "d1"


@pytest.mark.parametrize("make", [stacks.total_uniform, stacks.total])
def test_while_members_come_and_go_all_keep_one_order(make: Callable[..., Stack]) -> None:
    mesh = founded(make, *"abcde")
    for round_ in range(30):
        for name in [process.name for process in mesh.living()]:
            mesh.send(name, f"{name}{round_}")
        mesh.run(round_ % 7)
        if round_ == 10:
            mesh.kill(mesh.processes["b"].view.leader.name)
    left = [process.name for process in mesh.living()]
    assert mesh.until(mesh.together(*left))
    mesh.run(500)
    first = texts(mesh, left[0])
    assert len(first) >= 4 * 30
    for name in left:
        assert texts(mesh, name) == first


def test_two_members_that_cannot_connect_do_not_notice() -> None:
    mesh = founded()
    view = mesh.processes["a"].view
    mesh.cut("a", "b")
    mesh.run(3000)
    for name in NAMES:
        mesh.send(name, f"{name}1")
    mesh.run(100)
    assert [mesh.processes[name].view for name in NAMES] == [view] * 3
    assert len(texts(mesh, "a")) == 3
    assert texts(mesh, "a") == texts(mesh, "b") == texts(mesh, "c")


def test_a_large_body_gets_through() -> None:
    mesh = founded()
    body = "x" * (5 << 19)
    mesh.send("b", body)
    mesh.run(100)
    assert texts(mesh, "c") == texts(mesh, "b") == [body]


def test_what_a_minority_sends_stays_with_it_and_is_not_handed_out_twice() -> None:
    mesh = founded()
    mesh.part("a", "bc")
    assert mesh.until(mesh.together("b", "c"))
    assert mesh.until(mesh.together("a", primary=False))
    mesh.send("a", "alone")
    mesh.send("b", "most")
    mesh.run(100)
    mesh.heal()
    assert mesh.until(mesh.together(*NAMES))
    mesh.send("a", "again")
    mesh.run(200)
    assert texts(mesh, "a") == ["alone", "again"]
    assert texts(mesh, "b") == texts(mesh, "c") == ["most", "again"]


@pytest.mark.parametrize("level", list(Level))
def test_a_leader_that_is_cut_off_gets_what_it_sends(level: Level) -> None:
    """Of what the leader of a primary view sends, nothing is handed out before a quorum has it."""
    mesh = founded()
    leader = mesh.processes["a"].view.leader.name
    others = [name for name in NAMES if name != leader]
    mesh.dropped = lambda source, target, data: leader in (source, target)
    mesh.send(leader, "mine", level)
    mesh.run(1)
    assert texts(mesh, leader) == []
    assert mesh.until(mesh.together(leader, primary=False))
    mesh.run(10)
    assert texts(mesh, leader) == ["mine"]
    assert mesh.until(mesh.together(*others))
    assert texts(mesh, others[0]) == []


def test_all_levels_keep_their_order() -> None:
    mesh = founded()
    levels = [Level.FIFO, Level.SAFE, Level.CAUSAL, Level.AGREED]
    for number, level in enumerate(levels * 3):
        mesh.send("b", f"{number:02}", level)
    mesh.run(300)
    for name in NAMES:
        assert texts(mesh, name) == [f"{number:02}" for number in range(12)]


def test_a_stack_says_what_it_promises() -> None:
    assert stacks.TOTAL_UNIFORM.gives >= {"uniform", "safe", "total", "causal", "fifo", "views"}
    assert "uniform" not in stacks.TOTAL.gives
    assert "total" not in stacks.CAUSAL.gives
    assert "causal" not in stacks.FIFO.gives
    digests = {stack.digest for stack in (stacks.TOTAL_UNIFORM, stacks.TOTAL, stacks.CAUSAL)}
    assert len(digests | {stacks.FIFO.digest, stacks.fifo(NAMES).digest}) == 5
