"""One server, driven through its socket, on disks that do as they are told."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine import keys
from antiphon.errors import DiskFullError, JournalDamagedError, SyncFailedError
from antiphon.formats import columns, frames, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Outgoing
from antiphon.formats.entry import ReplicaId
from antiphon.formats.journal import REACHED
from antiphon.journal.disk import RamDisk
from antiphon.journal.reached import notes_on
from antiphon.log.settings import Settings
from antiphon.server.server import Server

pytestmark = pytest.mark.process

HOST = "127.0.0.1"
SESSION = 77


class Disk(RamDisk):
    """Memory that behaves like a disk: it is synced, and can be full or fail."""

    volatile = False

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.refused = 0  # writes
        self.sync_fails = False
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncing = threading.Event()
        self.synced: set[str] = set()

    def write(self, name: str, offset: int, *data: bytes) -> None:
        if self.full:
            self.refused += 1
            raise DiskFullError("no room, says the test")
        super().write(name, offset, *data)

    def sync(self, name: str) -> None:
        self.syncing.set()
        self.may_sync.wait(10)
        if self.sync_fails:
            raise SyncFailedError("not synced, says the test")
        self.synced.add(name)


class RawClient:
    """Says exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *requests: cw.Request) -> None:
        self.writer.write(b"".join(frames.frame(cw.encode(request)) for request in requests))

    async def receive(self) -> cw.Answer:
        async with asyncio.timeout(10):
            return cw.decode_answer(await self._frame())

    async def published(self, sequence: int) -> None:
        while await self.receive() != cw.Published(0, sequence):
            pass

    async def attach(self, session: int = SESSION, attempt: int = 1) -> cw.Attached:
        self.send(attach(session, attempt))
        answer = await self.receive()
        assert isinstance(answer, cw.Attached)
        return answer

    async def ask(self, number: int, body: cw.Body) -> cw.Result:
        self.send(cw.Control(number, body))
        while not isinstance(answer := await self.receive(), cw.Result):
            pass
        return answer

    async def delivered(self) -> cw.Deliver:
        while not isinstance(answer := await self.receive(), cw.Deliver):
            pass
        return answer

    async def ended(self) -> bool:
        async with asyncio.timeout(10):
            return await self._reader.read() == b""

    async def shake_hands(self) -> None:
        own = frames.Hello(frames.MAGIC, frames.OLDEST, frames.NEWEST, "client", ReplicaId(0, 0))
        self.writer.write(frames.frame(frames.encode_hello(own)))
        frames.decode_hello(await self._frame())

    async def _frame(self) -> bytes:
        length, _ = frames.PREFIX.unpack_from(await self._reader.readexactly(frames.PREFIX_SIZE))
        return await self._reader.readexactly(length)


@asynccontextmanager
async def running(
    disk: RamDisk,
    servers: int = 1,
    settings: Settings | None = None,
    home: HomeSettings | None = None,
) -> AsyncIterator[tuple[Server, RawClient]]:
    """A server, and a client of it; alone it leads, and the client has a session; with others
    listed it has no leader."""
    listed = dict.fromkeys(range(1, servers + 1), (HOST, 0))
    chosen = settings or Settings(volatile=disk.volatile)
    server = Server(1, listed, disk, chosen, None, home)
    address = await server.start((HOST, 0))
    try:
        client = await connected(address)
        if servers == 1:
            await server.serves
            await client.attach()
        yield server, client
        client.writer.close()
    finally:
        if isinstance(disk, Disk):
            disk.may_sync.set()  # closing waits for it
        await server.close()


async def connected(address: tuple[str, int]) -> RawClient:
    client = RawClient(*await asyncio.open_connection(*address))
    await client.shake_hands()
    return client


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0.005)


def attach(session: int = SESSION, attempt: int = 1) -> cw.Attach:
    return cw.Attach(session, bytes(16), attempt > 1, attempt, "", 60_000, ((0, 1),), ())


def publish(
    sequence: int,
    count: int = 1,
    body: bytes = b"body",
    session: int = SESSION,
    destination: str = "topic:x",
) -> cw.Publish:
    messages = [Outgoing(columns.BYTES, body, b"", 0)] * count
    data, flags = columns.encode(messages)
    return cw.Publish(pack.encode(destination, count, data, session, sequence, flags=flags))


# -- Publishing ------------------------------------------------------------------------------------


