"""Groups inside a cluster: what a process is given, out of the views and messages of a channel."""

from typing import Any

import msgspec

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers import View
from antiphon.toolkits._groups.directory import (
    GRANT,
    Directory,
    Echo,
    Grant,
    GroupMessage,
    GroupView,
    Note,
    read_note,
)


class Script:
    """A channel's views, as one process is shown them."""

    def __init__(self, me: str) -> None:
        self.directory = Directory(me)
        self.round = 0

    def show(
        self,
        notes: dict[str, dict[str, int]],
        together: str = "",
        primary: bool = True,
        lives: dict[str, int] | None = None,
        counts: dict[str, int] | None = None,
    ) -> list[str]:
        """Show a view of the processes that have notes; return what comes of it."""
        self.round += 1
        members = tuple(MemberId(name, (lives or {}).get(name, 1)) for name in notes)
        view = PeerView(ViewId(self.round, members[0]), members, members[0], primary)
        written = {
            name: Note(groups, (counts or {}).get(name, 0)).written()
            for name, groups in notes.items()
        }
        came_along = tuple(together or notes)
        return told(self.directory.shown(View(view, written), came_along))

    def pass_with(self, names: str) -> list[str]:
        members = tuple(MemberId(name, 1) for name in names)
        view = PeerView(ViewId(self.round, members[0]), members, members[0])
        return told(self.directory.shown(View(view, {}, transitional=True), tuple(names)))

    def receive(self, body: str, *targets: str) -> list[str]:
        return told(self.directory.received(GroupMessage("x", targets, body.encode())))


def told(events: list[Any]) -> list[str]:
    """Return views as `g[members] +joined -left =together`, and messages as their bodies."""
    lines = []
    for event in events:
        if isinstance(event, GroupMessage):
            lines.append(event.body.decode())
            continue
        assert isinstance(event, GroupView)
        parts = (event.joined, event.left, event.together)
        text = " ".join(sign + "".join(names) for sign, names in zip("+-=", parts, strict=True))
        kind = "~" if event.transitional else "" if event.primary else "?"
        lines.append(f"{event.group}{kind}[{''.join(event.members)}] {text}")
    return lines


def test_a_view_of_a_group_comes_when_the_group_changes_and_not_otherwise() -> None:
    a = Script("a")
    assert a.show({"a": {"g": 1}, "b": {}}) == ["g[a] +a - =a"]
    assert a.show({"a": {"g": 1}, "b": {"h": 2}}) == ["h[b] +b - ="]
    assert a.show({"a": {"g": 1}, "b": {"g": 3, "h": 2}}) == ["g[ab] +b - =a"]
    assert a.show({"a": {"g": 1}, "b": {"g": 3}, "c": {}}) == ["h[] + -b ="]
    assert a.show({"a": {"g": 1}, "b": {}}) == ["g[a] + -b =a"]


def test_members_are_in_the_order_in_which_they_joined() -> None:
    a = Script("a")
    a.show({"a": {}, "b": {"g": 1}})
    a.show({"a": {"g": 2}, "b": {"g": 1}})
    assert a.directory.members("g") == ("b", "a")


def test_to_who_joins_all_have_joined() -> None:
    b = Script("b")
    b.show({"a": {"g": 1}, "b": {}})
    assert b.show({"a": {"g": 1}, "b": {"g": 2}}) == ["g[ab] +ab - =b"]


def test_who_comes_back_is_somebody_else() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {"g": 1}})
    shown = a.show({"a": {"g": 1}, "b": {"g": 2}}, together="a", lives={"b": 2})
    assert shown == ["g[ab] +b -b =a"]


def test_a_member_with_another_history_is_not_together_with_the_others() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {"g": 1}})
    assert a.show({"a": {"g": 1}, "b": {"g": 1}}, together="a") == ["g[ab] + - =a"]


def test_a_view_that_is_primary_no_more_is_shown_again() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {}})
    assert a.show({"a": {"g": 1}}, primary=False) == ["g?[a] + - =a"]


def test_messages_are_for_the_members_of_their_groups() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {"h": 1}})
    assert a.receive("1", "g") == ["1"]
    assert a.receive("2", "h") == []
    assert a.receive("3", "h", "g") == ["3"]
    a.show({"a": {}, "b": {"h": 1}})
    assert a.receive("4", "g") == []


