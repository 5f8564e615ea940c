"""The Spark audit: what it says of clean traces and of planted violations, beside the other judge.

All traces are runs of one table, so that they are audited in one go.
"""

from functools import reduce
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import convert
from pyspark.sql import DataFrame, SparkSession

from antiphon import cli
from antiphon.errors import ConfigurationError
from antiphon.formats.trace import TraceEvent
from antiphon.spark import session
from antiphon.spark.audit import judge, order, report
from tests.spark.support import scenes
from tests.spark.support.agreement import (
    RANGE,
    by_run,
    differing,
    seeds_with_groups,
    simulated,
    table,
)
from tests.spark.support.planting import PLANTS, Trace, as_run, leave_out_before_a_crash, planted
from tests.spark.traces.test_table import write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Of `antiphon chaos`, the rows of its group; members were killed in it.
CHAOS = Path(__file__).parents[2] / "fixtures" / "chaos_group.parquet"
SEEDS = 12
MANY = 70  # members: more than a machine word has bits


class Judged(NamedTuple):
    runs: dict[str, Trace]
    verdict: judge.Verdict
    broken: dict[str, set[str]]

    def findings(self, run: str) -> list[tuple[str, str]]:
        return [(f.property, f.text) for f in self.verdict.findings if f.world.run == run]


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> Judged:
    runs = {**from_scene(), **from_chaos(), **with_many_members(), "void": scenes.void_state()}
    for seed in islice(seeds_with_groups(1), SEEDS):
        runs |= simulated(seed)
    events = [event for trace in runs.values() for event in trace]
    verdict = judge.judge(spark, table(spark, events), RANGE)
    return Judged(runs, verdict, by_run(verdict))


def from_scene() -> dict[str, Trace]:
    runs = {"scene": scenes.trace()}
    for plant in PLANTS:
        changed = planted(plant, scenes.trace())
        assert changed is not None, f"no place for: {plant.name}"
        runs[f"scene {plant.name}"] = as_run(changed, f"scene {plant.name}")
    for number, changed in enumerate(leave_out_before_a_crash(scenes.trace())):
        runs[f"gap {number}"] = as_run(changed, f"gap {number}")
    return runs


def from_chaos() -> dict[str, Trace]:
    """The plants that have a place there."""
    rows = pq.read_table(CHAOS).to_pylist()
    for row in rows:
        row["clock"] = dict(row["clock"])
    trace = [convert(list(row.values()), TraceEvent) for row in rows]
    runs = {"chaos": as_run(trace, "chaos")}
    for plant in PLANTS:
        changed = planted(plant, trace, tries=10)
        if changed is not None:
            runs[f"chaos {plant.name}"] = as_run(changed, f"chaos {plant.name}")
    return runs


def with_many_members() -> dict[str, Trace]:
    story = scenes.Story("many", "topic:many")
    story.join(*(f"m{n}" for n in range(MANY)))
    for n in (0, 1, MANY - 1):
        story.send(f"m{n}")
    last = max(n for n, e in enumerate(story.events) if e.kind == "deliver")
    lost = [event for n, event in enumerate(story.events) if n != last]
    return {"many": story.events, "many lost": as_run(lost, "many lost")}


def test_what_is_clean_is_found_clean(judged: Judged) -> None:
    clean = [run for run in judged.runs if " " not in run]
    assert len(clean) == SEEDS + 4
    assert [finding for run in clean for finding in judged.findings(run)] == []


def test_every_planted_violation_is_reported_as_what_it_is(judged: Judged) -> None:
    wanted = {f"scene {plant.name}": set(plant.broken) for plant in PLANTS}
    assert {run: judged.broken[run] for run in wanted} == wanted


def test_plants_in_real_runs_are_reported_as_what_they_are(judged: Judged) -> None:
    wanted = {f"chaos {p.name}": set(p.broken) for p in PLANTS if f"chaos {p.name}" in judged.runs}
    assert len(wanted) >= 10
    assert {run: judged.broken[run] for run in wanted} == wanted


