"""The guard: refusals say what to do instead, simulated clocks and chance come from the seed, and
nothing of it is left behind."""

import asyncio
import builtins
import concurrent.futures
import copy
import datetime
import io
import logging
import os
import pickle
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable
from contextlib import suppress
from random import Random
from time import monotonic as monotonic_before
from time import process_time as processor_time
from typing import Any

import pytest

from antiphon.sim.event_loop import surroundings
from antiphon.sim.event_loop.guard import NotSimulated, guarded
from antiphon.sim.event_loop.loop import SimulatedLoop
from antiphon.sim.event_loop.refusal import EPOCH_S, Guard, here
from antiphon.sim.event_loop.stand_ins import acts

HERE = sys.modules[__name__]

SLEEP = "it stops the whole simulation"
THREADS = "no seed decides in which order threads run"
NETWORK = "the network is outside"
PROCESSES = "another process is outside"
CLOCK = "a replica that looks at a clock decides differently from the others: put the time into"
CHANCE = "a replica that draws decides differently from the others: draw before"


def use_socket(name: str, *args: Any) -> None:
    with socket.socket() as opened:
        getattr(opened, name)(*args)


ALWAYS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: time.sleep(0), "time.sleep", SLEEP),
    (lambda: input(), "input", "nobody sits at a simulation"),
    (lambda: threading.Thread(target=print).start(), "threading.Thread.start", THREADS),
    (lambda: threading.Timer(1, print).start(), "threading.Thread.start", THREADS),
    (
        lambda: concurrent.futures.ThreadPoolExecutor().submit(print),
        "concurrent.futures.thread.ThreadPoolExecutor.submit",
        THREADS,
    ),
    (lambda: use_socket("connect", ("localhost", 1)), "socket.socket.connect", NETWORK),
    (lambda: use_socket("bind", ("localhost", 0)), "socket.socket.bind", NETWORK),
    (lambda: socket.create_connection(("localhost", 1)), "socket.getaddrinfo", NETWORK),
    (lambda: subprocess.Popen(["true"]), "subprocess.Popen", PROCESSES),
    (lambda: subprocess.run(["true"]), "subprocess.Popen", PROCESSES),
    (lambda: os.system("true"), "os.system", PROCESSES),
    (lambda: os.fork(), "os.fork", PROCESSES),
    (lambda: asyncio.new_event_loop(), "asyncio.new_event_loop", "a second event loop would"),
]

DECIDING: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: time.time(), "time.time", CLOCK),
    (lambda: time.time_ns(), "time.time_ns", CLOCK),
    (lambda: time.monotonic(), "time.monotonic", CLOCK),
    (lambda: time.monotonic_ns(), "time.monotonic_ns", CLOCK),
    (lambda: time.perf_counter(), "time.perf_counter", CLOCK),
    (lambda: time.localtime(), "time.localtime", CLOCK),
    (lambda: time.gmtime(None), "time.gmtime", CLOCK),
    (lambda: time.strftime("%Y"), "time.strftime", CLOCK),
    (lambda: time.asctime(), "time.asctime", CLOCK),
    (lambda: monotonic_before(), "time.monotonic", CLOCK),
    (lambda: datetime.datetime.now(), "datetime.datetime.now", CLOCK),
    (lambda: datetime.datetime.now(datetime.UTC), "datetime.datetime.now", CLOCK),
    (lambda: datetime.datetime.today(), "datetime.datetime.today", CLOCK),
    (lambda: datetime.datetime.utcnow(), "datetime.datetime.utcnow", CLOCK),
    (lambda: datetime.date.today(), "datetime.date.today", CLOCK),
    (lambda: random.random(), "random.random", CHANCE),
    (lambda: random.randint(1, 6), "random.randint", CHANCE),
    (lambda: random.choice("abc"), "random.choice", CHANCE),
    (lambda: random.shuffle([1, 2]), "random.shuffle", CHANCE),
    (lambda: random.gauss(), "random.gauss", CHANCE),
    (lambda: random.seed(7), "random.seed", CHANCE),
    (lambda: Random().random(), "a random.Random without a seed", CHANCE),
    (lambda: random.SystemRandom().random(), "random.SystemRandom.random", CHANCE),
    (lambda: random.SystemRandom().choice("abc"), "random.SystemRandom.getrandbits", CHANCE),
    (lambda: os.urandom(8), "os.urandom", CHANCE),
    (lambda: uuid.uuid1(), "uuid.uuid1", CHANCE),
    (lambda: uuid.uuid4(), "uuid.uuid4", CHANCE),
    (lambda: secrets.token_hex(), "secrets.token_hex", CHANCE),
    (lambda: secrets.token_bytes(4), "secrets.token_bytes", CHANCE),
    (lambda: secrets.token_urlsafe(), "secrets.token_urlsafe", CHANCE),
    (lambda: secrets.randbelow(9), "secrets.randbelow", CHANCE),
    (lambda: secrets.randbits(9), "secrets.randbits", CHANCE),
    (lambda: secrets.choice("abc"), "secrets.choice", CHANCE),
]


