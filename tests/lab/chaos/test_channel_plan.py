"""Plans of faults for channels."""

from collections import Counter

from antiphon.lab.chaos.channels.plan import KINDS, draw_plan

MANY = [fault for seed in range(200) for fault in draw_plan(seed, 30.0)]


def test_a_plan_is_its_seed_s() -> None:
    assert draw_plan(7, 30.0) == draw_plan(7, 30.0)
    assert draw_plan(7, 30.0) != draw_plan(8, 30.0)


def test_each_kind_strikes_as_often_as_it_should() -> None:
    times = Counter(fault.kind for fault in MANY)
    whole = sum(often for often, _, _ in KINDS.values())
    for kind, (often, _, _) in KINDS.items():
        assert 0.8 < times[kind] / len(MANY) / (often / whole) < 1.2, kind


def test_each_lasts_as_long_as_it_may_and_short_ones_are_as_frequent_as_long_ones() -> None:
    for fault in MANY:
        _, shortest_s, longest_s = KINDS[fault.kind]
        assert 0 < fault.at_s < 30
        assert shortest_s <= fault.for_s <= longest_s
    pauses = sorted(fault.for_s for fault in MANY if fault.kind == "pause")
    assert 1.0 < pauses[len(pauses) // 2] < 2.0
    assert pauses[-1] > 15
