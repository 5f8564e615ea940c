"""The building blocks with asyncio, on a server inside the program."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pytest

import antiphon
from antiphon import blocks
from antiphon.api.messages.sending import BODY_MAX
from antiphon.api.protocol.conversation import Conversation
from antiphon.blocks import (
    ALL,
    FIRST,
    MAJORITY,
    NONE,
    RemoteError,
    ReplicatedService,
    TooFewRepliesError,
    aio,
)
from antiphon.blocks.aio import running
from antiphon.blocks.pure.calls import Replies
from antiphon.errors import IllegalStateError, MessageFormatError, OutcomeUnknownError
from antiphon.formats import values
from tests.api.support.fronts import PATIENCE_S

CLASSES = sorted(name for name in aio.__all__)
_numbers = count(1)


def run(program: Callable[[antiphon.aio.Context], Coroutine[Any, Any, None]]) -> None:
    """With a context of its own, and no longer than it may take."""

    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S), antiphon.aio.connect("embedded:") as ctx:
            await program(ctx)

    asyncio.run(limited())


@asynccontextmanager
async def opened(block: Any) -> AsyncIterator[Any]:
    """For locks and elections, of which more is done when they are entered."""
    try:
        yield await block
    finally:
        await block.close()


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


@asynccontextmanager
async def two_connections() -> AsyncIterator[tuple[antiphon.aio.Context, antiphon.aio.Context]]:
    url = f"embedded:blocks{next(_numbers)}"
    async with (
        asyncio.timeout(PATIENCE_S),
        antiphon.aio.connect(url) as one,
        antiphon.aio.connect(url) as two,
    ):
        yield one, two


class Held:
    """A handler that does not return before it may, at the end of a block at the latest."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.may_return = asyncio.Event()

    async def __call__(self, body: Any) -> Any:
        self.begun.append(body)
        await self.may_return.wait()
        return body

    async def __aenter__(self) -> Held:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.may_return.set()


# -- The same as the blocking ones ----------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
def test_methods_and_arguments_are_those_of_the_blocking_ones(name: str) -> None:
    def methods(cls: Any) -> dict[str, list[str]]:
        found = {n: getattr(cls, n) for n in dir(cls) if not n.startswith("_")} | {"new": cls}
        return {
            n: [str(p) for p in inspect.signature(m).parameters.values() if "Context" not in str(p)]
            for n, m in found.items()
            if callable(m)
        }

    assert methods(getattr(aio, name)) == methods(getattr(blocks, name))


def test_there_is_an_asyncio_block_for_each_blocking_one() -> None:
    classes = {n for n in blocks.__all__ if isinstance(getattr(blocks, n), type)}
    others = {"Invocation", "Kind", "RefusedError", "RemoteError", "ReplicatedService", "Target"}
    threads_only = {"ChannelPlace"}
    assert set(CLASSES) == classes - others - threads_only - {"TooFewRepliesError"}


# -- Opening and closing --------------------------------------------------------------------------


def test_what_is_opened_can_be_awaited_or_entered() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        awaited = await aio.MessageDispatcher(ctx, "g", str.upper, name="a")
        async with aio.MessageDispatcher(ctx, "g", str.lower, name="b") as entered:
            assert await entered.call("Hi") == {"a": "HI", "b": "hi"}
            assert (entered.name, entered.view.members) == ("b", ("a", "b"))
        assert await awaited.call("Hi") == {"a": "HI"}
        async with awaited as same:
            assert same is awaited
        await awaited.close()

    run(program)


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_not_open_or_closed_says_so(name: str) -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        one = made(name, ctx)
        if not hasattr(one, "acquire"):  # which opens it
            with pytest.raises(IllegalStateError, match="not open: await it"):
                await used(one)
        await one
        await one.close()
        with pytest.raises(IllegalStateError, match="was closed"):
            await used(one)
        await one.close()
        never_opened = made(name, ctx)
        await never_opened.close()
        with pytest.raises(IllegalStateError, match="was closed"):
            await never_opened

    run(program)


def made(name: str, ctx: antiphon.aio.Context) -> Any:
    more: dict[str, list[Any]] = {
        "MessageDispatcher": [str],
        "RpcDispatcher": [object()],
        "Replica": [Adding()],
        "Barrier": [1],
        "Semaphore": [1],
        "NotificationBus": [Fire],
    }
    return getattr(aio, name)(ctx, "g", *more.get(name, []))


def used(one: Any) -> Coroutine[Any, Any, Any]:
    if isinstance(one, aio.NotificationBus):
        return one.publish(Fire(1))
    for name in ("acquire", "wait", "wait_to_lead"):
        if hasattr(one, name):
            return getattr(one, name)()
    return one.call("x")


