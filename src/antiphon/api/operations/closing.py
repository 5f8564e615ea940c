"""Stopping and closing contexts: the order of waiting, and the last requests to the servers.

Closing waits for running listeners and for pending sends, for up to `close_timeout`. It reports
acknowledgements; messages that the application saw and did not acknowledge come again, flagged.
"""

from __future__ import annotations

from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.scripts import Deadline, Pause, Script
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.requests import Request
from antiphon.errors import IllegalStateError, OutcomeUnknownError
from antiphon.formats import protocol as cw


def stopping(context: ContextCore) -> Script[None]:
    """Hold deliveries of the whole connection; wait for the listeners that are running."""
    context.check()
    _check_not_inside_listener(context, "stop")
    context.connection.started = False
    for each in context.family():
        with each.lock:
            for consumer in each.consumers:
                consumer.call_in()
        yield from each.until_rest()


def closing(context: ContextCore) -> Script[None]:
    """Close a context; if it owns the connection, all others too."""
    if context.forked_from:
        raise context.why_not()
    _check_not_inside_listener(context, "close")
    with context.lock:
        if context.closed:
            return
        context.closed = True
    contexts = context.family() if context.owner else [context]
    for each in contexts:
        _shut(each)
    for each in contexts:
        yield from each.until_rest()
    try:
        if context.owner:
            yield from _ending(context, contexts)
        else:
            yield from _going(context)
    finally:
        for each in contexts:
            each.front.end()


def leaving(context: ContextCore, failed: bool) -> Script[None]:
    """End a `with` block by closing; `failed`: it ends with an exception."""
    if not context.unusable:
        for each in context.family() if context.owner else [context]:
            with each.lock:
                for consumer in each.consumers:
                    consumer.leave_loop_of(context.front.caller(), failed)
    yield from closing(context)


def _check_not_inside_listener(context: ContextCore, what: str) -> None:
    if any(each.front.inside_listener() for each in context.family()):
        raise IllegalStateError(
            f"{what}() inside a listener would wait for that listener. Have another thread or "
            "task do it; a consumer may be closed here"
        )


def _shut(context: ContextCore) -> None:
    with context.lock:
        context.closed = context.unusable = True
        for consumer in context.consumers:
            consumer.shut()


def _going(context: ContextCore) -> Script[None]:
    """Close one of several contexts: its messages go back, the connection stays."""
    connection = context.connection
    if context.transaction:
        transaction = context.transaction
        connection.do(lambda c: None if c.over else c.discard(transaction))
    for consumer in list(context.consumers):
        yield from consumer.going(give_back=True)
    with context.lock:
        request = context.give_back(list(context.parted))
    if request is not None:
        yield Pause(request, connection.options.close_timeout)
    connection.users.remove(context)


def _ending(owner: ContextCore, contexts: list[ContextCore]) -> Script[None]:
    """End the session, and let the connection go."""
    connection = owner.connection
    deadline = Deadline(connection.options.close_timeout)
    unanswered = yield from _settling_sends(owner, deadline)
    kept = [k for context in contexts for k in _last_words(context)]
    request = connection.do(lambda c: _close_session(c, kept))
    if request is not None and not (yield Pause(request, deadline.left())):
        connection.do(Conversation.abandon)
    yield Pause(connection.released)
    if unanswered:
        raise OutcomeUnknownError(
            f"closed with {unanswered} messages unanswered for "
            f"{connection.options.close_timeout:g} s; servers may have stored them"
        )


def _settling_sends(owner: ContextCore, deadline: Deadline) -> Script[int]:
    """Wait for the answers to sent messages; return how many have none. Messages that the program
    has not committed are dropped, whether they have arrived or not."""
    with owner.connection.lock:
        sent = owner.connection.conversation.unsettled()
        open_ones = [context.transaction for context in owner.family() if context.transaction]
        dropped = {batch for transaction in open_ones for batch in transaction.batches}
        batches = [batch for batch in sent if batch not in dropped]
    for batch in batches:
        if not (yield Pause(batch, deadline.left())):
            break
    return sum(batch.count for batch in batches if not batch.done)


def _last_words(context: ContextCore) -> list[cw.Kept]:
    """Report acknowledgements; return the other messages that the application saw."""
    with context.lock:
        for consumer in (*context.consumers, *context.parted):
            consumer.report_now()
        _trace_departures(context)
        inboxes = [consumer.inbox for consumer in context.consumers]
        return [kept for inbox in inboxes for kept in (*inbox.close(), *inbox.kept())]


def _trace_departures(context: ContextCore) -> None:
    """Write down that the members leave with the session, or are away until they come back."""
    trace = context.connection.trace
    if trace is None:
        return
    members = [c for c in context.consumers if c.standing.name]
    for consumer in members:
        if not consumer.stays_member:
            trace.add("leave", group=consumer.destination.text)
    if any(consumer.stays_member for consumer in members):
        trace.add("crash")


def _close_session(conversation: Conversation, kept: list[cw.Kept]) -> Request | None:
    if conversation.over:
        return None
    if conversation.idle and not conversation.attached:
        conversation.abandon()  # no server is there, and no call waits: the lease will end it
        return None
    return conversation.request(cw.CloseSession(tuple(kept)))
