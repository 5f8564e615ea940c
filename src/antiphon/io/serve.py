"""`antiphon serve`: one server in the foreground, until SIGTERM or Ctrl-C.

Exit code 0 after an orderly end, 1 when the server had to stop itself; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from typing import Any

from antiphon.core.settings import Settings
from antiphon.errors import IllegalStateError, JMSError
from antiphon.io.files import FileDisk
from antiphon.io.journal_disk import RamDisk
from antiphon.io.server import Server
from antiphon.io.transport import Address, format_address

MEMORY_RETAIN = 100_000
"""Messages that memory mode keeps readable; files keep all of them."""

logger = logging.getLogger("antiphon.io.serve")


def run(args: argparse.Namespace) -> int:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    disk = RamDisk() if args.storage == "memory" else FileDisk(args.data)
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            return runner.run(_serve(args, disk))
    finally:
        if isinstance(disk, FileDisk):
            disk.close()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for this system; the built-in loop does, more slowly
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(args: argparse.Namespace, disk: FileDisk | RamDisk) -> int:
    listed: dict[int, Address] = args.cluster or {1: args.listen}
    settings = Settings(volatile=disk.volatile)
    server = Server(
        args.node or 1, listed, disk, settings, MEMORY_RETAIN if disk.volatile else None
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        address = await server.start(args.listen)
    except OSError as error:
        raise IllegalStateError(
            f"cannot listen at {format_address(args.listen)}: {error.strerror}"
        ) from None
    return await _until_ended(server, stop, address)


async def _until_ended(server: Server, stop: asyncio.Event, address: Address) -> int:
    stopped = asyncio.ensure_future(stop.wait())
    ends: set[asyncio.Future[Any]] = {stopped, server.ended}
    try:
        await asyncio.wait({*ends, server.serves}, return_when=asyncio.FIRST_COMPLETED)
        if server.serves.done():
            print(f"ready antiphon://{format_address(address)}", flush=True)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        error = server.ended.exception() if server.ended.done() else None
        if error is None:
            logger.info("ending, as told")
            return 0
        if isinstance(error, JMSError):
            raise error  # whose text says it all
        return 1  # a broken invariant; its story is in the log
    finally:
        stopped.cancel()
        await server.close()
