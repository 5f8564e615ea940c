"""Ports that are no members: a group in the memory of one thread, whose order is a list.

It keeps the promises of `blocks/pure/port.py` and nothing else, so a block that runs here needs no
more of a group than these say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from antiphon.blocks.pure.block import Heard, Reply, Whole
from antiphon.blocks.pure.port import (
    Arrived,
    Event,
    Handle,
    Installed,
    Provide,
    Replied,
    Suspected,
)
from antiphon.blocks.pure.scripts import Script, run
from antiphon.blocks.threads.front import FRONT
from antiphon.errors import IllegalStateError, MessageFormatError
from antiphon.model.views import View

UNOPENED = "it is not open"


class LocalGroup:
    """A group: its order, and the places in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ports: list[LocalPort] = []
        self._view = View(0, ())
        self._position = 0
        self._waiting: list[Callable[[], None]] = []  # events on their way to their ports
        self._delivering = False

    def join(self, port: LocalPort) -> bytes | None:
        """Return the state of the oldest place that has one."""
        state = next((p.provide() for p in self.ports if p.provide is not None), None)
        self.ports.append(port)
        self._install()
        return state

    def leave(self, port: LocalPort) -> None:
        if port in self.ports:
            self.ports.remove(port)
            self._install(port)

    def remove(self, names: tuple[str, ...]) -> None:
        gone = [port for port in self.ports if port.name in names]
        self.ports = [port for port in self.ports if port not in gone]
        self._install(*gone)

    def suspect(self, name: str) -> None:
        self.order(partial(Suspected, suspects=(name,), withdrawn=()))

    def order(self, event: Callable[[int], Event], *also: LocalPort) -> None:
        """Give an event the next place in the order, and deliver all that waits."""
        self._position += 1
        happens = event(self._position)
        self._waiting += (partial(port.take, happens) for port in (*self.ports, *also))
        self.deliver()

    def send(self, body: Any, call: str = "", reply_to: Any = None, properties: Any = None) -> None:
        members = self._view.members
        body = body.value if isinstance(body, Whole) else body
        heard = Heard(body, reply_to, call, properties or {}, members)
        self.order(lambda position: Arrived(position, heard._replace(position=position)))

    def soon(self, happens: Callable[[], None]) -> None:
        self._waiting.append(happens)
        self.deliver()

    def deliver(self) -> None:
        """A handler that sends something gets to it when it has ended."""
        if not self._delivering:
            self._delivering = True
            try:
                while self._waiting:
                    self._waiting.pop(0)()
            finally:
                self._delivering = False

    def _install(self, *gone: LocalPort) -> None:
        view = self._view = View(self._view.id + 1, tuple(port.name for port in self.ports))
        self.order(lambda position: Installed(position, (view,)), *gone)


class LocalPort:
    """A place in a local group."""

    def __init__(self, group: LocalGroup, name: str) -> None:
        self.group = group.name
        self.name = name
        self.view = View(0, ())
        self.provide: Provide | None = None
        self._place = group
        self._over = UNOPENED
        self._missed: list[Event] = []  # before there was a handler
        self._handle: Handle | None = None
        self._state: bytes | None = None

    def why_over(self) -> str:
        return self._over

    def is_lost(self) -> bool:
        return False

    def end(self, why: str) -> None:
        self._over = self._over or why
        self._ended()

    def open(self, provide: Provide | None, ended: Callable[[], None]) -> None:
        self.provide, self._ended = provide, ended
        self._state = self._place.join(self)

    def initial_state(self) -> bytes | None:
        return self._state

    def deliver(self, handle: Handle) -> None:
        self._over, self._handle = "", handle
        missed, self._missed = self._missed, []
        for event in missed:
            self._place.soon(partial(self.take, event))

    def take(self, event: Event) -> None:
        if isinstance(event, Installed):
            self.view = event.views[-1]
        if self._handle is None:
            self._missed.append(event)
        elif not self._over:
            run(self._handle(event))

    def multicast(self, body: Any, timeout: float | None) -> None:
        self.cast(body)

    def cast(self, body: Any, properties: Any = None) -> None:
        if self._over:
            raise IllegalStateError(f"it cannot be used: {self._over}")
        self._place.send(body, properties=properties)

    def reply(self, reply: Reply) -> None:
        if callable(reply.body):
            raise MessageFormatError("a function does not travel")
        self._place.soon(partial(reply.to, Replied(reply.call, reply.properties, reply.body)))

    def remove(self, *members: str) -> None:
        self._place.remove(members)

    def close(self) -> None:
        self.end("it was closed")
        self._place.leave(self)


class Done:
    """What was sent is there at once."""

    def done(self) -> bool:
        return True

    def exception(self) -> None:
        return None


class LocalCallerPort:
    """An address for the replies of a local group."""

    def __init__(self, group: LocalGroup) -> None:
        self.group = group
        self._over = UNOPENED

    def check(self) -> None:
        if self._over:
            raise IllegalStateError(f"it cannot be used: {self._over}")

    def why_over(self) -> str:
        return self._over

    def open(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def deliver(self, handle: Callable[[Replied], Script[None]]) -> None:
        self._over = ""
        self._take = lambda reply: run(handle(reply))

    def multicast(self, body: Any, properties: Any, timeout: float | None) -> None:
        self.group.send(body, properties=properties)

    def cast(self, body: Any, properties: Any) -> None:
        self.group.send(body, properties=properties)

    def ask(self, number: str, body: Any, properties: Any) -> Done:
        self.group.send(body, number, self._take, properties)
        return Done()

    def acknowledged(self, sent: Done, timeout: float | None) -> None:
        pass

    def close(self) -> None:
        self._over = self._over or "it was closed"
        self._ended()


class LocalFront(type(FRONT)):  # type: ignore[misc]
    """Waits as threads do; a context is a dict of local groups."""

    def port(self, ctx: Any, group: str, name: str | None, durable: bool) -> LocalPort:
        place = ctx.setdefault(group, LocalGroup(group))
        return LocalPort(place, name or f"m{len(place.ports) + 1}")

    def caller_port(self, ctx: Any, group: str) -> LocalCallerPort:
        return LocalCallerPort(ctx.setdefault(group, LocalGroup(group)))


def local(block: type) -> Any:
    """Return a class of blocks over local ports in place of members."""
    return type(block.__name__, (block,), {"_front": LocalFront()})
