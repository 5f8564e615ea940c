"""The demo's verdict: it must be able to fail. (That the demo runs: tests/process.)"""

import pytest

from antiphon.demo import Cast, Numbered, what_is_wrong


@pytest.fixture
def cast() -> Cast:
    """As after a good end: each publisher has sent two messages to the topic and to the queue."""
    cast = Cast("antiphon://nowhere:1")
    orders = [Numbered(p.name, n) for n in (1, 2) for p in cast.publishers]
    for publisher in cast.publishers:
        publisher.sent = 2
    for subscriber in cast.subscribers:
        subscriber.seen = list(orders)
    cast.workers[0].seen, cast.workers[1].seen = orders[:1], orders[1:]
    return cast


def test_a_good_end(cast: Cast) -> None:
    assert cast.have_everything()
    assert what_is_wrong(cast) == []


def test_a_subscriber_lost_a_message(cast: Cast) -> None:
    for subscriber in cast.subscribers:
        del subscriber.seen[2]
    assert not cast.have_everything()
    assert what_is_wrong(cast) == ["subscriber-1 did not see 1 to 2 of publisher-1"]


def test_the_subscribers_saw_different_orders(cast: Cast) -> None:
    cast.subscribers[1].seen.reverse()
    assert what_is_wrong(cast) == [
        "subscriber-1 and subscriber-2 saw different messages, or another order"
    ]


def test_an_order_was_worked_on_twice(cast: Cast) -> None:
    cast.workers[0].seen += cast.workers[1].seen[:1]
    assert what_is_wrong(cast) == ["4 orders, and the workers saw 5, not the same"]


def test_an_order_was_lost_and_another_one_doubled(cast: Cast) -> None:
    cast.workers[0].seen = cast.workers[1].seen[:1]
    assert what_is_wrong(cast) == ["4 orders, and the workers saw 4, not the same"]
