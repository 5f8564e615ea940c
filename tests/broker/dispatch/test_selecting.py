"""Consumers of topics that do not want everything: what they get, what becomes of the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.broker.dispatch import dispatcher, filtering, skipped_floors, topic_delivery
from antiphon.broker.dispatch.filtering import Contents
from antiphon.broker.dispatch.topic_cursors import TopicCursor
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, Extra
from tests.broker.support.homes import Client, Homes, open_consumer, publish, publish_each

A, B, C = 0xA, 0xB, 0xC
SOON_MS = skipped_floors.PASS_MS + 2000


def patient_homes(**settings: int) -> Homes:
    """Where clients may be silent for as long as they like."""
    return Homes(heartbeat_ms=1 << 30, **settings)


def floors(*wanted: int) -> list[Extra]:
    return [Extra(properties={"floor": floor}) for floor in wanted]


def ack(number: int, consumer: int, last: int, first: int = 0) -> cw.Ack:
    return cw.Ack(number, (cw.AckRow(consumer, first, last),))


def positions(client: Client, consumer: int = 1) -> list[int]:
    spans = [(first, last) for number, first, last, _ in client.deliveries() if number == consumer]
    return [p for first, last in spans for p in range(first, last + 1)]


def floor_of(homes: Homes, session: int = A, consumer: int = 1, node: int = 1) -> int:
    broker = homes.servers[node].broker
    subscription = broker.subscription(broker.sessions[session].consumers[consumer])
    assert subscription is not None
    return subscription.floor


# -- Selectors -------------------------------------------------------------------------------------


def test_each_consumer_gets_what_its_selector_wants() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    client.say(open_consumer(2, 2, "topic:*", selector="floor > 1"))
    client.say(open_consumer(3, 3, "topic:t"))
    sender.say(publish_each(B, 1, *floors(4, 4, 1, 4, 2)))
    assert positions(client, 1) == [1, 2, 4]
    assert positions(client, 2) == [1, 2, 4, 5]
    assert positions(client, 3) == [1, 2, 3, 4, 5]
    bodies = [Columns(d.pack).header.sequence for d in client.told(cw.Deliver) if d.consumer == 1]
    assert bodies == [1, 4]


def test_a_selector_is_checked_and_a_blank_one_is_none() -> None:
    """[7] [10]"""
    homes = Homes()
    client = homes.attached(A)
    (answer,) = client.say(open_consumer(1, 1, "topic:t", selector="floor > AND x"))
    assert isinstance(answer, cw.Result)
    assert answer.code == "InvalidSelectorError"
    assert "position 9" in answer.text
    client.say(open_consumer(2, 2, "topic:t", selector=" \t "))
    client.say(publish(A, 1))
    assert positions(client, 2) == [1]


def test_who_wants_nothing_of_a_pack_costs_nothing() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    for number in range(1, 101):
        client.say(open_consumer(number, number, "topic:t", selector=f"floor = {number}"))
    shelf = homes.servers[1].shelf
    before = shelf.reads
    sender.say(*(publish_each(B, n, *floors(n)) for n in range(1, 101)))
    assert [d[:2] for d in client.deliveries()] == [(n, n) for n in range(1, 101)]
    assert shelf.reads == before  # nobody had to read from the journal


def test_a_durable_selector_is_as_if_it_had_filtered_on_arrival() -> None:
    """[25]"""
    homes = Homes()
    first, sender = homes.attached(A, client_id="c"), homes.attached(B)
    first.say(open_consumer(1, 1, "topic:t", durable="d", selector="floor = 4"))
    first.say(cw.Control(2, cw.CloseSession()))
    sender.say(publish_each(B, 1, *floors(4, 1, 4)), publish_each(B, 4, *floors(1, 1)))
    sender.say(publish_each(B, 6, *floors(1, 4)))
    second = homes.attached(C, client_id="c")
    second.say(open_consumer(1, 1, "topic:t", durable="d", selector="floor=4"))
    assert positions(second) == [1, 3, 7]
    second.say(ack(1, 1, 3))
    sender.say(publish_each(B, 8, *floors(4)))
    assert positions(second) == [1, 3, 7, 8]


def test_a_durable_subscription_with_another_selector_is_a_new_one() -> None:
    """[24]"""
    homes = Homes()
    client = homes.attached(A, client_id="c")
    client.say(open_consumer(1, 1, "topic:t", durable="d", selector="floor = 4"))
    client.say(publish_each(A, 1, *floors(4, 5)), cw.Control(2, cw.CloseConsumer(1)))
    client.say(open_consumer(3, 2, "topic:t", durable="d", selector="floor = 5"))
    client.say(publish_each(A, 3, *floors(4, 5)))
    assert positions(client, 2) == [4]


def test_what_is_not_wanted_does_not_fill_a_window() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2, selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(*[1] * 50, 4, 4, *[1] * 50, 4)))
    assert positions(client) == [51, 52]
    sender.say(publish_each(B, 104, *floors(1, 4, 4, 1)))
    client.say(ack(1, 1, 51))
    assert positions(client) == [51, 52, 103]
    client.say(ack(2, 1, 103))
    assert positions(client) == [51, 52, 103, 105, 106]


def test_a_consumer_that_lags_is_behind_by_what_it_wants() -> None:
    homes = Homes(slow_quota=3)
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=1, selector="floor = 4", slow="disconnect"))
    sender.say(publish_each(B, 1, *floors(4, 4, *[1] * 50, 4)))
    assert client.cut is None
    sender.say(publish_each(B, 54, *floors(4)))
    assert client.cut is not None


@pytest.mark.parametrize("node", [1, 2])
def test_a_resumed_consumer_goes_on_behind_what_it_has(node: int) -> None:
    homes = Homes(servers=2)
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=3, selector="floor = 4"))
    sender.say(*(publish_each(B, n, *floors(4 if n % 3 == 0 else 1)) for n in range(1, 31)))
    assert positions(client) == [3, 6, 9]
    client.say(ack(1, 1, 3))
    assert positions(client) == [3, 6, 9, 12]
    seen = (cw.Seen(1, 9, ()),)  # 12 did not arrive
    again = homes.attached(A, node=node, attempt=2, seen=seen)
    assert positions(again) == [12]  # with 6 and 9 its window is full
    again.say(ack(2, 1, 6))
    assert positions(again) == [12, 15]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The packs that servers have looked into."""
    found: list[bytes] = []

    def look(pack: bytes, stamp: int) -> Contents:
        found.append(pack)
        return Contents(pack, stamp)

    monkeypatch.setattr(filtering, "Contents", look)
    return found


