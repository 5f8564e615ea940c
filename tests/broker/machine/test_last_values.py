"""Topics that keep the last message of each key."""

import pytest

from antiphon.broker.machine import events as ev
from antiphon.broker.machine import last_values
from antiphon.broker.machine.machine import Broker
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Extra, Outgoing
from antiphon.formats.entry import Kind
from tests.broker.support.bare_broker import BareBroker
from tests.broker.support.homes import Homes, open_consumer, publish_each

A, B = 0xA, 0xB


def bare(*topics: str) -> BareBroker:
    one = BareBroker()
    one.attach(A, client_id="a")
    one.attach(B, client_id="b")
    for topic in topics:
        assert one.ask(A, cw.CreateTopic(topic)).code == ""
    return one


def keyed(*keys: str | None) -> list[Extra]:
    return [Extra(key=key) for key in keys]


def test_a_new_subscription_begins_with_the_last_message_of_each_key() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(cw.Control(1, cw.CreateTopic("topic:t")))
    sender.say(publish_each(B, 1, *keyed("k", "l", None, "k")), publish_each(B, 5, *keyed("m")))
    sender.say(publish_each(B, 6, *keyed("x"), destination="topic:u"))
    client.say(open_consumer(2, 1, "topic:t", prefetch=2))
    assert [d[1:] for d in client.deliveries()] == [(2, 2, 1), (4, 4, 1)]
    sender.say(publish_each(B, 7, *keyed("l", None)))
    client.say(cw.Ack(1, (cw.AckRow(1, 0, 4),)))
    assert [d[1:] for d in client.deliveries()][2:] == [(5, 5, 1), (7, 7, 1)]
    client.say(cw.Ack(2, (cw.AckRow(1, 0, 7),)))
    assert [d[1:] for d in client.deliveries()][4:] == [(8, 8, 1)]


def test_what_came_before_it_was_one_is_not_kept() -> None:
    r = bare()
    r.publish_keys(A, "topic:t", "k")
    r.ask(A, cw.CreateTopic("topic:t"))
    r.open(B, 1, "topic:t")
    assert r.subscription(B, 1).floor == 1
    assert r.broker.live() == ()


def test_last_values_stay_live_and_others_do_not() -> None:
    r = bare("topic:t")
    r.publish_keys(A, "topic:t", "k", "l", None)
    r.publish_keys(A, "topic:t", "k")
    assert r.broker.live() == ((2, 2), (4, 4))
    r.publish_keys(A, "topic:t", "l")
    assert r.broker.live() == ((4, 5),)


def test_it_is_no_other_topic_when_it_is_declared_again() -> None:
    r = bare("topic:t", "topic:t")
    r.publish_keys(A, "topic:t", "k")
    r.ask(B, cw.CreateTopic("topic:t"))
    assert r.broker.live() == ((1, 1),)


def test_a_pattern_begins_with_the_last_values_of_all_that_it_matches() -> None:
    r = bare("topic:p.a", "topic:p.b", "topic:q")
    r.publish_keys(A, "topic:p.b", "k")
    r.publish_keys(A, "topic:q", "k")
    r.publish_keys(A, "topic:p.a", "k", "l")
    r.publish_keys(A, "topic:p.b", "k")
    r.open(B, 1, "topic:p.*")
    subscription = r.subscription(B, 1)
    assert subscription.runs(1, 5, 0) == [(3, 5, 1)]
    assert subscription.floor == 2


def test_a_durable_subscription_begins_so_once() -> None:
    r = bare("topic:t")
    r.publish_keys(A, "topic:t", "k", "l")
    r.open(B, 1, "topic:t", durable="d")
    assert r.subscription(B, 1).floor == 0
    r.ack(B, (1, 0, 1))
    r.close_consumer(B, 1)
    r.publish_keys(A, "topic:t", "k")
    r.open(B, 2, "topic:t", durable="d")
    assert r.subscription(B, 2).floor == 1
    assert r.subscription(B, 2).runs(1, 3, 0) == [(2, 3, 1)]


def test_a_shared_subscription_begins_so_too() -> None:
    r = bare("topic:t")
    r.publish_keys(A, "topic:t", "k", None, "l")
    r.open(B, 1, "topic:t", shared="s")
    assert r.holds(B, 1) == [(1, 1, 1), (3, 3, 1)]
    r.publish_keys(A, "topic:t", "k")
    assert r.holds(B, 1) == [(1, 1, 1), (3, 4, 1)]
    r.open(B, 2, "topic:t", shared="s")
    assert r.holds(B, 2) == []


def test_what_becomes_visible_later_is_the_last_then() -> None:
    r = bare("topic:t")
    r.publish_keys(A, "topic:t", "k", flags=pack.STAGED)
    r.publish_keys(A, "topic:t", "l", flags=pack.DELAYED, delay=5000)
    r.publish_keys(A, "topic:t", "k", "l")
    assert r.broker.live() == ((1, 2),)
    assert r.ask(A, cw.Commit((), ((0, 1, 1),))).value == 1
    assert list(r.broker.last_values.rows()) == [("topic:t", "k", 3), ("topic:t", "l", 2)]
    r.wait(6000)
    assert list(r.broker.last_values.rows()) == [("topic:t", "k", 3), ("topic:t", "l", 4)]


