"""PostgreSQL as a target: whatever dies, and however calls meet, a request takes effect once or
never, and nothing stays locked."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from antiphon.blocks.errors import RefusedError
from antiphon.blocks.targets.base import AlreadyCommittedError, UnknownRequestError
from antiphon.blocks.targets.postgres import PostgresTarget, Result, StatementError
from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    JMSError,
    OutcomeUnknownError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from tests.blocks.support.trip import example
from tests.paste_readme import until

pytestmark = pytest.mark.process

PREPARING = Path(__file__).parents[1] / "support" / "preparing.py"
TAKE = "UPDATE flights SET seats = seats - 1 WHERE number = %s RETURNING seats"
SEATS = 10
WAIT_S = 20.0


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    with example("database").Database() as database:
        PostgresTarget(database.conninfo).set_up()
        yield database


@pytest.fixture
def conninfo(database: Any) -> str:
    return str(database.conninfo)


class Flight:
    """A row of a test's own."""

    def __init__(self, conninfo: str, number: str) -> None:
        self.number = number
        self._conninfo = conninfo
        example("database").open_flights(conninfo, {number: SEATS})

    @property
    def taken(self) -> int:
        with psycopg.connect(self._conninfo) as connection:
            row = connection.execute("SELECT seats FROM flights WHERE number = %s", (self.number,))
            return SEATS - row.fetchone()[0]

    @property
    def statement(self) -> tuple[str, tuple[str]]:
        return TAKE, (self.number,)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with psycopg.connect(self._conninfo) as connection:
            connection.execute(
                "SELECT 1 FROM flights WHERE number = %s FOR UPDATE NOWAIT", (self.number,)
            )
            yield

    def is_free(self) -> bool:
        """Nobody has a lock on it."""
        with self.locked():
            return True


@pytest.fixture
def flight(conninfo: str, request: pytest.FixtureRequest) -> Flight:
    return Flight(conninfo, request.node.name)


@pytest.fixture
def name(flight: Flight) -> str:
    """An id of a request."""
    return f"{flight.number} 'one' %s"


@pytest.fixture
def target(conninfo: str) -> PostgresTarget:
    return PostgresTarget(conninfo, lock_timeout=WAIT_S, idle_timeout=WAIT_S)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waiting(conninfo: str, words: str) -> Callable[[], bool]:
    """Whether somebody waits for a lock in a statement that begins like this."""

    def look() -> bool:
        with psycopg.connect(conninfo) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND starts_with(query, %s)",
                (words,),
            )
            return found.fetchone() is not None

    return look


@contextmanager
def preparing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, PREPARING, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def prepare_and_die(conninfo: str, name: str, flight: Flight) -> None:
    with preparing(conninfo, name, flight.number) as process:
        assert said(process) == "prepared"
    assert process.returncode == -signal.SIGKILL


def outcome_of(call: Callable[[], object]) -> str:
    """The name of the error; empty: there was none."""
    try:
        call()
    except JMSError as error:
        return type(error).__name__
    return ""


def at_once(pool: ThreadPoolExecutor, *calls: Callable[[], object]) -> list[str]:
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> str:
        start.wait(WAIT_S)
        return outcome_of(call)

    return list(pool.map(run, calls))


def test_a_request_takes_effect_when_it_is_committed(
    target: PostgresTarget, flight: Flight, name: str
) -> None:
    insert = ("INSERT INTO flights VALUES (%s, 1)", (f"{flight.number} extra",))
    assert target.prepare(name, [flight.statement, insert]) == [
        Result([(SEATS - 1,)], 1),
        Result([], 1),
    ]
    assert target.pending() == [name]
    assert flight.taken == 0
    with pytest.raises(psycopg.errors.LockNotAvailable):
        flight.is_free()

    target.commit(name)
    target.commit(name)
    assert target.pending() == []
    assert flight.taken == 1
    assert flight.is_free()


def test_another_process_commits_what_a_dead_one_prepared(
    conninfo: str, target: PostgresTarget, flight: Flight, name: str
) -> None:
    prepare_and_die(conninfo, name, flight)
    assert target.pending() == [name]
    target.commit(name)
    assert (flight.taken, target.pending(), flight.is_free()) == (2, [], True)


