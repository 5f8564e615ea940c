"""Every public call of both fronts does the same.

Each test is run on both, and names the calls that it is for. A call that no test names fails
`test_every_public_call_is_made`, and a test that does not make a call that it names fails itself:
so nobody can add a call, or override one, on one front alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from queue import Queue as Results
from typing import Any

import pytest

import antiphon
import antiphon.blocks.aio
from antiphon import ConflictRelation, SessionMode, View, aio
from antiphon.errors import IllegalStateError, InvalidSelectorError
from tests.api.support import backends
from tests.api.support.backends import Backend
from tests.api.support.fronts import PATIENCE_S
from tests.api.support.steps import (
    CLIENT,
    SOON,
    TRANSACTED,
    Connect,
    FailureError,
    heard,
    listed,
    plain,
    received,
    send,
    texts,
    until,
)
from tests.api.test_groups import state_of, told, words
from tests.api.test_packed import packed

CLASSES = ("Context", "Producer", "Consumer", "Member", "Browser", "SendFuture")
PROTOCOLS = {"__iter__": "__aiter__", "__enter__": "__aenter__", "__exit__": "__aexit__"}
"""What is written with `for` and `with`, and with `async` before it."""

ONE_FRONT_ALONE = {
    "Producer.__await__": "asyncio: opens a named producer",
    "Browser.__await__": "asyncio: all that is created may be awaited",
    "SendFuture.__await__": "asyncio: waits for the answer, as result() does with threads",
}

SIGNATURES_THAT_DIFFER = {
    "SendFuture.result": "with threads it waits, and with asyncio `await future` does",
    "SendFuture.exception": "the same",
}

Test = Callable[..., None]
COVERED: set[str] = set()


def makes(*calls: str) -> Callable[[Test], Test]:
    """The test makes these calls; `calls_are_made` sees to it."""

    def note(test: Test) -> Test:
        vars(test)["calls"] = set(calls)
        COVERED.update(calls)
        return test

    return note


# -- What there is --------------------------------------------------------------------------------


def public_calls(front: Any) -> set[str]:
    back = {name: plain for plain, name in PROTOCOLS.items()} if front is aio else {}
    protocols = {"__await__", *(back or PROTOCOLS)}
    calls = {"connect"}
    for kind in CLASSES:
        names = {name for name in dir(getattr(front, kind)) if name[0] != "_" or name in protocols}
        calls |= {f"{kind}.{back.get(name, name)}" for name in names}
    return calls - ONE_FRONT_ALONE.keys()


def test_both_fronts_have_the_same_calls() -> None:
    assert public_calls(antiphon) == public_calls(aio)


def test_every_public_call_is_made() -> None:
    assert public_calls(antiphon) == COVERED


@pytest.mark.parametrize("call", sorted(public_calls(antiphon)))
def test_both_fronts_take_the_same_arguments(call: str) -> None:
    same = parameters(antiphon, call) == parameters(aio, call)
    assert same == (call not in SIGNATURES_THAT_DIFFER)


def parameters(front: Any, call: str) -> list[Any]:
    kind, _, name = call.rpartition(".")
    if name in PROTOCOLS:
        return []
    found = inspect.getattr_static(getattr(front, kind) if kind else front, name)
    if isinstance(found, property):
        return ["a property", "to be set" if found.fset else "only to be read"]
    return list(inspect.signature(found).parameters.values())


@pytest.mark.parametrize("name", sorted(antiphon.blocks.aio.__all__))
def test_building_blocks_take_the_same_arguments_on_both_fronts(name: str) -> None:
    plain, awaited = getattr(antiphon.blocks, name), getattr(antiphon.blocks.aio, name)
    calls = {call for call in dir(plain) if call[0] != "_"} & set(dir(awaited))
    for call in {"__init__", *calls}:
        ways = [inspect.getattr_static(kind, call) for kind in (plain, awaited)]
        if callable(ways[0]):
            one, other = map(shape, ways)
            assert one == other, call


def shape(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


# -- The stage ------------------------------------------------------------------------------------


@pytest.fixture
def backend() -> Iterator[Backend]:
    """What the servers do is tested elsewhere: here it is about the fronts."""
    with backends.embedded() as one:
        yield one


@pytest.fixture(autouse=True)
def calls_are_made(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Those that the test says it makes."""
    expected: set[str] = getattr(request.function, "calls", set())
    made: set[str] = set()
    if expected:
        note_calls(request.getfixturevalue("front"), monkeypatch, made)
    yield
    assert expected <= made


