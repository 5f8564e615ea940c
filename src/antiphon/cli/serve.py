"""`antiphon serve`: one server in the foreground, until SIGTERM or Ctrl-C.

Exit code 0 after an orderly end, 1 when the server had to stop itself; the reason is on stderr.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from antiphon.broker.home.settings import HomeSettings
from antiphon.driver.log import RETRY_S
from antiphon.errors import ConfigurationError, DiskFullError, IllegalStateError, JMSError
from antiphon.io.background_loop import new_event_loop
from antiphon.io.config import ServeOptions
from antiphon.io.file_disk import FileDisk
from antiphon.io.malloc import keep_freed_memory
from antiphon.io.transport import Address, format_address
from antiphon.journal.disk import RamDisk
from antiphon.server.metrics import Metrics
from antiphon.server.server import Server
from antiphon.terminal.lines import harmless, say, say_json

logger = logging.getLogger("antiphon.cli.serve")


class _Lines(logging.Formatter):
    """Escapes control characters: names and texts of clients must not forge lines of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return harmless(super().formatMessage(record))


def run(options: ServeOptions) -> int:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    _raise_file_limit()
    keep_freed_memory()
    disk = RamDisk() if options.storage == "memory" else _folder(options.data)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(options, disk))
    finally:
        if isinstance(disk, FileDisk):
            disk.close()


def _folder(path: str) -> FileDisk:
    try:
        return FileDisk(path)
    except IllegalStateError as error:  # another server has the folder: wrong usage
        raise ConfigurationError(str(error)) from None


def _raise_file_limit() -> None:
    """Raise the limit of open files, for every connection is one; the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # some systems state no real limit, and take none either
        logger.warning("the limit of open files stays at %d", soft)


async def _serve(options: ServeOptions, disk: FileDisk | RamDisk) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await _open(options, disk, stop)
    if server is None:
        logger.info("ending, as told")
        return 0
    address = await _listen(server.start, options.listen)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.close)
        if options.metrics is not None:
            metrics = Metrics(server)
            counted = await _listen(metrics.start, options.metrics)
            stack.callback(metrics.close)
            logger.info("metrics at http://%s/metrics", format_address(counted))
        return await _until_ended(server, stop, partial(_say_ready, address, options.json))


async def _open(
    options: ServeOptions, disk: FileDisk | RamDisk, stop: asyncio.Event
) -> Server | None:
    """Return the server as soon as the disk has room for a start; None: it was stopped before."""
    listed = options.cluster or {1: options.listen}
    home = HomeSettings(deliveries_max=options.limits.deliveries, redelivery=options.redelivery)
    waited = False
    while not stop.is_set():
        began = time.monotonic()
        try:
            server = Server(
                options.node,
                listed,
                disk,
                options.settings,
                options.retain,
                home,
                options.contexts,
                options.trace,
            )
        except DiskFullError as error:
            # The journal was read in vain: that may take a while, so the next pause is as long.
            pause_s = max(RETRY_S, time.monotonic() - began)
            if not waited:
                logger.error("no room to start: %s; trying again every %g s", error, pause_s)
            waited = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
            continue
        if waited:
            logger.info("there is room again")
        return server
    return None


async def _listen(start: Callable[[Address], Awaitable[Address]], where: Address) -> Address:
    try:
        return await start(where)
    except OSError as error:
        # Event loops have words of their own; a negative number is about the name of the host.
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ConfigurationError(f"cannot listen at {format_address(where)}: {why}") from None


def _say_ready(address: Address, as_json: bool) -> None:
    url = f"antiphon://{format_address(address)}"
    if as_json:
        say_json({"ready": url}, flush=True)
    else:
        say(f"ready {url}", flush=True)


async def _until_ended(server: Server, stop: asyncio.Event, say_ready: Callable[[], None]) -> int:
    stopped = asyncio.ensure_future(stop.wait())
    ends: set[asyncio.Future[Any]] = {stopped, server.ended}
    try:
        await asyncio.wait({*ends, server.serves}, return_when=asyncio.FIRST_COMPLETED)
        if server.serves.done():
            say_ready()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        error = server.ended.exception() if server.ended.done() else None
        if error is None:
            logger.info("ending, as told")
            return 0
        if isinstance(error, JMSError):
            raise error  # its text is the explanation
        return 1  # a broken invariant; its story is in the log
    finally:
        stopped.cancel()