def test_another_process_aborts_what_a_dead_one_prepared(
    conninfo: str, target: PostgresTarget, flight: Flight, name: str
) -> None:
    prepare_and_die(conninfo, name, flight)
    target.abort(name)
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)
    with pytest.raises(RefusedError, match="was aborted before it came"):
        target.prepare(name, [flight.statement])
    target.abort(name)


def test_a_request_that_was_aborted_before_it_comes_is_refused(
    target: PostgresTarget, flight: Flight, name: str
) -> None:
    target.abort(name)
    with pytest.raises(RefusedError, match="was aborted before it came") as caught:
        target.prepare(name, [flight.statement])
    assert caught.value.happened == "no"
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)
    with pytest.raises(TransactionRolledBackError):
        target.commit(name)
    target.abort(name)


def test_a_commit_is_final(target: PostgresTarget, flight: Flight, name: str) -> None:
    target.prepare(name, [flight.statement])
    target.commit(name)
    with pytest.raises(AlreadyCommittedError, match="is committed"):
        target.abort(name)
    with pytest.raises(IllegalStateError, match="is committed already") as caught:
        target.prepare(name, [flight.statement])
    assert caught.value.happened == "unknown"
    target.commit(name)
    assert (flight.taken, target.pending(), flight.is_free()) == (1, [], True)


def test_what_is_unknown_cannot_be_committed(target: PostgresTarget, name: str) -> None:
    with pytest.raises(UnknownRequestError, match="is not prepared"):
        target.commit(name)


def held(
    flight: Flight, step: int, reached: threading.Event, go_on: threading.Event
) -> Iterator[Any]:
    """Two statements; before this step, of which the last is PREPARE TRANSACTION, it waits."""
    for number in range(3):
        if number == step:
            reached.set()
            assert go_on.wait(WAIT_S)
        if number < 2:
            yield flight.statement


@pytest.mark.parametrize("step", range(3))
def test_an_abort_meets_a_prepare_at_any_step(
    conninfo: str,
    target: PostgresTarget,
    flight: Flight,
    name: str,
    threads: ThreadPoolExecutor,
    step: int,
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    statements: Any = held(flight, step, reached, go_on)
    prepare = threads.submit(target.prepare, name, statements)
    assert reached.wait(WAIT_S)
    aborts = [threads.submit(target.abort, name) for _ in range(2)]
    until(waiting(conninfo, "INSERT INTO antiphon_requests"), "the aborts wait for the prepare")
    assert not any(abort.done() for abort in aborts)

    go_on.set()
    for abort in aborts:
        abort.result(WAIT_S)
    assert len(prepare.result(WAIT_S)) == 2  # it was, for a moment
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)
    with pytest.raises(TransactionRolledBackError):
        target.commit(name)
    with pytest.raises(RefusedError):
        target.prepare(name, [flight.statement])


def test_an_abort_meets_a_prepare_that_waits_for_a_lock(
    conninfo: str, target: PostgresTarget, flight: Flight, name: str, threads: ThreadPoolExecutor
) -> None:
    with flight.locked():
        prepare = threads.submit(target.prepare, name, [flight.statement])
        until(waiting(conninfo, "UPDATE flights"), "the prepare waits for the flight")
        abort = threads.submit(target.abort, name)
        until(waiting(conninfo, "INSERT INTO antiphon_requests"), "the abort waits")
        assert not prepare.done()
        assert not abort.done()
    abort.result(WAIT_S)
    prepare.result(WAIT_S)
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)


def test_an_abort_meets_a_prepare_that_dies_while_it_waits_for_a_lock(
    conninfo: str, target: PostgresTarget, flight: Flight, name: str, threads: ThreadPoolExecutor
) -> None:
    with flight.locked():
        with preparing(conninfo, name, flight.number):
            until(waiting(conninfo, "UPDATE flights"), "the prepare waits for the flight")
        abort = threads.submit(target.abort, name)
        until(waiting(conninfo, "INSERT INTO antiphon_requests"), "the abort waits")
    abort.result(WAIT_S)
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)


