"""Antiphon servers as name service: who is there, and who has founded."""

import asyncio
from collections.abc import Iterator

import pytest

from antiphon.errors import ConnectionLostError
from antiphon.model.peer_views import MemberId
from antiphon.peers.discovery import name_service
from antiphon.peers.discovery.name_service import NameService
from antiphon.peers.discovery.urls import cluster_of
from antiphon.server.local_cluster import LocalCluster

pytestmark = pytest.mark.process

A, B, C = (MemberId(name, number) for number, name in enumerate("abc", 1))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(1, tmp_path_factory.mktemp("servers"), "memory") as servers:
        servers.start()
        yield servers.url


def test_the_url_names_servers_and_cluster(url: str) -> None:
    cluster = cluster_of(f"peer:{url}/alarms?min=2")
    assert isinstance(cluster.discovery, NameService)
    assert (cluster.name, cluster.members_min) == ("alarms", 2)
    assert cluster.discovery.listen == ("127.0.0.1:0",)  # the servers are on this machine


class Together(NameService):
    """One of several that all find no founding record before the first of them sends one."""

    def __init__(self, url: str, name: str, nobody_has: asyncio.Barrier) -> None:
        super().__init__(url, name)
        self._nobody_has = nobody_has

    async def _send(self, queue: str, text: str, time_to_live: float = 0.0) -> None:
        if queue == self._founded:
            await self._nobody_has.wait()
        await super()._send(queue, text, time_to_live)


def test_of_many_that_enter_at_once_one_founds_until_the_last_has_left(url: str) -> None:
    async def test() -> None:
        nobody_has = asyncio.Barrier(12)
        places = [Together(url, "many", nobody_has) for _ in range(12)]
        members = [MemberId("m", number) for number in range(1, 13)]
        entering = (
            place.enter(member, f"127.0.0.1:{member.incarnation}")
            for place, member in zip(places, members, strict=True)
        )
        assert sum(await asyncio.gather(*entering)) == 1
        late = NameService(url, "many")
        assert not await late.enter(MemberId("late", 99), "127.0.0.1:99")
        assert len(await late.look()) == 13
        for place in places:
            await place.leave(last=False)
        # Also those who wanted to found it have left nothing behind.
        assert len(await late._processes(late._founded)) == 1
        assert await late._processes(late._members) == ["63"]
        await late.leave(last=True)
        again = NameService(url, "many")
        assert await again.enter(A, "127.0.0.1:1")
        await again.leave(last=True)

    asyncio.run(test())


def test_the_last_to_leave_takes_no_record_of_a_new_founding_away(url: str) -> None:
    async def test() -> None:
        one, two, three, four = (NameService(url, "anew") for _ in range(4))
        assert await one.enter(A, "127.0.0.1:1")
        assert not await two.enter(B, "127.0.0.1:2")
        await one.leave(last=True)
        assert await three.enter(C, "127.0.0.1:3")
        await two.leave(last=True)
        assert not await four.enter(MemberId("d", 4), "127.0.0.1:4")
        await four.leave(last=False)
        await three.leave(last=True)

    asyncio.run(test())


def test_the_end_of_a_cluster_leaves_the_records_of_the_living_alone(url: str) -> None:
    """Behind the record: one of a process that died before it took it back, and one of a process
    that is about to see that it is the first one now."""

    async def test() -> None:
        one, dead, alive = (NameService(url, "left") for _ in range(3))
        assert await one.enter(A, "127.0.0.1:1")
        dead._process, alive._process = "dead", "alive"
        await alive._refresh()
        for place in (dead, alive):
            await place._send(place._founded, "me, too")
        await one.leave(last=True)
        assert await dead._processes(dead._founded) == ["alive"]
        await alive._refresh()
        await alive.leave(last=True)
        assert await dead._processes(dead._founded) == []
        await dead.leave(last=False)

    asyncio.run(test())


class Broken(NameService):
    """One whose connection is lost when it looks for founding records for the nth time."""

    def __init__(self, url: str, name: str, looks: int) -> None:
        super().__init__(url, name)
        self._looks = looks

    async def _processes(self, queue: str) -> list[str]:
        if queue == self._founded:
            self._looks -= 1
            if self._looks == 0:
                raise ConnectionLostError("planted")
        return await super()._processes(queue)


def test_one_that_fails_to_enter_takes_its_record_back_and_no_other(url: str) -> None:
    async def test() -> None:
        early = Broken(url, "fails", 2)  # it has sent a record
        with pytest.raises(ConnectionLostError):
            await early.enter(A, "127.0.0.1:1")
        await early.leave(last=True)
        one, late = NameService(url, "fails"), Broken(url, "fails", 1)
        assert await one.enter(B, "127.0.0.1:2")
        with pytest.raises(ConnectionLostError):
            await late.enter(C, "127.0.0.1:3")
        await late.leave(last=True)
        assert len(await one._processes(one._founded)) == 1
        await one.leave(last=True)

    asyncio.run(test())


def test_the_address_of_one_that_has_died_expires(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_service, "RENEW_S", 0.0)

    async def test() -> None:
        dead, alive = NameService(url, "dead"), NameService(url, "dead")
        monkeypatch.setattr(name_service, "EXPIRE_S", 0.5)
        await dead.enter(A, "127.0.0.1:1")
        assert dead._context is not None
        await dead._context.close()
        monkeypatch.setattr(name_service, "EXPIRE_S", 60.0)
        await alive.enter(B, "127.0.0.1:2")
        async with asyncio.timeout(20):
            while list(await alive.look()) != ["127.0.0.1:2"]:
                pass
        await alive.leave(last=True)

    asyncio.run(test())


def test_who_only_looks_leaves_nothing_behind(url: str) -> None:
    async def test() -> None:
        one, looks = NameService(url, "watched"), NameService(url, "watched")
        await one.enter(C, "127.0.0.1:3")
        assert list(await looks.look()) == ["127.0.0.1:3"]
        await looks.leave(last=False)
        assert await one._processes(one._members) == ["3"]
        await one.leave(last=True)

    asyncio.run(test())
