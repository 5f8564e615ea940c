"""Channels, with real sockets, in one process: each test is one of the blocking front, and of that
with asyncio."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import antiphon
from antiphon import cli, peers
from antiphon.api.messages.sending import outgoing
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    OutcomeUnknownError,
)
from antiphon.formats import peer_wire as wire
from antiphon.formats.channel_trace import ChannelReading
from antiphon.formats.frames import frame
from antiphon.formats.peer_wire import PROCESS_NAME_MAX, PeerHello, Question
from antiphon.io.peers.asking import ask
from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.channel import outbox
from antiphon.peers.discovery.folder import Folder
from antiphon.peers.layers.layer import (
    Blocked,
    Changed,
    Closing,
    Effect,
    Frame,
    Install,
    Layer,
    Tell,
    To,
)
from antiphon.peers.membership.member import Left
from antiphon.peers.stack.stacks import total_uniform
from tests.api.support.steps import until
from tests.peers.support.fronts import AwaitedChannel
from tests.process.support.peer_processes import free_addresses

pytestmark = pytest.mark.process

WAIT_S = 10


class Meeting(Layer):
    """A stand-in for Membership that agrees on nothing: its view is whom it is connected to."""

    name = "meeting"
    gives = frozenset({"views"})

    def __init__(self, blocks: bool = False) -> None:
        self.known: set[MemberId] = set()
        self.blocks = blocks

    def options(self) -> dict[str, Any]:
        return {"blocks": self.blocks}

    def found(self, now_ms: int) -> Sequence[Effect]:
        return self._view()

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        self.known.add(process)
        return self._view()

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        self.known.discard(process)
        return self._view()

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if b"broken" in bytes(frame.body):
            raise AssertionError("planted")
        effects = super().down(frame, to, now_ms)
        return (*effects, Blocked(self.me, "is tired")) if self.blocks else effects

    def leave(self, now_ms: int) -> Sequence[Effect]:
        return (Tell(Left()),)

    def _view(self) -> Sequence[Effect]:
        members = tuple(sorted({self.me, *self.known}))
        change = ViewId(self.view.id.round + 1, self.me)
        view = PeerView(change, members, members[0], True)
        return (Install(Closing(self.view.id, {}), view, {}, Changed(members)),)


STACK = peers.Stack(Meeting())


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(autouse=True, params=["blocking", "asyncio"])
def front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setattr(peers, "Channel", AwaitedChannel)


def test_a_whiteboard_is_written_and_read() -> None:
    stack = total_uniform(whiteboard=True)
    with peers.Channel(stack, name="a") as a, peers.Channel(stack, name="b") as b:
        with pytest.raises(IllegalStateError, match="not connected"):
            a.put_value(7)
        a.connect("c")
        a.put_value(7)
        b.connect("c")
        until(lambda: len(a.view.members) == 2)
        assert b.get_value("a") == 7  # a view begins with all values
        b.put_value(-1)
        until(lambda: a.get_value("b") == -1)
        assert a.get_value(a.view.processes[0]) == 7
        b.close()
        until(lambda: len(a.view.members) == 1)
        assert a.get_value("b") is None


def test_a_stack_without_a_whiteboard_says_so(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, _ = pair
    with pytest.raises(IllegalStateError, match="no layer for a whiteboard"):
        a.put_value(7)
    with pytest.raises(IllegalStateError, match="no layer for a whiteboard"):
        a.get_value("b")


@pytest.fixture
def pair() -> Iterator[tuple[peers.Channel, peers.Channel]]:
    """Two channels in one view, which they have received."""
    with peers.Channel(STACK, name="a") as a, peers.Channel(STACK, name="b") as b:
        a.connect("c")
        b.connect("peer:c")
        for channel in (a, b):
            while view_of(channel) != ("a", "b"):
                pass
        yield a, b


def view_of(channel: peers.Channel) -> tuple[str, ...]:
    event = channel.receive(WAIT_S)
    assert isinstance(event, antiphon.ViewMessage)
    return event.view.members


def test_messages_and_views_are_those_of_groups(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = pair
    a.send("text")
    b_first = b.receive(WAIT_S)
    assert isinstance(b_first, antiphon.TextMessage)
    assert (b_first.text, b_first.sender, b_first.view) == ("text", "a", b.view)
    assert b_first.destination == antiphon.Topic("c")
    a.send(b"bytes", to="b", order="fifo")
    a.send({"map": 1})
    assert [b.receive(WAIT_S).body for _ in range(2)] == [b"bytes", {"map": 1}]  # type: ignore[union-attr]
    assert [a.receive(WAIT_S).body for _ in range(2)] == ["text", {"map": 1}]  # type: ignore[union-attr]
    b.close()
    event = a.receive(WAIT_S)
    match event:
        case antiphon.ViewMessage(view=view, joined=joined, left=left):
            assert (view.members, joined, left) == (("a",), (), ("b",))
            assert event.together == ("a",)
            assert event.merged == ()
            assert view.primary
        case _:
            raise AssertionError(event)


def test_properties_travel(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = pair
    message = antiphon.TextMessage("Fire!")
    message.properties["floor"] = 4
    a.send(message)
    received = b.receive(WAIT_S)
    assert received is not None
    assert received.properties["floor"] == 4


def test_many_messages_arrive_in_order(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = pair
    count = 20_000

    def send() -> None:
        for i in range(count):
            a.send(b"%d" % i)

    thread = threading.Thread(target=send)
    thread.start()
    for i, message in zip(range(count), b, strict=False):
        assert message.body == b"%d" % i
    thread.join()


def test_a_listener_gets_everything(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = pair
    got: list[Any] = []
    enough = threading.Event()

    def listener(message: antiphon.Message) -> None:
        got.append(message.body)
        if message.body == "raise":
            raise RuntimeError("planted")
        if message.body == "end":
            enough.set()

    b.set_message_listener(listener)
    with pytest.raises(IllegalStateError, match="has a listener"):
        b.receive(0)
    sent = [*(f"{i}" for i in range(200)), "raise", "end"]
    for body in sent:
        a.send(body)
    assert enough.wait(WAIT_S)
    assert got == sent


COUNT = 3000


def send_one_pack(a: peers.Channel) -> None:
    """Have `a` send `COUNT` messages together."""
    process = a._core.process
    assert process is not None
    with process.lock:
        for i in range(COUNT):
            message = outgoing(b"%d" % i, now_ms=0)
            assert process.conversation.put(*message, None, peers.Level.AGREED)
    process.driver.wake()


def test_nothing_is_lost_when_loops_break_off(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = pair
    send_one_pack(a)
    bodies: list[Any] = []
    first, second = iter(b), iter(b)
    for _ in range(COUNT // 100):
        bodies += [message.body for message in islice(b, 60)]  # its loop ends here
        bodies += [next(first).body, next(second).body]
        for _ in range(38):
            message = b.receive(WAIT_S)
            assert message is not None
            bodies.append(message.body)
    assert bodies == [b"%d" % i for i in range(COUNT)]


def test_a_loop_ends_within_a_pack_when_it_is_closed(
    pair: tuple[peers.Channel, peers.Channel],
) -> None:
    a, b = pair
    send_one_pack(a)
    taken = 0
    for _ in b:
        taken += 1
        if taken == 3:
            b.close()
    assert taken == 3


def test_a_listener_takes_the_rest_of_a_pack_over(
    pair: tuple[peers.Channel, peers.Channel],
) -> None:
    a, b = pair
    send_one_pack(a)
    loop = iter(b)
    got = [next(loop).body for _ in range(3)]
    enough = threading.Event()

    def listener(message: antiphon.Message) -> None:
        got.append(message.body)
        if len(got) == COUNT:
            enough.set()

    b.set_message_listener(listener)
    with pytest.raises(IllegalStateError, match="has a listener"):
        next(loop)
    assert enough.wait(WAIT_S)
    assert got == [b"%d" % i for i in range(COUNT)]


def test_views_keep_their_places_among_messages(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = pair
    send_one_pack(a)
    b.close()
    seen: list[Any] = []
    for event in a:
        seen.append(event.view.members if isinstance(event, antiphon.ViewMessage) else event.body)
        if seen[-1] == ("a",):
            a.send("last")
        if seen[-1] == "last":
            break
    assert seen == [*(b"%d" % i for i in range(COUNT)), ("a",), "last"]


def test_a_loop_and_a_receive_end_when_it_is_closed(
    pair: tuple[peers.Channel, peers.Channel],
) -> None:
    a, b = pair
    outcomes: dict[str, Any] = {}
    waiting = threading.Barrier(3)

    def loop() -> None:
        waiting.wait()
        outcomes["loop"] = list(b)

    def receive() -> None:
        waiting.wait()
        outcomes["receive"] = a.receive()

    threads = [threading.Thread(target=target) for target in (loop, receive)]
    for thread in threads:
        thread.start()
    waiting.wait()
    b.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert outcomes["loop"] == []
    assert isinstance(outcomes["receive"], antiphon.ViewMessage)
    for call in (lambda: b.send("x"), lambda: b.receive(0), b.status):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    b.close()


def test_before_it_is_connected_it_says_so() -> None:
    with peers.Channel(STACK, name="a") as a:
        assert a.name == "a"
        assert a.address == ""
        for call in (lambda: a.send("x"), lambda: a.receive(0), a.status, lambda: a.view):
            with pytest.raises(IllegalStateError, match="connect"):
                call()


def test_it_is_connected_once() -> None:
    with peers.Channel(STACK, name="a") as a:
        a.connect("c")
        with pytest.raises(IllegalStateError, match="connected once"):
            a.connect("c")


def test_arguments_that_make_no_sense_are_refused(
    pair: tuple[peers.Channel, peers.Channel],
) -> None:
    a, _ = pair
    with pytest.raises(TypeError, match="a Stack is needed"):
        peers.Channel("stack")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a name"):
        peers.Channel(STACK, name="two words")
    with pytest.raises(TypeError, match="tls is a Tls"):
        peers.Channel(STACK, tls=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not an order: none, fifo, causal"):
        a.send("x", order="alphabetical")
    for order in (3, True, []):
        with pytest.raises(TypeError, match="order is a Level, or its name, not"):
            a.send("x", order=order)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationError, match="'x' is not a member"):
        a.send("x", to="x")
    with pytest.raises(TypeError, match="to is a member, several of them, or None for all, not 5"):
        a.send("x", to=5)  # type: ignore[arg-type]
    for wrong in (["a", 5], b"ab"):
        with pytest.raises(TypeError, match="a member is its name, or a MemberId, not"):
            a.send("x", to=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a timeout is a number of seconds, not 'soon'"):
        a.send("x", timeout="soon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 or more, not -1"):
        a.send("x", timeout=-1)
    with pytest.raises(TypeError, match="allow_pickle is True or False, not 'no'"):
        peers.Channel(STACK, allow_pickle="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the key of tls is a str, not 5"):
        peers.Channel(STACK, tls=peers.Tls("c", 5, "a"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a stack is made of layers, and 'total' is none"):
        peers.Stack("total")  # type: ignore[arg-type]
    for names in ("abc", ("a", 5), ("a", "")):
        with pytest.raises(ConfigurationError, match="the founders are a list of names, not"):
            peers.total_uniform(names)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is not a cluster"):
        peers.Channel(STACK).connect("http://x/y")
    with pytest.raises(ConfigurationError, match="off loopback"):
        peers.Channel(STACK, listen="0.0.0.0:0").connect("d")


def test_a_member_that_is_named_twice_gets_a_message_once(
    pair: tuple[peers.Channel, peers.Channel],
) -> None:
    a, b = pair
    b_id = next(one for one in b.view.processes if one.name == "b")
    for order in ("fifo", "agreed"):
        a.send("once", to=["b", "b", b_id], order=order)
        a.send("end", to="b", order=order)
        assert [b.receive(WAIT_S).body for _ in range(2)] == ["once", "end"]  # type: ignore[union-attr]


def test_the_longest_names_go_into_the_handshake(tmp_path: Path) -> None:
    name, cluster = "ä" * (PROCESS_NAME_MAX // 2), f"peer:file/{tmp_path}/{'c' * 255}"
    stack = peers.total_uniform(tuple(f"{i:x}" * 40 for i in range(100)))
    with peers.Channel(stack, name=name) as a, peers.Channel(stack, name="b") as b:
        a.connect(cluster)
        b.connect(cluster)
        assert set(b.view.members) == {name, "b"}
    with pytest.raises(ValueError, match=f"at most {PROCESS_NAME_MAX} bytes, not"):
        peers.Channel(stack, name=name + "x")


def test_a_refusal_shows_as_much_of_both_stacks_as_fits(tmp_path: Path) -> None:
    stacks = [peers.total_uniform(tuple(f"{kind}{i}" * 40 for i in range(100))) for kind in "äö"]
    a = peers.Channel(stacks[0], name="a" * PROCESS_NAME_MAX)
    b = peers.Channel(stacks[1], name="b" * PROCESS_NAME_MAX)
    with a, b:
        a.connect(f"peer:file/{tmp_path}/c")
        with pytest.raises(ConfigurationError, match="runs another stack") as refused:
            b.connect(f"peer:file/{tmp_path}/c", timeout=WAIT_S)
    assert "'ä0ä0" in str(refused.value)
    assert "'ö0ö0" in str(refused.value)


def test_who_waits_for_others_does_not_mind_strangers_that_dial_it() -> None:
    here, there = free_addresses(2)
    me, host, port = MemberId("a", 1), *here.split(":")
    stack = peers.TOTAL_UNIFORM
    hello = PeerHello(
        wire.MAGIC, wire.OLDEST, wire.NEWEST, "c", stack.digest, str(stack), me, "127.0.0.1:1"
    )
    strangers = {
        "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "garbage": frame(b"\xc1" * 100),
        "another cluster": frame(wire.encode_hello(replace(hello, cluster="d"))),
        "another stack": frame(wire.encode_hello(replace(hello, digest=1))),
        "another version": frame(wire.encode_hello(replace(hello, oldest=8, newest=9))),
        "a namesake": frame(wire.encode_hello(hello)),
    }
    failures: list[Exception] = []

    def connect() -> None:
        try:
            a.connect(f"peer://{here},{there}/c?min=2", timeout=3)
        except Exception as error:
            failures.append(error)

    with peers.Channel(stack, name="a") as a:
        waiting = threading.Thread(target=connect)
        waiting.start()
        while not a.address:
            pass
        for said in strangers.values():
            with socket.create_connection((host, int(port)), WAIT_S) as sock:
                sock.sendall(said)
                while sock.recv(1 << 16):
                    pass
        waiting.join()
    (failure,) = failures
    assert isinstance(failure, OutcomeUnknownError)
    assert "in no view of 2 members of 'c' within 3 s: it is connected to nobody" in str(failure)


def test_a_record_of_which_nothing_came_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    create, look = Folder._create, Folder._looked

    def create_late(folder: Folder, record: str) -> bool:
        assert go_on.wait(WAIT_S)
        return create(folder, record)

    def fail(folder: Folder) -> Sequence[str]:
        raise OSError("planted")

    cluster, record = f"peer:file/{tmp_path}/c", tmp_path / "c" / "founded"
    monkeypatch.setattr(Folder, "_create", create_late)
    a = peers.Channel(peers.TOTAL_UNIFORM, name="a")
    with pytest.raises(OutcomeUnknownError, match="it has not found out who is there"):
        a.connect(cluster, timeout=0.1)
    go_on.set()  # the record comes when the channel is over
    assert a._core.process is not None
    wait_for(a._core.process.released)
    assert not record.exists()
    monkeypatch.setattr(Folder, "_looked", fail)
    b = peers.Channel(peers.TOTAL_UNIFORM, name="b")
    with pytest.raises(ConfigurationError, match="planted"):
        b.connect(cluster)
    assert b._core.process is not None
    wait_for(b._core.process.released)
    assert not record.exists()
    monkeypatch.setattr(Folder, "_looked", look)
    with peers.Channel(peers.TOTAL_UNIFORM, name="c") as c:
        c.connect(cluster)
        assert c.view.primary
        assert record.exists()
    assert not record.exists()


def wait_for(ticket: Ticket) -> None:
    settled = threading.Event()
    ticket.watch(settled.set)
    assert ticket.done or settled.wait(WAIT_S)


def test_a_send_without_room_names_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ROOM_BYTES", 10_000)
    with peers.Channel(peers.Stack(Meeting(blocks=True)), name="a") as a:
        a.connect("c")

        def send_much() -> None:
            for _ in range(1000):
                a.send("x" * 100, timeout=0.2)

        with pytest.raises(OutcomeUnknownError, match=r"0.2 s: a: is tired. It was not") as raised:
            send_much()
        assert raised.value.happened == "no"


def test_another_stack_is_refused_with_both_printed(
    pair: tuple[peers.Channel, peers.Channel],
) -> None:
    other = peers.Channel(peers.Stack(Meeting(blocks=True)), name="d")
    with pytest.raises(ConfigurationError, match=r"blocks=True.*blocks=False|=False.*=True"):
        other.connect("c")
    assert other.closed


def test_the_name_of_a_live_member_is_refused(pair: tuple[peers.Channel, peers.Channel]) -> None:
    with pytest.raises(ConfigurationError, match="belongs to a live member"):
        peers.Channel(STACK, name="b").connect("c", timeout=0.3)


def test_a_layer_that_fails_ends_its_channel_and_says_why() -> None:
    with peers.Channel(STACK, name="a") as a:
        a.connect("c")
        assert view_of(a) == ("a",)
        a.send("broken")
        with pytest.raises(ConnectionLostError, match=r"the stack of a has failed.*planted"):
            a.receive(WAIT_S)


def test_a_primary_view_is_not_founded_anew(pair: tuple[peers.Channel, peers.Channel]) -> None:
    answer = ask(pair[0].address, Question("c", "reform"), None, False, WAIT_S)
    assert (answer.good, answer.text) == (False, "a is in a primary view")
    answer = ask(pair[0].address, Question("c", "sing"), None, False, WAIT_S)
    assert (answer.good, answer.text) == (False, "a does not know what 'sing' is")


def test_status_is_for_people(pair: tuple[peers.Channel, peers.Channel]) -> None:
    a, _ = pair
    status = a.status()
    assert status["connected"] == ["b"]
    assert status["cluster"] == "c"
    assert status["layers"] == {"meeting": {}}


# -- asyncio --------------------------------------------------------------------------------------


def test_the_asyncio_front_does_the_same() -> None:
    async def test() -> None:
        async with peers.aio.Channel(STACK, name="a") as a, peers.aio.Channel(STACK, name="b") as b:
            await a.connect("c")
            await b.connect("c")
            await a.send("one")
            await b.send("two", to=["a"])
            bodies = []
            async for event in a:
                if not isinstance(event, antiphon.ViewMessage):
                    bodies.append((event.body, event.sender))
                if len(bodies) == 2:
                    break
            assert sorted(bodies) == [("one", "a"), ("two", "b")]
            for i in range(100):
                await b.send(i)  # all leave as one pack: the driver has no turn in between
            while len(bodies) < 100:
                async for event in a:
                    bodies.append((event.body, event.sender))
                    if len(bodies) % 7 == 0 or len(bodies) == 100:
                        break
            bodies += [((await a.receive(WAIT_S)).body, "b") for _ in range(2)]  # type: ignore[union-attr]
            assert bodies[2:] == [(i, "b") for i in range(100)]
            assert (await a.status())["name"] == "a"
            assert await a.receive(0.01) is None
            assert await a.receive_no_wait() is None
            heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            async def listener(message: antiphon.Message) -> None:
                if message.body == "three":
                    heard.set_result(message.sender)

            b.set_message_listener(listener)
            await a.send("three")
            assert await asyncio.wait_for(heard, WAIT_S) == "a"

    asyncio.run(test())


def test_a_cancelled_receive_takes_no_message() -> None:
    async def test() -> None:
        async with peers.aio.Channel(STACK, name="a") as a:
            await a.connect("c")
            while await a.receive(0.05) is not None:
                pass
            waiting = asyncio.ensure_future(a.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await a.send("kept")
            message = await a.receive(WAIT_S)
            assert message is not None
            assert message.body == "kept"

    asyncio.run(test())


def test_a_channel_writes_a_trace_if_it_is_asked_to(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    with peers.Channel(total_uniform(), name="a", trace=str(folder)) as a:
        a.connect("c")
        a.send("mine", order="safe")
        received = a.receive(WAIT_S)
        while not isinstance(received, antiphon.TextMessage):
            received = a.receive(WAIT_S)
    (file,) = folder.iterdir()
    assert file.name == "traces-a-1.channel"
    kinds = [event.kind for event in ChannelReading(file.read_bytes())]
    assert [kind for kind in kinds if kind != "view"] == ["send", "receive", "deliver", "end"]
    assert cli.main(["trace", "check", str(folder)]) == 0


def test_a_trace_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    channel = peers.Channel(STACK, trace=str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="trace: no file in"):
        channel.connect("c")
