"""A home and its clients, on a log that is a list."""

from typing import Any

import pytest

from antiphon.broker.home.settings import HomeSettings
from antiphon.formats import commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import PLAIN, Extra
from antiphon.formats.entry import Kind
from antiphon.model.redelivery import Redelivery
from tests.broker.support.homes import TOKEN, Homes, open_consumer, publish, publish_each

A, B = 0xA, 0xB


# -- Attaching -------------------------------------------------------------------------------------


def test_a_session_is_opened_and_the_secret_is_not_in_the_log() -> None:
    homes = Homes()
    client = homes.connect()
    heartbeat_ms = HomeSettings().heartbeat_ms
    attached = cw.Attached(A, 1, ((0, 0),), (), heartbeat_ms, cw.PACK_MAX, redelivery=Redelivery())
    assert client.attach(A) == [attached]
    assert all(TOKEN not in entry.payload for entry in homes.log)


def test_who_comes_elsewhere_is_let_go_here() -> None:
    homes = Homes(servers=2)
    first = homes.attached(A, node=1)
    second = homes.connect(node=2)
    (attached,) = second.attach(A, attempt=2)
    assert isinstance(attached, cw.Attached)
    assert attached.attachment == 2
    assert first.cut == "its session goes on at another connection"
    assert homes.commands(commands.Detach) == []  # nothing was lost
    homes.wait(30_000)
    assert homes.servers[2].home.counts()["sessions"] == 0  # nobody pinged


def test_an_older_attempt_does_not_win_the_session_back() -> None:
    homes = Homes(servers=2)
    slow = homes.connect(node=1)
    homes.lose_proposal = lambda payload: True
    slow.attach(A)
    homes.lose_proposal = lambda payload: False
    quick = homes.attached(A, node=2, attempt=2, resume=False)
    homes.new_leader(2)  # now the first proposal is made again
    assert slow.heard == []
    assert quick.cut is None
    assert homes.servers[1].broker.sessions[A].node == 2


@pytest.mark.parametrize("why", ["new leader", "no answer"])
def test_who_waits_does_not_take_its_client_id_from_who_came_later(why: str) -> None:
    """It may be a program that died in silence, and came again elsewhere."""
    homes = Homes(servers=3)
    homes.new_leader(3)
    homes.lose_proposal = lambda payload: True
    dead = homes.connect(node=1)
    dead.attach(A, client_id="c")
    homes.lose_proposal = lambda payload: False
    homes.attached(B, node=2, client_id="c").lose()
    if why == "new leader":
        homes.new_leader(2)
    else:
        homes.wait(2000)
    assert dead.cut == "another connection has taken its client id since it asked"
    assert homes.servers[1].broker.sessions.client_ids == {"c": B}
    alive = homes.connect(node=1)
    assert isinstance(alive.attach(A, client_id="c", attempt=2, resume=False)[0], cw.Attached)


def test_a_session_that_cannot_be_resumed_is_over() -> None:
    homes = Homes()
    client = homes.connect()
    (ended,) = client.attach(A, attempt=2)
    assert isinstance(ended, cw.Ended)
    assert ended.code == "ConnectionLostError"
    assert client.cut == ""


@pytest.mark.parametrize("given", [{"user": "anna"}, {"password": "secret"}])
def test_who_has_a_user_is_refused_since_nobody_checks_it(given: dict[str, str]) -> None:
    homes = Homes()
    client = homes.connect()
    (ended,) = client.attach(A, **given)
    assert isinstance(ended, cw.Ended)
    assert (ended.code, client.cut) == ("SecurityError", "")
    assert not homes.log
    assert isinstance(homes.connect().attach(A)[0], cw.Attached)


def test_another_token_opens_nothing() -> None:
    homes = Homes()
    owner = homes.attached(A)
    thief = homes.connect()
    (ended,) = thief.attach(A, attempt=2, token=bytes(16))
    assert isinstance(ended, cw.Ended)
    assert ended.code == "SecurityError"
    assert owner.cut is None


