"""The order in which servers are tried."""

from antiphon.io.rules.rotation import Rotation


def test_all_are_tried_in_turn_from_any_of_them_on() -> None:
    given = ["a", "b", "c"]
    rotation = Rotation(given, lambda addresses: addresses.reverse())
    assert [rotation.next() for _ in range(5)] == ["c", "b", "a", "c", "b"]
    assert given == ["a", "b", "c"]
