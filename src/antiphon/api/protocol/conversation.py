"""A client's side of the protocol (`formats/protocol`), without sockets, clocks or threads.

The application makes requests (`send`, `request`, `acknowledge`...) and gets tickets; the driver
(`driver.py`) reports inputs (`connected`, `received`, `lost`, `tick`), sends the requests that
`flush` returns and carries out the events of `take_events`. Every timer is in here: back-off, lease
and heartbeats (`attaching.py`), packs that wait for more (`outbox.py`), the pause in which
acknowledgements gather. `next_deadline_ms` is the time when `tick` is due. Answers about the
session's packs, requests and consumers are taken in `answers.py`.

Promises: even if connections are lost, each ticket is settled once, in the order of sending; no
message is accepted twice, and none arrives twice; no answer of a server raises here. A session that
cannot go on ends with an error for all waiting calls, whose `happened` tells whether the request
may have taken effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from antiphon.api.protocol.answers import Answers, Handler
from antiphon.api.protocol.attaching import Attaching, Due, Terms
from antiphon.api.protocol.effects import (
    AcksDue,
    Dial,
    Event,
    HangUp,
    Over,
    Settled,
)
from antiphon.api.protocol.outbox import Batch, Outbox, Stream
from antiphon.api.protocol.packing import Packing, SelfClocking
from antiphon.api.protocol.phases import Cause, Phase
from antiphon.api.protocol.requests import Acknowledgement, Request, Unanswered
from antiphon.api.protocol.state_transfer import Handout, States
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.protocol.transaction import Transaction
from antiphon.errors import FormatError, Happened, IllegalStateError, JMSError
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Outgoing
from antiphon.formats.frames import Body
from antiphon.formats.protocol.refusals import error_of
from antiphon.model.destinations import is_queue
from antiphon.model.redelivery import DEFAULT, Redelivery

ACK_MS = 20
"""Milliseconds that acknowledgements gather when no call waits for them and the window is wide
open."""


class Conversation:
    """One session of a client, from its first connection to its end, over all its connections.

    Needs a driver that calls its methods one at a time, under one lock if there are several
    threads, and `flush` after every change. It holds no more than the outbox has room for and the
    consumers' windows allow.
    """

    def __init__(
        self,
        session: int,
        token: bytes,
        chance: Random,
        now_ms: int,
        terms: Terms,
        packing: Packing | None = None,
    ) -> None:
        """`session` and `token` are random, and no other client has them."""
        self.session = session
        self.ready = Ticket()
        """Settled when a server has taken the session, or none will."""

        self._way = Attaching(session, token, chance, now_ms, terms)
        self._outbox = Outbox(session, packing or SelfClocking())
        self.try_send = self._outbox.put
        """As `send`, but None if there is no `room`."""

        self.send_more = self._outbox.more
        """The outbox's own method: it is called for almost every message."""

        self.try_send_packed = self._outbox.put_packed

        self.idles = False
        """Messages that are sent now could leave: `flush` is worth while."""

        self.redelivery = DEFAULT  # the terms of queues without their own, as this server has them
        self.holds = False  # this server takes `FAILED` rows, and holds such messages

        self._named: dict[str, Request] = {}  # openings of named producers
        self._unanswered = Unanswered()
        self._out: list[cw.Request] = []
        self._events: list[Event] = []
        self._states = States(
            self._out.append,
            self.request,
            self._events.append,
            lambda ticket: self._events.append(Settled(ticket)),
        )
        self._answers = Answers(
            self._outbox, self._unanswered, self._states, self._events, self._closed
        )
        self._handlers: dict[type, Handler] = {
            cw.Attached: self._on_attached,
            cw.Ended: self._on_ended,
            cw.Redirect: self._on_redirect,
            cw.Refused: self._on_refused,
            **self._answers.handlers,
        }
        self._error: JMSError | None = None  # the reason why it is over

        self._consumers = 0  # numbers given out so far
        self._producers = 0
        self._temporaries = 0
        self._closing: Request | None = None

        self._acks_wait = False
        self._acks_due_ms: int | None = None

    # -- For the application: reading -----------------------------------------------------------

    @property
    def attached(self) -> bool:
        return self._way.phase is Phase.ATTACHED

    @property
    def over(self) -> bool:
        return self._way.phase is Phase.OVER

    @property
    def idle(self) -> bool:
        """Return whether all requests and messages are answered."""
        waits = self._unanswered.requests or self._unanswered.acks
        return not (waits or self._outbox.unsettled())

    def room(self) -> Ticket:
        """Return a ticket that is settled when there is room for more messages."""
        if self._way.phase is Phase.OVER:
            raise self.problem()
        return self._outbox.room()

    def unsettled(self) -> list[Batch]:
        return self._outbox.unsettled()

    def problem(self, happened: Happened = "no") -> JMSError:
        """Return a new error with the reason why the session takes no more requests."""
        assert self._way.phase is Phase.OVER
        if self._error is None:
            return IllegalStateError("the connection is closed", happened=happened)
        return type(self._error)(*self._error.args, happened=happened)

    @property
    def has_neglected(self) -> bool:
        return bool(self._outbox.neglected)

    def take_neglected(self) -> list[JMSError]:
        """Return the errors of sends that the application never asked for, and no longer can."""
        found = list(self._outbox.neglected)
        for _ in found:
            self._outbox.neglected.popleft()
        return found

    # -- For the application: requests ----------------------------------------------------------

    @property
    def stream(self) -> Stream:
        """Return the session's own stream."""
        return self._outbox.streams[0]

    def send(
        self, stream: Stream, destination: str, flags: int, message: Outgoing, key: Any = None
    ) -> Batch:
        """Send one message. Call it only while there is room."""
        if self._way.phase is Phase.OVER:
            raise self.problem()
        batch = self._outbox.put(stream, destination, flags, message, key)
        assert batch is not None, "there is no room: wait for it"
        return batch

    def commit(
        self,
        transaction: Transaction,
        rows: Iterable[cw.AckRow],
        token: str = "",
        staged: Iterable[str] = (),
    ) -> Request:
        """Make the transaction visible, and acknowledge these rows."""
        body = cw.Commit(tuple(rows), transaction.sent(), token, tuple(staged))
        return self._after(transaction, self.request(body))

    def stage(self, transaction: Transaction) -> Request:
        """Keep the transaction at the servers; the answer's data is its handle."""
        return self._after(transaction, self.request(cw.Stage(transaction.sent())))

    def discard(self, transaction: Transaction) -> Request:
        """Drop the transaction: none of it becomes visible."""
        return self._after(transaction, self.request(cw.Discard(transaction.sent())))

    def _after(self, transaction: Transaction, request: Request) -> Request:
        request.transaction = transaction
        self._outbox.seal()  # no more messages of it will come
        return request

    def open_producer(self, name: str) -> Request:
        """Ask for a named producer, once. When that is done, `opened` returns its stream."""
        known = self._named.get(name)
        if known is None or known.error is not None:
            self._producers += 1
            known = self._named[name] = self.request(cw.OpenProducer(self._producers, name))
        return known

    def opened(self, request: Request) -> Stream:
        assert isinstance(request.body, cw.OpenProducer)
        return self._outbox.streams[request.body.producer]

    def next_consumer(self) -> int:
        """Return a number for a new consumer."""
        self._consumers += 1
        return self._consumers

    def open_consumer(self, asked: cw.OpenConsumer) -> Request:
        request = self.request(asked)
        divided = (is_queue(asked.destination) or asked.shared) and not asked.browse
        self._answers.open(asked.consumer, divided=bool(divided))
        return request

    def join(self, asked: cw.Join) -> Request:
        """Open a consumer that is a member of a group."""
        request = self.request(asked)
        self._answers.open(asked.consumer, divided=False)
        # Without a name of its own, it gets this one, which the servers make, too.
        self._states.join(asked.consumer)
        return request

    def close_consumer(
        self,
        consumer: int,
        kept: Sequence[cw.Kept] = (),
        back: Sequence[cw.Kept] = (),
        failed: bool = False,
    ) -> Request:
        """Close a consumer. Of the messages that it saw, `kept` may yet be acknowledged, and `back`
        go to the next one. `failed`: it is a member that cannot go on; its group suspects it."""
        self._answers.forget(consumer)
        return self.request(cw.CloseConsumer(consumer, tuple(kept), failed, tuple(back)))

    def leave(self, consumer: int) -> Request:
        """Have a member leave its group."""
        self._answers.forget(consumer)
        return self.request(cw.Leave(consumer))

    def state_taken(self, consumer: int, serial: int, seq: int) -> None:
        """Note that this `Chunk`, and all before it, are stored."""
        if self._way.phase is not Phase.OVER:
            self._states.taken(consumer, serial, seq)

    def hand_out(self, consumer: int, serial: int) -> Handout:
        """Begin to hand out this member's state, as this group event asks."""
        return self._states.hand_out(consumer, serial)

    def hand(self, handout: Handout, data: bytes, last: bool) -> None:
        """Send the next chunk. Call it only while the handout has room and is not over."""
        self._states.hand(handout, data, last)

    def cannot_hand_out(self, handout: Handout, reason: str) -> None:
        self._states.give_up(handout, reason)

    def next_temporary(self) -> str:
        """Return a name for a temporary destination that no other client can have."""
        self._temporaries += 1
        return f"{self.session:x}.{self._temporaries}"

    def request(self, body: cw.Body) -> Request:
        """Send the servers a request. They grant requests one after the other, and each after all
        acknowledgements before it."""
        if self._way.phase is Phase.OVER:
            raise self.problem()
        request = self._unanswered.request(body)
        if isinstance(body, cw.CloseSession):
            self._closing = request
        return request

    def acknowledge(self, rows: Iterable[cw.AckRow], patient: bool = False) -> Acknowledgement:
        """Acknowledge these rows. `patient`: no call will wait for it."""
        if self._way.phase is Phase.OVER:
            raise self.problem("unknown")
        ack = self._unanswered.acknowledge(rows, patient)
        for row in ack.rows:
            if row.kind == cw.FAILED:
                self._answers.failed(row)
        return ack

    def acks_wait(self) -> None:
        """Note that consumers have gathered acknowledgements for which no call waits."""
        self._acks_wait = True

    def abandon(self) -> None:
        """End the session without waiting for an answer."""
        if self._way.phase is not Phase.OVER:
            self._hang_up("closed")
            self._end(Cause.CLOSED, None)

    def fail(self, error: JMSError) -> None:
        """End the session, for its attempt to connect found that none will ever succeed."""
        if self._way.phase is Phase.DIALLING:
            self._hang_up(str(error))
            self._end(Cause.HOPELESS, error)

    # -- Inputs from the driver -----------------------------------------------------------------

    def connected(self, now_ms: int) -> None:
        """Take a connection to a server."""
        if self._way.phase is not Phase.DIALLING:
            return
        sequences, seen = self._outbox.sequences(), self._answers.seen()
        self._out[:] = [self._way.attach(now_ms, sequences, seen)]

    def dials(self, address: str) -> None:
        """Note the address of the server that is dialled."""
        self._way.dials(address)

    def lost(self, now_ms: int, reason: str) -> None:
        """Take the end of the connection, or of the attempt at one."""
        if self._way.phase not in (Phase.PAUSING, Phase.OVER):
            self._states.lost()
            self._way.lost(now_ms, reason)

    def received(self, body: Body, now_ms: int) -> None:
        """Take an answer of the server."""
        way = self._way
        if way.phase is not Phase.ATTACHED and way.phase is not Phase.ATTACHING:
            return
        try:
            answer = cw.decode_answer(body)
            way.heard_ms = now_ms
            self._handler_of(type(answer))(answer, now_ms)
        except FormatError as error:
            self._leave(now_ms, f"it does not keep to the protocol: {error}")

    def part_came(self, now_ms: int) -> None:
        """Note that a part of a large answer has come: the server is not silent."""
        self._way.heard_ms = now_ms

    def _handler_of(self, kind: type) -> Handler:
        attaching = self._way.phase is Phase.ATTACHING
        if kind in self._handlers and (kind in _FIRST if attaching else kind is not cw.Attached):
            return self._handlers[kind]
        raise FormatError(f"{kind.__name__} was not asked for")

    def tick(self, now_ms: int) -> None:
        """Carry out the steps that are due by now."""
        if self._way.phase is Phase.OVER:
            return
        due = self._way.due(now_ms)
        if due is Due.PING:
            self._out.append(cw.Ping())
            self._way.asks(now_ms)
        elif due is Due.DIAL:
            self._events.append(Dial(self._way.dial(now_ms)))
        elif due is Due.LEAVE:
            self._leave(now_ms, self._way.silence())
        elif due is Due.GIVE_UP:
            failure = self._way.failure()
            self._hang_up("given up")
            self._end(Cause.TOO_LATE, failure)
        self._states.tick(now_ms)
        if self._acks_due_ms is not None and now_ms >= self._acks_due_ms:
            self._acks_due_ms = None
            self._events.append(AcksDue())

    def flush(self, now_ms: int) -> list[cw.Request]:
        """Return the requests that leave now, in this order."""
        if self._acks_wait:
            self._acks_wait = False
            if self._acks_due_ms is None:
                self._acks_due_ms = now_ms + ACK_MS
        attached = self._way.phase is Phase.ATTACHED
        if attached:
            if self._unanswered.acks_to_send:
                self._out += self._unanswered.take_acks()
            self._out += map(cw.Publish, self._outbox.leaving(now_ms))
            if (request := self._unanswered.take_request()) is not None:
                self._out.append(request)
        self.idles = attached and self._outbox.may_leave
        out = self._out.copy()
        self._out.clear()
        if out:
            self._way.said_ms = now_ms
        return out

    def take_events(self) -> list[Event]:
        """Return the events that the driver has to carry out now, in this order."""
        events = self._events.copy()
        self._events.clear()
        return events

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` is due; None: never again."""
        if self._way.phase is Phase.OVER:
            return None
        due = self._way.next_deadline_ms()
        if self._way.phase is Phase.ATTACHED:
            due = min(due, self._states.next_deadline_ms() or due)
            if self._outbox.due_ms is not None:
                due = min(due, self._outbox.due_ms)
        return due if self._acks_due_ms is None else min(due, self._acks_due_ms)

    # -- Connecting -----------------------------------------------------------------------------

    def _leave(self, now_ms: int, reason: str) -> None:
        """Leave this server, for another one or for a later connection to itself."""
        self._hang_up(reason)
        self._states.lost()
        self._way.leave(now_ms, reason)

    def _hang_up(self, reason: str) -> None:
        if self._way.phase is not Phase.PAUSING:
            self._events.append(HangUp(reason))
        self._out.clear()

    def _on_attached(self, m: cw.Attached, now_ms: int) -> None:
        if m.session != self.session or m.heartbeat_ms <= 0:
            raise FormatError(f"attached to session {m.session:x}, heartbeat {m.heartbeat_ms} ms")
        first = not self._way.was_attached
        self._way.admitted(m.heartbeat_ms, now_ms)
        if first:
            self.ready.settle()
            self._events.append(Settled(self.ready))
        self._states.attached(now_ms)
        self._outbox.pack_max = min(cw.PACK_MAX, m.pack_max)
        self.holds = m.redelivery is not None
        default = msgspec.structs.replace(DEFAULT, deliveries=m.deliveries_max)
        self.redelivery = (m.redelivery or Redelivery()).over(default)
        for refused in m.refused:
            self._answers.on_not_published(refused, now_ms)
        for producer, sequence in m.published:
            if producer in self._outbox.streams:  # otherwise its opening has no answer yet
                self._answers.settled(self._outbox.published(producer, sequence))
        self._send_everything_again()

    def _send_everything_again(self) -> None:
        self._unanswered.send_again()
        self._out += map(cw.Publish, self._outbox.unanswered())

    # -- The end --------------------------------------------------------------------------------

    def _closed(self) -> None:
        """End the session, which the servers have closed as the application had asked."""
        self._hang_up("closed")
        self._end(Cause.CLOSED, None)

    def _on_ended(self, m: cw.Ended, _: int) -> None:
        self._hang_up("the session has ended")
        closed = self._closing is not None and (self._closing.sent or not m.code)
        self._end(Cause.ENDED, None if closed else error_of(m.code, m.text))

    def _on_redirect(self, m: cw.Redirect, now_ms: int) -> None:
        """Go to the server that has to let go of the session first."""
        self._hang_up("another server must let go of it first")
        self._states.lost()
        self._way.redirected(m.node, m.address, now_ms)

    def _on_refused(self, m: cw.Refused, _: int) -> None:
        self._hang_up("refused")
        text = f"the server refuses what this client sent: {m.reason}"
        self._end(Cause.ENDED, IllegalStateError(text))

    def _end(self, cause: Cause, error: JMSError | None) -> None:
        """End the session: settle all tickets, for no more answers will come."""
        self._way.change(cause)
        self._error = error
        self._out.clear()
        unknown: Happened = "unknown" if self._way.was_attached else "no"
        granted = self._closing if error is None else None
        failed = self._unanswered.fail(self.problem, unknown, granted)
        if not self.ready.done:
            self.ready.settle(self.problem("no"))
            self._events.append(Settled(self.ready))
        self._answers.settled(failed)
        self._answers.settled(self._outbox.fail(self.problem(unknown), self.problem("no")))
        self._answers.forget_all()
        self._states.lost()
        self._events.append(Over(error))


_FIRST = (cw.Attached, cw.Ended, cw.Redirect, cw.Refused)
"""The answers that a server may give to `Attach`."""