def test_a_lost_connection_is_told_to_the_log_until_it_is_known() -> None:
    homes = Homes()
    client = homes.attached(A)
    homes.leader = None
    client.lose()
    assert homes.commands(commands.Detach) == []
    homes.new_leader(1)
    assert homes.commands(commands.Detach) == [commands.Detach(A, 1)]
    assert homes.servers[1].broker.sessions[A].detached
    homes.wait(1000)
    assert len(homes.commands(commands.Detach)) == 1
    assert homes.servers[1].home.counts()["commands"] == 0


def test_who_leaves_while_being_attached_is_detached() -> None:
    homes = Homes()
    homes.paused = True
    client = homes.connect()
    client.attach(A)
    client.lose()
    homes.paused = False
    homes.settle()
    assert homes.servers[1].broker.sessions[A].detached
    assert client.heard == []


def test_a_home_with_clients_renews_and_one_without_does_not() -> None:
    homes = Homes(heartbeat_ms=60_000)
    homes.wait(3000)
    assert homes.commands(commands.Renew) == []
    client = homes.attached(A)
    homes.wait(20_000)  # longer than the lease
    assert client.cut is None
    assert 15 <= len(homes.commands(commands.Renew)) <= 21
    client.say(cw.Control(1, cw.CloseSession()))
    seen = len(homes.commands(commands.Renew))
    homes.wait(5000)
    assert len(homes.commands(commands.Renew)) <= seen + 1


def test_a_silent_client_is_cut_off_and_its_lease_begins() -> None:
    homes = Homes(heartbeat_ms=1000)
    silent, talker = homes.attached(A), homes.attached(B)
    for _ in range(8):
        homes.wait(500)
        assert talker.say(cw.Ping()) == [cw.Pong()]
    assert silent.cut == "it has said nothing for 3 s"
    assert homes.servers[1].broker.sessions[A].detached
    assert talker.cut is None


def test_a_server_that_stood_still_blames_nobody() -> None:
    homes = Homes(heartbeat_ms=500)
    client = homes.attached(A)
    homes.wait(2500, step=2500)
    assert client.cut is None
    homes.wait(3000)
    assert client.cut == "it has said nothing for 1.5 s"


def test_a_server_that_the_others_do_not_hear_sends_its_clients_away() -> None:
    homes = Homes(heartbeat_ms=1000)
    client = homes.attached(A)
    homes.lose_proposal = lambda payload: True
    for _ in range(10):
        homes.wait(500)
        client.say(cw.Ping())
    assert client.cut == "this server has lost touch with the others"


def test_who_hears_no_leader_attaches_nobody_for_long() -> None:
    homes = Homes(2, heartbeat_ms=500)
    homes.new_leader(None)
    early = homes.connect()
    early.attach(A)
    homes.wait(1000)
    early.say(cw.Ping())
    homes.wait(750)
    assert early.cut is None  # an election may take so long
    homes.wait(750)
    assert early.cut == "this server hears no leader"
    late = homes.connect()
    late.attach(B)
    assert late.cut == "this server hears no leader"
    homes.new_leader(2)
    again = homes.connect()
    assert isinstance(again.attach(B)[0], cw.Attached)


def test_who_hears_its_leader_again_attaches_who_waits() -> None:
    homes = Homes(2, heartbeat_ms=500)
    homes.new_leader(None)
    client = homes.connect()
    client.attach(A)
    homes.wait(1250)
    homes.new_leader(2)
    homes.wait(250)
    assert client.told(cw.Attached)


def test_a_client_that_was_taken_for_lost_meanwhile_comes_again() -> None:
    homes = Homes(heartbeat_ms=10_000)
    client = homes.attached(A)
    homes.lose_proposal = lambda payload: True
    homes.wait(5000)
    homes.lose_proposal = lambda payload: False
    homes.wait(6000)
    assert client.cut == "the other servers took it for lost"


