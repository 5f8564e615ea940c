"""Who seems to be gone, and why; who is forgotten, and who is given time."""

from collections.abc import Iterable, Sequence
from random import Random

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.detector import (
    ANSWER_MS,
    ASKED_MAX,
    FORGET_MS,
    LINKED,
    MUTUAL,
    REDIAL_MS,
    Alive,
    Detector,
)
from antiphon.peers.layers.fragment import Fragment, Piece
from antiphon.peers.layers.layer import Dial, Down, Effect, Frame, Suspect, Up

A, B, C, D, E, F = (MemberId(name, 1) for name in "abcdef")
FLOOR_MS, CEILING_MS = 2000, 5000


class Watch:
    """The detector of A, with time, and what it has said."""

    def __init__(self, *others: MemberId) -> None:
        self.now_ms = 0
        self.layer = Detector()
        view = PeerView(ViewId(0, A), (A, *others), A)
        self.layer.bind(A, view, (), Random(0))
        self.layer.start(0)
        self.said: list[Suspect] = []
        self.dialled: list[str] = []
        self.asked: list[MemberId] = []
        for other in others:
            self.take(self.layer.linked(other, f"{other}:1", 0))
            self.beat(other)

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Suspect):
                self.said.append(effect)
            elif isinstance(effect, Dial):
                self.dialled.append(effect.address)
            elif isinstance(effect, Down) and isinstance(header := effect.frame.headers[-1], Alive):
                self.asked += (effect.to or ()) if header.answer else ()

    def beat(
        self, process: MemberId, linked: Iterable[MemberId] = (), address: str = "x:1"
    ) -> None:
        """Have a process say that it is alive, and with whom it is connected."""
        hears = [(A, "a:1", LINKED | MUTUAL)]
        hears += [(other, address, LINKED) for other in linked]
        frame = Frame(b"", (Alive(tuple(hears)),))
        self.take(self.layer.up(frame, process, self.now_ms))

    def pass_time(self, passed_ms: int, *alive: MemberId) -> None:
        """Let time pass, with heartbeats of these processes."""
        end_ms = self.now_ms + passed_ms
        while self.now_ms < end_ms:
            self.now_ms += 50
            for process in alive:
                self.beat(process)
            self.take(self.layer.tick(self.now_ms))


def test_silence_is_suspected_within_the_ceiling_and_not_before_the_floor() -> None:
    w = Watch(B, C)
    w.pass_time(1000, B, C)
    w.pass_time(FLOOR_MS - 300, B)
    assert w.said == []
    w.pass_time(CEILING_MS - FLOOR_MS + 300, B)
    assert [suspect.process for suspect in w.said] == [C]
    assert w.said[0].why
    assert B in w.layer.mutual()


