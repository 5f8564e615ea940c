"""One server, driven through its socket, on disks that do as they are told."""

import asyncio
import time

import pytest

from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine import keys
from antiphon.broker.machine.sessions import local_contexts
from antiphon.broker.machine.sessions.servers import LOCAL
from antiphon.driver.server import LET_GO_S
from antiphon.errors import DiskFullError, JournalDamagedError, SyncFailedError
from antiphon.formats import frames, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Membership,
    ReplicaId,
    encode_membership,
)
from antiphon.formats.entry import Kind as EntryKind
from antiphon.formats.journal import Promise
from antiphon.formats.notes import REACHED
from antiphon.io.rules import servers as rules
from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from antiphon.journal.reached import notes_on
from antiphon.log.settings import Settings
from antiphon.server import server as module
from antiphon.server.loop_port import now_ms
from tests.server.support.running import (
    HOST,
    SESSION,
    Disk,
    RawClient,
    attach,
    connected,
    eventually,
    publish,
    run,
    running,
)

pytestmark = pytest.mark.process


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
            address = client.writer.get_extra_info("peername")
            with pytest.raises(ConnectionError):
                await ask_without_end(client)
            assert "has not read" in caplog.text
            other = await connected(address)  # not before: it would be silent for too long
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


# -- Starting and ending ---------------------------------------------------------------------------


def test_it_serves_when_it_has_heard_of_a_leader_and_not_before() -> None:
    async def main() -> None:
        async with running(RamDisk(), servers=3) as (server, client):
            client.send(cw.AskStatus())
            assert isinstance(await client.receive(), cw.Status)
            assert not server.serves.done()
        async with running(RamDisk()) as (server, _):
            assert server.serves.done()

    run(main())


def test_it_says_where_it_listens_though_the_operator_left_the_port_open() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, _):
            address = server._transport._listener.sockets[0].getsockname()  # type: ignore[union-attr]
            assert server.address_of(1) == f"{HOST}:{address[1]}"
            assert server.status().addresses == {1: f"{HOST}:{address[1]}"}
            assert server.address_of(9) == ""

    run(main())


def test_an_address_in_the_log_that_nobody_can_reach_is_left_out() -> None:
    disk = Disk()
    journal, _ = open_journal(disk, lambda: 11)
    members = (ClusterMember(1, 11, True, "nowhere"), ClusterMember(2, 12, False, "nowhere, too"))
    founding = encode_membership(Membership(1, members))
    entry = Entry(1, 1, 0, EntryKind.MEMBERSHIP, founding)
    journal.append((Promise(1, None), entry), ())
    journal.flush()
    if job := journal.begin_sync():
        journal.end_sync(job)

    async def main() -> None:
        async with running(disk) as (server, client):
            assert [*server.status().addresses] == [1]
            client.send(publish(1))
            await client.published(1)

    run(main())


def test_an_orderly_end_cuts_clients_off_and_leaves_nothing_running() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk) as (server, client):
            client.send(publish(1))
            await client.published(1)
            disk.synced.clear()
            await server.close()
            assert await client.ended()
            assert server.ended.result() is None
            assert REACHED in disk.synced
            assert not server._sync_thread._thread.is_alive()  # type: ignore[union-attr]
            with pytest.raises(ConnectionRefusedError):
                await connected(client.writer.get_extra_info("peername"))

    run(main())


def test_with_local_contexts_an_orderly_end_waits_until_nobody_is_bound() -> None:
    async def main() -> None:
        async with running(Disk(), contexts=LOCAL) as (server, client):
            assert (await client.ask(1, cw.OpenConsumer(1, "topic:>", 10))).code == ""
            client.send(publish(1, 2))
            await client.delivered()
            client.send(cw.Ack(1, (cw.AckRow(1, 0, 2),)))
            while await client.receive() != cw.Acked(1):
                pass
            assert local_contexts.is_bound(server.broker, server.broker.sessions[SESSION])
            await server.close()
            assert server.home.has_let_go
            assert server.broker.sessions[SESSION].leased

    run(main())


