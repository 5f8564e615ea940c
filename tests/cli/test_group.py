"""The lines of `antiphon group` for two reports of a group. (That it asks for them:
tests/process.)"""

from antiphon.cli.group import Watch, as_json
from antiphon.formats.protocol import GroupStatus, MemberStatus


def member(name: str, joined: int, why: str = "", behind: int = 0) -> MemberStatus:
    return MemberStatus(name, False, joined, 0 if why else 1, bool(why), why, behind, 0, "")


def group(view: int, *members: MemberStatus, messages: int = 0) -> GroupStatus:
    return GroupStatus("g", view, messages, 60_000, members)


def test_views_and_who_came_and_went() -> None:
    watch = Watch()
    a, b, c = member("a", 1), member("b", 2), member("c", 3)
    assert watch.look(group(2, a, b), 1.0) == ["view 2: a b"]
    assert watch.look(group(2, a, b), 2.0) == []
    assert watch.look(group(4, b, c), 3.0) == ["view 4: b c (c joined, a left)"]
    again = member("b", 5)  # under the same name
    assert watch.look(group(5, c, again), 4.0) == ["view 5: c b (b joined, b left)"]
    assert watch.look(group(7), 5.0) == ["view 7: nobody (b left, c left)"]


def test_suspects_and_why() -> None:
    watch = Watch()
    a, b = member("a", 1), member("b", 2)
    lost = member("b", 2, "its connection is lost")
    watch.look(group(2, a, b), 1.0)
    assert watch.look(group(2, a, lost), 2.0) == ["b is suspected: its connection is lost"]
    assert watch.look(group(2, a, lost), 3.0) == []
    assert watch.look(group(2, a, b), 4.0) == ["b is back"]
    assert watch.look(group(2, a, lost), 5.0) != []
    assert watch.look(group(3, a), 6.0) == ["view 3: a (b left)"]


def test_rates() -> None:
    watch = Watch()
    watch.look(group(1, messages=100), 1.0)
    assert watch.per_s == 0
    watch.look(group(1, messages=150), 3.0)
    assert watch.per_s == 25


def test_as_json() -> None:
    found = as_json(group(2, member("a", 1, "why", behind=7), messages=3), 1.25)
    assert found == {
        "name": "g",
        "view_id": 2,
        "members": [
            {
                "name": "a",
                "durable": False,
                "joined": 1,
                "node": 0,
                "suspected": True,
                "why": "why",
                "behind": 7,
                "events": 0,
                "state_from": "",
            }
        ],
        "suspects": ["a"],
        "remove_after_ms": 60_000,
        "messages": 3,
        "messages_per_s": 1.2,
        "trouble": "",
    }
