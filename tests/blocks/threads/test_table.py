"""`ReplicatedTable`: a dictionary that several programs have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from antiphon.blocks import ReplicatedTable
from antiphon.errors import IllegalStateError, MessageFormatError
from tests.api.support.fronts import PATIENCE_S
from tests.api.support.steps import heard, in_thread
from tests.blocks.conftest import Connect

Start = Callable[[], ReplicatedTable]


@pytest.fixture
def start(connect: Connect) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(ReplicatedTable(connect(), "menu"))


def test_what_one_puts_all_have(start: Start) -> None:
    one, two = start(), start()
    assert one.put("Monday", "soup") is None
    assert two.put("Monday", "pizza") == "soup"
    assert one.get("Monday") == "pizza"
    two["Tuesday"] = "rice"
    assert two["Tuesday"] == "rice"  # at once: it was put here
    assert one.wait_until(lambda table: "Tuesday" in table.rows, PATIENCE_S)
    assert one.remove("Monday") == "pizza"
    assert one.remove("Monday") is None
    assert two.get("Monday") is None


def test_a_table_reads_like_a_dictionary(start: Start) -> None:
    one = start()
    one["a"], one[2], one[(3, None)] = 1, [2], {"x": None}
    assert (len(one), list(one)) == (3, ["a", 2, (3, None)])
    assert "a" in one
    assert "b" not in one
    assert dict(one.items()) == one.copy() == {"a": 1, 2: [2], (3, None): {"x": None}}
    with pytest.raises(KeyError, match="b"):
        one["b"]


def test_something_is_replaced_only_if_it_is_what_was_expected(start: Start) -> None:
    one, two = start(), start()
    assert one.replace("a", None, 1) is True
    assert two.replace("a", None, 2) is False
    assert two.replace("a", 1, 2) is True
    assert one.get("a") == 2


def test_who_reads_and_replaces_loses_nothing(start: Start) -> None:
    tables = [start(), start()]
    tables[0].put("n", 0)
    together = threading.Barrier(4)

    def work(table: ReplicatedTable) -> None:
        together.wait(PATIENCE_S)
        for _ in range(5):
            while not table.replace("n", before := table.get("n"), before + 1):
                pass

    for done in [in_thread(lambda t=table: work(t)) for table in tables * 2]:
        assert heard(done, 1) == [None]
    assert tables[0].get("n") == 20


def test_a_late_table_has_all_rows_at_once(start: Start) -> None:
    one = start()
    for n in range(30):
        one[n] = str(n)
    assert start().copy() == {n: str(n) for n in range(30)}


def test_to_change_what_was_read_changes_nothing(start: Start) -> None:
    one, two = start(), start()
    one["a"] = [1]
    one["a"].append(2)
    one.copy()["a"].append(3)
    for _, row in one.items():
        row.append(4)
    assert one["a"] == one.get("a") == two.get("a") == [1]


@pytest.mark.parametrize("key", [["list"], {"a": 1}])
def test_a_key_that_is_none_is_refused_everywhere(start: Start, key: Any) -> None:
    one, two = start(), start()
    for call in (one.put, one.replace):
        with pytest.raises(TypeError, match="unhashable"):
            call(key, 1, 1)
    assert two.get("a") is None
    assert one.copy() == {}


def test_what_cannot_travel_is_refused(start: Start) -> None:
    one = start()
    with pytest.raises(MessageFormatError):
        one["a"] = object()
    with pytest.raises(ValueError, match="a table does not know"):
        one.call(("clear",))


def test_a_table_that_is_closed_keeps_its_copy_and_takes_nothing(start: Start) -> None:
    one = start()
    one["a"] = 1
    one.close()
    assert one["a"] == 1
    for call in (one.get, one.remove):
        with pytest.raises(IllegalStateError, match="is not a member of the group any more"):
            call("a")
