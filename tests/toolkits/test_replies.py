"""How long a broadcast waits for replies, and for whose."""

import pytest

from antiphon.toolkits._isis.replies import ALL, MAJORITY, Replies, Wanted, checked


def collected(wanted: Wanted, *members: str) -> Replies:
    replies = Replies(wanted)
    replies.handed_out(members)
    return replies


@pytest.mark.parametrize(("wanted", "needed"), [(1, 1), (2, 2), (MAJORITY, 3), (ALL, 4), (9, 4)])
def test_as_many_as_are_wanted_are_enough(wanted: Wanted, needed: int) -> None:
    replies = collected(wanted, "a", "b", "c", "d")
    for count, name in enumerate("abcd"):
        assert replies.done == (count >= needed)
        replies.replied(name, (name,))
    assert replies.done
    assert replies.replies[0] == ("a", ("a",))


def test_nobody_is_waited_for_who_has_left() -> None:
    replies = collected(ALL, "a", "b", "c")
    replies.replied("a", (1,))
    replies.left(("b",))
    assert (replies.done, replies.awaited) == (False, ("c",))
    replies.left(("c", "x"))
    assert replies.done


def test_nobody_is_waited_for_who_will_not_reply() -> None:
    replies = collected(2, "a", "b")
    replies.replied("a", None)
    replies.replied("b", (1,))
    assert replies.done
    assert len(replies.replies) == 1


def test_a_majority_is_one_of_those_to_whom_it_was_handed_out() -> None:
    replies = collected(MAJORITY, "a", "b", "c")
    replies.left(("c",))
    replies.replied("a", ())
    assert not replies.done
    replies.replied("b", ())
    assert replies.done


def test_replies_may_be_quicker_than_the_own_copy() -> None:
    replies = Replies(ALL)
    replies.replied("b", (1,))
    replies.left(("a",))  # before: it was a member of the view before
    assert not replies.done
    replies.handed_out(("a", "b"))
    assert replies.awaited == ("a",)
    assert len(replies.replies) == 1


def test_a_group_without_members_gives_no_replies() -> None:
    assert collected(ALL).done


def test_replies_of_others_do_not_count() -> None:
    replies = collected(1, "a")
    replies.replied("client", (1,))
    assert not replies.done
    assert replies.replies == []


def test_who_replies_twice_counts_once() -> None:
    replies = collected(2, "a", "b")
    replies.replied("a", (1,))
    replies.replied("a", (2,))
    assert not replies.done


def test_numbers_of_replies_that_make_no_sense() -> None:
    assert [checked(one) for one in (0, 3, "all", "majority")] == [0, 3, ALL, MAJORITY]
    for one in (True, 1.5, "most"):
        with pytest.raises(TypeError, match="nwanted is a number, ALL or MAJORITY"):
            checked(one)
    with pytest.raises(ValueError, match="nwanted is 0 or more"):
        checked(-1)
