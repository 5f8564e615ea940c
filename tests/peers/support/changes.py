"""Changes of the view as Membership makes them, in one step, and storms of random events."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId, is_quorum
from antiphon.peers.layers.layer import Changed, Closing, Freeze, Install
from antiphon.peers.layers.reliable import Reliable
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted


def change(group: Group, *names: str, leader: str | None = None, primary: bool = True) -> PeerView:
    """Bring these processes into one view. Those who come from the same view get the frames that
    belong to it: if it was primary and the new one is not, as far as anybody knows them committed;
    else all that anybody holds."""
    for name in names:
        group.act(name, Scripted, lambda _: [Freeze()])
    cuts = {
        view.id: _cut(group, view, names, primary)
        for view in {group.running[name].view for name in names}
    }
    for name in names:
        _fetch(group, name, names, cuts[group.running[name].view.id])
    members = tuple(group.ids[name] for name in names)
    round_ = 1 + max(running.view.id.round for running in group.running.values())
    chosen = group.ids[leader or names[0]]
    view = PeerView(ViewId(round_, chosen), members, chosen, primary)
    summary = _summary(group, names)
    before = {name: group.running[name].view for name in names}
    for name in names:
        old = before[name]
        together = tuple(group.ids[other] for other in names if before[other] == old)
        install = Install(Closing(old.id, cuts[old.id]), view, summary, Changed(together))
        group.act(name, Scripted, lambda _, install=install: [install])
    return view


def _cut(group: Group, view: PeerView, names: Sequence[str], primary: bool) -> dict[MemberId, int]:
    """Return how much of a view belongs to it. Who came through another view counts, too, if it has
    kept the frames."""
    cut = dict.fromkeys(view.members, 0)
    for name in names:
        streams = group.layer(name, Reliable)
        whole = primary or not view.primary
        reached = streams.held(view.id) if whole else streams.committed(view.id)
        for member, number in reached.items():
            cut[member] = max(cut[member], number)
    return cut


def _fetch(group: Group, name: str, names: Sequence[str], cut: Mapping[MemberId, int]) -> None:
    """Give a process the frames that it lacks of its view."""
    view = group.running[name].view.id
    mine = group.layer(name, Reliable)
    for stream, last in cut.items():
        for other in names:
            theirs = group.layer(other, Reliable)
            if theirs.held(view).get(stream, 0) >= last:
                first = mine.held(view)[stream] + 1
                mine.add(view, stream, first, theirs.read(view, stream, first, last))
        assert mine.held(view)[stream] >= last, f"nobody has {stream} up to {last} for {name}"


def _summary(group: Group, names: Sequence[str]) -> dict[str, Any]:
    """Put the summaries together; they travel as msgpack."""
    merged: dict[str, Any] = {}
    for at, layer in enumerate(group.running[names[0]].layers):
        each = {
            group.ids[name]: _travelled(group.running[name].layers[at].summary()) for name in names
        }
        if any(summary is not None for summary in each.values()):
            merged[layer.name] = _travelled(layer.merge(each))
    return merged


def _travelled(summary: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(summary))


def reconnect(group: Group, one: str, other: str) -> None:
    """Break the connection of two processes, and make a new one: what was on it is lost."""
    for sender, receiver in ((one, other), (other, one)):
        group.lose(sender, receiver)
        if sender not in group.crashed:
            group.running[sender].unlinked(group.ids[receiver], False, group.now_ms)
            group.running[sender].linked(group.ids[receiver], receiver, group.now_ms)


class Storm:
    """Random events from a seed: sends, links that move at their own pace or break, time that
    passes, and, if it may, changes of the view, with `splits` also into two views, of which one is
    primary if it has a quorum of the last primary one.

    `sent`: what each program has sent.
    """

    def __init__(
        self, group: Group, seed: int, levels: Sequence[Level], splits: bool = False
    ) -> None:
        self.group = group
        self.chance = Random(seed)
        self.levels = levels
        self.splits = splits
        self.sent: dict[str, list[str]] = {name: [] for name in group.ids}
        self._last = next(iter(group.running.values())).view

    def blow(self, events: int, breaks: bool = True, changes: bool = False) -> None:
        """Have so many things happen."""
        names = [name for name in self.group.ids if name not in self.group.crashed]
        for _ in range(events):
            match self.chance.choices(
                ("send", "move", "pass", "break", "change"),
                (30, 60, 8, 4 * breaks, 2 * changes),
            )[0]:
                case "send":
                    self.send(self.chance.choice(names))
                case "move":
                    self.move()
                case "pass":
                    self.group.now_ms += self.chance.choice((1, 10, 60, 120))
                    self.group.tick()
                case "break":
                    reconnect(self.group, *self.chance.sample(names, 2))
                case "change":
                    self.change(names)

    def send(self, name: str) -> None:
        """Send something that says from whom it is."""
        text = f"{name}{len(self.sent[name]) + 1}"
        self.sent[name].append(text)
        self.group.send(name, text, level=self.chance.choice(self.levels))

    def move(self) -> None:
        """Move some frames of one link."""
        busy = [link for link, frames in self.group.links.items() if frames]
        if busy:
            sender, receiver = self.chance.choice(busy)
            waiting = len(self.group.links[sender, receiver])
            self.group.move(sender, receiver, self.chance.randint(1, waiting))

    def change(self, names: Sequence[str]) -> None:
        """Bring everybody into a new view, or split them into two."""
        shuffled = self.chance.sample(names, len(names))
        at = self.chance.randint(1, len(names) - 1) if self.splits else len(names)
        for part in (shuffled[:at], shuffled[at:]):
            if part:
                self.bring(*part)

    def bring(self, *names: str) -> None:
        """Bring these into one view. Who missed a primary view is alone before."""
        primary = is_quorum(self._last, [self.group.ids[name] for name in names])
        for name in names:
            view = self.group.running[name].view
            if view.primary and view != self._last:
                change(self.group, name, primary=False)
        view = change(self.group, *names, primary=primary)
        if primary:
            self._last = view