def test_any_frame_is_a_sign_of_life_and_passes() -> None:
    w = Watch(B)
    for _ in range(CEILING_MS // 500 * 2):
        w.pass_time(500)
        assert w.layer.up(Frame(b"data"), B, w.now_ms) == (Up(Frame(b"data"), B),)
    assert w.said == []


def test_pieces_of_a_large_frame_are_signs_of_life() -> None:
    w, fragment = Watch(B, C), Fragment(size=1)
    w.layer.bind(A, w.layer.view, (fragment,), Random(0))
    fragment.bind(A, w.layer.view, (), Random(0))
    for index in range(1, CEILING_MS // 500 * 2):
        w.pass_time(500, C)
        piece = Frame(b"x", (Piece(1, index, 1000),))
        assert fragment.up(piece, B, w.now_ms) == ()
    assert w.said == []
    w.pass_time(CEILING_MS, C)
    assert [suspect.process for suspect in w.said] == [B]
    fragment.up(Frame(b"x", (Piece(1, 999, 1000),)), B, w.now_ms)
    w.pass_time(500, C)
    assert w.said[1:] == [Suspect(B, "")]


def test_a_suspicion_is_withdrawn_by_the_next_frame_and_the_process_watched_again() -> None:
    w = Watch(B, C)
    w.pass_time(CEILING_MS, C)
    w.beat(B)
    assert w.said[1:] == [Suspect(B, "")]
    w.pass_time(CEILING_MS + 500, C)
    assert [suspect.process for suspect in w.said] == [B, B, B]
    assert w.said[-1].why


def test_who_says_goodbye_is_forgotten_and_neither_suspected_nor_dialled() -> None:
    w = Watch(B, C)
    w.pass_time(500, B, C)
    w.take(w.layer.unlinked(B, True, w.now_ms))
    w.beat(B)  # on its way before
    w.pass_time(CEILING_MS + REDIAL_MS[1], C)
    assert (w.said, w.dialled, w.asked) == ([], [], [])
    assert w.layer.heard() == [C]


def test_a_lost_connection_is_suspected_at_once_if_nobody_has_one() -> None:
    w = Watch(B, C)
    w.pass_time(500, B, C)
    w.take(w.layer.unlinked(B, False, w.now_ms))
    assert w.asked == [C]
    assert w.said == []
    w.now_ms += 1
    w.beat(C)
    assert [suspect.process for suspect in w.said] == [B]
    assert "nobody else" in w.said[0].why


def test_a_lost_connection_that_others_still_have_is_left_to_silence() -> None:
    w = Watch(B, C)
    w.pass_time(500, B, C)
    w.beat(C, [B])
    w.take(w.layer.unlinked(B, False, w.now_ms))
    w.now_ms += 1
    w.beat(C, [B])
    for _ in range(4):
        w.pass_time(ANSWER_MS)
        w.beat(C, [B])
    assert w.said == []


def test_who_does_not_answer_about_a_lost_one_is_not_waited_for() -> None:
    w = Watch(B, C)
    w.pass_time(500, B, C)
    w.take(w.layer.unlinked(B, False, w.now_ms))
    w.pass_time(ANSWER_MS - 50)
    assert w.said == []
    w.pass_time(50)
    assert [suspect.process for suspect in w.said] == [B]


def test_only_some_are_asked() -> None:
    w = Watch(B, C, D, E, F)
    w.pass_time(500, B, C, D, E, F)
    w.take(w.layer.unlinked(B, False, w.now_ms))
    assert len(w.asked) == ASKED_MAX
    assert B not in w.asked


def test_who_was_paused_itself_gives_all_others_time() -> None:
    w = Watch(B, C)
    w.pass_time(1000, B, C)
    w.now_ms += 60_000
    w.take(w.layer.tick(w.now_ms))
    assert w.said == []
    w.pass_time(FLOOR_MS - 300, C)
    assert w.said == []
    w.pass_time(CEILING_MS, C)
    assert [suspect.process for suspect in w.said] == [B]


def test_a_process_that_came_back_as_another_one_is_gone() -> None:
    w = Watch(B, C)
    w.pass_time(500, B, C)
    w.take(w.layer.unlinked(B, False, w.now_ms))
    w.take(w.layer.linked(MemberId("b", 2), "b:2", w.now_ms))
    assert [suspect.process for suspect in w.said] == [B]
    assert "back as another process" in w.said[0].why


def test_addresses_that_others_know_are_dialled_and_lost_ones_again() -> None:
    w = Watch(B)
    w.beat(B, [C], "c:1")
    assert w.dialled == ["c:1"]
    w.take(w.layer.unlinked(B, False, w.now_ms))
    w.pass_time(2000)
    assert w.dialled.count("b:1") > 1
    w.pass_time(FORGET_MS)
    assert list(w.layer.status()["suspected"]) == ["b"]  # it is a member


def test_who_hears_whom_is_what_they_say() -> None:
    w = Watch(B, C)
    assert w.layer.mutual() == [B, C]
    w.take(w.layer.up(Frame(b"", (Alive(((B, "b:1", LINKED | MUTUAL),)),)), C, w.now_ms))
    assert w.layer.mutual() == [B]
    assert w.layer.hears(C) == {B}
    assert w.layer.hears(A) == {B}
