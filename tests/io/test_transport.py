"""Connections with real sockets: between honest servers, and with everybody else."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from antiphon.formats import frames, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ANY, Entry, Kind, ReplicaId
from antiphon.formats.server_messages import Append, Appended, Envelope, Forward, Relay, Vote
from antiphon.io import transport
from antiphon.io.frame_reader import SHARED_BYTES
from antiphon.io.rules import incoming, servers
from antiphon.io.transport import Address, Connection, Transport

pytestmark = pytest.mark.process

HOST = "127.0.0.1"
ATTACH = b"attach"
IDS = {node: ReplicaId(node, 100 + node) for node in range(1, 6)}


class Echo:
    """A client's server: answers with what it was sent."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.more = 0  # was heard of messages that had not arrived whole

    def take(self, body: bytes) -> None:
        self.connection.send_body(body)
        if body == ATTACH:
            self.connection.attached(cw.REQUEST_MAX)

    def begun(self, size: int) -> None:
        self.more += 1

    def writable(self) -> None:
        pass

    def closed(self) -> None:
        pass


class Peer:
    """A transport, and what has arrived at it."""

    def __init__(self, node: int) -> None:
        self.id = IDS[node]
        self.received: list[Envelope] = []
        self.gone: list[int] = []
        self.parts: list[ReplicaId] = []
        self.transport = Transport(
            self.id, self.received.append, Echo, self.gone.append, self.parts.append, cw.CONTROL_MAX
        )
        self.address: Address = (HOST, 0)

    async def listen(self, port: int = 0) -> None:
        self.address = await self.transport.listen(HOST, port)


@asynccontextmanager
async def peers(*nodes: int) -> AsyncIterator[list[Peer]]:
    """Servers that know each other and are connected."""
    found = [Peer(node) for node in nodes]
    for peer in found:
        await peer.listen()
    addresses = {peer.id.node: peer.address for peer in found}
    for peer in found:
        peer.transport.set_peers(addresses)
    await eventually(lambda: all(connected(peer, len(nodes) - 1) for peer in found))
    yield found
    for peer in found:
        await peer.transport.close()


def connected(peer: Peer, count: int) -> bool:
    return sum(link.connection is not None for link in peer.transport._links.values()) == count


async def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0.002)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def hello(
    sender: ReplicaId,
    role: str = "server",
    oldest: int = frames.OLDEST,
    newest: int = frames.NEWEST,
) -> bytes:
    return frames.frame(
        frames.encode_hello(frames.Hello(frames.MAGIC, oldest, newest, role, sender))
    )  # type: ignore[arg-type]


