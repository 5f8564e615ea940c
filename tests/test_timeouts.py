"""A test that takes too long fails and shows where every thread stood; no other test does.

Each test here runs pytest on a small file, with the settings of this project.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]
LIMIT_S = 0.5  # of the tests in the file


@contextmanager
def run(folder: Path, source: str) -> Iterator[subprocess.Popen[str]]:
    file = folder / "test_inner.py"
    file.write_text("import ctypes, threading, pytest\n" + dedent(source))
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "-o", f"timeout={LIMIT_S}"]
    options += ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # The plugin is loaded before pytest can watch its assertions.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        yield process
        process.kill()


def test_stuck_in_c_code_a_test_shows_its_stacks(tmp_path: Path) -> None:
    source = """
        import tests.conftest

        tests.conftest.STACKS_AFTER_S = 1.0  # this one cannot be failed before

        def test_that_never_ends():
            lock = ctypes.create_string_buffer(64)
            libc = ctypes.CDLL(None)
            libc.pthread_mutex_init(lock, None)
            libc.pthread_mutex_lock(lock)
            libc.pthread_mutex_lock(lock)
    """
    with run(tmp_path, source) as pytest_:
        assert pytest_.stderr is not None
        shown = []
        for line in pytest_.stderr:
            shown.append(line)
            if "test_that_never_ends" in line:
                break
    assert shown[0].startswith("Timeout (")
    assert "test_inner.py" in shown[-1]


def test_a_test_that_can_be_failed_goes_on_with_the_next_one(tmp_path: Path) -> None:
    source = """
        def test_that_waits():
            threading.Event().wait()

        def test_after_it():
            pass
    """
    with run(tmp_path, source) as pytest_:
        out, err = pytest_.communicate()
    assert "1 failed, 1 passed" in out
    assert "threading.Event().wait()" in out
    assert "Timeout (" not in err


def test_a_slow_test_that_keeps_to_its_own_limit_shows_nothing(tmp_path: Path) -> None:
    source = f"""
        @pytest.mark.timeout(60)
        def test_that_is_slow():
            threading.Event().wait({3 * LIMIT_S})

        def test_after_it():
            pass
    """
    with run(tmp_path, source) as pytest_:
        out, err = pytest_.communicate()
    assert "2 passed" in out
    assert err == ""


def test_no_limit_but_its_own_shows_a_tests_stacks(pytestconfig: pytest.Config) -> None:
    assert not pytestconfig.getini("faulthandler_timeout")
