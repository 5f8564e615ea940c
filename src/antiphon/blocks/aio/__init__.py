"""The building blocks for programs with asyncio: the names of `antiphon.blocks`, to be awaited.

Each takes a context of `antiphon.aio`. Await it, or enter it, to open it:

    dispatcher = await aio.MessageDispatcher(ctx, "group", handler)
    async with aio.MessageDispatcher(ctx, "group", handler) as dispatcher: ...

Calls that talk to a server or wait are coroutines, `close` too; those that only read this process'
own copy are plain. Handlers may be plain functions or `async def`.

Promises: all code runs on the event loop that opened the block, without threads. A call that is
cancelled while it waits leaves nothing behind. A call raises when it would wait for nothing: the
block is closed, removed from the group, or disconnected for good.
"""

from antiphon._names import adopt
from antiphon.blocks.aio.coordination import Barrier, Counter, LeaderElection, Lock, Semaphore
from antiphon.blocks.aio.dispatchers import (
    GroupClient,
    MessageDispatcher,
    RpcClient,
    RpcDispatcher,
)
from antiphon.blocks.aio.notification_bus import NotificationBus
from antiphon.blocks.aio.replica import Replica, ServiceClient
from antiphon.blocks.aio.table import ReplicatedTable

__all__ = [
    "Barrier",
    "Counter",
    "GroupClient",
    "LeaderElection",
    "Lock",
    "MessageDispatcher",
    "NotificationBus",
    "Replica",
    "ReplicatedTable",
    "RpcClient",
    "RpcDispatcher",
    "Semaphore",
    "ServiceClient",
]

adopt(__name__, __all__)
