"""Which messages workers may handle at the same time, and which wait for others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.operations.worker_schedule import Item, Scheduler
from antiphon.model.conflicts import ConflictRelation

RW = ConflictRelation(("read", "write"), [("read", "write"), ("write", "write")])
KEYED = ConflictRelation(("read", "write"), [("read", "write"), ("write", "write")], keyed=True)
RELATIONS = (
    ConflictRelation.ATOMIC,
    ConflictRelation.RELIABLE,
    ConflictRelation.RELIABLE_ATOMIC,
    RW,
    KEYED,
)


def started(scheduler: Scheduler) -> dict[Any, Item]:
    """All that may begin now."""
    found = {}
    while (item := scheduler.start()) is not None:
        found[item.content] = item
    return found


def test_everything_in_order_if_everything_conflicts() -> None:
    s = Scheduler(ConflictRelation.ATOMIC)
    for n in (1, 2, 3):
        s.add(n)
    one = started(s)
    assert list(one) == [1]
    assert s.done(one[1]) == [1]
    assert list(started(s)) == [2]


def test_readers_run_together_and_writers_alone() -> None:
    s = Scheduler(RW)
    for n, tag in enumerate(("read", "read", "write", "read", "write")):
        s.add(n, tag)
    readers = started(s)
    assert sorted(readers) == [0, 1]
    assert s.done(readers[1]) == []  # 0 is not done
    assert started(s) == {}
    assert s.done(readers[0]) == [0, 1]
    writer = started(s)
    assert list(writer) == [2]
    assert s.done(writer[2]) == [2]
    assert list(started(s)) == [3]


def test_a_stuck_message_blocks_only_what_conflicts_with_it() -> None:
    s = Scheduler(KEYED)
    s.add("stuck", "write", "x")
    for n in range(100):
        s.add(("x", n), "read", "x")
        s.add(("y", n), "write", "y")
    running = started(s)
    assert sorted(map(str, running)) == ["('y', 0)", "stuck"]
    for n in range(100):
        assert s.done(running[("y", n)]) == []
        running |= started(s)
    assert len(running) == 101
    done = s.done(running["stuck"])
    assert done == ["stuck"]
    assert len(started(s)) == 100


def test_without_a_key_it_conflicts_with_every_key_and_without_a_tag_with_all() -> None:
    s = Scheduler(KEYED)
    s.add(1, "write", "x")
    s.add(2, "read", None)
    s.add(3, "read", "y")
    s.add(4, None, "z")
    running = started(s)
    assert sorted(running) == [1, 3]
    s.done(running[1])
    two = started(s)
    assert list(two) == [2]
    s.done(running[3])
    assert started(s) == {}  # 4 waits for 2, which has no key
    s.done(two[2])
    assert list(started(s)) == [4]


def test_a_barrier_is_alone() -> None:
    s = Scheduler(ConflictRelation.RELIABLE)
    s.add(1)
    s.add(2)
    s.add("view", barrier=True)
    s.add(3)
    running = started(s)
    assert sorted(running) == [1, 2]
    s.done(running[2])
    assert started(s) == {}
    assert s.done(running[1]) == [1, 2]
    view = started(s)
    assert list(view) == ["view"]
    assert started(s) == {}
    assert s.done(view["view"]) == ["view"]
    assert list(started(s)) == [3]


def test_another_relation_holds_from_its_place_on() -> None:
    s = Scheduler(ConflictRelation.RELIABLE)
    s.add(1)
    s.add(2)
    s.change(ConflictRelation.ATOMIC)
    s.add(3)
    s.add(4)
    running = started(s)
    assert sorted(running) == [1, 2]
    s.done(running[1])
    s.done(running[2])
    assert list(started(s)) == [3]


def test_what_failed_is_handled_again_and_blocks_as_before() -> None:
    s = Scheduler(ConflictRelation.ATOMIC)
    s.add(1)
    s.add(2)
    item = s.start()
    assert item is not None
    s.again(item)
    assert list(s.not_begun()) == [2]
    assert s.start() is item
    assert item.retries == 1
    assert s.start() is None
    assert s.done(item) == [1]
    assert not s.idle


messages = st.tuples(
    st.sampled_from([None, "read", "write", "abcast", "rbcast", "strange"]),
    st.sampled_from([None, "x", "y"]),
    st.sampled_from(["message", "message", "message", "barrier", "change"]),
)


@given(
    st.sampled_from(RELATIONS), st.lists(messages, max_size=30), st.randoms(use_true_random=False)
)
def test_whatever_comes_in_whatever_order_things_are_done(
    relation: ConflictRelation, plan: list[tuple[str | None, str | None, str]], chance: Any
) -> None:
    """Against the definition: begun if and only if nothing before it that conflicts is left."""
    s = Scheduler(relation)
    todo: list[tuple[int, str | None, str | None, str, ConflictRelation]] = []
    unfinished: dict[int, Any] = {}
    running: dict[int, Item] = {}
    prefix: list[int] = []
    for n, (tag, key, what) in enumerate(plan):
        if what == "change":
            relation = chance.choice(RELATIONS)
        todo.append((n, tag, key, what, relation))

    changed = 0
    while todo or unfinished:
        if todo and (not unfinished or chance.random() < 0.5):
            n, tag, key, what, relation = todo.pop(0)
            if what == "change":
                changed += 1
                s.change(relation)
            else:
                unfinished[n] = (tag, key, what, (changed, relation))
                s.add(n, tag, key, barrier=what == "barrier")
        else:
            n = chance.choice(sorted(running))
            item = running.pop(n)
            del unfinished[n]
            prefix += s.done(item)
        while (found := s.start()) is not None:
            assert found.content not in running
            running[found.content] = found
        for n, one in unfinished.items():
            free = not any(_blocked(one, unfinished[m]) for m in unfinished if m < n)
            assert (n in running) == free, (n, plan)
    assert prefix == sorted(prefix)
    assert len(prefix) == sum(what != "change" for *_, what in plan)
    assert s.idle


def _blocked(one: Any, two: Any) -> bool:
    (tag, key, what, relation), (tag2, key2, what2, relation2) = one, two
    if "barrier" in (what, what2) or relation[0] != relation2[0]:
        return True
    return bool(relation[1].conflict(tag, key, tag2, key2))
