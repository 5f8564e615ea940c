"""The port on which a server's log runs: an asyncio loop, a thread for syncs, the clock.

Promises: calls are made one at a time, on the loop, and an error in one of them goes to
`LoopPort.failed` and nowhere else. All decisions, and their order, are in `driver/log.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from antiphon.driver.log import RETRY_S
from antiphon.driver.ports import Done
from antiphon.formats.entry import ReplicaId, SnapshotMeta
from antiphon.formats.server_messages import Message
from antiphon.io.sync_thread import Syncing

logger = logging.getLogger("antiphon.server.server")


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class LoopPort:
    """Is a `driver/log.py: Port`. `start` on the loop before the driver starts."""

    def __init__(
        self,
        syncing: Syncing,
        turn: Callable[[], None],
        tick: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.now_ms = now_ms
        self.failed = failed
        self.send: Callable[[ReplicaId, Message], None]
        """Set this to the transport's method, without a function in between: it is called for each
        message."""

        self._syncing = syncing
        self._turn = turn
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def guarded(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call for the loop: an error in it ends this server, and nothing else."""
        try:
            call(*args)
        except Exception as error:
            self.failed(error)

    def sync(self, names: tuple[str, ...], done: Done) -> None:
        self._syncing.begin(names, partial(self.guarded, done))

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(self.guarded, call, *args)

    def later(self, wait_s: float, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(wait_s, self.guarded, call, *args)

    def set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = max(0, due_ms - now_ms()) / 1000
        self._timer = self._loop.call_later(wait_s, self.guarded, self._tick)

    def turn_soon(self) -> None:
        self._loop.call_soon(self.guarded, self._turn)

    # -- News ----------------------------------------------------------------------------------

    def impaired(self, reason: str) -> None:
        logger.error("no room: %s; trying again every %g s", reason, RETRY_S)

    def recovered(self) -> None:
        logger.info("there is room again")

    def no_room_for_snapshot(self, reason: str) -> None:
        logger.error("no room for a snapshot: %s", reason)

    def snapshot_stored(self, meta: SnapshotMeta) -> None:
        logger.debug("stored a snapshot at entry %d", meta.index)

    def installed(self, meta: SnapshotMeta) -> None:
        logger.info("took over the state at entry %d from the leader", meta.index)
