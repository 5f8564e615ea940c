"""The journal's bytes: what was written is read; a cut or a changed bit never passes for it."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import FormatError, JournalDamagedError, UnknownVersionError
from antiphon.formats import journal as f
from antiphon.formats import pack
from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    decode_membership,
    decode_meta,
    encode_membership,
    encode_meta,
)
from antiphon.formats.notes import (
    REACHED,
    REACHED_SIZE,
    Reached,
    decode_reached,
    encode_reached,
    note_at,
)
from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from tests.formats.support.values import U64, of_type, with_flipped_bit

FIXTURES = Path(__file__).parent.parent / "fixtures"

u64 = st.integers(0, U64)
entries = st.builds(Entry, u64, u64, u64, st.integers(0, 255), st.binary(max_size=40))
promises = st.builds(
    f.Promise, u64, st.none() | st.builds(ReplicaId, st.integers(1, U64), st.integers(0, U64))
)
locals_ = st.builds(f.Local, st.booleans(), st.binary(max_size=50))
rows = st.builds(
    f.Row, u64, u64, st.integers(0, pack.COUNT_MAX), u64, u64, u64, st.text(max_size=20), u64
)
manifests = st.builds(f.Manifest, u64, u64, u64, u64, u64, st.booleans(), st.booleans())
records = st.lists(
    entries.map(f.encode_entry)
    | entries.map(lambda entry: f.encode_entry(entry, f.LIVE))
    | promises.map(f.encode_promise)
    | locals_.map(f.encode_local),
    max_size=4,
)
batches = st.builds(f.encode_batch, records, u64, u64)
bits = st.integers(0, 20_000)


# -- Segments --------------------------------------------------------------------------------------


@given(u64, u64, u64)
def test_a_segment_header_is_read(number: int, base: int, opening: int) -> None:
    data = f.encode_segment_header(number, base, opening)
    assert len(data) == f.SEGMENT_SIZE
    assert f.decode_segment_header(data) == (number, base, opening)


@given(u64, u64, u64, bits)
def test_a_changed_or_cut_segment_header_is_refused(
    number: int, base: int, opening: int, bit: int
) -> None:
    data = f.encode_segment_header(number, base, opening)
    for bad in (with_flipped_bit(data, bit), data[: bit % len(data)]):
        with pytest.raises(FormatError):
            f.decode_segment_header(bad)


def test_a_segment_of_another_version_is_refused_by_its_number() -> None:
    head = f.encode_segment_header(1, 0, 1)[:-4]
    newer = head[:4] + struct.pack("<I", f.VERSION + 1) + head[8:]
    with pytest.raises(UnknownVersionError, match=f"version {f.VERSION + 1}; this program reads"):
        f.decode_segment_header(newer + struct.pack("<I", f.crc32c(newer)))


@pytest.mark.parametrize("magic", [f.SNAPSHOT_MAGIC, f.MANIFEST_MAGIC])
def test_a_file_of_another_version_is_refused_by_its_number(magic: bytes) -> None:
    newer = magic + struct.pack("<I", f.VERSION + 1)
    with pytest.raises(UnknownVersionError, match=f"version {f.VERSION + 1}"):
        f.check_file_header(newer + struct.pack("<I", f.crc32c(newer)), magic)
    for other in (f.BATCH_MAGIC, f.SEGMENT_MAGIC):
        with pytest.raises(FormatError):
            f.check_file_header(f.file_header(magic), other)


# -- Records and batches ---------------------------------------------------------------------------


@given(entries, st.sampled_from([f.ENTRY, f.LIVE]))
def test_an_entry_is_read(entry: Entry, kind: int) -> None:
    data = f.encode_entry(entry, kind)
    found, payload, end = f.decode_record(data, 0)
    assert (found, f.decode_entry(payload), end) == (kind, entry, len(data))
    assert f.record_length(data[: f.ENTRY_SIZE]) == len(data)


@given(promises)
def test_a_promise_is_read(promise: f.Promise) -> None:
    kind, payload, _ = f.decode_record(f.encode_promise(promise), 0)
    assert (kind, f.decode_promise(payload)) == (f.PROMISE, promise)


@given(locals_)
def test_what_a_server_alone_knows_is_read(local: f.Local) -> None:
    kind, payload, _ = f.decode_record(f.encode_local(local), 0)
    assert (kind, f.decode_local(payload)) == (f.LOCAL, local)


@given(records, u64, u64, st.binary(max_size=30))
def test_a_batch_is_read_wherever_it_stands(
    records: list[bytes], offset: int, synced: int, before: bytes
) -> None:
    data = f.encode_batch(records, offset, synced)
    batch = f.decode_batch(before + data + b"behind", len(before))
    assert (batch.offset, batch.synced, batch.size) == (offset, synced, len(data))
    at = len(before) + f.BATCH_SIZE
    for record, (kind, found_at, payload) in zip(records, batch.records, strict=True):
        assert (kind, payload, found_at) == (*f.decode_record(record, 0)[:2], at)
        at += len(record)


@given(batches, bits)
def test_a_changed_bit_or_a_cut_unmakes_a_batch(data: bytes, bit: int) -> None:
    for bad in (with_flipped_bit(data, bit), data[: bit % len(data)]):
        with pytest.raises(FormatError):
            f.decode_batch(bad, 0)


@given(st.lists(batches, max_size=4), st.binary(max_size=40))
def test_whole_batches_are_found_behind_garbage(whole: list[bytes], garbage: bytes) -> None:
    # A piece of a batch is the nastiest garbage.
    torn = b"".join(whole)[: len(garbage)]
    data = garbage + torn + b"".join(whole)
    found = list(f.find_batches(data, len(garbage) + len(torn)))
    starts = [len(garbage) + len(torn) + sum(map(len, whole[:n])) for n in range(len(whole))]
    assert [at for at, _ in found] == starts
    assert [batch.size for _, batch in found] == [len(batch) for batch in whole]
    assert len(list(f.find_batches(data, 0))) >= len(whole)


@given(st.binary(max_size=200))
def test_garbage_is_no_batch_and_no_record(garbage: bytes) -> None:
    assert list(f.find_batches(garbage, 0)) == []
    with pytest.raises(FormatError):
        f.decode_batch(f.BATCH_MAGIC + garbage, 0)
    with pytest.raises(FormatError):
        f.decode_record(b"\x01" + garbage, 0)


def test_a_record_beyond_the_limit_is_refused_before_it_is_read() -> None:
    head = struct.pack("<IBI", 0, f.ENTRY, f.RECORD_MAX + 1)
    with pytest.raises(FormatError, match=str(f.RECORD_MAX)):
        f.record_length(head)


# -- Index -----------------------------------------------------------------------------------------


@given(st.lists(rows, max_size=5), st.data())
def test_an_index_cut_at_any_byte_gives_the_whole_rows_before(
    rows: list[f.Row], data: st.DataObject
) -> None:
    encoded = [f.encode_row(row) for row in rows]
    ends = [sum(map(len, encoded[: n + 1])) for n in range(len(rows))]
    whole = b"".join(encoded)
    assert f.decode_rows(whole) == (list(zip(rows, ends, strict=True)), len(whole))
    cut = data.draw(st.integers(0, len(whole)))
    kept = [(row, end) for row, end in zip(rows, ends, strict=True) if end <= cut]
    assert f.decode_rows(whole[:cut]) == (kept, kept[-1][1] if kept else 0)


@given(st.lists(rows, min_size=1, max_size=5), bits)
def test_an_index_is_believed_up_to_a_changed_bit(rows: list[f.Row], bit: int) -> None:
    encoded = [f.encode_row(row) for row in rows]
    whole = b"".join(encoded)
    flipped = bit // 8 % len(whole)
    read, good = f.decode_rows(with_flipped_bit(whole, bit))
    assert [row for row, _ in read] == rows[: len(read)]
    assert good <= flipped


@given(st.binary(max_size=100))
def test_garbage_is_no_row(garbage: bytes) -> None:
    assert f.decode_rows(garbage) == ([], 0)


@settings(max_examples=20)
@given(st.integers(0, 65535))
def test_a_row_holds_any_destination_that_a_pack_holds(length: int) -> None:
    row = f.Row(1, 1, 1, 36, 0, 0, "x" * length)
    assert f.decode_rows(f.encode_row(row))[0][0][0] == row


# -- Snapshots and the manifest --------------------------------------------------------------------


@given(st.binary(max_size=60), bits)
def test_a_chunk_is_read_and_a_changed_bit_noticed(data: bytes, bit: int) -> None:
    chunk = f.encode_chunk(data)
    head, body = chunk[: f.CHUNK_SIZE], chunk[f.CHUNK_SIZE :]
    assert f.chunk_length(head) == len(data)
    assert f.decode_chunk(head, body) == data
    bad = with_flipped_bit(chunk, bit)
    with pytest.raises(FormatError):
        f.decode_chunk(bad[: f.CHUNK_SIZE], bad[f.CHUNK_SIZE :])


def test_a_chunk_beyond_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(FormatError, match=str(f.RECORD_MAX)):
        f.chunk_length(struct.pack("<II", 0, f.RECORD_MAX + 1))


@given(manifests, bits)
def test_a_manifest_is_read_or_refused(manifest: f.Manifest, bit: int) -> None:
    data = f.encode_manifest(manifest)
    assert f.decode_manifest(data) == manifest
    for bad in (with_flipped_bit(data, bit), data[: bit % len(data)], data + b"x"):
        with pytest.raises(FormatError):
            f.decode_manifest(bad)


@given(of_type(SnapshotMeta))
def test_a_snapshot_header_is_read(meta: SnapshotMeta) -> None:
    assert decode_meta(encode_meta(meta)) == meta
    assert decode_membership(encode_membership(meta.membership)) == meta.membership


@given(st.binary(max_size=40))
def test_garbage_is_no_header_and_no_membership(garbage: bytes) -> None:
    for decode in (decode_meta, decode_membership):
        with pytest.raises(FormatError):
            decode(b"\xff" + garbage)


@given(st.lists(st.tuples(of_type(f.Row), of_type(Entry)), max_size=3), bits)
def test_live_packs_travel(pairs: list[tuple[f.Row, Entry]], cut: int) -> None:
    part = f.encode_live(pairs)
    assert part[:1] == f.PART_LIVE
    assert f.decode_live(part) == pairs
    with pytest.raises(FormatError):
        f.decode_live(part[: 1 + cut % (len(part) - 1)])


# -- For ever --------------------------------------------------------------------------------------

MEMBERSHIP = Membership(
    2**61, (ClusterMember(1, 5, True, "one:7000"), ClusterMember(2, 6, True, "zwei:7001"))
)


def fixture_disk(folder: str = "journal-v1") -> RamDisk:
    disk = RamDisk()
    for file in sorted((FIXTURES / folder).iterdir()):
        disk.write(file.name, 0, file.read_bytes())
    return disk


def test_version_1_opens_for_ever() -> None:
    journal, recovered = open_journal(fixture_disk(), lambda: 0)
    assert (recovered.damage, recovered.incarnation) == ("", 5)
    assert recovered.promise == f.Promise(3, ReplicaId(2, 6))
    assert recovered.snapshot == SnapshotMeta(4, 2, 40, MEMBERSHIP)
    assert recovered.memberships == ((4, MEMBERSHIP),)
    assert (recovered.base_index, recovered.base_epoch) == (4, 2)
    assert (recovered.runs, recovered.last, recovered.last_stamp) == (((5, 2), (6, 3)), 6, 60)
    assert list(journal.read_snapshot()[1]) == [b"first chunk", b"second chunk"]
    assert [(e.index, e.epoch, e.stamp, e.kind) for e in journal.entries(5, 1 << 20)] == [
        (5, 2, 50, Kind.PACK),
        (6, 3, 60, Kind.EPOCH),
    ]
    rows = journal.rows(1, 9)
    assert [(r.index, r.position, r.count, r.stamp, r.destination) for r in rows] == [
        (3, 2, 3, 30, "Zoë"),
        (4, 5, 1, 40, "orders"),
    ]
    # A pack of version 1, which no release wrote: to the journal it is bytes like any other.
    old = bytes.fromhex("62f36fda01000400" + "00" * 16 + "03000000") + "Zoë".encode()
    assert journal.pack(4) == (rows[0], old + b"three bodies")


def test_version_1_decodes_for_ever_byte_by_byte() -> None:
    folder = FIXTURES / "journal-v1"
    assert f.decode_manifest((folder / "MANIFEST").read_bytes()) == f.Manifest(5, 3, 4, 2, 4)
    segment = (folder / "seg-00000003.log").read_bytes()
    header = f.decode_segment_header(segment)
    assert (header.number, header.opening) == (3, 1)
    batches = [batch for _, batch in f.find_batches(segment, f.SEGMENT_SIZE)]
    assert batches[0].offset == header.base + f.SEGMENT_SIZE
    assert [kind for batch in batches for kind, _, _ in batch.records] == [
        *(f.LIVE, f.LIVE),
        *(f.PROMISE, f.ENTRY),
        *(f.ENTRY, f.ENTRY),
    ]
    rows, good = f.decode_rows((folder / "seg-00000003.idx").read_bytes())
    assert [(row.index, row.count) for row, _ in rows] == [(3, 3), (4, 1), (4, 0), (5, 1)]
    assert good == (folder / "seg-00000003.idx").stat().st_size


def test_a_note_of_version_1_counts_for_ever() -> None:
    """Of a journal that was killed with a batch unsynced."""
    disk = fixture_disk("journal-v1-reached")
    notes = decode_reached(disk.read(REACHED, 0, REACHED_SIZE))
    assert sorted(notes) == [Reached(4, 5, 1, 1, 0, 275, 2), Reached(5, 5, 1, 1, 0, 378, 3)]
    assert f.decode_manifest(disk.read(f.MANIFEST, 0, 1000)).reached
    journal, recovered = open_journal(disk, lambda: 0, alone=True)
    assert (recovered.damage, recovered.incarnation, journal.last) == ("", 5, 4)
    name = f.segment_name(1)
    for size in range(378):
        disk = fixture_disk("journal-v1-reached")
        disk.truncate(name, size)
        with pytest.raises(JournalDamagedError, match=name):
            open_journal(disk, lambda: 0, alone=True)


@given(st.builds(Reached, *[u64] * 7), bits)
def test_a_note_is_read_and_a_flip_is_noticed(note: Reached, bit: int) -> None:
    data = encode_reached(note)
    for number in (0, 1):
        pad = bytes(note_at(number))
        assert decode_reached(pad + data) == [note]
        assert decode_reached(pad + with_flipped_bit(data, bit)) == []
        assert decode_reached(pad + data[: bit % len(data)]) == []
