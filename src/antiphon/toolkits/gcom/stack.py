"""GCom's modules as a stack of layers: five message orderings over two multicasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.peers.layers.causal import Causal
from antiphon.peers.layers.fifo import Fifo
from antiphon.peers.layers.flow import Flow
from antiphon.peers.layers.fragment import Fragment
from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.total import Total
from antiphon.peers.membership.membership import Membership
from antiphon.peers.stack.stack import Stack
from antiphon.toolkits.gcom.crashes import Crashes
from antiphon.toolkits.gcom.settings import Multicast, Ordering

PIECE_BYTES = 32 << 10
"""Larger bodies travel in pieces. A transport drops large frames for a process that does not keep
up, which `Reliable` sends again; without it the connection should rather end."""


class Described(Layer):
    """Shows the settings of the group to who asks a member for its status.

    Promise: a process that knows the address of a member can join with the settings of the group,
    without the name service. Need: nothing. Limits: frames pass.
    """

    name = "gcom"
    local = True

    def __init__(self, ordering: str, multicast: str, names: str) -> None:
        self._options = {"ordering": ordering, "multicast": multicast, "names": names}

    def options(self) -> Mapping[str, Any]:
        return self._options

    def status(self) -> Mapping[str, Any]:
        """The settings, and who leads."""
        return {**self._options, "leader": self.view.leader.name}


def stack_of(ordering: Ordering, multicast: Multicast, names: str = "") -> Stack:
    """Return the stack of a group with these settings. `names`: the address of its name service.

    The reliable multicast brings all who go on in a view to the same messages. The basic one sends,
    and no more: what a member sends while it crashes some get, and some do not; what is under way
    while members come and go may be lost, too, and a member that does not keep up is cut off.
    """
    return Stack(
        *communications(multicast),
        Crashes(),
        Membership(lead="highest"),
        Described(ordering.value, multicast.value, names),
        *order(ordering),
    )


def communications(multicast: Multicast) -> tuple[Layer, ...]:
    """Return the layers of the communications module."""
    if multicast is Multicast.BASIC:
        return (Fragment(PIECE_BYTES), InView())
    return (Fragment(), Reliable(), Flow())


def order(ordering: Ordering) -> tuple[Layer, ...]:
    """Return the layers of the message ordering module. What comes to the leader in a total order
    is numbered as it comes; in a causal-total one as it was sent."""
    match ordering:
        case Ordering.NONE:
            return ()
        case Ordering.FIFO:
            return (Fifo(),)
        case Ordering.CAUSAL:
            return (Causal(),)
        case Ordering.TOTAL:
            return (Fifo(), Total(plain=True))
        case Ordering.CAUSAL_TOTAL:
            return (Causal(), Total())