def test_a_session_that_ends_is_told_and_forgotten() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t"))
    answers = client.say(cw.Control(2, cw.CloseSession()))
    assert answers == [cw.Result(2), cw.Ended("", "")]
    assert client.cut == ""
    counts = homes.servers[1].home.counts()
    assert {name: counts[name] for name in ("links", "sessions", "commands", "waiting_bytes")} == {
        "links": 0,
        "sessions": 0,
        "commands": 0,
        "waiting_bytes": 0,
    }
    assert homes.servers[1].home.dispatcher.counts()["consumers"] == 0


def test_after_a_jump_of_the_state_everybody_comes_again() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t"))
    homes.servers[1].home.restored()
    homes.carry_out(homes.servers[1])
    assert client.cut is not None
    again = homes.attached(A, attempt=2)
    again.say(publish(A, 1))
    assert again.deliveries() == [(1, 1, 1, 1)]


def test_who_left_before_the_state_jumped_past_its_attachment_is_not_held_to_be_there() -> None:
    """Nobody told its server that it was attached: nobody would ever say that it is gone."""
    homes = Homes(2)
    behind = homes.servers[2]
    behind.lags = True
    client = homes.connect(2)
    client.attach(A, client_id="a")
    client.lose()
    assert homes.commands(commands.Detach) == []
    behind.broker.restore(homes.servers[1].broker.snapshot())
    behind.applied = len(homes.log)
    behind.lags = False
    behind.home.restored()
    homes.settle()
    assert homes.commands(commands.Detach) == [commands.Detach(A, 1)]
    homes.attached(B, client_id="a")


def test_who_leaves_after_the_state_jumped_past_its_attachment_is_not_held_to_be_there() -> None:
    homes = Homes(2)
    behind = homes.servers[2]
    behind.lags = True
    client = homes.connect(2)
    client.attach(A, client_id="a")
    behind.broker.restore(homes.servers[1].broker.snapshot())
    behind.applied = len(homes.log)
    behind.lags = False
    behind.home.restored()
    client.lose()
    assert homes.commands(commands.Detach) == [commands.Detach(A, 1)]


# -- Publishing ------------------------------------------------------------------------------------


def test_a_pack_is_answered_when_it_is_applied() -> None:
    homes = Homes()
    client = homes.attached(A)
    homes.paused = True
    assert client.say(publish(A, 1, 3)) == []
    homes.paused = False
    homes.settle()
    assert client.heard[-1] == cw.Published(0, 3)


def test_a_non_persistent_pack_is_answered_at_once() -> None:
    homes = Homes()
    client = homes.attached(A)
    homes.paused = True
    assert client.say(publish(A, 1, persistent=False)) == [cw.Published(0, 1)]
    # But not before a persistent one that waits: the answer would count for both.
    assert client.say(publish(A, 2), publish(A, 3, persistent=False)) == []
    homes.paused = False
    homes.settle()
    assert client.heard[-1] == cw.Published(0, 3)
    assert len(client.told(cw.Published)) == 2


def test_producers_are_answered_each_for_itself() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(cw.Control(1, cw.OpenProducer(1, "pump")))
    answers = client.say(publish(A, 1, 2), publish(A, 1, 5, producer=1))
    assert answers == [cw.Published(0, 2), cw.Published(1, 5)]
    client.say(publish(A, 1, producer=2))
    assert client.heard[-1] == cw.Refused("there is no producer 2 in this session")


def test_what_was_lost_on_its_way_is_proposed_again() -> None:
    homes = Homes(servers=2)
    client = homes.attached(A, node=2)
    homes.lose_proposal = lambda payload: not commands.is_command(payload)
    client.say(publish(A, 1), publish(A, 2))
    homes.lose_proposal = lambda payload: False
    homes.wait(2000)
    assert client.heard[-1] == cw.Published(0, 2)
    assert homes.packs() == [publish(A, 1).pack, publish(A, 2).pack]


def test_a_new_leader_is_given_everything_that_waits_in_order() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(cw.Control(1, cw.OpenProducer(1, "pump")))
    homes.lose_proposal = lambda payload: True
    packs = [publish(A, 1), publish(A, 1, producer=1), publish(A, 2), publish(A, 2, producer=1)]
    client.say(*packs)
    homes.lose_proposal = lambda payload: False
    homes.new_leader(1)
    assert homes.packs() == [one.pack for one in packs]