def test_a_pack_is_looked_into_once_for_all_who_read_on(looked: list[bytes]) -> None:
    """When another server takes over, or when a connection was full for a while."""
    homes = Homes(servers=2, delivery_bytes=1000)
    client, sender = homes.attached(A), homes.attached(B)
    for number in range(1, 51):
        client.say(open_consumer(number, number, "topic:t", selector=f"floor = {number}"))
    sender.say(*(publish_each(B, n, *floors(n)) for n in range(1, 51)))
    assert [d[:2] for d in client.deliveries()] == [(n, n) for n in range(1, 51)]
    assert len(looked) <= 100  # by each, that would be 2500
    looked.clear()
    again = homes.attached(A, node=2, attempt=2, seen=())
    assert [d[:2] for d in again.deliveries()] == [(n, n) for n in range(1, 51)]
    assert len(looked) <= 100
    looked.clear()
    again.reads = False
    sender.say(*(publish_each(B, n, *floors(n - 50)) for n in range(51, 101)))
    again.reads = True
    homes.settle()
    assert [d[:2] for d in again.deliveries()][50:] == [(n, n + 50) for n in range(1, 51)]
    assert len(looked) <= 100


def test_a_long_backlog_is_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = 10 * topic_delivery.LOOK_BYTES
    monkeypatch.setattr(dispatcher, "TURN_BYTES", turn)
    monkeypatch.setattr(topic_delivery, "TURN_BYTES", turn)
    homes = Homes()
    first = homes.attached(A, client_id="c")
    first.say(open_consumer(1, 1, "topic:t", durable="d", selector="floor = 4"))
    first.say(cw.Control(2, cw.CloseSession()))
    sender = homes.attached(B)
    sender.say(*(publish_each(B, n, *floors(n % 50)) for n in range(1, 301)))
    late = homes.attached(C, client_id="c")
    late.say(open_consumer(1, 1, "topic:t", durable="d", selector="floor = 4"))
    assert positions(late) == [4, 54, 104, 154, 204, 254]


def test_members_of_a_group_select_messages_and_are_told_of_everybody() -> None:
    homes = Homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(cw.Control(1, cw.CreateGroup("topic:g")))
    client.say(open_consumer(2, 1, "topic:g", selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(1, 4), destination="topic:g"))
    sender.say(cw.Control(1, cw.Join(1, "topic:g", 10, "other")))
    sender.say(publish_each(B, 3, *floors(1, 1), destination="topic:g"))
    sender.say(cw.Control(2, cw.Leave(1)))
    assert positions(client) == [2]
    assert [h.event.view for h in client.told(cw.Happened) if h.event.kind == cw.VIEW] == [1, 2, 3]


