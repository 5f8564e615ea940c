"""The plan of a seed of `antiphon chaos`."""

import pytest

from antiphon.lab.chaos.plan import BETWEEN_SERVERS, KINDS, LOSES_CONTEXTS, ON_DISK, draw_plan


def test_a_seed_gives_one_plan() -> None:
    assert draw_plan(7, 30, 3, "durable") == draw_plan(7, 30, 3, "durable")
    assert draw_plan(7, 30, 3, "durable") != draw_plan(8, 30, 3, "durable")


def test_long_enough_everything_breaks() -> None:
    plan = draw_plan(1, 600, 3, "durable")
    assert {fault.kind for fault in plan} == set(KINDS)
    assert all(0 < fault.at_s < 600 for fault in plan)
    assert all(0 < fault.for_s <= KINDS[fault.kind][1] for fault in plan)
    assert {fault.leader for fault in plan} == {False, True}


@pytest.mark.parametrize(
    ("servers", "storage", "left_out"),
    [(1, "durable", BETWEEN_SERVERS), (3, "memory", ON_DISK), (1, "memory", BETWEEN_SERVERS)],
)
def test_what_cannot_break_is_left_out(
    servers: int, storage: str, left_out: tuple[str, ...]
) -> None:
    kinds = {fault.kind for fault in draw_plan(1, 600, servers, storage)}
    assert kinds
    assert kinds.isdisjoint(left_out)


def test_a_server_with_local_contexts_keeps_its_disk() -> None:
    kinds = {fault.kind for fault in draw_plan(1, 600, 3, "durable", "local")}
    assert kinds == set(KINDS) - set(LOSES_CONTEXTS)
