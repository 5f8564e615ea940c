"""`PassiveReplica`, step by step: what it says to the group and to targets, and when."""

from typing import Any

import pytest

from antiphon.blocks.pure import passive
from antiphon.blocks.pure.passive import (
    Answer,
    Call,
    Cast,
    Effect,
    End,
    Fate,
    Invocation,
    Kind,
    PassiveReplica,
    Update,
)
from antiphon.blocks.pure.service import Outcome, ReplicatedService, Request, decode_outcome
from antiphon.errors import FormatError, JMSError
from antiphon.formats import values

KINDS = {"bank": Kind.PESSIMISTIC, "shop": Kind.OPTIMISTIC}


class Buying(ReplicatedService):
    def __init__(self) -> None:
        self.bought: list[Any] = []

    def apply(self, command: Any) -> Any:
        match command:
            case "plain":
                self.bought.append("plain")
                return len(self.bought)
            case "nothing":
                raise ValueError("nothing is for sale")
            case ("to", target):
                yield_from = Invocation(target, "hello")
                return self._one(yield_from)
        return self._two(command)

    def _one(self, wanted: Invocation) -> Any:
        return (yield wanted)

    def _two(self, command: Any) -> Any:
        paid = yield Invocation("bank", ("pay", command))
        try:
            sent = yield Invocation("shop", ("order", command), compensation=("cancel", command))
        except TimeoutError:
            sent = "later"
        if command == "broken":
            raise ValueError("it is broken")
        self.bought.append(command)
        return paid, sent

    def snapshot(self) -> bytes:
        return values.encode(self.bought)

    def restore(self, data: bytes) -> None:
        self.bought = list(values.decode(data))


class Group:
    """Two replicas, and everything that is said in one order; targets are played by the test."""

    def __init__(self) -> None:
        self.a = PassiveReplica(Buying(), "a", KINDS)
        self.b = PassiveReplica(Buying(), "b", KINDS)
        self.view = 1
        self.members = [self.a, self.b]
        self.said: list[bytes] = []
        self.outside: list[tuple[str, Effect]] = []  # what is said to targets and clients
        self._both(lambda replica: replica.viewed(1, ("a", "b")))

    def _both(self, what: Any) -> None:
        for replica in [*self.members]:
            self.take(replica, what(replica))

    def take(self, replica: PassiveReplica, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Cast):
                self.said.append(effect.data)
            else:
                self.outside.append((replica.me, effect))

    def request(self, command: Any, number: int = 1) -> None:
        self.said.append(Request("me", number, 0, command).encode())
        self.deliver()

    def deliver(self, most: int = 100) -> None:
        while self.said and most:
            most -= 1
            data = self.said.pop(0)
            self._both(lambda replica, data=data: replica.heard(data))

    def change_view(self, *members: str) -> None:
        self.view += 1
        self.members = [r for r in (self.a, self.b) if r.me in members]
        self._both(lambda replica: replica.viewed(self.view, members))

    def next(self) -> tuple[str, Effect]:
        return self.outside.pop(0)

    def reply(self, replica: PassiveReplica, value: Any = None, error: Any = None) -> Call:
        """To its call, which is what is next said outside."""
        who, call = self.next()
        assert who == replica.me
        assert isinstance(call, Call)
        self.take(replica, replica.called(call.id, value, error))
        self.deliver()
        return call


def outcome(effect: Effect) -> Any:
    assert isinstance(effect, Answer)
    return decode_outcome(effect.outcome).get()


def ends(group: Group) -> list[tuple[str, str, Fate]]:
    """What is next said to targets about ends, by whom."""
    found = [(who, e) for who, e in group.outside if isinstance(e, End)]
    group.outside = [one for one in group.outside if not isinstance(one[1], End)]
    return [(who, e.target, e.fate) for who, e in found]


def test_the_primary_applies_and_the_backup_takes_over_its_state() -> None:
    group = Group()
    group.request("plain")
    answers = dict(group.outside)
    assert outcome(answers["a"]) == outcome(answers["b"]) == 1
    assert [e.is_primary for e in answers.values() if isinstance(e, Answer)] == [True, False]
    assert group.b.service.snapshot() == group.a.service.snapshot()