def test_a_failed_server_is_closed_at_once() -> None:
    async def main() -> None:
        async with running(Disk(), contexts=LOCAL) as (server, client):
            server._fail(ZeroDivisionError("says the test"))
            await asyncio.wait_for(server.close(), 10)
            assert await client.ended()
            with pytest.raises(ZeroDivisionError):
                server.ended.result()

    run(main())


def test_a_server_that_fails_while_it_ends_does_not_wait() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk, servers=3, contexts=LOCAL) as (server, _):
            server._driver.clients.home._local_acks.unlogged.add(((7, (cw.AckRow(1, 1, 3),)),))
            closing = asyncio.create_task(server.close())
            await eventually(lambda: server._driver.clients.home._attaching.ending)
            server._fail(ZeroDivisionError("says the test"))
            began = now_ms()
            await closing
            assert now_ms() - began < LET_GO_S * 1000 / 2
            with pytest.raises(ZeroDivisionError):
                server.ended.result()

    run(main())


def test_an_error_of_a_callback_ends_the_server_unless_a_socket_is_to_blame() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, client):
            loop = asyncio.get_running_loop()
            accept = "socket.accept() out of system resource"
            loop.call_exception_handler({"message": accept, "exception": OSError("too many files")})
            loop.call_exception_handler({"message": "a warning of the loop"})
            client.send(publish(1))
            await client.published(1)
            assert not server.ended.done()
            loop.call_soon(lambda: [][0])
            with pytest.raises(IndexError):
                await asyncio.wait_for(server.ended, 10)
            assert server.log.closed

    run(main())


# -- Time and the others ---------------------------------------------------------------------------


def test_messages_have_the_time_of_the_wall_clock() -> None:
    async def main() -> None:
        async with running(RamDisk()) as (server, client):
            client.send(publish(1))
            await client.published(1)
            assert abs(server.broker.stamp - time.time() * 1000) < 60_000

    run(main())


def test_the_wall_clock_is_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOCK_S", 0.01)

    async def main() -> None:
        async with running(RamDisk()) as (server, _):
            for _ in range(2):
                server.node.set_wall_offset(0)
                await eventually(lambda: server.node.replica.wall_offset_ms > 0)

    run(main())


def test_a_server_that_is_not_listed_and_says_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 0.01)
    monkeypatch.setattr(rules, "SILENT_S", 0.05)

    async def main() -> None:
        async with running(RamDisk()) as (_, client):
            address = client.writer.get_extra_info("peername")
            stranger = RawClient(*await asyncio.open_connection(*address))
            hello = frames.Hello(
                frames.MAGIC, frames.OLDEST, frames.NEWEST, "server", ReplicaId(5, 55)
            )
            stranger.writer.write(frames.frame(frames.encode_hello(hello)))
            assert await stranger.ended_after_hello()
            stranger.writer.close()

    run(main())


def test_a_server_that_is_added_is_dialled() -> None:
    async def main() -> None:
        dialled = asyncio.Event()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            dialled.set()

        listener = await asyncio.start_server(accept, HOST, 0)
        port = listener.sockets[0].getsockname()[1]
        async with running(RamDisk()) as (server, client):
            client.send(cw.Add(4, f"{HOST}:{port}"))
            await asyncio.wait_for(dialled.wait(), 10)
            await eventually(lambda: server.address_of(4) == f"{HOST}:{port}")
        listener.close()

    run(main())


def test_a_damaged_server_says_that_it_is_being_repaired() -> None:
    async def main() -> None:
        disk = Disk()
        async with running(disk) as (_, client):
            client.send(publish(1))
            await client.published(1)
        name = "seg-00000001.log"
        disk.write(name, disk.size(name) // 2, b"\xff\xff\xff")
        async with running(disk, servers=3) as (server, _):
            (trouble,) = server.status().trouble
            assert trouble.startswith("being repaired from the others: ")

    run(main())


def test_a_server_that_has_no_place_in_a_cluster_says_why() -> None:
    async def main() -> None:
        async with running(Disk(), servers=3) as (server, _):
            replica = server.node.replica
            assert replica.newcomer is not None
            replica.newcomer.complaint = "server 2 lists other servers"
            replica.removed = "it was removed"
            assert server.status().trouble == (
                "not wanted by the others: it was removed",
                "cannot found a cluster: server 2 lists other servers",
            )

    run(main())
