"""`PackMachine`: exactly once per session, dense positions, and snapshots equal byte for byte."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.formats import pack
from antiphon.formats.entry import Entry, Kind
from antiphon.log.state_machine import SESSIONS_A_CHUNK, PackMachine

packs = st.tuples(st.integers(0, 3), st.integers(1, 12), st.integers(1, 4))  # session, seq, count
entries = st.lists(
    packs.map(lambda p: (Kind.PACK, pack.encode("q", p[2], b"body", p[0], p[1])))
    | st.sampled_from([(Kind.TICK, b""), (Kind.EPOCH, b""), (Kind.MEMBERSHIP, b"x")])
    | st.binary(max_size=40).map(lambda junk: (Kind.PACK, junk)),
    max_size=40,
).map(
    lambda kinds: [
        Entry(at, 1 + at // 7, at * 10, kind, payload)
        for at, (kind, payload) in enumerate(kinds, start=1)
    ]
)


def applied(entries: list[Entry]) -> PackMachine:
    machine = PackMachine()
    for entry in entries:
        machine.apply(entry)
    return machine


def put(machine: PackMachine, index: int, session: int, sequence: int, count: int = 1) -> int:
    """How many messages were accepted."""
    payload = pack.encode("q", count, b"", session, sequence)
    return sum(a.count for a in machine.apply(Entry(index, 1, 0, Kind.PACK, payload)))


@given(entries)
def test_a_session_is_taken_in_sequence_and_each_message_once(entries: list[Entry]) -> None:
    machine = PackMachine()
    sequences: dict[int, list[int]] = {}
    positions: list[int] = []
    for entry in entries:
        for a in machine.apply(entry):
            assert (a.index, a.stamp, a.destination) == (entry.index, entry.stamp, "q")
            positions += range(a.position, a.position + a.count)
            sequences.setdefault(a.session, []).extend(range(a.sequence, a.sequence + a.count))
    assert positions == list(range(1, machine.position + 1))
    sequences.pop(0, None)  # which has no sequence
    for session, seen in sequences.items():
        assert seen == list(range(1, len(seen) + 1))
        assert machine.last_sequence(session) == len(seen)


@given(entries, entries)
def test_a_restored_machine_is_the_same_machine(first: list[Entry], more: list[Entry]) -> None:
    original, restored = applied(first), PackMachine()
    restored.restore(original.snapshot())
    assert list(restored.snapshot()) == list(original.snapshot())
    assert restored.digest == original.digest
    for entry in more:
        assert restored.apply(entry) == original.apply(entry)
    assert list(restored.snapshot()) == list(original.snapshot())


@given(entries, entries)
def test_a_snapshot_shows_the_moment_it_was_asked_for(
    first: list[Entry], more: list[Entry]
) -> None:
    machine = applied(first)
    lazily, at_once = machine.snapshot(), list(machine.snapshot())
    for entry in more:
        machine.apply(entry)
    assert list(lazily) == at_once


@given(entries.filter(lambda es: len(es) > 1))
def test_the_digest_tells_histories_apart(entries: list[Entry]) -> None:
    assert applied(entries).digest == applied(entries).digest
    assert applied(entries[1:]).digest != applied(entries).digest
    late = [*entries[:-1], Entry(entries[-1].index, 99, 0, entries[-1].kind, entries[-1].payload)]
    assert applied(late).digest != applied(entries).digest


def test_a_duplicate_and_a_gap_are_passed_over() -> None:
    machine = PackMachine()
    assert put(machine, 1, session=7, sequence=1, count=3) == 3
    assert put(machine, 2, session=7, sequence=1, count=3) == 0
    assert put(machine, 3, session=7, sequence=3, count=2) == 0  # half of it is old
    assert put(machine, 4, session=7, sequence=5) == 0
    assert put(machine, 5, session=7, sequence=4) == 1
    assert put(machine, 6, session=8, sequence=2) == 0
    assert (machine.position, machine.last_sequence(7), machine.last_sequence(8)) == (4, 4, 0)


def test_without_a_session_every_pack_counts() -> None:
    machine = PackMachine()
    assert [put(machine, index, session=0, sequence=1) for index in (1, 2, 3)] == [1, 1, 1]


@settings(max_examples=5)
@given(st.integers(1, 2 * SESSIONS_A_CHUNK + 10))
def test_chunks_are_bounded(sessions: int) -> None:
    machine = PackMachine()
    for session in range(1, sessions + 1):
        put(machine, session, session, 1)
    chunks = list(machine.snapshot())
    assert len(chunks) == 1 + -(-sessions // SESSIONS_A_CHUNK)
    assert max(map(len, chunks)) <= 32 * SESSIONS_A_CHUNK


def test_live_is_what_is_retained() -> None:
    unbounded, bounded = PackMachine(), PackMachine(retain=3)
    assert unbounded.live() == bounded.live() == ()
    for index in range(1, 6):
        put(unbounded, index, 0, 0)
        put(bounded, index, 0, 0)
    assert unbounded.live() == ((1, 5),)
    assert bounded.live() == ((3, 5),)
    assert PackMachine(retain=0).live() == ()
