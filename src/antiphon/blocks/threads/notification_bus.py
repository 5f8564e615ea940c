"""A notification bus with threads.

@dataclass
class Fire:
    floor: int

with NotificationBus(ctx, "alarms", Fire) as bus:
    bus.subscribe(Fire, lambda fire: print("fire on floor", fire.floor))
    bus.publish(Fire(floor=4))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import antiphon
from antiphon.blocks.operations import notification_bus
from antiphon.blocks.operations.notification_bus import AnyEvent
from antiphon.blocks.pure.scripts import run
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.front import Blocking


class NotificationBus(Blocking, notification_bus.NotificationBus):
    __doc__ = notification_bus.NotificationBus.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        *kinds: type,
        name: str | None = None,
    ) -> None:
        super().__init__(ctx, group, kinds, name)
        run(self._opening())

    def publish(self, event: Any) -> None:
        run(self._publishing(event))

    def subscribe(self, kind: type[AnyEvent], call: Callable[[AnyEvent], object]) -> None:
        run(self._subscribing(kind, call))

    def close(self) -> None:
        run(self._closing())
