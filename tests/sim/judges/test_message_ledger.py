"""The ledger itself: a history that breaks a promise to a program must be told from one that keeps
it."""

import pytest

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.sessions.lifecycle import CLIENT_ID_TAKEN
from antiphon.formats import columns, pack
from antiphon.formats.columns import Extra, Outgoing, encode_extra
from antiphon.formats.protocol import AckRow, NotPublished
from antiphon.log.effects import Accepted
from antiphon.sim.judges.message_ledger import Ledger, Reading, Window
from antiphon.sim.violations import ViolationError

SENDER = 7
ONE, OTHER = (1, 1), (2, 1)  # consumers
RANKED, MORTAL = (encode_extra(e) for e in (Extra(priority=9), Extra(time_to_live=100)))


class History:
    """Packs that are accepted one after the other, and what consumers get of them."""

    def __init__(self) -> None:
        self.now_us = 0
        self.ledger = Ledger(lambda: self.now_us)
        self._position = 0

    def accept(
        self,
        *numbers: int,
        to: str = "topic:t",
        sequence: int | None = None,
        persistent: bool = True,
        sender: str = "p1",
        extras: list[bytes] | None = None,
        source: int = 0,
        flags: int = 0,
    ) -> None:
        """Messages with these numbers of their sender, as one pack."""
        bodies = [f"{sender}#{number}".encode() for number in numbers]
        chosen = extras or [b""] * len(numbers)
        messages = [Outgoing(columns.BYTES, b, e, 0) for b, e in zip(bodies, chosen, strict=True)]
        body, found = columns.encode(messages)
        flags |= found | (0 if persistent else pack.NON_PERSISTENT)
        first = numbers[0] if sequence is None else sequence
        payload = pack.encode(to, len(numbers), body, SENDER, first, 0, flags)
        index, position = self._position + 1, self._position + 1
        one = Accepted(index, position, len(numbers), 0, 0, to, SENDER, first, source=source)
        self._position += len(numbers)
        self.ledger.accepted(one, payload)

    def park(self, number: int) -> None:
        """A message that is delayed by 100 ms."""
        extra = encode_extra(Extra(delivery_delay=100))
        message, flags = columns.encode([Outgoing(columns.BYTES, body(number), extra, 0)])
        self.ledger.parked(pack.encode("topic:t", 1, message, SENDER, number, 0, flags))

    def refuse(self, first: int, last: int) -> None:
        refusal = NotPublished(0, first, last, "InvalidDestinationError", "")
        self.ledger.happened(ev.PackRefused(SENDER, refusal))

    def subscribe(self, pattern: str = "topic:t", queue: bool = False) -> Reading:
        for reader in (ONE, OTHER):
            self.ledger.opens(reader, pattern)
        return self.ledger.reading(pattern, pattern, self._position, queue)

    def end(self, session: int, code: str = "", text: str = "") -> None:
        self.ledger.happened(ev.SessionEnded(session, code, text))


def body(number: int) -> bytes:
    return f"p1#{number}".encode()


def deliver(
    reading: Reading, position: int, deliveries: int = 1, reader: tuple[int, int] = ONE
) -> None:
    reading.delivered(reader, position, deliveries, body(position))


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def topic(history: History) -> Reading:
    """With five messages in it."""
    reading = history.subscribe()
    history.accept(1, 2, 3)
    history.accept(4, 5)
    return reading


@pytest.fixture
def queue(history: History) -> Reading:
    reading = history.subscribe("queue:q", queue=True)
    history.accept(1, 2, 3, 4, 5, to="queue:q")
    return reading


def test_a_good_history_passes(history: History, topic: Reading) -> None:
    history.ledger.answered(body(5))
    for position in range(1, 6):
        deliver(topic, position)
    deliver(topic, 5, deliveries=2)
    assert topic.missing() == [1, 2, 3, 4, 5]
    for position in range(1, 6):
        topic.done(position)
    topic.acknowledged(0, 5)
    assert topic.missing() == []
    assert history.ledger.deliveries == 6


