"""Members of groups of JGroups in processes of their own, which are killed and cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.io.transport import format_address
from antiphon.lab.chaos.channels.links import Network
from antiphon.server.local_cluster import HOST, free_port
from tests.process.support.peer_processes import Peer, Peers, peers_in, wait_until

pytestmark = [pytest.mark.process, pytest.mark.in_turn, pytest.mark.timeout(90)]

PROGRAM = "tests.process.support.jgroups_program"
TOTAL = ["TCP", "MERGE3", "FD_SOCK2", "NAKACK2", "GMS", "SEQUENCER"]
NAMES = ("A", "B", "C")


@contextmanager
def linked(folder: Path, **options: Any) -> Iterator[tuple[Network, list[Peer]]]:
    """Three members, each behind a gate."""
    targets = {name: (HOST, free_port()) for name in NAMES}
    with Network(targets) as network, peers_in(folder, program=PROGRAM, **options) as all:
        gates = ",".join(map(format_address, network.gates.values()))
        members = [all.begin(name, **place(network, gates, name, targets)) for name in NAMES]
        for member in members:
            member.wait_view(*NAMES, primary=True)
        yield network, members


def place(network: Network, gates: str, name: str, targets: Any) -> dict[str, str]:
    listen, gate = format_address(targets[name]), format_address(network.gates[name])
    return {"url": f"peer://{gates}/group?listen={listen}&address={gate}"}


def cut_off(network: Network, name: str) -> None:
    for other in NAMES:
        if other != name:
            network.cut(name, other)


def last_merged(member: Peer) -> Any:
    """Wait for the view of all that was merged, and return its subgroups."""

    def merged(events: list[dict[str, Any]]) -> Any:
        views = [event for event in events if event.get("merged")]
        return views[-1]["merged"] if views and sorted(views[-1]["view"]) == [*NAMES] else None

    return member.wait(merged, "a merged view of all")


def test_a_partition_goes_on_and_merges(tmp_path: Path) -> None:
    with linked(tmp_path, stack=TOTAL) as (network, (a, b, c)):
        a.send("before")
        for member in (a, b, c):
            member.wait_bodies({"before"})
        cut_off(network, "C")
        a.wait_view("A", "B", primary=True)
        c.wait_view("C", primary=False)
        b.send("majority")
        c.send("alone")
        a.wait_bodies({"majority"})
        c.wait_bodies({"alone"})
        network.mend_all()
        for member in (a, b, c):
            groups = last_merged(member)
            assert sorted(map(sorted, groups)) == [["A", "B"], ["C"]]
        assert c.ask(words=True) == ["before", "alone"]  # as JGroups does: the program decides
        assert c.ask(get_state=20) == ["before", "majority"]
        c.send("after")
        for member in (a, b, c):
            member.wait_bodies({"after"})
            assert member.ask(words=True) == ["before", "majority", "after"]


@pytest.mark.parametrize("stack", ["tcp.xml", ["UDP", "FRAG", "MERGE", "GMS", "CAUSAL"]], ids=str)
def test_a_stock_stack_and_the_textbook_s(
    stack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [f"{HOST}[{free_port()}]" for _ in range(2)]
    monkeypatch.setenv("jgroups.tcpping.initial_hosts", ",".join(hosts))
    with peers_in(tmp_path, url="AlarmChannel", program=PROGRAM, stack=stack) as all:
        a, b = (all.begin(name) for name in "AB")
        for member in (a, b):
            member.wait_view("A", "B", primary=True)
        a.send("Fire!", "Help!")
        for member in (a, b):
            member.wait_bodies({"Fire!", "Help!"})
            assert member.bodies == ["Fire!", "Help!"]


def test_who_is_killed_is_suspected_and_not_waited_for(tmp_path: Path) -> None:
    with peers_in(tmp_path, program=PROGRAM, block="rpc") as all:
        a, b, c = all.group(*NAMES)
        assert a.ask(call=["who"]) == {"A": "A", "B": "B", "C": "C"}
        a.order(call=["hang", "C"])
        c.said("hangs")
        c.kill()
        answers = a.wait(
            lambda events: [e["answer"] for e in events if "answer" in e][1:], "replies"
        )
        assert answers == [{"A": "A", "B": "B"}]
        for member in (a, b):
            assert member.said("suspect")["suspect"] == "C"
            member.wait_view("A", "B")


def test_a_map_outlives_a_member_and_a_partition(tmp_path: Path) -> None:
    with linked(tmp_path, stack=TOTAL, block="map") as (network, (a, b, c)):
        assert c.ask(put=["k", "before"]) is None
        cut_off(network, "C")
        a.wait_view("A", "B", primary=True)
        assert b.ask(put=["k", "majority"]) == "before"
        network.mend_all()
        wait_until(lambda: c.ask(map=True) == {"k": "majority"}, "the map of the majority at C")
        assert c.ask(put=["l", "after"]) is None
        a.kill()
        b.wait_view("B", "C")
        assert b.ask(put=["m", "survived"]) is None
        wait_until(lambda: len(c.ask(map=True)) == 3, "all keys at C")
        assert b.ask(map=True) == c.ask(map=True)


def test_a_name_comes_back_as_somebody_new(tmp_path: Path) -> None:
    with peers_in(tmp_path, program=PROGRAM) as all:
        a, b = all.group("A", "B")
        a.send("Fire!")
        b.wait_bodies({"Fire!"})
        b.kill()
        a.wait_view("A")
        again = restarted(all, "B")
        assert again.ask(get_state=20) == ["Fire!"]
        assert not any(view["merged"] for view in a.views)


def restarted(all: Peers, name: str) -> Peer:
    peer = all.join(name)
    peer.wait_view("A", "B")
    return peer
