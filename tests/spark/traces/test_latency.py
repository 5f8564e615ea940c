"""Latency and throughput from traces, against the same computed plainly."""

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon.spark.traces import latency

pytestmark = pytest.mark.spark
Row = dict[str, Any]


def nearest_rank(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def plainly(rows: Iterable[Row]) -> dict[str, Row]:
    """What `by_run` must give, for each run."""
    sent: dict[tuple[str, str], float] = {}
    delivered: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "send":
            sent[row["run"], row["message"]] = row["at"]
        elif row["kind"] == "deliver":
            delivered[row["run"], row["message"]].append(row["at"])
    found: dict[str, Row] = {}
    for run in {run for run, _ in sent}:
        keys = [key for key in sent if key[0] == run and delivered[key]]
        early = [(min(delivered[key]) - sent[key]) * 1000 for key in keys]
        late = [(max(delivered[key]) - sent[key]) * 1000 for key in keys]
        ended = max(max(delivered[key]) for key in keys)
        found[run] = {
            "messages": len(keys),
            "deliveries": sum(len(delivered[key]) for key in keys),
            "messages_per_s": len(keys) / (ended - min(sent[key] for key in keys)),
        }
        for name, values in (("early", early), ("late", late)):
            found[run][f"{name}_mean_ms"] = mean(values)
            found[run] |= {f"{name}_p{p}_ms": nearest_rank(values, p / 100) for p in (50, 99)}
    return found


def a_trace(seed: int) -> list[Row]:
    chance, rows = Random(seed), []
    for run in ("a", "b"):
        for number in range(chance.randint(2, 300)):
            at, message = number * 0.01 + chance.random(), f"m{number}"
            rows.append({"run": run, "kind": "send", "message": message, "at": at})
            rows.append({"run": run, "kind": "sent", "message": message, "at": at})
            for _ in range(chance.randint(0, 4) if number else 1):
                later = at + chance.expovariate(100)
                rows.append({"run": run, "kind": "deliver", "message": message, "at": later})
        rows.append({"run": run, "kind": "deliver", "message": "from before", "at": 0.0})
    chance.shuffle(rows)
    return rows


def test_the_figures_of_runs(spark: SparkSession, tmp_path: Path) -> None:
    rows = a_trace(7)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trace.parquet")
    trace = spark.read.parquet(str(tmp_path))
    found = latency.rows(latency.by_run(latency.messages(trace)))
    expected = plainly(rows)
    assert [row["run"] for row in found] == ["a", "b"]
    for row in found:
        assert row == pytest.approx(expected[row.pop("run")])


def test_figures_over_time(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"run": "a", "kind": kind, "message": message, "at": at}
        for message, sent, first in (("m", 10.0, 10.3), ("n", 10.2, 10.4), ("o", 10.9, 11.7))
        for kind, at in (("send", sent), ("deliver", first), ("deliver", 12.0))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trace.parquet")
    messages = latency.messages(spark.read.parquet(str(tmp_path)))
    found = latency.rows(latency.over_time(messages, 0.5))
    assert [(row["at"], row["messages_per_s"]) for row in found] == [(10.0, 4.0), (11.5, 2.0)]
    assert [row["early_mean_ms"] for row in found] == [pytest.approx(250), pytest.approx(800)]
    assert [row["early_p99_ms"] for row in found] == [pytest.approx(300), pytest.approx(800)]