def test_a_cancelled_opening_leaves_nobody_in_the_group() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with aio.MessageDispatcher(ctx, "g", str, name="watch") as watch:
            for steps in range(30):
                opening = asyncio.ensure_future(opened(ctx))
                for _ in range(steps):
                    await asyncio.sleep(0)
                opening.cancel()
                (dispatcher,) = await asyncio.gather(opening, return_exceptions=True)
                if isinstance(dispatcher, aio.MessageDispatcher):
                    await dispatcher.close()
                assert await watch.call("x") == {"watch": "x"}

    async def opened(ctx: antiphon.aio.Context) -> aio.MessageDispatcher:
        return await aio.MessageDispatcher(ctx, "g", str, name="b")

    run(program)


def test_what_cannot_be_opened_leaves_nothing_behind() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        sessions = len(ctx._core.connection.users)
        with pytest.raises(ValueError, match="durable member needs a name"):
            await aio.MessageDispatcher(ctx, "g", str, durable=True)
        assert len(ctx._core.connection.users) == sessions

    run(program)


def test_a_close_that_is_cancelled_goes_on() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with aio.MessageDispatcher(ctx, "g", str.upper, name="a") as a, Held() as held:
            sessions = len(ctx._core.connection.users)
            b = await aio.MessageDispatcher(ctx, "g", held, name="b")
            asking = asyncio.ensure_future(a.call("x"))
            await until(lambda: held.begun)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await b.close()
            held.may_return.set()
            assert await asking == {"a": "X", "b": "x"}  # it has replied before it left
            await until(lambda: a.view.members == ("a",))
            await until(lambda: len(ctx._core.connection.users) == sessions)

    run(program)


def test_what_was_handled_when_a_durable_member_closed_does_not_come_again() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        held, later = Held(), Held()
        later.may_return.set()
        async with aio.GroupClient(ctx, "g") as client:
            b = await aio.MessageDispatcher(ctx, "g", held, name="b", durable=True)
            asking = asyncio.ensure_future(client.call("x"))
            await until(lambda: held.begun)
            closing = asyncio.ensure_future(b.close())
            await asyncio.sleep(0)
            held.may_return.set()
            assert await asking == {"b": "x"}
            await closing
            await client.cast("y")
            async with aio.MessageDispatcher(ctx, "g", later, name="b", durable=True):
                assert await client.call("z") == {"b": "z"}
            assert later.begun == ["y", "z"]

    run(program)


def test_a_handler_may_close_its_own_dispatcher() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async def stop(body: str) -> str:
            await b.close()
            return "stopping"

        async with aio.MessageDispatcher(ctx, "g", str, name="a") as a:
            b = await aio.MessageDispatcher(ctx, "g", stop, name="b")
            assert await a.call("stop") == {"a": "stop", "b": "stopping"}
            assert await a.call("x") == {"a": "x"}
            await b.close()

    run(program)


def test_the_context_may_be_closed_first() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        dispatcher = await aio.MessageDispatcher(ctx, "g", str)
        lock = await aio.Lock(ctx, "lock")
        await ctx.close()
        with pytest.raises(IllegalStateError, match="context was closed"):
            await dispatcher.call("x")
        await lock.close()
        await dispatcher.close()

    run(program)


# -- Calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replies", [FIRST, 2, MAJORITY, ALL, 3])
def test_a_call_waits_for_as_many_as_wanted(replies: Replies) -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        held = Held()
        async with (
            aio.MessageDispatcher(ctx, "g", str.upper, name="a") as a,
            aio.MessageDispatcher(ctx, "g", str.upper, name="b"),
            aio.MessageDispatcher(ctx, "g", held, name="c"),
            held,
        ):
            asking = asyncio.ensure_future(a.call("x", replies))
            await until(lambda: held.begun)
            if replies in (ALL, 3):
                assert await asyncio.wait([asking], timeout=0.01) == (set(), {asking})
                held.may_return.set()
                assert await asking == {"a": "X", "b": "X", "c": "x"}
            else:
                assert {"a": "X", "b": "X"}.items() >= (await asking).items()
                assert len(await asking) >= (1 if replies == FIRST else 2)

    run(program)


def test_a_call_that_wants_no_reply_and_a_cast() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        seen: list[str] = []
        async with (
            aio.MessageDispatcher(ctx, "g", seen.append),
            aio.GroupClient(ctx, "g") as outside,
        ):
            assert await outside.call("one", NONE) == {}
            await outside.cast("two", properties={"p": 1})
            assert await outside.call("three", FIRST) != {}
            assert seen == ["one", "two", "three"]

    run(program)


