"""The building blocks for programs with asyncio: the names of `antiphon.blocks`, to be awaited.

Each takes a context of `antiphon.aio`, and is opened by being awaited or entered:

    dispatcher = await aio.MessageDispatcher(ctx, "group", handler)
    async with aio.MessageDispatcher(ctx, "group", handler) as dispatcher: ...

What talks to a server or waits is a coroutine, `close` too; what only looks at this process' own
copy is a plain call. Handlers may be plain functions or `async def`.

Promises: everything runs on the event loop that opened it, without threads. A call that is
cancelled while it waits leaves nothing behind. A caller that can wait for nothing any more gets an
error: closed, removed from the group, disconnected for good.
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
