"""Hierarchical groups: which leaf group a member goes to, and which leaf has some data. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

Leaves = Mapping[str, tuple[str, ...]]
"""The leaf groups that there are, with their members."""


def leaf_for(member: str, group: str, members: Sequence[str], leaves: Leaves, size: int) -> str:
    """Return the leaf for a member of a hierarchical group that has none: the first one with fewer
    than `size` members. All without a leaf are assigned to one, in the order of `members`, so that
    all who join in one view count alike."""
    placed = {one for each in leaves.values() for one in each}
    counts = {leaf: len(each) for leaf, each in leaves.items()}
    names = [f"{group}/{number}" for number in range(len(members) + 1)]
    for one in members:
        if one in placed:
            continue
        leaf = next(name for name in names if counts.get(name, 0) < size)
        if one == member:
            return leaf
        counts[leaf] = counts.get(leaf, 0) + 1
    raise ValueError(f"{member!r} is in a leaf, or not in {group!r}")


def leaf_of_key(key: str, leaves: Leaves) -> str:
    """Return the leaf that has the data of a key; all who know the same leaves find the same."""
    names = sorted(leaves)
    return names[zlib.crc32(key.encode()) % len(names)]
