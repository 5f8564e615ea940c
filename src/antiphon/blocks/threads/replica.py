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
from typing import Any, Generic, TypeVar

import antiphon
from antiphon.api.messages.message import View
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.pure.block import Effects, Heard, Settle
from antiphon.blocks.pure.invocation import ActiveCalls, Leaving, PassiveBlock, Target, end_at
from antiphon.blocks.pure.passive import Call, End
from antiphon.blocks.pure.replies import Answer, Responder
from antiphon.blocks.pure.service import (
    ActiveReplica,
    ReplicatedService,
    Request,
    Requests,
    attempt,
    decode_outcome,
)
from antiphon.blocks.threads.host import TIMEOUT_S, Closing, GroupClient, Host, Hosted
from antiphon.errors import FormatError, OutcomeUnknownError
from antiphon.formats import values

logger = logging.getLogger("antiphon.blocks")

AGAIN_S = 0.5
"""After so long a target that did not answer is asked again."""

RESUBMIT_S = 2.0
"""A client that has heard of no replica for so long submits its command again."""

AnyService = TypeVar("AnyService", bound=ReplicatedService)


class ServiceBlock(Responder):
    """A replica of a service as a block: every member replies, so a crash delays nobody."""

    def __init__(
        self,
        service: ReplicatedService,
        apply: Callable[[ReplicatedService, Request], Any] | None = None,
    ) -> None:
        """`apply`: instead of the service's own."""
        super().__init__(lambda message: None)
        self.replica = ActiveReplica(service)
        self._apply = apply or (lambda service, request: service.apply(request.command))
        self._view = 0
        self._restored = 0  # the view of the state that was taken over

    @property
    def title(self) -> str:
        return type(self.replica.service).__name__

    def viewed(self, view: View, now: float) -> Effects:
        # A new member is told of its own view, and of others, after it was given a state that has
        # them: the service would go back to what was before.
        if view.id > self._restored:
            self.replica.viewed(view.members)
        self._view = max(view.id, self._restored)
        yield from super().viewed(view, now)

    def heard(self, message: Heard, now: float) -> Effects:
        begun = self.begin(message)
        if begun is None:
            return ()
        request, outcome = begun
        if outcome is None:
            try:
                done = attempt(lambda _: self._apply(self.replica.service, request), None)
            except Leaving:
                return ()  # the others carry it out, and answer
            outcome = self.replica.finish(request, done)
        return self.finished(message, request, outcome)

    def begin(self, message: Heard) -> tuple[Request, bytes | None] | None:
        """The request, and its outcome if it has one; None: the message is none."""
        try:
            return self.replica.begin(message.body)
        except (FormatError, TypeError) as error:
            logger.warning("a message to a replicated service is no request: %s", error)
            return None

    def finished(self, message: Heard, request: Request, outcome: bytes) -> Effects:
        yield Settle((request.client, request.number), outcome)
        if message.reply_to is not None:
            yield self.reply(message, Answer(outcome))

    def snapshot(self) -> bytes:
        return values.encode((self._view, self.replica.snapshot()))

    def restore(self, data: bytes) -> None:
        """Raises `FormatError` if that is no snapshot."""
        match values.decode(data):
            case (int(view), bytes(state)):
                self._view = self._restored = view
                self.replica.restore(state)
            case _:
                raise FormatError("no state of a replica")


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


def outcome_in(reply: Any) -> bytes:
    if isinstance(reply, bytes):
        return reply
    if isinstance(reply, Exception):  # of a result that is too large to travel
        raise reply
    raise FormatError("who replied is no replica of a service")


def no_outcome(why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"no replica has replied, and the command may take effect yet: {why}"
    )
