"""Local contexts: acknowledgements that a server keeps to itself for a while, and what follows."""

from collections.abc import Callable

import pytest

from antiphon.broker.home.ack_batches import Answers
from antiphon.broker.home.attaching import UNANSWERED_MS
from antiphon.broker.home.unlogged_acks import Unlogged
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.sessions.lifecycle import HOME_IS_GONE
from antiphon.broker.machine.sessions.servers import GRACE_MS
from antiphon.broker.machine.topics import Subscription
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Kind, Membership, encode_membership
from antiphon.formats.journal import Local
from tests.broker.support.bare_broker import BareBroker
from tests.broker.support.homes import Client, Homes, open_consumer, publish

READER, SENDER, HEIR = 7, 8, 70
SOON = 1000
"""By then the log has heard of everything."""


class Cluster(Homes):
    """Three servers with local contexts, and somebody who sends, at the first one."""

    def __init__(self) -> None:
        super().__init__(3, local=True)
        self.members({1: 1, 2: 2, 3: 3})
        self._sender = self.attached(SENDER, 1)
        self._sent = 0

    def send(self, count: int, destination: str = "topic:t") -> None:
        self._sender.say(publish(SENDER, self._sent + 1, count, destination))
        self._sent += count


@pytest.fixture
def homes() -> Cluster:
    return Cluster()


def reader_at(homes: Homes, node: int, **options: object) -> Client:
    """A durable subscriber."""
    client = homes.attached(READER, node, client_id="anna")
    client.say(open_consumer(1, 1, "topic:t", durable="box", **options))
    return client


def ack(number: int, *ranges: tuple[int, int], consumer: int = 1) -> cw.Ack:
    return cw.Ack(number, tuple(cw.AckRow(consumer, first, last) for first, last in ranges))


def subscription(homes: Homes, node: int = 1) -> Subscription:
    subscriptions = homes.servers[node].broker.topics.subscriptions
    return next(s for key, s in subscriptions.items() if key.name == "box")


def in_the_log(homes: Cluster) -> list[str]:
    """The kinds of commands, in order."""
    payloads = [e.payload for e in homes.log if commands.is_command(e.payload)]
    return [type(c).__name__ for payload in payloads for c in commands.decode(payload)]


# -- Answering -----------------------------------------------------------------------------------


def test_an_acknowledgement_is_answered_when_the_own_journal_has_it(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    entries = len(homes.log)
    homes.servers[2].syncs = False
    assert reader.say(ack(1, (0, 3))) == []
    homes.servers[2].sync()
    homes.settle()
    assert reader.heard[-1] == cw.Acked(1)
    assert len(homes.log) == entries


def test_it_needs_no_leader(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    homes.new_leader(None)
    assert reader.say(ack(1, (0, 3))) == [cw.Acked(1)]


def test_the_log_hears_of_many_together(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 1)), ack(2, (2, 2)), ack(3, (3, 3)), ack(4, (5, 5)))
    assert subscription(homes).floor == 0
    homes.wait(SOON)
    assert (subscription(homes).floor, list(subscription(homes).acked)) == (3, [(5, 5, 1)])
    rows = [rows for acks in homes.commands(commands.Acks) for rows in acks.rows]
    assert rows == [(READER, (cw.AckRow(1, 0, 1), cw.AckRow(1, 2, 3), cw.AckRow(1, 5, 5)))]


def test_the_window_opens_again_with_the_own_journal(homes: Cluster) -> None:
    reader = reader_at(homes, 2, prefetch=2)
    homes.send(20)
    homes.new_leader(None)
    for n in range(1, 11):
        reader.say(ack(n, (0, 2 * n)))
    assert reader.deliveries()[-1] == (1, 19, 20, 1)


def test_acknowledgements_of_queues_go_into_the_log_and_answers_keep_their_order(
    homes: Cluster,
) -> None:
    reader = reader_at(homes, 2)
    reader.say(open_consumer(2, 2, "queue:q"))
    homes.send(3)
    homes.send(1, "queue:q")
    homes.paused = True
    assert reader.say(ack(1, (4, 4), consumer=2), ack(2, (0, 2))) == []
    homes.paused = False
    homes.settle()
    assert reader.heard[-1] == cw.Acked(2)


