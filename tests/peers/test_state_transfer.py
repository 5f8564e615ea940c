"""Channels of both fronts take over states and hand them out, with real sockets."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import peers
from antiphon.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    OutcomeUnknownError,
)
from antiphon.peers import state_files
from antiphon.peers.layers.state import WINDOW_BYTES
from antiphon.peers.stack import stacks
from antiphon.peers.state_files import StateFile, source_of
from tests.peers.support.fronts import AwaitedChannel

pytestmark = pytest.mark.process

STATELESS = peers.Stack(*stacks.FIFO.layers[:-1])
WAIT_S = 10


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(autouse=True, params=["blocking", "asyncio"])
def front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setattr(peers, "Channel", AwaitedChannel)


class Table:
    """A program that keeps the bodies that it has received, on a thread of its own."""

    def __init__(self, name: str, provider: Callable[[], Any] | None = None) -> None:
        self.rows: list[str] = []
        self.received = threading.Condition()
        self.channel = peers.Channel(stacks.TOTAL_UNIFORM, name=name, state=provider or self.dumped)
        self.thread = threading.Thread(target=self.work)

    def dumped(self) -> bytes:
        return "\n".join(self.rows).encode()

    def begin(self, takes_over: bool = False) -> None:
        self.channel.connect("tables")
        if takes_over:
            stream = self.channel.get_state(WAIT_S)
            assert stream is not None
            with stream:
                self.rows = stream.read().decode().split("\n")
        self.thread.start()

    def work(self) -> None:
        for event in self.channel:
            if not isinstance(event, antiphon.ViewMessage):
                with self.received:
                    self.rows.append(event.body)
                    self.received.notify_all()

    def has(self, count: int) -> None:
        with self.received:
            assert self.received.wait_for(lambda: len(self.rows) >= count, WAIT_S)

    def end(self) -> None:
        self.channel.close()
        if self.thread.ident is not None:
            self.thread.join(WAIT_S)


@pytest.fixture
def table() -> Iterator[Callable[..., Table]]:
    tables: list[Table] = []

    def make(name: str, provider: Callable[[], Any] | None = None) -> Table:
        tables.append(Table(name, provider))
        return tables[-1]

    yield make
    for each in tables:
        each.end()


def test_who_joins_in_the_midst_of_traffic_has_what_all_have(table: Callable[..., Table]) -> None:
    a, b = table("a"), table("b")
    a.begin()
    stop = threading.Event()
    count = 0

    def send() -> None:
        nonlocal count
        while not stop.is_set() and count < 200_000:
            a.channel.send(f"{count}")
            count += 1

    sender = threading.Thread(target=send)
    sender.start()
    a.has(100)
    b.begin(takes_over=True)
    stop.set()
    sender.join()
    a.has(count)
    b.has(count)
    assert a.rows == b.rows == [f"{i}" for i in range(count)]


def test_a_large_state_comes_from_an_iterable_and_is_a_file(table: Callable[..., Table]) -> None:
    part, count = b"x" * 1000, 3 * state_files.IN_MEMORY_BYTES // 1000
    assert len(part) * count > 4 * WINDOW_BYTES
    a, b = table("a", lambda: (part for _ in range(count))), table("b")
    a.begin()
    b.channel.connect("tables")
    stream = b.channel.get_state(WAIT_S)
    assert stream is not None
    with stream:
        assert stream.read(10) == b"x" * 10
        assert len(stream.read()) == len(part) * count - 10


def test_a_provider_that_raises_is_followed_by_the_next(
    table: Callable[..., Table], caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([b"one"])

    def broken() -> bytes:
        for answer in answers:
            return answer
        raise RuntimeError("planted")

    a, b, c, d = table("a", broken), table("b"), table("c"), table("d", broken)
    a.begin()
    a.channel.send("one")
    a.has(1)
    b.begin(takes_over=True)
    c.begin(takes_over=True)
    assert "planted" in caplog.text
    assert c.rows == b.rows == ["one"]
    for each in (b, c):
        each.end()
    d.channel.connect("tables")
    with pytest.raises(ConnectionLostError, match="the state is lost"):
        d.channel.get_state(WAIT_S)


def test_a_channel_that_begins_a_cluster_has_no_state_to_take_over(
    table: Callable[..., Table],
) -> None:
    a = table("a")
    a.channel.connect("tables")
    assert a.channel.get_state(WAIT_S) is None


def test_a_provider_that_does_not_receive_is_named_and_nothing_is_dropped(
    table: Callable[..., Table],
) -> None:
    a, b = table("a"), table("b")
    a.channel.connect("tables")
    b.channel.connect("tables")
    a.channel.send("one")
    with pytest.raises(OutcomeUnknownError, match=r"0.3 s: a has handed out 0 bytes") as raised:
        b.channel.get_state(0.3)
    assert raised.value.happened == "no"
    bodies = [event.body for event in iter(lambda: b.channel.receive(0.2), None)]
    assert "one" in bodies


def test_arguments_and_uses_that_make_no_sense_are_refused(table: Callable[..., Table]) -> None:
    with pytest.raises(TypeError, match="state is a function"):
        peers.Channel(stacks.FIFO, state=b"x")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no layer of this stack hands out a state"):
        peers.Channel(STATELESS, state=lambda: b"")
    with peers.Channel(STATELESS, name="a") as a:
        with pytest.raises(IllegalStateError, match="not connected"):
            a.get_state()
        a.connect("c")
        with pytest.raises(IllegalStateError, match="no layer for states"):
            a.get_state()
        with pytest.raises(ValueError, match="timeout"):
            a.get_state(-1)


@pytest.mark.parametrize("front", ["blocking"], indirect=True)  # the function cannot await
def test_a_provider_may_not_receive(
    table: Callable[..., Table], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = table("a", lambda: a.channel.receive(0)), table("b")
    a.begin()
    b.channel.connect("tables")
    with pytest.raises(ConnectionLostError):
        b.channel.get_state(WAIT_S)
    assert "may not receive" in caplog.text


def test_a_listener_hands_out_the_state_and_asyncio_takes_it_over(
    table: Callable[..., Table],
) -> None:
    a = table("a")
    a.channel.connect("tables")
    a.channel.set_message_listener(lambda event: a.rows.append(type(event).__name__))

    async def test() -> None:
        async with peers.aio.Channel(stacks.TOTAL_UNIFORM, name="b", state=lambda: b"b") as b:
            await b.connect("tables")
            stream = await b.get_state(WAIT_S)
            assert stream is not None
            with stream:
                assert set(stream.read().split()) == {b"ViewMessage"}

            async def receive() -> None:
                async for _ in b:
                    pass

            task = asyncio.create_task(receive())
            waiting = asyncio.create_task(b.get_state(WAIT_S))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            again = await b.get_state(WAIT_S)
            assert again is not None
            again.close()
            await b.close()
            await task

    asyncio.run(test())


def test_what_a_provider_returns_is_kept_as_it_was() -> None:
    data = bytearray(b"state")
    source = source_of(lambda: data)  # type: ignore[arg-type,return-value]
    data[:] = b"later"
    assert (source.size, source.read(1, 3)) == (5, b"tat")
    pieces = source_of(lambda: iter([b"st", b"", b"ate"]))
    assert (pieces.size, pieces.read(1, 3), pieces.read(4, 9)) == (5, b"tat", b"e")
    pieces.close()


def test_a_file_that_begins_anew_forgets_what_was_written() -> None:
    file = StateFile()
    file.write(b"long and wrong")
    file.restart()
    file.write(b"right")
    with file.opened() as stream:
        assert stream.read() == b"right"
