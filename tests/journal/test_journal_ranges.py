"""The journal for readers of ranges: from where on it is whole, and where messages are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from antiphon.formats import pack
from antiphon.formats.journal import Row
from antiphon.formats.protocol import LogSlice
from antiphon.formats.segment_index import SegmentIndex
from antiphon.model import destinations as names
from tests.journal.test_journal_late import Store, body

MANY = 1 << 30


def filled(*positions: int) -> Store:
    """A store with messages at these positions."""
    store = Store()
    store.append(*range(1, len(positions) + 1))
    for index, position in enumerate(positions, 1):
        store.accept(index, position)
    return store


# -- From where on it is whole ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positions", "upto", "whole"),
    [
        ((), 0, 1),
        ((), 7, 8),  # all that there was is gone
        ((1, 2, 3), 3, 1),
        ((1, 2, 5, 6), 6, 5),
        ((4, 5, 6), 6, 4),
        ((1, 2, 3), 4, 5),  # the last one was not taken over
        ((1, 3, 5), 5, 5),
    ],
)
def test_it_is_whole_behind_the_last_gap(positions: tuple[int, ...], upto: int, whole: int) -> None:
    assert filled(*positions).journal.whole_from(upto) == whole


def test_a_journal_that_let_go_of_segments_is_whole_from_the_first_that_is_left_on() -> None:
    store = filled(*range(1, 21))
    store.snapshot(20, live=(15, 16, 17, 18, 19, 20))
    whole = store.journal.whole_from(20)
    assert 1 < whole <= 15
    assert [row.position for row in store.journal.rows(1, 99)] == list(range(whole, 21))


def test_a_pack_that_went_before_its_row_is_a_gap() -> None:
    """It was stored in a segment that nobody needed any more, and accepted later."""
    store = Store()
    store.append(*range(1, 11))
    for index in range(2, 11):
        store.accept(index, index - 1, source=1 if index == 6 else 0)
    assert store.journal.whole_from(9) == 1
    store.snapshot(10, live=(4, 6, 7, 8, 9))  # but not 5, which entry 1 has
    assert (store.read(4), store.read(5)) == (body(5), None)
    assert store.journal.whole_from(9) == 6


def test_a_gap_is_found_again_after_a_restart() -> None:
    store = filled(1, 2, 5, 6)
    store.snapshot(4, live=(1, 2, 5, 6))
    store.open()
    assert store.journal.whole_from(6) == 5


# -- Times -----------------------------------------------------------------------------------------


def test_positions_are_found_by_time_over_all_segments() -> None:
    store = filled(*range(1, 9))  # accepted at 10, 20, 30...
    assert store.segments > 2
    found = [store.journal.position_at(stamp) for stamp in (0, 10, 11, 20, 75, 80, 81)]
    assert found == [1, 1, 2, 2, 8, 8, None]


# -- Slices ----------------------------------------------------------------------------------------

NAMES = ("topic:a", "topic:a.b", "topic:a.c", "topic:b", "queue:a")


def random_index(random: Random) -> tuple[SegmentIndex, list[str]]:
    """With packs of one to four messages; and the destination of each position, from 1 on."""
    index, told = SegmentIndex(), []
    for number in range(1, 40):
        name, count = random.choice(NAMES), random.randint(1, 4)
        index.load(Row(number, len(told) + 1, count, 0, 0, 0, name))
        told += [name] * count
    return index, told


def all_slices(
    index: SegmentIndex, pattern: str, first: int, last: int, most: int, rows: int
) -> list[LogSlice]:
    found, at = [], first
    while at <= last:
        some, following = index.slices(names.matcher(pattern), at, last, most, rows)
        assert following > at
        found += some
        at = following
    return found


def positions_of(slices: Sequence[LogSlice], told: list[str]) -> list[int]:
    """Of the messages that the slices stand for; each is counted, and begins and ends with one."""
    found = []
    for each in slices:
        own = [p for p in range(each.first, each.last + 1) if told[p - 1] == each.destination]
        assert len(own) == each.messages
        assert (own[0], own[-1]) == (each.first, each.last)
        found += own
    return sorted(found)


@pytest.mark.parametrize("seed", range(60))
def test_slices_have_every_message_once(seed: int) -> None:
    random = Random(seed)
    index, told = random_index(random)
    first = random.randint(1, len(told))
    last = random.randint(first, len(told))
    pattern = random.choice(("topic:a", "topic:a.*", "topic:>", "topic:nothing"))
    most, rows = random.choice((1, 5, MANY)), random.choice((1, 7, MANY))
    found = all_slices(index, pattern, first, last, most, rows)
    matches = names.matcher(pattern)
    assert positions_of(found, told) == [p for p in range(first, last + 1) if matches(told[p - 1])]
    assert all(each.messages <= max(most, 4) for each in found)


def test_slices_go_from_segment_to_segment() -> None:
    store = filled(*range(1, 9))
    matches = "q".__eq__
    at, found = 2, []
    while at <= 7:
        some, at = store.journal.slices(matches, at, 7, MANY, MANY)
        found += some
    assert at == 8
    assert sum(each.messages for each in found) == 6
    assert len(found) > 2


# -- Packs -----------------------------------------------------------------------------------------


def test_what_is_read_once_is_not_kept_in_memory() -> None:
    store = Store()
    store.append(1, 2)
    store.accept(1, 1)
    store.accept(2, 2, source=1)
    read = [store.journal.payload(row) for row in store.rows()]
    assert store.journal.counts()["cached_bytes"] == 0
    assert [pack.body(one) for one in read] == [store.read(1), store.read(2)]
