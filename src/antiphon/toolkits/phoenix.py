"""Phoenix: members, clients and sinks of a group, in the primary partition.

What the original promised, and what keeps it here:

- Groups in the primary partition: a cluster of `antiphon.peers` that shows primary views alone. Who
  is cut off from the majority gets no views and no messages, and its multicasts wait, until it is
  back; `together` of its next view tells it that the others went on without it.
- A *member* joins one group, and receives its views and messages. A *client* may multicast to the
  groups that it is a client of, and is told their views. A *sink* receives the views and messages
  of its groups and sends nothing. The classes follow each other as in the original: a `Client` is a
  `Sink` that can do more, and a `Member` a `Client`.
- FIFO order is the level `fifo`. The other four are the level `agreed`, which keeps all of their
  promises: it is one order (weak total), also of what members deliver that then crash (strong
  total), nobody delivers what the others lose (uniform), and all groups of the cluster share it
  (global order). A program that asks for less gets more.
- Intermediate views: those who go on together, when a change of the view has begun to take members
  away, and each time that fewer are left; while a part is cut off, those who are left in it.

A callback is a method to override: `view_change_delivery_cb(view)`,
`intermediate_view_delivery_cb(view)` and `deliver(message)`. All are called on one thread of the
process, in the order that the messages promise; what it raises is logged. A callback may send, join
and leave: these calls do not wait for others.

What only we have: `deliver`, for the thesis' tables have no call that receives; sinks are told the
views as clients are.

Left out: daemons that several applications share. Here each process has its own stack.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Self

from antiphon.errors import IllegalStateError
from antiphon.toolkits._groups.directory import Event, GroupMessage, GroupView
from antiphon.toolkits._groups.process import GroupProcess, checked

LEFT_OUT: dict[str, str] = {}
"""Names of the original that are not here, each with the reason: none."""

View = GroupView

_MEMBERS, _CLIENTS, _SINKS = "members", "clients", "sinks"
"""The roles, each of which is a group of its own in the cluster: `sinks/GROUP`."""


class Order(Enum):
    """The orders of Phoenix."""

    FIFO = "fifo"
    UNIFORM = "uniform"
    WEAK_TOTAL = "weak total"
    STRONG_TOTAL = "strong total"
    GLOBAL = "global"

    @property
    def level(self) -> str:
        """The level that keeps it; see the module."""
        return "fifo" if self is Order.FIFO else "agreed"


class Message(NamedTuple):
    """A message to a group."""

    sender: str
    group: str
    body: bytes
    order: Order


class Team:
    """One process of Phoenix; the base of the three kinds. `cluster` is one of
    `peers.Channel.connect`, `options` are those of `peers.Channel`. Raise what `connect` raises."""

    def __init__(
        self,
        name: str | None = None,
        cluster: str = "peer:phoenix",
        timeout: float | None = 10.0,
        **options: Any,
    ) -> None:
        self._process = GroupProcess(name, cluster, True, timeout=timeout, **options)
        self._process.wants = lambda view: True
        self._roles: set[str] = set()  # that the program wants
        self._shown: dict[str, int] = {}  # by group, the view that was delivered last
        self._process.listen(self._take)

    @property
    def name(self) -> str:
        """By which the others know this process."""
        return self._process.name

    def close(self) -> None:
        """Leave everything; what was sent before arrives."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- Roles -----------------------------------------------------------------------------------

    def _take_up(self, role: str, group: str) -> None:
        self._process.join(f"{role}/{checked(group)}")
        self._roles.add(f"{role}/{group}")

    def _give_up(self, role: str, group: str) -> None:
        if f"{role}/{group}" not in self._roles:
            raise IllegalStateError(f"{self.name!r} is none of the {role} of {group!r}")
        self._process.leave(f"{role}/{group}")
        self._roles.discard(f"{role}/{group}")

    def _is(self, role: str, group: str) -> bool:
        """Return whether this process has a role in what it receives now."""
        return self.name in self._process.directory.members(f"{role}/{group}")

    # -- Receiving -------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if isinstance(event, GroupMessage):
            self._take_message(event)
        elif isinstance(event, GroupView):
            self._take_view(event)

    def _take_message(self, message: GroupMessage) -> None:
        group = message.targets[0].partition("/")[2]
        order = Order[message.kind]
        self._call("deliver", Message(message.sender, group, message.body, order))

    def _take_view(self, event: GroupView) -> None:
        role, _, group = event.group.partition("/")
        if event.transitional:
            if role == _MEMBERS:
                view = event._replace(group=group)
                self._call("intermediate_view_delivery_cb", view)
        elif role == _MEMBERS:
            if self.name in event.left or any(
                self._is(one, group) for one in (_MEMBERS, _CLIENTS, _SINKS)
            ):
                self._show(event._replace(group=group))
        elif self.name in event.joined:  # it knows nothing of the group yet
            present = self._process.directory.view(f"{_MEMBERS}/{group}")
            self._show(present._replace(group=group))

    def _show(self, view: View) -> None:
        if self._shown.get(view.group) != view.id:
            self._shown[view.group] = view.id
            self._call("view_change_delivery_cb", view)

    def _call(self, callback: str, argument: Any) -> None:
        call: Callable[[Any], object] = getattr(self, callback, lambda argument: None)
        call(argument)