def test_a_prepare_that_is_stopped_in_the_middle_does_not_hold_up_an_abort(
    conninfo: str, target: PostgresTarget, flight: Flight, name: str
) -> None:
    with preparing(conninfo, name, flight.number, "stop") as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        target.abort(name)
        assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)
        process.send_signal(signal.SIGCONT)
        assert said(process) == "ConnectionLostError no"
    assert (flight.taken, target.pending()) == (0, [])


def test_an_abort_gives_up_when_its_patience_is_over(
    conninfo: str, flight: Flight, name: str, threads: ThreadPoolExecutor
) -> None:
    target = PostgresTarget(conninfo, patience=0.3)
    reached, go_on = threading.Event(), threading.Event()
    statements: Any = held(flight, 1, reached, go_on)
    prepare = threads.submit(target.prepare, name, statements)
    assert reached.wait(WAIT_S)
    with pytest.raises(OutcomeUnknownError, match="somebody is still preparing"):
        target.abort(name)
    go_on.set()
    prepare.result(WAIT_S)
    target.abort(name)
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)


def test_aborts_at_once_agree(
    target: PostgresTarget, flight: Flight, threads: ThreadPoolExecutor
) -> None:
    for number in range(5):
        name = f"{flight.number} {number}"
        target.prepare(name, [flight.statement])
        assert at_once(threads, *[partial(target.abort, name)] * 4) == [""] * 4
        assert flight.is_free()
    assert (flight.taken, target.pending()) == (0, [])


def test_commits_at_once_agree(
    target: PostgresTarget, flight: Flight, threads: ThreadPoolExecutor
) -> None:
    for number in range(5):
        name = f"{flight.number} {number}"
        target.prepare(name, [flight.statement])
        assert at_once(threads, *[partial(target.commit, name)] * 4) == [""] * 4
    assert (flight.taken, target.pending(), flight.is_free()) == (5, [], True)


def test_of_a_commit_and_an_abort_at_once_one_wins(
    target: PostgresTarget, flight: Flight, threads: ThreadPoolExecutor
) -> None:
    committed = 0
    for number in range(10):
        name = f"{flight.number} {number}"
        target.prepare(name, [flight.statement])
        commit, abort = at_once(threads, partial(target.commit, name), partial(target.abort, name))
        if commit == "":
            committed += 1
            assert abort == "AlreadyCommittedError"
        else:
            assert commit in ("TransactionRolledBackError", "UnknownRequestError")
            assert abort == ""
    assert (flight.taken, target.pending(), flight.is_free()) == (committed, [], True)


def test_calls_in_any_order_at_once_leave_one_outcome(
    target: PostgresTarget, flight: Flight, threads: ThreadPoolExecutor
) -> None:
    for number in range(5):
        name = f"{flight.number} {number}"
        before = flight.taken
        prepare, again, commit, abort, other = at_once(
            threads,
            *[partial(target.prepare, name, [flight.statement])] * 2,
            partial(target.commit, name),
            *[partial(target.abort, name)] * 2,
        )
        took_effect = flight.taken - before
        assert took_effect == (commit == "")
        assert abort == other == ("AlreadyCommittedError" if took_effect else "")
        assert {prepare, again} <= {"", "RefusedError", "IllegalStateError"}
        assert (target.pending(), flight.is_free()) == ([], True)


def test_a_second_prepare_of_the_same_request_fails_and_leaves_the_first(
    conninfo: str, flight: Flight, name: str
) -> None:
    target = PostgresTarget(conninfo, lock_timeout=0.2)
    target.prepare(name, [flight.statement])
    with pytest.raises(IllegalStateError, match="is prepared already") as caught:
        target.prepare(name, [flight.statement])
    assert caught.value.happened == "unknown"
    assert target.pending() == [name]
    target.commit(name)
    assert flight.taken == 1


def test_of_a_statement_that_fails_nothing_is_left(
    target: PostgresTarget, flight: Flight, name: str
) -> None:
    too_many = ("UPDATE flights SET seats = seats - 100 WHERE number = %s", (flight.number,))
    with pytest.raises(StatementError, match="flights_seats_check") as caught:
        target.prepare(name, [flight.statement, too_many])
    assert isinstance(caught.value.__cause__, psycopg.errors.CheckViolation)
    assert caught.value.happened == "no"
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)
    target.prepare(name, [flight.statement])
    target.abort(name)


