"""Building blocks above groups: calls to a group, replicated services, and what is made of them.

Each is a pure class over what a member of a group gets (`block.py`), with a front that runs it with
threads and one with asyncio; and little enough code to be read, and written anew, by a user.
"""

from antiphon.blocks import aio
from antiphon.blocks.calls import ALL, FIRST, MAJORITY, NONE
from antiphon.blocks.coordinating import Barrier, Counter, LeaderElection, Lock, Semaphore
from antiphon.blocks.dispatching import MessageDispatcher, RpcClient, RpcDispatcher
from antiphon.blocks.errors import RefusedError, TooFewRepliesError
from antiphon.blocks.hosting import GroupClient
from antiphon.blocks.invoking import Target
from antiphon.blocks.notifying import NotificationBus
from antiphon.blocks.passive import Invocation, Kind
from antiphon.blocks.service import ReplicatedService
from antiphon.blocks.serving import Replica, ServiceClient
from antiphon.blocks.table import ReplicatedTable
from antiphon.model.exceptions import RemoteError

__all__ = [
    "ALL",
    "FIRST",
    "MAJORITY",
    "NONE",
    "Barrier",
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
