"""Isis among real processes: killed, paused, and cut off from the primary partition."""

from pathlib import Path
from typing import Any

import pytest

from tests.process.support.parted import join_in_turn, parted, processes_of

pytestmark = pytest.mark.process


def test_nobody_is_waited_for_who_is_killed(tmp_path: Path) -> None:
    with processes_of("isis", tmp_path) as peers:
        a, b, c, outside = [peers.join(name) for name in ("a", "b", "c", "outside")]
        join_in_turn(a, b, c)
        outside.ask(bcast="abcast", group="g", entry=1, value="hello", nwanted="all")
        assert outside.said("replied")["replied"] == ["a", "b", "c"]
        outside.ask(bcast="cbcast", group="g", entry=2, value="hello", nwanted="all")
        for peer in (a, b, c):
            peer.said("asked")
        b.kill()
        c.kill()
        a.wait_view("a")
        told = outside.wait(
            lambda events: [event["replied"] for event in events if "replied" in event][1:],
            "the replies of who is left",
        )
        assert told == [["a"]]
        sites = ["site of a", "site of outside"]
        a.wait(lambda events: any(event.get("sites") == sites for event in events), "the sites")


@pytest.mark.in_turn
def test_each_gbcast_has_one_place_though_a_member_is_killed(tmp_path: Path) -> None:
    with processes_of("isis", tmp_path) as peers:
        a, b, c = [peers.join(name) for name in "abc"]
        join_in_turn(a, b, c)
        for peer in (a, b):
            values = [f"{peer.name}{i}" for i in range(300)]
            peer.order(bcast="fbcast", values=values, group="g")
        c.order(bcast="gbcast", values=[f"mark{i}" for i in range(50)], group="g")
        for peer in (a, b):
            peer.wait_bodies({"mark1"})
        c.kill()
        sent = {f"{name}{i}" for name in "ab" for i in range(300)}
        for peer in (a, b):
            peer.wait_view("a", "b")
            peer.wait_bodies(sent)
        a.ask(bcast="gbcast", values=["end"], group="g")
        for peer in (a, b):
            peer.wait_bodies({"end"})
        assert marked(a.bodies) == marked(b.bodies)


def marked(told: list[str]) -> dict[str, list[str]]:
    """Return what came before each gbcast."""
    return {
        one: sorted(told[:at])
        for at, one in enumerate(told)
        if one.startswith("mark") or one == "end"
    }


@pytest.mark.in_turn
def test_a_gbcast_comes_behind_what_is_slow(tmp_path: Path) -> None:
    """What b sends takes long. It has it at once, but the others have not when c broadcasts."""
    with parted(tmp_path, "isis", "abc") as cluster:
        a, b, c = (cluster.peers[name] for name in "abc")
        join_in_turn(a, b, c)
        for other in "ac":
            cluster.delay("b", other, 1.0)
        b.ask(bcast="fbcast", values=["slow"], group="g")
        b.wait_bodies({"slow"})
        c.ask(bcast="gbcast", values=["mark"], group="g")
        for peer in (a, b, c):
            peer.wait_bodies({"slow", "mark"})
            assert peer.bodies == ["slow", "mark"]


@pytest.mark.in_turn
def test_who_is_cut_off_waits_and_its_replies_come_when_it_is_back(tmp_path: Path) -> None:
    with parted(tmp_path, "isis", "abc") as cluster:
        a, b, c = (cluster.peers[name] for name in "abc")
        join_in_turn(a, b, c)
        cluster.part("c")
        for peer in (a, b):
            peer.wait_view("a", "b", primary=True)
        c.ask(bcast="abcast", group="g", entry=1, value="late", nwanted="majority")
        a.ask(bcast="abcast", group="g", entry=1, value="meanwhile", nwanted="all")
        assert a.said("replied")["replied"] == ["a", "b"]
        assert "late" not in a.bodies
        cluster.heal()
        assert len(c.said("replied")["replied"]) >= 2
        for peer in (a, b, c):
            peer.wait_bodies({"late"})
            peer.wait_view("a", "b", "c", primary=True)
        assert "meanwhile" not in c.bodies
        assert c.views[-1]["together"] == ["c"]


@pytest.mark.in_turn
def test_who_stood_still_is_a_site_that_failed_and_recovered(tmp_path: Path) -> None:
    with processes_of("isis", tmp_path) as peers:
        a, b, c = [peers.join(name) for name in "abc"]
        join_in_turn(a, b, c)
        c.pause()
        for peer in (a, b):
            peer.wait_view("a", "b")
        c.resume()
        for peer in (a, b):
            peer.wait_view("a", "b", "c")
            peer.wait(lambda events: sites(events)[-2:] == ["ab", "abc"], "the site of c")


def sites(events: list[dict[str, Any]]) -> list[str]:
    """Return the views of sites, by the names of their processes."""
    views = [event["sites"] for event in events if "sites" in event]
    return ["".join(site.removeprefix("site of ") for site in view) for view in views]
