"""Replicated services on real members: one effect, one result, and an end that is noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import antiphon
from antiphon import View
from antiphon.blocks import (
    MessageDispatcher,
    RemoteError,
    Replica,
    ReplicatedService,
    ServiceClient,
)
from antiphon.blocks.operations import replica as replica_module
from antiphon.blocks.pure import scripts
from antiphon.blocks.pure.block import Heard, Settle
from antiphon.blocks.pure.service import Request
from antiphon.blocks.pure.service_block import ServiceBlock
from antiphon.blocks.threads import front as front_module
from antiphon.broker.home.settings import HomeSettings
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    MessageFormatError,
    OutcomeUnknownError,
)
from antiphon.formats import values
from antiphon.model.redelivery import Redelivery
from tests.api.support.backends import abandon, one_server
from tests.api.support.fronts import PATIENCE_S
from tests.api.support.steps import heard, in_thread, until
from tests.blocks.conftest import Connect
from tests.blocks.support.steps import Held, buried, remove

GROUP = "notes"


class Notes(ReplicatedService):
    """Keeps what it is told, and returns how much that is."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.views: list[tuple[str, ...]] = []

    def apply(self, command: Any) -> Any:
        match command:
            case ("give", value):
                return value
            case ("give what cannot travel",):
                return object()
            case ("raise", text):
                raise ValueError(text)
        self.notes.append(command)
        return len(self.notes)

    def snapshot(self) -> bytes:
        return values.encode((self.notes, self.views))

    def restore(self, data: bytes) -> None:
        self.notes, self.views = values.decode(data)

    def viewed(self, members: tuple[str, ...]) -> None:
        self.views.append(members)


