"""Features of one front alone: awaiting and cancelling with asyncio, threads and forks when
blocking."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import antiphon
from antiphon import SessionMode, aio
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.outbox import ROOM_BYTES
from antiphon.errors import IllegalStateError, OutcomeUnknownError
from tests.api.support import backends
from tests.api.support.backends import lose_connection
from tests.api.support.fronts import PATIENCE_S


def run(program: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await program

    asyncio.run(limited())


# -- asyncio --------------------------------------------------------------------------------------


def test_what_is_opened_can_be_awaited_or_entered() -> None:
    async def program() -> None:
        context = await aio.connect("embedded:")
        queue = context.create_queue("q")
        consumer = await context.create_consumer(queue)
        await context.create_producer().send(queue, "a")
        message = await consumer.receive(PATIENCE_S)
        assert message is not None
        assert message.text == "a"
        async with consumer:
            pass
        with pytest.raises(IllegalStateError, match="closed"):
            await consumer.receive()
        await context.close()
        async with aio.connect("embedded:") as context, context.create_consumer(queue) as consumer:
            async with context.create_producer(name="p") as producer:
                await producer.send(queue, "b")
            assert await consumer.receive(PATIENCE_S) is not None

    run(program())


def test_a_browser_is_looped_over_awaited_or_entered() -> None:
    async def program() -> None:
        async with aio.connect("embedded:") as context:
            queue = context.create_queue("q")
            await context.create_producer().send_all(queue, ["a", "b"])
            browser = await context.create_browser(queue)
            assert [message.text async for message in browser] == ["a", "b"]
            async with context.create_browser(queue) as browser:
                assert [message.text async for message in browser] == ["a", "b"]
            assert [m.text async for m in context.create_browser(queue)] == ["a", "b"]

    run(program())


def test_a_cancelled_receive_takes_no_message() -> None:
    async def program() -> None:
        async with aio.connect("embedded:") as context:
            queue = context.create_queue("q")
            producer = context.create_producer()
            consumer = await context.create_consumer(queue)
            received = []
            for n in range(200):
                waiting = asyncio.create_task(consumer.receive())
                for _ in range(n % 7):  # cancelled at every moment, also when it has just come
                    await asyncio.sleep(0)
                future = await producer.send_async(queue, str(n))
                if n % 2:
                    await future
                for _ in range(n % 5):
                    await asyncio.sleep(0)
                waiting.cancel()
                try:
                    message = await waiting
                    assert message is not None
                    received.append(message.text)
                except asyncio.CancelledError:
                    pass
            while (message := await consumer.receive(0.2)) is not None:
                received.append(message.text)
            assert received == [str(n) for n in range(200)]

    run(program())


def test_a_cancelled_consumer_does_not_stay_open() -> None:
    async def program() -> None:
        async with aio.connect("embedded:shared-cancel") as context:
            queue = context.create_queue("q")
            opening = asyncio.ensure_future(_opened(context, queue))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await context.create_producer().send(queue, "not lost")
            async with aio.connect("embedded:shared-cancel") as other:
                consumer = await other.create_consumer(queue)
                assert await consumer.receive(PATIENCE_S) is not None

    async def _opened(context: aio.Context, queue: antiphon.Queue) -> aio.Consumer:
        return await context.create_consumer(queue)

    run(program())


def test_listeners_may_be_coroutines() -> None:
    async def program() -> None:
        async with aio.connect("embedded:") as context:
            queue = context.create_queue("q")
            handled: asyncio.Queue[str] = asyncio.Queue()
            inside = False

            async def listener(message: antiphon.Message) -> None:
                nonlocal inside
                assert not inside, "two at a time"
                inside = True
                await asyncio.sleep(0)
                inside = False
                handled.put_nowait(message.text)

            (await context.create_consumer(queue)).set_message_listener(listener)
            await context.create_producer().send_all(queue, map(str, range(200)))
            assert [await handled.get() for _ in range(200)] == [str(n) for n in range(200)]

    run(program())


def test_futures_of_sends() -> None:
    async def program() -> None:
        async with aio.connect("embedded:") as context:
            queue = context.create_queue("q")
            called: asyncio.Queue[aio.SendFuture] = asyncio.Queue()
            future = await context.create_producer().send_async(queue, "x")
            with pytest.raises(IllegalStateError, match="await"):
                future.result()
            future.add_done_callback(called.put_nowait)
            await future
            await future
            assert future.done()
            assert future.result() is None
            assert future.exception() is None
            assert await called.get() is future
            future.add_done_callback(called.put_nowait)
            assert await called.get() is future

    run(program())


def test_acknowledging_happens_even_if_nobody_awaits_it() -> None:
    async def program() -> None:
        async with aio.connect("embedded:", session_mode=SessionMode.CLIENT_ACKNOWLEDGE) as context:
            queue = context.create_queue("q")
            await context.create_producer().send_all(queue, ["a", "b"])
            async with context.create_consumer(queue) as consumer:
                first = await consumer.receive(PATIENCE_S)
                assert first is not None
                first.acknowledge()
                await asyncio.sleep(0)
                while not context._core.connection.conversation.idle:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            await context.recover()
            async with context.create_consumer(queue) as consumer:
                message = await consumer.receive(PATIENCE_S)
                assert message is not None
                assert (message.text, message.redelivered) == ("b", False)

    run(program())


def test_an_acknowledgement_that_fails_is_told_to_who_awaits_it_or_to_the_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program() -> None:
        context = await aio.connect("embedded:", session_mode=SessionMode.CLIENT_ACKNOWLEDGE)
        queue = context.create_queue("q")
        await context.create_producer().send_all(queue, ["a"])
        message = await (await context.create_consumer(queue)).receive(PATIENCE_S)
        assert message is not None
        told: asyncio.Queue[antiphon.JMSError] = asyncio.Queue()
        context.exception_listener = told.put_nowait
        context._core.connection.do(Conversation.abandon)
        with pytest.raises(IllegalStateError, match="closed"):
            await message.acknowledge()
        await asyncio.sleep(0)
        assert not caplog.messages
        message.acknowledge()
        error = await told.get()
        assert str(error) in caplog.messages

    run(program())


def test_a_group_can_be_awaited_or_entered() -> None:
    async def program() -> None:
        async with aio.connect("embedded:") as context:
            awaited = await context.create_group("g", remove_after=5)
            async with context.create_group("g") as group, context.join(group, "a") as member:
                assert group == awaited
                assert member.name == "a"

    run(program())


def test_a_loop_gives_others_their_turn() -> None:
    async def program() -> None:
        async with aio.connect("embedded:") as context:
            queue = context.create_queue("q")
            consumer = await context.create_consumer(queue)
            await context.create_producer().send_all(queue, map(str, range(100)))
            seen = []
            async for message in consumer:
                seen.append(message.text)
                if len(seen) == 100:
                    await consumer.close()
            assert seen == [str(n) for n in range(100)]

    run(program())


# -- Threads --------------------------------------------------------------------------------------


def test_objects_are_used_by_many_threads() -> None:
    with antiphon.connect("embedded:") as context:
        queue = context.create_queue("q")
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        seen: list[str] = []

        def send(thread: int) -> None:
            for n in range(200):
                if n % 50 == 0:
                    producer.send(queue, f"{thread} {n}")
                else:
                    producer.send_async(queue, f"{thread} {n}")
                if n == 100 and thread == 0:
                    lose_connection(context)

        def receive() -> None:
            while (message := consumer.receive(PATIENCE_S)) is not None and message.text != "end":
                seen.append(message.text)

        senders = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        receivers = [threading.Thread(target=receive) for _ in range(3)]
        for thread in (*senders, *receivers):
            thread.start()
        for thread in senders:
            thread.join()
        producer.send_all(queue, ["end"] * 3)
        for thread in receivers:
            thread.join()
        assert sorted(seen) == sorted(f"{t} {n}" for t in range(4) for n in range(200))


@pytest.mark.process
def test_senders_are_held_back_while_the_servers_do_not_answer() -> None:
    with (
        backends.one_server() as backend,
        backends.gate(backend) as (url, gate),
        antiphon.connect(url, send_timeout=0.2) as context,
    ):
        producer = context.create_producer()
        queue = context.create_queue("q")
        gate.shut()
        body = bytes(100_000)
        sent = 0

        def send_for_ever() -> None:
            nonlocal sent
            while sent < 10_000:
                producer.send_async(queue, body)
                sent += 1

        with pytest.raises(OutcomeUnknownError, match="no room") as caught:
            send_for_ever()
        assert caught.value.happened == "no"
        assert ROOM_BYTES // 2 < sent * len(body) < ROOM_BYTES * 2
        gate.open()
        producer.send_async(queue, b"last").result(PATIENCE_S)
        consumer = context.create_consumer(queue)
        for _ in range(sent + 1):
            assert consumer.receive(PATIENCE_S) is not None


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_after_a_fork_every_call_is_refused() -> None:
    with antiphon.connect("embedded:") as context:
        queue = context.create_queue("q")
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        child = os.fork()
        if child == 0:
            os._exit(_refused_calls(context, producer, consumer, queue))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        producer.send(queue, "the parent goes on")
        assert consumer.receive(PATIENCE_S) is not None


def _refused_calls(context: Any, producer: Any, consumer: Any, queue: Any) -> int:
    """In the child: how many calls were not refused."""
    calls = [
        lambda: producer.send(queue, "x"),
        lambda: producer.send_async(queue, "x"),
        lambda: consumer.receive(1),
        lambda: next(iter(consumer)),
        lambda: context.create_consumer(queue),
        context.create_producer,
        context.acknowledge,
        context.recover,
        context.commit,
        context.rollback,
        context.stage,
        context.create_temporary_queue,
        lambda: context.create_context(SessionMode.SESSION_TRANSACTED),
        lambda: context.create_shared_consumer(context.create_topic("t"), "us"),
        lambda: context.create_browser(queue),
        lambda: context.unsubscribe("x"),
        lambda: consumer.set_message_listener(print),
        context.start,
        context.stop,
        consumer.close,
        context.close,
    ]
    accepted = 0
    for call in calls:
        try:
            call()
            accepted += 1
        except IllegalStateError as error:
            accepted += "fork" not in str(error)
    return accepted
