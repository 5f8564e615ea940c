"""Blocks on channels, which are real ones here: sockets, and no server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import blocks, peers
from antiphon.blocks.operations.channel_messages import ORDER, TO
from antiphon.blocks.operations.host import Host
from antiphon.blocks.pure.block import Block, Effects, Heard, Tell
from antiphon.blocks.pure.scripts import run
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.blocks.threads.front import FRONT
from antiphon.errors import IllegalStateError, MessageFormatError
from antiphon.model.views import View
from tests.api.support.steps import until
from tests.blocks.support.places import linked_places, part, places

pytestmark = pytest.mark.process

WAIT_S = 10


def test_calls_and_replies(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob") as (ann, bob):
        first = blocks.MessageDispatcher(ann, "party", str.upper)
        second = blocks.MessageDispatcher(bob, "party", lambda body: body * 2)
        assert first.call("hi", timeout=WAIT_S) == {"ann": "HI", "bob": "hihi"}
        assert second.call("hi", blocks.FIRST, WAIT_S).keys() <= {"ann", "bob"}
        assert isinstance(first.call(3, timeout=WAIT_S)["ann"], TypeError)
        assert (first.name, first.view.members) == ("ann", ("ann", "bob"))
        assert second.call("hi", blocks.NONE) == {}


def test_bodies_come_as_they_were_sent(tmp_path: Path) -> None:
    bodies: list[Any] = ["", b"bytes", None, 7, [1, "a"], (1, 2), {"k": {1: 2.5}}]
    with places(tmp_path, "ann") as (ann,):
        one = blocks.MessageDispatcher(ann, "party", lambda body: body)
        assert [one.call(body, timeout=WAIT_S)["ann"] for body in bodies] == bodies
        with pytest.raises(MessageFormatError):
            one.call(object())


def test_a_reply_that_cannot_travel_is_an_error_of_its_handler(tmp_path: Path) -> None:
    with places(tmp_path, "ann") as (ann,):
        one = blocks.MessageDispatcher(ann, "party", lambda body: print)
        assert "no safe encoding" in str(one.call(1, timeout=WAIT_S)["ann"])


def test_a_call_to_some_members_waits_for_these_alone(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob", "cid") as found:
        ann, *_ = [blocks.MessageDispatcher(one, "party", lambda body: body) for one in found]
        assert ann.call(1, timeout=WAIT_S, properties={TO: "bob cid"}) == {"bob": 1, "cid": 1}
        assert ann.call(1, timeout=WAIT_S, properties={ORDER: "fifo"}).keys() == {
            "ann",
            "bob",
            "cid",
        }


def test_a_handler_may_call_its_own_group_and_wait_for_another_member(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob") as (ann, bob):

        def ask_bob(body: str) -> Any:
            return one.call("again", timeout=WAIT_S, properties={TO: "bob"}) if body == "ask" else 0

        one = blocks.MessageDispatcher(ann, "party", ask_bob)
        two = blocks.MessageDispatcher(bob, "party", len)
        assert two.call("ask", timeout=WAIT_S) == {"ann": {"bob": 5}, "bob": 3}


def test_a_call_does_not_wait_for_a_member_that_has_left(tmp_path: Path) -> None:
    came, may_end = threading.Event(), threading.Event()
    with places(tmp_path, "ann", "bob") as (ann, bob):

        def hold(body: str) -> str:
            came.set()
            may_end.wait(WAIT_S)
            return body

        one = blocks.MessageDispatcher(ann, "party", str.upper)
        blocks.MessageDispatcher(bob, "party", hold)
        outcome: list[dict[str, Any]] = []
        caller = threading.Thread(target=lambda: outcome.append(one.call("hi", timeout=None)))
        caller.start()
        assert came.wait(WAIT_S)
        bob.channel.close()
        caller.join(WAIT_S)
        may_end.set()
        assert outcome == [{"ann": "HI"}]


def test_a_block_with_a_state_takes_it_over(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob") as (ann, bob):
        menu = blocks.ReplicatedTable(ann, "menu")
        menu["Monday"] = "soup"
        other = blocks.ReplicatedTable(bob, "menu")
        assert other["Monday"] == "soup"
        other["Tuesday"] = "rice"
        assert menu.get("Tuesday") == "rice"
        ann.channel.close()
        other["Tuesday"] = "soup"
        assert other.copy() == {"Monday": "soup", "Tuesday": "soup"}
        with pytest.raises(IllegalStateError, match="closed"):
            menu["Monday"] = "rice"


def test_fences_grow_from_holder_to_holder(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob") as (ann, bob):
        one, two = blocks.Lock(ann, "door"), blocks.Lock(bob, "door")
        fences = []
        for lock in (one, two, one):
            fences.append(lock.acquire(WAIT_S))
            lock.release()
        fences.append(two.acquire(WAIT_S))
        bob.channel.close()  # and gives back what it holds
        fences.append(one.acquire(WAIT_S))
        assert fences == sorted(set(fences))


def test_what_is_of_no_block_goes_to_the_program(tmp_path: Path) -> None:
    with places(tmp_path, "ann") as (ann,):
        came: list[Any] = []
        ann._others = came.append
        ann.start()
        until(lambda: came)
        with blocks.MessageDispatcher(ann, "party", str.upper) as one:  # sees the view it is in
            assert one.call("hi", timeout=WAIT_S) == {"ann": "HI"}
            assert one.view.members == ("ann",)
            ann.channel.send("plain")
            until(lambda: len(came) == 2)
        assert [type(one) for one in came] == [antiphon.ViewMessage, antiphon.TextMessage]


class Words(Block):
    """Keeps all words, and hands them out."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.views: list[View] = []

    def viewed(self, view: View, now: float) -> Effects:
        self.views.append(view)
        return ()

    def heard(self, message: Heard, now: float) -> Effects:
        if message.body == "raise":
            raise ValueError("as it was asked to")
        self.words.append(message.body)
        return [Tell(message.body)]

    def snapshot(self) -> bytes:
        return " ".join(self.words).encode()

    def restore(self, data: bytes) -> None:
        self.words = data.decode().split()