def everything() -> list[Any]:
    every = [*acts(), *surroundings.acts()]
    return [vars(owner).get(name) for owner, name, _ in every] + [dict(vars(HERE))]


@pytest.mark.parametrize(("call", "called", "why"), ALWAYS + DECIDING)
def test_a_refusal_says_what_was_called_why_not_and_what_to_do(
    call: Callable[[], Any], called: str, why: str
) -> None:
    before = everything()
    with guarded(modules=[HERE]) as guard:
        with pytest.raises(NotSimulated) as caught:
            call()
        assert guard.refused == [str(caught.value)]
    assert everything() == before
    assert str(caught.value).startswith(f"{called} is not simulated: {why}")
    assert ": " in str(caught.value).split("not simulated: ")[1], "says what to do instead"
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(("call", "called", "why"), ALWAYS)
def test_what_leaves_the_simulation_is_refused_where_clocks_are_simulated_too(
    call: Callable[[], Any], called: str, why: str
) -> None:
    with guarded(deterministic=False), pytest.raises(NotSimulated, match=called):
        call()


@pytest.mark.parametrize("call", [call for call, _, _ in DECIDING])
def test_clocks_and_chance_are_the_same_in_every_run(call: Callable[[], Any]) -> None:
    def drawn(seed: int, at: float) -> list[Any]:
        with guarded(lambda: at, Random(seed), deterministic=False, modules=[HERE]):
            return [call() for _ in range(3)]

    assert drawn(1, 5.0) == drawn(1, 5.0)


def test_simulated_clocks_show_simulated_time() -> None:
    now = 0.0
    with guarded(lambda: now, deterministic=False, modules=[HERE]):
        assert (time.time(), time.monotonic(), time.perf_counter()) == (EPOCH_S, 0, 0)
        now = 90.5
        assert time.time() == EPOCH_S + 90.5
        assert time.time_ns() == EPOCH_S * 10**9 + 90_500_000_000
        assert time.monotonic() == monotonic_before() == 90.5
        assert time.monotonic_ns() == 90_500_000_000
        assert time.gmtime()[:6] == (2001, 9, 9, 1, 48, 10)
        assert time.strftime("%Y") == "2001"
        assert "2001" in time.asctime()
        assert datetime.datetime.now(datetime.UTC).isoformat() == "2001-09-09T01:48:10.500000+00:00"
        assert datetime.datetime.utcnow() == datetime.datetime(2001, 9, 9, 1, 48, 10, 500_000)
        assert datetime.date.today().year == 2001


def test_a_time_that_is_given_may_be_converted() -> None:
    with guarded():
        assert time.gmtime(0)[:3] == (1970, 1, 1)
        assert time.localtime(0)[0] in (1969, 1970)
        assert time.strftime("%Y", (1999, *[1] * 8)) == "1999"
        assert "1999" in time.asctime((1999, *[1] * 8))


def test_simulated_chance_differs_between_seeds_and_calls() -> None:
    def drawn(seed: int) -> list[Any]:
        with guarded(random=Random(seed), deterministic=False):
            calls = (random.random, uuid.uuid4, uuid.uuid1, secrets.token_hex, Random().random)
            return [call() for call in calls for _ in range(2)]

    first, second = drawn(1), drawn(2)
    assert len(set(first + second)) == 20
    assert first[2].version == 4
    assert first[4].version == 1
    assert len(first[6]) == 64


def test_generators_with_a_seed_are_welcome() -> None:
    expected = [Random(5).random(), Random("text").getrandbits(64)]
    with guarded():
        assert [Random(5).random(), Random("text").getrandbits(64)] == expected
        generator = Random(5)
        generator.seed(6)
        assert generator.random() == Random(6).random()
        copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    assert {each.random() for each in [generator, *copies]} == {generator_after(6, 1)}


def generator_after(seed: int, draws: int) -> float:
    generator = Random(seed)
    return [generator.random() for _ in range(draws + 1)][-1]


def test_log_records_carry_simulated_time_and_are_not_refused() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(created)s %(asctime)s %(message)s"))
    logger = logging.getLogger("tests.guard")
    logger.addHandler(handler)
    try:
        with guarded(lambda: 2.0) as guard:
            logger.warning("applied")
    finally:
        logger.removeHandler(handler)
    assert written.getvalue().startswith(f"{EPOCH_S + 2}.0 2001-")
    assert guard.refused == []


