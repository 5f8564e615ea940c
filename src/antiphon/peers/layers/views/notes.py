"""Notes: what members say of themselves, as part of each view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Change, Effect, Layer

NOTE_MAX = 64 << 10
"""A note has at most so many bytes: all members get all of them with each view."""


class Notes(Layer):
    """Shows in each view the note of each member: a text in which it says something of itself.

    Promise: all members that show a view show the same notes with it (`Shown.notes`). A new note is
    a change of the view, even if its members stay: so whatever is handed out in a view, at any
    level, is handed out under the same notes everywhere. Who comes, or comes back, brings its note
    with it; of whoever goes the note is gone.

    Need: views. Limits: a note costs a change of the view, during which nobody sends; of notes that
    follow each other quickly the last one may be the only one that is seen.
    """

    name = "notes"
    gives = frozenset({"notes"})
    needs = frozenset({"views"})

    own = ""
    """What this process says of itself."""

    def set(self, note: str, now_ms: int) -> Sequence[Effect]:
        """Show this from the next view on."""
        if note == self.own:
            return ()
        self.own = note
        return (Change(),)

    def summary(self) -> Any:
        return self.own

    def merge(self, summaries: Mapping[MemberId, Any]) -> Any:
        return [(process, summaries[process]) for process in sorted(summaries)]

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        # A note that was changed while the change was under way may not be in it.
        return () if read_notes(summary, view).get(self.me, "") == self.own else (Change(),)


def read_notes(summary: Any, view: PeerView) -> dict[MemberId, str]:
    """Return the notes of a view's members, out of what it begins with, which those have
    contributed to that leave; members without a note are left out."""
    notes = msgspec.convert(summary or (), tuple[tuple[MemberId, str], ...])
    return {process: note for process, note in notes if note and process in view.members}
