"""Real processes take over the state of a cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.support.peer_processes import Peers, peers_in

pytestmark = pytest.mark.process

PADDING_MB = 100


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with peers_in(tmp_path) as peers:
        yield peers


def test_a_process_that_joins_has_what_all_have(peers: Peers) -> None:
    a, b = peers.group("a", "b")
    sent = [f"m{i}" for i in range(500)]
    a.send(*sent[:300])
    b.wait_bodies(set(sent[:300]))
    c = peers.join("c", takes_over=True)
    assert c.said("took_over")["took_over"] == sent[:300]
    b.send(*sent[300:])
    for peer in (a, b, c):
        peer.wait_bodies(set(sent[300:]))
        assert peer.ask(rows=True) == sent


def test_a_provider_that_is_killed_half_way_is_followed_by_another_one(peers: Peers) -> None:
    a = peers.join("a", padding_mb=PADDING_MB)
    b = peers.join("b", takes_over=True)
    assert b.said("took_over")["took_over"] == []
    a.send("before")
    b.wait_bodies({"before"})
    c = peers.begin("c", takes_over=True)
    a.wait(lambda events: sum("provided" in event for event in events) == 2, "the state for c")
    b.send("meanwhile")
    a.wait_bodies({"meanwhile"})  # nobody waits for the transfer
    a.kill()
    took_over = c.said("took_over")["took_over"]
    assert took_over[:1] == ["before"]
    b.said("provided")
    b.send("after")
    for peer in (b, c):
        peer.wait(lambda _, peer=peer: "after" in peer.bodies, "the last message")
        assert peer.ask(rows=True) == ["before", "meanwhile", "after"]


def test_the_others_do_not_wait_for_a_large_state(peers: Peers) -> None:
    a, b = (peers.join(name, padding_mb=PADDING_MB) for name in ("a", "b"))
    c = peers.begin("c", takes_over=True)
    a.said("provided")  # it has founded the cluster
    count = 0
    while count == 0 or not any("took_over" in event for event in c.events):
        count += 1
        b.send(f"m{count}")
        a.wait_bodies({f"m{count}"}, timeout=2)
    assert c.said("took_over")["took_over"] == []
    c.wait_bodies({f"m{count}"})
    assert c.ask(rows=True) == a.ask(rows=True)
