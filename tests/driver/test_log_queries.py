"""A server hands out parts of its log: complete, or with an error; in small steps."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.driver import log_queries
from antiphon.formats import protocol as cw
from antiphon.journal.disk import RamDisk
from antiphon.log.settings import Settings
from antiphon.server.server import Server
from tests.server.test_server import HOST, RawClient, connected, eventually, publish, run

pytestmark = pytest.mark.process

PLENTY = 1 << 20


class QueriedServer:
    """A server, with a publisher whose packs of two messages go to x and y in turn."""

    def __init__(self, server: Server, address: tuple[str, int]) -> None:
        self.server = server
        self._address = address
        self._sent = 0
        self._clients: list[RawClient] = []

    async def open(self) -> None:
        self._publisher = await self.reader()
        await self._publisher.attach()

    async def fill(self, packs: int, body: bytes = b"body") -> None:
        for _ in range(packs):
            name = "xy"[self._sent % 4 // 2]
            self._publisher.send(publish(self._sent + 1, 2, body, destination=f"topic:{name}"))
            self._sent += 2
        await self._publisher.published(self._sent)

    async def reader(self) -> RawClient:
        self._clients.append(await connected(self._address))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def queried(retain: int | None = None, **settings: int) -> AsyncIterator[QueriedServer]:
    chosen = Settings(volatile=True, **settings)  # type: ignore[arg-type]
    server = Server(1, {1: (HOST, 0)}, RamDisk(), chosen, retain)
    address = await server.start((HOST, 0))
    try:
        await server.serves
        there = QueriedServer(server, address)
        await there.open()
        yield there
        there.close()
    finally:
        await server.close()


async def packs(client: RawClient) -> tuple[list[int], cw.Answer]:
    """Positions of those that come, and what comes after them."""
    found = []
    while isinstance(answer := await client.receive(), cw.Delivered):
        found.append(answer.position)
    return found, answer


async def silent(client: RawClient) -> bool:
    """Nothing comes but the answers to two questions: between them the server had its turn."""
    client.send(cw.AskStatus())
    first = await client.receive()
    client.send(cw.AskStatus())
    return isinstance(first, cw.Status) and isinstance(await client.receive(), cw.Status)


def test_a_range_is_read_and_ended() -> None:
    async def main() -> None:
        async with queried() as there:
            await there.fill(10)
            reader = await there.reader()
            reader.send(cw.ReadLog("topic:y", 4, 12, PLENTY))
            assert await packs(reader) == ([3, 7, 11], cw.LogEnd(12))
            reader.send(cw.ReadLog("topic:y", 5, 6, PLENTY))
            assert await packs(reader) == ([], cw.LogEnd(6))

    run(main())


def test_what_is_not_accepted_yet_is_waited_for() -> None:
    async def main() -> None:
        async with queried() as there:
            await there.fill(4)
            reader, asker = await there.reader(), await there.reader()
            reader.send(cw.ReadLog("topic:x", 1, 10, PLENTY))
            asker.send(cw.AskSlices(("topic:x",), 1, 10, 100))
            came = [await reader.receive() for _ in range(2)]
            assert [d.position for d in came if isinstance(d, cw.Delivered)] == [1, 5]
            assert await silent(reader)
            assert await silent(asker)
            await there.fill(1)
            assert await packs(reader) == ([9], cw.LogEnd(10))
            slices = cw.LogSlices((cw.LogSlice("topic:x", 1, 10, 6),), 11)
            assert await asker.receive() == slices

    run(main())


def test_no_more_is_sent_than_the_credit_allows() -> None:
    async def main() -> None:
        async with queried() as there:
            await there.fill(8, bytes(1000))
            reader = await there.reader()
            reader.send(cw.ReadLog("topic:x", 1, 16, 3000))
            came = [await reader.receive() for _ in range(2)]
            assert [d.position for d in came if isinstance(d, cw.Delivered)] == [1, 5]
            assert await silent(reader)
            reader.send(cw.Credit(PLENTY))
            assert await packs(reader) == ([9, 13], cw.LogEnd(16))

    run(main())


def test_a_long_range_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queries, "PACKS_A_TURN", 3)

    async def main() -> None:
        async with queried() as there:
            await there.fill(40)
            reader = await there.reader()
            reader.send(cw.ReadLog("topic:x", 1, 80, PLENTY))
            assert await packs(reader) == (list(range(1, 80, 4)), cw.LogEnd(80))

    run(main())


def test_slices_of_a_long_range_are_asked_for_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queries, "ROWS_A_TURN", 3)

    async def main() -> None:
        async with queried() as there:
            await there.fill(4)
            reader = await there.reader()
            reader.send(cw.AskSlices(("topic:*", "topic:x"), 2, 7, 100))
            expected = (cw.LogSlice("topic:x", 2, 6, 3), cw.LogSlice("topic:y", 3, 4, 2))
            assert await reader.receive() == cw.LogSlices(expected, 7)
            reader.send(cw.AskSlices(("topic:*",), 7, 7, 100))
            assert await reader.receive() == cw.LogSlices((cw.LogSlice("topic:y", 7, 7, 1),), 9)

    run(main())


def test_bounds_say_what_is_kept_and_when_it_was_accepted() -> None:
    async def main() -> None:
        async with queried() as there:
            reader = await there.reader()
            reader.send(cw.AskLog())
            assert await reader.receive() == cw.LogBounds(1, 0, 1)
            await there.fill(2)
            reader.send(cw.AskLog())
            assert await reader.receive() == cw.LogBounds(1, 4, 1)
            reader.send(cw.AskLog(1 << 50))
            assert await reader.receive() == cw.LogBounds(1, 4, 5)

    run(main())


async def with_a_past(there: QueriedServer) -> int:
    """Lets it forget; returns the first position that is kept."""
    there.server.journal._segment_bytes = 5000
    reader = await there.reader()
    first = 1
    while first == 1:
        await there.fill(50, bytes(200))
        await eventually(lambda: not there.server.node._taking_snapshot)
        reader.send(cw.AskLog())
        bounds = await reader.receive()
        assert isinstance(bounds, cw.LogBounds)
        assert bounds.first <= bounds.last - 9  # as many as it was told to keep
        first = bounds.first
    return first


def test_what_is_gone_is_refused() -> None:
    async def main() -> None:
        async with queried(retain=10, snapshot_every_entries=20) as there:
            first = await with_a_past(there)
            reader = await there.reader()
            for request in (
                cw.ReadLog("topic:x", first - 1, first + 3, PLENTY),
                cw.AskSlices(("topic:x",), first - 1, first + 3, 100),
            ):
                reader.send(request)
                refused = await reader.receive()
                assert isinstance(refused, cw.Refused)
                assert refused.code == "MessagesGoneError"
                assert f"messages {first - 1} to {first - 1} are gone" in refused.reason
            reader.send(cw.ReadLog("topic:x", first, first, PLENTY))
            assert (await packs(reader))[1] == cw.LogEnd(first)

    run(main())


def test_what_goes_while_it_is_read_is_refused_and_not_passed_over() -> None:
    async def main() -> None:
        async with queried(retain=10, snapshot_every_entries=20) as there:
            first = await with_a_past(there)
            reader = await there.reader()
            reader.send(cw.ReadLog("topic:x", first, first + 7, 1))
            come = await reader.receive()
            assert isinstance(come, cw.Delivered)
            while there.server.journal.whole_from(there.server.broker.position) <= first + 8:
                await there.fill(50, bytes(200))
            reader.send(cw.Credit(PLENTY))
            found, end = await packs(reader)
            assert found == []
            assert isinstance(end, cw.Refused)
            assert end.code == "MessagesGoneError"

    run(main())


@pytest.mark.parametrize(
    "request_",
    [cw.ReadLog("topic:a b", 1, 1, 1), cw.AskSlices(("topic:a..b",), 1, 1, 1)],
)
def test_a_name_that_is_none_is_refused_and_the_connection_goes_on(request_: cw.Request) -> None:
    async def main() -> None:
        async with queried() as there:
            reader = await there.reader()
            reader.send(request_)
            refused = await reader.receive()
            assert isinstance(refused, cw.Refused)
            assert refused.code == "InvalidDestinationError"
            assert await silent(reader)

    run(main())


@pytest.mark.parametrize(
    "request_",
    [
        cw.ReadLog("topic:x", 0, 1, 1),
        cw.ReadLog("topic:x", 2, 1, 1),
        cw.ReadLog("topic:x", 1, 1, -1),
        cw.AskSlices(("topic:x",), 1, 1, 0),
        cw.AskSlices(("topic:x",) * (log_queries.TOPICS_MAX + 1), 1, 1, 1),
    ],
)
def test_who_asks_what_makes_no_sense_is_left(request_: cw.Request) -> None:
    async def main() -> None:
        async with queried() as there:
            reader = await there.reader()
            reader.send(request_)
            refused = await reader.receive()
            assert isinstance(refused, cw.Refused)
            assert refused.code == ""
            assert await reader.ended()

    run(main())


def test_a_new_question_ends_the_one_before_it() -> None:
    async def main() -> None:
        async with queried() as there:
            await there.fill(2)
            reader = await there.reader()
            reader.send(cw.ReadLog("topic:x", 3, 99, PLENTY), cw.ReadLog("topic:y", 1, 4, PLENTY))
            assert await packs(reader) == ([3], cw.LogEnd(4))
            await there.fill(2)
            assert await silent(reader)

    run(main())


def test_who_is_gone_is_forgotten() -> None:
    async def main() -> None:
        async with queried() as there:
            reader = await there.reader()
            reader.send(cw.ReadLog("topic:x", 1, 99, PLENTY))
            assert await silent(reader)
            assert len(there.server.clients._workers) == 1
            reader.writer.close()
            await eventually(lambda: not there.server.clients._workers)
            await there.fill(2)

    run(main())
