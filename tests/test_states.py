"""The state machines of the code, and the page that shows them."""

from itertools import product

import pytest

from tests.support.state_diagrams import MACHINES, PAGE, StateMachine, redrawn

EACH = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)


def test_the_page_shows_what_the_code_does() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == redrawn(page), "run: python -m tests.support.state_diagrams"


@EACH
def test_every_state_can_be_reached(machine: StateMachine) -> None:
    assert machine.reachable() == set(machine.states())


@EACH
def test_every_cause_has_an_effect(machine: StateMachine) -> None:
    assert {cause for _, cause in machine.transitions} == set(machine.causes())


@EACH
def test_only_a_state_that_ends_it_has_no_way_out(machine: StateMachine) -> None:
    stuck = {
        state
        for state in machine.states()
        if all(
            machine.transitions.get(pair, state) is state
            for pair in product([state], machine.causes())
        )
    }
    assert stuck == set(machine.ends)
