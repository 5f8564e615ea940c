"""Destinations that servers must know of: groups, last-value topics, temporary ones."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, TypeVar

from antiphon.api import arguments
from antiphon.api.messages.destinations import Group, Temporary, Topic
from antiphon.api.operations.member import remove_after_ms
from antiphon.api.operations.scripts import Pause, Script
from antiphon.errors import InvalidDestinationError
from antiphon.formats import protocol as cw
from antiphon.model.conflicts import ConflictRelation

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore

TemporaryKind = TypeVar("TemporaryKind", bound=Temporary)


def creating_group(
    context: ContextCore,
    name: str,
    conflict: ConflictRelation | None,
    remove_after: float | EllipsisType | None,
) -> Script[Group]:
    """Create the group, or check that it has these options."""
    context.check()
    connection = context.connection
    group = Group(name)
    if conflict is not None and not isinstance(conflict, ConflictRelation):
        raise TypeError(f"conflict is a ConflictRelation, not {conflict!r}")
    relation = "" if conflict is None else conflict.to_json()
    body = cw.CreateGroup(group.text, relation, remove_after_ms(remove_after))
    request = connection.do(lambda c: c.request(body))
    yield Pause(request)
    request.outcome()
    known = ConflictRelation.from_json(request.data.decode())
    if connection.trace is not None and request.value == 0:  # it never had a member
        connection.trace.created(group.text, known.to_json())
    connection.relations[group.text] = known
    if conflict is not None or remove_after is not ...:
        connection.asked_of_groups[group.text] = (body.relation, body.remove_after_ms)
    return group


def deleting_group(context: ContextCore, name: str | Group, force: bool) -> Script[None]:
    """Remove all members of a group, so that its name is free."""
    context.check()
    connection = context.connection
    group = Group(name) if isinstance(name, str) else name
    body = cw.DeleteGroup(group.text, force)
    request = connection.do(lambda c: c.request(body))
    yield Pause(request)
    request.outcome()
    connection.relations.pop(group.text, None)
    connection.asked_of_groups.pop(group.text, None)


def creating_last_value_topic(context: ContextCore, name: str) -> Script[Topic]:
    """Make the topic one that keeps the last message of each key."""
    topic = Topic(name)
    yield from context.asking(cw.CreateTopic(topic.text))
    return topic


def creating_temporary(context: ContextCore, kind: type[TemporaryKind]) -> Script[TemporaryKind]:
    """Create a destination that lives as long as the connection."""
    context.check()
    with context.connection.lock:
        name = context.connection.conversation.next_temporary()
    destination = kind(name, context)
    yield from context.asking(cw.CreateTemporary(destination.text))
    return destination


def deleting_temporary(context: ContextCore, destination: Temporary) -> Script[None]:
    """Delete a temporary destination, with its messages."""
    yield from context.asking(cw.DeleteTemporary(destination.text))


def unsubscribing(context: ContextCore, name: str, group: str | Topic | None) -> Script[None]:
    """End a durable subscription, or remove the member of this name from a group."""
    arguments.text("the name of a subscription", name)
    topic = Group(group) if isinstance(group, str) else group
    if topic is not None and not isinstance(topic, Topic):
        raise InvalidDestinationError(f"{topic!r} is not a group")
    yield from context.asking(cw.Unsubscribe(name, "" if topic is None else topic.text))
