"""Local contexts: what a server keeps to itself binds its clients to it (thesis, 5.2.1).

With `contexts = "local"` a server answers acknowledgements of topics as soon as its own journal has
them, and proposes them to the log later (`broker/home/unlogged_acks.py`). In between nobody else
knows how far those clients are. So a session that has a consumer of a topic is *bound* to the
server that it is attached to, and cannot go on elsewhere, until that server lets go of it: proposes
to the log what it knows of the session, and then that its connection is lost (`Detach`) or, in the
server's next life, that it has begun (`Begin`). While the server is away, the session is *held*:
its lease does not run.

A server that is removed from the cluster, or comes back without its disk, has taken what it alone
knew with it. The sessions that were bound to it are lost, and whatever their durable subscriptions
get again is flagged.

All servers of a cluster do the same: the first one that has a client decides it for all.
"""

from __future__ import annotations

from antiphon.broker.machine.sessions.servers import LOCAL, REPLICATED
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.formats import commands


def decide(b: State, contexts: str) -> bool:
    """Whether this cluster has such contexts; from now on, if it had no clients so far."""
    return b.servers.decide(contexts)


def serves(b: State, m: commands.Attach) -> bool:
    """Whether that server does as the others do, and has begun the life that this comes from."""
    if not m.local:
        return decide(b, REPLICATED)
    return b.servers.contexts == LOCAL and lives(b, m.node, m.life)


def lives(b: State, node: int, life: int) -> bool:
    """False: this comes from a former life of a server, or from one that has not begun."""
    known = b.servers.lives.get(node)
    return b.servers.contexts != LOCAL or (known is not None and known.life == life)


def is_bound(b: State, session: Session) -> bool:
    """Whether its server may know of acknowledgements that the log does not have."""
    return (
        b.servers.contexts == LOCAL
        and not session.leased
        and any(c.subscription is not None for c in session.consumers.values())
    )


def home_of(b: State, session: Session | None, m: commands.Attach) -> int:
    """The server that has to let go before this client can be attached; 0: none."""
    if session is not None:
        return session.node if session.node != m.node and is_bound(b, session) else 0
    owner = b.sessions.of_client(m.client_id) if not m.resume else None
    return owner.node if owner is not None and owner.held else 0
