"""Frames, handshakes and messages between servers, of this version and of those before."""

import contextlib
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import frames as wire
from antiphon.formats import server_messages as m
from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
)
from antiphon.formats.frames import Hello
from tests.formats.support.values import of_type, with_flipped_bit

FIXTURES = Path(__file__).parent.parent / "fixtures"
KINDS = get_args(m.Message)
envelopes = of_type(m.Envelope)


# -- Frames ----------------------------------------------------------------------------------------


@given(st.binary(max_size=100))
def test_a_frame_gives_its_body_back(body: bytes) -> None:
    framed = wire.frame(body)
    length, crc = wire.PREFIX.unpack_from(framed)
    assert wire.unframe(framed[wire.PREFIX_SIZE :], crc) == body
    assert len(framed) == wire.PREFIX_SIZE + length


@given(st.binary(min_size=1, max_size=100), st.integers(0, 10_000))
def test_a_flipped_bit_in_a_body_is_noticed(body: bytes, bit: int) -> None:
    _, crc = wire.PREFIX.unpack_from(wire.frame(body))
    with pytest.raises(FormatError, match="checksum"):
        wire.unframe(with_flipped_bit(body, bit), crc)


# -- Handshake -------------------------------------------------------------------------------------

hellos = st.builds(
    Hello,
    magic=st.just(wire.MAGIC),
    oldest=st.integers(1, 9),
    newest=st.integers(1, 9),
    role=st.sampled_from(["server", "client"]),
    sender=of_type(ReplicaId),
).filter(lambda hello: hello.oldest <= hello.newest)


@given(hellos)
def test_a_hello_is_read(hello: Hello) -> None:
    assert wire.decode_hello(wire.encode_hello(hello)) == hello


@given(hellos, hellos)
def test_both_sides_agree_on_the_newest_version_that_both_speak(mine: Hello, theirs: Hello) -> None:
    common = {*range(mine.oldest, mine.newest + 1)} & {*range(theirs.oldest, theirs.newest + 1)}
    if common:
        assert wire.agree(mine, theirs) == wire.agree(theirs, mine) == max(common)
        return
    for one, other in ((mine, theirs), (theirs, mine)):
        with pytest.raises(FormatError, match="no common wire version"):
            wire.agree(one, other)


def test_who_cannot_agree_is_told_both_ranges() -> None:
    old = Hello(wire.MAGIC, 1, 2, "server", ReplicaId(1, 10))
    new = Hello(wire.MAGIC, 3, 4, "server", ReplicaId(2, 11))
    with pytest.raises(FormatError, match=r"1\.a speaks 1 to 2, 2\.b speaks 3 to 4"):
        wire.agree(old, new)


def test_a_stranger_is_refused_by_its_magic() -> None:
    stranger = wire.encode_hello(Hello("antiphony", 1, 2, "server", ReplicaId(1, 1)))
    with pytest.raises(FormatError, match="magic 'antiphony'"):
        wire.decode_hello(stranger)


# -- Messages --------------------------------------------------------------------------------------


@given(envelopes)
def test_a_message_is_read_as_it_was_written(envelope: m.Envelope) -> None:
    assert wire.decode_envelope(wire.encode_envelope(envelope, wire.NEWEST)) == envelope


@settings(max_examples=30)
@given(of_type(m.Append))
def test_version_1_has_no_word_for_what_the_leader_holds(append: m.Append) -> None:
    sent = m.Envelope(ReplicaId(1, 5), ReplicaId(2, 6), append)
    body = wire.encode_envelope(sent, 1)
    assert len(msgspec.msgpack.decode(body)[2]) == len(append.__struct_fields__)  # tag, no `has`
    assert wire.decode_envelope(body).message == msgspec.structs.replace(append, has=0)


@given(envelopes.filter(lambda envelope: not isinstance(envelope.message, m.Append)))
def test_all_else_is_the_same_in_all_versions(envelope: m.Envelope) -> None:
    assert len({wire.encode_envelope(envelope, version) for version in (1, 2, 3, 4)}) == 1


def test_older_versions_do_not_know_all_messages() -> None:
    known = [[wire.is_known(one, v) for one in (SAID[0], RELAY, *AROUND)] for v in (1, 2, 3, 4)]
    none, relays, all_ = [True] + 3 * [False], [True, True, False, False], 4 * [True]
    assert known == [none, none, relays, all_]


class OldVote(msgspec.Struct, frozen=True, array_like=True, tag=2):
    epoch: int
    granted: bool


@pytest.mark.parametrize("version", [1, 2, wire.NEWEST])
@pytest.mark.parametrize("sizes", [(), (0,), (70_000,), (1, 70_000, 0, 65_536, 65_535)])
def test_a_message_in_parts_is_the_same(version: int, sizes: tuple[int, ...]) -> None:
    entries = tuple(Entry(at + 300, 7, 1 << 40, 1, b"x" * n) for at, n in enumerate(sizes))
    append = m.Append(7, 299, 6, entries, 290, 1 << 20, 295 if version > 1 else 0)
    parts = wire.message_parts(append, version)
    if version > 1:
        large = [entry.payload for entry in entries if len(entry.payload) > 0xFFFF]
        assert all(any(part is payload for part in parts) for payload in large)
    head = wire.envelope_head(ReplicaId(1, 2), ReplicaId(3, 4))
    read = wire.decode_envelope(head + b"".join(parts))
    assert read == m.Envelope(ReplicaId(1, 2), ReplicaId(3, 4), append)


