"""The blocking front of channels: for programs with threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO, Any, Self

from antiphon.api import arguments
from antiphon.api.messages.message import Message
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.waiting.threads import Worker, run
from antiphon.io.background_loop import background_loop
from antiphon.io.peers.security import Tls
from antiphon.model.peer_views import Level, MemberId
from antiphon.peers.face import ChannelFace
from antiphon.peers.operations import ChannelCore, settings_of
from antiphon.peers.process import logger
from antiphon.peers.stack.stack import Stack


class Channel(ChannelFace):
    __doc__ = ChannelFace.__doc__

    def __init__(
        self,
        stack: Stack,
        *,
        name: str | None = None,
        listen: str | None = None,
        tls: Tls | None = None,
        plaintext: bool = False,
        allow_pickle: bool = False,
        trace: str | None = None,
        state: StateProvider | None = None,
    ) -> None:
        settings = settings_of(stack, name, listen, tls, plaintext, trace, state)
        arguments.switch("allow_pickle", allow_pickle)
        self._worker = Worker()
        self._core = ChannelCore(settings, self._submit, allow_pickle, state)

    def connect(self, cluster: str, timeout: float | None = 10.0) -> None:
        loop = background_loop()
        run(self._core.connecting(cluster, timeout, loop, loop.call_soon_threadsafe))

    def send(
        self,
        body: Any,
        to: str | MemberId | Iterable[str | MemberId] | None = None,
        order: Level | str | None = None,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None:
            arguments.timeout("a timeout", timeout)  # wrong also while there is room
        rest = self._core.post(body, to, order)
        if rest is not None:
            run(self._core.sending(*rest, timeout))

    def receive(self, timeout: float | None = None) -> Message | None:
        if timeout is not None:
            arguments.timeout("a timeout", timeout)  # wrong also while messages are there
        message = self._core.take()
        if message is not None or timeout == 0:
            return message
        return run(self._core.receiving(timeout))

    def receive_no_wait(self) -> Message | None:
        return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterable[Message]]:
        """Yield messages in runs: many at once, if there are many."""
        core = self._core
        while not core.closed:
            lent = core.borrow()
            if lent is None:
                message = run(core.receiving(None))
                if message is None:
                    return
                lent = (message,)
            yield lent

    def get_state(self, timeout: float | None = None) -> IO[bytes] | None:
        return run(self._core.taking_over(timeout))

    def status(self) -> dict[str, Any]:
        return run(self._core.asking_status(background_loop().call_soon_threadsafe))

    def close(self) -> None:
        run(self._core.closing())
        self._worker.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _submit(self, turn: Callable[[], Iterable[tuple[Callable[[Any], Any], Message]]]) -> None:
        self._worker.submit(lambda: _serve(turn))


def _serve(turn: Callable[[], Iterable[tuple[Callable[[Any], Any], Message]]]) -> None:
    """Give the listener its turn."""
    for listener, message in turn():
        try:
            listener(message)
        except Exception:
            logger.exception("%r raised", listener)
