"""Partial partitions: links that are cut, while each server still reaches each other one through
others."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Links = set[tuple[int, int]]

SHAPES = ("apart", "one-way", "hub", "chain", "some")


def draw_cuts(random: Random, servers: list[int], shape: str, first: int) -> Links:
    """Return the directed links that are cut. `first` is the one that the shape is about."""
    others = [n for n in servers if n != first]
    random.shuffle(others)
    return _SHAPES[shape](random, [first, *others])


def _apart(random: Random, servers: list[int]) -> Links:
    """Return the links between two servers, both ways."""
    one, other = servers[0], servers[-1]
    return _if_connected(servers, {(one, other), (other, one)})


def _one_way(random: Random, servers: list[int]) -> Links:
    """Return the link from one server to another."""
    pair = random.sample((servers[0], servers[-1]), 2)
    return _if_connected(servers, {(pair[0], pair[1])})


def _hub(random: Random, servers: list[int]) -> Links:
    """Return all links but those of one server."""
    return {(a, b) for a, b in _all_links(servers) if servers[0] not in (a, b)}


def _chain(random: Random, servers: list[int]) -> Links:
    """Return all links but those of neighbours, with the servers in a random row."""
    random.shuffle(servers)
    return {(a, b) for a, b in _all_links(servers) if abs(servers.index(a) - servers.index(b)) > 1}


def _some(random: Random, servers: list[int]) -> Links:
    """Return any links, each in one direction."""
    cut: Links = set()
    for link in random.sample(_all_links(servers), len(servers) * (len(servers) - 1)):
        if random.random() < 0.5:
            cut |= _if_connected(servers, cut | {link})
    return cut


def _if_connected(servers: list[int], cut: Links) -> Links:
    return cut if is_connected(servers, cut) else set()


def _all_links(servers: list[int]) -> list[tuple[int, int]]:
    return [(a, b) for a in servers for b in servers if a != b]


def is_connected(servers: list[int], cut: Links) -> bool:
    """Return whether each server reaches each other one, perhaps through others."""
    return all(are_connected(servers[0], other, servers, cut) for other in servers)


def are_connected(one: int, other: int, servers: list[int], cut: Links) -> bool:
    """Return whether the two servers reach each other, perhaps through some of these."""
    forth = _reached(servers, {one}, lambda a, b: (a, b) not in cut)
    back = _reached(servers, {one}, lambda a, b: (b, a) not in cut)
    return other in forth and other in back


def _reached(servers: list[int], known: set[int], leads: Callable[[int, int], bool]) -> set[int]:
    edge = list(known)
    for a in edge:  # which grows
        for b in servers:
            if b not in known and leads(a, b):
                known = known | {b}
                edge.append(b)
    return known


_SHAPES: dict[str, Callable[[Random, list[int]], Links]] = {
    "apart": _apart,
    "one-way": _one_way,
    "hub": _hub,
    "chain": _chain,
    "some": _some,
}
