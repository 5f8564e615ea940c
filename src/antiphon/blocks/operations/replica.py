"""Replicated services: replicas that are members of a group, and clients of them.

Promise: `call` returns the result of a command that took effect once, after all commands that were
answered before it began; even if the client had to submit it again, to other replicas or servers.
"""

from __future__ import annotations

import logging
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic

import antiphon
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.operations.caller import Caller
from antiphon.blocks.operations.host import TIMEOUT_S, Host
from antiphon.blocks.operations.hosted import Hosted
from antiphon.blocks.operations.opened import Opened
from antiphon.blocks.pure.invocation import ActiveCalls, Leaving, PassiveBlock, Target, end_at
from antiphon.blocks.pure.passive import Call, End
from antiphon.blocks.pure.replies import Responder
from antiphon.blocks.pure.scripts import Script
from antiphon.blocks.pure.service import ReplicatedService, Request, Requests, decode_outcome
from antiphon.blocks.pure.service_block import AnyService, ServiceBlock, no_outcome, outcome_in
from antiphon.errors import JMSError

logger = logging.getLogger("antiphon.blocks")

AGAIN_S = 0.5
"""Seconds until a target that did not answer is called again."""

RESUBMIT_S = 2.0
"""Seconds until a client without an answer of a replica submits its command again."""


