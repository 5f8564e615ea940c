"""The members of a channel, each a process that uses the public API as any program would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter

from antiphon.api.messages.group_messages import ViewMessage
from antiphon.errors import IllegalStateError
from antiphon.lab.bench.channels.peers import Peer
from antiphon.lab.bench.processes import PATIENCE_S
from antiphon.peers.stack.stacks import TOTAL_UNIFORM
from antiphon.peers.sync import Channel

CLUSTER = "peer:bench"


@contextmanager
def open_member(
    place: int, address: str, folder: str, count: int
) -> Iterator[tuple[str, Callable[[], Peer]]]:
    """Join; `folder` is where the members of this measurement find each other."""
    with joined(place, folder) as channel:
        yield channel.address, lambda: meet(channel, place, count)


@contextmanager
def joined(place: int, folder: str) -> Iterator[Channel]:
    """Join the cluster of this folder as the member of this place."""
    os.environ["XDG_RUNTIME_DIR"] = folder
    with Channel(TOTAL_UNIFORM, name=f"p{place}") as channel:
        channel.connect(CLUSTER)
        yield channel


def meet(channel: Channel, place: int, count: int) -> Peer:
    """Receive until a view of all is there. The one that sends must not be the one that orders:
    each of its messages takes the whole way."""
    event = channel.receive(PATIENCE_S)
    while not isinstance(event, ViewMessage) or len(event.view.members) < count:
        if event is None:
            raise IllegalStateError(f"only these are here: {' '.join(channel.view.members)}")
        event = channel.receive(PATIENCE_S)
    if place == count - 1 and channel.view.leader == channel.name:
        raise IllegalStateError("the leader of the channel is the member that would send")
    return Peer(ChannelSender(channel), map(attrgetter("body"), channel), lambda: _packs(channel))


def _packs(channel: Channel) -> int:
    """Return how many packs were ordered in the present view."""
    committed: int = channel.status()["layers"]["uniform"]["committed"]
    return committed


class ChannelSender:
    """The sender of a member."""

    def __init__(self, channel: Channel) -> None:
        self.per_pack = 0  # the channel finds out by itself
        self.send = channel.send

    def flush(self, last: None) -> None:
        """All leaves by itself; the members count what arrives."""
