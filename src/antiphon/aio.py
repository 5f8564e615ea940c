"""Antiphon for programs with asyncio: the names of `antiphon`, to be awaited.

    async with antiphon.aio.connect("embedded:") as ctx:
        queue = ctx.create_queue("work")
        await ctx.create_producer().send(queue, "hello")
        async with ctx.create_consumer(queue) as consumer:
            print((await consumer.receive()).text)

Calls that talk to a server are awaited; those that open something can be entered with `async with`.
Messages, destinations, modes and errors are those of `antiphon`.
"""

from antiphon._names import adopt
from antiphon.api.aio import (
    Browser,
    Consumer,
    Context,
    Member,
    Opening,
    Producer,
    SendFuture,
    connect,
)

__all__ = [
    "Browser",
    "Consumer",
    "Context",
    "Member",
    "Opening",
    "Producer",
    "SendFuture",
    "connect",
]

adopt(__name__, __all__)
