"""The messages about groups between clients and servers: joining, events, and states on their way.

A `GroupEvent` stands at one place between the group's messages, the same for every member. A state
goes from member to member through their servers, beside the log; only that it was asked for, and
that it arrived, are in the log. The machine and its snapshots store `GroupEvent`: a change of it is
a change of the snapshot's format.
"""

from __future__ import annotations

import msgspec


class CreateGroup(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The answer's `value` is the group's view, its `data` the conflict relation as JSON."""

    destination: str
    relation: str = ""  # JSON; empty: as the group has it, or the default
    remove_after_ms: int = -1  # 0: never; -1: as the group has it, or the default


class Join(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """The answer's `value` is the group's view, its `data` the member's name and the conflict
    relation as JSON, the members, and whether a state comes first, in msgpack."""

    consumer: int
    destination: str
    prefetch: int
    name: str = ""  # empty: the server makes one
    durable: bool = False
    provides: bool = False  # can hand out the state to others
    takes_state: bool = True  # wants the state of those who were there before
    # The options of the group, if it has none yet; as in `CreateGroup`.
    relation: str = ""
    remove_after_ms: int = -1


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A member leaves its group, also a durable one; its consumer is closed."""

    consumer: int


class AskState(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A member that waits for its state: request `serial` failed, ask another member. A request
    that is no longer the last one changes nothing."""

    consumer: int
    serial: int
    raised: bool = False  # the provider said that it cannot: do not ask that one again


class StateDone(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """A member has the whole state of request `serial`. The answer's `value` is 1; 0: there is a
    newer request, and this state is too old for the messages that will follow."""

    consumer: int
    serial: int


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """Remove all members of a group, durable ones too, with one view, and forget it. With live
    members it is refused, unless by force."""

    destination: str
    force: bool = False


VIEW, SUSPICION, RELATION, STATE = 1, 2, 3, 4
"""`STATE`: a member takes over the state as of this place. Only these two members get it."""


class GroupEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event of a group; it stands after the message at `position` and before the next one, for
    every member."""

    serial: int  # 1, 2, 3... in the group
    position: int
    kind: int
    view: int  # the number of the view from here on
    members: tuple[str, ...] = ()  # of that view, in the order in which they joined
    # VIEW: who joined; SUSPICION: who is suspected now; STATE: who takes it over
    came: tuple[str, ...] = ()
    # VIEW: who left; SUSPICION: who no longer is; STATE: who hands it out, and gets this
    went: tuple[str, ...] = ()
    relation: str = ""  # RELATION: the new one, as JSON


class Happened(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """A group event, for one consumer that is a member."""

    consumer: int
    event: GroupEvent


STATE_CHUNK_MAX = 64 << 10

STATE_WINDOW = 16
"""Chunks of a state that are on their way, from the member that hands it out to the one that takes
it: as much as any process holds of it, however large it is."""


class StateComes(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """To a member that waits for its state: this event asks for it. Chunks of an earlier request
    are void."""

    consumer: int
    serial: int
    position: int  # the cut: everything up to here is in it
    provider: str  # the member that was asked; empty: none has a state


class StateChunk(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """A piece of the state that was asked for with the group event `serial`. `consumer` is the
    sender's own number from a client, the receiver's own from a server; as in those below."""

    consumer: int
    serial: int
    seq: int  # 1, 2, 3...; at most `STATE_WINDOW` beyond the last one taken
    data: bytes
    last: bool


class StateTaken(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """Chunks up to `seq` have been taken: there is room for more."""

    consumer: int
    serial: int
    seq: int


class StateFailed(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """The member that was asked cannot hand out its state."""

    consumer: int
    serial: int
    reason: str


class StateStopped(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """From a server: no member waits for this state any more."""

    consumer: int
    serial: int


Relayed = StateChunk | StateTaken | StateFailed
