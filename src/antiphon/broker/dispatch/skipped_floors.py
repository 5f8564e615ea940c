"""Floors of consumers that are not sent all there is.

What a selector does not want, and what expired before it was sent, no client acknowledges: it would
stay in the journal until the client has something else to acknowledge. So its home says it, in a
row of its own (`ack_batches.py`): everything up to here is done. That stays true whatever happens
to the session, for a subscription keeps its selector and no message becomes young again; so such a
row may come late, or after the session has gone to another server. Of a member that has just taken
over the state of others nothing is said: only the member itself can say that it has the state.
"""

from __future__ import annotations

from antiphon.broker.dispatch.topic_cursors import TopicReader
from antiphon.formats import protocol as cw

PASS_POSITIONS, PASS_MS = 10_000, 10_000
"""A floor is moved after so many positions, or after so long. Each time costs a row in an entry of
the log; and so many are looked at again for who resumes at another server."""


class Passing:
    def __init__(self) -> None:
        self._readers: dict[TopicReader, None] = {}

    def add(self, reader: TopicReader) -> None:
        """It may have been sent less than there was."""
        self._readers[reader] = None

    def remove(self, reader: TopicReader) -> None:
        self._readers.pop(reader, None)

    def rows(self, dispatched: int, now_ms: int) -> list[tuple[int, cw.AckRow]]:
        """What is worth being said, with the session. `dispatched`: up to there those who are
        caught up have been served."""
        found = []
        for reader in list(self._readers):
            floor = max(reader.subscription.floor, reader.moved_to)
            if reader.passed_to <= floor:
                reader.moved_ms = now_ms
                if reader.selector is None:
                    del self._readers[reader]
                continue
            upto = reader.done_to(dispatched)
            enough = PASS_POSITIONS if now_ms - reader.moved_ms < PASS_MS else 1
            if upto - floor >= enough:
                reader.moved_to, reader.moved_ms = upto, now_ms
                row = cw.AckRow(reader.consumer.number, 0, upto)
                found.append((reader.consumer.session, row))
        return found
