"""A channel between a program and its stack, without sockets, clocks and threads."""

from collections.abc import Sequence

import pytest

from antiphon.api.messages.sending import outgoing
from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.errors import ConnectionLostError, IllegalStateError, InvalidDestinationError
from antiphon.formats.columns import BYTES, TEXT, Extra, encode_extra
from antiphon.formats.pack import FULL_BYTES
from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.channel import driver, inbox, outbox
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.layers.flow import Awaited
from antiphon.peers.layers.layer import (
    Blocked,
    Changed,
    Closing,
    Dial,
    Down,
    Effect,
    Frame,
    Install,
    Layer,
    Tell,
)
from antiphon.peers.membership.member import Left
from tests.peers.support.channels import Ordering, Process
from tests.peers.support.scripted import Scripted

B, C = MemberId("b", 1), MemberId("c", 1)


def together() -> tuple[Process, Process]:
    """Two processes in one view, which they have received."""
    a, b = Process("a"), Process("b")
    view = a.install(b.me)
    b.act(Install(Closing(b.running.view.id, {}), view, {}, Changed((b.me,))))
    assert a.received() == b.received() == [["a", "b"]]
    return a, b


def test_what_is_sent_arrives_everywhere_in_its_order() -> None:
    a, b = together()
    for body in ("one", b"two", {"three": 3}):
        a.put(body)
    b.receive_from(a)
    assert a.received() == b.received() == ["one", b"two", {"three": 3}]


class Thanking(Layer):
    """Thanks at the end of a batch for what has arrived."""

    name = "thanking"
    due_ms: int | None = None

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if sender != self.me:
            self.due_ms = now_ms
        return super().up(frame, sender, now_ms)

    def tick(self, now_ms: int) -> Sequence[Effect]:
        self.due_ms = None
        return (Down(Frame(b"thanks", control=True), (B,)),)

    def next_deadline_ms(self) -> int | None:
        return self.due_ms


def test_what_is_due_at_once_leaves_with_the_rest() -> None:
    a, b = Process("a", Thanking(), Scripted()), Process("b", Thanking(), Scripted())
    view = a.install(b.me)
    b.act(Install(Closing(b.running.view.id, {}), view, {}, Changed((b.me,))))
    b.put("one")
    b.put("two")
    a.receive_from(b)
    assert [data[-6:] for _, data in a.sent[: a.flushed]] == [b"thanks"]
    assert a.due_ms is None


def test_some_or_one_are_addressed_by_name() -> None:
    a, b = together()
    a.put("for b", to="b", level=Level.FIFO)
    a.put("for both", to=["a", b.me], level=Level.FIFO)
    b.receive_from(a)
    assert b.received() == ["for b", "for both"]
    assert a.received() == ["for both"]
    with pytest.raises(InvalidDestinationError, match="'x' is not a member of 'c': a b"):
        a.put("nobody", to="x")


def test_a_view_says_who_has_come_and_gone() -> None:
    a = Process("a")
    a.install(B)
    a.install(C)
    items = [a.conversation.take(), a.conversation.take()]
    assert [item.joined for item in items] == [("a", "b"), ("c",)]  # type: ignore[union-attr]
    assert [item.left for item in items] == [(), ("b",)]  # type: ignore[union-attr]


def test_a_name_that_came_back_has_left_and_joined() -> None:
    a = Process("a")
    a.install(B)
    a.install(MemberId("b", 2))
    a.conversation.take()
    item = a.conversation.take()
    assert (item.joined, item.left) == (("b",), ("b",))  # type: ignore[union-attr]


def test_the_numbers_of_views_rise_and_are_unique() -> None:
    a, b = Process("a", incarnation=5), Process("b", incarnation=6)
    numbers = []
    for process in (a, b):
        for _ in range(2):
            process.install()
            numbers.append(process.conversation.view.id)
    assert numbers[0] < numbers[1]
    assert len(set(numbers)) == 4
    assert str(numbers[1]) == "2.a"


def test_the_first_view_is_kept_back_until_something_is_received_in_it() -> None:
    a = Process("a")
    assert a.received() == []
    assert a.conversation.view.members == ("a",)
    a.put("alone")
    assert a.received() == [["a"], "alone"]
    b = Process("b")
    b.conversation.stay_alone()
    assert b.received() == [["b"]]