def test_a_call_leaves_when_everybody_can_undo_it_and_not_before() -> None:
    group = Group()
    group.said.append(Request("me", 1, 0, "book").encode())
    group.deliver(1)
    assert not group.outside
    assert group.b.unended == []
    group.deliver(1)
    assert group.b.unended == group.a.unended != []
    who, call = group.next()
    assert (who, call) == ("a", Call(group.a.unended[0], "bank", ("pay", "book")))


def test_what_lasted_is_committed_and_then_forgotten() -> None:
    group = Group()
    group.request("book")
    bank = group.reply(group.a, "paid")
    group.reply(group.a, "sent")
    assert outcome(group.outside[0][1]) == ("paid", "sent")
    assert ends(group) == [("a", "bank", Fate.COMMIT)]
    assert group.b.unended == [bank.id]
    group.take(group.a, group.a.ended(bank.id))
    group.deliver()
    assert group.a.unended == group.b.unended == []


def test_what_raised_is_undone_everywhere_and_changes_nothing() -> None:
    group = Group()
    group.request("broken")
    group.reply(group.a, "paid")
    group.reply(group.a, "sent")
    with pytest.raises(ValueError, match="it is broken"):
        outcome(group.outside[0][1])
    assert ends(group) == [("a", "bank", Fate.UNDO), ("a", "shop", Fate.UNDO)]
    assert group.a.service.snapshot() == group.b.service.snapshot() == values.encode([])


def test_a_call_that_failed_is_undone_though_its_request_lasts() -> None:
    group = Group()
    group.request("book")
    group.reply(group.a, "paid")
    group.reply(group.a, error=TimeoutError("no answer"))
    assert outcome(group.outside[0][1]) == ("paid", "later")
    assert ends(group) == [("a", "bank", Fate.COMMIT), ("a", "shop", Fate.UNDO)]


def test_a_new_primary_undoes_what_the_old_one_left_and_begins_anew() -> None:
    group = Group()
    group.request("book")
    group.reply(group.a, "paid")
    assert isinstance(group.next()[1], Call)  # to the shop; nobody knows what comes of it
    group.change_view("b")
    assert ends(group) == [("b", "bank", Fate.UNDO), ("b", "shop", Fate.UNDO)]
    group.deliver()
    assert group.reply(group.b, "paid again").target == "bank"


def test_a_new_primary_commits_what_has_its_update() -> None:
    group = Group()
    group.request("book")
    group.reply(group.a, "paid")
    group.reply(group.a, "sent")
    ends(group)
    group.outside.clear()
    group.change_view("b")
    assert ends(group) == [("b", "bank", Fate.COMMIT)]
    group.request("book")  # submitted again
    assert outcome(group.next()[1]) == ("paid", "sent")


def test_an_update_that_comes_in_another_view_is_void() -> None:
    group = Group()
    group.request("book")
    group.reply(group.a, "paid")
    _, call = group.next()
    assert isinstance(call, Call)
    group.take(group.a, group.a.called(call.id, "sent"))  # its update is on its way
    group.change_view("a", "b")
    assert ends(group) == [("a", "bank", Fate.UNDO), ("a", "shop", Fate.UNDO)]
    group.deliver()
    assert not any(isinstance(effect, Answer) for _, effect in group.outside)
    assert group.a.service.snapshot() == values.encode([])
    group.reply(group.a, "paid again")
    group.reply(group.a, "sent again")
    assert outcome(group.outside[0][1]) == ("paid again", "sent again")


def test_who_announced_a_call_in_another_view_does_not_make_it() -> None:
    group = Group()
    group.said.append(Request("me", 1, 0, "book").encode())
    group.deliver(1)
    old = group.said.pop(0)  # what is needed to undo its first call
    group.change_view("a", "b")
    new = group.said.pop(0)
    group.said = [old, new]
    group.deliver(1)
    assert ends(group) == [("a", "bank", Fate.UNDO)]
    assert group.outside == []
    group.deliver()
    assert isinstance(group.next()[1], Call)