def test_a_handler_that_waits_handles_one_message_after_the_other() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        events: dict[str, list[str]] = {"a": [], "b": []}

        async def slow(body: int) -> int:
            events["a"].append(f"begin {body}")
            for _ in range(body % 5):
                await asyncio.sleep(0)
            events["a"].append(f"end {body}")
            return 2 * body

        def quick(body: int) -> None:
            events["b"].extend([f"begin {body}", f"end {body}"])

        async with (
            aio.MessageDispatcher(ctx, "g", slow, name="a") as a,
            aio.MessageDispatcher(ctx, "g", quick, name="b") as b,
        ):
            asked = [(a if n % 2 else b).call(n) for n in range(50)]
            replies = await asyncio.gather(*asked)
            assert replies == [{"a": 2 * n, "b": None} for n in range(50)]
            assert events["a"] == events["b"]
            assert len(events["a"]) == 100

    run(program)


class OwnError(Exception):
    pass


def test_what_handlers_raise_travels_to_the_caller() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        def plain(body: str) -> None:
            raise ValueError(body)

        async def waits(body: str) -> None:
            await asyncio.sleep(0)
            raise OwnError(body)

        async def awaits_what_is_cancelled(body: str) -> None:
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

        async with (
            aio.MessageDispatcher(ctx, "g", plain, name="a") as a,
            aio.MessageDispatcher(ctx, "g", waits, name="b"),
            aio.MessageDispatcher(ctx, "g", awaits_what_is_cancelled, name="c"),
        ):
            for text in ("no", "again"):
                replies = await a.call(text)
                assert isinstance(replies["a"], ValueError)
                assert str(replies["a"]) == text
                assert isinstance(replies["b"], RemoteError)
                assert replies["b"].type_name == "OwnError"
                assert isinstance(replies["c"], RuntimeError)
                assert "cancelled" in str(replies["c"])

    run(program)


@pytest.mark.parametrize(
    "reply",
    [object, lambda: "\udcff", lambda: bytes(BODY_MAX + 1)],
    ids=["type", "text", "size"],
)
def test_a_reply_that_cannot_travel_is_an_error_of_its_member(reply: Callable[[], Any]) -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        handled: list[str] = []

        def handler(body: str) -> Any:
            handled.append(body)
            return reply()

        async with aio.MessageDispatcher(ctx, "g", handler, name="a") as a:
            for _ in range(2):
                assert isinstance((await a.call("x"))["a"], RemoteError)
            assert handled == ["x", "x"]

    run(program)


def test_a_reply_may_be_a_dict_with_any_keys() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with aio.MessageDispatcher(ctx, "g", lambda body: {1: body}, name="a") as a:
            assert await a.call("x") == {"a": {1: "x"}}

    run(program)


def test_a_member_that_leaves_is_not_waited_for() -> None:
    async def program() -> None:
        held = Held()
        async with (
            two_connections() as (one, two),
            aio.MessageDispatcher(one, "g", str.upper, name="a") as a,
            aio.MessageDispatcher(one, "g", str.upper, name="b"),
            held,
        ):
            await aio.MessageDispatcher(two, "g", held, name="c")
            everybody = asyncio.ensure_future(a.call("x", timeout=None))
            three = asyncio.ensure_future(a.call("y", 3, timeout=None))
            await until(lambda: held.begun)
            await two.close()
            assert await everybody == {"a": "X", "b": "X"}
            with pytest.raises(TooFewRepliesError, match="c left") as caught:
                await three
            assert caught.value.replies == {"a": "Y", "b": "Y"}

    asyncio.run(program())


def test_a_cancelled_call_leaves_nothing_behind() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        held = Held()
        async with (
            aio.MessageDispatcher(ctx, "g", held, name="a"),
            aio.GroupClient(ctx, "g") as client,
            held,
        ):
            tasks = [asyncio.ensure_future(client.call(n)) for n in range(20)]
            for task in tasks:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in tasks)
            assert client._client._calls == {}
            await until(lambda: held.begun)
            held.may_return.set()
            assert await client.call("after") == {"a": "after"}

    run(program)


def test_calls_are_given_up_in_time() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        held = Held()
        async with (
            aio.MessageDispatcher(ctx, "g", held, name="a"),
            aio.MessageDispatcher(ctx, "g", str.upper, name="b"),
            aio.GroupClient(ctx, "g") as client,
            aio.GroupClient(ctx, "empty") as nobody,
            held,
        ):
            with pytest.raises(TooFewRepliesError) as caught:
                await client.call("x", timeout=0.01)
            assert "a" not in caught.value.replies
            with pytest.raises(TooFewRepliesError, match="nobody has replied"):
                await nobody.call("x", timeout=0.01)
            with pytest.raises(TimeoutError) as late:
                async with asyncio.timeout(0.01):
                    await client.call("x")
            assert not isinstance(late.value, TooFewRepliesError)
            assert client._client._calls == nobody._client._calls == {}

    run(program)


