"""Settings that every test shares."""

import faulthandler
import os
import signal
from collections.abc import Iterator
from io import FileIO
from typing import Protocol

import pytest
from hypothesis import settings

from tests import rotation

# No deadline: on a busy machine a slow example says nothing about the code. Derandomized: a test
# that failed fails again.
settings.register_profile("antiphon", deadline=None, derandomize=True)
settings.load_profile("antiphon")

# Who runs the tests in the background ignores interrupts, and so would every program that the
# tests start, and that is to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

STACKS_AFTER_S = 15.0
"""After a test's own limit: by then pytest-timeout has failed any test that can still be failed,
and pytest has written why, which takes a while on a busy machine."""

STACKS = pytest.StashKey[FileIO]()


class Limits(Protocol):
    timeout: float


def pytest_addoption(parser: pytest.Parser) -> None:
    rotation.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    rotation.configure(config)
    # Nothing is captured yet, so this is what the run itself writes to.
    config.stash[STACKS] = FileIO(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[STACKS].close()


# pytest-timeout fails a test by a signal, which a test stuck in C code never sees. Only then the
# stacks are written, by a thread of faulthandler's. pytest's own `faulthandler_timeout` is one for
# all tests, and wrote the stacks of those that pass and have longer limits.


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Limits) -> Iterator[None]:
    file = item.config.stash[STACKS]
    faulthandler.dump_traceback_later(settings.timeout + STACKS_AFTER_S, file=file)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Iterator[None]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)