# -- Sending ---------------------------------------------------------------------------------------


def test_accepted_twice(history: History) -> None:
    history.accept(1)
    with pytest.raises(ViolationError, match="accepted twice"):
        history.accept(1, sequence=2)


def test_accepted_in_another_order(history: History) -> None:
    history.accept(2, sequence=1)
    with pytest.raises(ViolationError, match="is accepted after 2"):
        history.accept(1, sequence=2)


def test_a_gap(history: History) -> None:
    history.accept(1)
    with pytest.raises(ViolationError, match=r"message 3 of .* after 1"):
        history.accept(3)


def test_a_sequence_that_goes_back(history: History) -> None:
    history.accept(1, 2)
    with pytest.raises(ViolationError, match=r"message 2 of .* after 2"):
        history.accept(3, sequence=2)


def test_non_persistent_messages_may_be_lost(history: History) -> None:
    history.accept(1, persistent=False)
    history.accept(3, persistent=False)


def test_what_was_refused_is_no_gap(history: History) -> None:
    history.accept(1)
    history.refuse(2, 3)
    history.accept(4)


def test_answered_and_nowhere(history: History) -> None:
    with pytest.raises(ViolationError, match="nobody has it"):
        history.ledger.answered(body(1))


def test_refused_and_accepted(history: History) -> None:
    history.accept(1)
    with pytest.raises(ViolationError, match="was refused"):
        history.ledger.refused(body(1))


def test_refused_and_accepted_later(history: History) -> None:
    history.ledger.refused(body(1))
    with pytest.raises(ViolationError, match="was refused"):
        history.accept(1)


# -- Receiving -------------------------------------------------------------------------------------


def test_a_message_of_another_topic(history: History, topic: Reading) -> None:
    history.accept(6, to="topic:other")
    with pytest.raises(ViolationError, match="not for it"):
        deliver(topic, 6)


def test_a_message_from_before_the_subscription(history: History) -> None:
    history.accept(1)
    with pytest.raises(ViolationError, match="not for it"):
        deliver(history.subscribe(), 1)


def test_a_message_that_nobody_sent(topic: Reading) -> None:
    with pytest.raises(ViolationError, match="not for it"):
        deliver(topic, 9)


def test_another_body(topic: Reading) -> None:
    with pytest.raises(ViolationError, match="another body"):
        topic.delivered(ONE, 1, 1, body(2))


def test_a_message_left_out(topic: Reading) -> None:
    deliver(topic, 1)
    with pytest.raises(ViolationError, match=r"got 4 and not \[2, 3\]"):
        deliver(topic, 4)


def test_twice_and_not_flagged(topic: Reading) -> None:
    deliver(topic, 1)
    with pytest.raises(ViolationError, match="not flagged"):
        deliver(topic, 1)


def test_flagged_and_never_seen(topic: Reading) -> None:
    with pytest.raises(ViolationError, match="nobody had seen"):
        deliver(topic, 1, deliveries=2)


def test_flagged_after_an_orderly_end_and_never_seen(history: History, topic: Reading) -> None:
    history.end(ONE[0])
    with pytest.raises(ViolationError, match="nobody had seen"):
        deliver(topic, 1, deliveries=2, reader=OTHER)


def test_after_a_loss_anything_may_have_been_seen(history: History, topic: Reading) -> None:
    history.end(ONE[0], "ConnectionLostError")
    deliver(topic, 1, deliveries=2, reader=OTHER)


def test_acknowledged_and_delivered_again(topic: Reading) -> None:
    deliver(topic, 1)
    deliver(topic, 2)
    topic.acknowledged(0, 1)
    deliver(topic, 2, deliveries=2)
    with pytest.raises(ViolationError, match="had acknowledged"):
        deliver(topic, 1, deliveries=2)


