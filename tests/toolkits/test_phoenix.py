"""Phoenix over channels with real sockets, in one process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from antiphon.errors import IllegalStateError
from antiphon.toolkits import phoenix
from antiphon.toolkits.phoenix import Order
from tests.process.support.peer_processes import wait_until
from tests.toolkits.support.at_once import at_once

pytestmark = pytest.mark.process

WAIT_S = 20


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


class Heard:
    """Keeps what the callbacks get, as lines: `[a b]` views, `<a b>` intermediate ones, bodies."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.news = threading.Condition()

    def hear(self, line: str) -> None:
        with self.news:
            self.lines.append(line)
            self.news.notify_all()

    def wait(self, last: str) -> list[str]:
        with self.news:
            assert self.news.wait_for(lambda: self.lines[-1:] == [last], WAIT_S), self.lines
            return self.lines

    def wait_count(self, count: int) -> list[str]:
        with self.news:
            assert self.news.wait_for(lambda: len(self.lines) >= count, WAIT_S), self.lines
            return self.lines


class Sink(phoenix.Sink):
    def __init__(self, name: str) -> None:
        self.heard = Heard()
        super().__init__(name)

    def deliver(self, message: phoenix.Message) -> None:
        self.heard.hear(message.body.decode())

    def view_change_delivery_cb(self, view: phoenix.View) -> None:
        self.heard.hear(f"[{' '.join(view.members)}]")


class Client(Sink, phoenix.Client):
    pass


class Member(Client, phoenix.Member):
    def intermediate_view_delivery_cb(self, view: phoenix.View) -> None:
        self.heard.hear(f"<{' '.join(view.members)}>")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def members_of(stack: ExitStack, names: str, group: str = "g") -> list[Member]:
    members = [stack.enter_context(Member(name)) for name in names]
    for at, member in enumerate(members):
        member.join(group)
        for one in members[: at + 1]:
            one.heard.wait(f"[{' '.join(names[: at + 1])}]")
    for member in members:
        member.heard.lines.clear()
    return members


@pytest.mark.parametrize("order", Order)
def test_members_and_sinks_get_what_a_client_multicasts(stack: ExitStack, order: Order) -> None:
    a, b = members_of(stack, "ab")
    sink, client = stack.enter_context(Sink("s")), stack.enter_context(Client("c"))
    sink.sink_subscribe("g")
    client.client_subscribe("g")
    assert sink.heard.wait("[a b]") == client.heard.wait("[a b]") == ["[a b]"]
    client.multicast(b"hello", order, "g")
    for one in (a, b):
        assert one.heard.wait("hello") == ["hello"]
    assert sink.heard.wait("hello") == ["[a b]", "hello"]
    assert client.heard.lines == ["[a b]"]


def test_clients_and_sinks_are_told_views_and_are_in_none(stack: ExitStack) -> None:
    a, b = members_of(stack, "ab")
    sink, client = stack.enter_context(Sink("s")), stack.enter_context(Client("c"))
    sink.sink_subscribe("g")
    client.client_subscribe("g")
    sink.heard.wait("[a b]")
    client.heard.wait("[a b]")
    b.leave()
    assert b.heard.wait("[a]") == ["<a b>", "[a]"]
    for one in (sink, client):
        assert one.heard.wait("[a]") == ["[a b]", "[a]"]
    sink.sink_unsubscribe("g")
    client.client_unsubscribe("g")
    present = a._process.directory
    wait_until(
        lambda: not (present.members("sinks/g") or present.members("clients/g")), "the view of that"
    )
    with pytest.raises(IllegalStateError, match="'c' is neither member nor client of 'g'"):
        client.multicast(b"", group="g")
    a.multicast(b"end")
    assert a.heard.wait("end") == ["<a b>", "[a]", "end"]
    for one in (sink, client):
        assert one.heard.lines == ["[a b]", "[a]"]


def test_all_orders_but_fifo_are_one_order_for_all(stack: ExitStack) -> None:
    members = members_of(stack, "abc")
    totals = [order for order in Order if order is not Order.FIFO]

    def sender(member: Member) -> Callable[[int], object]:
        return lambda i: member.multicast(f"{member.name}{i}".encode(), totals[i % 4])

    at_once(60, *map(sender, members))
    a, b, c = (member.heard.wait_count(180) for member in members)
    assert a == b == c
    assert sorted(a) == sorted(f"{name}{i}" for name in "abc" for i in range(60))


def test_groups_share_the_global_order(stack: ExitStack) -> None:
    """Two sinks of both groups get the messages of two members in one order."""
    (a,) = members_of(stack, "a", "g")
    (b,) = members_of(stack, "b", "h")
    sinks = [stack.enter_context(Sink(name)) for name in "st"]
    for sink in sinks:
        for group, name in (("g", "a"), ("h", "b")):
            sink.sink_subscribe(group)
            sink.heard.wait(f"[{name}]")

    at_once(
        100,
        lambda i: a.multicast(f"a{i}".encode(), Order.GLOBAL),
        lambda i: b.multicast(f"b{i}".encode(), Order.GLOBAL),
    )
    s, t = (sink.heard.wait_count(202)[2:] for sink in sinks)
    assert s == t
    assert len(s) == 200


def test_who_is_gone_is_missing_in_an_intermediate_view_and_then_in_a_view(
    stack: ExitStack,
) -> None:
    a, b, c = members_of(stack, "abc")
    c.close()
    for one in (a, b):
        assert one.heard.wait("[a b]") == ["<a b>", "[a b]"]


def test_a_callback_that_raises_and_one_that_sends(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    class Answering(Member):
        def deliver(self, message: phoenix.Message) -> None:
            super().deliver(message)
            if message.body == b"question":
                self.multicast(b"answer")
                raise RuntimeError("planted")

    a = stack.enter_context(Answering("a"))
    a.join("g")
    a.heard.wait("[a]")
    a.multicast(b"question")
    assert a.heard.wait("answer") == ["[a]", "question", "answer"]
    assert "planted" in caplog.text


def test_mistakes_are_named(stack: ExitStack) -> None:
    (a,) = members_of(stack, "a")
    with pytest.raises(IllegalStateError, match="'a' is a member of 'g' already"):
        a.join("h")
    with pytest.raises(IllegalStateError, match="'a' is none of the sinks of 'h'"):
        a.sink_unsubscribe("h")
    with pytest.raises(TypeError, match="ord is an Order"):
        a.multicast(b"", "fifo")  # type: ignore[arg-type]
    a.leave()
    for call in (a.leave, lambda: a.multicast(b"")):
        with pytest.raises(IllegalStateError, match="'a' is a member of no group"):
            call()
