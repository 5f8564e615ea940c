"""How slices of a measurement become figures."""

import pytest

from antiphon.errors import IllegalStateError
from antiphon.lab.bench.bare_relay import Counts
from antiphon.lab.bench.compare import Turns, figures, percentiles, times
from antiphon.lab.bench.processes import (
    Board,
    ClientProcesses,
    Flood,
    Load,
    Paced,
    Part,
    Slice,
    receive,
)
from tests.lab.bench.support.leaky import open_receiver, open_sender


def slice_of(seconds: float, messages: int, delays_ms: list[list[int]]) -> Slice:
    """One member for each list; the publisher sends a message every ms, from time 0."""
    sent = [ms * 1_000_000 for ms in range(len(delays_ms[0]))]
    ended = round(seconds * 1e9)
    members = [
        Part(
            messages,
            0,
            ended - place,
            2.0,
            [s + d * 1_000_000 for s, d in zip(sent, delays, strict=True)],
        )
        for place, delays in enumerate(delays_ms)
    ]
    publisher = Part(messages, 0, ended // 2, 1.0, sent)
    return Slice([publisher], members, 2.5, 1.5, messages // 100, syncs=10)


def test_the_slowest_member_counts() -> None:
    assert slice_of(2.0, 1000, [[1], [1]]).per_s == 500


def test_delays_to_the_first_and_to_the_last_member() -> None:
    one = slice_of(1.0, 3, [[1, 5, 2], [4, 3, 9]])
    assert one.delays_ms(min) == [1, 3, 2]
    assert one.delays_ms(max) == [4, 5, 9]


def test_figures_are_of_all_processes_and_slices() -> None:
    slices = [slice_of(1.0, 1_000_000, [[1] * 100, [2] * 100]) for _ in range(2)]
    found = figures(slices, slices)
    assert found["messages_per_s"] == 1_000_000
    assert found["cpu_s_per_million_of"] == {
        "publisher": 1.0,
        "leader": 2.5,
        "followers": 1.5,
        "members": 4.0,
    }
    assert found["cpu_s_per_million"] == 9.0
    assert found["latency_ms"] == {"p50": 1.0, "p99": 1.0, "p99.9": 1.0}
    assert found["last_delivery_ms"] == {"p50": 2.0, "p99": 2.0, "p99.9": 2.0}
    assert found["messages_per_pack"] == 100
    assert found["syncs_per_s"] == 10


def test_the_spread_is_the_lowest_and_the_highest_slice() -> None:
    slices = [slice_of(s, 1_000_000, [[1, 1]]) for s in (1.0, 4.0, 2.0)]
    slices[1] = slices[1]._replace(leader_cpu_s=3.5)
    found = figures(slices, slices)
    assert found["messages_per_s"] == 500_000
    assert found["spread"] == {
        "messages_per_s": {"lowest": 250_000, "highest": 1_000_000},
        "cpu_s_per_million": {"lowest": 7.0, "highest": 8.0},
    }


def test_no_percentile_is_beyond_the_slowest_message() -> None:
    found = percentiles([slice_of(1.0, 3, [[1, 2, 9]])], min)
    assert found["p50"] == 2
    assert found["p99"] < found["p99.9"] <= 9


def test_every_figure_is_also_told_as_a_multiple_of_the_relays() -> None:
    ours = {"a": 3, "b_ms": {"p50": 1.0, "p99": 5.0}, "packs": 7, "syncs": 1.0, "spread": {"a": 1}}
    relays = {"a": 6, "b_ms": {"p50": 0.5, "p99": 2.0}, "syncs": 0.0, "spread": {"a": 2}}
    assert times(ours, relays) == {"a": 0.5, "b_ms": {"p50": 2.0, "p99": 2.5}}


def test_several_publishers_count_together() -> None:
    sent = [[0, 2_000_000], [1_000_000, 3_000_000]]
    publishers = [Part(2, began, 0, 1.0, times) for began, times in enumerate(sent)]
    member = Part(4, 0, 10**9, 1.0, [times + 5_000_000 for part in sent for times in part])
    both = Slice(publishers, [member])
    assert (both.messages, both.seconds, both.clients_cpu_s) == (4, 1.0, 3.0)
    assert both.delays_ms(min) == [5, 5, 5, 5]


def test_a_member_tells_the_publishers_apart() -> None:
    board = Board(1, 2)
    arriving = iter([b"\1first", b"\0first", b"\1second", b"\0second"])
    part = receive(Paced(4, 1), arriving, 1, board, 0)
    assert part.messages == board.counts[0] == 4
    first_of_1, second_of_1 = part.times[2:]
    first_of_0, second_of_0 = part.times[:2]
    assert first_of_1 <= first_of_0 <= second_of_1 <= second_of_0


def test_a_flood_ends_when_all_publishers_have_said_how_much_they_send() -> None:
    board = Board(1, 2)
    for _ in range(2):
        board.begin()
        board.end(1, 512)
        assert board.target == 0
        board.end(0, 256)
        assert board.target == 768


def test_ratios_are_those_of_pairs() -> None:
    turns = Turns()
    turns.ours = [slice_of(s, 100, [[1]]) for s in (1.0, 2.0, 50.0)]
    turns.relays = [slice_of(1.0, 100, [[1]]) for _ in range(3)]
    ratios = turns.ratios(lambda slice_: slice_.per_s)
    assert ratios == pytest.approx([1.0, 0.5, 0.02])


@pytest.mark.parametrize("size", [1, 100, 10_000, 1 << 20, 64 << 20])
def test_the_window_is_bounded_and_has_room_for_two_blocks(size: int) -> None:
    load = Load(size)
    assert load.block >= 1
    assert load.window >= 2 * load.block
    assert load.window == 2 * load.block or load.window * size <= 16 << 20


def test_counts_are_read_however_the_bytes_arrive() -> None:
    data = b"".join(n.to_bytes(8, "little") for n in (5, 70_000, 3_000_000_000))
    counts = Counts()
    seen = []
    for at in range(len(data)):
        counts.feed(data[at : at + 1])
        seen.append(counts.newest)
    assert seen == [0] * 7 + [5] * 8 + [70_000] * 8 + [3_000_000_000]


@pytest.mark.process
def test_messages_that_do_not_arrive_are_missed() -> None:
    load = Load(100)
    with ClientProcesses(load, 2) as both:
        for _ in range(2):
            both.add_member(open_receiver, load.block - 1)
        both.add_publisher(open_sender)
        with pytest.raises(IllegalStateError, match=r"had counted 0, 0 messages when (256|more) "):
            both.work(Flood(0.0))
