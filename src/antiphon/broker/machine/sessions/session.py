"""Sessions as the servers know them, with their consumers.

A session is attached to one server, or detached with a lease that runs in log time. Everything is
plain data with a `state()` for the snapshot; the rules are in `lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from antiphon.broker.machine import keys
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.pending_packs import Parked
from antiphon.broker.machine.sessions.attachment import Attachment, Cause, next_attachment
from antiphon.formats.pack import PackHeader
from antiphon.formats.protocol import NotPublished, Result, Sent

NUMBER_MAX = 1 << 62
"""Limit of numbers of a client on which the servers count on, so that they always fit the
formats."""

REFUSALS_MAX = 256
"""Refused packs that a session remembers, so that a client which asks again gets the same answer.
More than a client may have unanswered."""


class Session:
    """The servers' knowledge of one connection of a client, even while it is cut.

    Promise: after it was made, `phase` and `expires` are written by `change` alone.
    """

    def __init__(self, number: int, token: bytes, client_id: str, lease_ms: int) -> None:
        self.number = number
        self.token = token
        self.client_id = client_id
        self.owner = keys.owner(client_id, number)  # of its messages
        self.lease_ms = lease_ms
        self.attachment = 0
        self.attempt = 0  # the client's, that led to this attachment
        self.node = 0
        self.life = 0
        self.link = 0
        self.phase = Attachment.NEW  # only `change` sets this and the next one
        self.expires: int | None = None  # a stamp, while it is leased
        self.streams: dict[int, int] = {0: 0}  # producer -> its last sequence
        self.names: dict[int, str] = {}  # producer -> its name
        self.refusals: list[NotPublished] = []
        self.request = 0  # the last control request
        self.result = Result(0)
        self.consumers: dict[int, Consumer] = {}
        self.temporaries: dict[str, None] = {}
        self.staged: dict[tuple[int, int], Parked] = {}  # by producer and first sequence

    @property
    def detached(self) -> bool:
        """Whether no server serves it."""
        return self.phase is Attachment.HELD or self.phase is Attachment.LEASED

    @property
    def held(self) -> bool:
        """Whether it waits for its server, which alone knows its acknowledgements."""
        return self.phase is Attachment.HELD

    @property
    def leased(self) -> bool:
        """Whether its server has let go of it: it may go on anywhere, while its lease runs."""
        return self.phase is Attachment.LEASED

    def change(self, cause: Cause, expires: int | None = None) -> None:
        """Enter the state that `cause` leads to. `expires`: when its lease ends, if it has one."""
        self.phase = next_attachment(self.phase, cause)
        self.expires = expires if self.phase is Attachment.LEASED else None

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The connection that this session has: attempt, node, life and link."""
        return self.attempt, self.node, self.life, self.link

    def attach(self, attempt: int, node: int, life: int, link: int) -> None:
        """Be served by this server from now on."""
        self.attachment += 1
        self.attempt, self.node, self.life, self.link = attempt, node, life, link
        self.change(Cause.ATTACH)

    # -- Sending -------------------------------------------------------------------------------

    def takes(self, header: PackHeader) -> bool:
        """Return whether this pack comes next in its producer's sequence, and count it if it does.
        Otherwise it is a duplicate, or behind a gap."""
        before, last = self.streams.get(header.producer), header.last
        if before is None or header.sequence != before + 1 or last > NUMBER_MAX:
            return False
        self.streams[header.producer] = last
        return True

    def go_on_with(self, producer: int, sequence: int) -> None:
        """Go on with this sequence: messages before it that were answered early and then lost do
        not come again (non-persistent)."""
        if producer in self.streams:
            last = min(sequence - 1, NUMBER_MAX)
            self.streams[producer] = max(self.streams[producer], last)

    def open_producer(self, number: int, name: str, last: int) -> None:
        """Open a named producer, which goes on behind this message."""
        self.streams[number] = last
        self.names[number] = name

    def lose_producer(self, number: int) -> None:
        """Note that another session has opened this producer: this session's packs of it are
        refused from now on."""
        del self.names[number]

    def refuse(self, refusal: NotPublished) -> None:
        """Remember that a pack was refused."""
        self.refusals.append(refusal)
        del self.refusals[:-REFUSALS_MAX]

    def stage(self, parked: Parked) -> None:
        """Keep a pack until its commit."""
        self.staged[parked.header.producer, parked.header.sequence] = parked

    def unstage(self, sent: Iterable[Sent]) -> int:
        """Forget the packs in these ranges that it has staged, and return their number."""
        found = [
            key
            for key in self.staged
            if any(producer == key[0] and first <= key[1] <= last for producer, first, last in sent)
        ]
        for key in found:
            del self.staged[key]
        return len(found)

    def unstage_all(self) -> int:
        """Forget all packs that it has staged, and return their number."""
        count = len(self.staged)
        self.staged.clear()
        return count

    # -- Requests ------------------------------------------------------------------------------

    def ask(self, number: int) -> None:
        """Begin with the next request."""
        self.request = number

    def answer(self, result: Result) -> None:
        """Remember the answer to the last request."""
        self.result = result

    def open(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.consumers[consumer.number] = consumer

    def forget(self, consumer: int) -> Consumer | None:
        """Remove and return a consumer, if it is still there."""
        return self.consumers.pop(consumer, None)

    def create_temporary(self, destination: str) -> None:
        """Add a temporary destination."""
        self.temporaries[destination] = None

    def delete_temporary(self, destination: str) -> None:
        """Remove a temporary destination."""
        del self.temporaries[destination]

    # -- All of it -----------------------------------------------------------------------------

    def state(self) -> tuple[Any, ...]:
        """Return its fields for a snapshot, without its staged packs, which are a part of their
        own."""
        return (
            self.number,
            self.token,
            self.client_id,
            self.lease_ms,
            self.attachment,
            self.attempt,
            self.node,
            self.life,
            self.link,
            self.expires,
            self.streams,
            self.names,
            self.refusals,
            self.request,
            self.result,
            [consumer.state() for consumer in self.consumers.values()],
            list(self.temporaries),
            self.held,
        )

    @classmethod
    def from_state(cls, state: Any) -> Session:
        """Return the session that a snapshot has, without its staged packs."""
        one = cls(*state[:4])
        one.attachment, one.attempt, one.node, one.life, one.link, one.expires = state[4:10]
        one.phase = Attachment.ATTACHED if one.expires is None else Attachment.LEASED
        one.streams, one.names = state[10], state[11]
        one.refusals = msgspec.convert(state[12], list[NotPublished])
        one.request = state[13]
        one.result = msgspec.convert(state[14], Result)
        for consumer in state[15]:
            one.open(Consumer.from_state(one.number, consumer))
        one.temporaries = dict.fromkeys(state[16])
        if state[17]:
            one.phase = Attachment.HELD
        return one
