"""Acknowledgements that nobody waits for gather; those that somebody waits for do not."""

from antiphon.broker.dispatch import topic_cursors
from antiphon.broker.home.acknowledging import ACK_GATHER_MS
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from tests.broker.support.homes import Client, Homes, open_consumer, publish

A, B = 0xA, 0xB


def patient(number: int, last: int, first: int = 0) -> cw.Ack:
    return cw.Ack(number, (cw.AckRow(1, first, last),), patient=True)


def subscribed(homes: Homes, session: int, prefetch: int = 100) -> Client:
    client = homes.attached(session)
    client.say(open_consumer(1, 1, "topic:t", prefetch=prefetch))
    return client


def pass_ms(homes: Homes, ms: int) -> None:
    homes.now_ms += ms
    homes.settle()


def test_patient_acknowledgements_of_all_clients_share_an_entry() -> None:
    homes = Homes()
    one, two = subscribed(homes, A), subscribed(homes, B)
    one.say(publish(A, 1, 10))
    one.say(patient(1, 2))
    pass_ms(homes, ACK_GATHER_MS - 1)
    one.say(patient(2, 5))
    two.say(patient(1, 7))
    assert homes.commands(commands.Acks) == []
    assert homes.servers[1].home.next_deadline_ms() == homes.now_ms + 1
    pass_ms(homes, 1)
    assert [len(acks.rows) for acks in homes.commands(commands.Acks)] == [3]
    assert one.told(cw.Acked) == [cw.Acked(2)]
    assert two.told(cw.Acked) == [cw.Acked(1)]


def test_an_acknowledgement_that_is_waited_for_takes_the_patient_ones_along() -> None:
    homes = Homes()
    one, two = subscribed(homes, A), subscribed(homes, B)
    one.say(publish(A, 1, 10))
    one.say(patient(1, 2))
    two.say(patient(1, 7))
    one.say(cw.Ack(2, ()))
    assert one.told(cw.Acked) == [cw.Acked(2)]
    assert two.told(cw.Acked) == [cw.Acked(1)]
    assert len(homes.commands(commands.Acks)) == 1


def test_a_patient_acknowledgement_opens_the_window_at_once() -> None:
    homes = Homes()
    client = subscribed(homes, A, prefetch=4)
    client.say(publish(A, 1, 10))
    client.say(patient(1, 3))
    assert [d[2] for d in client.deliveries()] == [4, 7]
    assert client.told(cw.Acked) == []


def test_nothing_gathers_when_deliveries_would_wait_for_it() -> None:
    homes = Homes()
    client = subscribed(homes, A, prefetch=2)
    client.say(publish(A, 1, 100))
    for number in range(1, 40):
        client.say(patient(number, client.deliveries()[-1][2]))
    assert client.deliveries()[-1][2] == 80  # two with each
    assert len(homes.commands(commands.Acks)) < 39


def test_a_queue_knows_at_once() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "queue:q", prefetch=2), publish(A, 1, 10, "queue:q"))
    client.say(patient(1, 1, first=1))
    assert client.told(cw.Acked) == [cw.Acked(1)]
    assert client.deliveries()[-1][1:3] == (3, 3)


def test_the_window_is_bounded_in_bytes_too() -> None:
    homes = Homes(delivery_bytes=1 << 30)
    client = subscribed(homes, A, prefetch=1000)
    size = topic_cursors.WINDOW_BYTES // 4
    for number in range(1, 11):
        client.say(publish(A, number, size=size))
    assert len(client.deliveries()) == 4
    client.say(cw.Ack(1, (cw.AckRow(1, 0, 2),)))
    assert len(client.deliveries()) == 6
    client.say(cw.Ack(2, (cw.AckRow(1, 0, 6),)))
    assert len(client.deliveries()) == 10
