"""Simulated programs, on the client's side of the protocol (`api/protocol`), as users write them.

A program publishes, or it consumes and acknowledges, or does both in transactions; it closes
producers and consumers and opens them again, is killed, paused, cut off, and comes back. The ledger
compares its promises with its results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.api.protocol.attaching import Terms
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.driver import Receiver
from antiphon.api.protocol.outbox import Batch, Stream
from antiphon.api.protocol.requests import Request
from antiphon.errors import IllegalStateError, JMSError, SecurityError
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Outgoing, encode_extra
from antiphon.formats.pack import DELAYED, NON_PERSISTENT
from antiphon.model.destinations import is_temporary
from antiphon.sim.cluster.client_links import SimLink
from antiphon.sim.cluster.observer import Message
from antiphon.sim.message_traits import draw_extra, flags_of
from antiphon.sim.programs.connection import SimConnection
from antiphon.sim.programs.consumer import SimConsumer
from antiphon.sim.programs.member import SimMember, tagged
from antiphon.sim.programs.member_state import Replica
from antiphon.sim.programs.transactor import Transactor
from antiphon.sim.roles import MAILBOX, Role
from antiphon.sim.seeds import stream
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.cluster.server_with_clients import SimHome
    from antiphon.sim.messaging_world import MessagingWorld

MS = 1000

CONTROLS_MAX = 3
"""A member sends its group nothing more while this many of its messages are not settled."""


class SimProgram:
    """One program through all its lives. The world starts, kills and cuts it; it works by itself,
    and reports answers and deliveries to the ledger."""

    def __init__(self, world: MessagingWorld, number: int, role: Role) -> None:
        self.world = world
        self.number = number
        self.role = role
        self.lives = 0
        self.alive = False
        self.paused_until_us = 0
        self.sent = 0  # messages that it began to send
        self.settled = 0  # of these, those with a known fate
        self.to_send = role.publishes
        self.leaving = False  # the work is done: it closes, and does not come back
        self.gone = False
        self.gifts = 0  # messages of its own that it has sent in transactions
        self.transactor: Transactor | None = None
        self.random = stream(world.seed, "program", number)
        self._chance = stream(world.seed, "special", number)  # of messages
        self._in_groups: dict[bytes, str] = {}  # sent in transactions -> the group
        self._conversation: Conversation | None = None
        self._connection: SimConnection | None = None  # of its present life
        self._consumers: dict[int, SimConsumer] = {}  # by place in `role.consumes`
        self._members: dict[int, SimMember] = {}  # by the consumer's number
        self.replicas: dict[str, Replica] = {}  # by group
        self.confirmed: set[int] = set()  # of groups: acknowledged for certain
        self._stream: Stream | None = None
        self._closing = False

    # -- Life ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"p{self.number}"

    def begin(self) -> None:
        self.start()

    def start(self) -> None:
        if self.alive or self.gone:
            return
        self.lives += 1
        self.alive = True
        self.paused_until_us = 0
        self._closing = False
        self._stream = None
        self.settled = self.sent  # the fate of the others stays unknown
        client_id = self.name if self.role.has_client_id else ""
        random = stream(self.world.seed, "conversation", self.number, self.lives)
        self._conversation = Conversation(
            random.getrandbits(62) + 1,
            random.randbytes(16),
            random,
            self._now_ms(),
            Terms(client_id=client_id, connect_ms=1 << 40, lease_ms=self.role.lease_ms),
        )
        self._connection = SimConnection(self, self._conversation)
        self._conversation.ready.watch(self._ready)
        self.world.sessions[self._conversation.session] = self
        self.world.note(0, f"{self.name} starts")
        self.step()

    def kill(self, silently: bool) -> None:
        self.alive = False
        self._conversation = None
        self.transactor = None
        if self._connection is not None:
            self._connection.die(silently)
        self._connection = None
        for consumer in self._consumers.values():
            consumer.forget()
        self._consumers = {}
        for member in self._members.values():
            member.forget()
        self._members = {}
        self.world.note(0, f"{self.name} is killed")
        self.world.trace(self, "crash", "")

    def missing(self) -> list[int]:
        """Return the messages that it must still get, or acknowledge."""
        return [position for c in self._consumers.values() for position in c.missing()]

    def finished(self) -> bool:
        """Return whether its work is done, and it has got all that it must get."""
        if self.settled < max(self.sent, self.to_send):
            return False
        if self.transactor is not None and not self.transactor.idle:
            return False
        if self.role.member is not None:
            # A program without a connection may be removed from a group, and not know it yet.
            attached = self._is_attached()
            settled = [m.group for m in self._members.values() if m.settled()]
            return attached and sorted(settled) == sorted(self.role.member.groups)
        open_ = [c for c in self._consumers.values() if c.reading is not None]
        return len(open_) == len(self.role.consumes) and not self.missing()

    def lives_in(self, session: int) -> bool:
        """Return whether its present life has this session."""
        return self._conversation is not None and self._conversation.session == session

    def _is_attached(self) -> bool:
        """Return whether it is attached, by its own view and that of the servers: a connection may
        have died in silence."""
        conversation = self._conversation
        if conversation is None or not conversation.attached:
            return False
        return self.world.is_attached(conversation.session)

    def calm(self) -> None:
        """Reduce its work to a little, for the faults have stopped."""
        self.to_send = min(self.to_send, self.sent + 3)
        self.paused_until_us = 0
        if not self._closing:
            self._acknowledge_everything()
            self.step()
        for member in self._members.values():
            member.finish()

    def leave(self) -> None:
        """Close everything, and end."""
        self.leaving = True
        self.gone = not self.alive
        if self._conversation is not None:
            if not self._closing:
                self._acknowledge_everything()
                for member in self._members.values():
                    member.leave()
            self._close_session()
            self.step()

    def _acknowledge_everything(self) -> None:
        for consumer in self._consumers.values():
            consumer.finish()

    # -- Its connection ------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self.world.now_us // MS

    def received(self, link: SimLink, body: bytes) -> None:
        """Take a body that a server sent over this link."""
        if self._connection is not None:
            self._connection.received(link, body)

    def link_lost(self, link: SimLink) -> None:
        """Take the end of this link."""
        if self._connection is not None:
            self._connection.link_lost(link)

    @property
    def _link(self) -> SimLink | None:
        return self._connection.link if self._connection is not None else None

    @property
    def home(self) -> SimHome | None:
        """The server that it is connected to."""
        link = self._link
        return link.server if link is not None else None

    def cut(self) -> None:
        """Break the link, if there is one; both ends learn of it."""
        link = self._link
        if link is not None:
            link.cut()

    def move(self, core: frozenset[int]) -> None:
        """Move to a server that all others of the core reach: a state goes directly from one
        member's server to the other's."""
        link = self._link
        if link is not None and link.server.number not in core:
            link.cut()

    def die_line(self) -> None:
        """Break the link, if there is one; neither end gets a notice."""
        link = self._link
        if link is not None:
            link.die()

    def step(self) -> None:
        """Have the driver carry out the requests to the conversation."""
        if self._connection is not None:
            self._connection.step()

    @property
    def _receivers(self) -> dict[int, Receiver]:
        assert self._connection is not None
        return self._connection.driver.receivers

    def acks_wait(self, receiver: Receiver) -> None:
        """Note that this receiver has gathered acknowledgements for which no call waits."""
        if self._connection is not None:
            self._connection.driver.acks_wait(receiver)

    def over(self, error: JMSError | None) -> None:
        """Take the end of the session."""
        self.world.note(0, f"{self.name} is over: {error}")
        if isinstance(error, IllegalStateError | SecurityError):
            raise ViolationError(f"{self.name} did nothing wrong, and its session ended: {error}")
        if error is not None and self._closing is False:
            self.world.sessions_lost += 1
        if error is not None and self.leaving:
            self.world.lost_while_leaving.add(self.name)
        self.kill(silently=False)
        if self.leaving:
            self.gone = True
        else:
            self.world.at(self.random.randrange(1, 500) * MS, self.start)

    # -- The application's half: publishing ----------------------------------------------------

    def _ready(self) -> None:
        assert self._conversation is not None
        if self._conversation.over:
            return
        if self.role.named:
            request = self._conversation.open_producer(self.name)
            request.watch(lambda: self._producer_opened(request))
        else:
            self._stream = self._conversation.stream
        if self.role.transacts is not None:
            self.transactor = Transactor(self, self._conversation)
        for place in range(len(self.role.consumes)):
            self._open_consumer(place)
        if self.role.member is not None:
            for group in self.role.member.groups:
                self._join(group)
        self.world.at(self.role.think_us, self._work, self.lives)

    def _producer_opened(self, request: Request) -> None:
        """Go on where the named producer was, in whatever life."""
        if self._conversation is None or self._conversation.over:
            return
        if request.error is not None:
            self._close_session()  # another session still has it; the next life tries again
            return
        self._stream = self._conversation.opened(request)
        self.sent = self.settled = request.value

    def _work(self, life: int) -> None:
        """Send a message, or close a consumer or the session. Called now and then."""
        if life != self.lives or self._conversation is None or self._closing:
            return
        if self.paused_until_us <= self.world.now_us:
            if self.sent < self.to_send and self._stream is not None:
                for _ in range(self.random.choice((1, 1, 3))):
                    self._send()
            if self.world.core is None and self.random.random() < self.role.restless:
                self._close_something()
            for member in list(self._members.values()):
                member.work()
            if self.transactor is not None and not self._closing:
                self.transactor.work()
            self.step()
        pause = self.random.choice((1, 5, 50)) * self.role.think_us
        self.world.at(pause, self._work, life)

    def _send(self) -> None:
        conversation = self._conversation
        if conversation is None or conversation.over or self.sent >= self.to_send:
            return
        assert self._stream is not None
        self.sent += 1
        # A program that starts again does not know how far it was, unless its producer does.
        sender = self.name if self.role.named else f"{self.name}.{self.lives}"
        destination = self.somewhere()
        flags = 0 if self.role.persistent else NON_PERSISTENT
        body = f"{sender}#{self.sent}".encode()
        delay = None
        if self.world.is_group(destination):
            extra = self.tagged(destination, body)
        else:
            special = draw_extra(self._chance, self.role.flavour)
            extra, flags = encode_extra(special), flags | flags_of(special)
            if flags & DELAYED:  # it has no place in the order of the others
                body, delay = f"{sender}.{self.sent}#1".encode(), special.delivery_delay
        batch = conversation.send(
            self._stream, destination, flags, Outgoing(TEXT, body, extra, self._now_ms()), delay
        )
        stream_ = self._stream
        persistent = self.role.persistent
        message = Message(
            conversation.session, stream_.sequence, stream_.producer, persistent=persistent
        )
        self.world.observer.sends(self, message)
        batch.watch(lambda: self._answered(batch, body, message))

    def tagged(self, group: str, body: bytes) -> bytes:
        """Return the headers of a message for a group, and trace it."""
        self.world.trace(self, "send", group, message=body.decode())
        if self.transactor is not None:
            self._in_groups[body] = group
        return tagged(self)

    def trace_sent(self, bodies: list[bytes]) -> None:
        """Trace messages that were sent in a transaction and committed."""
        for body in bodies:
            if body in self._in_groups:
                told = {"message": body.decode(), "persistent": True}
                self.world.trace(self, "sent", self._in_groups[body], **told)

    def somewhere(self) -> str:
        destination = self.random.choice(self.role.to)
        if destination != MAILBOX:
            return destination
        # The destination may be gone by the time the message comes there.
        return self.random.choice([*self.world.mailboxes] or [self.role.to[0]])

    def _answered(self, batch: Batch, body: bytes, message: Message) -> None:
        self.settled += 1
        batch.looked_at = True
        if batch.error is None:
            self.world.observer.sent(self, message)
            if self.role.persistent:
                self.world.ledger.answered(body)
            if self.world.is_group(batch.destination):
                told = {"message": body.decode(), "persistent": self.role.persistent}
                self.world.trace(self, "sent", batch.destination, **told)
        elif batch.error.happened == "no" and not self.role.named:
            # Messages of a named producer that failed are sent as new ones by its next life.
            self.world.ledger.refused(body)
            over = self._conversation is None or self._conversation.over
            if not over and not is_temporary(batch.destination):
                raise ViolationError(f"{body!r} is refused: {batch.error}")

    # -- Consuming -----------------------------------------------------------------------------

    def open_consumers(self) -> list[SimConsumer]:
        return list(self._consumers.values())

    @property
    def commits(self) -> bool:
        """Return whether a transaction is about to end; until then it receives nothing."""
        return self.transactor is not None and self.transactor.busy

    def _open_consumer(self, place: int) -> None:
        conversation, destination = self._conversation, self.role.consumes[place]
        assert conversation is not None
        if is_temporary(destination):
            destination += conversation.next_temporary()
            conversation.request(cw.CreateTemporary(destination))
        durable = f"mail{place}" if self.role.durable and destination.startswith("topic:") else ""
        selects = place % 2 == 1
        consumer = SimConsumer(self, conversation, destination, durable, selects)
        self._consumers[place] = consumer
        self._receivers[consumer.number] = consumer

    # -- Groups --------------------------------------------------------------------------------

    def _join(self, group: str) -> None:
        assert self._conversation is not None
        member = SimMember(self, self._conversation, group)
        self._members[member.number] = member
        self._receivers[member.number] = member

    def rejoin(self, life: int, group: str) -> None:
        conversation = self._conversation
        if life != self.lives or conversation is None or conversation.over or self._closing:
            return
        for number in [n for n, m in self._members.items() if m.group == group]:
            del self._members[number]
            self._receivers.pop(number, None)
        self._join(group)
        self.step()

    def send_control(self, member: SimMember, flags: int, message: Outgoing) -> bool:
        """Send a message from this member to the group itself; return False if it cannot."""
        conversation = self._conversation
        if conversation is None or conversation.over or self._stream is None or self._closing:
            return False
        if self.sent - self.settled > CONTROLS_MAX:
            return False
        self.sent += 1
        batch = conversation.send(self._stream, member.group, flags, message)
        batch.watch(lambda: self._controlled(batch, member))
        return True

    def _controlled(self, batch: Batch, member: SimMember) -> None:
        self.settled += 1
        batch.looked_at = True
        over = self._conversation is None or self._conversation.over
        # Without its last member there is no group; an earlier message may come after that.
        if batch.error is not None and not over and member.is_in:
            raise ViolationError(f"{self.name} cannot tell {batch.destination}: {batch.error}")

    # -- Closing -------------------------------------------------------------------------------

    def _close_something(self) -> None:
        if self.commits:
            return
        places = [p for p, c in self._consumers.items() if c.reading is not None]
        if places and self.random.random() < 0.7:
            self._close_consumer(self.random.choice(places))
        elif self._members and self.random.random() < 0.7:
            self.random.choice([*self._members.values()]).close_or_leave()
        else:
            self._close_session()

    def _close_consumer(self, place: int) -> None:
        """Close a consumer, and open another one."""
        conversation, consumer = self._conversation, self._consumers[place]
        assert conversation is not None
        consumer.close()
        self._receivers.pop(consumer.number, None)
        if is_temporary(consumer.destination):
            conversation.request(cw.DeleteTemporary(consumer.destination))
        self._open_consumer(place)

    def _close_session(self) -> None:
        conversation = self._conversation
        if conversation is None or conversation.over or self._closing:
            return
        self._closing = True
        kept = [k for consumer in self._consumers.values() for k in consumer.last_words()]
        for member in self._members.values():
            kept += member.last_words()
        conversation.request(cw.CloseSession(tuple(kept)))
