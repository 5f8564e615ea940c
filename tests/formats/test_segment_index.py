"""The index by destination: the same rows as a scan would find, without the scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.formats import segment_index
from antiphon.formats.entry import Entry, Kind
from antiphon.formats.journal import Row
from antiphon.formats.segment_index import SegmentIndex
from antiphon.journal.disk import RamDisk
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.journal.reading import CACHE_BYTES
from antiphon.log.effects import Accepted
from antiphon.model.destinations import matcher

NAMES = ["topic:a", "topic:a.b", "topic:a.c", "queue:a", "temp-topic:5.1"]
PATTERNS = [*NAMES, "topic:a.*", "topic:>", "topic:nobody"]
packs = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 5), st.booleans()), max_size=30)


def rows_of(found: list[tuple[str, int, bool]]) -> list[Row]:
    """Dense, except where a pack has gone."""
    rows, position = [], 1
    for index, (name, count, gone) in enumerate(found, start=1):
        if not gone:
            rows.append(Row(index, position, count, 0, 0, 0, name))
        position += count
    return rows


@given(packs, st.sampled_from(PATTERNS), st.integers(0, 100))
def test_rows_for_finds_what_a_scan_finds(
    found: list[tuple[str, int, bool]], pattern: str, first: int
) -> None:
    index = SegmentIndex()
    rows = rows_of(found)
    for row in rows:
        index.load(row)
    matches = matcher(pattern)
    wanted = [r for r in rows if r.position + r.count > first and matches(r.destination)]
    assert list(index.rows_for(pattern, first)) == wanted


def test_rows_for_one_destination_does_not_look_at_the_others() -> None:
    index = SegmentIndex()
    for number in range(1, 1001):
        index.load(Row(number, number, 1, 0, 0, 0, f"topic:{number % 100}"))
    looked: list[int] = []
    row = index.row
    index.row = lambda at: looked.append(at) or row(at)  # type: ignore[func-returns-value, method-assign]
    assert [r.position for r in index.rows_for("topic:7", 500)] == [507, 607, 707, 807, 907]
    assert len(looked) == 5


@given(packs, packs, st.sampled_from(PATTERNS))
def test_rows_for_finds_what_came_since_it_was_last_asked(
    before: list[tuple[str, int, bool]], after: list[tuple[str, int, bool]], pattern: str
) -> None:
    index, matches = SegmentIndex(), matcher(pattern)
    rows = rows_of([*before, *after])
    had = len(rows_of(before))
    for some in (rows[:had], rows[had:]):
        for row in some:
            index.load(row)
        list(index.rows_for(pattern, 0))
    assert list(index.rows_for(pattern, 0)) == [r for r in rows if matches(r.destination)]


def test_rows_for_a_pattern_matches_each_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads many topics, some rows at a time, would otherwise pay for all topics each time."""
    index, matched = SegmentIndex(), []
    for number in range(1, 1001):
        index.load(Row(number, number, 1, 0, 0, 0, f"topic:{number % 100}"))
    monkeypatch.setattr(segment_index, "matcher", lambda _: lambda name: not matched.append(name))
    for first in range(1, 1000, 10):
        assert next(index.rows_for("topic:*", first)).position == first
    assert len(matched) == 100


def test_what_is_remembered_for_patterns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_index, "FOUND_MAX", 250)
    index = SegmentIndex()
    for number in range(1, 101):
        index.load(Row(number, number, 1, 0, 0, 0, f"topic:a.{number}"))
    for pattern in ("topic:*.1", "topic:>", "topic:a.*", "topic:*.*", "topic:a.>"):
        assert len(list(index.rows_for(pattern, 1))) in (1, 100)
    assert list(index._found) == ["topic:a.>"]


def journal_with(count: int) -> Journal:
    journal, _ = open_journal(RamDisk(), lambda: 1, alone=True, segment_bytes=2000)
    for n in range(1, count + 1):
        journal.append((Entry(n, 1, 0, Kind.PACK, bytes(100)),), ())
        journal.flush()
        journal.index((Accepted(n, n, 1, 0, 0, f"topic:{n % 3}", 0, 0),))
    return journal


def test_rows_for_goes_over_segments_and_stops_at_what_was_asked_for() -> None:
    journal = journal_with(100)
    assert journal.counts()["segments"] > 3
    assert [r.position for r in journal.rows_for("topic:1", 50, 4)] == [52, 55, 58, 61]
    assert [r.position for r in journal.rows_for("topic:*", 98, 10)] == [98, 99, 100]
    assert journal.rows_for("topic:9", 1, 10) == []


def test_what_is_remembered_is_not_read_and_the_memory_is_bounded() -> None:
    journal = journal_with(3)
    journal.remember(2, b"from memory")
    found = journal.pack(2)
    assert found is not None
    assert found[1] == b"from memory"
    for n in range(10, 30):
        journal.remember(n, bytes(CACHE_BYTES // 10))
    assert journal.counts()["cached_bytes"] <= CACHE_BYTES
    found = journal.pack(2)
    assert found is not None
    assert found[1] == bytes(100)