def test_a_message_that_is_sent_again_counts_once() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, client):
            client.send(publish(1, 3), publish(4, 2))
            await client.published(5)
            client.send(publish(1, 3))
            assert await client.receive() == cw.Published(0, 5)
            assert server.broker.position == 5

    run(main())


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ([cw.Publish(b"no pack")], "a pack has at least"),
        ([cw.Publish(publish(1).pack[:-1])], "does not match its checksum"),
        ([cw.Publish(pack.encode("topic:x", 1, b"", SESSION, 1))], "no room for 1 messages"),
        ([publish(1, session=0)], "session 0"),
        ([publish(1), publish(2, session=SESSION + 1)], f"session {SESSION + 1}"),
        ([publish(1), publish(3)], "message 3 after 1"),
        ([attach()], "a connection is attached once"),
        ([cw.Control(7, cw.CloseSession())], "request 7 after 0"),
        ([cw.Ack(1, (cw.AckRow(1, 3, 2),))], "is not a range of positions"),
        ([cw.Control(1, cw.Unsubscribe("x" * (1 << 20)))], "a request has at most"),
        ([cw.Tail(1, -1)], "a credit of -1"),
        ([cw.Tail(1, 1 << 40)], "the limit is"),
        ([cw.Add(4, "nowhere")], "not HOST:PORT"),
    ],
)
def test_who_asks_nonsense_is_told_and_left(requests: list[cw.Request], reason: str) -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, client):
            client.send(*requests)
            answer = await client.receive()
            while isinstance(answer, cw.Published):
                answer = await client.receive()
            assert isinstance(answer, cw.Refused)
            assert reason in answer.reason
            assert await client.ended()
            assert not server.ended.done()

    run(main())


def test_nothing_is_taken_without_a_session() -> None:
    async def main() -> None:
        async with running(RamDisk(), servers=3) as (_, client):
            client.send(publish(1))
            answer = await client.receive()
            assert isinstance(answer, cw.Refused)
            assert "before the session is attached" in answer.reason

    run(main())


def test_while_nothing_is_synced_a_publisher_is_held_back() -> None:
    async def main() -> None:
        disk = Disk()
        home = HomeSettings(client_window_bytes=100_000)
        async with running(disk, home=home) as (server, client):
            disk.may_sync.clear()
            body = bytes(10_000)
            client.send(*(publish(number, body=body) for number in range(1, 2001)))
            await eventually(lambda: server.home.counts()["held"] == 1)
            client.send(cw.AskStatus())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client._frame()
            # One read of the socket may pass the limit; after it nothing is read any more.
            assert server.home.counts()["waiting_bytes"] < 500_000
            disk.may_sync.set()
            await client.published(2000)

    run(main())


def test_a_held_publisher_goes_on_when_there_is_room() -> None:
    async def main() -> None:
        home = HomeSettings(client_window_bytes=20_000)
        async with running(Disk(), home=home) as (server, client):
            client.send(*(publish(number, body=bytes(1000)) for number in range(1, 1001)))
            await client.published(1000)
            assert server.home.counts()["waiting_bytes"] == 0

    run(main())


# -- Receiving -------------------------------------------------------------------------------------


async def ask_without_end(client: RawClient) -> None:
    while True:
        client.send(*[cw.AskStatus()] * 100)
        await client.writer.drain()


def test_a_client_that_does_not_read_its_answers_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        home = HomeSettings(unread_bytes=100_000)
        async with running(RamDisk(), home=home) as (server, client):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            other = await connected(client.writer.get_extra_info("peername"))
            with pytest.raises(ConnectionError):
                await ask_without_end(client)
            assert "has not read" in caplog.text
            await other.attach(SESSION + 1)
            other.send(publish(1, session=SESSION + 1))
            await other.published(1)
            assert not server.ended.done()
            other.writer.close()

    run(main())


def test_a_message_goes_from_one_client_to_another() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, client):
            address = server._transport._listener.sockets[0].getsockname()  # type: ignore[union-attr]
            other = await connected(address)
            await other.attach(SESSION + 1)
            assert (await other.ask(1, cw.OpenConsumer(1, "topic:>", 10))).code == ""
            assert (await client.ask(1, cw.OpenConsumer(1, "queue:q", 10))).code == ""
            client.send(publish(1, 2), publish(3, 4, destination="queue:q"))
            found = await other.delivered()
            assert (found.position, found.deliveries, found.pack) == (1, 1, publish(1, 2).pack)
            assert (await client.delivered()).position == 3
            other.send(cw.Ack(1, (cw.AckRow(1, 0, 2),)))
            assert await other.receive() == cw.Acked(1)
            assert server.broker.topics.subscriptions[keys.of_consumer(SESSION + 1, 1)].floor == 2
            other.writer.close()

    run(main())