def test_what_a_leader_rejected_is_proposed_again_a_little_later() -> None:
    homes = Homes()
    client = homes.attached(A)
    home = homes.servers[1].home
    lost: list[bytes] = []
    homes.lose_proposal = lambda payload: bool(lost.append(payload)) or True
    client.say(publish(A, 1), open_consumer(1, 1, "topic:t"))
    home.rejected(tuple(lost), homes.now_ms)
    homes.lose_proposal = lambda payload: False
    assert client.heard[1:] == []
    homes.wait(500)
    assert client.heard[1:] == [cw.Result(1, value=1), cw.Published(0, 1)]


def test_refused_packs_are_told_before_the_answer_that_covers_them() -> None:
    homes = Homes()
    client = homes.attached(A)
    answers = client.say(publish(A, 1), publish(A, 2, destination="topic:*"), publish(A, 3))
    assert [type(answer) for answer in answers] == [cw.NotPublished, cw.Published]
    assert answers[-1] == cw.Published(0, 3)
    again = homes.connect()
    (attached,) = again.attach(A, attempt=2)
    assert isinstance(attached, cw.Attached)
    assert attached.published == ((0, 3),)
    assert [(r.first, r.last) for r in attached.refused] == [(2, 2)]


def test_what_is_settled_is_answered_again() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(publish(A, 1, 3))
    assert client.say(publish(A, 1, 3)) == [cw.Published(0, 3)]
    assert len(homes.packs()) == 1


def test_a_client_that_sends_too_much_is_held_back_until_half_is_left() -> None:
    homes = Homes(client_window_bytes=10_000)
    client, other = homes.attached(A), homes.attached(B)
    homes.paused = True
    client.say(*(publish(A, number, size=1000) for number in range(1, 8)))
    assert not client.held
    client.say(*(publish(A, number, size=1000) for number in range(8, 12)))
    assert client.held
    assert not other.held
    homes.paused = False
    homes.settle()
    assert not client.held
    assert homes.servers[1].home.counts()["waiting_bytes"] == 0


def test_a_client_that_is_held_back_hears_that_the_server_lives() -> None:
    """Its pings wait with the rest; it must not leave, and send all of it again elsewhere."""
    homes = Homes(client_window_bytes=10_000, heartbeat_ms=1000)
    client, other = homes.attached(A), homes.attached(B)
    homes.paused = True
    client.say(publish(A, 1, size=11_000))
    assert client.held
    homes.wait(2000)
    assert len(client.told(cw.Pong)) == 2
    assert other.told(cw.Pong) == []


def test_clients_together_are_held_back_too() -> None:
    homes = Homes(window_bytes=10_000)
    one, two = homes.attached(A), homes.attached(B)
    homes.paused = True
    one.say(publish(A, 1, size=6000))
    two.say(publish(B, 1, size=6000))
    assert (one.held, two.held) == (False, True)
    two.lose()  # who leaves waits for nothing
    assert homes.servers[1].home.counts()["waiting_bytes"] < 7000


# -- Asking ----------------------------------------------------------------------------------------


def test_a_request_is_answered_once_and_again_if_it_comes_again() -> None:
    homes = Homes()
    client = homes.attached(A)
    assert client.say(open_consumer(1, 7, "topic:t")) == [cw.Result(1)]
    assert client.say(open_consumer(1, 7, "topic:t")) == [cw.Result(1)]
    (wrong,) = client.say(open_consumer(2, 7, "topic:t"))
    assert isinstance(wrong, cw.Result)
    assert wrong.code == "IllegalStateError"


def test_one_request_at_a_time() -> None:
    homes = Homes()
    client = homes.attached(A)
    homes.paused = True
    client.say(open_consumer(1, 1, "topic:t"), open_consumer(1, 1, "topic:t"))
    assert client.cut is None
    client.say(open_consumer(2, 2, "topic:t"))
    assert client.heard[-1] == cw.Refused("request 2 before 1 is answered")


