"""The log's numbers, each with its consequence. Times are local monotonic milliseconds."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """The settings of one cluster's log; all its servers should have the same."""

    heartbeat_ms: int = 50
    """A leader with nothing to say still says so this often: the price of an idle cluster."""

    election_ms: int = 400
    """The least silence after which a leader is doubted. Several heartbeats, so that one lost
    message is not an election; elections add up to as much again at random, so that two
    candidates seldom meet."""

    election_max_ms: int = 3000
    """A link may teach the detector patience up to here; it bounds the time to a new leader."""

    inflight_max: int = 64
    """Appends on the way to one server; at the limit its entries gather and leave as one."""

    append_max_bytes: int = 1 << 20
    """The payload of one append: bounds how long one message can hold a link up."""

    uncommitted_max_bytes: int = 64 << 20
    """Bytes that a leader takes before a majority has them; at the limit proposals are refused."""

    cache_max_bytes: int = 64 << 20
    """Recent entries kept in memory for servers that lag a little; the others are read back."""

    snapshot_every_bytes: int = 64 << 20
    """Delivered payload between two snapshots: bounds how much a restart applies again."""

    snapshot_every_entries: int = 20_000
    """The same in entries, for small ones."""

    inflight_max_bytes: int = 16 << 20
    """The same in bytes. A larger append is alone on its way."""

    large_bytes: int = 4 << 20
    """A pack above that is large: it is written when the last large one has a majority, and the
    others wait at the leader; so small ones come between them. Those that propose count by the same
    size (`broker/home/incoming_packs.py`): a pack behind a large one must not overtake it."""

    piece_bytes: int = 256 << 10
    """The size of a piece of a large pack that travels before it is ordered (`pieces.py`): with
    `pieces.WINDOW` it bounds how long a heartbeat waits on its link."""

    volatile: bool = False
    """Memory mode: an entry in memory is held. Otherwise only one that the journal has synced."""
