"""Local contexts: acknowledgements that a server keeps to itself bind its clients to it (thesis,
5.2.1).

With `contexts = "local"` a server answers acknowledgements of topics as soon as its own journal has
them, and proposes them to the log later (`broker/home/unlogged_acks.py`). In between no other
server knows how far those clients are. So a session that has a consumer of a topic is *bound* to
the server that it is attached to, and cannot go on elsewhere, until that server lets go of it:
proposes to the log the acknowledgements of the session, and then that its connection is lost
(`Detach`) or, in the server's next life, that this one has begun (`Begin`). While the server is
away, the session is *held*: its lease does not run.

With a server that is removed from the cluster, or comes back without its disk, the acknowledgements
that it alone knew are lost. The sessions that were bound to it are lost, too, and messages that
their durable subscriptions get again are flagged.

All servers of a cluster have the same kind of contexts: the first one that has a client decides it
for all.
"""

from __future__ import annotations

from antiphon.broker.machine.sessions.servers import LOCAL, REPLICATED
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.formats import commands


def decide(b: State, contexts: str) -> bool:
    """Return whether this cluster has such contexts; if it had no clients so far, it has from now
    on."""
    return b.servers.decide(contexts)


def serves(b: State, m: commands.Attach) -> bool:
    """Return whether the server of this command has the cluster's kind of contexts, and has begun
    the life that the command comes from."""
    if not m.local:
        return decide(b, REPLICATED)
    return b.servers.contexts == LOCAL and lives(b, m.node, m.life)


def lives(b: State, node: int, life: int) -> bool:
    """Return False for a former life of a server, or one that has not begun."""
    known = b.servers.lives.get(node)
    return b.servers.contexts != LOCAL or (known is not None and known.life == life)


def is_bound(b: State, session: Session) -> bool:
    """Return whether its server may know of acknowledgements that the log does not have."""
    return (
        b.servers.contexts == LOCAL
        and not session.leased
        and any(c.subscription is not None for c in session.consumers.values())
    )


def home_of(b: State, session: Session | None, m: commands.Attach) -> int:
    """Return the server that has to let go before this client can be attached; 0: none."""
    if session is not None:
        return session.node if session.node != m.node and is_bound(b, session) else 0
    owner = b.sessions.of_client(m.client_id) if not m.resume else None
    return owner.node if owner is not None and owner.held else 0
