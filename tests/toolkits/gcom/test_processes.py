"""GCom with real processes that are killed: the name service, the leader, a member, a sender."""

import json

import pytest

from antiphon.errors import ConnectionLostError
from antiphon.io.transport import parse_address
from antiphon.lab.chaos.faulty_links import Link
from antiphon.toolkits import gcom
from tests.process.support.peer_processes import wait_until
from tests.toolkits.gcom.conftest import Town

pytestmark = [pytest.mark.process, pytest.mark.in_turn]


def leader_known(address: str) -> str | None:
    found = gcom.lookup(address, "chat")
    return found and found.leader


def test_a_member_is_killed(town: Town) -> None:
    names = town.names().address
    c, b = town.join("c", names), town.join("b", names)
    a = town.join("a", names)
    b.kill()
    for member in (a, c):
        member.wait_led("c", "a", "c")
    a.send("on")
    c.wait_bodies({"on"})
    assert leader_known(names) == "c"


def test_the_leader_is_killed(town: Town) -> None:
    names = town.names().address
    c, b = town.join("c", names), town.join("b", names)
    a = town.join("a", names)
    c.kill()
    for member in (a, b):
        member.wait_led("b", "a", "b")
    d = town.join("d", names)  # waits until the name service knows the new leader
    d.wait_led("d", "a", "b", "d")
    wait_until(lambda: leader_known(names) == "d", "the name service to know d")


def test_the_name_service_is_killed_and_the_leader_while_it_is_down(town: Town) -> None:
    service = town.names()
    names = service.address
    c = town.join("c", names, ordering="total")
    b = town.join("b", names)
    service.kill()
    with pytest.raises(ConnectionLostError, match="nobody answers"):
        gcom.lookup(names, "chat")
    a = town.join("a", b.address, ordering="fifo")  # by a member that does not lead
    assert a.ask(settings=True) == ["total", "reliable"]
    c.kill()
    for member in (a, b):
        member.wait_led("b", "a", "b")
    a.send("without names")
    b.wait_bodies({"without names"})

    assert [group["leader"] for group in json.loads(town.save.read_text())] == ["c"]
    town.names(names)
    assert leader_known(names) in ("c", "b")
    wait_until(lambda: leader_known(names) == "b", "the leader to tell of itself")
    assert [group["leader"] for group in json.loads(town.save.read_text())] == ["b"]
    d = town.join("d", names)
    d.wait_led("d", "a", "b", "d")
    assert d.ask(settings=True) == ["total", "reliable"]


def test_who_has_joined_by_a_member_tells_the_name_service_when_it_leads(town: Town) -> None:
    service = town.names()
    names = service.address
    a = town.join("a", names)
    service.kill()
    b = town.join("b", a.address)
    a.kill()
    b.wait_led("b", "b")
    town.names(names)
    wait_until(lambda: leader_known(names) == "b", "b to tell of itself")


@pytest.mark.parametrize("multicast", ["basic", "reliable"])
def test_a_sender_is_killed_half_way(town: Town, multicast: str) -> None:
    """What it sends to two of the others is on its way when it dies, and does not arrive."""
    names = town.names().address
    d = town.join("d", names, multicast=multicast)
    slow = [Link(parse_address(d.address)) for _ in range(2)]
    try:
        a, c = (
            town.join(name, "{}:{}".format(*link.address))
            for name, link in zip("ac", slow, strict=True)
        )
        b = town.join("b", names)
        for member in (a, b, c, d):
            member.wait_led("d", "a", "b", "c", "d")
        for link in slow:
            link.stall()
        d.send("half")
        b.wait_bodies({"half"})
        d.kill()
    finally:
        for link in slow:
            link.close()
    for member in (a, b, c):
        member.wait_led("c", "a", "b", "c")
    b.send("after")
    for member in (a, b, c):
        member.wait_bodies({"after"})
    got = {member.name: "half" in member.bodies for member in (a, b, c)}
    reliable = multicast == "reliable"
    assert got == {"a": reliable, "b": True, "c": reliable}


def test_a_partition_and_its_healing(town: Town) -> None:
    """The leader and one member are cut off from each other: two groups, of which one joins the
    other anew, since nothing else brings them together again."""
    names = town.names().address
    b = town.join("b", names)
    link = Link(parse_address(b.address))
    try:
        a = town.join("a", "{}:{}".format(*link.address))
        a.wait_led("b", "a", "b")
        link.cut()
        a.wait_led("a", "a")
        b.wait_led("b", "b")
        a.send("from a")
        b.send("from b")
        a.wait_bodies({"from a"})
        b.wait_bodies({"from b"})
        link.repair()
        c = town.join("c", names)  # joins the side that the name service knows
        c.wait_led("c", "b", "c")
        a.wait_led("a", "a")
        assert a.ask(close=True)
        again = town.join("a", names)
        for member in (again, b, c):
            member.wait_led("c", "a", "b", "c")
        assert "from b" not in again.bodies
        assert "from a" not in b.bodies
    finally:
        link.close()