def note_calls(front: Any, monkeypatch: pytest.MonkeyPatch, made: set[str]) -> None:
    module: Any = aio if front.name == "aio" else antiphon
    for call in public_calls(module):
        kind, _, name = call.rpartition(".")
        owner: Any = getattr(module, kind) if kind else module
        attribute = PROTOCOLS.get(name, name) if front.name == "aio" else name
        noted = noting(inspect.getattr_static(owner, attribute), call, made)
        monkeypatch.setattr(owner, attribute, noted)


def noting(found: Any, call: str, made: set[str]) -> Any:
    if isinstance(found, property):
        assert found.fget is not None
        return property(noting(found.fget, call, made), found.fset)

    @functools.wraps(found)
    def noted(*arguments: Any, **options: Any) -> Any:
        made.add(call)
        return found(*arguments, **options)

    return noted


# -- Contexts -------------------------------------------------------------------------------------


@makes("connect", "Context.__enter__", "Context.__exit__", "Context.session_mode", "Context.closed")
def test_connecting(connect: Connect, backend: Backend) -> None:
    with connect(session_mode=CLIENT) as context:
        assert context.session_mode is CLIENT
        assert not context.closed
    assert context.closed
    with pytest.raises(IllegalStateError, match="closed"):
        context.create_context(CLIENT)


@makes("Context.create_context", "Context.close")
def test_closing_one_of_two_contexts(connect: Connect, backend: Backend) -> None:
    context = connect()
    other = context.create_context(TRANSACTED)
    assert other.session_mode is TRANSACTED
    other.close()
    other.close()
    with pytest.raises(IllegalStateError, match="closed"):
        other.commit()
    send(context, context.create_queue(backend.name()), "the first one goes on")


@makes(
    "Context.create_topic",
    "Context.create_queue",
    "Context.lookup",
    "Context.create_message",
    "Context.create_text_message",
    "Context.create_bytes_message",
    "Context.create_map_message",
    "Context.create_stream_message",
    "Context.create_object_message",
)
def test_making_destinations_and_messages(
    connect: Connect, backend: Backend, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "antiphon.toml").write_text('[destinations]\nhere = "topic:t.1"\n')
    monkeypatch.chdir(tmp_path)
    context = connect()
    assert context.lookup("here") == context.create_topic("t.1")
    queue = context.create_queue(backend.name())
    made = [
        context.create_message(),
        context.create_text_message("a"),
        context.create_bytes_message(b"b"),
        context.create_map_message({"c": 1}),
        context.create_stream_message([2]),
        context.create_object_message(("d",)),
    ]
    context.create_producer().send_all(queue, map(plain, made))
    consumer = context.create_consumer(queue)
    assert [received(consumer).body for _ in made] == [None, "a", b"b", {"c": 1}, [2], ("d",)]


@makes(
    "Context.create_temporary_queue", "Context.create_temporary_topic", "Context.delete_temporary"
)
def test_temporary_destinations(connect: Connect, backend: Backend) -> None:
    context = connect()
    for made in (context.create_temporary_queue(), context.create_temporary_topic()):
        consumer = context.create_consumer(made)
        send(context, made, "x")
        assert received(consumer).text == "x"
        consumer.close()
        context.delete_temporary(made)
        with pytest.raises(antiphon.InvalidDestinationError):
            context.create_producer().send(made, "y")


