"""A request that comes again counts once, and has the same answer."""

import pytest

from antiphon.toolkits.jbora import Answers


def test_a_request_is_carried_out_once() -> None:
    answers, account = Answers(), [0]

    def deposit() -> int:
        account[0] += 10
        return account[0]

    assert answers.once("r1", deposit) == 10
    assert answers.once("r2", deposit) == 20
    assert answers.once("r1", deposit) == 10
    assert account == [20]


def test_an_answer_may_be_none() -> None:
    answers, done = Answers(), []
    for _ in range(2):
        assert answers.once("r", lambda: done.append(1)) is None
    assert done == [1]


def test_another_server_goes_on_with_the_same_table() -> None:
    first, second = Answers(), Answers()
    first.once("r1", lambda: "yes")
    second.once("old", lambda: "no")
    second.take_over(first.state())
    assert second.once("r1", lambda: "again") == "yes"
    assert "old" not in second


def test_the_oldest_answers_are_forgotten() -> None:
    answers = Answers(kept=2)
    for number in range(3):
        answers.once(f"r{number}", lambda number=number: number)  # type: ignore[misc]
    answers.once("r1", lambda: "again")  # it stays where it was
    answers.once("r3", lambda: 3)
    assert answers.state() == [["r2", 2], ["r3", 3]]
    with pytest.raises(ValueError, match="1 or more, not 0"):
        Answers(kept=0)


def test_a_function_that_raises_gives_no_answer() -> None:
    answers = Answers()
    with pytest.raises(ZeroDivisionError):
        answers.once("r", lambda: 1 // 0)
    assert answers.once("r", lambda: 1) == 1
