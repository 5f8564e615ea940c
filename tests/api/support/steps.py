"""Steps that the tests of the API have in common: sending, receiving, waiting until it is so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Queue as Results
from typing import Any

from antiphon import SessionMode
from antiphon.errors import InvalidClientIDError
from tests.api.support.fronts import PATIENCE_S

Connect = Callable[..., Any]
CLIENT = SessionMode.CLIENT_ACKNOWLEDGE
INDIVIDUAL = SessionMode.INDIVIDUAL_ACKNOWLEDGE
TRANSACTED = SessionMode.SESSION_TRANSACTED
SOON = 0.1
"""How long to wait for what must not come."""

DELIVERIES = 10
"""After so many a message goes to the dead letters, unless the servers are told otherwise."""


class FailureError(Exception):
    """What the application's own code raises."""


def received(consumer: Any) -> Any:
    message = consumer.receive(PATIENCE_S)
    assert message is not None, "no message came"
    return message


def texts(consumer: Any, count: int) -> list[str]:
    return [received(consumer).text for _ in range(count)]


def counted(consumer: Any, count: int) -> list[tuple[str, int]]:
    """The next messages, each with how often it was delivered."""
    messages = [received(consumer) for _ in range(count)]
    assert all(message.redelivered == (message.delivery_count > 1) for message in messages)
    return [(message.text, message.delivery_count) for message in messages]


def plain(wrapped: Any) -> Any:
    """The object itself, of whichever front."""
    return getattr(wrapped, "wrapped", wrapped)


def send_numbers(context: Any, destination: Any, count: int) -> list[str]:
    bodies = [str(n) for n in range(count)]
    assert context.create_producer().send_all(destination, bodies) == count
    return bodies


def send(context: Any, destination: Any, *bodies: str) -> None:
    context.create_producer().send_all(destination, bodies)


def listed(context: Any, queue: Any, selector: str | None = None) -> list[str]:
    """What a browser shows of a queue."""
    return [message.text for message in context.create_browser(queue, selector)]


def shared(context: Any, durable: bool) -> Callable[..., Any]:
    """Opens a consumer of a shared subscription."""
    create: Callable[..., Any] = (
        context.create_shared_durable_consumer if durable else context.create_shared_consumer
    )
    return create


def dead_letter(context: Any, source: Any) -> Any:
    """The next one that was sent to this destination; others may have theirs there too."""
    letters = context.create_consumer(context.create_queue("DLQ"))
    while (letter := received(letters)).destination != source:
        pass
    letters.close()
    return letter


def in_thread(call: Callable[[], Any]) -> Results[Any]:
    """What the call returns, or raises, in a thread of its own."""
    results: Results[Any] = Results()

    def run() -> None:
        try:
            results.put(call())
        except Exception as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results


def heard(results: Results[Any], count: int) -> list[Any]:
    return [results.get(timeout=PATIENCE_S) for _ in range(count)]


def until(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE_S / 0.005)):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError("it does not come about")


def until_waiting(consumer: Any) -> None:
    """Until somebody waits for a message of this consumer."""
    until(lambda: bool(inside(consumer)._bells))


def inside(consumer: Any) -> Any:
    """Return the core of a consumer, of whichever front."""
    return getattr(consumer, "_consumer", consumer)._core


def connected_soon(connect: Connect, **options: Any) -> Any:
    """As soon as the servers have noticed that the connection before is lost."""
    found: list[Any] = []

    def connected() -> bool:
        try:
            found.append(connect(**options))
        except InvalidClientIDError:
            return False
        return True

    until(connected)
    return found[0]


class Gate:
    """A listener that waits inside until it is let out."""

    def __init__(self, front: Any) -> None:
        self.entered: Results[str] = Results()
        self._front = front
        self._sync = threading.Semaphore(0)
        self._aio = asyncio.Semaphore(0)

    def listener(self, message: Any) -> Any:
        self.entered.put(message.text)
        if self._front.name == "aio":
            return asyncio.wait_for(self._aio.acquire(), PATIENCE_S)
        return self._sync.acquire(timeout=PATIENCE_S)

    def open(self) -> None:
        if self._front.name == "aio":
            self._front.loop.call_soon_threadsafe(self._aio.release)
        else:
            self._sync.release()