def test_a_call_that_waits_when_its_client_is_closed_is_told() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        held = Held()
        async with (
            aio.MessageDispatcher(ctx, "g", held, name="a"),
            aio.GroupClient(ctx, "g") as client,
            held,
        ):
            asking = asyncio.ensure_future(client.call("x", timeout=None))
            await until(lambda: held.begun)
            await client.close()
            with pytest.raises(TooFewRepliesError, match="was closed"):
                await asking

    run(program)


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        seen: list[Any] = []
        async with aio.MessageDispatcher(ctx, "g", seen.append) as dispatcher:
            with pytest.raises(ValueError, match="'majority' or 'all'"):
                await dispatcher.call("x", -1)
            with pytest.raises(MessageFormatError):
                await dispatcher.call(object())
            await dispatcher.call("y")
            assert seen == ["y"]

    run(program)


def test_a_message_that_cannot_be_read_is_passed_over() -> None:
    async def program() -> None:
        url = f"embedded:blocks{next(_numbers)}"
        async with (
            asyncio.timeout(PATIENCE_S),
            antiphon.aio.connect(url) as ctx,
            antiphon.aio.connect(url, allow_pickle=True) as pickles,
            aio.MessageDispatcher(ctx, "g", str.upper, name="a") as a,
            aio.MessageDispatcher(pickles, "g", OwnError, name="b"),
        ):
            await pickles.create_producer().send(a.group, antiphon.ObjectMessage(OwnError()))
            replies = await a.call("x")
            assert replies["a"] == "X"
            assert isinstance(replies["b"], MessageFormatError)

    asyncio.run(program())


# -- Methods --------------------------------------------------------------------------------------


class Account:
    def __init__(self) -> None:
        self.balance = 0

    def deposit(self, amount: int, *, times: int = 1) -> int:
        self.balance += amount * times
        return self.balance

    async def withdraw(self, amount: int) -> dict[str, int]:
        await asyncio.sleep(0)
        if amount > self.balance:
            raise ValueError("not so much")
        self.balance -= amount
        return {"left": self.balance}

    def _secret(self) -> None:
        raise AssertionError


def test_methods_are_called_on_all_members() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with (
            aio.RpcDispatcher(ctx, "g", Account(), name="a") as a,
            aio.RpcDispatcher(ctx, "g", Account(), name="b"),
            aio.RpcClient(ctx, "g") as outside,
        ):
            assert await a.call("deposit", 5, times=2) == {"a": 10, "b": 10}
            assert await outside.call("withdraw", 3) == {"a": {"left": 7}, "b": {"left": 7}}
            assert len(await outside.call("deposit", 1, replies=FIRST)) >= 1
            replies = await a.call("withdraw", 100)
            assert [str(error) for error in replies.values()] == ["not so much"] * 2
            for wrong in ("_secret", "balance", "no"):
                assert all(isinstance(e, AttributeError) for e in (await a.call(wrong)).values()), (
                    wrong
                )

    run(program)


def test_a_proxy_is_like_the_object_to_be_awaited() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with (
            aio.RpcDispatcher(ctx, "g", Account(), name="a") as a,
            aio.RpcDispatcher(ctx, "g", Account(), name="b"),
        ):
            account, accounts = a.proxy(), a.proxy(ALL)
            assert await account.deposit(5) == 5
            assert await accounts.withdraw(2) == {"a": {"left": 3}, "b": {"left": 3}}
            with pytest.raises(ValueError, match="not so much"):
                await account.withdraw(100)
            with pytest.raises(AttributeError, match="public"):
                account._secret()

    run(program)


# -- Replicated services --------------------------------------------------------------------------


class Adding(blocks.ReplicatedService):
    def __init__(self) -> None:
        self.value = 0
        self.sick = False

    def apply(self, command: int) -> int:
        if command < 0:
            raise ValueError("less than nothing")
        self.value += command
        return self.value

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    def restore(self, data: bytes) -> None:
        self.value = int(data)

    def viewed(self, members: tuple[str, ...]) -> None:
        if self.sick:
            raise OwnError("sick")