def words(place: Any) -> Host[Words]:
    """Open a block on a place."""
    host = Host(FRONT, place.port("words", None, False), Words())
    run(host.opening())
    return host


@pytest.mark.timeout(20)  # less than a process waits for another one's state
def test_blocks_that_begin_together_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one asks the second one for a state, that asks the third one, and so on."""
    monkeypatch.setattr("antiphon.blocks.threads.channel_ports.ATTEMPT_S", 0.3)
    names = ("ann", "bob", "cid")
    with (
        linked_places(*names, stack=lambda all: peers.total(all, "oldest")) as (_, found),
        ThreadPoolExecutor(len(names)) as threads,
    ):
        until(lambda: all(len(place.channel.view.members) == len(names) for place in found))
        hosts = []
        for place in by_age(found):
            hosts.append(threads.submit(words, place))
            until(lambda p=place: hosts[-1].done() or asks(p))  # type: ignore[misc]
        opened = [host.result(WAIT_S) for host in hosts]
        run(opened[0].casting("all"))
        until(lambda: all(host.block.words == ["all"] for host in opened))


def by_age(found: list[ChannelPlace]) -> list[ChannelPlace]:
    """Return places in the order of the view that the first one has."""
    members = found[0].channel.view.members
    return sorted(found, key=lambda place: members.index(place.channel.name))


def asks(place: ChannelPlace) -> bool:
    """Whether it has somebody whose state it waits for."""
    return place.channel.status()["layers"]["state"].get("from", "nobody") != "nobody"


def test_a_block_that_was_cut_off_takes_over_the_state_of_the_others() -> None:
    names = ("ann", "bob", "cid")
    with linked_places(*names, stack=lambda all: peers.total_uniform(all)) as (network, found):
        with ThreadPoolExecutor(len(names)) as threads:  # they ask each other for a state
            hosts = list(threads.map(words, found))
        until(lambda: all(host.view.members == names for host in hosts))
        *most, cid = hosts
        run(cid.casting("before"))
        until(lambda: all(host.block.words == ["before"] for host in hosts))
        part(network, "cid", "ann", "bob")
        until(lambda: cid.view.members == ("cid",) and hosts[0].view.members == ("ann", "bob"))
        run(cid.casting("alone"))
        run(most[0].casting("meanwhile"))
        until(lambda: cid.block.words == ["before", "alone"])
        until(lambda: most[1].block.words == ["before", "meanwhile"])
        network.mend_all()
        until(lambda: cid.block.words == ["before", "meanwhile"])
        run(cid.casting("after"))
        until(
            lambda: {" ".join(host.block.words) for host in hosts} == {"before meanwhile after"},
        )


def test_a_block_joins_where_messages_come_already(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob") as (ann, bob):
        one = words(ann)
        bob.start()
        for number in range(100):
            run(one.casting(f"{number}"))
            if number == 50:
                two = words(bob)
        until(lambda: len(two.block.words) == 100)
        assert two.block.words == one.block.words == [f"{number}" for number in range(100)]


def test_a_block_that_raises_takes_no_more_part(tmp_path: Path) -> None:
    with places(tmp_path, "ann", "bob") as (ann, bob):
        one, two = words(ann), words(bob)
        run(two.casting("raise"))
        until(lambda: not one.is_member)
        with pytest.raises(IllegalStateError, match="as it was asked to"):
            run(one.casting("late"))


def test_what_a_place_on_a_channel_cannot_be(tmp_path: Path) -> None:
    with places(tmp_path, "ann") as (ann,):
        for wrong in ({"name": "bob"}, {"durable": True}):
            with pytest.raises(ValueError, match="channel's name, 'ann'"):
                blocks.MessageDispatcher(ann, "party", str.upper, **wrong)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateError, match="no block with a state"):
            ann.state()
        host = words(ann)
        with pytest.raises(IllegalStateError, match="has a block already"):
            words(ann)
        run(host.closing())
        assert words(ann).is_member
