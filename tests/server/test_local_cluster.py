"""Server processes that a program starts, and ends with itself."""

import signal
import sys

import pytest

from antiphon.server.local_cluster import undisturbed


def begin_a_process(known: list[str]) -> None:
    with undisturbed():
        signal.raise_signal(signal.SIGTERM)
        known.append("the process")


def test_a_signal_that_ends_the_program_waits_until_a_new_process_is_known() -> None:
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    known: list[str] = []
    try:
        with pytest.raises(SystemExit):
            begin_a_process(known)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert known == ["the process"]
