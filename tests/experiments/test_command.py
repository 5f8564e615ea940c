"""`antiphon experiment` where the extra is not installed."""

import sys
from pathlib import Path

import pytest

from antiphon import cli


@pytest.mark.parametrize("name", ["groups", "packing"])
def test_what_is_missing_is_said_before_anything_is_done(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    out = tmp_path / "out"
    assert cli.main(["experiment", name, "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert "antiphon experiment needs Spark: pip install 'antiphon[spark]'" in told
    assert not out.exists()