def test_replicas_apply_the_same_and_new_ones_take_it_over() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with (
            aio.Replica(ctx, "g", Adding(), name="a") as a,
            aio.Replica(ctx, "g", Adding(), name="b") as b,
            aio.ServiceClient(ctx, "g") as client,
        ):
            assert await a.call(5) == 5
            assert await client.call(2) == 7
            assert await b.wait_until(lambda adding: adding.value > 6 and adding.value) == 7
            for one in (a, client):
                with pytest.raises(ValueError, match="less than nothing"):
                    await one.call(-1)
            with pytest.raises(MessageFormatError):
                await a.call(object())
            async with aio.Replica(ctx, "g", Adding()) as late:
                assert late.look(lambda adding: adding.value) == 7
                assert await late.call(1) == 8
            results = await asyncio.gather(*(one.call(1) for one in [a, b, client] * 20))
            assert sorted(results) == list(range(9, 69))
            assert a._host._waiting == b._host._waiting == client._client._calls == {}

    run(program)


def test_waiting_for_a_service_ends_in_time_or_when_cancelled() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with (
            aio.Replica(ctx, "g", Adding(), name="a") as a,
            aio.ServiceClient(ctx, "nobody") as client,
        ):
            with pytest.raises(TimeoutError, match="not come about"):
                await a.wait_until(lambda adding: adding.value > 100, timeout=0.01)
            with pytest.raises(OutcomeUnknownError, match="no replica"):
                await client.call(1, timeout=0.05)
            tasks = [asyncio.ensure_future(a.call(1)) for _ in range(20)]
            for task in tasks:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert a._host._waiting == client._client._calls == {}
            assert await a.call(0) == await a.call(0)

    run(program)


def test_a_command_that_the_group_has_not_got_to_may_still_be_carried_out() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        a = await aio.Replica(ctx, "g", Adding(), name="a")
        async with aio.Replica(ctx, "g", Adding(), name="b") as b:
            await a.call(1)
            await ctx.stop()  # nothing is delivered any more
            with pytest.raises(OutcomeUnknownError, match="not within"):
                await a.call(2, timeout=0.01)
            calling = asyncio.ensure_future(a.call(3, timeout=None))
            await until(lambda: a._host._waiting and ctx._core.connection.conversation.idle)
            await a.close()
            with pytest.raises(OutcomeUnknownError, match="was closed"):
                await calling
            ctx.start()
            assert await b.wait_until(lambda adding: adding.value == 6)

    run(program)


def test_who_waits_is_told_when_its_member_is_removed() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        a = await aio.Replica(ctx, "g", Adding(), name="a")
        waiting = asyncio.ensure_future(a.wait_until(lambda adding: adding.value))
        await asyncio.sleep(0)
        await a._host._port.remove("a")
        with pytest.raises(IllegalStateError, match="removed"):
            await waiting
        with pytest.raises(IllegalStateError, match="removed"):
            await a.call(1)
        await a.close()

    run(program)


def test_who_waits_is_told_when_the_connection_is_lost_for_good() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        a = await aio.Replica(ctx, "g", Adding(), name="a")
        lock = await aio.Lock(ctx, "lock")
        await lock.acquire()
        waiting = [
            asyncio.ensure_future(a.wait_until(lambda adding: adding.value)),
            asyncio.ensure_future(lock.acquire()),
        ]
        await asyncio.sleep(0)
        ctx._core.connection.do(Conversation.abandon)
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, antiphon.JMSError)
        await a.close()
        await lock.close()

    run(program)


def test_a_service_that_fails_leaves_and_the_others_go_on() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        a = await aio.Replica(ctx, "g", Adding(), name="a")
        sick = await aio.Replica(ctx, "g", Adding(), name="sick")
        await sick.call(1)
        sick.look(lambda adding: setattr(adding, "sick", True))
        await aio.Replica(ctx, "g", Adding(), name="c")
        await until(lambda: a.view.members == ("a", "c"))
        with pytest.raises(IllegalStateError, match="sick"):
            await sick.call(1)
        assert await a.call(1) == 2
        await sick.close()

    run(program)


def test_a_table() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with (
            aio.ReplicatedTable(ctx, "g", name="a") as one,
            aio.ReplicatedTable(ctx, "g", name="b") as two,
        ):
            assert await one.put("k", 1) is None
            assert await one.put("k", [2]) == 1
            assert await two.get("k") == [2]
            assert (two["k"], "k" in two, len(two), list(two)) == ([2], True, 1, ["k"])
            assert await two.replace("k", 1, 3) is False
            assert await two.replace(("new",), None, {"x": 1}) is True
            assert await one.get("nothing") is None
            assert dict(one.items()) == one.copy() == {"k": [2], ("new",): {"x": 1}}
            assert await one.remove("k") == [2]
            await two.get("k")
            with pytest.raises(KeyError):
                two["k"]

    run(program)


