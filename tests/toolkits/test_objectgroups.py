"""Object groups of members in several programs, on one server inside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import antiphon
from antiphon.blocks import RemoteError, TooFewRepliesError
from antiphon.errors import IllegalStateError
from antiphon.toolkits.objectgroups import (
    Groupable,
    GroupAccessor,
    GroupAdministrator,
    InterfaceSemantics,
    NumReplies,
    OperationSemantics,
    Semantics,
)
from tests.api.support.backends import abandon
from tests.api.support.steps import until
from tests.blocks.conftest import Connect, connect
from tests.blocks.support.steps import Held, buried

__all__ = ["connect"]

GROUP = "registers"
SEMANTICS: InterfaceSemantics = {
    "add": OperationSemantics(NumReplies.ALL),
    "note": OperationSemantics(NumReplies.ONEWAY, Semantics.FIFO),
    "size": OperationSemantics(NumReplies.MAJORITY, Semantics.RELIABLE),
}


class Register(Groupable):
    """Keeps what it gets, in its order."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.kept: list[Any] = []
        self.views: list[tuple[str, ...]] = []
        self.before: Callable[[Any], object] = lambda msg: None  # what a test wants done first

    def deliver(self, msg: Any) -> Any:
        self.before(msg)
        if msg == "raise":
            raise ValueError("on request")
        self.kept.append(msg)
        return self.name, len(self.kept)

    def add(self, value: int, *, times: int = 1) -> int:
        self.kept.extend([value] * times)
        return sum(self.kept)

    def note(self, value: Any) -> None:
        self.before(value)
        self.kept.append(value)

    def size(self) -> int:
        return len(self.kept)

    def view_change(self, view: antiphon.View) -> None:
        self.views.append(view.members)

    def get_state(self) -> bytes:
        return " ".join(map(str, self.kept)).encode()

    def set_state(self, state: bytes) -> None:
        self.kept = [int(number) for number in state.split()]


def join(connect: Callable[..., antiphon.Context], *names: str) -> list[Register]:
    registers = [Register(name) for name in names]
    for register in registers:
        GroupAdministrator(connect(), GROUP).join_group(register, SEMANTICS, name=register.name)
    return registers


@pytest.mark.parametrize(
    ("replies", "least"),
    [(NumReplies.ONE, 1), (NumReplies.MAJORITY, 2), (NumReplies.ALL, 3)],
)
def test_a_multicast_returns_as_many_replies_as_it_asks_for(
    connect: Connect, replies: NumReplies, least: int
) -> None:
    """Those that are not waited for do not reply before the call has returned."""
    registers = join(connect, "ann", "bob", "cid")
    gates = [Held() for _ in registers]
    for register, gate in list(zip(registers, gates, strict=True))[least:]:
        register.before = gate
    with GroupAccessor(connect(), GROUP) as accessor:
        assert len(accessor.multicast(7, replies)) == least
        for gate in gates:
            gate.let_go()
        until(lambda: all(register.kept == [7] for register in registers))


@pytest.mark.parametrize("replies", [NumReplies.ONEWAY, NumReplies.ZERO])
def test_a_multicast_without_replies_waits_for_no_member(
    connect: Connect, replies: NumReplies
) -> None:
    (register,) = join(connect, "ann")
    gate = Held()
    register.before = gate
    with GroupAccessor(connect(), GROUP) as accessor:
        assert accessor.multicast(7, replies) == []
        gate.let_go()
        until(lambda: register.kept == [7])


def test_a_multicast_that_asks_for_more_than_come_says_which_came(connect: Connect) -> None:
    ann, _ = join(connect, "ann", "bob")
    gate = ann.before = Held()
    with GroupAccessor(connect(), GROUP) as accessor:
        with pytest.raises(TooFewRepliesError) as caught:
            accessor.multicast(7, NumReplies.ALL, timeout=0.3)
        assert caught.value.replies == {"bob": ("bob", 1)}
    gate.let_go()


def test_an_error_of_a_member_is_its_reply(connect: Connect) -> None:
    join(connect, "ann")
    with GroupAccessor(connect(), GROUP) as accessor:
        (error,) = accessor.multicast("raise")
        assert isinstance(error, ValueError)
        assert str(error) == "on request"


