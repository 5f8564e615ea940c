"""Calls to a group of real members: how many replies are waited for, and for whom not any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import antiphon
from antiphon import View, ViewMessage
from antiphon.blocks import (
    ALL,
    FIRST,
    MAJORITY,
    NONE,
    GroupClient,
    MessageDispatcher,
    RemoteError,
    RpcClient,
    RpcDispatcher,
    TooFewRepliesError,
)
from antiphon.blocks.operations.events import views_of
from antiphon.blocks.pure import scripts
from antiphon.blocks.pure.block import Heard, Reply
from antiphon.blocks.pure.calls import Replies
from antiphon.blocks.pure.replies import ASKED, LEFT, PATIENCE, Responder, failed
from antiphon.blocks.threads import front as front_module
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    OutcomeUnknownError,
)
from tests.api.support.backends import abandon
from tests.api.support.steps import heard, in_thread, until
from tests.blocks.conftest import Connect
from tests.blocks.support.steps import Held, buried, remove

NAMES = ("ann", "bob", "cid")
Handlers = dict[str, Callable[[Any], Any]]


class Party:
    """Members, each of a program of its own, and a caller outside."""

    def __init__(self, connect: Connect, handlers: Handlers, group: Any = "party") -> None:
        self.members = {
            name: MessageDispatcher(connect(), group, handler, name=name)
            for name, handler in handlers.items()
        }
        self.outside_ctx = connect()
        self.outside = GroupClient(self.outside_ctx, group)

    def caller(self, name: str) -> GroupClient:
        return self.members.get(name, self.outside)

    def close(self) -> None:
        self.outside.close()
        for member in self.members.values():
            member.close()


@pytest.fixture
def party(connect: Connect) -> Iterator[Callable[..., Party]]:
    with ExitStack() as stack:

        def make(group: Any = "party", **handlers: Any) -> Party:
            for handler in handlers.values():
                if isinstance(handler, Held):
                    stack.callback(handler.let_go)  # before the members are closed
            made = Party(connect, handlers, group)
            stack.callback(made.close)
            for handler in handlers.values():
                if isinstance(handler, Held):
                    stack.callback(handler.let_go)
            return made

        yield make


def shouting(name: str) -> Callable[[Any], Any]:
    return lambda body: f"{name} got {body}"


def plain(**others: Any) -> Handlers:
    return {name: shouting(name) for name in NAMES} | others


# -- How many replies ----------------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["bob", "outside"])
@pytest.mark.parametrize(
    ("replies", "slow"),
    [(FIRST, ["ann", "cid"]), (2, ["ann"]), (MAJORITY, ["cid"]), (ALL, []), (3, [])],
)
def test_a_call_waits_for_as_many_replies_as_wanted(
    party: Callable[..., Party], caller: str, replies: Replies, slow: list[str]
) -> None:
    one = party(**plain(**{name: Held() for name in slow}))
    quick = {name: f"{name} got hello" for name in NAMES if name not in slow}
    assert one.caller(caller).call("hello", replies, timeout=None) == quick


@pytest.mark.parametrize("caller", ["ann", "outside"])
def test_a_call_for_no_reply_and_a_cast_reach_everybody(
    party: Callable[..., Party], caller: str
) -> None:
    handlers = {name: Held() for name in NAMES}
    one = party(**handlers)
    for held in handlers.values():
        held.let_go()
    assert one.caller(caller).call("first", NONE) == {}
    one.caller(caller).cast("second")
    for held in handlers.values():
        assert [held.entered.get(timeout=20) for _ in range(2)] == ["first", "second"]


@pytest.mark.parametrize("body", [None, 0, "", b"", False, [], {}, (1, "two"), "x" * (2 << 20)])
def test_whatever_can_travel_is_a_body_and_a_reply(
    party: Callable[..., Party], body: object
) -> None:
    one = party(ann=lambda body: body)
    assert one.outside.call(body) == {"ann": body}


def test_a_reply_is_a_value_that_the_caller_may_change(party: Callable[..., Party]) -> None:
    one = party(ann=lambda body: {1: [body]})
    reply = one.outside.call("x")["ann"]
    reply[1].append("y")
    assert reply == {1: ["x", "y"]}


def test_a_member_that_joins_later_is_asked_from_then_on(
    party: Callable[..., Party], connect: Connect
) -> None:
    one = party(ann=shouting("ann"))
    assert list(one.outside.call(1)) == ["ann"]
    with MessageDispatcher(connect(), "party", shouting("dee"), name="dee"):
        assert one.outside.call(2) == {"ann": "ann got 2", "dee": "dee got 2"}
    assert list(one.outside.call(3)) == ["ann"]


def test_who_joins_does_not_wait_for_a_handler_of_another_member(
    party: Callable[..., Party], connect: Connect
) -> None:
    held = Held(patience_s=5)
    one = party(ann=held)
    one.outside.cast("work")
    held.wait_until_entered()
    with MessageDispatcher(connect(), "party", shouting("bob"), name="bob"):
        assert one.outside.call("x", FIRST) == {"bob": "bob got x"}
        assert not held.forgotten


def test_a_durable_member_that_is_back_replies_to_who_still_waits(
    connect: Connect,
) -> None:
    with (
        GroupClient(connect(), "party") as outside,
        MessageDispatcher(connect(), "party", shouting("ann"), name="ann"),
    ):
        MessageDispatcher(connect(), "party", len, name="bob", durable=True).close()
        waiting = in_thread(lambda: outside.call("four", timeout=None))
        with MessageDispatcher(connect(), "party", len, name="bob", durable=True):
            assert heard(waiting, 1) == [{"ann": "ann got four", "bob": 4}]


# -- For whom nobody waits any more ----------------------------------------------------------------


@pytest.mark.parametrize("gone", ["ann", "cid"])
@pytest.mark.parametrize("caller", ["bob", "outside"])
def test_who_is_removed_is_not_waited_for(
    party: Callable[..., Party], connect: Connect, gone: str, caller: str
) -> None:
    held = Held()
    one = party(**plain(**{gone: held}))
    waiting = in_thread(lambda: one.caller(caller).call("x", timeout=None))
    held.wait_until_entered()
    remove(connect(), "party", gone)
    assert heard(waiting, 1) == [{name: f"{name} got x" for name in NAMES if name != gone}]
    held.let_go()
    until(lambda: not one.members[gone].is_member)
    assert len(one.outside.call("y")) == 2


@pytest.mark.parametrize("gone", ["ann", "cid"])
def test_who_closes_is_not_waited_for(party: Callable[..., Party], gone: str) -> None:
    held = Held()
    one = party(**plain(**{gone: held}))
    waiting = in_thread(lambda: one.outside.call("x", timeout=None))
    held.wait_until_entered()
    closing = in_thread(lambda: scripts.run(one.members[gone]._host.closing()))
    until(lambda: not one.members[gone].is_member)
    held.let_go()
    assert heard(closing, 1) == [None]
    assert heard(waiting, 1) == [{name: f"{name} got x" for name in NAMES if name != gone}]


def test_with_too_few_left_a_call_fails_with_what_it_has(
    party: Callable[..., Party], connect: Connect
) -> None:
    slow = {name: Held() for name in ("ann", "cid")}
    one = party(**plain(**slow))
    waiting = in_thread(lambda: one.outside.call("x", MAJORITY, timeout=None))
    for held in slow.values():
        held.wait_until_entered()
    remove(connect(), "party", "ann", "cid")
    (error,) = heard(waiting, 1)
    assert isinstance(error, TooFewRepliesError)
    assert error.replies == {"bob": "bob got x"}
    assert "ann, cid left the group before" in str(error)


def test_who_was_replaced_by_another_of_the_same_name_is_not_waited_for(
    party: Callable[..., Party], connect: Connect
) -> None:
    group = connect().create_group("party", remove_after=None)
    held = Held()
    one = party(group, ann=shouting("ann"))
    dying = connect()
    MessageDispatcher(dying, group, held, name="bob")
    waiting = in_thread(lambda: one.outside.call("x", timeout=None))
    held.wait_until_entered()
    abandon(dying)
    with MessageDispatcher(connect(), group, shouting("new bob"), name="bob"):
        assert heard(waiting, 1) == [{"ann": "ann got x"}]
        assert one.outside.call("y") == {"ann": "ann got y", "bob": "new bob got y"}
    held.let_go()
    buried(dying)


def test_somebody_replaced_is_seen_to_leave_and_to_come() -> None:
    event = ViewMessage(View(7, ("ann", "cid", "bob")), joined=("bob",), left=("bob", "dee"))
    assert list(views_of(event)) == [View(7, ("ann", "cid")), View(7, ("ann", "cid", "bob"))]
    event = ViewMessage(View(8, ("ann", "cid")), left=("bob",))
    assert list(views_of(event)) == [View(8, ("ann", "cid"))]


def test_a_member_tells_callers_who_has_left_while_they_may_wait() -> None:
    block = Responder(lambda message: message.body)
    block.name = "ann"
    list(block.viewed(View(1, NAMES), 0.0))
    for number, patience in (("1", 5.0), ("2", 50.0)):
        (reply,) = block.heard(Heard("x", "inbox", number, {PATIENCE: patience}), 0.0)
        assert isinstance(reply, Reply)
    (notice,) = block.viewed(View(2, ("ann", "bob")), 20.0)
    assert notice == Reply("inbox", "2", None, {ASKED: "ann bob cid", LEFT: "cid"})


def test_who_was_asked_is_who_got_the_message_and_not_who_is_there_now() -> None:
    block = Responder(lambda message: message.body)
    block.name = "bob"
    (reply,) = block.heard(Heard("x", "inbox", "1", members=NAMES), 0.0)
    assert isinstance(reply, Reply)
    assert reply.properties[ASKED] == "ann bob cid"
    (reply,) = block.heard(Heard("x", "inbox", "2"), 0.0)  # it is back, and does not know
    assert isinstance(reply, Reply)
    assert reply.properties[ASKED] == ""


# -- In time ---------------------------------------------------------------------------------------


def test_a_call_that_is_not_answered_in_time_says_by_whom(party: Callable[..., Party]) -> None:
    held = Held()
    one = party(**plain(bob=held))
    one.outside.call("x", 2)  # the quick ones have replied, and will again
    with pytest.raises(TooFewRepliesError, match=r"nobody has replied|none from bob") as caught:
        one.outside.call("y", timeout=0.2)
    assert "bob" not in caught.value.replies
    assert isinstance(caught.value, TimeoutError)


def test_who_has_heard_of_nobody_is_told_that_they_may_be_slow(connect: Connect) -> None:
    held = [Held() for _ in range(3)]
    with ExitStack() as stack:
        for one in held:
            stack.callback(one.let_go)
            stack.enter_context(MessageDispatcher(connect(), "party", one))
        outside = stack.enter_context(GroupClient(connect(), "party"))
        with pytest.raises(TooFewRepliesError, match=r"may be slow \(give them more\)"):
            outside.call("x", timeout=0.1)
        for one in held:  # else closing the dispatchers waits for them
            one.let_go()


def test_a_call_to_nobody_is_not_answered(connect: Connect) -> None:
    with (
        GroupClient(connect(), "party") as outside,
        pytest.raises(TooFewRepliesError, match="no member that handles calls"),
    ):
        outside.call("x", timeout=0.05)


def test_the_time_counts_while_no_server_can_be_reached(party: Callable[..., Party]) -> None:
    one = party(ann=shouting("ann"))
    abandon(one.outside_ctx)
    for replies in (ALL, NONE):
        with pytest.raises(OutcomeUnknownError):
            one.outside.call("x", replies, timeout=0.1)
    buried(one.outside_ctx)


# -- Ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["ann", "outside"])
def test_closing_ends_the_calls_that_wait(party: Callable[..., Party], caller: str) -> None:
    one = party(ann=shouting("ann"), bob=Held())
    calling = one.caller(caller)
    waiting = in_thread(lambda: calling.call("x", timeout=None))
    until(lambda: any(call.replies for call in calling._client._calls.values()))
    calling.close()
    (error,) = heard(waiting, 1)
    assert isinstance(error, TooFewRepliesError)
    assert "closed here" in str(error)
    with pytest.raises(IllegalStateError, match="closed"):
        calling.call("y")
    calling.close()


def test_a_call_ends_with_its_connection(
    party: Callable[..., Party], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "LOOK_S", 0.02)
    party(ann=Held())
    ctx = connect()
    client = GroupClient(ctx, "party")
    waiting = in_thread(lambda: client.call("x", timeout=None))
    until(lambda: bool(client._client._calls))
    ctx.close()
    (error,) = heard(waiting, 1)
    assert isinstance(error, antiphon.JMSError)


def test_a_client_leaves_nothing_behind(connect: Connect) -> None:
    ctx = connect()
    sessions = len(ctx._core.connection.users)
    client = GroupClient(ctx, "party")
    inbox = client._client._port._inbox
    client.close()
    assert len(ctx._core.connection.users) == sessions
    with pytest.raises(InvalidDestinationError):
        ctx.create_producer().send(inbox, "late")


def test_a_dispatcher_that_cannot_join_leaves_nothing_behind(
    party: Callable[..., Party], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.api.operations.opening.NAME_WAIT_S", 0.01)
    party(ann=shouting("ann"))
    ctx = connect()
    sessions = len(ctx._core.connection.users)
    for kind in (MessageDispatcher, RpcDispatcher):
        with pytest.raises(IllegalStateError, match="ann"):
            kind(ctx, "party", len, name="ann")
        with pytest.raises(ValueError, match="is not a name of a member"):
            kind(ctx, "party", len, name="two words")
        with pytest.raises(InvalidDestinationError):
            kind(ctx, "no > group", len)
    assert len(ctx._core.connection.users) == sessions


# -- What goes wrong in a handler ------------------------------------------------------------------


class OwnError(Exception):
    pass


def test_what_a_handler_raises_travels_to_the_caller(party: Callable[..., Party]) -> None:
    def own(body: object) -> None:
        raise OwnError("mine")

    one = party(ann=lambda body: 1 // body, bob=own, cid=shouting("cid"))
    replies = one.outside.call(0)
    assert isinstance(replies["ann"], ZeroDivisionError)
    assert isinstance(replies["bob"], RemoteError)
    assert replies["bob"].type_name == "OwnError"
    assert replies["cid"] == "cid got 0"


@pytest.mark.parametrize("answer", [object(), "\udcff", {"a": object()}, bytes((64 << 20) + 1)])
def test_a_reply_that_cannot_travel_is_an_exception(
    party: Callable[..., Party], answer: object
) -> None:
    asked = []

    def handler(body: object) -> object:
        asked.append(body)
        return answer

    one = party(ann=handler)
    (error,) = one.outside.call("x").values()
    assert isinstance(error, RemoteError)
    assert error.type_name in ("MessageFormatError", "ResourceAllocationError")
    one.outside.call("y")
    assert asked == ["x", "y"]  # and not again and again


def test_an_exception_with_any_text_travels(party: Callable[..., Party]) -> None:
    def handler(body: object) -> None:
        raise ValueError("name \udcff")

    one = party(ann=handler)
    (error,) = one.outside.call("x").values()
    assert error.args == ("name \\udcff",)


def test_what_cannot_be_read_is_answered_so(party: Callable[..., Party], connect: Connect) -> None:
    one = party(ann=shouting("ann"))
    with GroupClient(connect(allow_pickle=True), "party") as trusting:
        (error,) = trusting.call(OwnError("an object")).values()
    assert isinstance(error, RemoteError)
    assert error.type_name == "MessageFormatError"
    assert one.outside.call("x") == {"ann": "ann got x"}


def test_what_the_handler_of_a_cast_raises_is_logged(
    party: Callable[..., Party], caplog: pytest.LogCaptureFixture
) -> None:
    one = party(ann=lambda body: 1 // body)
    one.outside.cast(0)
    assert one.outside.call(1) == {"ann": 1}
    assert "nobody waits for it" in caplog.text


def test_a_reply_that_failed_says_who_was_asked() -> None:
    reply = failed(Reply("inbox", "7", object(), {ASKED: "ann bob"}), MessageFormatError("no"))
    assert (reply.to, reply.call, reply.body) == ("inbox", "7", "no")
    assert reply.properties == {ASKED: "ann bob", "antiphon_error": "MessageFormatError"}


@pytest.mark.parametrize("replies", ["most", -1, 1.5, None, True])
def test_what_is_no_number_of_replies_is_refused(party: Callable[..., Party], replies: Any) -> None:
    one = party(ann=shouting("ann"))
    with pytest.raises(ValueError, match="'majority' or 'all'"):
        one.outside.call("x", replies)


def test_a_body_that_cannot_travel_is_refused_at_once(party: Callable[..., Party]) -> None:
    one = party(ann=shouting("ann"))
    for call in (one.outside.call, one.outside.cast):
        with pytest.raises(MessageFormatError, match="no safe encoding"):
            call(object())


# -- Threads ---------------------------------------------------------------------------------------


def test_threads_share_a_dispatcher(party: Callable[..., Party]) -> None:
    one = party(ann=lambda body: -body, bob=lambda body: body * body)
    together = threading.Barrier(6)

    def work(thread: int) -> list[dict[str, int]]:
        together.wait(20)
        return [one.members["ann"].call(thread * 10 + n) for n in range(10)]

    working = [in_thread(lambda thread=thread: work(thread)) for thread in range(6)]
    for thread, done in enumerate(working):
        numbers = range(thread * 10, thread * 10 + 10)
        assert heard(done, 1) == [[{"ann": -n, "bob": n * n} for n in numbers]]


# -- Methods ---------------------------------------------------------------------------------------


class Account:
    secret = "no method"

    def __init__(self) -> None:
        self.money = 0

    def pay_in(self, amount: int, *, timeout: str = "") -> int:
        if amount < 0:
            raise ValueError("less than nothing")
        self.money += amount
        return self.money

    def notes(self) -> dict[int, str]:
        return {10: "ten"}

    def _rob(self) -> None:
        self.money = 0


@pytest.fixture
def accounts(connect: Connect) -> Iterator[RpcClient]:
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(RpcDispatcher(connect(), "bank", Account(), name=name))
        yield stack.enter_context(RpcClient(connect(), "bank"))


def test_a_method_is_called_on_every_object(accounts: RpcClient) -> None:
    assert accounts.call("pay_in", 5) == dict.fromkeys(NAMES, 5)
    assert accounts.call("pay_in", amount=2) == dict.fromkeys(NAMES, 7)
    assert accounts.call("notes", replies=FIRST, timeout=5).popitem()[1] == {10: "ten"}


def test_a_member_calls_methods_too(accounts: RpcClient, connect: Connect) -> None:
    with RpcDispatcher(connect(), "bank", Account(), name="dee") as dee:
        assert dee.call("pay_in", 5) == dict.fromkeys((*NAMES, "dee"), 5)
        assert dee.view.members == (*NAMES, "dee")


@pytest.mark.parametrize("method", ["steal", "_rob", "__init__", "secret"])
def test_only_public_methods_can_be_called(accounts: RpcClient, method: str) -> None:
    for error in accounts.call(method).values():
        assert isinstance(error, AttributeError)
        assert f"Account has no public method '{method}'" in str(error)


def test_wrong_arguments_are_the_callers_to_know(accounts: RpcClient) -> None:
    for error in accounts.call("pay_in", 1, 2, 3).values():
        assert isinstance(error, TypeError)
    with pytest.raises(MessageFormatError):
        accounts.call("pay_in", object())


def test_what_is_no_call_of_a_method_is_answered_so(accounts: RpcClient) -> None:
    for error in scripts.run(accounts._client.calling("pay_in", ALL, None)).values():
        assert isinstance(error, TypeError)
        assert "a call is a method's name" in str(error)


def test_a_proxy_is_like_a_local_object(accounts: RpcClient) -> None:
    account = accounts.proxy()
    assert account.pay_in(5) == 5
    assert account.pay_in(amount=1, timeout="an argument like any other") == 6
    with pytest.raises(ValueError, match="less than nothing"):
        account.pay_in(-1)
    with pytest.raises(AttributeError, match="only public methods"):
        account._rob()


def test_a_proxy_returns_all_results_if_more_than_one_is_wanted(accounts: RpcClient) -> None:
    assert accounts.proxy(ALL).pay_in(5) == dict.fromkeys(NAMES, 5)
    assert accounts.proxy(NONE).pay_in(5) == {}
    with pytest.raises(ValueError, match="'majority' or 'all'"):
        accounts.proxy("most")  # type: ignore[arg-type]
