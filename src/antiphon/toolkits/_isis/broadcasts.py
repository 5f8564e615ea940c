"""The broadcasts of Isis, to entries of the members of a group, with their replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from antiphon.toolkits._isis import replies
from antiphon.toolkits._isis.core import Call, Core, Message
from antiphon.toolkits._isis.replies import Reply, Wanted


class Address(NamedTuple):
    """A group, as broadcasts name it."""

    group: str
    member: str | None = None
    with_clients: bool = False

    def only(self, member: str) -> Address:
        """Return the address of one member of the group."""
        return self._replace(member=member)

    @property
    def diffusion(self) -> Address:
        """The address of the group's members and clients."""
        return self._replace(with_clients=True)


class Broadcasts:
    """What a program in Isis sends, and replies to."""

    _core: Core

    def isis_entry(self, entry: int, routine: Callable[[Message], object]) -> None:
        """Have `routine(message)` called with each broadcast to this entry."""
        self._core.entries[entry] = routine

    def fbcast(
        self,
        gaddr: Address,
        entry: int,
        *values: Any,
        nwanted: Wanted = 0,
        timeout: float | None = None,
    ) -> list[Reply]:
        """Broadcast values to an entry of the members of a group, in the order of this process, and
        return the replies, of which `nwanted` are waited for: a number, `ALL` or `MAJORITY` of the
        members to which it is handed out. It returns with fewer if nobody can give another one.
        Raise `OutcomeUnknownError` after `timeout` seconds, naming those that have not replied."""
        return self._bcast("fifo", gaddr, entry, values, nwanted, timeout)

    def cbcast(
        self,
        gaddr: Address,
        entry: int,
        *values: Any,
        nwanted: Wanted = 0,
        timeout: float | None = None,
    ) -> list[Reply]:
        """As `fbcast`, but behind all that this process had sent and received."""
        return self._bcast("causal", gaddr, entry, values, nwanted, timeout)

    def abcast(
        self,
        gaddr: Address,
        entry: int,
        *values: Any,
        nwanted: Wanted = 0,
        timeout: float | None = None,
    ) -> list[Reply]:
        """As `cbcast`, and in one order with all others that ask for it, in all groups."""
        return self._bcast("agreed", gaddr, entry, values, nwanted, timeout)

    def gbcast(
        self,
        gaddr: Address,
        entry: int,
        *values: Any,
        nwanted: Wanted = 0,
        timeout: float | None = None,
    ) -> list[Reply]:
        """As `abcast`, and ordered with everything: between two broadcasts of any kind, or on one
        side of both, for all members alike."""
        return self._bcast("last", gaddr, entry, values, nwanted, timeout)

    bcast = abcast

    def _bcast(
        self,
        order: str,
        gaddr: Address,
        entry: int,
        values: tuple[Any, ...],
        nwanted: Wanted,
        timeout: float | None,
    ) -> list[Reply]:
        wanted = replies.checked(nwanted)
        call = Call(next(self._core.numbers) if wanted else 0, entry, gaddr.member, values)
        group, clients = gaddr.group, gaddr.with_clients
        return self._core.broadcast(order, group, call, clients, wanted, timeout)

    def reply(self, message: Message, *values: Any) -> None:
        """Reply to a broadcast, from its routine or later; nothing happens if nobody wants it."""
        self._core.answer(message, values)

    def nullreply(self, message: Message) -> None:
        """Have the sender not wait for a reply of this process."""
        self._core.answer(message, None)
