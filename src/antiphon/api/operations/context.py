"""Contexts, but for waiting: a session of a program on a connection, the same in both fronts.

A context has one lock, and one worker on which its listeners run, one message at a time. The
context that `connect` returned owns the connection: closing it closes those that were made from it.

The scripts that work on a context are in `opening.py`, `destinations.py`, `transactions.py` and
`closing.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from antiphon.api.connection import Connection, logger
from antiphon.api.group_standing import Standing
from antiphon.api.messages.destinations import Temporary
from antiphon.api.modes import SessionMode
from antiphon.api.operations import destinations
from antiphon.api.operations.acknowledgements import Acknowledgements
from antiphon.api.operations.consumer import ConsumerCore
from antiphon.api.operations.front import Front
from antiphon.api.operations.scripts import Pause, Script, ring
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.protocol.transaction import Transaction
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats import protocol as cw

AUTOMATIC = (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE)


class ContextCore:
    """The state of a context, with the methods that its consumers, producers and connection call.

    `consumers` and `parted` are changed under `lock`.
    """

    def __init__(
        self, connection: Connection, mode: SessionMode, owner: bool, front: type[Front]
    ) -> None:
        self.connection = connection
        self.mode = SessionMode(mode)
        transacted = self.mode is SessionMode.SESSION_TRANSACTED
        # The messages sent since the last commit; None: this context is not transacted.
        self.transaction = Transaction() if transacted else None
        self.automatic = mode in AUTOMATIC
        self.lock = threading.Lock()
        self.closed = False
        self.unusable = False  # closed, or the connection is lost, or this is a forked process
        self.forked_from = False
        self.running: ConsumerCore | None = None  # its listener has a message now
        self.owner = owner
        self.consumers: list[ConsumerCore] = []
        self.parted: list[ConsumerCore] = []  # closed, with messages not acknowledged
        self._rest_bells: set[Ticket] = set()  # of calls that wait for the listener to return
        self.front = front(self)
        connection.users.append(self)

    def another(self, mode: SessionMode) -> ContextCore:
        """Return a new session on the same connection."""
        self.check()
        return ContextCore(self.connection, mode, False, type(self.front))

    def connecting(self) -> Script[None]:
        """Wait until a server has taken the session."""
        ready = self.connection.conversation.ready
        self.connection.wake()
        try:
            yield Pause(ready)
            ready.outcome()
        except BaseException:
            self.closed = self.unusable = True
            self.connection.do(Conversation.abandon)
            raise

    def start(self) -> None:
        """Deliver again after `stopping`."""
        self.check()
        self.connection.started = True
        for context in self.family():
            for consumer in list(context.consumers):
                consumer.stir()

    def asking(self, body: cw.Body) -> Script[int]:
        """Wait for the answer to a request."""
        self.check()
        request = self.connection.do(lambda c: c.request(body))
        yield Pause(request)
        return request.outcome()

    def delete_temporary(self, destination: Temporary) -> Any:
        """Delete a temporary destination, in the way of the front."""
        return self.front.run(destinations.deleting_temporary(self, destination))

    # -- Usable? ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if this context is not usable any more."""
        if self.unusable:
            raise self.why_not()

    def why_not(self) -> JMSError:
        """Return why this context is not usable."""
        if self.forked_from:
            return IllegalStateError(
                "this process was forked from the one that connected. Connect here, after the fork"
            )
        if self.closed:
            return IllegalStateError("the context is closed")
        return self.connection.conversation.problem()

    # -- Called by the connection, on the loop's thread -------------------------------------------

    def ended(self, error: JMSError | None) -> None:
        """Wake all that wait here, for the session has ended."""
        self.unusable = True
        for consumer in list(self.consumers):
            consumer.lost()

    def complain(self, error: JMSError) -> None:
        """Log an error that no call raises, and hand it to the exception listener."""
        logger.warning("%s", error)
        listener = self.connection.exception_listener
        if listener is not None:
            self.front.call_soon(listener, error)

    def forked(self) -> None:
        """Make this context unusable, in the child of a fork."""
        self.forked_from = self.unusable = True
        self.lock = threading.Lock()
        for consumer in self.consumers:
            consumer.forked(self.lock)

    # -- Consumers --------------------------------------------------------------------------------

    def gone(self, consumer: ConsumerCore) -> None:
        """Forget a consumer for which nothing more arrives. Caller holds the lock."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self.connection.receivers.pop(consumer.inbox.consumer, None)
        if consumer.inbox.kept():
            self.parted.append(consumer)

    def give_back(self, consumers: Iterable[Acknowledgements]) -> Request | None:
        """Give back the messages of these closed consumers, except those that the program handles,
        for any consumer. Caller holds the lock."""
        kept = tuple(k for c in consumers for k in c.inbox.give_up(c.in_hand()))
        self.parted = [consumer for consumer in self.parted if consumer.inbox.kept()]
        if not kept:
            return None
        return self.connection.do(lambda c: None if c.over else c.request(cw.Return(kept)))

    def family(self) -> list[ContextCore]:
        """Return all contexts of this connection."""
        return [user for user in self.connection.users if isinstance(user, ContextCore)]

    def standing_in(self, destination: str) -> Standing | None:
        """Return the standing of the member that this context has in a group; None: it has none."""
        for consumer in list(self.consumers):
            if consumer.destination.text == destination and consumer.standing.name:
                return consumer.standing
        return None

    # -- Listeners --------------------------------------------------------------------------------

    def rest(self) -> None:
        """Note that the listener has returned."""
        self.running = None
        self.rested()

    def rested(self) -> None:
        """Wake the calls that wait for a listener, or a worker, to return."""
        ring(self._rest_bells)

    def until_rest(self, consumer: ConsumerCore | None = None) -> Script[None]:
        """Wait until no listener has a message, or that of this consumer has none."""
        while True:
            bell = Ticket()
            self._rest_bells.add(bell)
            try:
                consumers = [*self.consumers, self.running] if consumer is None else [consumer]
                if not any(one.busy for one in consumers if one is not None):
                    return
                yield Pause(bell)
            finally:
                self._rest_bells.discard(bell)
