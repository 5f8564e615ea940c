"""The simulated event loop: asyncio as everybody knows it, but time and order come from a seed."""

import asyncio
import contextvars
import gc
import inspect
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from random import Random
from typing import Any

import pytest

from antiphon.sim.event_loop import loop as loop_module
from antiphon.sim.event_loop.guard import NotSimulated, guarded
from antiphon.sim.event_loop.loop import SimulatedLoop, StuckError


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(Random(1))
    yield loop
    loop.close()


def run(main: Coroutine[Any, Any, Any], seed: int = 1) -> Any:
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(Random(seed))) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- Time and order ----------------------------------------------------------------------------


def test_an_hour_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return now()

    began = time.monotonic()
    assert run(main()) == 3600
    assert time.monotonic() - began < 60


def test_time_may_begin_late() -> None:
    loop = SimulatedLoop(Random(1), start=50)
    loop.run_until_complete(asyncio.sleep(2))
    assert loop.time() == 52
    loop.close()


def test_timers_run_by_their_times() -> None:
    async def main() -> list[float]:
        times: list[float] = []

        async def sleeper(seconds: float) -> None:
            await asyncio.sleep(seconds)
            times.append(now())

        await asyncio.gather(*map(sleeper, [3, 1, 2.5, 0, 2]))
        return times

    assert run(main()) == [0, 1, 2, 2.5, 3]


def order_at_one_instant(seed: int) -> str:
    async def main() -> str:
        order: list[str] = []

        async def sleeper(name: str) -> None:
            await asyncio.sleep(5)
            order.append(name)

        await asyncio.gather(*map(sleeper, "abcdef"))
        return "".join(order)

    return str(run(main(), seed))


def test_the_seed_decides_between_timers_that_are_due_together() -> None:
    orders = [order_at_one_instant(seed) for seed in range(20)]
    assert orders == [order_at_one_instant(seed) for seed in range(20)]
    assert len(set(orders)) > 10
    assert {"".join(sorted(order)) for order in orders} == {"abcdef"}


@pytest.mark.parametrize("seed", range(5))
def test_call_soon_is_first_come_first_served(seed: int) -> None:
    async def main() -> list[int]:
        order: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(0)
        return order

    assert run(main(), seed) == list(range(20))


def test_draws_are_made_only_where_there_is_something_to_decide(loop: SimulatedLoop) -> None:
    before = loop._random.getstate()
    loop.run_until_complete(asyncio.wait_for(asyncio.sleep(1), 2))
    assert loop._random.getstate() == before


def test_sets_of_tasks_and_futures_have_the_same_order_in_every_run() -> None:
    async def main() -> tuple[list[str], list[int]]:
        tasks = [asyncio.create_task(asyncio.sleep(1), name=f"t{n}") for n in range(50)]
        done, _ = await asyncio.wait(Random(3).sample(tasks, 50))
        futures = [asyncio.get_running_loop().create_future() for _ in range(50)]
        numbers = {future: number for number, future in enumerate(futures)}
        return [task.get_name() for task in done], [numbers[f] for f in set(futures)]

    clutter = [object() for _ in range(1000)]  # so that addresses differ between the runs
    first = run(main())
    del clutter[::3]
    assert run(main()) == first


