"""Keys of subscriptions: kinds do not meet, and snapshots have two texts for each."""

import pytest

from antiphon.broker.machine import keys
from antiphon.broker.machine.keys import SubscriptionKey

EACH = [
    (keys.durable("anna", "box"), ("anna ", "box")),
    (keys.durable(" topic:g", " box"), (" topic:g ", " box")),
    (keys.of_consumer(0xAB, 0x1F), ("ab", "1f")),
    (keys.member("topic:g", "box"), (" topic:g", "box")),
    (keys.departed("topic:g", 3, 1), (" topic:g", " 3.1")),
]


@pytest.mark.parametrize(("key", "encoded"), EACH)
def test_a_snapshot_has_two_texts(key: SubscriptionKey, encoded: tuple[str, str]) -> None:
    assert key.encoded == encoded
    assert SubscriptionKey.decoded(list(encoded)) == key


def test_equal_texts_of_different_kinds_are_different_keys() -> None:
    same = [
        keys.durable("a", "1"),
        keys.of_consumer(0xA, 1),
        keys.member("a", "1"),
        SubscriptionKey(keys.DEPARTED, "a", "1"),
    ]
    assert len(set(same)) == len({key.encoded for key in same}) == 4
