"""Object groups, as the Object Group Service and Electra brought them to CORBA.

**What the originals promised.** Several objects of one interface form a group, and a client uses
the group as if it were one object. Members join and leave, a new one takes over the state of the
others, all of them learn of each new view, and those that fail are removed (primary partition).
Clients are no members. A call says how many replies it waits for, and how it is ordered.

**What maps to what.** A group is a group of `antiphon`; a member, an object with `deliver`,
`view_change`, `get_state` and `set_state` (`Groupable`), is a block in it. `GroupAdministrator` has
the calls of members, `GroupAccessor` those of clients. `ONEWAY` returns when the message is on its
way, `ZERO` when a majority of the servers has it, `ONE`, `MAJORITY` and `ALL` when so many members
have replied: a member that leaves, or fails and is removed, is not waited for. `reference()` is
the group as one object, with the semantics that its members gave for each operation. Electra's
*transparent* mode returns the first reply, its other one returns all.

**What is different.** All messages of a group are delivered in one order, by all members or by
none, whatever `semantics` a call asks for: it is the least that it gets. `get_view` asks a member,
so the view is one that was current after the call began. The state is bytes, and members that give
other semantics than the group has are refused. A member that multicasts to its own group in
`deliver`, and waits for replies, waits for itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import antiphon
from antiphon.blocks import ALL, FIRST, MAJORITY, NONE, GroupClient
from antiphon.blocks.pure.block import Effects, Heard
from antiphon.blocks.pure.calls import Replies
from antiphon.blocks.pure.replies import Responder
from antiphon.blocks.pure.rpc import check_public, first_of, invoke
from antiphon.blocks.threads.host import Host
from antiphon.errors import FormatError, IllegalStateError
from antiphon.toolkits._closing import Closing

TIMEOUT_S = 10.0
"""Seconds that calls wait without a timeout of their own."""

REMOVE_AFTER_S = 1.0
"""Seconds after which a failed member is removed, in a group of `create_group`."""

LEFT_OUT = {
    "MessageService": "contexts and destinations of `antiphon` carry messages between objects",
    "MonitoringService": "suspicions and views of groups report failures, to members only",
    "ConsensusService": "the replicated log of the servers decides on everything, in their place",
}
"""Names of the originals that are not here, with the reason."""


class NumReplies(Enum):
    """The number of replies that a call waits for."""

    ONEWAY = "oneway"
    ZERO = "zero"
    ONE = "one"
    MAJORITY = "majority"
    ALL = "all"


class Semantics(Enum):
    """The least that a call asks for; each gets total order."""

    UNRELIABLE = "unreliable"
    RELIABLE = "reliable"
    FIFO = "fifo"
    TOTAL_ORDER = "total order"


class OperationSemantics(NamedTuple):
    """The semantics of one operation of an interface."""

    replies: NumReplies = NumReplies.ONE
    semantics: Semantics = Semantics.TOTAL_ORDER


InterfaceSemantics = Mapping[str, OperationSemantics]
"""The semantics of operations, by their names. An operation that is not in it has the default."""


class Groupable:
    """A member of an object group: subclass it, and write `deliver`, or the operations that a
    reference calls, or both. All run one after the other."""

    def deliver(self, msg: Any) -> Any:
        """Handle a message of `multicast`, and return the reply."""
        raise NotImplementedError(f"{type(self).__name__} has no deliver")

    def view_change(self, view: antiphon.View) -> None:
        """Note the members of the group, in the order in which they joined."""

    def get_state(self) -> bytes:
        """Return the whole state, for a new member."""
        return b""

    def set_state(self, state: bytes) -> None:
        """Replace the state by that of another member, as its `get_state` returned it."""


class GroupAdministrator(Closing):
    """The member's side of one group: creates and destroys it, and adds and removes members of this
    program. Closing it removes those, too."""

    def __init__(self, ctx: antiphon.Context, group: str) -> None:
        self.group = group
        self._ctx = ctx
        self._members: list[tuple[Groupable, Host]] = []

    def create_group(self, remove_after: float | None = REMOVE_AFTER_S) -> None:
        """Create the group, whose failed members are removed after so many seconds. Raise
        `IllegalStateError` if it exists with another number."""
        self._ctx.create_group(self.group, remove_after=remove_after)

    def destroy_group(self) -> None:
        """Remove all members, of other programs too."""
        self._ctx.delete_group(self.group, force=True)

    def join_group(
        self, member: Groupable, semantics: InterfaceSemantics | None = None, *, name: str = ""
    ) -> str:
        """Add a member, and return its name, which is chosen for it if it is not given. Return when
        it has the state of the group.

        Raise `IllegalStateError` if the group has other semantics, or a live member of this name,
        and `ConnectionLostError` if all members that had the state have failed meanwhile."""
        block = _Member(member, semantics or {})
        host = Host(self._ctx, self.group, block, name=name or None)
        self._members.append((member, host))
        return host.name

    def leave_group(self, member: Groupable) -> None:
        """Remove a member that this object has added. Raise `IllegalStateError` if it has not."""
        found = [entry for entry in self._members if entry[0] is member]
        if not found:
            raise IllegalStateError(f"{member!r} was not added to {self.group} here")
        for entry in found:
            self._members.remove(entry)
            entry[1].close()

    def close(self) -> None:
        """Remove the members that this object has added. Closing twice is no error."""
        while self._members:
            self._members.pop()[1].close()


class GroupAccessor(Closing):
    """The client's side of one group, for programs that need not be members."""

    def __init__(self, ctx: antiphon.Context, group: str) -> None:
        self._client = GroupClient(ctx, group)

    def multicast(
        self,
        msg: Any,
        replies: NumReplies = NumReplies.ALL,
        semantics: Semantics = Semantics.TOTAL_ORDER,
        timeout: float | None = TIMEOUT_S,
    ) -> list[Any]:
        """Have all members `deliver` a message, and return as many replies as wanted, or some more.
        The reply of a member that raised is that exception.

        Raise `TooFewRepliesError`, with the replies that came, if they are too few in time,
        `OutcomeUnknownError` if the servers did not take the message in time, `IllegalStateError`
        if this is closed, and `MessageFormatError` if the message cannot be sent."""
        return list(self._call((DELIVER, msg), replies, semantics, timeout).values())

    def get_view(self, timeout: float | None = TIMEOUT_S) -> antiphon.View:
        """Return a view of the group, which may have a newer one already. Raise
        `TooFewRepliesError` if no member replies in time."""
        view_id, members = first_of(self._client.call((VIEW,), FIRST, timeout))
        return antiphon.View(view_id, members)

    def reference(self, *, transparent: bool = True, timeout: float | None = TIMEOUT_S) -> Any:
        """Return the group as one object: its methods are the operations of all members, with the
        semantics that the members joined with.

        A transparent one waits for the replies that an operation's semantics want, and returns the
        first, or raises what was raised there; with `ONEWAY` and `ZERO` it returns None. One that
        is not transparent returns the list of all. Raise the errors of `multicast`."""
        plain = first_of(self._client.call((SEMANTICS,), FIRST, timeout))
        return _Reference(self._call, _semantics_of(plain), transparent, timeout)

    def close(self) -> None:
        """Close the client: waiting calls raise `TooFewRepliesError`, later ones
        `IllegalStateError`. Closing twice is no error."""
        self._client.close()

    def _call(
        self, body: Any, replies: NumReplies, semantics: Semantics, timeout: float | None
    ) -> dict[str, Any]:
        Semantics(semantics)
        if NumReplies(replies) is NumReplies.ONEWAY:
            self._client.cast(body)
            return {}
        return self._client.call(body, WAITED_FOR[replies], timeout)


