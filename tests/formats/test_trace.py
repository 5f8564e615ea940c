"""Traces read back what was written, up to a cut at any byte, and never silently less."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats.trace import (
    HEADER_SIZE,
    MARKER,
    Kind,
    TraceEvent,
    decode,
    encode_event,
    encode_header,
)

FIXTURES = Path(__file__).parent.parent / "fixtures"
COLUMNS = """
    run process incarnation seq didx position kind group message sender sender_seq view_id
    members tag key session durable redelivered persistent clock relation at
"""
KINDS = """
    group conflict send sent deliver acknowledge view suspect withdraw join leave remove
    state crash recover
"""

int64 = st.integers(-(2**63), 2**63 - 1)
events = st.builds(
    TraceEvent,
    run=st.text(),
    process=st.text(),
    incarnation=st.integers(0, 2**31 - 1),
    seq=int64,
    didx=int64,
    position=int64,
    kind=st.sampled_from(get_args(Kind)),
    group=st.text(),
    message=st.text(),
    sender=st.text(),
    sender_seq=int64,
    view_id=int64,
    members=st.lists(st.text()).map(tuple),
    tag=st.none() | st.text(),
    key=st.none() | st.text(),
    session=st.text(),
    durable=st.booleans(),
    redelivered=st.booleans(),
    persistent=st.booleans(),
    clock=st.dictionaries(st.text(), int64),
    relation=st.text(),
    at=st.floats(allow_nan=False),
)


def event(seq: int, **columns: object) -> TraceEvent:
    fixed = {"run": "8812", "process": "a", "incarnation": 1, "seq": seq, "kind": "deliver"}
    return TraceEvent(**(fixed | columns))


def file_of(*written: TraceEvent) -> bytes:
    return encode_header() + b"".join(map(encode_event, written))


# The numbers imitate the marker, so that a search for records meets false ones.
MARKER_AS_NUMBER = int.from_bytes(MARKER * 2)
STORY = [
    event(1, kind="view", view_id=1, members=("a", "b"), group="accounts"),
    event(2, message="b/1", didx=0, position=MARKER_AS_NUMBER, clock={"b": MARKER_AS_NUMBER}),
    event(3, message="b/2", didx=1, tag="deposit", at=12.5),
]


def test_columns_and_kinds_are_those_of_the_trace_table() -> None:
    assert list(TraceEvent.__struct_fields__) == COLUMNS.split()
    assert list(get_args(Kind)) == KINDS.split()


@given(st.lists(events, max_size=5))
def test_what_was_written_is_read(written: list[TraceEvent]) -> None:
    assert decode(file_of(*written)) == (written, 0)


def test_a_file_cut_at_any_byte_gives_every_whole_record_before_the_cut() -> None:
    data = file_of(*STORY)
    ends = [len(file_of(*STORY[:count])) for count in range(len(STORY) + 1)]
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends[1:])
        last_end = ends[whole] if cut >= HEADER_SIZE else 0
        assert decode(data[:cut]) == (STORY[:whole], cut - last_end), f"cut at {cut}"


@given(st.lists(events, min_size=1, max_size=3), st.data())
def test_any_flipped_bit_before_the_last_record_is_refused(
    written: list[TraceEvent], data: st.DataObject
) -> None:
    whole = bytearray(file_of(*written, STORY[0]))
    last_start = len(whole) - len(encode_event(STORY[0]))
    bit = data.draw(st.integers(0, last_start * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FormatError):
        decode(bytes(whole))


def test_damage_to_the_last_record_is_a_torn_tail() -> None:
    data = file_of(*STORY)
    for flipped in range(len(file_of(*STORY[:2])), len(data)):
        torn = bytearray(data)
        torn[flipped] ^= 0x10
        assert decode(bytes(torn)) == (STORY[:2], len(encode_event(STORY[2])))


def test_zeros_after_the_last_record_are_a_torn_tail() -> None:
    assert decode(file_of(*STORY) + bytes(4096)) == (STORY, 4096)


def test_another_version_is_refused_by_its_number() -> None:
    head = encode_header()[:4] + (2).to_bytes(4, "little")
    with pytest.raises(FormatError, match="version 2: this program reads version 1"):
        decode(head + crc32c(head).to_bytes(4, "little"))


def test_a_whole_record_that_is_no_event_is_refused() -> None:
    row = msgspec.msgpack.encode(["run", "a", 1, 1, 0, 0, "no such kind"])
    covered = len(row).to_bytes(4, "little") + row
    record = MARKER + crc32c(covered).to_bytes(4, "little") + covered
    with pytest.raises(FormatError, match="offset 12 is not a trace event"):
        decode(encode_header() + record)


@given(st.binary())
def test_garbage_is_refused_or_torn_but_never_anything_else(garbage: bytes) -> None:
    assert decode(encode_header() + garbage)[0] == []
    if not encode_header().startswith(garbage):
        with pytest.raises(FormatError):
            decode(garbage)


def test_version_1_decodes_for_ever() -> None:
    read, torn_bytes = decode((FIXTURES / "trace-v1.trace").read_bytes())
    assert torn_bytes == 0
    assert read == [
        TraceEvent(
            run="8812",
            process="replica-1",
            incarnation=2,
            seq=1,
            kind="group",
            group="accounts",
            relation='{"tags":["deposit"],"conflicts":[],"keyed":true}',
            at=1.25,
        ),
        TraceEvent(
            run="8812",
            process="replica-1",
            incarnation=2,
            seq=2,
            kind="view",
            position=7,
            group="accounts",
            view_id=3,
            members=("replica-1", "Zoë"),
            at=1.5,
        ),
        TraceEvent(
            run="8812",
            process="replica-1",
            incarnation=2,
            seq=3,
            didx=0,
            position=8,
            kind="deliver",
            group="accounts",
            message="Zoë/1",
            sender="Zoë",
            sender_seq=1,
            view_id=3,
            tag="deposit",
            key="",
            session="s-1",
            durable=True,
            redelivered=True,
            persistent=True,
            clock={"Zoë": 1, "replica-1": 2**40},
            at=-0.5,
        ),
    ]
