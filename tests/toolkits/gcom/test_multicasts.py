"""What becomes of messages that are under way when a member crashes, and when one joins."""

from antiphon.toolkits.gcom.settings import Multicast
from tests.toolkits.gcom.conftest import group


def half_way(multicast: Multicast) -> dict[str, bool]:
    """Return who is given a message whose sender dies when one of the others has it."""
    mesh = group("a", "b", "c", "d", multicast=multicast)
    mesh.dropped = lambda source, target, data: source == "d" and target != "b" and b"half" in data
    mesh.send("d", "half")
    mesh.run(2)
    mesh.kill("d")
    assert mesh.until(mesh.together("a", "b", "c", primary=False))
    return {name: "half" in mesh.processes[name].history() for name in "abc"}


def test_basic_multicast_loses_a_message_whose_sender_dies_half_way() -> None:
    assert half_way(Multicast.BASIC) == {"a": False, "b": True, "c": False}


def test_reliable_multicast_brings_it_to_all() -> None:
    assert half_way(Multicast.RELIABLE) == {"a": True, "b": True, "c": True}


def lost_at_a_join(multicast: Multicast) -> list[int]:
    """Return which messages a member is not given whose link to their sender is slow, while another
    one joins."""
    mesh = group("a", "b", "c", multicast=multicast)
    mesh.delays_ms["a", "b"] = 300
    mesh.start("d")
    for number in range(400):
        mesh.send("a", str(number))
        mesh.run(1)
    assert mesh.until(mesh.together("a", "b", "c", "d", primary=False))
    mesh.run(2000)
    given = mesh.processes["b"].history()
    return [number for number in range(400) if str(number) not in given]


def test_reliable_multicast_loses_nothing_when_somebody_joins() -> None:
    assert lost_at_a_join(Multicast.RELIABLE) == []


def test_basic_multicast_may_lose_what_is_under_way_then() -> None:
    assert lost_at_a_join(Multicast.BASIC) != []
