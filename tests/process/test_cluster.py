"""Real servers: elections, crashes, pauses, restarts, changes."""

import json
import random
import signal
import socket
import time
from pathlib import Path

import pytest

from antiphon import cli
from antiphon.server.local_cluster import free_port
from tests.process.support.cluster import DESTINATION, Cluster, Load, assert_is_another
from tests.process.support.log_client import LogClient, first_body

pytestmark = pytest.mark.process


def test_elects_appends_and_ends_cleanly(cluster: Cluster) -> None:
    with Load(cluster) as load:
        load.wait_for_more(500)
        load.finish()
    cluster.wait_whole()
    for server in cluster.servers.values():
        assert server.stop() == 0, cluster.story()


def test_a_single_server_leads_itself_and_keeps_its_data(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1) as cluster:
        for round_ in range(3):
            cluster.start()
            with cluster.client() as client:
                assert client.barrier() == round_
                client.publish(DESTINATION, b"one more")
                seen = [first_body(d.pack) for d in _first(client, round_ + 1)]
            assert seen == [b"one more"] * (round_ + 1)
            cluster.kill(1)


def _first(client: LogClient, count: int) -> list:  # type: ignore[type-arg]
    delivered = (d for d in client.tail() if d is not None)
    return [next(delivered) for _ in range(count)]


def test_survives_kill_9_of_each_server_in_turn(cluster: Cluster) -> None:
    with Load(cluster) as load:
        for node in cluster.servers:
            load.wait_for_more()
            cluster.kill(node)
            load.wait_for_more()
            cluster.start(node)
            load.wait_for_more()
        load.finish()
    cluster.wait_whole()


def test_survives_kill_9_of_the_leader(cluster: Cluster) -> None:
    with Load(cluster) as load:
        for _ in range(3):
            load.wait_for_more()
            leader = cluster.leader()
            cluster.kill(leader)
            load.wait_for_more()
            assert cluster.leader() != leader
            cluster.start(leader)
        load.finish()
    cluster.wait_whole()


def test_a_paused_server_holds_nobody_up_and_catches_up(cluster: Cluster) -> None:
    with Load(cluster) as load:
        for node in cluster.servers:
            cluster.pause(node)
            load.wait_for_more(300)
            cluster.resume(node)
            load.wait_for_more()
        load.finish()
    cluster.wait_whole()


def test_a_leader_that_was_paused_and_deposed_answers_no_stale_read(cluster: Cluster) -> None:
    old = cluster.leader()
    cluster.pause(old)
    others = ",".join(
        s.url.removeprefix("antiphon://") for n, s in cluster.servers.items() if n != old
    )
    with LogClient(f"antiphon://{others}") as client:
        client.publish(DESTINATION, b"new", count=7)
    cluster.resume(old)
    assert LogClient(cluster.servers[old].url).barrier() == 7


def test_all_killed_at_once_come_back_with_everything(cluster: Cluster) -> None:
    with Load(cluster) as load:
        for _ in range(2):
            load.wait_for_more(200)
            cluster.kill(*cluster.servers)
            cluster.start()
        load.wait_for_more()
        load.finish()
    cluster.wait_whole()


def test_memory_mode_a_killed_server_returns_as_a_new_incarnation(memory_cluster: Cluster) -> None:
    cluster = memory_cluster
    with Load(cluster) as load:
        for node in (cluster.follower(), cluster.leader()):
            load.wait_for_more()
            before = cluster.status_of(node)
            cluster.kill(node)
            load.wait_for_more()
            cluster.start(node)
            cluster.wait_until_votes(node)
            assert_is_another(before, cluster.status_of(node))
        load.finish()
    cluster.wait_whole()


def test_memory_mode_a_lost_majority_stops_the_rest_and_status_says_so(
    memory_cluster: Cluster,
) -> None:
    cluster = memory_cluster
    with cluster.client() as client:
        client.publish(DESTINATION, b"soon lost")
    lost = [node for node in cluster.servers if node != cluster.leader()]
    cluster.kill(*lost)
    for node in lost:
        cluster.servers[node].start(cluster.listed, cluster.storage)
    cluster.wait_until(lambda: len(cluster.look().answers) == 3, "all answer")
    cluster.wait_until(lambda: bool(cluster.look().trouble), "status says why")
    assert "a majority is lost for good" in cluster.look().trouble[0]
    _assert_stays_leaderless(cluster)