async def closes(address: Address, data: bytes) -> bytes:
    """Send, and return what came back by the time the server hangs up, which it must."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        async with asyncio.timeout(10.0):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def still_works(one: Peer, other: Peer) -> None:
    before = len(other.received)
    one.transport.send(other.id, Vote(1, True, False))
    await eventually(lambda: len(other.received) == before + 1)


# -- Honest servers --------------------------------------------------------------------------------


def test_messages_arrive_once_and_in_order() -> None:
    async def main() -> None:
        async with peers(1, 2, 3) as (one, two, three):
            for number in range(2000):
                one.transport.send(two.id, Appended(1, number, 0))
                two.transport.send(one.id, Appended(2, number, 0))
                one.transport.send(three.id, Appended(3, number, 0))
            await eventually(lambda: len(two.received) == len(one.received) == 2000)
            await eventually(lambda: len(three.received) == 2000)
            assert [e.message.match for e in two.received] == list(range(2000))  # type: ignore[union-attr]
            assert {(e.sender, e.to) for e in two.received} == {(one.id, two.id)}
            assert {e.message.epoch for e in one.received} == {2}  # type: ignore[union-attr]

    run(main())


def test_a_server_that_has_ended_is_reported_gone() -> None:
    async def main() -> None:
        async with peers(1, 2, 3) as (one, two, three):
            await three.transport.close()
            await eventually(lambda: 3 in one.gone and 3 in two.gone)
            await still_works(one, two)
            assert {*one.gone, *two.gone} == {3}

    run(main())


def test_a_lost_connection_alone_does_not_mean_that_a_server_is_gone() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            first = one.transport._links[2].connection
            assert first is not None
            first.abort()
            await eventually(lambda: one.transport._links[2].connection not in (None, first))
            await still_works(one, two)
            assert [one.gone, two.gone] == [[], []]

    run(main())


def test_a_server_that_is_connected_to_us_is_not_gone_though_it_refuses_us() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            two.transport._listener.close()  # type: ignore[union-attr]
            link = one.transport._links[2]
            link.connection.abort()  # type: ignore[union-attr]
            await eventually(lambda: link._redial.complaint.startswith("[Errno"))
            await still_works(one, two)
            assert one.gone == []
            await two.transport.close()
            await eventually(lambda: 2 in one.gone)

    run(main())


def test_a_large_message_arrives() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            entry = Entry(1, 1, 0, Kind.PACK, pack.encode("topic:x", 1, bytes(64 << 20)))
            one.transport.send(two.id, Append(1, 0, 0, (entry,), 0, 0))
            await eventually(lambda: len(two.received) == 1, 30)
            assert two.received[0].message.entries == (entry,)  # type: ignore[union-attr]

    run(main())


def test_parts_of_a_large_message_are_told_of_before_it_is_whole() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            packs = (pack.encode("topic:x", 1, bytes(8 << 20)), b"small")
            one.transport.send(two.id, Forward(packs))
            await eventually(lambda: len(two.received) == 1, 30)
            assert two.received[0].message == Forward(packs)
            assert {*two.parts} == {one.id}

    run(main())


def test_a_peer_that_comes_back_is_dialled_again() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            await two.transport.close()
            await eventually(lambda: connected(one, 0))
            one.transport.send(two.id, Vote(1, True, False))  # lost: nobody is there
            again = Peer(2)
            await again.listen(two.address[1])
            await eventually(lambda: connected(one, 1))
            await still_works(one, again)
            await again.transport.close()

    run(main())


def test_a_peer_that_dials_in_is_dialled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport.Redial, "pause_s", lambda *_: 3600.0)

    async def main() -> None:
        one, two = Peer(1), Peer(2)
        await one.listen()
        await two.listen()
        await two.transport.close()
        one.transport.set_peers({2: two.address})
        await eventually(lambda: one.gone == [2])
        again = Peer(2)
        await again.listen(two.address[1])
        again.transport.set_peers({1: one.address})
        await eventually(lambda: connected(one, 1))
        await one.transport.close()
        await again.transport.close()

    run(main())


def test_who_cannot_be_dialled_is_answered_where_it_came_in() -> None:
    async def main() -> None:
        known, stranger = Peer(1), Peer(4)
        await known.listen()
        await stranger.listen()
        stranger.transport.set_peers({1: known.address})
        await eventually(lambda: connected(stranger, 1))
        known.transport.send(stranger.id, Vote(1, True, False))
        await eventually(lambda: len(stranger.received) == 1)
        await known.transport.close()
        await stranger.transport.close()

    run(main())


def test_another_server_at_a_peers_address_is_not_taken_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        one, three = Peer(1), Peer(3)
        await one.listen()
        await three.listen()
        one.transport.set_peers({2: three.address})
        await eventually(lambda: "node 2 should be there" in caplog.text)
        assert connected(one, 0)
        await one.transport.close()
        await three.transport.close()

    run(main())


def test_an_older_peer_is_spoken_to_in_its_version() -> None:
    async def main() -> None:
        one = Peer(1)
        await one.listen()
        reader, writer = await asyncio.open_connection(*one.address)
        writer.write(hello(IDS[2], newest=1))
        await read_frame(reader)
        await eventually(lambda: 2 in one.transport._came_in)
        one.transport.send(IDS[2], Append(1, 0, 0, (), 0, 0, has=7))
        append = frames.decode_envelope(await read_frame(reader)).message
        assert isinstance(append, Append)
        assert append.has == 0
        writer.close()
        await one.transport.close()

    run(main())


def test_what_goes_to_servers_of_several_versions_is_encoded_for_each() -> None:
    async def main() -> None:
        one = Peer(1)
        await one.listen()
        readers = {}
        for node, newest in ((2, 1), (3, frames.NEWEST)):
            reader, writer = await asyncio.open_connection(*one.address)
            writer.write(hello(IDS[node], newest=newest))
            await read_frame(reader)
            readers[node] = reader, writer
        await eventually(lambda: {2, 3} <= one.transport._came_in.keys())
        message = Append(1, 0, 0, (), 0, 0, has=7)
        for node in (2, 3, 2):
            one.transport.send(IDS[node], message)
        has = []
        for node in (2, 3, 2):
            append = frames.decode_envelope(await read_frame(readers[node][0])).message
            assert isinstance(append, Append)
            has.append(append.has)
        assert has == [0, 7, 0]
        for _, writer in readers.values():
            writer.close()
        await one.transport.close()

    run(main())


def test_a_server_that_has_moved_is_dialled_at_its_new_address() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, _):
            moved = Peer(2)
            await moved.listen()
            one.transport.set_peers({1: one.address, 2: moved.address})
            await eventually(lambda: connected(one, 1))
            await still_works(one, moved)
            await moved.transport.close()

    run(main())


def test_an_older_peer_is_sent_nothing_to_relay() -> None:
    async def main() -> None:
        one = Peer(1)
        await one.listen()
        reader, writer = await asyncio.open_connection(*one.address)
        writer.write(hello(IDS[2], newest=2))
        await read_frame(reader)
        await eventually(lambda: 2 in one.transport._came_in)
        one.transport.send(ReplicaId(2, ANY), Relay(1, 1, b"?"))
        one.transport.send(IDS[2], Vote(1, True, False))
        assert isinstance(frames.decode_envelope(await read_frame(reader)).message, Vote)
        writer.close()
        await one.transport.close()

    run(main())


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    length, _ = struct.unpack("<II", await reader.readexactly(8))
    return await reader.readexactly(length)


# -- Everybody else --------------------------------------------------------------------------------

FORGED = frames.frame(
    frames.encode_envelope(Envelope(IDS[3], IDS[1], Vote(1, True, False)), frames.NEWEST)
)
ASTRAY = frames.frame(
    frames.encode_envelope(Envelope(IDS[5], IDS[2], Vote(1, True, False)), frames.NEWEST)
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "bytes announced"),
        (b"\xff" * 100, "bytes announced"),
        (struct.pack("<II", frames.FRAME_MAX + 1, 0), "bytes announced"),
        (struct.pack("<II", 1025, 0), "the limit is 1024"),
        (struct.pack("<II", 4, 0) + b"abcd", "does not match its checksum"),
        (frames.frame(b""), "not an Antiphon handshake"),
        (frames.frame(b"\xc1"), "not an Antiphon handshake"),
        (hello(IDS[5], oldest=99, newest=100), "no common wire version"),
        (hello(IDS[5]) + b"\x00" * 8, "not a message between servers"),
        (hello(IDS[5]) + struct.pack("<II", frames.FRAME_MAX + 1, 0), "bytes announced"),
        (hello(IDS[5]) + FORGED, "sent a message from 3"),
        (hello(IDS[5]) + ASTRAY, "to 2"),
        (hello(IDS[5], "client") + struct.pack("<II", cw.CONTROL_MAX + 1, 0), "the limit is"),
        (
            hello(IDS[5], "client")
            + frames.frame(b"attach")
            + struct.pack("<II", cw.REQUEST_MAX + 1, 0),
            "the limit is",
        ),
    ],
)
def test_garbage_ends_one_connection_with_a_reason(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            await closes(one.address, data)
            assert reason in caplog.text
            assert "closing the connection with 127.0.0.1:" in caplog.text
            await still_works(two, one)
            await still_works(one, two)
            assert len(one.received) == 1

    with caplog.at_level(logging.WARNING):
        run(main())


def test_who_speaks_no_common_version_is_told_ours() -> None:
    async def main() -> None:
        one = Peer(1)
        await one.listen()
        answer = await closes(one.address, hello(IDS[2], oldest=99, newest=100))
        ours = frames.decode_hello(answer[frames.PREFIX_SIZE :])
        assert (ours.oldest, ours.newest) == (frames.OLDEST, frames.NEWEST)
        await one.transport.close()

    run(main())


def test_a_client_that_reads_nothing_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "LINGER_S", 0.01)

    async def main() -> None:
        one = Peer(1)
        await one.listen()
        reader, writer = await asyncio.open_connection(*one.address, limit=1024)
        writer.write(hello(IDS[2], "client") + frames.frame(b"x"))
        await read_frame(reader)
        await eventually(lambda: len(one.transport.incoming.clients) == 1)
        (client,) = one.transport.incoming.clients
        client.send_body(bytes(64 << 20))  # more than buffers take
        client.end("it is slow")
        await asyncio.wait_for(client.lost, 10)
        writer.close()
        await one.transport.close()

    run(main())


def test_who_does_not_shake_hands_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_S", 0.05)

    async def main() -> None:
        one = Peer(1)
        await one.listen()
        for beginning in (b"", hello(IDS[2])[:5]):
            assert await closes(one.address, beginning) == b""
        await one.transport.close()

    run(main())


def test_of_too_many_strangers_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "UNIDENTIFIED_MAX", 4)

    async def main() -> None:
        async with peers(1, 2) as (one, two):
            many = [await asyncio.open_connection(*one.address) for _ in range(10)]
            first, *_, last = many
            assert await first[0].read() == b""
            assert len(one.transport.incoming.unidentified) == 4
            last[1].write(hello(ReplicaId(0, 0), "client") + frames.frame(b"echo"))
            await read_frame(last[0])
            assert await read_frame(last[0]) == b"echo"
            await still_works(two, one)
            for _, writer in many:
                writer.close()

    run(main())


CLIENT = hello(ReplicaId(0, 0), "client")
BEGUN = struct.pack("<II", 100_000, 0) + bytes(1000)  # a frame


class Caller:
    """A client that says what a test wants it to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, peer: Peer, *bodies: bytes, greeting: bytes = CLIENT) -> "Caller":
        """Says these after the handshake, and gets them back."""
        caller = cls(*await asyncio.open_connection(*peer.address))
        caller.writer.write(greeting)
        await read_frame(caller.reader)
        for body in bodies:
            assert await caller.echo(body) == body
        return caller

    async def echo(self, body: bytes) -> bytes:
        self.writer.write(frames.frame(body))
        return await read_frame(self.reader)

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                assert await self.reader.read() == b""
        self.writer.close()


