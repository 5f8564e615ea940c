"""Server processes that a program starts, and ends with itself."""

import signal
import sys

import pytest

from antiphon.io.local import undisturbed


def test_a_signal_that_ends_the_program_waits_until_a_new_process_is_known() -> None:
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    known = []
    try:
        with pytest.raises(SystemExit), undisturbed():
            signal.raise_signal(signal.SIGTERM)
            known.append("the process")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert known == ["the process"]