def test_a_durable_member_with_another_selector_loses_what_waited() -> None:
    homes = Homes()
    client, sender = homes.attached(A, client_id="c"), homes.attached(B)
    client.say(cw.Control(1, cw.CreateGroup("topic:g")))
    client.say(open_consumer(2, 1, "topic:g", durable="m", selector="floor = 4"))
    client.say(cw.Control(3, cw.CloseConsumer(1)))
    sender.say(publish_each(B, 1, *floors(4, 5), destination="topic:g"))
    client.say(open_consumer(4, 2, "topic:g", durable="m", selector="floor = 5"))
    sender.say(publish_each(B, 3, *floors(4, 5), destination="topic:g"))
    assert positions(client, 2) == [4]
    assert len(homes.servers[1].broker.groups["topic:g"].members) == 1
    client.say(cw.Control(5, cw.CloseConsumer(2)))
    client.say(cw.Control(6, cw.Join(3, "topic:g", 10, "m", durable=True)))
    sender.say(publish_each(B, 5, *floors(4, 5), destination="topic:g"))
    assert positions(client, 3) == [5, 6]


# -- Floors ----------------------------------------------------------------------------------------


def test_what_nobody_wants_is_let_go_after_a_while() -> None:
    homes = patient_homes(servers=2)
    client, sender = homes.attached(A), homes.attached(B, node=2)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(1, 2, 3)))
    assert floor_of(homes) == 0
    homes.wait(SOON_MS)
    assert [floor_of(homes, node=node) for node in (1, 2)] == [3, 3]
    assert homes.servers[2].broker.live() == ()
    assert client.told(cw.Acked) == []  # it has acknowledged nothing
    rows = len(homes.commands(commands.Acks))
    homes.wait(3 * SOON_MS)
    assert len(homes.commands(commands.Acks)) == rows  # nothing is said again


def test_many_that_nobody_wants_are_let_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipped_floors, "PASS_POSITIONS", 100)
    homes = patient_homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    homes.wait(2000)
    sender.say(publish_each(B, 1, *floors(*[1] * 99)))
    homes.wait(2000)
    assert floor_of(homes) == 0
    sender.say(publish_each(B, 100, *floors(1)))
    homes.wait(2000)
    assert floor_of(homes) == 100


def test_what_is_not_acknowledged_is_kept() -> None:
    homes = patient_homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(1, 1, 4, 1, 4, 1)))
    homes.wait(SOON_MS)
    assert floor_of(homes) == 2
    client.say(ack(1, 1, 5, first=5))
    homes.wait(SOON_MS)
    assert floor_of(homes) == 2
    client.say(ack(2, 1, 3))
    homes.wait(SOON_MS)
    assert floor_of(homes) == 6


def test_what_has_not_been_sent_is_kept() -> None:
    homes = patient_homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=1, selector="floor = 4"))
    sender.say(*(publish_each(B, n, *floors(1, 4)) for n in (1, 3, 5)))
    client.say(ack(1, 1, 2))
    client.reads = False
    client.say(ack(2, 1, 4))
    homes.wait(SOON_MS)
    assert positions(client) == [2, 4, 6]
    assert floor_of(homes) == 5


@pytest.mark.parametrize("node", [1, 2])
def test_what_a_resumed_client_has_and_has_not_acknowledged_is_kept(node: int) -> None:
    homes = patient_homes(servers=2)
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(1, 4, 1, 1)))
    again = homes.attached(A, node=node, attempt=2, seen=(cw.Seen(1, 2, ()),))
    homes.wait(SOON_MS)
    assert floor_of(homes) == 1
    again.say(ack(1, 1, 2))
    homes.wait(SOON_MS)
    assert floor_of(homes) == 4
    assert again.deliveries() == []


def test_a_row_of_the_old_home_comes_late_and_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(skipped_floors, "PASS_POSITIONS", 1)
    homes = patient_homes(servers=2)
    client, sender = homes.attached(A), homes.attached(B, node=2)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(1, 4)))
    homes.paused = True
    homes.wait(1000)  # the old home has said what it has to say, and nobody has heard it
    again = homes.connect(2)
    again.attach(A, attempt=2, seen=())
    homes.paused = False
    homes.settle()
    assert positions(again) == [2]
    assert floor_of(homes, node=2) == 1
    again.say(ack(1, 1, 2))
    assert floor_of(homes, node=2) == 2


