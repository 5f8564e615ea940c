"""The clients of one server: what they publish, read and ask (`formats/client_wire.py`).

Promises: a pack is answered only when this server's state machine has accepted it, which is when a
majority has it, and a pack that was accepted before is answered at once; what is not yet accepted
is proposed again whenever it may have been lost, and counts once because the machine passes over
what it has seen. A client that sends faster than a majority takes, or does not read what it asked
for, is held back or disconnected; nobody else notices.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Protocol

from antiphon.core.effects import Accepted, ReadReady, Rejected
from antiphon.core.machine import PackMachine
from antiphon.core.node import Node
from antiphon.errors import FormatError
from antiphon.formats import client_wire as cw
from antiphon.formats import pack, wire
from antiphon.formats.entry import ANY, Member, ReplicaId
from antiphon.formats.journal import Row
from antiphon.io.journal import Journal
from antiphon.io.transport import Connection, parse_address

CLIENT_WINDOW_BYTES = 8 << 20
"""Unanswered packs of one client; beyond that nothing more is read from it until half is left."""

WINDOW_BYTES = 64 << 20
"""The same for all clients of this server together."""

PROPOSAL_BYTES = 1 << 20
"""Packs proposed at once: they travel to the leader in one frame."""

DELIVERY_BYTES = 256 << 10
"""Packs handed to one reader before the others have their turn."""

CREDIT_MAX = 64 << 20
BARRIERS_MAX = 1000
REPROPOSE_MS, REPROPOSE_MAX_MS = 1000, 8000
"""Without an answer, packs sent to the leader are sent again after so long; the pause doubles, so
that a cluster which is merely slow is not given the same work over and over."""


class Host(Protocol):
    """What clients need of their server."""

    node: Node
    machine: PackMachine
    journal: Journal

    def now_ms(self) -> int: ...
    def status(self) -> cw.Status: ...
    def address_of(self, node: int) -> str: ...
    def propose(self, packs: tuple[bytes, ...]) -> None: ...
    def read(self, request: int) -> None: ...
    def change(self, member: Member | int) -> None: ...
    def transfer(self, node: int) -> None: ...
    def settle_soon(self) -> None:
        """Call `Clients.propose` and `Clients.deliver` in the next turn of the loop."""


class Waiting(NamedTuple):
    last: int  # sequence of the pack's last message
    pack: bytes


class Client:
    """One connection."""

    def __init__(self, clients: Clients, connection: Connection) -> None:
        self._clients = clients
        self._host = clients.host
        self._connection = connection
        self.session = 0  # 0: has published nothing yet
        self.waiting: deque[Waiting] = deque()
        self.waiting_bytes = 0
        self._proposed = 0  # how many of those waiting the leader was sent
        self.proposed_ms = 0
        self.pause_ms = REPROPOSE_MS
        self.rejected = False  # the leader takes nothing now; to be tried again a little later
        self._next = 0  # the position to deliver next; 0: does not read
        self._credit = 0

    # -- Called by the connection --------------------------------------------------------------

    def take(self, body: bytes) -> None:
        try:
            request = cw.decode_request(body)
            self._HANDLERS[type(request)](self, request)
        except FormatError as error:
            # Told before the connection ends: otherwise it would be tried at the next server.
            self._answer(cw.Refused(str(error)))
            raise

    def writable(self) -> None:
        self.deliver()

    def closed(self) -> None:
        self._clients.forget(self)

    # -- Publishing ----------------------------------------------------------------------------

    def _publish(self, m: cw.Publish) -> None:
        if len(m.pack) > cw.PACK_MAX:
            raise FormatError(f"a pack has at most {cw.PACK_MAX} bytes, not {len(m.pack)}")
        header = pack.check(m.pack)
        if self.session == 0:
            self._clients.register(self, header.session)
        if header.session != self.session or header.session == 0:
            raise FormatError(f"session {header.session} on the connection of {self.session}")
        accepted = self._host.machine.last_sequence(self.session)
        last = header.sequence + header.count - 1
        if last <= accepted and not self.waiting:
            self._answer(cw.Published(self.session, accepted))
            return
        if self.waiting and header.sequence != self.waiting[-1].last + 1:
            raise FormatError(f"message {header.sequence} after {self.waiting[-1].last}")
        self.waiting.append(Waiting(last, m.pack))
        self.waiting_bytes += len(m.pack)
        self._clients.took(self, len(m.pack))

    def unproposed(self) -> list[bytes]:
        """What the leader has not been sent; from now on it has."""
        if self.rejected:
            return []
        packs = [w.pack for w in islice(self.waiting, self._proposed, None)]
        if packs:
            self._proposed = len(self.waiting)
            self.proposed_ms = self._host.now_ms()
        return packs

    def propose_again(self) -> None:
        self._proposed = 0

    def accepted(self, sequence: int) -> int:
        """Everything up to here was accepted; returns the bytes that no longer wait."""
        done = 0
        while self.waiting and self.waiting[0].last <= sequence:
            done += len(self.waiting.popleft().pack)
            self._proposed = max(0, self._proposed - 1)
        if done:
            self.waiting_bytes -= done
            self.proposed_ms, self.pause_ms = self._host.now_ms(), REPROPOSE_MS
            self._answer(cw.Published(self.session, sequence))
        return done

    def hold(self, hold: bool) -> None:
        self._connection.hold(hold)

    # -- Reading -------------------------------------------------------------------------------

    def _tail(self, m: cw.Tail) -> None:
        self._next = max(1, m.first)
        self._credit = 0
        self._clients.reads(self)
        self._add_credit(cw.Credit(m.credit))

    def _add_credit(self, m: cw.Credit) -> None:
        if m.more < 0 or self._credit + m.more > CREDIT_MAX:
            raise FormatError(f"a credit of {m.more} bytes; the limit is {CREDIT_MAX} in all")
        self._credit += m.more
        self.deliver()

    def deliver(self) -> None:
        """Send what the credit allows; the rest follows when this has left (`writable`)."""
        room = DELIVERY_BYTES - self._connection.waiting_bytes
        while self._next and self._credit > 0 and room > 0:
            found = self._host.journal.pack(self._next) or self._after_a_gap()
            if found is None:
                return
            row, data = found
            self._answer(cw.Delivered(row.position, row.stamp, data))
            self._next = row.position + row.count
            self._credit -= len(data)
            room -= len(data)

    def _after_a_gap(self) -> tuple[Row, bytes] | None:
        """The first pack behind those that are no longer kept."""
        rows = self._host.journal.rows(self._next, 1)
        return self._host.journal.pack(rows[0].position) if rows else None

    # -- Asking --------------------------------------------------------------------------------

    def _status(self, _: cw.AskStatus) -> None:
        self._answer(self._host.status())

    def _barrier(self, m: cw.AskBarrier) -> None:
        self._clients.ask_barrier(self, m.request)

    def barrier_passed(self, request: int) -> None:
        self._answer(cw.Barrier(request, self._host.machine.position))

    def _change(self, m: cw.Change) -> None:
        replica = self._host.node.replica
        if replica.leading is None:
            leader = replica.leader_id.node if replica.leader_id is not None else None
            address = self._host.address_of(leader) if leader is not None else ""
            self._answer(cw.NotLeader(leader, address))
            return
        if isinstance(m, cw.Add):
            if m.node < 1:
                raise FormatError(f"a node's number is above 0, not {m.node}")
            parse_address(m.address)
            self._host.change(Member(m.node, ANY, False, m.address))
        elif isinstance(m, cw.Remove):
            self._host.change(m.node)
        else:
            self._host.transfer(m.node)
        self._answer(cw.Asked())

    def _answer(self, answer: cw.Answer) -> None:
        if not self._connection.ended:
            self._connection.send(wire.frame(cw.encode(answer)))

    _HANDLERS: ClassVar[dict[type, Callable[[Client, Any], None]]] = {
        cw.Publish: _publish,
        cw.Tail: _tail,
        cw.Credit: _add_credit,
        cw.AskStatus: _status,
        cw.AskBarrier: _barrier,
        cw.Add: _change,
        cw.Remove: _change,
        cw.Transfer: _change,
    }


class Clients:
    """All of them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._by_session: dict[int, list[Client]] = {}
        self._due: dict[Client, None] = {}  # have packs that were not proposed
        self._readers: dict[Client, None] = {}
        self._held: dict[Client, None] = {}
        self._waiting_bytes = 0
        self._target: tuple[ReplicaId | None, int] = (None, 0)  # whom packs were proposed to
        self._delivered = 0
        self._barriers: dict[int, tuple[Client, int, int]] = {}  # client, its request, asked when
        # Not from 0: a late answer to a question of an earlier life must not answer this one's.
        self._barrier_number = secrets.randbits(48)

    def connect(self, connection: Connection) -> Client:
        return Client(self, connection)

    def register(self, client: Client, session: int) -> None:
        client.session = session
        self._by_session.setdefault(session, []).append(client)

    def reads(self, client: Client) -> None:
        self._readers[client] = None

    def forget(self, client: Client) -> None:
        """It is gone. What it waits for is not proposed again: it asks elsewhere."""
        others = self._by_session.get(client.session, [])
        if client in others:
            others.remove(client)
            if not others:
                del self._by_session[client.session]
        for group in (self._due, self._readers, self._held):
            group.pop(client, None)
        self._barriers = {n: b for n, b in self._barriers.items() if b[0] is not client}
        self._less_waits(client.waiting_bytes)

    # -- Publishing ----------------------------------------------------------------------------

    def took(self, client: Client, size: int) -> None:
        self._waiting_bytes += size
        self._due[client] = None
        if client.waiting_bytes > CLIENT_WINDOW_BYTES or self._waiting_bytes > WINDOW_BYTES:
            self._held[client] = None
            client.hold(True)
        self.host.settle_soon()

    def propose(self) -> None:
        """Hand everything that came in to the leader."""
        replica = self.host.node.replica
        target = (replica.leader_id, replica.epoch)
        if target != self._target:
            # What the old leader was sent may have died with it.
            self._target = target
            for client in self._publishers():
                self._propose_again(client)
        if replica.leader_id is None:
            return
        due, self._due = self._due, {}
        for packs in _bounded(p for client in due for p in client.unproposed()):
            self.host.propose(packs)

    def rejected(self, effect: Rejected) -> None:
        for session in {pack.read_header(p).session for p in effect.packs}:
            for client in self._by_session.get(session, ()):
                client.rejected = True

    def accepted(self, accepted: tuple[Accepted, ...]) -> None:
        for session in {a.session for a in accepted}:
            for client in self._by_session.get(session, ()):
                self._answer_waiting(client)

    def restored(self) -> None:
        """The state machine jumped ahead, to another server's snapshot."""
        for client in self._publishers():
            self._answer_waiting(client)

    def _answer_waiting(self, client: Client) -> None:
        self._less_waits(client.accepted(self.host.machine.last_sequence(client.session)))

    def _less_waits(self, size: int) -> None:
        self._waiting_bytes -= size
        if not self._held or self._waiting_bytes > WINDOW_BYTES // 2:
            return
        for client in list(self._held):
            if client.waiting_bytes <= CLIENT_WINDOW_BYTES // 2:
                del self._held[client]
                client.hold(False)

    def _publishers(self) -> Iterator[Client]:
        for clients in self._by_session.values():
            yield from clients

    def _propose_again(self, client: Client) -> None:
        client.rejected = False
        client.propose_again()
        if client.waiting:
            self._due[client] = None

    # -- Reading -------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Hand what is new to whoever reads."""
        if self._delivered != self.host.machine.position:
            self._delivered = self.host.machine.position
            for client in list(self._readers):
                client.deliver()

    # -- Barriers ------------------------------------------------------------------------------

    def ask_barrier(self, client: Client, request: int) -> None:
        if len(self._barriers) >= BARRIERS_MAX:
            raise FormatError(f"{BARRIERS_MAX} barriers are waiting, and no more are taken")
        self._barrier_number += 1
        self._barriers[self._barrier_number] = (client, request, self.host.now_ms())
        self.host.read(self._barrier_number)

    def read_ready(self, effect: ReadReady) -> None:
        client, request, _ = self._barriers.pop(effect.request, (None, 0, 0))
        if client is None:
            return  # answered already: it was asked twice
        if effect.index < 0:
            self._barriers[effect.request] = (client, request, 0)  # nobody to ask; soon again
        else:
            client.barrier_passed(request)

    # -- Time ----------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Now and then: ask again for what has not been answered."""
        now = self.host.now_ms()
        for client in self._publishers():
            overdue = now - client.proposed_ms > client.pause_ms
            if client.rejected:
                self._propose_again(client)
            elif client.waiting and overdue and self.host.node.replica.leading is None:
                # A leader has what it did not reject; on the way to it, it may be lost.
                client.pause_ms = min(2 * client.pause_ms, REPROPOSE_MAX_MS)
                self._propose_again(client)
        for number, (client, request, asked_ms) in list(self._barriers.items()):
            if now - asked_ms > REPROPOSE_MS:
                self._barriers[number] = (client, request, now)
                self.host.read(number)
        self.host.settle_soon()


def _bounded(packs: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """The packs in order, in groups of about `PROPOSAL_BYTES`."""
    some: list[bytes] = []
    size = 0
    for one in packs:
        some.append(one)
        size += len(one)
        if size >= PROPOSAL_BYTES:
            yield tuple(some)
            some, size = [], 0
    if some:
        yield tuple(some)