def test_seen_and_never_acknowledged(topic: Reading) -> None:
    for position in range(1, 6):
        deliver(topic, position)
    for position in (1, 2, 4, 5):
        topic.done(position)
    assert topic.missing() == [3]


def test_what_is_to_come_for_a_consumer(topic: Reading) -> None:
    deliver(topic, 1)
    assert topic.awaits(ONE)
    for position in range(2, 6):
        topic.done(position)  # by a consumer before it
    assert not topic.awaits(ONE)


def test_a_queue_out_of_order(queue: Reading) -> None:
    deliver(queue, 2)
    with pytest.raises(ViolationError, match="got 1 after 2"):
        deliver(queue, 1)


def test_what_somebody_gave_back_may_come_late(history: History, queue: Reading) -> None:
    deliver(queue, 2)
    history.ledger.closes(OTHER)
    deliver(queue, 1)


def test_two_have_the_same_message(queue: Reading) -> None:
    deliver(queue, 1)
    with pytest.raises(ViolationError, match=r"while .* has it"):
        deliver(queue, 1, deliveries=2, reader=OTHER)


@pytest.mark.parametrize("how", ["closed", "ended", "lost"])
def test_a_message_goes_to_another_when_its_consumer_is_gone(
    history: History, queue: Reading, how: str
) -> None:
    deliver(queue, 1)
    if how == "closed":
        history.ledger.closes(ONE)
    else:
        history.end(ONE[0], "ConnectionLostError" if how == "lost" else "")
    deliver(queue, 1, deliveries=2, reader=OTHER)
    with pytest.raises(ViolationError, match=r"while .* has it"):
        deliver(queue, 1, deliveries=3, reader=(3, 1))


def test_who_lost_its_client_id_goes_on_with_what_it_has(history: History, queue: Reading) -> None:
    """It has no connection, and cannot know that others have its messages by now."""
    history.end(ONE[0], "ConnectionLostError", f"{CLIENT_ID_TAKEN} 'p1'")
    deliver(queue, 2, deliveries=2, reader=OTHER)
    queue.acknowledged(2, 2)
    deliver(queue, 2, reader=ONE)
    with pytest.raises(ViolationError, match="which is not for it"):
        deliver(queue, 6, reader=ONE)
    with pytest.raises(ViolationError, match="had acknowledged"):
        deliver(queue, 2, deliveries=2, reader=OTHER)


def test_more_than_a_window() -> None:
    window = Window(3)
    window.arrived(1, 3)
    window.acknowledges(AckRow(1, 2, 2))
    window.arrived(4, 4)
    window.acknowledges(AckRow(1, 0, 1))
    window.arrived(7, 7)
    with pytest.raises(ViolationError, match="4 messages in a window of 3"):
        window.arrived(8, 8)


# -- Special messages ------------------------------------------------------------------------------


def test_priorities_have_orders_of_their_own(history: History) -> None:
    queue = history.subscribe("queue:q", queue=True)
    history.accept(1, 2, 3, 4, to="queue:q", extras=[RANKED, b"", b"", RANKED])
    for position in (1, 4, 2):
        deliver(queue, position)
    deliver(queue, 3)
    history.accept(5, 6, to="queue:q", extras=[RANKED, RANKED])
    deliver(queue, 6)
    with pytest.raises(ViolationError, match="got 5 after 6"):
        deliver(queue, 5)


def test_topics_know_no_priorities(history: History) -> None:
    topic = history.subscribe()
    history.accept(1, 2, extras=[b"", RANKED])
    with pytest.raises(ViolationError, match=r"got 2 and not \[1\]"):
        deliver(topic, 2)


def test_what_has_expired_is_not_missed(history: History) -> None:
    topic = history.subscribe()
    history.accept(1, 2, 3, extras=[b"", MORTAL, b""])
    history.ledger.applied(99)
    assert topic.missing() == [1, 2, 3]
    history.ledger.applied(100)
    assert topic.missing() == [1, 3]
    deliver(topic, 1)
    deliver(topic, 3)


