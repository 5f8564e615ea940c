"""Keys: kinds do not meet, and snapshots have one or two texts for each."""

from itertools import product

import pytest

from antiphon.broker.machine import keys
from antiphon.broker.machine.keys import Owner, SharedKey, SubscriptionKey

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


@pytest.mark.parametrize(
    ("owner", "encoded"),
    [
        (keys.owner("anna", 7), "anna "),
        (keys.owner("ab ", 7), "ab  "),
        (keys.owner("ab", 7), "ab "),
        (keys.owner("", 0xAB), "ab"),
    ],
)
def test_a_snapshot_has_one_text_for_an_owner(owner: Owner, encoded: str) -> None:
    assert owner.encoded == encoded
    assert Owner.decoded(encoded) == owner


def test_no_two_shared_subscriptions_have_one_queue_and_no_destination_has_its_name() -> None:
    texts = ("", " ", "a", "'", '"', "' ", "a' b", "\\", "\\'", "queue:a", "b 'c' d")
    each = [SharedKey(*key).queue for key in product((False, True), texts, texts[1:])]
    assert len(set(each)) == len(each)
    assert all(" " in name.partition(":")[0] for name in each)
    assert SharedKey(True, "it's", "box").queue == 'durable "it\'s" box'
