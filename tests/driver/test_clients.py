"""The driver of clients: what needs no session, what a home asks for, and who is cut off."""

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.broker.home.effects import Admit, Cut, Hold, Propose, RelayTo, Store, Tell
from antiphon.broker.home.home import Home
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.driver import clients as module
from antiphon.driver.assembly import clients_on
from antiphon.driver.clients import (
    BARRIER_AGAIN_MS,
    BARRIERS_MAX,
    CREDIT_MAX,
    Client,
    Clients,
)
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ANY, ClusterMember, Membership, ReplicaId
from antiphon.formats.journal import Local, Row
from antiphon.formats.server_messages import Relay
from antiphon.log.effects import Decided, ReadReady


class Journal:
    """Packs of one message each, and some are gone."""

    rows_wait = False

    def __init__(self) -> None:
        self.positions = [1, 2, 5, 6]

    def pack(self, position: int) -> tuple[Row, bytes] | None:
        if position in self.positions:
            return Row(position, position, 1, 0, 0, 0, "topic:t"), b"0123456789"
        return None

    def rows(self, first: int, most: int) -> list[Row]:
        found = [p for p in self.positions if p >= first][:most]
        return [Row(p, p, 1, 0, 0, 0, "topic:t") for p in found]

    def repeat(self, local: Callable[[], tuple[Local, ...]]) -> None:
        """Nothing is known to this server alone."""


class Pipe:
    name = "a client"

    def __init__(self, clients: Clients) -> None:
        self.ended = False
        self.reason = ""
        self.waiting_bytes = 0
        self.reads = True
        self.heard: list[cw.Answer] = []
        self.frame_max = 0
        self.held = False
        self.client: Client = clients.connect(self)

    def send_body(self, *parts: bytes) -> None:
        assert not self.ended
        body = b"".join(parts)
        self.heard.append(cw.decode_answer(body))
        self.waiting_bytes += 0 if self.reads else len(body)

    def attached(self, frame_max: int) -> None:
        self.frame_max = frame_max

    def hold(self, hold: bool) -> None:
        self.held = hold

    def end(self, reason: str = "") -> None:
        self.ended, self.reason = True, reason
        self.client.closed()

    def asks(self, *requests: cw.Request) -> list[cw.Answer]:
        before = len(self.heard)
        for request in requests:
            self.client.take(cw.encode(request))
        return self.heard[before:]


class BareClients:
    """Clients on a log that remembers what was asked of it."""

    def __init__(self, settings: HomeSettings | None = None) -> None:
        self.time_ms = 0
        self.leads = True
        self.reign: tuple[int, int] | None = (1, 1)
        self.asked: list[Any] = []
        self.turns = 0
        self.looks = 0  # at the status
        self.writes = 0
        self.broker = Broker()
        self.journal = Journal()
        journal: Any = self.journal
        home_settings = settings or HomeSettings()
        self.clients = clients_on(self, journal, self.broker, self, 1, 1, home_settings)
        self.home = self.clients.home
        self.wanted: list[Any] = []
        self.home.take = self._take  # type: ignore[method-assign]

    def effects(self, *effects: Any) -> None:
        """The home asks for these."""
        self.wanted += effects
        self.clients.carry_out()

    def _take(self) -> list[Any]:
        wanted, self.wanted = self.wanted + Home.take(self.home), []
        return wanted

    def propose(self, payloads: tuple[bytes, ...]) -> None:
        self.asked.append(payloads)

    def relay(self, node: int, message: Relay) -> None:
        self.asked.append((node, message))

    def store(self, record: Local, batch: int) -> None:
        self.asked.append((record, batch))

    def read(self, request: int) -> None:
        self.asked.append(("read", request))

    def change(self, member: ClusterMember | int, request: int) -> None:
        self.asked.append(("change", member, request))

    def transfer(self, node: int, request: int) -> None:
        self.asked.append(("transfer", node, request))

    def write(self) -> bool:
        self.writes += 1
        return True

    def settle_soon(self) -> None:
        self.turns += 1

    def now_ms(self) -> int:
        return self.time_ms

    def status(self) -> cw.Status:
        self.looks += 1
        epoch, me = self.looks, ReplicaId(1, 1)
        return cw.Status(me, 1, "leader", epoch, me, Membership(1, ()), {}, 1, 1, 1, 1, 0.0, ())

    def address_of(self, node: int) -> str:
        return f"node-{node}"

    def check_address(self, text: str) -> None:
        if text == "nowhere":
            raise FormatError("not HOST:PORT")


@pytest.fixture
def bare() -> BareClients:
    return BareClients()


# -- The status ------------------------------------------------------------------------------------


def test_the_status_is_made_once_in_a_turn(bare: BareClients) -> None:
    one, two = Pipe(bare.clients), Pipe(bare.clients)
    answers = [*one.asks(*[cw.AskStatus()] * 100), *two.asks(cw.AskStatus())]
    assert len(answers) == 101
    assert bare.looks == 1
    assert bare.turns == 1
    bare.clients.deliver()
    (later,) = one.asks(cw.AskStatus())
    assert later != answers[0]