def reader_of(homes: Homes, session: int) -> TopicCursor:
    (reader,) = homes.servers[1].home.dispatcher._sessions[session].values()
    assert isinstance(reader, TopicCursor)
    return reader


def test_a_member_that_takes_over_a_state_says_itself_what_it_has() -> None:
    homes = patient_homes()
    client, provider = homes.attached(A), homes.attached(B)
    provider.say(cw.Control(1, cw.CreateGroup("topic:g")))
    provider.say(cw.Control(2, cw.Join(1, "topic:g", 10, "one", provides=True)))
    provider.say(publish_each(B, 1, *floors(1, 1), destination="topic:g"))
    client.say(cw.Control(1, cw.Join(1, "topic:g", 10, "two", durable=True)))
    provider.say(publish(B, 3, destination="topic:other"))
    reader = reader_of(homes, A)
    assert reader.waits
    assert reader.done_to(3) == 0
    member = homes.servers[1].broker.groups["topic:g"].members["two"]
    client.say(cw.Control(2, cw.StateDone(1, member.request)))
    assert not reader.waits
    assert reader.subscription.base == 2
    assert reader.done_to(3) == 0
    client.say(cw.Ack(1, (cw.AckRow(1, 0, 0, 1, member.took),)))
    assert reader.done_to(3) == 3


def test_nothing_is_said_of_who_is_not_counted_yet() -> None:
    homes = patient_homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", selector="floor = 4"))
    sender.say(publish_each(B, 1, *floors(1, 4, 1)))
    client.say(ack(1, 1, 2))
    reader = reader_of(homes, A)
    assert reader.done_to(3) == 3
    reader.uncounted = (2, 2)
    assert reader.done_to(3) == 0


# -- Expiry ----------------------------------------------------------------------------------------


def test_an_expired_message_is_not_sent() -> None:
    """[37]"""
    homes = patient_homes()
    first, sender = homes.attached(A, client_id="c"), homes.attached(B)
    first.say(open_consumer(1, 1, "topic:t", durable="d"))
    first.say(cw.Control(2, cw.CloseSession()))
    sender.say(publish_each(B, 1, Extra(time_to_live=5000), Extra(), Extra(time_to_live=20_000)))
    homes.wait(6000)
    second = homes.attached(C, client_id="c")
    second.say(open_consumer(1, 1, "topic:t", durable="d"))
    assert positions(second) == [2, 3]
    assert [d.age for d in second.told(cw.Deliver)] == [6000]


def test_nothing_expires_early() -> None:
    """[37] The time that servers count by themselves is as slow as the leader's may be."""
    homes = patient_homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t"))
    sender.say(publish_each(B, 1, Extra(time_to_live=5000)))
    (delivered,) = client.told(cw.Deliver)
    assert delivered.age == 0
    home = homes.servers[1].home
    stamp = homes.servers[1].broker.stamp
    home.flush(homes.now_ms + 1000)
    assert home._time() == stamp + 980


def test_an_expired_message_is_let_go() -> None:
    homes = patient_homes()
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=1))
    sender.say(publish(B, 1), publish_each(B, 2, Extra(time_to_live=1000)))
    homes.wait(3000)
    client.say(ack(1, 1, 1))
    assert positions(client) == [1]
    homes.wait(SOON_MS)
    assert floor_of(homes) == 2
    assert homes.servers[1].broker.live() == ()
    sender.say(publish(B, 3))
    assert positions(client) == [1, 3]


def test_members_of_a_group_get_the_same_however_slow_they_are() -> None:
    homes = patient_homes()
    fast, slow = homes.attached(A), homes.attached(B)
    fast.say(cw.Control(1, cw.CreateGroup("topic:g")))
    fast.say(cw.Control(2, cw.Join(1, "topic:g", 10, "fast")))
    slow.say(cw.Control(1, cw.Join(1, "topic:g", 1, "slow")))
    fast.say(publish(A, 1, destination="topic:g"))
    fast.say(publish_each(A, 2, Extra(time_to_live=1000), destination="topic:g"))
    homes.wait(5000)
    slow.say(cw.Ack(1, (cw.AckRow(1, 0, 1, 2),)))
    assert positions(fast) == positions(slow) == [1, 2]
    assert [d.age for d in slow.told(cw.Deliver)] == [0, 0]


# -- Whatever happens ------------------------------------------------------------------------------

SELECTORS = {1: "floor = 1 OR floor = 3", 2: "floor <> 1", 3: "floor = 9", 4: "floor < 3"}
CHOICES = {1: (1, 3), 2: (0, 2, 3), 3: (), 4: (0, 1, 2)}  # of the floors 0 to 3


