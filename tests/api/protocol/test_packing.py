"""When packs leave, and with how many messages: each policy, with time that the test makes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon
from antiphon.api.protocol.outbox import Batch, Outbox
from antiphon.api.protocol.packing import (
    DEGREE_MAX,
    STEP_S,
    WAIT_MS,
    HillClimbing,
    Packing,
    policy_of,
)
from antiphon.formats import pack
from antiphon.formats.columns import BYTES, TEXT, Columns, Outgoing
from antiphon.formats.pack import FULL_MESSAGES


class Sender:
    """An outbox, a clock, and the numbers of messages in the packs that have left."""

    def __init__(self, policy: str) -> None:
        self.outbox = Outbox(1, policy_of(policy))
        self.now_ms = 1000
        self.left: list[int] = []

    def send(self, count: int = 1, destination: str = "topic:a") -> None:
        for _ in range(count):
            message = Outgoing(TEXT, b"x", b"", 0)
            assert self.outbox.put(self.outbox.streams[0], destination, 0, message)

    def step(self, ms: int = 0) -> list[int]:
        """Let time pass; returns the sizes of the packs that leave."""
        self.now_ms += ms
        sizes = [pack.check(p).count for p in self.outbox.leaving(self.now_ms)]
        self.left += sizes
        return sizes

    def answer_all(self) -> None:
        self.outbox.published(0, self.outbox.streams[0].sequence)


@pytest.mark.parametrize("name", ["", "fixed", "fixed=0", "fixed=x", "fixed=-1", "off=1", "Off"])
def test_what_is_no_policy_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"not a packing policy: 'adaptive', 'off', 'fixed=N'"):
        policy_of(name)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_step_takes_a_time(seconds: str) -> None:
    with pytest.raises(ValueError, match="not a packing policy"):
        policy_of(f"hill-climbing={seconds}")


def test_a_pack_has_a_greatest_size() -> None:
    assert policy_of(f"fixed={FULL_MESSAGES}").messages_max == FULL_MESSAGES
    with pytest.raises(ValueError, match="from 1 to"):
        policy_of(f"fixed={FULL_MESSAGES + 1}")


def test_a_connection_refuses_an_unknown_policy_before_it_does_anything() -> None:
    with pytest.raises(ValueError, match="'cleverly' is not a packing policy"):
        antiphon.connect("embedded:", packing="cleverly")


@pytest.mark.parametrize("policy", ["adaptive", "off", "fixed=3", "hill-climbing"])
def test_all_that_is_sent_arrives_in_order_with_each_policy(policy: str) -> None:
    with antiphon.connect("embedded:", packing=policy) as ctx:
        topic = ctx.create_topic("news")
        with ctx.create_consumer(topic) as consumer:
            producer = ctx.create_producer()
            for n in range(10):
                producer.send_async(topic, str(n))
            assert [consumer.receive(10).text for _ in range(10)] == [str(n) for n in range(10)]


def test_off_makes_each_message_a_pack_and_waits_for_no_answer() -> None:
    sender = Sender("off")
    sender.send(50)
    assert sender.step() == [1] * 50


def test_fixed_packs_leave_when_they_are_full_and_the_rest_after_a_while() -> None:
    sender = Sender("fixed=4")
    sender.send(10)
    assert sender.step() == [4, 4]
    assert sender.outbox.due_ms == sender.now_ms + WAIT_MS
    assert sender.step(WAIT_MS - 1) == []
    assert sender.step(1) == [2]
    assert sender.outbox.due_ms is None


def test_a_pack_that_gets_full_meanwhile_does_not_wait_longer() -> None:
    sender = Sender("fixed=4")
    sender.send(3)
    assert sender.step() == []
    sender.send(2)
    assert sender.step(1) == [4]
    assert sender.step(WAIT_MS - 1) == []  # the fifth has its own time
    assert sender.step(1) == [1]


def test_a_pack_for_another_destination_lets_the_one_before_it_go() -> None:
    sender = Sender("fixed=4")
    sender.send(3)
    assert sender.step() == []
    sender.send(1, "topic:b")
    assert sender.step(WAIT_MS - 1) == [3]
    assert sender.step(1) == []  # it came later
    assert sender.step(WAIT_MS - 1) == [1]


def test_what_is_given_up_is_not_waited_for() -> None:
    sender = Sender("fixed=4")
    sender.send(1)
    sender.step()
    error = antiphon.ConnectionLostError("gone")
    (batch,) = sender.outbox.fail(error, error)
    assert isinstance(batch, Batch)
    batch.looked_at = True
    assert sender.outbox.due_ms is None


@given(
    policy=st.sampled_from(["adaptive", "off", "fixed=2", "fixed=7", "hill-climbing=0.02"]),
    steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30), st.booleans()), max_size=30),
)
def test_nothing_is_lost_and_nothing_waits_for_ever(
    policy: str, steps: list[tuple[int, int, bool]]
) -> None:
    """Messages come, time passes, answers come: at any rate."""
    sender = Sender(policy)
    sent = 0
    for count, ms, answered in steps:
        sender.send(count)
        sent += count
        if answered and sender.left:
            sender.outbox.published(0, sum(sender.left))
        sender.step(ms)
    for _ in range(3):  # adaptive lets four go, and then all that has gathered
        sender.outbox.published(0, sum(sender.left))
        sender.step()
        sender.step(WAIT_MS)
    assert sum(sender.left) == sent
    if policy == "off":
        assert set(sender.left) <= {1}
    if policy.startswith("fixed"):
        assert max(sender.left, default=0) <= int(policy.partition("=")[2])


# -- Hill climbing ---------------------------------------------------------------------------------


def degrees(rates: list[float]) -> list[int]:
    """The degree after each step, when so many messages were answered during it."""
    policy: Packing = HillClimbing(1.0)
    answered, found = 0.0, []
    policy.observe(0, 5000)
    for number, rate in enumerate(rates, 1):
        answered += rate
        policy.observe(int(answered), 5000 + 1000 * number)
        found.append(policy.messages_max)
    return found


def test_it_climbs_while_the_rate_rises() -> None:
    assert degrees([10, 20, 30, 40]) == [2, 3, 4, 5]


def test_it_stays_while_nothing_changes() -> None:
    assert degrees([0, 0, 0]) == [1, 1, 1]
    assert degrees([10, 20, 20, 20]) == [2, 3, 3, 3]


def test_it_turns_at_the_top() -> None:
    assert degrees([10, 20, 15]) == [2, 3, 2]


def test_going_down_it_goes_on_only_while_the_rate_rises() -> None:
    """The refined rule; the simple one would go down all the way."""
    assert degrees([10, 20, 30, 25, 28, 30, 26]) == [2, 3, 4, 3, 2, 1, 2]
    assert degrees([10, 20, 30, 25, 24]) == [2, 3, 4, 3, 4]


def test_at_the_bottom_it_stays_and_looks_upwards_again() -> None:
    assert degrees([10, 5, 3, 4, 5]) == [2, 1, 2, 3, 4]
    assert degrees([10, 5, 6, 7]) == [2, 1, 1, 2]


def test_after_standing_still_it_looks_upwards() -> None:
    assert degrees([10, 20, 15, 15, 16]) == [2, 3, 2, 2, 3]


def test_a_step_takes_its_time_and_counts_by_the_millisecond() -> None:
    policy = HillClimbing(STEP_S)
    policy.observe(0, 0)
    policy.observe(1000, int(STEP_S * 1000) - 1)
    assert policy.messages_max == 1
    policy.observe(1000, int(STEP_S * 1000))
    assert policy.messages_max == 2
    policy.observe(3000, int(STEP_S * 1000) * 4)  # twice as many, in three times the time
    assert policy.messages_max == 1


@given(st.lists(st.floats(0, 1000), max_size=300))
def test_it_moves_by_single_steps_and_stays_within_its_bounds(rates: list[float]) -> None:
    found = [1, *degrees(rates)]
    assert all(abs(b - a) <= 1 for a, b in pairwise(found))
    assert all(1 <= degree <= DEGREE_MAX for degree in found)


@pytest.mark.parametrize("best", [3, 11, 28])
def test_it_finds_the_top_of_a_curve_and_stays_about_there(best: int) -> None:
    policy: Packing = HillClimbing(1.0)
    answered, found = 0, []
    for second in range(200):
        policy.observe(answered, second * 1000)
        answered += 10_000 - abs(policy.messages_max - best) * 100
        found.append(policy.messages_max)
    assert set(found[100:]) <= {best - 1, best, best + 1}
    assert best in found[100:]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TEXT, BYTES]),
            st.binary(max_size=3),
            st.sampled_from([0.0, 0.0004, 0.001, 7.5]),  # seconds since the one before
            st.booleans(),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_messages_leave_with_their_kinds_bodies_and_times(
    sent: list[tuple[int, bytes, float, bool]],
) -> None:
    """Also those that are only added to the open batch (`more`); headers come in between."""
    sender = Sender("fixed=20")
    stream, giver, now_s = sender.outbox.streams[0], object(), 1_700_000_000.0
    expected = []
    for kind, body, later_s, has_headers in sent:
        now_s += later_s
        message = Outgoing(kind, body, b"h" if has_headers else b"", int(now_s * 1000))
        expected.append(message)
        if has_headers or sender.outbox.more(giver, kind, body, now_s) is None:
            batch = sender.outbox.put(stream, "topic:a", 0, message)
            assert batch is not None
            batch.giver = None if has_headers else giver
    sender.outbox.seal()
    (left,) = sender.outbox.leaving(sender.now_ms)
    read = Columns(left)
    found = [
        Outgoing(read.kinds[i], read.body(i), read.extra(i), read.timestamp(i))
        for i in range(read.count)
    ]
    assert found == expected
