"""The judge of chaos runs finds each kind of broken promise, and nothing where none is broken."""

from typing import Any

import pytest

from antiphon.checkers import groups, memberships
from antiphon.formats.trace import Kind, TraceEvent
from antiphon.lab.chaos.judge import ACCOUNTS, COINS, GROUP, Judge, judge_accounts, judge_group
from tests.checkers.support.histories import lost_by_a_member

A, B, QUEUE = "topic:t.a", "topic:t.b", "queue:q"


class Story:
    """Events of several processes, in the order in which they are told."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def add(self, process: str, kind: Kind, **columns: Any) -> None:
        at = float(len(self.events))
        self.events.append(
            TraceEvent(
                run="r", process=process, incarnation=1, seq=int(at), kind=kind, at=at, **columns
            )
        )

    def sends(self, message: str, to: str = A, answered: bool = True) -> None:
        sender, _, number = message.rpartition("#")
        self.add(sender, "send", message=message, group=to, sender=sender, sender_seq=int(number))
        if answered:
            self.add(sender, "sent", message=message)

    def joins(self, process: str, group: str = "topic:t.>", durable: bool = True) -> None:
        self.add(process, "join", group=group, durable=durable, session=f"{process}.1")

    def gets(
        self,
        process: str,
        message: str,
        position: int,
        group: str = "topic:t.>",
        *,
        again: bool = False,
        durable: bool = True,
        session: int = 1,
    ) -> None:
        self.add(
            process,
            "deliver",
            message=message,
            position=position,
            group=group,
            durable=durable and group != QUEUE,
            redelivered=again,
            session=f"{process}.{session}",
        )

    def acknowledges(self, process: str, session: int = 1) -> None:
        self.add(process, "acknowledge", session=f"{process}.{session}")

    @property
    def violations(self) -> list[str]:
        return Judge(self.events).violations


@pytest.fixture
def story() -> Story:
    """Three messages, sent and answered; d has a durable subscription, w works on the queue."""
    story = Story()
    story.joins("d")
    story.joins("w", QUEUE)
    story.sends("p#1", A)
    story.sends("p#2", QUEUE)
    story.sends("p#3", B)
    return story


def well(story: Story) -> None:
    story.gets("d", "p#1", 1)
    story.gets("w", "p#2", 2, QUEUE)
    story.gets("d", "p#3", 3)


def test_a_good_run(story: Story) -> None:
    well(story)
    judge = Judge(story.events)
    assert judge.violations == []
    assert judge.counts() == {"sent": 3, "acknowledged": 3, "delivered": 3, "again": 0}
    assert judge.longest_pause_s == 2.0


def test_what_is_marked_may_come_again(story: Story) -> None:
    well(story)
    story.gets("d", "p#1", 1, again=True)
    story.gets("v", "p#2", 2, QUEUE, again=True)
    assert story.violations == []


def test_what_was_not_answered_may_be_missing(story: Story) -> None:
    well(story)
    story.sends("p#4", A, answered=False)
    assert story.violations == []


def test_a_non_durable_subscription_has_no_past(story: Story) -> None:
    well(story)
    story.gets("n", "p#3", 3, durable=False)
    assert story.violations == []


def test_the_order_of_events_is_that_of_time(story: Story) -> None:
    well(story)
    story.events.reverse()
    assert story.violations == []


def test_acknowledged_to_its_sender_and_lost(story: Story) -> None:
    well(story)
    story.sends("p#4", A)
    (violation,) = story.violations
    assert violation == "p#4 was acknowledged to its sender, and is lost"


def test_a_durable_subscription_misses_the_last_message(story: Story) -> None:
    story.gets("d", "p#1", 1)
    story.gets("w", "p#2", 2, QUEUE)
    story.gets("n", "p#3", 3, durable=False)  # so it was accepted
    (violation,) = story.violations
    assert "d's topic:t.> never got 1 messages, for instance at positions [3]" in violation


def test_a_durable_subscription_that_nothing_ever_reaches(story: Story) -> None:
    well(story)
    story.joins("e", "topic:t.a")
    (violation,) = story.violations
    assert "e's topic:t.a never got 1 messages" in violation


def test_a_message_of_a_queue_is_lost(story: Story) -> None:
    story.gets("d", "p#1", 1)
    story.gets("d", "p#3", 3)
    assert "p#2 was acknowledged to its sender, and is lost" in story.violations


def test_a_gap_in_a_subscription(story: Story) -> None:
    story.gets("n", "p#1", 1, durable=False)
    story.gets("w", "p#2", 2, QUEUE)
    story.gets("d", "p#3", 3)
    story.gets("d", "p#1", 1)
    (violation,) = story.violations
    assert "d's topic:t.> got p#3 at 3, and had not got [1] before it" in violation


def test_a_gap_in_a_non_durable_subscription(story: Story) -> None:
    well(story)
    story.sends("p#4", B)
    for message, position in (("p#1", 1), ("p#4", 4)):
        story.gets("n", message, position, durable=False)
    story.gets("d", "p#4", 4)
    (violation,) = story.violations
    assert "n.1's topic:t.> got p#4 at 4, and had not got [3] before it" in violation


def test_twice_and_not_marked(story: Story) -> None:
    well(story)
    story.gets("v", "p#2", 2, QUEUE)
    (violation,) = story.violations
    assert violation == "queue:q got p#2 twice, and it is not marked"


def test_again_though_it_was_acknowledged(story: Story) -> None:
    well(story)
    story.acknowledges("w")
    story.gets("v", "p#2", 2, QUEUE, again=True)
    (violation,) = story.violations
    assert violation == "queue:q got p#2 again, which it had acknowledged"


def test_one_session_acknowledges_only_its_own(story: Story) -> None:
    well(story)
    story.acknowledges("d")
    story.gets("v", "p#2", 2, QUEUE, again=True)
    assert story.violations == []


def test_accepted_twice(story: Story) -> None:
    well(story)
    story.gets("n", "p#3", 4, durable=False)
    assert "p#3 is accepted twice: 3, 4" in story.violations


def test_two_messages_at_one_place(story: Story) -> None:
    well(story)
    story.sends("o#1", A)
    story.gets("d", "o#1", 3)
    assert "at position 3 is p#3, and o#1" in story.violations


def test_a_message_that_nobody_sent(story: Story) -> None:
    well(story)
    story.gets("d", "x#1", 4)
    (violation,) = story.violations
    assert violation == "d got 'x#1', which nobody sent"


def test_a_message_at_the_wrong_place(story: Story) -> None:
    well(story)
    story.gets("n", "p#3", 3, "topic:t.a", durable=False)
    (violation,) = story.violations
    assert violation == "n.1's topic:t.a got p#3, which is not for it"


def test_a_sender_out_of_order(story: Story) -> None:
    story.gets("d", "p#1", 2)
    story.gets("w", "p#2", 1, QUEUE)
    story.gets("d", "p#3", 3)
    (violation,) = story.violations
    assert violation == "p#2 stands before p#1"


def test_a_sender_with_a_gap(story: Story) -> None:
    well(story)
    story.sends("o#1", A, answered=False)
    story.sends("o#2", A)
    story.gets("d", "o#2", 4)
    (violation,) = story.violations
    assert violation == "o#1 is lost, and o#2 is there"


# -- Accounts --------------------------------------------------------------------------------------


class Bank(Story):
    """Coins that are moved, and where they are in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.found = [f"{coin}@0" for coin in range(COINS)]

    def moves(
        self, transfer: str, coin: str, position: int, *, again: bool = False, told: bool = True
    ) -> None:
        """What a teller does: receive, send, commit, and perhaps be told that it has."""
        about = {"group": ACCOUNTS, "session": transfer}
        self.add("t", "deliver", message=coin, position=position, redelivered=again, **about)
        number, _, moved = coin.partition("@")
        self.add("t", "send", message=f"{number}@{int(moved) + 1}", **about)
        if told:
            self.add("t", "acknowledge", **about)

    def has(self, *coins: str) -> None:
        for coin in coins:
            self.found[int(coin.partition("@")[0])] = coin

    @property
    def complaints(self) -> list[str]:
        assert Judge(self.events).violations == []  # it does not look at these
        return judge_accounts(self.events, self.found)


