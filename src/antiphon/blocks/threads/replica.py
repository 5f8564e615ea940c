"""Replicated services with threads.

with Replica(ctx, "counter", Counter()) as counter:     # in each of some processes
    print(counter.call(5))

with ServiceClient(ctx, "counter") as counter:          # in any other
    print(counter.call(5))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import antiphon
from antiphon.blocks.operations import replica
from antiphon.blocks.operations.host import TIMEOUT_S
from antiphon.blocks.pure.invocation import Target
from antiphon.blocks.pure.scripts import run
from antiphon.blocks.pure.service_block import AnyService
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.front import Blocking


class Replica(Blocking, replica.Replica[AnyService]):
    __doc__ = replica.Replica.__doc__

    def __init__(
        self,
        ctx: antiphon.Context | ChannelPlace,
        group: antiphon.Topic | str,
        service: AnyService,
        *,
        name: str | None = None,
        passive: bool = False,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(service.apply):
            raise TypeError("apply is a coroutine: such a service needs antiphon.blocks.aio")
        self._set_up(ctx, group, service, name, passive, targets)
        run(self._opening())

    def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return run(self._calling(command, timeout))

    def post(self, command: Any) -> None:
        run(self._posting(command))

    def wait_until(self, what: Callable[[AnyService], Any], timeout: float | None = None) -> Any:
        return run(self._waiting_until(what, timeout))

    def close(self) -> None:
        run(self._closing())


class ServiceClient(Blocking, replica.ServiceClient):
    __doc__ = replica.ServiceClient.__doc__

    def __init__(self, ctx: antiphon.Context | ChannelPlace, group: antiphon.Topic | str) -> None:
        super().__init__(ctx, group)
        run(self._opening())

    def call(self, command: Any, timeout: float | None = TIMEOUT_S) -> Any:
        return run(self._calling(command, timeout))

    def close(self) -> None:
        run(self._closing())
