"""Dialling one address until a process answers, and again when the connection is lost."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import Protocol

from antiphon.errors import FormatError
from antiphon.model.peer_views import MemberId

logger = logging.getLogger("antiphon.io.peers")

PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0
GIVE_UP_S = 60.0
"""An address that is not kept is dialled for this long without success."""


class Dialler(Protocol):
    """The transport, as its rediallers see it."""

    async def connect(self, address: str) -> MemberId | None:
        """Connect to the process at this address, and return it; None: it is this one. Raise
        `OSError` or `FormatError`."""

    def failed(self, address: str, error: OSError | FormatError) -> None:
        """Note that there is no connection to the process at this address, for now."""

    async def until_lost(self, process: MemberId) -> bool:
        """Wait until there is no connection to this process. Return whether it ended in order."""


class Redialler:
    """Keeps one address connected, in a task. `keep`: forever; otherwise until the process there
    ends in order, or does not answer for `GIVE_UP_S`."""

    def __init__(self, dialler: Dialler, address: str) -> None:
        self.keep = False
        self.tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first attempt has ended."""
        self._dialler = dialler
        self._address = address
        self._complaint = ""
        self._connected = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def ended(self) -> bool:
        return self._task.done()

    def close(self) -> None:
        self._task.cancel()

    def forget(self) -> None:
        """Keep it no longer: no process is expected there."""
        self.keep = False
        if not self._connected:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause, since = PAUSE_MIN_S, loop.time()
        while True:
            try:
                process = await self._dialler.connect(self._address)
                self._first_tried()
                if process is None:
                    return
                self._complaint = ""
                self._connected = True
                goodbye = await self._dialler.until_lost(process)
                self._connected = False
                pause, since = PAUSE_MIN_S, loop.time()
                if goodbye and not self.keep:
                    return
            except (OSError, FormatError) as error:
                self._first_tried()
                self._dialler.failed(self._address, error)
                self._complain(str(error) or type(error).__name__)
            if not self.keep and loop.time() - since > GIVE_UP_S:
                return
            # Jitter: processes that lost each other together do not come back in step.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, PAUSE_MAX_S)

    def _first_tried(self) -> None:
        with suppress(asyncio.InvalidStateError):
            self.tried.set_result(None)

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.info("no connection to %s: %s", self._address, complaint)
