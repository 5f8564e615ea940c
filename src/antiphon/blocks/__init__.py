"""Building blocks above groups: calls to a group, replicated services, locks, tables, elections.

Each is a pure class over the events of a group's member (`pure/block.py`), with its public calls as
scripts (`operations`), and two fronts that only wait: for threads and for asyncio
(`antiphon.blocks.aio`).
"""

from antiphon._names import adopt
from antiphon.blocks import aio
from antiphon.blocks.errors import RefusedError, TooFewRepliesError
from antiphon.blocks.pure.calls import ALL, FIRST, MAJORITY, NONE
from antiphon.blocks.pure.invocation import Target
from antiphon.blocks.pure.passive import Invocation, Kind
from antiphon.blocks.pure.service import ReplicatedService
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.coordination import Barrier, Counter, LeaderElection, Lock, Semaphore
from antiphon.blocks.threads.dispatchers import (
    GroupClient,
    MessageDispatcher,
    RpcClient,
    RpcDispatcher,
)
from antiphon.blocks.threads.notification_bus import NotificationBus
from antiphon.blocks.threads.replica import Replica, ServiceClient
from antiphon.blocks.threads.table import ReplicatedTable
from antiphon.model.exceptions import RemoteError

__all__ = [
    "ALL",
    "FIRST",
    "MAJORITY",
    "NONE",
    "Barrier",
    "ChannelPlace",
    "Counter",
    "GroupClient",
    "Invocation",
    "Kind",
    "LeaderElection",
    "Lock",
    "MessageDispatcher",
    "NotificationBus",
    "RefusedError",
    "RemoteError",
    "Replica",
    "ReplicatedService",
    "ReplicatedTable",
    "RpcClient",
    "RpcDispatcher",
    "Semaphore",
    "ServiceClient",
    "Target",
    "TooFewRepliesError",
    "aio",
]

adopt(__name__, __all__)
