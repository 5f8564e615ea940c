"""Every view shows what its members say of themselves."""

from antiphon.model.peer_views import Level
from antiphon.peers.layers.views.notes import Notes
from antiphon.peers.stack import stacks
from antiphon.peers.stack.running import Shown
from antiphon.peers.stack.stack import Stack
from tests.peers.support.mesh import Mesh, Process, founded

STACK = Stack(*stacks.TOTAL_UNIFORM.layers, Notes())


def say(mesh: Mesh, name: str, note: str) -> None:
    process = mesh.processes[name]
    layer = process.layer("notes")
    assert isinstance(layer, Notes)
    mesh.act(process, lambda: process.running.act(layer, layer.set(note, mesh.now_ms), mesh.now_ms))


def shown(process: Process) -> list[str]:
    """Return what the program was given: bodies, and the notes of views."""
    lines = []
    for event, line in zip(process.told, process.history(), strict=True):
        if isinstance(event, Shown):
            line += " " + " ".join(f"{one.name}={event.notes[one]}" for one in sorted(event.notes))
        lines.append(line.strip())
    return lines


def test_a_new_note_is_a_new_view_for_all() -> None:
    mesh = founded(STACK, "a", "b", "c")
    say(mesh, "b", "hello")
    mesh.run(1000)
    assert [shown(process) for process in mesh.processes.values()] == [["[a b c]* b=hello"]] * 3


def test_what_is_handed_out_before_a_note_is_the_same_for_all() -> None:
    mesh = founded(STACK, "a", "b", "c")
    mesh.delays_ms["c", "a"] = 300  # whatever c sends reaches a long after b
    mesh.send("c", "of c", Level.FIFO)
    say(mesh, "b", "hello")
    mesh.run(5000)
    assert [shown(process) for process in mesh.processes.values()] == [
        ["of c", "[a b c]* b=hello"]
    ] * 3


def test_a_note_that_changes_while_a_view_is_formed_is_shown_by_the_next_one() -> None:
    mesh = founded(STACK, "a", "b")
    b = mesh.processes["b"]
    say(mesh, "a", "one")
    assert mesh.until(lambda: b.running.frozen)
    mesh.run(2)  # b has told what it has
    say(mesh, "b", "late")
    mesh.run(1000)
    assert shown(b) == ["[a b]* a=one", "[a b]* a=one b=late"]


def test_who_comes_brings_its_note_and_who_goes_takes_it_away() -> None:
    mesh = founded(STACK, "a", "b", "c")
    say(mesh, "b", "of b")
    say(mesh, "c", "of c")
    mesh.run(1000)
    mesh.part("ab", "c")
    mesh.run(10_000)
    say(mesh, "c", "alone")
    mesh.run(1000)
    assert shown(mesh.processes["a"])[-1] == "[a b]* b=of b"
    assert shown(mesh.processes["c"])[-1] == "[c] c=alone"
    mesh.heal()
    assert mesh.until(mesh.together("a", "b", "c"))
    assert shown(mesh.processes["a"])[-1].endswith(" b=of b c=alone")
    assert shown(mesh.processes["c"])[-1] == shown(mesh.processes["a"])[-1]


def test_the_same_note_again_changes_nothing() -> None:
    mesh = founded(STACK, "a", "b")
    say(mesh, "a", "")
    mesh.run(1000)
    assert shown(mesh.processes["a"]) == []


def test_who_leaves_takes_its_note_away() -> None:
    mesh = founded(STACK, "a", "b")
    say(mesh, "b", "of b")
    mesh.run(1000)
    mesh.leave("b")
    assert mesh.until(mesh.together("a"))
    assert shown(mesh.processes["a"]) == ["[a b]* b=of b", "[a]*"]
