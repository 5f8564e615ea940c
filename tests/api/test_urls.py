"""Where a connection goes, and what it says when that is nowhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
from antiphon.api.protocol import conversation
from antiphon.api.urls import default_url, look_up, route_to
from antiphon.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    OutcomeUnknownError,
)
from tests.api.support import backends
from tests.api.support.fronts import PATIENCE_S, Aio, Sync


@pytest.fixture(params=[Sync, Aio], ids=["sync", "aio"])
def front(request: pytest.FixtureRequest) -> Iterator[Any]:
    front = request.param()
    yield front
    front.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://x:1",
        "antiphon://",
        "antiphon://host",
        "antiphon://a:1,b",
        "embedded://x",
        "antiphon://a:0",
        "antiphon://a:1,b:0",
        "antiphon://[::1",
        "antiphon://[::1:7470",
        "antiphon://::1]:7470",
        "antiphon://[]:7470",
        "antiphon://a:\u0664",
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigurationError):
        route_to(url)


def test_a_url_has_no_user() -> None:
    with pytest.raises(ConfigurationError, match="no user and no password") as error:
        route_to("antiphon://anna:secret@127.0.0.1:7470")
    assert "secret" not in str(error.value)
    assert error.value.happened == "no"


@pytest.mark.parametrize("given", [{"user": "anna"}, {"password": "a"}])
def test_users_and_passwords_are_refused_before_anything_is_sent(
    front: Any, given: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody_asked:
        nobody_asked.settimeout(0)
        with pytest.raises(antiphon.SecurityError, match="keep no users") as error:
            front.connect(f"antiphon://127.0.0.1:{nobody_asked.getsockname()[1]}", **given)
        assert error.value.happened == "no"
        with pytest.raises(BlockingIOError):
            nobody_asked.accept()


def test_the_url_comes_from_the_environment_or_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTIPHON_URL", raising=False)
    with pytest.raises(ConfigurationError, match="ANTIPHON_URL"):
        default_url()
    (tmp_path / "antiphon.toml").write_text('url = "embedded:file"\n')
    assert default_url() == "embedded:file"
    monkeypatch.setenv("ANTIPHON_URL", "embedded:environment")
    assert default_url() == "embedded:environment"
    with antiphon.connect() as context:
        context.create_producer().send(context.create_queue("q"), "x")


def test_destinations_are_looked_up_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidDestinationError, match="alarms"):
        look_up("alarms")
    (tmp_path / "antiphon.toml").write_text('[destinations]\nalarms = "topic:Alarms"\n')
    with antiphon.connect("embedded:") as context:
        assert context.lookup("alarms") == context.create_topic("Alarms")
        with pytest.raises(InvalidDestinationError, match="only: alarms"):
            context.lookup("fire")


def test_embedded_is_private_to_its_connection(front: Any) -> None:
    one, two = front.connect("embedded:"), front.connect("embedded:")
    queue = one.create_queue("q")
    one.create_producer().send(queue, "mine")
    assert two.create_consumer(queue).receive(0.1) is None
    one.close()
    two.close()


def test_a_shared_embedded_server_ends_with_its_last_connection(front: Any) -> None:
    one, two = front.connect("embedded:shared"), front.connect("embedded:shared")
    queue = one.create_queue("q")
    one.create_producer().send(queue, "kept")
    one.close()
    two.create_producer().send(queue, "still there")
    two.close()
    three = front.connect("embedded:shared")
    assert three.create_consumer(queue).receive(0.1) is None
    three.close()


def test_an_embedded_server_with_a_folder_keeps_its_messages(front: Any, tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}/data"
    context = front.connect(url)
    queue = context.create_queue("q")
    context.create_producer().send(queue, "kept")
    with pytest.raises(IllegalStateError, match="in use"):
        front.connect(url, connect_timeout=PATIENCE_S)
    context.close()
    context = front.connect(url)
    assert context.create_consumer(queue).receive(PATIENCE_S).text == "kept"
    context.close()


@pytest.mark.process
def test_a_connection_that_is_lost_for_good(front: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short = conversation.Terms(lease_ms=300)
    monkeypatch.setattr("antiphon.api.options.terms_of", lambda *_: short)
    complaints: Results[Exception] = Results()
    with backends.one_server() as backend:
        context = front.connect(backend.url)
        context.exception_listener = complaints.put
        queue = context.create_queue("q")
        consumer, producer = context.create_consumer(queue), context.create_producer()
        producer.send(queue, "x")
        assert consumer.receive(PATIENCE_S).text == "x"
        looping = iter(consumer)
    future = producer.send_async(queue, "never")
    with pytest.raises(ConnectionLostError, match="no server took the connection again"):
        consumer.receive(PATIENCE_S)
    with pytest.raises(ConnectionLostError):
        next(looping)
    assert isinstance(future.exception(PATIENCE_S), ConnectionLostError)
    with pytest.raises(ConnectionLostError):
        producer.send(queue, "x")
    with pytest.raises(ConnectionLostError):
        context.create_consumer(queue)
    assert isinstance(complaints.get(timeout=PATIENCE_S), ConnectionLostError)
    consumer.close()
    context.close()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.receive(0)


@pytest.mark.process
def test_a_send_without_an_answer_says_so_and_goes_on(front: Any) -> None:
    """A server that can be reached and does not answer: the outcome is unknown for a while."""
    with backends.one_server() as backend:
        reader = front.connect(backend.url)
        queue = reader.create_queue("q")
        consumer = reader.create_consumer(queue)
        with backends.gate(backend) as (url, gate):
            sender = front.connect(url, send_timeout=0.1)
            gate.shut()
            with pytest.raises(OutcomeUnknownError, match="stores it at most once") as caught:
                sender.create_producer().send(queue, "late")
            assert caught.value.happened == "unknown"
            assert isinstance(caught.value, TimeoutError)
            gate.open()
            assert consumer.receive(PATIENCE_S).text == "late"
            sender.close()
        reader.close()


@pytest.mark.process
def test_closing_without_a_server_takes_no_longer_than_it_may(front: Any) -> None:
    with backends.one_server() as backend:
        context = front.connect(backend.url, close_timeout=0.2)
        queue = context.create_queue("q")
    context.create_producer().send_async(queue, "never")
    with pytest.raises(OutcomeUnknownError, match="1 message"):
        context.close()
    context.close()


@pytest.mark.process
def test_something_else_that_listens_is_no_server(front: Any) -> None:
    async def serve() -> asyncio.Server:
        async def chat(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example.org ESMTP\r\n" + bytes(100))
            writer.close()

        return await asyncio.start_server(chat, "127.0.0.1", 0)

    loop = backends.background_loop()
    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionLostError, match=rf"127\.0\.0\.1:{port}: a frame"):
        front.connect(f"antiphon://127.0.0.1:{port}", connect_timeout=0.3)
    loop.call_soon_threadsafe(server.close)
