"""Messages that are sent in columns arrive like all others, and are refused like all others."""

from __future__ import annotations

import struct
from itertools import accumulate
from pathlib import Path

import pytest

import antiphon
from antiphon.api.protocol.outbox import ROOM_BYTES
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    MessageFormatError,
    ResourceAllocationError,
)
from antiphon.formats.columns import TEXT, Extra, Packed, encode_extra
from antiphon.formats.pack import SPECIAL
from antiphon.formats.protocol import PACK_MAX
from antiphon.formats.trace import decode
from tests.api.support.backends import Backend
from tests.api.support.steps import TRANSACTED, Connect, received, texts


def packed(*bodies: str, extras: list[Extra] | None = None, flags: int = 0) -> Packed:
    blobs = [body.encode() for body in bodies]
    extra = [encode_extra(e) for e in extras or ()]
    return Packed(
        bytes([TEXT]) * len(bodies), _ends(blobs), b"".join(blobs), _ends(extra), b"".join(extra),
        flags,
    )  # fmt: skip


def _ends(blobs: list[bytes]) -> bytes:
    return struct.pack(f"<{len(blobs)}I", *accumulate(map(len, blobs)))


def test_they_arrive_in_order_between_others(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue, producer = context.create_queue(backend.name()), context.create_producer()
    producer.send_async(queue, "first")
    producer.send_packed(queue, packed("a", "", "c"))
    producer.send(queue, "last")
    assert texts(context.create_consumer(queue), 5) == ["first", "a", "", "c", "last"]


def test_headers_arrive(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue = context.create_queue(backend.name())
    extras = [Extra(), Extra({"n": 1}, key="k", priority=7)]
    context.create_producer().send_packed(queue, packed("a", "b", extras=extras, flags=SPECIAL))
    consumer = context.create_consumer(queue)
    urgent, plain = received(consumer), received(consumer)
    assert (urgent.text, urgent.key, urgent.priority) == ("b", "k", 7)
    assert urgent.properties["n"] == 1
    assert (plain.text, plain.key, plain.priority) == ("a", None, 4)
    assert abs(urgent.timestamp - plain.timestamp) < 1


def test_in_a_transaction_they_are_seen_with_its_commit(connect: Connect, backend: Backend) -> None:
    context, outside = connect(session_mode=TRANSACTED), connect()
    queue, producer = context.create_queue(backend.name()), context.create_producer()
    producer.send_packed(queue, packed("rolled", "back"))
    context.rollback()
    producer.send_packed(queue, packed("a", "b"))
    producer.send(queue, "c")
    assert not list(outside.create_browser(queue))
    context.commit()
    assert texts(outside.create_consumer(queue), 3) == ["a", "b", "c"]


def test_more_than_there_is_room_for_waits(connect: Connect, backend: Backend) -> None:
    context = connect(session_mode=TRANSACTED)
    queue, producer = context.create_queue(backend.name()), context.create_producer()
    large = "x" * (1 << 20)
    for _ in range(2 * ROOM_BYTES // len(large)):
        producer.send_packed(queue, packed(large))
    context.commit()
    assert len(list(context.create_browser(queue))) == 2 * ROOM_BYTES // len(large)


def test_what_cannot_be_sent_is_refused(connect: Connect, backend: Backend) -> None:
    context = connect()
    queue, producer = context.create_queue(backend.name()), context.create_producer()
    one = packed("x")
    with pytest.raises(ResourceAllocationError, match="Nothing was sent"):
        producer.send_packed(queue, packed("x" * PACK_MAX))
    with pytest.raises(InvalidDestinationError):
        producer.send_packed(context.create_topic("a.*"), one)
    with pytest.raises(JMSError, match="do not fit together"):
        producer.send_packed(queue, one._replace(bodies=b""))
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_packed(queue, one)


def test_a_groups_rules_hold(connect: Connect, backend: Backend) -> None:
    context = connect()
    relation = antiphon.ConflictRelation(["a", "b"], [("a", "b")])
    group = context.create_group(backend.name(), conflict=relation)
    member = context.join(group, "m")
    producer = context.create_producer()
    with pytest.raises(MessageFormatError, match="by itself"):
        producer.send_packed(group, packed("x", extras=[Extra({"JMS_remove": "m"}, tag="a")]))
    with pytest.raises(ValueError, match="no tag"):
        producer.send_packed(group, packed("x", extras=[Extra(tag="nobody knows")]))
    producer.send_packed(group, packed("x", extras=[Extra({"JMS_mine": "m"}, tag="a")]))
    _, message = received(member), received(member)  # behind the view
    assert message.text == "x"


def test_each_is_traced(tmp_path: Path) -> None:
    with antiphon.connect("embedded:", trace=str(tmp_path)) as context:
        context.create_producer().send_packed(context.create_topic("t"), packed("a", "b"))
    (path,) = tmp_path.iterdir()
    kinds = [event.kind for event in decode(path.read_bytes())[0]]
    assert (kinds.count("send"), kinds.count("sent")) == (2, 2)
