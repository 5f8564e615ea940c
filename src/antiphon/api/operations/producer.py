"""Producers, but for waiting: both fronts make messages into bytes, and send them, in this way.

A producer costs nothing: its messages are numbered in the connection's own sequence. One with a
name has a sequence of its own, which outlives the connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antiphon.api import arguments
from antiphon.api.messages.destinations import Destination, Topic, check_sendable
from antiphon.api.messages.headers import Headers as MessageHeaders
from antiphon.api.messages.headers import SendHeaders
from antiphon.api.messages.message import Message
from antiphon.api.messages.sending import BODY_MAX, outgoing, sent
from antiphon.api.modes import DeliveryMode
from antiphon.api.operations.scripts import Deadline, Pause, Script
from antiphon.api.protocol.outbox import Batch, Stream
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.tracing import Trace
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    MessageFormatError,
    OutcomeUnknownError,
)
from antiphon.formats.columns import (
    BYTES,
    PRIORITY,
    TEXT,
    Extra,
    Outgoing,
    Packed,
    decode_extra,
    encode_extra,
    join,
    message_id,
)
from antiphon.formats.pack import (
    CONTROL,
    DELAYED,
    NON_PERSISTENT,
    SPECIAL,
    STAGED,
    PackHeader,
)
from antiphon.model.conflicts import ConflictRelation

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore


REMOVE = "JMS_remove"
INVITE = "JMS_join_process"
SUBSCRIPTION = "JMS_subscription"
SET_CONFLICT = "JMS_set_conflict"
IN_VIEW = "JMS_in_view"
"""The property of a member's message for its group that names the view it was decided in."""

_FOR_GROUPS = (REMOVE, INVITE, SET_CONFLICT)
_MARK = b"JMS_"
_GROUP_ID = b"JMSXGroupID"


class Ours:
    """The messages of one `send_all`. The batches may have messages of others, too."""

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()  # unanswered
        self.count = 0  # of messages
        self.settled = 0  # of them, answered without an error
        self._counts: deque[int] = deque()  # how many messages of each batch are ours

    def add(self, batch: Batch) -> None:
        """Count one more message, which is in this batch."""
        self.count += 1
        if self.batches and self.batches[-1] is batch:
            self._counts[-1] += 1
            return
        self.batches.append(batch)
        self._counts.append(1)
        self.look()

    def look(self) -> None:
        """Count the answered messages. Raise the error of a batch that was refused."""
        while self.batches and self.batches[0].done:
            count = self._counts.popleft()
            self.batches.popleft().outcome()
            self.settled += count


