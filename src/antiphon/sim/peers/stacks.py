"""The stacks of simulated channels: what a plan says of them, and what they promise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

import msgspec

from antiphon.model.peer_views import Level, MemberId
from antiphon.peers.layers.causal import Causal
from antiphon.peers.layers.debugging import Delay, Drop, Duplicate, Shuffle
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.detour import Detour
from antiphon.peers.layers.flow import Flow
from antiphon.peers.layers.fragment import Fragment
from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Effect, Frame, Layer, Up
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.total import Total
from antiphon.peers.layers.uniform import Uniform
from antiphon.peers.membership.candidates import Lead
from antiphon.peers.membership.membership import Membership
from antiphon.peers.stack.stack import Stack
from antiphon.peers.whiteboard.whiteboard import Whiteboard

DETECTORS = {"patient": (250, 2000, 5000), "quick": (100, 600, 1500)}
"""Beat, floor and ceiling, in ms."""

READY_MADE = {
    "total uniform": ("uniform", "safe", "causal", "total"),
    "total": ("causal", "total"),
    "causal": ("causal",),
    "fifo": (),
}
"""The layers above Membership of the ready-made stacks (`peers/stack/stacks.py`)."""


class Layers(msgspec.Struct, frozen=True):
    """A stack, as far as it differs from the others. `noise`: layers that lose, double, delay and
    overtake frames, and how much; `fragment`, `window`: settings of the layers, or 0 without;
    `whiteboard`: programs write numbers, too."""

    above: tuple[str, ...] = READY_MADE["total uniform"]
    reliable: bool = True
    detour: bool = True
    fragment: int = 1 << 20
    window: int = 4 << 20
    detector: str = "patient"
    noise: tuple[tuple[str, float], ...] = ()
    whiteboard: bool = False


class Receipts(Layer):
    """Says which messages a process has, before they are handed out: only the judge of safe
    delivery knows of it. Frames pass unchanged."""

    name = "receipts"
    local = True
    take: Callable[[bytes], None]

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.body:
            self.take(bytes(frame.body))
        return (Up(frame, sender),)


_NOISE: dict[str, Callable[[float], Layer]] = {
    "drop": Drop,
    "duplicate": Duplicate,
    "delay": lambda ms: Delay(int(ms)),
    "shuffle": lambda width: Shuffle(int(width)),
}
_ORDERS: dict[str, Callable[[], Layer]] = {
    "uniform": Uniform,
    "safe": Safe,
    "causal": Causal,
    "total": Total,
    "plain total": lambda: Total(plain=True),
}


def stack_of(layers: Layers, founders: Sequence[str], lead: Lead, hides: bool) -> Stack:
    """Return the stack that all processes of a plan have."""
    below: list[Layer] = [Detour()] if layers.detour else []
    if layers.fragment:
        below.append(Fragment(layers.fragment))
    if layers.whiteboard:
        below.append(Whiteboard())
    below += [_NOISE[name](strength) for name, strength in layers.noise]
    below.append(Reliable() if layers.reliable else InView())
    if "safe" in layers.above:
        below.append(Receipts())
    if layers.reliable and layers.window:
        below.append(Flow(layers.window))
    detector = Detector(*DETECTORS[layers.detector])
    above = [_ORDERS[name]() for name in layers.above]
    return Stack(*below, detector, Membership(founders, lead, hides), *above)


def promises(layers: Layers, levels: Collection[int]) -> set[str]:
    """Return the names of the checks (`checkers/peer_views.py`) that a stack must pass if these
    levels are sent."""
    promised = {"inside", "rising", "one meaning", "together", "merges", "one chain"}
    if not layers.reliable:
        return promised
    has_total = "total" in layers.above or "plain total" in layers.above
    promised |= {"virtual synchrony", "once"}
    is_mixed = min(levels) < Level.AGREED
    if "uniform" not in layers.above or has_total:
        promised.add("own")  # Uniform drops what nobody sends again
    if not has_total or ("total" in layers.above and ("causal" in layers.above or not is_mixed)):
        promised.add("fifo")
    if "uniform" in layers.above or not has_total:
        promised.add("one view")
    if "uniform" in layers.above and has_total:
        promised |= {"prefix", "uniform"}
    if has_total:
        promised.add("total")
    if "causal" in layers.above and "plain total" not in layers.above:
        promised.add("causal")
    return promised | ({"safe"} & {*layers.above})


def draw_layers(random: Random) -> Layers:
    """Return a ready-made stack, or one by chance."""
    if random.random() < 0.6:
        kind = random.choices(tuple(READY_MADE), (6, 1, 2, 1))[0]
        return Layers(READY_MADE[kind], detector=random.choice(("patient", "quick", "quick")))
    reliable = random.random() < 0.9
    above = [one for one in ("uniform", "safe") if reliable and random.random() < 0.5]
    above += ["causal"] if random.random() < 0.5 else []
    above += random.choice(([], ["total"], ["total"], ["plain total"]))
    noise = (("drop", 0.02), ("duplicate", 0.1), ("delay", 20.0), ("shuffle", 3.0))
    return Layers(
        tuple(above),
        reliable,
        random.random() < 0.5,
        random.choice((0, 60, 1 << 20)),
        random.choice((0, 600, 4 << 20)),
        random.choice(("patient", "quick", "quick")),
        tuple(one for one in noise if random.random() < 0.15),
    )