def test_what_was_stored_earlier_is_delivered_but_not_kept_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_values, "KEYS_MAX", 1)
    r = bare("topic:t")
    r.publish_keys(A, "topic:t", "k", flags=pack.STAGED)
    r.publish_keys(A, "topic:t", "l")
    assert r.ask(A, cw.Commit((), ((0, 1, 1),))).value == 1
    assert r.broker.position == 2
    assert list(r.broker.last_values.rows()) == [("topic:t", "l", 1)]


def test_a_resumed_consumer_goes_on_among_the_last_values() -> None:
    homes = Homes(servers=2)
    client, sender = homes.attached(A), homes.attached(B)
    client.say(cw.Control(1, cw.CreateTopic("topic:t")))
    sender.say(publish_each(B, 1, *keyed("k", None, "l", None, "m", None)))
    client.say(open_consumer(2, 1, "topic:t"))
    assert [d[1:3] for d in client.deliveries()] == [(1, 1), (3, 3), (5, 5)]
    client.say(cw.Ack(1, (cw.AckRow(1, 0, 1),)))
    again = homes.attached(A, node=2, attempt=2, seen=(cw.Seen(1, 3, ()),))
    assert [d[1:3] for d in again.deliveries()] == [(5, 5)]
    again.say(cw.Ack(2, (cw.AckRow(1, 0, 5),)))
    sender.say(publish_each(B, 7, *keyed("k")))
    assert [d[1:3] for d in again.deliveries()] == [(5, 5), (7, 7)]


def test_a_selector_chooses_among_them() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(cw.Control(1, cw.CreateTopic("topic:t")))
    extras = [Extra(key=str(n), properties={"n": n}) for n in range(1, 6)]
    sender.say(publish_each(B, 1, *extras))
    client.say(open_consumer(2, 1, "topic:t", selector="n > 3"))
    assert [d[1:3] for d in client.deliveries()] == [(4, 5)]


def test_packs_without_a_last_value_are_not_read() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(cw.Control(1, cw.CreateTopic("topic:t")))
    sender.say(*(publish_each(B, n, *keyed("k" if n in (1, 20) else None)) for n in range(1, 21)))
    sender.say(publish_each(B, 21, *keyed("l")))
    shelf = homes.servers[1].shelf
    found: list[int] = []
    read = shelf.pack

    def pack_at(position: int) -> object:
        found.append(position)
        return read(position)

    shelf.pack = pack_at  # type: ignore[assignment, method-assign]
    client.say(open_consumer(2, 1, "topic:t"))
    assert [d[1] for d in client.deliveries()] == [20, 21]
    assert found == [20, 21]


def test_they_are_in_the_snapshot() -> None:
    r = bare("topic:t", "topic:u")
    r.publish_keys(A, "topic:t", "k", "l", "k")
    other = Broker()
    other.restore(iter(r.snapshot()))
    assert list(other.snapshot()) == r.snapshot()
    assert other.live() == ((2, 3),)
    r.publish_keys(A, "topic:u", "k")
    other.apply(r.entries[-1])
    assert other.live() == ((2, 4),)


# -- Bounds ----------------------------------------------------------------------------------------


def test_a_topic_keeps_so_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_values, "KEYS_MAX", 3)
    r = bare("topic:t")
    assert r.publish_keys(A, "topic:t", "k", "l") == 2
    assert r.publish_keys(A, "topic:t", "k", "m", "n") == 0
    (refused,) = [e.refusal for e in r.events if isinstance(e, ev.PackRefused)]
    assert (refused.first, refused.last, refused.code) == (3, 5, "ResourceAllocationError")
    assert "at most 3 keys" in refused.text
    assert r.broker.live() == ((1, 2),)
    assert r.publish_keys(A, "topic:t", "l", "m", "m", None) == 6
    assert r.publish_keys(A, "topic:other", "x", "y", "z", "a") == 10


def test_a_key_has_so_many_characters() -> None:
    r = bare("topic:t")
    assert r.publish_keys(A, "topic:t", "k" * last_values.KEY_MAX) == 1
    assert r.publish_keys(A, "topic:t", "k" * (last_values.KEY_MAX + 1)) == 0


def test_there_are_so_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_values, "TOPICS_MAX", 1)
    r = bare("topic:t", "topic:t")
    assert r.ask(A, cw.CreateTopic("topic:u")).code == "ResourceAllocationError"


def test_headers_that_cannot_be_read_have_no_key() -> None:
    r = bare("topic:t")
    body, flags = columns.encode([Outgoing(columns.TEXT, b"x", b"\xc1", 0)])
    r.entry(Kind.PACK, pack.encode("topic:t", 1, body, A, 1, flags=flags))
    assert r.broker.position == 1
    r.entry(Kind.PACK, pack.encode("topic:t", 1, b"", A, 2, flags=pack.EXTRAS))
    assert r.broker.position == 2
    assert r.broker.live() == ()


# -- What a name is, is fixed ----------------------------------------------------------------------


def test_a_group_keeps_no_last_values_and_the_other_way_round() -> None:
    r = bare("topic:t")
    assert r.ask(A, cw.CreateGroup("topic:t")).code == "InvalidDestinationError"
    assert r.ask(A, cw.Join(1, "topic:t", 10)).code == "InvalidDestinationError"
    r.ask(A, cw.CreateGroup("topic:g"))
    assert r.ask(A, cw.CreateTopic("topic:g")).code == "InvalidDestinationError"
