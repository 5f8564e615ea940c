"""Every state of a member with everything that can happen to it."""

from collections.abc import Callable
from itertools import product

import pytest

from antiphon.broker.machine.groups import group as groups
from antiphon.broker.machine.groups.group import REMOVE_AFTER_MS
from antiphon.broker.machine.groups.presence import TRANSITIONS, Cause, Presence, next_presence
from antiphon.broker.machine.groups.suspicion import SUSPECT_MS
from antiphon.formats import columns, commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Kind, Membership, encode_membership
from tests.broker.support.bare_broker import BareBroker

S, HEIR, OTHER = 7, 8, 9
G = "topic:g"
LEASE_MS = 4 * SUSPECT_MS
PRESENT, CUT_OFF, SUSPECTED = Presence.PRESENT, Presence.CUT_OFF, Presence.SUSPECTED
INACTIVE, LOST = Presence.INACTIVE, Presence.LOST
GONE = None
"""Not a member any more."""


class Scene(BareBroker):
    """A group of a member `m`, and of another one that keeps the group."""

    def __init__(self, *, durable: bool, shared: bool = False) -> None:
        super().__init__()
        self.durable, self.shared = durable, shared
        self._attempt = 1
        self._client_id = "" if shared else "anna"
        self.attach(OTHER)
        self.ask(OTHER, cw.Join(1, G, 100, "other", False))
        self.attach(S, client_id=self._client_id, lease_ms=LEASE_MS)
        self.come(S)

    def come(self, session: int) -> cw.Result:
        if self.shared:
            name = "m" if self.durable else ""
            return self.open(session, 1, G, shared="m", durable=name)
        return self.ask(session, cw.Join(1, G, 100, "m", self.durable, takes_state=False))

    def come_again(self) -> None:
        self._attempt += 1
        self.attach(
            S, resume=True, attempt=self._attempt, client_id=self._client_id, lease_ms=LEASE_MS
        )

    def tell(self, **properties: str) -> None:
        extra = columns.encode_extra(columns.Extra(properties=dict(properties)))
        data, flags = columns.encode([columns.Outgoing(columns.TEXT, b"", extra, 0)])
        self._publish(OTHER, G, 1, data, flags=flags | pack.CONTROL)

    @property
    def is_at(self) -> Presence | None:
        member = self.broker.groups[G].members.get("m")
        return member.presence if member is not None else GONE


def heir_comes(scene: Scene) -> None:
    scene.attach(HEIR)
    scene.come(HEIR)


def session_is_lost(scene: Scene) -> None:
    if S in scene.broker.sessions:
        if not scene.broker.sessions[S].detached:
            scene.detach(S)
        scene.wait(LEASE_MS + 1)


def closes(scene: Scene) -> None:
    """Its request may be ordered behind the loss of its connection."""
    if S in scene.broker.sessions:
        scene.close_consumer(S, 1)


def is_cut_off(scene: Scene) -> None:
    if S in scene.broker.sessions:
        scene.detach(S)


def is_back(scene: Scene) -> None:
    if S in scene.broker.sessions:
        scene.come_again()


def is_suspected(scene: Scene) -> None:
    scene.detach(S)
    scene.wait(SUSPECT_MS + 1)


BEGINNINGS: dict[Presence, Callable[[Scene], object]] = {
    PRESENT: lambda scene: None,
    CUT_OFF: is_cut_off,
    SUSPECTED: is_suspected,
    INACTIVE: closes,
    LOST: session_is_lost,
}
INPUTS: dict[str, Callable[[Scene], object]] = {
    "somebody comes under its name": heir_comes,
    "its connection is lost": is_cut_off,
    "its connection is back": is_back,
    "time passes": lambda scene: scene.wait(SUSPECT_MS + 1),
    "its session is lost": session_is_lost,
    "it closes": closes,
    "a new leader": lambda scene: scene.new_leader(),
    "it is invited": lambda scene: scene.tell(JMS_join_process="m"),
    "it is removed": lambda scene: scene.tell(JMS_remove="m"),
}

