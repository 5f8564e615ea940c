"""Transis over channels with real sockets, in one process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import IllegalStateError
from antiphon.toolkits import transis as zzz
from tests.toolkits.support.at_once import at_once

pytestmark = pytest.mark.process

WAIT_S = 20


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def boxes() -> Iterator[list[zzz.Mailbox]]:
    with ExitStack() as stack:
        yield [stack.enter_context(zzz.zzz_connect(name)) for name in "abc"]


def until(box: zzz.Mailbox, *last: Any) -> list[Any]:
    """Receive until `last` comes; return all of it: views as (group, members), with `~` in front of
    the name of a transitional one, and bodies."""
    lines: list[Any] = []
    while tuple(lines[-len(last) :]) != last:
        kind, event = zzz.zzz_receive(box, WAIT_S)
        assert event is not None, lines
        if isinstance(event, zzz.View):
            sign = "~" if kind == zzz.TRANSITIONAL else ""
            lines.append((sign + event.group, "".join(event.members)))
        else:
            lines.append(event.body.decode())
    return lines


def take(box: zzz.Mailbox, count: int) -> list[str]:
    """Receive so many messages, and see that there are no more."""
    bodies = []
    for _ in range(count):
        _, message = zzz.zzz_receive(box, WAIT_S)
        assert isinstance(message, zzz.Message)
        bodies.append(message.body.decode())
    assert zzz.zzz_receive(box, 0) == (None, None)
    return bodies


def join_in_turn(boxes: list[zzz.Mailbox], group: str = "g") -> None:
    for at, box in enumerate(boxes):
        zzz.zzz_join(box, group)
        names = "".join(one.name for one in boxes[: at + 1])
        for member in boxes[: at + 1]:
            until(member, (group, names))


def test_a_group_is_there_when_its_first_member_joins(boxes: list[zzz.Mailbox]) -> None:
    a, b, _ = boxes
    zzz.zzz_join(a, "g")
    assert until(a, ("g", "a")) == [("g", "a")]
    zzz.zzz_join(b, "g")
    assert until(b, ("g", "ab")) == [("g", "ab")]
    assert until(a, ("g", "ab")) == [("~g", "a"), ("g", "ab")]


@pytest.mark.parametrize("service", [zzz.FIFO, zzz.CAUSAL, zzz.AGREED, zzz.ATOMIC, zzz.SAFE])
def test_all_members_receive_a_message_with_its_service(
    boxes: list[zzz.Mailbox], service: str
) -> None:
    join_in_turn(boxes)
    assert zzz.zzz_send(boxes[0], service, b"hello", "g") == 5
    for box in boxes:
        kind, message = zzz.zzz_receive(box, WAIT_S)
        assert (kind, message) == (service, ("a", ("g",), b"hello", service))


def test_groups_are_open(boxes: list[zzz.Mailbox]) -> None:
    a, b, c = boxes
    join_in_turn([a, b])
    zzz.zzz_send(c, zzz.AGREED, b"from outside", "g")
    zzz.zzz_send(c, zzz.AGREED, b"end", ["g"])
    for box in (a, b):
        assert until(box, "end") == ["from outside", "end"]
    zzz.zzz_join(c, "g")
    assert until(c, ("g", "abc")) == [("g", "abc")]  # it got nothing of what it sent from outside


def test_a_message_to_several_groups_comes_once_and_in_one_order(boxes: list[zzz.Mailbox]) -> None:
    a, b, c = boxes
    join_in_turn([a, b], "g")
    join_in_turn([b, c], "h")
    count = 100

    def sender(box: zzz.Mailbox, *targets: str) -> Callable[[int], object]:
        return lambda i: zzz.zzz_send(box, zzz.AGREED, f"{box.name}{i}".encode(), targets)

    at_once(count, sender(a, "g"), sender(b, "g", "h"), sender(c, "h"))
    got = {
        box.name: take(box, wanted * count) for box, wanted in zip(boxes, (2, 3, 2), strict=True)
    }
    assert [one for one in got["b"] if one[0] != "c"] == got["a"]
    assert [one for one in got["b"] if one[0] != "a"] == got["c"]


def test_who_leaves_gets_a_last_view(boxes: list[zzz.Mailbox]) -> None:
    a, b, _ = boxes
    join_in_turn([a, b])
    zzz.zzz_leave(b, "g")
    assert until(b, ("g", "a")) == [("~g", "ab"), ("g", "a")]
    assert until(a, ("g", "a")) == [("~g", "ab"), ("g", "a")]
    zzz.zzz_send(b, zzz.FIFO, b"x", "g")
    assert until(a, "x") == ["x"]
    assert zzz.zzz_receive(b, 0) == (None, None)


def test_a_mailbox_that_is_closed_is_in_no_group(boxes: list[zzz.Mailbox]) -> None:
    a, b, _ = boxes
    join_in_turn([a, b])
    b.close()
    kind, view = zzz.zzz_receive(a, WAIT_S)
    assert isinstance(view, zzz.View)
    assert (kind, view.members, view.left) == (zzz.TRANSITIONAL, ("a",), ("b",))
    assert until(a, ("g", "a")) == [("g", "a")]
    assert zzz.zzz_receive(a, 0) == (None, None)


def test_upcalls_come_when_something_is_there_the_most_urgent_first(
    boxes: list[zzz.Mailbox],
) -> None:
    a, b, _ = boxes
    calls: list[Any] = []
    news = threading.Condition()

    def note(box: zzz.Mailbox, param: str) -> None:
        with news:
            calls.append(param)
            news.notify_all()

    def take_one(box: zzz.Mailbox, param: list[Any]) -> None:
        _, event = zzz.zzz_receive(box, 0)
        note(box, "took")
        param.append(event)

    taken: list[Any] = []
    zzz.zzz_add_upcall(a, note, 1, "low")
    zzz.zzz_add_upcall(a, take_one, 2, taken)
    zzz.zzz_join(a, "g")
    with news:
        assert news.wait_for(lambda: calls == ["took", "low"], WAIT_S), calls
    assert taken[0].members == ("a",)
    zzz.zzz_remove_upcall(a, take_one)
    zzz.zzz_send(b, zzz.AGREED, b"kept", "g")
    with news:
        assert news.wait_for(lambda: calls == ["took", "low", "low"], WAIT_S), calls
    assert until(a, "kept") == ["kept"]
    with pytest.raises(ValueError, match="not an upcall of 'a'"):
        zzz.zzz_remove_upcall(a, take_one)


def test_mistakes_are_named(boxes: list[zzz.Mailbox]) -> None:
    a = boxes[0]
    with pytest.raises(ValueError, match="'total' is not a service: fifo, causal, agreed, safe"):
        zzz.zzz_send(a, "total", b"", "g")
    with pytest.raises(ValueError, match="needs a group"):
        zzz.zzz_send(a, zzz.FIFO, b"", [])
    with pytest.raises(IllegalStateError, match="'a' is not in the group 'g'"):
        zzz.zzz_leave(a, "g")
    with pytest.raises(TypeError, match="the name of a group is a str"):
        zzz.zzz_join(a, 7)  # type: ignore[arg-type]
    a.close()
    with pytest.raises(IllegalStateError):
        zzz.zzz_receive(a)
