"""Connections of clients at one server: who waits for what, who is held back, who fell silent.

Promises: what clients have sent and not been answered is bounded, for each and for all together;
beyond that nothing is read from a client until half is left. A client that has not been heard for
the stated time is found, unless it could not be heard: because it was held back, or because this
process itself stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from antiphon.broker.acking import Answers
from antiphon.broker.publishing import Publisher
from antiphon.formats import client_wire as cw

STOOD_STILL_MS = 1000
"""Without a look for so long, this process did not run."""


class Link:
    """A connection."""

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.heard_ms = now_ms
        self.session = 0  # that it asked for
        self.seen: tuple[cw.Seen, ...] = ()  # what its client has, until it is served
        self.served: Served | None = None
        self.waiting_bytes = 0  # of requests that are not answered
        self.held = False


class Served:
    """A session that is attached to a link here."""

    def __init__(self, session: int, attachment: int, link: Link) -> None:
        self.session = session
        self.attachment = attachment
        self.link = link
        self.publisher = Publisher({})
        self.request: cw.Control | None = None  # not answered
        self.early = False  # that was ordered before packs that it is about
        self.ack_batches = 0  # not done, with acknowledgements of this session
        self.acks = Answers()


class Links:
    def __init__(
        self, window_bytes: int, all_bytes: int, hold: Callable[[int, bool], None], now_ms: int
    ) -> None:
        """`window_bytes` is for one client, `all_bytes` for all together."""
        self._window_bytes = window_bytes
        self._all_bytes = all_bytes
        self._hold = hold
        self._links: dict[int, Link] = {}
        self._held: dict[Link, None] = {}
        self.waiting_bytes = 0
        self._now_ms = now_ms
        self._stood_still = False

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        """Also while some of them leave."""
        return iter(list(self._links.values()))

    @property
    def held(self) -> int:
        return len(self._held)

    def get(self, number: int) -> Link | None:
        return self._links.get(number)

    def add(self, number: int, now_ms: int) -> None:
        self._links[number] = Link(number, now_ms)

    def remove(self, link: Link) -> None:
        del self._links[link.number]
        self._held.pop(link, None)
        self.waits_less(link, link.waiting_bytes)

    # -- Holding back --------------------------------------------------------------------------

    def waits_more(self, link: Link, size: int) -> None:
        link.waiting_bytes += size
        self.waiting_bytes += size
        too_much = link.waiting_bytes > self._window_bytes or self.waiting_bytes > self._all_bytes
        if too_much and not link.held:
            link.held = True
            self._held[link] = None
            self._hold(link.number, True)

    def waits_less(self, link: Link, size: int) -> None:
        link.waiting_bytes -= size
        self.waiting_bytes -= size
        if not self._held or self.waiting_bytes > self._all_bytes // 2:
            return
        for held in list(self._held):
            if held.waiting_bytes <= self._window_bytes // 2:
                del self._held[held]
                held.held = False
                held.heard_ms = self._now_ms  # while it was not read, it could not be heard
                self._hold(held.number, False)

    # -- Silence -------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """To be called regularly, and often: so standing still is noticed."""
        self._stood_still = self._stood_still or now_ms - self._now_ms > STOOD_STILL_MS
        self._now_ms = now_ms

    def silent(self, limit_ms: int) -> list[Link]:
        """Those who have said nothing for so long."""
        if self._stood_still:
            # Who has heard nobody blames nobody for it.
            self._stood_still = False
            for link in self._links.values():
                link.heard_ms = self._now_ms
        return [
            link
            for link in self._links.values()
            if self._now_ms - link.heard_ms > limit_ms and not link.held
        ]
