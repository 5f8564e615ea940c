"""Large packs in pieces: between a `Leaving` and an `Arriving`, whatever the network does."""

import tracemalloc
from random import Random

import pytest

from antiphon.formats.entry import ReplicaId
from antiphon.formats.frames import FRAME_MAX
from antiphon.formats.server_messages import Forward, ForwardNamed, Piece, PieceTaken
from antiphon.log.pieces import (
    KEPT_MAX,
    PROPOSALS_MAX,
    STALLED_BEATS,
    WINDOW,
    Arriving,
    Forwarding,
    Leaving,
    name_of,
    size_of,
)

LEADER = ReplicaId(1, 1)
PIECE = 10


def pack(letter: str, size: int = 1000) -> bytes:
    return letter.encode() * size


def carry(leaving: Leaving, arriving: Arriving, pieces: list[Piece]) -> None:
    while pieces:
        answer = arriving.take(pieces.pop(0))
        if answer is not None:
            pieces += leaving.taken(answer)


def test_packs_arrive_one_after_the_other() -> None:
    leaving, arriving = Leaving(PIECE), Arriving()
    packs = [pack("a"), pack("b", 1001)]
    carry(leaving, arriving, leaving.add(packs))
    for one in packs:
        assert leaving.holds(name_of(one))
        assert arriving.named(name_of(one)) == one
    assert leaving.waits == 0


def test_a_name_is_of_one_pack_only() -> None:
    assert len({name_of(p) for p in (pack("a"), pack("b"), pack("a", 1001))}) == 3
    assert size_of(name_of(pack("a"))) == 1000


def test_no_more_than_a_window_is_on_its_way() -> None:
    leaving = Leaving(PIECE)
    pieces = leaving.add([pack("a")])
    assert [p.at for p in pieces] == list(range(0, WINDOW * PIECE, PIECE))
    (following,) = leaving.taken(PieceTaken(pieces[0].name, PIECE))
    assert following.at == WINDOW * PIECE


def test_a_lost_piece_is_sent_again_after_two_heartbeats() -> None:
    leaving, arriving = Leaving(PIECE), Arriving()
    pieces = leaving.add([pack("a")])
    assert all(arriving.take(p) is not None for p in pieces[:2])
    answers = [arriving.take(p) for p in pieces[3:]]  # the third is lost
    assert set(answers) == {None}
    assert leaving.taken(PieceTaken(pieces[0].name, 2 * PIECE))
    assert leaving.again() == []
    again = leaving.again()
    assert [p.at for p in again] == [2 * PIECE]
    carry(leaving, arriving, again)
    assert leaving.holds(name_of(pack("a")))


def test_who_never_answers_is_given_up() -> None:
    leaving = Leaving(PIECE)
    leaving.add([pack("a")])
    for _ in range(STALLED_BEATS):
        leaving.again()
        assert leaving.comes(name_of(pack("a")))
    leaving.again()
    assert not leaving.comes(name_of(pack("a")))
    assert not leaving.holds(name_of(pack("a")))


def test_who_has_forgotten_is_sent_all_of_it_again() -> None:
    leaving, arriving = Leaving(PIECE), Arriving()
    pieces = leaving.add([pack("a")])
    pieces = leaving.taken(PieceTaken(pieces[0].name, 3 * PIECE))
    again = Arriving()
    answer = again.take(pieces[0])
    assert answer == PieceTaken(name_of(pack("a")), 0)
    assert leaving.taken(answer) == [], "an old answer says the same"
    assert leaving.again() == []
    carry(leaving, again, leaving.again())
    assert again.named(name_of(pack("a"))) == pack("a")
    assert arriving.named(name_of(pack("a"))) is None


def test_who_says_to_hold_it_no_more_does_not_hold_it() -> None:
    leaving, arriving = Leaving(PIECE), Arriving()
    carry(leaving, arriving, leaving.add([pack("a")]))
    assert leaving.taken(PieceTaken(name_of(pack("a")), 0)) == []
    assert not leaving.holds(name_of(pack("a")))


@pytest.mark.parametrize("seed", range(20))
def test_any_loss_repetition_and_order_ends_with_the_pack(seed: int) -> None:
    random = Random(seed)
    leaving, arriving = Leaving(PIECE), Arriving()
    sent = random.randbytes(905)  # a piece at a wrong place makes another pack of it
    there, back = leaving.add([sent]), list[PieceTaken]()
    for _ in range(10_000):
        if leaving.waits == 0:
            break
        if not there and not back:
            there += leaving.again()
        for way in (there, back):
            random.shuffle(way)
        if there and (piece := there.pop()) and random.random() < 0.9:
            there += [piece] * (random.random() < 0.1)
            answer = arriving.take(piece)
            back += [answer] * (answer is not None)
        if back and (taken := back.pop()) and random.random() < 0.9:
            there += leaving.taken(taken)
    assert leaving.waits == 0
    if leaving.holds(name_of(sent)):
        assert arriving.named(name_of(sent)) == sent