def test_joined_is_a_view_with_others_or_a_primary_one() -> None:
    a = Process("a")
    a.install(primary=False)
    assert not a.conversation.joined.done
    a.install(primary=True)
    assert a.conversation.joined.done
    b = Process("b")
    b.conversation.members_min = 3
    b.conversation.stay_alone()
    assert not b.conversation.joined.done
    b.install(C)
    assert not b.conversation.joined.done
    b.install(C, MemberId("d", 1))
    assert b.conversation.joined.done


def test_while_a_view_changes_what_is_sent_gathers_outside() -> None:
    a, b = together()
    a.freeze()
    for i in range(100):
        a.put(f"{i}")
    assert a.driver.hindrance == "the view is changing"
    assert a.sent == []
    a.install(b.me)
    assert len(a.sent) == 1  # one pack
    assert a.received() == [["a", "b"], *(f"{i}" for i in range(100))]


def test_who_blocks_is_named() -> None:
    a, b = together()
    a.act(Blocked(b.me, "has not taken 4 MiB"))
    a.put("first")  # the stack has it
    a.put("second")
    assert a.driver.hindrance == "b: has not taken 4 MiB"
    a.act(Blocked(None))
    assert a.driver.hindrance == ""
    assert a.received() == ["first", "second"]


def test_of_two_that_block_each_is_named_with_its_own_reason() -> None:
    a = Process("a", Scripted(), Ordering())
    a.install(B, C)
    a.act(Blocked(B, "is slow"))
    a.running.act(a.running.layers[1], [Blocked(C, "is late")], 0)
    a.running.act(a.running.layers[1], [Blocked(None)], 0)
    a.pump()
    assert a.driver.hindrance == "b: is slow"


def test_whom_the_leader_waits_for_is_named() -> None:
    ordering = Ordering()
    a = Process("a", Scripted(), ordering)
    a.install(B, C)
    held = a.running.layers[1]
    assert isinstance(held, Ordering)
    held.holds = True
    a.put("x")
    a.act(Tell(Awaited(B, C, "is slow")))  # b waits for c, and a for itself, which leads
    assert a.driver.hindrance == "a has not ordered what was sent before"
    a.act(Tell(Awaited(a.me, C, "is slow")))
    assert a.driver.hindrance == "a, which orders messages, waits for c: is slow"
    a.act(Tell(Awaited(a.me, a.me, "is slow")))
    assert a.driver.hindrance == "a, which orders messages, waits for this process: is slow"
    a.act(Tell(Awaited(a.me, None, "")))
    assert a.driver.hindrance == "a has not ordered what was sent before"


def test_messages_gather_into_packs_while_others_are_being_ordered() -> None:
    ordering = Ordering()
    a = Process("a", Scripted(), ordering)
    a.install(B)
    held = a.running.layers[1]
    assert isinstance(held, Ordering)
    held.holds = True
    for i in range(20):
        a.put(f"{i}")
    assert len(a.sent) == 4
    assert a.driver.hindrance == "a has not ordered what was sent before"
    held.holds = False
    a.running.act(held, [held.held.popleft()], 0)
    a.pump()
    assert len(a.sent) == 5  # all that had gathered, as one pack
    a.running.act(held, list(held.held), 0)
    a.pump()
    assert sorted(a.received()[1:], key=int) == [f"{i}" for i in range(20)]


def test_a_new_view_counts_packs_anew() -> None:
    """Whoever was cut off does not get what it sent handed back: it must not wait for that."""
    a = Process("a", Scripted(), Ordering())
    a.install(B)
    a.running.layers[1].holds = True  # type: ignore[attr-defined]
    for i in range(5):
        a.put(f"{i}")
    assert len(a.sent) == 4
    a.install(B)
    assert len(a.sent) == 5


def test_messages_of_one_pack_keep_their_kinds_times_and_extras() -> None:
    a, _ = together()
    a.freeze()
    extra = encode_extra(Extra(correlation_id="c"))
    sent = [
        (TEXT, b"a", b"", 5),
        (BYTES, b"b", b"", 5),
        (BYTES, b"c", extra, 7),
        (TEXT, b"", b"", 7),
    ]
    for one in sent:
        assert a.conversation.put(*one, None, Level.AGREED)
    a.install()
    a.conversation.take()
    columns = a.conversation.take()
    assert isinstance(columns, PeerColumns)
    assert sent == [
        (columns.kinds[i], columns.body(i), columns.extra(i), columns.timestamp(i))
        for i in range(columns.count)
    ]


