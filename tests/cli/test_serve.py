"""Starting a server on a disk that is full; all else about `antiphon serve` needs a process."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable

import pytest

from antiphon.cli import serve
from antiphon.io.config import ServeOptions
from antiphon.server.server import Server
from tests.server.test_server import HOST, Disk, connected, eventually, run

OPTIONS = ServeOptions((HOST, 0), json=True)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RETRY_S", 0.01)


def said(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: text in caplog.text


def test_a_server_waits_for_room_to_start(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        disk = Disk()
        disk.full = True
        serving = asyncio.create_task(serve._serve(OPTIONS, disk))
        waits = "no room to start: no room, says the test; trying again every 0.01 s"
        await eventually(said(caplog, waits))
        await eventually(lambda: disk.refused > 3)
        assert caplog.text.count(waits) == 1
        disk.full = False
        await eventually(said(caplog, "leads epoch"))
        assert "there is room again" in caplog.text
        url = await asyncio.to_thread(ready, capsys)
        client = await connected((HOST, int(url.rpartition(":")[2])))
        await client.attach()
        client.writer.close()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == 0

    run(main())


def ready(capsys: pytest.CaptureFixture[str]) -> str:
    printed = ""
    while "ready" not in printed:
        printed += capsys.readouterr().out
    url: str = json.loads(printed)["ready"]
    return url


def test_what_was_stored_is_there_when_there_is_room_again() -> None:
    """Also after some attempts that came to nothing."""
    disk = Disk()

    async def before() -> None:
        server = Server(1, {1: (HOST, 0)}, disk, OPTIONS.settings)
        await server.start((HOST, 0))
        await server.serves
        await server.close()

    run(before())
    stored = {name: disk.read(name, 0, disk.size(name)) for name in disk.names()}

    async def main() -> None:
        stop = asyncio.Event()
        disk.full = True
        opening = asyncio.create_task(serve._open(OPTIONS, disk, stop))
        await eventually(lambda: disk.refused > 3)
        assert {n: disk.read(n, 0, disk.size(n)) for n in disk.names()} == stored
        disk.full = False
        server = await opening
        assert server is not None
        assert server.node.replica.log.last == 2  # its founding, and that it led

    run(main())


def test_who_waits_for_room_can_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        disk = Disk()
        disk.full = True
        serving = asyncio.create_task(serve._serve(OPTIONS, disk))
        await eventually(lambda: disk.refused > 0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == 0
        assert "ending, as told" in caplog.text

    run(main())
