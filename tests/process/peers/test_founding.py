"""Which processes make a cluster of real processes primary, and which never do."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.server.local_cluster import LocalCluster
from tests.process.support.peer_processes import Peers, free_addresses, peers_in

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")


# -- A list of addresses --------------------------------------------------------------------------


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Peers]:
    with peers_in(tmp_path, f"peer://{','.join(free_addresses(3))}/c") as peers:
        yield peers


def test_all_that_are_listed_found_the_cluster_together(listed: Peers) -> None:
    a, b = listed.at_once("a", "b")
    for peer in (a, b):
        peer.wait_view("a", "b", primary=False)
    c = listed.join("c")
    for peer in (a, b, c):
        peer.wait_view(*NAMES, primary=True)
        assert [view["primary"] for view in peer.views][-1:] == [True]


@pytest.mark.parametrize("names", [NAMES, ("x", "y", "z")])
def test_fresh_ones_found_no_second_cluster_beside_one_that_is_cut_off(
    listed: Peers, names: tuple[str, ...]
) -> None:
    """The split brain of majorities: two of three are started again while the third one, which is
    all that is left of the cluster, cannot be reached. As most of the list, and fresh, they would
    begin a second one, without what the first one has agreed on. With that one back they are not
    primary either: most of those who had agreed are gone for good."""
    group = listed.group(*NAMES)
    for peer in group:
        peer.wait_view(*NAMES, primary=True)
    order = group[0].views[-1]["view"]
    stays, *gone = sorted(group, key=lambda peer: order.index(peer.name))
    stays.send("agreed")
    for peer in group:
        peer.wait_bodies({"agreed"})
    gone[1].kill()
    stays.wait_view(stays.name, gone[0].name, primary=True)
    gone[0].kill()
    stays.wait_view(stays.name)
    stays.pause()
    new = [name for name in names if names != NAMES or name != stays.name][:2]
    fresh = listed.at_once(*new)
    for peer in fresh:
        peer.wait_view(*new, primary=False)
    stays.resume()
    for peer in (stays, *fresh):
        peer.wait_view(stays.name, *new, primary=False)
    for peer in fresh:
        assert not any(view["primary"] for view in peer.views)


def test_founders_that_are_started_again_one_by_one_keep_the_cluster_primary(
    listed: Peers,
) -> None:
    present = {peer.name: peer for peer in listed.group(*NAMES)}
    for old, new in (("a", "x"), ("b", "y"), ("c", "z")):
        present.pop(old).kill()
        for peer in present.values():
            peer.wait_view(*present, primary=True)
        present[new] = listed.begin(new)  # at the address of the one that was killed
        for peer in present.values():
            peer.wait_view(*present, primary=True)


def test_a_process_waits_for_the_view_that_it_wants(listed: Peers) -> None:
    listed.url += "?min=3"
    a, b = listed.at_once("a", "b")
    c = listed.join("c")
    for peer in (a, b, c):
        assert sorted(peer.said("connected")["connected"]) == ["a", "b", "c"]


def test_one_that_waits_in_vain_is_told_whom_it_has_found(listed: Peers) -> None:
    listed.url += "?min=3"
    for peer in listed.at_once("a", "b", timeout=2):
        error = peer.said("connected")
        assert (error["error"], error["happened"]) == ("OutcomeUnknownError", "no")
        other = {"a": "b", "b": "a"}[peer.name]
        assert (
            f"in no view of 3 members of 'c' within 2 s: it is connected to {other}"
            in (error["text"])
        )


def test_only_primary_views_are_shown_to_programs_that_want_it_so(tmp_path: Path) -> None:
    url = f"peer://{','.join(free_addresses(3))}/c"
    with peers_in(tmp_path, url, primary_partition=True, timeout=None) as peers:
        a, b = peers.at_once("a", "b")
        c = peers.join("c")
        for peer in (a, b, c):
            view = peer.wait_view(*NAMES, primary=True)
            assert view == peer.views[0]
        b.pause()
        c.pause()
        a.order(send=["waits"])
        b.resume()
        c.resume()
        for peer in (a, b, c):
            peer.wait_bodies({"waits"})
            assert all(view["primary"] for view in peer.views)


# -- A shared folder ------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Peers]:
    with peers_in(tmp_path, f"peer:file/{tmp_path / 'shared'}/c") as peers:
        yield peers


def test_the_one_that_creates_the_record_founds_and_nobody_else_while_it_stands(
    shared: Peers, tmp_path: Path
) -> None:
    group = shared.at_once(*NAMES)
    for peer in group:
        peer.wait_view(*NAMES, primary=True)
    for peer in group:
        peer.kill()
    record = tmp_path / "shared" / "c" / "founded"
    assert record.exists()
    d = shared.join("d")
    assert not d.wait_view("d")["primary"]  # those that were killed might only be cut off
    assert d.ask(close=True) is True
    assert record.exists()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_cluster_that_everybody_leaves_may_be_founded_again(
    shared: Peers, tmp_path: Path, at_once: bool
) -> None:
    a, b = shared.group("a", "b")
    if at_once:
        for peer in (a, b):
            peer.order(close=True)
    for peer in (a, b):
        if not at_once:
            peer.order(close=True)
        assert peer.said("answer")["answer"] is True
    assert not (tmp_path / "shared" / "c" / "founded").exists()
    assert shared.join("c").wait_view("c")["primary"]


# -- Servers as name service ----------------------------------------------------------------------


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalCluster]:
    folder = tmp_path / "servers"
    folder.mkdir()
    with LocalCluster(1, folder) as servers:
        servers.start()
        yield servers


def test_servers_know_who_is_there_and_who_has_founded(
    servers: LocalCluster, tmp_path: Path
) -> None:
    with peers_in(tmp_path, f"peer:{servers.url}/c") as peers:
        group = peers.at_once(*NAMES)
        for peer in group:
            peer.wait_view(*NAMES, primary=True)
        founded = [peer.name for peer in group if peer.views[0]["view"] == [peer.name]]
        assert len(founded) <= 1
        # Without the servers the cluster goes on, but nobody can join it.
        servers.servers[1].kill()
        group[2].kill()
        for peer in group[:2]:
            peer.wait_view("a", "b", primary=True)
        group[0].send("without")
        group[1].wait_bodies({"without"})
        assert peers.begin("d").said("connected")["error"] == "ConnectionLostError"
        servers.start(1)
        e = peers.join("e")
        for peer in (*group[:2], e):
            peer.wait_view("a", "b", "e", primary=True)
        for peer in (*group[:2], e):
            peer.kill()
        f = peers.join("f")  # the record outlives them, and the server's restart
        assert not f.wait_view("f")["primary"]


def test_servers_forget_a_cluster_that_everybody_leaves(
    servers: LocalCluster, tmp_path: Path
) -> None:
    with peers_in(tmp_path, f"peer:{servers.url}/c") as peers:
        for peer in peers.group("a", "b"):
            assert peer.ask(close=True) is True
        assert peers.join("c").wait_view("c")["primary"]


# -- A local network ------------------------------------------------------------------------------


def test_processes_of_a_local_network_meet_without_being_primary(tmp_path: Path) -> None:
    pytest.importorskip("zeroconf")
    url = f"peer:mdns/c{os.getpid()}?min=3"  # other runs of this test are in the same network
    with peers_in(tmp_path, url, listen="127.0.0.1:0", timeout=30) as peers:
        for peer in peers.at_once(*NAMES):
            peer.wait_view(*NAMES, primary=False)


# -- DNS ------------------------------------------------------------------------------------------


def test_processes_that_dns_names_meet_without_being_primary(tmp_path: Path) -> None:
    named, other = free_addresses(2)
    url = f"peer:dns/localhost:{named.rpartition(':')[2]}/c?min=2"
    with peers_in(tmp_path, url) as peers:
        a, b = peers.begin("a", listen=named), peers.begin("b", listen=other)
        for peer in (a, b):
            peer.wait_view("a", "b", primary=False)
            assert sorted(peer.said("connected")["connected"]) == ["a", "b"]