def test_a_wiped_server_returns_as_a_learner_and_then_votes(cluster: Cluster) -> None:
    with Load(cluster) as load:
        load.wait_for_more(300)
        node = cluster.follower()
        before = cluster.status_of(node)
        cluster.kill(node)
        _wipe(cluster, node)
        load.wait_for_more()
        cluster.start(node)
        cluster.wait_until_votes(node)
        assert_is_another(before, cluster.status_of(node))
        load.finish()
    cluster.wait_whole()


def test_two_wiped_servers_found_no_empty_cluster_beside_the_third(cluster: Cluster) -> None:
    with cluster.client() as client:
        client.publish(DESTINATION, b"the only copy is at one server")
    keeper, *wiped = cluster.servers
    cluster.wait_whole()
    cluster.kill(*cluster.servers)
    for node in wiped:
        _wipe(cluster, node)
        cluster.servers[node].start(cluster.listed, cluster.storage)
    _assert_stays_leaderless(cluster)
    cluster.servers[keeper].start(cluster.listed, cluster.storage)
    cluster.wait_until(lambda: bool(cluster.look().trouble), "status says why")
    _assert_stays_leaderless(cluster)
    kept = cluster.status_of(keeper)
    assert kept is not None
    assert kept.membership.voters


def _wipe(cluster: Cluster, node: int) -> None:
    for path in cluster.servers[node].data.iterdir():
        path.unlink()


