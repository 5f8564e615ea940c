"""A client's connection that several threads use."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from antiphon.errors import FormatError
from antiphon.formats import client_wire as cw
from antiphon.formats import wire
from antiphon.formats.entry import ReplicaId
from antiphon.io.dialing import TcpLink, dial
from antiphon.io.loop import new_event_loop

PATIENCE_S = 20.0
HELLO = wire.frame(
    wire.encode_hello(wire.Hello(wire.MAGIC, wire.OLDEST, wire.NEWEST, "server", ReplicaId(1, 1)))
)


class Far:
    """The server's end of one connection: a bare socket."""

    def __init__(
        self,
        link: TcpLink,
        sock: socket.socket,
        heard: asyncio.Queue[bytes],
        lost: asyncio.Queue[Exception | None],
    ) -> None:
        self.link = link
        self.socket = sock
        self.heard = heard  # bodies that the loop handed on
        self.lost = lost

    async def receive(self, count: int) -> bytes:
        loop, data = asyncio.get_running_loop(), b""
        while len(data) < count:
            more = await loop.sock_recv(self.socket, 1 << 20)
            assert more, f"the stream ends after {len(data)} bytes of {count}"
            data += more
        return data

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)


@asynccontextmanager
async def connected() -> AsyncIterator[Far]:
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    lost: asyncio.Queue[Exception | None] = asyncio.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        def on_bodies(bodies: Sequence[wire.Body]) -> None:
            for body in bodies:
                heard.put_nowait(bytes(body))

        dialling = loop.create_task(dial(listener.getsockname(), on_bodies, lost.put_nowait))
        sock, _ = await loop.sock_accept(listener)
        with sock:
            await loop.sock_sendall(sock, HELLO)
            link = await dialling
            assert isinstance(link, TcpLink)
            far = Far(link, sock, heard, lost)
            await far.receive(len(HELLO) - len("server") + len("client"))
            yield far
            link.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), PATIENCE_S))


def test_what_other_threads_send_is_in_order_however_little_the_socket_takes() -> None:
    async def test() -> None:
        async with connected() as far:
            assert far.link.share()
            packs = [bytes([n]) * (3 << 20) for n in range(9)]
            parts = [cw.encode_parts(cw.Publish(pack)) for pack in packs]
            size = sum(len(wire.frame_head(*body)) + sum(map(len, body)) for body in parts)
            for n, pack in enumerate(packs[:-1]):
                if n % 3 == 2:
                    far.link.send([cw.Publish(pack)])
                else:
                    await asyncio.to_thread(far.link.send_here, [cw.Publish(pack)])
            data = b""
            with suppress(BlockingIOError):  # now the socket has room, and the loop has had no turn
                while True:
                    data += far.socket.recv(1 << 20)
            far.link.send_here([cw.Publish(packs[-1])])
            data += await far.receive(size - len(data))
            ends = [data.index(pack) for pack in packs]
            assert ends == sorted(ends)

    run(test)


def test_a_link_that_is_lent_is_read_by_who_asks() -> None:
    async def test() -> None:
        async with connected() as far:
            link = far.link
            assert link.share()
            descriptor = link.lend()
            assert descriptor is not None
            await far.send(wire.frame(b"one") + wire.frame(b"two")[:5])
            await asyncio.to_thread(select.select, [descriptor.number], [], [], PATIENCE_S)
            assert await asyncio.to_thread(link.read) == [b"one"]
            assert link.read() == []  # nothing has come
            await far.send(wire.frame(b"two")[5:] + wire.frame(b"three"))
            await asyncio.to_thread(select.select, [descriptor.number], [], [], PATIENCE_S)
            link.take_back()
            assert link.read() == []  # it is the loop's
            assert [await far.heard.get() for _ in range(2)] == [b"two", b"three"]

    run(test)


def test_garbage_and_the_end_are_told_to_who_reads() -> None:
    async def test() -> None:
        async with connected() as far:
            assert far.link.share()
            far.link.lend()
            far.socket.send(b"\xff" * 100)
            with pytest.raises(FormatError, match="announced"):
                far.link.read()
            far.link.fail(FormatError("no frame"))
            assert str(await far.lost.get()) == "no frame"
        async with connected() as far:
            assert far.link.share()
            far.link.lend()
            far.socket.close()
            with pytest.raises(OSError, match="hung up"):
                far.link.read()
            far.link.take_back()
            await far.lost.get()

    run(test)


def test_what_was_left_to_the_loop_of_a_link_that_is_closed_harms_nobody() -> None:
    async def test() -> None:
        async with connected() as far:
            assert far.link.share()
            await asyncio.to_thread(far.link.send_here, [cw.Publish(bytes(32 << 20))])
            far.socket.close()
            await far.lost.get()
            far.link._rest.append(b"sent when it was about to be lost")
            far.link._send_rest()

    run(test)


def test_closed_it_is_closed_for_all_but_who_looks_at_it() -> None:
    async def test() -> None:
        async with connected() as far:
            assert far.link.share()
            descriptor = far.link.lend()
            assert descriptor is not None
            number = descriptor.number
            far.link.close()
            with pytest.raises(OSError, match="closed"):
                far.link.read()
            far.link.send_here([cw.Ping()])  # nothing happens
            assert await asyncio.get_running_loop().sock_recv(far.socket, 10) == b""
            assert os.fstat(number)  # whoever polls it finds no other file there
            assert select.select([number], [], [], 0)[0]
            del descriptor
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)
            assert not far.link.share()

    run(test)
