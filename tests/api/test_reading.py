"""Blocked threads of a program read their connection themselves, and nothing gets lost by it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import antiphon
from antiphon.api.connection import FLOOD_BYTES, Connection
from antiphon.api.conversation import Conversation
from antiphon.api.conversation_ticket import Ticket
from antiphon.api.reading import HAND_BACK_S, Reading
from antiphon.errors import FormatError
from antiphon.io.dialing import Descriptor, TcpLink
from antiphon.io.loop import background_loop
from tests.api import backends
from tests.api.backends import Backend
from tests.api.fronts import PATIENCE_S

pytestmark = pytest.mark.process
OFTEN = 50
SOON_S = 5.0
"""Before the connection would be taken for dead, and another one made."""


@pytest.fixture
def server() -> Iterator[Backend]:
    with backends.one_server() as server:
        yield server


@pytest.fixture
def connect(server: Backend) -> Iterator[Callable[[], antiphon.Context]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(antiphon.connect(server.url, close_timeout=SOON_S))


@pytest.fixture
def takers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that took what had arrived, one for each time."""
    names: list[str] = []
    take = Connection._take

    def noted(connection: Connection, bodies: Any) -> None:
        names.append(threading.current_thread().name)
        take(connection, bodies)

    monkeypatch.setattr(Connection, "_take", noted)
    return names


def echo(consumer: antiphon.Consumer, producer: antiphon.Producer, text: str) -> None:
    """A message on its way to the one who waits for it."""
    late = threading.Timer(0.002, producer.send, (consumer.destination, text))
    late.start()
    message = consumer.receive(SOON_S)
    assert message is not None
    assert message.body == text
    late.join()


def test_who_waits_reads(connect: Callable[[], antiphon.Context], takers: list[str]) -> None:
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    for n in range(OFTEN):
        echo(consumer, producer, str(n))
    assert takers.count("MainThread") > OFTEN // 2


