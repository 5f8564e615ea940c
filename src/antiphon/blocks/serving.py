"""Replicated services for real: replicas that are members of a group, and clients of them.

    with Replica(ctx, "counter", Counter()) as counter:     # in each of some processes
        print(counter.call(5))

    with ServiceClient(ctx, "counter") as counter:          # in any other
        print(counter.call(5))

Promise: `call` returns the result of a command that took effect once, after all that was answered
before it began; also if the client had to submit it again, to other replicas or servers.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import antiphon
from antiphon.api.message import View
from antiphon.blocks.block import Effects, Heard, Settle
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.hosting import TIMEOUT_S, Closing, GroupClient, Host, Hosted
from antiphon.blocks.responding import Answer, Responder
from antiphon.blocks.service import (
    ActiveReplica,
    ReplicatedService,
    Requests,
    decode_outcome,
)
from antiphon.errors import FormatError, OutcomeUnknownError
from antiphon.formats import values

logger = logging.getLogger("antiphon.blocks")

RESUBMIT_S = 2.0
"""A client that has heard of no replica for so long submits its command again."""

AnyService = TypeVar("AnyService", bound=ReplicatedService)


class ServiceBlock(Responder):
    """A replica of a service as a block: every member replies, so a crash delays nobody."""

    def __init__(self, service: ReplicatedService) -> None:
        super().__init__(lambda message: None)
        self.replica = ActiveReplica(service)
        self._view = 0
        self._restored = 0  # the view of the state that was taken over

    def viewed(self, view: View, now: float) -> Effects:
        # A new member is told of its own view, and of others, after it was given a state that has
        # them: the service would go back to what was before.
        if view.id > self._restored:
            self.replica.viewed(view.members)
        self._view = max(view.id, self._restored)
        yield from super().viewed(view, now)

    def heard(self, message: Heard, now: float) -> Effects:
        try:
            request, outcome = self.replica.submitted(message.body)
        except (FormatError, TypeError) as error:
            logger.warning("a message to a replicated service is no request: %s", error)
            return
        yield Settle((request.client, request.number), outcome)
        if message.reply_to is not None:
            yield self.reply(message, Answer(outcome), now)

    def snapshot(self) -> bytes:
        return values.encode((self._view, self.replica.snapshot()))

    def restore(self, data: bytes) -> None:
        """Raises `FormatError` if that is no snapshot."""
        match values.decode(data):
            case (int(view), bytes(state)):
                self._view = self._restored = view
                self.replica.restore(state)
            case _:
                raise FormatError("not the snapshot of a replica")


class Replica(Hosted, Closing, Generic[AnyService]):
    """One of the replicas of a service: a member of the group of them."""

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        service: AnyService,
        *,
        name: str | None = None,
    ) -> None:
        self._service = service
        self._requests = Requests(secrets.token_hex(8))
        self._lock = threading.Lock()
        self._host = Host(ctx, group, ServiceBlock(service), name=name)

    def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Have a command applied by all replicas, and return its result, or raise its exception."""
        with self._lock:
            request = self._requests.next(command)
        try:
            what = (request.client, request.number)
            return decode_outcome(self._host.submit(what, request.encode(), timeout)).get()
        finally:
            with self._lock:
                self._requests.done(request.number)

    def post(self, command: Any) -> None:
        """Have a command applied by all replicas, and wait for nothing."""
        with self._lock:  # what has a later number is sent later
            request = self._requests.next(command)
            self._requests.done(request.number)
            self._host.cast(request.encode())

    def look(self, what: Callable[[AnyService], Any]) -> Any:
        """What a function finds in this replica, which may be behind the others. Quick: nothing is
        sent. To see all that was done before, `call`."""
        return self._host.look(lambda block: what(self._service))

    def wait_until(self, what: Callable[[AnyService], Any], timeout: float | None = None) -> Any:
        """Wait until a function finds something in this replica, and return it."""
        return self._host.wait_until(lambda block: what(self._service), timeout)

    def close(self) -> None:
        """Leave the group."""
        self._host.close()


class ServiceClient(Closing):
    """Submits commands from outside the group of replicas."""

    def __init__(self, ctx: antiphon.Context, group: antiphon.Topic | str) -> None:
        self._client = GroupClient(ctx, group)
        self._requests = Requests(secrets.token_hex(8))
        self._lock = threading.Lock()

    def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        with self._lock:
            request = self._requests.next(command)
        try:
            return decode_outcome(self._submit(request.encode(), timeout)).get()
        finally:
            with self._lock:
                self._requests.done(request.number)

    def _submit(self, data: bytes, timeout: float | None) -> bytes:
        """Again and again, if nobody replies: it counts once."""
        try:
            outcome = self._client.call_again(data, RESUBMIT_S, timeout)
        except TooFewRepliesError as error:
            raise OutcomeUnknownError(
                f"no replica has replied, and the command may take effect yet: {error}"
            ) from None
        if isinstance(outcome, bytes):
            return outcome
        if isinstance(outcome, Exception):  # of a result that is too large to travel
            raise outcome
        raise FormatError("who replied is no replica of a service")

    def close(self) -> None:
        self._client.close()
