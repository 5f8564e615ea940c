"""Antiphon's side of a comparison with the bare relay: clients that use the public API as any
program would, of servers as processes or without servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter

import antiphon
from antiphon.lab.bench.processes import PATIENCE_S, ClientProcesses, Job, Shape, Slice
from antiphon.lab.bench.servers import Place

TOPIC = "bench"


@contextmanager
def open_sender(
    url: str, trace: str | None = None, packing: str = "adaptive"
) -> Iterator[ApiSender]:
    with antiphon.connect(url, trace=trace, packing=packing) as ctx:
        yield ApiSender(ctx)


class ApiSender:
    """A publisher with the public API."""

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
    """Do as `open_receiver`, but for a member of a group: traces of groups can be judged."""
    with antiphon.connect(url, trace=trace, connect_timeout=PATIENCE_S) as ctx:
        group = ctx.create_group(TOPIC)
        with ctx.join(group) as member:
            yield (m.body for m in member if not isinstance(m, _OF_THE_GROUP))


_OF_THE_GROUP = (antiphon.ViewMessage, antiphon.SuspicionMessage)


class Messaging:
    """Publishers and members at their servers, ready to work."""

    def __init__(
        self,
        stack: ExitStack,
        shape: Shape,
        servers: Place,
        packing: str = "adaptive",
        trace: str | None = None,
    ) -> None:
        """All ends with the `stack`. With a `trace` the members are those of a group."""
        self._servers = servers
        self._clients = stack.enter_context(
            ClientProcesses(shape.load, shape.members, shape.publishers)
        )
        for url in servers.places(shape.members):
            self._clients.add_member(
                partial(open_member, trace=trace) if trace else open_receiver, url
            )
        sender = partial(open_sender, trace=trace, packing=packing)
        for _ in range(shape.publishers):
            self._clients.add_publisher(sender, *servers.places(1))

    def work(self, job: Job) -> Slice:
        before = self._servers.spent()
        done = self._clients.work(job)
        spent = self._servers.spent().since(before)
        return done._replace(
            leader_cpu_s=spent.leader_cpu_s,
            followers_cpu_s=spent.followers_cpu_s,
            packs=spent.published,
            syncs=spent.syncs,
        )

    def peak_mb(self) -> float:
        return self._servers.peak_mb()
