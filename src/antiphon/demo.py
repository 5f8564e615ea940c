"""`antiphon demo`: a cluster that loses its leader, and nothing else.

Three servers on this machine; two publishers of numbered messages, to a topic and to a queue; two
durable subscribers of the topic, two workers on the queue. In the middle the leader is killed as by
a crash, later it is started again and catches up. At the end both subscribers must have seen the
same messages in the same order, each publisher's without a gap, and each message of the queue must
have been worked on once; otherwise exit code 1.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import antiphon
from antiphon.errors import IllegalStateError, JMSError
from antiphon.io.cluster import ClusterStatus, look
from antiphon.io.local import LocalCluster

NEWS = antiphon.Topic("demo.news")
ORDERS = antiphon.Queue("demo.orders")
PAUSE_S = 0.002  # of a publisher, between two messages
CALM_S = 2.0  # before and after the crash, and after the return
WAIT_S = 20.0


class Numbered(NamedTuple):
    publisher: str
    number: int


class Program(threading.Thread):
    """A client of the cluster, in a thread of its own."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.error: JMSError | None = None
        self._url = url
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            with antiphon.connect(self._url, client_id=self.name) as ctx:
                self.work(ctx)
        except JMSError as error:
            self.error = error

    def work(self, ctx: antiphon.Context) -> None:
        raise NotImplementedError

    def ask_to_stop(self) -> None:
        self._stop_asked.set()


class Publisher(Program):
    """Sends 1, 2, 3 ... to the topic and to the queue, until told to stop."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self.sent = 0  # to each of the two
        self.accepted_at = time.monotonic()
        self.longest_gap_s = 0.0

    def work(self, ctx: antiphon.Context) -> None:
        producer = ctx.create_producer()
        for number in count(1):
            for destination in (NEWS, ORDERS):
                producer.send(destination, f"{self.name}#{number}")
                now = time.monotonic()
                self.longest_gap_s = max(self.longest_gap_s, now - self.accepted_at)
                self.accepted_at = now
            self.sent = number
            if self._stop_asked.wait(PAUSE_S):
                return


class Reader(Program):
    """Reads all that it gets: a durable subscriber, or a worker on the queue."""

    def __init__(self, url: str, name: str, durable: bool) -> None:
        super().__init__(url, name)
        self.ready = threading.Event()
        self.seen: list[Numbered] = []
        self.redelivered = 0
        self._durable = durable

    def work(self, ctx: antiphon.Context) -> None:
        consumer = (
            ctx.create_durable_consumer(NEWS, "demo")
            if self._durable
            else ctx.create_consumer(ORDERS)
        )
        self.ready.set()
        while not self._stop_asked.is_set():
            message = consumer.receive(timeout=0.1)
            if message is not None:
                publisher, _, number = message.text.partition("#")
                self.seen.append(Numbered(publisher, int(number)))
                self.redelivered += message.redelivered


class Cast:
    """All programs of the demo."""

    def __init__(self, url: str) -> None:
        self.publishers = [Publisher(url, f"publisher-{n}") for n in (1, 2)]
        self.subscribers = [Reader(url, f"subscriber-{n}", durable=True) for n in (1, 2)]
        self.workers = [Reader(url, f"worker-{n}", durable=False) for n in (1, 2)]

    @property
    def readers(self) -> list[Reader]:
        return self.subscribers + self.workers

    @property
    def sent(self) -> int:
        return sum(publisher.sent for publisher in self.publishers)

    @property
    def accepted_at(self) -> float:
        return min(publisher.accepted_at for publisher in self.publishers)

    @property
    def longest_gap_s(self) -> float:
        return max(publisher.longest_gap_s for publisher in self.publishers)

    def forget_gaps(self) -> None:
        for publisher in self.publishers:
            publisher.longest_gap_s = 0.0

    def complaints(self) -> list[str]:
        programs = (*self.publishers, *self.readers)
        return [f"{p.name}: {p.error}" for p in programs if p.error is not None]

    def have_everything(self) -> bool:
        return (
            all(len(subscriber.seen) >= self.sent for subscriber in self.subscribers)
            and sum(len(worker.seen) for worker in self.workers) >= self.sent
        )


class Stage:
    """What is shown: on a terminal a table that lives, elsewhere a line for each event."""

    def __init__(self, cluster: LocalCluster, cast: Cast) -> None:
        self._cluster = cluster
        self._cast = cast
        self._console = Console()
        self._began = time.monotonic()
        self._events: list[str] = []
        self._found: ClusterStatus | None = None
        self._live = Live(console=self._console) if self._console.is_terminal else None

    def __enter__(self) -> Stage:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, event: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {event}"
        self._events.append(line)
        if self._live is None:
            self._console.print(line, highlight=False, soft_wrap=True)
        self._refresh()

    def watch(self, until: Callable[[ClusterStatus], bool], what: str) -> ClusterStatus:
        """Show the cluster until the condition holds, which it must in time."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self._found = found = look(self._cluster.url)
            self._refresh()
            if until(found):
                return found
            if complaints := self._cast.complaints():
                raise IllegalStateError("; ".join(complaints))
            time.sleep(0.1)
        raise IllegalStateError(f"waited {WAIT_S:g} s in vain: {what}")

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.watch(lambda _: time.monotonic() > end, "time passes")

    def _refresh(self) -> None:
        if self._live is not None and self._found is not None:
            tables = Columns([self._nodes(self._found), self._programs()], padding=(0, 4))
            self._live.update(Group(tables, Text("\n".join(self._events))))

    def _nodes(self, found: ClusterStatus) -> Table:
        table = Table("node", "role", "epoch", "messages")
        for node in self._cluster.servers:
            status = found.answers.get(node)
            facts = (status.role, status.epoch, status.position) if status else ("down", "", "")
            table.add_row(str(node), *map(str, facts))
        return table

    def _programs(self) -> Table:
        table = Table("program", "messages")
        for publisher in self._cast.publishers:
            table.add_row(publisher.name, f"{2 * publisher.sent} sent")
        for reader in self._cast.readers:
            table.add_row(reader.name, f"{len(reader.seen)} read")
        return table


