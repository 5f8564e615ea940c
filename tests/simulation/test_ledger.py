"""The ledger itself: a history that breaks a promise to a program must be told from one that keeps
it."""

import pytest

from antiphon.broker import events as ev
from antiphon.core.effects import Accepted
from antiphon.formats import columns, pack
from antiphon.formats.client_wire import AckRow, NotPublished
from antiphon.formats.columns import Outgoing
from antiphon.sim.checks import ViolationError
from antiphon.sim.ledger import Ledger, Reading, Window

SENDER = 7
ONE, OTHER = (1, 1), (2, 1)  # consumers


class History:
    """Packs that are accepted one after the other, and what consumers get of them."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._position = 0

    def accept(
        self,
        *numbers: int,
        to: str = "topic:t",
        sequence: int | None = None,
        persistent: bool = True,
        sender: str = "p1",
    ) -> None:
        """Messages with these numbers of their sender, as one pack."""
        bodies = [f"{sender}#{number}".encode() for number in numbers]
        body, flags = columns.encode([Outgoing(columns.BYTES, b, b"", 0) for b in bodies])
        flags |= 0 if persistent else pack.NON_PERSISTENT
        first = numbers[0] if sequence is None else sequence
        payload = pack.encode(to, len(numbers), body, SENDER, first, 0, flags)
        index, position = self._position + 1, self._position + 1
        one = Accepted(index, position, len(numbers), 0, 0, to, SENDER, first)
        self._position += len(numbers)
        self.ledger.accepted(one, payload)

    def refuse(self, first: int, last: int) -> None:
        refusal = NotPublished(0, first, last, "InvalidDestinationError", "")
        self.ledger.happened(ev.PackRefused(SENDER, refusal))

    def subscribe(self, pattern: str = "topic:t", queue: bool = False) -> Reading:
        for reader in (ONE, OTHER):
            self.ledger.opens(reader, pattern)
        return self.ledger.reading(pattern, pattern, self._position, queue)

    def end(self, session: int, code: str = "") -> None:
        self.ledger.happened(ev.SessionEnded(session, code, ""))


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


def test_more_than_a_window() -> None:
    window = Window(3)
    window.arrived(1, 3)
    window.acknowledges(AckRow(1, 2, 2))
    window.arrived(4, 4)
    window.acknowledges(AckRow(1, 0, 1))
    window.arrived(7, 7)
    with pytest.raises(ViolationError, match="4 messages in a window of 3"):
        window.arrived(8, 8)
