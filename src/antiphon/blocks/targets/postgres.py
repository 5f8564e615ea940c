"""PostgreSQL as a pessimistic target: a caller prepares requests; any caller commits or aborts
them.

Promises:

- After `prepare` returned, the database keeps the request, with its locks, until a caller ends it,
  even if its caller or the database crashes meanwhile.
- After `commit` returned the request has taken effect, once. After `abort` returned it never will,
  even if it comes later, or another caller prepares it at this moment.
- Any caller may repeat `commit` and `abort`, any number of times, even at the same time. Of a
  commit and an abort one wins, and the other raises an error that tells so.

How: a request adds its row to the table `antiphon_requests` inside the transaction that it
prepares. The row is invisible before the commit, but a transaction that adds a row of the same id
has to wait for the end of this one. To abort is to add such a row, a tombstone, when no request is
prepared any more. So the table's key decides between a request and its abort. Rows stay; an
operator may delete those that are older than any request that can still be on its way.

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
"""The prefix of the names of our prepared transactions, which share a list with those of other
programs."""

COMMITTED, ABORTED = "committed", "aborted"

TOMBSTONE_WAIT_S = 0.1
"""Seconds that an abort waits for a preparing caller before it looks whether the request is
prepared now."""

BUSY_WAIT_S = 0.01

# A server whose machine has vanished does not answer. (The user's own settings take precedence.)
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
    row_count: int  # how many rows it read or changed


class StatementError(JMSError):
    """The database refuses a statement, and has undone the whole call. `__cause__` is the driver's
    own error."""

    happened = "no"


class PostgresTarget:
    """Requests to a PostgreSQL database: a caller prepares one, and any caller commits or aborts
    it.

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
        abort wait `patience` for other callers that are busy with the same request."""
        self._conninfo = make_conninfo("", **CONNECTING | conninfo_to_dict(conninfo))
        self._settings = (_milliseconds(lock_timeout), _milliseconds(idle_timeout))
        self._patience = patience

    def set_up(self) -> None:
        """Create the table if it does not exist. Raise `ResourceAllocationError` if the server
        allows no prepared transactions."""
        with self._connection() as connection, _translated(connection):
            if connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
                raise ResourceAllocationError(
                    "max_prepared_transactions is 0: set it in postgresql.conf, and restart "
                    "PostgreSQL"
                )
            # Another process may create it at the same moment.
            with suppress(errors.DuplicateTable, errors.UniqueViolation):
                connection.execute(_TABLE)

    def prepare(self, request_id: str, statements: Sequence[Statement]) -> list[Result]:
        """Run the statements, none of which may end the transaction, and prepare their effect.

        Raise `RefusedError` if the request was aborted before, `StatementError` if a statement
        fails, and `IllegalStateError` if the request has been here already. After an error whose
        `happened` is `"unknown"` the request may be prepared: abort it."""
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
        """Commit a request. Raise `TransactionRolledBackError` if it is aborted, and
        `UnknownRequestError` if the database does not know it."""
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
        """Abort a request. Raise `AlreadyCommittedError` if it is committed, and
        `OutcomeUnknownError` if another caller was preparing it all the time: then repeat the
        abort."""
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
        """Return the ids of requests that are prepared and not ended, the oldest first."""
        with self._connection() as connection, _translated(connection):
            return [request_id for (request_id,) in connection.execute(_PENDING, (PREFIX, PREFIX))]

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Open a connection for a `with` block, which rolls back and closes it at its end."""
        try:
            opened = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise ConnectionLostError(f"no connection: {error}", happened="no") from error
        with opened as connection:
            with _translated(connection, "no"):
                connection.execute(_SETTINGS, self._settings)
            yield connection


def _enter(connection: Connection, request_id: str) -> None:
    """Add the row of a request: from here on callers that abort or prepare it wait for this
    transaction."""
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
    """Commit or roll back a prepared request; return False if it is not prepared."""
    while True:
        try:
            connection.execute(ending)
            return True
        except errors.UndefinedObject:
            return False
        except errors.ObjectNotInPrerequisiteState as error:  # another caller ends it now
            if time.monotonic() > deadline:
                raise OutcomeUnknownError(f"somebody else is still ending it: {error}") from error
            time.sleep(BUSY_WAIT_S)


def _add_tombstone(connection: Connection, request_id: str) -> bool:
    """Add a tombstone; return False if a transaction that has not ended has the row."""
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
    """Return a command with the id inside, for such commands take no parameters."""
    return sql.SQL(words + " {}").format(sql.Literal(PREFIX + check_id(request_id)))


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))  # 0 would mean forever


@contextmanager
def _translated(connection: Connection, if_lost: Happened = "unknown") -> Iterator[None]:
    """Turn the driver's errors into ours in a `with` block; `if_lost`: `happened` of a lost
    connection."""
    try:
        yield
    except psycopg.Error as error:
        if connection.closed:
            raise ConnectionLostError(f"connection lost: {error}", happened=if_lost) from error
        raise StatementError(str(error)) from error