class Replica(Hosted, Generic[AnyService]):
    """One replica of a service: a member of the group of its replicas.

    `service`: an object of a subclass of `ReplicatedService`. `passive`: the oldest replica applies
    commands, and the others take over its state, so the service need not be deterministic.
    `targets`: other servers that the service may call, by name (`docs/replicated-invocation.md`);
    all replicas must have the same. With asyncio a service's `apply` may be `async def`, the next
    command waits for it; targets are called in threads. `name`: of this member, as in
    `Context.join`; opening raises the errors of that call, and `IllegalStateError` if the group has
    another kind of service.
    """

    _begins_anew = False  # if all members that had the state have gone

    def _set_up(
        self,
        ctx: Any,
        group: antiphon.Topic | str,
        service: AnyService,
        name: str | None,
        passive: bool,
        targets: Mapping[str, Target] | None,
    ) -> None:
        self._given = ctx, group, name
        self._passive = passive
        self._targets = dict(targets or {})
        self._requests = Requests(secrets.token_hex(8))
        self._numbering = self._front.watch()  # guards the requests
        self._start(service)

    def _start(self, service: AnyService) -> None:
        """Make the host for this service, not opened yet."""
        ctx, group, name = self._given
        self._service = service
        # One for calls, of which there is one at a time, and one for the ends at each target: a
        # target that does not answer holds up no other.
        self._workers = self._front.workers(["", *self._targets])
        self._ending: set[str] = set()
        self._host = Host(
            self._front,
            self._front.port(ctx, group, name, durable=False),
            self._block_of(service),
            told=self._at_target,
            begins_anew=self._begins_anew,
        )

    def _block_of(self, service: AnyService) -> Responder:
        if self._passive:
            kinds = {name: target.kind for name, target in self._targets.items()}
            return PassiveBlock(service, kinds)
        return ServiceBlock(service, self._apply)

    # -- Calls of the program --------------------------------------------------------------------

    @abstractmethod
    def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Have all replicas apply a command, and return its result, or raise its exception.

        Raise `OutcomeUnknownError` if this replica has not applied it within `timeout` seconds
        (None: no limit): it may still take effect, once. Raise `IllegalStateError` if this is not a
        member any more, `MessageFormatError` if the command cannot travel."""

    @abstractmethod
    def post(self, command: Any) -> Any:
        """Have all replicas apply a command, and return at once (asyncio: when the connection's
        buffer has room). An error of the service reaches no caller. Raise `IllegalStateError` if
        this is not a member any more, and `MessageFormatError` if the command cannot travel."""

    def look(self, what: Callable[[AnyService], Any]) -> Any:
        """Return the result of a function of this replica's service, without asking the group. This
        replica may be behind the others; `call` sees all earlier commands."""
        return self._host.look(lambda block: what(self._service))

    @abstractmethod
    def wait_until(self, what: Callable[[AnyService], Any], timeout: float | None = None) -> Any:
        """Wait until a function of this replica's service returns a value that is true, and return
        that. Raise `TimeoutError` after `timeout` seconds, and `IllegalStateError` if this is not a
        member any more."""

    @abstractmethod
    def close(self) -> Any:
        """Leave the group: waiting calls raise `OutcomeUnknownError`. The next primary ends open
        calls at targets. Closing twice is no error."""

    # -- Scripts ---------------------------------------------------------------------------------

    def _calling(self, command: Any, timeout: float | None = TIMEOUT_S) -> Script[Any]:
        with self._numbering:
            request = self._requests.next(command)
        try:
            what = (request.client, request.number)
            outcome = yield from self._host.submitting(what, request.encode(), timeout)
            return decode_outcome(outcome).get()
        finally:
            with self._numbering:
                self._requests.done(request.number)

    def _posting(self, command: Any) -> Script[None]:
        with self._numbering:  # so requests are sent in the order of their numbers
            request = self._requests.next(command)
            self._requests.done(request.number)
            yield from self._host.casting(request.encode())

    def _undoing(self, command: Any) -> Script[None]:
        """Post a command that undoes an earlier one of this replica, even of a caller that is
        interrupted now. If this is not a member any more, there is nothing to undo."""
        with suppress(JMSError):
            yield from self._posting(command)

    def _waiting_until(
        self, what: Callable[[AnyService], Any], timeout: float | None
    ) -> Script[Any]:
        return self._host.waiting_until(lambda block: what(self._service), timeout)

    def _closing(self) -> Script[None]:
        self._workers.stop()
        yield from self._host.closing()
        self._workers.shut()

    # -- Targets ---------------------------------------------------------------------------------

    def _apply(self, service: ReplicatedService, request: Request) -> Any:
        """Apply a command. Call it as a step, for calls at targets may block for long."""
        if not self._targets:
            return self._front.program(service.apply)(request.command)
        calls = ActiveCalls(self._targets, self._wait_to_try_again)
        return self._front.work(calls.apply, service, request)

    def _wait_to_try_again(self) -> None:
        if self._workers.hold(AGAIN_S):
            raise Leaving

    def _at_target(self, effect: Call | End) -> None:
        """Have a worker make or end a call at a target for a passive replica, which may take
        long."""
        if self._workers.stopped:
            return
        if isinstance(effect, Call):
            self._workers.start("", self._calling_target(effect))
        elif effect.id not in self._ending:
            self._ending.add(effect.id)
            self._workers.start(effect.target, self._ending_at_target(effect))

    def _calling_target(self, call: Call) -> Script[None]:
        reply: Any = None
        error: Exception | None = None
        target = self._targets[call.target]
        try:
            reply = yield lambda: self._front.work(target.call, call.id, call.request)
        except Exception as raised:
            error = raised
        now = time.monotonic()
        yield from self._host.feeding(lambda block: block.called(call.id, reply, error, now))

    def _ending_at_target(self, end: End) -> Script[None]:
        target = self._targets[end.target]
        try:
            yield lambda: self._front.work(end_at, target, end)
        except Exception as error:
            logger.warning("%s does not end a call, it is asked again: %s", end.target, error)
            stopped = yield lambda: self._workers.pause(AGAIN_S)
            self._ending.discard(end.id)
            if not stopped:
                self._at_target(end)  # after the others that wait there
            return
        self._ending.discard(end.id)
        now = time.monotonic()
        yield from self._host.feeding(lambda block: block.ended(end.id, now))


class ServiceClient(Opened):
    """Submits commands to a replicated service from outside the group of its replicas
    (`Replica`)."""

    def __init__(self, ctx: Any, group: antiphon.Topic | str) -> None:
        self._client = Caller(self._front, self._front.caller_port(ctx, group))
        self._requests = Requests(secrets.token_hex(8))
        self._numbering = self._front.watch()

    @abstractmethod
    def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        """Have all replicas apply a command, and return its result, or raise its exception.

        The client submits it again while no replica replies; it takes effect once. Raise
        `OutcomeUnknownError` if none has replied within `timeout` seconds (None: no limit): it may
        still take effect. Raise `IllegalStateError` if this is closed, and `MessageFormatError` if
        the command cannot travel."""

    @abstractmethod
    def close(self) -> Any:
        """Close the client: waiting calls raise `OutcomeUnknownError`, and later ones
        `IllegalStateError`. Closing twice is no error."""

    def _calling(self, command: Any, timeout: float | None) -> Script[Any]:
        with self._numbering:
            request = self._requests.next(command)
        try:
            reply = yield from self._client.calling_again(request.encode(), RESUBMIT_S, timeout)
            return decode_outcome(outcome_in(reply)).get()
        except TooFewRepliesError as error:
            raise no_outcome(str(error)) from None
        finally:
            with self._numbering:
                self._requests.done(request.number)

    def _opening(self) -> Script[None]:
        yield from self._client.opening()

    def _closing(self) -> Script[None]:
        yield from self._client.closing()
