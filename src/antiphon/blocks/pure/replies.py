"""Members that reply to calls, and the messages between them and their callers.

A call is a message to the group with a reply address and a number, as JMS has it, so any program
can make one; its property `patience` is how long it waits. A reply has the same number, and in its
properties the replying member and all members that were asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from antiphon.blocks.pure.block import Block, Effects, Heard, Reply
from antiphon.blocks.pure.calls import Asked, Call
from antiphon.blocks.pure.scripts import Script, run
from antiphon.errors import MessageFormatError
from antiphon.model.exceptions import describe, restored
from antiphon.model.views import View

logger = logging.getLogger("antiphon.blocks")

MEMBER, ASKED, LEFT, ERROR = (
    "antiphon_member",
    "antiphon_asked",
    "antiphon_left",
    "antiphon_error",
)
PATIENCE = "antiphon_patience"
FOR_EVER = 3600.0
"""Seconds that members remember a call without a timeout."""


class Answer(NamedTuple):
    """The result of a handler: a value, or an exception."""

    value: Any = None
    error: Exception | None = None


class Responder(Block):
    """Replies to calls with the results and exceptions of a handler."""

    def __init__(self, handler: Callable[[Heard], Any]) -> None:
        self._handler = handler
        self._asked = Asked()
        self._members: tuple[str, ...] = ()

    def viewed(self, view: View, now: float) -> Effects:
        self._members = view.members
        for notice in self._asked.viewed(self.name, view.members, now):
            properties = {ASKED: " ".join(notice.asked), LEFT: " ".join(notice.left)}
            yield Reply(notice.reply_to, notice.call, None, properties)

    def heard(self, message: Heard, now: float) -> Effects:
        return run(self.hearing(message, now))

    def hearing(self, message: Heard, now: float) -> Script[Effects]:
        try:
            if isinstance(message.body, MessageFormatError):
                raise message.body
            answer = Answer((yield partial(self._handler, message)))
        except Exception as error:
            answer = Answer(None, error)
        return self.answered(message, answer, now)

    def answered(self, message: Heard, answer: Answer, now: float) -> Effects:
        """Take the answer of the handler; its caller gets it, and later a notice if other asked
        members leave."""
        if message.reply_to is not None:
            patience = message.properties.get(PATIENCE)
            until = now + (patience if isinstance(patience, int | float) else FOR_EVER)
            self._asked.add(message.reply_to, message.call, self._asked_with(message), until)
            yield self.reply(message, answer)
        elif answer.error is not None:
            logger.warning("a handler raised, and nobody waits for it", exc_info=answer.error)

    def _asked_with(self, message: Heard) -> tuple[str, ...]:
        return message.members or self._members

    def reply(self, message: Heard, answer: Answer) -> Reply:
        properties = {MEMBER: self.name, ASKED: " ".join(self._asked_with(message))}
        body = answer.value
        if answer.error is not None:
            properties[ERROR], body = describe(answer.error)
        return Reply(message.reply_to, message.call, body, properties)


def failed(reply: Reply, error: Exception) -> Reply:
    """Return a reply with the error of one that cannot travel."""
    name, text = describe(error)
    return reply._replace(body=text, properties={**reply.properties, ERROR: name})


def take_reply(call: Call, properties: Mapping[str, Any], body: Any) -> None:
    """Hand a call a reply, or a notice that members have left."""
    asked = str(properties.get(ASKED, "")).split()
    if LEFT in properties:
        call.left(asked, str(properties[LEFT]).split())
    elif MEMBER in properties:
        error = properties.get(ERROR)
        value = body if error is None else restored(str(error), str(body))
        call.replied(str(properties[MEMBER]), asked, value)
