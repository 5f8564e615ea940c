"""Messages of a member as events of a port, and replies as messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import antiphon
from antiphon.blocks.pure.block import Heard, Reply, Whole
from antiphon.blocks.pure.port import Arrived, Event, Installed, Replied, Suspected
from antiphon.errors import MessageFormatError

logger = logging.getLogger("antiphon.blocks")


def event_of(message: antiphon.Message) -> Event:
    """Return a member's message as an event for its block."""
    if isinstance(message, antiphon.ViewMessage):
        return Installed(message.position, tuple(views_of(message)))
    if isinstance(message, antiphon.SuspicionMessage):
        return Suspected(message.position, message.suspects, message.withdrawn)
    call = message.correlation_id or ""
    members = message.view.members if message.view is not None else ()
    position = message.position
    heard = Heard(body_of(message), message.reply_to, call, message.properties, members, position)
    return Arrived(position, heard)


def title_of(group: antiphon.Topic | str) -> str:
    """Return the name of a group."""
    return group if isinstance(group, str) else group.name


def views_of(event: antiphon.ViewMessage) -> Iterator[antiphon.View]:
    """Yield the views that a block gets. If a member was replaced by another one of the same name,
    these are two, for blocks know members by names: one without the name, and one with it."""
    replaced = set(event.left).intersection(event.view.members)
    if replaced:
        others = tuple(one for one in event.view.members if one not in replaced)
        yield antiphon.View(event.view.id, others)
    yield event.view


def reply_of(message: antiphon.Message) -> Replied:
    """Return a message to an address for replies, as a reply."""
    return Replied(message.correlation_id or "", message.properties, body_of(message))


def body_of(message: antiphon.Message) -> Any:
    """Return the body, or the error of one that cannot be read here."""
    try:
        return message.body
    except MessageFormatError as error:
        return error


def outgoing(body: Any) -> Any:
    """Return a body as contexts send it."""
    return antiphon.ObjectMessage(body.value) if type(body) is Whole else body


def reply_body(reply: Reply) -> Any:
    """Return a body that can be sent. A dict or list travels whole, with any keys, and its receiver
    may change it."""
    return antiphon.ObjectMessage(reply.body) if type(reply.body) in (dict, list) else reply.body


def log_failure(sent: antiphon.SendFuture | antiphon.aio.SendFuture) -> None:
    """Log a reply that was not sent: no error here, for the caller may be gone, and its address
    with it."""
    if (error := sent.exception()) is not None:
        logger.info("a reply was not sent: %s", error)
