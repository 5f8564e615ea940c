"""The check of prefix delivery finds what breaks it, and only that."""

import pytest

from tests.process.support.prefix import Stay, check, stays


def stay(bodies: str, after: str) -> Stay:
    """Return a stay in a primary view; the name of the next one is in capitals if it is primary."""
    return Stay("v", True, tuple(bodies), after, after.isupper())


@pytest.mark.parametrize(
    ("p", "q", "holds"),
    [
        (stay("123", "W"), stay("123", "W"), True),
        (stay("123", "W"), stay("12", "W"), False),
        (stay("123", "w"), stay("132", "w"), False),
        (stay("123", "W"), stay("12", "x"), True),
        (stay("123", "W"), stay("", "x"), True),
        (stay("123", "W"), stay("13", "x"), False),
        (stay("12", "W"), stay("123", "x"), False),
        (stay("123", "W"), stay("12", "X"), True),
        (stay("12", "W"), stay("123", "X"), True),
        (stay("12", "W"), stay("13", "X"), False),
        (stay("12", "w"), stay("13", "x"), True),  # nothing is said of two that both leave
    ],
)
def test_what_holds_and_what_does_not(p: Stay, q: Stay, holds: bool) -> None:
    for histories in ({"p": [p], "q": [q]}, {"p": [q], "q": [p]}):
        assert (check(histories).violations == []) == holds


def test_only_primary_views_count() -> None:
    p, q = (Stay("v", False, bodies, "W", True) for bodies in (("1",), ("2",)))
    assert check({"p": [p], "q": [q]}).violations == []


def test_what_a_process_has_said_becomes_stays() -> None:
    events = [
        {"connected": True},
        {"view": ["p"], "id": "1", "primary": True},
        {"got": "x"},
        {"got": "y"},
        {"view": ["p", "q"], "id": "2", "primary": False},
        {"got": "z"},
    ]
    assert stays(events) == [Stay("1", True, ("x", "y"), "2", False)]
