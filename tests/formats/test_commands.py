"""Commands in the log are read as they were written, and are never taken for packs."""

import contextlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import columns, pack
from antiphon.formats import commands as command
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Outgoing
from tests.formats.support.values import of_type, with_flipped_bit

commands = st.lists(of_type(command.Command), max_size=4)
SMALL = command.encode(
    [
        command.Acks(1, 2, 3, ((7, (cw.AckRow(1, 0, 9),)),)),
        command.Request(7, 1, cw.OpenConsumer(1, "queue:orders", 100)),
    ]
)


@given(commands)
def test_commands_are_read_as_they_were_written(commands: list[command.Command]) -> None:
    assert command.decode(command.encode(commands)) == commands


@given(commands)
def test_a_command_is_told_from_a_pack(commands: list[command.Command]) -> None:
    payload = command.encode(commands)
    assert command.is_command(payload)
    with pytest.raises(FormatError):
        pack.read_header(payload.ljust(100, b"\0"))


def test_a_pack_is_no_command() -> None:
    body, flags = columns.encode([Outgoing(TEXT, b"Fire!", b"", 5)])
    assert not command.is_command(pack.encode("topic:a", 1, body, flags=flags))
    assert not command.is_command(b"")


@given(commands, st.integers(0, 10_000))
def test_any_flipped_bit_is_noticed(commands: list[command.Command], bit: int) -> None:
    with pytest.raises(FormatError):
        command.decode(with_flipped_bit(command.encode(commands), bit))


def test_a_command_cut_at_any_byte_is_refused() -> None:
    for cut in range(len(SMALL)):
        with pytest.raises(FormatError):
            command.decode(SMALL[:cut])


@given(st.binary(max_size=80))
def test_garbage_is_refused_and_nothing_worse(garbage: bytes) -> None:
    with contextlib.suppress(FormatError):
        command.decode(garbage)
    with contextlib.suppress(FormatError):
        command.decode(sealed(garbage))


def test_arrays_in_arrays_are_refused() -> None:
    with pytest.raises(FormatError, match="not a command"):
        command.decode(sealed(b"\x91" * 100_000))


def sealed(rest: bytes) -> bytes:
    """With the mark and the checksum of a command."""
    marked = bytes([command.MARK]) + rest
    return crc32c(marked).to_bytes(4, "little") + marked


@given(of_type(command.Rows))
def test_acknowledgements_are_read_as_they_were_written(rows: command.Rows) -> None:
    assert command.decode_rows(command.encode_rows(rows)) == rows


@given(st.binary(max_size=100))
def test_garbage_is_no_acknowledgements(garbage: bytes) -> None:
    with contextlib.suppress(FormatError):
        command.decode_rows(garbage)
