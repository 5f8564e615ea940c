"""Messages and mere bodies as they are sent, and the headers that a sent message gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from msgspec.structs import replace

from antiphon.api.messages import headers
from antiphon.api.messages import properties as props
from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.headers import Headers
from antiphon.api.messages.kinds import class_for
from antiphon.api.messages.message import Message, Sent
from antiphon.api.messages.properties import PropertyValue
from antiphon.api.modes import DeliveryMode
from antiphon.errors import ResourceAllocationError
from antiphon.formats import bodies
from antiphon.formats import columns as formats
from antiphon.formats.columns import BYTES, PLAIN, Outgoing

BODY_MAX = 64 << 20
"""Limit of the bytes in the body of a message, as it is sent."""


def outgoing(
    content: Any, *, now_ms: int, allow_pickle: bool = False, **given: Unpack[Headers]
) -> Outgoing:
    """Return a message or a mere body as it is sent. The `given` headers take precedence over those
    of the message, whose own priority and times do not count: they are of its last sending."""
    if isinstance(content, str):
        kind, body = bodies.write_text(content)
        extra = PLAIN
    elif type(content) is bytes:
        kind, body, extra = BYTES, content, PLAIN
    elif isinstance(content, Message):
        kind, body, extra = content._content(allow_pickle)
    else:
        cls = class_for(content)
        kind, body = cls._written(cls._checked(content), allow_pickle)
        extra = PLAIN
    if len(body) > BODY_MAX:
        raise ResourceAllocationError(
            f"a body of {len(body)} bytes: a message has at most {BODY_MAX}. Nothing was sent."
        )
    if given:
        fields = headers.fields_of(given, extra)
        if properties := given.get("properties"):
            types = props.types_of(properties)
            if types or extra.types:
                fields["types"] = _without(extra.types, properties) | types
        extra = replace(extra, **fields)
    written = b"" if extra is PLAIN else headers.written(extra)
    # Twice as fast as `Outgoing(...)`, and this is done for every message.
    return tuple.__new__(Outgoing, (kind, body, written, now_ms))


def _without(types: dict[str, int], given: Mapping[str, PropertyValue]) -> dict[str, int]:
    """Return the types of properties that are not given again."""
    return {name: code for name, code in types.items() if name not in given}


def sent(
    message: Message,
    id: str,
    destination: Destination,
    delivery_mode: DeliveryMode,
    outgoing: Outgoing,
) -> None:
    """Give a message of the application the headers with which it was sent."""
    extra = formats.decode_extra(outgoing.extra)
    visible = outgoing.timestamp + extra.delivery_delay
    message._sent = Sent(id, outgoing.timestamp, destination, delivery_mode, visible=visible)
    message._extra = replace(
        message._headers(),
        priority=extra.priority,
        time_to_live=extra.time_to_live,
        delivery_delay=extra.delivery_delay,
    )