WAITED_FOR: dict[NumReplies, Replies] = {
    NumReplies.ZERO: NONE,
    NumReplies.ONE: FIRST,
    NumReplies.MAJORITY: MAJORITY,
    NumReplies.ALL: ALL,
}
DELIVER, INVOKE, VIEW, SEMANTICS = "deliver", "invoke", "view", "semantics"
"""The kinds of calls to a member: the first field of their bodies."""


class _Reference:
    """Stands for the objects of a group."""

    def __init__(
        self,
        call: Callable[[Any, NumReplies, Semantics, float | None], dict[str, Any]],
        semantics: InterfaceSemantics,
        transparent: bool,
        timeout: float | None,
    ) -> None:
        self._call, self._semantics = call, semantics
        self._transparent, self._timeout = transparent, timeout

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        check_public(operation)
        wanted = self._semantics.get(operation, OperationSemantics())

        def call(*args: Any, **named: Any) -> Any:
            body = (INVOKE, operation, args, named)
            replies = self._call(body, wanted.replies, wanted.semantics, self._timeout)
            if self._transparent:
                return first_of(replies) if replies else None
            return list(replies.values())

        return call


class _Member(Responder):
    """A member as a block: its calls one after the other, its state for those that join."""

    def __init__(self, member: Groupable, semantics: InterfaceSemantics) -> None:
        super().__init__(self._handle)
        self._member = member
        self._semantics = _plain(semantics)
        self._view = antiphon.View(0, ())

    @property
    def title(self) -> str:
        return f"an object group of {type(self._member).__name__}"

    def viewed(self, view: antiphon.View, now: float) -> Effects:
        self._view = view
        self._member.view_change(view)
        yield from super().viewed(view, now)

    def _handle(self, message: Heard) -> Any:
        match message.body:
            case (str(kind), msg) if kind == DELIVER:
                return self._member.deliver(msg)
            case (str(kind), str(operation), tuple(args), dict(named)) if kind == INVOKE:
                if operation in vars(Groupable):
                    raise AttributeError(f"{operation!r} is not an operation of the interface")
                return invoke(self._member, message._replace(body=(operation, args, named)))
            case (str(kind),) if kind == VIEW:
                return self._view.id, self._view.members
            case (str(kind),) if kind == SEMANTICS:
                return self._semantics
        raise TypeError("not a call to an object group")

    def snapshot(self) -> bytes:
        return json.dumps(self._semantics).encode() + b"\n" + self._member.get_state()

    def restore(self, data: bytes) -> None:
        """Take over the state of another member. Raise `FormatError` if that is not a state, and
        `ValueError` if it is that of a group with other semantics."""
        head, line, state = data.partition(b"\n")
        if not line:
            raise FormatError("no state of an object group")
        if json.loads(head) != self._semantics:
            raise ValueError("its members have joined with other semantics")
        self._member.set_state(state)


def _plain(semantics: InterfaceSemantics) -> dict[str, list[str]]:
    wanted = {name: OperationSemantics(*given) for name, given in semantics.items()}
    return {
        name: [NumReplies(replies).value, Semantics(order).value]
        for name, (replies, order) in wanted.items()
    }


def _semantics_of(plain: Mapping[str, Any]) -> dict[str, OperationSemantics]:
    return {
        name: OperationSemantics(NumReplies(replies), Semantics(order))
        for name, (replies, order) in plain.items()
    }
