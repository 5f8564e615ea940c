"""Blocks need no more of a group than a port says: they run over ports that are no members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from antiphon import blocks
from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.operations.host import Host
from antiphon.blocks.pure.block import Block, Effects, Heard, Remove, Tell
from antiphon.blocks.pure.scripts import run
from antiphon.errors import IllegalStateError
from antiphon.model.views import View
from tests.blocks.pure.test_service import Adding
from tests.blocks.support.local_ports import LocalFront, LocalGroup, LocalPort, local


class Journal(Block):
    """Knows all that has happened, and hands it out."""

    def __init__(self) -> None:
        self.known: list[Any] = []

    def viewed(self, view: View, now: float) -> Effects:
        self.known.append(view.members)
        return [Tell(view.members)]

    def suspected(self, suspects: tuple[str, ...], withdrawn: tuple[str, ...]) -> Effects:
        return [Remove(suspects)]

    def heard(self, message: Heard, now: float) -> Effects:
        self.known.append(message.body)
        return ()

    def snapshot(self) -> bytes:
        return b" ".join(one for one in self.known if isinstance(one, bytes))

    def restore(self, data: bytes) -> None:
        self.known += data.split()


def host(group: LocalGroup, name: str, told: Any = lambda _: None) -> Host[Journal]:
    one = Host(LocalFront(), LocalPort(group, name), Journal(), told=told)
    run(one.opening())
    return one


def test_a_host_runs_a_block_on_any_port() -> None:
    group, told = LocalGroup("g"), list[Any]()
    ann = host(group, "ann", told.append)
    run(ann.multicasting(b"one"))
    bob = host(group, "bob")
    run(bob.casting(b"two"))
    assert ann.block.known == [("ann",), b"one", ("ann", "bob"), b"two"]
    assert bob.block.known == [b"one", ("ann", "bob"), b"two"]
    assert told == [("ann",), ("ann", "bob")]
    assert (bob.name, bob.view, bob.is_member) == ("bob", View(2, ("ann", "bob")), True)


def test_a_member_that_leaves_and_one_that_is_removed_are_told_so() -> None:
    group = LocalGroup("g")
    ann, bob, cid = (host(group, name) for name in ("ann", "bob", "cid"))
    run(cid.closing())
    assert ann.view.members == ("ann", "bob")
    group.suspect("bob")
    assert (ann.view.members, ann.is_member, bob.is_member) == (("ann",), True, False)
    for gone, why in ((bob, "removed"), (cid, "closed")):
        with pytest.raises(IllegalStateError, match=why):
            run(gone.casting(b"late"))


def test_a_replicated_service_runs_on_any_port() -> None:
    net: dict[str, LocalGroup] = {}
    one = local(blocks.Replica)(net, "sum", Adding())
    assert one.call(5) == 5
    with pytest.raises(ValueError, match="less than nothing"):
        one.call(-1)
    two = local(blocks.Replica)(net, "sum", Adding())
    two.post(2)
    assert [each.look(lambda s: s.value) for each in (one, two)] == [7, 7]
    with local(blocks.ServiceClient)(net, "sum") as client:
        assert client.call(3) == 10
    one.close()
    assert two.call(1) == 11
    assert two.look(lambda s: s.members) == ("m2",)


def test_locks_and_counters_run_on_any_port() -> None:
    net: dict[str, LocalGroup] = {}
    ann, bob = (local(blocks.Lock)(net, "door", name=name) for name in ("ann", "bob"))
    with ann, pytest.raises(TimeoutError):
        bob.acquire(timeout=0)
    assert bob.acquire(timeout=1)
    counter = local(blocks.Counter)(net, "counter")
    assert (counter.add(3), counter.value) == (3, 3)


def test_calls_and_replies_run_on_any_port() -> None:
    net: dict[str, LocalGroup] = {}
    double = local(blocks.MessageDispatcher)(net, "g", lambda n: 2 * n, name="double")
    local(blocks.MessageDispatcher)(net, "g", lambda n: n * n, name="square")
    client = local(blocks.GroupClient)(net, "g")
    assert client.call(5) == {"double": 10, "square": 25}
    assert client.call("a", replies=1)["double"] == "aa"
    assert isinstance(client.call("a")["square"], TypeError)
    assert double.call(3, replies=blocks.FIRST)["double"] == 6
    client.close()
    with pytest.raises(IllegalStateError, match="closed"):
        client.call(5)


def test_a_reply_that_cannot_travel_is_the_error_of_its_handler() -> None:
    net: dict[str, LocalGroup] = {}
    local(blocks.MessageDispatcher)(net, "g", lambda body: print, name="ann")
    client = local(blocks.GroupClient)(net, "g")
    assert "a function does not travel" in str(client.call(1)["ann"])


def test_methods_are_called_on_any_port() -> None:
    net: dict[str, LocalGroup] = {}
    local(blocks.RpcDispatcher)(net, "g", "some text", name="ann")
    with local(blocks.RpcClient)(net, "g") as client:
        assert client.call("split", maxsplit=1) == {"ann": ["some", "text"]}


def test_nobody_waits_for_members_that_are_not_there() -> None:
    client = local(blocks.GroupClient)({}, "g")
    with pytest.raises(TooFewRepliesError):
        client.call(1, replies=1, timeout=0.01)


@dataclass
class Price:
    of: str
    euros: int


def test_notifications_run_on_any_port() -> None:
    net: dict[str, LocalGroup] = {}
    ann, bob = (local(blocks.NotificationBus)(net, "news", Price, name=n) for n in ("ann", "bob"))
    heard: list[Price] = []
    bob.subscribe(Price, heard.append)
    ann.publish(Price("tea", 3))
    assert heard == [Price("tea", 3)]
    assert bob.last(Price) == Price("tea", 3)