def test_a_client_that_is_silent_is_cut_off_and_one_that_pings_is_not() -> None:
    async def main() -> None:
        home = HomeSettings(heartbeat_ms=100)
        async with running(RamDisk(), home=home) as (server, client):
            address = server._transport._listener.sockets[0].getsockname()  # type: ignore[union-attr]
            talker = await connected(address)
            await talker.attach(SESSION + 1)

            async def talk() -> None:
                while True:
                    talker.send(cw.Ping())
                    assert await talker.receive() == cw.Pong()
                    await asyncio.sleep(0.02)

            talking = asyncio.create_task(talk())
            assert await client.ended()
            assert not talking.done()
            talking.cancel()
            talker.writer.close()

    run(main())


def test_who_has_no_session_is_cut_off_when_it_is_silent() -> None:
    async def main() -> None:
        async with running(RamDisk(), home=HomeSettings(heartbeat_ms=100)) as (server, _):
            address = server._transport._listener.sockets[0].getsockname()  # type: ignore[union-attr]
            asker, talker = await connected(address), await connected(address)
            asker.send(cw.AskStatus())
            assert isinstance(await asker.receive(), cw.Status)
            talker.send(cw.AskStatus())

            async def talk() -> None:
                while True:
                    assert isinstance(await talker.receive(), cw.Status)
                    await asyncio.sleep(0.02)
                    talker.send(cw.AskStatus())

            talking = asyncio.create_task(talk())
            assert await asker.ended()
            assert not talking.done()
            talking.cancel()
            for one in (asker, talker):
                one.writer.close()

    run(main())


def test_a_large_message_that_is_on_its_way_is_no_silence() -> None:
    large = frames.frame(cw.encode(publish(1, 1, bytes(1 << 20))))

    async def main() -> None:
        async with running(RamDisk(), home=HomeSettings(heartbeat_ms=200)) as (_, client):
            for at in range(0, len(large), 50_000):
                client.writer.write(large[at : at + 50_000])
                await asyncio.sleep(0.05)
            await client.published(1)

    run(main())


def test_nothing_large_is_taken_before_a_session_is_attached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, client):
            address = server._transport._listener.sockets[0].getsockname()  # type: ignore[union-attr]
            stranger = await connected(address)
            stranger.writer.write(frames.PREFIX.pack(cw.CONTROL_MAX + 1, 0))
            assert await stranger.ended()
            stranger.writer.close()
            assert f"the limit is {cw.CONTROL_MAX}" in caplog.text
            client.send(publish(1, 1, bytes(cw.CONTROL_MAX + 1)))
            await client.published(1)

    run(main())


def test_sessions_and_counts_are_in_the_status() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (_, client):
            client.send(publish(1), cw.AskStatus())
            while not isinstance(status := await client.receive(), cw.Status):
                pass
            assert [*status.counts] == [
                "listener",
                "session",
                "log",
                "journal",
                "broker",
                "dispatcher",
            ]
            assert status.counts["session"]["sessions"] == 1
            assert status.counts["listener"]["clients"] == 1

    run(main())


# -- Reading ---------------------------------------------------------------------------------------


def test_a_reader_gets_no_more_than_its_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.driver.log.DEFER_S", 60)  # reading does not wait for it

    async def main() -> None:
        async with running(RamDisk()) as (_, client):
            client.send(*(publish(number, 2, bytes(500)) for number in range(1, 40, 2)))
            await client.published(40)
            client.send(cw.Tail(5, 3000), cw.AskStatus())
            first = [await client.receive() for _ in range(4)]
            assert [d.position for d in first[:3] if isinstance(d, cw.Delivered)] == [5, 7, 9]
            assert isinstance(first[3], cw.Status)
            client.send(cw.Credit(500), publish(41))
            following = await client.receive()
            assert isinstance(following, cw.Delivered)
            assert following.position == 11
            await client.published(41)

    run(main())