def test_a_group_cancels_its_tasks_in_the_same_order_in_every_run() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def member(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                order.append(number)

        with suppress(TimeoutError):
            async with asyncio.timeout(1), asyncio.TaskGroup() as group:
                for number in range(30):
                    group.create_task(member(number))
        assert len(order) == 30
        return order

    assert run(main()) == run(main())


def test_names_of_tasks_do_not_depend_on_what_ran_before() -> None:
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
        await asyncio.gather(*tasks)
        return [task.get_name() for task in tasks]

    assert run(main()) == run(main()) == ["Task-2", "Task-3", "Task-4"]


def test_coroutines_are_started_in_the_order_given_to_as_completed() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def one(number: int) -> None:
            order.append(number)

        for each in asyncio.as_completed([one(number) for number in range(50)]):
            await each
        return order

    with guarded():
        assert run(main()) == list(range(50))


def test_many_cancelled_timers_are_thrown_away(loop: SimulatedLoop) -> None:
    fired: list[int] = []
    for number in range(1000):
        handle = loop.call_later(number, fired.append, number)
        if number % 100:
            handle.cancel()
    assert len(loop._timers) < 300
    loop.advance(1000)
    loop.run_ready()
    assert fired == list(range(0, 1000, 100))
    assert loop.next_timer() is None


# -- What asyncio offers -----------------------------------------------------------------------


def test_timeouts() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        async with asyncio.timeout(5):
            await asyncio.sleep(1)
        return now()

    assert run(main()) == 8


def test_gather_and_groups() -> None:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(a)
        return a + b

    async def fail() -> None:
        raise ValueError("no")

    async def failing_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(add(100, 1))
            group.create_task(fail())

    async def main() -> None:
        assert await asyncio.gather(add(3, 4), add(1, 2)) == [7, 3]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(add(n, 1)) for n in range(3)]
        assert [task.result() for task in tasks] == [1, 2, 3]
        with pytest.raises(ExceptionGroup):
            await failing_group()
        assert now() == 5

    run(main())


def test_queues_locks_events_conditions_semaphores_and_barriers() -> None:
    async def main() -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock, event, ready = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        permits, barrier = asyncio.Semaphore(2), asyncio.Barrier(3)
        seen: list[Any] = []

        async def producer() -> None:
            for number in range(5):
                await queue.put(number)
            event.set()

        async def consumer() -> None:
            await ready.acquire()
            await ready.wait()
            ready.release()
            for _ in range(5):
                async with lock, permits:
                    seen.append(await queue.get())
            await barrier.wait()

        async def starter() -> None:
            await asyncio.sleep(1)
            async with ready:
                ready.notify_all()
            await event.wait()
            seen.append("event")
            await barrier.wait()

        await asyncio.gather(producer(), consumer(), starter(), barrier.wait())
        return seen

    seen = run(main())
    assert [each for each in seen if each != "event"] == [0, 1, 2, 3, 4]
    assert "event" in seen


def test_asynchronous_generators_are_closed() -> None:
    async def numbers(closed: list[str], name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append(name)

    async def main(closed: list[str], kept: list[Any]) -> None:
        async for _ in numbers(closed, "dropped"):
            break
        await asyncio.sleep(2)
        assert closed == ["dropped"]
        for name in "ab":
            kept.append(numbers(closed, name))
            await anext(kept[-1])

    closed: list[str] = []
    kept: list[Any] = []
    run(main(closed, kept))
    assert closed[0] == "dropped"
    assert sorted(closed[1:]) == ["a", "b"]


def test_contexts() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    async def main() -> list[str]:
        seen: list[str] = []
        context = contextvars.copy_context()
        context.run(who.set, "ann")
        note: Callable[[], None] = lambda: seen.append(who.get())  # noqa: E731
        loop = asyncio.get_running_loop()
        loop.call_soon(note, context=context)
        loop.call_later(1, note, context=context)
        loop.call_later(2, note)

        async def task() -> None:
            note()

        await asyncio.create_task(task(), context=context)
        await asyncio.sleep(3)
        return seen

    assert run(main()) == ["ann", "ann", "ann", "nobody"]


def test_a_task_factory_is_used(loop: SimulatedLoop) -> None:
    made: list[Any] = []

    def factory(loop: Any, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **kwargs)

    loop.set_task_factory(factory)
    loop.run_until_complete(asyncio.sleep(1))
    assert len(made) == 1
    assert loop.get_task_factory() is factory


def test_cancelling_runs_clean_up_code() -> None:
    async def main() -> float:
        async def careful() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)

        task = asyncio.create_task(careful())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return now()

    assert run(main()) == 2


def test_debug_mode() -> None:
    with asyncio.Runner(debug=True, loop_factory=lambda: SimulatedLoop(Random(1))) as runner:
        runner.run(asyncio.wait_for(asyncio.sleep(1), 2))


# -- Driven from outside -----------------------------------------------------------------------


