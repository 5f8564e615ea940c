"""A pack for a topic, where its messages become visible.

The subscriptions are places in the order and need no work, with two exceptions: those that do not
want their own client's messages (`no_local`), and topics that keep last values.
"""

from __future__ import annotations

from antiphon.broker.last_values import keys_in
from antiphon.broker.sessions import Session
from antiphon.broker.state import State
from antiphon.formats.pack import EXTRAS, PackHeader


def why_not(b: State, header: PackHeader, pack: bytes) -> str:
    """Why the topic cannot take this pack; empty: it can."""
    if header.destination not in b.last_values or not header.flags & EXTRAS:
        return ""
    return b.last_values.why_not(header.destination, keys_in(pack))


def take(b: State, session: Session, header: PackHeader, pack: bytes, first: int) -> None:
    """`first`: the position of the pack's first message."""
    destination, last = header.destination, first + header.count - 1
    if b.topics.no_local:
        _pass_over_own(b, session, destination, last)
    b.topics.published(destination, last)
    if destination in b.last_values and header.flags & EXTRAS:
        b.last_values.take(destination, keys_in(pack), first)


def _pass_over_own(b: State, session: Session, destination: str, last: int) -> None:
    """Here and not where messages are handed out, which may be long after the session of their
    sender has ended."""
    for subscription in b.topics.no_local.get(session.owner, {}).values():
        if subscription.matches(destination):
            subscription.pass_over(b.topics.last_for(subscription), last)
