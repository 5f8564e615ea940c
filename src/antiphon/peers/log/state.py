"""The state of the log on its way to another process: where it stands, the state machine, and the
packs that are still needed.

::

    length   part     length   part
    +------+--------+------+-------+----
    | u32  | Place  | u32  | part  | ...      parts as of `journal/transfer.py`
    +------+--------+------+-------+----
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from antiphon.errors import DiskFullError, FormatError
from antiphon.formats.entry import SnapshotMeta
from antiphon.journal.journal import Journal
from antiphon.model.peer_views import MemberId, ViewId

_LENGTH_BYTES = 4


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The place in the log that a state belongs to: behind the entry `meta.index`, where this view
    has begun."""

    meta: SnapshotMeta
    view: ViewId
    members: tuple[MemberId, ...]


class Handout:
    """A state that does not change any more (`peers/layers/state.py: Source`). Needs memory for all
    of it until the last process has it."""

    def __init__(self, place: Place, parts: Iterable[bytes]) -> None:
        pieces = [msgspec.msgpack.encode(place), *parts]
        self._data = b"".join(
            part for piece in pieces for part in (len(piece).to_bytes(_LENGTH_BYTES, "big"), piece)
        )

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]

    def close(self) -> None:
        self._data = b""


class Arriving:
    """A state that arrives, for this journal (`peers/channel/states.py: Sink`): its parts are kept
    there as they come, and count for nothing before `Journal.install`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self.place: Place | None = None
        self._rest = bytearray()
        self._parts = 0

    def write(self, data: bytes | memoryview) -> None:
        """Take what comes next. Raise `OSError` if there is no room for it, or it is no state."""
        self._rest += data
        try:
            for part in self._whole():
                self._take(part)
        except (DiskFullError, FormatError) as error:
            raise OSError(str(error)) from error

    def _take(self, part: bytes) -> None:
        if self.place is None:
            self.place = _place(part)
        else:
            self._journal.receive_part(self.place.meta, self._parts, part)
            self._parts += 1

    def _whole(self) -> Iterator[bytes]:
        """Yield the parts that are whole, and keep the rest."""
        at, rest = 0, self._rest
        while len(rest) - at >= _LENGTH_BYTES:
            begin = at + _LENGTH_BYTES
            end = begin + int.from_bytes(rest[at:begin], "big")
            if end > len(rest):
                break
            yield bytes(rest[begin:end])
            at = end
        del rest[:at]


def _place(part: bytes) -> Place:
    try:
        return msgspec.msgpack.decode(part, type=Place)
    except msgspec.MsgspecError as error:
        raise FormatError(f"not the place of a state: {error}") from None
