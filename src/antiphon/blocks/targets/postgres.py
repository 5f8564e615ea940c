"""PostgreSQL as a pessimistic target: requests are prepared, then committed or aborted by anybody.

Promises:

- What `prepare` returned from is kept, with its locks, until somebody ends it, whatever dies
  meanwhile: the caller, or the database, which has it again after its restart.
- After `commit` returned the request has taken effect, once. After `abort` returned it never will,
  not even if it comes later, or is being prepared at this moment.
- `commit` and `abort` may be repeated by anybody, any number of times, at the same time too. Of a
  commit and an abort one wins, and the other raises an error that says so.

How: a request adds its row to the table `antiphon_requests` inside the transaction that it
prepares. Nobody sees the row before the commit, but who adds a row of the same id has to wait for
the end of the transaction. To abort is to add such a row, a tombstone, when nothing is prepared any
more. So the table's key decides between a request and its abort, whoever comes first. Rows stay; an
operator may delete those that are older than anything that can still be on its way.

The server needs `max_prepared_transactions` above 0, which `set_up` checks. Every call has a
connection of its own: threads may share a target, and nothing of a call that failed is left. The
driver is Psycopg 3, which has a class for every error code and its own libpq in the wheel.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

from antiphon.blocks.errors import RefusedError
from antiphon.blocks.targets.base import AlreadyCommittedError, UnknownRequestError, check_id
from antiphon.errors import (
    ConnectionLostError,
    Happened,
    IllegalStateError,
    JMSError,
    OutcomeUnknownError,
    ResourceAllocationError,
    TransactionRolledBackError,
)

try:
    import psycopg
    from psycopg import errors, sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as missing:
    raise ImportError(
        "PostgreSQL as a target needs its driver: pip install 'antiphon[postgres]'"
    ) from missing

PREFIX = "antiphon:"
"""The names of our prepared transactions begin so: they share a list with everybody else's."""

COMMITTED, ABORTED = "committed", "aborted"

TOMBSTONE_WAIT_S = 0.1
"""How long an abort waits for a preparing caller before it looks whether it is prepared now."""

BUSY_WAIT_S = 0.01

# A server whose machine has vanished says nothing. (What the user asks for goes before this.)
CONNECTING = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

_TABLE = """
CREATE TABLE IF NOT EXISTS antiphon_requests (
    id text PRIMARY KEY,
    outcome text NOT NULL CHECK (outcome IN ('committed', 'aborted')),
    noted timestamptz NOT NULL DEFAULT now()
)
"""
_ADD = "INSERT INTO antiphon_requests (id, outcome) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_OUTCOME = "SELECT outcome FROM antiphon_requests WHERE id = %s"
_PENDING = """
SELECT substr(gid, length(%s) + 1) FROM pg_prepared_xacts
WHERE database = current_database() AND starts_with(gid, %s) ORDER BY prepared, gid
"""
# A tombstone that was acknowledged must not be lost; prepared transactions are synced always.
_SETTINGS = """
SELECT
    set_config('lock_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'),
               false)
"""

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

Statement = tuple[str, Sequence[object]]
"""SQL with `%s` in the place of each parameter, and the parameters."""


class Result(NamedTuple):
    """The rows that a statement returned, and how many it changed."""

    rows: list[tuple[Any, ...]]
    row_count: int  # how many it read or changed


class StatementError(JMSError):
    """The database refuses a statement; nothing of the call is left. `__cause__` is the driver's
    own error."""

    happened = "no"


