"""A replica of a service as a block, for a member of the group of replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from antiphon.blocks.pure.block import Effects, Heard, Settle
from antiphon.blocks.pure.invocation import Leaving
from antiphon.blocks.pure.replies import Answer, Responder
from antiphon.blocks.pure.scripts import Script, run
from antiphon.blocks.pure.service import (
    ActiveReplica,
    Outcome,
    ReplicatedService,
    Request,
    outcome_of,
)
from antiphon.errors import FormatError, OutcomeUnknownError
from antiphon.formats import values
from antiphon.model.exceptions import describe
from antiphon.model.views import View

logger = logging.getLogger("antiphon.blocks")

AnyService = TypeVar("AnyService", bound=ReplicatedService)


class ServiceBlock(Responder):
    """A replica of a service as a block: every member replies, so a crash delays nobody."""

    def __init__(
        self,
        service: ReplicatedService,
        apply: Callable[[ReplicatedService, Request], Any] | None = None,
    ) -> None:
        """`apply`: called instead of the service's own."""
        super().__init__(lambda message: None)
        self.replica = ActiveReplica(service)
        self._apply = apply or (lambda service, request: service.apply(request.command))
        self._view = 0
        self._restored = 0  # the view of the state that was taken over

    @property
    def title(self) -> str:
        return type(self.replica.service).__name__

    def viewed(self, view: View, now: float) -> Effects:
        # After a new member has taken over a state, it gets views again that are in it: with them
        # the service would go back to an earlier membership.
        if view.id > self._restored:
            self.replica.viewed(view.members)
        self._view = max(view.id, self._restored)
        yield from super().viewed(view, now)

    def heard(self, message: Heard, now: float) -> Effects:
        return run(self.hearing(message, now))

    def hearing(self, message: Heard, now: float) -> Script[Effects]:
        begun = self._begin(message)
        if begun is None:
            return ()
        request, outcome = begun
        if outcome is None:
            try:
                done = yield from self._attempt(request)
            except Leaving:
                return ()  # the others carry it out, and reply
            outcome = self.replica.finish(request, done)
        return self._finished(message, request, outcome)

    def _attempt(self, request: Request) -> Script[Outcome]:
        try:
            result = yield partial(self._apply, self.replica.service, request)
        except Exception as error:
            return Outcome(None, describe(error))
        return outcome_of(result)

    def _begin(self, message: Heard) -> tuple[Request, bytes | None] | None:
        """Return the request, and its outcome if it has one; None: the message is not a request."""
        try:
            return self.replica.begin(message.body)
        except (FormatError, TypeError) as error:
            logger.warning("a message to a replicated service is not a request: %s", error)
            return None

    def _finished(self, message: Heard, request: Request, outcome: bytes) -> Effects:
        yield Settle((request.client, request.number), outcome)
        if message.reply_to is not None:
            yield self.reply(message, Answer(outcome))

    def snapshot(self) -> bytes:
        return values.encode((self._view, self.replica.snapshot()))

    def restore(self, data: bytes) -> None:
        """Take over the state of another replica. Raise `FormatError` if that is not a snapshot."""
        match values.decode(data):
            case (int(view), bytes(state)):
                self._view = self._restored = view
                self.replica.restore(state)
            case _:
                raise FormatError("no state of a replica")


def outcome_in(reply: Any) -> bytes:
    if isinstance(reply, bytes):
        return reply
    if isinstance(reply, Exception):  # of a result that is too large to travel
        raise reply
    raise FormatError("who replied is not a replica of a service")


def no_outcome(why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"no replica has replied, and the command may take effect yet: {why}"
    )