def test_clocks_may_run_fast(history: History) -> None:
    topic = history.subscribe()
    history.accept(1, extras=[MORTAL])
    history.now_us = 79_000
    assert topic.missing() == [1]
    history.now_us = 80_000
    assert topic.missing() == []


def test_what_has_expired_is_sent(history: History) -> None:
    history.accept(1, 2, extras=[b"", MORTAL])
    history.ledger.sent(1, 2, 99)
    with pytest.raises(ViolationError, match="2 is sent at 100"):
        history.ledger.sent(1, 2, 100)


def test_delayed_messages(history: History) -> None:
    history.ledger.applied(10)
    history.park(1)
    history.ledger.answered(body(1))
    assert history.ledger.overdue() == [body(1)]
    history.ledger.applied(110)
    history.accept(1, source=1)
    assert history.ledger.overdue() == []


def test_visible_before_its_delay_is_over(history: History) -> None:
    history.ledger.applied(10)
    history.park(1)
    history.ledger.applied(109)
    with pytest.raises(ViolationError, match="is delayed to 110"):
        history.accept(1, source=1)


@pytest.mark.parametrize("flag", [pack.STAGED, pack.DELAYED])
def test_visible_as_soon_as_it_is_stored(history: History, flag: int) -> None:
    with pytest.raises(ViolationError, match="as soon as it is stored"):
        history.accept(1, flags=flag)
    history.accept(1, flags=flag, source=1)


def test_what_comes_late_is_no_gap(history: History) -> None:
    history.accept(1)
    history.ledger.not_a_message(SENDER, 0, 2, 2)
    history.accept(3)
    history.accept(2, sender="p1.late", source=1)


# -- Dead letters ----------------------------------------------------------------------------------


def test_a_dead_letter(history: History, topic: Reading) -> None:
    dead = history.ledger.dead_letters
    with pytest.raises(ViolationError, match="a dead letter that nobody has made"):
        deliver(dead, 2)
    history.ledger.gives_up(ONE, 2)
    deliver(topic, 1)
    deliver(topic, 3)  # the second is not waited for
    assert topic.missing() == [1, 2, 3, 4, 5]
    history.ledger.buries(ONE, 2)
    assert topic.missing() == [1, 3, 4, 5]
    assert dead.missing() == [2]
    deliver(dead, 2)
    dead.done(2)
    assert dead.missing() == []
    with pytest.raises(ViolationError, match="had acknowledged"):
        deliver(topic, 2, deliveries=2)


def test_a_dead_letter_of_two_subscriptions(history: History, topic: Reading) -> None:
    dead = history.ledger.dead_letters
    for reader in (ONE, OTHER):
        history.ledger.buries(reader, 2)
        deliver(dead, 2)
        dead.done(2)
        dead.acknowledged(2, 2)
    with pytest.raises(ViolationError, match="had acknowledged"):
        deliver(dead, 2, deliveries=2)


def test_dead_letters_that_are_given_up_are_gone(history: History, topic: Reading) -> None:
    dead = history.ledger.dead_letters
    history.ledger.opens((3, 1), dead.name)
    history.ledger.buries(ONE, 2)
    history.ledger.buries((3, 1), 2)
    assert dead.missing() == []


# -- Shared subscriptions --------------------------------------------------------------------------


def test_a_shared_subscription_is_owed_what_came_after_it_was_open(history: History) -> None:
    history.accept(1)
    shared = history.subscribe(queue=True)
    history.accept(2, 3)
    deliver(shared, 2, reader=OTHER)  # it may have begun then
    assert shared.missing(after=2) == [3]


def test_a_window_grows() -> None:
    window = Window(1)
    window.widen(2)
    window.arrived(1, 2)
    with pytest.raises(ViolationError, match="3 messages in a window of 2"):
        window.arrived(3, 3)
