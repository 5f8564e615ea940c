"""The state of a group's member: handed out to others, and taken over from them.

Promises: a member that takes a state over sees a whole one or none, however many members fail on
the way. The state is kept in a file, so that a large one needs little memory and a slow reader
holds up nobody. A member that hands one out stops as soon as no member wants it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO

from antiphon.api.connection import Connection
from antiphon.api.operations.scripts import Pause, Script
from antiphon.api.protocol.state_transfer import Began, Chunk, Missing, Ready, StateEvent
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import ConnectionLostError
from antiphon.formats.protocol import STATE_CHUNK_MAX, GroupEvent

IN_MEMORY_BYTES = 1 << 20
"""A state of up to this size is kept in memory."""

StateProvider = Callable[[], bytes | Iterable[bytes]]


class InitialState:
    """The state that a member takes over when it joins."""

    def __init__(self, waits: bool) -> None:
        self.known = Ticket()  # settled when the state is here, or it is certain that there is none
        self._file: IO[bytes] | None = None
        if not waits:
            self.known.settle()

    def take(self, event: StateEvent) -> Chunk | None:
        """Take an event of the state; return its chunk if that is stored now. If this settles
        `known`, the caller tells it."""
        if isinstance(event, Began):
            self._discard()
            self._file = _file()
        elif isinstance(event, Chunk) and self._file is not None:
            self._file.write(event.data)
            return event
        elif isinstance(event, Ready) and self._file is not None:
            self._file.seek(0)
            self.known.settle()
        elif isinstance(event, Missing) and not self.known.done:
            self._discard()
            self.known.settle(_lost())
        return None

    def stream(self) -> IO[bytes] | None:
        """Return the state once it is known; None: there is none. Raise if it was lost."""
        self.known.outcome()
        return self._file

    def close(self) -> None:
        """Close the stream, with the member."""
        self._discard()

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _file() -> IO[bytes]:
    # Imported here, since most programs take over no state.
    from tempfile import SpooledTemporaryFile

    return SpooledTemporaryFile(IN_MEMORY_BYTES)


def _lost() -> ConnectionLostError:
    return ConnectionLostError(
        "the state of the group is lost: every member that had it is gone, or could not hand it "
        "out. Messages come from the join on"
    )


def handing_out(
    connection: Connection, consumer: int, request: GroupEvent, provider: StateProvider
) -> Script[Exception | None]:
    """Hand out the provider's state, as long as a member wants it. Return the provider's error."""
    handout = connection.do(lambda c: c.hand_out(consumer, request.serial))
    if handout.over:
        return None
    source: Iterator[tuple[bytes, bool]] = iter(())
    try:
        source = chunks(provider())
        for data, last in source:
            while not (handout.over or handout.has_room):
                yield Pause(connection.do(lambda _: handout.room()))
            if handout.over:
                return None
            connection.do(lambda c, d=data, e=last: handout.over or c.hand(handout, d, e))  # type: ignore[misc]
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        connection.do(lambda c: c.cannot_hand_out(handout, reason))
        return error
    return None


def chunks(state: bytes | Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the state in chunks that can be sent, as large as possible, each with whether it is
    the last one. There is always one."""
    waiting = bytearray()
    for part in [state] if isinstance(state, bytes | bytearray | memoryview) else state:
        view = memoryview(part)
        for at in range(0, len(view), STATE_CHUNK_MAX):
            waiting += view[at : at + STATE_CHUNK_MAX]
            if len(waiting) > STATE_CHUNK_MAX:
                yield bytes(waiting[:STATE_CHUNK_MAX]), False
                del waiting[:STATE_CHUNK_MAX]
    yield bytes(waiting), True
