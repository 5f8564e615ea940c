"""Large packs at a home: they arrive and are ordered by turns, and nobody else waits for them."""

from antiphon.broker.home.acknowledging import ACK_ROW_BYTES
from antiphon.broker.home.connections import TURNS
from antiphon.broker.home.incoming_packs import LARGE_BYTES
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from tests.broker.support.homes import Homes, publish

A, B, C = 0xA, 0xB, 0xC
LARGE = LARGE_BYTES + 1


def test_large_packs_are_proposed_one_at_a_time_and_small_ones_between() -> None:
    homes = Homes()
    one, two, other = homes.attached(A), homes.attached(B), homes.attached(C)
    homes.paused = True
    one.say(publish(A, 1), publish(A, 2, size=LARGE), publish(A, 3))
    two.say(publish(B, 1, size=LARGE), publish(B, 2))
    other.say(publish(C, 1))
    one.say(publish(A, 4))  # what it has sent before must not be overtaken
    assert order(homes) == [(A, 1), (A, 2), (C, 1)]
    homes.paused = False
    homes.settle()
    assert order(homes) == [(A, 1), (A, 2), (C, 1), (B, 1), (A, 3), (A, 4), (B, 2)]
    assert one.heard[-1] == cw.Published(0, 4)
    assert two.heard[-1] == cw.Published(0, 2)


def order(homes: Homes) -> list[tuple[int, int]]:
    headers = [pack.read_header(data) for data in homes.packs()]
    return [(header.session, header.sequence) for header in headers]


def test_a_large_pack_holds_back_nobody_else() -> None:
    homes = Homes(window_bytes=10_000)
    one, two = homes.attached(A), homes.attached(B)
    homes.paused = True
    one.say(publish(A, 1, size=LARGE))
    two.say(publish(B, 1, size=6000))
    assert (one.held, two.held) == (False, False)
    homes.paused = False
    homes.settle()
    assert (one.held, two.held) == (False, False)
    assert homes.servers[1].home.counts()["waiting_bytes"] == 0


def test_large_packs_arrive_by_turns() -> None:
    homes = Homes(heartbeat_ms=1000)
    home = homes.servers[1].home
    clients = [homes.attached(A + n) for n in range(TURNS + 2)]
    for client in clients:
        for _ in range(2):  # pieces
            home.begun(client.link, LARGE + 10_000, homes.now_ms)
    homes.carry_out(homes.servers[1])
    assert [client.held for client in clients] == [False] * TURNS + [True] * 2
    homes.wait(1000)
    assert clients[-1].told(cw.Pong)  # so that it waits
    clients[1].lose()
    clients[0].say(publish(A, 1, size=LARGE))
    assert [client.held for client in clients[TURNS:]] == [False] * 2


def test_a_large_pack_that_is_settled_already_ends_its_turn() -> None:
    homes = Homes()
    home = homes.servers[1].home
    client = homes.attached(A)
    client.say(publish(A, 1, size=LARGE))
    others = [homes.attached(A + n) for n in range(1, TURNS + 1)]
    for each in (client, *others):
        home.begun(each.link, LARGE + 10_000, homes.now_ms)
    client.say(publish(A, 1, size=LARGE))  # again
    assert not others[-1].held


def test_a_large_pack_that_was_lost_is_proposed_again() -> None:
    homes = Homes(2)
    homes.leader = 2
    client, other = homes.attached(A), homes.attached(B)
    lost: list[bytes] = []
    homes.lose_proposal = lambda payload: len(payload) > LARGE and not lost.append(payload)
    client.say(publish(A, 1, size=LARGE), publish(A, 2))
    other.say(publish(B, 1, size=LARGE))
    assert (len(lost), order(homes)) == (1, [])
    homes.lose_proposal = lambda payload: False
    homes.wait(1500)
    assert order(homes) == []  # it may yet come
    homes.wait(1000)
    assert order(homes) == [(A, 1), (B, 1), (A, 2)]


def test_a_new_leader_is_given_large_packs_again_one_at_a_time() -> None:
    homes = Homes(2)
    client, other = homes.attached(A), homes.attached(B)
    homes.lose_proposal = lambda payload: len(payload) > LARGE
    client.say(publish(A, 1, size=LARGE))
    other.say(publish(B, 1, size=LARGE))
    homes.lose_proposal = lambda payload: False
    homes.new_leader(2)
    assert sorted(order(homes)) == [(A, 1), (B, 1)]


def test_a_request_waits_for_the_large_pack_before_it() -> None:
    homes = Homes()
    one, two = homes.attached(A), homes.attached(B)
    homes.paused = True
    one.say(publish(A, 1, size=LARGE))
    two.say(publish(B, 1, size=LARGE), cw.Control(1, cw.CloseSession()))
    homes.paused = False
    homes.settle()
    assert order(homes) == [(A, 1), (B, 1)]
    assert cw.Published(0, 1) in two.heard
    assert two.cut == ""


def test_a_client_that_leaves_makes_way_for_the_next_large_pack() -> None:
    homes = Homes(2)
    homes.leader = 2
    one, two = homes.attached(A), homes.attached(B)
    homes.lose_proposal = lambda payload: len(payload) > LARGE and one.cut is None and not gone
    gone: list[bool] = []
    one.say(publish(A, 1, size=LARGE))
    two.say(publish(B, 1, size=LARGE))
    assert order(homes) == []
    gone.append(True)
    one.lose()
    assert order(homes) == [(B, 1)]
    two.say(publish(B, 2, size=LARGE))
    assert order(homes) == [(B, 1), (B, 2)]


def test_a_client_that_leaves_nobody_waiting_leaves_no_large_pack_behind() -> None:
    homes = Homes()
    one, two = homes.attached(A), homes.attached(B)
    homes.paused = True
    one.say(publish(A, 1, size=LARGE))
    one.lose()
    two.say(publish(B, 1, size=LARGE))
    homes.paused = False
    homes.settle()
    assert order(homes) == [(A, 1), (B, 1)]


def test_what_is_large_and_no_large_pack_neither_keeps_a_turn_nor_counts_as_one() -> None:
    homes = Homes(window_bytes=10_000)
    links = homes.servers[1].home._connections
    clients = [homes.attached(A + n) for n in range(TURNS + 1)]
    for client in clients:
        homes.servers[1].home.begun(client.link, LARGE + 10_000, homes.now_ms)
    homes.carry_out(homes.servers[1])
    assert clients[-1].held
    clients[0].say(publish(A, 1))  # its frame has something behind the pack
    assert not clients[-1].held
    clients[0].say(cw.Ack(1, (cw.AckRow(1, 1, 1),) * (LARGE // ACK_ROW_BYTES + 1)))
    homes.wait(1000)
    assert homes.servers[1].home.counts()["waiting_bytes"] == links._large_bytes == 0