def test_all_members_deliver_in_one_order_whatever_semantics_are_asked_for(
    connect: Connect,
) -> None:
    registers = join(connect, "ann", "bob", "cid")

    def send(semantics: Semantics, first: int) -> None:
        with GroupAccessor(connect(), GROUP) as accessor:
            for n in range(first, first + 20):
                accessor.multicast(n, NumReplies.ONEWAY, semantics)
            accessor.multicast(first + 20, NumReplies.ALL, semantics)

    senders = [
        threading.Thread(target=send, args=(semantics, 100 * n))
        for n, semantics in enumerate(Semantics)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    until(lambda: all(len(register.kept) == 21 * len(senders) for register in registers))
    assert registers[0].kept == registers[1].kept == registers[2].kept


def test_a_new_member_takes_over_the_state_and_all_get_its_view(connect: Connect) -> None:
    (ann,) = join(connect, "ann")
    with GroupAccessor(connect(), GROUP) as accessor:
        accessor.multicast(1)
        accessor.multicast(2)
        (bob,) = join(connect, "bob")
        assert bob.kept == [1, 2]
        accessor.multicast(3)
        assert ann.kept == bob.kept == [1, 2, 3]
        assert ann.views[-1] == bob.views[-1] == accessor.get_view().members == ("ann", "bob")


def test_a_member_that_leaves_gets_nothing_more(connect: Connect) -> None:
    (ann,) = join(connect, "ann")
    bob = Register("bob")
    with GroupAdministrator(connect(), GROUP) as administrator:
        administrator.join_group(bob, SEMANTICS, name="bob")
        administrator.leave_group(bob)
        with pytest.raises(IllegalStateError, match="was not added"):
            administrator.leave_group(bob)
    with GroupAccessor(connect(), GROUP) as accessor:
        assert accessor.multicast(1) == [("ann", 1)]
    assert bob.kept == []
    assert ann.views[-1] == ("ann",)


def test_a_member_with_other_semantics_is_refused(connect: Connect) -> None:
    (ann,) = join(connect, "ann")
    administrator = GroupAdministrator(connect(), GROUP)
    with pytest.raises(IllegalStateError, match="other semantics"):
        administrator.join_group(Register(), {"add": OperationSemantics(NumReplies.ONE)})
    until(lambda: ann.views[-1] == ("ann",))


def test_a_reference_is_the_group_as_one_object(connect: Connect) -> None:
    registers = join(connect, "ann", "bob")
    with GroupAccessor(connect(), GROUP) as accessor:
        group = accessor.reference(timeout=2.0)
        assert group.add(2, times=3) == 6
        assert [register.kept for register in registers] == [[2, 2, 2]] * 2  # it waits for all
        gate = registers[0].before = registers[1].before = Held()
        assert group.note(1) is None  # and nobody has handled it
        gate.let_go()
        assert group.size() == 4
        with pytest.raises(TypeError):
            group.add()
        assert accessor.reference(transparent=False).add(1) == [8, 8]


@pytest.mark.parametrize("operation", ["deliver", "view_change", "get_state", "set_state", "no"])
def test_a_reference_has_the_operations_of_the_interface_alone(
    connect: Connect, operation: str
) -> None:
    join(connect, "ann")
    with GroupAccessor(connect(), GROUP) as accessor:
        with pytest.raises(AttributeError, match=operation):
            getattr(accessor.reference(), operation)(b"")
        with pytest.raises(AttributeError, match="only public"):
            accessor.reference()._private()


def test_a_message_that_is_not_a_call_is_an_error_for_its_sender(connect: Connect) -> None:
    join(connect, "ann")
    with antiphon.blocks.GroupClient(connect(), GROUP) as client:
        (error,) = client.call("hello").values()
    assert isinstance(error, TypeError)
    assert not isinstance(error, RemoteError)


def test_a_member_that_fails_is_removed_and_not_waited_for(connect: Connect) -> None:
    GroupAdministrator(connect(), GROUP).create_group(remove_after=0.05)
    (ann,) = join(connect, "ann")
    ctx = connect()
    GroupAdministrator(ctx, GROUP).join_group(Register("bob"), SEMANTICS, name="bob")
    with GroupAccessor(connect(), GROUP) as accessor:
        assert len(accessor.multicast(1)) == 2
        abandon(ctx)
        assert accessor.multicast(2) == [("ann", 2)]
        assert accessor.get_view().members == ("ann",)
    assert ann.kept == [1, 2]
    buried(ctx)


def test_a_destroyed_group_has_no_members(connect: Connect) -> None:
    (ann,) = join(connect, "ann")
    GroupAdministrator(connect(), GROUP).destroy_group()
    until(lambda: ann.views[-1] == ())
    with GroupAccessor(connect(), GROUP) as accessor, pytest.raises(TooFewRepliesError):
        accessor.multicast(1, timeout=0.1)