@makes("Context.create_last_value_topic")
def test_last_values(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_last_value_topic(backend.name())
    for price in ("1", "2"):
        context.create_producer().send(topic, price, key="lamp")
    assert texts(context.create_consumer(topic), 1) == ["2"]


@makes(
    "Context.create_durable_consumer",
    "Context.create_shared_consumer",
    "Context.create_shared_durable_consumer",
    "Context.unsubscribe",
)
def test_subscriptions(connect: Connect, backend: Backend) -> None:
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    kept = [
        lambda: context.create_durable_consumer(topic, "a"),
        lambda: context.create_shared_durable_consumer(topic, "b"),
    ]
    for number, opened in enumerate(kept):
        opened().close()
        send(context, topic, f"kept {number}")
        with opened() as consumer:
            assert texts(consumer, 1) == [f"kept {number}"]
        context.unsubscribe("ab"[number])
    with context.create_shared_consumer(topic, "c", selector="n = 1") as consumer:
        context.create_producer().send(topic, "selected", properties={"n": 1})
        assert texts(consumer, 1) == ["selected"]
    with pytest.raises(antiphon.InvalidDestinationError):
        context.unsubscribe("c")


@makes("Context.acknowledge", "Context.recover")
def test_acknowledging_and_recovering(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=CLIENT)
    queue = context.create_queue(backend.name())
    send(context, queue, "a", "b")
    consumer = context.create_consumer(queue)
    assert texts(consumer, 1) == ["a"]
    context.acknowledge()
    assert texts(consumer, 1) == ["b"]
    context.recover()
    again = received(consumer)
    assert (again.text, again.delivery_count) == ("b", 2)
    again.acknowledge()
    assert listed(context, queue) == []


@makes("Context.commit", "Context.rollback", "Context.stage")
def test_transactions(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=TRANSACTED)
    queue = context.create_queue(backend.name())
    send(context, queue, "taken back")
    context.rollback()
    send(context, queue, "staged")
    handle = context.stage()
    send(context, queue, "sent")
    assert listed(context, queue) == []
    assert context.commit(token=backend.name("token"), staged=[handle])
    assert sorted(listed(context, queue)) == ["sent", "staged"]


@makes("Context.start", "Context.stop")
def test_holding_deliveries(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    consumer = context.create_consumer(queue)
    context.stop()
    send(context, queue, "x")
    assert consumer.receive(SOON) is None
    context.start()
    assert texts(consumer, 1) == ["x"]


@makes("Context.exception_listener")
def test_telling_of_exceptions(connect: Connect, backend: Backend) -> None:
    context = connect()
    complaints: Results[Any] = Results()
    assert context.exception_listener is None
    context.exception_listener = complaints.put
    assert context.exception_listener is not None
    queue = context.create_temporary_queue()
    context.delete_temporary(queue)
    context.create_producer().send_async(queue, "nobody looks at it")
    (complaint,) = heard(complaints, 1)
    assert isinstance(complaint, antiphon.InvalidDestinationError)


# -- Producers ------------------------------------------------------------------------------------


@makes("Context.create_producer", "Producer.send", "Producer.send_all", "Producer.send_packed")
def test_sending(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue, producer = context.create_queue(backend.name()), context.create_producer()
    assert producer.send(queue, "a", properties={"n": 1}, priority=5) is None
    assert producer.send_all(queue, ["b", "c"], priority=5) == 2
    producer.send_packed(queue, packed("d", "e"))
    consumer = context.create_consumer(queue)
    first = received(consumer)
    assert (first.text, first.properties["n"], first.priority) == ("a", 1, 5)
    assert texts(consumer, 4) == ["b", "c", "d", "e"]


@makes(
    "Producer.send_async",
    "SendFuture.done",
    "SendFuture.result",
    "SendFuture.exception",
    "SendFuture.add_done_callback",
)
def test_sending_without_waiting(connect: Connect, backend: Backend) -> None:
    context = connect()
    called: Results[Any] = Results()
    queue, producer = context.create_queue(backend.name()), context.create_producer()
    future = producer.send_async(queue, "x")
    future.add_done_callback(called.put)
    assert future.result(PATIENCE_S) is None
    assert future.done()
    assert future.exception() is None
    heard(called, 1)
    refused = producer.send_async(gone(context), "y")
    assert isinstance(refused.exception(PATIENCE_S), antiphon.InvalidDestinationError)


def gone(context: Any) -> Any:
    queue = context.create_temporary_queue()
    context.delete_temporary(queue)
    return queue


@makes(
    "Producer.name",
    "Producer.last_sequence",
    "Producer.close",
    "Producer.__enter__",
    "Producer.__exit__",
)
def test_named_producers(connect: Connect, backend: Backend) -> None:
    context, name = connect(), backend.name("p")
    queue = context.create_queue(backend.name())
    with context.create_producer(name) as producer:
        assert (producer.name, producer.last_sequence) == (name, 0)
        producer.send(queue, "x")
        assert producer.last_sequence == 1
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send(queue, "y")
    again = context.create_producer(name)
    again.send(queue, "z")
    assert again.last_sequence == 2
    again.close()
    with pytest.raises(IllegalStateError, match="closed"):
        again.send(queue, "y")


# -- Consumers ------------------------------------------------------------------------------------


@makes(
    "Context.create_consumer",
    "Consumer.receive",
    "Consumer.receive_no_wait",
    "Consumer.close",
    "Consumer.closed",
    "Consumer.destination",
)
def test_receiving(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    consumer = context.create_consumer(queue, selector="n = 1", prefetch=5, exclusive=True)
    assert (consumer.destination, consumer.closed) == (queue, False)
    assert consumer.receive_no_wait() is None
    assert consumer.receive(0) is None
    assert consumer.receive(SOON) is None
    context.create_producer().send_all(queue, ["a", "b"], properties={"n": 1})
    assert received(consumer).text == "a"
    found: list[Any] = []
    until(lambda: bool(found.append(consumer.receive_no_wait()) or found[-1]))
    assert found[-1].text == "b"
    consumer.close()
    consumer.close()
    assert consumer.closed
    for call in (consumer.receive, consumer.receive_no_wait):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    with pytest.raises(InvalidSelectorError):
        context.create_consumer(queue, "n =")


@makes("Consumer.__iter__", "Consumer.__enter__", "Consumer.__exit__")
def test_looping(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send(context, queue, "a", "b", "c")
    with context.create_consumer(queue) as consumer:
        for message in consumer:
            if message.text == "b":
                break
    assert listed(context, queue) == ["c"]
    with pytest.raises(FailureError):
        fail_in_a_loop(context.create_consumer(queue))
    assert received(context.create_consumer(queue)).delivery_count == 2


def fail_in_a_loop(consumer: Any) -> None:
    with consumer:
        for _ in consumer:
            raise FailureError


@makes("Consumer.set_message_listener")
def test_listening(connect: Connect, backend: Backend) -> None:
    context = connect()
    seen: Results[Any] = Results()
    queue = context.create_queue(backend.name())
    consumer = context.create_consumer(queue)
    consumer.set_message_listener(seen.put)
    send(context, queue, "a", "b")
    assert [message.text for message in heard(seen, 2)] == ["a", "b"]
    for call in (consumer.receive, consumer.receive_no_wait):
        with pytest.raises(IllegalStateError, match="listener"):
            call()
    consumer.set_message_listener(None)
    assert consumer.receive(0) is None


def test_acknowledging_a_message(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=SessionMode.INDIVIDUAL_ACKNOWLEDGE)
    queue = context.create_queue(backend.name())
    send(context, queue, "a", "b")
    consumer = context.create_consumer(queue)
    assert texts(consumer, 1) == ["a"]
    received(consumer).acknowledge()
    assert listed(context, queue) == ["a"]


@makes(
    "Context.create_browser",
    "Browser.__iter__",
    "Browser.__enter__",
    "Browser.__exit__",
    "Browser.close",
    "Browser.queue",
    "Browser.selector",
)
def test_browsing(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    send(context, queue, "a", "b")
    with context.create_browser(queue, "n IS NULL") as browser:
        assert (browser.queue, browser.selector) == (queue, "n IS NULL")
        assert [message.text for message in browser] == ["a", "b"]
        assert [message.text for message in browser] == ["a", "b"]
    browser.close()
    with pytest.raises(InvalidSelectorError):
        context.create_browser(queue, "n =")


# -- Members --------------------------------------------------------------------------------------


@makes(
    "Context.create_group",
    "Context.join",
    "Member.__enter__",
    "Member.__exit__",
    "Member.name",
    "Member.view",
    "Member.multicast",
    "Member.multicast_async",
    "Member.receive",
    "Member.destination",
    "Member.closed",
)
def test_being_a_member(connect: Connect, backend: Backend) -> None:
    context = connect()
    group = context.create_group(backend.name(), conflict=ConflictRelation.RELIABLE_ATOMIC)
    with pytest.raises(IllegalStateError):
        context.create_group(group.name, remove_after=0.5)
    with context.join(group, "a") as member:
        assert (member.name, member.view) == ("a", View(1, ("a",)))
        assert (member.destination, member.closed) == (group, False)
        member.multicast("one", tag="rbcast", properties={"n": 1})
        assert member.multicast_async("two", tag="abcast").result(PATIENCE_S) is None
        assert told(member, 3) == [(1, ("a",), ("a",), ()), "one", "two"]
    with pytest.raises(IllegalStateError, match="closed"):
        member.receive()


@makes("Context.delete_group")
def test_deleting_a_group(connect: Connect, backend: Backend) -> None:
    context = connect()
    group = context.create_group(backend.name())
    context.join(group, "a", durable=True).close()
    context.delete_group(group.name)
    with pytest.raises(antiphon.InvalidDestinationError):
        context.delete_group(group.name, force=True)


@makes("Member.__iter__", "Member.invite", "Member.remove", "Member.set_conflict")
def test_telling_the_group(connect: Connect, backend: Backend) -> None:
    context = connect()
    member = context.join(context.create_group(backend.name()), "a")
    member.set_conflict(ConflictRelation.RELIABLE)
    member.invite("b", durable=True)
    views = []
    for message in member:
        views.append(message.view.members)
        if message.view.id in (2, 3):
            member.remove(message.view.members[-1])
    assert views == [("a",), ("a", "b"), ("a",), ()]


@makes("Member.leave", "Member.close")
def test_leaving(connect: Connect, backend: Backend) -> None:
    context = connect()
    group = context.create_group(backend.name())
    watcher = context.join(group, "watcher")
    for name, end in (("a", "close"), ("b", "leave")):
        getattr(context.join(group, name, durable=True), end)()
    context.join(group, "a", durable=True).multicast("closed is not left")
    *_, last, message = told(watcher, 5)
    assert last == (4, ("watcher", "a"), (), ("b",))
    assert message == "closed is not left"


@makes("Member.set_message_listener")
def test_a_member_listens_and_acknowledges(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=CLIENT)
    seen: Results[Any] = Results()
    member = context.join(context.create_group(backend.name()), "a", durable=True)
    assert received(member).view.id == 1
    member.multicast("acknowledged")
    received(member).acknowledge()
    member.set_message_listener(seen.put)
    member.multicast("listened to")
    assert [message.text for message in heard(seen, 1)] == ["listened to"]
    with pytest.raises(IllegalStateError, match="listener"):
        member.receive()
    context.recover()
    assert [message.delivery_count for message in heard(seen, 1)] == [2]


@makes("Member.receive_no_wait", "Member.initial_state")
def test_handing_out_the_state_while_polling(connect: Connect, backend: Backend) -> None:
    """A member that only polls hands out its state, too, and goes on."""
    one, two = connect(), connect()
    group = one.create_group(backend.name())
    first = one.join(group, "a", state_provider=lambda: b"the state")
    assert polled(first) == (1, ("a",), ("a",), ())
    second = two.join(group, "b", state_provider=lambda: b"")
    assert polled(first) == (2, ("a", "b"), ("b",), ())
    second.multicast("after it")
    assert polled(first) == "after it"
    assert state_of(second) == b"the state"


def polled(member: Any) -> Any:
    """What it gets next, without ever waiting for it."""
    got: list[Any] = []
    until(lambda: bool(got.append(member.receive_no_wait()) or got[-1]))
    return words(plain(got[-1]))
