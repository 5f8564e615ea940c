"""Sessions as the servers know them, with their consumers, and named producers.

A session is attached to one server, or detached with a lease that runs in log time. Everything is
plain data with a `state()` for the snapshot; the rules are in `broker/machine/machine.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.broker.machine.keys import SubscriptionKey
from antiphon.broker.machine.pending_packs import Parked
from antiphon.broker.machine.ranges import Spans
from antiphon.broker.machine.sessions.attachment import Attachment, Cause, next_attachment
from antiphon.formats.protocol import NotPublished, Result

REFUSALS_MAX = 256
"""Refused packs that a session remembers, so that a client which asks again gets the same answer.
More than a client may have unanswered."""


class Consumer:
    """One consumer of a session, of a topic (`subscription`) or of a queue."""

    def __init__(
        self,
        session: int,
        number: int,
        destination: str,
        prefetch: int,
        slow: str,
        subscription: SubscriptionKey | None,
        selector: str = "",
    ) -> None:
        self.session = session
        self.number = number
        self.destination = destination
        self.prefetch = prefetch
        self.slow = slow
        self.subscription = subscription  # None: of a queue
        self.selector = selector  # of a queue's
        self.browses: int | None = None  # only looks at the messages of a queue, up to this one
        self.closed = False
        self.kept = Spans()  # after closing, of a topic: seen, and may yet be acknowledged

    def state(self) -> tuple[Any, ...]:
        """Return what snapshots have of it."""
        return (
            self.number,
            self.destination,
            self.prefetch,
            self.slow,
            self.subscription.encoded if self.subscription is not None else None,
            self.closed,
            list(self.kept),
            self.selector,
            self.browses,
        )


class Session:
    """The servers' knowledge of one connection of a client, even while it is cut.

    Promise: after it was made, `phase` and `expires` are written by `change` alone.
    """

    def __init__(self, number: int, token: bytes, client_id: str, lease_ms: int) -> None:
        self.number = number
        self.token = token
        self.client_id = client_id
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
        """Whether it waits for its server, which alone knows what it acknowledged."""
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
    def owner(self) -> str:
        """By which its messages are its own: its client id, or if it has none, itself. A blank
        cannot be in the number of a session: the two kinds do not meet."""
        return f"{self.client_id} " if self.client_id else f"{self.number:x}"

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The connection that this session has: attempt, node, life and link."""
        return self.attempt, self.node, self.life, self.link

    def refuse(self, refusal: NotPublished) -> None:
        """Remember that a pack was refused."""
        self.refusals.append(refusal)
        del self.refusals[:-REFUSALS_MAX]

    def state(self) -> tuple[Any, ...]:
        """Return what snapshots have of it, without its staged packs, which are a part of their
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
        """Return the session that a snapshot has, without what it has staged."""
        one = cls(*state[:4])
        one.attachment, one.attempt, one.node, one.life, one.link, one.expires = state[4:10]
        one.phase = Attachment.ATTACHED if one.expires is None else Attachment.LEASED
        one.streams, one.names = state[10], state[11]
        one.refusals = msgspec.convert(state[12], list[NotPublished])
        one.request = state[13]
        one.result = msgspec.convert(state[14], Result)
        for number, destination, prefetch, slow, key, closed, kept, selector, browses in state[15]:
            subscription = SubscriptionKey.decoded(key) if key is not None else None
            consumer = Consumer(
                one.number, number, destination, prefetch, slow, subscription, selector
            )
            consumer.closed, consumer.browses = closed, browses
            consumer.kept = Spans(map(tuple, kept))
            one.consumers[number] = consumer
        one.temporaries = dict.fromkeys(state[16])
        if state[17]:
            one.phase = Attachment.HELD
        return one

    def stage(self, parked: Parked) -> None:
        """Keep a pack until its commit."""
        self.staged[parked.header.producer, parked.header.sequence] = parked


class Producer(msgspec.Struct, array_like=True):
    """A named producer, which outlives its sessions for a while."""

    name: str
    last: int  # messages accepted, ever
    session: int  # 0: nobody has it open
    number: int  # in that session
    expires: int  # a stamp, while nobody has it open