def test_little_is_read_at_once_from_who_has_no_session() -> None:
    async def main() -> None:
        async with peers(1, 2) as (one, two):
            stranger = await Caller.dial(one, b"a question")
            (connection,) = one.transport.incoming.clients
            assert len(connection.get_buffer(-1)) == transport.STRANGER_READ_BYTES
            assert await stranger.echo(ATTACH) == ATTACH
            assert len(connection.get_buffer(-1)) == SHARED_BYTES
            link = two.transport._links[1].connection
            assert link is not None
            assert len(link.get_buffer(-1)) == SHARED_BYTES
            stranger.writer.close()

    run(main())


def test_of_too_many_clients_the_oldest_without_a_session_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incoming, "CLIENTS_MAX", 3)

    async def main() -> None:
        one = Peer(1)
        await one.listen()
        members = [await Caller.dial(one, ATTACH) for _ in range(2)]
        stranger = await Caller.dial(one, b"a question")
        members.append(await Caller.dial(one, ATTACH))
        await stranger.ended()
        await closes(one.address, CLIENT)
        for member in members:
            assert await member.echo(b"still here") == b"still here"
            member.writer.close()
        await one.transport.close()

    run(main())


def test_a_client_without_a_session_ends_what_it_begins_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        one = Peer(1)
        await one.listen()
        member = await Caller.dial(one, ATTACH)
        asker = await Caller.dial(one, b"a question")
        monkeypatch.setattr(transport, "HANDSHAKE_S", 0.05)
        member.writer.write(BEGUN)
        for said in ((), (b"a question",)):
            stranger = await Caller.dial(one, *said)
            stranger.writer.write(BEGUN)
            await stranger.ended()
        asker.writer.write(BEGUN)
        await asker.ended()
        connection = next(iter(one.transport.incoming.clients))
        assert not connection.ended
        assert connection.client.more > 0  # type: ignore[union-attr]
        member.writer.close()
        await one.transport.close()

    run(main())


