"""Crashes, cuts and joins at random: who is gone stays gone, sides agree, and reliable multicast
keeps its promise. `SEEDS` may be raised by hand."""

from random import Random

import pytest

from antiphon.model.peer_views import ViewId
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.toolkits.gcom.crashes import Crashes
from antiphon.toolkits.gcom.settings import Multicast
from tests.peers.support.mesh import Mesh, Process
from tests.toolkits.gcom.conftest import group

SEEDS = 12
STEPS = 25


def storm(seed: int, multicast: Multicast) -> tuple[Mesh, list[Process]]:
    """Return the processes after a storm and some quiet, and all that ever lived."""
    random = Random(seed)
    mesh = group("a", "b", "c", "d", "e", multicast=multicast)
    lives = list(mesh.processes.values())
    for step in range(STEPS):
        names = [process.name for process in mesh.living()]
        match random.choice(("send",) * 6 + ("kill", "end", "cut", "part", "heal", "start")):
            case "send":
                for number in range(random.randint(1, 5)):
                    mesh.send(random.choice(names), f"{step}.{number}")
            case "kill" if len(names) > 2:
                mesh.kill(random.choice(names))
            case "end" if len(names) > 2:
                mesh.leave(random.choice(names))
            case "cut" if len(names) > 2:
                mesh.cut(*random.sample(names, 2))
            case "part":
                sides = [name for name in names if random.random() < 0.5]
                mesh.part(sides, [name for name in names if name not in sides])
            case "heal":
                mesh.heal()
            case "start" if len(names) < 6:
                gone = [name for name in "abcdefgh" if name not in names]
                mesh.start(random.choice(gone))
                lives.append(mesh.processes[[*mesh.processes][-1]])
        mesh.run(random.choice((0, 1, 2, 30, 300)))
    lives = list(dict.fromkeys(lives))
    mesh.heal()
    mesh.run(15_000)
    return mesh, lives


@pytest.mark.parametrize("multicast", Multicast)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_is_gone_stays_gone_and_sides_agree(seed: int, multicast: Multicast) -> None:
    mesh, _ = storm(seed, multicast)
    living = {process.me: process for process in mesh.living()}
    for process in living.values():
        crashes = process.layer("crashes")
        assert isinstance(crashes, Crashes)
        view = process.view
        assert not crashes.crashed.intersection(view.members), f"{process.me!r} has the dead back"
        for member in view.members:
            assert member in living, f"{process.me!r} has {member!r}, which is dead"
            assert living[member].view == view
        assert view.leader.name == max(member.name for member in view.members)


def test_who_goes_on_together_has_the_same_messages() -> None:
    """Reliable multicast: whatever one member that does not crash was given in a view all were."""
    assert sum(compared(seed) for seed in range(SEEDS)) > 2 * SEEDS


def compared(seed: int) -> int:
    """Compare what processes were given between the same two views; return how many pairs."""
    _, lives = storm(seed, Multicast.RELIABLE)
    given: dict[tuple[ViewId, ViewId], set[bytes]] = {}
    pairs = 0
    for process in lives:
        view: ViewId | None = None
        texts: set[bytes] = set()
        for event in process.told:
            if isinstance(event, Delivered):
                texts.add(bytes(event.body))
            elif isinstance(event, Shown):
                if view is not None:
                    known = given.setdefault((view, event.view.id), texts)
                    pairs += known is not texts
                    assert texts == known, f"{process.me!r} in {view}"
                view, texts = event.view.id, set()
    return pairs
