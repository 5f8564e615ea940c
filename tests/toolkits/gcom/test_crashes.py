"""A member that cannot be reached has crashed, for good and for all."""

import pytest

from tests.peers.support.mesh import Mesh
from tests.toolkits.gcom.conftest import group


def last_view(mesh: Mesh, name: str) -> str:
    view = mesh.processes[name].view
    return f"{' '.join(member.name for member in view.members)}, led by {view.leader}"


def test_the_highest_name_leads() -> None:
    mesh = group("b", "c", "a")
    assert last_view(mesh, "a").endswith("led by c")
    mesh.start("d")
    assert mesh.until(mesh.together("a", "b", "c", "d", primary=False))
    assert last_view(mesh, "a").endswith("led by d")


@pytest.mark.parametrize("crashed", ["a", "c"])
def test_a_crash_is_seen_at_once(crashed: str) -> None:
    mesh = group("a", "b", "c")
    mesh.kill(crashed)
    rest = sorted({"a", "b", "c"} - {crashed})
    assert mesh.until(mesh.together(*rest, primary=False), within_ms=300)


def test_a_partition_is_a_crash_and_stays_one_when_it_is_over() -> None:
    mesh = group("a", "b", "c", "d", "e")
    mesh.part("ae", "bcd")
    assert mesh.until(mesh.together("a", "e", primary=False))
    assert mesh.until(mesh.together("b", "c", "d", primary=False))
    mesh.heal()
    mesh.run(20_000)
    assert last_view(mesh, "a") == "a e, led by e"
    assert last_view(mesh, "b") == "b c d, led by d"
    for side in ("ae", "bcd"):
        mesh.send(side[0], f"on the side of {side}")
    mesh.run(1000)
    for name in "abcde":
        side = "ae" if name in "ae" else "bcd"
        assert mesh.processes[name].history()[-1] == f"on the side of {side}"


def test_one_side_joins_anew() -> None:
    mesh = group("a", "b", "c", "d", "e")
    mesh.part("ae", "bcd")
    assert mesh.until(mesh.together("b", "c", "d", primary=False))
    mesh.run(1000)
    mesh.end("a")
    mesh.end("e")
    mesh.heal()
    mesh.start("a", "e")
    assert mesh.until(mesh.together("a", "b", "c", "d", "e", primary=False))


def test_a_broken_link_between_two_excludes_one_of_them() -> None:
    """All others hear both, and follow the leader."""
    mesh = group("a", "b", "c")
    mesh.cut("a", "b")
    mesh.run(20_000)
    sides = {last_view(mesh, name) for name in "abc"}
    assert sides in (
        {"a c, led by c", "b, led by b"},
        {"b c, led by c", "a, led by a"},
    )


def test_who_is_silent_has_crashed_and_is_done_with_the_others_when_it_is_back() -> None:
    mesh = group("a", "b", "c")
    mesh.dropped = lambda source, target, data: "a" in (source, target)
    assert mesh.until(mesh.together("b", "c", primary=False), within_ms=10_000)
    mesh.dropped = lambda source, target, data: False
    mesh.run(20_000)
    assert last_view(mesh, "a") == "a, led by a"
    assert last_view(mesh, "c") == "b c, led by c"


def test_who_leaves_in_order_has_not_crashed_and_may_be_back() -> None:
    mesh = group("a", "b", "c")
    mesh.leave("c")
    assert mesh.until(mesh.together("a", "b", primary=False), within_ms=300)
    mesh.start("c")
    assert mesh.until(mesh.together("a", "b", "c", primary=False))


def test_a_newcomer_that_leads_may_take_members_in_one_after_the_other() -> None:
    """Who is left out of a view meanwhile has not crashed."""
    mesh = group("a", "b")
    mesh.parted.add(frozenset("ac"))
    mesh.start("c")
    assert mesh.until(mesh.together("b", "c", primary=False))
    mesh.heal()
    assert mesh.until(mesh.together("a", "b", "c", primary=False))