def test_a_reader_from_the_middle_of_a_pack_gets_the_whole_pack() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (_, client):
            client.send(publish(1, 10))
            await client.published(10)
            client.send(cw.Tail(7, 1))
            delivered = await client.receive()
            assert isinstance(delivered, cw.Delivered)
            assert delivered.position == 1

    run(main())


# -- Asking ----------------------------------------------------------------------------------------


def test_a_barrier_passes_what_was_accepted_before() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (_, client):
            client.send(publish(1, 4))
            await client.published(4)
            client.send(cw.AskBarrier(9))
            assert await client.receive() == cw.Barrier(9, 4)

    run(main())


def test_only_a_leader_changes_the_cluster() -> None:
    async def main() -> None:
        async with running(RamDisk(), servers=3) as (_, client):
            client.send(cw.Remove(2))
            assert await client.receive() == cw.NotLeader(None, "")

    run(main())


# -- Failing ---------------------------------------------------------------------------------------


def test_nothing_is_answered_before_it_is_synced() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk) as (server, client):
            await eventually(lambda: not server.log._syncing)  # not an earlier one
            disk.may_sync.clear()
            disk.syncing.clear()
            client.send(publish(1))
            await eventually(disk.syncing.is_set)
            client.send(cw.AskStatus())
            status = await client.receive()
            assert isinstance(status, cw.Status), f"answered before the sync: {status}"
            assert server.broker.position == 0
            disk.may_sync.set()
            await client.published(1)

    run(main())


def test_a_failed_sync_ends_the_server_and_nothing_is_answered() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk) as (server, client):
            disk.sync_fails = True
            client.send(publish(1))
            with pytest.raises(SyncFailedError):
                await asyncio.wait_for(server.ended, 10)
            disk.sync_fails = False
            client.send(publish(2))
        assert await client.ended()
        assert server.broker.position == 0

    run(main())


def test_how_far_the_journal_is_synced_is_noted_and_the_note_is_synced() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk) as (server, client):
            client.send(publish(1))
            await client.published(1)
            assert max(notes_on(disk)).offset == server.journal._synced > 0
            disk.synced.clear()
            await eventually(lambda: REACHED in disk.synced)

    run(main())


def test_a_note_without_room_is_waited_for() -> None:
    class NoRoomForNotes(Disk):
        def write(self, name: str, offset: int, *data: bytes) -> None:
            if name == REACHED and self.full:
                raise DiskFullError("no room for notes, says the test")
            RamDisk.write(self, name, offset, *data)

    async def main() -> None:
        disk = NoRoomForNotes()
        async with running(disk) as (server, client):
            disk.full = True
            client.send(publish(1))
            await eventually(lambda: bool(server.node.replica.impaired))
            assert server.broker.position == 0
            disk.full = False
            await client.published(1)
            assert server.status().trouble == ()

    run(main())


def test_a_damaged_record_ends_the_server() -> None:
    async def main() -> None:
        disk = RamDisk()
        async with running(disk) as (server, client):
            client.send(publish(1, body=b"precious"))
            await client.published(1)
            name = "seg-00000001.log"
            await eventually(lambda: b"precious" in disk.read(name, 0, disk.size(name)))
            at = disk.read(name, 0, disk.size(name)).index(b"precious")
            disk.write(name, at, b"q")
            server.journal.forget_packs()
            client.send(cw.Tail(1, 100))
            with pytest.raises(JournalDamagedError):
                await asyncio.wait_for(server.ended, 10)

    run(main())


def test_a_full_disk_impairs_the_server_until_there_is_room() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk) as (server, client):
            disk.full = True
            client.send(publish(1))
            await eventually(lambda: bool(server.node.replica.impaired))
            client.send(cw.AskStatus())
            status = await client.receive()
            assert isinstance(status, cw.Status)
            assert status.trouble == ("disk full: no room, says the test",)
            disk.full = False
            await client.published(1)
            assert server.status().trouble == ()

    run(main())


def test_without_room_for_a_snapshot_the_log_goes_on() -> None:
    class NoRoomForSnapshots(Disk):
        def write(self, name: str, offset: int, *data: bytes) -> None:
            if name.endswith(".snap"):
                raise DiskFullError("no room for snapshots, says the test")
            super().write(name, offset, *data)

    async def main() -> None:
        settings = Settings(snapshot_every_entries=10)
        async with running(NoRoomForSnapshots(), settings=settings) as (server, client):
            for number in range(1, 50):
                client.send(publish(number))
                await client.published(number)
            assert server.status().trouble == ()

    run(main())