def test_who_does_not_read_is_not_sent_the_status(
    bare: BareClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STATUS_UNREAD_BYTES", 1000)
    client = Pipe(bare.clients)
    client.reads = False
    with pytest.raises(FormatError, match="does not read"):
        client.asks(*[cw.AskStatus()] * 1000)
    assert client.waiting_bytes < 1200
    assert isinstance(client.heard[-1], cw.Refused)


# -- Barriers --------------------------------------------------------------------------------------


def test_a_barrier_is_answered_when_the_state_has_caught_up(bare: BareClients) -> None:
    one, two = Pipe(bare.clients), Pipe(bare.clients)
    one.asks(cw.AskBarrier(7))
    two.asks(cw.AskBarrier(7))
    assert bare.asked == [("read", 1), ("read", 2)]
    bare.clients.read_ready(ReadReady(2, 5))
    assert (one.heard, two.heard) == ([], [cw.Barrier(7, 0)])
    bare.clients.read_ready(ReadReady(2, 5))
    assert len(two.heard) == 1


def test_a_barrier_that_no_leader_has_confirmed_is_asked_again(bare: BareClients) -> None:
    bare.time_ms = 10 * BARRIER_AGAIN_MS
    client = Pipe(bare.clients)
    client.asks(cw.AskBarrier(7))
    bare.clients.sweep()
    assert bare.asked == [("read", 1)]
    bare.clients.read_ready(ReadReady(1, -1))
    assert client.heard == []
    bare.clients.sweep()
    bare.clients.sweep()
    assert bare.asked == [("read", 1), ("read", 1)]
    bare.time_ms += BARRIER_AGAIN_MS + 1
    bare.clients.sweep()
    assert len(bare.asked) == 3


def test_barriers_are_bounded_and_go_with_their_client(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    for number in range(BARRIERS_MAX):
        client.asks(cw.AskBarrier(number))
    other = Pipe(bare.clients)
    with pytest.raises(FormatError, match="barriers are waiting"):
        other.asks(cw.AskBarrier(1))
    client.client.closed()
    again = Pipe(bare.clients)
    assert again.asks(cw.AskBarrier(1)) == []
    bare.clients.read_ready(ReadReady(1, 5))
    assert client.heard == []


# -- Changes of the cluster ------------------------------------------------------------------------


def test_a_change_is_answered_to_who_asked_for_it(bare: BareClients) -> None:
    one, two = Pipe(bare.clients), Pipe(bare.clients)
    one.asks(cw.Add(4, "host-4"))
    two.asks(cw.Remove(2))
    one.asks(cw.Transfer(3))
    assert bare.asked == [
        ("change", ClusterMember(4, ANY, False, "host-4"), 1),
        ("change", 2, 2),
        ("transfer", 3, 3),
    ]
    bare.clients.decided(Decided(2, refused="it would do harm"))
    bare.clients.decided(Decided(3, waiting="later"))
    assert two.heard == [cw.Refused("it would do harm", "IllegalStateError")]
    assert one.heard == [cw.Asked("later")]


def test_who_does_not_lead_names_who_does(bare: BareClients) -> None:
    bare.leads, bare.reign = False, (3, 2)
    client = Pipe(bare.clients)
    assert client.asks(cw.Remove(2)) == [cw.NotLeader(3, "node-3")]
    bare.reign = None
    assert client.asks(cw.Remove(2)) == [cw.NotLeader(None, "")]
    assert bare.asked == []


@pytest.mark.parametrize("request_", [cw.Add(4, "nowhere"), cw.Add(0, "host-4")])
def test_a_server_that_cannot_be_is_not_added(bare: BareClients, request_: cw.Request) -> None:
    client = Pipe(bare.clients)
    with pytest.raises(FormatError):
        client.asks(request_)
    assert isinstance(client.heard[0], cw.Refused)  # before the connection ends
    assert bare.asked == []


# -- Reading the log -------------------------------------------------------------------------------


def test_who_reads_the_log_has_its_rows_written_and_passes_over_what_is_gone(
    bare: BareClients,
) -> None:
    client = Pipe(bare.clients)
    answers = client.asks(cw.Tail(1, 1000))
    assert bare.writes == 1
    assert bare.clients.waiting
    assert [a.position for a in answers if isinstance(a, cw.Delivered)] == [1, 2, 5, 6]


def test_who_does_not_read_what_it_asked_for_is_waited_for(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    client.waiting_bytes = module.DELIVERY_BYTES
    assert client.asks(cw.Tail(1, 1000)) == []
    client.waiting_bytes = module.DELIVERY_BYTES - 1
    client.client.writable()
    assert len(client.heard) == 1
    client.waiting_bytes = 0
    client.client.writable()
    assert len(client.heard) == 4


def test_a_reader_gets_what_is_new_once_a_turn_and_no_more_than_its_credit(
    bare: BareClients,
) -> None:
    client = Pipe(bare.clients)
    client.asks(cw.Tail(1, 15))
    assert len(client.heard) == 2  # the second one began within it
    client.asks(cw.Credit(1000))
    bare.journal.positions.append(7)
    bare.clients.deliver()
    assert len(client.heard) == 4  # nothing was accepted, as far as the machine knows
    bare.broker.position = 7
    bare.clients.deliver()
    assert len(client.heard) == 5


@pytest.mark.parametrize("more", [-1, 1])
def test_a_credit_has_bounds(bare: BareClients, more: int) -> None:
    client = Pipe(bare.clients)
    client.asks(cw.Tail(9, CREDIT_MAX))
    with pytest.raises(FormatError, match=f"a credit of {more} bytes; the limit is {CREDIT_MAX}"):
        client.asks(cw.Credit(more))


def test_who_is_gone_reads_nothing(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    client.asks(cw.Tail(1, 1000))
    client.client.closed()
    assert not bare.clients.waiting


# -- What the home asks for ------------------------------------------------------------------------


def test_effects_of_the_home_are_carried_out_in_order(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    number = client.client.number
    bare.effects(
        Propose((b"p",)),
        RelayTo(2, 7, 1, b"r"),
        Store(Local(False, b"s"), 3),
        Admit(number),
        Hold(number, True),
        Tell(number, cw.Pong()),
        Cut(number, "it is slow"),
        Tell(number, cw.Pong()),
    )
    assert bare.asked == [(b"p",), (2, Relay(7, 1, b"r")), (Local(False, b"s"), 3)]
    assert client.heard == [cw.Pong()]
    assert (client.frame_max, client.held) == (cw.REQUEST_MAX, True)
    assert (client.ended, client.reason) == (True, "it is slow")


def test_what_an_effect_leads_to_comes_after_what_was_due_before(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    number = client.client.number

    def propose(payloads: tuple[bytes, ...]) -> None:
        bare.effects(Tell(number, cw.Asked("second")))
        assert client.heard == []  # this effect is not over yet

    bare.propose = propose  # type: ignore[method-assign]
    bare.effects(Propose((b"p",)), Tell(number, cw.Asked("first")))
    assert client.heard == [cw.Asked("first"), cw.Asked("second")]


def test_a_client_that_begins_a_large_message_is_held_back_at_once(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    bare.wanted = [Hold(client.client.number, True)]
    client.client.begun(1 << 20)
    assert client.held


def test_a_server_that_lets_go_proposes_in_this_turn_what_it_alone_knows(bare: BareClients) -> None:
    bare.clients.let_go()
    assert bare.turns == 1


def test_a_connection_that_is_lost_is_lost_for_the_home(bare: BareClients) -> None:
    client = Pipe(bare.clients)
    assert bare.home.counts()["links"] == 1
    client.client.closed()
    assert bare.home.counts()["links"] == 0
    assert bare.turns > 0


def test_who_does_not_read_its_answers_is_cut_off_and_nobody_else() -> None:
    bare = BareClients(HomeSettings(unread_bytes=1000))
    slow, quick = Pipe(bare.clients), Pipe(bare.clients)
    slow.reads = False
    while not slow.ended:
        before = slow.waiting_bytes
        for pipe in (slow, quick):
            bare.effects(Tell(pipe.client.number, cw.Refused("x" * 100)))
    assert before <= 1000 < slow.waiting_bytes
    assert slow.reason == f"it has not read {slow.waiting_bytes} bytes that it asked for"
    assert not quick.ended
    assert bare.home.counts()["links"] == 1


def test_who_was_cut_off_is_told_nothing_more() -> None:
    bare = BareClients(HomeSettings(unread_bytes=10))
    client = Pipe(bare.clients)
    client.reads = False
    client.asks(cw.Tail(1, 1000))  # four packs at once
    assert client.ended
    assert len(client.heard) == 1


def test_what_another_server_relays_cannot_do_harm(bare: BareClients) -> None:
    bare.clients.relayed(Relay(7, 1, b"no message"))
    assert bare.asked == []


def test_who_talks_without_a_session_is_not_silent(bare: BareClients) -> None:
    client, silent = Pipe(bare.clients), Pipe(bare.clients)
    heartbeat_ms = HomeSettings().heartbeat_ms
    for bare.time_ms in range(0, 10 * heartbeat_ms, 200):
        client.asks(cw.AskBarrier(1))
        bare.clients.tick(bare.time_ms)
    assert (client.ended, silent.ended) == (False, True)


def test_who_sends_something_large_is_not_silent(bare: BareClients) -> None:
    client, silent = Pipe(bare.clients), Pipe(bare.clients)
    heartbeat_ms = HomeSettings().heartbeat_ms
    for bare.time_ms in range(0, 10 * heartbeat_ms, 200):
        client.client.begun(1 << 20)
        bare.clients.tick(bare.time_ms)
    assert (client.ended, silent.ended) == (False, True)