def test_a_late_reply_to_a_call_that_was_given_up_is_ignored() -> None:
    group = Group()
    group.request("book")
    _, call = group.next()
    assert isinstance(call, Call)
    group.change_view("b", "a")
    assert group.a.called(call.id, "paid") == []


def test_a_new_replica_knows_what_is_to_be_undone() -> None:
    group = Group()
    group.request("book")
    group.next()
    fresh = PassiveReplica(Buying(), "c", KINDS)
    fresh.restore(group.b.snapshot())
    assert fresh.unended == group.b.unended != []
    (end, *rest) = fresh.viewed(9, ("c",))
    assert isinstance(end, End)
    assert end.fate is Fate.UNDO
    assert isinstance(rest[0], Cast)  # and it begins the request again


def test_ends_are_repeated_by_the_next_primary_until_they_are_forgotten() -> None:
    group = Group()
    group.request("book")
    group.next()
    group.change_view("b", "a")
    assert len(ends(group)) == 1
    (id,) = group.b.unended
    group.take(group.b, group.b.ended(id))  # and it crashes before the group forgets
    group.said.clear()
    group.change_view("a")
    assert ends(group) == [("a", "bank", Fate.UNDO)]


@pytest.mark.parametrize("target", ["nowhere", "shop"])
def test_a_target_must_be_known(target: str) -> None:
    group = Group()
    group.request(("to", target))
    if target == "shop":
        assert isinstance(group.next()[1], Call)
    else:
        with pytest.raises(ValueError, match="no target 'nowhere': bank, shop"):
            outcome(group.next()[1])


def test_an_update_of_another_primary_of_the_same_view_counts_everywhere() -> None:
    """A member that is replaced by a namesake is away for a moment, in one view."""
    group = Group()
    group.change_view("b")
    group.request("plain")
    group.outside.clear()
    update = Update(2, "me", 2, Outcome("by b").encode(), values.encode(["by b"]), True, [])
    group.said.append(Request("me", 2, 0, "book").encode())
    group.deliver(1)
    announced = group.said.pop(0)  # the call that b is about to make
    group.said = [values.encode(("update", *update)), announced]
    group.deliver()
    assert group.b.service.snapshot() == values.encode(["by b"])
    assert outcome(group.next()[1]) == "by b"
    assert ends(group) == [("b", "bank", Fate.UNDO)]
    assert group.outside == []


def test_a_compensation_that_cannot_travel_is_an_error_of_the_service() -> None:
    class Odd(Buying):
        def apply(self, command: Any) -> Any:
            yield Invocation("shop", "hello", compensation=object())

    replica = PassiveReplica(Odd(), "a", KINDS)
    replica.viewed(1, ("a",))
    (cast,) = replica.heard(Request("me", 1, 0, "x").encode())
    assert isinstance(cast, Cast)
    answer = replica.heard(cast.data)[0]
    with pytest.raises(JMSError):
        outcome(answer)


def test_too_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passive, "WAITING_MAX", 3)
    group = Group()
    for number in range(1, 6):
        group.request("book", number)
    refused = [effect for _, effect in group.outside if isinstance(effect, Answer)]
    assert len(refused) == 4  # two requests, at two replicas
    with pytest.raises(RuntimeError, match="try later"):
        outcome(refused[0])


def test_requests_wait_for_each_other() -> None:
    group = Group()
    group.request("book", 1)
    group.request("plain", 2)
    group.reply(group.a, "paid")
    group.reply(group.a, "sent")
    answers = [effect for who, effect in group.outside if isinstance(effect, Answer) and who == "a"]
    assert [outcome(answer) for answer in answers] == [("paid", "sent"), 2]


@pytest.mark.parametrize("data", [b"", values.encode("what"), values.encode(("undo",))])
def test_what_is_nothing_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises((FormatError, TypeError)):
        PassiveReplica(Buying(), "a", KINDS).heard(data)
