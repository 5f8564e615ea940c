"""Metrics over HTTP: what is answered, and that nobody can disturb a server with it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Membership, ReplicaId
from antiphon.io.transport import Address
from antiphon.server import metrics
from antiphon.server.metrics import Metrics

STATUS = cw.Status(
    id=ReplicaId(2, 7),
    pid=1,
    role="follower",
    epoch=5,
    leader=ReplicaId(1, 9),
    membership=Membership(3, (ClusterMember(2, 7, True, "a:1"),)),
    addresses={2: "a:1"},
    committed=41,
    applied=40,
    position=900,
    digest=0,
    cpu_s=1.5,
    trouble=(),
)


class FakeServer:
    def __init__(self) -> None:
        self.serves: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.says = STATUS

    def status(self) -> cw.Status:
        return self.says

    def counts(self) -> dict[str, dict[str, int]]:
        return {"listener": {"clients": 3, "dropped": 4}, "journal": {"segments": 2}}


def run(test: Callable[[FakeServer, Address], Awaitable[None]]) -> None:
    async def main() -> None:
        server = FakeServer()
        endpoint = Metrics(server)
        address = await endpoint.start(("127.0.0.1", 0))
        try:
            await test(server, address)
        finally:
            endpoint.close()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def asking(address: Address, request: bytes) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection(*address, limit=1024)
    writer.write(request)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(address: Address, request: bytes) -> tuple[int, str]:
    """The status code and the body of the answer."""
    async with asking(address, request) as reader:
        answer = await reader.read()
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body)}" in head
    return int(head.split(" ")[1]), body


async def until_ready(address: Address) -> None:
    """Asks until there is an answer again; the test's own timeout ends it otherwise."""
    while await turned_away(address):
        pass


async def turned_away(address: Address) -> bool:
    async with asking(address, b"GET /ready HTTP/1.1\r\n\r\n") as reader:
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


async def get(address: Address, path: str) -> tuple[int, str]:
    return await ask(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def values(text: str) -> dict[str, float]:
    """As Prometheus reads them: every line is a comment or a name and a number."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z_]+)(\{[^}]*\})? ([0-9.e+]+)", line)
            assert match, line
            found[match[1]] = float(match[3])
    return found


def test_metrics_have_everything_that_the_server_says() -> None:
    async def test(server: FakeServer, address: Address) -> None:
        code, text = await get(address, "/metrics")
        assert code == 200
        found = values(text)
        assert found["antiphon_listener_clients"] == 3
        assert found["antiphon_journal_segments"] == 2
        assert found["antiphon_leader"] == 1
        assert found["antiphon_epoch"] == 5
        assert found["antiphon_committed"] == 41
        assert found["antiphon_applied"] == 40
        assert found["antiphon_messages_total"] == 900
        assert found["process_cpu_seconds_total"] == 1.5
        assert found["process_resident_memory_bytes"] > 1 << 20
        assert 'antiphon_info{node="2",role="follower",' in text
        assert "# TYPE antiphon_listener_dropped_total counter" in text
        assert "# TYPE antiphon_listener_clients gauge" in text

    run(test)


def test_ready_needs_a_leader_and_no_trouble() -> None:
    async def test(server: FakeServer, address: Address) -> None:
        assert await get(address, "/ready") == (503, "no leader is known here\n")
        server.serves.set_result(None)
        assert await get(address, "/ready") == (200, "ready\n")
        server.says = msgspec.structs.replace(STATUS, trouble=("no room on the disk",))
        assert await get(address, "/ready") == (503, "no room on the disk\n")
        server.says = msgspec.structs.replace(STATUS, leader=None)
        assert await get(address, "/ready") == (503, "no leader is known here\n")

    run(test)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET /metrics?debug=1 HTTP/1.0\r\n\r\n", 200),
        (b"GET /secret HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x00\xff\x80\r\n\r\n", 400),
        (b"GET /metrics SPDY/3\r\n\r\n", 400),
    ],
)
def test_requests_good_and_bad(request_: bytes, code: int) -> None:
    async def test(server: FakeServer, address: Address) -> None:
        assert (await ask(address, request_))[0] == code

    run(test)


def test_an_oversized_request_is_cut() -> None:
    async def test(server: FakeServer, address: Address) -> None:
        request = b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * metrics.REQUEST_BYTES
        async with asking(address, request) as reader:
            try:
                answer = await reader.read()
            except ConnectionResetError:
                answer = b""  # the rest of the request met a closed connection
            assert answer == b"" or b" 400 " in answer

    run(test)


def test_a_slow_request_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 0.05)

    async def test(server: FakeServer, address: Address) -> None:
        assert (await ask(address, b"GET /metrics HTTP/1.1\r\n"))[0] == 400

    run(test)


def test_an_answer_that_nobody_fetches_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ANSWER_S", 0.05)
    monkeypatch.setattr(metrics, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(metrics, "render", lambda *_: "x" * (64 << 20))

    async def test(server: FakeServer, address: Address) -> None:
        server.serves.set_result(None)
        async with asking(address, b"GET /metrics HTTP/1.1\r\n\r\n") as reader:
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await until_ready(address)  # the only connection that there may be is free again

    run(test)


def test_connections_are_bounded() -> None:
    async def test(server: FakeServer, address: Address) -> None:
        server.serves.set_result(None)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(metrics.CONNECTIONS_MAX):
                await stack.enter_async_context(asking(address, b""))
            assert await turned_away(address)
        await until_ready(address)

    run(test)


def test_a_mistake_while_answering_costs_only_that_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(server: FakeServer, address: Address) -> None:
        unhandled: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: unhandled.append(c))
        server.says = None  # type: ignore[assignment]
        async with asking(address, b"GET /metrics HTTP/1.1\r\n\r\n") as reader:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        server.says = STATUS
        assert (await get(address, "/metrics"))[0] == 200
        assert unhandled == []
        assert "a request for metrics failed" in caplog.text

    run(test)
