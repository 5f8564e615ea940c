"""The streams of a view: gaps, requests, and what is kept."""

from antiphon.model.peer_views import MemberId
from antiphon.peers.layers.layer import Frame
from antiphon.peers.layers.streams import ASK_AGAIN_MS, EARLY_MAX, WANTED_MAX, Ask, Gap, Stream

A, B, C = (MemberId(name, 1) for name in "abc")


def frame(number: int) -> Frame:
    return Frame(str(number).encode(), number=number)


def numbers(frames: object) -> list[int]:
    assert isinstance(frames, list | tuple)
    return [each.number for each in frames]


def test_frames_behind_a_gap_come_out_when_it_is_filled() -> None:
    stream = Stream()
    assert numbers(stream.take(1, frame(1))) == [1]
    assert numbers(stream.take(3, frame(3))) == []
    assert numbers(stream.take(5, frame(5))) == []
    assert stream.missing() == (2, 2)
    assert numbers(stream.take(2, frame(2))) == [2, 3]
    assert stream.missing() == (4, 4)
    assert numbers(stream.take(2, frame(2))) == []
    assert stream.held == 3


def test_what_is_purged_counts_as_held_and_is_not_read() -> None:
    stream = Stream()
    for number in range(1, 6):
        stream.take(number, frame(number))
    stream.purge(3)
    stream.purge(2)
    assert stream.held == 5
    assert [number for number, _ in stream.read(1, 9)] == [4, 5]
    assert [each.number for _, each in stream.read(5, 5)] == [5]
    assert len(stream) == 2


def test_no_more_is_kept_behind_a_gap_than_the_bound() -> None:
    stream = Stream()
    stream.take(EARLY_MAX + 1, frame(EARLY_MAX + 1))
    assert len(stream) == 0
    stream.take(EARLY_MAX, frame(EARLY_MAX))
    assert len(stream) == 1


def no_pieces(sender: MemberId) -> int:
    return -1


def test_the_origin_is_asked_first_and_then_the_other_holders_in_turn() -> None:
    stream = Stream()
    stream.known = 3
    gap = Gap(stream, (A, B, C), no_pieces)
    assert gap.ask(0) == Ask(A, 1, 3)
    assert gap.ask(ASK_AGAIN_MS - 1) is None
    assert gap.ask(ASK_AGAIN_MS) == Ask(B, 1, 3)
    assert gap.due_ms == 2 * ASK_AGAIN_MS
    assert gap.ask(2 * ASK_AGAIN_MS) == Ask(C, 1, 3)
    assert gap.ask(3 * ASK_AGAIN_MS) == Ask(A, 1, 3)


def test_who_sends_a_large_frame_in_pieces_is_not_passed_over() -> None:
    stream = Stream()
    stream.known = 1
    came_ms = {A: -1, B: -1}
    gap = Gap(stream, (A, B), came_ms.__getitem__)
    assert gap.ask(0) == Ask(A, 1, 1)
    came_ms[A] = ASK_AGAIN_MS - 1
    came_ms[B] = ASK_AGAIN_MS  # of something else: it was not asked
    assert gap.ask(ASK_AGAIN_MS) is None
    assert gap.due_ms == 2 * ASK_AGAIN_MS - 1
    assert gap.ask(2 * ASK_AGAIN_MS - 1) == Ask(B, 1, 1)


def test_who_answers_is_given_time_and_asked_for_the_rest_at_once() -> None:
    stream = Stream()
    stream.known = WANTED_MAX + 10
    gap = Gap(stream, (A, B), no_pieces)
    assert gap.ask(0) == Ask(A, 1, WANTED_MAX)
    stream.take(1, frame(1))
    assert gap.ask(ASK_AGAIN_MS) is None
    for number in range(2, WANTED_MAX + 1):
        stream.take(number, frame(number))
    assert gap.ask(ASK_AGAIN_MS + 1) == Ask(A, WANTED_MAX + 1, WANTED_MAX + 10)
    for number in range(WANTED_MAX + 1, WANTED_MAX + 11):
        stream.take(number, frame(number))
    assert gap.ask(ASK_AGAIN_MS + 2) is None
    assert gap.is_filled
