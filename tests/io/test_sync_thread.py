"""The thread that syncs: in order, told of on the loop, errors too."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.errors import SyncFailedError
from antiphon.io.sync_thread import Syncing


class Disk:
    """Syncs what it is let, and remembers where and in which order."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def sync(self, name: str) -> None:
        assert self.may_go_on.wait(30)
        self.threads.add(threading.current_thread())
        self.synced.append(name)
        if name == "broken":
            raise SyncFailedError("it is broken")


@contextmanager
def syncing(disk: Disk) -> Iterator[Syncing]:
    thread = Syncing(disk.sync)
    yield thread
    disk.may_go_on.set()
    thread.close()


def test_jobs_are_done_in_order_and_told_of_on_the_loop() -> None:
    disk = Disk()
    told: list[tuple[int, threading.Thread, Exception | None]] = []

    async def main() -> None:
        with syncing(disk) as thread:
            all_told = asyncio.Event()
            for number in range(20):

                def done(error: Exception | None, number: int = number) -> None:
                    told.append((number, threading.current_thread(), error))
                    if number == 19:
                        all_told.set()

                thread.begin((f"{number}a", f"{number}b"), done)
            await all_told.wait()

    asyncio.run(main())
    assert disk.synced == [f"{n}{part}" for n in range(20) for part in "ab"]
    assert told == [(n, threading.current_thread(), None) for n in range(20)]
    (other,) = disk.threads
    assert other is not threading.current_thread()


def test_an_error_is_told_and_the_next_job_is_done() -> None:
    disk = Disk()

    async def main() -> None:
        with syncing(disk) as thread:
            outcomes: asyncio.Queue[Exception | None] = asyncio.Queue()
            thread.begin(("broken", "never"), outcomes.put_nowait)
            thread.begin(("whole",), outcomes.put_nowait)
            assert isinstance(await outcomes.get(), SyncFailedError)
            assert await outcomes.get() is None

    asyncio.run(main())
    assert disk.synced == ["broken", "whole"]


def test_closing_waits_for_what_was_begun() -> None:
    disk = Disk()
    disk.may_go_on.clear()

    async def main() -> None:
        thread = Syncing(disk.sync)
        thread.begin(("slow",), lambda error: None)
        closing = asyncio.create_task(asyncio.to_thread(thread.close))
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done
        disk.may_go_on.set()
        await closing
        assert disk.synced == ["slow"]

    asyncio.run(main())


def test_who_has_nothing_to_sync_has_no_thread() -> None:
    before = threading.active_count()
    with syncing(Disk()):
        assert threading.active_count() == before


def test_a_loop_that_is_gone_is_not_told() -> None:
    disk = Disk()
    disk.may_go_on.clear()
    thread = Syncing(disk.sync)

    async def main() -> None:
        thread.begin(("late",), lambda error: None)

    asyncio.run(main())
    disk.may_go_on.set()
    thread.close()
    assert disk.synced == ["late"]
