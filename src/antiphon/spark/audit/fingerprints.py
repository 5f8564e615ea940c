"""The parts of a trace on which all members agree, found in one scan, without comparing messages.

A *part* has the deliveries in one view, of one range of positions (`RANGE` of them). Each member's
deliveries in a part are reduced to a few numbers: how many, a hash of the set, two hashes of the
relative order. Where these are equal for all members that the part concerns, one member, the
*reference* of the view, stands for all, and only its deliveries are compared further. All other
parts are *doubtful*, and compared message by message.

Promise: all members that a part concerns that is not doubtful have delivered its messages, once
each if the reference did, in the same view and in the same order, and no other message overtook
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.members import NOWHERE, Cast, Member, World

RANGE = 16384


class Print(NamedTuple):
    """The fingerprint of a part at one member."""

    world: int
    range: int
    member: int
    view: int
    life: int
    outside: bool  # it was not a member any more
    deliveries: int
    set_hash: int
    order_hash: int
    order_hash_2: int
    first_position: int
    last_position: int
    first_seq: int
    last_seq: int
    odd: int  # deliveries that make the part doubtful in any case


class Agreement(NamedTuple):
    """The parts that are doubtful, and the reference of each view."""

    doubtful: set[tuple[int, int]]  # (world, range)
    references: dict[tuple[int, int], int]  # (world, view) -> member
    prints: list[Print]


def take(deliveries: DataFrame, range_size: int) -> list[Print]:
    """Return the fingerprints of `deliveries` (`rows.py: deliveries`)."""
    hashed = deliveries.withColumn(
        "hash", F.xxhash64("message", "position", "sender", "sender_seq", "tag", "key")
    ).withColumn("range", F.expr(f"position div {range_size}"))
    # Sums cannot overflow: 2^31 * 2^16 * 2^14 rows of a part.
    place = F.col("didx") % F.lit(1 << 31)
    weight, weight_2 = _bits("hash", 0), _bits("hash", 16)
    odd = (
        F.col("redelivered")
        | (F.col("view_id") != F.col("view"))
        | (F.col("position") <= F.col("cut"))
        | (F.col("didx") < 0)
    )
    found = hashed.groupBy("world", "range", "member", "view", "life", "outside").agg(
        F.count("*").alias("deliveries"),
        F.bit_xor("hash").alias("set_hash"),
        F.sum(place * weight).alias("order"),
        F.sum(place * weight_2).alias("order_2"),
        F.sum(weight).alias("weight"),
        F.sum(weight_2).alias("weight_2"),
        F.min(place).alias("first_place"),
        F.min("position").alias("first_position"),
        F.max("position").alias("last_position"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.sum(odd.cast("long")).alias("odd"),
    )
    # Places count from the member's first delivery in the part: earlier ones do not matter.
    relative = found.withColumn(
        "order_hash", F.col("order") - F.col("first_place") * F.col("weight")
    ).withColumn("order_hash_2", F.col("order_2") - F.col("first_place") * F.col("weight_2"))
    rows = relative.select(*Print._fields).toArrow().to_pydict()
    return [Print._make(values) for values in zip(*rows.values(), strict=True)]


def _bits(column: str, shift: int) -> Column:
    return F.shiftrightunsigned(column, shift).bitwiseAND(F.lit(0xFFFF))


def compare(cast: Cast, prints: list[Print]) -> Agreement:
    """Compare the members of each view, range by range, with a member that must have all messages.

    A range in which two that should agree do not, or that has odd deliveries, is doubtful.
    """
    by_world: dict[int, list[Print]] = defaultdict(list)
    for one in prints:
        by_world[one.world].append(one)
    doubtful: set[tuple[int, int]] = set()
    references: dict[tuple[int, int], int] = {}
    for number, own in by_world.items():
        world = cast.worlds[number]
        chosen = {view: _reference(world, view) for view in {p.view for p in own}}
        references |= {(number, view): m.number for view, m in chosen.items() if m is not None}
        found = {*_odd(own), *_out_of_order(own), *_disagreeing(world, own, chosen)}
        doubtful |= {(number, part_range) for part_range in found}
    return Agreement(doubtful, references, prints)


def _reference(world: World, view: int) -> Member | None:
    """Return the oldest member that must have all messages of the view, preferably one without a
    fault."""
    owing = [member for member in world.members if member.number in world.owing(view)]
    return min(owing, key=lambda m: (not m.correct, m.start, m.number), default=None)


def _odd(prints: list[Print]) -> Iterator[int]:
    return (p.range for p in prints if p.odd or p.outside)


def _out_of_order(prints: list[Print]) -> Iterator[int]:
    """Yield the ranges of parts of one member that overlap in time, or came in another order than
    their positions."""
    ordered = sorted(prints, key=lambda p: (p.member, p.first_position, p.life, p.first_seq))
    for _, group in groupby(ordered, key=lambda p: p.member):
        own = list(group)
        times = [((p.life, p.first_seq), (p.life, p.last_seq)) for p in own]
        latest = (-1, -1)
        for part, (first, last) in zip(own, times, strict=True):
            if first <= latest:
                yield part.range
            latest = max(latest, last)
        earliest = (1 << 62, 1 << 62)
        for part, (first, last) in zip(reversed(own), reversed(times), strict=True):
            if last >= earliest:
                yield part.range
            earliest = min(earliest, first)


def _disagreeing(
    world: World, prints: list[Print], references: dict[int, Member | None]
) -> Iterator[int]:
    reach = reach_of(prints)
    ordered = sorted(prints, key=lambda p: (p.range, p.view))
    for (part_range, view), group in groupby(ordered, key=lambda p: (p.range, p.view)):
        own = list(group)
        if not _agree(world, own, references[view], reach):
            yield part_range
            if lacking := _may_lack(world, own, references[view], reach):
                yield from (p.range for p in prints if p.member in lacking and p.range > part_range)


def _may_lack(
    world: World, part: list[Print], reference: Member | None, reach: dict[int, int]
) -> set[int]:
    """Return the members that may have left out some of a part, and owe nothing in the view: their
    later deliveries may conflict with those messages."""
    whole = {_numbers(p) for p in part if reference is not None and p.member == reference.number}
    same = {p.member for p in part if _numbers(p) in whole}
    first = min(p.first_position for p in part)
    later = {number for number, last in reach.items() if last > first}
    return later - same - world.owing(part[0].view)


def reach_of(prints: Iterable[Print]) -> dict[int, int]:
    """Return the last position that each member delivered."""
    reach: dict[int, int] = {}
    for one in prints:
        if not one.outside:
            reach[one.member] = max(reach.get(one.member, NOWHERE), one.last_position)
    return reach


def _agree(
    world: World, part: list[Print], reference: Member | None, reach: dict[int, int]
) -> bool:
    there = {p.member for p in part}
    if reference is None or reference.number not in there or len(there) < len(part):
        return False
    if any(_numbers(p) != _numbers(part[0]) for p in part):
        return False
    if not any(m.correct for m in world.members if m.number in there):
        return False
    first, last = part[0].first_position, part[0].last_position
    concerned = (
        m.number
        for m in world.members
        if m.cut < last
        and (
            m.number in world.owing(part[0].view)
            or (m.start < last and reach.get(m.number, NOWHERE) > first)
        )
    )
    return there.issuperset(concerned)


def _numbers(one: Print) -> tuple[int, ...]:
    """Return the numbers by which members are compared."""
    return (
        one.deliveries,
        one.set_hash,
        one.order_hash,
        one.order_hash_2,
        one.first_position,
        one.last_position,
    )
