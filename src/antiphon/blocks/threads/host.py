"""A host for blocks of one's own, with threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import antiphon
from antiphon.blocks.operations.hosted import OwnBlock
from antiphon.blocks.pure.block import Block, Effects
from antiphon.blocks.pure.scripts import run
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.front import Blocking


class Host(Blocking, OwnBlock):
    __doc__ = OwnBlock.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        block: Block,
        *,
        name: str | None = None,
        durable: bool = False,
        told: Callable[[Any], object] = lambda _: None,
        begins_anew: bool = False,
    ) -> None:
        super().__init__(ctx, group, block, name, durable, told, begins_anew)
        run(self._opening())

    def wait_until(self, what: Callable[[Any], Any], timeout: float | None = None) -> Any:
        return run(self._host.waiting_until(what, timeout))

    def submit(self, what: Any, body: Any, timeout: float | None) -> Any:
        return run(self._host.submitting(what, body, timeout))

    def multicast(self, body: Any, timeout: float | None = None) -> None:
        run(self._host.multicasting(body, timeout))

    def cast(self, body: Any) -> None:
        run(self._host.casting(body))

    def feed(self, what: Callable[[Any], Effects]) -> None:
        run(self._host.feeding(what))

    def close(self) -> None:
        run(self._closing())
