"""Three judges, one verdict: simulated traces, clean and with planted violations, judged by all.

`python -m tests.spark.support.agreement SEEDS [FIRST]` does it for many seeds and tells where the
judges disagree; a test does it for a few. All traces are runs of one table, so Spark judges them at
once.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from antiphon.checkers import memberships
from antiphon.formats.trace import TraceEvent
from antiphon.sim.messaging_world import MessagingWorld
from antiphon.sim.plan import draw_plan
from antiphon.sim.run import make_world, run_world
from antiphon.spark import session
from antiphon.spark.audit import judge
from antiphon.spark.traces import table as trace_table
from tests.spark.support.planting import (
    KNOWN,
    OF_MEMBERS,
    PLANTS,
    Trace,
    as_run,
    planted,
    verdict,
)

RANGE = 16  # small, so that there is agreement and doubt in short traces
PLANTS_A_SEED = 4
SEEDS_AT_ONCE = 50


def table(spark: SparkSession, events: Iterable[TraceEvent]) -> DataFrame:
    batches = list(trace_table.batches(iter(events)))
    return spark.createDataFrame(pa.Table.from_batches(batches, trace_table.SCHEMA))


def by_run(found: judge.Verdict) -> dict[str, set[str]]:
    broken: dict[str, set[str]] = defaultdict(set)
    for finding in found.findings:
        broken[finding.world.run].add(finding.property)
    return broken


def seeds_with_groups(first: int) -> Iterator[int]:
    seed = first
    while True:
        plan = draw_plan(seed)
        if plan.messaging is not None and plan.messaging.groups:
            yield seed
        seed += 1


def simulated(seed: int) -> dict[str, Trace]:
    """What the programs of a seed saw; once as it was, and with some plants."""
    world = make_world(draw_plan(seed))
    assert isinstance(world, MessagingWorld)
    violation = run_world(world).violation
    assert not violation, f"seed {seed}: {violation}"
    name = str(seed)
    runs = {name: as_run(world.traces, name)}
    for plant in Random(seed).sample(PLANTS, PLANTS_A_SEED):
        changed = planted(plant, world.traces)
        if changed is not None:
            runs[f"{seed} {plant.name}"] = as_run(changed, f"{seed} {plant.name}")
    return runs


def differing(runs: dict[str, Trace], broken: dict[str, set[str]]) -> list[str]:
    """Return where the judges disagree; `broken` is what Spark says."""
    told: list[str] = []
    for run, trace in runs.items():
        expected, spark = verdict(trace), broken[run]
        if expected != spark & KNOWN or (" " not in run and spark):
            told.append(f"{run}: {sorted(expected)} in memory, {sorted(spark)} on Spark")
        members = {finding.rule for finding in memberships.check(trace)}
        # What follows from views that contradict each other is told in one way or another.
        if members != expected & OF_MEMBERS and "views" not in members & expected:
            told.append(f"{run}: {sorted(expected)} in memory, {sorted(members)} by memberships")
    return told


def main(count: int, first: int) -> int:
    source = islice(seeds_with_groups(first), count)
    settings = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4"}
    spark = session.start("agreement", "local[2]", settings)
    judged = disagreements = 0
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        while seeds := list(islice(source, SEEDS_AT_ONCE)):
            runs: dict[str, Trace] = {}
            for some in pool.imap_unordered(simulated, seeds):
                runs |= some
            events = [event for trace in runs.values() for event in trace]
            told = differing(runs, by_run(judge.judge(spark, table(spark, events), RANGE)))
            judged, disagreements = judged + len(runs), disagreements + len(told)
            print(*told, sep="\n", end="\n" if told else "")
            print(
                f"{judged} runs up to seed {seeds[-1]}: {disagreements} disagreements", flush=True
            )
    spark.stop()
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
