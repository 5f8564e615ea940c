"""Waiting with threads: a step blocks the thread that takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from antiphon.blocks.operations.front import Deadline, Front
from antiphon.blocks.operations.opened import Opened
from antiphon.blocks.pure import scripts
from antiphon.blocks.pure.port import CallerPort, Port
from antiphon.blocks.pure.scripts import Script
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.ports import MemberPort, ReplyPort

LOOK_S = 1.0
"""Seconds between a waiting caller's checks whether its connection still exists, for no call
reports that."""

Self = TypeVar("Self", bound="Blocking")


class Watch:
    """A condition, for the value that it guards."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def __enter__(self) -> Any:
        return self._changed.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._changed.__exit__(*error)

    def notify(self) -> None:
        self._changed.notify_all()

    def until(self, what: Callable[[], object], deadline: Deadline) -> None:
        with self._changed:
            while not what():
                left = deadline.left()
                if left == 0:
                    return
                self._changed.wait(LOOK_S if left is None else min(left, LOOK_S))


class Pending:
    """A value that another thread sets."""

    def __init__(self) -> None:
        self.value: Any = None
        self._is_set = False
        self._event = threading.Event()

    def set(self, value: Any) -> None:
        if not self._is_set:
            self.value, self._is_set = value, True
            self._event.set()

    def wake(self) -> None:
        self._event.set()

    def wait(self, is_over: Callable[[], object], deadline: Deadline) -> bool:
        while not self._event.is_set() and not is_over():
            left = deadline.left()
            if left == 0:
                break
            self._event.wait(LOOK_S if left is None else min(left, LOOK_S))
        return self._is_set


class Workers:
    """A thread for each name, which begins with the first script."""

    def __init__(self, names: Iterable[str]) -> None:
        self._closing = threading.Event()
        self._threads = {
            name: ThreadPoolExecutor(1, thread_name_prefix="antiphon-target") for name in names
        }

    @property
    def stopped(self) -> bool:
        return self._closing.is_set()

    def start(self, name: str, script: Script[None]) -> None:
        self._threads[name].submit(scripts.run, script)

    def pause(self, seconds: float) -> bool:
        return self._closing.wait(seconds)

    def hold(self, seconds: float) -> bool:
        return self._closing.wait(seconds)

    def stop(self) -> None:
        self._closing.set()

    def shut(self) -> None:
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)


class _Threads:
    run = staticmethod(scripts.run)
    owner = staticmethod(threading.get_ident)
    watch = Watch
    pending = Pending
    lock = threading.Lock
    workers = Workers

    def port(self, ctx: Any, group: Any, name: str | None, durable: bool) -> Port:
        if isinstance(ctx, ChannelPlace):
            return ctx.port(group, name, durable)
        return MemberPort(ctx, group, name, durable)

    def caller_port(self, ctx: Any, group: Any) -> CallerPort:
        if isinstance(ctx, ChannelPlace):
            return ctx.caller_port(group)
        return ReplyPort(ctx, group)

    def program(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return function

    def work(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


FRONT: Front = _Threads()


class Blocking(Opened):
    """A block that is open as soon as it is made; the end of its `with` block closes it."""

    _front = FRONT

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
