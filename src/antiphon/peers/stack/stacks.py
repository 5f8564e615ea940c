"""Ready-made stacks, for most programs. Each is made anew for a group: who founds it, who leads it,
and whether members that are cut off see views of their own, are settings of `Membership`.

All of them have flow control, bodies of any size, detours for processes that cannot connect to each
other, and states for those who join.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.peers.layers.causal import Causal
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.detour import Detour
from antiphon.peers.layers.flow import Flow
from antiphon.peers.layers.fragment import Fragment
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.state import State
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.uniform import Uniform
from antiphon.peers.layers.views.transitional import Transitional
from antiphon.peers.membership.candidates import Lead
from antiphon.peers.membership.membership import Membership
from antiphon.peers.stack.stack import Stack
from antiphon.peers.whiteboard.whiteboard import Whiteboard


def total_uniform(
    names: Sequence[str] = (),
    lead: Lead = "hears",
    primary_partition: bool = False,
    state_counts: bool = False,
    whiteboard: bool = False,
) -> Stack:
    """Return the stack of a channel that was given none: every level, from none to safe.
    `state_counts`: only members that have taken the state over, or founded the group, count.
    `whiteboard`: each member has a number that the others can read (`Channel.put_value`).

    For replicated state that must not diverge: whatever a member has handed out in a primary view,
    every later primary view has, in the same place, even if that member is cut off the next moment.
    Messages of the levels fifo and causal skip the leader, and keep their order towards the others.
    The price: a message takes the way to the leader and from there to all, and is handed out when
    most members hold it.
    """
    order = (Uniform(), Safe(), Causal(), Total())
    board = (Whiteboard(),) if whiteboard else ()
    return _stack(names, lead, primary_partition, *order, state=State(state_counts), board=board)


def total(
    names: Sequence[str] = (), lead: Lead = "hears", primary_partition: bool = False
) -> Stack:
    """Return a stack with one order of all messages, each handed out as it comes.

    As the total order of JGroups is. For members that may lose with a crash, or a cut, what they
    had handed out last: the others may go on without it. Among three members it saves the leader
    one wait, among more each member one.
    """
    return _stack(names, lead, primary_partition, Causal(), Total())


def causal(
    names: Sequence[str] = (), lead: Lead = "hears", primary_partition: bool = False
) -> Stack:
    """Return a stack in which answers follow questions, without a leader that orders.

    For discussions, presence, caches that are invalidated: a message goes straight to all, and
    waits only for those that its sender knew. Members hand out unrelated messages in orders of
    their own, so they must not build one state from them.
    """
    return _stack(names, lead, primary_partition, Causal())


def fifo(names: Sequence[str] = (), lead: Lead = "hears", primary_partition: bool = False) -> Stack:
    """Return the fastest stack: each member's messages in the order in which it sent them.

    For streams that do not refer to each other: measurements, logs, one writer for each thing.
    """
    return _stack(names, lead, primary_partition)


def _stack(
    names: Sequence[str],
    lead: Lead,
    primary_partition: bool,
    *order: Layer,
    state: State | None = None,
    board: tuple[Whiteboard, ...] = (),
) -> Stack:
    return Stack(
        Detour(),
        Fragment(),
        *board,
        Reliable(),
        Flow(),
        Detector(),
        Membership(names, lead, primary_partition),
        *order,
        state or State(),
    )


def transitional(stack: Stack) -> Stack:
    """Return this stack with transitional views; it is one with a `Membership`."""
    at = next(i for i, layer in enumerate(stack.layers) if isinstance(layer, Membership)) + 1
    return Stack(*stack.layers[:at], Transitional(), *stack.layers[at:])


def founded_by(stack: Stack, names: Sequence[str]) -> Stack:
    """Return this stack, with these as those who found the group together, by their names or
    addresses; unless its `Membership` names others."""
    return Stack(*(_founded_by(layer, names) for layer in stack.layers))


def _founded_by(layer: Layer, names: Sequence[str]) -> Layer:
    if not isinstance(layer, Membership) or layer.options()["names"]:
        return layer
    return Membership(**{**layer.options(), "names": tuple(names)})


TOTAL_UNIFORM = total_uniform()
TOTAL = total()
CAUSAL = causal()
FIFO = fifo()
