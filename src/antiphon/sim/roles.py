"""The tasks of simulated programs, as values of a plan (`sim/plan.py`). `sim/programs` does
them."""

from __future__ import annotations

import msgspec

from antiphon.sim.message_traits import Flavour

MAILBOX = "mailbox"
"""A destination to send to: the temporary queue of any program."""


class Membership(msgspec.Struct, frozen=True):
    """How a program behaves as a member."""

    groups: tuple[str, ...]
    durable: bool
    removes_suspects: float  # how often it removes a suspect
    ruthless: float  # how often it removes any member
    invites: float  # how often it invites a name
    changes: float  # how often it changes the conflict relation
    provides: bool = False  # it hands out its state to others
    fails: float = 0.0  # how often it fails to do so


class Transacting(msgspec.Struct, frozen=True):
    """How a program uses transactions."""

    size: int  # messages received in one, at most
    rolls_back: float = 0.0  # how often it rolls back
    stages: float = 0.0  # how often it commits by a handle
    tokens: float = 0.0  # how often with a token
    gives: float = 0.0  # how often it sends messages of its own


class Role(msgspec.Struct, frozen=True):
    """The tasks of a program."""

    publishes: int  # messages
    to: tuple[str, ...]  # to these destinations
    persistent: bool
    named: bool  # by a named producer, which goes on where it was
    consumes: tuple[str, ...]  # from here; "temp-queue:": from one that it creates
    durable: bool  # its subscriptions
    prefetch: int
    ack_every: int  # messages; it may give back those that are not acknowledged
    individually: bool  # acknowledges single messages, in any order
    slow: str  # its policy if it does not keep up
    lease_ms: int
    think_us: int  # between two messages
    restless: float  # how often it closes a consumer or its session
    member: Membership | None = None
    flavour: Flavour = Flavour()  # of its messages
    shares: bool = False  # its subscriptions, with others
    exclusive: bool = False  # its consumers of queues
    transacts: Transacting | None = None

    @property
    def has_client_id(self) -> bool:
        """Return whether it has a client id: one without shares with others that have none."""
        return self.durable and not self.shares
