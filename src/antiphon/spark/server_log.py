"""The log of a running server, or of a cluster: any of its servers is asked, and another one when
that one dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import antiphon
from antiphon.errors import FormatError
from antiphon.spark import columns as arrow
from antiphon.spark.logs import Bounds, Slice

if TYPE_CHECKING:
    import pyarrow as pa


class ServerLog:
    """A `Log`. Has no connection between calls: so it can be pickled, and costs servers nothing."""

    def __init__(self, url: str) -> None:
        if url.startswith("embedded:"):
            raise FormatError(
                f"{url!r} is a server inside one process, and tasks run in others: start a server, "
                "or read the folder of embedded:///PATH with the option journal"
            )
        self._url = url

    def bounds(self) -> Bounds:
        with antiphon.open_log(self._url) as log:
            return Bounds(*log.bounds())

    def position_at(self, stamp: int) -> int:
        with antiphon.open_log(self._url) as log:
            return log.position_at(stamp)

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[Slice]:
        with antiphon.open_log(self._url) as log:
            return [Slice(*each) for each in log.slices(topics, first, last, most)]

    def read(self, piece: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with antiphon.open_log(self._url) as log:
            packs = log.packs(piece.topic, piece.first, piece.last)
            yield from arrow.batches(packs, piece.first, piece.last, columns)
