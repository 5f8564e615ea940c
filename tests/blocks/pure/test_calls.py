"""`Call` and `Asked`: who is waited for, and who is told of whom."""

import pytest

from antiphon.blocks.errors import TooFewRepliesError
from antiphon.blocks.pure.calls import (
    ALL,
    FIRST,
    MAJORITY,
    NONE,
    Asked,
    Call,
    Replies,
    check_replies,
)
from antiphon.model.exceptions import RemoteError, describe, restored

GROUP = ("ann", "bob", "cid")


def replied(wanted: Replies, *members: str) -> Call:
    call = Call(wanted)
    for member in members:
        call.replied(member, GROUP, member.upper())
    return call


@pytest.mark.parametrize(
    ("wanted", "needed"), [(FIRST, 1), (2, 2), (MAJORITY, 2), (ALL, 3), (3, 3)]
)
def test_a_call_is_done_when_as_many_have_replied_as_wanted(wanted: Replies, needed: int) -> None:
    for count in range(4):
        call = replied(wanted, *GROUP[:count])
        assert call.done == (count >= needed)
    assert replied(wanted, *GROUP).outcome() == {"ann": "ANN", "bob": "BOB", "cid": "CID"}


def test_a_majority_is_more_than_half() -> None:
    for size, needed in {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4}.items():
        group = [str(n) for n in range(size)]
        call = Call(MAJORITY)
        for count, member in enumerate(group, 1):
            call.replied(member, group, None)
            assert call.done == (count >= needed)


def test_a_call_that_wants_no_reply_is_done_at_once() -> None:
    assert Call(NONE).done
    assert Call(NONE).outcome() == {}


def test_the_first_reply_says_who_is_waited_for() -> None:
    call = replied(ALL, "bob")
    assert call.waits_for == {"ann", "cid"}


@pytest.mark.parametrize("wanted", [ALL, MAJORITY, 2])
def test_a_member_that_does_not_know_who_was_asked_leaves_that_to_others(wanted: Replies) -> None:
    call = Call(wanted)
    call.replied("bob", (), "BOB")
    assert not call.done
    with pytest.raises(TooFewRepliesError, match="1 replies, of who does not know"):
        call.outcome()
    call.replied("cid", GROUP, "CID")
    call.replied("bob", (), "BOB")
    assert call.done == (wanted != ALL)
    call.replied("ann", (), "ANN")
    assert call.outcome() == {"ann": "ANN", "bob": "BOB", "cid": "CID"}


def test_the_first_reply_of_whomever_is_one() -> None:
    call = Call(FIRST)
    call.replied("bob", (), "BOB")
    assert call.done
    assert call.outcome() == {"bob": "BOB"}


def test_who_has_left_is_not_waited_for() -> None:
    call = replied(ALL, "ann", "bob")
    call.left(GROUP, ["cid"])
    assert call.done
    assert call.outcome() == {"ann": "ANN", "bob": "BOB"}


def test_who_left_before_anybody_replied_is_not_waited_for() -> None:
    call = Call(ALL)
    call.left(GROUP, ["cid", "bob"])
    assert not call.done
    call.replied("ann", GROUP, 1)
    assert call.outcome() == {"ann": 1}


def test_a_reply_of_one_that_has_left_counts() -> None:
    call = replied(2, "ann")
    call.left(GROUP, ["cid"])
    call.replied("cid", GROUP, "late")
    assert call.outcome() == {"ann": "ANN", "cid": "late"}


@pytest.mark.parametrize("wanted", [MAJORITY, 2])
def test_with_too_few_left_a_call_fails_at_once_with_what_it_has(wanted: Replies) -> None:
    call = replied(wanted, "ann")
    call.left(GROUP, ["bob", "cid"])
    assert call.done
    with pytest.raises(TooFewRepliesError, match=r"1 of 2 replies.*bob, cid left") as caught:
        call.outcome()
    assert caught.value.replies == {"ann": "ANN"}


def test_more_replies_than_members_are_not_waited_for() -> None:
    call = replied(5, *GROUP)
    assert call.done
    with pytest.raises(TooFewRepliesError, match="3 of 5 replies from a group of 3"):
        call.outcome()


def test_what_has_not_come_in_time_is_named() -> None:
    with pytest.raises(TooFewRepliesError, match="none from bob, cid"):
        replied(ALL, "ann").outcome()
    with pytest.raises(TooFewRepliesError, match="nobody has replied"):
        Call(FIRST).outcome()


def test_only_the_first_reply_of_a_member_counts() -> None:
    call = replied(ALL, "ann")
    call.replied("ann", GROUP, "again")
    assert call.replies == {"ann": "ANN"}


@pytest.mark.parametrize("wrong", [-1, "most", 1.5, None, True])
def test_what_is_no_number_of_replies_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="a number, 'majority' or 'all'"):
        check_replies(wrong)  # type: ignore[arg-type]


def test_the_oldest_member_tells_callers_who_has_left() -> None:
    asked = Asked()
    asked.add("inbox", "call 1", GROUP, until=10.0)
    assert asked.viewed("bob", ("ann", "bob"), 1.0) == []
    (notice,) = asked.viewed("ann", ("ann", "bob"), 1.0)
    assert notice == ("inbox", "call 1", GROUP, ("cid",))


def test_who_becomes_the_oldest_tells_what_the_one_before_may_not_have_told() -> None:
    asked = Asked()
    asked.add("inbox", "call 1", GROUP, until=10.0)
    asked.viewed("bob", ("ann", "bob"), 1.0)
    (notice,) = asked.viewed("bob", ("bob",), 2.0)
    assert notice.left == ("ann", "cid")


def test_calls_are_forgotten_when_nobody_waits_any_more() -> None:
    asked = Asked()
    asked.add("inbox", "call 1", GROUP, until=10.0)
    assert asked.viewed("ann", ("ann",), 11.0) == []


def test_nobody_is_told_of_who_is_still_there_or_came_later() -> None:
    asked = Asked()
    asked.add("inbox", "call 1", GROUP, until=10.0)
    assert asked.viewed("ann", (*GROUP, "dee"), 1.0) == []


class OwnError(Exception):
    pass


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("key"), ZeroDivisionError("by 0")])
def test_exceptions_of_python_travel_as_themselves(error: Exception) -> None:
    there = restored(*describe(error))
    assert type(there) is type(error)
    assert there.args == error.args


def test_other_exceptions_travel_by_name() -> None:
    there = restored(*describe(OwnError("mine")))
    assert isinstance(there, RemoteError)
    assert there.type_name == "OwnError"
    assert "OwnError: mine" in str(there)
    again = restored(*describe(there))
    assert isinstance(again, RemoteError)
    assert again.type_name == "OwnError"


@pytest.mark.parametrize("name", ["SystemExit", "print", "UnicodeDecodeError", "no name"])
def test_what_cannot_be_raised_from_a_text_is_a_remote_error(name: str) -> None:
    assert isinstance(restored(name, "text"), RemoteError)