def run(args: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory("-antiphon-demo") as folder,
        LocalCluster(3, Path(folder)) as cluster,
    ):
        cluster.start()
        cast = Cast(cluster.url)
        with Stage(cluster, cast) as stage:
            stage.say(f"three servers run: {cluster.url}")
            _begin(stage, cast)
            _lose_the_leader(stage, cluster, cast)
            code = _end(stage, cast)
        return code


def _begin(stage: Stage, cast: Cast) -> None:
    """Subscribers first: a topic has no past for those who come later."""
    for reader in cast.readers:
        reader.start()
    stage.watch(lambda _: all(reader.ready.is_set() for reader in cast.readers), "subscribers")
    for publisher in cast.publishers:
        publisher.start()
    stage.say("two publishers send to a topic and to a queue; two durable subscribers, two workers")


def _lose_the_leader(stage: Stage, cluster: LocalCluster, cast: Cast) -> None:
    stage.pause(CALM_S)
    found = stage.watch(lambda found: found.leader is not None, "a leader")
    assert found.leader is not None
    victim = cluster.servers[found.leader]
    cast.forget_gaps()
    sent = 2 * cast.sent
    victim.kill()
    killed = time.monotonic()
    stage.say(f"kill -9 node {victim.node}, the leader, after {sent} messages")
    found = stage.watch(lambda found: found.leader not in (None, victim.node), "a new leader")
    stage.say(f"node {found.leader} leads epoch {found.epoch}")
    stage.watch(lambda _: cast.accepted_at > killed, "messages are accepted again")
    stage.pause(CALM_S)
    stage.say(f"a publisher waited {cast.longest_gap_s * 1000:.0f} ms at most; none got an error")
    cluster.start(victim.node)
    stage.say(f"node {victim.node} is back, with its journal")
    _watch_catching_up(stage, victim.node)
    stage.pause(CALM_S)


def _watch_catching_up(stage: Stage, node: int) -> None:
    def caught_up(found: ClusterStatus) -> bool:
        leading = found.leading
        return leading is not None and found.answers[node].position >= leading.position - 100

    found = stage.watch(lambda f: node in f.answers and caught_up(f), f"node {node} catches up")
    stage.say(f"node {node} has caught up: message {found.answers[node].position}")


def _end(stage: Stage, cast: Cast) -> int:
    for publisher in cast.publishers:
        publisher.ask_to_stop()
    for publisher in cast.publishers:
        publisher.join()
    stage.watch(lambda _: cast.have_everything(), "every reader gets everything")
    for reader in cast.readers:
        reader.ask_to_stop()
    for reader in cast.readers:
        reader.join()
    wrong = [*cast.complaints(), *what_is_wrong(cast)]
    for complaint in wrong:
        stage.say(f"FAILED: {complaint}")
    if wrong:
        return 1
    again = sum(reader.redelivered for reader in cast.readers)
    stage.say(f"{cast.sent} messages reached both subscribers, in the same order")
    stage.say(f"{cast.sent} orders reached one worker each")
    stage.say(f"none lost, doubled or reordered; {again} redelivered")
    return 0


def what_is_wrong(cast: Cast) -> list[str]:
    wrong = []
    one, other = cast.subscribers
    if one.seen != other.seen:
        wrong.append(f"{one.name} and {other.name} saw different messages, or another order")
    for publisher in cast.publishers:
        numbers = [n.number for n in one.seen if n.publisher == publisher.name]
        if numbers != list(range(1, publisher.sent + 1)):
            wrong.append(f"{one.name} did not see 1 to {publisher.sent} of {publisher.name}")
    worked_on = Counter(n for worker in cast.workers for n in worker.seen)
    orders = {Numbered(p.name, n) for p in cast.publishers for n in range(1, p.sent + 1)}
    if worked_on.keys() != orders or worked_on.total() != len(orders):
        wrong.append(f"{len(orders)} orders, and the workers saw {worked_on.total()}, not the same")
    return wrong
