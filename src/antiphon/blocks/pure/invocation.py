"""Replicated services that call other servers: blocks for both kinds of replication.

Passive: one replica calls, and when it fails, the next one ends its open calls (`passive.py`).
Active: all replicas call, each with the same id, and the target takes all of them for one (thesis,
7.1.1); the service must be deterministic then.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol

from antiphon.blocks.errors import RefusedError
from antiphon.blocks.pure.block import (
    Block,
    Effect,
    Effects,
    Heard,
    Multicast,
    Remove,
    Settle,
    Tell,
)
from antiphon.blocks.pure.passive import Answer, Cast, End, Fate, Invocation, Kind, PassiveReplica
from antiphon.blocks.pure.passive import Effect as PassiveEffect
from antiphon.blocks.pure.replies import Answer as Replied
from antiphon.blocks.pure.replies import Responder
from antiphon.blocks.pure.service import ReplicatedService, Request, decode_request
from antiphon.errors import FormatError
from antiphon.model.views import View

logger = logging.getLogger("antiphon.blocks")


class Target(Protocol):
    """A server that services call (see also `blocks/targets/base.py`). Any replica may repeat
    `commit` and `undo` with the same id, and active replicas repeat `call`, too. All of them raise
    if their outcome is not known, and are called again then."""

    @property
    def kind(self) -> Kind:
        """Whether its calls are undone or compensated, see `Kind`."""

    def call(self, id: str, request: Any) -> Any:
        """Carry out a request: a pessimistic target can still undo it; an optimistic one has done
        it. Raise `RefusedError` if it has no effect and never will, for instance for an id that was
        undone before it came. For active replicas: return the same reply to an id that was taken
        before, without another effect, even if it was undone since. A slower replica must get the
        same outcome as a faster one, even if `apply` raised there."""

    def commit(self, id: str) -> None:
        """Make the effect of a call at a pessimistic target last."""

    def undo(self, id: str, compensation: Any) -> None:
        """Undo a call, even one that has not come yet: after this it will never take effect."""


class Leaving(BaseException):
    """The replica is closed while it waits for a target: its command has no outcome here."""


def end_at(target: Target, end: End) -> None:
    if end.fate is Fate.COMMIT:
        target.commit(end.id)
    else:
        target.undo(end.id, end.compensation)


class PassiveBlock(Responder):
    """A replica of a passively replicated service as a block. Its calls to targets are `Tell`
    effects, whose replies come with `called` and `ended`."""

    def __init__(self, service: ReplicatedService, targets: Mapping[str, Kind]) -> None:
        super().__init__(lambda message: None)
        self.replica = PassiveReplica(service, "", targets)
        self._callers: dict[tuple[str, int], Heard] = {}  # of requests without an outcome

    @property
    def title(self) -> str:
        return type(self.replica.service).__name__

    def viewed(self, view: View, now: float) -> Effects:
        yield from super().viewed(view, now)
        self.replica.me = self.name
        yield from self._translated(self.replica.viewed(view.id, view.members), now)

    def suspected(self, suspects: tuple[str, ...], withdrawn: tuple[str, ...]) -> Effects:
        """Remove suspects: nothing makes progress without the primary, and a wrong suspicion does
        no harm."""
        if suspects:
            yield Remove(suspects)

    hearing = Block.hearing  # its handler never waits: the host calls targets

    def heard(self, message: Heard, now: float) -> Effects:
        try:
            if message.reply_to is not None:
                request = decode_request(message.body)
                self._callers[request.client, request.number] = message
            effects = self.replica.heard(message.body)
        except (FormatError, TypeError) as error:
            logger.warning("a message to a replicated service is nothing of its: %s", error)
            return
        yield from self._translated(effects, now)

    def called(self, id: str, reply: Any, error: Exception | None, now: float) -> Effects:
        return self._translated(self.replica.called(id, reply, error), now)

    def ended(self, id: str, now: float) -> Effects:
        return self._translated(self.replica.ended(id), now)

    def snapshot(self) -> bytes:
        return self.replica.snapshot()

    def restore(self, data: bytes) -> None:
        self.replica.restore(data)

    def _translated(self, effects: Iterable[PassiveEffect], now: float) -> Iterator[Effect]:
        for effect in effects:
            if isinstance(effect, Cast):
                yield Multicast(effect.data)
            elif isinstance(effect, Answer):
                yield Settle(effect.key, effect.outcome)
                caller = self._callers.pop(effect.key, None)
                if caller is not None and effect.is_primary:
                    yield self.reply(caller, Replied(effect.outcome))
            else:
                yield Tell(effect)


class ActiveCalls:
    """Calls of an actively replicated service. All replicas make them, so each waits until the
    target has decided: one that gave up earlier would differ from the others."""

    def __init__(self, targets: Mapping[str, Target], pause: Callable[[], None]) -> None:
        self._targets = targets
        self._pause = pause  # before a call is repeated

    def apply(self, service: ReplicatedService, request: Request) -> Any:
        result = service.apply(request.command)
        if not inspect.isgenerator(result):
            return result
        made: dict[str, Invocation] = {}
        try:
            value = self._through(result, f"{request.client}.{request.number}", made)
        except Exception:
            for id, wanted in made.items():
                self._end(End(id, wanted.target, Fate.UNDO, wanted.compensation))
            raise
        for id, wanted in made.items():
            if self._targets[wanted.target].kind is Kind.PESSIMISTIC:
                self._end(End(id, wanted.target, Fate.COMMIT, None))
        return value

    def _through(
        self, steps: Generator[Any, Any, Any], prefix: str, made: dict[str, Invocation]
    ) -> Any:
        """Run `apply` to its end, and return its result; its calls are gathered in `made`."""
        reply: Any = None
        error: Exception | None = None
        for number in itertools.count(1):
            try:
                wanted = steps.send(reply) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            reply, error = None, None
            if not isinstance(wanted, Invocation) or wanted.target not in self._targets:
                error = ValueError(f"{wanted!r} is not a call to one of {', '.join(self._targets)}")
                continue
            try:
                reply = self._call(f"{prefix}.{number}", wanted)
                made[f"{prefix}.{number}"] = wanted
            except RefusedError as refused:
                error = refused
        raise AssertionError("unreachable")

    def _call(self, id: str, wanted: Invocation) -> Any:
        while True:
            try:
                return self._targets[wanted.target].call(id, wanted.request)
            except RefusedError:
                raise
            except Exception as error:
                logger.info("a call to %s is tried again: %s", wanted.target, error)
            self._pause()

    def _end(self, end: End) -> None:
        while True:
            try:
                return end_at(self._targets[end.target], end)
            except Exception as error:
                logger.info("a call at %s is ended again: %s", end.target, error)
            self._pause()