def test_answers_count_for_all_before_them() -> None:
    answers = Answers()
    for number, into_log in ((1, True), (2, False), (3, False), (4, True)):
        answers.add(number, into_log)
    assert answers.done(3, into_log=False) is None
    assert answers.done(1, into_log=True) == 3
    assert answers.done(4, into_log=True) == 4
    assert answers.done(4, into_log=True) is None


# -- Whatever else is said of a session comes after its acknowledgements --------------------------


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (lambda r: r.say(cw.Control(2, cw.CloseConsumer(1))), "Request"),
        (lambda r: r.say(cw.Control(2, cw.CloseSession())), "Request"),
        (lambda r: r.lose(), "Detach"),
    ],
)
def test_the_log_knows_before(homes: Cluster, happens: Callable[[Client], None], said: str) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 4)))
    before = len(in_the_log(homes))
    happens(reader)
    assert in_the_log(homes)[before:] == ["Acks", said]
    assert subscription(homes).floor == 4


def test_a_request_waits_for_acknowledgements_that_are_not_stored(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    homes.servers[2].syncs = False
    assert reader.say(ack(1, (0, 4)), cw.Control(2, cw.CloseConsumer(1))) == []
    homes.servers[2].sync()
    homes.settle()
    assert subscription(homes).floor == 4
    assert isinstance(reader.heard[-1], cw.Result)


def test_who_comes_back_to_its_server_gets_nothing_twice(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (2, 3)))
    reader.lose()
    again = homes.connect(2)
    again.attach(READER, 2, client_id="anna")
    assert again.deliveries() == [(1, 1, 1, 1), (1, 4, 5, 1)]


# -- Bound to a server ---------------------------------------------------------------------------


def test_another_server_redirects_and_the_home_lets_go(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 3)))
    elsewhere = homes.connect(3)
    assert elsewhere.attach(READER, 2, client_id="anna") == [cw.Redirect(2, "node-2")]
    assert reader.cut == "its client has turned to another server"
    # Its server has told what it knew: it may go on anywhere now.
    there = homes.connect(3)
    seen = (cw.Seen(1, 5, ()),)
    assert isinstance(there.attach(READER, 3, client_id="anna", seen=seen)[0], cw.Attached)
    assert there.deliveries() == []
    assert subscription(homes).floor == 3


def test_a_session_without_topics_goes_anywhere(homes: Cluster) -> None:
    homes.attached(READER, 2).say(open_consumer(1, 1, "queue:q"))
    assert isinstance(homes.connect(3).attach(READER, 2)[0], cw.Attached)


def test_a_closed_subscription_binds_nobody(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 3)), cw.Control(2, cw.CloseSession()))
    homes.kill(2)
    heir = homes.attached(HEIR, 3, client_id="anna")
    heir.say(open_consumer(1, 1, "topic:t", durable="box"))
    assert heir.deliveries() == [(1, 4, 5, 1)]


# -- A server is away ----------------------------------------------------------------------------


def dead_with_acknowledgements(homes: Cluster) -> None:
    """Messages 1 to 3 are acknowledged, and only server 2 knew that."""
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 3)))
    homes.kill(2)
    homes.wait(GRACE_MS + SOON)


