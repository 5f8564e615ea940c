"""A program that does not receive, a process that stands still, a leader among them: the others
wait, and know for whom, and not for ever."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.support.peer_processes import Peer, Peers, peers_in

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    """Processes that may be behind by little."""
    with peers_in(tmp_path, room_bytes=200_000, behind_bytes=100_000) as peers:
        yield peers


def leader_first(peers: Peers, **options: Any) -> tuple[Peer, Peer, Peer]:
    group = peers.group(*NAMES, **options)
    a, b, c = sorted(group, key=lambda peer: peer.name != peer.views[-1]["leader"])
    return a, b, c


def fill(peer: Peer) -> dict[str, Any]:
    """Have it send until there was no room for a second, and return its error."""
    full: dict[str, Any] = peer.ask(fill=10_000, timeout=1.0)
    assert (full["error"], full["happened"]) == ("OutcomeUnknownError", "no")
    assert "It was not sent" in full["text"]
    return full


def test_the_leader_and_every_other_sender_name_whoever_does_not_receive(peers: Peers) -> None:
    leader, other, slow = leader_first(peers)
    slow.ask(reads=False)
    full = fill(leader)
    assert f"within 1 s: {slow.name}: it has not taken" in full["text"]
    assert fill(other)["text"].count(
        f"{leader.name}, which orders messages, waits for {slow.name}: it has not taken"
    )
    assert slow.name in leader.ask(status=True)["waits_for"]
    slow.ask(reads=True)  # nothing was lost, and all goes on
    for peer in (leader, other):
        peer.send(f"after by {peer.name}")
    for peer in (leader, other, slow):
        peer.wait_bodies({f"after by {leader.name}", f"after by {other.name}"})
        assert peer.bodies.count(10_000) >= full["sent"]
    assert leader.bodies == other.bodies == slow.bodies


def test_a_leader_whose_program_does_not_receive_is_named(peers: Peers) -> None:
    leader, other, _ = leader_first(peers)
    leader.ask(reads=False)
    text = fill(other)["text"]
    assert f"{leader.name}: it has not taken" in text or (
        f"{leader.name} has not ordered what was sent before" in text
    )
    leader.ask(reads=True)
    other.send("after")
    leader.wait_bodies({"after"})


def test_a_program_that_does_not_receive_what_it_sends_itself_is_told_so(peers: Peers) -> None:
    leader, other, _ = leader_first(peers)
    other.ask(reads=False)
    text = fill(other)["text"]
    assert f"{leader.name}, which orders messages, waits for this process" in text
    other.ask(reads=True)


def test_one_that_stands_still_is_named_and_then_left_behind(peers: Peers) -> None:
    leader, other, still = leader_first(peers)
    still.pause()
    assert still.name in fill(other)["text"]
    other.send("after")  # waits until the one that stands still is suspected, and no longer
    leader.wait_bodies({"after"})
    leader.wait_view(leader.name, other.name, primary=True)


def test_a_program_that_never_receives_again_leaves_and_says_why(peers: Peers) -> None:
    leader, other, slow = leader_first(peers, behind_ms=3000)
    slow.ask(reads=False)
    fill(leader)
    leader.send("after")  # waits until the slow one has left
    for peer in (leader, other):
        peer.wait_view(leader.name, other.name, primary=True)
        peer.wait_bodies({"after"})
    slow.ask(reads=True)
    lost = slow.said("lost")["lost"]
    assert lost["error"] == "ConnectionLostError"
    assert "its program has received nothing for 3 s" in lost["text"]
    assert "the others had to wait" in lost["text"]
    # It has received everything up to there, and nothing in between is missing.
    assert slow.bodies == leader.bodies[: len(slow.bodies)]
