"""Servers inside the program: the same server, without a socket, on a loop of its own."""

import asyncio
import gc
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.broker.home.settings import HomeSettings
from antiphon.errors import ConfigurationError, IllegalStateError
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Outgoing
from antiphon.io import background_loop as loops
from antiphon.io.background_loop import background_loop
from antiphon.server.embedded import Embedded, EmbeddedLink, acquire

SESSION = 0x5E


class Client:
    """Says what it is told to, on the loop of the test."""

    def __init__(self) -> None:
        self.link: EmbeddedLink
        self.answers: asyncio.Queue[cw.Answer] = asyncio.Queue()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.threads: set[int] = set()

    async def connect(self, embedded: Embedded) -> "Client":
        self.link = await embedded.connect(self._on_bodies, self.lost.set_result)
        return self

    def _on_bodies(self, bodies: list[bytes]) -> None:
        self.threads.add(threading.get_ident())
        for body in bodies:
            self.answers.put_nowait(cw.decode_answer(body))

    def send(self, *requests: cw.Request) -> None:
        self.link.send([*requests])

    async def hear(self) -> cw.Answer:
        async with asyncio.timeout(10):
            return await self.answers.get()

    async def attach(self, session: int = SESSION) -> None:
        self.send(cw.Attach(session, bytes(16), False, 1, "", 60_000, ((0, 1),), ()))
        assert isinstance(await self.hear(), cw.Attached)


def publish(sequence: int, destination: str = "topic:t", size: int = 4) -> cw.Publish:
    body, flags = columns.encode([Outgoing(columns.BYTES, bytes(size), b"", 0)])
    return cw.Publish(pack.encode(destination, 1, body, SESSION, sequence, flags=flags))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_message_goes_there_and_back_on_the_callers_loop() -> None:
    async def main() -> None:
        embedded = acquire("embedded:")
        client = await Client().connect(embedded)
        await client.attach()
        client.send(cw.Control(1, cw.OpenConsumer(1, "topic:t", 10)))
        assert await client.hear() == cw.Result(1)
        client.send(publish(1))
        answers = [await client.hear(), await client.hear()]
        assert {type(answer) for answer in answers} == {cw.Published, cw.Deliver}
        assert client.threads == {threading.get_ident()}
        client.link.close()
        await embedded.release()

    run(main())


def test_private_ones_know_nothing_of_each_other_and_named_ones_are_shared() -> None:
    async def main() -> None:
        private = [acquire("embedded:"), acquire("embedded:")]
        shared = [acquire("embedded:both"), acquire("embedded:both")]
        assert private[0] is not private[1]
        assert shared[0] is shared[1]
        sender, receiver = [await Client().connect(one) for one in shared]
        await sender.attach()
        await receiver.attach(SESSION + 1)
        receiver.send(cw.Control(1, cw.OpenConsumer(1, "queue:q", 10)))
        assert await receiver.hear() == cw.Result(1)
        sender.send(publish(1, "queue:q"))
        assert isinstance(await receiver.hear(), cw.Deliver)
        sender.link.close()
        await shared[0].release()
        receiver.send(cw.Ping())  # the other one still has it
        assert await receiver.hear() == cw.Pong()
        receiver.link.close()
        await shared[1].release()
        for one in private:
            await one.release()
        again = acquire("embedded:both")
        assert again is not shared[0]
        await again.release()

    run(main())


def test_a_journal_outlives_its_server_and_has_one_opener(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}/journal"

    async def session(resume: bool) -> cw.Answer:
        embedded = acquire(url)
        client = await Client().connect(embedded)
        attempt = 2 if resume else 1
        client.send(cw.Attach(SESSION, bytes(16), resume, attempt, "", 60_000, ((0, 1),), ()))
        attached = await client.hear()
        if not resume:
            client.send(publish(1, "queue:q"))
            assert await client.hear() == cw.Published(0, 1)
            second = acquire(url)
            with pytest.raises(IllegalStateError, match="is in use"):
                await Client().connect(second)
            await second.release()
        client.link.close()
        await embedded.release()
        return attached

    async def main() -> None:
        await session(resume=False)
        attached = await session(resume=True)
        assert isinstance(attached, cw.Attached)
        assert attached.published == ((0, 1),)

    run(main())


@pytest.mark.parametrize("url", ["embedded:/path", "embedded://host/path", "antiphon://x:1", "x"])
def test_what_is_no_embedded_server_is_said_so(url: str) -> None:
    with pytest.raises(ConfigurationError, match="embedded"):
        acquire(url)


