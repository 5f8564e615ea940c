"""The demo's report, from the traces of a small group."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import antiphon
from antiphon.formats.trace import decode
from antiphon.lab.demo import report
from antiphon.lab.demo.member import GROUP
from antiphon.reports.charts import Mark
from tests.reports.test_charts import needs_nothing

WRITES = 20


def record(traces: Path) -> None:
    """Two members, one after the other, and a writer."""
    url = "embedded:demo-report"
    with (
        antiphon.connect(url, client_id="a", trace=str(traces)) as ctx,
        antiphon.connect(url, client_id="b", trace=str(traces)) as other,
    ):
        group = ctx.create_group(GROUP)
        first = ctx.join(group, "a")
        second = other.join(group, "b")
        for number in range(WRITES):
            ctx.create_producer().send(group, str(number))
        for member in (first, second):
            texts: list[str] = []
            while len(texts) < WRITES:
                message = member.receive(10)
                assert message is not None
                texts += [message.text] if isinstance(message, antiphon.TextMessage) else []


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_the_report(spark: SparkSession, tmp_path: Path) -> None:
    record(tmp_path / "traces")
    files = list((tmp_path / "traces").iterdir())
    events = [event for file in files for event in decode(file.read_bytes())[0]]
    began = min(event.at for event in events if event.kind == "deliver")
    happened = [Mark(began + 1.0, "kill -9 node 2"), Mark(began - 100.0, "before it all")]
    out = tmp_path / "report.html"
    verdict = report.write(spark, tmp_path / "traces", happened, tmp_path / "t.parquet", out)
    assert verdict.findings == []
    assert verdict.rows == len(events)
    html = out.read_text(encoding="utf-8")
    needs_nothing(html)
    assert html.count("<svg") == 2
    assert "<title>Throughput</title>" in html
    assert "<title>Latency</title>" in html
    assert "kill -9 node 2" in html
    assert "before it all" not in html
    assert f"<td>P1</td><td>{WRITES}</td><td>0</td>" in html


def test_a_stretch_without_deliveries_shows_as_nothing() -> None:
    every = report.EVERY_S
    assert report.with_gaps([(0.0, 5.0), (3 * every, 7.0)]) == [
        (0.0, 5.0),
        (every, 0.0),
        (2 * every, 0.0),
        (3 * every, 7.0),
    ]
