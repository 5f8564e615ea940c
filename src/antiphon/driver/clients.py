"""The driver of one server's clients, over the carriers of their messages (`formats/protocol`).

Promises: requests of a session go to the home (`broker/home/home.py`), and its effects are carried
out in order. Requests of operators (to read the whole log, the status, barriers, changes of the
cluster) need no session and are answered here; so are readers of a part of the log
(`log_queries.py`). A client that sends nonsense is refused with the reason and disconnected, one
that does not read its answers is disconnected; the other clients do not notice.

Needs: a `Log` below, which is `log.py: LogDriver` in a server; a `Pipe` for each client; and a
`Desk`, which knows the clock and the other servers' addresses. No clock and no socket is in here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from antiphon.broker.home.effects import (
    Admit,
    Cut,
    Effect,
    Hold,
    Propose,
    Redirect,
    RelayTo,
    Store,
    Tell,
)
from antiphon.broker.home.home import Home
from antiphon.broker.machine.machine import Broker
from antiphon.driver.log import watched
from antiphon.driver.log_queries import Progress, Task, task_for
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    MessagesGoneError,
)
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ANY, ClusterMember
from antiphon.formats.frames import Body
from antiphon.formats.journal import Local, Row
from antiphon.formats.server_messages import Relay
from antiphon.journal.journal import Journal
from antiphon.log.effects import Applied, Decided, ReadReady, Rejected

logger = logging.getLogger("antiphon.driver.clients")

DELIVERY_BYTES = 256 << 10
"""Packs handed to one reader of the log before the others have their turn."""

CREDIT_MAX = 64 << 20
BARRIERS_MAX = 1000
STATUS_UNREAD_BYTES = 1 << 20
"""A client for which more than this waits is not sent the status, but cut off."""
BARRIER_AGAIN_MS = 1000


class Pipe(Protocol):
    """The carrier of a client's messages: a TCP connection, or the end of an embedded one. It hands
    each of them to `Client.take`, and ends when that raises."""

    name: str

    @property
    def ended(self) -> bool: ...
    @property
    def waiting_bytes(self) -> int:
        """Return the number of bytes that were sent and have not left."""

    def send_body(self, *parts: bytes) -> None:
        """Queue a message, however many wait: the limit is in `Client.answer`."""

    def attached(self, frame_max: int) -> None:
        """Let this client send packs, for it has a session; its frames have up to `frame_max`
        bytes."""

    def hold(self, hold: bool) -> None:
        """Take nothing from the client until it is no longer held."""

    def end(self, reason: str = "") -> None:
        """End the connection after what was sent; with a reason, the client is to blame."""


class Log(Protocol):
    """The log below the clients, as they need it; in a server `log.py: LogDriver`."""

    @property
    def reign(self) -> tuple[int, int] | None:
        """The node that leads, as far as this server knows, and its epoch."""

    @property
    def leads(self) -> bool:
        """Whether that is this server."""

    def propose(self, payloads: tuple[bytes, ...]) -> None: ...
    def relay(self, node: int, message: Relay) -> None: ...
    def store(self, record: Local, batch: int) -> None: ...
    def read(self, request: int) -> None: ...
    def change(self, member: ClusterMember | int, request: int) -> None: ...
    def transfer(self, node: int, request: int) -> None: ...
    def write(self) -> bool:
        """Complete the journal's rows; return False if there is no room."""

    def settle_soon(self) -> None:
        """Call `Clients.propose` and `Clients.deliver` when this turn's inputs are in."""


class Desk(Protocol):
    """The process around the clients, as they need it."""

    def now_ms(self) -> int: ...
    def status(self) -> cw.Status: ...
    def address_of(self, node: int) -> str:
        """Return the address of a server; empty if it is not known."""

    def check_address(self, text: str) -> None:
        """Raise `FormatError` if no server can be there."""


