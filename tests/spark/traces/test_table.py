"""Trace files as one table: every event up to a torn tail, and damage told with the file's name."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antiphon import cli
from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats.trace import TraceEvent, encode_event, encode_header
from antiphon.spark.traces import table as trace_table
from tests.spark.support import scenes


def write(folder: Path, events: list[TraceEvent], torn: bytes = b"") -> None:
    """A file for each life."""
    files: dict[str, bytes] = {}
    for event in events:
        name = f"{event.run}-{event.process}-{event.incarnation}.trace"
        files[name] = files.get(name, encode_header()) + encode_event(event)
    for name, data in files.items():
        (folder / name).write_bytes(data + torn)


def key(row: dict[str, object]) -> tuple[object, ...]:
    return row["process"], row["incarnation"], row["seq"]


def test_the_table_has_every_event_with_all_its_columns(tmp_path: Path) -> None:
    events = scenes.trace()
    write(tmp_path, events)
    assert trace_table.write(trace_table.trace_files(tmp_path), tmp_path / "out") == len(events)
    table = pq.read_table(tmp_path / "out")
    assert table.schema.names == list(TraceEvent.__struct_fields__)
    rows = sorted(table.to_pylist(), key=key)
    wanted = [{name: getattr(event, name) for name in table.schema.names} for event in events]
    for row in rows:
        row["clock"], row["members"] = dict(row["clock"]), tuple(row["members"])
    assert rows == sorted(wanted, key=key)


def test_a_file_is_read_up_to_its_torn_tail(tmp_path: Path) -> None:
    events = scenes.trace()
    write(tmp_path, events, torn=encode_event(events[0])[:-1])
    (tmp_path / "scene-late-1.trace").write_bytes(b"")
    assert len(list(trace_table.events(trace_table.trace_files(tmp_path)))) == len(events)


def test_damage_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, scenes.trace())
    path = tmp_path / "scene-a-1.trace"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"scene-a-1\.trace: damaged at offset"):
        trace_table.write(trace_table.trace_files(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_large_file_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_table, "CHUNK_ROWS", 7)
    events = scenes.trace()
    batches = list(trace_table.batches(iter(events)))
    assert [batch.num_rows for batch in batches[:-1]] == [7] * (len(batches) - 1)
    assert sum(batch.num_rows for batch in batches) == len(events)


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no files that end in"):
        trace_table.trace_files(tmp_path)


def test_where_no_table_can_be_is_said_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path, scenes.trace())
    files = trace_table.trace_files(tmp_path)
    before = {file: file.read_bytes() for file in files}
    for out, error in [
        (tmp_path, "is a folder"),
        (tmp_path / "nothing" / "out", "there is no folder"),
        (files[0], "is one of the traces"),
    ]:
        with pytest.raises(ConfigurationError, match=error):
            trace_table.check_place(files, out)
        assert cli.main(["trace", "to-parquet", str(tmp_path), str(out)]) != 0
    assert {file: file.read_bytes() for file in trace_table.trace_files(tmp_path)} == before


@pytest.mark.parametrize("name", ["a[1]", "a:b", "a{b}*", "a%20 b"])
def test_a_table_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    write(Path(name), scenes.trace())
    out = Path(name, f"{name}.parquet")
    assert cli.main(["trace", "to-parquet", name, str(out)]) == 0
    assert pq.read_table(out.absolute()).num_rows == len(scenes.trace())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, scenes.trace())
    out = tmp_path / "all.parquet"
    assert cli.main(["trace", "to-parquet", str(tmp_path), str(out)]) == 0
    assert f"rows of {len(os.listdir(tmp_path)) - 1} files" in capsys.readouterr().out
    assert pq.read_table(out).num_rows == len(scenes.trace())
