"""The demo's verdict: it must be able to fail. (That the demo runs: tests/process.)"""

import json
from pathlib import Path

import pytest

from antiphon.checkers import groups, memberships
from antiphon.errors import ConnectionLostError
from antiphon.lab.demo.run import MEMBERS, Members, Writer, what_is_broken, what_is_wrong
from tests.checkers.support.histories import lost_by_a_member

RIGHT = {"writer-1/0": 51, "writer-2/0": 1}


@pytest.fixture
def writers() -> list[Writer]:
    """As after a good end: they know what they wrote."""
    writers = [Writer("antiphon://nowhere:1", name, Path()) for name in ("writer-1", "writer-2")]
    for writer, (key, value) in zip(writers, RIGHT.items(), strict=True):
        writer.table = {key: value}
    return writers


def tables(**other: dict[str, int]) -> dict[str, str]:
    """The right ones, but for some."""
    changed = {name.replace("_", "-"): table for name, table in other.items()}
    return {name: json.dumps(changed.get(name, RIGHT)) for name in MEMBERS}


def test_a_good_end(writers: list[Writer]) -> None:
    assert what_is_wrong(writers, tables()) == []


def test_a_replica_has_lost_a_write(writers: list[Writer]) -> None:
    lost = tables(replica_2={"writer-1/0": 1, "writer-2/0": 1})
    assert what_is_wrong(writers, lost) == [
        "the table of replica-2 is wrong in 1 pairs: ['writer-1/0']"
    ]


def test_a_replica_has_a_pair_that_nobody_wrote(writers: list[Writer]) -> None:
    assert what_is_wrong(writers, tables(replica_3=RIGHT | {"x": 1})) == [
        "the table of replica-3 is wrong in 1 pairs: ['x']"
    ]


def test_both_judges_look_at_the_group() -> None:
    events = lost_by_a_member("topic:crowd")
    said = {*map(str, groups.check(events))}, {*map(str, memberships.check(events))}
    assert all(said)
    assert set(what_is_broken(events)) == said[0] | said[1]


def test_a_wrong_answer_and_an_error(writers: list[Writer]) -> None:
    writers[0].wrong.append("replica-1 says that a was 1, and it was 2")
    writers[1].error = ConnectionLostError("gone")
    assert what_is_wrong(writers, tables()) == [
        "writer-2: gone",
        "replica-1 says that a was 1, and it was 2",
    ]


def test_what_all_members_say_is_shown_once() -> None:
    members = Members(lambda _: "antiphon://nowhere:1", Path())
    shown: list[str] = []
    members.say = shown.append
    view = {"view": 2, "members": ["a", "b"], "joined": ["b"], "left": []}
    suspicion = {"suspicion": "ID:1", "suspects": ["b"], "withdrawn": []}
    for _ in range(3):
        members._heard(view)
        members._heard(suspicion)
    assert shown == ["view 2: a b (b joined)", "b is suspected; the others remove it"]
    assert members.members == ("a", "b")