class Slow(Notes):
    """Waits in `apply` until it is let go."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def apply(self, command: Any) -> Any:
        self._held()
        return super().apply(command)


Start = Callable[..., Replica[Any]]


@pytest.fixture
def start(connect: Connect) -> Iterator[Start]:
    """Replicas, each of a program of its own."""
    with ExitStack() as stack:

        def start(
            name: str | None = None, service: ReplicatedService | None = None
        ) -> Replica[Any]:
            replica = Replica(connect(), GROUP, service or Notes(), name=name)
            return stack.enter_context(replica)

        yield start


@pytest.fixture
def client(connect: Connect) -> Iterator[ServiceClient]:
    with ServiceClient(connect(), GROUP) as client:
        yield client


def has(*notes: Any) -> Callable[[Notes], bool]:
    return lambda service: service.notes == list(notes)


# -- Calls -----------------------------------------------------------------------------------------


def test_all_replicas_do_what_one_of_them_or_a_client_says(
    start: Start, client: ServiceClient
) -> None:
    one, two = start("one"), start("two")
    assert [one.call("a"), two.call("b"), client.call("c"), one.call("d")] == [1, 2, 3, 4]
    for replica in (one, two):
        assert replica.wait_until(has("a", "b", "c", "d"), PATIENCE_S)
        assert replica.look(lambda service: service.notes[-1]) == "d"


@pytest.mark.parametrize("value", [None, 0, "", b"", False, {1: (2,)}, "x" * (2 << 20)])
def test_whatever_can_travel_is_a_command_and_a_result(
    start: Start, client: ServiceClient, value: object
) -> None:
    one = start("one")
    assert one.call(("give", value)) == value
    assert client.call(("give", value)) == value


def test_what_a_service_raises_is_raised_where_it_was_called(
    start: Start, client: ServiceClient
) -> None:
    one = start("one")
    for caller in (one, client):
        with pytest.raises(ValueError, match="no such note"):
            caller.call(("raise", "no such note"))
        with pytest.raises(ValueError, match="name"):
            caller.call(("raise", "name"))
    assert one.call("a") == client.call("b") - 1 == 1


def test_an_exception_with_any_text_is_a_result(start: Start, client: ServiceClient) -> None:
    class Failing(Notes):
        def apply(self, command: Any) -> Any:
            raise ValueError("name \udcff")

    one = start("one", Failing())
    for caller in (one, client):
        with pytest.raises(ValueError, match="name"):
            caller.call("x")
    assert one.is_member


def test_a_result_that_cannot_travel_is_an_exception(start: Start, client: ServiceClient) -> None:
    one = start("one")
    for caller in (one, client):
        with pytest.raises(RemoteError, match="no safe encoding"):
            caller.call(("give what cannot travel",))
    assert one.call("a") == 1


def test_a_command_that_cannot_travel_is_refused_at_once(
    start: Start, client: ServiceClient
) -> None:
    one = start("one")
    for caller in (one, client):
        with pytest.raises(MessageFormatError, match="no safe encoding"):
            caller.call(object())
    with pytest.raises(MessageFormatError):
        one.post(object())
    assert client.call("a") == 1


def test_a_command_may_be_posted_without_waiting(start: Start) -> None:
    one = start("one")
    for n in range(10):
        one.post(n)
    assert one.call("last") == 11
    assert one.look(has(*range(10), "last"))


def test_what_is_no_command_is_passed_over(
    start: Start, client: ServiceClient, connect: Connect
) -> None:
    one = start("one")
    ctx = connect(allow_pickle=True)
    producer, group = ctx.create_producer(), ctx.create_topic(GROUP)
    for body in ("text", b"\xc1", None, 7, {"a": 1}, ValueError("can be pickled, and not read")):
        producer.send(group, body)
    assert [client.call("a"), one.call("b")] == [1, 2]


def test_who_replies_and_is_no_replica_is_noticed(connect: Connect, client: ServiceClient) -> None:
    with (
        MessageDispatcher(connect(), GROUP, lambda body: "hello"),
        pytest.raises(FormatError, match="not a replica"),
    ):
        client.call("x")


# -- State -----------------------------------------------------------------------------------------


def test_a_late_replica_has_what_was_there(start: Start, client: ServiceClient) -> None:
    one = start("one")
    for n in range(20):
        one.call(n)
    two = start("two")
    assert two.look(has(*range(20)))
    assert client.call("more") == 21
    assert two.wait_until(has(*range(20), "more"), PATIENCE_S)
    three = start("three")
    assert three.look(has(*range(20), "more"))


def test_replicas_that_come_while_others_call_are_the_same(
    start: Start, client: ServiceClient
) -> None:
    first = start()
    stop = threading.Event()

    def work() -> int:
        made = 0
        while not stop.is_set():
            made = client.call("x")
        return made

    working = in_thread(work)
    replicas = [first, *(start() for _ in range(3))]
    stop.set()
    (made,) = heard(working, 1)
    for replica in replicas:
        assert replica.wait_until(lambda service: len(service.notes) == made, PATIENCE_S)


def test_every_replica_knows_the_members_as_of_the_same_place(
    start: Start, connect: Connect
) -> None:
    one, two = start("one"), start("two")
    three = start("three")
    remove(connect(), GROUP, "three")
    until(lambda: not three.is_member)
    one.call("x")
    two.call("y")
    views = [("one",), ("one", "two"), ("one", "two", "three"), ("one", "two")]
    for replica in (one, two):
        assert replica.look(lambda service: [tuple(view) for view in service.views]) == views


def test_who_takes_over_a_state_is_not_told_of_views_that_are_in_it() -> None:
    old, new = ServiceBlock(Notes()), ServiceBlock(Notes())
    for view in (View(1, ("ann",)), View(2, ("ann", "bob")), View(3, ("ann", "bob", "cid"))):
        list(old.viewed(view, 0.0))
    new.restore(old.snapshot())
    for view in (View(2, ("ann", "bob")), View(3, ("ann", "bob", "cid")), View(4, ("bob", "cid"))):
        list(new.viewed(view, 0.0))
    service = new.replica.service
    assert isinstance(service, Notes)
    assert service.views == [("ann",), ("ann", "bob"), ("ann", "bob", "cid"), ("bob", "cid")]
    newest = ServiceBlock(Notes())
    newest.restore(new.snapshot())
    assert newest.snapshot() == new.snapshot()


@pytest.mark.parametrize("data", [b"", values.encode((1, 2)), values.encode((b"", b""))])
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        ServiceBlock(Notes()).restore(data)


# -- One effect ------------------------------------------------------------------------------------


def test_a_request_that_comes_again_to_another_replica_has_one_effect(start: Start) -> None:
    """Also one that has joined meanwhile: it knows the results with the state."""
    start("one")
    two = start("two")
    request = Request("somebody", 1, 0, "note").encode()
    for replica in (two, start("three")):
        scripts.run(replica._host.multicasting(request))
    assert two.call("last") == 2
    assert two.look(has("note", "last"))


def test_the_result_of_a_repetition_is_that_of_the_first_time() -> None:
    block = ServiceBlock(Notes())
    results = []
    for number in (1, 2, 1):
        request = Request("somebody", number, 0, "note").encode()
        settle, reply = block.heard(Heard(request, "inbox", str(number)), 0.0)
        assert isinstance(settle, Settle)
        assert settle.what == ("somebody", number)
        results.append(reply.body)
    assert results[0] == results[2] != results[1]


def test_a_client_that_waits_submits_again_and_has_one_effect(
    start: Start, client: ServiceClient, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "RESUBMIT_S", 0.01)
    held = Held()
    one = start("one", Slow(held))
    ctx = connect()
    with ctx.join(ctx.create_group(GROUP), "watcher") as watcher:
        watcher.receive(PATIENCE_S)  # its view
        waiting = in_thread(lambda: client.call("note", timeout=None))
        copies = [watcher.receive(PATIENCE_S) for _ in range(3)]
        assert len({copy.body for copy in copies if copy is not None}) == 1
        held.let_go()
        assert heard(waiting, 1) == [1]
    assert one.call("last") == 2


def test_a_reply_that_comes_later_than_the_next_copy_will_do(
    start: Start, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a group that is slow for a while would never again be quick enough."""
    monkeypatch.setattr(replica_module, "RESUBMIT_S", 1e-6)
    start("one")
    assert [client.call(n) for n in range(5)] == [1, 2, 3, 4, 5]


