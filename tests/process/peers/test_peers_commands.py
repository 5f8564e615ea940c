"""`antiphon peers`: a cluster of real processes, looked at and mended from outside."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.server.local_cluster import COMMAND
from tests.api.support import backends
from tests.process.support.peer_processes import Peers, free_addresses, peers_in, wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

NAMES = ("a", "b", "c")


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with peers_in(tmp_path) as peers:
        yield peers


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "peers", *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=50,
    )


def status(folder: Path, url: str) -> tuple[int, dict[str, Any]]:
    done = run(folder, "status", url, "--json")
    return done.returncode, json.loads(done.stdout)


def test_status_shows_each_process_and_who_blocks(peers: Peers, tmp_path: Path) -> None:
    assert status(tmp_path, peers.url) == (1, {"processes": [], "silent": {}})
    a, b, c = peers.group(*NAMES, room_bytes=200_000, behind_bytes=100_000)
    code, found = status(tmp_path, peers.url)
    assert code == 0
    assert sorted(process["name"] for process in found["processes"]) == list(NAMES)
    assert all(sorted(process["members"]) == list(NAMES) for process in found["processes"])
    assert all(process["primary"] for process in found["processes"])
    c.ask(reads=False)
    a.ask(fill=10_000, timeout=1.0)
    done = run(tmp_path, "status", peers.url)
    assert done.returncode == 0
    assert "c: it has not taken" in done.stdout
    b.pause()
    code, found = status(tmp_path, peers.url)
    assert (code, list(found["silent"].values())) == (0, ["timed out"])


@pytest.mark.timeout(150)  # ten programs are started, one after the other
@pytest.mark.parametrize("primary_partition", [False, True])
def test_reform_founds_anew_what_has_lost_its_majority_for_good(
    peers: Peers, tmp_path: Path, primary_partition: bool
) -> None:
    a, b, c = peers.group(*NAMES, primary_partition=primary_partition)
    done = run(tmp_path, "reform", peers.url)
    assert done.returncode == 1
    assert "is in a primary view: 'c' is as it should be" in done.stderr
    # Both at once: otherwise each time a majority of those before goes on.
    for peer in (b, c):
        peer.pause()
    wait_until(lambda: status(tmp_path, peers.url)[0] == 1, "no primary view")
    for peer in (b, c):
        peer.kill()
    if primary_partition:
        waits = a.ask(send=["waits"], timeout=0.0) == 1 and a.ask(status=True)["waits_for"]
        assert waits == "only primary views count, and a are none"
    done = run(tmp_path, "reform", peers.url)
    assert (done.returncode, done.stdout) == (0, "c was founded anew: a\n"), done.stderr
    a.wait_view("a", primary=True)
    d = peers.join("d", primary_partition=primary_partition)
    for peer in (a, d):
        peer.wait_view("a", "d", primary=True)
    a.send("goes on")
    d.wait_bodies({"goes on"})


def test_reform_needs_somebody_who_answers(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    done = run(tmp_path, "reform", f"peer://{address}/c")
    assert done.returncode == 1
    assert f"no process of 'c' answers; {address}: " in done.stderr


def test_another_cluster_at_the_address_says_so(peers: Peers, tmp_path: Path) -> None:
    address = peers.join("a").said("connected")["address"]
    code, found = status(tmp_path, f"peer://{address}/d")
    assert code == 1
    assert found["silent"] == {address: "a belongs to the cluster 'c', not to 'd'"}


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    assert run(tmp_path, "status", "http://x/y").returncode == 2
    done = run(tmp_path, "status", "peer:c", "--key", "x")
    assert done.returncode == 2
    assert "go together" in done.stderr


def test_a_group_without_servers_is_followed_from_outside(tmp_path: Path) -> None:
    with backends.peers(tmp_path) as backend, antiphon.connect(backend.url) as ctx:
        with ctx.join(ctx.create_group("crew"), name="ann"):
            watch = [*COMMAND, "group", backend.url, "crew", "--json"]
            with subprocess.Popen(watch, stdout=subprocess.PIPE) as watching:
                assert watching.stdout is not None
                seen = json.loads(watching.stdout.readline())
                watching.kill()
        assert (seen["view_id"], seen["suspects"]) == (1, [])
        assert [member["name"] for member in seen["members"]] == ["ann"]
        wrong = [*COMMAND, "group", backend.url, "nobody"]
        done = subprocess.run(wrong, capture_output=True, text=True, timeout=50)
        assert done.returncode == 1
        assert "there is no group 'nobody'" in done.stderr
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=50)
    assert "no process of 'test' answers" in done.stderr
