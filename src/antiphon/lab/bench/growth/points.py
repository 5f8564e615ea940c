"""One point of each curve of `antiphon bench growth`: fresh servers, a number of members, topics
and so on, and the cost of messages of `SIZE` bytes then.

Every measure returns a row of figures. Where several processes work (`lab/bench/processes.py`), it
is the median of several rounds of a flood, and the latencies of a light load after them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from queue import SimpleQueue
from statistics import median, quantiles
from typing import Any, NamedTuple

import antiphon
import antiphon.aio
from antiphon.errors import IllegalStateError
from antiphon.lab.bench.antiphon_side import TOPIC, open_member, open_receiver, open_sender
from antiphon.lab.bench.connections import Crowd
from antiphon.lab.bench.many_members import Many
from antiphon.lab.bench.processes import WINDOW_MAX, Flood, Load, Paced, Slice
from antiphon.lab.bench.servers import Servers, Spent

SIZE = 100
WARM_S = 0.25
MEMORY, DURABLE = "memory", "durable"

AHEAD_DELIVERIES = 4_000_000
"""The more members there are, the fewer messages the publisher is ahead: otherwise a slice of a
second would go on for minutes."""

LIGHT_MESSAGES, LIGHT_DELIVERIES = 1000, 3000
"""The most messages, and the most deliveries, a second of a light load."""

CLIENTS = 50
"""Connections that make subscriptions side by side."""

PER_TOPIC = 100
"""Messages in a row for one topic: messages for several topics are not packed together."""

Row = dict[str, Any]


class Effort(NamedTuple):
    """How long, and how often, a point is measured."""

    seconds: float  # of a round
    rounds: int
    light: int  # messages whose latency is taken


class Taken(NamedTuple):
    """A slice, and the processor time of the servers meanwhile."""

    slice: Slice
    spent: Spent


# -- Measures --------------------------------------------------------------------------------------


def members(count: int, effort: Effort) -> Row:
    return _group(3, count, effort)


def servers(count: int, effort: Effort) -> Row:
    return _group(count, 3, effort)


def _group(servers: int, members: int, effort: Effort) -> Row:
    with ExitStack() as stack:
        running = Servers(stack, servers, MEMORY)
        openers = [partial(open_member, url) for url in running.places(members)]
        load = Load(SIZE, min(WINDOW_MAX, AHEAD_DELIVERIES // members))
        many = Many(stack, load, openers)
        setup = _set_up(running, many.join)
        many.add_publisher(open_sender, running.leader.url)
        return {**setup, **_drive(running, many, effort, members)}


def topics(count: int, effort: Effort) -> Row:
    """Measure with `count` topics of one connection, each with one consumer."""
    with ExitStack() as stack:
        running = Servers(stack, 1, MEMORY)
        many = Many(stack, Load(SIZE), [partial(_open_consumers, running.leader.url, count)])
        setup = _set_up(running, many.join)
        many.add_publisher(_open_topics_sender, running.leader.url, count)
        return {**setup, **_drive(running, many, effort)}


def subscriptions(count: int, effort: Effort) -> Row:
    """Measure with `count` durable subscriptions of one topic that nobody reads: all messages are
    kept for all of them, on disk."""
    with ExitStack() as stack:
        running = Servers(stack, 1, DURABLE)
        setup = _set_up(running, lambda: asyncio.run(_subscribe(running.leader.url, count)))
        return {**setup, **_drive(running, _pair(stack, running.leader.url), effort)}


def connections(count: int, effort: Effort) -> Row:
    """Measure with `count` idle connections in addition to those of a publisher and a consumer."""
    with ExitStack() as stack:
        running = Servers(stack, 1, MEMORY)
        crowd = Crowd(running.leader, count)
        setup = _set_up(running, lambda: stack.enter_context(crowd).wait())
        row = _drive(running, _pair(stack, running.leader.url), effort)
        if crowd.lost:
            raise IllegalStateError(f"idle clients were lost: {crowd.lost[:3]}")
        return {**setup, **row}


def backlog(count: int, effort: Effort) -> Row:
    """Measure with `count` messages on disk for a durable subscription; at the end it is read."""
    with ExitStack() as stack:
        running = Servers(stack, 1, DURABLE)
        url = running.leader.url
        ctx = stack.enter_context(antiphon.connect(url, client_id="backlog"))
        topic = ctx.create_topic(TOPIC)
        ctx.create_durable_consumer(topic, "backlog").close()
        written = _spend(running, count, partial(_publish, ctx, topic, count))
        written["server_peak_mb"] = running.peak_mb()
        latencies = _latencies(_pair(stack, url), effort)
        consumer = ctx.create_durable_consumer(topic, "backlog")
        read = _spend(running, count, lambda: deque(islice(consumer, count), maxlen=0))
        read["server_peak_mb"] = running.peak_mb()
        return {**written, **latencies, **{f"read_{name}": value for name, value in read.items()}}


# -- Parts of all measures -------------------------------------------------------------------------


def _set_up(running: Servers, work: Callable[[], object]) -> Row:
    """Do the work that comes before messages, and return its cost."""
    before, began = running.spent(), time.monotonic()
    work()
    seconds = time.monotonic() - began
    return {
        "setup_s": round(seconds, 2),
        "setup_server_cpu_s": round(running.spent().since(before).cpu_s, 2),
        "setup_peak_mb": running.peak_mb(),
    }


def _pair(stack: ExitStack, url: str) -> Many:
    """Start one publisher and one consumer."""
    many = Many(stack, Load(SIZE), [partial(open_receiver, url)])
    many.join()
    many.add_publisher(open_sender, url)
    return many


def _drive(running: Servers, many: Many, effort: Effort, members: int = 1) -> Row:
    many.work(Flood(WARM_S, PER_TOPIC))
    rounds = [_take(running, many, effort.seconds) for _ in range(effort.rounds)]
    latencies = _latencies(many, effort, members)
    return {**figures(rounds), **latencies, "server_peak_mb": running.peak_mb()}


def _take(running: Servers, many: Many, seconds: float) -> Taken:
    before = running.spent()
    done = many.work(Flood(seconds, PER_TOPIC))
    return Taken(done, running.spent().since(before))


def figures(rounds: Sequence[Taken]) -> Row:
    """Return rates as median, slowest and fastest of the rounds, the other figures over all of
    them."""
    rates = sorted(round(one.slice.per_s) for one in rounds)
    messages = sum(one.slice.messages for one in rounds)
    server_us = sum(one.spent.cpu_s for one in rounds) * 1e6
    client_us = sum(one.slice.clients_cpu_s for one in rounds) * 1e6
    return {
        "messages_per_s": round(median(rates)),
        "slowest_fastest": [rates[0], rates[-1]],
        "messages_per_pack": _ratio(messages, sum(one.spent.published for one in rounds)),
        "server_us_per_message": _ratio(server_us, messages),
        "server_us_per_delivered_pack": _ratio(server_us, sum(r.spent.delivered for r in rounds)),
        "all_us_per_message": _ratio(server_us + client_us, messages),
    }


def _ratio(value: float, by: int) -> float:
    return round(value / max(1, by), 2)


def _latencies(many: Many, effort: Effort, members: int = 1) -> Row:
    rate = max(1, min(LIGHT_MESSAGES, LIGHT_DELIVERIES // members))
    light = many.work(Paced(effort.light, rate))
    return {"early_ms": _percentiles(light, min), "late_ms": _percentiles(light, max)}


def _percentiles(light: Slice, which: Callable[[tuple[int, ...]], int]) -> dict[str, float]:
    cuts = quantiles(light.delays_ms(which), n=100, method="inclusive")
    return {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)}


def _spend(running: Servers, messages: int, work: Callable[[], object]) -> Row:
    """Do the work in this process, and return its cost."""
    before, began, cpu = running.spent(), time.monotonic(), time.process_time()
    work()
    seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
    spent = running.spent().since(before)
    return {
        "messages_per_s": round(messages / seconds),
        "server_us_per_message": _ratio(spent.cpu_s * 1e6, messages),
        "all_us_per_message": _ratio((spent.cpu_s + cpu_s) * 1e6, messages),
    }


def _publish(ctx: antiphon.Context, topic: antiphon.Topic, count: int) -> None:
    send, body = ctx.create_producer().send_async, bytes(SIZE)
    for _ in range(count):
        last = send(topic, body)
    last.result()  # answers come in order: with this one, all have


# -- Many subscriptions, many topics ---------------------------------------------------------------


async def _subscribe(url: str, count: int) -> None:
    async def some(client: int) -> None:
        async with antiphon.aio.connect(url, client_id=f"client-{client}") as ctx:
            for number in range(client, count, CLIENTS):
                topic = ctx.create_topic(TOPIC)
                async with ctx.create_durable_consumer(topic, f"subscription-{number}"):
                    pass

    await asyncio.gather(*map(some, range(min(CLIENTS, count))))


@contextmanager
def _open_consumers(url: str, topics: int) -> Iterator[Iterator[bytes]]:
    bodies: SimpleQueue[bytes] = SimpleQueue()

    def note(message: antiphon.Message) -> None:
        bodies.put(message.body)

    with antiphon.connect(url) as ctx:
        for topic in _topics(ctx, topics):
            ctx.create_consumer(topic).set_message_listener(note)
        yield iter(bodies.get, None)


@contextmanager
def _open_topics_sender(url: str, topics: int) -> Iterator[TopicsSender]:
    with antiphon.connect(url) as ctx:
        yield TopicsSender(ctx, topics)


class TopicsSender:
    """A publisher that goes through topics, with some messages in a row for each."""

    def __init__(self, ctx: antiphon.Context, topics: int) -> None:
        self.per_pack = 1
        self._send = ctx.create_producer().send_async
        self._topics = cycle(_topics(ctx, topics))
        self._topic = next(self._topics)
        self._left = 0  # messages for this topic

    def send(self, body: bytes) -> antiphon.SendFuture:
        if self._left == 0:
            self._topic, self._left = next(self._topics), self.per_pack
        self._left -= 1
        return self._send(self._topic, body)

    def flush(self, last: antiphon.SendFuture) -> None:
        last.result()  # answers come in order: with this one, all have


def _topics(ctx: antiphon.Context, count: int) -> list[antiphon.Topic]:
    return [ctx.create_topic(f"{TOPIC}.{number}") for number in range(count)]
