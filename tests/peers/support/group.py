"""Processes with running stacks, and the links between them."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Changed, Closing, Freeze, Install, Layer
from antiphon.peers.stack.running import Delivered, Running, Shown, Transmit
from antiphon.peers.stack.stack import Stack
from tests.peers.support.scripted import Scripted

AnyLayer = TypeVar("AnyLayer", bound=Layer)
TURNS_MAX = 100_000


class Group:
    """Processes that run the same stack, each known by its name.

    Each link between two processes keeps its frames in order, as TCP does, and nothing moves before
    the test says so: `run` moves everything, `move` one link. Outputs for the program gather in
    `told`. With a `Scripted` layer in the stack, `install` shows a view.
    """

    def __init__(self, stack: Stack, *names: str, seed: int = 0) -> None:
        self.now_ms = 0
        self.ids = {name: MemberId(name, 1) for name in names}
        self.links: dict[tuple[str, str], deque[bytes]] = {
            (a, b): deque() for a in names for b in names if a != b
        }
        self.told: dict[str, list[Any]] = {name: [] for name in names}
        self.crashed: set[str] = set()
        self.later: dict[str, Install] = {}
        self.cut: set[tuple[str, str]] = set()
        """Links that lose what is sent over them."""

        self.running = {
            name: Running(stack, me, lambda layer, name=name: Random(f"{seed} {name} {layer}"), 0)
            for name, me in self.ids.items()
        }
        for name in names:
            self.collect(name)

    # -- What a test does ----------------------------------------------------------------------

    def send(
        self, name: str, *texts: str, to: Iterable[str] | None = None, level: Level = Level.AGREED
    ) -> None:
        """Have the program of a process send these, to all or to some."""
        targets = None if to is None else tuple(self.ids[target] for target in to)
        for text in texts:
            self.running[name].send(text.encode(), self.now_ms, targets, level)
        self.collect(name)

    def move(self, sender: str, receiver: str, count: int | None = None) -> None:
        """Move the next `count` frames of a link, or all that are on it now."""
        link = self.links[sender, receiver]
        for _ in range(len(link) if count is None else count):
            data = link.popleft()
            if receiver not in self.crashed:
                self.running[receiver].received(self.ids[sender], data, self.now_ms)
                self.collect(receiver)

    def lose(self, sender: str, receiver: str) -> None:
        """Lose what is on a link now."""
        self.links[sender, receiver].clear()

    def crash(self, name: str) -> None:
        """End a process; what it has sent still arrives."""
        self.crashed.add(name)

    def run(self, *but: str) -> None:
        """Move all frames, but those of these processes, and tick the layers that are due now,
        until there is nothing left."""
        for _ in range(TURNS_MAX):
            self.tick()
            busy = [
                link
                for link, frames in self.links.items()
                if frames and not set(link).intersection(but)
            ]
            if not busy:
                return
            for sender, receiver in busy:
                self.move(sender, receiver)
        raise AssertionError("the group never comes to rest")

    def tick(self) -> None:
        """Tick the processes in which a layer is due now, until there is none."""
        for name, running in self.running.items():
            turns = 0
            while name not in self.crashed and self._is_due(running):
                running.tick(self.now_ms)
                self.collect(name)
                turns += 1
                assert turns < TURNS_MAX, f"{name} always has a layer that is due"

    def act(self, name: str, kind: type[AnyLayer], call: Callable[[AnyLayer], Any]) -> None:
        """Call a method of a layer that returns effects, and have them carried out."""
        layer = self.layer(name, kind)
        self.running[name].act(layer, call(layer), self.now_ms)
        self.collect(name)

    def advance(self, passed_ms: int) -> None:
        """Let time pass, with all that happens meanwhile."""
        end_ms = self.now_ms + passed_ms
        while True:
            self.run()
            due = [
                at
                for name, running in self.running.items()
                if name not in self.crashed and (at := running.next_deadline_ms()) is not None
            ]
            next_ms = min(due, default=end_ms)
            if next_ms >= end_ms:
                break
            self.now_ms = next_ms
        self.now_ms = end_ms
        self.run()

    def freeze(self, *names: str) -> None:
        """Begin a change of the view at these processes."""
        for name in names:
            self.act(name, Scripted, lambda _: [Freeze()])

    def install(
        self,
        *names: str,
        primary: bool = True,
        leader: str | None = None,
        cut: Mapping[str, int] | None = None,
        now: Iterable[str] | None = None,
    ) -> PeerView:
        """Show these processes a view of them, whose leader is the first one if none is named. The
        layers' summaries are put together as Membership does it. `now`: only these have it at once,
        the others when the test says `show`."""
        round_ = 1 + max(self.running[name].view.id.round for name in names)
        members = tuple(self.ids[name] for name in names)
        chosen = self.ids[leader or names[0]]
        view = PeerView(ViewId(round_, chosen), members, chosen, primary)
        marks = {self.ids[name]: number for name, number in (cut or {}).items()}
        summary = self._summary(names)
        before = {name: self.running[name].view.id for name in names}
        for name in names:
            together = tuple(self.ids[other] for other in names if before[other] == before[name])
            closing = Closing(before[name], marks, together)
            self.later[name] = Install(closing, view, summary, Changed(together))
        for name in names if now is None else now:
            self.show(name)
        return view

    def show(self, name: str) -> None:
        """Show a process the view that it was left out of by `now`."""
        if not self.running[name].frozen:
            self.freeze(name)
        install = self.later.pop(name)
        self.act(name, Scripted, lambda _: [install])

    def _summary(self, names: Sequence[str]) -> dict[str, Any]:
        merged = {}
        for layer in self.running[names[0]].layers:
            each = {self.ids[name]: self.layer(name, type(layer)).summary() for name in names}
            if any(summary is not None for summary in each.values()):
                merged[layer.name] = layer.merge(each)
        return merged

    # -- What a test looks at --------------------------------------------------------------------

    def got(self, name: str) -> list[str]:
        """Return the bodies that the program of a process was given, in their order."""
        return [bytes(d.body).decode() for d in self.told[name] if isinstance(d, Delivered)]

    def history(self, name: str) -> list[str]:
        """Return the bodies and, as `[a b]`, the views that a program was given."""
        texts = []
        for event in self.told[name]:
            if isinstance(event, Delivered):
                texts.append(bytes(event.body).decode())
            elif isinstance(event, Shown):
                texts.append(f"[{' '.join(member.name for member in event.view.members)}]")
        return texts

    def layer(self, name: str, kind: type[AnyLayer]) -> AnyLayer:
        """Return the layer of this kind in a process."""
        for layer in self.running[name].layers:
            if isinstance(layer, kind):
                return layer
        raise AssertionError(f"{name} has no {kind.__name__}")

    # -- Inside ----------------------------------------------------------------------------------

    def _is_due(self, running: Running) -> bool:
        due_ms = running.next_deadline_ms()
        return due_ms is not None and due_ms <= self.now_ms

    def collect(self, name: str) -> None:
        """Take the outputs of a process: for the program, and for the links."""
        for output in self.running[name].take():
            if not isinstance(output, Transmit):
                self.told[name].append(output)
                continue
            for target in output.to:
                link = (name, target.name)
                if name not in self.crashed and link in self.links and link not in self.cut:
                    self.links[link].append(output.data)
