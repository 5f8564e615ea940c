"""Keys of subscriptions: whose each one is.

Promises: keys of different kinds never meet, whatever clients call themselves and their
subscriptions; a snapshot has each key as two texts, which distinguish the kinds by a blank in a
place where no name has one (`encoded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DURABLE, CONSUMER, MEMBER, DEPARTED = "durable", "consumer", "member", "departed"


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
    """Return the key of the subscription of one that is not a member any more."""
    return SubscriptionKey(DEPARTED, group, f"{session:x}.{consumer:x}")