def test_a_pack_is_for_the_same_members_at_the_same_level_and_bounded() -> None:
    a, _ = together()
    a.freeze()
    large = bytes(FULL_BYTES // 3)
    for body, to, level in (
        *((large, None, Level.AGREED),) * 3,
        ("1", None, Level.FIFO),
        ("2", None, Level.FIFO),
        ("3", (a.me,), Level.FIFO),
        ("4", None, Level.FIFO),
    ):
        assert a.conversation.put(*outgoing(body, now_ms=0), to, level)
    a.install()
    a.conversation.take()
    counts = []
    while isinstance(columns := a.conversation.take(), PeerColumns):
        counts.append(columns.count)
    assert counts == [2, 1, 2, 1, 1]


def test_who_leaves_takes_nothing_more_and_what_it_has_leaves() -> None:
    a, b = together()
    a.freeze()
    a.put("before")
    a.driver.do(Conversation.leave)
    assert not a.conversation.try_put(*outgoing("after", now_ms=0), None, Level.AGREED)
    with pytest.raises(IllegalStateError, match="is closed"):
        a.put("after")
    a.install(b.me)
    assert not a.conversation.try_put(*outgoing("after", now_ms=0), None, Level.AGREED)
    b.receive_from(a)
    assert "before" in b.received()
    assert a.conversation.all_left


def test_what_waits_is_bounded_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ROOM_BYTES", 1000)
    a, b = together()
    a.freeze()
    count = 0
    while a.put("x" * 36):
        count += 1
    assert count == 10
    room = a.conversation.room()
    assert not room.done
    a.install(b.me)
    assert room.done
    assert a.put("more")
    assert len(a.received()) == count + 2


def test_a_program_that_takes_nothing_is_behind_and_the_stack_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "BEHIND_BYTES", 1000)
    told: list[bool] = []
    a, b = together()
    monkeypatch.setattr(a.running, "behind", lambda behind, now_ms: told.append(behind))
    b.put("x" * 600)
    a.receive_from(b)
    assert told == []
    b.put("y" * 600)
    a.receive_from(b)  # the first one comes again: nothing here filters
    assert told == [True]
    assert a.received() != []
    a.pump()
    assert told == [True, False]


def test_a_program_that_is_behind_for_too_long_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "BEHIND_BYTES", 1000)
    a, b = together()
    b.put("x" * 2000)
    a.receive_from(b)
    a.advance(driver.BEHIND_MS - 1)
    assert not a.conversation.over
    a.advance(1)
    assert a.released
    assert a.received() == ["x" * 2000]  # what was received before
    with pytest.raises(ConnectionLostError, match="has received nothing for 30 s, with 2"):
        raise a.conversation.why_not()


def test_a_program_that_is_behind_and_takes_something_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "BEHIND_BYTES", 1000)
    a, b = together()
    for _ in range(5):
        b.put("x" * 2000)
    a.receive_from(b)
    for _ in range(3):
        a.advance(driver.BEHIND_MS - 1)
        assert a.conversation.take() is not None
        a.advance(1)
    assert not a.conversation.over


def test_who_sends_garbage_is_cut_off() -> None:
    a, b = together()
    a.driver.arrived(b.me, [b"\x07garbage"], 0)
    assert [name for name, _ in a.refusals] == ["b"]
    assert not a.conversation.over


def test_what_is_not_a_pack_is_dropped_by_all(caplog: pytest.LogCaptureFixture) -> None:
    a, b = together()
    a.running.send(b"not a pack", 0)
    a.pump()
    b.receive_from(a)
    assert a.received() == b.received() == b.refusals == []
    assert "a has sent what is not a pack" in caplog.text


