"""`antiphon bench selectors`: many consumers with selectors on one topic.

A server of its own, a process with the consumers, and this one, which publishes. Each consumer
wants about one message in a thousand, so that a thousand of them want about every message once. A
message that a consumer wants and does not get, or gets and does not want, fails the run (exit code
1).

`messages_per_s` is the rate with publisher, server and consumers on the same machine;
`server_cpu_us` the server's processor time for a message, `unwanted_cpu_us` that for a message that
no consumer wants. The cost of the selectors alone is measured in this process on the same messages:
evaluated one by one, and together as the server evaluates them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
from antiphon.lab.bench.connections import cpu_s
from antiphon.lab.bench.processes import BLOCK_MAX, PATIENCE_S, hear, start
from antiphon.model.selectors.evaluate import Fields, Selector, parse
from antiphon.model.selectors.index import SelectorIndex
from antiphon.server.local_cluster import LocalCluster, LocalServer
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table

TOPIC = "bench"
COUNTS = (0, 1, 10, 100, 1000)
"""Numbers of consumers, one after the other."""

Properties = dict[str, bool | int | float | str | None]
ROOMS = 1000
KINDS = ("fire", "water", "call")
MESSAGES: list[Properties] = [
    {"room": n * 7 % ROOMS, "floor": n % 8, "kind": KINDS[n % len(KINDS)]} for n in range(3 * ROOMS)
]
"""The properties of the messages that are sent, again and again; bodies do not matter."""

UNWANTED: list[Properties] = [{**properties, "room": -1} for properties in MESSAGES]

BODY = bytes(100)
SAMPLE = 200
"""Messages on which the selectors alone are timed."""

NAP_S = 0.01


def selector_of(consumer: int) -> str:
    room = consumer % ROOMS
    texts = (
        f"room = {room}",
        f"room = {room} AND floor > 3 AND kind = 'fire'",
        f"room = {room} OR room = {room + ROOMS}",
    )
    return texts[consumer % len(texts)]


# -- In the consumers' process ---------------------------------------------------------------------


def consume(pipe: Pipe, url: str, consumers: int) -> None:
    seen = 0

    def note(_: antiphon.Message) -> None:
        nonlocal seen
        seen += 1

    with suppress(EOFError), antiphon.connect(url) as ctx:
        topic = ctx.create_topic(TOPIC)
        for number in range(consumers):
            ctx.create_consumer(topic, selector_of(number)).set_message_listener(note)
        pipe.send("ready")
        while True:
            pipe.recv()
            pipe.send(seen)


# -- In the process that measures ------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        cluster = stack.enter_context(LocalCluster(1, folder, args.storage))
        cluster.start()
        seconds = args.seconds / len(COUNTS)
        rows = [measure(cluster.servers[1], count, seconds) for count in COUNTS]
    report = {"storage": args.storage, "seconds": args.seconds, "runs": rows}
    say_json(report) if args.json else _show(report)
    return 0 if all(row["arrived"] == row["wanted"] for row in rows) else 1


class Done(NamedTuple):
    """The counts of one round."""

    sent: int
    wanted: int
    arrived: int
    seconds: float
    server_cpu_s: float


def measure(server: LocalServer, consumers: int, seconds: float) -> dict[str, Any]:
    selectors = [_parsed(selector_of(number)) for number in range(consumers)]
    index: SelectorIndex[int] = SelectorIndex()
    for number, selector in enumerate(selectors):
        index.add(number, selector)
    pipe, process = start(consume, server.url, consumers)
    try:
        hear(pipe, PATIENCE_S)
        some = _load(server, pipe, MESSAGES, index, seconds / 2)
        none = _load(server, pipe, UNWANTED, index, seconds / 2)
    finally:
        pipe.close()
        process.kill()
        process.join()
    return {
        "consumers": consumers,
        "messages": some.sent + none.sent,
        "wanted": some.wanted + none.wanted,
        "arrived": some.arrived + none.arrived,
        "messages_per_s": round(some.sent / some.seconds),
        "server_cpu_us": round(some.server_cpu_s / some.sent * 1e6, 1),
        "unwanted_cpu_us": round(none.server_cpu_s / none.sent * 1e6, 1),
        "one_by_one_us": _cost_us(lambda fields: [s for s in selectors if s.matches(fields)]),
        "together_us": _cost_us(index.matching),
    }


def _load(
    server: LocalServer,
    pipe: Pipe,
    messages: Sequence[Properties],
    index: SelectorIndex[int],
    seconds: float,
) -> Done:
    """Publish for `seconds`, and wait for the messages that must arrive."""
    assert server.process is not None
    pid = server.process.pid
    before = _arrived(pipe)
    cpu_before, began = cpu_s(pid), time.monotonic()
    sent = _publish(server.url, messages, seconds)
    wanted = sum(len(index.matching(m)) for m in islice(cycle(messages), sent))
    deadline = time.monotonic() + PATIENCE_S
    while (arrived := _arrived(pipe) - before) < wanted and time.monotonic() < deadline:
        time.sleep(NAP_S)
    return Done(sent, wanted, arrived, time.monotonic() - began, cpu_s(pid) - cpu_before)


def _parsed(text: str) -> Selector:
    selector = parse(text)
    assert selector is not None
    return selector


def _publish(url: str, messages: Sequence[Properties], seconds: float) -> int:
    """Publish, and return how many messages the server has taken."""
    sent, end = 0, time.monotonic() + seconds
    with antiphon.connect(url) as ctx:
        topic, producer = ctx.create_topic(TOPIC), ctx.create_producer()
        more = cycle(messages)
        while time.monotonic() < end:
            for properties in islice(more, BLOCK_MAX):
                last = producer.send_async(topic, BODY, properties=properties)
            sent += BLOCK_MAX
        last.result()  # answers come in order: with this one, all have
    return sent


def _arrived(pipe: Pipe) -> int:
    pipe.send("how many?")
    count: int = hear(pipe, PATIENCE_S)
    return count


def _cost_us(ask: Callable[[Fields], Sequence[object]]) -> float:
    """Return the cost of evaluating one message."""
    began = time.process_time()
    for properties in MESSAGES[:SAMPLE]:
        ask(properties)
    return round((time.process_time() - began) / SAMPLE * 1e6, 1)


def _show(report: dict[str, Any]) -> None:
    table = Table(title=f"consumers with selectors on one topic, {report['storage']}")
    for name in report["runs"][0]:
        table.add_column(name, justify="right")
    for row in report["runs"]:
        table.add_row(*(f"{value:,}" for value in row.values()))
    Screen().print(table)
