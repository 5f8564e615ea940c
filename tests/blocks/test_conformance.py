"""Both fronts of the blocks do the same: each test is one script, run with threads and asyncio.

A test yields what it calls, as the operations of the blocks do: with threads the call returns, with
asyncio it is awaited. `Front.open` makes a block of that front, and opens it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import blocks
from antiphon.blocks import ALL, FIRST, MAJORITY, NONE, RemoteError, TooFewRepliesError
from antiphon.blocks.aio import running
from antiphon.blocks.operations.front import Deadline
from antiphon.blocks.pure import scripts
from antiphon.blocks.pure.scripts import Script
from antiphon.errors import IllegalStateError, MessageFormatError, OutcomeUnknownError
from tests.api.support.fronts import PATIENCE_S

_numbers = count(1)
PEERS = pytest.param("peers", marks=[pytest.mark.process, pytest.mark.in_turn])
"""A process that is its own server, as those of `peer:` URLs are."""


class Front:
    """A front, and connections of its kind to one server, which is inside the program."""

    def __init__(self, name: str, url: str) -> None:
        self._blocks: Any = blocks.aio if name == "asyncio" else blocks
        self._antiphon: Any = antiphon.aio if name == "asyncio" else antiphon
        self._url = url
        self._open: list[Any] = []

    def connect(self) -> Script[Any]:
        ctx = yield lambda: self._antiphon.connect(self._url)
        self._open.append(ctx)
        return ctx

    def open(self, kind: str, group: str, *arguments: Any, **options: Any) -> Script[Any]:
        """Make a block on a connection of its own."""
        ctx = yield from self.connect()
        block = yield lambda: getattr(self._blocks, kind)(ctx, group, *arguments, **options)
        self._open.append(block)
        return block

    def close(self) -> Script[None]:
        for opened in reversed(self._open):
            yield opened.close


def on_both_fronts(test: Callable[[Front], Script[None]]) -> Callable[[str], None]:
    def closed(front: Front) -> Script[None]:
        try:
            yield from front.connect()  # keeps the server
            yield from test(front)
        finally:
            yield from front.close()

    async def limited(url: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await running.run(closed(Front("asyncio", url)))

    @pytest.mark.parametrize("front", ["threads", "asyncio"])
    @pytest.mark.parametrize("where", ["embedded", PEERS])
    def both(front: str, where: str, tmp_path: Path) -> None:
        url = "embedded:" if where == "embedded" else f"peer:file/{tmp_path}/"
        url += f"conformance{next(_numbers)}"
        if front == "asyncio":
            asyncio.run(limited(url))
        else:
            scripts.run(closed(Front("threads", url)))

    wraps(test)(both)
    del both.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for its arguments
    return both


class OwnError(Exception):
    pass


def handler(body: Any) -> Any:
    if body == "raise":
        raise OwnError("no")
    return body


# -- Calls ----------------------------------------------------------------------------------------


@on_both_fronts
def test_calls_and_casts(front: Front) -> Script[None]:
    ann = yield from front.open("MessageDispatcher", "g", handler, name="ann")
    yield from front.open("MessageDispatcher", "g", handler, name="bob")
    client = yield from front.open("GroupClient", "g")
    for caller in (ann, client):
        assert (yield partial(caller.call, "x")) == {"ann": "x", "bob": "x"}
        for replies, wanted in ((FIRST, 1), (2, 2), (MAJORITY, 2), (ALL, 2), (NONE, 0)):
            found = yield partial(caller.call, "x", replies)
            assert wanted <= len(found) <= 2
            assert wanted or not found
    assert (yield partial(client.cast, "y")) is None
    assert (ann.group, ann.name, ann.is_member) == (client.group, "ann", True)


@on_both_fronts
def test_replies_travel_whole_and_errors_by_name(front: Front) -> Script[None]:
    ann = yield from front.open("MessageDispatcher", "g", handler, name="ann")
    for body in ("text", b"bytes", None, [1, ["two"]], {"a": 1, "b": [2]}):
        found = yield partial(ann.call, antiphon.ObjectMessage(body))
        assert found == {"ann": body}
    found = yield partial(ann.call, antiphon.ObjectMessage({1: 2}))
    assert found == {"ann": {1: 2}}
    found = yield partial(ann.call, "raise")
    assert isinstance(found["ann"], RemoteError)
    assert (found["ann"].type_name, str(found["ann"])) == ("OwnError", "OwnError: no")


@on_both_fronts
def test_a_call_that_nobody_replies_to_ends_in_time(front: Front) -> Script[None]:
    client = yield from front.open("GroupClient", "empty")
    with pytest.raises(TooFewRepliesError, match="nobody has replied"):
        yield partial(client.call, "x", timeout=0.02)
    for replies in (-1, "some", True):
        with pytest.raises((TypeError, ValueError)):
            yield partial(client.call, "x", replies)
    with pytest.raises(ValueError, match="0 or more"):
        yield partial(client.call, "x", timeout=-1)


@dataclass
class Account:
    balance: int = 0

    def pay_in(self, amount: int) -> int:
        if amount < 0:
            raise ValueError("not so little")
        self.balance += amount
        return self.balance

    def _rob(self) -> None:
        self.balance = 0


@on_both_fronts
def test_methods_are_called_and_a_proxy_is_like_the_object(front: Front) -> Script[None]:
    for name in ("ann", "bob"):
        yield from front.open("RpcDispatcher", "g", Account(), name=name)
    client = yield from front.open("RpcClient", "g")
    assert (yield partial(client.call, "pay_in", 5)) == {"ann": 5, "bob": 5}
    account = client.proxy()
    assert (yield partial(account.pay_in, amount=2)) == 7
    with pytest.raises(ValueError, match="not so little"):
        yield partial(account.pay_in, -1)
    with pytest.raises(AttributeError, match="public"):
        account._rob  # noqa: B018
    found = yield partial(client.call, "_rob")
    assert all(isinstance(error, AttributeError) for error in found.values())
    assert (yield partial(client.proxy(ALL).pay_in, 1)) == {"ann": 8, "bob": 8}


# -- Services -------------------------------------------------------------------------------------


class Notes(blocks.ReplicatedService):
    def __init__(self) -> None:
        self.notes: list[Any] = []

    def apply(self, command: Any) -> Any:
        if command == "raise":
            raise KeyError("no")
        self.notes.append(command)
        return len(self.notes)

    def snapshot(self) -> bytes:
        return repr(self.notes).encode()

    def restore(self, data: bytes) -> None:
        self.notes = [text.strip("' ") for text in data.decode().strip("[]").split(",")]


@on_both_fronts
def test_active_services(front: Front) -> Script[None]:
    yield from services(front, passive=False)


@on_both_fronts
def test_passive_services(front: Front) -> Script[None]:
    yield from services(front, passive=True)


def services(front: Front, passive: bool) -> Script[None]:
    ann = yield from front.open("Replica", "g", Notes(), name="ann", passive=passive)
    assert (yield partial(ann.call, "one")) == 1
    bob = yield from front.open("Replica", "g", Notes(), name="bob", passive=passive)
    client = yield from front.open("ServiceClient", "g")
    assert (yield partial(client.call, "two")) == 2
    yield partial(bob.post, "three")
    for replica in (ann, bob):
        yield partial(replica.wait_until, lambda service: len(service.notes) == 3, PATIENCE_S)
        assert replica.look(lambda service: service.notes) == ["one", "two", "three"]
    for caller in (ann, bob, client):
        with pytest.raises(KeyError, match="no"):
            yield partial(caller.call, "raise")
    with pytest.raises(TimeoutError, match="not come about in 0 s"):
        yield partial(ann.wait_until, lambda service: False, 0)
    with pytest.raises(MessageFormatError):
        yield partial(ann.call, object())


@on_both_fronts
def test_a_service_without_replicas_has_no_outcome(front: Front) -> Script[None]:
    client = yield from front.open("ServiceClient", "nobody")
    with pytest.raises(OutcomeUnknownError, match="no replica has replied"):
        yield partial(client.call, "x", timeout=0.02)


@on_both_fronts
def test_who_has_left_says_so(front: Front) -> Script[None]:
    ann = yield from front.open("Replica", "g", Notes(), name="ann")
    yield ann.close
    yield ann.close
    assert not ann.is_member
    for call in (partial(ann.call, "x"), partial(ann.wait_until, lambda service: True)):
        with pytest.raises(IllegalStateError, match="ann is not a member of the group any more"):
            yield call


# -- Tables, events, coordination -----------------------------------------------------------------


@on_both_fronts
def test_a_table(front: Front) -> Script[None]:
    one = yield from front.open("ReplicatedTable", "g")
    assert (yield partial(one.put, "a", [1])) is None
    two = yield from front.open("ReplicatedTable", "g")
    assert two.copy() == {"a": [1]}
    assert (yield partial(two.replace, "a", [1], [2])) is True
    assert (yield partial(two.replace, "a", [1], [3])) is False
    assert (yield partial(one.get, "a")) == [2]
    assert (one["a"], "a" in one, len(one), list(one), dict(one.items())) == (
        [2],
        True,
        1,
        ["a"],
        {"a": [2]},
    )
    assert (yield partial(one.remove, "a")) == [2]
    assert (yield partial(two.get, "a")) is None


@dataclass
class Fire:
    floor: int


@on_both_fronts
def test_a_bus(front: Front) -> Script[None]:
    one = yield from front.open("NotificationBus", "g", Fire)
    yield partial(one.publish, Fire(1))
    two = yield from front.open("NotificationBus", "g", Fire)
    got: list[Fire] = []
    bad: list[Any] = []

    def raises(event: Fire) -> None:
        bad.append(event)
        raise OwnError

    for call in (raises, got.append):
        yield partial(two.subscribe, Fire, call)
    assert got == bad == [Fire(1)]
    yield partial(one.publish, Fire(2))
    yield partial(two._host._changed.until, lambda: two.last(Fire) == Fire(2), Deadline(PATIENCE_S))
    with pytest.raises(MessageFormatError, match="OwnError is not a kind"):
        yield partial(one.publish, OwnError())
    yield two.close  # after what it is handling
    assert got == bad == [Fire(1), Fire(2)]


@on_both_fronts
def test_a_counter(front: Front) -> Script[None]:
    one = yield from front.open("Counter", "g")
    two = yield from front.open("Counter", "g")
    assert (yield one.add) == 1
    assert (yield partial(two.add, 5)) == 6
    yield partial(one.set, 2)
    assert (yield lambda: two.value) == 2


@on_both_fronts
def test_a_lock(front: Front) -> Script[None]:
    ann = yield from front.open("Lock", "g", name="ann")
    bob = yield from front.open("Lock", "g", name="bob")
    first = yield ann.acquire
    assert (ann.held, ann.fence, bob.held, bob.fence) == (True, first, False, 0)
    for timeout in (0, 0.02):
        with pytest.raises(TimeoutError, match=f"not granted within {timeout:g} s: others hold it"):
            yield partial(bob.acquire, timeout)
    yield ann.release
    assert (yield partial(bob.acquire, PATIENCE_S)) > first
    with pytest.raises(RuntimeError, match="the Lock is not held here"):
        yield ann.release
    yield bob.close
    assert (yield partial(ann.acquire, PATIENCE_S)) > first
    with pytest.raises(IllegalStateError, match="the Lock was closed: make another one"):
        yield bob.acquire


@on_both_fronts
def test_an_election(front: Front) -> Script[None]:
    ann = yield from front.open("LeaderElection", "g", name="ann")
    bob = yield from front.open("LeaderElection", "g", name="bob")
    term = yield partial(ann.wait_to_lead, PATIENCE_S)
    with pytest.raises(TimeoutError):
        yield partial(bob.wait_to_lead, 0.01)
    yield ann.resign
    assert (yield partial(bob.wait_to_lead, PATIENCE_S)) > term
    assert (bob.leader, bob.is_leader, bob.term) == ("bob", True, term + 1)


@on_both_fronts
def test_a_barrier(front: Front) -> Script[None]:
    alone = yield from front.open("Barrier", "one", 1)
    assert [(yield alone.wait), (yield alone.wait)] == [1, 2]
    ann = yield from front.open("Barrier", "two", 2)
    with pytest.raises(TimeoutError, match=r"the barrier has not opened within 0\.02 s"):
        yield partial(ann.wait, 0.02)
    assert ann.look(lambda barrier: barrier.there) == []