def test_an_old_answer_is_no_reason_to_send_again() -> None:
    leaving = Leaving(PIECE)
    name = leaving.add([pack("a")])[0].name
    assert len(leaving.taken(PieceTaken(name, 5 * PIECE))) == 5
    assert leaving.taken(PieceTaken(name, 2 * PIECE)) == []
    assert [p.at for p in leaving.taken(PieceTaken(name, 6 * PIECE))] == [(5 + WINDOW) * PIECE]
    assert leaving.again() == []
    assert [p.at for p in leaving.again()] == [6 * PIECE]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_and_answers_that_come_twice_do_not_beget_more(seed: int) -> None:
    random = Random(seed)
    leaving, arriving = Leaving(PIECE), Arriving()
    sent = there = leaving.add([pack("a")])
    back, count, beats = list[PieceTaken](), len(sent), 0
    while leaving.waits:
        if not there and not back:
            beats += 1
            there += (sent := leaving.again())
            count += len(sent)
        for way in (there, back):
            random.shuffle(way)
        if there:
            piece = there.pop()
            there += [piece] * (random.random() < 0.5)
            answer = arriving.take(piece)
            back += [answer] * (answer is not None)
        if back:
            taken = back.pop()
            back += [taken] * (random.random() < 0.5)
            there += (sent := leaving.taken(taken))
            count += len(sent)
        assert count <= 1000 // PIECE + WINDOW * (beats + 1)
    assert arriving.named(name_of(pack("a"))) == pack("a")


@pytest.mark.parametrize(
    ("at", "data", "size"),
    [(-1, b"abc", 100), (98, b"abc", 100), (0, b"", 100), (0, b"a", FRAME_MAX + 1), (0, b"a", 0)],
)
def test_a_piece_that_makes_no_sense_is_not_taken(at: int, data: bytes, size: int) -> None:
    arriving = Arriving()
    name = size.to_bytes(8, "little") + b"x" * 32
    assert arriving.take(Piece(name, at, data)) is None
    assert arriving._held == b""


def test_a_pack_that_has_begun_takes_as_much_room_as_has_come() -> None:
    arriving = Arriving()
    name = FRAME_MAX.to_bytes(8, "little") + b"x" * 32
    tracemalloc.start()
    assert arriving.take(Piece(name, 0, b"abc")) == PieceTaken(name, 3)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100_000


def test_few_packs_are_kept() -> None:
    leaving, arriving = Leaving(PIECE), Arriving()
    packs = [pack(letter) for letter in "abcd"]
    for one in packs:
        carry(leaving, arriving, leaving.add([one]))
    assert len(arriving._whole) == KEPT_MAX
    assert sum(leaving.holds(name_of(one)) for one in packs) == KEPT_MAX
    assert len(Leaving(PIECE).add(packs)) == WINDOW
    full = Leaving(PIECE)
    full.add(packs)
    assert full.waits == KEPT_MAX


def test_a_proposal_is_forwarded_under_its_names_in_its_order() -> None:
    forwarding, arriving = Forwarding(LEADER, PIECE, large_bytes=100), Arriving()
    proposals = [(b"small", pack("a"), b"also"), (pack("b"),)]
    out = [m for packs in proposals for m in forwarding.propose(packs)]
    assert forwarding.propose(proposals[0]) == [], "proposed again"
    named: list[ForwardNamed] = []
    while out:
        message = out.pop(0)
        if isinstance(message, ForwardNamed):
            named.append(message)
        elif isinstance(message, Piece) and (answer := arriving.take(message)) is not None:
            out += forwarding.taken(answer)
    assert named == [
        ForwardNamed((b"small", name_of(pack("a")), b"also"), (1,)),
        ForwardNamed((name_of(pack("b")),), (0,)),
    ]
    assert forwarding.empty


def test_to_a_leader_that_knows_no_pieces_it_goes_as_a_whole() -> None:
    forwarding = Forwarding(LEADER, PIECE, large_bytes=100)
    forwarding.propose((pack("a"),))
    out = [m for _ in range(STALLED_BEATS + 1) for m in forwarding.again()]
    assert out[-1] == Forward((pack("a"),))
    assert forwarding.empty


def test_few_proposals_wait() -> None:
    forwarding = Forwarding(LEADER, PIECE, large_bytes=100)
    for size in range(1000, 1000 + 2 * PROPOSALS_MAX):
        forwarding.propose((pack("a", size),))
    assert len(forwarding._proposals) == PROPOSALS_MAX


def test_who_has_half_nearly_holds_it() -> None:
    leaving = Leaving(PIECE)
    name = leaving.add([pack("a"), pack("b")])[0].name
    leaving.taken(PieceTaken(name, 490))
    assert not leaving.nearly_holds(name)
    leaving.taken(PieceTaken(name, 500))
    assert leaving.nearly_holds(name)
    assert not leaving.nearly_holds(name_of(pack("b")))
