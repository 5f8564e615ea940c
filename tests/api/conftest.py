"""The servers and fronts that the suites of the API run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from antiphon.broker.home.settings import HomeSettings
from antiphon.model.redelivery import Redelivery
from tests.api.support import backends
from tests.api.support.backends import Backend
from tests.api.support.fronts import Aio, Sync


@pytest.fixture(scope="session")
def _several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Backend]]:
    """Backends of several processes: each is started when it is first asked for, and used by
    all."""
    kinds = {"cluster": backends.cluster, "peers": backends.peers}
    started: dict[str, Backend] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Backend:
            if kind not in started:
                folder = tmp_path_factory.mktemp(kind)
                started[kind] = stack.enter_context(kinds[kind](folder))
            return started[kind]

        yield get


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("server", marks=pytest.mark.process),
        pytest.param("cluster", marks=[pytest.mark.process, pytest.mark.in_turn]),
        pytest.param("peers", marks=[pytest.mark.process, pytest.mark.in_turn]),
    ]
)
def backend(
    request: pytest.FixtureRequest, _several: Callable[[str], Backend]
) -> Iterator[Backend]:
    if request.param in ("cluster", "peers"):
        yield _several(request.param)
    else:
        with {"embedded": backends.embedded, "server": backends.one_server}[request.param]() as one:
            yield one


@pytest.fixture(params=[Sync, Aio], ids=["sync", "aio"])
def front(request: pytest.FixtureRequest) -> Iterator[Any]:
    front = request.param()
    yield front
    front.close()


@pytest.fixture
def quick_backend() -> Iterator[Backend]:
    """A server where redeliveries hardly wait, for tests that need many."""
    with backends.one_server(HomeSettings(redelivery=Redelivery(delay_ms=5, most_ms=5))) as one:
        yield one


@pytest.fixture
def quick(front: Any, quick_backend: Backend) -> Iterator[Callable[..., Any]]:
    """Connections to it."""
    with backends.connections(front, quick_backend) as connect:
        yield connect


@pytest.fixture
def connect(front: Any, backend: Backend) -> Iterator[Callable[..., Any]]:
    """Connections to the backend, closed in the end. One more keeps a shared embedded server."""
    with backends.connections(front, backend) as connect:
        connect()
        yield connect
