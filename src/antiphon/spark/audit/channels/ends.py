"""The audit of whole views: virtual synchrony, total order, prefix and uniform delivery.

Each stay is summed up in one row: how many packs, a fingerprint of all, and how many with a place
in the total order. Orders are compared place by place: where two processes have unlike packs at one
place of a view, their orders part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.channels.findings import Finding, World, life_name, view_name
from antiphon.spark.audit.channels.rows import AGREED, WORLD
from antiphon.spark.audit.channels.views import Stay, by_view


class Sum(NamedTuple):
    """The deliveries of a process in a stay: how many packs, which ones, and how often one with a
    place in the order."""

    packs: int = 0
    print: int = 0
    ordered: int = 0


def sums(rows: DataFrame) -> dict[int, Sum]:
    """Return what was delivered in each stay, of what is for all."""
    found = (
        rows.where("for_all")
        .groupBy("stay", "sender", "first")
        .agg(F.count("*").alias("times"), F.max("level").alias("level"))
        .groupBy("stay")
        .agg(
            F.count("*").alias("packs"),
            F.bit_xor(F.xxhash64("sender", "first")).alias("print"),
            F.sum(F.when(F.col("level") >= AGREED, F.col("times")).otherwise(0)).alias("ordered"),
        )
        .toArrow()
        .to_pylist()
    )
    return {row["stay"]: Sum(row["packs"], row["print"], row["ordered"]) for row in found}


def partings(rows: DataFrame) -> set[tuple[int, int]]:
    """Return the pairs of stays in one view whose orders part."""
    agreed = rows.where(f"for_all AND level >= {AGREED}")
    place = F.row_number().over(Window.partitionBy("stay").orderBy("seq"))
    placed = agreed.withColumn("place", place).withColumn("pack", F.struct("sender", "first"))
    where = (*WORLD, "stay_view", "place")
    doubtful = placed.groupBy(*where).agg(F.min("pack").alias("least"), F.max("pack").alias("most"))
    doubtful = doubtful.where("least <> most").select(*WORLD, "stay_view").distinct()
    parted = placed.join(F.broadcast(doubtful), [*WORLD, "stay_view"]).select(
        *where, "stay", "pack"
    )
    one, other = parted.alias("one"), parted.alias("other")
    same = [F.col(f"one.{name}") == F.col(f"other.{name}") for name in where]
    found = one.join(
        other,
        [*same, F.col("one.stay") < F.col("other.stay"), F.col("one.pack") != F.col("other.pack")],
    )
    pairs = found.select(F.col("one.stay").alias("one"), F.col("other.stay").alias("other"))
    return {(row["one"], row["other"]) for row in pairs.distinct().toArrow().to_pylist()}


class Ends:
    """Compares the stays of each view."""

    def __init__(
        self, stays: list[Stay], told: dict[int, Sum], parted: set[tuple[int, int]], complete: bool
    ) -> None:
        self._numbers = {id(stay): number for number, stay in enumerate(stays)}
        self._stays = stays
        self._told = told
        self._parted = parted
        self._complete = complete

    def judge(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        for (world, view), those in by_view(self._stays).items():
            yield from self._synchrony(world, view, those)
            yield from self._total(world, view, those)
            if those[0].shown.primary:
                yield from self._prefix(world, view, those)
                yield from self._uniform(world, view, those)

    def _sum(self, stay: Stay) -> Sum:
        return self._told.get(self._numbers[id(stay)], Sum())

    def _parts(self, one: Stay, other: Stay) -> bool:
        pair = sorted((self._numbers[id(one)], self._numbers[id(other)]))
        return (pair[0], pair[1]) in self._parted

    def _synchrony(self, world: World, view: str, those: list[Stay]) -> Iterator[Finding]:
        first: dict[str, Stay] = {}
        for stay in those:
            if stay.missed or (not stay.onward and (stay.life.ended or not self._complete)):
                continue
            other = first.setdefault(stay.onward, stay)
            if self._sum(other)[:2] != self._sum(stay)[:2]:
                whither = view_name(stay.onward) if stay.onward else "the end"
                text = f"{_two(other, stay)} delivered unlike packs in {view_name(view)}"
                yield Finding("virtual synchrony", world, f"{text}, and go on to {whither}")

    def _total(self, world: World, view: str, those: list[Stay]) -> Iterator[Finding]:
        for one, other in combinations(those, 2):
            if self._parts(one, other):
                text = f"{_two(one, other)} have unlike orders in {view_name(view)}"
                yield Finding("total", world, text)

    def _prefix(self, world: World, view: str, those: list[Stay]) -> Iterator[Finding]:
        onward = [stay for stay in those if stay.onward]
        for one, other in combinations(onward, 2):
            mine, its = self._sum(one).ordered, self._sum(other).ordered
            together = one.onward == other.onward and not (one.missed or other.missed)
            nobody = not together and not one.onward_primary and not other.onward_primary
            too_long = together and mine != its
            if not together and one.onward_primary != other.onward_primary:
                too_long = its > mine if one.onward_primary else mine > its
            if not nobody and (too_long or self._parts(one, other)):
                text = f"{_two(one, other)} delivered {mine} and {its} packs in {view_name(view)}"
                text += f" and go on to {view_name(one.onward)} and {view_name(other.onward)}"
                yield Finding("prefix", world, f"{text}, which is not prefix delivery")

    def _uniform(self, world: World, view: str, those: list[Stay]) -> Iterator[Finding]:
        longest = max(those, key=lambda stay: self._sum(stay).ordered)
        for stay in those:
            if not stay.onward_primary or stay.missed:
                continue
            if self._sum(stay).ordered < self._sum(longest).ordered or self._parts(stay, longest):
                text = f"{_two(longest, stay)} delivered unlike packs in {view_name(view)}, and the"
                yield Finding("uniform", world, f"{text} second goes on to a primary view")


def _two(one: Stay, other: Stay) -> str:
    return f"{life_name(one.life.name)} and {life_name(other.life.name)}"
