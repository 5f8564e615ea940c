"""`antiphon bench peers`: Antiphon beside NATS JetStream, RabbitMQ and Redis streams, in one run.

All do the same work on this machine, in turns, round by round, so that other load affects all of
them: one publisher process, three subscriber processes, every message to all three, each system
with its usual Python client (`nats.py`, `rabbitmq.py`, `redis.py`) and all driven by the same loops
(`lab/bench/processes.py`). A closed loop: a peer has at most `OUTSTANDING`
messages on their way, Antiphon as many as in `bench throughput`. Servers and clients of all systems
are there all the time; those that wait cost little, but not nothing.

Every message is counted at every subscriber: a system that loses one is reported as such, and has
no figures. A system that cannot be had on this machine is left out with a reason.
`lab/bench/rivals/report.py` says how to read the figures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from antiphon.errors import ResourceAllocationError
from antiphon.lab.bench.antiphon_side import Messaging
from antiphon.lab.bench.compare import RATE, Side
from antiphon.lab.bench.processes import Flood, Load, Paced, Shape
from antiphon.lab.bench.rivals import common
from antiphon.lab.bench.rivals import report as peers_report
from antiphon.lab.bench.rivals.common import MEMBERS, SERVERS, Contender
from antiphon.lab.bench.rivals.report import DURABLE, MEMORY, OURS, Turns
from antiphon.lab.bench.servers import Servers
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Progress

WARM_S = 0.5
PEERS = {
    "NATS JetStream": "antiphon.lab.bench.rivals.nats",
    "RabbitMQ": "antiphon.lab.bench.rivals.rabbitmq",
    "Redis streams": "antiphon.lab.bench.rivals.redis",
}


def run(args: argparse.Namespace) -> int:
    contenders = [_ours(MEMORY, "memory", "no"), _ours(DURABLE, "durable", "yes")]
    found, left_out = gather(args.fetch)
    contenders += found
    with Progress() as progress:
        turns = len(args.sizes) * (1 + args.rounds) * len(contenders)
        bar = progress.add_task("", total=turns)

        def tell(what: str) -> None:
            progress.update(bar, advance=1, description=what)

        runs = [_run(contenders, size, args, tell) for size in args.sizes]
    report = {
        "rounds": args.rounds,
        "seconds": args.seconds,
        "promises": [_promises(contender) for contender in contenders],
        "left_out": left_out,
        "runs": runs,
        "losses": peers_report.losses(runs),
    }
    say_json(report) if args.json else peers_report.show(report)
    return 0


def gather(fetch: bool) -> tuple[list[Contender], dict[str, str]]:
    """Return the peers that can be had here, and the reasons why others cannot."""
    found: list[Contender] = []
    left_out: dict[str, str] = {}
    for name, module in PEERS.items():
        try:
            found += import_module(module).contenders(fetch)
        except ModuleNotFoundError as error:
            left_out[name] = (
                f"its Python client is not installed (no module {error.name}): "
                "pip install 'antiphon[peers]'"
            )
        except ResourceAllocationError as error:
            left_out[name] = str(error)
    return found, left_out


def _ours(name: str, storage: str, synced: str) -> Contender:
    return Contender(
        name, "total, uniform", "1 of 3", synced, "send_async", partial(_open_ours, storage)
    )


def _open_ours(storage: str, stack: ExitStack, size: int, _: Path) -> Messaging:
    shape = Shape(SERVERS, MEMBERS, Load(size))
    return Messaging(stack, shape, Servers(stack, SERVERS, storage))


def _promises(contender: Contender) -> dict[str, str]:
    everything = contender._asdict()
    del everything["open"]
    return everything


# -- Turns -----------------------------------------------------------------------------------------


def _run(
    contenders: Sequence[Contender],
    size: int,
    args: argparse.Namespace,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    turned = {contender.name: Turns(contender) for contender in contenders}
    with ExitStack() as stack:
        field = Field(stack, size, args.seconds)
        for step in (field.begin, *[field.measure] * args.rounds):
            for name, turns in turned.items():
                tell(f"{size} bytes: {name}")
                if not turns.failed:
                    step(turns)
    return {"size": size, "systems": peers_report.figures(turned)}


class Field:
    """Where systems take turns with messages of one size. All ends with the `stack`."""

    def __init__(self, stack: ExitStack, size: int, seconds: float) -> None:
        self._stack = stack
        self._folder = stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench"))
        self._size = size
        self._flood = partial(Flood, per_pack=common.load(size).block)
        self._seconds = seconds
        self._sides: dict[str, tuple[Side, ExitStack]] = {}

    def begin(self, turns: Turns) -> None:
        name, own = turns.contender.name, self._stack.enter_context(ExitStack())
        with _forgiving(turns, own):
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            side = turns.contender.open(own, self._size, folder)
            side.work(self._flood(WARM_S))
            self._sides[name] = side, own

    def measure(self, turns: Turns) -> None:
        side, own = self._sides[turns.contender.name]
        with _forgiving(turns, own):
            turns.light.append(side.work(Paced(max(100, round(self._seconds * RATE)), RATE)))
            turns.floods.append(side.work(self._flood(self._seconds)))


@contextmanager
def _forgiving(turns: Turns, own: ExitStack) -> Iterator[None]:
    """End a peer that fails, whatever its client raises; the others continue."""
    try:
        yield
    except Exception as error:
        if turns.contender.name in OURS:
            raise
        turns.failed = f"{type(error).__name__}: {error}"
        own.close()