# -- In time ---------------------------------------------------------------------------------------


def test_without_a_replica_there_is_no_answer(client: ServiceClient) -> None:
    with pytest.raises(OutcomeUnknownError, match="no replica has replied"):
        client.call("x", timeout=0.1)


def test_a_call_that_takes_too_long_may_take_effect_yet(
    start: Start, client: ServiceClient
) -> None:
    held = Held()
    one = start("one", Slow(held))
    for caller in (one, client):
        with pytest.raises(OutcomeUnknownError) as caught:
            caller.call("x", timeout=0.1)
        assert caught.value.happened == "unknown"
    held.let_go()
    assert one.wait_until(has("x", "x"), PATIENCE_S)
    assert one.call("y") == 3


def test_the_time_counts_while_no_server_can_be_reached(start: Start, connect: Connect) -> None:
    ctx, other = connect(), connect()
    one, client = Replica(ctx, GROUP, Notes()), ServiceClient(other, GROUP)
    for lost, caller in ((ctx, one), (other, client)):
        abandon(lost)
        with pytest.raises(OutcomeUnknownError):
            caller.call("x", timeout=0.1)
        buried(lost)


def test_waiting_for_what_does_not_come_about_ends_in_time(start: Start) -> None:
    one = start("one")
    with pytest.raises(TimeoutError, match="not come about"):
        one.wait_until(has("never"), 0.05)
    assert one.wait_until(has(), 0) is True


# -- Ends ------------------------------------------------------------------------------------------


def leaves(replica: Replica[Any], ctx: antiphon.Context) -> None:
    replica.close()


def is_removed(replica: Replica[Any], ctx: antiphon.Context) -> None:
    remove(ctx, GROUP, replica.name)


Ending = Callable[[Replica[Any], antiphon.Context], None]


@pytest.mark.parametrize("ends", [leaves, is_removed])
def test_what_waits_at_a_replica_ends_with_its_membership(
    start: Start, connect: Connect, ends: Ending
) -> None:
    one, two = start("one"), start("two")
    waiting = in_thread(lambda: two.wait_until(has("never")))
    ends(two, connect())
    (error,) = heard(waiting, 1)
    assert isinstance(error, IllegalStateError)
    assert "two is not a member of the group any more" in str(error)
    for call in (lambda: two.call("x"), lambda: two.post("x"), lambda: two.wait_until(has("x"))):
        with pytest.raises(IllegalStateError, match="is not a member of the group any more"):
            call()
    assert not two.is_member
    assert one.call("y") == 1
    assert two.look(has())  # what it had can be looked at


