"""Who coordinates, and with that orders messages, is a parameter: whoever hears most, the oldest
member, or that with the highest name."""

import pytest

from antiphon.errors import ConfigurationError
from antiphon.model.peer_views import MemberId, ViewId
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.total import Total
from antiphon.peers.membership.candidates import Lead, ranking
from antiphon.peers.membership.membership import Membership
from antiphon.peers.membership.messages import Here
from tests.peers.support.mesh import Mesh

FOUNDERS = ("b", "c", "d")
B, C, D = (MemberId(name, 1) for name in FOUNDERS)


def founded(lead: Lead, *joiners: str) -> Mesh:
    """Return processes in one view, of which those that found it are the oldest."""
    mesh = Mesh(Reliable(), Detector(), Membership(FOUNDERS, lead=lead), Total())
    mesh.start(*FOUNDERS)
    assert mesh.until(mesh.together(*FOUNDERS))
    for at, name in enumerate(joiners):
        mesh.start(name)
        assert mesh.until(mesh.together(*FOUNDERS, *joiners[: at + 1]))
    return mesh


def leads(mesh: Mesh, name: str) -> bool:
    return all(process.view.leader.name == name for process in mesh.living())


@pytest.mark.parametrize(
    ("lead", "first", "then"),
    [("hears", "b", "c"), ("oldest", "b", "c"), ("highest", "e", "d")],
)
def test_who_leads_and_who_follows(lead: Lead, first: str, then: str) -> None:
    mesh = founded(lead, "a", "e")
    assert mesh.until(lambda: leads(mesh, first), within_ms=2000)
    mesh.kill(first)
    rest = [process.name for process in mesh.living()]
    assert mesh.until(mesh.together(*rest))
    assert mesh.until(lambda: leads(mesh, then), within_ms=2000)


def test_the_one_that_leads_orders() -> None:
    for lead in ("hears", "highest"):
        mesh = founded(lead)  # type: ignore[arg-type]
        leader = "b" if lead == "hears" else "d"
        for other in set(FOUNDERS) - {leader}:
            mesh.delays_ms[other, leader] = 20
        mesh.send("c", "late")
        mesh.send(leader, "first")
        mesh.run(200)
        assert all(history.endswith("first late") for history in mesh.histories().values())


@pytest.mark.parametrize(("lead", "best"), [("hears", C), ("oldest", B), ("highest", D)])
def test_who_is_the_best(lead: Lead, best: MemberId) -> None:
    view = ViewId(4, B)
    news = {
        process: Here(view, B, True, 3, place, 4, B, False, False, 0)
        for place, process in enumerate((B, C, D))
    }
    hears = {B: 2, C: 3, D: 2}
    assert min(news, key=ranking(lead, news, hears.__getitem__)) == best


def test_of_those_that_hear_as_many_who_leads_already_is_the_best() -> None:
    news = {
        process: Here(ViewId(4, C), C, True, 3, place, 4, C, False, False, 0)
        for place, process in enumerate((B, C, D))
    }
    assert min(news, key=ranking("hears", news, lambda process: 3)) == C


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'strongest' does not say who leads: hears, old"):
        Membership(lead="strongest")  # type: ignore[arg-type]