@pytest.fixture
def bank() -> Bank:
    bank = Bank()
    bank.moves("a", "7@0", 5)
    bank.moves("b", "7@1", 9, told=False)
    return bank


@pytest.mark.parametrize("committed", [False, True])
def test_whether_an_unanswered_transfer_happened_is_not_known(bank: Bank, committed: bool) -> None:
    bank.has("7@2" if committed else "7@1")
    assert bank.complaints == []


def test_a_transfer_that_came_to_nothing_is_made_again(bank: Bank) -> None:
    bank.moves("c", "7@1", 9, again=True)
    bank.has("7@2")
    assert bank.complaints == []


def test_a_coin_that_is_lost(bank: Bank) -> None:
    bank.found.remove("7@0")
    (complaint,) = bank.complaints
    assert complaint == "coin 7 is lost: it was moved 1 times, and is at None"


def test_a_coin_that_nobody_moved_and_is_lost() -> None:
    bank = Bank()
    bank.found.remove("3@0")
    assert bank.complaints == ["coin 3 is lost: it was moved 0 times, and is at None"]


def test_a_committed_transfer_that_is_undone(bank: Bank) -> None:
    (complaint,) = bank.complaints
    assert complaint == "coin 7 is lost: it was moved 1 times, and is at 0"


def test_a_coin_that_is_doubled(bank: Bank) -> None:
    bank.has("7@1")
    bank.found.append("7@2")
    assert "coin 7 is there 2 times" in bank.complaints


def test_a_transfer_that_happened_twice(bank: Bank) -> None:
    bank.has("7@2")
    bank.moves("c", "7@1", 10, told=False)
    assert bank.complaints == ["7@1 was made twice: 9, 10"]


def test_a_coin_that_was_taken_comes_again(bank: Bank) -> None:
    bank.has("7@1")
    bank.moves("c", "7@0", 5, again=True, told=False)
    assert bank.complaints == ["7@0 comes to c again, and a has taken it"]


def test_a_coin_comes_again_unmarked(bank: Bank) -> None:
    bank.has("7@2")
    bank.moves("c", "7@1", 9)
    assert bank.complaints == ["7@1 comes to c twice, and it is not marked"]


# -- The group -------------------------------------------------------------------------------------


def test_both_judges_look_at_the_group() -> None:
    events = lost_by_a_member(GROUP)
    said = {*map(str, groups.check(events))}, {*map(str, memberships.check(events))}
    assert all(said)
    assert set(judge_group(events)) == said[0] | said[1]