def test_a_call_that_waits_when_its_replica_is_removed_is_of_unknown_outcome(
    start: Start, connect: Connect
) -> None:
    held = Held()
    start("one")
    two = start("two", Slow(held))
    two.post("first")
    held.wait_until_entered()
    waiting = in_thread(lambda: two.call("second", timeout=None))
    ctx = connect()
    until(lambda: bool(two._host._waiting))
    remove(ctx, GROUP, "two")
    late = in_thread(lambda: two.call("third", timeout=None))  # perhaps ordered, never got here
    held.let_go()
    for error in heard(late, 1):
        assert isinstance(error, IllegalStateError | OutcomeUnknownError)
    (outcome,) = heard(waiting, 1)
    assert outcome == 2 or isinstance(outcome, OutcomeUnknownError)
    assert not two._host._waiting


@pytest.mark.parametrize("timeout", [None, 1000.0])
def test_what_waits_ends_with_the_connection(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    monkeypatch.setattr(front_module, "LOOK_S", 0.02)
    ctx = connect()
    one = Replica(ctx, GROUP, Notes())
    waiting = in_thread(lambda: one.wait_until(has("never"), timeout))
    ctx.close()
    (error,) = heard(waiting, 1)
    assert isinstance(error, IllegalStateError)
    with pytest.raises(IllegalStateError):
        one.call("x")
    one.close()


def test_a_replica_that_cannot_go_on_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "LOOK_S", 0.02)
    quick = HomeSettings(redelivery=Redelivery(delay_ms=5, most_ms=5))

    class Fragile(Notes):
        def viewed(self, members: tuple[str, ...]) -> None:
            if "two" in members:
                raise ValueError("too many")

    with (
        one_server(quick) as server,
        antiphon.connect(server.url) as own,
        antiphon.connect(server.url) as ctx,
        Replica(own, GROUP, Fragile(), name="one") as one,
    ):
        waiting = in_thread(lambda: one.wait_until(has("never")))
        ctx.join(ctx.create_group(GROUP), "two")
        (error,) = heard(waiting, 1)
        assert isinstance(error, IllegalStateError)
        with pytest.raises(IllegalStateError):
            one.call("x")


def test_a_name_that_is_taken_is_refused(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.api.operations.opening.NAME_WAIT_S", 0.01)
    start("one")
    ctx = connect()
    sessions = len(ctx._core.connection.users)
    with pytest.raises(IllegalStateError, match="one"):
        Replica(ctx, GROUP, Notes(), name="one")
    assert len(ctx._core.connection.users) == sessions


def test_closing_a_client_ends_its_calls(
    client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was sent may take effect yet, so its outcome is unknown."""
    port = client._client._port
    sent: list[antiphon.SendFuture] = []
    ask = port.ask
    monkeypatch.setattr(port, "ask", lambda *asked: sent.append(ask(*asked)) or sent[-1])
    waiting = in_thread(lambda: client.call("x", timeout=None))
    until(lambda: any(future.done() for future in sent))
    client.close()
    (error,) = heard(waiting, 1)
    assert isinstance(error, OutcomeUnknownError)
    with pytest.raises(IllegalStateError, match="closed"):
        client.call("y")


# -- Threads ---------------------------------------------------------------------------------------


def test_threads_share_a_replica_and_a_client(start: Start, client: ServiceClient) -> None:
    one = start("one")
    start("two")
    together = threading.Barrier(6)

    def work(caller: Any) -> list[int]:
        together.wait(PATIENCE_S)
        return [caller.call("x") for _ in range(10)]

    working = [in_thread(lambda c=caller: work(c)) for caller in (one, client) * 3]
    results = [heard(done, 1)[0] for done in working]
    assert all(numbers == sorted(numbers) for numbers in results)
    assert sorted(n for numbers in results for n in numbers) == list(range(1, 61))
