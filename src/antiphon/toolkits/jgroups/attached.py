"""Building blocks on a channel: open while it is connected."""

from __future__ import annotations

from typing import Any, ClassVar

from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.errors import IllegalStateError
from antiphon.toolkits.jgroups.channel import JChannel
from antiphon.toolkits.jgroups.views import View


class AttachedBlock:
    """The common part of building blocks: a block of `antiphon.blocks`, made anew for each
    connection of the channel."""

    has_state: ClassVar[bool]

    def __init__(self, channel: JChannel) -> None:
        self.channel = channel
        self._opened: Any = None
        channel.attach(self)

    def opened(self, place: ChannelPlace, cluster: str) -> None:
        """Note that the channel is connected."""
        self._opened = self._made(place, cluster)

    def closed(self) -> None:
        """Note that the channel is not connected any more."""
        block, self._opened = self._opened, None
        if block is not None:
            block.close()

    def viewed(self, view: View) -> None:
        """Note that the channel has a new view."""

    def _made(self, place: ChannelPlace, cluster: str) -> Any:
        """Return the block, opened."""
        raise NotImplementedError

    @property
    def _block(self) -> Any:
        if self._opened is None:
            raise IllegalStateError("the channel is not connected")
        return self._opened