def test_a_message_that_travels_alone_leaves_from_where_it_is_sent(
    connect: Callable[[], antiphon.Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    senders: list[str] = []
    send = TcpLink.send_here

    def noted(link: TcpLink, requests: Any) -> None:
        senders.append(threading.current_thread().name)
        send(link, requests)

    monkeypatch.setattr(TcpLink, "send_here", noted)
    ctx = connect()
    producer, queue = ctx.create_producer(), ctx.create_queue("q")
    for n in range(OFTEN):
        producer.send(queue, str(n))
    assert senders.count("MainThread") > OFTEN // 2
    with ctx.create_consumer(queue) as consumer:
        messages = [consumer.receive(PATIENCE_S) for _ in range(OFTEN)]
    assert [m.body for m in messages if m is not None] == [str(n) for n in range(OFTEN)]


def test_the_loop_reads_when_nobody_waits_any_more(connect: Callable[[], antiphon.Context]) -> None:
    """Otherwise what nobody waits for would come only when somebody waits again."""
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    for n in range(OFTEN):
        echo(consumer, producer, str(n))
    heard = threading.Event()
    consumer.set_message_listener(lambda message: heard.set())
    producer.send(consumer.destination, "for the listener")
    assert heard.wait(SOON_S)


def test_answers_come_to_who_does_not_wait_for_them(
    connect: Callable[[], antiphon.Context],
) -> None:
    ctx = connect()
    producer, queue = ctx.create_producer(), ctx.create_queue("q")
    for n in range(OFTEN):
        producer.send(queue, str(n))  # so that the link is lent
        settled = threading.Event()
        producer.send_async(queue, "more").add_done_callback(lambda _, e=settled: e.set())
        assert settled.wait(PATIENCE_S)


def test_one_of_several_that_wait_reads(
    connect: Callable[[], antiphon.Context], takers: list[str]
) -> None:
    """The one who reads leaves, and another one goes on."""
    reader, writer = connect(), connect()
    queue = reader.create_queue("q")
    consumer = reader.create_consumer(queue)
    got: list[str] = []
    lock = threading.Lock()

    def receive() -> None:
        while (message := consumer.receive(PATIENCE_S)) is not None:
            with lock:
                got.append(message.body)
            if message.body == "end":
                return

    threads = [threading.Thread(target=receive, name=f"reader {n}") for n in range(4)]
    for thread in threads:
        thread.start()
    producer = writer.create_producer()
    for n in range(OFTEN):
        producer.send(queue, str(n))
    for _ in threads:
        producer.send(queue, "end")
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(got) == sorted([*map(str, range(OFTEN)), *["end"] * 4])
    assert sum(name.startswith("reader") for name in takers) > OFTEN // 2


class OneLink(TcpLink):
    """A socket, without a loop that would read it."""

    def __init__(self, end: socket.socket) -> None:
        self.descriptor = Descriptor(end.fileno())

    def lend(self) -> Descriptor:
        return self.descriptor


def test_when_the_reader_leaves_the_next_one_reads() -> None:
    """At once, and not when the loop finds out that nobody does."""
    loop, tickets = background_loop(), {b"1": Ticket(), b"2": Ticket()}
    near, far = socket.socketpair()

    def read() -> None:
        ticket = tickets[near.recv(1)]
        ticket.settle()
        ticket.tell()

    with near, far:
        shared, link = Reading(loop, read, lambda link: None), OneLink(near)
        threads = [
            threading.Thread(target=shared.wait, args=(ticket, PATIENCE_S))
            for ticket in tickets.values()
        ]
        threads[0].start()
        until(lambda: len(shared._waiters) == 1)
        loop.call_soon_threadsafe(shared.offer, link)
        until(lambda: shared._reader is not None)
        first = shared._reader
        threads[1].start()
        until(lambda: len(shared._waiters) == 2)
        far.send(b"1")
        threads[0].join(PATIENCE_S)
        until(lambda: shared._reader not in (None, first))
        far.send(b"2")
        threads[1].join(PATIENCE_S)
        assert all(ticket.done for ticket in tickets.values())
        shared.end()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        threading.Event().wait(0.001)


def test_garbage_ends_the_connection_also_if_a_thread_reads_it(
    connect: Callable[[], antiphon.Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    read, garbage = TcpLink.read, [FormatError("planted")]

    def planted(link: TcpLink) -> Any:
        bodies = read(link)
        if bodies and garbage:
            raise garbage.pop()
        return bodies

    monkeypatch.setattr(TcpLink, "read", planted)
    for n in range(OFTEN):
        echo(consumer, producer, str(n))
    assert not garbage


def test_who_waits_is_told_when_the_consumer_is_closed(
    connect: Callable[[], antiphon.Context],
) -> None:
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    for n in range(OFTEN):
        echo(consumer, producer, str(n))
    closing = threading.Timer(3 * HAND_BACK_S, consumer.close)
    closing.start()
    assert consumer.receive(PATIENCE_S) is None
    closing.join()


def test_nobody_is_woken_for_who_waits_for_long(
    connect: Callable[[], antiphon.Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = [0], Reading._look_after

    def counted(reading: Reading, turns: int) -> None:
        looks[0] += 1
        look(reading, turns)

    monkeypatch.setattr(Reading, "_look_after", counted)
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    for n in range(OFTEN):
        echo(consumer, producer, str(n))
    looks[0] = 0
    assert consumer.receive(20 * HAND_BACK_S) is None
    assert looks[0] <= 4
    echo(consumer, producer, "afterwards")
    heard = threading.Event()
    consumer.set_message_listener(lambda message: heard.set())
    producer.send(consumer.destination, "for the listener")
    assert heard.wait(SOON_S)


def test_a_wait_ends_when_its_time_is_over(connect: Callable[[], antiphon.Context]) -> None:
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    for n in range(OFTEN):
        echo(consumer, producer, str(n))
        assert consumer.receive(0.002) is None


def hang_up(ctx: antiphon.Context) -> None:
    """The connection ends, and only who reads it sees that."""
    link = ctx.connection._shared
    if link is not None and link._descriptor is not None:
        with socket.socket(fileno=os.dup(link._descriptor.number)) as sock:
            sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("cut", [hang_up, backends.lose_connection])
def test_a_cut_wire_is_noticed_by_who_reads(
    connect: Callable[[], antiphon.Context],
    monkeypatch: pytest.MonkeyPatch,
    cut: Callable[[antiphon.Context], None],
) -> None:
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    read, readers, ends = TcpLink.read, set(), 0

    def noted(link: TcpLink) -> Any:
        nonlocal ends
        readers.add(threading.current_thread().name)
        try:
            return read(link)
        except OSError:
            ends += 1
            raise

    monkeypatch.setattr(TcpLink, "read", noted)
    for n in range(OFTEN):
        if n % 10 == 9:
            cut(reader)
        echo(consumer, producer, str(n))
    assert "MainThread" in readers
    assert ends <= OFTEN // 10  # told to the loop, it is not read again


def test_a_flood_is_left_to_the_loop(
    connect: Callable[[], antiphon.Context], takers: list[str]
) -> None:
    ctx = connect()
    queue = ctx.create_queue("q")
    ctx.create_producer().send_all(queue, [bytes(FLOOD_BYTES)] * 200)
    del takers[:]
    with connect().create_consumer(queue) as consumer:
        for _ in range(200):
            assert consumer.receive(PATIENCE_S) is not None
    assert takers.count("MainThread") < takers.count("antiphon")


@pytest.mark.timeout(20)
def test_an_interrupt_in_the_middle_of_reading_loses_nothing(
    connect: Callable[[], antiphon.Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = connect(), connect()
    consumer = reader.create_consumer(reader.create_topic("t"))
    producer = writer.create_producer()
    for n in range(OFTEN):
        echo(consumer, producer, str(n))  # so that the link is lent
    received, interrupts = Conversation.received, 0

    def interrupted(conversation: Conversation, body: Any, now_ms: int) -> None:
        nonlocal interrupts
        if threading.current_thread() is threading.main_thread() and interrupts < OFTEN:
            interrupts += 1
            signal.raise_signal(signal.SIGINT)
        received(conversation, body, now_ms)

    monkeypatch.setattr(Conversation, "received", interrupted)
    got = []
    for n in range(OFTEN):
        late = threading.Timer(0.002, producer.send, (consumer.destination, str(n)))
        late.start()
        while True:
            with suppress(KeyboardInterrupt):
                message = consumer.receive(SOON_S)
                break
        assert message is not None, f"after {got}"
        got.append(message.body)
        late.join()
    assert got == [str(n) for n in range(OFTEN)]
    assert interrupts > OFTEN // 2
