"""What the audit costs: `python -m tests.spark.support.bench_audit 20 FOLDER` writes a trace of 20
million rows there, unless it is there, and compares the audit's CPU time with that of a bare scan.

Each step runs in turn, `ROUNDS` times; ratios are of the medians of one run. With `loose` as a
third argument members take liberties that their group's relation allows: everything has to be
looked at message by message.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from antiphon import ConflictRelation
from antiphon.spark import session
from antiphon.spark.audit import fingerprints, judge, members, report
from antiphon.spark.audit import rows as audit_rows
from antiphon.spark.traces import table

MEMBERS = 5
CHUNK = 200_000
ROUNDS = int(os.environ.get("ROUNDS", "5"))
GROUP = "topic:bench"
LOOSE = ConflictRelation(("get", "put"), (("put", "put"), ("get", "put")))


def generate(folder: Path, rows: int, loose: bool) -> None:
    """Members that multicast in turn, each in one life and one view; a file for each."""
    messages = rows // (MEMBERS + 2) // 2 * 2
    for member in range(MEMBERS):
        with pq.ParquetWriter(folder / f"m{member}.parquet", table.SCHEMA) as writer:
            writer.write_table(_beginning(member))
            if loose:
                writer.write_table(_relation(member))
            for first in range(0, messages, CHUNK):
                count = min(CHUNK, messages - first)
                writer.write_table(_deliveries(member, first, count, loose))
                writer.write_table(_sends(member, first, count))


def _table(count: int, columns: dict[str, object]) -> pa.Table:
    """What is not given is as in a row that does not tell it."""
    plain: dict[str, object] = {
        "run": "bench",
        "incarnation": 1,
        "didx": -1,
        "position": -1,
        "group": GROUP,
        "message": "",
        "sender": "",
        "sender_seq": -1,
        "view_id": -1,
        "members": [],
        "session": "",
        "durable": False,
        "redelivered": False,
        "persistent": False,
        "clock": [],
        "relation": "",
        "at": 1.0,
    }
    given = {**plain, **columns}
    return pa.table(
        [_column(given.get(field.name), count, field.type) for field in table.SCHEMA],
        schema=table.SCHEMA,
    )


def _column(value: object, count: int, kind: pa.DataType) -> pa.Array:
    if isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray):
        return pa.array(value, kind) if isinstance(value, np.ndarray) else value.cast(kind)
    if value == [] and (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return pa.array([[]], kind).take(pa.array(np.zeros(count, dtype=np.int64)))
    return pa.repeat(pa.scalar(value, kind), count)


def _beginning(member: int) -> pa.Table:
    names = [f"m{n}" for n in range(MEMBERS)]
    return _table(
        2,
        {
            "process": f"m{member}",
            "kind": pa.array(["join", "view"]),
            "seq": pa.array([1, 2]),
            "view_id": pa.array([-1, 1]),
            "position": pa.array([-1, 0]),
            "members": pa.array([[], names]),
            "sender": pa.array([f"m{member}", ""]),
        },
    )


def _relation(member: int) -> pa.Table:
    relation = LOOSE.to_json()
    told = {"process": f"m{member}", "kind": "group", "seq": 3, "position": 0}
    return _table(1, {**told, "relation": relation})


def _liberties(member: int, numbers: np.ndarray) -> tuple[np.ndarray, pa.Array]:
    """The places and the tags of messages: one pair of neighbours in ten is of puts, and of the
    others each member swaps its own."""
    pairs = numbers // 2
    puts = pairs % 10 == 9
    swapped = (pairs % MEMBERS == member) & ~puts
    return np.where(swapped, numbers ^ 1, numbers), pa.array(np.where(puts, "put", "get"))


def _names(numbers: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Of messages, and of their senders."""
    text = pa.array(numbers // MEMBERS).cast(pa.string())
    senders = pa.array([f"5e55{n}" for n in range(MEMBERS)]).take(pa.array(numbers % MEMBERS))
    return pa.compute.binary_join_element_wise("ID:", senders, ".", text, ""), senders


def _deliveries(member: int, first: int, count: int, loose: bool) -> pa.Table:
    numbers = np.arange(first, first + count)
    messages, senders = _names(numbers)
    places, tags = _liberties(member, numbers) if loose else (numbers, None)
    return _table(
        count,
        {
            "process": f"m{member}",
            "kind": "deliver",
            "seq": 10 + 2 * places,
            "didx": places,
            "tag": tags,
            "position": numbers + 1,
            "message": messages,
            "sender": senders,
            "sender_seq": numbers // MEMBERS,
            "view_id": 1,
            "persistent": True,
        },
    )


def _sends(member: int, first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    numbers = numbers[numbers % MEMBERS == member]
    messages, senders = _names(numbers)
    told = {
        "process": f"m{member}",
        "message": messages,
        "sender": senders,
        "sender_seq": numbers // MEMBERS,
        "persistent": True,
    }
    send = {**told, "kind": "send", "seq": 11 + 2 * numbers, "clock": _clocks(numbers)}
    sent = {**told, "kind": "sent", "seq": 13 + 2 * numbers}
    return pa.concat_tables([_table(len(numbers), send), _table(len(numbers), sent)])


def _clocks(numbers: np.ndarray) -> pa.Array:
    """What came since the own message before: one of each of the others."""
    before = (numbers[:, None] - np.arange(1, MEMBERS)).ravel()
    before = np.maximum(before, 0)
    keys = pa.array([f"5e55{n}" for n in range(MEMBERS)]).take(pa.array(before % MEMBERS))
    offsets = pa.array(np.arange(len(numbers) + 1) * (MEMBERS - 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, pa.array(before // MEMBERS))


# -- Measuring -------------------------------------------------------------------------------------


class Clock:
    """CPU seconds and the peak memory of Spark's process."""

    def __init__(self, spark: SparkSession) -> None:
        assert spark._jvm is not None
        self._process = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}")

    def cpu_s(self) -> float:
        fields = (self._process / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_gb(self) -> float:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e6


def main(millions: int, folder: Path, loose: bool) -> None:
    if not folder.exists():
        folder.mkdir(parents=True)
        generate(folder, millions * 1_000_000, loose)
    spark = session.start("bench", "local[2]", report.settings(folder))
    trace = spark.read.parquet(str(folder))
    clock = Clock(spark)
    steps: dict[str, Callable[[], object]] = {
        "scan": lambda: trace.write.format("noop").mode("overwrite").save(),
        "fingerprint": lambda: _fingerprint(spark, trace),
        "audit": lambda: _audit(spark, trace),
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS + 1):
        for name, step in steps.items():
            before = clock.cpu_s()
            step()
            if number:  # the first round warms up
                taken[name].append(clock.cpu_s() - before)
        print(
            number,
            {name: round(times[-1], 2) for name, times in taken.items() if times},
            flush=True,
        )
    rows = trace.count()
    cpu = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in cpu.items():
        per_row = 1e6 * seconds / rows
        print(
            f"{name:12} {seconds:7.1f} s {per_row:6.3f} us/row {seconds / cpu['scan']:5.2f} scans"
        )
    print(f"peak memory {clock.peak_gb():.2f} GB with a heap of {report.HEAP}")
    spark.stop()


def _fingerprint(spark: SparkSession, trace: DataFrame) -> None:
    lives, _ = audit_rows.lives(trace)
    cast = members.read(audit_rows.told(trace), lives)
    known = audit_rows.stretches(spark, cast)
    fingerprints.take(audit_rows.deliveries(trace, known), fingerprints.RANGE)


def _audit(spark: SparkSession, trace: DataFrame) -> None:
    verdict = judge.judge(spark, trace)
    assert not verdict.findings, verdict.findings[:3]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] == ["loose"])
