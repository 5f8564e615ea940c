"""JGroups: group communication in Java, by its names (JGroups 5; `receive` and `suspect` as in
version 2, which books describe).

JGroups promises what its stack has protocols for: messages arrive, in their sender's order, or with
SEQUENCER in one order; views, of which each part of a network has its own and which merge; a state
for those who join. It promises no virtual synchrony, no causal order since 2010, no uniformity, and
does not tell which part has the majority.

What maps to what: a `JChannel` is a `peers.Channel`, with its protocols mapped to layers
(`protocols.py`): every transport is TCP; GMS, the MERGE and FD protocols are `Detector` and
`Membership`, whose leader is the oldest member; NAKACK, UNICAST and STABLE are `Reliable`; UFC and
MFC `Flow`; FRAG `Fragment`; CAUSAL `Causal`; SEQUENCER `Causal` and `Total`; RSVP `Safe`. Virtual
synchrony (FLUSH) is always on. The dispatchers, the bus and the map are the blocks of
`antiphon.blocks`, on a channel. An address is the name of a member, times are seconds, and methods
that read are properties where Java has none.

Left out on purpose: UDP and IP multicast, AUTH and the ENCRYPT protocols (`tls=` of `JChannel`),
RELAY and FORK, locks, executors and counters (`antiphon.blocks` has them), and protocols of one's
own, which are layers here.
"""

from antiphon._names import adopt
from antiphon.toolkits.jgroups.channel import JChannel, Receiver, SuspectEvent
from antiphon.toolkits.jgroups.dispatchers import (
    GET_ALL,
    GET_FIRST,
    GET_MAJORITY,
    GET_NONE,
    MessageDispatcher,
    RequestOptions,
    RpcDispatcher,
    RspList,
)
from antiphon.toolkits.jgroups.messages import (
    BytesMessage,
    EmptyMessage,
    Flag,
    Message,
    ObjectMessage,
)
from antiphon.toolkits.jgroups.protocols import Protocol
from antiphon.toolkits.jgroups.replicated import Consumer, NotificationBus, ReplicatedHashMap
from antiphon.toolkits.jgroups.views import MergeView, View, ViewId

__all__ = [
    "GET_ALL",
    "GET_FIRST",
    "GET_MAJORITY",
    "GET_NONE",
    "BytesMessage",
    "Consumer",
    "EmptyMessage",
    "Flag",
    "JChannel",
    "MergeView",
    "Message",
    "MessageDispatcher",
    "NotificationBus",
    "ObjectMessage",
    "Protocol",
    "Receiver",
    "ReplicatedHashMap",
    "RequestOptions",
    "RpcDispatcher",
    "RspList",
    "SuspectEvent",
    "View",
    "ViewId",
]

adopt(__name__, __all__)

LEFT_OUT = {
    "Protocol.up": "a protocol of one's own is a layer: a subclass of `peers.layers.layer.Layer`, "
    "in a `peers.Stack` that `JChannel` takes (docs/peers.md)",
    "Protocol.down": "a protocol of one's own is a layer, as for `Protocol.up`",
}