def _assert_stays_leaderless(cluster: Cluster, seconds: float = 3.0) -> None:
    """Several election timeouts long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert cluster.look().leader is None, cluster.story()


def test_membership_changes_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(tmp_path, servers=4) as cluster:
        *founders, newcomer = cluster.servers.values()
        listed = ",".join(cluster.listed.split(",")[:3])
        url = "antiphon://" + ",".join(s.url.removeprefix("antiphon://") for s in founders)
        for server in founders:
            server.start(listed, cluster.storage)
        for server in founders:
            server.wait_ready()
        newcomer.start(cluster.listed, cluster.storage)
        cluster.wait_until(lambda: bool(_trouble(cluster, 4)), "node 4 learns it is not a member")
        assert "not a member" in _trouble(cluster, 4)
        address = newcomer.url.removeprefix("antiphon://")
        assert cli.main(["cluster", "add", url, f"4={address}"]) == 0
        cluster.wait_whole()
        assert cli.main(["cluster", "transfer", url, "4", "--json"]) == 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert told == {"change": "transfer", "nodes": [4]}
        assert cli.main(["cluster", "remove", cluster.url, "1"]) == 0
        capsys.readouterr()
        assert cli.main(["cluster", "status", cluster.url, "--json"]) == 0
        status = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert status["leader"] == 4
        assert status["groups"] == []
        assert [node["node"] for node in status["nodes"]] == [1, 2, 3, 4]
        with LogClient(url) as client:
            client.publish(DESTINATION, b"still here")


def test_a_server_is_not_removed_if_the_rest_could_not_go_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.client() as client:
        client.publish(DESTINATION, b"before")
    cluster.wait_whole()
    cluster.kill(1)
    assert cli.main(["cluster", "remove", cluster.url, "2"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "node 2 is not removed" in said
    assert "node 1 does not answer" in said
    with cluster.client() as client:
        client.publish(DESTINATION, b"after")
    cluster.start(1)
    cluster.wait_whole()
    cluster.kill(1)
    assert cli.main(["cluster", "remove", cluster.url, "1"]) == 0
    with cluster.client() as client:
        client.publish(DESTINATION, b"with two")


def test_changes_that_make_no_sense_are_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    mistakes = {
        ("remove", "7"): "node 7 is not a member",
        ("add", f"2={nobody}"): "node 2 is a member at",
        ("add", f"4={cluster.url.split('//')[1].split(',')[0]}"): "node 1 is a member at",
        ("transfer", "7"): "it is not a member",
    }
    for (change, node), reason in mistakes.items():
        assert cli.main(["cluster", change, cluster.url, node]) == 1
        assert reason in " ".join(capsys.readouterr().err.split())
    assert cli.main(["cluster", "add", cluster.url, f"4={nobody}"]) == 0
    assert cli.main(["cluster", "add", cluster.url, f"4={nobody}"]) == 0
    assert "had been added before" in capsys.readouterr().out
    assert cli.main(["cluster", "remove", cluster.url, "4"]) == 0
    cluster.wait_whole()


def _trouble(cluster: Cluster, node: int) -> str:
    status = LogClient(cluster.servers[node].url, timeout=5).status()
    return " ".join(status.trouble)


def test_status_without_a_leader_fails(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.kill(1, 2)
    cluster.wait_until(lambda: cluster.look().leader is None, "no leader")
    assert cli.main(["cluster", "status", cluster.url, "--json"]) == 1
    status = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert status["leader"] is None
    assert [n["role"] for n in status["nodes"]].count("unreachable") == 2
    assert "no majority" in status["trouble"][0]
    cluster.kill(3)
    assert cli.main(["cluster", "status", cluster.url, "--json"]) == 1


def test_status_with_a_server_down_says_which_and_fails(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.leader()
    cluster.wait_whole()
    assert cli.main(["cluster", "status", cluster.url]) == 0
    victim = cluster.follower()
    cluster.kill(victim)
    capsys.readouterr()
    assert cli.main(["cluster", "status", cluster.url, "--json"]) == 1
    status = json.loads(capsys.readouterr().out)
    assert status["leader"] == leader
    address = cluster.servers[victim].url.removeprefix("antiphon://")
    assert status["trouble"] == [f"node {victim} is down: nobody answers at {address}"]
    cluster.servers[victim].start(cluster.listed, cluster.storage)
    cluster.wait_whole()
    assert cli.main(["cluster", "status", cluster.url]) == 0


def test_garbage_to_the_port_costs_nobody_anything(cluster: Cluster) -> None:
    chance = random.Random(7)
    with Load(cluster) as load:
        load.wait_for_more()
        for server in cluster.servers.values():
            for _ in range(100):
                with socket.create_connection(server.address) as stranger:
                    stranger.sendall(chance.randbytes(chance.randrange(1, 5000)))
        load.wait_for_more()
        load.finish()
    cluster.wait_whole()
    assert all(server.running for server in cluster.servers.values())


def test_a_second_server_on_the_same_folder_is_refused(cluster: Cluster) -> None:
    first = cluster.servers[1]
    running = first.process
    first.process = None
    first.start(cluster.listed, cluster.storage)
    second = first.process
    assert second is not None
    assert second.wait(20) == 2
    assert "in use by another process" in first.said()
    first.process = running


@pytest.mark.timeout(240)
def test_hundred_faults(cluster: Cluster) -> None:
    """Kill or pause a hundred times in a row; nothing is lost, doubled or reordered."""
    chance = random.Random(20)
    with Load(cluster) as load:
        for _ in range(100):
            node = cluster.leader() if chance.random() < 0.4 else chance.choice([1, 2, 3])
            if chance.random() < 0.5:
                cluster.pause(node)
                pause_s = chance.choice((0.05, 0.2, 0.5, 1.0))
                end = time.monotonic() + pause_s
                cluster.wait_until(lambda end=end: time.monotonic() > end, "the pause")
                cluster.resume(node)
            elif chance.random() < 0.8:
                cluster.kill(node)
                cluster.start(node, wait=False)
            else:
                cluster.kill(1, 2, 3)
                cluster.start(wait=False)
            load.wait_for_more(20)
        load.finish()
    cluster.wait_whole()


def test_sigint_ends_a_server_cleanly(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1) as cluster:
        cluster.start()
        server = cluster.servers[1]
        server.signal(signal.SIGINT)
        assert server.process is not None
        assert server.process.wait(10) == 0