def test_a_simulator_drives_the_loop(loop: SimulatedLoop) -> None:
    seen: list[tuple[float, str]] = []

    async def program() -> None:
        seen.append((now(), "begins"))
        await asyncio.sleep(0.25)
        seen.append((now(), "goes on"))
        await asyncio.sleep(0.5)
        seen.append((now(), "ends"))

    task = loop.create_task(program())
    assert seen == []
    assert loop.has_ready()
    loop.run_ready()
    assert not loop.has_ready()
    assert loop.next_timer() == 0.25
    loop.advance(0.125)
    loop.run_ready()
    assert seen == [(0, "begins")]
    loop.advance(0.25)
    assert loop.has_ready()
    loop.run_ready()
    loop.advance(2)  # the process was paused: its timer is late
    loop.run_ready()
    assert seen == [(0, "begins"), (0.25, "goes on"), (2, "ends")]
    assert loop.next_timer() is None
    assert task.done()


def test_timers_that_are_late_run_in_their_order(loop: SimulatedLoop) -> None:
    order: list[int] = []
    for when in (3, 1, 2):
        loop.call_at(when, order.append, when)
    loop.advance(10)
    loop.run_ready()
    assert order == [1, 2, 3]


def test_time_does_not_go_back(loop: SimulatedLoop) -> None:
    loop.advance(5)
    with pytest.raises(ValueError, match="time does not go back"):
        loop.advance(4)


def test_something_from_outside_wakes_a_task(loop: SimulatedLoop) -> None:
    answer = loop.create_future()

    async def program() -> Any:
        return await answer

    task = loop.create_task(program())
    loop.run_ready()
    assert not loop.has_ready()
    answer.set_result(7)
    assert loop.has_ready()
    loop.run_ready()
    assert task.result() == 7


def test_a_loop_runs_inside_another_one() -> None:
    async def inner() -> float:
        await asyncio.sleep(5)
        return now()

    async def outer() -> None:
        await asyncio.sleep(1)
        loop = SimulatedLoop(Random(2))
        assert loop.run_until_complete(inner()) == 5
        loop.close()
        assert now() == 1
        await asyncio.sleep(1)

    run(outer())


def test_a_loop_does_not_run_inside_itself(loop: SimulatedLoop) -> None:
    loop.call_soon(loop.run_ready)
    with pytest.raises(RuntimeError, match="runs already"):
        loop.run_ready()


def test_stopping(loop: SimulatedLoop) -> None:
    loop.call_later(3, loop.stop)
    loop.call_later(4, pytest.fail)
    loop.run_forever()
    assert loop.time() == 3
    with pytest.raises(RuntimeError, match="stopped before"):
        loop.run_until_complete(stops_its_loop())


async def stops_its_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    await asyncio.sleep(1)


# -- Errors ------------------------------------------------------------------------------------


def fails() -> None:
    raise ValueError("on purpose")


def test_the_error_of_a_callback_comes_out_at_once(loop: SimulatedLoop) -> None:
    later: list[str] = []
    loop.call_soon(fails)
    loop.call_soon(later.append, "ran")
    with pytest.raises(ValueError, match="on purpose") as caught:
        loop.run_ready()
    assert "Exception in callback fails()" in caught.value.__notes__[0]
    assert later == []
    loop.run_ready()
    assert later == ["ran"]


def test_the_error_of_a_timer_comes_out_of_run_until_complete(loop: SimulatedLoop) -> None:
    loop.call_later(1, fails)
    with pytest.raises(ValueError, match="on purpose"):
        loop.run_until_complete(asyncio.sleep(2))


def test_a_handler_gets_errors_instead(loop: SimulatedLoop) -> None:
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: contexts.append(context))
    loop.call_soon(fails)
    loop.run_ready()
    assert [str(context["exception"]) for context in contexts] == ["on purpose"]
    loop.set_exception_handler(lambda loop, context: loop.default_exception_handler(context))
    loop.call_soon(fails)
    with pytest.raises(ValueError, match="on purpose"):
        loop.run_ready()


