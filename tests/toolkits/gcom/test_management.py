"""GCom as a program uses it: a name service, members, orderings and multicasts, and mistakes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import peers
from antiphon.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    OutcomeUnknownError,
)
from antiphon.toolkits import gcom
from tests.peers.support.certificates import Authority
from tests.process.support.peer_processes import free_addresses, wait_until
from tests.toolkits.gcom.conftest import App

pytestmark = pytest.mark.process


def wait_view(*members: gcom.Management) -> None:
    """Wait until these are in one view, and no others."""
    wanted = {member.name for member in members}
    wait_until(lambda: all(set(m.view.members) == wanted for m in members), f"a view of {wanted}")


@pytest.mark.parametrize("multicast", gcom.Multicast)
@pytest.mark.parametrize("ordering", gcom.Ordering)
def test_each_order_over_each_multicast(
    names: gcom.NameService, stack: ExitStack, ordering: gcom.Ordering, multicast: gcom.Multicast
) -> None:
    apps = [App() for _ in range(3)]
    first = gcom.Management(
        apps[0], names.address, "chat", ordering=ordering, multicast=multicast, name="p1"
    )
    stack.enter_context(first)
    # Those who come later want something else, and get what the group has.
    p2, p3 = (
        stack.enter_context(
            gcom.Management(
                app, names.address, "chat", ordering="causal", multicast="basic", name=name
            )
        )
        for app, name in zip(apps[1:], ("p2", "p3"), strict=True)
    )
    members = [first, p2, p3]
    wait_view(*members)
    assert {(m.ordering, m.multicast, m.leader) for m in members} == {(ordering, multicast, "p3")}
    sent = {f"{member.name} {number}" for number in range(20) for member in members}
    for number in range(20):
        for member in members:
            member.send(f"{member.name} {number}")
    for app in apps:
        app.wait(*sent)
        assert len(app.got) == len(sent)
        if ordering is not gcom.UNORDERED:
            for member in members:
                own = [text for text in app.got if text.startswith(member.name)]
                assert own == sorted(own, key=lambda text: int(text.split()[1]))
    if ordering in (gcom.TOTAL, gcom.CAUSAL_TOTAL):
        assert apps[0].got == apps[1].got == apps[2].got


def test_reliable_multicast_loses_nothing_while_members_come_and_go(
    names: gcom.NameService, stack: ExitStack
) -> None:
    app = App()
    a = stack.enter_context(gcom.Management(App(), names.address, "chat", name="a"))
    b = stack.enter_context(gcom.Management(app, names.address, "chat", name="b"))
    wait_view(a, b)
    numbers = range(3000)

    def send_all() -> None:
        for number in numbers:
            a.send(f"{number} {'x' * 500}")

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send_all)
        for name in ("c", "d", "e"):
            guest = gcom.Management(App(), names.address, "chat", name=name)
            if name != "d":
                guest.close()
            else:
                stack.enter_context(guest)
        sent.result()
    wait_until(lambda: len(app.got) == len(numbers), f"all messages, got {len(app.got)}")
    assert [int(text.split()[0]) for text in app.got] == list(numbers)


def test_bodies_are_those_of_channels(names: gcom.NameService) -> None:
    app = App()
    with gcom.Management(app, names.address, "chat", multicast=gcom.BASIC) as member:
        bodies: list[Any] = ["text", b"bytes", {"a": 1}, [1, "two"], "x" * 200_000]
        for body in bodies:
            member.send(body)
        wait_until(lambda: len(app.got) == len(bodies), "all bodies")
        assert app.got == bodies


def test_without_a_name_a_member_gets_a_uuid(names: gcom.NameService, stack: ExitStack) -> None:
    members = [stack.enter_context(gcom.Management(App(), names.address, "chat")) for _ in range(3)]
    wait_view(*members)
    assert {len(member.name) for member in members} == {36}
    assert {member.leader for member in members} == {max(member.name for member in members)}


@pytest.mark.in_turn
def test_of_many_that_come_at_once_one_creates_the_group(
    names: gcom.NameService, stack: ExitStack
) -> None:
    def come(number: int) -> gcom.Management:
        ordering = gcom.TOTAL if number % 2 else gcom.CAUSAL
        return gcom.Management(App(), names.address, "chat", ordering=ordering, timeout=30)

    with ThreadPoolExecutor(6) as pool:
        members = [stack.enter_context(member) for member in pool.map(come, range(6))]
    wait_view(*members)
    assert len({member.ordering for member in members}) == 1
    assert set(names.groups) == {"chat"}


def test_groups_are_apart(names: gcom.NameService, stack: ExitStack) -> None:
    one, other = App(), App()
    a = stack.enter_context(gcom.Management(one, names.address, "one"))
    b = stack.enter_context(gcom.Management(other, names.address, "other", ordering=gcom.TOTAL))
    a.send("for one")
    b.send("for the other")
    one.wait("for one")
    other.wait("for the other")
    assert (one.got, other.got) == (["for one"], ["for the other"])
    assert {name: each.leader for name, each in names.groups.items()} == {
        "one": a.name,
        "other": b.name,
    }


def test_a_group_ends_with_its_last_member(names: gcom.NameService) -> None:
    a = gcom.Management(App(), names.address, "chat", ordering="total", name="a")
    b = gcom.Management(App(), names.address, "chat", name="b")
    b.close()
    wait_until(lambda: names.groups["chat"].leader == "a", "a to lead")
    a.close()
    a.close()
    assert names.groups == {}
    with gcom.Management(App(), names.address, "chat", ordering="causal") as c:
        assert c.ordering is gcom.CAUSAL


def test_a_leader_whose_program_is_busy_tells_of_itself(
    names: gcom.NameService, stack: ExitStack
) -> None:
    goes_on, is_busy = threading.Event(), threading.Event()

    class Busy(App):
        def deliver(self, message: Any) -> None:
            is_busy.set()
            goes_on.wait(30)

    b = gcom.Management(App(), names.address, "chat", name="b")
    a = stack.enter_context(gcom.Management(Busy(), names.address, "chat", name="a"))
    stack.callback(goes_on.set)
    a.send("work")
    assert is_busy.wait(10)
    b.close()
    wait_until(lambda: names.groups["chat"].leader == "a", "a to tell of itself")


def test_a_leader_that_has_lost_its_group_tells_nothing(
    names: gcom.NameService, stack: ExitStack
) -> None:
    b = stack.enter_context(gcom.Management(App(), names.address, "chat", name="b"))
    a = stack.enter_context(gcom.Management(App(), names.address, "chat", name="a"))
    b._channel.close()
    wait_view(a)
    wait_until(lambda: names.groups["chat"].leader == "a", "a to take the place of b")


def test_a_closed_member_sends_nothing(names: gcom.NameService) -> None:
    member = gcom.Management(App(), names.address, "chat")
    member.close()
    with pytest.raises(IllegalStateError, match="closed"):
        member.send("late")


def test_what_a_program_raises_is_logged_and_the_next_message_comes(
    names: gcom.NameService, caplog: pytest.LogCaptureFixture
) -> None:
    class Clumsy(App):
        def deliver(self, message: Any) -> None:
            if message == "bad":
                raise ValueError("cannot read that")
            super().deliver(message)

    app = Clumsy()
    with gcom.Management(app, names.address, "chat") as member:
        member.send("bad")
        member.send("good")
        app.wait("good")
    assert "cannot read that" in caplog.text


def test_with_certificates(tmp_path: Path, stack: ExitStack) -> None:
    tls = Authority(tmp_path).issue("all")
    names = stack.enter_context(gcom.NameService("127.0.0.1:0", tls=tls))
    apps = [App(), App()]
    a, _ = (
        stack.enter_context(gcom.Management(app, names.address, "chat", tls=tls)) for app in apps
    )
    a.send("secret")
    apps[1].wait("secret")
    with pytest.raises(ConnectionLostError):
        gcom.lookup(names.address, "chat")
    with pytest.raises(ConnectionLostError):
        gcom.lookup(a.address, "chat")


# -- Mistakes --------------------------------------------------------------------------------------


def test_nobody_answers() -> None:
    (address,) = free_addresses(1)
    with pytest.raises(ConnectionLostError, match=f"nobody answers at {address}"):
        gcom.Management(App(), address, "chat")


def test_a_member_of_another_group_is_no_way_in(names: gcom.NameService) -> None:
    with (
        gcom.Management(App(), names.address, "one") as member,
        pytest.raises(ConfigurationError, match="belongs to the cluster 'one'"),
    ):
        gcom.Management(App(), member.address, "other")


def test_a_channel_that_is_no_group_of_gcom_is_no_way_in() -> None:
    with peers.Channel(peers.FIFO) as channel:
        channel.connect("peer:at/chat")
        with pytest.raises(ConfigurationError, match="no group of GCom"):
            gcom.Management(App(), channel.address, "chat")


@pytest.mark.parametrize("group", ["", "a/b", "a?b", "two words", "a..b", "*"])
def test_what_is_no_name_of_a_group_is_refused(names: gcom.NameService, group: str) -> None:
    with pytest.raises(ConfigurationError):
        gcom.Management(App(), names.address, group)
    assert names.groups == {}


def test_what_is_no_setting_is_refused(names: gcom.NameService) -> None:
    with pytest.raises(ConfigurationError, match="'random' is not one of none, fifo, causal"):
        gcom.Management(App(), names.address, "chat", ordering="random")
    with pytest.raises(ConfigurationError, match="'broad' is not one of basic, reliable"):
        gcom.Management(App(), names.address, "chat", multicast="broad")
    with pytest.raises(TypeError, match="deliver"):
        gcom.Management(print, names.address, "chat")  # type: ignore[arg-type]
    assert names.groups == {}


def test_a_name_that_a_live_member_has_is_refused(names: gcom.NameService) -> None:
    with (
        gcom.Management(App(), names.address, "chat", name="a"),
        pytest.raises((ConfigurationError, OutcomeUnknownError), match="live member"),
    ):
        gcom.Management(App(), names.address, "chat", name="a", timeout=1)
