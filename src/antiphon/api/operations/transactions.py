"""Acknowledging, recovering, and transactions: the fate of all messages that a context has
delivered.

A commit is one entry of the log: the received messages are acknowledged and the sent ones become
visible at one place in the order, or none of it happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from antiphon.api import arguments
from antiphon.api.operations.scripts import Pause, Script
from antiphon.api.protocol.transaction import Transaction
from antiphon.errors import IllegalStateError, JMSError

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore


def acknowledging(context: ContextCore) -> Script[None]:
    """Acknowledge all that this context has delivered, unless it does so by itself."""
    context.check()
    if context.automatic or context.transaction is not None:
        return
    with context.lock:
        rows = []
        for consumer in (*context.consumers, *context.parted):
            consumer.inbox.acknowledge_all()
            rows += consumer.inbox.take_rows()
        context.parted.clear()
        ack = context.connection.do(lambda c: c.acknowledge(rows)) if rows else None
    if ack is not None:
        yield Pause(ack)
        ack.outcome()


def recovering(context: ContextCore) -> Script[None]:
    """Deliver all messages again that were delivered and are not acknowledged."""
    context.check()
    if context.transaction is not None:
        raise IllegalStateError("a transacted context is rolled back, not recovered")
    yield from _starting_over(context, waits=False)


def committing(context: ContextCore, token: str | None, staged: Iterable[str]) -> Script[bool]:
    """Commit. Return False if this token was committed before: then the sent messages are
    dropped."""
    token = arguments.optional_text("a token", token)
    handles = arguments.texts("staged", staged)
    transaction = _take_transaction(context)
    with context.lock:
        consumers = (*context.consumers, *context.parted)
        before = [(consumer, consumer.inbox.remember()) for consumer in consumers]
        rows = [row for consumer in consumers for row in consumer.all_done()]
    if not (rows or transaction or handles or token):
        return True
    request = context.connection.do(lambda c: c.commit(transaction, rows, token, handles))
    yield Pause(request)
    try:
        fresh = bool(request.outcome())
    except JMSError:
        with context.lock:
            for consumer, remembered in before:
                consumer.inbox.restore(remembered)
        if not context.unusable:
            yield from _starting_over(context, waits=True)
        raise
    if fresh:
        transaction.committed.settle()
        transaction.committed.tell()
    return fresh


def rolling_back(context: ContextCore) -> Script[None]:
    """Drop the messages sent since the last commit, and deliver the received ones again."""
    transaction = _take_transaction(context)
    if transaction:
        context.connection.do(lambda c: None if c.over else c.discard(transaction))
    yield from _starting_over(context, waits=True)


def staging(context: ContextCore) -> Script[str]:
    """Wait until the servers keep the sent messages; return the handle."""
    transaction = _take_transaction(context)
    request = context.connection.do(lambda c: c.stage(transaction))
    yield Pause(request)
    request.outcome()
    return request.data.decode()


def _take_transaction(context: ContextCore) -> Transaction:
    """Return the messages sent since the last commit, and begin the next transaction."""
    context.check()
    with context.connection.lock:
        transaction = context.transaction
        if transaction is None:
            raise IllegalStateError(
                "this context is not transacted: connect(session_mode=SESSION_TRANSACTED), or "
                "create_session(True) of a classic connection"
            )
        context.transaction = Transaction()
    return transaction


def _starting_over(context: ContextCore, waits: bool) -> Script[None]:
    """Redeliver. `waits`: the messages of this context could not be handled, and come after a
    wait."""
    with context.lock:
        for consumer in context.consumers:
            consumer.recover(waits)
        request = context.give_back(context.parted)
    for consumer in list(context.consumers):
        consumer.stir()
    if request is not None:
        yield Pause(request)
        request.outcome()