class PostgresTarget:
    """Requests to a PostgreSQL database, prepared first, then committed or aborted by anybody.

    The promises are those of the module. Need: `max_prepared_transactions` above 0, and `set_up`
    before the first request. Threads may share one; each call has a connection of its own.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        lock_timeout: float = 5.0,
        idle_timeout: float = 10.0,
        patience: float = 30.0,
    ) -> None:
        """Seconds: a statement fails after waiting `lock_timeout` for a lock; the database gives up
        a request that is not prepared and whose caller is silent for `idle_timeout`; commit and
        abort wait `patience` for others who are busy with the same request."""
        self._conninfo = make_conninfo("", **CONNECTING | conninfo_to_dict(conninfo))
        self._settings = (_milliseconds(lock_timeout), _milliseconds(idle_timeout))
        self._patience = patience

    def set_up(self) -> None:
        """Creates the table if it is not there."""
        with self._connection() as connection, _translated(connection):
            if connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
                raise ResourceAllocationError(
                    "max_prepared_transactions is 0: set it in postgresql.conf, and restart "
                    "PostgreSQL"
                )
            # Somebody else may create it at the same moment.
            with suppress(errors.DuplicateTable, errors.UniqueViolation):
                connection.execute(_TABLE)

    def prepare(self, request_id: str, statements: Sequence[Statement]) -> list[Result]:
        """Runs the statements, none of which may end the transaction, and prepares what they did.
        Raise `RefusedError` if the request was aborted before, `StatementError` if a statement
                fails, `IllegalStateError` if the request has been here already. After an error with
                `happened` `"unknown"` the request may be prepared: abort it."""
        preparing = _command("PREPARE TRANSACTION", request_id)
        with self._connection() as connection:
            with _translated(connection, "no"):
                connection.execute("BEGIN")
                _enter(connection, request_id)
                results = [_run(connection, *statement) for statement in statements]
            with _translated(connection):
                connection.execute(preparing)
        return results

    def commit(self, request_id: str) -> None:
        """Raise `TransactionRolledBackError` if it is aborted, `UnknownRequestError` if nothing is
        known of it."""
        deadline = time.monotonic() + self._patience
        committing = _command("COMMIT PREPARED", request_id)
        with self._connection() as connection, _translated(connection):
            if _end(connection, committing, deadline):
                return
            outcome = _outcome(connection, request_id)
        if outcome == ABORTED:
            raise TransactionRolledBackError(f"request {request_id!r} was aborted")
        if outcome is None:
            raise UnknownRequestError(f"request {request_id!r} is not prepared")

    def abort(self, request_id: str) -> None:
        """Raise `AlreadyCommittedError` if it is too late, and `OutcomeUnknownError` if somebody is
        preparing the request all the time; then it is to be repeated."""
        deadline = time.monotonic() + self._patience
        rolling_back = _command("ROLLBACK PREPARED", request_id)
        with self._connection() as connection, _translated(connection):
            _set_lock_timeout(connection, TOMBSTONE_WAIT_S)
            _end(connection, rolling_back, deadline)
            while not _add_tombstone(connection, request_id):
                if time.monotonic() > deadline:
                    raise OutcomeUnknownError(f"somebody is still preparing {request_id!r}")
                _end(connection, rolling_back, deadline)
            outcome = _outcome(connection, request_id)
        if outcome == COMMITTED:
            raise AlreadyCommittedError(f"request {request_id!r} is committed")

    def pending(self) -> list[str]:
        """The ids of what is prepared and not ended, the oldest first."""
        with self._connection() as connection, _translated(connection):
            return [request_id for (request_id,) in connection.execute(_PENDING, (PREFIX, PREFIX))]

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """One that rolls back and is closed at the end."""
        try:
            opened = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise ConnectionLostError(f"no connection: {error}", happened="no") from error
        with opened as connection:
            with _translated(connection, "no"):
                connection.execute(_SETTINGS, self._settings)
            yield connection


def _enter(connection: Connection, request_id: str) -> None:
    """From here on who aborts or prepares the same request waits for this transaction."""
    try:
        if connection.execute(_ADD, (request_id, COMMITTED)).rowcount:
            return
    except errors.LockNotAvailable as error:
        raise IllegalStateError(
            f"request {request_id!r} is prepared already, or being prepared", happened="unknown"
        ) from error
    if _outcome(connection, request_id) == ABORTED:
        raise RefusedError(f"request {request_id!r} was aborted before it came")
    raise IllegalStateError(f"request {request_id!r} is committed already", happened="unknown")


def _run(connection: Connection, statement: str, parameters: Sequence[object]) -> Result:
    cursor = connection.execute(statement, parameters)
    return Result(cursor.fetchall() if cursor.description else [], cursor.rowcount)


def _end(connection: Connection, ending: sql.Composed, deadline: float) -> bool:
    """Commits or rolls back what is prepared; False: nothing is."""
    while True:
        try:
            connection.execute(ending)
            return True
        except errors.UndefinedObject:
            return False
        except errors.ObjectNotInPrerequisiteState as error:  # somebody ends it at this moment
            if time.monotonic() > deadline:
                raise OutcomeUnknownError(f"somebody else is still ending it: {error}") from error
            time.sleep(BUSY_WAIT_S)


def _add_tombstone(connection: Connection, request_id: str) -> bool:
    """False: somebody has the row in a transaction that has not ended."""
    try:
        connection.execute(_ADD, (request_id, ABORTED))
    except errors.LockNotAvailable:
        return False
    return True


def _outcome(connection: Connection, request_id: str) -> str | None:
    row = connection.execute(_OUTCOME, (request_id,)).fetchone()
    return None if row is None else str(row[0])


def _set_lock_timeout(connection: Connection, seconds: float) -> None:
    connection.execute("SELECT set_config('lock_timeout', %s, false)", (_milliseconds(seconds),))


def _command(words: str, request_id: str) -> sql.Composed:
    """These commands take no parameters."""
    return sql.SQL(words + " {}").format(sql.Literal(PREFIX + check_id(request_id)))


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))  # 0 would mean: forever


@contextmanager
def _translated(connection: Connection, if_lost: Happened = "unknown") -> Iterator[None]:
    """The driver's errors become ours; `if_lost` is what is known if the connection is lost."""
    try:
        yield
    except psycopg.Error as error:
        if connection.closed:
            raise ConnectionLostError(f"connection lost: {error}", happened=if_lost) from error
        raise StatementError(str(error)) from error