# -- Coordination ---------------------------------------------------------------------------------


def test_a_counter() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with aio.Counter(ctx, "g") as one, aio.Counter(ctx, "g") as two:
            added = await asyncio.gather(*(c.add() for c in [one, two] * 25))
            assert sorted(added) == list(range(1, 51))
            assert await two.value == 50
            await one.set(7)
            assert await two.value == 7

    run(program)


def test_a_lock_is_held_by_one_at_a_time() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        inside: list[int] = []
        fences: list[int] = []

        async def work(lock: aio.Lock) -> None:
            async with lock.hold() as fence:
                inside.append(fence)
                assert lock.held
                await asyncio.sleep(0)
                assert inside == [fence]
                fences.append(inside.pop())

        async with opened(aio.Lock(ctx, "g")) as one, opened(aio.Lock(ctx, "g")) as two:
            await asyncio.gather(*(work(lock) for lock in [one, two] * 10))
            assert fences == sorted(set(fences))
            assert len(fences) == 20
            assert not one.held
            with pytest.raises(RuntimeError, match="not held here"):
                await one.release()

    run(program)


def test_who_does_not_get_a_lock_in_time_does_not_get_it_later() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with opened(aio.Lock(ctx, "g")) as one, opened(aio.Lock(ctx, "g")) as two:
            first = await one.acquire()
            with pytest.raises(TimeoutError, match=r"not granted within 0\.01 s"):
                await two.acquire(timeout=0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await two.acquire()
            await one.release()
            assert await one.acquire(timeout=PATIENCE_S) > first
            await one.release()
            assert not two.held

    run(program)


def test_a_cancelled_acquire_does_not_keep_the_lock() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with opened(aio.Lock(ctx, "g")) as one, opened(aio.Lock(ctx, "g")) as two:
            for steps in range(60):  # cancelled at every moment, also when it has just got it
                acquiring = asyncio.ensure_future(one.acquire())
                for _ in range(steps):
                    await asyncio.sleep(0)
                acquiring.cancel()
                (outcome,) = await asyncio.gather(acquiring, return_exceptions=True)
                if isinstance(outcome, int):
                    await one.release()
                async with asyncio.timeout(PATIENCE_S):
                    await two.acquire()
                await two.release()
            assert one.look(lambda lock: lock.line) == []

    run(program)


def test_a_lock_goes_on_when_its_holder_leaves() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        one = await aio.Lock(ctx, "g")
        async with opened(aio.Lock(ctx, "g")) as two:
            await one.acquire()
            waiting = asyncio.ensure_future(two.acquire())
            await until(lambda: two.look(lambda lock: len(lock.line) == 2))
            await one.close()
            assert await waiting == 2
            assert two.held

    run(program)


def test_an_election() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        one = await aio.LeaderElection(ctx, "g", name="a")
        async with opened(aio.LeaderElection(ctx, "g", name="b")) as two:
            term = await one.wait_to_lead()
            assert (one.leader, one.is_leader, one.term) == ("a", True, term)
            with pytest.raises(TimeoutError):
                await two.wait_to_lead(timeout=0.01)
            await one.resign()
            assert await two.wait_to_lead() == term + 1
            await two.resign()
            assert await one.wait_to_lead() == term + 2
            await one.close()
            assert await two.wait_to_lead() == two.term == term + 3

    run(program)


def test_a_with_block_holds_the_lock_and_leaves_with_it() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        inside: list[int] = []
        fences: list[int] = []

        async def work(lock: aio.Lock) -> None:
            async with lock:
                inside.append(lock.fence)
                assert lock.held
                await asyncio.sleep(0)
                assert inside == [lock.fence]
                fences.append(inside.pop())

        shared = aio.Lock(ctx, "g")
        own = [aio.Lock(ctx, "g") for _ in range(5)]
        await asyncio.gather(*(work(lock) for lock in [shared] * 5 + own))
        await work(shared)  # again
        assert fences == sorted(set(fences))
        assert len(fences) == 11
        assert not shared.is_member
        await shared.close()
        with pytest.raises(IllegalStateError, match="was closed: make another one"):
            await work(shared)

    run(program)


def test_who_loses_the_lock_in_its_block_is_told_at_its_end() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        lock = aio.Lock(ctx, "g", name="ann")

        async def lose_it(then: Exception | None = None) -> None:
            async with lock:
                await lock._host._port.remove("ann")
                await until(lambda: not lock.held)
                if then is not None:
                    raise then

        with pytest.raises(IllegalStateError, match="the Lock was lost before it was released"):
            await lose_it()
        with pytest.raises(ZeroDivisionError):
            await lose_it(ZeroDivisionError())
        async with lock:
            assert lock.held
            await lock.close()

    run(program)


def test_who_is_cancelled_at_a_with_block_stays_neither_in_the_line_nor_in_the_group() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with opened(aio.Lock(ctx, "g", name="one")) as one:
            await one.acquire()
            two = aio.Lock(ctx, "g", name="two")
            for steps in range(0, 60, 3):
                entering = asyncio.ensure_future(two.__aenter__())
                for _ in range(steps):
                    await asyncio.sleep(0)
                entering.cancel()
                await asyncio.gather(entering, return_exceptions=True)
                await until(lambda: one.view.members == ("one",))
                await until(lambda: one.look(lambda lock: len(lock.line)) == 1)

    run(program)


def test_a_semaphore() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        inside: list[int] = []
        most: list[int] = []

        async def work() -> None:
            async with aio.Semaphore(ctx, "g", 2) as semaphore:
                inside.append(semaphore.fence)
                most.append(len(inside))
                await asyncio.sleep(0.01)
                inside.remove(semaphore.fence)

        await asyncio.gather(*(work() for _ in range(6)))
        assert max(most) == 2
        async with aio.Semaphore(ctx, "g", 2):
            with pytest.raises(IllegalStateError, match="has 2 permits, not 3"):
                await aio.Semaphore(ctx, "g", 3)

    run(program)


def test_a_with_block_of_an_election_begins_when_this_one_leads() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        ann, bob = (aio.LeaderElection(ctx, "g", name=name) for name in ("ann", "bob"))
        for leader, other in ((ann, bob), (bob, ann)) * 2:
            async with leader:
                assert leader.is_leader
                entering = asyncio.ensure_future(other.__aenter__())
                await until(lambda: len(leader.view.members) == 2)  # noqa: B023
                assert not entering.done()
            await entering
            assert (other.is_leader, leader.is_member) == (True, False)
            await other.__aexit__(None, None, None)
        await ann.__aenter__()
        await ann._host._port.remove("ann")
        await until(lambda: not ann.is_member)
        with pytest.raises(IllegalStateError, match="the LeaderElection was lost"):
            await ann.__aexit__(None, None, None)

    run(program)


def test_a_barrier() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with aio.Barrier(ctx, "g", 2) as one, aio.Barrier(ctx, "g", 2) as two:
            for turn in (1, 2):
                assert await asyncio.gather(one.wait(), two.wait()) == [turn, turn]
            with pytest.raises(TimeoutError):
                await one.wait(timeout=0.01)
            waiting = asyncio.ensure_future(two.wait())
            await until(lambda: two.look(lambda barrier: barrier.there) == [two.name])
            assert not waiting.done()
            assert await asyncio.gather(one.wait(), waiting) == [3, 3]
            with pytest.raises(ValueError, match="at least one"):
                aio.Barrier(ctx, "g", 0)

    run(program)


def test_who_is_cancelled_at_a_barrier_does_not_count_and_may_come_again() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        async with aio.Barrier(ctx, "g", 2) as one, aio.Barrier(ctx, "g", 2) as two:
            for steps in range(30):
                waiting = asyncio.ensure_future(one.wait())
                for _ in range(steps):
                    await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                again = asyncio.ensure_future(one.wait())
                assert await two.wait() == await again == steps + 1

    run(program)


# -- Events ---------------------------------------------------------------------------------------


@dataclass
class Fire:
    floor: int


@dataclass
class Flood:
    level: float


def test_events_come_to_everybody_in_one_order_and_the_last_one_to_who_comes_later() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        plain: list[Any] = []
        waited: list[Any] = []

        async def waits(event: Fire) -> None:
            await asyncio.sleep(0)
            waited.append(event)

        async with (
            aio.NotificationBus(ctx, "g", Fire, Flood) as one,
            aio.NotificationBus(ctx, "g", Fire, Flood) as two,
        ):
            assert one.last(Fire) is None
            await one.subscribe(Fire, plain.append)
            await two.subscribe(Fire, waits)
            for floor in range(20):
                await (one if floor % 2 else two).publish(Fire(floor))
            await one.publish(Flood(0.5))
            await until(lambda: len(plain) == len(waited) == 20)
            assert plain == waited == [Fire(floor) for floor in range(20)]
            async with aio.NotificationBus(ctx, "g", Fire, Flood) as late:
                assert (late.last(Fire), late.last(Flood)) == (Fire(19), Flood(0.5))
                await late.subscribe(Fire, waits)
                assert waited[-1] == Fire(19)
            with pytest.raises(MessageFormatError, match="OwnError is not a kind"):
                await one.publish(OwnError())

    run(program)


def test_what_comes_while_a_new_subscriber_has_the_last_event_comes_after_it() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        held, events = Held(), []

        async def slow(event: Fire) -> None:
            events.append(("begin", event.floor))
            await held(event)
            events.append(("end", event.floor))

        async with aio.NotificationBus(ctx, "g", Fire) as bus:
            await bus.publish(Fire(1))
            await until(lambda: bus.last(Fire))
            subscribing = asyncio.ensure_future(bus.subscribe(Fire, slow))
            await until(lambda: held.begun)
            await bus.publish(Fire(2))
            await until(lambda: bus.last(Fire) == Fire(2))
            assert events == [("begin", 1)]
            held.may_return.set()
            await subscribing
            await until(lambda: len(events) == 4)
            assert events == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]

    run(program)


