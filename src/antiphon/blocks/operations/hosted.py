"""The part that all blocks have in common which are members of a group."""

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
    """A block that is a member of a group, in a session of its own on the connection of the context
    that it was given."""

    _host: Host[Any]

    @property
    def name(self) -> str:
        """The member's name in the group. With asyncio, raise `IllegalStateError` before it is
        open."""
        return self._host.name

    @property
    def view(self) -> antiphon.View:
        """The last view that this member has handled."""
        return self._host.view

    @property
    def is_member(self) -> bool:
        """Whether this is a member, as far as it is known here: not any more if it was closed or
        removed, or has lost its connection for good."""
        return self._host.is_member

    @abstractmethod
    def close(self) -> Any:
        """Leave the group. Return when the handler that is running has ended; called by a handler,
        at once (asyncio). Calls that wait raise `OutcomeUnknownError`. Closing twice is no
        error."""

    def _opening(self) -> Script[None]:
        yield from self._host.opening()

    def _closing(self) -> Script[None]:
        yield from self._host.closing()


class OwnBlock(Hosted):
    """A member of a group that does what a block of the program's own says
    (`blocks/pure/block.py: Block`).

    `told` gets what the block has to tell, before the next event comes. `begins_anew`: it is no
    error that all who had the state have gone before they could hand it out. Opening raises what
    joining raises, and `IllegalStateError` if the state of the group is that of another kind of
    block.
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
        """Return what a function finds in the block, while nothing changes it."""
        return self._host.look(what)

    @abstractmethod
    def wait_until(self, what: Callable[[Any], Any], timeout: float | None = None) -> Any:
        """Wait until a function finds something in the block, and return it. Raise `TimeoutError`
        after `timeout` seconds, and `IllegalStateError` if this is not a member any more."""

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
        """Send `body` to all members, after what was sent before, and wait for nothing (asyncio:
        but room in the connection's buffer)."""

    @abstractmethod
    def feed(self, what: Callable[[Any], Effects]) -> Any:
        """Tell the block something that did not come through the group, and carry out its
        effects."""
