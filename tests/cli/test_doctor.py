"""`antiphon doctor` says what is there, and what to do about what is not."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from antiphon import cli
from antiphon.cli import doctor
from antiphon.spark import java


def findings(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["doctor", "--json", *args]) == code
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    return {finding["what"]: finding for finding in found}


def test_it_shows_what_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = findings(capsys, "--data", str(tmp_path))
    assert found["Python"]["verdict"] == "ok"
    assert found["msgspec"]["verdict"] == "ok"
    assert "ms" in found[f"sync to {tmp_path}"]["found"]
    assert found["Java for Spark"]["found"].endswith(f"that of {java.choose().source}")
    assert list(tmp_path.iterdir()) == []


def test_it_is_a_table_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["doctor", "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "open files" in shown
    assert "Java for Spark" in shown


def test_a_folder_that_cannot_be_written_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys, "--data", "/nowhere/at/all", code=1)["sync to /nowhere/at/all"]
    assert found["verdict"] == "problem"
    assert found["fix"] == "choose another with --data"


def test_few_open_files_are_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    found = findings(capsys, code=1)["open files"]
    assert (found["found"], found["verdict"]) == ("256", "problem")


def test_a_slow_disk_and_a_missing_extra_are_remarks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_sync_times_ms", lambda _: [30.0, 50.0])
    monkeypatch.setattr(doctor, "_EXTRAS", ("no-such-package",))
    found = findings(capsys)
    assert found["sync to ."]["verdict"] == "remark"
    assert found["no-such-package"]["fix"].endswith("pip install 'antiphon[spark]'")


def test_without_java_it_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = java.Java("PATH", Path("/old"), 8, "/old is Java 8")
    monkeypatch.setattr(java, "candidates", lambda: iter([old]))
    found = findings(capsys)
    assert found["Java (PATH)"]["verdict"] == "remark"
    assert "Set JAVA_HOME" in found["Java for Spark"]["fix"]
