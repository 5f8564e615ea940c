"""The log of a server inside a process, over conversations that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from antiphon.formats import pack
from antiphon.formats.entry import Kind
from antiphon.formats.server_messages import Relay
from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from antiphon.log.effects import Applied, Decided, ReadReady, Rejected
from antiphon.log.settings import Settings
from antiphon.log.state_machine import PackMachine
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.layers.layer import Changed
from antiphon.peers.layers.state import Arrived, Begins, Ended, HandOut, Outcome
from antiphon.peers.log.log import PeerLog
from antiphon.peers.stack.running import Delivered, Shown

Result = TypeVar("Result")

A, B = MemberId("a", 1), MemberId("b", 2)
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


class Server:
    """A log, and what is around it: its conversation, its port, and what is above it."""

    waiting = True

    def __init__(self, me: MemberId, wall_ms: int = START_MS) -> None:
        self.me = me
        self.wall = wall_ms
        self.entries: list[tuple[Kind, int]] = []
        self.answered: list[int] = []
        self.relayed_to: list[Relay] = []
        self.conversation = Conversation(me, PeerView(ViewId(0, me), (me,), me), "c", "topic:c")
        journal, _ = open_journal(RamDisk(), lambda: 1)
        self.machine = PackMachine()
        self.log = PeerLog(
            me, self.conversation, self.machine, journal, self, Settings(volatile=True)
        )
        self.log.start(self)

    # -- The port --

    def now_ms(self) -> int:
        return 1000

    def wall_ms(self) -> int:
        return self.wall

    def do(self, what: Callable[[Conversation], Result]) -> Result:
        return what(self.conversation)

    def is_primary(self) -> bool:
        return True

    def turn_soon(self) -> None: ...
    def soon(self, call: Callable[[], None]) -> None: ...
    def later(self, wait_s: float, call: Callable[[], None]) -> None: ...
    def set_timer(self, due_ms: int) -> None: ...
    def impaired(self, reason: str) -> None: ...
    def recovered(self) -> None: ...
    def failed(self, error: Exception) -> None:
        raise error

    # -- Above --

    def propose(self) -> None: ...
    def deliver(self) -> None: ...
    def applied(self, effect: Applied) -> None:
        self.entries += [(Kind(entry.kind), entry.stamp) for entry in effect.entries]

    def read_ready(self, effect: ReadReady) -> None:
        self.answered.append(effect.request)

    def relayed(self, message: Relay) -> None:
        self.relayed_to.append(message)

    def rejected(self, effect: Rejected) -> None: ...
    def decided(self, effect: Decided) -> None: ...
    def stored(self, batch: int) -> None: ...
    def restored(self) -> None: ...
    def tick(self, now_ms: int) -> None: ...
    def next_deadline_ms(self) -> int | None:
        return None

    # -- What a test does --

    def sent(self) -> list[bytes]:
        """Return the packs that leave now."""
        self.log.settle()
        packs = []
        while (leaving := self.conversation.next_leaving()) is not None:
            packs.append(leaving.body)
            self.conversation._outbox.ordered()
        return packs

    def get(self, sender: MemberId, packs: list[bytes]) -> None:
        for body in packs:
            view = self.conversation._view.id
            self.conversation.delivered(Delivered(sender, body, Level.AGREED, view))
        self.log.settle()

    def show(self, view: PeerView, origin: PeerView | None = None) -> None:
        changed = Changed((self.me,), (), origin=origin.id if origin else None)
        self.conversation.shown(Shown(view, changed))

    def take_state_over(self, place: ViewId, provider: MemberId, parts: list[bytes]) -> None:
        self.conversation.told_of_state(Begins(place, provider))
        for part in parts:
            self.conversation.told_of_state(Arrived(part))
        self.conversation.told_of_state(Ended(Outcome.WHOLE))

    def founded(self, view: PeerView) -> None:
        """There is nothing to take over, and this view."""
        self.take_calls()
        self.show(view)
        self.conversation.told_of_state(Ended(Outcome.NONE))
        self.log.settle()

    def take_calls(self) -> None:
        while (call := self.conversation.states.next_call()) is not None:
            call(_Layer(), 0)  # type: ignore[arg-type]


class _Layer:
    """The layer of states, as far as the conversation calls it."""

    def __init__(self) -> None:
        self.handed: list[bytes] = []

    def ask(self, now_ms: int) -> tuple[()]:
        return ()

    give_up = ask

    def provide(self, place: ViewId, source: object, now_ms: int) -> tuple[()]:
        self.handed.append(source.read(0, source.size))  # type: ignore[attr-defined]
        return ()


FIRST = PeerView(ViewId(2, A), (A,), A, True)
BOTH = PeerView(ViewId(4, A), (A, B), B, True, (), (B,))
SECOND = PeerView(ViewId(4, B), (A, B), B, True)
PACK = pack.encode("topic:t", 1, b"x", 7, 1)


def handed_out(server: Server, place: ViewId) -> list[bytes]:
    """The state of a server, as of this place."""
    server.conversation.told_of_state(HandOut(place))
    server.log.settle()
    layer = _Layer()
    while (call := server.conversation.states.next_call()) is not None:
        call(layer, 0)  # type: ignore[arg-type]
    return layer.handed


def test_the_first_member_that_has_the_state_says_how_late_it_is() -> None:
    a = Server(A)
    a.founded(FIRST)
    assert a.log.reign is None  # not yet
    a.get(A, a.sent())
    assert a.log.reign == (A.incarnation, 2)
    assert a.entries == [(Kind.EPOCH, START_MS)]


def test_what_a_former_leader_says_of_the_time_does_not_count() -> None:
    a = Server(A)
    a.founded(FIRST)
    late = a.sent()
    a.show(SECOND, FIRST)
    a.get(A, late)
    assert a.log.reign is None
    a.get(A, a.sent())
    assert a.log.reign == (A.incarnation, 4)


def test_no_time_passes_before_a_leader_has_spoken() -> None:
    a, b = Server(A), Server(B, START_MS + HOUR_MS)
    a.founded(FIRST)
    a.get(A, a.sent())
    b.log.propose((PACK,))
    hurried = b.sent()
    a.show(SECOND, FIRST)
    a.get(B, hurried)
    assert a.entries[-1] == (Kind.PACK, START_MS)


def test_who_has_taken_a_state_over_goes_on_behind_it_once() -> None:
    a, b = Server(A), Server(B)
    a.founded(FIRST)
    a.get(A, a.sent())
    a.log.propose((PACK,))
    a.get(A, a.sent())
    a.show(BOTH, FIRST)
    b.take_calls()
    b.show(BOTH)
    (state,) = handed_out(a, BOTH.id)
    b.take_state_over(BOTH.id, A, [state[:50], state[50:]])
    b.log.settle()
    assert (b.log.index, b.machine.position) == (a.log.index, 1)
    said = a.sent()
    a.get(A, said)
    b.get(A, said)
    assert b.log.index == a.log.index
    assert b.machine.digest == a.machine.digest
    assert b.log.reign == a.log.reign == (A.incarnation, 4)


def test_who_was_gone_asks_again_what_it_had_asked() -> None:
    a = Server(A)
    a.founded(FIRST)
    a.get(A, a.sent())
    a.log.read(9)
    lost = a.sent()
    assert lost
    assert a.answered == []
    state = handed_out(a, FIRST.id)[0]  # with the question in it
    a.show(SECOND)  # comes from elsewhere
    a.log.settle()
    a.take_calls()
    a.take_state_over(SECOND.id, B, [state])
    a.log.settle()
    a.get(A, a.sent())
    a.get(A, a.sent())
    assert a.answered == [9]


def test_a_leader_that_took_a_state_over_says_how_late_it_is() -> None:
    a, b = Server(A), Server(B)
    a.founded(FIRST)
    a.get(A, a.sent())
    alone = PeerView(FIRST.id, (B,), B, True)
    (state,) = handed_out(a, FIRST.id)
    b.take_calls()
    b.show(alone)
    b.take_state_over(alone.id, A, [state])
    b.log.settle()
    b.get(B, b.sent())
    assert b.log.reign == (B.incarnation, 2)


def test_a_process_that_is_gone_loses_its_clients_in_an_entry() -> None:
    a = Server(A)
    a.founded(FIRST)
    a.get(A, a.sent())
    a.show(SECOND, FIRST)
    a.get(A, a.sent())
    third = PeerView(ViewId(6, A), (A,), A, True)
    a.show(third, SECOND)
    before = len(a.entries)
    a.log.settle()
    assert a.entries[before:] == [(Kind.PACK, START_MS)]
