"""Every state of a session with everything that can happen to it."""

from collections.abc import Callable
from itertools import product

import pytest

from antiphon.broker.machine.sessions import session as sessions
from antiphon.broker.machine.sessions.attachment import (
    TRANSITIONS,
    Attachment,
    Cause,
    next_attachment,
)
from antiphon.broker.machine.sessions.servers import GRACE_MS
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Kind, Membership, encode_membership
from tests.broker.support.bare_broker import BareBroker

S, OTHER = 7, 8
LEASE_MS = 4 * GRACE_MS
ATTACHED, LEASED, HELD = Attachment.ATTACHED, Attachment.LEASED, Attachment.HELD
ENDED = Attachment.ENDED


class Scene(BareBroker):
    """Two servers, and a session that is attached to the first one. `local`: contexts are local;
    `bound`: it has a consumer of a topic, so that its server may know more than the log."""

    def __init__(self, *, local: bool, bound: bool) -> None:
        super().__init__()
        self.local = local
        self.members(1, 2)
        for node in (1, 2) if local else ():
            self.begin(node, 10 + node)
        self.come(1, life=11)
        self.open(S, 1, "topic:t" if bound else "queue:q")

    def members(self, *nodes: int) -> None:
        members = Membership(1, tuple(ClusterMember(node, 1, True, "") for node in nodes))
        self.entry(Kind.MEMBERSHIP, encode_membership(members))

    def begin(self, node: int, life: int) -> None:
        self.command(commands.Begin(node, 1, life, life))

    def come(self, node: int, life: int, *, session: int = S, attempt: int = 1) -> None:
        self.command(
            commands.Attach(
                session,
                b"t",
                attempt > 1,
                attempt,
                node,
                life,
                attempt,
                "anna",
                LEASE_MS,
                (),
                local=self.local,
            )
        )

    @property
    def is_at(self) -> Attachment:
        session = self.broker.sessions.get(S)
        return session.phase if session is not None else Attachment.ENDED


def server_stays_away(scene: Scene) -> None:
    scene.wait(GRACE_MS + 1)


def connection_is_lost(scene: Scene) -> None:
    scene.detach(S)


BEGINNINGS: dict[Attachment, Callable[[Scene], object]] = {
    ATTACHED: lambda scene: None,
    LEASED: connection_is_lost,
    HELD: server_stays_away,
}
INPUTS: dict[str, Callable[[Scene], object]] = {
    "its client comes again": lambda scene: scene.come(1, 11, attempt=2),
    "its client comes to another server": lambda scene: scene.come(2, 12, attempt=2),
    "its connection is lost": connection_is_lost,
    "its server is alive": lambda scene: scene.command(commands.Renew(1, 11)),
    "its server is silent": server_stays_away,
    "its server begins another life": lambda scene: (
        scene.begin(1, 99) if scene.local else scene.command(commands.Renew(1, 99))
    ),
    "its server is removed": lambda scene: scene.members(2),
    "a new leader": lambda scene: scene.new_leader(),
    "its lease passes": lambda scene: scene.wait(LEASE_MS + 1),
    "another session with its client id": lambda scene: scene.come(2, 12, session=OTHER),
    "its client closes it": lambda scene: scene.ask(S, cw.CloseSession()),
}

STAY = {state: state for state in (ATTACHED, LEASED, HELD)}
ALWAYS: dict[str, dict[Attachment, Attachment]] = {
    "its client comes again": dict.fromkeys(STAY, ATTACHED),
    "its connection is lost": dict.fromkeys(STAY, LEASED),
    "its server is alive": STAY,
    "its server begins another life": dict.fromkeys(STAY, LEASED),
    "a new leader": STAY,
    "its client closes it": dict.fromkeys(STAY, ENDED),
}
REPLICATED = ALWAYS | {
    "its client comes to another server": dict.fromkeys(STAY, ATTACHED),
    "its server is silent": dict.fromkeys(STAY, LEASED),
    "its server is removed": STAY,  # it falls silent soon
    "its lease passes": {ATTACHED: LEASED, LEASED: ENDED},
    "another session with its client id": {ATTACHED: ATTACHED, LEASED: ENDED},
}
LOCAL_UNBOUND = REPLICATED | {"its server is removed": dict.fromkeys(STAY, LEASED)}
LOCAL_BOUND = ALWAYS | {
    "its client comes to another server": {ATTACHED: ATTACHED, LEASED: ATTACHED, HELD: HELD},
    "its server is silent": {ATTACHED: HELD, LEASED: LEASED, HELD: HELD},
    "its server is removed": {ATTACHED: ENDED, LEASED: LEASED, HELD: ENDED},
    "its lease passes": {ATTACHED: HELD, LEASED: ENDED, HELD: HELD},
    "another session with its client id": {ATTACHED: ATTACHED, LEASED: ENDED, HELD: HELD},
}
KINDS = {
    "replicated": (False, True, REPLICATED),
    "local": (True, False, LOCAL_UNBOUND),
    "local, bound": (True, True, LOCAL_BOUND),
}


def scene_of(kind: str, state: Attachment) -> Scene:
    local, bound, _ = KINDS[kind]
    scene = Scene(local=local, bound=bound)
    BEGINNINGS[state](scene)
    assert scene.is_at is state
    return scene


@pytest.mark.parametrize("happens", INPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_state_with_every_input(kind: str, happens: str) -> None:
    expected = KINDS[kind][2][happens]
    for state in STAY:
        if state is HELD and kind != "local, bound":
            continue  # the others are never held
        scene = scene_of(kind, state)
        INPUTS[happens](scene)
        assert scene.is_at is expected[state], f"{state} because {happens}"


def test_a_session_may_be_bound_no_more_while_it_is_held() -> None:
    """Its last request was ordered behind the loss of its server."""
    scene = scene_of("local, bound", HELD)
    scene.close_consumer(S, 1)
    scene.members(2)
    assert scene.is_at is LEASED


def test_nothing_else_happens_and_all_that_the_table_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[Attachment, Cause]] = set()

    def noted(attachment: Attachment, cause: Cause) -> Attachment:
        seen.add((attachment, cause))
        return next_attachment(attachment, cause)

    monkeypatch.setattr(sessions, "next_attachment", noted)
    for kind, happens in product(KINDS, INPUTS):
        test_every_state_with_every_input(kind, happens)
    test_a_session_may_be_bound_no_more_while_it_is_held()
    assert seen == set(TRANSITIONS)


@pytest.mark.parametrize(
    "pair", sorted(set(product(Attachment, Cause)) - set(TRANSITIONS), key=str)
)
def test_what_is_not_in_the_table_is_an_error(pair: tuple[Attachment, Cause]) -> None:
    with pytest.raises(AssertionError):
        next_attachment(*pair)


@pytest.mark.parametrize("state", STAY)
def test_a_snapshot_has_the_state(state: Attachment) -> None:
    scene = scene_of("local, bound", state)
    other = BareBroker()
    other.broker.restore(iter(scene.snapshot()))
    restored = other.broker.sessions[S]
    assert (restored.phase, restored.expires) == (state, scene.broker.sessions[S].expires)
    assert other.snapshot() == scene.snapshot()
