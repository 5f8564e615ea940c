"""Channels: processes that run the protocols of a group themselves, without a server.

A channel is a process's place in a cluster, over a stack of layers, which says what the channel
promises: `TOTAL_UNIFORM`, `TOTAL`, `CAUSAL`, `FIFO`, the same with settings (`total_uniform()` and
so on), or one of your own. `antiphon.peers.aio` has the same for asyncio.
"""

from antiphon._names import adopt
from antiphon.io.peers.security import Tls
from antiphon.model.peer_views import Level, MemberId
from antiphon.peers import aio
from antiphon.peers.channel.views import View
from antiphon.peers.stack.stack import Stack
from antiphon.peers.stack.stacks import (
    CAUSAL,
    FIFO,
    TOTAL,
    TOTAL_UNIFORM,
    causal,
    fifo,
    total,
    total_uniform,
)
from antiphon.peers.sync import Channel

__all__ = [
    "CAUSAL",
    "FIFO",
    "TOTAL",
    "TOTAL_UNIFORM",
    "Channel",
    "Level",
    "MemberId",
    "Stack",
    "Tls",
    "View",
    "aio",
    "causal",
    "fifo",
    "total",
    "total_uniform",
]

adopt(__name__, __all__)
