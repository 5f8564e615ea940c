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
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

import antiphon
from antiphon.api.message import View
from antiphon.blocks.block import Effects, Heard, Settle
from antiphon.blocks.calls import FIRST
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

logger = logging.getLogger("antiphon.blocks")

RESUBMIT_S = 2.0
"""A client that has heard of no replica for so long submits its command again."""

AnyService = TypeVar("AnyService", bound=ReplicatedService)


class ServiceBlock(Responder):
    """A replica of a service as a block: every member replies, so a crash delays nobody."""

    def __init__(self, service: ReplicatedService) -> None:
        super().__init__(lambda message: None)
        self.replica = ActiveReplica(service)

    def viewed(self, view: View, now: float) -> Effects:
        self.replica.viewed(view.members)
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
        return self.replica.snapshot()

    def restore(self, data: bytes) -> None:
        self.replica.restore(data)


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
            data = request.encode()
            self._host.expect(what)
            self._host.multicast(data)
            return decode_outcome(self._host.await_(what, timeout)).get()
        finally:
            with self._lock:
                self._requests.done(request.number)

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
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with suppress(TooFewRepliesError):
                return outcome_in(self._client.call(data, FIRST, min(left, RESUBMIT_S)))
        raise no_outcome(timeout)

    def close(self) -> None:
        self._client.close()


def outcome_in(replies: Mapping[str, Any]) -> bytes:
    (outcome, *_) = replies.values()
    if isinstance(outcome, bytes):
        return outcome
    raise FormatError("who replied is no replica of a service")


def no_outcome(timeout: float | None) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"no replica has replied within {timeout:g} s; the command may take effect yet"
    )