STAY: dict[Presence, Presence | None] = {
    state: state for state in (PRESENT, CUT_OFF, SUSPECTED, INACTIVE, LOST)
}
DURABLE: dict[str, dict[Presence, Presence | None]] = {
    "somebody comes under its name": dict.fromkeys(STAY, PRESENT) | {CUT_OFF: CUT_OFF},
    "its connection is lost": STAY | {PRESENT: CUT_OFF},
    "its connection is back": STAY | {CUT_OFF: PRESENT, SUSPECTED: PRESENT},
    "time passes": STAY | {CUT_OFF: SUSPECTED},
    "its session is lost": dict.fromkeys(STAY, LOST) | {INACTIVE: INACTIVE},
    "it closes": {
        PRESENT: INACTIVE,
        CUT_OFF: INACTIVE,
        SUSPECTED: LOST,
        INACTIVE: INACTIVE,
        LOST: LOST,
    },
    "a new leader": STAY,
    "it is invited": STAY,
    "it is removed": dict.fromkeys(STAY, GONE),
}
NOT_DURABLE = DURABLE | {
    "it closes": dict.fromkeys(STAY, GONE) | {LOST: LOST},
    "its session is lost": dict.fromkeys(STAY, LOST),
}
SHARED_DURABLE = DURABLE | {
    # The same member: another consumer of it.
    "somebody comes under its name": dict.fromkeys(STAY, PRESENT),
    "its session is lost": dict.fromkeys(STAY, SUSPECTED),
    "it closes": {PRESENT: PRESENT, CUT_OFF: PRESENT, SUSPECTED: SUSPECTED},
}
SHARED = SHARED_DURABLE | {"it closes": dict.fromkeys(STAY, GONE)}
KINDS = {
    "durable": (True, False, DURABLE, tuple(STAY)),
    "not durable": (False, False, NOT_DURABLE, (PRESENT, CUT_OFF, SUSPECTED, LOST)),
    "shared, durable": (True, True, SHARED_DURABLE, (PRESENT, CUT_OFF, SUSPECTED)),
    "shared": (False, True, SHARED, (PRESENT, CUT_OFF, SUSPECTED)),
}


def scene_of(kind: str, state: Presence) -> Scene:
    durable, shared, _, _ = KINDS[kind]
    scene = Scene(durable=durable, shared=shared)
    BEGINNINGS[state](scene)
    assert scene.is_at is state
    return scene


@pytest.mark.parametrize("happens", INPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_state_with_every_input(kind: str, happens: str) -> None:
    _, _, expected, states = KINDS[kind]
    for state in states:
        scene = scene_of(kind, state)
        INPUTS[happens](scene)
        assert scene.is_at is expected[happens][state], f"{state} because {happens}"


@pytest.mark.parametrize("kind", ["durable", "not durable"])
def test_who_is_invited_waits_or_is_missed(kind: str) -> None:
    durable = KINDS[kind][0]
    scene = Scene(durable=durable)
    scene.tell(JMS_remove="m")
    scene.tell(JMS_join_process="m", **({"JMS_subscription": "durable"} if durable else {}))
    assert scene.is_at is (INACTIVE if durable else LOST)
    heir_comes(scene)
    assert scene.is_at is PRESENT


def test_a_suspect_that_is_back_is_not_removed_later() -> None:
    scene = scene_of("not durable", SUSPECTED)
    is_back(scene)
    for _ in range(0, 2 * REMOVE_AFTER_MS, SUSPECT_MS):
        scene.command(commands.Renew(1, 1))
        scene.wait(SUSPECT_MS)
    assert scene.is_at is PRESENT


def test_a_session_is_lost_before_its_member_is_suspected() -> None:
    scene = Scene(durable=True)
    is_cut_off(scene)
    scene.attach(HEIR, client_id="anna")
    assert scene.is_at is LOST


def test_a_server_is_removed_with_what_it_alone_knew() -> None:
    bare = BareBroker()
    _members(bare, 1, 2)
    bare.command(commands.Begin(1, 1, 1, 11))
    bare.command(commands.Attach(S, b"t", False, 1, 1, 11, 1, "", LEASE_MS, (), local=True))
    bare.ask(S, cw.Join(1, G, 100, "m", durable=True))
    _members(bare, 2)
    assert bare.broker.groups[G].members["m"].presence is LOST


def _members(bare: BareBroker, *nodes: int) -> None:
    members = Membership(1, tuple(ClusterMember(node, 1, True, "") for node in nodes))
    bare.entry(Kind.MEMBERSHIP, encode_membership(members))


def test_nothing_else_happens_and_all_that_the_table_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[Presence, Cause]] = set()

    def noted(presence: Presence, cause: Cause) -> Presence:
        seen.add((presence, cause))
        return next_presence(presence, cause)

    monkeypatch.setattr(groups, "next_presence", noted)
    for kind, happens in product(KINDS, INPUTS):
        test_every_state_with_every_input(kind, happens)
    for kind in ("durable", "not durable"):
        test_who_is_invited_waits_or_is_missed(kind)
    test_a_session_is_lost_before_its_member_is_suspected()
    test_a_server_is_removed_with_what_it_alone_knew()
    assert seen == set(TRANSITIONS)


IMPOSSIBLE = sorted(set(product(Presence, Cause)) - set(TRANSITIONS), key=str)


@pytest.mark.parametrize("pair", IMPOSSIBLE)
def test_what_is_not_in_the_table_is_an_error(pair: tuple[Presence, Cause]) -> None:
    with pytest.raises(AssertionError):
        next_presence(*pair)


@pytest.mark.parametrize("state", STAY)
def test_a_snapshot_has_the_state(state: Presence) -> None:
    scene = scene_of("durable", state)
    other = BareBroker()
    other.broker.restore(iter(scene.snapshot()))
    assert other.broker.groups[G].members["m"].presence is state
    assert other.snapshot() == scene.snapshot()
