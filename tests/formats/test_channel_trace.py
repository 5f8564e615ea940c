"""Traces of channels read back what was written, up to a cut at any byte."""

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import trace
from antiphon.formats.channel_trace import (
    ChannelEvent,
    ChannelReading,
    Kind,
    encode_event,
    encode_header,
    life_of,
    life_text,
    view_of,
    view_text,
)
from antiphon.model.peer_views import MemberId, ViewId

FIXTURE = Path(__file__).parent.parent / "fixtures" / "channel-trace-v1.channel"
COLUMNS = """
    run process incarnation seq kind cluster life sender first count level to view closing members
    leader primary seats together merged past founding at origin
"""
A, B = "2a.a", "7fffffffffffffff.b.with.dots"
STORY = [
    ChannelEvent(
        run="8812",
        process="a",
        incarnation=1,
        seq=1,
        kind="view",
        cluster="chat",
        life=A,
        view=f"4.{B}",
        members=(B, A),
        leader=B,
        primary=True,
        seats=(A,),
        together=(A,),
        merged=(f"2.{B}", f"0.{A}"),
        past=(f"2.{B}",),
        founding=f"2.{B}",
        at=1.5,
    ),
    ChannelEvent(
        run="8812",
        process="a",
        incarnation=1,
        seq=2,
        kind="send",
        cluster="chat",
        life=A,
        sender=A,
        first=1,
        count=3,
        level=4,
        to=(B,),
    ),
    ChannelEvent(
        run="8812",
        process="a",
        incarnation=1,
        seq=3,
        kind="deliver",
        cluster="chat",
        life=A,
        sender=B,
        first=2,
        count=2,
        level=3,
        view=f"4.{B}",
        closing=True,
    ),
]


def file_of(*written: ChannelEvent) -> bytes:
    return encode_header() + b"".join(map(encode_event, written))


def test_columns_and_kinds_are_those_of_the_table() -> None:
    assert list(ChannelEvent.__struct_fields__) == COLUMNS.split()
    assert list(get_args(Kind)) == ["send", "receive", "deliver", "view", "end"]


def test_a_file_cut_at_any_byte_gives_every_whole_record_before_the_cut() -> None:
    data = file_of(*STORY)
    ends = [len(file_of(*STORY[:count])) for count in range(len(STORY) + 1)]
    for cut in range(len(data) + 1):
        reading = ChannelReading(data[:cut])
        whole = sum(end <= cut for end in ends[1:])
        assert list(reading) == STORY[:whole], f"cut at {cut}"


def test_it_is_no_trace_of_a_group_and_the_other_way_round() -> None:
    for reading in (trace.Reading(file_of(*STORY)), ChannelReading(trace.encode_header())):
        with pytest.raises(FormatError, match="not a trace file"):
            list(reading)


def test_version_1_decodes_for_ever() -> None:
    assert list(ChannelReading(FIXTURE.read_bytes())) == STORY


@given(st.builds(MemberId, st.text(), st.integers(0, 2**63 - 1)), st.integers(0, 2**63))
def test_lives_and_views_are_texts(life: MemberId, round: int) -> None:
    view = ViewId(round, life)
    assert life_of(life_text(life)) == life
    assert view_of(view_text(view)) == view


@pytest.mark.parametrize("text", ["", "a", "x.a", "1.x.a"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        view_of(text)