class Chooser:
    """One of several consumers of a client: what it must get, and what it got."""

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.window = window
        self.wanted: list[int] = []  # positions of what was published for it
        self.got: list[int] = []  # over all connections
        self.acked: set[int] = set()

    def take(self, first: int, last: int) -> None:
        self.got.extend(range(first, last + 1))
        assert self.got == self.wanted[: len(self.got)]
        assert len(self.got) - len(self.acked) <= self.window

    def lose(self, most: int) -> cw.Seen:
        """The last ones are lost with the connection."""
        while most and self.got and self.got[-1] not in self.acked:
            self.got.pop()
            most -= 1
        return cw.Seen(self.number, self.got[-1] if self.got else 0, ())

    @property
    def unacked(self) -> list[int]:
        return [p for p in self.wanted if p not in self.acked]


class Choosers:
    def __init__(self, window: int, pattern: str) -> None:
        self.homes = patient_homes(servers=2, delivery_bytes=300)
        self.sender, self.client = self.homes.attached(B), self.homes.attached(A)
        self.published, self.attempt, self.acks = 0, 1, 0
        self.all = {number: Chooser(number, window) for number in SELECTORS}
        for number, text in SELECTORS.items():
            options = {"prefetch": window, "selector": text}
            self.client.say(open_consumer(number, number, pattern, **options))

    def take(self) -> None:
        for number, first, last, deliveries in self.client.deliveries():
            assert deliveries == 1
            self.all[number].take(first, last)
        self.client.heard.clear()
        for one in self.all.values():
            for node in (1, 2):
                floor = floor_of(self.homes, consumer=one.number, node=node)
                assert floor < min([*one.unacked, 1 << 62])

    def publish(self, wanted: list[int]) -> None:
        for floor in wanted:
            self.published += 1
            for one in self.all.values():
                if floor in CHOICES[one.number]:
                    one.wanted.append(self.published)
        self.sender.say(publish_each(B, self.published - len(wanted) + 1, *floors(*wanted)))

    def acknowledge(self, one: Chooser, first: int, last: int) -> None:
        one.acked.update(p for p in one.got if first <= p <= last)
        self.acks += 1
        self.client.say(cw.Ack(self.acks, (cw.AckRow(one.number, first, last),)))

    def ack(self, argument: tuple[int, int]) -> None:
        number, count = argument
        if one := self.all[number].got:
            self.acknowledge(self.all[number], 0, one[min(count, len(one) - 1)])

    def ack_one(self, argument: tuple[int, int]) -> None:
        number, place = argument
        if got := self.all[number].got:
            position = got[min(place, len(got) - 1)]
            self.acknowledge(self.all[number], position, position)

    def resume(self, argument: tuple[int, int]) -> None:
        most, node = argument
        self.attempt += 1
        seen = tuple(one.lose(most) for one in self.all.values())
        self.client = self.homes.attached(A, node=node, attempt=self.attempt, seen=seen)

    def read(self, reads: bool) -> None:
        self.client.reads = reads
        self.homes.settle()

    def wait(self, ms: int) -> None:
        self.homes.wait(ms, step=500)

    def finish(self) -> None:
        self.read(True)
        self.take()
        while any(one.unacked for one in self.all.values()):
            for one in self.all.values():
                if one.got:
                    self.acknowledge(one, 0, one.got[-1])
            self.take()
        self.homes.wait(SOON_MS, step=1000)


numbers = st.sampled_from(list(SELECTORS))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.integers(0, 3), min_size=1, max_size=6)),
        st.tuples(st.just("ack"), st.tuples(numbers, st.integers(0, 8))),
        st.tuples(st.just("ack_one"), st.tuples(numbers, st.integers(0, 8))),
        st.tuples(st.just("resume"), st.tuples(st.integers(0, 4), st.integers(1, 2))),
        st.tuples(st.just("read"), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([1000, SOON_MS])),
    ),
    max_size=30,
)


@given(steps, st.integers(1, 5), st.sampled_from(["topic:t", "topic:*"]))
def test_who_selects_gets_it_once_in_order_and_keeps_what_is_not_acknowledged(
    plan: list[tuple[str, object]], window: int, pattern: str
) -> None:
    choosers = Choosers(window, pattern)
    for what, argument in plan:
        getattr(choosers, what)(argument)
        choosers.take()
    choosers.finish()
    for one in choosers.all.values():
        assert one.got == one.wanted
        assert floor_of(choosers.homes, consumer=one.number) == choosers.published