def test_dates_stay_plain_dates() -> None:
    with guarded(lambda: 1.0, deterministic=False, modules=[HERE]):
        moments = [
            datetime.datetime.now(),
            datetime.datetime(2020, 1, 2),
            datetime.datetime.fromisoformat("2020-01-02"),
            datetime.datetime.strptime("2020", "%Y"),
        ]
        assert all(isinstance(moment, datetime.datetime) for moment in moments)
        assert all(isinstance(moment, datetime.date) for moment in moments)
        assert type(moments[0]) == datetime.datetime  # noqa: E721
        assert {datetime.datetime: 1}[type(moments[0])] == 1
        assert issubclass(datetime.datetime, datetime.date)
        assert not isinstance(datetime.date(2020, 1, 2), datetime.datetime)
        assert pickle.loads(pickle.dumps(moments)) == copy.deepcopy(moments) == moments
    assert {type(moment) for moment in moments} == {datetime.datetime}


def test_names_in_a_module_are_guarded_only_if_it_is_named() -> None:
    module = types.ModuleType("service")
    exec("from time import time as clock\nfrom datetime import datetime", vars(module))
    before = dict(vars(module))
    with guarded():
        assert module.clock() > EPOCH_S
        with guarded(modules=[module]):
            with pytest.raises(NotSimulated):
                module.clock()
            with pytest.raises(NotSimulated):
                module.datetime.now()
        assert vars(module) == before
        assert module.datetime.now().year > 2020


def test_references_taken_before_show_real_time() -> None:
    with guarded():
        assert monotonic_before() > 0
    assert monotonic_before is time.monotonic


def test_everything_is_undone_after_an_error() -> None:
    before = everything()
    with pytest.raises(KeyError), guarded(modules=[HERE]):
        raise KeyError
    assert everything() == before
    assert here.guard is None
    assert "connect" not in vars(socket.socket)
    time.sleep(0)
    assert time.time() > EPOCH_S
    assert uuid.uuid4() != uuid.uuid4()
    assert builtins.input is input


def test_guards_nest() -> None:
    with guarded(lambda: 7.0, Random(1)) as outer:
        with guarded(deterministic=False) as inner:
            assert time.monotonic() == 7
            assert inner.random is outer.random
            with guarded(lambda: 9.0), pytest.raises(NotSimulated, match=r"time\.monotonic"):
                time.monotonic()
            assert time.monotonic() == 7
        with pytest.raises(NotSimulated, match=r"random\.random"):
            random.random()
        assert len(outer.refused) == 2, "whoever began the run learns of all of them"
    time.sleep(0)


def test_a_swallowed_refusal_is_remembered_once() -> None:
    with guarded() as guard:
        for _ in range(3):
            with suppress(Exception):
                time.sleep(1)
    assert len(guard.refused) == 1


def test_a_loop_tells_the_guard_what_it_refused() -> None:
    loop = SimulatedLoop(Random(1))
    with guarded() as guard, pytest.raises(NotSimulated):
        loop.add_reader(0, print)
    assert guard.refused[0].startswith("add_reader is not simulated")
    loop.close()


def test_other_threads_go_on_as_usual() -> None:
    guarded_now, done = threading.Event(), threading.Event()
    seen: list[Any] = []

    def other() -> None:
        guarded_now.wait()
        try:
            time.sleep(0)
            seen.append(time.time() > EPOCH_S)
            seen.append(datetime.datetime.now().year > 2020)
            seen.append(Random().random() != Random().random())
            thread = threading.Thread(target=seen.append, args=(True,))
            thread.start()
            thread.join()
        finally:
            done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with guarded(modules=[HERE]):
        guarded_now.set()
        done.wait()
    thread.join()
    assert seen == [True] * 4


def test_two_threads_have_guards_of_their_own() -> None:
    before = everything()
    barrier = threading.Barrier(2)
    seen: dict[int, list[float]] = {}

    def work(number: int) -> None:
        barrier.wait()
        with guarded(lambda: float(number), deterministic=False):
            seen[number] = [time.monotonic() for _ in range(100)]
            barrier.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {0: [0.0] * 100, 1: [1.0] * 100}
    assert everything() == before


def test_a_guard_inside_another_one_costs_little() -> None:
    with guarded():
        began = processor_time()
        for _ in range(1000):
            with guarded():
                pass
        assert processor_time() - began < 0.2


def test_user_code_runs_under_guard_in_simulated_time() -> None:
    async def service(commands: list[float]) -> list[float]:
        async with asyncio.timeout(100):
            for seconds in commands:
                await asyncio.sleep(seconds)
        return [asyncio.get_running_loop().time(), time.monotonic()]

    loop = SimulatedLoop(Random(1))
    with guarded(loop.time, Random(2), deterministic=False):
        assert loop.run_until_complete(service([1, 2, 3])) == [6, 6]
    loop.close()


def test_a_guard_says_what_is_in_force() -> None:
    with guarded(lambda: 1.5) as guard:
        assert isinstance(guard, Guard)
        assert (guard.now(), guard.now_ns(), guard.clock_s()) == (1.5, 1_500_000_000, EPOCH_S + 1.5)
