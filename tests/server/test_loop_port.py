"""The port of a server's log on a real event loop: errors end the server, timers replace timers."""

import asyncio
from typing import NoReturn

from antiphon.io.sync_thread import Syncing
from antiphon.server.loop_port import LoopPort, now_ms


class BrokenError(Exception):
    pass


def fail() -> NoReturn:
    raise BrokenError


def test_an_error_in_any_call_ends_the_server_and_not_the_loop() -> None:
    async def main() -> None:
        failures: list[BaseException] = []
        all_failed = asyncio.Event()

        def failed(error: BaseException) -> None:
            failures.append(error)
            if len(failures) == 5:
                all_failed.set()

        syncing = Syncing(lambda name: None)
        port = LoopPort(syncing, fail, fail, failed)
        port.start()
        port.sync(("file",), lambda error: fail())
        port.soon(fail)
        port.later(0, fail)
        port.turn_soon()
        port.set_timer(now_ms())
        await asyncio.wait_for(all_failed.wait(), 10)
        assert [type(error) for error in failures] == [BrokenError] * 5
        syncing.close()

    asyncio.run(main())


def test_a_later_time_replaces_the_one_that_was_set() -> None:
    async def main() -> None:
        ticks: list[int] = []
        over = asyncio.Event()
        port = LoopPort(Syncing(lambda name: None), over.set, lambda: ticks.append(1), print)
        port.start()
        port.set_timer(now_ms())
        port.set_timer(now_ms() + 3_600_000)
        asyncio.get_running_loop().call_later(0.01, port.turn_soon)  # behind the first time
        await asyncio.wait_for(over.wait(), 10)
        assert ticks == []

    asyncio.run(main())
