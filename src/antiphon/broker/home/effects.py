"""Effects: the requests of a home (`home.py`) to its driver."""

from __future__ import annotations

import msgspec

from antiphon.formats import protocol as cw
from antiphon.formats.journal import Local


class Propose(msgspec.Struct, frozen=True):
    """Give these payloads to the log, in this order; some may be `rejected`."""

    payloads: tuple[bytes, ...]


class Tell(msgspec.Struct, frozen=True):
    """Send an answer on a connection."""

    link: int
    answer: cw.Answer


class Admit(msgspec.Struct, frozen=True):
    """The session of this connection is attached: packs may come from it, and so large frames."""

    link: int


class Cut(msgspec.Struct, frozen=True):
    """End the connection after all answers have left; `lost` is not called for it any more."""

    link: int
    reason: str  # for the log; empty: the client did nothing wrong


class Hold(msgspec.Struct, frozen=True):
    """Stop reading from a connection, or go on."""

    link: int
    hold: bool


class RelayTo(msgspec.Struct, frozen=True):
    """Give this message to the home at another server (`relayed`); it may be lost on the way."""

    node: int
    session: int
    attachment: int
    body: bytes


class Redirect(msgspec.Struct, frozen=True):
    """Send this client to the server `node` (`protocol.Redirect`)."""

    link: int
    node: int


class Store(msgspec.Struct, frozen=True):
    """Append to this server's journal; then call `stored` with the number."""

    record: Local
    batch: int


Effect = Propose | Tell | Admit | Cut | Hold | RelayTo | Redirect | Store
