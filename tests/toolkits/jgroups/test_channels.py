"""Channels of JGroups, with real sockets, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest

from antiphon import peers
from antiphon.errors import ConfigurationError, IllegalStateError, OutcomeUnknownError
from antiphon.toolkits.jgroups import (
    GET_ALL,
    GET_FIRST,
    GET_MAJORITY,
    GET_NONE,
    BytesMessage,
    Consumer,
    EmptyMessage,
    Flag,
    JChannel,
    MergeView,
    Message,
    MessageDispatcher,
    NotificationBus,
    ObjectMessage,
    Receiver,
    ReplicatedHashMap,
    RequestOptions,
    RpcDispatcher,
    View,
)
from antiphon.toolkits.jgroups.suspicions import Suspicions
from tests.api.support.steps import until

pytestmark = pytest.mark.process

WAIT_S = 10.0
TOTAL = ["UDP", "GMS", "SEQUENCER", "RSVP"]


class Told(Receiver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.views: list[View] = []
        self.hook: Callable[[Message], Any] = lambda msg: None

    def receive(self, msg: Message) -> None:
        self.hook(msg)
        self.messages.append(msg)

    def view_accepted(self, view: View) -> None:
        self.views.append(view)

    def get_state(self, output: IO[bytes]) -> None:
        output.write(" ".join(msg.object for msg in self.messages).encode())

    def set_state(self, input: IO[bytes]) -> None:
        self.messages = [ObjectMessage(None, word) for word in input.read().decode().split()]

    @property
    def payloads(self) -> list[Any]:
        return [msg.object for msg in self.messages]


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Callable[..., JChannel]]:
    """Channels of one group, which are closed in the end."""
    with ExitStack() as channels:

        def join(name: str, stack: Any = TOTAL, receiver: Any = None, on: Any = None) -> JChannel:
            channel = channels.enter_context(JChannel(stack)).name(name).set_receiver(receiver)
            if on is not None:
                on(channel)
            channel.connect(f"peer:file/{tmp_path}/group")
            return channel

        yield join


Join = Callable[..., JChannel]


def test_messages_views_and_a_state_reach_the_receiver(join: Join) -> None:
    first, second = Told(), Told()
    a = join("A", "udp.xml", first)
    a.get_state(None, 10)  # nobody is there
    a.send(None, "Fire!")
    until(lambda: first.payloads == ["Fire!"])
    b = join("B", "udp.xml", second)
    b.get_state(None, 10)
    assert second.payloads == ["Fire!"]
    b.send(None, "Help!")
    until(lambda: first.payloads == second.payloads == ["Fire!", "Help!"])
    assert [second.messages[-1].src, second.messages[-1].dest] == ["B", None]
    assert (a.address, a.get_view().members, a.get_view().coord) == ("A", ("A", "B"), "A")
    assert first.views[0].members == ("A",)
    assert first.views[-1] == second.views[-1]
    assert not any(isinstance(view, MergeView) for view in first.views + second.views)
    identities = [view.view_id for view in first.views]
    assert [i.id for i in identities] == sorted({i.id for i in identities})
    assert {i.creator for i in identities} == {"A"}


def test_the_state_is_the_begin_of_what_the_receiver_gets(join: Join) -> None:
    first, second = Told(), Told()
    a = join("A", TOTAL, first)
    b = join("B", TOTAL, second)
    sent = [f"{number}" for number in range(300)]
    sender = threading.Thread(target=lambda: [a.send(None, word) for word in sent])
    sender.start()
    b.get_state(None, WAIT_S)
    sender.join()
    until(lambda: len(second.messages) >= len(sent))
    assert second.payloads == first.payloads == sent


def test_a_state_waits_for_the_message_that_is_being_handled(join: Join) -> None:
    handles, may_end, took_over = threading.Event(), threading.Event(), threading.Event()

    class Late(Told):
        def set_state(self, input: IO[bytes]) -> None:
            super().set_state(input)
            took_over.set()

    def hold(msg: Message) -> None:
        handles.set()
        may_end.wait(WAIT_S)

    first, second = Told(), Late()
    second.hook = hold
    a, b = join("A", TOTAL, first), join("B", TOTAL, second)
    a.send(None, "once")
    assert handles.wait(WAIT_S)
    asks = threading.Thread(target=lambda: b.get_state(None, WAIT_S))
    asks.start()
    assert not took_over.wait(0.3)
    may_end.set()
    asks.join(WAIT_S)
    assert took_over.is_set()
    assert second.payloads == ["once"]


def test_a_state_that_does_not_come_in_time(join: Join) -> None:
    handles, may_end = threading.Event(), threading.Event()
    first, second = Told(), Told()
    first.hook = lambda msg: (handles.set(), may_end.wait(WAIT_S))
    a, b = join("A", TOTAL, first), join("B", TOTAL, second)
    a.send(None, "busy")
    assert handles.wait(WAIT_S)
    with pytest.raises(OutcomeUnknownError, match=r"not taken over within 0\.2 s"):
        b.get_state(None, 0.2)
    may_end.set()
    b.get_state(None, WAIT_S)
    assert second.payloads == ["busy"]


def test_kinds_of_messages_to_one_member(join: Join) -> None:
    first, second = Told(), Told()
    a = join("A", receiver=first)
    join("B", receiver=second)
    until(lambda: a.get_view().size == 2)
    a.send(BytesMessage("B", b"\0bytes"))
    a.send("B", [1, ("two", {3: 4.0})])
    a.send(EmptyMessage("B"))
    until(lambda: len(second.messages) == 3)
    assert [type(msg) for msg in second.messages] == [BytesMessage, ObjectMessage, EmptyMessage]
    assert second.payloads == [b"\0bytes", [1, ("two", {3: 4.0})], None]
    assert {(msg.src, msg.dest) for msg in second.messages} == {("A", "B")}
    assert first.messages == []


def test_a_channel_without_a_receiver_is_read(join: Join) -> None:
    a = join("A")
    view = a.receive(WAIT_S)
    assert isinstance(view, View)
    assert view.contains_member("A")
    a.send(Message(None, None, "Fire!"))
    message = a.receive(0)
    assert isinstance(message, Message)
    assert message.object == "Fire!"
    with pytest.raises(TimeoutError, match=r"nothing came within 0\.01 s"):
        a.receive(0.01)


def test_a_suspicion_comes_before_the_view(join: Join) -> None:
    a = join("A")
    a.receive(WAIT_S)
    a._suspect("B")  # as its stack does, in tests/process/peers/test_jgroups.py
    a.send(None, "late")
    suspicion, message = a.receive(WAIT_S), a.receive(WAIT_S)
    assert suspicion.member == "B"  # type: ignore[union-attr]
    assert isinstance(message, Message)


def test_a_channel_connects_again_and_not_after_close(join: Join) -> None:
    told = Told()
    a = join("A", receiver=told)
    url = f"peer:{a._connected.channel._core.process.conversation.cluster}"  # type: ignore[union-attr]
    with pytest.raises(IllegalStateError, match="is connected"):
        a.connect(url)
    a.disconnect()
    assert (a.is_connected, a.is_open) == (False, True)
    with pytest.raises(IllegalStateError, match="not connected"):
        a.send(None, "lost")
    a.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        a.connect(url)


def test_a_channel_comes_back_with_its_receiver(tmp_path: Path) -> None:
    told = Told()
    with JChannel().name("A").set_receiver(told) as a:
        for number in (1, 2):
            a.connect(f"peer:file/{tmp_path}/group")
            a.send(None, f"{number}")
            until(lambda n=number: len(told.messages) == n)  # type: ignore[misc]
            a.disconnect()
    assert told.payloads == ["1", "2"]


# -- Flags -----------------------------------------------------------------------------------------


def test_rsvp_returns_when_all_have_it(join: Join) -> None:
    first, second = Told(), Told()
    a = join("A", receiver=first)
    join("B", receiver=second)
    until(lambda: a.get_view().size == 2)
    a.send(ObjectMessage(None, "all").set_flag(Flag.RSVP))
    assert first.payloads in ([], ["all"])  # its own copy is here, and is being handed out
    until(lambda: first.payloads == second.payloads == ["all"])


def test_rsvp_waits_for_the_message(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.toolkits.jgroups.channel.RSVP_S", 0.05)
    told, may_go_on = Told(), threading.Event()
    a = join("A", receiver=told)
    told.hook = lambda msg: may_go_on.wait(WAIT_S)
    a.send(None, "holds the thread up")
    with pytest.raises(TimeoutError, match="not all members had the message"):
        a.send(ObjectMessage(None, "all").set_flag(Flag.RSVP))
    may_go_on.set()


def test_dont_loopback_skips_the_sender(join: Join) -> None:
    first, second = Told(), Told()
    a = join("A", receiver=first)
    join("B", receiver=second)
    until(lambda: a.get_view().size == 2)
    a.send(ObjectMessage(None, "others").set_flag(Flag.DONT_LOOPBACK, Flag.DONT_BUNDLE))
    a.send(None, "all")
    until(lambda: second.payloads == ["others", "all"] and first.payloads == ["all"])
    assert second.messages[0].is_flag_set(Flag.DONT_BUNDLE)


def test_flags_ask_for_less_order(join: Join) -> None:
    told = Told()
    a = join("A", receiver=told)
    orders: list[Any] = []
    send = a._connected.channel.send
    a._connected.channel.send = (  # type: ignore[method-assign]
        lambda *args, **given: (orders.append(given["order"]), send(*args, **given))[1]
    )
    flags = [Flag.OOB, Flag.NO_RELIABILITY, Flag.NO_TOTAL_ORDER, Flag.DONT_BUNDLE]
    for flag in flags:
        a.send(ObjectMessage(None, flag.name).set_flag(flag))
    assert orders == ["none", "none", "fifo", None]
    until(lambda: sorted(told.payloads) == sorted(str(flag.name) for flag in flags))


def test_flags_that_cannot_be_kept_are_refused(join: Join) -> None:
    with pytest.raises(ValueError, match="NO_FC cannot be kept"):
        Message().set_flag(Flag.NO_FC)
    with pytest.raises(ValueError, match="RSVP is not for calls"):
        GET_ALL.set_flags(Flag.RSVP)
    told = Told()
    a = join("A", receiver=told)
    with pytest.raises(IllegalStateError, match="to all members"):
        a.send(ObjectMessage("A", 1).set_flag(Flag.RSVP))
    errors: list[Exception] = []

    def ask_inside(msg: Message) -> None:
        try:
            a.send(ObjectMessage(None, 1).set_flag(Flag.RSVP))
        except IllegalStateError as error:
            errors.append(error)

    told.hook = ask_inside
    a.send(None, "go")
    until(lambda: bool(errors))
    b = JChannel(["UDP"])
    with b.set_receiver(told).name("B"), pytest.raises(IllegalStateError, match="not connected"):
        b.send(ObjectMessage(None, 1).set_flag(Flag.RSVP))


# -- Building blocks -------------------------------------------------------------------------------


class Thermometer:
    def __init__(self, degrees: int) -> None:
        self.degrees = degrees

    def read(self) -> int:
        return self.degrees

    def warm(self, by: int) -> int:
        self.degrees += by
        return self.degrees

    def burn(self) -> None:
        raise ValueError("it is hot")


def test_methods_are_called_on_all_on_some_and_on_one(join: Join) -> None:
    made: list[RpcDispatcher] = []
    for degrees, name in ((1, "A"), (2, "B"), (3, "C")):
        join(name, "udp.xml", on=lambda c, d=degrees: made.append(RpcDispatcher(c, Thermometer(d))))
    a, b, c = made
    until(lambda: a.channel.get_view().size == 3)
    assert a.call_remote_methods(None, "read", options=GET_ALL(WAIT_S)) == {"A": 1, "B": 2, "C": 3}
    assert a.call_remote_methods(["B", "C"], "warm", 10) == {"B": 12, "C": 13}
    assert a.call_remote_method("B", "read") == 12
    assert len(a.call_remote_methods(None, "read", options=GET_MAJORITY)) >= 2
    assert len(a.call_remote_methods(None, "read", options=RequestOptions(2))) >= 2
    assert a.call_remote_methods(None, "read", options=GET_NONE) == {}
    quiet = GET_ALL.set_flags(Flag.DONT_LOOPBACK, Flag.OOB)
    assert a.call_remote_methods(None, "read", options=quiet) == {"B": 12, "C": 13}
    assert a.call_remote_methods(None, "read", options=GET_FIRST).first in (1, 12, 13)
    with pytest.raises(ValueError, match="it is hot"):
        a.call_remote_method("C", "burn")
    replies = a.call_remote_methods(["C", "B"], "burn")
    assert (replies.results, len(replies), replies.complete) == ([], 2, True)
    c.channel.close()
    until(lambda: b.channel.get_view().size == 2)
    assert b.call_remote_methods(None, "read") == {"A": 1, "B": 12}


def test_a_call_that_runs_out_of_time_has_the_replies_that_came(join: Join) -> None:
    may_end = threading.Event()

    def hold(msg: Message) -> Any:
        return msg.src if msg.object == "who" else may_end.wait(WAIT_S)

    one, two = join("A"), join("B")
    first = MessageDispatcher(one, lambda msg: msg.object)  # after connect
    MessageDispatcher(two).set_request_handler(hold)
    until(lambda: one.get_view().size == 2)
    assert first.cast_message(["B"], "who") == {"B": "A"}
    replies = first.cast_message(None, "hold", GET_ALL(0.1))
    assert (dict(replies), replies.complete) == ({"A": "hold"}, False)
    with pytest.raises(TimeoutError, match="B has not replied"):
        first.send_message("B", "hold", GET_FIRST(0.05))
    may_end.set()
    assert first.send_message("A", 7) == 7
    with pytest.raises(IllegalStateError, match="a channel for each"):
        RpcDispatcher(one, object())


def test_plain_messages_pass_by_a_dispatcher(join: Join) -> None:
    told = Told()
    a = join("A", receiver=told, on=lambda c: MessageDispatcher(c, lambda msg: 0))
    a.send(None, "plain")
    until(lambda: told.payloads == ["plain"])
    with pytest.raises(IllegalStateError, match="has a receiver or a building block"):
        a.receive(1)


class Hears(Consumer):
    def __init__(self) -> None:
        self.values: list[Any] = []

    def handle_notification(self, value: Any) -> None:
        self.values.append(value)

    def member_joined(self, member: str) -> None:
        self.values.append(f"+{member}")

    def member_left(self, member: str) -> None:
        self.values.append(f"-{member}")


def test_a_notification_bus(tmp_path: Path) -> None:
    with JChannel().name("A") as a, JChannel().name("B") as b:
        url = f"peer:file/{tmp_path}/bus"
        first, late = Hears(), Hears()
        bus = NotificationBus(a, url).set_consumer(first).start()
        bus.send_notification({"key": [1, 2]})
        until(lambda: {"key": [1, 2]} in first.values)
        other = NotificationBus(b, url).set_consumer(late).start()
        assert [value for value in late.values if isinstance(value, dict)] == [{"key": [1, 2]}]
        other.send_notification("changed")
        until(lambda: "changed" in first.values and "changed" in late.values)
        assert bus.membership == ("A", "B")
        other.stop()
        until(lambda: "-B" in first.values)
        assert [value for value in first.values if str(value)[0] in "+-"] == ["+A", "+B", "-B"]
        with pytest.raises(IllegalStateError, match="not connected"):
            other.send_notification("lost")


def test_a_replicated_map(tmp_path: Path) -> None:
    with JChannel(TOTAL).name("A") as a, JChannel(TOTAL).name("B") as b:
        url = f"peer:file/{tmp_path}/map"
        first = ReplicatedHashMap(a, url).start()
        assert first.put("k", 1) is None
        second = ReplicatedHashMap(b, url).start()
        assert (second.get("k"), second.size, second.contains_key("l")) == (1, 1, False)
        assert second.put("k", 2) == 1
        assert (second.put_if_absent("k", 3), second.put_if_absent("l", 3)) == (2, None)
        assert first.replace("l", 3, 4)
        assert not first.replace("l", 3, 5)
        assert first.copy() == {"k": 2, "l": 4}
        first.stop()
        assert (second.remove("k"), list(second), "k" in second) == (2, ["l"], False)


def test_a_replicated_map_needs_one_order() -> None:
    with pytest.raises(ConfigurationError, match="add SEQUENCER"):
        ReplicatedHashMap(JChannel("tcp.xml"))


def test_suspicions_make_no_difference_to_others() -> None:
    plain = JChannel("udp.xml").stack
    assert peers.Stack(*plain.layers, Suspicions(lambda name: None)).digest == plain.digest


def test_members_without_a_state_are_not_asked_for_one(join: Join) -> None:
    join("A")  # reads nothing
    join("B", receiver=Receiver())
    join("C", on=lambda channel: MessageDispatcher(channel))
    first, second = Told(), Told()
    d = join("D", receiver=first)
    d.get_state(None, WAIT_S)
    d.send(None, "Fire!")
    until(lambda: first.payloads == ["Fire!"])
    join("E", receiver=second).get_state(None, WAIT_S)
    assert second.payloads == ["Fire!"]
    with pytest.raises(IllegalStateError, match="before its channel is connected"):
        NotificationBus(join("F"))


def test_a_dispatcher_leaves_the_state_to_the_receiver(join: Join) -> None:
    first, second = Told(), Told()
    a = join("A", receiver=first, on=lambda channel: MessageDispatcher(channel))
    a.send(None, "Fire!")
    until(lambda: first.payloads == ["Fire!"])
    join("B", receiver=second, on=lambda channel: MessageDispatcher(channel)).get_state(None)
    assert second.payloads == ["Fire!"]


def test_a_block_that_finds_the_state_of_another_kind_leaves_the_group(join: Join) -> None:
    a = join("A", on=lambda channel: NotificationBus(channel))
    with pytest.raises(IllegalStateError, match="that of something else"):
        join("B", on=lambda channel: ReplicatedHashMap(channel))
    until(lambda: a.get_view().members == ("A",))


def test_get_state_needs_a_receiver_and_no_target(join: Join) -> None:
    a = join("A")
    with pytest.raises(IllegalStateError, match="set a receiver"):
        a.get_state(None)
    with pytest.raises(ValueError, match="write None"):
        a.get_state("B")
