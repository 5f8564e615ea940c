"""The common part of all blocks that are members of a group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import antiphon
from antiphon.blocks.operations.host import Host
from antiphon.blocks.operations.opened import Opened
from antiphon.blocks.pure.block import Block, Effects
from antiphon.blocks.pure.scripts import Script


class Hosted(Opened):
    """A block that is a member of a group, in a session of its own on the connection of its
    context."""

    _host: Host[Any]

    @property
    def name(self) -> str:
        """The member's name in the group. With asyncio, raise `IllegalStateError` before it is
        open."""
        return self._host.name

    @property
    def view(self) -> antiphon.View:
        """The last view of the group that this block has handled."""
        return self._host.view

    @property
    def is_member(self) -> bool:
        """Whether this is a member, as far as this process knows: it is none after it was closed or
        removed, or has lost its connection for good."""
        return self._host.is_member

    @abstractmethod
    def close(self) -> Any:
        """Leave the group. Return when the running handler has ended; with asyncio, a handler may
        call this, and it returns at once. Waiting calls raise `OutcomeUnknownError`. Closing twice
        is no error."""

    def _opening(self) -> Script[None]:
        yield from self._host.opening()

    def _closing(self) -> Script[None]:
        yield from self._host.closing()


class OwnBlock(Hosted):
    """A member of a group that runs a block of the program's own, a subclass of `Block`
    (`blocks/pure/block.py`).

    `told` gets the values of the block's `Tell` effects, before the next event comes.
    `begins_anew`: begin without a state if all members that had it have gone before they could hand
    it out; otherwise that is an error. Opening raises the errors of `Context.join`, and
    `IllegalStateError` if the state of the group is that of another kind of block.
    """

    def __init__(
        self,
        ctx: Any,
        group: antiphon.Topic | str,
        block: Block,
        name: str | None,
        durable: bool,
        told: Callable[[Any], Any],
        begins_anew: bool,
    ) -> None:
        self._host = Host(
            self._front,
            self._front.port(ctx, group, name, durable),
            block,
            told=self._front.program(told),
            begins_anew=begins_anew,
        )

    def look(self, what: Callable[[Any], Any]) -> Any:
        """Return the result of a function of the block, which does not change meanwhile."""
        return self._host.look(what)

    @abstractmethod
    def wait_until(self, what: Callable[[Any], Any], timeout: float | None = None) -> Any:
        """Wait until a function of the block returns a value that is true, and return that. Raise
        `TimeoutError` after `timeout` seconds, and `IllegalStateError` if this is not a member any
        more."""

    @abstractmethod
    def submit(self, what: Any, body: Any, timeout: float | None) -> Any:
        """Send `body` to all members, and return the value with which the block here settles
        `what` (`Settle`). Raise `OutcomeUnknownError` after `timeout` seconds."""

    @abstractmethod
    def multicast(self, body: Any, timeout: float | None = None) -> Any:
        """Send `body` to all members, and return when a majority of the servers has it. Raise
        `OutcomeUnknownError` after `timeout` seconds."""

    @abstractmethod
    def cast(self, body: Any) -> Any:
        """Send `body` to all members, after earlier messages, and return at once (asyncio: when the
        connection's buffer has room)."""

    @abstractmethod
    def feed(self, what: Callable[[Any], Effects]) -> Any:
        """Call the block with an input that did not come through the group, and carry out its
        effects."""
