"""Which process was a member when, found out without Spark."""

from antiphon import ConflictRelation
from antiphon.formats.trace import TraceEvent
from antiphon.spark.audit import members, views
from antiphon.spark.audit.fingerprints import Agreement, Print, compare
from antiphon.spark.audit.members import COLUMNS, KINDS, Cast, Life, Row
from tests.spark.support import scenes
from tests.spark.support.scenes import KEYED, Story


def cast_of(events: list[TraceEvent]) -> Cast:
    rows = [
        Row._make(getattr(event, name) for name in COLUMNS)
        for event in events
        if event.kind in KINDS
    ]
    last: dict[tuple[str, str, int], int] = {}
    for event in events:
        life = (event.run, event.process, event.incarnation)
        last[life] = max(last.get(life, 0), event.seq)
    return members.read(rows, [Life(*life, seq) for life, seq in last.items()])


def names(cast: Cast, numbers: frozenset[int]) -> str:
    return " ".join(sorted(cast.members[number].name for number in numbers))


def test_who_is_correct_in_a_view_owes_its_messages() -> None:
    cast = cast_of(scenes.trace())
    one, _ = cast.worlds
    # c is killed in view 4, b leaves after view 6; d is durable, and back.
    owing = {view: names(cast, one.owing(view)) for view in one.views}
    assert owing == {
        1: "a",
        2: "a b",
        3: "a b c",
        4: "a b d",
        5: "a b d",
        6: "a d e",
        7: "a d e",
    }


def test_a_state_is_the_members_that_took_it_over() -> None:
    cast = cast_of(scenes.trace())
    assert {m.name for m in cast.members if m.cuts} == {"e"}


def test_only_the_group_where_everything_conflicts_is_in_one_order() -> None:
    one, tags = cast_of(scenes.trace()).worlds
    assert (one.is_total, tags.is_total) == (True, False)
    assert len(tags.epochs()) == 3


def test_of_several_relations_at_one_place_the_last_one_holds() -> None:
    story = Story("r", "g")
    story.join("a")
    for relation in (ConflictRelation.RELIABLE, KEYED, ConflictRelation.RELIABLE):
        story.tell("a", "conflict", position=7, relation=relation.to_json())
    (world,) = cast_of(story.events).worlds
    assert [epoch.relation for epoch in world.epochs()][1:] == [ConflictRelation.RELIABLE]


def test_a_durable_member_is_the_same_until_it_was_out_of_a_view() -> None:
    story = Story("r", "g")
    story.join("a")
    story.join("d", durable=True)
    story.crash("d")
    story.come_back("d", again=1)
    assert len(cast_of(story.events).members) == 2
    story.crash("d")
    story.remove("d", by="a")
    story._away.remove("d")
    story.join("d", durable=True)
    cast = cast_of(story.events)
    assert [m.name for m in cast.members] == ["a", "d", "d"]
    assert [f for world in cast.worlds for f in views.judge(world)] == []


def prints(cast: Cast, *changes: dict[str, int]) -> list[Print]:
    """a, b and c of the scene deliver ten messages in view 3."""
    plain = Print(0, 0, 0, 3, 1, False, 10, 7, 8, 9, 8, 27, 1, 20, 0)
    return [
        plain._replace(member=member, **change)
        for member, change in zip(range(3), changes, strict=True)
    ]


def compared(*changes: dict[str, int]) -> Agreement:
    cast = cast_of(scenes.trace())
    return compare(cast, prints(cast, *changes))


def test_what_all_agree_on_is_not_doubtful() -> None:
    found = compared({}, {}, {})
    assert found.doubtful == set()
    assert found.references == {(0, 3): 0}


def test_whatever_differs_is_doubtful() -> None:
    for column in ("set_hash", "order_hash", "order_hash_2", "deliveries", "last_position", "odd"):
        assert compared({}, {column: 1}, {}).doubtful == {(0, 0)}, column
    assert compared({}, {"view": 2}, {}).doubtful == {(0, 0)}
    assert compared({}, {"outside": 1}, {}).doubtful == {(0, 0)}


def test_a_part_that_a_member_lacks_is_doubtful() -> None:
    cast = cast_of(scenes.trace())
    assert compare(cast, prints(cast, {}, {}, {})[:2]).doubtful == {(0, 0)}


def test_parts_in_the_wrong_order_are_doubtful() -> None:
    cast = cast_of(scenes.trace())
    first = prints(cast, {}, {}, {})
    second = [
        p._replace(range=1, first_position=30, last_position=40, first_seq=21, last_seq=40)
        for p in first
    ]
    assert compare(cast, first + second).doubtful == set()
    overtaken = [second[0], second[1]._replace(first_seq=19), second[2]]
    assert compare(cast, first + overtaken).doubtful == {(0, 0), (0, 1)}