def test_a_namesake_of_a_member_is_not_welcome() -> None:
    a, b = together()
    assert a.driver.welcome(b.me) is None
    for name in "ab":
        refused = a.driver.welcome(MemberId(name, 9))
        assert refused is not None
        assert f"the name '{name}' belongs to a live member" in refused.reason
        assert (refused.again, refused.replaced) == (True, True)
    a.install(b.me, primary=False)
    refused = a.driver.welcome(MemberId("b", 9))
    assert refused is not None
    assert not refused.replaced  # a cluster that is cut off gives no names away
    a.install()
    assert a.driver.welcome(MemberId("b", 9)) is None


def test_one_that_comes_back_and_is_replaced_is_told_so_on_its_old_connection() -> None:
    a, b = together()
    again = MemberId("b", 9)
    for process in (b.me, again):
        a.driver.linked(process, "127.0.0.1:1", 0)
    a.install(b.me, primary=False)
    assert a.refusals == [("b", "the name 'b' belongs to a live member of the cluster")]
    a.driver.unlinked(again, False, 0)
    a.install(again)
    assert len(a.refusals) == 2
    a.driver.unlinked(b.me, False, 0)
    a.install(again, C)
    assert len(a.refusals) == 2


def test_one_that_is_replaced_ends_unless_it_only_wants_to_join() -> None:
    joins, was = Process("a"), Process("a")
    joins.driver.replaced("taken")
    assert not joins.conversation.over
    was.install(B)
    was.driver.replaced("taken")
    assert was.released
    with pytest.raises(IllegalStateError, match="taken"):
        raise was.conversation.why_not()


@pytest.mark.parametrize("name", ["a", "b"])
def test_of_two_namesakes_in_a_view_the_first_one_stays(name: str) -> None:
    a = Process("a")
    a.install(B, MemberId(name, 9))
    assert a.received()[-1] == ["a", "b", name]
    assert not a.conversation.over
    assert a.conversation.addressed("b") == (B,)


def test_one_that_finds_its_name_taken_ends() -> None:
    a = Process("a")
    members = (MemberId("a", 2), B)
    view = PeerView(ViewId(7, B), members, B, True)
    a.act(Install(Closing(a.running.view.id, {}), view, {}, Changed()))
    assert a.released
    with pytest.raises(IllegalStateError, match="another process has taken the name 'a'"):
        raise a.conversation.why_not()


def test_addresses_of_the_stack_are_dialled() -> None:
    a, _ = together()
    a.act(Dial("127.0.0.1:7"))
    assert a.dialled == ["127.0.0.1:7"]


def test_whoever_closes_waits_for_what_was_sent() -> None:
    a = Process("a", Scripted(), Ordering())
    a.install(B)
    held = a.running.layers[1]
    assert isinstance(held, Ordering)
    held.holds = True
    left: list[int] = []
    a.running.leave = left.append  # type: ignore[method-assign]
    a.put("last")
    a.driver.do(lambda conversation: conversation.leave())
    a.pump()
    assert left == []
    with pytest.raises(IllegalStateError, match="closed"):
        a.put("later")
    a.running.act(held, list(held.held), 0)
    a.pump()
    assert left == [0]
    assert not a.conversation.over
    a.act(Tell(Left()))
    assert a.released
    assert a.conversation.ended.done


def test_whoever_closes_waits_no_longer_than_that() -> None:
    a, _ = together()
    a.freeze()
    a.put("stuck")
    a.driver.do(lambda conversation: conversation.leave())
    a.pump()
    a.advance(driver.LEAVE_MS)
    a.advance(driver.LEAVE_MS)
    assert a.released


def test_it_is_woken_once_for_much() -> None:
    a, _ = together()
    for _ in range(10):
        a.driver.wake()
    assert a.woken == 1
    a.pump()
    a.driver.wake()
    assert a.woken == 2


def test_bells_ring_when_something_arrives_and_at_the_end() -> None:
    from antiphon.api.protocol.ticket import Ticket

    a, b = together()
    first, second, other = Ticket(), Ticket(), Ticket()
    rung: list[str] = []
    first.watch(lambda: rung.append("first"))
    a.conversation.hang_up(first)
    a.conversation.hang_up(other)
    a.conversation.take_down(other)
    b.put("x")
    a.receive_from(b)
    assert rung == ["first"]
    assert not other.done
    a.conversation.hang_up(second)
    a.driver.fail(ConnectionLostError("broken"))
    assert second.done
    assert a.released
