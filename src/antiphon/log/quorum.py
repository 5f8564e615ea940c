"""Majorities, and the values that they have reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from antiphon.formats.entry import ReplicaId


def majority(voters: Sequence[ReplicaId]) -> int:
    """Return how many of these voters are a majority."""
    return len(voters) // 2 + 1


def tell_each_other(voters: Sequence[ReplicaId]) -> bool:
    """Return whether followers send their acknowledgements to all voters, so that each can count
    for itself without waiting for the leader. Where leader and follower are a majority, neither
    needs it."""
    return majority(voters) > 2


def held_by_majority(voters: Sequence[ReplicaId], held: Mapping[ReplicaId, int]) -> int:
    """Return the greatest value that a majority of `voters` has reached; a voter that is not in
    `held` has reached 0."""
    if not voters:
        return 0
    reached = sorted(map(held.get, voters, repeat(0)))
    return reached[-majority(voters)]