def test_a_handler_that_fails_is_heard_of(loop: SimulatedLoop) -> None:
    loop.set_exception_handler(lambda _loop, _context: fails())
    loop.call_soon(lambda: 1 / 0)
    with pytest.raises(ValueError, match="on purpose") as caught:
        loop.run_ready()
    assert caught.value.__notes__ == ["the exception handler failed"]


async def fails_later() -> None:
    await asyncio.sleep(1)
    fails()


def test_the_error_of_a_task_that_nobody_asks_comes_out_at_the_end() -> None:
    loop = SimulatedLoop(Random(1))
    for _ in range(200):  # the loop looks through its tasks in between
        loop.create_task(asyncio.sleep(0))
    loop.create_task(fails_later(), name="forgotten")
    for _ in range(200):
        loop.create_task(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(2))
    with pytest.raises(ValueError, match="on purpose") as caught:
        loop.close()
    assert caught.value.__notes__ == ["forgotten failed, and nobody asked for its result"]
    assert loop.is_closed()
    loop.close()


def test_errors_that_somebody_asks_for_do_not_come_out_twice() -> None:
    async def main() -> None:
        task = asyncio.create_task(fails_later())
        await asyncio.sleep(5)
        with pytest.raises(ValueError, match="on purpose"):
            await task
        fails()

    with pytest.raises(ValueError, match="on purpose"):
        run(main())


# -- Stuck -------------------------------------------------------------------------------------


def test_a_deadlock_says_who_waits_for_what() -> None:
    async def takes(queue: asyncio.Queue[int]) -> None:
        await queue.get()

    async def locks(lock: asyncio.Lock) -> None:
        async with lock:
            pass

    async def bare() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        lock = asyncio.Lock()
        await lock.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(takes(asyncio.Queue()), name="taker")
            group.create_task(locks(lock), name="locker")
            end = group.create_task(bare(), name="bare")
            group.create_task(follows(end), name="follower")
            group.create_task(gathers(end), name="gatherer")

    async def follows(other: asyncio.Task[None]) -> None:
        await other

    async def gathers(other: asyncio.Task[None]) -> None:
        await asyncio.gather(other)

    with pytest.raises(StuckError) as caught:
        run(main())
    first, *others = str(caught.value).splitlines()
    assert first == "deadlock: everybody waits, and no timer is set that would wake anybody"
    line = inspect.getsourcelines(takes)[1] + 1
    place = "test_a_deadlock_says_who_waits_for_what.<locals>"
    assert f"  taker waits for asyncio.Queue.get, at test_loop.py:{line} in {place}.takes" in others
    told = [other.strip().split(", at ")[0] for other in others]
    assert told == [
        "Task-1 waits for asyncio.TaskGroup.__aexit__",
        "taker waits for asyncio.Queue.get",
        "locker waits for asyncio.Lock.acquire",
        "bare waits for a future",
        "follower waits for the end of bare",
        "gatherer waits for asyncio.gather",
    ]


def test_a_deadlock_without_tasks(loop: SimulatedLoop) -> None:
    with pytest.raises(StuckError, match="nobody: there are no tasks"):
        loop.run_until_complete(loop.create_future())