def test_a_request_that_comes_again_does_not_stand_in_the_way_of_the_next() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t"))
    homes.paused = True
    assert client.say(open_consumer(1, 1, "topic:t")) == [cw.Result(1)]
    assert client.say(open_consumer(2, 2, "topic:t")) == []
    homes.paused = False
    homes.settle()
    assert client.heard[-1] == cw.Result(2)


# -- Acknowledging ---------------------------------------------------------------------------------


def test_acknowledgements_of_all_clients_go_as_one_command() -> None:
    homes = Homes()
    one, two = homes.attached(A), homes.attached(B)
    for client, session in ((one, A), (two, B)):
        client.say(open_consumer(1, 1, f"topic:{session}"))
        client.say(publish(session, 1, 4, f"topic:{session}"))
    homes.paused = True
    one.say(cw.Ack(1, (cw.AckRow(1, 0, 1),)))  # is on its way alone
    one.say(cw.Ack(2, (cw.AckRow(1, 0, 2),)))
    one.say(cw.Ack(3, (cw.AckRow(1, 0, 3),)))
    two.say(cw.Ack(1, (cw.AckRow(1, 0, 6),)))
    assert one.told(cw.Acked) == []
    homes.paused = False
    homes.settle()
    assert one.told(cw.Acked) == [cw.Acked(1), cw.Acked(3)]
    assert two.told(cw.Acked) == [cw.Acked(1)]
    assert [len(acks.rows) for acks in homes.commands(commands.Acks)] == [1, 3]
    broker = homes.servers[1].broker
    assert sorted(s.floor for s in broker.topics.subscriptions.values()) == [3, 6]


def test_a_consumer_is_closed_behind_the_acknowledgements_that_came_before() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "queue:q"), publish(A, 1, 4, "queue:q"))
    homes.paused = True
    client.say(cw.Ack(1, (cw.AckRow(1, 1, 1),)))
    client.say(cw.Ack(2, (cw.AckRow(1, 2, 3),)), cw.Control(2, cw.CloseConsumer(1)))
    homes.paused = False
    homes.settle()
    assert client.heard[-3:] == [cw.Acked(1), cw.Acked(2), cw.Result(2)]
    assert homes.servers[1].broker.queues["queue:q"].count == 1


def test_a_commit_opens_the_window() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2))
    client.say(publish(A, 1, 5))
    client.say(cw.Control(2, cw.Commit((cw.AckRow(1, 0, 2),), ())))
    assert client.deliveries() == [(1, 1, 2, 1), (1, 3, 4, 1)]


def test_a_refused_commit_does_not_open_the_window() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2))
    client.say(publish(A, 1, 5))
    commit = cw.Commit((cw.AckRow(1, 0, 2),), (), staged=("nothing",))
    (result,) = client.say(cw.Control(2, commit))
    assert isinstance(result, cw.Result)
    assert result.code == "TransactionRolledBackError"
    assert client.deliveries() == [(1, 1, 2, 1)]


def test_a_commit_opens_the_window_when_its_client_asks_for_the_answer_again() -> None:
    """It was made through another connection, and came into the log behind the new one."""
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2))
    client.say(publish(A, 1, 5))
    again = homes.connect()
    again.attach(A, attempt=2, sequences=((0, 6),), seen=(cw.Seen(1, 2, ()),))
    commit = cw.Commit((cw.AckRow(1, 0, 2),), ())
    homes.append(Kind.PACK, commands.encode([commands.Request(A, 2, commit)]))
    homes.settle()
    assert again.deliveries() == []
    again.say(cw.Control(2, commit))
    assert again.told(cw.Result) == [cw.Result(2, value=1)]
    assert again.deliveries() == [(1, 3, 4, 1)]


def test_lost_acknowledgements_are_proposed_again() -> None:
    homes = Homes(servers=2)
    client = homes.attached(A, node=2)
    client.say(open_consumer(1, 1, "topic:t"), publish(A, 1, 4))
    homes.lose_proposal = lambda payload: True
    client.say(cw.Ack(1, (cw.AckRow(1, 0, 4),)))
    homes.lose_proposal = lambda payload: False
    homes.wait(2000)
    assert client.told(cw.Acked) == [cw.Acked(1)]