def test_both_judges_agree_on_every_run(judged: Judged) -> None:
    assert differing(judged.runs, judged.broken) == []


def test_what_is_left_out_before_a_crash_is_found_wherever_it_was(judged: Judged) -> None:
    gaps = [run for run in judged.runs if run.startswith("gap ")]
    assert len(gaps) > 5
    assert [run for run in gaps if "P5" not in judged.broken[run]] == gaps[
        -1:
    ]  # nothing came after


def test_one_lost_message_is_one_lost_message(judged: Judged) -> None:
    ((rule, text),) = judged.findings("scene lost at one member")
    assert rule == "P2"
    assert "which is correct in it, did not" in text


def test_more_members_than_a_word_has_bits(judged: Judged) -> None:
    ((rule, text),) = judged.findings("many lost")
    assert rule == "P2"
    assert f"m{MANY - 1}/m{MANY - 1}.1, which is correct" in text


def test_what_was_checked_is_counted(judged: Judged) -> None:
    checked = judged.verdict.checked
    assert judged.verdict.rows == sum(len(trace) for trace in judged.runs.values())
    assert checked["total"] < checked["P5"] == checked["P2"]
    assert all(checked[name] > 0 for name in judge.PROPERTIES)


def test_the_report_shows_the_rows_that_prove_it(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command, in this process's Spark."""
    lost = planted(PLANTS[0], scenes.trace())
    assert lost is not None
    folder = tmp_path / "run [1]{a,b}* of 100%: two"
    folder.mkdir()
    write(folder, lost)
    monkeypatch.setattr(session, "start", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    assert cli.main(["audit", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "VIOLATION of P2" in said
    assert "deliver" in said
    assert list(folder.glob(".audit-*")) == []


ODD = [
    "a[1]", "a{b,c}", "a*b", "a?b", "a b", "a%20b", "a:b", "a,b", "a\\b", "a#b", "a^b", "a]b",
    "a}b", "[a]: {b}", "a\\[b]", "a;b", "ä",
]  # fmt: skip


def test_folders_and_files_may_have_any_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read alone, also where its name, taken for a pattern, would be that of others."""
    monkeypatch.chdir(tmp_path)
    for name in ODD:
        Path(name).mkdir()
        write_table([{"name": name}], Path(name, "table.parquet").absolute())
    read = [session.parquet(spark, name) for name in ODD]
    rows = reduce(DataFrame.union, read).collect()
    assert [row.name for row in rows] == ODD
    files = [Path(name, "table.parquet").rename(f"{name}.parquet") for name in ODD]
    good = [file for file in files if ":" not in file.name]
    rows = reduce(DataFrame.union, [session.parquet(spark, file) for file in good]).collect()
    assert [f"{row.name}.parquet" for row in rows] == [file.name for file in good]
    with pytest.raises(ConfigurationError, match=r"a colon in its name: rename 'a:b\."):
        session.parquet(spark, "a:b.parquet")
    with pytest.raises(ConfigurationError, match="no file with a colon"):
        report.audit_trace(Path("a:b.parquet"))


def write_table(rows: list[dict[str, str]], path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_a_path_without_a_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no trace"):
        report.audit_trace(tmp_path / "nothing")


def test_a_senders_order_is_the_same_in_whatever_ranges_it_is_looked_at(
    spark: SparkSession,
) -> None:
    chance = Random(6)
    rows, expected = [], set()
    for world in range(100):
        latest: dict[int, int] = {}
        for position in range(30):
            sender, seq = chance.randrange(2), position + chance.choice((0, 0, 0, 0, 0, 9))
            rows.append((world, sender, position, seq))
            if latest.get(sender, -1) > seq:
                expected.add((world, position, latest[sender]))
            latest[sender] = max(latest.get(sender, -1), seq)
    placed = spark.createDataFrame(rows, "world int, sender long, position long, sender_seq long")
    found = order._out_of_place(placed, range_size=4)
    assert {(row.world, row.position, row.top) for row in found.collect()} == expected