def test_the_rest_of_a_view_comes_behind_its_transitional_view() -> None:
    a = Script("a")
    a.show({"a": {"g": 1, "h": 1}, "b": {"g": 1}, "c": {"g": 1}})
    assert a.pass_with("ab") == ["g~[ab] + -c =ab"]
    assert a.receive("late", "g") == []  # until it is known which groups change
    assert a.show({"a": {"g": 1, "h": 1}, "b": {"g": 1}}, together="ab") == [
        "late",
        "g[ab] + -c =ab",
    ]
    assert a.receive("next", "g") == ["next"]


def test_a_transitional_view_of_all_waits_until_the_group_changes() -> None:
    a = Script("a")
    a.show({"a": {"g": 1, "h": 1}, "b": {"h": 1}})
    assert a.pass_with("ab") == []
    assert a.receive("late", "g") == []
    assert a.show({"a": {"g": 1, "h": 1}, "b": {"g": 3, "h": 1}}, together="ab") == [
        "g~[a] + - =a",
        "late",
        "g[ab] +b - =a",
    ]


def test_transitional_views_follow_each_other_while_views_are_hidden() -> None:
    a = Script("a")
    notes = {name: {"g": 1} for name in "abc"}
    a.show(notes)
    assert a.pass_with("ab") == ["g~[ab] + -c =ab"]
    assert a.pass_with("ab") == []  # the same one again
    assert a.pass_with("a") == ["g~[a] + -bc =a"]
    assert a.show(notes, together="a") == ["g[abc] + - =a"]


def test_no_transitional_view_without_a_view_or_of_groups_of_others() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {"h": 1}, "c": {"h": 1}})
    a.pass_with("ab")
    assert a.show({"a": {"g": 1}, "b": {"h": 1}}) == ["h[b] + -c =b"]


def test_the_id_of_a_transitional_view_is_that_of_the_view_that_ends() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {"g": 1}})
    a.show({"a": {"g": 1}, "b": {"g": 1}, "c": {}})  # nothing to the group
    members = (MemberId("a", 1),)
    ends = PeerView(ViewId(8, MemberId("a", 1)), members, members[0])
    (passing,) = a.directory.shown(View(ends, {}, transitional=True), ("a",))
    assert isinstance(passing, GroupView)
    assert str(passing.id) == "1.a"
    view = View(PeerView(ViewId(9, MemberId("a", 1)), (MemberId("a", 1),), MemberId("a", 1)))
    (after,) = a.directory.shown(view, ("a",))
    assert isinstance(after, GroupView)
    assert str(after.id) == "9.a"


def test_a_note_that_makes_no_sense_says_nothing() -> None:
    assert read_note("garbage") == read_note("[1]") == read_note('{"groups": 7}') == Note()


def test_a_group_is_joined_once() -> None:
    note = Note().joining("g", 3)
    assert note.joining("g", 5) == Note({"g": 3}, 2)
    assert note.leaving("g") == Note({}, 2)


def test_a_last_message_comes_behind_all_others_of_its_view() -> None:
    a = Script("a")
    a.show({"a": {"g": 1}, "b": {"g": 1}, "c": {"g": 1}})
    last = GroupMessage("x", ("g",), b"last")
    assert told(a.directory.received(last, last=True)) == []
    assert a.receive("before", "g") == ["before"]
    a.pass_with("ab")
    a.receive("rest", "g")
    assert a.show({"a": {"g": 1}, "b": {"g": 1}}, together="ab") == [
        "rest",
        "last",
        "g[ab] + -c =ab",
    ]
    assert a.show({"a": {"g": 1}, "b": {"g": 1}}) == []


def test_a_group_may_begin_with_all_its_members_at_once() -> None:
    a = Script("a")
    notes = {name: {"g": 1} for name in "abc"}
    a.show(notes)
    grant = GroupMessage("a", (), msgspec.msgpack.encode(Grant("sub", ("a", "c", "x"))), GRANT)
    a.directory.received(grant, last=True)
    assert a.show(notes) == ["sub[ac] +ac - =a"]
    assert a.show({**notes, "d": {}}) == []  # until their notes say it, it was granted
    own = {**notes, "c": {"g": 1, "sub": 2}}
    assert a.show(own, counts={"c": 1}) == []
    assert a.show(notes, counts={"c": 2}) == ["sub[a] + -c =a"]


def test_a_process_is_told_where_its_own_messages_are_handed_out() -> None:
    a = Script("a")
    a.directory = Directory("a", echoes=True)
    a.show({"a": {}, "b": {"g": 1}})
    message = GroupMessage("a", ("g",), b"")
    assert a.directory.received(message) == [Echo(message, ("b",))]
