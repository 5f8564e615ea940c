"""Messages of blocks on channels of peers: calls, and replies to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import antiphon
from antiphon.blocks.operations.events import body_of
from antiphon.blocks.pure.block import Heard, Whole

TO = "antiphon_to"
"""A property of a call: it is for these members alone, by their names, with blanks between them."""
ORDER = "antiphon_order"
"""A property of a message of a block: the order that it asks for (`Channel.send`)."""

CALL, REPLY, WAKE = "antiphon.call", "antiphon.reply", "antiphon.wake"
"""The types of messages of blocks; the last one is from a process to itself."""


def plain(view: antiphon.View) -> antiphon.View:
    """Return a view as blocks get it: its number is a plain integer, which can be in a state."""
    return antiphon.View(int(view.id), view.members, view.primary)


def heard(message: antiphon.Message, position: int) -> Heard:
    """Return a message of a channel as a block gets it."""
    call = message.correlation_id
    members = message.view.members if message.view is not None else ()
    if TO in message.properties:
        members = tuple(str(message.properties[TO]).split())
    return Heard(
        body_of(message),
        message.sender if call else None,
        call or "",
        message.properties,
        members,
        position,
    )


def message_of(body: Any, properties: Mapping[str, Any], **headers: str) -> antiphon.Message:
    """Return a message with a body of any kind, which its receivers get as it is."""
    own: Mapping[str, Any] = {}
    if isinstance(body, antiphon.Message):
        own, body = body.properties, body.body
    message = antiphon.ObjectMessage(body.value if type(body) is Whole else body)
    for name, value in {**own, **properties}.items():
        message.properties[name] = value
    for name, value in headers.items():
        setattr(message, name, value)
    return message
