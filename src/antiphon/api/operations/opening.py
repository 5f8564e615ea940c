"""Opening consumers, browsers and members: their checks and requests, undone if one fails. A wrong
argument raises before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from antiphon.api import arguments
from antiphon.api.connection import now_ms
from antiphon.api.messages.destinations import Destination, Queue, Topic
from antiphon.api.modes import SessionMode
from antiphon.api.operations.consumer import PREFETCH_MAX, ConsumerCore
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import NAME_RETRY_S, NAME_WAIT_S, MemberCore, check_joinable
from antiphon.api.operations.scripts import Deadline, Pause, Script
from antiphon.api.protocol.attaching import Terms
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    ResourceAllocationError,
)
from antiphon.formats import protocol as cw
from antiphon.model.destinations import DEAD_LETTERS
from antiphon.model.redelivery import Redelivery

PREFETCH_TOPIC, PREFETCH_QUEUE = 65_536, 1000
"""Messages that a consumer has here and has not acknowledged: enough to keep it busy while the next
ones are on their way. For queues it is less, since the others do not get the messages that one
consumer has."""

Kind = TypeVar("Kind", bound=ConsumerCore)


def terms_of(
    client_id: str | None,
    user: str | None,
    password: str | None,
    session_mode: SessionMode,
    connect_timeout: float,
    tls: Any,
) -> Terms:
    """Return the terms of a connection's session. Raise an error for an argument that makes no
    sense."""
    SessionMode(session_mode)
    patience = arguments.seconds("connect_timeout", connect_timeout)
    arguments.check_credentials(user, password)
    if tls is not None:
        not_yet("TLS")
    if client_id == "":
        raise InvalidClientIDError("a client id is not empty: leave it out to have none")
    return Terms(
        arguments.optional_text("client_id", client_id),
        int(min(patience, arguments.FOR_EVER_S) * 1000),
    )


def not_yet(what: str) -> NoReturn:
    raise IllegalStateError(f"{what}: not supported yet by this release. Nothing was done")


# -- Consumers ------------------------------------------------------------------------------------


def opening(
    context: ContextCore,
    destination: Destination,
    selector: str | None,
    no_local: bool,
    prefetch: int | None,
    slow: str | None,
    durable: str = "",
    shared: str = "",
    exclusive: bool = False,
) -> Script[ConsumerCore]:
    """Open a consumer. `durable`, `shared`: the name of the subscription, if it is one of these."""
    context.check()
    check_consumable(destination, selector)
    divided = isinstance(destination, Queue) or bool(shared)
    if exclusive and not isinstance(destination, Queue):
        raise IllegalStateError("exclusive is for queues: of a topic everybody gets everything")
    consumer = _new(context, ConsumerCore, destination, prefetch, divided)
    consumer.durable, consumer.exclusive = bool(durable), exclusive
    asked = cw.OpenConsumer(
        consumer.inbox.consumer,
        destination.text,
        consumer.inbox.prefetch,
        durable,
        selector or "",
        bool(no_local),
        "spill" if slow is None else slow,
        shared,
        exclusive=exclusive,
        redelivery=_asked_of(destination),
    )
    yield from _granting(context, consumer, lambda c: c.open_consumer(asked))
    return consumer


def opening_durable(
    context: ContextCore,
    topic: Topic,
    name: str,
    selector: str | None,
    no_local: bool,
    prefetch: int | None,
    slow: str | None,
) -> Script[ConsumerCore]:
    """Open the consumer of a durable subscription."""
    check_subscription_name(name)
    return (yield from opening(context, topic, selector, no_local, prefetch, slow, name))


def opening_shared(
    context: ContextCore,
    topic: Topic,
    name: str,
    selector: str | None,
    prefetch: int | None,
    slow: str | None,
    durable: bool,
) -> Script[ConsumerCore]:
    """Open one of the consumers that divide a subscription."""
    if not isinstance(topic, Topic):
        raise InvalidDestinationError(f"{topic!r} is not a topic: only topics are subscribed to")
    check_subscription_name(name)
    kept = name if durable else ""
    return (yield from opening(context, topic, selector, False, prefetch, slow, kept, name))


def browsing(context: ContextCore, queue: Queue, selector: str | None) -> Script[ConsumerCore]:
    """Open a consumer that gets the messages that are in the queue now, and leaves them there."""
    context.check()
    consumer = _new(context, ConsumerCore, queue, None, False)
    consumer.only_looks()
    asked = cw.OpenConsumer(
        consumer.inbox.consumer,
        queue.text,
        consumer.inbox.prefetch,
        selector=selector or "",
        browse=True,
    )
    yield from _granting(context, consumer, lambda c: c.open_consumer(asked))
    return consumer


def _asked_of(destination: Destination) -> Redelivery | None:
    """Return the terms of redelivery that a queue object has; None: none."""
    if not isinstance(destination, Queue) or destination._redelivery == Redelivery():
        return None
    return destination._redelivery


# -- Members --------------------------------------------------------------------------------------


def joining(
    context: ContextCore,
    group: Topic,
    name: str | None,
    durable: bool,
    workers: int,
    state_provider: StateProvider | None,
) -> Script[MemberCore]:
    """Join a group. A name that seems to be taken may be that of a member which has just died: it
    is free as soon as that one is suspected, so the join is tried again for `NAME_WAIT_S`."""
    context.check()
    check_joinable(group, name, durable, workers)
    if workers > 1 and not context.automatic:
        raise IllegalStateError("workers need a context that acknowledges automatically")
    deadline = Deadline(NAME_WAIT_S)
    while True:
        member = _new(context, MemberCore, group, None)
        member.prepare(durable, workers, state_provider)
        asked = member.request_to_join(name)
        try:
            yield from _granting(context, member, lambda c, asked=asked: c.join(asked))  # type: ignore[misc]
        except IllegalStateError:
            if name is None or context.unusable or not deadline.left():
                raise
            yield Pause(Ticket(), NAME_RETRY_S)
        else:
            return member


# -- All of them ----------------------------------------------------------------------------------


def _new(
    context: ContextCore,
    kind: type[Kind],
    destination: Destination,
    prefetch: int | None,
    divided: bool = False,
) -> Kind:
    """Return a consumer that the servers do not know of yet. `divided`: other consumers get a part
    of the messages."""
    if prefetch is None:
        prefetch = PREFETCH_QUEUE if divided else PREFETCH_TOPIC
    if not 1 <= arguments.number("prefetch", prefetch) <= PREFETCH_MAX:
        raise ResourceAllocationError(f"prefetch is 1 to {PREFETCH_MAX}, not {prefetch}")
    connection = context.connection
    with connection.lock:
        number = connection.conversation.next_consumer()
    inbox = Inbox(number, divided, prefetch, now_ms)
    if destination.text != DEAD_LETTERS:
        inbox.deliveries_max = connection.conversation.redelivery.deliveries or 0
    consumer = kind(context, destination, inbox)
    with context.lock:
        context.check()
        context.consumers.append(consumer)
    connection.receivers[number] = consumer  # before anything can arrive
    return consumer


def _granting(
    context: ContextCore, consumer: ConsumerCore, ask: Callable[[Conversation], Request]
) -> Script[None]:
    """Wait until the servers have opened this consumer."""
    try:
        request = context.connection.do(ask)
        yield Pause(request)
        request.outcome()
        consumer.opened(request)
    except BaseException as error:
        _not_opened(context, consumer, error)
        raise


def _not_opened(context: ContextCore, consumer: ConsumerCore, error: BaseException) -> None:
    with context.lock:
        consumer.shut()
        context.gone(consumer)
    if not isinstance(error, JMSError):
        # No call waits for it any more: it must not stay open at the servers.
        number = consumer.inbox.consumer
        context.connection.do(lambda c: None if c.over else c.close_consumer(number))


def check_consumable(destination: Destination, selector: str | None) -> None:
    """Raise if a consumer cannot have this destination or selector, before the servers would refuse
    them."""
    if not isinstance(destination, Destination):
        raise InvalidDestinationError(
            f"{destination!r} is not a destination: create_topic(name) or create_queue(name) "
            "makes one"
        )
    if selector is not None and not isinstance(selector, str):
        raise TypeError(f"a selector is a str, not {selector!r}")
    if selector:
        # Imported here, since most programs have none, and the import takes long.
        from antiphon.model.selectors.evaluate import parse

        parse(selector)


def check_browsable(queue: Queue, selector: str | None) -> None:
    if not isinstance(queue, Queue):
        raise InvalidDestinationError(f"{queue!r} is not a queue: only queues are browsed")
    check_consumable(queue, selector)


def check_subscription_name(name: str) -> None:
    if not arguments.text("the name of a subscription", name):
        raise IllegalStateError("a durable or shared subscription has a name")
