"""The notes of processes become rows of a trace."""

from array import array
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.formats.trace import TraceEvent
from antiphon.lab.experiments import raw_events
from antiphon.lab.experiments.load_sources import Source
from antiphon.lab.experiments.processes import Delivered, Done, Run, Sent


def a_run() -> Done:
    sent = Sent(array("d", [1.0, 2.0]), 0.5)
    late = Delivered("b", 2, array("q", [0, 1]), array("q", [7, 8]), array("d", [1.5, 2.5]), 0.25)
    lost = Delivered("a", 2, array("q", [1]), array("q", [8]), array("d", [2.25]), 0.25)
    return Done(Run("r", Source(), 1.0), sent, [lost, late], 1.0, 2.0, 2, [])


def test_the_rows_of_a_run(tmp_path: Path) -> None:
    raw_events.write(a_run(), tmp_path)
    found = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert [(r["process"], r["kind"], r["message"], r["position"], r["at"]) for r in found] == [
        ("publisher", "send", "publisher.0", -1, 1.0),
        ("publisher", "send", "publisher.1", -1, 2.0),
        ("a", "deliver", "publisher.1", 8, 2.25),
        ("b", "deliver", "publisher.0", 7, 1.5),
        ("b", "deliver", "publisher.1", 8, 2.5),
    ]
    assert {row["run"] for row in found} == {"r"}
    assert {row["group"] for row in found} == {"topic:experiment"}
    deliveries = [row for row in found if row["kind"] == "deliver"]
    assert [(r["seq"], r["didx"], r["sender_seq"], r["view_id"]) for r in deliveries] == [
        (1, 0, 1, 2),
        (1, 0, 0, 2),
        (2, 1, 1, 2),
    ]


def test_the_columns_are_those_of_traces() -> None:
    for table in raw_events.tables(a_run()):
        events = [TraceEvent(**row) for row in table.to_pylist()]
        assert len(events) == table.num_rows


def test_a_run_in_which_nothing_arrived_has_rows_all_the_same() -> None:
    nobody = Delivered("a", 1, array("q"), array("q"), array("d"), 0.0)
    done = a_run()._replace(delivered=[nobody])
    assert [table.num_rows for table in raw_events.tables(done)] == [2, 0]
    assert all(isinstance(table, pa.Table) for table in raw_events.tables(done))


def test_processor_time_is_that_of_all() -> None:
    assert a_run().cpu_s == 0.5 + 0.25 + 0.25 + 1.0 + 2.0