class Sink(Team):
    """Receives the views and the messages of the groups that it subscribes to."""

    def sink_subscribe(self, group: str) -> None:
        """Become a sink of a group. It returns at once; the first view that is delivered says from
        where on."""
        self._take_up(_SINKS, group)

    def sink_unsubscribe(self, group: str) -> None:
        """Be a sink of the group no longer. Raise `IllegalStateError` if it is none."""
        self._give_up(_SINKS, group)

    def deliver(self, message: Message) -> None:
        """Take a message; to override."""

    def view_change_delivery_cb(self, view: View) -> None:
        """Take a new view of a group; to override."""


class Client(Sink):
    """Is told the views of the groups that it is a client of, and may multicast to them."""

    def client_subscribe(self, group: str) -> None:
        """Become a client of a group. It returns at once; the first view that is delivered says
        from where on."""
        self._take_up(_CLIENTS, group)

    def client_unsubscribe(self, group: str) -> None:
        """Be a client of the group no longer. Raise `IllegalStateError` if it is none."""
        self._give_up(_CLIENTS, group)

    def multicast(
        self,
        msg: bytes,
        ord: Order = Order.FIFO,
        group: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Multicast to the members and sinks of a group: that which it is a member of, or one that
        it is a client of. Raise `IllegalStateError` if it is neither, and what `peers.Channel.send`
        raises: `OutcomeUnknownError` if it could not be sent within `timeout` seconds, as while
        this process is cut off from the primary partition."""
        if not isinstance(ord, Order):
            raise TypeError(f"ord is an Order, not {ord!r}")
        if group is None:
            group = self._own_group()
        if not self._roles & {f"{_MEMBERS}/{group}", f"{_CLIENTS}/{group}"}:
            raise IllegalStateError(f"{self.name!r} is neither member nor client of {group!r}")
        targets = (f"{_MEMBERS}/{group}", f"{_SINKS}/{group}")
        self._process.send(targets, msg, ord.level, ord.name, timeout)

    def _own_group(self) -> str:
        raise IllegalStateError(f"{self.name!r} is a member of no group: say which one is meant")


class Member(Client):
    """Is a member of one group at most."""

    def join(self, group: str) -> None:
        """Join a group; it is there when its first member joins. It returns at once; this process
        is a member from the first view that is delivered. Raise `IllegalStateError` if it is a
        member of a group already."""
        if owned := [role for role in self._roles if role.startswith(f"{_MEMBERS}/")]:
            group_before = owned[0].partition("/")[2]
            raise IllegalStateError(f"{self.name!r} is a member of {group_before!r} already")
        self._take_up(_MEMBERS, group)

    def leave(self) -> None:
        """Leave the group; the view without this process is the last one of it. Raise
        `IllegalStateError` if it is in none."""
        self._give_up(_MEMBERS, self._own_group())

    def intermediate_view_delivery_cb(self, view: View) -> None:
        """Take an intermediate view: the members that go on together, as far as is known while the
        view changes; to override."""

    def _own_group(self) -> str:
        for role in self._roles:
            kind, _, group = role.partition("/")
            if kind == _MEMBERS:
                return group
        return super()._own_group()
