"""A client's end of a connection, over a real socket."""

import asyncio
from collections.abc import Sequence

import pytest

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ReplicaId
from antiphon.io.client_link import TcpLink, dial

pytestmark = pytest.mark.process

HELLO = frames.frame(
    frames.encode_hello(
        frames.Hello(frames.MAGIC, frames.OLDEST, frames.NEWEST, "server", ReplicaId(1, 1))
    )
)


def test_parts_of_a_large_answer_are_told_of_before_it_is_whole() -> None:
    large = frames.frame(bytes(2 * frames.LARGE_FRAME))
    told: asyncio.Queue[Sequence[frames.Body]] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO + large[:100_000])
        await heard.wait()
        writer.write(large[100_000:] + frames.frame(b"small"))
        await writer.drain()
        await reader.read()  # until the client hangs up
        writer.close()
        await writer.wait_closed()
        done.set()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        link = await dial(server.sockets[0].getsockname(), told.put_nowait, lambda _: None)
        async with asyncio.timeout(20):
            assert list(await told.get()) == []
            heard.set()
            bodies: list[bytes] = []
            while not bodies or bodies[-1] != b"small":
                bodies += map(bytes, await told.get())
            assert [len(body) for body in bodies] == [2 * frames.LARGE_FRAME, 5]
            link.close()
            await done.wait()
        server.close()

    heard, done = asyncio.Event(), asyncio.Event()
    asyncio.run(main())


def test_a_server_that_sends_garbage_is_reported_once_and_hung_up_on() -> None:
    ends: list[Exception | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await dialled.wait()
        writer.write(frames.frame(b"body")[:-1] + b"?")
        await reader.read()  # until the client hangs up
        writer.close()
        await writer.wait_closed()
        done.set()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        await dial(server.sockets[0].getsockname(), lambda _: None, ends.append)
        dialled.set()
        await asyncio.wait_for(done.wait(), 5)
        server.close()

    dialled, done = asyncio.Event(), asyncio.Event()
    asyncio.run(main())
    (error,) = ends
    assert isinstance(error, FormatError)


def test_nothing_is_handed_on_after_the_client_has_closed() -> None:
    ends: list[Exception | None] = []
    told: list[Sequence[frames.Body]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await reader.read()  # until the client hangs up
        writer.close()
        await writer.wait_closed()
        done.set()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        link = await dial(server.sockets[0].getsockname(), told.append, ends.append)
        link.close()
        link.send([cw.Ping()])
        assert isinstance(link, TcpLink)
        body = frames.frame(b"late")
        link.get_buffer(-1)[: len(body)] = body
        link.buffer_updated(len(body))
        await asyncio.wait_for(done.wait(), 5)
        server.close()

    done = asyncio.Event()
    asyncio.run(main())
    assert (told, ends) == ([], [])
