"""Ways around links that do not work; how servers use them is shown by scenarios and seeds."""

from random import Random

from antiphon.formats import frames
from antiphon.formats.entry import ANY, ClusterMember, Entry, Kind, Membership, ReplicaId
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import (
    Append,
    Appended,
    Envelope,
    Forward,
    Hears,
    Knock,
    Message,
    Relay,
    Via,
    View,
    Vote,
)
from antiphon.log.effects import Effect, Persist, Relayed, Send
from antiphon.log.node import Node
from antiphon.log.recovered import Recovered
from antiphon.log.routes import HOPS_MAX
from antiphon.log.settings import Settings
from antiphon.log.state_machine import PackMachine

IDS = {n: ReplicaId(n, n * 10) for n in range(1, 6)}
SETTINGS = Settings(heartbeat_ms=50, election_ms=400)
PATIENCE_MS = 200


class Cluster:
    """Nodes and a network of which nothing is left but who hears whom. No log: none is elected."""

    def __init__(self, count: int, cut: set[tuple[int, int]], delay_ms: int = 1) -> None:
        members = Membership(
            7, tuple(ClusterMember(n, IDS[n].incarnation, True) for n in range(1, count + 1))
        )
        self.nodes = {n: make_node(n, members) for n in range(1, count + 1)}
        self.cut = cut
        self.dead: set[int] = set()
        self.sent: list[Message] = []
        self._delay_ms = delay_ms
        self._on_the_way: list[tuple[int, Envelope]] = []
        self._now_ms = 0

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self._now_ms += 1
            for n, node in self.nodes.items():
                if n not in self.dead:
                    self._carry_out(n, node.routes.tick(self._now_ms))
            due = [e for at, e in self._on_the_way if at <= self._now_ms]
            self._on_the_way = [(at, e) for at, e in self._on_the_way if at > self._now_ms]
            for envelope in due:
                to = envelope.to.node
                if to not in self.dead:
                    self._carry_out(to, self.nodes[to].receive(envelope, self._now_ms))

    def _carry_out(self, n: int, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Send)
            self.sent.append(effect.message)
            if (n, effect.to.node) not in self.cut:
                envelope = Envelope(IDS[n], effect.to, effect.message)
                self._on_the_way.append((self._now_ms + self._delay_ms, envelope))

    def detours(self) -> dict[int, dict[int, int]]:
        return {n: dict(sorted(node.routes.detours.items())) for n, node in self.nodes.items()}


def make_node(n: int, members: Membership) -> Node:
    promise = Promise(1, None)
    recovered = Recovered(
        IDS[n].incarnation, promise, runs=((1, 1),), last=1, memberships=((1, members),)
    )
    listed = {member.node: "" for member in members.members}
    return Node(n, listed, recovered, PackMachine(), SETTINGS, Random(n), 0)


def both(*pairs: tuple[int, int]) -> set[tuple[int, int]]:
    return {*pairs, *((b, a) for a, b in pairs)}


def via(source: ReplicaId, to: ReplicaId, hops: int, message: Message) -> Via:
    return Via(source, to, hops, frames.encode_message(message, frames.NEWEST))


def hear(node: Node, sender: int, message: Message, now_ms: int = 1) -> list[Effect]:
    return node.receive(Envelope(IDS[sender], node.replica.id, message), now_ms)


def test_who_does_not_hear_is_reached_through_who_is_heard() -> None:
    cluster = Cluster(3, {(1, 2)})
    cluster.run(2 * PATIENCE_MS)
    assert cluster.detours() == {1: {2: 3}, 2: {}, 3: {}}


def test_a_chain_is_gone_along_step_by_step() -> None:
    cluster = Cluster(4, both((1, 3), (1, 4), (2, 4)))
    cluster.run(2 * PATIENCE_MS)
    assert cluster.detours() == {1: {3: 2, 4: 2}, 2: {4: 3}, 3: {1: 2}, 4: {1: 3, 2: 3}}


def test_each_way_is_found_for_itself() -> None:
    """A ring of links that lead in one direction only."""
    ring = {(1, 2), (2, 3), (3, 1)}
    cluster = Cluster(3, {(a, b) for a in IDS for b in IDS} - ring)
    cluster.run(2 * PATIENCE_MS)
    assert cluster.detours() == {1: {3: 2}, 2: {1: 3}, 3: {2: 1}}


def test_a_link_that_works_again_is_used_again() -> None:
    cluster = Cluster(3, {(1, 2)})
    cluster.run(2 * PATIENCE_MS)
    cluster.cut.clear()
    cluster.run(2 * PATIENCE_MS)
    assert cluster.detours() == {1: {}, 2: {}, 3: {}}


def test_what_is_known_of_the_dead_does_not_go_around_for_ever() -> None:
    """Not even where each step takes longer than the pause between two of them."""
    cluster = Cluster(4, both((1, 4)), delay_ms=3 * SETTINGS.heartbeat_ms)
    cluster.run(1500)
    assert any(4 in detours for detours in cluster.detours().values())
    cluster.dead.add(4)
    cluster.run(4000)
    assert not any(4 in detours for detours in cluster.detours().values())
    del cluster.sent[:]
    cluster.run(200)
    told = {view.node for m in cluster.sent if isinstance(m, Hears) for view in m.views}
    assert told == {1, 2, 3}