class Trace(Protocol):
    """A recorder of what clients send and receive."""

    def asked(self, link: int, request: cw.Request) -> None: ...
    def told(self, link: int, answer: cw.Answer) -> None: ...
    def lost(self, link: int) -> None: ...
    def applied(self, effect: Applied) -> None: ...
    def restored(self) -> None: ...


class Client:
    """One connection: takes its requests (`take`, `begun`, `writable` and `closed` are called by
    its pipe), and reads the log for it."""

    def __init__(self, clients: Clients, number: int, pipe: Pipe) -> None:
        self.number = number
        self.pipe = pipe
        self._clients = clients
        self._home = clients.home
        self._journal = clients.journal
        self._unread_max = clients.home.settings.unread_bytes
        self._next = 0  # the position to read next; 0: does not read the log
        self._credit = 0
        self._task: Task | None = None  # its query of a part of the log

    # -- Called by the pipe --------------------------------------------------------------------

    def take(self, body: Body) -> None:
        """Take a message; raise `FormatError` on one that no honest client sends."""
        try:
            request = cw.decode_request(body)
            if len(body) > cw.CONTROL_MAX and not isinstance(request, cw.Publish):
                raise FormatError(f"a request has at most {cw.CONTROL_MAX} bytes, not {len(body)}")
            handler = self._HANDLERS.get(type(request))
            if handler is None:
                self._to_home(request)
            else:
                self._home.heard(self.number, self._clients.now_ms())
                handler(self, request)
        except FormatError as error:
            # Answered before the connection ends: otherwise the client would try the next server.
            self.answer(cw.Refused(str(error)))
            raise

    def begun(self, size: int) -> None:
        """Note that a large message has begun to arrive: its client is not silent meanwhile."""
        self._home.begun(self.number, size, self._clients.now_ms())
        self._clients.carry_out()

    def writable(self) -> None:
        """Go on: all or most of what was sent has left."""
        if self._home.drained(self.number, self.pipe.waiting_bytes):
            self._clients.log.settle_soon()
        if self._next:
            self.read_on()
        if self._task is not None:
            self._clients.log.settle_soon()

    def closed(self) -> None:
        self._clients.forget(self)

    # -- Sessions ------------------------------------------------------------------------------

    def _to_home(self, request: cw.Request) -> None:
        if (trace := self._clients.trace) is not None:
            trace.asked(self.number, request)
        self._home.received(self.number, request, self._clients.now_ms())
        self._clients.carry_out()
        self._clients.log.settle_soon()

    # -- Reading the log -----------------------------------------------------------------------

    def _tail(self, m: cw.Tail) -> None:
        self._task = None
        self._next = max(1, m.first)
        self._credit = 0
        self._clients.reads(self)
        self._add_credit(cw.Credit(m.credit))

    def _add_credit(self, m: cw.Credit) -> None:
        if m.more < 0 or self._credit + m.more > CREDIT_MAX:
            raise FormatError(f"a credit of {m.more} bytes; the limit is {CREDIT_MAX} in all")
        self._credit += m.more
        if self._task is not None:
            self._clients.log.settle_soon()
        else:
            self.read_on()

    def read_on(self) -> None:
        """Send what the credit allows; the rest follows when this has left (`writable`)."""
        room = DELIVERY_BYTES - self.pipe.waiting_bytes
        while self._next and self._credit > 0 and room > 0:
            found = self._journal.pack(self._next) or self._after_a_gap()
            if found is None:
                return
            row, data = found
            self.send_pack(row, data)
            self._next = row.position + row.count
            room -= len(data)

    def _after_a_gap(self) -> tuple[Row, bytes] | None:
        """Return the first pack behind those that are no longer kept."""
        rows = self._journal.rows(self._next, 1)
        return self._journal.pack(rows[0].position) if rows else None

    def _read_log(self, m: cw.ReadLog) -> None:
        self._next = self._credit = 0
        self._ask(m)
        self._add_credit(cw.Credit(m.credit))

    def _ask(self, m: cw.AskLog | cw.AskSlices | cw.ReadLog) -> None:
        try:
            self._task = task_for(m, self, self._journal)
        except InvalidDestinationError as error:
            self._refuse(error)
        else:
            self._clients.works(self)
            self._clients.log.settle_soon()

    def _refuse(self, error: JMSError) -> None:
        self.answer(cw.Refused(str(error), type(error).__name__))

    def work(self, upto: int) -> bool:
        """Do a piece of the task; return False if it has no more to do, or none at present."""
        if self._task is None or self.pipe.ended:
            return False
        try:
            progress = self._task.work(upto)
        except MessagesGoneError as error:
            self._refuse(error)
            progress = Progress.DONE
        if progress is Progress.DONE:
            self._task = None
            self._clients.rests(self)
        return progress is Progress.MORE

    # -- For tasks (`log_queries.py: Reader`) --------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes that may be sent now: the rest when these have left (`writable`)."""
        return min(self._credit, DELIVERY_BYTES - self.pipe.waiting_bytes)

    def send_pack(self, row: Row, data: bytes) -> None:
        self.answer(cw.Delivered(row.position, row.stamp, data, row.view))
        self._credit -= len(data)

    # -- Asking --------------------------------------------------------------------------------

    def _status(self, _: cw.AskStatus) -> None:
        if self.pipe.waiting_bytes > STATUS_UNREAD_BYTES:
            raise FormatError("it asks for the status, and does not read its answers")
        self._send(self._clients.status())

    def _barrier(self, m: cw.AskBarrier) -> None:
        self._clients.ask_barrier(self, m.request)

    def barrier_passed(self, request: int) -> None:
        self.answer(cw.Barrier(request, self._clients.broker.position))

    def _change(self, m: cw.Change) -> None:
        log, desk = self._clients.log, self._clients.desk
        if not log.leads:
            leader = log.reign[0] if log.reign is not None else None
            address = desk.address_of(leader) if leader is not None else ""
            self.answer(cw.NotLeader(leader, address))
            return
        if isinstance(m, cw.Add):
            if m.node < 1:
                raise FormatError(f"a node's number is above 0, not {m.node}")
            desk.check_address(m.address)
        self._clients.ask_change(self, m)

    def decided(self, effect: Decided) -> None:
        if effect.refused:
            self._refuse(IllegalStateError(effect.refused))
        else:
            self.answer(cw.Asked(effect.waiting))

    def answer(self, answer: cw.Answer) -> None:
        """Send this; cut off a client that does not read its answers."""
        self._send(cw.encode_parts(answer))

    def _send(self, parts: Sequence[bytes]) -> None:
        pipe = self.pipe
        if pipe.ended:
            return
        pipe.send_body(*parts)
        if pipe.waiting_bytes > self._unread_max:
            pipe.end(f"it has not read {pipe.waiting_bytes} bytes that it asked for")

    _HANDLERS: ClassVar[dict[type, Callable[[Client, Any], None]]] = {
        cw.Tail: _tail,
        cw.Credit: _add_credit,
        cw.ReadLog: _read_log,
        cw.AskLog: _ask,
        cw.AskSlices: _ask,
        cw.AskStatus: _status,
        cw.AskBarrier: _barrier,
        cw.Add: _change,
        cw.Remove: _change,
        cw.Transfer: _change,
    }


