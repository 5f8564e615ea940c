"""Between two views programs see who goes on together, before what the end of a view brings."""

from antiphon.model.peer_views import Level
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.views.transitional import Passing, Transitional, passing_view
from antiphon.peers.stack import stacks
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.mesh import Process, founded
from tests.peers.support.scripted import Scripted

SMALL = Stack(Reliable(), Scripted(), Transitional(), Safe(), Total())
WHOLE = stacks.transitional(stacks.TOTAL_UNIFORM)
PRIMARY_ONLY = stacks.transitional(stacks.total_uniform(primary_partition=True))


def history(told: list[object]) -> list[str]:
    """Return what a program is given; transitional views in angle brackets."""
    lines = []
    for event in told:
        match event:
            case Delivered(body=body):
                lines.append(bytes(body).decode())
            case Passing(together=together):
                lines.append(f"<{' '.join(one.name for one in together)}>")
            case Shown(view=view):
                lines.append(f"[{' '.join(one.name for one in view.members)}]")
    return lines


def test_a_safe_message_that_not_all_are_known_to_hold_comes_behind_the_transitional_view() -> None:
    g = Group(SMALL, "a", "b", "c")
    g.install("a", "b", "c")
    g.send("a", "held by all", level=Level.SAFE)
    g.run()
    g.send("a", "not by c", level=Level.SAFE)
    g.run("c")
    g.freeze("a", "b")
    g.install("a", "b", cut={"a": 2})
    told = ["[a b c]", "held by all", "<a b>", "not by c", "[a b]"]
    assert history(g.told["a"])[1:] == history(g.told["b"])[1:] == told


def test_those_who_come_are_in_no_transitional_view() -> None:
    g = Group(SMALL, "a", "b", "c")
    g.install("a", "b")
    g.freeze("a", "b", "c")
    g.install("a", "b", "c")
    assert history(g.told["a"])[-2:] == ["<a b>", "[a b c]"]
    assert history(g.told["c"]) == ["<c>", "[a b c]"]


def told(process: Process) -> list[str]:
    return history(process.told)


def test_each_part_of_a_partition_passes_by_itself_and_they_merge_from_there() -> None:
    mesh = founded(WHOLE, "a", "b", "c", "d", "e")
    mesh.part("abc", "de")
    mesh.run(10_000)
    mesh.send("e", "x")
    mesh.run(100)
    mesh.heal()
    assert mesh.until(mesh.together("a", "b", "c", "d", "e"))
    assert told(mesh.processes["a"])[:3] == ["<a b c>", "[a b c]", "<a b c>"]
    d = told(mesh.processes["d"])
    assert d == told(mesh.processes["e"])
    assert d[:4] == ["<d e>", "[d e]", "x", "<d e>"]


def test_a_transitional_view_is_named_as_the_view_that_ends_and_is_never_primary() -> None:
    mesh = founded(WHOLE, "a", "b", "c")
    ended = mesh.processes["a"].view
    mesh.kill("a")
    assert mesh.until(mesh.together("b", "c"))
    (passing,) = [one for one in mesh.processes["b"].told if isinstance(one, Passing)]
    view = passing_view(passing, ended)
    assert view.id == ended.id
    assert [one.name for one in view.members] == ["b", "c"]
    assert view.leader in view.members
    assert (ended.primary, view.primary) == (True, False)


def test_in_a_whole_stack_what_is_safe_among_fewer_comes_behind_the_transitional_view() -> None:
    mesh = founded(WHOLE, "a", "b", "c")
    for other in "ab":
        mesh.delays_ms[other, "c"] = mesh.delays_ms["c", other] = 5000
    mesh.send("a", "x", Level.SAFE)
    mesh.run(500)
    mesh.kill("c")
    assert mesh.until(mesh.together("a", "b"))
    assert told(mesh.processes["a"]) == told(mesh.processes["b"]) == ["<a b>", "x", "[a b]"]


def test_views_that_are_hidden_are_transitional_ones() -> None:
    mesh = founded(PRIMARY_ONLY, "a", "b", "c", "d", "e")
    mesh.part("abc", "de")
    mesh.run(10_000)
    assert told(mesh.processes["d"]) == told(mesh.processes["e"]) == ["<d e>"]
    mesh.part("abc", "d", "e")
    mesh.run(10_000)
    mesh.heal()
    assert mesh.until(mesh.together("a", "b", "c", "d", "e"))
    assert told(mesh.processes["d"])[:2] == ["<d e>", "<d>"]
    assert told(mesh.processes["d"])[-1] == "[a b c d e]"