def test_what_strangers_have_begun_is_bounded_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = 32 * 1008  # that a reader keeps for what has arrived of one
    monkeypatch.setattr(incoming, "BEGUN_BYTES", 2 * room)
    monkeypatch.setattr(transport, "STRANGER_READ_BYTES", 1008)
    monkeypatch.setattr(transport, "HANDSHAKE_S", 600.0)  # what ends them is not their slowness

    async def main() -> None:
        async with peers(1, 2) as (one, two):
            member = await Caller.dial(one, ATTACH)
            begun = [await Caller.dial(one, b"a question")]
            begun.append(await Caller.dial(one, greeting=hello(IDS[5])))
            begun.append(await Caller.dial(one, b"a question"))
            link = two.transport._links[1].connection
            assert link is not None
            link.send(BEGUN)  # a server that is listed
            member.writer.write(BEGUN)
            for at, stranger in enumerate(begun):
                stranger.writer.write(BEGUN)
                await eventually(lambda at=at: len(one.transport.incoming._begun) == min(at + 1, 2))
            await begun[0].ended()
            begun[1].writer.write(bytes(99_000))  # whole, and no message
            await begun[1].ended()
            assert one.transport.incoming._begun_bytes == room
            assert not link.ended
            begun[2].writer.close()
            member.writer.close()

    run(main())