def test_who_hears_its_leader_says_nothing() -> None:
    node = Cluster(3, set()).nodes[1]
    for now_ms in range(1, 3000):
        if now_ms % 100 == 0:
            hear(node, 2, Append(2, 1, 1, (), 0, 1), now_ms)
        assert node.routes.tick(now_ms) == []


def test_who_is_no_member_is_not_listened_to() -> None:
    node = Cluster(3, set()).nodes[1]
    stranger = ReplicaId(9, 90)
    views = (View(9, 0, True, (1, 2, 3)), View(2, 0, True, (9,)))
    assert node.receive(Envelope(stranger, IDS[1], Hears(views)), 1) == []
    assert node.routes.detours == {}


def test_a_newcomer_is_told_of_servers_that_it_does_not_list() -> None:
    """It lists 2 alone; 5 leads, and hears it through 2."""
    node = Node(1, {1: "", 2: ""}, Recovered(10), PackMachine(), SETTINGS, Random(1), 0)
    hear(node, 5, Knock(IDS[5], 0))
    said = hear(node, 2, Hears((View(5, 0, False, (2,)), View(2, 0, True, (1, 5)))), 90)
    assert node.routes.detours == {5: 2}
    assert [s.message.views[0] for s in said if isinstance(s, Send)] == [View(1, 0, False, (2, 5))]


def with_detour() -> Node:
    """Of server 1, to 3 through 2."""
    node = Cluster(3, set()).nodes[1]
    hear(node, 2, Hears((View(2, 0, True, (1, 3)), View(3, 0, True, (2,)))))
    assert node.routes.detours == {3: 2}
    return node


def test_also_what_waits_for_the_disk_takes_the_detour() -> None:
    node = with_detour()
    effects = hear(node, 3, Append(2, 1, 1, (), 0, 1), 2)
    assert effects[-1] == Send(ReplicaId(2, ANY), via(IDS[1], IDS[3], 1, Appended(2, 1, 1)))
    entry = Entry(2, 2, 0, Kind.PACK, b"")
    persist = hear(node, 3, Append(2, 1, 1, (entry,), 0, 2), 3)[-1]
    assert isinstance(persist, Persist)
    answer = via(IDS[1], IDS[3], 1, Appended(2, 2, 2))
    assert persist.then[-1] == Send(ReplicaId(2, ANY), answer)


def test_what_goes_in_a_circle_is_lost() -> None:
    node = with_detour()
    (onward,) = hear(node, 2, via(IDS[2], IDS[3], 1, Forward(())))
    assert onward == Send(ReplicaId(2, ANY), via(IDS[2], IDS[3], 2, Forward(())))
    for hops in (HOPS_MAX, 0, -HOPS_MAX):
        assert hear(node, 2, via(IDS[2], IDS[3], hops, Forward(()))) == []


def test_what_comes_through_others_is_taken_as_from_its_source() -> None:
    node = Cluster(3, set()).nodes[1]
    hear(node, 2, via(IDS[3], IDS[1], 2, Append(2, 1, 1, (), 0, 1)))
    assert node.replica.leader_id == IDS[3]


def test_homes_reach_each_other_through_others() -> None:
    node = with_detour()
    relay = Relay(5, 6, b"state")
    assert node.relay(3, relay) == [
        Send(ReplicaId(2, ANY), via(IDS[1], ReplicaId(3, ANY), 1, relay))
    ]
    assert node.relay(2, relay) == [Send(ReplicaId(2, ANY), relay)]
    assert hear(node, 2, via(IDS[3], ReplicaId(1, ANY), 2, relay)) == [Relayed(relay)]


def test_what_is_no_message_costs_nothing_to_who_passed_it_on() -> None:
    node = with_detour()
    assert hear(node, 2, Via(IDS[2], IDS[3], 1, b"?")) != []
    assert hear(node, 2, Via(IDS[3], IDS[1], 1, b"?")) == []


def test_strangers_are_forgotten() -> None:
    node = Cluster(3, set()).nodes[1]
    for stranger in range(100, 200):
        node.receive(Envelope(ReplicaId(stranger, 1), IDS[1], Vote(1, False, True)), 1)
    assert len(node.routes.heard) == 100
    node.tick(10_000)
    assert node.routes.heard == {}


def test_a_leader_whom_others_hear_is_not_gone() -> None:
    """Its address refuses this server: there may be a firewall between the two."""
    node = Cluster(3, set()).nodes[1]
    append = Append(2, 1, 1, (), 0, 1)
    hear(node, 2, append)
    for now_ms in range(2, 2 * PATIENCE_MS, 50):
        hear(node, 3, via(IDS[2], IDS[1], 1, append), now_ms)
        hear(node, 3, Hears((View(3, 0, False, (1, 2)),)), now_ms)
    node.gone(2, now_ms)
    assert node.replica.leader_id == IDS[2]


def test_a_leader_that_was_just_heard_is_gone_when_its_address_says_so() -> None:
    """Others may have heard it then, too."""
    node = Cluster(3, set()).nodes[1]
    hear(node, 2, Append(2, 1, 1, (), 0, 1))
    hear(node, 3, Hears((View(3, 0, True, (1, 2)),)), 20)
    node.gone(2, 50)
    assert node.replica.leader_id is None


def test_nothing_is_wrapped_twice() -> None:
    node = with_detour()
    inner = via(IDS[3], IDS[1], 1, Knock(IDS[3], 0))
    assert hear(node, 2, via(IDS[3], IDS[1], 1, inner)) == []
    assert hear(node, 2, via(IDS[3], IDS[1], 1, Hears(()))) == []