def test_many_acknowledgements_are_bounded_by_holding_the_client_back() -> None:
    homes = Homes(client_window_bytes=10_000)
    client = homes.attached(A)
    homes.paused = True
    rows = tuple(cw.AckRow(1, n, n) for n in range(1, 101))
    client.say(*(cw.Ack(number, rows) for number in range(1, 5)))
    assert client.held
    homes.paused = False
    homes.settle()
    assert not client.held
    assert client.heard[-1] == cw.Acked(4)


# -- Transactions ----------------------------------------------------------------------------------


def staged(session: int, sequence: int, destination: str = "queue:q") -> cw.Publish:
    return publish_each(session, sequence, PLAIN, destination=destination, flags=pack.STAGED)


def commit(number: int, first: int, last: int, **more: Any) -> cw.Control:
    return cw.Control(number, cw.Commit((), ((0, first, last),), **more))


@pytest.mark.parametrize("leads", [True, False])
def test_a_commit_that_was_ordered_before_its_packs_is_proposed_again_behind_them(
    leads: bool,
) -> None:
    homes = Homes(servers=2)
    client = homes.attached(A, node=1 if leads else 2)
    homes.lose_proposal = lambda payload: not commands.is_command(payload)
    client.say(staged(A, 1), staged(A, 2), commit(1, 1, 2))
    assert len(homes.commands(commands.Request)) == 1
    assert client.told(cw.Result) == []
    for sequence in (1, 2):  # they were on their way all the time
        homes.append(Kind.PACK, staged(A, sequence).pack)
        homes.settle()
    assert client.told(cw.Result) == [cw.Result(1, value=1)]
    assert all(server.broker.position == 2 for server in homes.servers.values())
    homes.wait(5000)
    assert len(homes.commands(commands.Request)) == 3  # too early twice


def test_a_commit_that_comes_behind_its_packs_is_proposed_once() -> None:
    homes = Homes()
    client = homes.attached(A)
    homes.paused = True
    client.say(staged(A, 1), commit(1, 1, 1))
    homes.paused = False
    client.say(cw.Ping())
    assert client.told(cw.Result) == [cw.Result(1, value=1)]
    assert client.told(cw.Published) == [cw.Published(0, 1)]
    homes.wait(5000)
    assert len(homes.commands(commands.Request)) == 1


def test_only_the_request_that_came_too_early_is_proposed_again() -> None:
    homes = Homes()
    client, other = homes.attached(A), homes.attached(B)
    client.say(staged(A, 1), staged(A, 2))
    # Another server's copy of what was answered long ago.
    homes.append(Kind.PACK, commands.encode([commands.Request(A, 1, cw.Discard(((0, 9, 9),)))]))
    other.say(publish(B, 1))
    client.say(staged(A, 3), commit(1, 1, 3))
    assert client.told(cw.Result) == [cw.Result(1, value=1)]
    assert len(homes.commands(commands.Request)) == 2


def test_what_is_committed_is_delivered_and_what_was_staged_is_answered_like_any_message() -> None:
    homes = Homes()
    reader, client = homes.attached(B), homes.attached(A)
    reader.say(open_consumer(1, 1, "queue:q"))
    reader.say(open_consumer(2, 2, "topic:t"))
    assert client.say(staged(A, 1), staged(A, 2, "topic:t")) == [cw.Published(0, 2)]
    assert reader.deliveries() == []
    client.say(commit(1, 1, 2))
    assert sorted(reader.deliveries()) == [(1, 1, 1, 1), (2, 2, 2, 1)]


def test_a_client_that_comes_again_in_the_middle_of_a_commit_gets_its_answer() -> None:
    homes = Homes(servers=2)
    client = homes.attached(A)
    client.say(staged(A, 1))
    homes.paused = True
    client.say(commit(1, 1, 1))
    client.lose()
    homes.paused = False
    again = homes.attached(A, node=2, attempt=2, sequences=((0, 2),))
    assert again.say(commit(1, 1, 1)) == [cw.Result(1, value=1)]
    assert homes.servers[1].broker.position == 1


