"""Transitional views: who goes on together, shown before what the end of a view still brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Closing, Effect, Layer, Tell


class Passing(NamedTuple):
    """For the program: the view `ends` passes into the next one, and these members of it go on
    together; what is handed out up to the next view is known of them alone."""

    ends: ViewId
    together: tuple[MemberId, ...]


class Transitional(Layer):
    """Shows between two views a transitional one, as extended virtual synchrony has it: those of
    the first view that go on to the second one together.

    Promise: what is handed out before it kept the promises of the whole view: a safe message was
    held by all its members. What is handed out behind it, up to the next view, all that are in the
    transitional view hand out, too; of the others of the view nothing is known.

    Need: views, from `Membership` right below it: layers between the two would hand out the end of
    a view before this one speaks. Limits: while only primary views are shown, there may be several
    transitional ones before the next view: those that `Membership` hides, as they are formed.
    """

    name = "transitional"
    gives = frozenset({"transitional views"})
    needs = frozenset({"views"})

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        return (Tell(Passing(closing.view, closing.together)),)


def passing_view(passing: Passing, ended: PeerView) -> PeerView:
    """Return a transitional view as a view: with the number of the one that ends, and never
    primary, for nothing is decided in it."""
    together = passing.together
    leader = ended.leader if ended.leader in together else together[0]
    return PeerView(passing.ends, together, leader)
