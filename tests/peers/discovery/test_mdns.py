"""Announcements in a local network: here on loopback."""

import asyncio
import os
import sys

import pytest

from antiphon.errors import ConfigurationError
from antiphon.io.background_loop import new_event_loop
from antiphon.model.peer_views import MemberId
from antiphon.peers.discovery import mdns
from antiphon.peers.discovery.mdns import Mdns
from antiphon.peers.discovery.urls import cluster_of


async def announced(place: Mdns, *addresses: str) -> None:
    """Wait until these are announced, and no others."""
    while sorted(await place.look()) != [*addresses]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


A, B = MemberId("a", 1), MemberId("b", 2)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf.asyncio", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'antiphon\[mdns\]'"):
        cluster_of("peer:mdns/c")


@pytest.mark.process
def test_processes_of_a_cluster_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zeroconf")
    monkeypatch.setattr(mdns, "ANSWERS_S", 0.0)
    cluster = cluster_of("peer:mdns/c?min=2")
    assert (cluster.name, cluster.members_min) == ("c", 2)

    async def test() -> None:
        # Other runs of this test are in the same network.
        one, two, other = (Mdns(f"{name}{os.getpid()}") for name in "ccd")
        assert not await one.enter(A, "127.0.0.1:1001")
        assert not await two.enter(B, "127.0.0.1:1002")
        await other.enter(MemberId("a", 3), "127.0.0.1:1003")
        async with asyncio.timeout(30):
            for place in (one, two):
                await announced(place, "127.0.0.1:1001", "127.0.0.1:1002")
            await two.leave(last=False)
            await announced(one, "127.0.0.1:1001")
        await one.leave(last=False)
        await other.leave(last=False)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(test())