def test_a_server_that_is_not_listed_and_says_nothing_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "SILENT_S", 0.05)

    async def main() -> None:
        async with peers(1, 2) as (one, two):
            stranger = await Caller.dial(one, greeting=hello(IDS[5]))
            ending = asyncio.create_task(stranger.ended())
            while not ending.done():
                one.transport.sweep()
                await asyncio.sleep(0.01)
            await ending
            assert [*one.transport._came_in] == [2]
            await still_works(two, one)

    run(main())


def test_of_too_many_servers_one_that_is_not_listed_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS_MAX", 2)

    async def main() -> None:
        async with peers(1, 2, 3) as (one, two, three):
            link = three.transport._links[1].connection
            assert link is not None
            link.abort()
            await eventually(lambda: 3 not in one.transport._came_in)
            three.transport.set_peers({})
            first = await Caller.dial(one, greeting=hello(IDS[4]))
            second = await Caller.dial(one, greeting=hello(IDS[5]))
            await first.ended()
            await still_works(two, one)
            second.writer.close()

    run(main())


class Deaf:
    """A server that shakes hands and then reads nothing."""

    async def listen(self, node: int) -> None:
        self._node = node
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.address = self._listener.getsockname()

    async def accept(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(self._listener)
        await loop.sock_recv(connection, 4096)
        await loop.sock_sendall(connection, hello(IDS[self._node]))
        return connection

    def close(self) -> None:
        self._listener.close()


def test_a_peer_that_does_not_read_costs_a_bounded_queue_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "QUEUE_BYTES", 1 << 20)

    async def main() -> None:
        async with peers(1, 2) as (one, two):
            deaf = Deaf()
            await deaf.listen(3)
            one.transport.set_peers({2: two.address, 3: deaf.address})
            stuck = await deaf.accept()
            await eventually(lambda: connected(one, 2))
            connection = one.transport._links[3].connection
            assert connection is not None
            entries = (Entry(1, 1, 0, Kind.PACK, bytes(100_000)),)
            for _ in range(500):
                one.transport.send(IDS[3], Append(1, 0, 0, entries, 0, 0))
                await asyncio.sleep(0)
            assert connection.dropped > 100
            assert connection.waiting_bytes <= 1 << 20
            await still_works(one, two)
            stuck.close()
            deaf.close()

    run(main())
