"""The state of a replica after a restart, as `open_journal` read it from the disk."""

from __future__ import annotations

import msgspec

from antiphon.formats.entry import Membership, SnapshotMeta
from antiphon.formats.journal import Promise


class Recovered(msgspec.Struct, frozen=True):
    """The content of the disk at the start. `incarnation` is a new one if the server cannot vouch
    for all that it promised: nothing was stored, or a part is lost."""

    incarnation: int
    promise: Promise = Promise(0, None)
    snapshot: SnapshotMeta | None = None
    base_index: int = 0
    base_epoch: int = 0
    runs: tuple[tuple[int, int], ...] = ()  # (first index, epoch) of the entries after the base
    last: int = 0
    last_stamp: int = 0
    memberships: tuple[tuple[int, Membership], ...] = ()
    damage: str = ""  # the loss, if this is a new incarnation because of damage

    @property
    def fresh(self) -> bool:
        """Whether nothing was ever stored here, and so nothing promised."""
        return self.last == 0 and self.promise.epoch == 0 and not self.damage
