"""GCom: a middleware for group communication, made by two students in Umeå in 2009.

GCom promises a name service for groups, members that know the present view, five message orderings
(none, FIFO, causal, total, causal-total), each over two multicasts (basic, reliable), and a leader
that lets members in, numbers the messages of the total orders, and is replaced when it crashes. A
program makes a `Management` with its `Client`, sends through the first, and is given messages by
the second.

======================= ===========================================================================
GCom                    here
======================= ===========================================================================
GNS                     `NameService`, with the file that it saves
ManagementModule        `Management`: a `peers.Channel` with the stack of the group
GroupSettings, leader   what the name service keeps (`lookup`); the leader tells it of itself
view, groupchange       `Management.view`; the layer `Membership` with the highest name as leader
membercrash             the layer `Crashes`: final, and a partition is a crash of those cut off
orderings               the layers `Fifo`, `Causal`, `Total`; plain for GCom's total order
basic multicast         `InView`: it sends to each member, and that is all
reliable multicast      `Reliable` and `Flow`: members that go on have the same messages. GCom has
                        each member pass each message on (the layer `Relay`), which is as much while
                        nobody joins, for N times the frames
======================= ===========================================================================

A partition leaves two groups. When it is over, one side joins anew: that whose leader is not the
one that `lookup` returns closes its `Management`, and makes another one.

What it does better than the original: messages do not get lost while members come and go (reliable
multicast), there is flow control (reliable multicast), members may use TLS, and a change of the
leader is known to a name service that was down at the time.

What is left out is in `LEFT_OUT`.

Rule of this room: it is the toolkit that makes a stack of its own, so it may use the layers of
channels, and their transport for its name service. `settings` and `registry` are pure.
"""

from antiphon._names import adopt
from antiphon.toolkits.gcom.management import Client, Management
from antiphon.toolkits.gcom.names import NameService, lookup
from antiphon.toolkits.gcom.settings import GroupSettings, Multicast, Ordering

UNORDERED = Ordering.NONE
FIFO = Ordering.FIFO
CAUSAL = Ordering.CAUSAL
TOTAL = Ordering.TOTAL
CAUSAL_TOTAL = Ordering.CAUSAL_TOTAL
BASIC = Multicast.BASIC
RELIABLE = Multicast.RELIABLE

LEFT_OUT = {
    "Client.send": "the program calls Management.send, as the report's own program does",
    "GroupChange": "a message of the layer Membership; programs see the view that it brings",
    "MemberCrash": "a message of the layer Crashes; programs see the view without the member",
    "MemberCrashException": "sending does not fail when a member crashes, the view changes",
    "Debugger": "the layers Tap, Hold and Shuffle watch, keep and reorder what passes",
}

__all__ = [
    "BASIC",
    "CAUSAL",
    "CAUSAL_TOTAL",
    "FIFO",
    "RELIABLE",
    "TOTAL",
    "UNORDERED",
    "Client",
    "GroupSettings",
    "Management",
    "Multicast",
    "NameService",
    "Ordering",
    "lookup",
]

adopt(__name__, __all__)