class ProducerCore:
    """One producer: the numbering of its messages, and their way to the servers.

    A message goes one of two ways. `post` takes a mere body without headers, if there is room, in
    as few steps as possible: that is what most programs send, and for every message. All others go
    by `prepare`, which makes them bytes, and `put`.
    """

    def __init__(self, context: ContextCore, name: str | None) -> None:
        if isinstance(name, Destination):
            raise TypeError(
                f"a producer is for all destinations: create_producer(), then send({name!r}, ...)"
            )
        arguments.optional_text("the name of a producer", name)
        self.name = name
        self.context = context
        self._connection = context.connection
        self._conversation = context.connection.conversation
        self._send_more = self._conversation.send_more
        self._allow_pickle = context.connection.options.allow_pickle
        self._transacted = context.transaction is not None
        # A transaction, or a trace, needs the steps that `post` omits.
        self._by_steps = self._transacted or context.connection.trace is not None
        self._closed = False
        self._checked: Destination | None = None  # the last one that passed the checks
        self._quick: Destination | None = None  # the same, if `post` is good for it
        self._giver = object()  # of messages to it: see `Outbox.more`
        self._stream: Stream | None = None  # None: a named one that is not open yet
        self._opening: Request | None = None
        if name is None:
            self._stream = self._connection.conversation.stream
        elif self._transacted:
            raise IllegalStateError(
                "a named producer counts what was accepted, and a transaction may be rolled back: "
                "use commit(token=...) instead of a name"
            )
        else:
            context.check()
            self._opening = self._connection.do(lambda c: c.open_producer(name))

    @property
    def last_sequence(self) -> int:
        """The number of messages of this named producer that were ever accepted."""
        if self.name is None or self._stream is None:
            raise IllegalStateError("only a named producer, once it is open, counts its messages")
        return self._stream.settled

    def close(self) -> None:
        """Refuse to send from now on. Messages on their way are not affected."""
        self._closed = True
        self._checked = self._quick = None

    # -- Sending --------------------------------------------------------------------------------

    def post(self, destination: Destination, content: Any) -> Batch | None:
        """Send a mere body without headers. Return None, and change nothing, if it is not that, if
        there is no room, or if this destination must be checked first."""
        if destination is not self._quick or self.context.unusable:
            return None
        if type(content) is bytes:
            kind, body = BYTES, content
        elif type(content) is str:
            try:
                kind, body = TEXT, content.encode()
            except UnicodeEncodeError:
                return None
        else:
            return None
        now_s = time.time()
        connection = self._connection
        connection.lock.acquire()  # in half the time of a `with`
        try:
            batch = self._send_more(self._giver, kind, body, now_s)
            if batch is None and len(body) <= BODY_MAX:
                message = Outgoing(kind, body, b"", int(now_s * 1000))
                batch = self._open_batch(destination, message)
        finally:
            connection.lock.release()
        if self._conversation.idles:
            connection.wake()
        return batch

    def _open_batch(self, destination: Destination, message: Outgoing) -> Batch | None:
        """Send this message in a batch to which `post` may add more like it."""
        assert self._stream is not None
        batch = self._conversation.try_send(self._stream, destination.text, 0, message)
        if batch is not None:
            batch.giver = self._giver
        return batch

    def prepare(self, destination: Destination, content: Any, headers: MessageHeaders) -> Outgoing:
        """Return the message as it will leave. Raise all errors that it can have."""
        if self._closed or self.context.unusable:
            raise self._why_not()
        if destination is not self._checked or destination is None:
            self._check(destination)
        now_ms = time.time_ns() // 1_000_000
        if not headers and not self._allow_pickle:
            message = outgoing(content, now_ms=now_ms)
        else:
            message = outgoing(content, now_ms=now_ms, allow_pickle=self._allow_pickle, **headers)
        if message.extra and isinstance(destination, Topic):
            return self._with_extra(destination, message)
        return message

    def _with_extra(self, topic: Topic, message: Outgoing) -> Outgoing:
        """Return the message as its group needs it: with a tag that the group knows, for
        instance."""
        relation = self._connection.relations.get(topic.text)
        marked = _MARK in message.extra
        if relation is None and not marked:
            return message
        extra = decode_extra(message.extra)
        if marked and any(name in extra.properties for name in _FOR_GROUPS):
            return self._for_group(topic, message, extra)
        if relation is not None:
            relation.check_tag(extra.tag)
        return message

    def _for_group(self, topic: Topic, message: Outgoing, extra: Extra) -> Outgoing:
        """Return a message for the group itself with the view of its sender, if that is a member.
        A new conflict relation is checked before anything is sent."""
        if SET_CONFLICT in extra.properties:
            try:
                relation = ConflictRelation.from_json(message.body.decode())
            except (FormatError, UnicodeDecodeError) as error:
                raise MessageFormatError(
                    f"the body of a message with {SET_CONFLICT} is a text, the conflict relation "
                    f"as JSON: {error}"
                ) from None
            if topic.text in self._connection.relations:  # later messages come behind it
                self._connection.relations[topic.text] = relation
        removed = extra.properties.get(REMOVE)
        if self._connection.trace is not None and isinstance(removed, str):
            names = tuple(removed.split())
            self._connection.trace.add("remove", group=topic.text, members=names)
        standing = self.context.standing_in(topic.text)
        if standing is not None and standing.view is not None:
            view = {IN_VIEW: standing.view.id}
            extra = msgspec.structs.replace(extra, properties=view | extra.properties)
        return message._replace(extra=encode_extra(extra))

    def _check(self, destination: Destination) -> None:
        if not isinstance(destination, Destination):
            raise InvalidDestinationError(
                f"{destination!r} is not a destination: create_topic(name) or create_queue(name) "
                "makes one"
            )
        check_sendable(destination)
        self._checked = destination
        self._quick = None if self._by_steps or self._stream is None else destination
        self._giver = object()

    def _why_not(self) -> JMSError:
        if self.context.unusable:
            return self.context.why_not()
        return IllegalStateError("the producer is closed")

    def put(
        self, destination: Destination, content: Any, flags: int, message: Outgoing
    ) -> Batch | None:
        """Send it. Return None if there is no room for it now."""
        connection = self._connection
        conversation = connection.conversation
        stream = self._stream
        if stream is None:
            return None
        if message.extra and _MARK in message.extra and isinstance(destination, Topic):
            properties = decode_extra(message.extra).properties
            if any(name in properties for name in _FOR_GROUPS):
                flags |= CONTROL
        if message.extra and _GROUP_ID in message.extra:
            flags |= SPECIAL
        delay = decode_extra(message.extra).delivery_delay if flags & DELAYED else None
        with connection.lock:
            transaction = self.context.transaction
            if transaction is None:
                batch = conversation.try_send(stream, destination.text, flags, message, delay)
            else:
                key = (transaction, delay)
                flags |= STAGED
                batch = conversation.try_send(stream, destination.text, flags, message, key)
                if batch is not None:
                    transaction.add(batch)
            sequence = stream.sequence
            if connection.trace is not None and batch is not None and not flags & CONTROL:
                # Still holding the lock: it cannot leave before it is written down.
                self._traces(connection.trace, batch, sequence, flags)
        if batch is None:
            return None
        if conversation.idles:
            connection.wake()
        if isinstance(content, Message):
            mode = DeliveryMode.PERSISTENT
            if flags & NON_PERSISTENT:
                mode = DeliveryMode.NON_PERSISTENT
            header = PackHeader(
                destination.text, 1, conversation.session, sequence, stream.producer
            )
            sent(content, message_id(header, 0), destination, mode, message)
        return batch

    def _traces(self, trace: Trace, batch: Batch, sequence: int, flags: int) -> None:
        transaction = self.context.transaction
        # Settled when the fate of the message is known.
        told: Ticket = batch if transaction is None else transaction.committed
        destination, producer = batch.destination, batch.stream.producer
        header = PackHeader(
            destination, 1, self._connection.conversation.session, sequence, producer
        )
        message, persistent = message_id(header, 0), not flags & NON_PERSISTENT
        # Others may overtake a message that is delayed, or part of a transaction.
        place = -1 if flags & (DELAYED | STAGED) else sequence
        trace.sends("send", destination, message, place, persistent)

        def answered() -> None:
            if told.error is None:
                trace.sends("sent", destination, message, place, persistent)

        told.watch(answered)

    def putting(
        self,
        destination: Destination,
        content: Any,
        flags: int,
        message: Outgoing,
        deadline: Deadline,
    ) -> Script[Batch]:
        """Wait for room, and send it."""
        if self._stream is None:
            yield from self.opening()
        while (batch := self.put(destination, content, flags, message)) is None:
            yield from self._awaiting_room(destination, deadline)
        return batch

    def _awaiting_room(self, destination: Destination, deadline: Deadline) -> Script[None]:
        with self._connection.lock:
            room = self._connection.conversation.room()
        if not (yield Pause(room, deadline.left())):
            raise OutcomeUnknownError(
                f"no room for a message to {destination} within {self._patience}: the servers "
                "do not keep up, or cannot be reached. It was not sent",
                happened="no",
            )
        if self._closed or self.context.unusable:
            raise self._why_not()

    def sending(self, destination: Destination, content: Any, headers: SendHeaders) -> Script[None]:
        """Send, and wait until the servers have it."""
        deadline = Deadline(self._connection.options.send_timeout)
        flags, rest = split(headers)
        message = self.prepare(destination, content, rest)
        batch = self.put(destination, content, flags, message)
        if batch is None:
            batch = yield from self.putting(destination, content, flags, message, deadline)
        if self._transacted:
            return  # the commit reports its fate
        if not (yield Pause(batch, deadline.left())):
            raise self._no_answer(batch)
        batch.outcome()

    def sending_all(
        self, destination: Destination, contents: Iterable[Any], headers: SendHeaders
    ) -> Script[int]:
        """Send all of them, in packs; return how many. An error has that number as `sent`."""
        flags, rest = split(headers)
        ours = Ours()
        try:
            for content in arguments.several("messages", contents):
                batch = self.post(destination, content) if not headers else None
                if batch is None:
                    message = self.prepare(destination, content, rest)
                    deadline = Deadline(self.timeout)
                    batch = yield from self.putting(destination, content, flags, message, deadline)
                ours.add(batch)
            if not self._transacted:
                yield from self._settling(ours)
        except JMSError as error:
            if not isinstance(error, OutcomeUnknownError):
                with suppress(JMSError):  # the first error is the one to raise
                    yield from self._settling(ours)
            vars(error)["sent"] = ours.settled
            raise
        return ours.count

    def sending_packed(self, destination: Destination, packed: Packed) -> Script[None]:
        """Wait until the servers have them; in a transaction, until there is room."""
        body, flags = self._prepare_packed(destination, packed)
        count = len(packed.kinds)
        deadline = Deadline(self.timeout)
        if self._stream is None:
            yield from self.opening()
        while (batch := self._put_packed(destination, flags, body, count)) is None:
            yield from self._awaiting_room(destination, deadline)
        if not self._transacted:
            if not (yield Pause(batch, deadline.left())):
                raise self._no_answer(batch)
            batch.outcome()

    def _prepare_packed(self, destination: Destination, packed: Packed) -> tuple[bytes, int]:
        if self._closed or self.context.unusable:
            raise self._why_not()
        self._check(destination)
        if isinstance(destination, Topic):
            self._check_packed(destination, packed)
        return join(packed, time.time_ns() // 1_000_000)

    def _check_packed(self, topic: Topic, packed: Packed) -> None:
        """Raise if a group refuses the headers or properties of a message."""
        relation = self._connection.relations.get(topic.text)
        if relation is None and _MARK not in packed.extras:
            return
        for extra in map(decode_extra, packed.each_extra()):
            if any(name in extra.properties for name in _FOR_GROUPS):
                raise MessageFormatError("a message for the group itself is sent by itself")
            if relation is not None:
                relation.check_tag(extra.tag)

    def _put_packed(
        self, destination: Destination, flags: int, body: bytes, count: int
    ) -> Batch | None:
        connection = self._connection
        conversation, stream = connection.conversation, self._stream
        assert stream is not None
        with connection.lock:
            transaction = self.context.transaction
            flags |= STAGED if transaction is not None else 0
            batch = conversation.try_send_packed(stream, destination.text, flags, body, count)
            if batch is None:
                return None
            if transaction is not None:
                transaction.add(batch)
            if connection.trace is not None:
                for sequence in range(batch.first, batch.last + 1):
                    self._traces(connection.trace, batch, sequence, flags)
        if conversation.idles:
            connection.wake()
        return batch

    def _settling(self, ours: Ours) -> Script[None]:
        while ours.batches:
            batch = ours.batches[0]
            if not (yield Pause(batch, self.timeout)):
                raise self._no_answer(batch)
            ours.look()

    @property
    def timeout(self) -> float | None:
        return self._connection.options.send_timeout

    @property
    def _patience(self) -> str:
        return f"{self.timeout:g} s"

    def _no_answer(self, batch: Batch) -> OutcomeUnknownError:
        producer = f" of producer {self.name!r}" if self.name is not None else ""
        return OutcomeUnknownError(
            f"no answer for message {batch.last}{producer} to {batch.destination} within "
            f"{self._patience}; a server may have stored it. This connection goes on trying, and "
            "stores it at most once; sending it again would be a second message"
        )

    # -- Named ones -----------------------------------------------------------------------------

    def opening(self) -> Script[None]:
        """Wait until the servers have answered with which message the sequence goes on."""
        if self._opening is None:
            return
        yield Pause(self._opening)
        self._opening.outcome()
        if self._stream is None:
            with self._connection.lock:
                self._stream = self._connection.conversation.opened(self._opening)
                self._checked = None


def split(headers: SendHeaders) -> tuple[int, MessageHeaders]:
    """Return the pack's flags, and the headers that go into the message."""
    if not headers:
        return 0, headers
    mode = DeliveryMode(headers.get("delivery_mode") or DeliveryMode.PERSISTENT)
    flags = NON_PERSISTENT if mode is DeliveryMode.NON_PERSISTENT else 0
    if headers.get("priority") not in (None, PRIORITY) or headers.get("time_to_live"):
        flags |= SPECIAL
    if headers.get("delivery_delay"):
        flags |= DELAYED
    rest = {name: value for name, value in headers.items() if name != "delivery_mode"}
    return flags, cast(MessageHeaders, rest)