def test_spinning_is_noticed(loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def spins() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    monkeypatch.setattr(loop_module, "CALLBACKS_MAX", 1000)
    with pytest.raises(StuckError, match="time does not pass\n  spinner waits"):
        loop.run_until_complete(loop.create_task(spins(), name="spinner"))


def test_work_at_many_instants_is_not_taken_for_spinning(
    loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def works() -> None:
        for _ in range(1000):
            await asyncio.sleep(0.001)

    monkeypatch.setattr(loop_module, "CALLBACKS_MAX", 50)
    loop.run_until_complete(works())


# -- Crashes -----------------------------------------------------------------------------------


class Process:
    """One that cleans up in every way there is, and tells of it."""

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self.loop = SimulatedLoop(Random(1))
        self.lock = asyncio.Lock()
        for program in (self.nested, self.stubborn, self.generates, self.groups, self.locks):
            self.loop.create_task(program())
        self.loop.create_task(fails_later())
        self.loop.run_ready()
        self.loop.advance(1)
        self.loop.run_ready()
        self.loop.create_task(self.nested())  # never begins
        self.loop.call_later(1, told.append, "timer")
        self.loop.call_soon(told.append, "callback")

    async def nested(self) -> None:
        try:
            with self.telling():
                async with self.telling_later():
                    await asyncio.sleep(100)
        finally:
            task = asyncio.create_task(asyncio.sleep(1))
            await asyncio.gather(task, asyncio.sleep(1))
            self.told.append("finally")

    async def stubborn(self) -> None:
        while True:
            try:
                await asyncio.sleep(100)
            except BaseException:
                self.told.append("no")

    async def generates(self) -> None:
        async for _ in self.numbers():
            await asyncio.sleep(100)

    async def numbers(self) -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            self.told.append("generator")

    async def groups(self) -> None:
        async with asyncio.TaskGroup() as group, asyncio.timeout(50):
            group.create_task(self.nested())
            await asyncio.Event().wait()

    async def locks(self) -> None:
        async with self.lock:
            await asyncio.sleep(100)

    @contextmanager
    def telling(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.told.append("contextmanager")

    @asynccontextmanager
    async def telling_later(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(1)
            self.told.append("asynccontextmanager")


def test_a_crash_runs_nothing_not_even_when_garbage_is_collected() -> None:
    told: list[str] = []
    process = Process(told)
    process.loop.abandon()
    assert process.loop.next_timer() is None
    assert not process.loop.has_ready()
    del process
    gc.collect()
    assert told == []
    for loop in list(loop_module._crashed):
        loop.close()
    assert "finally" not in told, "it stands after an await"


def test_what_is_left_of_a_crash_is_thrown_away_quietly() -> None:
    process = Process([])
    process.loop.abandon()
    process.loop.close()
    del process
    gc.collect()  # warnings, and errors that nobody can catch, fail the test


def test_nothing_stays_in_memory_of_a_loop_that_is_closed() -> None:
    async def waits(loop: SimulatedLoop) -> None:
        await loop.create_future()

    loop = SimulatedLoop(Random(1))
    left = [weakref.ref(loop), weakref.ref(loop.create_task(waits(loop)))]
    loop.run_ready()
    loop.abandon()
    gc.collect()
    assert all(ref() is not None for ref in left)
    loop.close()
    del loop
    gc.collect()
    assert all(ref() is None for ref in left)


def test_a_loop_that_is_closed_in_the_middle_is_quiet() -> None:
    loop = Process([]).loop
    with pytest.raises(ValueError, match="on purpose"):
        loop.close()
    gc.collect()


def test_what_comes_for_a_crashed_process_is_dropped(loop: SimulatedLoop) -> None:
    answer = loop.create_future()
    ran: list[str] = []

    async def program() -> None:
        await answer
        ran.append("program")

    loop.create_task(program())
    loop.run_ready()
    loop.abandon()
    loop.abandon()
    answer.set_result(7)
    loop.call_soon(ran.append, "callback")
    loop.call_later(1, ran.append, "timer").cancel()
    loop.create_task(program())
    loop.call_exception_handler({"message": "nobody listens"})
    with pytest.raises(RuntimeError, match="abandoned"):
        loop.run_ready()
    loop.advance(5)
    assert loop.next_timer() is None
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_ready()
    assert ran == []


def test_a_process_may_crash_in_the_middle_of_a_callback(loop: SimulatedLoop) -> None:
    ran: list[str] = []
    loop.call_soon(loop.abandon)
    loop.call_soon(ran.append, "after")
    loop.run_ready()
    assert ran == []


def test_a_crash_does_not_touch_other_loops(loop: SimulatedLoop) -> None:
    crashed = SimulatedLoop(Random(2))
    crashed.create_task(asyncio.sleep(1))
    task = loop.create_task(asyncio.sleep(1, "done"))
    crashed.run_ready()
    loop.run_ready()
    crashed.abandon()
    assert loop.run_until_complete(task) == "done"
    crashed.close()


def test_a_program_ends_without_a_word_about_crashed_processes() -> None:
    code = """
import asyncio
from random import Random
from antiphon.sim.event_loop.loop import SimulatedLoop

async def program():
    try:
        await asyncio.sleep(1)
    finally:
        await asyncio.sleep(1)

for _ in range(2):
    loop = SimulatedLoop(Random(1))
    tasks = [loop.create_task(program())]
    loop.run_ready()
    tasks.append(loop.create_task(program()))
    loop.abandon()
"""
    end = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code], capture_output=True, text=True
    )
    assert (end.returncode, end.stdout, end.stderr) == (0, "", "")


# -- Refusals ----------------------------------------------------------------------------------

NETWORK = "the network is outside"
PROCESSES = "another process is outside"
THREADS = "no seed decides in which order threads run"
SIGNALS = "no signals arrive in a simulation"
LOOP_CALLS = [
    ("add_reader", NETWORK),
    ("add_writer", NETWORK),
    ("connect_accepted_socket", NETWORK),
    ("create_connection", NETWORK),
    ("create_datagram_endpoint", NETWORK),
    ("create_server", NETWORK),
    ("create_unix_connection", NETWORK),
    ("create_unix_server", NETWORK),
    ("getaddrinfo", NETWORK),
    ("getnameinfo", NETWORK),
    ("remove_reader", NETWORK),
    ("remove_writer", NETWORK),
    ("sendfile", NETWORK),
    ("sock_accept", NETWORK),
    ("sock_connect", NETWORK),
    ("sock_recv", NETWORK),
    ("sock_recv_into", NETWORK),
    ("sock_recvfrom", NETWORK),
    ("sock_recvfrom_into", NETWORK),
    ("sock_sendall", NETWORK),
    ("sock_sendfile", NETWORK),
    ("sock_sendto", NETWORK),
    ("start_tls", NETWORK),
    ("connect_read_pipe", PROCESSES),
    ("connect_write_pipe", PROCESSES),
    ("subprocess_exec", PROCESSES),
    ("subprocess_shell", PROCESSES),
    ("run_in_executor", THREADS),
    ("set_default_executor", THREADS),
    ("add_signal_handler", SIGNALS),
    ("remove_signal_handler", SIGNALS),
]


@pytest.mark.parametrize(("name", "why"), LOOP_CALLS)
def test_what_the_loop_cannot_simulate_is_refused(name: str, why: str, loop: SimulatedLoop) -> None:
    with pytest.raises(NotSimulated) as caught:
        getattr(loop, name)()
    sentence = str(caught.value)
    assert name.removeprefix("subprocess_") in sentence
    assert f"is not simulated: {why}" in sentence
    assert ": " in sentence.split("not simulated: ")[1], "says what to do instead"


def test_no_method_of_event_loops_is_forgotten() -> None:
    refused = {name for name, _ in LOOP_CALLS}
    simulated = vars(SimulatedLoop)
    offered = {
        name
        for name, value in vars(asyncio.AbstractEventLoop).items()
        if callable(value) and not name.startswith("__")
    }
    assert offered - refused - set(simulated) == set()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: asyncio.to_thread(print), "asyncio.to_thread) is not simulated: no seed"),
        (lambda: asyncio.open_connection("localhost", 1), "asyncio.open_connection) is not sim"),
        (lambda: asyncio.start_server(print, port=1), "asyncio.start_server) is not simulated"),
        (lambda: asyncio.create_subprocess_exec("true"), "create_subprocess_exec is not simul"),
        (lambda: asyncio.create_subprocess_shell("true"), "create_subprocess_shell is not simu"),
    ],
)
def test_so_is_what_asyncio_builds_on_it(
    call: Callable[[], Coroutine[Any, Any, Any]], sentence: str
) -> None:
    with pytest.raises(NotSimulated) as caught:
        run(call())
    assert sentence in str(caught.value)


def test_other_threads_may_not_call(loop: SimulatedLoop) -> None:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except NotSimulated as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "call_soon_threadsafe from another thread is not simulated" in str(errors[0])
    ran: list[int] = []
    loop.call_soon_threadsafe(ran.append, 1)
    loop.run_ready()
    assert ran == [1]
