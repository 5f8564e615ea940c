"""Handing out and taking over the state of a group's member, for a client's conversation.

**Taking.** A server reports to a member that a state will come (`Began`), chunks come (`Chunk`),
and when the application has stored all of them (`taken`), the client asks the log whether that
state is still valid: then it is complete (`Ready`), and messages after its cut can be handled. If
it fails (a provider that fails, falls silent or raises, a lost connection, a missing chunk), it
begins again with another `Began`, and the earlier chunks are void. `Missing`: no member has a state
any more.

**Handing out.** A member that meets a request which names it, and has handled everything before it,
gets a `Handout` and sends chunks as long as there is room; with `Handout.over` no member wants
more. At most `STATE_WINDOW` chunks are on their way, so no process holds more, however large the
state.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw

SILENCE_MS = 10_000
"""A provider that sends nothing for this long is passed over. The time doubles each time: the only
provider may need longer."""

DOUBLINGS_MAX = 6
TELL_EVERY = cw.STATE_WINDOW // 4
"""Chunks that a member stores before the provider gets an acknowledgement."""

# -- Events: for the member that takes a state over -----------------------------------------------


class Began(msgspec.Struct, frozen=True):
    """A state will come; chunks of an earlier one are void."""

    consumer: int
    serial: int


class Chunk(msgspec.Struct, frozen=True):
    """A chunk of the state: store it, then call `taken`."""

    consumer: int
    serial: int
    seq: int
    data: bytes
    last: bool


class Ready(msgspec.Struct, frozen=True):
    """The state is complete and valid: the next messages continue it."""

    consumer: int
    serial: int
    position: int  # the cut: all messages up to here are in it


class Missing(msgspec.Struct, frozen=True):
    """All members that had the state are gone, or could not hand it out. The member gets all
    messages since it joined."""

    consumer: int
    serial: int


StateEvent = Began | Chunk | Ready | Missing
StateMessage = cw.Relayed | cw.StateComes | cw.StateStopped


class Handout:
    """A state that is being handed out."""

    def __init__(self, consumer: int, serial: int) -> None:
        self.consumer = consumer
        self.serial = serial
        self.over = False  # no member wants more of it
        self.sent = 0
        self.taken = 0
        self._bell: Ticket | None = None

    @property
    def has_room(self) -> bool:
        return self.sent < self.taken + cw.STATE_WINDOW

    def room(self) -> Ticket:
        """Return a ticket that is settled when there is room, or the handout is over."""
        if self._bell is None or self._bell.done:
            self._bell = Ticket()
            if self.has_room or self.over:
                self._bell.settle()
        return self._bell

    def ring(self) -> Ticket | None:
        """Return the ticket of the call that waits for room, if the wait is over."""
        bell, self._bell = self._bell, None
        if bell is None or bell.done:
            return None
        bell.settle()
        return bell


class Taking:
    """A member of a group, and the state that it waits for."""

    def __init__(self) -> None:
        self.serial = 0  # of the last request
        self.cut = 0
        self.waits = False
        self.known = False  # it is here, or there is none
        self.arrived = 0  # chunks
        self.taken = 0
        self.told = 0  # stored, as far as the provider knows
        self.last = 0  # the number of the last chunk; 0: not known
        self.asked: int | None = None  # the request about which the client asked the log
        self.silences = 0  # of providers, so far
        self.heard_ms = 0
        self.early: list[cw.StateChunk] = []  # of a request that has not come yet
        self.ahead: dict[int, cw.StateChunk] = {}  # that came before others

    def begin(self, request: cw.StateComes, now_ms: int) -> None:
        self.serial, self.cut, self.waits = request.serial, request.position, True
        self.arrived = self.taken = self.told = self.last = 0
        self.ahead.clear()
        self.heard_ms = now_ms

    @property
    def silent_ms(self) -> int | None:
        """Return when the provider has been silent for too long; None: this member does not wait
        for it."""
        if not self.waits or self.asked == self.serial or self.last:
            return None
        return self.heard_ms + (SILENCE_MS << min(self.silences, DOUBLINGS_MAX))


class States:
    """All states that go through one conversation."""

    def __init__(
        self,
        send: Callable[[cw.Relayed], None],
        ask: Callable[[cw.Body], Request],
        tell: Callable[[StateEvent], None],
        settled: Callable[[Ticket], None],
    ) -> None:
        self._send = send
        self._ask = ask
        self._tell = tell
        self._settled = settled
        self._taking: dict[int, Taking] = {}  # by consumer: members
        self._handouts: dict[int, Handout] = {}  # by consumer
        self._connected = False

    # -- Members come and go -------------------------------------------------------------------

    def join(self, consumer: int) -> None:
        self._taking[consumer] = Taking()

    def leave(self, consumer: int) -> None:
        self._taking.pop(consumer, None)
        if (handout := self._handouts.get(consumer)) is not None:
            self._end(handout)

    def attached(self, now_ms: int) -> None:
        self._connected = True
        for taking in self._taking.values():
            taking.heard_ms = now_ms

    def lost(self) -> None:
        """Drop all chunks that were on their way over the lost connection; servers begin again by
        themselves."""
        self._connected = False
        for handout in list(self._handouts.values()):
            self._end(handout)
        for taking in self._taking.values():
            taking.early.clear()

    # -- Taking --------------------------------------------------------------------------------

    def received(self, m: StateMessage, now_ms: int) -> None:
        """Take a message of a server, or of another member, about a state."""
        if isinstance(m, cw.StateChunk):
            self._chunk(m, now_ms)
        elif isinstance(m, cw.StateTaken):
            self._more(m)
        elif isinstance(m, cw.StateComes):
            self._comes(m, now_ms)
        elif isinstance(m, cw.StateFailed):
            self._failed(m)
        else:
            self._stopped(m)

    def _comes(self, m: cw.StateComes, now_ms: int) -> None:
        """Note that another member was asked for the state that this one waits for, or that none
        has it."""
        taking = self._taking.get(m.consumer)
        if taking is None or taking.known:
            return
        if not m.provider:
            taking.known, taking.waits = True, False
            self._tell(Missing(m.consumer, m.serial))
            return
        if m.serial <= taking.serial:
            return
        taking.begin(m, now_ms)
        self._tell(Began(m.consumer, m.serial))
        early, taking.early = taking.early, []
        for chunk in early:
            self._chunk(chunk, now_ms)

    def _chunk(self, m: cw.StateChunk, now_ms: int) -> None:
        taking = self._taking.get(m.consumer)
        if taking is None or taking.known or m.serial < taking.serial or taking.asked == m.serial:
            return  # not wanted any more
        if m.serial > taking.serial:
            # The server is ahead of its own state machine.
            if len(taking.early) < cw.STATE_WINDOW:
                taking.early.append(m)
            return
        if m.seq <= taking.arrived or taking.last:
            return
        # Servers may pass chunks on in another order. If one is lost, no more of them are taken.
        if len(taking.ahead) < cw.STATE_WINDOW or m.seq == taking.arrived + 1:
            taking.ahead[m.seq] = m
        while (chunk := taking.ahead.pop(taking.arrived + 1, None)) is not None:
            taking.heard_ms = now_ms
            taking.arrived = chunk.seq
            taking.last = chunk.seq if chunk.last else 0
            self._tell(Chunk(m.consumer, m.serial, chunk.seq, chunk.data, chunk.last))

    def taken(self, consumer: int, serial: int, seq: int) -> None:
        """Note that the application has this chunk and all before it."""
        taking = self._taking.get(consumer)
        if taking is None or taking.serial != serial or not taking.waits:
            return
        taking.taken = max(taking.taken, min(seq, taking.arrived))
        if taking.last and taking.taken == taking.last:
            if taking.asked != serial:
                taking.asked = serial
                self._ask(cw.StateDone(consumer, serial))
        elif taking.taken - taking.told >= TELL_EVERY and self._connected:
            taking.told = taking.taken
            self._send(cw.StateTaken(consumer, serial, taking.taken))

    def _failed(self, m: cw.StateFailed) -> None:
        taking = self._taking.get(m.consumer)
        if taking is not None and taking.serial == m.serial and taking.waits:
            self._again(m.consumer, taking, raised=True)

    def _again(self, consumer: int, taking: Taking, raised: bool = False) -> None:
        """Ask for another provider, or for this one once more."""
        if taking.asked != taking.serial:
            taking.asked = taking.serial
            self._ask(cw.AskState(consumer, taking.serial, raised))

    def granted(self, done: cw.StateDone, value: int) -> None:
        """Take the servers' answer whether the state is valid. If not, there will be another
        request."""
        taking = self._taking.get(done.consumer)
        if value and taking is not None and taking.serial == done.serial and not taking.known:
            taking.known, taking.waits = True, False
            self._tell(Ready(done.consumer, done.serial, taking.cut))

    # -- Handing out ---------------------------------------------------------------------------

    def hand_out(self, consumer: int, serial: int) -> Handout:
        if (older := self._handouts.get(consumer)) is not None:
            self._end(older)
        handout = Handout(consumer, serial)
        if self._connected:
            self._handouts[consumer] = handout
        else:
            handout.over = True
        return handout

    def hand(self, handout: Handout, data: bytes, last: bool) -> None:
        """Send the next chunk. Call it only while there is room and the handout is not over."""
        assert len(data) <= cw.STATE_CHUNK_MAX
        assert handout.has_room, "wait for room first"
        assert not handout.over, "nobody wants it"
        handout.sent += 1
        self._send(cw.StateChunk(handout.consumer, handout.serial, handout.sent, data, last))
        if last:
            self._end(handout)

    def give_up(self, handout: Handout, reason: str) -> None:
        """Report that there is no state to hand out."""
        if not handout.over:
            self._send(cw.StateFailed(handout.consumer, handout.serial, reason))
            self._end(handout)

    def _more(self, m: cw.StateTaken) -> None:
        handout = self._handouts.get(m.consumer)
        if handout is None or handout.serial != m.serial:
            return
        if m.seq > handout.sent:
            raise FormatError(f"chunk {m.seq} of a state was not sent")
        handout.taken = max(handout.taken, m.seq)
        self._ring(handout)

    def _stopped(self, m: cw.StateStopped) -> None:
        handout = self._handouts.get(m.consumer)
        if handout is not None and handout.serial == m.serial:
            self._end(handout)

    def _end(self, handout: Handout) -> None:
        handout.over = True
        del self._handouts[handout.consumer]
        self._ring(handout)

    def _ring(self, handout: Handout) -> None:
        if (bell := handout.ring()) is not None:
            self._settled(bell)

    # -- Time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        if not self._connected:
            return None
        due = [ms for t in self._taking.values() if (ms := t.silent_ms) is not None]
        return min(due, default=None)

    def tick(self, now_ms: int) -> None:
        for consumer, taking in self._taking.items() if self._connected else ():
            if (due_ms := taking.silent_ms) is not None and now_ms >= due_ms:
                taking.silences += 1
                self._again(consumer, taking)
