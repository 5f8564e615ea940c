"""A pack for a topic, where its messages become visible.

The subscriptions are places in the order and need no work, with two exceptions: those that do not
want their own client's messages (`no_local`), and topics that keep last values.
"""

from __future__ import annotations

from antiphon.broker.last_values import Keys
from antiphon.broker.state import State


def why_not(b: State, destination: str, keys: Keys) -> str:
    """Why the topic cannot take messages with these keys; empty: it can."""
    if not keys or destination not in b.last_values:
        return ""
    return b.last_values.why_not(destination, keys)


def take(b: State, owner: str, destination: str, keys: Keys, first: int, last: int) -> None:
    """Messages of this client, from one position to the other."""
    for subscription in b.topics.no_local.get(owner, {}).values():
        # Here and not where messages are handed out, which may be long after the session of their
        # sender has ended.
        if subscription.matches(destination):
            subscription.pass_over(b.topics.last_for(subscription), last)
    b.topics.published(destination, last)
    if keys and destination in b.last_values:
        b.last_values.take(destination, keys, first)
