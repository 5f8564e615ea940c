"""Antiphon for programs with asyncio: the names of `antiphon`, to be awaited.

The public names, re-exported; nothing else lives here.
"""

from antiphon.api.aio import Consumer, Context, Opening, Producer, SendFuture, connect

__all__ = ["Consumer", "Context", "Opening", "Producer", "SendFuture", "connect"]
