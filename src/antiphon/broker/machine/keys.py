"""Keys: of subscriptions, of the owners of messages, and of shared subscriptions, which are queues.

Promises: keys of different kinds never meet, whatever clients call themselves and their
subscriptions. A snapshot has each key as one or two texts, which distinguish the kinds by a blank
in a place where no name has one (`encoded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DURABLE, CONSUMER, MEMBER, DEPARTED = "durable", "consumer", "member", "departed"
CLIENT, SESSION = "client", "session"


class SubscriptionKey(NamedTuple):
    """Names one subscription. `kind` is part of it: tuples of equal texts are equal."""

    kind: str
    owner: str  # a client id, a session or a group
    name: str  # of the subscription, the consumer or the member

    @property
    def encoded(self) -> tuple[str, str]:
        """The key as snapshots have it."""
        if self.kind == DURABLE:
            return f"{self.owner} ", self.name
        if self.kind == MEMBER:
            return f" {self.owner}", self.name
        if self.kind == DEPARTED:
            return f" {self.owner}", f" {self.name}"
        return self.owner, self.name

    @classmethod
    def decoded(cls, encoded: Sequence[str]) -> SubscriptionKey:
        """Return the key that a snapshot has. (A client id may begin with a blank; the name of a
        group does not end with one.)"""
        owner, name = encoded
        if owner.endswith(" "):
            return cls(DURABLE, owner[:-1], name)
        if not owner.startswith(" "):
            return cls(CONSUMER, owner, name)
        if name.startswith(" "):
            return cls(DEPARTED, owner[1:], name[1:])
        return cls(MEMBER, owner[1:], name)


def durable(client_id: str, name: str) -> SubscriptionKey:
    """Return the key of a durable subscription that is not shared."""
    return SubscriptionKey(DURABLE, client_id, name)


def of_consumer(session: int, consumer: int) -> SubscriptionKey:
    """Return the key of a subscription that lasts as long as its consumer."""
    return SubscriptionKey(CONSUMER, f"{session:x}", f"{consumer:x}")


def member(group: str, name: str) -> SubscriptionKey:
    """Return the key of the subscription of a group's member."""
    return SubscriptionKey(MEMBER, group, name)


def departed(group: str, session: int, consumer: int) -> SubscriptionKey:
    """Return the key of the subscription of a former member of a group."""
    return SubscriptionKey(DEPARTED, group, f"{session:x}.{consumer:x}")


class Owner(NamedTuple):
    """Names the client that sent a message: by its client id, or if it has none, by its session."""

    kind: str
    name: str

    @property
    def encoded(self) -> str:
        """The owner as snapshots have it."""
        return f"{self.name} " if self.kind == CLIENT else self.name

    @classmethod
    def decoded(cls, encoded: str) -> Owner:
        """Return the owner that a snapshot has. (The number of a session does not end with a
        blank.)"""
        return cls(CLIENT, encoded[:-1]) if encoded.endswith(" ") else cls(SESSION, encoded)


def owner(client_id: str, session: int) -> Owner:
    """Return the owner of messages that this session sends."""
    return Owner(CLIENT, client_id) if client_id else Owner(SESSION, f"{session:x}")


class SharedKey(NamedTuple):
    """Names one shared subscription of topics, which is a queue."""

    durable: bool
    client_id: str
    name: str

    @property
    def queue(self) -> str:
        """The name of its queue. No destination has a blank before its first colon, so none has
        such a name; and the literal of the client id ends where its quotes do, so no two keys have
        the same one."""
        return f"{'durable' if self.durable else 'shared'} {self.client_id!r} {self.name}"
