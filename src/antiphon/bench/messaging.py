"""Antiphon itself, to be compared with the bare relay: servers as processes, and clients that use
the public API as any program would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from operator import attrgetter
from pathlib import Path

import antiphon
from antiphon.bench.crew import PATIENCE_S, Crew, Job, Shape, Slice
from antiphon.errors import IllegalStateError
from antiphon.formats.client_wire import Status
from antiphon.io.cluster import look
from antiphon.io.local import LocalCluster

TOPIC = "bench"


@contextmanager
def open_sender(url: str, trace: str | None = None) -> Iterator[ApiSender]:
    with antiphon.connect(url, trace=trace) as ctx:
        yield ApiSender(ctx)


class ApiSender:
    def __init__(self, ctx: antiphon.Context) -> None:
        self.per_pack = 0  # the client finds out by itself
        self._producer = ctx.create_producer()
        self._topic = ctx.create_topic(TOPIC)
        self.send = partial(self._producer.send_async, self._topic)

    def flush(self, last: antiphon.SendFuture) -> None:
        last.result()  # answers come in order: with this one, all have


@contextmanager
def open_receiver(url: str) -> Iterator[Iterator[bytes]]:
    with antiphon.connect(url) as ctx, ctx.create_consumer(ctx.create_topic(TOPIC)) as consumer:
        yield map(attrgetter("body"), consumer)


@contextmanager
def open_member(url: str, trace: str | None = None) -> Iterator[Iterator[bytes]]:
    """As `open_receiver`, but a member of a group: traces of groups can be judged."""
    with antiphon.connect(url, trace=trace, connect_timeout=PATIENCE_S) as ctx:
        group = ctx.create_group(TOPIC)
        with ctx.join(group) as member:
            yield (m.body for m in member if not isinstance(m, _OF_THE_GROUP))


_OF_THE_GROUP = (antiphon.ViewMessage, antiphon.SuspicionMessage)


class Messaging:
    """A cluster, a publisher and members, ready to work."""

    def __init__(
        self,
        stack: ExitStack,
        shape: Shape,
        folder: Path,
        storage: str,
        contexts: str,
        trace: str | None = None,
    ) -> None:
        """All ends with the `stack`. With a `trace` the members are those of a group."""
        self._cluster = stack.enter_context(LocalCluster(shape.servers, folder, storage, contexts))
        self._cluster.start()
        leader = look(self._cluster.url).leader
        if leader is None:
            raise IllegalStateError("the servers have no leader")
        self._leader = leader
        home = self._cluster.servers[leader].url
        others = [server.url for node, server in self._cluster.servers.items() if node != leader]
        self._crew = stack.enter_context(Crew(shape.load, shape.members))
        for url in islice(cycle([home, *others]), shape.members):
            self._crew.add_member(
                partial(open_member, trace=trace) if trace else open_receiver, url
            )
        self._crew.add_publisher(partial(open_sender, trace=trace), home)

    def work(self, job: Job) -> Slice:
        before = self._look()
        done = self._crew.work(job)
        after = self._look()
        cpu_s = {node: status.cpu_s - before[node].cpu_s for node, status in after.items()}
        return done._replace(
            leader_cpu_s=cpu_s.pop(self._leader),
            followers_cpu_s=sum(cpu_s.values()),
            packs=_published(after) - _published(before),
        )

    def _look(self) -> dict[int, Status]:
        found = look(self._cluster.url, PATIENCE_S).answers
        if len(found) < len(self._cluster.servers):
            raise IllegalStateError("a server does not answer during the measurement")
        return found


def _published(servers: dict[int, Status]) -> int:
    """Packs, so far."""
    return sum(status.counts["session"]["published"] for status in servers.values())
