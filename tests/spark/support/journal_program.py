"""A server and its clients in one process, which ends by SIGKILL.

    python journal_program.py FOLDER LIFE

Sends to topics, a group and a queue, in transactions that are committed and ones that are not, and
with a delay; what was received from topics and the group is printed, a line of JSON each. Snapshots
are frequent and little is kept, so segments of former lives go.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import antiphon
from antiphon.io.background_loop import background_loop
from antiphon.io.file_disk import FileDisk
from antiphon.io.transport import format_address
from antiphon.log.settings import Settings
from antiphon.server.server import Server

HOST = "127.0.0.1"
RETAIN = 250  # somewhat less than what two lives send
TIMEOUT_S = 20.0


async def serve(folder: Path) -> str:
    settings = Settings(snapshot_every_entries=40)
    server = Server(1, {1: (HOST, 0)}, FileDisk(folder), settings, RETAIN)
    return f"antiphon://{format_address(await server.start((HOST, 0)))}"


def main(folder: str, life: str) -> None:
    url = asyncio.run_coroutine_threadsafe(serve(Path(folder)), background_loop()).result()
    ctx = antiphon.connect(url)
    plain, dotted = ctx.create_topic("plain"), ctx.create_topic("with.dots")
    consumers = [ctx.create_consumer(topic) for topic in (plain, dotted)]
    member = ctx.join(ctx.create_group("group"), f"member{life}")
    producer = ctx.create_producer()
    jobs = ctx.create_temporary_queue()  # it goes with its connection, and keeps nothing
    expected = {"plain": 0, "with.dots": 0, "group": 0}

    def sent(topic: str, number: int) -> None:
        expected[topic] += number

    producer.send(plain, f"delayed {life}", delivery_delay=0.05)
    sent("plain", 1)
    for n in range(30):
        producer.send_all(plain, [f"{life} {n} {i}" for i in range(3)])
        producer.send(jobs, f"job {life} {n}")
        sent("plain", 3)
        if n % 3 == 0:
            member.multicast(f"to the group {life} {n}", key="k", properties={"n": n})
            sent("group", 1)
        if n % 5 == 0:
            transact(ctx, [plain, dotted], f"{life} {n}", committed=n % 10 == 0)
            if n % 10 == 0:
                sent("plain", 1)
                sent("with.dots", 1)
    for consumer, topic in zip(consumers, ("plain", "with.dots"), strict=True):
        for _ in range(expected[topic]):
            say(topic, consumer.receive(TIMEOUT_S))
    while expected["group"]:
        event = member.receive(TIMEOUT_S)
        assert event is not None
        if not isinstance(event, antiphon.ViewMessage):
            say("group", event)
            expected["group"] -= 1
    ctx.close()  # otherwise all is kept for it, for as long as it might come back
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def transact(ctx: Any, topics: list[Any], name: str, committed: bool) -> None:
    with ctx.create_context(antiphon.SESSION_TRANSACTED) as transacted:
        producer = transacted.create_producer()
        for topic in topics:
            producer.send(topic, f"together {name}")
        transacted.commit() if committed else transacted.rollback()


def say(topic: str, message: Any) -> None:
    view = None if message.view is None else message.view.id
    what = [message.position, topic, message.text, message.id, view]
    print(json.dumps(what))


if __name__ == "__main__":
    main(*sys.argv[1:])