def test_nonsense_ends_the_connection_and_nothing_else() -> None:
    async def main() -> None:
        embedded = acquire("embedded:")
        bad, good = await Client().connect(embedded), await Client().connect(embedded)
        bad.link.send([msgspec.Raw(b"nonsense")])  # which is sent as it is
        assert isinstance(await bad.hear(), cw.Refused)
        async with asyncio.timeout(10):
            assert isinstance(await bad.lost, ConnectionError)
        await good.attach()
        await embedded.release()
        async with asyncio.timeout(10):
            assert await good.lost is None  # the server ended, in order

    run(main())


def test_a_client_that_does_not_take_its_messages_costs_a_bounded_amount() -> None:
    async def main() -> None:
        embedded = acquire("embedded:")
        client = await Client().connect(embedded)
        await client.attach()
        client.send(cw.Control(1, cw.OpenConsumer(1, "topic:t", 1000)))
        assert await client.hear() == cw.Result(1)
        client.send(*(publish(n, size=50_000) for n in range(1, 101)))
        server = embedded._server
        assert server is not None
        held: list[int] = []

        def look() -> None:
            held.append(server.clients.desk.counts()["dispatcher"]["on_the_way_bytes"])

        seen = 0
        while seen < 100:
            answer = await client.hear()
            seen += isinstance(answer, cw.Deliver)
            background_loop().call_soon_threadsafe(look)
        assert max(held) < 400_000
        client.link.close()
        await embedded.release()

    run(main())


def test_a_client_that_is_held_back_waits_with_what_it_sends() -> None:
    async def main() -> None:
        embedded = acquire("embedded:")
        client = await Client().connect(embedded)
        await client.attach()
        far, loop = client.link.far, background_loop()
        loop.call_soon_threadsafe(far.hold, True)
        client.send(cw.Control(1, cw.OpenConsumer(1, "topic:t", 10)))
        looked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        near = asyncio.get_running_loop()
        loop.call_soon_threadsafe(near.call_soon_threadsafe, looked.set_result, 0)
        await looked
        assert client.link.waiting_bytes > 0
        assert client.answers.empty()
        loop.call_soon_threadsafe(far.hold, False)
        assert await client.hear() == cw.Result(1)
        client.link.close()
        await embedded.release()

    run(main())


def test_a_client_whose_loop_stands_still_is_cut_off() -> None:
    async def main() -> None:
        embedded = acquire("embedded:")
        first = await Client().connect(embedded)
        server = embedded._server
        assert server is not None
        server.clients.home.settings = HomeSettings(unread_bytes=1000)
        client = await Client().connect(embedded)
        assert len(server.clients._clients) == 2
        client.send(*[cw.AskStatus()] * 100)
        done = threading.Event()
        background_loop().call_soon_threadsafe(done.set)
        assert done.wait(10)  # without a turn of this loop
        assert len(server.clients._clients) == 1
        async with asyncio.timeout(10):
            assert "has not read" in str(await client.lost)
        await first.attach()
        await embedded.release()

    run(main())


def test_a_client_whose_loop_is_gone_is_forgotten() -> None:
    embedded = acquire("embedded:")

    async def connect_only() -> None:
        client = await Client().connect(embedded)
        await client.attach()

    run(connect_only())
    gc.collect()

    async def look() -> None:
        other = await Client().connect(embedded)
        await other.attach(SESSION + 1)
        other.send(cw.Control(1, cw.OpenConsumer(1, "topic:t", 10)))
        assert await other.hear() == cw.Result(1)
        assert embedded._server is not None
        # The next word to the one that is gone shows it.
        far = next(iter(embedded._server.clients._clients.values())).pipe
        background_loop().call_soon_threadsafe(far.end, "gone, says the test")
        async with asyncio.timeout(10):
            while len(embedded._server.clients._clients) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await embedded.release()

    run(look())


def test_the_background_loop_is_one_and_runs() -> None:
    assert background_loop() is background_loop()
    ran = threading.Event()
    background_loop().call_soon_threadsafe(ran.set)
    assert ran.wait(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_a_loop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = background_loop()
    monkeypatch.setattr(loops, "_loop", parents)  # to be there again in the end
    monkeypatch.setattr(loops, "_pid", os.getpid() + 1)  # as after a fork
    childs = background_loop()
    assert childs is not parents
    ran = threading.Event()
    childs.call_soon_threadsafe(ran.set)
    assert ran.wait(10)
    childs.call_soon_threadsafe(childs.stop)
