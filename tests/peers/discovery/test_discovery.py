"""How processes find each other: folders, lists, DNS, and the URLs that say which."""

import asyncio
import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.model.peer_views import MemberId
from antiphon.peers.discovery import folder, local
from antiphon.peers.discovery.folder import Folder
from antiphon.peers.discovery.listed import At, Dns, Listed
from antiphon.peers.discovery.local import Local
from antiphon.peers.discovery.urls import cluster_of

A, B, C = (MemberId(name, number) for number, name in enumerate("abc", 1))


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


# -- On one machine -------------------------------------------------------------------------------


def test_the_first_one_founds_and_the_others_find_it(runtime: Path) -> None:
    async def test() -> None:
        one, two = Local("c"), Local("c")
        assert await one.enter(A, "127.0.0.1:1")
        assert not await two.enter(B, "127.0.0.1:2")
        assert await one.look() == ["127.0.0.1:2"]
        assert await two.look() == ["127.0.0.1:1"]
        await one.leave(last=False)
        assert await two.look() == []
        three = Local("c")
        assert not await three.enter(C, "127.0.0.1:3")
        await two.leave(last=False)
        await three.leave(last=True)

    asyncio.run(test())


def test_of_many_that_start_at_once_one_founds(runtime: Path) -> None:
    places = [Local("c") for _ in range(20)]
    members = [MemberId("m", i) for i in range(20)]

    def enter(i: int) -> bool:
        return asyncio.run(places[i].enter(members[i], f"127.0.0.1:{i}"))

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(enter, range(20))) == 1
    for place in places:
        asyncio.run(place.leave(last=False))


def test_when_all_are_gone_the_next_one_founds_however_they_ended(runtime: Path) -> None:
    program = (
        "import asyncio, os\nfrom antiphon.peers.discovery.local import Local\n"
        "from antiphon.model.peer_views import MemberId\n"
        "asyncio.run(Local('c').enter(MemberId('a', 1), '127.0.0.1:1'))\nos._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 9
    assert list((runtime / "antiphon" / "c").glob("*.peer"))

    async def test() -> None:
        one = Local("c")
        assert await one.enter(B, "127.0.0.1:2")
        assert await one.look() == []
        assert len(list((runtime / "antiphon" / "c").glob("*.peer"))) == 1
        await one.leave(last=True)

    asyncio.run(test())


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc/x", "n" * 250, "[red]"])
def test_names_of_members_are_no_paths(runtime: Path, tmp_path: Path, name: str) -> None:
    async def test() -> None:
        for place in (Local("c"), Folder(str(tmp_path / "shared"), "c")):
            assert await place.enter(MemberId(name, 7), "127.0.0.1:1")
            await place.leave(last=True)

    asyncio.run(test())
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"antiphon/c/lock"}


def test_clusters_of_other_names_have_nothing_to_do_with_it(runtime: Path) -> None:
    async def test() -> None:
        one, two = Local("c"), Local("d")
        assert await one.enter(A, "127.0.0.1:1")
        assert await two.enter(B, "127.0.0.1:2")
        await one.leave(last=True)
        await two.leave(last=True)

    asyncio.run(test())


def test_a_folder_that_others_may_enter_is_refused(runtime: Path) -> None:
    (runtime / "antiphon").mkdir(mode=0o755)
    with pytest.raises(ConfigurationError, match="not a folder that only this user may enter"):
        local.runtime_folder()


# -- In a shared folder ---------------------------------------------------------------------------


def test_who_creates_the_record_founds(tmp_path: Path) -> None:
    async def test() -> None:
        one, two, three = (Folder(str(tmp_path), "c") for _ in range(3))
        assert await one.enter(A, "10.0.0.1:1")
        assert not await two.enter(B, "10.0.0.2:2")
        assert sorted(await two.look()) == ["10.0.0.1:1", "10.0.0.2:2"]
        await one.leave(last=False)
        await two.leave(last=False)
        assert not await three.enter(C, "10.0.0.3:3")  # those before may come back
        await three.leave(last=True)
        assert await Folder(str(tmp_path), "c").enter(C, "10.0.0.3:3")

    asyncio.run(test())


def test_the_last_to_leave_takes_no_record_of_a_new_founding_away(tmp_path: Path) -> None:
    async def test() -> None:
        one, two, three, four = (Folder(str(tmp_path), "c") for _ in range(4))
        assert await one.enter(A, "10.0.0.1:1")
        assert not await two.enter(B, "10.0.0.2:2")
        await one.leave(last=True)
        assert await three.enter(C, "10.0.0.3:3")
        await two.leave(last=True)
        assert not await four.enter(A, "10.0.0.1:1")

    asyncio.run(test())


def test_a_record_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "planted")

    async def test() -> None:
        one = Folder(str(tmp_path), "c")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="planted"):
            await one.enter(A, "10.0.0.1:1")
        monkeypatch.undo()
        await one.leave(last=True)
        assert await Folder(str(tmp_path), "c").enter(B, "10.0.0.2:2")

    asyncio.run(test())


