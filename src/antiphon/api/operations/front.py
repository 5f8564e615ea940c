"""A front, as the operations of a context see it: how to wait, and where listeners run.

`api/waiting` has the two of them: one blocks threads, the other awaits in tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from antiphon.api.messages.message import Message
from antiphon.api.operations.scripts import Outcome, Script
from antiphon.api.operations.worker_schedule import Item

if TYPE_CHECKING:
    from antiphon.api.operations.consumer import ConsumerCore
    from antiphon.api.operations.context import ContextCore
    from antiphon.api.operations.member import MemberCore

MessageListener = Callable[[Message], Any]

LISTENER_TURN = 64
"""Messages that a listener gets before the other listeners of its context have their turn."""


class Job(NamedTuple):
    """A message for one of several workers of a member."""

    member: MemberCore
    item: Item
    listener: MessageListener
    message: Message


class WorkerPool(Protocol):
    """The workers of one member."""

    def submit(self, job: Job) -> None: ...
    def end(self) -> None: ...
    @property
    def is_caller(self) -> bool: ...


class Front(Protocol):
    """The front of one context, made with it."""

    def __init__(self, context: ContextCore) -> None: ...

    def caller(self) -> object:
        """Return the calling thread, or task."""

    def inside_listener(self) -> bool:
        """Return whether the caller is the worker of this context, or one of a member's pool."""

    def run(self, script: Script[Outcome]) -> Any:
        """Return what the script returns; with asyncio, a coroutine that does."""

    def run_at_once(self, script: Script[None]) -> Any:
        """As `run`, but begin at once, even if the program does not await it; then its error goes
        to the exception listener."""

    def schedule(self, consumer: ConsumerCore) -> None:
        """Have the worker give this consumer's listener a turn."""

    def call_soon(self, what: Callable[[Any], Any], argument: Any) -> None:
        """Have the worker call this."""

    def new_pool(self, workers: int) -> WorkerPool:
        """Return workers for a member, which end with this context."""

    def end(self) -> None:
        """End the worker and all pools, after their jobs."""
