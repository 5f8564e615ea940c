"""docs/wire.md says what the code does: the tables, and the example byte by byte. So does the table
of commands in docs/formats.md."""

import re
import textwrap
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from antiphon.formats import columns, commands, pack
from antiphon.formats import frames as wire
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Outgoing
from antiphon.formats.entry import ReplicaId
from antiphon.model.redelivery import Redelivery

DOCS = Path(__file__).parent.parent / "docs"
SESSION = 0x1F2E3D4C5B6A7988
BODY, FLAGS = columns.encode([Outgoing(columns.TEXT, b"Fire!", b"", 1_790_000_000_000)])
PACK = pack.encode("queue:alarms", 1, BODY, SESSION, sequence=1, flags=FLAGS)
EXCHANGE: list[tuple[str, Any]] = [
    ("C", wire.Hello(wire.MAGIC, wire.OLDEST, wire.NEWEST, "client", ReplicaId(0, 0))),
    ("S", wire.Hello(wire.MAGIC, wire.OLDEST, wire.NEWEST, "server", ReplicaId(1, 77))),
    ("C", cw.Attach(SESSION, b"sixteen secrets!", False, 1, "", 30_000, ((0, 1),), ())),
    ("S", cw.Attached(SESSION, 1, ((0, 0),), (), 3000, cw.PACK_MAX, redelivery=Redelivery())),
    ("C", cw.Control(1, cw.OpenConsumer(1, "queue:alarms", 100))),
    ("S", cw.Result(1)),
    ("C", cw.Publish(PACK)),
    ("S", cw.Published(0, 1)),
    ("S", cw.Deliver(1, 1, 1_790_000_000_007, 1, PACK)),
    ("C", cw.Ack(1, (cw.AckRow(1, 1, 1),))),
    ("S", cw.Acked(1)),
    ("C", cw.Control(2, cw.CloseSession())),
    ("S", cw.Result(2)),
    ("S", cw.Ended("", "")),
]
TABLES = {
    "Requests": get_args(cw.Request),
    "Answers": get_args(cw.Answer),
    "Control requests": get_args(cw.Body),
    "Values inside them": (
        cw.Seen,
        cw.AckRow,
        cw.Kept,
        Redelivery,
        cw.GroupEvent,
        cw.GroupStatus,
        cw.MemberStatus,
        cw.LogSlice,
    ),
    "Commands": get_args(commands.Command),
}


def section(title: str) -> str:
    text = (DOCS / "wire.md").read_text() + (DOCS / "formats.md").read_text()
    found = re.search(rf"^##+ {title}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    assert found, f"there is no section {title!r}"
    return found[1]


@pytest.mark.parametrize("title", TABLES)
def test_the_tables_list_every_message_with_tag_and_fields(title: str) -> None:
    rows = re.findall(r"^\|(?: (\d+) \|)? `(\w+)` \|(.*)\|$", section(title), re.M)
    told = {name: (tag, tuple(re.findall(r"`(\w+)`", fields))) for tag, name, fields in rows}
    true = {kind.__name__: (_tag(kind), kind.__struct_fields__) for kind in TABLES[title]}
    assert told == true


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag or "")


def test_the_example_is_byte_for_byte_what_is_sent() -> None:
    frames = re.findall(r"^([CS]) +((?:[0-9a-f]+\s+)+)", section("An example"), re.M)
    bodies = [(side, bytes.fromhex(text)) for side, text in frames]
    assert bodies == [(side, wire.frame(_encode(m))) for side, m in EXCHANGE], drawn()


def test_the_example_decodes() -> None:
    decode = {"C": cw.decode_request, "S": cw.decode_answer}
    frames = re.findall(r"^([CS]) +((?:[0-9a-f]+\s+)+)", section("An example"), re.M)
    for at, ((side, text), (_, message)) in enumerate(zip(frames, EXCHANGE, strict=True)):
        data = bytes.fromhex(text)
        length, crc = wire.PREFIX.unpack_from(data)
        body = wire.unframe(data[wire.PREFIX_SIZE :], crc)
        assert len(body) == length
        assert (wire.decode_hello if at < 2 else decode[side])(body) == message


def test_the_pack_is_taken_apart_rightly() -> None:
    apart = section("An example").partition("taken apart")[2]
    assert "".join(re.findall(r"^([0-9a-f]+)  ", apart, re.M)) == PACK.hex()


def _encode(message: Any) -> bytes:
    return wire.encode_hello(message) if isinstance(message, wire.Hello) else cw.encode(message)


def drawn() -> str:
    """The example as the page should have it."""
    return "\n\n".join(_draw(side, message) for side, message in EXCHANGE)


def _draw(side: str, message: Any) -> str:
    data = wire.frame(_encode(message)).hex()
    lines = [data[:8] + " " + data[8:16], *textwrap.wrap(data[16:], 88)]
    hexes = f"\n{' ' * 3}".join(lines)
    meaning = textwrap.fill(
        _without_defaults(message), 92, initial_indent=" " * 6, subsequent_indent=" " * 8
    )
    return f"{side}  {hexes}\n{meaning}"


def _without_defaults(message: Any) -> str:
    """As the code would be written; the pack, which is told beside it, is left out."""
    if isinstance(message, bytes):
        return "pack" if message == PACK else repr(message)
    if isinstance(message, tuple):
        return "[" + ", ".join(map(_without_defaults, message)) + "]"
    if not isinstance(message, msgspec.Struct):
        return repr(message)
    values = {n: getattr(message, n) for n in message.__struct_fields__}
    inside = ", ".join(f"{n}={_without_defaults(v)}" for n, v in values.items())
    return f"{type(message).__name__}({inside})"


if __name__ == "__main__":
    print(drawn())