def test_damaged_files_keep_nobody_out(tmp_path: Path) -> None:
    async def test() -> None:
        one, two = Folder(str(tmp_path), "c"), Folder(str(tmp_path), "c")
        await one.enter(A, "10.0.0.1:1")
        (tmp_path / "c" / "7.peer").write_bytes(b"\xff\xfe")
        (tmp_path / "c" / "8.peer").write_bytes(b"")
        (tmp_path / "c" / "founded").write_bytes(b"\xff")
        assert not await two.enter(B, "10.0.0.2:2")
        assert sorted(await two.look()) == ["10.0.0.1:1", "10.0.0.2:2"]

    asyncio.run(test())


def test_files_that_were_not_renewed_are_those_of_the_dead(tmp_path: Path) -> None:
    async def test() -> None:
        one, two = Folder(str(tmp_path), "c"), Folder(str(tmp_path), "c")
        await one.enter(A, "10.0.0.1:1")
        await two.enter(B, "10.0.0.2:2")
        (path,) = (tmp_path / "c").glob(f"{A.incarnation:x}.peer")
        os.utime(path, (0, path.stat().st_mtime - folder.DEAD_S - 1))
        assert await two.look() == ["10.0.0.2:2"]
        assert not path.exists()
        assert sorted(await one.look()) == ["10.0.0.1:1", "10.0.0.2:2"]  # it was paused, and is not

    asyncio.run(test())


# -- Addresses that a newcomer knows --------------------------------------------------------------


def test_known_addresses_are_looked_at_and_nobody_founds() -> None:
    async def test() -> None:
        found = At(["127.0.0.1:7600", "127.0.0.1:7601"])
        assert (found.founds, found.listed) == (False, ())
        assert not await found.enter(A, "127.0.0.1:7602")
        assert not await found.claim()
        assert await found.look() == ("127.0.0.1:7600", "127.0.0.1:7601")
        assert await At([]).look() == ()

    asyncio.run(test())


# -- DNS ------------------------------------------------------------------------------------------


def test_dns_gives_all_addresses_of_a_name() -> None:
    async def test() -> None:
        found = Dns("localhost", 7600)
        assert "127.0.0.1:7600" in await found.look()
        assert not await found.enter(A, "127.0.0.1:7600")
        with pytest.raises(OSError, match="no-such-host"):
            await Dns("no-such-host.invalid", 7600).look()

    asyncio.run(test())


# -- URLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name", "kind", "members_min"),
    [
        ("alarms", "alarms", Local, 1),
        ("peer:alarms?min=3", "alarms", Local, 3),
        ("peer://127.0.0.1:7600,[::1]:7601/alarms", "alarms", Listed, 1),
        ("peer:file/some/where/alarms", "alarms", Folder, 1),
        ("peer:file//var/lib/alarms", "alarms", Folder, 1),
        ("peer:at/alarms", "alarms", At, 1),
        ("peer:at/127.0.0.1:7600,127.0.0.1:7601/alarms?min=2", "alarms", At, 2),
        ("peer:dns/alarms.local:7600/alarms?min=2", "alarms", Dns, 2),
    ],
)
def test_urls(url: str, name: str, kind: type, members_min: int, runtime: Path) -> None:
    cluster = cluster_of(url)
    assert (cluster.name, type(cluster.discovery), cluster.members_min) == (name, kind, members_min)


def test_a_list_says_where_to_listen() -> None:
    discovery = cluster_of("peer://127.0.0.1:7600,127.0.0.1:7601/c").discovery
    assert discovery.listen == discovery.listed == ("127.0.0.1:7600", "127.0.0.1:7601")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "a name has 1 to"),
        ("two words", "neither blanks"),
        ("peer:../x..y", "between two dots"),
        ("peer:*", "no wildcards"),
        ("peer://127.0.0.1/c", "is not HOST:PORT"),
        ("peer:at/x/c", "is not HOST:PORT"),
        ("peer:dns/x/c", "is not HOST:PORT"),
        ("peer:mdns/x/c", "is not a cluster of peers"),
        ("peer:file/c", "is not a cluster of peers"),
        ("http://x/c", "is not a cluster of peers"),
        ("peer:c?max=3", "'max=3' is no option: min, name, listen"),
        ("peer:c?min=3&min=4", "'min=4' is no option: .*each once"),
        ("peer:c?name=", "'name=' is no option: .*with a value"),
        ("peer:c?min=0", "min= is a number from 1, not '0'"),
        ("peer:c?plaintext=maybe", "plaintext= is yes or no, not 'maybe'"),
        ("peer:c?key=k.pem", "TLS needs certificate, key, authority, all of them"),
    ],
)
def test_what_is_not_a_cluster_is_refused(url: str, complaint: str, runtime: Path) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        cluster_of(url)
