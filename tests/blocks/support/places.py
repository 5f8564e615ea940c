"""Places of blocks on channels, in one process: with real sockets, and links that can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from antiphon import peers
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.io.transport import format_address
from antiphon.lab.chaos.channels.links import Network
from antiphon.server.local_cluster import HOST, free_port

MakeStack = Callable[[tuple[str, ...]], peers.Stack]


@contextmanager
def places(
    folder: Path, *names: str, stack: peers.Stack = peers.TOTAL
) -> Iterator[list[ChannelPlace]]:
    """Places in one cluster, each of which was connected after those before it."""
    with ExitStack() as open_ones:
        yield [
            open_ones.enter_context(place(f"peer:file/{folder}/c", name, stack)) for name in names
        ]


@contextmanager
def place(
    url: str, name: str, stack: peers.Stack, listen: str | None = None
) -> Iterator[ChannelPlace]:
    """A place of a channel that is closed with the block."""
    with peers.Channel(stack, name=name, listen=listen, state=lambda: own.state()) as channel:
        own = ChannelPlace(channel)
        channel.connect(url)
        yield own
        channel.close()
        own.close()


@contextmanager
def linked_places(*names: str, stack: MakeStack) -> Iterator[tuple[Network, list[ChannelPlace]]]:
    """Places in one cluster, founded by all of them, and the network between them."""
    targets = {name: (HOST, free_port()) for name in names}
    with Network(targets) as network, ExitStack() as open_ones:
        url = f"peer://{','.join(map(format_address, network.gates.values()))}/c"
        made = [place(url, name, stack(names), format_address(targets[name])) for name in names]
        with ThreadPoolExecutor(len(names)) as threads:  # each waits for the others
            yield network, list(threads.map(open_ones.enter_context, made))


def part(network: Network, name: str, *others: str) -> None:
    """Cut a process off from others."""
    for other in others:
        network.cut(name, other)
