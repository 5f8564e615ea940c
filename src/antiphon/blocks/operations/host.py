"""A host: runs a block on a port of a member or a peer channel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from antiphon.blocks.operations.front import Deadline, Front, Pending
from antiphon.blocks.pure.block import (
    Block,
    Effects,
    Multicast,
    Remove,
    Reply,
    Settle,
    Tell,
)
from antiphon.blocks.pure.port import Event, Installed, Port, reaction
from antiphon.blocks.pure.replies import failed
from antiphon.blocks.pure.scripts import Script
from antiphon.errors import (
    ConnectionLostError,
    FormatError,
    IllegalStateError,
    JMSError,
    MessageFormatError,
    OutcomeUnknownError,
    ResourceAllocationError,
)
from antiphon.model.views import View

logger = logging.getLogger("antiphon.blocks")

TIMEOUT_S = 10.0
"""Seconds that calls wait without a timeout of their own."""

AnyBlock = TypeVar("AnyBlock", bound=Block)


class Host(Generic[AnyBlock]):
    """Runs a block on a port: hands it the events, and carries out its effects.

    Promise: the block gets the events of the port one after the other, and its effects are carried
    out in their order before the next event; `Tell` and `Remove` come last, when others may read
    the block again. Waiting callers get an error when the port has ended.

    Need: a front (`front.py`) for waiting, and a port that was not opened yet. Limit: a handler
    that waits for a call to its own group waits for itself.
    """

    def __init__(
        self,
        front: Front,
        port: Port,
        block: AnyBlock,
        *,
        told: Callable[[Any], Any] = lambda _: None,
        begins_anew: bool = False,
    ) -> None:
        """`told` gets the values of the block's `Tell` effects, before the next event comes.
        `begins_anew`: begin without a state if all members that had it have gone before they could
        hand it out; otherwise that is an error."""
        self.block = block
        self._front = front
        self._told = told
        self._begins_anew = begins_anew
        self._changed = front.watch()  # guards the block
        self._waiting: dict[Any, Pending] = {}
        self._joined = False  # it has seen its first event
        self._port = port

    # -- Calls of the program --------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._port.name

    @property
    def view(self) -> View:
        return self._port.view

    @property
    def is_member(self) -> bool:
        return not self._port.why_over()

    def look(self, what: Callable[[AnyBlock], Any]) -> Any:
        """Return the result of a function of the block, which does not change meanwhile."""
        with self._changed:
            return what(self.block)

    def opening(self) -> Script[None]:
        """Join the group, take over the state of another member, and begin to handle events."""
        try:
            # A block without a state hands out none, and takes over none.
            provide = None if self.block.snapshot() is None else self._provide
            yield partial(self._port.open, provide, self._ended)
            self.block.name = self._port.name
            state = yield from self._initial_state()
            if state is not None:
                take_over(self.block, self._port.group, state)
            self._port.deliver(self._handling)
        except BaseException:
            yield self._port.close  # a port that is only half open does not stay
            raise

    def closing(self) -> Script[None]:
        """Leave the group."""
        yield self._port.close

    def waiting_until(
        self, what: Callable[[AnyBlock], Any], timeout: float | None = None
    ) -> Script[Any]:
        """Wait until a function of the block returns a value that is true, and return that. Raise
        `TimeoutError` if it does not in time, `IllegalStateError` if this is not a member any
        more."""
        deadline = Deadline(timeout)
        found: list[Any] = [None]

        def finds() -> bool:
            found[0] = what(self.block)
            return bool(found[0] or self._port.why_over())

        self._check()
        yield partial(self._changed.until, finds, deadline)
        if not found[0]:
            self._check()
            raise TimeoutError(f"it has not come about in {timeout:g} s")
        return found[0]

    def submitting(self, what: Any, body: Any, timeout: float | None) -> Script[Any]:
        """Send a body to all members, and return the value with which the block settles `what`."""
        deadline = Deadline(timeout)
        self._check()
        pending = self._waiting[what] = self._front.pending()
        try:
            yield partial(self._port.multicast, body, timeout)
            if (yield partial(pending.wait, self._port.why_over, deadline)):
                return pending.value
            why = self._port.why_over() or f"not within {timeout:g} s"
            raise OutcomeUnknownError(f"the group has not got to it: {why}")
        finally:
            del self._waiting[what]

    def multicasting(self, body: Any, timeout: float | None = None) -> Script[None]:
        """Send to all members, and wait until a majority of the servers has it."""
        self._check()
        yield partial(self._port.multicast, body, timeout)

    def casting(self, body: Any) -> Script[Any]:
        """Send to all members, after earlier messages, and wait only for room."""
        self._check()
        return (yield partial(self._port.cast, body))

    def feeding(self, what: Callable[[AnyBlock], Effects]) -> Script[None]:
        """Call the block with an input that did not come through the group, and carry out its
        effects."""
        with self._changed:
            if self._port.why_over():
                return
            later = yield from self._carrying_out(list(what(self.block)))
        yield from self._doing_later(later)

    # -- Events ----------------------------------------------------------------------------------

    def _handling(self, event: Event) -> Script[None]:
        with self._changed:
            self._joined = True
            effects = yield from reaction(self.block, event, time.monotonic())
            if isinstance(event, Installed) and self.name not in event.views[-1].members:
                self._port.end("it was removed from the group")
            later = yield from self._carrying_out(effects)
        yield from self._doing_later(later)

    def _carrying_out(self, effects: Effects) -> Script[list[Tell | Remove]]:
        """Carry out effects; return those that wait until others may read the block again."""
        self._changed.notify()
        later: list[Tell | Remove] = []
        for effect in effects:
            if isinstance(effect, Multicast):
                yield partial(self._port.cast, effect.body, effect.properties)
            elif isinstance(effect, Reply):
                yield from self._replying(effect)
            elif isinstance(effect, Settle):
                if (pending := self._waiting.get(effect.what)) is not None:
                    pending.set(effect.value)
            else:
                later.append(effect)
        return later

    def _doing_later(self, effects: list[Tell | Remove]) -> Script[None]:
        for effect in effects:
            if isinstance(effect, Tell):
                yield partial(self._told, effect.what)
            else:
                yield partial(self._port.remove, *effect.members)

    def _replying(self, reply: Reply) -> Script[None]:
        """Send a reply. If its body cannot travel, its caller gets that as the handler's error; it
        is never an error of the member, which would get the message again."""
        try:
            try:
                yield partial(self._port.reply, reply)
            except (MessageFormatError, ResourceAllocationError) as error:
                yield partial(self._port.reply, failed(reply, error))
        except JMSError as error:
            logger.info("a reply was not sent: %s", error)

    # -- Inside ----------------------------------------------------------------------------------

    def _initial_state(self) -> Script[bytes | None]:
        try:
            state: bytes | None = yield self._port.initial_state
            return state
        except ConnectionLostError:
            if self._begins_anew and not self._port.is_lost():
                return None
            raise

    def _provide(self) -> bytes:
        with self._changed:
            return self.block.snapshot() or b""

    def _ended(self) -> None:
        """Have all waiting calls look again, for no more events will come."""
        with self._changed:
            self._changed.notify()
            for pending in list(self._waiting.values()):
                pending.wake()

    def _check(self) -> None:
        if why := self._port.why_over():
            who = "the member cannot be used"
            if self._joined:
                who = f"{self.name} is not a member of the group any more"
            raise IllegalStateError(f"{who}: {why}")


def take_over(block: Block, group: str, state: bytes) -> None:
    """Have a block take over a state. Raise `IllegalStateError` if it is of another kind of
    block."""
    try:
        block.restore(state)
    except Exception as error:
        why = str(error) or repr(error)
        if isinstance(error, FormatError):
            why = "it is that of something else"
        raise IllegalStateError(
            f"a {block.title} cannot take over the state of group {group!r}: {why}. All members of "
            "a group must be of the same kind, made with the same arguments; give others a group "
            "of their own"
        ) from error