class Clients:
    """All connections of one server: carries out the effects of the home, and stands on the log
    (`log.py: Above`)."""

    def __init__(
        self,
        log: Log,
        home: Home,
        broker: Broker,
        journal: Journal,
        desk: Desk,
        first_barrier: int,
        watch: Callable[[Effect], None] | None = None,
    ) -> None:
        """`first_barrier`: drawn again in each life of the server, for a late answer to a question
        of an earlier life must not answer one of this life. `watch`: called before each effect of
        the home; it may raise."""
        self.log = log
        self.home = home
        self.broker = broker
        self.journal = journal
        self.desk = desk
        self.now_ms = desk.now_ms
        self.trace: Trace | None = None
        """To be set, if at all, before the first client connects."""

        self._clients: dict[int, Client] = {}
        self._last_number = 0
        self._readers: dict[Client, None] = {}
        self._workers: dict[Client, None] = {}  # those with a task
        self._read_to = 0
        self._status: Sequence[bytes] | None = None  # encoded, of this turn
        self._effects: deque[Effect] = deque()
        self._carrying = False
        self._barriers: dict[int, tuple[Client, int, int]] = {}  # client, its request, asked when
        self._changes: dict[int, Client] = {}  # by request: the client that waits for a change
        self._last_change = 0
        self._barrier_number = first_barrier
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Propose: self._propose,
            RelayTo: self._relay,
            Store: self._store,
            Tell: self._tell,
            Redirect: self._redirect,
            Admit: self._admit,
            Hold: self._hold,
            Cut: self._cut,
        }
        if watch is not None:
            self._carry_out = {t: watched(watch, do) for t, do in self._carry_out.items()}

    def connect(self, pipe: Pipe) -> Client:
        self._last_number += 1
        client = self._clients[self._last_number] = Client(self, self._last_number, pipe)
        self.home.connected(client.number, self.now_ms())
        return client

    def close(self) -> None:
        for client in list(self._clients.values()):
            client.pipe.end()

    def reads(self, client: Client) -> None:
        """Note that this client reads the whole log: from now on rows of accepted packs are written
        at once."""
        self._readers[client] = None
        self.log.write()

    def works(self, client: Client) -> None:
        self._workers[client] = None

    def rests(self, client: Client) -> None:
        self._workers.pop(client, None)

    def forget(self, client: Client) -> None:
        """Forget a client that is gone, with the questions whose answers it waits for: it asks
        elsewhere."""
        self._clients.pop(client.number, None)
        self._readers.pop(client, None)
        self._workers.pop(client, None)
        self._barriers = {n: b for n, b in self._barriers.items() if b[0] is not client}
        if self.trace is not None:
            self.trace.lost(client.number)
        self._changes = {n: c for n, c in self._changes.items() if c is not client}
        self.home.lost(client.number)
        self.carry_out()
        self.log.settle_soon()

    # -- Effects of the home -------------------------------------------------------------------

    def carry_out(self) -> None:
        """Carry out the effects of the home in order; those that a step leads to come after the
        ones before it."""
        self._effects += self.home.take()
        if self._carrying:
            return
        self._carrying = True
        while self._effects:
            effect = self._effects.popleft()
            self._carry_out[type(effect)](effect)
        self._carrying = False

    def _propose(self, effect: Propose) -> None:
        self.log.propose(effect.payloads)

    def _relay(self, effect: RelayTo) -> None:
        self.log.relay(effect.node, Relay(effect.session, effect.attachment, effect.body))

    def _store(self, effect: Store) -> None:
        self.log.store(effect.record, effect.batch)

    # A client may have left meanwhile:

    def _tell(self, effect: Tell) -> None:
        if (client := self._clients.get(effect.link)) is not None:
            if self.trace is not None:
                self.trace.told(effect.link, effect.answer)
            client.answer(effect.answer)

    def _redirect(self, effect: Redirect) -> None:
        if (client := self._clients.get(effect.link)) is not None:
            client.answer(cw.Redirect(effect.node, self.desk.address_of(effect.node)))

    def _admit(self, effect: Admit) -> None:
        if (client := self._clients.get(effect.link)) is not None:
            client.pipe.attached(cw.REQUEST_MAX)

    def _hold(self, effect: Hold) -> None:
        if (client := self._clients.get(effect.link)) is not None:
            client.pipe.hold(effect.hold)

    def _cut(self, effect: Cut) -> None:
        if (client := self._clients.get(effect.link)) is not None:
            client.pipe.end(effect.reason)

    # -- Called by the log (`log.py: Above`) ---------------------------------------------------

    def applied(self, effect: Applied) -> None:
        if self.trace is not None:
            self.trace.applied(effect)
        self.home.applied(effect.accepted, effect.events, self.now_ms())
        self.carry_out()

    def rejected(self, effect: Rejected) -> None:
        self.home.rejected(effect.packs, self.now_ms())

    def stored(self, batch: int) -> None:
        self.home.stored(batch)
        self.carry_out()

    def restored(self) -> None:
        if self.trace is not None:
            self.trace.restored()
        self.home.restored()
        self.carry_out()

    def relayed(self, m: Relay) -> None:
        """Take a message that another server relays to a client of this one."""
        try:
            self.home.relayed(m.session, m.attachment, m.body)
        except FormatError as error:
            logger.warning("another server relays what is not a message: %s", error)
        self.carry_out()

    def propose(self) -> None:
        """Send the leader all requests that came in."""
        self.home.follow(self.log.reign, self.log.leads)
        self.home.flush(self.now_ms())
        self.carry_out()

    @property
    def waiting(self) -> bool:
        """Whether a client here needs the journal's rows."""
        return bool(self._readers or self._workers or self.home.dispatcher.waiting)

    def status(self) -> Sequence[bytes]:
        """Return the status, encoded: it is made once in a turn, however many ask for it."""
        if self._status is None:
            self._status = cw.encode_parts(self.desk.status())
            self.log.settle_soon()
        return self._status

    def deliver(self) -> None:
        """Hand out new messages; the journal has their rows."""
        self._status = None
        if self.home.dispatch():
            self.log.settle_soon()
        self.carry_out()
        if self._readers and self._read_to != self.broker.position:
            self._read_to = self.broker.position
            for client in list(self._readers):
                client.read_on()
        if self._workers and not self.journal.rows_wait:
            self._work()

    def _work(self) -> None:
        """Do a piece of each query of a part of the log; then other work has its turn."""
        upto = self.broker.position
        more = [client.work(upto) for client in list(self._workers)]
        if any(more):
            self.log.settle_soon()

    # -- Barriers ------------------------------------------------------------------------------

    def ask_barrier(self, client: Client, request: int) -> None:
        if len(self._barriers) >= BARRIERS_MAX:
            raise FormatError(f"{BARRIERS_MAX} barriers are waiting, and no more are taken")
        self._barrier_number += 1
        self._barriers[self._barrier_number] = (client, request, self.now_ms())
        self.log.read(self._barrier_number)

    def read_ready(self, effect: ReadReady) -> None:
        client, request, _ = self._barriers.pop(effect.request, (None, 0, 0))
        if client is None:
            return  # answered already: the question was sent twice
        if effect.index < 0:
            self._barriers[effect.request] = (client, request, 0)  # no leader; ask again soon
        else:
            client.barrier_passed(request)

    # -- Changes of the cluster ----------------------------------------------------------------

    def ask_change(self, client: Client, m: cw.Change) -> None:
        self._last_change += 1
        self._changes[self._last_change] = client
        if isinstance(m, cw.Add):
            self.log.change(ClusterMember(m.node, ANY, False, m.address), self._last_change)
        elif isinstance(m, cw.Remove):
            self.log.change(m.node, self._last_change)
        else:
            self.log.transfer(m.node, self._last_change)

    def decided(self, effect: Decided) -> None:
        client = self._changes.pop(effect.request, None)
        if client is not None:
            client.decided(effect)

    # -- Time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self.home.tick(now_ms)
        self.carry_out()

    def next_deadline_ms(self) -> int | None:
        return self.home.next_deadline_ms()

    def let_go(self) -> None:
        """Let clients go, for this server ends: with local contexts they would otherwise have to
        wait until it is back."""
        self.home.let_go()
        self.carry_out()
        self.log.settle_soon()

    def sweep(self) -> None:
        """Ask again for barriers that have not been answered. Call it now and then."""
        now = self.now_ms()
        for number, (client, request, asked_ms) in list(self._barriers.items()):
            if now - asked_ms > BARRIER_AGAIN_MS:
                self._barriers[number] = (client, request, now)
                self.log.read(number)
        self.tick(now)
        self.log.settle_soon()