def test_a_subscriber_that_raises_disturbs_nobody() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        seen: list[Fire] = []

        async def raises(event: Fire) -> None:
            raise OwnError

        def cancelled(event: Fire) -> None:
            raise asyncio.CancelledError

        async with aio.NotificationBus(ctx, "g", Fire) as bus:
            for call in (raises, cancelled, seen.append):
                await bus.subscribe(Fire, call)
            noise = antiphon.ObjectMessage(("Fire", {"floor": "no number"}))
            await running.run(bus._host.multicasting(noise))
            for floor in (1, 2):
                await bus.publish(Fire(floor))
            await until(lambda: len(seen) == 2)
            assert seen == [Fire(1), Fire(2)]

    run(program)


# -- Services with coroutines and targets ---------------------------------------------------------


class Slow(ReplicatedService):
    """Its commands take time, and must not overtake each other."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def apply(self, command: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        if command == "no":
            raise ValueError("it does not want to")
        self.done.append(command)
        return len(self.done)

    def snapshot(self) -> bytes:
        return values.encode(self.done)

    def restore(self, data: bytes) -> None:
        self.done = list(values.decode(data))


def test_apply_may_be_a_coroutine_and_commands_keep_their_order() -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        new = partial(aio.Replica, ctx, "slow")
        async with new(Slow(), name="a") as one, new(Slow(), name="b") as two:
            results = await asyncio.gather(*(one.call(n) for n in range(5)))
            assert results == [1, 2, 3, 4, 5]
            with pytest.raises(ValueError, match="does not want"):
                await two.call("no")
            assert await two.call("last") == 6
            assert two.look(lambda service: service.done) == [0, 1, 2, 3, 4, "last"]

    run(program)


class Shop:
    """A target in this process."""

    def __init__(self, kind: blocks.Kind) -> None:
        self.kind = kind
        self.open: dict[str, Any] = {}
        self.lasting: dict[str, Any] = {}

    def call(self, id: str, request: Any) -> Any:
        if request == "gold":
            raise blocks.RefusedError("there is no gold")
        kept = self.open if self.kind is blocks.Kind.PESSIMISTIC else self.lasting
        kept.setdefault(id, request)
        return request

    def commit(self, id: str) -> None:
        if id in self.open:
            self.lasting[id] = self.open.pop(id)

    def undo(self, id: str, compensation: Any) -> None:
        self.open.pop(id, None)
        self.lasting.pop(id, None)


class Buying(Slow):
    def apply(self, command: Any) -> Any:
        paid = yield blocks.Invocation("bank", "money")
        bought = yield blocks.Invocation("shop", command, compensation="give it back")
        self.done.append(command)
        return paid, bought


@pytest.mark.parametrize("passive", [True, False])
def test_a_service_calls_targets_without_holding_up_the_loop(passive: bool) -> None:
    async def program(ctx: antiphon.aio.Context) -> None:
        bank, shop = Shop(blocks.Kind.PESSIMISTIC), Shop(blocks.Kind.OPTIMISTIC)
        targets = {"bank": bank, "shop": shop}
        new = partial(aio.Replica, ctx, "buying", passive=passive, targets=targets)
        async with new(Buying(), name="a") as one, new(Buying(), name="b") as two:
            assert await two.call("bread") == ("money", "bread")
            with pytest.raises(antiphon.JMSError, match="no gold"):
                await two.call("gold")
            assert await one.call("milk") == ("money", "milk")
            await one.wait_until(lambda _: not bank.open and len(bank.lasting) == 2, 20)
            assert sorted(shop.lasting.values()) == ["bread", "milk"]

    run(program)
