"""Floors of consumers that are not sent all there is.

Messages that a selector does not want, or that expired before they were sent, are acknowledged by
no client: they would stay in the journal until the client has something else to acknowledge. So the
home adds a row of its own (`broker/home/ack_batches.py`): everything up to here is done. That stays
true whatever happens to the session, for a subscription keeps its selector and no message becomes
young again; so such a row may come late, or after the session has gone to another server. There is
no such row for a member that has just taken over the state of others: only the member itself can
acknowledge that it has the state.
"""

from __future__ import annotations

from antiphon.broker.dispatch.topic_cursors import TopicCursor
from antiphon.formats import protocol as cw

PASS_POSITIONS, PASS_MS = 10_000, 10_000
"""A floor is moved after this many positions, or after this time. Each time costs a row in an entry
of the log; and as many are looked at again for a client that resumes at another server."""


class SkippedFloors:
    """The cursors that may have been sent less than there was."""

    def __init__(self) -> None:
        self._cursors: dict[TopicCursor, None] = {}

    def add(self, cursor: TopicCursor) -> None:
        """It may have been sent less than there was."""
        self._cursors[cursor] = None

    def remove(self, cursor: TopicCursor) -> None:
        """Forget this cursor: it is closed."""
        self._cursors.pop(cursor, None)

    def rows(self, dispatched: int, now_ms: int) -> list[tuple[int, cw.AckRow]]:
        """Return the rows that are worth an entry, each with its session. `dispatched`: up to there
        those who are caught up have been served."""
        found = []
        for cursor in list(self._cursors):
            floor = max(cursor.subscription.floor, cursor.moved_to)
            if cursor.passed_to <= floor:
                cursor.moved_ms = now_ms
                if cursor.selector is None:
                    del self._cursors[cursor]
                continue
            upto = cursor.done_to(dispatched)
            enough = PASS_POSITIONS if now_ms - cursor.moved_ms < PASS_MS else 1
            if upto - floor >= enough:
                cursor.moved_to, cursor.moved_ms = upto, now_ms
                row = cw.AckRow(cursor.consumer.number, 0, upto)
                found.append((cursor.consumer.session, row))
        return found
