"""Replicated services for real: replicas that are members of a group, and clients of them.

    with Replica(ctx, "counter", Counter()) as counter:     # in each of some processes
        print(counter.call(5))

    with ServiceClient(ctx, "counter") as counter:          # in any other
        print(counter.call(5))

Promise: `call` returns the result of a command that took effect once, after all that was answered
before it began; also if the client had to submit it again, to other replicas or servers.
"""

from __future__ import annotations

import inspect
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic

import antiphon
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.pure.invocation import ActiveCalls, Leaving, PassiveBlock, Target, end_at
from antiphon.blocks.pure.passive import Call, End
from antiphon.blocks.pure.replies import Responder
from antiphon.blocks.pure.service import (
    Requests,
    decode_outcome,
)
from antiphon.blocks.pure.service_block import AnyService, ServiceBlock, no_outcome, outcome_in
from antiphon.blocks.threads.host import TIMEOUT_S, Closing, GroupClient, Host, Hosted

logger = logging.getLogger("antiphon.blocks")

AGAIN_S = 0.5
"""After so long a target that did not answer is asked again."""

RESUBMIT_S = 2.0
"""A client that has heard of no replica for so long submits its command again."""


class Replica(Hosted, Closing, Generic[AnyService]):
    """One of the replicas of a service: a member of the group of them.

    `passive`: the oldest replica applies commands, and the others take over what it came to, so the
    service need not be deterministic. `targets`: other servers that the service may call, by name
    (`docs/replicated-invocation.md`); all replicas must have the same.
    """

    _begins_anew = False  # if all who had the state have gone

    def __init__(
        self,
        ctx: antiphon.Context,
        group: antiphon.Topic | str,
        service: AnyService,
        *,
        name: str | None = None,
        passive: bool = False,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(service.apply):
            raise TypeError("apply is a coroutine: such a service needs antiphon.blocks.aio")
        self._service = service
        self._requests = Requests(secrets.token_hex(8))
        self._lock = threading.Lock()
        self._targets = dict(targets or {})
        self._closing = threading.Event()
        # A thread for calls, of which there is one at a time, and one for the ends at each target:
        # one that does not answer holds up nobody else.
        self._workers = {name: _worker() for name in ["", *self._targets]}
        self._ending: set[str] = set()
        block: Responder
        if passive:
            block = PassiveBlock(service, {n: target.kind for n, target in self._targets.items()})
        else:
            block = ServiceBlock(service, ActiveCalls(self._targets, self._pause).apply)
        anew = self._begins_anew
        self._host = Host(ctx, group, block, name=name, told=self._at_target, begins_anew=anew)

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
        """Leave the group. What is at targets then is ended by the next primary."""
        self._closing.set()
        self._host.close()
        for worker in self._workers.values():
            worker.shutdown(wait=False, cancel_futures=True)

    # -- Targets --------------------------------------------------------------------------------

    def _at_target(self, effect: Call | End) -> None:
        """What a passive replica has to say to a target, which may take long."""
        if self._closing.is_set():
            return
        if isinstance(effect, Call):
            self._workers[""].submit(self._call, effect)
        elif effect.id not in self._ending:
            self._ending.add(effect.id)
            self._workers[effect.target].submit(self._end, effect)

    def _call(self, call: Call) -> None:
        reply: Any = None
        error: Exception | None = None
        try:
            reply = self._targets[call.target].call(call.id, call.request)
        except Exception as raised:
            error = raised
        self._host.feed(lambda block: block.called(call.id, reply, error, time.monotonic()))

    def _end(self, end: End) -> None:
        self._ending.discard(end.id)
        try:
            end_at(self._targets[end.target], end)
        except Exception as error:
            logger.warning("%s does not end a call, it is asked again: %s", end.target, error)
            if not self._closing.wait(AGAIN_S):
                self._at_target(end)  # behind the others that wait there
        else:
            self._host.feed(lambda block: block.ended(end.id, time.monotonic()))

    def _pause(self) -> None:
        if self._closing.wait(AGAIN_S):
            raise Leaving


def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="antiphon-target")  # begun when it is needed


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
            return outcome_in(self._client._call_again(data, RESUBMIT_S, timeout))
        except TooFewRepliesError as error:
            raise no_outcome(str(error)) from None

    def close(self) -> None:
        self._client.close()
