"""Servers of one group, in one process, with real sockets."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import ConnectionLostError, IllegalStateError
from antiphon.peers.process import Process
from antiphon.toolkits import jbora
from tests.api.support.steps import Results, heard, in_thread, until
from tests.process.support.peer_processes import free_addresses

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

THREADS = 50


class Servers:
    """Groups that leave with the test."""

    def __init__(self, folder: Path) -> None:
        self._cluster = f"peer:file/{folder}/c"
        self.all: list[jbora.Group] = []

    def make(self, name: str) -> jbora.Group:
        group = jbora.Group(self._cluster, name=name)
        self.all.append(group)
        return group

    def join(self, *names: str) -> list[jbora.Group]:
        """Have servers join, and receive up to the view of all of them."""
        groups = [self.make(name) for name in names]
        for group in groups:
            group.join()
        for group in groups:
            until_view(group, *names)
        return groups


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for group in made.all:
        group.leave()


def until_view(group: jbora.Group, *names: str) -> jbora.View:
    while True:
        match group.receive(10):
            case jbora.ViewChange(view) if sorted(view.members) == sorted(names):
                return view
            case None:
                raise AssertionError(f"no view of {names}")


def bodies(group: jbora.Group, count: int) -> list[Any]:
    """Receive so many messages, and return their bodies."""
    found: list[Any] = []
    while len(found) < count:
        event = group.receive(10)
        assert event is not None
        if isinstance(event, jbora.Message):
            found.append(event.body)
    return found


def test_join_multicast_receive_and_leave(servers: Servers) -> None:
    a, b = servers.join("a", "b")
    b.multicast("Fire!")
    a.multicast({"floor": 4})
    assert bodies(a, 2) == bodies(b, 2)
    assert a.view.members == ("a", "b")
    assert a.is_primary()
    assert a.is_primary(b.view)
    b.leave()
    view = until_view(a, "a")
    assert (view.left, view.primary, view.expanded) == (("b",), True, False)
    b.leave()
    with pytest.raises(IllegalStateError, match=r"call join\(\) first"):
        b.multicast("x")
    b.join()
    assert until_view(a, "a", "b").joined == ("b",)
    with pytest.raises(IllegalStateError, match="has joined"):
        b.join()


def test_all_members_receive_one_order(servers: Servers) -> None:
    groups = servers.join("a", "b", "c")
    together = threading.Barrier(3)

    def multicast(group: jbora.Group) -> None:
        for number in range(100):
            together.wait(10)
            group.multicast(f"{group.name} {number}")

    sending = [in_thread(lambda group=group: multicast(group)) for group in groups]  # type: ignore[misc]
    orders = [bodies(group, 300) for group in groups]
    assert [heard(one, 1) for one in sending] == [[None]] * 3
    assert orders[0] == orders[1] == orders[2]


def test_a_view_may_not_be_primary() -> None:
    addresses = ",".join(free_addresses(2))  # which found the group together
    group = jbora.Group(f"peer://{addresses}/c", name="a")
    group.join()
    view = until_view(group, "a")
    group.leave()
    assert not view.primary
    assert not group.is_primary(view)


def test_before_the_first_view_nothing_is_propagated(servers: Servers) -> None:
    a = servers.make("a")
    with pytest.raises(IllegalStateError, match=r"call join\(\) first"):
        a.receive()
    a.join()
    with pytest.raises(IllegalStateError, match="no view yet"):
        a.propagate("x")


def test_leaving_wakes_everybody(servers: Servers) -> None:
    (a,) = servers.join("a")
    calling = in_thread(lambda: a.local_call("x"))
    call = a.receive(10)
    assert isinstance(call, jbora.LocalCall)
    receiving = in_thread(a.receive)
    a.leave()
    assert [type(error) for error in heard(calling, 1)] == [IllegalStateError]
    assert heard(receiving, 1) == [None]
    a.local_respond(call, "too late")
    with pytest.raises(TypeError, match="a LocalCall"):
        a.local_respond("x")  # type: ignore[arg-type]


def test_a_lost_group_is_told_to_everybody(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = servers.join("a")
    calling = in_thread(lambda: a.local_call("x"))
    assert isinstance(a.receive(10), jbora.LocalCall)
    monkeypatch.setattr(
        Process, "_pump", lambda self: self.driver.fail(ConnectionLostError("gone"))
    )
    a.multicast("x")
    assert [str(error) for error in heard(calling, 1)] == ["gone"]
    for _ in range(2):
        with pytest.raises(ConnectionLostError, match="gone"):
            until_view(a, "nobody")  # whatever came before is received first


def test_fifty_threads_call_while_views_change(servers: Servers) -> None:
    """Each request is multicast by the thread that receives, and answered when it comes back."""
    (a,) = servers.join("a")
    waiting: dict[int, jbora.LocalCall] = {}
    views: list[int] = []
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            match a.receive(0.05):
                case jbora.LocalCall(body) as call:
                    waiting[body] = call
                    a.multicast(body)
                case jbora.Message(body):
                    a.local_respond(waiting.pop(body), body + 1)
                case jbora.ViewChange(view):
                    views.append(view.id)

    def request(thread: int) -> list[int]:
        answers = []
        for number in range(thread * 1000, thread * 1000 + 20):
            answers.append(a.local_call(number, timeout=30))
        return answers

    serving = in_thread(serve)
    requests: list[Results[Any]] = []
    for thread in range(THREADS):
        requests.append(in_thread(lambda thread=thread: request(thread)))  # type: ignore[misc]
        if thread % 10 == 9:  # somebody comes, or goes
            if len(servers.all) == 1:
                servers.make("b").join()
            else:
                servers.all.pop().leave()
    for thread, answers in enumerate(requests):
        first = thread * 1000 + 1
        assert heard(answers, 1) == [[*range(first, first + 20)]]
    stop.set()
    assert heard(serving, 1) == [None]
    assert waiting == {}
    assert len(views) >= 3


def test_an_idle_group_reads_the_whiteboard_in_time(servers: Servers) -> None:
    a, b, c = servers.join("a", "b", "c")
    late = []
    for value in range(10):
        began = time.monotonic()
        a.whiteboard.put_value(value)
        assert a.whiteboard.get_value("a") == value
        until(lambda value=value: [g.whiteboard.get_value("a") for g in (b, c)] == [value] * 2)  # type: ignore[misc]
        late.append(time.monotonic() - began)
    assert sorted(late)[7] < 0.3  # some may fall into a pause of this machine
    assert b.whiteboard.get_value("c") is None
    assert b.whiteboard.get_value("nobody") is None


def test_a_message_carries_the_whiteboard(servers: Servers) -> None:
    a, b = servers.join("a", "b")
    for value in range(20):
        a.whiteboard.put_value(value)
        a.multicast("x")
        bodies(b, 1)
        assert b.whiteboard.get_value("a") == value


def test_what_a_whiteboard_does_not_take(servers: Servers) -> None:
    (a,) = servers.join("a")
    for wrong in (True, 1.5, "7"):
        with pytest.raises(TypeError, match="an int"):
            a.whiteboard.put_value(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 bits"):
        a.whiteboard.put_value(1 << 63)
    a.whiteboard.put_value(-(1 << 63))
    assert a.whiteboard.get_value("a") == -(1 << 63)
    with pytest.raises(TypeError, match="a member is its name"):
        a.whiteboard.get_value(7)  # type: ignore[arg-type]


def propagated(group: jbora.Group, state: Any) -> Any:
    """Return what `propagate` returns, with events in short."""
    table, events = group.propagate(state)
    return table, [
        event.view.members if isinstance(event, jbora.ViewChange) else event.body
        for event in events
    ]


def test_propagate_returns_all_states_and_what_came_meanwhile(servers: Servers) -> None:
    a, b = servers.join("a", "b")
    exchanging = in_thread(lambda: propagated(a, {"of": "a"}))
    b.multicast("meanwhile")
    calling = in_thread(lambda: a.local_call("question"))
    until(lambda: not a._joined.flow._events and bool(a._joined.flow._open))
    table = {"a": {"of": "a"}, "b": None}
    assert propagated(b, None) == (table, ["meanwhile"])
    (found, events), *_ = heard(exchanging, 1)
    assert found == table
    assert sorted(events) == ["meanwhile", "question"]
    assert calling.empty()


def test_a_view_change_begins_the_exchange_again(servers: Servers) -> None:
    a, b = servers.join("a", "b")
    exchanging = in_thread(lambda: propagated(a, "old a"))
    b.multicast("before c")
    c = servers.make("c")
    c.join()
    until_view(c, "a", "b", "c")
    until_view(b, "a", "b", "c")
    others = [in_thread(lambda: propagated(b, "b")), in_thread(lambda: propagated(c, "c"))]
    table = {"a": "old a", "b": "b", "c": "c"}
    assert heard(exchanging, 1) == [(table, ["before c", ("a", "b", "c")])]
    assert [heard(one, 1) for one in others] == [[(table, [])]] * 2


def test_a_state_that_is_a_function_includes_what_came_before_the_view(servers: Servers) -> None:
    a, b = servers.join("a", "b")
    applied: list[Any] = []

    def state(events: Any) -> list[Any]:
        applied.extend(event.body for event in events if isinstance(event, jbora.Message))
        return applied

    exchanging = in_thread(lambda: propagated(a, state))
    b.multicast("before c")
    c = servers.make("c")
    c.join()
    until_view(c, "a", "b", "c")
    until_view(b, "a", "b", "c")
    b.multicast("behind c")
    others = [in_thread(lambda: propagated(b, "b")), in_thread(lambda: propagated(c, "c"))]
    table = {"a": ["before c"], "b": "b", "c": "c"}
    assert heard(exchanging, 1) == [(table, ["behind c"])]
    assert [heard(one, 1) for one in others] == [[(table, ["behind c"])]] * 2


def test_a_state_that_comes_early_is_kept(servers: Servers) -> None:
    a, b = servers.join("a", "b")
    exchanging = in_thread(lambda: propagated(b, "b"))
    b_waits = a.receive(0.3)  # takes the state of b, and shows nothing
    assert b_waits is None
    assert propagated(a, "a") == ({"a": "a", "b": "b"}, [])
    assert heard(exchanging, 1) == [({"a": "a", "b": "b"}, [])]
