"""An exchange is complete with a state of each member, all of one view."""

from antiphon.toolkits.jbora import View
from antiphon.toolkits.jbora.pure.exchange import Exchange

FIRST = View(1, ("a", "b"), True, ("b",), (), ("a",))
SECOND = View(2, ("a", "b", "c"), True, ("c",), (), ("a", "b"))


def exchange(view: View) -> Exchange:
    made = Exchange()
    made.begin(view)
    return made


def test_it_takes_a_state_of_each_member() -> None:
    e = exchange(FIRST)
    e.take("b", e.view_id, None)
    assert not e.is_complete
    e.take("a", e.view_id, 7)
    assert e.is_complete
    assert list(e.complete().items()) == [("a", 7), ("b", None)]


def test_another_view_begins_anew() -> None:
    e = exchange(FIRST)
    old = e.view_id
    e.take("a", old, "stale")
    e.begin(SECOND)
    for name in "bc":
        e.take(name, e.view_id, name)
    assert not e.is_complete
    e.take("a", old, "stale, and late")
    assert not e.is_complete
    e.take("a", e.view_id, "fresh")
    assert e.complete() == {"a": "fresh", "b": "b", "c": "c"}


def test_a_second_exchange_in_the_same_view_needs_all_states_again() -> None:
    e = exchange(FIRST)
    for state in (1, 2):
        e.take("a", e.view_id, state)
        assert not e.is_complete
        e.take("b", e.view_id, state)
        assert e.complete() == {"a": state, "b": state}


def test_without_a_view_there_is_none() -> None:
    e = Exchange()
    e.take("a", "1", 7)
    assert not e.is_complete


def test_a_view_is_expanded_if_anybody_comes_from_elsewhere() -> None:
    assert SECOND.expanded
    assert View(3, ("a", "b"), True, (), (), ("a",)).expanded  # b was elsewhere, and is back
    assert not View(3, ("a", "b"), True, (), ("c",), ("a", "b")).expanded