def test_a_refused_pack_is_told_and_its_commit_is_rolled_back() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(staged(A, 1), staged(A, 2, "topic:b.*"))
    (result,) = client.say(commit(1, 1, 2))
    assert isinstance(result, cw.Result)
    assert result.code == "TransactionRolledBackError"
    assert "has a wildcard" in result.text


# -- Nonsense --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (cw.Publish(b"no pack"), "a pack has at least"),
        (cw.Publish(pack.encode("topic:t", 3, b"no columns", A, 1)), "no room for 3 messages"),
        (publish(B, 1), "session 11 on the connection of 10"),
        (publish(A, 5), "message 5 after 0"),
        (cw.Control(9, cw.CloseSession()), "request 9 after 0"),
        (cw.Ack(1, (cw.AckRow(1, 5, 4),)), "not a range of positions"),
        (cw.Ack(1, (cw.AckRow(1, 1, 2, kind=cw.CLAIM),)), "only servers choose"),
        (cw.Ack(1, (cw.AckRow(1, 1, 2, kind=cw.SKIP),)), "only servers choose"),
        (cw.Attach(A, TOKEN, False, 1, "", 1000, (), ()), "attached once"),
    ],
)
def test_nonsense_is_told_and_costs_only_its_sender(request_: cw.Request, reason: str) -> None:
    homes = Homes()
    client, other = homes.attached(A), homes.attached(B)
    client.say(request_)
    refused = client.heard[-1]
    assert isinstance(refused, cw.Refused)
    assert reason in refused.reason
    assert client.cut == refused.reason
    assert client.say(publish(A, 1)) == []  # nothing is heard from it any more
    assert other.say(publish(B, 1)) == [cw.Published(0, 1)]
    assert homes.servers[1].broker.sessions[A].detached


def test_a_home_takes_requests_of_sessions_only() -> None:
    homes = Homes()
    client = homes.attached(A)
    homes.servers[1].home.received(client.link, cw.AskStatus(), homes.now_ms)
    homes.carry_out(homes.servers[1])
    assert client.cut == "AskStatus is not a request of a session"


@pytest.mark.parametrize(
    "attach",
    [
        cw.Attach(0, TOKEN, False, 1, "", 1000, (), ()),
        cw.Attach(1 << 63, TOKEN, False, 1, "", 1000, (), ()),
        cw.Attach(A, b"short", False, 1, "", 1000, (), ()),
        cw.Attach(A, TOKEN, False, 1, "x" * 2000, 1000, (), ()),
        cw.Attach(A, TOKEN, False, 1, "", 1000, ((0, 1),) * 20_000, ()),
    ],
)
def test_what_cannot_be_attached_is_refused(attach: cw.Attach) -> None:
    homes = Homes()
    client = homes.connect()
    (answer,) = client.say(attach)
    assert isinstance(answer, cw.Refused)
    assert homes.log == []


def test_nothing_is_taken_before_a_session_is_attached() -> None:
    homes = Homes()
    client = homes.connect()
    assert client.say(publish(A, 1)) == [
        cw.Refused("nothing can be asked before the session is attached")
    ]


# -- Dead letters ----------------------------------------------------------------------------------


def test_dead_letters_do_not_expire() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "queue:q"))
    client.say(publish_each(A, 1, Extra(time_to_live=100), destination="queue:q"))
    client.say(cw.Ack(1, (cw.AckRow(1, 1, 1, kind=cw.DEAD, reason="bad"),)))
    homes.wait(1000)
    client.say(open_consumer(2, 2, "queue:DLQ", browse=True))
    client.say(open_consumer(3, 3, "queue:DLQ"))
    letters = [d for d in client.told(cw.Deliver) if d.consumer > 1]
    assert [(d.consumer, d.position, d.reason) for d in letters] == [(2, 1, "bad"), (3, 1, "bad")]