def test_its_sessions_are_held(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    homes.wait(60_000, step=1000)
    homes.new_leader(3)
    homes.wait(60_000, step=1000)
    session = homes.servers[1].broker.sessions[READER]
    assert session.held
    assert session.detached
    assert subscription(homes).floor == 0
    assert homes.servers[1].broker.live() == ((1, 5),)


def test_sessions_without_topics_have_their_lease(homes: Cluster) -> None:
    homes.attached(READER, 2).say(open_consumer(1, 1, "queue:q"))
    homes.kill(2)
    homes.wait(GRACE_MS + 11_000)
    assert READER not in homes.servers[1].broker.sessions


def test_their_clients_are_redirected(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    resumed = homes.connect(3).attach(READER, 2, client_id="anna")
    assert resumed == [cw.Redirect(2, "node-2")]
    # So is a new program with the same client id: its subscription is not free.
    assert homes.connect(3).attach(99, client_id="anna") == [cw.Redirect(2, "node-2")]
    assert READER in homes.servers[1].broker.sessions
    # Who says that its session exists is told if it does not.
    assert isinstance(homes.connect(3).attach(98, 2, client_id="anna")[0], cw.Ended)


def test_it_comes_back_with_what_its_journal_has(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    before = len(in_the_log(homes))
    homes.restart(2)
    assert in_the_log(homes)[before:][:2] == ["Acks", "Begin"]
    assert subscription(homes).floor == 3
    session = homes.servers[1].broker.sessions[READER]
    assert (session.held, session.leased) == (False, True)
    again = homes.connect(3)
    again.attach(READER, 2, client_id="anna")
    assert again.deliveries() == [(1, 4, 5, 1)]


def test_its_clients_can_be_attached_only_when_it_has_begun(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    homes.paused = True
    homes.restart(2)
    again = homes.connect(2)
    again.attach(READER, 2, client_id="anna")
    homes.paused = False
    homes.settle()
    assert isinstance(again.heard[0], cw.Attached)
    assert again.deliveries() == [(1, 4, 5, 1)]


def test_who_does_not_come_back_in_time_loses_its_session(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    homes.restart(2)
    homes.wait(11_000)
    assert READER not in homes.servers[1].broker.sessions
    assert subscription(homes).floor == 3


def test_a_server_that_was_only_cut_off_lets_go_when_it_is_back(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    homes.lose_proposal = lambda payload: any(
        getattr(c, "node", 0) == 2 for c in commands.decode(payload)
    )
    reader.say(ack(1, (0, 3)))
    homes.wait(GRACE_MS + SOON)
    assert homes.servers[1].broker.sessions[READER].held
    homes.lose_proposal = lambda payload: False
    reader.lose()
    homes.wait(10_000)
    session = homes.servers[1].broker.sessions[READER]
    assert (session.held, session.leased) == (False, True)
    assert subscription(homes).floor == 3


def test_an_orderly_end_leaves_nobody_waiting(homes: Cluster) -> None:
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 3)))
    home = homes.servers[2].home
    assert not home.has_let_go
    home.let_go()
    homes.carry_out(homes.servers[2])
    homes.wait(SOON)
    assert home.has_let_go
    late = homes.connect(2)
    late.attach(READER, 2, client_id="anna")
    assert late.cut == "this server ends"
    homes.kill(2)
    there = homes.connect(3)
    there.attach(READER, 3, client_id="anna")
    assert there.deliveries() == [(1, 4, 5, 1)]


def coming_back(homes: Cluster) -> Client:
    """A durable subscriber who comes back to server 2, and is in the log but not attached yet."""
    reader_at(homes, 2).lose()
    homes.paused = True
    client = homes.connect(2)
    client.attach(READER, 2, client_id="anna")
    return client


def test_an_orderly_end_waits_for_who_was_about_to_be_attached(homes: Cluster) -> None:
    coming_back(homes)
    home = homes.servers[2].home
    home.let_go()
    homes.carry_out(homes.servers[2])
    assert not home.has_let_go
    homes.paused = False
    homes.wait(SOON)
    assert home.has_let_go
    assert homes.servers[1].broker.sessions[READER].leased


def test_an_orderly_end_waits_for_who_left_before_it_was_attached(homes: Cluster) -> None:
    coming_back(homes).lose()
    home = homes.servers[2].home
    home.let_go()
    assert not home.has_let_go
    homes.paused = False
    homes.wait(SOON)
    assert home.has_let_go


def test_an_orderly_end_does_not_wait_for_who_has_gone_elsewhere(homes: Cluster) -> None:
    homes.lose_proposal = lambda payload: any(
        isinstance(c, commands.Attach) and c.node == 2 for c in commands.decode(payload)
    )
    client = homes.connect(2)
    client.attach(READER, 1, client_id="anna")
    client.lose()
    home = homes.servers[2].home
    home.let_go()
    assert not home.has_let_go  # it may still come
    homes.attached(READER, 3, attempt=2, client_id="anna", resume=False)
    homes.wait(SOON)
    assert home.has_let_go


def test_an_orderly_end_does_not_wait_for_what_was_lost_on_its_way(homes: Cluster) -> None:
    homes.lose_proposal = lambda payload: any(
        isinstance(c, commands.Attach) for c in commands.decode(payload)
    )
    client = homes.connect(2)
    client.attach(READER, 1, client_id="anna")
    client.lose()
    homes.wait(UNANSWERED_MS + SOON)
    home = homes.servers[2].home
    home.let_go()
    assert home.has_let_go


# -- A server is gone for good -------------------------------------------------------------------


@pytest.mark.parametrize("members", [{1: 1, 3: 3}, {1: 1, 2: 22, 3: 3}], ids=["removed", "wiped"])
def test_what_it_alone_knew_is_lost_and_comes_again_flagged(
    homes: Cluster, members: dict[int, int]
) -> None:
    reader = reader_at(homes, 2, prefetch=1)
    homes.send(20)
    for n in range(1, 11):
        reader.say(ack(n, (0, n)))
    homes.kill(2)
    homes.members(members)
    assert isinstance(homes.connect(3).attach(READER, 2, client_id="anna")[0], cw.Ended)
    heir = homes.attached(HEIR, 3, client_id="anna")
    heir.say(open_consumer(1, 1, "topic:t", durable="box"))
    # More than its window allowed: nobody knows how much it had acknowledged.
    assert heir.deliveries() == [(1, 1, 20, 2)]


def test_a_session_that_is_lost_with_its_server_is_told_why() -> None:
    bare = BareBroker()
    bare.entry(Kind.MEMBERSHIP, encode_membership(servers(1, 2)))
    begin(bare, 2, opening=1, life=21)
    attach(bare, READER, 2, life=21)
    bare.open(READER, 1, "topic:t")
    bare.entry(Kind.MEMBERSHIP, encode_membership(servers(1)))
    assert bare.events == (ev.SessionEnded(READER, "ConnectionLostError", HOME_IS_GONE),)


def test_a_session_that_has_nothing_there_has_its_lease(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    for server in homes.servers.values():
        server.broker.sessions[READER].consumers.clear()
    homes.members({1: 1, 3: 3})
    assert homes.servers[1].broker.sessions[READER].leased


def test_nobody_is_bound_to_a_server_after_its_removal(homes: Cluster) -> None:
    """It has not heard of it yet, and goes on for a while."""
    client = homes.attached(READER, 2, client_id="anna")
    homes.members({1: 1, 3: 3})
    client.say(open_consumer(1, 1, "topic:t", durable="box"))
    homes.send(5)
    entries = len(homes.log)
    assert client.say(ack(1, (0, 3))) == [cw.Acked(1)]
    assert len(homes.log) > entries
    assert homes.servers[1].broker.sessions[READER].leased


# -- Lives ---------------------------------------------------------------------------------------


def servers(*nodes: int) -> Membership:
    return Membership(1, tuple(ClusterMember(node, 1, True, "") for node in nodes))


def begin(bare: BareBroker, node: int, opening: int, life: int, incarnation: int = 1) -> None:
    bare.command(commands.Begin(node, incarnation, opening, life))


def attach(
    bare: BareBroker, session: int, node: int, life: int, attempt: int = 1
) -> tuple[ev.Event, ...]:
    one = commands.Attach(
        session, b"t", attempt > 1, attempt, node, life, 1, "", 10_000, (), local=True
    )
    return bare.command(one)


def test_what_a_former_life_says_late_is_ignored() -> None:
    bare = BareBroker()
    begin(bare, 1, opening=1, life=11)
    begin(bare, 1, opening=2, life=12)
    begin(bare, 1, opening=1, life=11)
    assert attach(bare, READER, 1, life=11) == ()
    assert len(attach(bare, READER, 1, life=12)) == 1
    bare.command(commands.Renew(1, 11))
    assert bare.broker.servers.serving[1].life == 12


def test_who_is_no_server_any_more_does_not_begin() -> None:
    bare = BareBroker()
    member = Membership(1, (ClusterMember(1, 5, True, ""),))
    bare.entry(Kind.MEMBERSHIP, encode_membership(member))
    begin(bare, 1, opening=1, life=11, incarnation=4)
    begin(bare, 2, opening=1, life=21, incarnation=5)
    assert bare.broker.servers.lives == {}
    begin(bare, 1, opening=1, life=11, incarnation=5)
    assert [*bare.broker.servers.lives] == [1]


def test_all_servers_do_the_same() -> None:
    bare = BareBroker()
    begin(bare, 1, opening=1, life=11)
    bare.command(commands.Attach(READER, b"t", False, 1, 2, 21, 1, "", 10_000, ()))
    assert bare.broker.sessions == {}
    bare = BareBroker()
    bare.attach(READER)
    begin(bare, 2, opening=1, life=21)
    assert attach(bare, HEIR, 2, life=21) == ()
    assert bare.broker.servers.contexts == "replicated"


def test_a_snapshot_has_all_of_it(homes: Cluster) -> None:
    dead_with_acknowledgements(homes)
    broker = homes.servers[1].broker
    snapshot = list(broker.snapshot())
    bare = BareBroker()
    bare.broker.restore(iter(snapshot))
    assert list(bare.broker.snapshot()) == snapshot
    assert bare.broker.sessions[READER].held
    assert (bare.broker.servers.contexts, bare.broker.servers.lives) == (
        broker.servers.contexts,
        broker.servers.lives,
    )
    assert bare.broker.servers.incarnations == {1: 1, 2: 2, 3: 3}
    assert READER not in [key for _, _, key in bare.broker.deadlines]


# -- Members of groups ---------------------------------------------------------------------------


def join(homes: Homes, node: int, session: int, name: str) -> tuple[Client, cw.Result]:
    client = homes.attached(session, node)
    asked = cw.Join(1, "topic:g", 100, name, durable=True, takes_state=False)
    result = client.say(cw.Control(1, asked))[0]
    assert isinstance(result, cw.Result)
    return client, result


def test_a_durable_member_whose_server_is_away_keeps_its_place(homes: Cluster) -> None:
    one, _ = join(homes, 2, READER, "one")
    join(homes, 3, 71, "other")
    homes.send(1)
    homes.send(3, "topic:g")
    one.say(cw.Ack(1, (cw.AckRow(1, 0, 3, event=2),)))
    homes.kill(2)
    homes.wait(GRACE_MS + 2000)
    group = homes.servers[1].broker.groups["topic:g"]
    assert group.members["one"].suspected
    _, refused = join(homes, 3, 72, "one")
    assert refused.code == "IllegalStateError"
    assert "server 2 alone knows how far that member was" in refused.text
    homes.restart(2)
    heir, resumed = join(homes, 3, 73, "one")
    assert resumed.code == ""
    assert heir.deliveries() == [(1, 4, 4, 2)]
    assert heir.told(cw.Happened)[0].event.serial == 3


def test_the_report_says_whom_a_member_waits_for(homes: Cluster) -> None:
    from antiphon.broker.machine.groups import report

    join(homes, 2, READER, "one")
    homes.kill(2)
    homes.wait(GRACE_MS + 2000)
    [group] = report.groups(homes.servers[1].broker)
    assert group.members[0].why == "its server 2 is away"


# -- What is not in the log ----------------------------------------------------------------------


def row(first: int, last: int, consumer: int = 1, event: int = 0, state: int = 0) -> cw.AckRow:
    return cw.AckRow(consumer, first, last, event, state)


def test_acknowledgements_are_put_together() -> None:
    unlogged = Unlogged()
    unlogged.add(((7, (row(0, 3, event=2), row(8, 8))), (8, (row(1, 1),))))
    unlogged.add(((7, (row(5, 6), row(0, 5, state=4), row(7, 7))),))
    assert unlogged.leave(7) == [(1, 7, (row(0, 5, event=2, state=4), row(6, 8)))]
    assert unlogged.leave(7) == []
    assert unlogged.leave() == [(2, 8, (row(1, 1),))]


def test_they_stay_until_the_log_has_them() -> None:
    unlogged = Unlogged([((7, (row(0, 3),)), (8, (row(0, 4),)))])
    unlogged.leave()
    unlogged.add(((7, (row(0, 5),)),))
    assert (unlogged.last_of(7), unlogged.last_of(8), unlogged.last_of()) == (1, 2, 2)
    unlogged.logged(1)
    assert (unlogged.last_of(7), unlogged.last_of(8)) == (0, 2)
    assert [rows for piece in unlogged.pieces() for rows in piece] == [
        (8, (row(0, 4),)),
        (7, (row(0, 5),)),
    ]
    unlogged.logged(2)
    assert len(unlogged) == 1


def test_a_journal_gets_them_in_pieces_of_which_the_first_takes_the_place_of_all_before(
    homes: Cluster,
) -> None:
    assert homes.servers[2].home.kept() == (Local(whole=True, data=commands.encode_rows(())),)
    reader = reader_at(homes, 2)
    homes.send(5)
    reader.say(ack(1, (0, 3)))
    [kept] = homes.servers[2].home.kept()
    assert commands.decode_rows(kept.data) == ((READER, (row(0, 3),)),)
    many = Unlogged([tuple((session, (row(0, 1),)) for session in range(10_000))])
    assert [len(piece) for piece in many.pieces()] == [4096, 4096, 1808]


def test_without_local_contexts_there_is_nothing_to_keep() -> None:
    assert Homes().servers[1].home.kept() == ()
