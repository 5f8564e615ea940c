"""Fixtures for tests of the fronts: programs, each with a connection, and one server inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import antiphon

Connect = Callable[..., antiphon.Context]
_numbers = count(1)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connections to one server, closed in the end."""
    url = f"embedded:blocks{next(_numbers)}"
    contexts: list[antiphon.Context] = []

    def connect(**options: Any) -> antiphon.Context:
        contexts.append(antiphon.connect(url, **options))
        return contexts[-1]

    connect()  # one more keeps the server
    yield connect
    for context in reversed(contexts):
        context.close()