def test_a_statement_does_not_wait_for_ever(conninfo: str, flight: Flight, name: str) -> None:
    target = PostgresTarget(conninfo, lock_timeout=0.2)
    with flight.locked(), pytest.raises(StatementError, match="lock timeout"):
        target.prepare(name, [flight.statement])
    assert target.pending() == []


def test_a_prepare_whose_connection_is_lost_before_the_end_has_not_happened(
    target: PostgresTarget, flight: Flight, name: str
) -> None:
    end = ("SELECT pg_terminate_backend(pg_backend_pid())", ())
    with pytest.raises(ConnectionLostError) as caught:
        target.prepare(name, [flight.statement, end])
    assert caught.value.happened == "no"
    target.abort(name)
    assert (flight.taken, target.pending(), flight.is_free()) == (0, [], True)


def test_a_crash_of_the_database_loses_neither_what_is_prepared_nor_a_tombstone(
    database: Any, target: PostgresTarget, flight: Flight, name: str
) -> None:
    target.prepare(name, [flight.statement])
    target.abort(f"{name} other")
    database.stop("immediate")
    with pytest.raises(ConnectionLostError, match="no connection") as caught:
        target.commit(name)
    assert caught.value.happened == "no"
    database.start()
    assert target.pending() == [name]
    target.commit(name)
    assert (flight.taken, flight.is_free()) == (1, True)
    with pytest.raises(RefusedError):
        target.prepare(f"{name} other", [flight.statement])


def test_tombstones_are_synced_whatever_the_database_is_set_to(conninfo: str, name: str) -> None:
    target = PostgresTarget(f"{conninfo} options='-c synchronous_commit=off'")
    ((rows, _),) = target.prepare(name, [("SHOW synchronous_commit", ())])
    assert rows == [("on",)]
    target.abort(name)


def test_what_others_have_prepared_is_not_ours(
    conninfo: str, target: PostgresTarget, name: str
) -> None:
    with psycopg.connect(conninfo, autocommit=True) as stranger:
        stranger.execute("BEGIN")
        stranger.execute("CREATE TABLE strange ()")
        stranger.execute("PREPARE TRANSACTION 'strange'")
        assert target.pending() == []
        target.abort("strange")
        stranger.execute("ROLLBACK PREPARED 'strange'")


def test_several_may_set_up_at_once(conninfo: str, threads: ThreadPoolExecutor) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute("CREATE SCHEMA fresh")
    target = PostgresTarget(f"{conninfo} options='-c search_path=fresh'")
    assert at_once(threads, *[target.set_up] * 4) == [""] * 4
    target.abort("one")


def test_a_database_without_prepared_transactions_is_of_no_use(
    database: Any, conninfo: str, target: PostgresTarget, flight: Flight, name: str
) -> None:
    def restart(setting: str) -> None:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM {setting}")
        database.stop()
        database.start()

    restart("SET max_prepared_transactions = 0")
    try:
        with pytest.raises(ResourceAllocationError, match="max_prepared_transactions is 0"):
            target.set_up()
        with pytest.raises(StatementError, match="prepared transactions are disabled"):
            target.prepare(name, [flight.statement])
        assert flight.is_free()
    finally:
        restart("RESET max_prepared_transactions")


@pytest.mark.parametrize("bad", ["", "two\nlines", "nul\0", "\ud800", "x" * 181, "ü" * 91])
def test_an_id_has_to_be_printable_and_short(bad: str) -> None:
    target = PostgresTarget("host=/nowhere")
    for call in (target.commit, target.abort, lambda bad: target.prepare(bad, [])):
        with pytest.raises(ValueError, match="the id of a request"):
            call(bad)


def test_an_id_may_be_as_long_as_is_said(target: PostgresTarget) -> None:
    name = "ü" * 90
    target.prepare(name, [])
    assert target.pending() == [name]
    target.abort(name)