def test_an_older_reader_skips_fields_it_does_not_know() -> None:
    new = wire.encode_envelope(
        m.Envelope(ReplicaId(1, 5), ReplicaId(2, 6), m.Vote(4, True, True)), 2
    )
    old = msgspec.msgpack.decode(new, type=tuple[ReplicaId, ReplicaId, OldVote])
    assert old[2] == OldVote(4, True)


def test_every_kind_of_message_has_its_own_number() -> None:
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert tags == list(range(1, len(KINDS) + 1))


@given(envelopes, st.data())
def test_a_message_cut_at_any_byte_is_refused(envelope: m.Envelope, data: st.DataObject) -> None:
    body = wire.encode_envelope(envelope, wire.NEWEST)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(FormatError, match="not a message between servers"):
        wire.decode_envelope(body[:cut])


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_worse(garbage: bytes) -> None:
    with pytest.raises(FormatError):
        wire.decode_envelope(garbage)
    with pytest.raises(FormatError):
        wire.decode_hello(garbage)


@given(envelopes, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_a_mangled_message_is_read_or_refused_and_nothing_worse(
    envelope: m.Envelope, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(wire.encode_envelope(envelope, wire.NEWEST))
    for at, byte in changes:
        body[at % len(body)] = byte
    with contextlib.suppress(FormatError):
        wire.decode_envelope(bytes(body))


def with_arrays_in_arrays(message: bytes) -> bytes:
    """One field more than we know, which is to be skipped, and is as deep as it is long."""
    return bytes([message[0] + 1]) + message[1:] + b"\x91" * 100_000


def test_arrays_in_arrays_are_refused() -> None:
    id = ReplicaId(1, 5)
    hello = wire.encode_hello(Hello(wire.MAGIC, 1, 2, "server", id))
    with pytest.raises(FormatError):
        wire.decode_hello(with_arrays_in_arrays(hello))
    envelope = wire.encode_envelope(m.Envelope(id, id, m.TimeoutNow(1)), 2)
    with pytest.raises(FormatError):
        wire.decode_envelope(with_arrays_in_arrays(envelope))


# -- For ever --------------------------------------------------------------------------------------

MEMBERSHIP = Membership(
    2**61, (ClusterMember(1, 2**60 + 1, True, "one:7000"), ClusterMember(2, 3, False, "zwei:7001"))
)
META = SnapshotMeta(500, 6, 123_456, MEMBERSHIP)
ENTRIES = (Entry(7, 3, 1000, Kind.PACK, b"payload"), Entry(8, 4, 1001, Kind.EPOCH, b""))
SAID = [
    m.RequestVote(5, 8, 4, True, False),
    m.Vote(5, True, False),
    m.Append(4, 6, 3, ENTRIES, 5, 17, 6),
    m.Appended(4, 8, 17),
    m.Refused(4, 6, 2, 1, 17),
    m.SnapshotPart(4, 2, META, 1, b"S\x00\xff", True),
    m.PartTaken(4, 2, -1),
    m.TimeoutNow(4),
    m.Forward((b"first", b"second")),
    m.ReadRequest(99),
    m.ReadAnswer(99, -1),
    m.Knock(ReplicaId(2, 3), 2**61 + 7),
    m.Welcome(2**61 + 7),
    m.Unwelcome("node 9 is not a member"),
    m.Ask(77, (1, 2, 3)),
    m.Promise(77, (1, 2, 3)),
    m.Found(77, MEMBERSHIP),
]
RELAY = m.Relay(2**61 + 9, 3, b"a piece")
VIEWS = (m.View(1, 0, True, (2, 3)), m.View(3, 120, False, ()))
AROUND = [
    m.Hears(VIEWS),
    m.Via(ReplicaId(3, 2**60), ReplicaId(2, 3), 2, wire.encode_message(m.TimeoutNow(4), 4)),
]
PIECES = [
    m.Piece(b"name", 256, b"data"),
    m.PieceTaken(b"name", 260),
    m.AppendNamed(m.Append(4, 6, 3, ENTRIES, 5, 17, 6), (0,)),
    m.ForwardNamed((b"name", b"second"), (0,)),
]


def frames(name: str) -> list[bytes]:
    data, bodies = (FIXTURES / name).read_bytes(), []
    while data:
        length, crc = wire.PREFIX.unpack_from(data)
        end = wire.PREFIX_SIZE + length
        bodies.append(wire.unframe(data[wire.PREFIX_SIZE : end], crc))
        data = data[end:]
    return bodies


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_versions_1_to_4_decode_for_ever(version: int) -> None:
    hello, *bodies = frames(f"wire-v{version}.frames")
    sender, to = ReplicaId(1, 2**60 + 1), ReplicaId(2, 3)
    assert wire.decode_hello(hello) == Hello("antiphon", 1, version, "server", sender)
    read = [wire.decode_envelope(body) for body in bodies]
    assert {(envelope.sender, envelope.to) for envelope in read} == {(sender, to)}
    expected = list(SAID)
    if version == 1:
        expected[2] = m.Append(4, 6, 3, ENTRIES, 5, 17, 0)
    if version >= 3:
        expected.append(RELAY)
    if version >= 4:
        expected += AROUND + PIECES
    assert [envelope.message for envelope in read] == expected
